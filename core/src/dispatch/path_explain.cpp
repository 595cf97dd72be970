// SPDX-License-Identifier: Apache-2.0
// Why a segment is compiled again, and where the graph broke.
#include <algorithm>

#include "capture/breaks.hpp"
#include "dispatch/events.hpp"
#include "dispatch/path_capture.hpp"
#include "dispatch/path_values.hpp"
#include "dispatch/stance.hpp"

namespace tessera::core {

void Callable::PathCapture::know(Expected x) {
  for (Expected& known : host_)
    if (known.path == x.path) {  // the last turn of a loop says it all
      known = std::move(x);
      return;
    }
  host_.push_back(std::move(x));
}

std::vector<GuardText> Callable::PathCapture::why_not(const Segment& s) const {
  std::vector<GuardText> out;
  for (size_t i = 0; i < s.host.size(); ++i)
    for (const Expected& x : host_)
      if (!s.host_varies[i] && x.path == s.host[i].path && !same_value(x, s.host[i]))
        out.push_back({value_text(s.host[i]), {}});
  if (s.guards.expected.size() != now_.args.size()) return out;
  Guards then = s.guards;
  for (size_t i = 0; i < then.expected.size(); ++i) {
    Expected& x = then.expected[i];
    if (!s.argument_varies[i] || x.kind != now_.args[i].kind) continue;
    x.i = now_.args[i].i;
    x.f = now_.args[i].f;
    x.s = arg_text(now_.args[i]);
  }
  for (GuardText& text : then.mismatches(now_.args.data(), now_.args.size(), true)) out.push_back(std::move(text));
  return out;
}

std::vector<MissReason> Callable::PathCapture::reasons() const {
  std::vector<const Segment*> recent;
  for (const auto& s : frame_->segments)
    if (s->number >= 0) recent.push_back(s.get());
  std::stable_sort(recent.begin(), recent.end(), [](const Segment* a, const Segment* b) {
    return a->tick.load(std::memory_order_relaxed) > b->tick.load(std::memory_order_relaxed);
  });
  std::vector<MissReason> out;
  for (const Segment* s : recent) out.push_back({frame_->frame->compile(s->number), why_not(*s)});
  return out;
}

namespace {
// The first guard that failed, of the segment used last among those that have one: "2/0: c == 1".
std::string last_of(const std::vector<MissReason>& reasons) {
  for (const MissReason& r : reasons)
    if (!r.guards.empty()) return r.entry.text() + ": " + r.guards.front().text;
  return {};
}
}  // namespace

void Callable::PathCapture::explain(const RecompileRules::Limit& limit) {
  Frame& frame = *frame_->frame;
  DispatchListener& events = dispatch_events();
  const bool warns = limit && !frame.warned;
  const RecompileRules& rules = c_.rules_;
  if (!warns && !events.wants_reasons() && !rules.error_on_recompile && !(limit && rules.fail_on_limit)) return;
  const std::vector<MissReason> all = reasons();
  const std::string last = last_of(all);
  // Without a guard that failed it is no recompile: another path has come to the same place for the first time.
  const bool recompile = !last.empty();
  if (recompile) events.recompiling({frame, frame.next(), all, {}});
  if (warns) {
    frame.warned = true;
    events.limit_hit({frame, limit.key, limit.value, last});
  }
  rules.check(frame, limit, recompile, last);
}

const char* Callable::PathCapture::forbidden(const RecompileRules::Limit& limit) const {
  if (frame_ == paths_->head && !root_) return "the recompile limit was hit";
  if (frame_ == paths_->head && decided_) return nullptr;
  if (limit) return "the recompile limit was hit";
  if (reuse_only()) return "the function that calls it is past its limit";
  if (stance() == Stance::kEagerOnRecompile) return "the stance is 'eager_on_recompile'";
  if (stance() != Stance::kFailOnRecompile) return nullptr;
  const std::string last = last_of(reasons());
  RecompileRules::refuse(*frame_->frame, last.empty() ? "nothing is compiled yet for this way through the function" : last);
}

void Callable::PathCapture::announce(const tsr_break& b, const Recorded& r, const Frame& next) {
  const std::string place = place_text(b.loc), detail = b.detail ? b.detail : "";
  for (Paths::Break& known : paths_->breaks)
    if (known.code == b.code && known.place == place && known.detail == detail) {
      ++known.count;
      return;
    }
  paths_->breaks.push_back({b.code, place, detail, 1});
  const BreakReason& why = break_reason(b.code);
  const Frame& ended = *frame_->frame;
  const std::shared_ptr<Segment>& segment = r.next->segment;
  GraphBreakEvent event{
      ended,      ended.compile(segment ? segment->number : 0), break_code_text(b.code), {}, place, why.why, why.fixes, {},
      next.name()};
  event.what = std::string(why.title) + (detail.empty() ? "" : ": " + detail);
  event.after = std::to_string(r.ops) + (r.ops == 1 ? " operation" : " operations") +
                (segment && segment->number >= 0 ? " in " + event.id.text() : "");
  dispatch_events().graph_break(event);
}

}  // namespace tessera::core
