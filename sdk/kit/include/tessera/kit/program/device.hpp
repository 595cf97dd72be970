// SPDX-License-Identifier: Apache-2.0
// What a schedule and an emitter know about a device of the SIMT family: data, so that programs are made, compiled and priced
// for devices that are not there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::kit {

struct GpuDescription {
  std::string architecture;         // "sm_90a", "gfx90a"; what the compiler of the text is told
  int wave = 32;                    // lanes of a wave
  int units = 1;                    // multiprocessors, compute units
  int max_threads = 1024;           // of a block
  int max_waves = 64;               // of a unit
  int max_blocks = 32;              // of a unit
  int registers = 65536;            // of 32 bits, of a unit
  int max_registers = 255;          // of a thread
  int64_t shared_bytes = 48 << 10;  // of a block, at most
  int64_t shared_bytes_unit = 64 << 10;
  int64_t l2_bytes = 4 << 20;
  double bandwidth = 1e12;  // bytes per second of a large copy, read and written
  bool mma = false;         // has the matrix instruction of programs (program.hpp)
  bool mma_group = false;   // has the one of four waves as well
  bool copies = false;      // brings inputs to shared memory while threads do something else
  bool shuffles = true;     // lanes of a wave read each other's registers; without, values go through shared memory
};

// Descriptions of common devices; throws sdk::Error TSR-K050 that lists the known ones.
const GpuDescription& gpu_description(std::string_view architecture);
const std::vector<GpuDescription>& gpu_descriptions();
// Empty, or what about these numbers cannot be.
std::string why_absurd(const GpuDescription& d);

}  // namespace tessera::kit
