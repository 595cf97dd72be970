// SPDX-License-Identifier: Apache-2.0
#include "compile/arena.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "support/error.hpp"

namespace tessera::core {

int64_t plan_arena(std::span<ArenaItem> items) {
  constexpr int64_t kLimit = int64_t{1} << 62;
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return items[a].bytes > items[b].bytes; });
  struct Placed {
    int64_t offset, end;
    uint32_t first, last;
  };
  std::vector<Placed> placed;  // by offset
  placed.reserve(items.size());
  int64_t total = 0;
  for (const uint32_t i : order) {
    ArenaItem& item = items[i];
    if (item.bytes >= kLimit)
      throw environment_error("TSR-R001", "out of memory: a plan needs a block of " + std::to_string(item.bytes) + " bytes");
    const int64_t bytes = std::max<int64_t>(64, (item.bytes + 63) / 64 * 64);
    int64_t best = -1, best_gap = INT64_MAX, reached = 0;
    for (const Placed& p : placed) {
      if (p.last < item.first || p.first > item.last) continue;
      if (const int64_t gap = p.offset - reached; gap >= bytes && gap < best_gap) {
        best = reached;
        best_gap = gap;
      }
      reached = std::max(reached, p.end);
    }
    item.offset = best >= 0 ? best : reached;
    if (item.offset > kLimit - bytes)
      throw environment_error("TSR-R001", "out of memory: a plan needs more than 2^62 bytes of arena", "use smaller sizes");
    const Placed p{item.offset, item.offset + bytes, item.first, item.last};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), p, [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
        p);
    total = std::max(total, p.end);
  }
  return total;
}

int64_t plan_arena_alike(std::span<ArenaItem> items) {
  constexpr int64_t kMostWithPlanes = int64_t{1} << 48;  // no multiple of such a period and no sum of such sizes overflows
  std::map<int64_t, std::vector<size_t>> regions;        // by unit, a multiple of the period and of 64
  std::vector<ArenaItem> placed;                         // regions, then the other items
  std::vector<size_t> others;
  for (size_t i = 0; i < items.size(); ++i) {
    const ArenaItem& item = items[i];
    const bool has_planes = item.period > 0 && item.period <= item.bytes && item.bytes <= kMostWithPlanes;
    const int64_t unit = has_planes ? std::lcm(item.period, int64_t{64}) : 0;
    if (unit > 0 && unit - 1 - (item.bytes - 1) % unit <= item.bytes / 8)
      regions[unit].push_back(i);
    else
      others.push_back(i);
  }
  if (regions.empty()) return plan_arena(items);
  for (const auto& [unit, members] : regions) {
    std::vector<ArenaItem> inside;
    ArenaItem region = items[members[0]];
    for (const size_t i : members) {
      inside.push_back(items[i]);
      inside.back().bytes = (items[i].bytes + unit - 1) / unit * unit;
      region.first = std::min(region.first, items[i].first);
      region.last = std::max(region.last, items[i].last);
    }
    region.bytes = plan_arena(inside);
    for (size_t k = 0; k < members.size(); ++k) items[members[k]].offset = inside[k].offset;
    placed.push_back(region);
  }
  for (const size_t i : others) placed.push_back(items[i]);
  const int64_t total = plan_arena(placed);
  size_t next = 0;
  for (const auto& [unit, members] : regions) {
    for (const size_t i : members) items[i].offset += placed[next].offset;
    ++next;
  }
  for (const size_t i : others) items[i].offset = placed[next++].offset;
  return total;
}

}  // namespace tessera::core
