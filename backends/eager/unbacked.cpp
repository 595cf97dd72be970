// SPDX-License-Identifier: Apache-2.0
// Ops whose result sizes are data. The host asks for the sizes first, then allocates and launches; both walk the input, so that
// nothing has to be kept between the two calls.
#include <algorithm>
#include <vector>

#include "copy.hpp"
#include "index_ops.hpp"

namespace eager {
namespace {

constexpr int64_t kPiece = kTile;

// Calls f(first, count, values) over x in row-major order, values in the compute type.
template <class F>
void walk(const Isa& isa, const View& x, F f) {
  Nest<1> nest;
  for (int d = 0; d < x.rank(); ++d) nest.push(x.sizes[d], &x.strides[d]);
  const int64_t total = x.elements(), inner = nest.rank > 0 ? nest.sizes[nest.rank - 1] : 1;
  const int64_t step = nest.rank > 0 ? nest.strides[0][nest.rank - 1] : 1;
  alignas(64) char buffer[kPiece * 16];
  for (int64_t i = 0; i < total;) {
    int64_t at[1];
    nest.offsets(i / inner, at, nest.rank > 0 ? 1 : 0);
    const int64_t column = i % inner, n = std::min(kPiece, inner - column);
    f(i, n, run_pointer(isa, x.dtype, x.data, x.offset + at[0] + column * step, step, n, buffer));
    i += n;
  }
}

template <class T>
bool is_zero(T v) {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>)
    return v.re == 0 && v.im == 0;
  else
    return v == 0;
}

// Calls f(flat index) for every element that is not zero.
template <class F>
void each_nonzero(const Isa& isa, const View& x, F f) {
  walk(isa, x, [&](int64_t first, int64_t n, const void* values) {
    with_comp(comp_of(x.dtype), [&](auto zero) {
      using T = decltype(zero);
      for (int64_t j = 0; j < n; ++j)
        if (!is_zero(static_cast<const T*>(values)[j])) f(first + j);
    });
  });
}

void put(std::span<int64_t> symbols, int64_t value) {
  for (int64_t& s : symbols) s = value;
}

}  // namespace

KernelPtr make_nonzero(const Build& b, int) {
  return make_kernel(
      b,
      [isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]);
        auto* out = static_cast<int64_t*>(l.outputs[0].data);
        each_nonzero(*isa, x, [&](int64_t flat) {
          for (int d = x.rank() - 1; d >= 0; --d) {
            out[d] = flat % x.sizes[d];
            flat /= x.sizes[d];
          }
          out += x.rank();
        });
      },
      NoWorkspace{},
      [isa = b.isa](const tsr_launch& l, std::span<int64_t> symbols) {
        int64_t count = 0;
        each_nonzero(*isa, View(l.inputs[0]), [&](int64_t) { ++count; });
        put(symbols, count);
      });
}

namespace {

// x and the mask broadcast against each other.
struct Masked {
  View x, mask;
  Masked(const tsr_launch& l) : x(l.inputs[0]), mask(l.inputs[1]) {
    const int rank = std::max(x.rank(), mask.rank());
    Dims shape;
    for (int i = 0; i < rank; ++i) {
      const int a = i - (rank - x.rank()), b = i - (rank - mask.rank());
      const int64_t na = a < 0 ? 1 : x.sizes[a], nb = b < 0 ? 1 : mask.sizes[b];
      shape.push(na == 1 ? nb : na);
    }
    for (View* v : {&x, &mask}) {
      Dims strides;
      strides.rank = rank;
      broadcast_strides(*v, shape, strides.v);
      v->sizes = shape;
      v->strides = strides;
    }
  }
};

}  // namespace

KernelPtr make_masked_select(const Build& b, int) {
  return make_kernel(
      b,
      [isa = b.isa](const tsr_launch& l) {
        const Masked m(l);
        Nest<1> nest;
        for (int d = 0; d < m.x.rank(); ++d) nest.push(m.x.sizes[d], &m.x.strides[d]);
        View from = m.x, to = m.x;
        from.sizes.rank = from.strides.rank = to.sizes.rank = to.strides.rank = 0;
        to.data = l.outputs[0].data;
        const int64_t size = element_bytes(m.x.dtype);
        each_nonzero(*isa, m.mask, [&](int64_t flat) {
          int64_t at[1];
          nest.offsets(flat, at);
          if (size > 0) {
            std::memcpy(static_cast<char*>(to.data) + to.offset * size, static_cast<const char*>(m.x.data) + at[0] * size,
                        static_cast<size_t>(size));
          } else {
            from.offset = at[0];
            copy_view(from, to);
          }
          ++to.offset;
        });
      },
      NoWorkspace{},
      [isa = b.isa](const tsr_launch& l, std::span<int64_t> symbols) {
        int64_t count = 0;
        each_nonzero(*isa, Masked(l).mask, [&](int64_t) { ++count; });
        put(symbols, count);
      });
}

