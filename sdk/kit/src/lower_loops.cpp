// SPDX-License-Identifier: Apache-2.0
// The second walk, loop by loop: reductions and outputs, and the expensive values that are kept from one loop to a later one.
#include <algorithm>

#include "lowering.hpp"

namespace tessera::kit {

void Lowering::emit() {
  Builder b(k_);
  b_ = &b;
  int last = -1;
  for (const Demand& d : demands_) last = std::max(last, d.level);
  for (const Output& o : outputs_)
    if (o.full) last = std::max(last, o.level);
  for (int level = 0; level <= last; ++level) find_kept(level);
  for (int level = 0; level <= last; ++level) {
    b.begin_loop(loop_, across_);
    for (Demand& d : demands_)
      if (d.level == level) {
        const Tensor& t = table_.at(d.reduction);
        b.set_origin(t.origin);
        std::vector<uint32_t> v;
        for (const int x : t.operands) v.push_back(eval(x, reduced(t, d.at), kNone));
        b.set_origin(t.origin);
        for (uint32_t& x : v) x = b.convert(x, compute_type(b.type_of(x)));
        d.value = b.reduce(t.reduce, v[0], v.size() > 1 ? v[1] : kNone);
      }
    // All values first: an output's memory may hold a kept one until then.
    for (const Output& o : outputs_)
      if (o.full && o.level == level) eval(o.tensor, o.at, kNone);
    for (const Output& o : outputs_)
      if (o.full && o.level == level) store(o);
    b.end_loop();
    in_loop_.clear();
    for (const auto& key : now_kept_) kept_[key].done = true;  // from the next loop on
    now_kept_.clear();
  }
  for (const Output& o : outputs_)
    if (!o.full) store(o);
}

void Lowering::find_kept(int level) {
  std::map<std::pair<int, Position>, bool> seen;
  const auto walk = [&](const auto& self, int id, const Position& at) -> void {
    if (!seen.emplace(std::make_pair(id, at), true).second) return;
    const Tensor& t = table_.at(id);
    switch (t.kind) {
      case Kind::Elementwise:
        if (expensive(t) && uses_loop(at)) note_expensive(id, at, level);
        [[fallthrough]];
      case Kind::Cast:
        for (const int x : t.operands) self(self, x, broadcast(at, table_.at(x)));
        return;
      case Kind::View: return self(self, t.operands[0], through_view(t, at));
      default: return;  // what is padded, joined or gathered is not followed
    }
  };
  for (const Demand& d : demands_)
    if (d.level == level)
      for (const int x : table_.at(d.reduction).operands) walk(walk, x, reduced(table_.at(d.reduction), d.at));
  for (const Output& o : outputs_)
    if (o.full && o.level == level) walk(walk, o.tensor, o.at);
}

bool Lowering::expensive(const Tensor& t) const {
  const uint32_t dtype = table_.at(t.operands.back()).dtype;
  if (!is_float(type_of(dtype))) return false;
  return !is_quick(t.op);
}

void Lowering::note_expensive(int id, const Position& at, int level) {
  const auto [it, fresh] = expensive_.try_emplace({id, at}, level);
  if (fresh || it->second == level) return;
  if (const auto known = kept_.find({id, at}); known != kept_.end()) {
    if (level > known->second.until) kept_.erase(known);  // needed longer than its place is free
    it->second = level;
    return;
  }
  for (const Output& o : outputs_) {
    const Buffer& b = k_.buffers[o.buffer];
    if (!o.full || o.level < level || b.type != type_of(table_.at(id).dtype)) continue;
    // The element that this point stores for good: taken by one value only, and not the value itself.
    if (o.tensor == id || std::any_of(kept_.begin(), kept_.end(), [&](const auto& k) { return k.second.buffer == o.buffer; }))
      continue;
    kept_[{id, at}] = {o.buffer, pool_.linear(o.at, table_.at(o.tensor).shape), o.level};
    return;
  }
}

void Lowering::store(const Output& o) {
  const uint32_t v = eval(o.tensor, o.at, kNone);
  b_->set_origin(table_.at(o.tensor).origin);
  // Only a window's buffer is wider than its tensor.
  b_->store(o.buffer, pool_.linear(o.at, table_.at(o.tensor).shape), b_->convert(v, k_.buffers[o.buffer].type, /*exact=*/true));
}

}  // namespace tessera::kit
