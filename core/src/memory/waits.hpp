// SPDX-License-Identifier: Apache-2.0
// The list of waits that keep work on different streams in order. A test removes one at a time and must see a wrong result.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::core {

enum class Wait : uint32_t {
  // Nothing is removed. Also the reason of waits before the host itself reads or writes memory of a device that it can address:
  // no device of the tests has such memory and work that runs late.
  kNone,
  kInputWritten,      // a run reads an input behind the work that wrote it
  kStateRead,         // a run writes a state behind the work that reads its old value
  kCopyWritten,       // a copy of a tensor reads it behind the work that wrote it
  kBlockReused,       // a block of the pool serves another stream behind the work that used it
  kBlockRead,         // a block goes back to its pool's stream behind what other streams read of it
  kStepNeedsData,     // a step reads what a step on another stream wrote
  kStepReusesBytes,   // a step writes bytes of the arena that a step on another stream still reads
  kRunEnds,           // the stream of a device passes the end of a run behind the foreign copies that read its memory
  kStateKept,         // a state that is not donated is written back once the kernels of the call have found no fault
  kFaultsSynced,      // with runtime.sync_faults a step has run before the next one is queued
  kConstantPlaced,    // a compiled plan's constants have arrived
  kPlanDestroyed,     // a plan's kernels outlive the work that runs them
  kStreamDestroyed,   // a stream outlives the work that is queued on it
  kBorrowedReturned,  // memory of somebody else is given back behind the work that used it
  kUser,              // embed.h: stream_wait, synchronize
  kCount
};

// For tests alone: this wait does nothing until another is named. kNone: all are in place.
inline std::atomic<Wait> removed_wait{Wait::kNone};
inline bool is_removed(Wait w) noexcept { return w != Wait::kNone && removed_wait.load(std::memory_order_relaxed) == w; }

}  // namespace tessera::core
