// SPDX-License-Identifier: Apache-2.0
// Predicates and builders that the rules are written with.
#pragma once

#include <cmath>
#include <cstring>

#include <tessera/dtypes.hpp>
#include <tessera/plugin.hpp>

namespace tessera::passes {

struct Match {  // a node under rewrite, with shorthands
  sdk::Graph g;
  sdk::Node n;

  sdk::Value in(uint32_t i = 0) const { return n.operand(i); }
  sdk::Value out() const { return n.result(0); }
  sdk::Node def(uint32_t i = 0) const { return n.has_operand(i) ? in(i).def() : sdk::Node{}; }  // none: omitted, or an input
  bool from(uint32_t i, const char* op) const { return def(i) && def(i).is(op); }
  bool same(uint32_t i, uint32_t j) const { return in(i) == in(j); }

  tsr_dtype dtype() const { return out().type().dtype(); }
  bool is_int() const { return is_signed_int(dtype()) || is_unsigned_int(dtype()); }
  bool is_constant(uint32_t i) const { return from(i, "constant"); }
  // Types are interned: equal types are equal pointers.
  bool keeps_type(sdk::Value v) const { return v.raw().type == out().raw().type; }
  bool in_keeps_type(uint32_t i = 0) const { return n.has_operand(i) && keeps_type(in(i)); }

  // Is operand i a constant whose every element equals `x`, with that sign of zero?
  bool is_splat(uint32_t i, double x) const {
    if (!is_constant(i)) return false;
    const tsr_tensor& t = def(i).attr("value").as_tensor();
    int64_t count = 1;
    for (uint32_t k = 0; k < t.rank; ++k) count *= t.sizes[k];
    if (count == 0 || count > 4096 || is_complex(t.dtype)) return false;  // scanning more costs more than it saves
    for (int64_t k = 0; k < count; ++k) {
      const double v = load_as<double>(t.dtype, t.data, k);
      if (v != x || std::signbit(v) != std::signbit(x)) return false;
    }
    return true;
  }

  sdk::Graph::At here() const { return sdk::Graph::before(n); }
};

inline bool equal_lists(std::span<const int64_t> a, std::span<const int64_t> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

inline bool identity_perm(std::span<const int64_t> perm) {
  for (size_t i = 0; i < perm.size(); ++i)
    if (perm[i] != static_cast<int64_t>(i) && perm[i] + static_cast<int64_t>(perm.size()) != static_cast<int64_t>(i))
      return false;
  return true;
}

// Every value of `from` is a value of `to`, so that going there and back changes nothing.
inline bool widens(tsr_dtype from, tsr_dtype to) {
  if (from == to) return true;
  if (is_float(from) && is_float(to)) {
    if (to == TSR_F64) return true;
    if (to == TSR_F32) return from != TSR_F64;
    return false;
  }
  const bool from_int = is_signed_int(from) || is_unsigned_int(from), to_int = is_signed_int(to) || is_unsigned_int(to);
  if (from_int && to_int) {
    if (is_signed_int(from) == is_signed_int(to)) return dtype_bits(from) < dtype_bits(to);
    return is_unsigned_int(from) && dtype_bits(from) < dtype_bits(to);
  }
  return from == TSR_BOOL && to_int;
}

}  // namespace tessera::passes
