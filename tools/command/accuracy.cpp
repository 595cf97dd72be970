// SPDX-License-Identifier: Apache-2.0
#include "accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/dtypes.hpp"

namespace tessera::command {
namespace {

struct Sums {
  double difference = 0, reference = 0;
};

void add_real(double a, double r, OutputError& e, Sums& sums) {
  if (std::isnan(a) && std::isnan(r)) return;
  if (!std::isfinite(a) || !std::isfinite(r)) {
    if (a != r) ++e.nonfinite;
    return;
  }
  const double d = std::abs(a - r);
  e.max_abs = std::max(e.max_abs, d);
  if (r != 0) e.max_rel = std::max(e.max_rel, d / std::abs(r));
  sums.difference += d * d;
  sums.reference += r * r;
}

void add_complex(ComplexValue<double> a, ComplexValue<double> r, OutputError& e, Sums& sums) {
  const auto finite = [](ComplexValue<double> z) { return std::isfinite(z.re) && std::isfinite(z.im); };
  if (!finite(a) || !finite(r)) {
    const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
    if (!same(a.re, r.re) || !same(a.im, r.im)) ++e.nonfinite;
    return;
  }
  const double d = std::hypot(a.re - r.re, a.im - r.im), m = std::hypot(r.re, r.im);
  e.max_abs = std::max(e.max_abs, d);
  if (m != 0) e.max_rel = std::max(e.max_rel, d / m);
  sums.difference += d * d;
  sums.reference += m * m;
}

// 64-bit integers may differ where their doubles do not.
template <class T>
void add_integer(T a, T r, OutputError& e, Sums& sums) {
  const double d = a > r ? static_cast<double>(static_cast<uint64_t>(a) - static_cast<uint64_t>(r))
                         : static_cast<double>(static_cast<uint64_t>(r) - static_cast<uint64_t>(a));
  const double m = std::abs(static_cast<double>(r));
  e.max_abs = std::max(e.max_abs, d);
  if (m != 0) e.max_rel = std::max(e.max_rel, d / m);
  sums.difference += d * d;
  sums.reference += m * m;
}

}  // namespace

OutputError compare_outputs(const tsr_tensor& a, const tsr_tensor& r) {
  OutputError e;
  const bool wider = is_float(a.dtype) && r.dtype == TSR_F64;  // a judge that computes in f64 throughout
  e.shapes_agree = (a.dtype == r.dtype || wider) && a.rank == r.rank && std::equal(a.sizes, a.sizes + a.rank, r.sizes);
  if (!e.shapes_agree) {
    e.max_abs = e.max_rel = e.rel_l2 = std::numeric_limits<double>::infinity();
    e.bits_equal = false;
    return e;
  }
  int64_t n = 1;
  for (uint32_t d = 0; d < a.rank; ++d) n *= a.sizes[d];
  Sums sums;
  for (int64_t i = 0; i < n; ++i) {
    switch (dtype_info(a.dtype).cls) {
      case DtypeClass::Float:
        add_real(load_as<double>(a.dtype, a.data, i), load_as<double>(r.dtype, r.data, i), e, sums);
        break;
      case DtypeClass::Complex:
        add_complex(load_as<ComplexValue<double>>(a.dtype, a.data, i), load_as<ComplexValue<double>>(r.dtype, r.data, i), e,
                    sums);
        break;
      case DtypeClass::Sint:
        add_integer(load_as<int64_t>(a.dtype, a.data, i), load_as<int64_t>(r.dtype, r.data, i), e, sums);
        break;
      default: add_integer(load_as<uint64_t>(a.dtype, a.data, i), load_as<uint64_t>(r.dtype, r.data, i), e, sums); break;
    }
  }
  if (sums.difference > 0)
    e.rel_l2 = sums.reference > 0 ? std::sqrt(sums.difference / sums.reference) : std::numeric_limits<double>::infinity();
  const int64_t bytes = storage_bytes(a.dtype, n);
  if (a.dtype != r.dtype) {
    e.bits_equal = false;
  } else if (is_packed(a.dtype)) {  // the unused bits of the last byte are nobody's
    const uint32_t bits = dtype_bits(a.dtype) == 2 ? TSR_U2 : TSR_U4;
    for (int64_t i = 0; i < n && e.bits_equal; ++i)
      e.bits_equal = load_as<uint32_t>(bits, a.data, i) == load_as<uint32_t>(bits, r.data, i);
  } else {
    e.bits_equal = bytes <= 0 || std::memcmp(a.data, r.data, static_cast<size_t>(bytes)) == 0;
  }
  return e;
}

}  // namespace tessera::command
