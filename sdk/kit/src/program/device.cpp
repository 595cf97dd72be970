// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/program/device.hpp"

#include "tessera/plugin.hpp"

namespace tessera::kit {

const std::vector<GpuDescription>& gpu_descriptions() {
  // Units, memory and bandwidth are those of the usual card: A100 80 GB, L40S, H100 SXM, RTX 5090, one die of an MI250X,
  // MI300X, RX 7900 XTX. clang-format off
  static const std::vector<GpuDescription> all = {
      // name      wave units threads waves blocks registers most  shared/block  shared/unit   L2            bytes/s   mma
      {"sm_80", 32, 108, 1024, 64, 32, 65536, 255, 163 << 10, 164 << 10, 40ll << 20, 1.75e12, true, false, true},
      {"sm_89", 32, 142, 1024, 48, 24, 65536, 255, 99 << 10, 100 << 10, 96ll << 20, 0.80e12, true, false, true},
      {"sm_90a", 32, 132, 1024, 64, 32, 65536, 255, 227 << 10, 228 << 10, 50ll << 20, 2.86e12, true, true, true},
      {"sm_120", 32, 170, 1024, 48, 24, 65536, 255, 99 << 10, 100 << 10, 96ll << 20, 1.60e12, true, false, true},
      {"gfx90a", 64, 110, 1024, 32, 16, 131072, 256, 64 << 10, 64 << 10, 8ll << 20, 1.30e12},
      {"gfx942", 64, 304, 1024, 32, 16, 131072, 256, 64 << 10, 64 << 10, 4ll << 20, 4.00e12},
      {"gfx1100", 32, 96, 1024, 64, 32, 49152, 256, 64 << 10, 128 << 10, 6ll << 20, 0.85e12},
      // The simulated GPU, at both sizes of a wave.
      {"sim32", 32, 4, 1024, 64, 32, 65536, 255, 48 << 10, 64 << 10, 1ll << 20, 1.00e9, true, true, true},
      {"sim64", 64, 4, 1024, 32, 32, 65536, 255, 48 << 10, 64 << 10, 1ll << 20, 1.00e9, false, false, true},
  };
  // clang-format on
  return all;
}

const GpuDescription& gpu_description(std::string_view architecture) {
  std::string known;
  for (const GpuDescription& d : gpu_descriptions()) {
    if (d.architecture == architecture) return d;
    known += (known.empty() ? "" : ", ") + d.architecture;
  }
  throw sdk::Error(TSR_USER, "TSR-K050", "there is no description of a device '" + std::string(architecture) + "'",
                   "known are " + known);
}

std::string why_absurd(const GpuDescription& d) {
  const auto between = [](int64_t low, int64_t x, int64_t high) { return low <= x && x <= high; };
  if (!between(32, d.wave, 64) || (d.wave & (d.wave - 1)) != 0) return "a wave has 32 or 64 lanes";
  if (!between(1, d.units, 1 << 16)) return "there are between 1 and 65,536 units";
  if (!between(d.wave, d.max_threads, 1 << 16) || d.max_threads % d.wave != 0) return "a block has whole waves of threads";
  if (!between(1, d.max_waves, 1 << 12) || !between(1, d.max_blocks, 1 << 12)) return "a unit runs some waves and blocks";
  if (!between(1024, d.registers, 1 << 24) || !between(16, d.max_registers, 1 << 12)) return "threads have registers";
  if (!between(1024, d.shared_bytes, 1 << 26) || d.shared_bytes_unit < d.shared_bytes) return "blocks have shared memory";
  if (!(d.bandwidth > 0)) return "memory has a bandwidth";
  return {};
}

}  // namespace tessera::kit
