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
    WordMap<Entry> map;
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
