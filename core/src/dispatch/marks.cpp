// SPDX-License-Identifier: Apache-2.0
#include "dispatch/marks.hpp"

#include <algorithm>
#include <deque>
#include <mutex>

#include "support/error.hpp"

namespace tessera::core {

namespace {
struct Sets {
  std::mutex mutex;
  std::deque<std::vector<DimMark>> list{{}};  // addresses stay
};
Sets& sets() {
  static auto* s = new Sets;  // handles may outlive every destructor
  return *s;
}
}  // namespace

const std::vector<DimMark>& marks_of(uint32_t marks) {
  Sets& s = sets();
  const std::lock_guard lock(s.mutex);
  return s.list[marks < s.list.size() ? marks : 0];
}

const DimMark* mark_of(uint32_t marks, uint32_t dim) {
  if (marks == 0) return nullptr;
  for (const DimMark& m : marks_of(marks))
    if (m.dim == dim) return &m;
  return nullptr;
}

void mark_tensor(tsr_tensor_handle& t, int64_t dim, uint32_t mark, int64_t min, int64_t max) {
  const int64_t rank = t.desc.rank;
  if (dim < -rank || dim >= rank)
    throw user_error("TSR-D003",
                     "dimension " + std::to_string(dim) + " of a tensor of rank " + std::to_string(rank) + " cannot be marked",
                     "dimensions count from 0, or from the end when negative");
  if (mark < TSR_MARK_DYNAMIC || mark > TSR_MARK_UNBACKED)
    throw user_error("TSR-D003", "there is no mark number " + std::to_string(mark));
  if (min < 0 || min > max)
    throw user_error("TSR-D003",
                     "the range " + std::to_string(min) + ".." + std::to_string(max) + " of a marked dimension is empty",
                     "give 0 <= min <= max");
  const auto at = static_cast<uint32_t>(dim < 0 ? dim + rank : dim);
  std::vector<DimMark> wanted = marks_of(t.marks);
  wanted.erase(std::remove_if(wanted.begin(), wanted.end(), [at](const DimMark& m) { return m.dim == at; }), wanted.end());
  wanted.push_back({at, static_cast<tsr_mark>(mark), min, max});
  std::sort(wanted.begin(), wanted.end(), [](const DimMark& a, const DimMark& b) { return a.dim < b.dim; });
  Sets& s = sets();
  const std::lock_guard lock(s.mutex);
  auto found = std::find(s.list.begin(), s.list.end(), wanted);
  if (found == s.list.end()) {
    s.list.push_back(std::move(wanted));
    found = s.list.end() - 1;
  }
  t.marks = static_cast<uint32_t>(found - s.list.begin());
}

}  // namespace tessera::core
