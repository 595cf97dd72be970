// SPDX-License-Identifier: Apache-2.0
// Why a call did not fit the entries there are.
#include "dispatch/advice.hpp"
#include "dispatch/callable.hpp"
#include "dispatch/events.hpp"

namespace tessera::core {

void Callable::explain_miss(const EntryTable& table, const tsr_arg* args, size_t count, const RecompileRules::Limit& limit) {
  DispatchListener& events = dispatch_events();
  const bool warns = limit && !frame_->warned;
  if (!warns && !events.wants_reasons()) return;
  std::vector<MissReason> reasons;
  for (const Entry* e : table.recent())
    reasons.push_back({frame_->compile(e->id.compile), e->guards.mismatches(args, count, true)});
  const Entry* closest = nullptr;  // of equally close ones the most recently used
  const MissReason* why = nullptr;
  const std::vector<const Entry*> recent = table.recent();
  for (size_t i = 0; i < recent.size(); ++i) {
    if (reasons[i].guards.empty() || (why && distance(reasons[i].guards) >= distance(why->guards))) continue;
    closest = recent[i];
    why = &reasons[i];
  }
  std::string advice;
  if (closest) {
    const size_t n = why->guards.size();
    advice = advice_for(policy_, closest->guards, why->guards.front(), args);
    if (!advice.empty())
      advice =
          "closest: " + why->entry.text() + ", " + std::to_string(n) + (n == 1 ? " guard" : " guards") + " failed. " + advice;
  }
  if (!reasons.empty()) events.recompiling({*frame_, frame_->next(), reasons, advice});
  if (!warns) return;
  frame_->warned = true;
  std::string last;
  for (const MissReason& r : reasons)
    if (last.empty() && !r.guards.empty()) last = r.entry.text() + ": " + r.guards.front().text;
  events.limit_hit({*frame_, limit.key, limit.value, last});
}

}  // namespace tessera::core
