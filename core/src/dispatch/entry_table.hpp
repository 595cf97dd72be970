// SPDX-License-Identifier: Apache-2.0
// The entries of a frame, found by the arguments of a call.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "dispatch/entry.hpp"
#include "dispatch/words.hpp"

namespace tessera::core {

// The entries of one mask by their keys: as a WordMap, but the keys stand in the entries, so that a hit reads a slot, its entry, and what runs.
class EntryMap {
 public:
  EntryMap() { grow(8); }
  // The first of a key; null: there is none.
  Entry* find(uint64_t hash, const uint64_t* words, size_t n) const noexcept {
    const Table* t = current_.load(std::memory_order_acquire);
    for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
      const Slot& slot = t->slots[i];
      Entry* e = slot.entry.load(std::memory_order_acquire);
      if (!e) return nullptr;
      if (slot.hash != hash) continue;  // written before the entry was published
      // With many entries each of these lines is a cache miss: ask for all of them at once instead of one after the other. (Not in a
      // function of its own: GCC takes one that does nothing else for pure, and drops the call.)
      if (t->mask >= kCached) {
        const auto entry = reinterpret_cast<uintptr_t>(e), fast = reinterpret_cast<uintptr_t>(slot.fast);
        for (size_t k = 0; k < 2; ++k) __builtin_prefetch(reinterpret_cast<const void*>(entry + 64 * k));
#pragma GCC unroll 5
        for (size_t k = 0; k < 5; ++k) __builtin_prefetch(reinterpret_cast<const void*>(fast + 64 * k));
      }
      if (e->key_size == n && equal(e->key(), words, n)) return e;
    }
  }
  void insert(Entry& e);  // its key is new
  size_t size() const { return size_; }

 private:
  static constexpr size_t kCached = 64;  // so many slots' entries stay in the first level of caches anyway
  struct alignas(32) Slot {
    std::atomic<Entry*> entry{nullptr};
    uint64_t hash = 0;
    const FastCall* fast = nullptr;
  };
  struct Table {
    explicit Table(size_t capacity) : mask(capacity - 1), slots(std::make_unique<Slot[]>(capacity)) {}
    size_t mask;
    std::unique_ptr<Slot[]> slots;
  };
  static bool equal(const uint64_t* a, const uint64_t* b, size_t n) {
    uint64_t differ = 0;
    for (size_t i = 0; i < n; ++i) differ |= a[i] ^ b[i];
    return differ == 0;
  }
  static void place(Table& t, Entry& e);
  void grow(size_t capacity);
  std::atomic<const Table*> current_{nullptr};
  std::vector<std::unique_ptr<Table>> tables_;  // the last is current; a reader may be in an earlier one
  size_t size_ = 0;
};

// Entries stand in groups by the mask of what is fixed about their arguments; each group is one hash table that is read while it grows, so
// that a call costs one probe per mask, whatever the number of entries. find() and used() may run in any thread at any time; the rest
// excludes each other by a lock of the caller.
//
// With limits the least recently used entry goes when there are too many: no call finds it any more, and it is freed at the next insert at which
// no call is on its way. Then every call counts itself (Reader); without limits it does not.
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
  void used(const Entry& e) const;                             // it is the most recent one now

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
  using Order = std::vector<const Group*>;

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