namespace {

template <class T>
struct Item {
  T value;
  int64_t index;
};

// A total order: NaN last (and distinct, by index), complex numbers by real, then imaginary part.
template <class R>
int compare_real(R a, R b) {
  const bool na = a != a, nb = b != b;
  if (na || nb) return na - nb;
  return a < b ? -1 : a > b ? 1 : 0;
}
template <class T>
int compare(T a, T b) {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>) {
    const int re = compare_real(a.re, b.re);
    return re != 0 ? re : compare_real(a.im, b.im);
  } else {
    return compare_real(a, b);
  }
}
template <class T>
bool same(T a, T b) {
  if constexpr (std::is_same_v<T, C64> || std::is_same_v<T, C128>)
    return a.re == b.re && a.im == b.im;
  else
    return a == b;
}

template <class T>
void sorted_items(const Isa& isa, const View& x, Item<T>* items) {
  walk(isa, x, [&](int64_t first, int64_t n, const void* values) {
    for (int64_t j = 0; j < n; ++j) items[first + j] = {static_cast<const T*>(values)[j], first + j};
  });
  std::sort(items, items + x.elements(), [](const Item<T>& a, const Item<T>& b) {
    const int c = compare(a.value, b.value);
    return c != 0 ? c < 0 : a.index < b.index;
  });
}

struct Group {
  int64_t begin, end, first;  // range in the sorted items, index of the first occurrence
};

template <class T>
void unique_launch(const Isa& isa, bool sorted, const View& x, const tsr_launch& l) {
  const int64_t n = x.elements();
  auto* items = static_cast<Item<T>*>(l.workspace);
  auto* groups = reinterpret_cast<Group*>(items + n);
  sorted_items(isa, x, items);
  int64_t count = 0;
  for (int64_t i = 0; i < n;) {
    int64_t j = i + 1;
    while (j < n && same(items[i].value, items[j].value)) ++j;
    groups[count++] = {i, j, items[i].index};
    i = j;
  }
  if (!sorted) std::sort(groups, groups + count, [](const Group& a, const Group& b) { return a.first < b.first; });
  auto* first = static_cast<int64_t*>(l.outputs[1].data);
  auto* inverse = static_cast<int64_t*>(l.outputs[2].data);
  auto* counts = static_cast<int64_t*>(l.outputs[3].data);
  for (int64_t g = 0; g < count; ++g) {
    const Group& r = groups[g];
    store_run(isa, x.dtype, l.outputs[0].data, g, 1, &items[r.begin].value);
    first[g] = r.first;
    counts[g] = r.end - r.begin;
    for (int64_t i = r.begin; i < r.end; ++i) inverse[items[i].index] = g;
  }
}

}  // namespace

KernelPtr make_unique(const Build& b, int) {
  const bool sorted = b.flag("sorted");
  const int64_t item = 8 + std::max<int64_t>(8, comp_size(comp_of(b.operand(0).dtype())));
  return make_kernel(
      b,
      [sorted, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]);
        with_comp(comp_of(x.dtype), [&](auto zero) { unique_launch<decltype(zero)>(*isa, sorted, x, l); });
      },
      [item, shape = b.shape(b.operand(0))](const int64_t* dims) {
        return shape.get(dims).product() * (item + static_cast<int64_t>(sizeof(Group)));
      },
      [isa = b.isa](const tsr_launch& l, std::span<int64_t> symbols) {
        const View x(l.inputs[0]);
        with_comp(comp_of(x.dtype), [&](auto zero) {
          using T = decltype(zero);
          std::vector<Item<T>> items(static_cast<size_t>(x.elements()));
          sorted_items<T>(*isa, x, items.data());
          int64_t count = 0;
          for (size_t i = 0; i < items.size(); ++i) count += i == 0 || !same(items[i - 1].value, items[i].value);
          put(symbols, count);
        });
      });
}

namespace {

// Which dims of result 0 are symbols that this op defines, in order of first appearance: unbacked, and known neither from x nor
// from the hint.
std::vector<int> symbolic_dims(const Build& b) {
  const tsr_tables& tables = b.compile.graph().tables();
  const auto sizes = b.result().sizes(), x = b.operand(0).sizes(), hint = b.node.attr("hint").as_ints();
  const auto holds = [](std::span<const int64_t> s, tsr_dim d) { return std::find(s.begin(), s.end(), d) != s.end(); };
  std::vector<int> out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!TSR_DIM_IS_EXPR(sizes[i]) || holds(x, sizes[i]) || holds(hint, sizes[i]) || holds(sizes.first(i), sizes[i])) continue;
    const auto* e = TSR_AT(tsr_dim_expr, tables.exprs, tables.expr_stride, TSR_DIM_EXPR_ID(sizes[i]));
    if (e->op == TSR_DIM_SYMBOL && TSR_AT(tsr_symbol, tables.symbols, tables.symbol_stride, e->symbol)->unbacked)
      out.push_back(static_cast<int>(i));
  }
  return out;
}

