// SPDX-License-Identifier: Apache-2.0
#include "infer.hpp"

#include <algorithm>
#include <deque>

#include "tessera/dtypes.hpp"

namespace tessera::opset {

void Infer::fail(const char* code, std::string_view what, const std::string& found, const std::string& expected) const {
  throw sdk::Error(TSR_USER, code,
                   "op '" + std::string(op()) + "', " + std::string(what) + ": found " + found + ", expected " + expected);
}

void Infer::expect_rank(uint32_t i, std::string_view name, int64_t low, int64_t high) const {
  const int64_t r = rank(i);
  if (r >= low && r <= high) return;
  std::string expected = "rank " + std::to_string(low);
  if (high == INT64_MAX)
    expected += " or more";
  else if (high > low)
    expected += " to " + std::to_string(high);
  fail("TSR-I200", name, "rank " + std::to_string(r) + " (" + dims.print(sizes(i)) + ")", expected);
}

void Infer::expect_equal(std::string_view what, tsr_dim found, tsr_dim expected, const char* why) const {
  if (!dims.assume(TSR_EQ, found, expected, why)) fail("TSR-I202", what, dims.print(found), dims.print(expected));
}

void Infer::expect_length(std::string_view name, size_t expected) const {
  const size_t n = attr(name).p->count;
  if (n != expected)
    fail("TSR-I204", "attribute '" + std::string(name) + "'", std::to_string(n) + " entries", std::to_string(expected));
}

void Infer::expect_all_at_least(std::string_view name, int64_t lowest) const {
  for (int64_t v : ints(name))
    if (v < lowest)
      fail("TSR-I205", "attribute '" + std::string(name) + "'", std::to_string(v), "at least " + std::to_string(lowest));
}

int64_t Infer::normalize_axis(std::string_view what, int64_t axis, int64_t rank) const {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  if (rank == 0) fail("TSR-I201", what, std::to_string(axis), "no axis: the tensor is 0-d");
  fail("TSR-I201", what, std::to_string(axis), "a number in [" + std::to_string(-rank) + ", " + std::to_string(rank - 1) + "]");
}

int64_t Infer::axis(std::string_view name, int64_t rank) const {
  return normalize_axis("attribute '" + std::string(name) + "'", integer(name), rank);
}

std::vector<int64_t> Infer::axes(std::string_view name, int64_t rank) const {
  std::vector<int64_t> out;
  for (int64_t a : ints(name)) {
    const int64_t n = normalize_axis("attribute '" + std::string(name) + "'", a, rank);
    if (std::find(out.begin(), out.end(), n) != out.end())
      fail("TSR-I201", "attribute '" + std::string(name) + "'", "axis " + std::to_string(n) + " twice", "distinct axes");
    out.push_back(n);
  }
  return out;
}

DimVector Infer::shape(std::string_view name) const {
  DimVector out;
  for (tsr_dim d : ints(name)) {
    if (dims.compare(TSR_LT, d, 0) == TSR_TRUE)
      fail("TSR-I208", "attribute '" + std::string(name) + "'", dims.print(ints(name)), "no negative size");
    out.push_back(d);
  }
  return out;
}

DimVector Infer::broadcast(std::span<const tsr_dim> a, std::span<const tsr_dim> b) const {
  DimVector out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const tsr_dim x = i + a.size() < out.size() ? 1 : a[i + a.size() - out.size()];
    const tsr_dim y = i + b.size() < out.size() ? 1 : b[i + b.size() - out.size()];
    if (!dims.broadcast(x, y, out[i]))
      fail("TSR-I203", "operands", dims.print(a) + " and " + dims.print(b), "sizes that are equal or 1");
  }
  return out;
}

void Infer::result(tsr_dtype dtype, std::span<const tsr_dim> sizes) {
  tsr_type t{};
  t.dtype = dtype;
  t.rank = static_cast<uint32_t>(sizes.size());
  tsr_dim* copy = nullptr;
  if (call_->graph) {
    copy = static_cast<tsr_dim*>(sdk::host().graph->scratch(call_->graph, std::max<size_t>(sizes.size(), 1) * sizeof(tsr_dim)));
  } else {
    // Without a graph there is no scratch memory: the sizes live until this thread has inferred 64 more results.
    thread_local std::deque<DimVector> recent;
    recent.emplace_back(std::max<size_t>(sizes.size(), 1));
    if (recent.size() > 64) recent.pop_front();
    copy = recent.back().data();
  }
  std::copy(sizes.begin(), sizes.end(), copy);
  t.sizes = copy;
  for (uint32_t i = 0; i < call_->num_operands; ++i)
    if (call_->operands[i]) {
      t.device = call_->operands[i]->device;
      break;
    }
  result(t);
}

void Infer::result(const tsr_type& type) {
  if (count_ == capacity_)
    throw sdk::Error(TSR_BUG, "TSR-I036", "op '" + std::string(op()) + "' has more results than the host has room for");
  results_[count_++] = type;
}

void Infer::results_on(tsr_device device) {
  for (uint32_t i = 0; i < count_; ++i) results_[i].device = device;
}

std::string ordinal_text(std::span<const int64_t> v) {
  std::string s = "[";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  return s + "]";
}

}  // namespace tessera::opset
