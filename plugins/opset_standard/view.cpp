// SPDX-License-Identifier: Apache-2.0
// Which instances of view ops are strided views of their operand. Strides are never negative, so a slice with a negative
// stride is a copy; packed dtypes have no strides, so of them only whole reshapes are views.
#include "view.hpp"

#include <algorithm>

#include "table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

int64_t count(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.sizes[i];
  return n;
}

// Dense row-major; dimensions of size 1 may have any stride, and so may all of a tensor without elements.
bool contiguous(const tsr_tensor& t) {
  if (count(t) == 0) return true;
  int64_t expected = 1;
  for (uint32_t i = t.rank; i-- > 0;) {
    if (t.sizes[i] != 1 && t.strides[i] != expected) return false;
    expected *= t.sizes[i];
  }
  return true;
}

void row_major(const ViewQuery& q) {
  int64_t stride = 1;
  for (uint32_t i = q.out.rank; i-- > 0;) {
    q.strides[i] = stride;
    stride *= std::max<int64_t>(q.out.sizes[i], 1);
  }
}

// Byte offset of element `index` for dtypes of whole bytes.
void* at(const tsr_tensor& t, int64_t index) { return static_cast<char*>(t.data) + index * (dtype_bits(t.dtype) / 8); }

// Views that add, drop or reorder dimensions keep the data pointer.
ViewAnswer same_start(const ViewQuery& q, ViewAnswer answer = ViewAnswer::kAlways) {
  q.out.data = q.in.data;
  return answer;
}

ViewAnswer reshape(const ViewQuery& q) {
  if (contiguous(q.in)) {
    row_major(q);
    return same_start(q);
  }
  if (is_packed(q.in.dtype)) return ViewAnswer::kCopy;
  // Walk both shapes from the last dimension; a run of input dimensions that are dense among themselves (memory is one block
  // with one base stride) can be cut up differently.
  int64_t view = static_cast<int64_t>(q.out.rank) - 1;
  for (int64_t end = static_cast<int64_t>(q.in.rank) - 1; end >= 0;) {
    int64_t begin = end, elements = q.in.sizes[end];
    const int64_t base = q.in.strides[end];
    while (begin > 0 && (q.in.sizes[begin - 1] == 1 || q.in.strides[begin - 1] == elements * base))
      elements *= q.in.sizes[--begin];
    int64_t made = 1;
    while (view >= 0 && (made < elements || q.out.sizes[view] == 1)) {
      q.strides[view] = made * base;
      made *= q.out.sizes[view--];
    }
    if (made != elements) return ViewAnswer::kCopy;
    end = begin - 1;
  }
  return view < 0 ? same_start(q, ViewAnswer::kView) : ViewAnswer::kCopy;
}

ViewAnswer transpose(const ViewQuery& q) {
  if (is_packed(q.in.dtype)) return ViewAnswer::kCopy;
  const auto perm = q.ints("perm");
  for (size_t i = 0; i < perm.size(); ++i) q.strides[i] = q.in.strides[perm[i] < 0 ? perm[i] + q.in.rank : perm[i]];
  return same_start(q);
}

ViewAnswer expand_dims(const ViewQuery& q) {
  // A new dimension has size 1: any stride does, the natural one keeps row-major tensors row-major.
  const auto axes = q.ints("axes");
  const int64_t rank = q.out.rank;
  int64_t next = static_cast<int64_t>(q.in.rank) - 1, natural = 1;
  for (int64_t i = rank - 1; i >= 0; --i) {
    const bool added = std::any_of(axes.begin(), axes.end(), [&](int64_t a) { return (a < 0 ? a + rank : a) == i; });
    q.strides[i] = added ? natural : q.in.strides[next--];
    natural = q.strides[i] * std::max<int64_t>(q.out.sizes[i], 1);
  }
  return same_start(q);
}

ViewAnswer squeeze(const ViewQuery& q) {
  const auto axes = q.ints("axes");
  const int64_t rank = q.in.rank;
  for (int64_t i = 0, next = 0; i < rank; ++i) {
    const bool dropped = std::any_of(axes.begin(), axes.end(), [&](int64_t a) { return (a < 0 ? a + rank : a) == i; });
    if (!dropped) q.strides[next++] = q.in.strides[i];
  }
  return same_start(q);
}

ViewAnswer broadcast_to(const ViewQuery& q) {
  if (is_packed(q.in.dtype)) return ViewAnswer::kCopy;
  const uint32_t lead = q.out.rank - q.in.rank;
  for (uint32_t i = 0; i < q.out.rank; ++i)
    q.strides[i] = i < lead || (q.in.sizes[i - lead] == 1 && q.out.sizes[i] != 1) ? 0 : q.in.strides[i - lead];
  return same_start(q);
}

ViewAnswer slice(const ViewQuery& q) {
  if (is_packed(q.in.dtype)) return ViewAnswer::kCopy;
  const auto starts = q.ints("starts"), steps = q.ints("strides");
  int64_t offset = 0;
  ViewAnswer answer = ViewAnswer::kAlways;
  for (uint32_t i = 0; i < q.in.rank; ++i) {
    if (steps[i] < 0) answer = ViewAnswer::kView;  // other sizes need more than the one element
    if (steps[i] < 0 && q.out.sizes[i] > 1) return ViewAnswer::kCopy;
    q.strides[i] = q.in.strides[i] * std::max<int64_t>(steps[i], 1);
    offset += starts[i] * q.in.strides[i];
  }
  q.out.data = count(q.out) == 0 ? q.in.data : at(q.in, offset);
  return answer;
}

ViewAnswer as_strided(const ViewQuery& q) {
  if (is_packed(q.in.dtype) || !contiguous(q.in)) return ViewAnswer::kCopy;
  const auto strides = q.ints("strides");
  std::copy(strides.begin(), strides.end(), q.strides);
  q.out.data = count(q.out) == 0 ? q.in.data : at(q.in, q.integer("offset"));
  return ViewAnswer::kAlways;
}

ViewAnswer diagonal(const ViewQuery& q) {
  if (is_packed(q.in.dtype)) return ViewAnswer::kCopy;
  const int64_t rank = q.in.rank, offset = q.integer("offset");
  int64_t a = q.integer("axis1"), b = q.integer("axis2");
  if (a < 0) a += rank;
  if (b < 0) b += rank;
  uint32_t next = 0;
  for (int64_t i = 0; i < rank; ++i)
    if (i != a && i != b) q.strides[next++] = q.in.strides[i];
  q.strides[next] = q.in.strides[a] + q.in.strides[b];
  const int64_t first = offset >= 0 ? offset * q.in.strides[b] : -offset * q.in.strides[a];
  q.out.data = count(q.out) == 0 ? q.in.data : at(q.in, first);
  return ViewAnswer::kAlways;
}

}  // namespace

void add_views(Table& t) {
  t.view("reshape", reshape);
  t.view("transpose", transpose);
  t.view("expand_dims", expand_dims);
  t.view("squeeze", squeeze);
  t.view("broadcast_to", broadcast_to);
  t.view("slice", slice);
  t.view("as_strided", as_strided);
  t.view("diagonal", diagonal);
}

}  // namespace tessera::opset
