// SPDX-License-Identifier: Apache-2.0
// Runs text of the sim dialect on the host: each thread of a block is a fiber, fibers run in a seeded order until they wait for
// each other, and blocks come in a seeded order too. It judges the text as the interpreter judges the program: barriers and
// shuffles that not all threads come to, two threads that touch one element of shared memory without a barrier between, shared
// memory that is read before it is written, and accesses outside of it are errors that name the line of the text. So are, where
// the launch says how long its arguments are, accesses outside of an argument, and two threads, of one block or of two, that
// touch one element of an argument that the kernel writes.
//
// Not modelled: reordering of memory accesses, registers, timing.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

// What the text calls; the prelude of sim_dialect() declares the same.
struct TextRunnerApi {
  uint32_t (*block)();
  uint32_t (*thread)();
  char* (*shared)();
  void (*barrier)(int32_t of_block, int32_t line);
  uint64_t (*shuffle)(uint64_t value, int32_t from, int32_t lane, int32_t lanes, int32_t line);
  void (*touch)(const void* at, uint32_t bytes, int32_t store, int32_t line);
  void (*watch)(int32_t argument, uint32_t element_bytes, int32_t written);
  void (*touch_global)(const void* at, uint32_t bytes, int32_t store, int32_t line, int32_t argument);
  void (*raise)(tsr_fault* record, uint64_t site, uint32_t code);
};

struct TextLaunch {
  void (*bind)(const TextRunnerApi*) = nullptr;  // text_runner_bind of the module
  void (*entry)(void* const*) = nullptr;         // NAME_thunk
  int64_t blocks = 1, threads = 1, shared_bytes = 0;
  int wave = 32;
  std::string name = "a program";  // for messages
  uint64_t seed = 0;
  std::span<const int64_t> bytes = {};  // of each pointer argument, in order; empty: global memory is not watched
};
// `arguments`: the address of each, in the order of GpuLaunch. Throws sdk::Error TSR-K033 (a bug of what made the text),
// TSR-K034 where the host has no fibers for this processor. One launch at a time in a thread.
void run_text(const TextLaunch& launch, void* const* arguments);

}  // namespace tessera::kit
