// SPDX-License-Identifier: Apache-2.0
// The entries of a frame, found by the arguments of a call.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/entry.hpp"
#include "dispatch/plain_call.hpp"
#include "dispatch/words.hpp"

namespace tessera::core {

// The entries of one mask by their keys: as a WordMap, but the keys stand in the entries, so that a hit reads a slot, its
// entry, and what runs.
class EntryMap {
 public:
  EntryMap() { grow(8); }
  // The first of a key; null: there is none. *fast: what runs when it is hit by a PlainCall, 0: nothing that can; one more when
  // the call's tensors have to be aligned.
  [[gnu::always_inline]] Entry* find(uint64_t hash, uint64_t state, const uint64_t* words, size_t n,
                                     uintptr_t* fast) const noexcept {
    const Table* t = current_.load(std::memory_order_acquire);
    const Slot* const slots = t->slots;
    const size_t mask = t->mask;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
      const Slot& slot = slots[i];
      const uintptr_t tagged = slot.entry.load(std::memory_order_acquire);
      if (((tagged ^ hash >> kTagShift) & kTags) != 0) [[unlikely]] {
        if (!tagged) return nullptr;
        continue;
      }
      if (tagged < kTags) [[unlikely]]  // empty, and the tag is 0
        return nullptr;
      Entry* const e = reinterpret_cast<Entry*>(tagged & ~kTags);
      // With many entries each of these lines is a cache miss: ask for all of them at once instead of one after the other. (Not
      // in a function of its own: GCC takes one that does nothing else for pure, and drops the call.)
      if (mask >= kCached) {
        __builtin_prefetch(e);
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; ++k) __builtin_prefetch(reinterpret_cast<const void*>(slot.fast + 64 * k));
      }
      if (e->has_key(state, words, n)) [[likely]] {
        *fast = slot.fast;  // written before the entry was published
        return e;
      }
    }
  }
  void insert(Entry& e);                  // its key is new
  Entry* same_key(const Entry& e) const;  // the first; null: there is none
  size_t size() const { return size_; }

 private:
  static constexpr size_t kCached = 64;  // so many slots' entries stay in the first level of caches anyway
  // The low bits of an entry's address are free: six bits of its hash stand there.
  static constexpr uintptr_t kTags = alignof(Entry) - 1;
  static constexpr unsigned kTagShift = 58;
  struct Slot {
    std::atomic<uintptr_t> entry{0};
    uintptr_t fast = 0;
  };
  static_assert(sizeof(Slot) == 16);
  struct Table {
    explicit Table(size_t capacity) : mask(capacity - 1), memory(std::make_unique<Slot[]>(capacity)), slots(memory.get()) {}
    size_t mask;
    std::unique_ptr<Slot[]> memory;
    Slot* slots;
  };
  static void place(Table& t, Entry& e);
  void grow(size_t capacity);
  std::atomic<const Table*> current_{nullptr};
  std::vector<std::unique_ptr<Table>> tables_;  // the last is current; a reader may be in an earlier one
  size_t size_ = 0;
};

// Entries stand in groups by the mask of what is fixed about their arguments; each group is one hash table that is read while
// it grows, so that a call costs one probe per mask, whatever the number of entries. find() and used() may run in any thread at
// any time; the rest excludes each other by a lock of the caller.
//
// With limits the least recently used entry goes when there are too many: no call finds it any more, and it is freed at the
// next insert at which no call is on its way. Then every call counts itself (Reader); without limits it does not.
class EntryTable {
 public:
  struct Limits {
    int64_t entries = 0, bytes = 0;  // 0: none
  };
  EntryTable() : EntryTable(Limits{}) {}
  explicit EntryTable(Limits limits);
  ~EntryTable();
  EntryTable(const EntryTable&) = delete;

  bool evicts() const { return counts_ != nullptr; }

  class Reader {  // entries that are found while it lives stay
   public:
    explicit Reader(const EntryTable& table) : count_(table.counts_ ? table.count_of_this_thread() : nullptr) {
      if (count_) [[unlikely]]
        count_->fetch_add(1, std::memory_order_seq_cst);
    }
    ~Reader() {
      if (count_) [[unlikely]]
        count_->fetch_sub(1, std::memory_order_release);
    }
    Reader(const Reader&) = delete;

   private:
    std::atomic<int64_t>* count_;
  };

  const Entry* find(const tsr_arg* args, size_t count) const;  // null: no entry's guards hold
  // The same in the groups that a PlainCall fits. Null: there may be one yet. With *fast != null the bases in `memory` are what
  // that runs on.
  [[gnu::always_inline]] const Entry* find_plain(const tsr_arg* args, size_t count, PlainMemory& memory,
                                                 const FastCall** fast) const {
    // Sequentially consistent, like a reader's count: whoever is not counted yet when an order is replaced sees the new one.
    const Order* const order = order_.load(std::memory_order_seq_cst);
    for (const Group *const *g = order->groups, *const *end = g + order->plain; g != end; ++g) {
      const PlainLeaves& leaves = (*g)->mask.plain();
      PlainCall call;
      if (leaves.count != count || !call.read(leaves, args, memory)) continue;
      uintptr_t runs;
      if (const Entry* e = (*g)->map.find(call.hash, call.state, memory.key, call.words, &runs)) {
        *fast = (runs & call.unaligned) == 0 ? reinterpret_cast<const FastCall*>(runs & ~uintptr_t{1}) : nullptr;
        return e;
      }
    }
    return nullptr;
  }
  // It is the most recent one now. A tick that two threads may share, and a count that may miss one: exact enough to order
  // entries, and free of contention.
  void used(const Entry& e) const {
    const uint64_t now = tick_.load(std::memory_order_relaxed);
    e.tick.store(now, std::memory_order_relaxed);
    tick_.store(now + 1, std::memory_order_relaxed);
    e.hits.store(e.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // `args` are those that it was made for; the caller's thread has one Reader. Throws TSR-B031 when its own guards refuse them.
  const Entry* insert(std::unique_ptr<Entry> entry, const tsr_arg* args, size_t count);
  const std::vector<std::unique_ptr<Entry>>& entries() const { return entries_; }  // in order of compilation
  std::vector<const Entry*> recent() const;                                        // the most recently used first
  size_t num_groups() const { return groups_.size(); }
  int64_t evicted() const { return evicted_; }

 private:
  struct alignas(64) Count {
    std::atomic<int64_t> value{0};
  };
  static constexpr size_t kCounts = 16;  // threads share them
  struct Group {
    Mask mask;
    EntryMap map;
  };
  struct Order {
    std::vector<const Group*> all;  // in the order in which they are asked
    const Group* const* groups;     // the same
    size_t plain = 0;               // so many of the first ones
  };

  std::atomic<int64_t>* count_of_this_thread() const;
  static void add_to(Group& group, Entry& e);
  void publish();  // the groups there are
  void evict(const Entry* keep);
  void free_retired();

  std::atomic<const Order*> order_{nullptr};
  mutable std::atomic<uint64_t> tick_{1};
  std::vector<std::unique_ptr<Order>> orders_;  // the last is current; earlier ones may still be walked
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Entry>> entries_;

  std::unique_ptr<Count[]> counts_;  // of calls on their way; null: there are no limits
  const Limits limits_;
  int64_t evicted_ = 0;
  std::vector<std::unique_ptr<Entry>> retired_;
  std::vector<std::unique_ptr<Group>> retired_groups_;
  std::vector<std::pair<void*, void (*)(void*)>> structures_;  // clients may hold those of entries that are gone
};

}  // namespace tessera::core
