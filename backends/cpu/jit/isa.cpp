// SPDX-License-Identifier: Apache-2.0
#include "isa.hpp"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cpu {
namespace {

constexpr const char* kAvx512[] = {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl", "+avx512cd"};
constexpr const char* kBf16[] = {"+avx512f", "+avx512bw", "+avx512dq", "+avx512vl", "+avx512cd", "+avx512bf16"};
constexpr const char* kAmx[] = {"+avx512f",  "+avx512bw",   "+avx512dq", "+avx512vl",
                                "+avx512cd", "+avx512bf16", "+amx-tile", "+amx-bf16"};

constexpr Isa kIsas[] = {
    {"baseline", 0, 128, false, false, "x86-64", {}, "-march=x86-64"},
    {"avx2", 1, 256, false, false, "x86-64-v3", {}, "-march=x86-64-v3 -mprefer-vector-width=256"},
    {"avx512", 2, 512, false, false, "x86-64-v3", kAvx512,
     "-march=x86-64-v3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mprefer-vector-width=512"},
    {"avx512_bf16", 3, 512, true, false, "x86-64-v3", kBf16,
     "-march=x86-64-v3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mavx512bf16 -mprefer-vector-width=512"},
    {"amx", 4, 512, true, true, "x86-64-v3", kAmx,
     "-march=x86-64-v3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mavx512bf16 -mamx-tile -mamx-bf16 "
     "-mprefer-vector-width=512"},
};

bool cpuid_bit(unsigned leaf, unsigned subleaf, int reg, int bit) {
  unsigned r[4] = {};
  return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) != 0 && (r[reg] >> bit & 1) != 0;
}

// Tiles are a state that a process must ask for (Linux 5.16); a refusal means that they cannot be used.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

int native_level() {
  __builtin_cpu_init();
  // __builtin_cpu_supports also asks whether the system saves the registers.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2") ||
      !cpuid_bit(1, 0, 2, 29))  // f16c
    return 0;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512cd"))
    return 1;
  if (!cpuid_bit(7, 1, 0, 5)) return 2;                                                  // avx512_bf16
  if (!cpuid_bit(7, 0, 3, 24) || !cpuid_bit(7, 0, 3, 22) || !may_use_tiles()) return 3;  // amx-tile, amx-bf16
  return 4;
}

}  // namespace

std::span<const Isa> all_isas() { return kIsas; }

const Isa* find_isa(std::string_view name) {
  for (const Isa& i : kIsas)
    if (name == i.name) return &i;
  return nullptr;
}

const Isa& native_isa() {
  static const Isa& best = kIsas[native_level()];
  return best;
}

}  // namespace cpu
