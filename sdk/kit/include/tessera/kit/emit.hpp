// SPDX-License-Identifier: Apache-2.0
// Text of a kernel for the CPU: C++ that includes nothing, with explicit vector types, for clang 14 and g++ 12 and newer.
// Compile with -ffp-contract=off, no -ffast-math, at -O2; nothing else changes the bits.
//
//   extern "C" void NAME(const tsr_kernel_args*, int64_t begin, int64_t end);    // phase 0: units [begin, end)
//   extern "C" void NAME_join(const tsr_kernel_args*, int64_t begin, int64_t end);  // phase 1, when the reduction is split
//   extern "C" void NAME_plan(const int64_t* dims, int64_t* plan);                  // fills KernelPlan
//
// A launch calls NAME_plan, then for each phase the host's parallel(units, grain, ..). Functions that several kernels of one
// module share are emitted once: make one ModuleText and add kernels to it.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/kit/dialect.hpp"
#include "tessera/kit/schedule.hpp"

namespace tessera::kit {

// The layout that the emitted text declares as tsr_kernel_args.
struct KernelArgs {
  void* const* buffers;  // one per buffer
  const int64_t* dims;   // one per symbol
  void* workspace;
  uint32_t* faults;  // kFault.. are or-ed in, atomically
  int64_t stream;    // not 0: the outputs are so large that they should not displace what the caches hold
};
struct KernelPlan {                // as NAME_plan fills it
  int64_t workspace;               // bytes
  int64_t units, grain;            // phase 0
  int64_t join_units, join_grain;  // phase 1; 0: none
};
using KernelRange = void (*)(const KernelArgs*, int64_t begin, int64_t end);
using KernelPlanFn = void (*)(const int64_t* dims, KernelPlan*);

class ModuleText {
 public:
  explicit ModuleText(const Dialect& dialect) : dialect_(dialect) {}
  // Adds a kernel under its name, which must be a C identifier and unique in the module. Throws Unfit-like sdk::Error TSR-K040
  // for a kernel that the CPU dialect cannot express (welford, online_softmax).
  void add(Kernel& k, const Schedule& s);
  // The whole text.
  std::string text() const;

 private:
  friend class KernelWriter;
  const Dialect& dialect_;
  Needs needs_;
  std::string functions_, kernels_;
  std::set<std::pair<uint32_t, int>> emitted_;  // functions, by lanes
  std::set<std::string> combiners_;
};

}  // namespace tessera::kit
