// SPDX-License-Identifier: Apache-2.0
// Why a call did not fit the entries there are.
#include "dispatch/callable.hpp"
#include "dispatch/events.hpp"

namespace tessera::core {

void Callable::explain_miss(const EntryTable& table, const tsr_arg* args, size_t count, bool at_limit) {
  DispatchListener& events = dispatch_events();
  const bool warns = at_limit && !frame_->warned;
  if (!warns && !events.wants_reasons()) return;
  std::vector<MissReason> reasons;
  for (const Entry* e : table.recent())
    reasons.push_back({frame_->compile(e->id.compile), e->guards.mismatches(args, count, true)});
  if (!reasons.empty()) events.recompiling({*frame_, frame_->next(), reasons, {}});
  if (!warns) return;
  frame_->warned = true;
  std::string last;
  for (const MissReason& r : reasons)
    if (last.empty() && !r.guards.empty()) last = r.entry.text() + ": " + r.guards.front().text;
  const Frame::Limits& limits = frame_->limits();
  const bool own = static_cast<int64_t>(table.entries().size()) >= limits.recompile;
  events.limit_hit(
      {*frame_, own ? "recompile_limit" : "accumulated_recompile_limit", own ? limits.recompile : limits.accumulated, last});
}

}  // namespace tessera::core
