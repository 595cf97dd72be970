// SPDX-License-Identifier: Apache-2.0
// Runs a program on host memory, block by block, all threads of a block in step, threads and blocks in a seeded order. It is
// the judge of schedules: beside the bits it finds indices outside of buffers, shared memory, registers and workspaces that are
// read before they are written, two threads that touch one element without a barrier between (one of them writing), barriers
// and shuffles that not all threads come to.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

// `buffers`: one pointer for each global buffer; workspaces are the interpreter's own. Returns the faults raised (kFault..,
// or-ed). Throws sdk::Error TSR-K031 that names the statement and the threads: a bug of what made the program; TSR-K032 where a
// `require` does not hold.
uint32_t interpret(Program& p, std::span<void* const> buffers, std::span<const int64_t> symbols, uint64_t seed = 0);

}  // namespace tessera::kit
