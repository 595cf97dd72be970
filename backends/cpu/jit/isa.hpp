// SPDX-License-Identifier: Apache-2.0
// The instruction sets that code is generated for, and which of them this machine can run.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace cpu {

struct Isa {
  const char* name;  // "avx512", as [cpu] isa takes it
  int level;         // a set holds every one of a lower level
  int vector_bits;
  bool bf16_dot;                      // avx512_bf16: f32 += bf16 * bf16, two products a lane
  bool amx;                           // tiles, with bf16 products
  const char* llvm_cpu;               // -mcpu
  std::span<const char* const> llvm;  // -mattr beyond that
  const char* flags;                  // the same for g++ and clang++, separated by blanks
};

// From the least to the best: baseline, avx2, avx512, avx512_bf16, amx.
std::span<const Isa> all_isas();
// Null: no such name.
const Isa* find_isa(std::string_view name);
// The best that this machine and its system can run; asks the system for the tiles' state where there are tiles. Thread-safe.
const Isa& native_isa();
inline bool can_run(const Isa& isa) { return isa.level <= native_isa().level; }

}  // namespace cpu
