// SPDX-License-Identifier: Apache-2.0
// Attributes for run_op. Spans are borrowed until the op has run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime.hpp"
#include "tessera/tensor.hpp"

namespace tessera::detail {

inline tsr_attr attr(const char* n, tsr_attr_kind kind) {
  tsr_attr a{};
  a.name = n;
  a.kind = kind;
  return a;
}
inline tsr_attr int_attr(const char* n, int64_t v) {
  tsr_attr a = attr(n, TSR_ATTR_INT);
  a.i = v;
  return a;
}
inline tsr_attr bool_attr(const char* n, bool v) {
  tsr_attr a = attr(n, TSR_ATTR_BOOL);
  a.i = v;
  return a;
}
inline tsr_attr float_attr(const char* n, double v) {
  tsr_attr a = attr(n, TSR_ATTR_FLOAT);
  a.f = v;
  return a;
}
inline tsr_attr string_attr(const char* n, const char* v) {
  tsr_attr a = attr(n, TSR_ATTR_STRING);
  a.s = v;
  return a;
}
inline tsr_attr string_attr(const char* n, const std::string& v) { return string_attr(n, c_text(v, n)); }
inline tsr_attr dtype_attr(const char* n, DType v) {
  tsr_attr a = attr(n, TSR_ATTR_DTYPE);
  a.i = static_cast<int64_t>(v);
  return a;
}
inline tsr_attr dim_attr(const char* n, SymInt v) {
  tsr_attr a = attr(n, TSR_ATTR_DIM);
  a.i = v.dim();
  return a;
}
inline tsr_attr ints_attr(const char* n, std::span<const int64_t> v) {
  tsr_attr a = attr(n, TSR_ATTR_INTS);
  a.ints = v.data();
  a.count = static_cast<uint32_t>(v.size());
  return a;
}
struct Dims {  // a Shape in the form that attributes take
  std::vector<tsr_dim> v;
  explicit Dims(const Shape& s) {
    for (const SymInt& d : s) v.push_back(d.dim());
  }
  tsr_attr attr(const char* n) const {
    tsr_attr a = ints_attr(n, v);
    a.kind = TSR_ATTR_DIMS;
    return a;
  }
};

}  // namespace tessera::detail
