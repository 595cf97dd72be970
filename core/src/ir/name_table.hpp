// SPDX-License-Identifier: Apache-2.0
// Names of live values. Open addressing over 8-byte slots: a lookup touches one cache line of the table and the name itself,
// which is what keeps large graphs linear in practice.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

// `names(id)` gives the name that a stored id has; it must not change while the id is in the table.
class NameTable {
 public:
  template <class Names>
  tsr_id find(std::string_view name, Names&& names) const {
    if (slots_.empty()) return TSR_NONE;
    const uint32_t h = hash(name);
    for (size_t i = h & mask();; i = (i + 1) & mask()) {
      if (slots_[i].id == kFree) return TSR_NONE;
      if (slots_[i].id != kGone && slots_[i].hash == h && name == names(slots_[i].id)) return slots_[i].id;
    }
  }
  // The name is not in the table.
  void insert(std::string_view name, tsr_id id) {
    if (4 * (used_ + 1) > 3 * slots_.size()) grow();
    place({hash(name), id});
    ++live_;
  }
  void erase(std::string_view name, tsr_id id) {
    if (slots_.empty()) return;
    const uint32_t h = hash(name);
    for (size_t i = h & mask(); slots_[i].id != kFree; i = (i + 1) & mask())
      if (slots_[i].id == id && slots_[i].hash == h) {
        slots_[i].id = kGone;
        --live_;
        return;
      }
  }

 private:
  static constexpr tsr_id kFree = TSR_NONE, kGone = TSR_NONE - 1;
  struct Slot {
    uint32_t hash = 0;
    tsr_id id = kFree;
  };
  static uint32_t hash(std::string_view s) { return static_cast<uint32_t>(std::hash<std::string_view>()(s)); }
  size_t mask() const { return slots_.size() - 1; }
  void place(Slot s) {
    size_t i = s.hash & mask();
    while (slots_[i].id != kFree) i = (i + 1) & mask();  // a slot that is gone is not reused: its chain ends at the next growth
    slots_[i] = s;
    ++used_;
  }
  void grow() {
    std::vector<Slot> old(std::bit_ceil(std::max<size_t>(16, 2 * (live_ + 1))));
    old.swap(slots_);
    used_ = 0;
    for (const Slot& s : old)
      if (s.id < kGone) place(s);
  }

  std::vector<Slot> slots_;  // a power of two, never full
  size_t used_ = 0, live_ = 0;
};

}  // namespace tessera::core
