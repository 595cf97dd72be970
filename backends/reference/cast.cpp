// SPDX-License-Identifier: Apache-2.0
// Changes of the element type.
#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

// Each element goes through the type that holds it exactly, so there is one rounding; `put` has the rules of docs/ir.md, 7.
void cast(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  with_domain(x.dtype(), [&]<class T>() {
    for (Walk w(y.sizes()); w; w.next()) y.put<T>(y.offset(w.index()), x.get<T>(x.offset(w.index())));
  });
}

// A bool holds 0 or 1 on either side, whatever byte is stored.
void bitcast(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  y.copy_from(x);
  if (!is_bool(x.dtype()) && !is_bool(y.dtype())) return;
  const Tensor bytes = y.as(TSR_U8);
  for (Walk w(y.sizes()); w; w.next()) {
    const int64_t at = bytes.offset(w.index());
    bytes.put<Int>(at, bytes.get<Int>(at) != 0);
  }
}

}  // namespace

std::span<const Entry> cast_ops() {
  static constexpr Entry entries[] = {
      {"cast", cast},
      {"bitcast", bitcast},
  };
  return entries;
}

}  // namespace tessera::reference
