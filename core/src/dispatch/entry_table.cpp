// SPDX-License-Identifier: Apache-2.0
#include "dispatch/entry_table.hpp"

#include <algorithm>
#include <utility>

#include "dispatch/type_ids.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// Whether the addresses of a call's arguments are all that the entry runs on.
bool runs_plainly(const Entry& e) {
  const PlainLeaves& leaves = e.guards.mask.plain();
  return leaves.fit && e.fast && !e.in_path && e.fast->runs_on_few_bases() &&
         std::equal(e.inputs.begin(), e.inputs.end(), leaves.typed.begin(), leaves.typed.end(),
                    [](uint32_t input, const PlainLeaves::Typed& leaf) { return input * sizeof(tsr_arg) == leaf.at; });
}

}  // namespace

void EntryMap::place(Table& t, Entry& e) {
  size_t i = e.hash & t.mask;
  while (t.slots[i].entry.load(std::memory_order_relaxed)) i = (i + 1) & t.mask;
  const auto fast = reinterpret_cast<uintptr_t>(e.fast);
  t.slots[i].fast = runs_plainly(e) ? fast | (e.needs_alignment ? 1 : 0) : 0;
  t.slots[i].entry.store(reinterpret_cast<uintptr_t>(&e) | e.hash >> kTagShift, std::memory_order_release);
}

void EntryMap::grow(size_t capacity) {
  auto larger = std::make_unique<Table>(capacity);
  if (!tables_.empty())
    for (size_t i = 0; i <= tables_.back()->mask; ++i)
      if (const uintptr_t e = tables_.back()->slots[i].entry.load(std::memory_order_relaxed))
        place(*larger, *reinterpret_cast<Entry*>(e & ~kTags));
  tables_.push_back(std::move(larger));
  current_.store(tables_.back().get(), std::memory_order_release);
}

Entry* EntryMap::same_key(const Entry& e) const {
  const Table& t = *tables_.back();
  for (size_t i = e.hash & t.mask;; i = (i + 1) & t.mask) {
    auto* const other = reinterpret_cast<Entry*>(t.slots[i].entry.load(std::memory_order_relaxed) & ~kTags);
    if (!other || other->has_key_of(e)) return other;
  }
}

// At most a quarter of the slots are taken: hardly a search then goes beyond the first, and the processor guesses that right.
void EntryMap::insert(Entry& e) {
  if ((size_ + 1) * 4 > tables_.back()->mask + 1) grow((tables_.back()->mask + 1) * 2);
  place(*tables_.back(), e);
  ++size_;
}

EntryTable::EntryTable(Limits limits)
    : counts_(limits.entries > 0 || limits.bytes > 0 ? std::make_unique<Count[]>(kCounts) : nullptr), limits_(limits) {
  publish();
}

EntryTable::~EntryTable() {
  for (const auto& [structure, free] : structures_) free(structure);
}

std::atomic<int64_t>* EntryTable::count_of_this_thread() const {
  static std::atomic<size_t> next{0};
  thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed) % kCounts;
  return &counts_[mine].value;
}

const Entry* EntryTable::find(const tsr_arg* args, size_t count) const {
  // Sequentially consistent, like a reader's count: whoever is not counted yet when an order is replaced sees the new one.
  const Order* order = order_.load(std::memory_order_seq_cst);
  WordBuffer key;
  for (const Group* g : order->all) {
    key.clear();
    uint32_t marks = 0;
    if (!g->mask.key(args, count, key, &marks)) continue;
    uintptr_t fast;
    const uint64_t* const words = key.data();
    for (const Entry* e = g->map.find(g->mask.hash(words, key.size()), words[0], words + 1, key.size() - 1, &fast); e;
         e = e->next.load(std::memory_order_acquire))
      if ((!g->mask.symbolic || e->guards.symbolic.hold(args)) && (marks == 0 || e->guards.covers_marks(args))) return e;
  }
  return nullptr;
}

void EntryTable::add_to(Group& group, Entry& e) {
  if (Entry* first = group.map.same_key(e)) {
    while (Entry* next = first->next.load(std::memory_order_relaxed)) first = next;
    first->next.store(&e, std::memory_order_release);
  } else {
    group.map.insert(e);
  }
}

