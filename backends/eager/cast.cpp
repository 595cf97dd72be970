// SPDX-License-Identifier: Apache-2.0
// cast and bitcast. Most pairs go through tiles: compute type of the source -> compute type of the target, then one rounding or
// wrap when the tile is stored. Pairs where that would round twice (i64 -> f16 through f32, f64 -> bf16, ..) convert element by
// element.
#include <cstring>

#include "copy.hpp"
#include "elementwise.hpp"
#include "elementwise_ops.hpp"

namespace eager {
namespace {

template <class T>
inline constexpr bool is_cplx = std::is_same_v<T, C64> || std::is_same_v<T, C128>;

template <class S, class D>
void convert(const TileArgs& a) {
  const S* s = static_cast<const S*>(a.in[0]);
  D* d = static_cast<D*>(a.out);
  if constexpr (is_cplx<S> && is_cplx<D>) {
    using R = decltype(D::re);
    for (int64_t i = 0; i < a.n; ++i) d[i] = {static_cast<R>(s[i].re), static_cast<R>(s[i].im)};
  } else if constexpr (is_cplx<D>) {
    using R = decltype(D::re);
    for (int64_t i = 0; i < a.n; ++i) d[i] = {static_cast<R>(s[i]), R(0)};
  } else {
    for (int64_t i = 0; i < a.n; ++i) d[i] = static_cast<D>(s[i]);
  }
}
template <class S>
void to_bool(const TileArgs& a) {
  const S* s = static_cast<const S*>(a.in[0]);
  auto* d = static_cast<uint8_t*>(a.out);
  for (int64_t i = 0; i < a.n; ++i) {
    if constexpr (is_cplx<S>)
      d[i] = s[i].re != 0 || s[i].im != 0;
    else
      d[i] = s[i] != 0;
  }
}
// Truncates and saturates to [params[0], params[1]], both exact in f64; NaN gives 0. For integers of at most 32 bits.
template <class S, class D>
void to_small_int(const TileArgs& a) {
  const S* s = static_cast<const S*>(a.in[0]);
  D* d = static_cast<D*>(a.out);
  const double lo = a.params[0], hi = a.params[1];
  for (int64_t i = 0; i < a.n; ++i) {
    double x = static_cast<double>(s[i]);
    x = x != x ? 0.0 : x;
    x = x < lo ? lo : x;
    x = x > hi ? hi : x;
    d[i] = static_cast<D>(x);
  }
}
template <class S, class D>
void to_int64(const TileArgs& a) {
  const S* s = static_cast<const S*>(a.in[0]);
  D* d = static_cast<D*>(a.out);
  for (int64_t i = 0; i < a.n; ++i)
    d[i] = static_cast<D>(tessera::saturate_to_int(static_cast<double>(s[i]), 64, std::is_signed_v<D>));
}

template <class S, class D>
TileFn choose(uint32_t to) {
  if (to == TSR_BOOL) return to_bool<S>;
  if constexpr (std::is_floating_point_v<S>) {
    if (tessera::is_int(to)) {
      if constexpr (std::is_same_v<D, int64_t>) {
        if (to == TSR_U32) return to_small_int<S, int64_t>;
        return to_int64<S, int64_t>;
      } else if constexpr (std::is_same_v<D, uint64_t>) {
        return to_int64<S, uint64_t>;
      } else if constexpr (std::is_same_v<D, int32_t>) {
        return to_small_int<S, int32_t>;
      }
    }
  }
  if constexpr (is_cplx<S> && !is_cplx<D>)
    return nullptr;
  else
    return convert<S, D>;
}

// Null: convert element by element.
TileFn cast_tile(uint32_t from, uint32_t to) {
  const Comp source = comp_of(from);
  const bool narrow = tessera::is_float(to) && tessera::dtype_bits(to) < 32;
  // Into a narrow float only what f32 holds exactly may come through f32.
  if (narrow && !(source == Comp::F32 || source == Comp::U8 || (source == Comp::I32 && tessera::dtype_bits(from) <= 16)))
    return nullptr;
  return with_comp(
      source, [&](auto s) { return with_comp(comp_of(to), [&](auto d) { return choose<decltype(s), decltype(d)>(to); }); });
}

void cast_elements(const View& x, const tsr_tensor& out) {
  Nest<1> nest;
  for (int d = 0; d < x.rank(); ++d) nest.push(x.sizes[d], &x.strides[d]);
  const int64_t total = x.elements();
  sdk::parallel((total + kTile - 1) / kTile, kGrain / kTile, [&](int64_t begin, int64_t end) {
    const int64_t stop = std::min(total, end * kTile);
    for (int64_t i = begin * kTile; i < stop; ++i) {
      int64_t at[1];
      nest.offsets(i, at);
      tessera::cast_element(out.dtype, out.data, i, x.dtype, x.data, at[0]);
    }
  });
}

}  // namespace

KernelPtr make_cast(const Build& b, int) {
  const uint32_t from = b.operand(0).dtype(), to = static_cast<uint32_t>(b.integer("dtype"));
  if (from == to) return make_kernel(b, [](const tsr_launch& l) { copy_view(View(l.inputs[0]), View(l.outputs[0])); });
  TileOp t;
  t.fn = cast_tile(from, to);
  if (!t.fn) return make_kernel(b, [](const tsr_launch& l) { cast_elements(View(l.inputs[0]), l.outputs[0]); });
  t.num_inputs = 1;
  if (tessera::is_int(to) && tessera::dtype_bits(to) <= 32) {
    const int bits = tessera::dtype_bits(to);
    const bool is_signed = tessera::is_signed_int(to);
    t.params[0] = is_signed ? -static_cast<double>(int64_t{1} << (bits - 1)) : 0.0;
    t.params[1] = static_cast<double>((int64_t{1} << (is_signed ? bits - 1 : bits)) - 1);
  }
  return make_overwriting_kernel(b, [t, isa = b.isa](const tsr_launch& l) {
    const tsr_tensor* in[] = {&l.inputs[0]};
    run_elementwise(*isa, t, in, l.outputs[0]);
  });
}

KernelPtr make_bitcast(const Build& b, int) {
  return make_kernel(b, [](const tsr_launch& l) {
    View x(l.inputs[0]);
    const bool to_bool = l.outputs[0].dtype == TSR_BOOL, from_bool = x.dtype == TSR_BOOL;
    x.dtype = l.outputs[0].dtype;
    const View out(l.outputs[0]);
    copy_view(x, out);
    if (!to_bool && !from_bool) return;
    // A bool is 0 or 1, whatever byte stood for true.
    auto* bytes = static_cast<uint8_t*>(out.data);
    for (int64_t i = 0, n = out.elements(); i < n; ++i) bytes[i] = bytes[i] != 0;
  });
}

}  // namespace eager
