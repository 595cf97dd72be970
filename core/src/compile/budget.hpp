// SPDX-License-Identifier: Apache-2.0
// Holds a program to its budget of memory.
#pragma once

#include <cstdint>
#include <memory>

#include "compile/driver.hpp"
#include "compile/known_kernels.hpp"
#include "compile/partition.hpp"

namespace tessera::core {

// Of one compile, around the stages from the partition to the kernels. Only compiled kernels tell their workspaces: where these
// come on top, the joint graph is partitioned again with what is known by then.
class Budget {
 public:
  Budget(Compilation& compilation, Stage last);
  ~Budget();
  Budget(const Budget&) = delete;

  int64_t workspaces() const { return workspaces_; }
  EvaluatedPlans& evaluated() { return evaluated_; }
  PartitionPlan& plan() { return plan_; }

  // True: the compilation is back at the joint graph. Throws TSR-A010, which names a peak that can be had: what is compiled
  // last when no plan fits has the smallest one.
  bool is_exceeded();

 private:
  [[noreturn]] void refuse(int64_t peak) const;

  static constexpr int kAttempts = 4;
  Compilation& c_;
  std::unique_ptr<Graph> joint_;
  EvaluatedPlans evaluated_;
  KnownKernels known_;
  PartitionPlan plan_;
  int64_t workspaces_ = 0;
  int attempt_ = 0;
};

}  // namespace tessera::core
