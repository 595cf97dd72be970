// SPDX-License-Identifier: Apache-2.0
#include "dispatch/recompile_rules.hpp"

#include "config/config.hpp"
#include "dispatch/frame.hpp"
#include "support/error.hpp"

namespace tessera::core {

RecompileRules RecompileRules::of(const Config& config) {
  RecompileRules r;
  r.error_on_recompile = config.get_bool("guards.error_on_recompile");
  r.fail_on_limit = config.get_bool("guards.fail_on_recompile_limit_hit");
  return r;
}

RecompileRules::Limit RecompileRules::limit_hit(const Frame& frame, int64_t compiled) {
  const Frame::Limits& limits = frame.limits();
  if (compiled >= limits.recompile) return {"recompile_limit", limits.recompile};
  if (frame.accumulated() >= limits.accumulated) return {"accumulated_recompile_limit", limits.accumulated};
  return {};
}

void RecompileRules::check(const Frame& frame, const Limit& limit, bool recompile, const std::string& last_reason) const {
  if (limit && fail_on_limit)
    throw user_error("TSR-D012",
                     "hit a recompile limit: function '" + frame.name() + "' (" + frame.place() + "), " + last_reason,
                     "see docs/recompiles.md for what to change, or raise the limit");
  if (!limit && recompile && error_on_recompile)
    throw user_error("TSR-D011",
                     "function '" + frame.name() + "' (" + frame.place() +
                         ") would recompile, and guards.error_on_recompile is set: " + last_reason,
                     "see docs/recompiles.md for what to change");
}

void RecompileRules::refuse(const Frame& frame, const std::string& last_reason) {
  throw user_error("TSR-D010",
                   "a compile is needed while the stance is 'fail_on_recompile': function '" + frame.name() + "' (" +
                       frame.place() + "), " + last_reason,
                   "call it with arguments that it was compiled for, or change the stance");
}

}  // namespace tessera::core
