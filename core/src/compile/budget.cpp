// SPDX-License-Identifier: Apache-2.0
#include "compile/budget.hpp"

#include <algorithm>
#include <string>

#include "compile/estimate.hpp"
#include "compile/limit_sizes.hpp"
#include "ir/graph.hpp"
#include "log/log.hpp"
#include "plan/plan.hpp"
#include "plan/saved_kernels.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace tessera::core {

Budget::Budget(Compilation& c, Stage last) : c_(c) {
  if (c.options.partition && last == Stage::kExecutable && is_partitioned(*c.graph, c.options)) joint_ = c.graph->clone();
}

Budget::~Budget() {
  if (c_.options.known == &known_) c_.options.known = nullptr;
}

bool Budget::is_exceeded() {
  if (!joint_) {
    if (c_.budget_bytes = plan_.budget_bytes; !plan_.feasible) refuse(plan_.peak_bytes);
    return false;
  }
  if (plan_.budget_bytes < 0) return false;
  const int64_t peak = peak_bytes(*c_.graph, *c_.plan);
  // A share of the activations is no promise of bytes: what else is in memory is what it is.
  const bool is_share = c_.options.partition->bytes < 0;
  if (peak <= plan_.budget_bytes || (is_share && attempt_ > 1)) {
    limit_sizes(*c_.graph, *c_.plan, std::max(peak, plan_.budget_bytes));
    if (peak != plan_.peak_bytes && log_enabled(Artifact::kPartition))
      log_write(Artifact::kPartition, "@" + std::string(c_.graph->tables().name) + "  compiled: peak " +
                                          bytes_text(static_cast<double>(peak)) + " with workspaces of kernels");
    return false;
  }
  if (!plan_.feasible || ++attempt_ == kAttempts) refuse(peak);
  // Where kernels turn out to take other memory than was known, plans are priced anew with that.
  if (known_.learn(*c_.graph, *c_.plan)) {
    c_.options.known = &known_;
    evaluated_.clear();
  } else {
    workspaces_ += peak - plan_.peak_bytes;
  }
  c_.plan = nullptr;
  std::erase_if(c_.options.failed, [](const auto& f) { return f.second != TSR_NONE; });  // nodes get other ids
  c_.graph = joint_->clone();
  c_.assignment = assign_again(*c_.graph, c_.options);
  if (c_.options.save) c_.options.save->bytes.clear();
  return true;
}

void Budget::refuse(int64_t peak) const {
  const PartitionOptions& asked = *c_.options.partition;
  throw user_error("TSR-A010",
                   (asked.place.empty() ? "" : asked.place + ": ") + "graph @" + c_.graph->tables().name +
                       " does not fit the budget of " + std::to_string(plan_.budget_bytes) +
                       " bytes: the smallest peak that partitioner '" + plan_.partitioner + "' finds is " +
                       std::to_string(peak) + " bytes (" + bytes_text(static_cast<double>(peak)) + ")",
                   "give partitioner.budget_bytes = " + std::to_string(peak) + " or more, or a smaller batch");
}

}  // namespace tessera::core
