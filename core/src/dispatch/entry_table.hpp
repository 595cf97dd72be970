// SPDX-License-Identifier: Apache-2.0
// The entries of a frame, found by the arguments of a call.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "dispatch/entry.hpp"
#include "dispatch/words.hpp"

namespace tessera::core {

// Entries stand in groups by the mask of what is fixed about their arguments; each group is one hash table that is read while it grows, so
// that a call costs one probe per mask, whatever the number of entries. find() and used() may run in any thread at any time; the rest
// excludes each other by a lock of the caller.
class EntryTable {
 public:
  EntryTable();
  ~EntryTable();
  EntryTable(const EntryTable&) = delete;

  const Entry* find(const tsr_arg* args, size_t count) const;  // null: no entry's guards hold
  void used(const Entry& e) const;                             // it is the most recent one now

  // `args` are those that it was made for. Throws TSR-B031 when its own guards refuse them.
  const Entry* insert(std::unique_ptr<Entry> entry, const tsr_arg* args, size_t count);
  const std::vector<std::unique_ptr<Entry>>& entries() const { return entries_; }  // in order of compilation
  std::vector<const Entry*> recent() const;                                        // the most recently used first
  size_t num_groups() const { return groups_.size(); }

 private:
  struct Group {
    Mask mask;
    WordMap<Entry> map;
  };
  using Order = std::vector<const Group*>;

  std::atomic<const Order*> order_{nullptr};
  mutable std::atomic<uint64_t> tick_{1};
  std::vector<std::unique_ptr<Order>> orders_;  // the last is current; earlier ones may still be walked
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace tessera::core
