// SPDX-License-Identifier: Apache-2.0
#include "dispatch/entry_table.hpp"

#include <algorithm>
#include <utility>

#include "support/error.hpp"

namespace tessera::core {

EntryTable::EntryTable() {
  orders_.push_back(std::make_unique<Order>());
  order_.store(orders_.back().get(), std::memory_order_release);
}
EntryTable::~EntryTable() = default;

const Entry* EntryTable::find(const tsr_arg* args, size_t count) const {
  const Order* order = order_.load(std::memory_order_acquire);
  WordBuffer key;
  for (const Group* g : *order) {
    key.clear();
    uint32_t marks = 0;
    if (!g->mask.key(args, count, key, &marks)) continue;
    for (const Entry* e = g->map.find(hash_words(key.data(), key.size()), key.data(), key.size()); e;
         e = e->next.load(std::memory_order_acquire))
      if ((!g->mask.symbolic || e->guards.symbolic.hold(args)) && (marks == 0 || e->guards.covers_marks(args))) return e;
  }
  return nullptr;
}

// A tick that two threads may share, and a count that may miss one: exact enough to order entries, and free of contention.
void EntryTable::used(const Entry& e) const {
  const uint64_t now = tick_.load(std::memory_order_relaxed);
  e.tick.store(now, std::memory_order_relaxed);
  tick_.store(now + 1, std::memory_order_relaxed);
  e.hits.store(e.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

const Entry* EntryTable::insert(std::unique_ptr<Entry> owned, const tsr_arg* args, size_t count) {
  Entry* e = owned.get();
  const uint64_t now = tick_.load(std::memory_order_relaxed);
  e->tick.store(now, std::memory_order_relaxed);
  tick_.store(now + 1, std::memory_order_relaxed);
  Group* group = nullptr;
  for (const auto& g : groups_)
    if (g->mask == e->guards.mask) group = g.get();
  const bool fresh = !group;
  std::unique_ptr<Group> made;
  if (fresh) {
    made = std::make_unique<Group>();
    group = made.get();
    group->mask = e->guards.mask;
  }
  WordBuffer key;
  uint32_t marks = 0;
  if (!group->mask.key(args, count, key, &marks))
    throw bug("TSR-B031", "the arguments of a call changed while it was captured");
  if (!(e->guards.mask.symbolic ? e->guards.symbolic.hold(args) : true) || (marks != 0 && !e->guards.covers_marks(args)))
    throw bug("TSR-B031", "compiled code does not fit the call that it was compiled for");
  entries_.push_back(std::move(owned));
  if (made) groups_.push_back(std::move(made));
  const uint64_t hash = hash_words(key.data(), key.size());
  if (Entry* first = group->map.find(hash, key.data(), key.size())) {
    while (Entry* next = first->next.load(std::memory_order_relaxed)) first = next;
    first->next.store(e, std::memory_order_release);
  } else {
    group->map.insert(hash, key.data(), key.size(), e, e->fast);
  }
  if (fresh) {  // symbolic masks last: an exact match is the better one
    auto order = std::make_unique<Order>();
    for (const bool symbolic : {false, true})
      for (const auto& g : groups_)
        if (g->mask.symbolic == symbolic) order->push_back(g.get());
    order_.store(order.get(), std::memory_order_release);
    orders_.push_back(std::move(order));
  }
  return e;
}

std::vector<const Entry*> EntryTable::recent() const {
  // Hits move the ticks meanwhile, and a sort whose order changes under it runs out of its range: sort what was read once.
  std::vector<std::pair<decltype(Entry::tick)::value_type, const Entry*>> ticks;
  ticks.reserve(entries_.size());
  for (const auto& e : entries_) ticks.emplace_back(e->tick.load(std::memory_order_relaxed), e.get());
  std::stable_sort(ticks.begin(), ticks.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<const Entry*> out;
  out.reserve(ticks.size());
  for (const auto& t : ticks) out.push_back(t.second);
  return out;
}

}  // namespace tessera::core
