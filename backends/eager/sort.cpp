// SPDX-License-Identifier: Apache-2.0
// Sorting along an axis, the k extremes, and binary search. (value, index) pairs are sorted in workspace memory; the index
// breaks ties, which makes an unstable in-place sort stable.
#include <algorithm>

#include "copy.hpp"
#include "index_ops.hpp"

namespace eager {
namespace {

constexpr int64_t kSlots = 64;  // rows that may be sorted at once

template <class T>
struct Pair {
  T value;
  int64_t index;
};
// NaN is greater than any number.
template <class T>
bool less(T a, T b) {
  return a < b || (b != b && a == a);
}
template <class T>
struct Ascending {
  bool operator()(const Pair<T>& a, const Pair<T>& b) const {
    return less(a.value, b.value) || (!less(b.value, a.value) && a.index < b.index);
  }
};
template <class T>
struct Descending {
  bool operator()(const Pair<T>& a, const Pair<T>& b) const {
    return less(b.value, a.value) || (!less(a.value, b.value) && a.index < b.index);
  }
};

int64_t slot_bytes(int64_t n) { return n * 16; }
int64_t slots_for(const Dims& sizes, int axis) {
  int64_t rows = 1;
  for (int d = 0; d < sizes.rank; ++d)
    if (d != axis) rows *= sizes[d];
  return std::min(rows, kSlots);
}

// Sorts the first k of every row along `axis`.
template <class T>
void sort_rows(const Isa& isa, const View& x, int axis, int64_t k, bool descending, const tsr_launch& l) {
  const View values = dense_view(l.outputs[0].data, x.dtype, Dims(l.outputs[0].sizes, l.outputs[0].rank));
  auto* indices = static_cast<int64_t*>(l.outputs[1].data);
  const int64_t n = x.sizes[axis];
  Nest<2> outer;
  for (int d = 0; d < x.rank(); ++d) {
    if (d == axis) continue;
    const int64_t s[2] = {x.strides[d], values.strides[d]};
    outer.push(x.sizes[d], s);
  }
  const int64_t rows = outer.total(), slots = std::min(rows, kSlots);
  if (rows == 0 || k == 0) return;
  const int64_t grain =
      tessera::is_packed(x.dtype) ? slots : std::max<int64_t>(1, kGrain / 8 / std::max<int64_t>(1, rows / slots * n));
  sdk::parallel(slots, grain, [&](int64_t begin, int64_t end) {
    alignas(64) T piece[kTile];
    for (int64_t s = begin; s < end; ++s) {
      auto* pairs = reinterpret_cast<Pair<T>*>(static_cast<char*>(l.workspace) + s * slot_bytes(n));
      for (int64_t r = rows * s / slots; r < rows * (s + 1) / slots; ++r) {
        int64_t at[2];
        outer.offsets(r, at);
        for (int64_t i = 0; i < n; i += kTile) {
          const int64_t m = std::min(kTile, n - i);
          load_run(isa, x.dtype, x.data, x.offset + at[0] + i * x.strides[axis], x.strides[axis], m, piece);
          for (int64_t j = 0; j < m; ++j) pairs[i + j] = {piece[j], i + j};
        }
        const auto order = [&](auto compare) {
          if (k < n) std::nth_element(pairs, pairs + k, pairs + n, compare);
          std::sort(pairs, pairs + k, compare);
        };
        if (descending)
          order(Descending<T>{});
        else
          order(Ascending<T>{});
        const int64_t step = values.strides[axis];
        for (int64_t i = 0; i < k; ++i) indices[at[1] + i * step] = pairs[i].index;
        if (step == 1) {
          for (int64_t i = 0; i < k; i += kTile) {
            const int64_t m = std::min(kTile, k - i);
            for (int64_t j = 0; j < m; ++j) piece[j] = pairs[i + j].value;
            store_run(isa, x.dtype, values.data, at[1] + i, m, piece);
          }
        } else {
          for (int64_t i = 0; i < k; ++i) store_run(isa, x.dtype, values.data, at[1] + i * step, 1, &pairs[i].value);
        }
      }
    }
  });
}

KernelPtr sort_kernel(const Build& b, bool descending) {
  const int axis = b.axis("axis", b.rank());
  return make_kernel(
      b,
      [axis, descending, isa = b.isa](const tsr_launch& l) {
        View x(l.inputs[0]);
        if (x.rank() == 0) {
          copy_view(x, View(l.outputs[0]));
          if (elements(l.outputs[1]) == 1) *static_cast<int64_t*>(l.outputs[1].data) = 0;
          return;
        }
        with_comp(comp_of(x.dtype), [&](auto zero) {
          using T = decltype(zero);
          if constexpr (std::is_arithmetic_v<T>) sort_rows<T>(*isa, x, axis, l.outputs[0].sizes[axis], descending, l);
        });
      },
      [axis, shape = b.shape(b.operand(0))](const int64_t* dims) {
        const Dims s = shape.get(dims);
        return s.rank == 0 ? 0 : slots_for(s, axis) * slot_bytes(s[axis]);
      });
}

}  // namespace

KernelPtr make_sort(const Build& b, int) { return sort_kernel(b, b.flag("descending")); }
KernelPtr make_topk(const Build& b, int) { return sort_kernel(b, b.flag("largest")); }

KernelPtr make_searchsorted(const Build& b, int) {
  return make_kernel(b, [right = b.flag("right"), isa = b.isa](const tsr_launch& l) {
    const View sorted(l.inputs[0]), values(l.inputs[1]);
    auto* out = static_cast<int64_t*>(l.outputs[0].data);
    const int last = sorted.rank() - 1;
    const int64_t n = sorted.sizes[last], step = sorted.strides[last];
    Nest<2> nest;  // values; the row of `sorted` that belongs to them
    for (int d = 0; d < values.rank(); ++d) {
      const int64_t s[2] = {values.strides[d], sorted.rank() > 1 && d < last ? sorted.strides[d] : 0};
      nest.push(values.sizes[d], s);
    }
    with_comp(comp_of(sorted.dtype), [&](auto zero) {
      using T = decltype(zero);
      if constexpr (std::is_arithmetic_v<T>) {
        sdk::parallel(values.elements(), kGrain / 16, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            int64_t at[2];
            nest.offsets(i, at);
            T v, x;
            load_run(*isa, values.dtype, values.data, at[0], 1, 1, &v);
            int64_t low = 0, high = n;
            while (low < high) {
              const int64_t middle = low + (high - low) / 2;
              load_run(*isa, sorted.dtype, sorted.data, at[1] + middle * step, 1, 1, &x);
              if (right ? !less(v, x) : less(x, v))
                low = middle + 1;
              else
                high = middle;
            }
            out[i] = low;
          }
        });
      }
    });
  });
}

}  // namespace eager
