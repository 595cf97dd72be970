// SPDX-License-Identifier: Apache-2.0
#include "schedule.hpp"

#include <algorithm>

namespace tessera::remat {

namespace {

class Sweep {
 public:
  Sweep(const Schedule& s, const Plan& plan) : s_(s), plan_(plan), copied_(s.item_of.size(), 0) {
    const size_t values = s.bytes.size();
    last_.assign(2 * values, 0);
    steps_.reserve(2 * s.items.size());
    written_.reserve(2 * values);
    made_.assign(2 * values, 0);
    in_memory_.assign(2 * values, 0);
    find_live_originals();
    for (uint32_t i = 0; i < s.items.size(); ++i) {
      const Item& item = s.items[i];
      if (!item.backward) {
        if (runs_[i]) run(i, false);
        continue;
      }
      copies_for(item);
      run(i, true);
    }
  }

  int64_t peak() const {
    std::vector<int64_t> change(steps_.size() + 1, 0);
    for (const auto& [instance, step] : written_) {
      change[step] += bytes_of(instance);
      change[std::max(last_[instance], step) + 1] -= bytes_of(instance);
    }
    int64_t now = 0, most = 0;
    for (const int64_t c : change) most = std::max(most, now += c);
    return most;
  }

 private:
  int64_t bytes_of(size_t instance) const { return in_memory_[instance] ? s_.bytes[instance / 2] : 0; }
  bool again(uint32_t value) const {
    const uint32_t item = writer_of(value);
    return item != kNoItem && !s_.items[item].backward && plan_.recompute[s_.items[item].node];
  }
  uint32_t writer_of(uint32_t value) const { return value < writers_.size() ? writers_[value] : kNoItem; }

  // What runs again and is read by the backward half alone runs only there.
  void find_live_originals() {
    writers_.assign(s_.bytes.size(), kNoItem);
    for (uint32_t i = 0; i < s_.items.size(); ++i)
      for (const uint32_t v : s_.items[i].writes) writers_[v] = i;
    runs_.assign(s_.items.size(), 1);
    std::vector<uint8_t> read(s_.bytes.size(), 0);
    for (uint32_t i = static_cast<uint32_t>(s_.items.size()); i-- > 0;) {
      const Item& item = s_.items[i];
      if (item.backward) continue;
      if (plan_.recompute[item.node])
        runs_[i] = std::any_of(item.writes.begin(), item.writes.end(), [&](uint32_t v) { return read[v] || s_.outputs[v]; });
      if (runs_[i])
        for (const uint32_t v : item.reads) read[v] = 1;
    }
  }

  void copies_for(const Item& reader) {
    missing_.clear();
    stack_.assign(1, &reader);
    while (!stack_.empty()) {
      const Item& x = *stack_.back();
      stack_.pop_back();
      for (const uint32_t v : x.reads) {
        if (!again(v)) continue;
        const uint32_t item = writer_of(v), node = s_.items[item].node;
        if (copied_[node]) continue;
        copied_[node] = 1;
        missing_.push_back(item);
        stack_.push_back(&s_.items[item]);
      }
    }
    std::sort(missing_.begin(), missing_.end());
    for (const uint32_t item : missing_) run(item, true);
  }

  // `late`: in the backward half, where copies are read and, by a node of the forward half, written.
  void run(uint32_t i, bool late) {
    const auto t = static_cast<uint32_t>(steps_.size());
    steps_.push_back(i);
    const Item& item = s_.items[i];
    stretches_.begin(item, late);
    for (const uint32_t v : item.reads) {
      const size_t instance = 2 * size_t{v} + (late && again(v) ? 1 : 0);
      last_[instance] = t;
      if (!Stretches::inside(made_[instance], stretches_.now())) in_memory_[instance] = 1;
    }
    for (const uint32_t v : item.writes) {
      const size_t instance = 2 * size_t{v} + (late && !item.backward ? 1 : 0);
      written_.push_back({instance, t});
      made_[instance] = stretches_.now();
      if (!item.fuses) in_memory_[instance] = 1;
    }
  }

  struct Written {
    size_t instance;  // 2 * value, + 1 for a copy
    uint32_t step;
  };
  const Schedule& s_;
  const Plan& plan_;
  std::vector<uint8_t> copied_, runs_, in_memory_;  // in_memory_, made_: by instance
  std::vector<int32_t> made_;
  Stretches stretches_;
  std::vector<uint32_t> writers_, steps_, last_;
  std::vector<Written> written_;
  std::vector<uint32_t> missing_;  // items, of one reader
  std::vector<const Item*> stack_;
};

}  // namespace

int64_t peak_bytes(const Schedule& schedule, const Plan& plan) { return Sweep(schedule, plan).peak(); }

Separators find_separators(const Schedule& s, size_t nodes) {
  Separators out;
  out.anywhere.assign(nodes, 0);
  std::vector<uint32_t> forward;  // items
  for (uint32_t i = 0; i < s.items.size(); ++i)
    if (!s.items[i].backward) forward.push_back(i);
  // Positions among those: who writes each value, and the last who reads it.
  std::vector<uint32_t> written(s.bytes.size(), kNoItem), last(s.bytes.size(), 0);
  for (uint32_t p = 0; p < forward.size(); ++p) {
    for (const uint32_t v : s.items[forward[p]].reads) last[v] = p;
    for (const uint32_t v : s.items[forward[p]].writes) written[v] = p;
  }
  // A mask or a table of positions is read in every layer; it says nothing about where layers begin.
  const size_t far = std::max<size_t>(16, forward.size() / 3);
  std::vector<int32_t> change(forward.size() + 1, 0);
  for (uint32_t v = 0; v < s.bytes.size(); ++v) {
    if (written[v] == kNoItem || last[v] <= written[v]) continue;
    if (last[v] - written[v] > far) {
      out.anywhere[s.items[forward[written[v]]].node] = 1;
      continue;
    }
    ++change[written[v]];
    --change[last[v]];
  }
  int32_t live = 0;
  for (uint32_t p = 0; p < forward.size(); ++p) {
    live += change[p];
    const Item& item = s.items[forward[p]];
    const bool gives_it = std::any_of(item.writes.begin(), item.writes.end(), [&](uint32_t v) { return last[v] > p; });
    if (live == 1 && gives_it && !out.anywhere[item.node]) out.nodes.push_back(item.node);
  }
  return out;
}

}  // namespace tessera::remat
