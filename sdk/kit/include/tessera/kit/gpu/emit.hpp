// SPDX-License-Identifier: Apache-2.0
// Text of programs for devices of the SIMT family: C that includes nothing. The kernels' text is one for all of them; what a
// device calls things is a prelude of a page, a closed list of types, macros and functions that the text uses, which is in
// docs/kernel_kit.md. Compile without contraction (NVRTC: --fmad=false; clang: -ffp-contract=off) and without fast-math;
// nothing else changes the bits.
//
// KERNEL(threads) void NAME(GLOBAL const u16* RESTRICT x, GLOBAL float* RESTRICT y, i64 s0)
//
// One function for each launch, NAME_0, NAME_1, .. where there are several.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

struct GpuDialect {
  const char* name;
  const char* prelude;
  bool thunks;   // NAME_thunk(void* const*) is there too: arguments by address, for a caller that knows no types
  bool watched;  // accesses of global memory go through WATCHED(type, name, argument), which tells the runner of them
  const char* wide = "ll";  // suffix of a number of 64 bits
  // Text of `mma_group` for these factors and so many columns; of `mma_wait` where the factors are none, and for no columns of
  // what all of them share. Null: the dialect has no such instruction.
  std::string (*group)(Type factors, int64_t columns) = nullptr;
};
const GpuDialect& cuda_dialect();
const GpuDialect& hip_dialect();  // clang for amdgcn, without HIP's headers
// OpenCL C 1.2 with doubles, for compilers that know clang's attribute `overloadable`. It has no shuffles: the description says
// `shuffles = false`.
const GpuDialect& opencl_dialect();
// C++ for the host: each thread of a block is a fiber of gpu/text_runner.hpp.
const GpuDialect& sim_dialect();

// How a launcher calls one function of the text.
struct GpuLaunch {
  std::string entry;
  std::vector<uint32_t> buffers;  // of the program, in the order of the arguments: pointers
  std::vector<uint32_t> symbols;  // behind them, each an i64
  bool faults = false;            // and last a pointer to a tsr_fault, and the site that goes into it, a u64
  LaunchShape shape;              // blocks in the program's pool
  int64_t dynamic_shared = 0;     // bytes that the launch must give: more than kernels may declare
};

class GpuModuleText {
 public:
  explicit GpuModuleText(const GpuDialect& dialect) : dialect_(dialect) {}
  // Adds a program under its name, which must be a C identifier and unique in the module. Throws sdk::Error TSR-K042 for what
  // the dialects cannot say.
  std::vector<GpuLaunch> add(Program& p);
  std::string text() const;

 private:
  const GpuDialect& dialect_;
  std::string functions_, kernels_;
  std::set<uint32_t> emitted_;  // functions of the library
  std::set<std::pair<Type, int64_t>> groups_;
  friend class GpuWriter;
};

}  // namespace tessera::kit
