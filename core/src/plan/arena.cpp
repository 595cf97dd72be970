// SPDX-License-Identifier: Apache-2.0
#include "plan/arena.hpp"

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

int64_t plan_arena_alike(std::span<ArenaItem> items, int64_t most) {
  constexpr int64_t kMostWithPlanes = int64_t{1} << 48;  // no multiple of such a period and no sum of such sizes overflows
  struct Region {
    std::vector<size_t> members;
    ArenaItem all;
  };
  std::map<std::pair<int64_t, int64_t>, Region> by_period;  // and by unit, a multiple of the period and of 64
  std::vector<size_t> others;
  uint32_t first = UINT32_MAX, last = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const ArenaItem& item = items[i];
    first = std::min(first, item.first), last = std::max(last, item.last);
    const bool has_planes = item.period > 0 && item.period <= item.bytes && item.bytes <= kMostWithPlanes;
    const int64_t unit = has_planes ? std::lcm(item.period, int64_t{64}) : 0;
    if (unit > 0 && unit - 1 - (item.bytes - 1) % unit <= item.bytes / 8)
      by_period[{item.period, unit}].members.push_back(i);
    else
      others.push_back(i);
  }
  std::vector<Region*> regions;
  for (auto& [key, region] : by_period) {
    const int64_t unit = key.second;
    std::vector<ArenaItem> inside;
    region.all = items[region.members[0]];
    for (const size_t i : region.members) {
      inside.push_back(items[i]);
      inside.back().bytes = (items[i].bytes + unit - 1) / unit * unit;
      region.all.first = std::min(region.all.first, items[i].first);
      region.all.last = std::max(region.all.last, items[i].last);
    }
    region.all.bytes = plan_arena(inside);
    for (size_t k = 0; k < region.members.size(); ++k) items[region.members[k]].offset = inside[k].offset;
    regions.push_back(&region);
  }
  std::stable_sort(regions.begin(), regions.end(),
                   [](const Region* a, const Region* b) { return a->all.bytes < b->all.bytes; });
  // As many regions as fit share with nobody, small ones first; each attempt plans all that is not in a region.
  size_t alone = 0;
  for (int64_t bytes = 0; alone < regions.size() && regions[alone]->all.bytes <= most - bytes; ++alone)
    bytes += regions[alone]->all.bytes;
  constexpr int kAttempts = 4;
  for (int attempt = 1; !regions.empty(); alone = ++attempt < kAttempts ? alone - 1 : 0) {
    std::vector<ArenaItem> placed;  // regions, then the other items
    for (size_t r = 0; r < regions.size(); ++r) {
      placed.push_back(regions[r]->all);
      if (r < alone) placed.back().first = first, placed.back().last = last;
    }
    for (const size_t i : others) placed.push_back(items[i]);
    const int64_t total = plan_arena(placed);
    if (total <= most) {
      size_t next = 0;
      for (const Region* r : regions) {
        for (const size_t i : r->members) items[i].offset += placed[next].offset;
        ++next;
      }
      for (const size_t i : others) items[i].offset = placed[next++].offset;
      return total;
    }
    if (alone == 0) break;
  }
  return plan_arena(items);
}

}  // namespace tessera::core