std::string print(const Dims& d) {
  std::string s = "[";
  for (int i = 0; i < d.rank; ++i) s += (i ? ", " : "") + std::to_string(d[i]);
  return s + "]";
}

Dims read_shape(const tsr_tensor& t) {
  const View v(t);
  Dims d;
  for (int64_t i = 0; i < v.elements(); ++i) d.push(tessera::load_as<int64_t>(v.dtype, v.data, i * v.strides[0]));
  return d;
}

// The shape that the data asks for; TSR-R012 when x cannot have it.
Dims reshape_target(const std::string& op, const tsr_launch& l) {
  const Dims x(l.inputs[0].sizes, l.inputs[0].rank), asked = read_shape(l.inputs[1]);
  Dims out = asked;
  const int64_t have = x.product();
  int infer = -1;
  int64_t known = 1;
  bool ok = true;
  for (int i = 0; i < out.rank; ++i) {
    if (out[i] == -1) {
      ok = ok && infer < 0;
      infer = i;
    } else {
      ok = ok && out[i] >= 0 && !__builtin_mul_overflow(known, out[i], &known);
    }
  }
  if (ok && infer >= 0) {
    ok = known > 0 && have % known == 0;
    if (ok) out[infer] = have / known;
  } else {
    ok = ok && known == have;
  }
  if (!ok)
    fail("TSR-R012", "op '" + op + "': a tensor of " + std::to_string(have) + " elements cannot have the shape " + print(asked),
         "the product of the sizes must be " + std::to_string(have) + "; one size may be -1");
  return out;
}

Dims broadcast_target(const std::string& op, const tsr_launch& l) {
  const Dims x(l.inputs[0].sizes, l.inputs[0].rank), asked = read_shape(l.inputs[1]);
  const int rank = std::max(x.rank, asked.rank);
  Dims out;
  for (int i = 0; i < rank; ++i) {
    const int a = i - (rank - x.rank), s = i - (rank - asked.rank);
    const int64_t na = a < 0 ? 1 : x[a], ns = s < 0 ? 1 : asked[s];
    if (ns < 0 || (na != ns && na != 1 && ns != 1))
      fail("TSR-R012", "op '" + op + "': sizes " + print(x) + " do not broadcast with the shape " + print(asked),
           "sizes must be equal or 1, counted from the last");
    out.push(na == 1 ? ns : na);
  }
  return out;
}

KernelPtr dynamic_kernel(const Build& b, Dims (*target)(const std::string&, const tsr_launch&),
                         void (*copy)(const View&, const tsr_tensor&)) {
  return make_kernel(
      b,
      [op = b.op(), target, copy](const tsr_launch& l) {
        const Dims want = target(op, l), have(l.outputs[0].sizes, l.outputs[0].rank);
        bool equal = want.rank == have.rank;
        for (int i = 0; equal && i < want.rank; ++i) equal = want[i] == have[i];
        if (!equal)
          fail("TSR-R012",
               "op '" + op + "': the data asks for the shape " + print(want) + ", but the program expects " + print(have),
               "the attribute 'hint' must agree with the data");
        copy(View(l.inputs[0]), l.outputs[0]);
      },
      NoWorkspace{},
      [op = b.op(), target, dims = symbolic_dims(b)](const tsr_launch& l, std::span<int64_t> symbols) {
        const Dims want = target(op, l);
        for (size_t i = 0; i < symbols.size() && i < dims.size(); ++i) symbols[i] = want[dims[i]];
      });
}

}  // namespace

KernelPtr make_dynamic_reshape(const Build& b, int) {
  return dynamic_kernel(b, reshape_target,
                        [](const View& x, const tsr_tensor& out) { copy_view(x, dense_view(out.data, x.dtype, x.sizes)); });
}

KernelPtr make_dynamic_broadcast_to(const Build& b, int) {
  return dynamic_kernel(b, broadcast_target, [](const View& x, const tsr_tensor& t) {
    const View out(t);
    View v = x;
    Dims strides;
    strides.rank = out.rank();
    broadcast_strides(x, out.sizes, strides.v);
    v.sizes = out.sizes;
    v.strides = strides;
    copy_view(v, out);
  });
}

}  // namespace eager
