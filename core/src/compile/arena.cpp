// SPDX-License-Identifier: Apache-2.0
#include "compile/arena.hpp"

#include <algorithm>
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

}  // namespace tessera::core
