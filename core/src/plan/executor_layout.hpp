// SPDX-License-Identifier: Apache-2.0
// A layout of a plan as an executor runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Plan;
struct Factory;
struct SectionLayout;

// The steps of a layout that an executor has taken: a stretch of its program on one device. Immutable; calls share it.
class ExecutorLayout {
 public:
  // Offers the longest stretch of the program that the executor's device can run by itself. Null: there is none, or the
  // executor declines; a performance hint says why. Throws what the executor reports.
  static std::shared_ptr<const ExecutorLayout> make(const Plan& plan, const SectionLayout& layout, const int64_t* dims,
                                                    const Factory& executor);
  ~ExecutorLayout();
  ExecutorLayout(const ExecutorLayout&) = delete;

  size_t begin() const { return begin_; }  // of the stretch, in the layout's program
  size_t end() const { return end_; }
  uint32_t queue() const { return queue_; }  // the plan's; kNone: the host
  // Whether the executor brings the arena of the device number `d` of Plan::arena_devices: no other step touches it.
  bool brings_arena(uint32_t d) const { return d == arena_; }
  // False: the executor declines this call, and has queued nothing. Throws what it reports, with the graph and the way out.
  bool run(const tsr_executor_call& call) const;

 private:
  ExecutorLayout(const Plan& plan, const Factory& executor) : plan_(plan), executor_(executor) {}
  const Plan& plan_;
  const Factory& executor_;
  size_t begin_ = 0, end_ = 0;
  uint32_t queue_ = TSR_NONE, arena_ = TSR_NONE;
  tsr_device device_ = 0;
  void* prepared_ = nullptr;
};

}  // namespace tessera::core