void EntryTable::publish() {  // symbolic masks last: an exact match is the better one
  auto order = std::make_unique<Order>();
  for (const bool symbolic : {false, true})
    for (const auto& g : groups_)
      if (g->mask.symbolic == symbolic) order->all.push_back(g.get());
  order->groups = order->all.data();
  while (order->plain < order->all.size() && order->all[order->plain]->mask.plain().fit) ++order->plain;
  order_.store(order.get(), std::memory_order_seq_cst);
  orders_.push_back(std::move(order));
}

const Entry* EntryTable::insert(std::unique_ptr<Entry> owned, const tsr_arg* args, size_t count) {
  Entry* e = owned.get();
  const uint64_t now = tick_.load(std::memory_order_relaxed);
  e->tick.store(now, std::memory_order_relaxed);
  tick_.store(now + 1, std::memory_order_relaxed);
  const Guards& guards = e->guards;
  WordBuffer key;
  uint32_t marks = 0;
  guards.mask.number_types(args, count);
  if (!guards.mask.key(args, count, key, &marks))
    throw bug("TSR-B031", "the arguments of a call changed while it was captured");
  if (!(guards.mask.symbolic ? guards.symbolic.hold(args) : true) || (marks != 0 && !guards.covers_marks(args)))
    throw bug("TSR-B031", "compiled code does not fit the call that it was compiled for");
  // What it returns may be an argument of the next call.
  if (e->executable && e->executable->fast_call()) e->executable->fast_call()->number_outputs(give_type_number);
  e->set_key(guards.mask.hash(key.data(), key.size()), key.data()[0], key.data() + 1, key.size() - 1);
  entries_.push_back(std::move(owned));
  Group* group = nullptr;
  for (const auto& g : groups_)
    if (g->mask == guards.mask) group = g.get();
  if (!group) {
    groups_.push_back(std::make_unique<Group>());
    group = groups_.back().get();
    group->mask = guards.mask;
    add_to(*group, *e);
    publish();
  } else {
    add_to(*group, *e);
  }
  if (counts_) evict(e);
  return e;
}

// Entries that functions with graph breaks go on from stay: the paths behind them are theirs.
void EntryTable::evict(const Entry* keep) {
  free_retired();
  for (;;) {
    int64_t bytes = 0;
    size_t oldest = entries_.size();
    for (size_t i = 0; i < entries_.size(); ++i) {
      const Entry& e = *entries_[i];
      bytes += e.bytes;
      if (&e == keep || e.in_path) continue;
      if (oldest == entries_.size() ||
          e.tick.load(std::memory_order_relaxed) < entries_[oldest]->tick.load(std::memory_order_relaxed))
        oldest = i;
    }
    const bool many = limits_.entries > 0 && static_cast<int64_t>(entries_.size()) > limits_.entries;
    const bool large = limits_.bytes > 0 && bytes > limits_.bytes;
    if ((!many && !large) || oldest == entries_.size()) return;
    std::unique_ptr<Entry> gone = std::move(entries_[oldest]);
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(oldest));
    ++evicted_;
    // Its group is built anew without it. A call that walks the old one may miss what stands there, and looks again under the
    // lock.
    const auto old = std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g->mask == gone->guards.mask; });
    auto fresh = std::make_unique<Group>();
    fresh->mask = gone->guards.mask;
    for (const auto& e : entries_)
      if (e->guards.mask == fresh->mask) e->next.store(nullptr, std::memory_order_release);
    for (const auto& e : entries_)
      if (e->guards.mask == fresh->mask) add_to(*fresh, *e);
    retired_groups_.push_back(std::move(*old));
    if (fresh->map.size() == 0)
      groups_.erase(old);
    else
      *old = std::move(fresh);
    publish();
    retired_.push_back(std::move(gone));
  }
}

void EntryTable::free_retired() {
  if (retired_.empty()) return;
  int64_t calls = 0;
  for (size_t i = 0; i < kCounts; ++i) calls += counts_[i].value.load(std::memory_order_seq_cst);
  if (calls > 1) return;  // another one than the caller's
  for (const auto& e : retired_)
    if (e->structure && e->structure_free) structures_.emplace_back(std::exchange(e->structure, nullptr), e->structure_free);
  retired_.clear();
  retired_groups_.clear();
  orders_.erase(orders_.begin(), orders_.end() - 1);
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
