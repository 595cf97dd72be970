// SPDX-License-Identifier: Apache-2.0
#include "scalar_reduce.hpp"

#include "isa/reduce_order.hpp"

namespace eager {
namespace {

struct CSum {
  template <class C>
  static constexpr C identity() {
    return {0, 0};
  }
  template <class C>
  static C run(C a, C b) {
    return {a.re + b.re, a.im + b.im};
  }
};
struct CProd {
  template <class C>
  static constexpr C identity() {
    return {1, 0};
  }
  template <class C>
  static C run(C a, C b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

template <class R, class C>
void chunk(const void* data, int64_t n, void* out) {
  const C* x = static_cast<const C*>(data);
  const int64_t lanes = n >= kLongFrom ? kLongLanes : kShortLanes;
  C acc[kLongLanes];
  for (C& a : acc) a = R::template identity<C>();
  for (int64_t i = 0; i < n; ++i) acc[i % lanes] = R::run(acc[i % lanes], x[i]);
  *static_cast<C*>(out) = fold_lanes<R>(acc, lanes);
}

template <class R, class C>
void fold(const void* partial, int64_t outputs, int64_t chunks, int64_t first, int64_t count, void* out) {
  for (int64_t i = 0; i < count; ++i) {
    ChunkFold<R, C> f;
    for (int64_t c = 0; c < chunks; ++c) f.add(static_cast<const C*>(partial)[c * outputs + first + i]);
    static_cast<C*>(out)[i] = f.result();
  }
}

}  // namespace

ChunkFn scalar_chunk(Reduce kind, Comp comp) {
  if (comp != Comp::C64 && comp != Comp::C128) return nullptr;
  const bool wide = comp == Comp::C128;
  if (kind == Reduce::Sum) return wide ? chunk<CSum, C128> : chunk<CSum, C64>;
  if (kind == Reduce::Prod) return wide ? chunk<CProd, C128> : chunk<CProd, C64>;
  return nullptr;
}

void fold_complex(Reduce kind, Comp comp, const void* partial, int64_t outputs, int64_t chunks, int64_t first, int64_t count,
                  void* out) {
  const bool wide = comp == Comp::C128;
  if (kind == Reduce::Prod)
    return wide ? fold<CProd, C128>(partial, outputs, chunks, first, count, out)
                : fold<CProd, C64>(partial, outputs, chunks, first, count, out);
  return wide ? fold<CSum, C128>(partial, outputs, chunks, first, count, out)
              : fold<CSum, C64>(partial, outputs, chunks, first, count, out);
}

}  // namespace eager
