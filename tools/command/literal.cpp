// SPDX-License-Identifier: Apache-2.0
#include "literal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/dtypes.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

int64_t elements(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t.rank; ++d) n *= t.sizes[d];
  return n;
}

std::string element(uint32_t dtype, const void* data, int64_t i) {
  switch (dtype_info(dtype).cls) {
    case DtypeClass::Float:
      return dtype == TSR_F64 ? float_text(load_as<double>(dtype, data, i)) : float_text(load_as<float>(dtype, data, i));
    case DtypeClass::Complex: {
      const uint32_t part = dtype == TSR_C64 ? TSR_F32 : TSR_F64;
      return "(" + element(part, data, 2 * i) + ", " + element(part, data, 2 * i + 1) + ")";
    }
    case DtypeClass::Bool: return load_as<bool>(dtype, data, i) ? "true" : "false";
    case DtypeClass::Uint: return std::to_string(load_as<uint64_t>(dtype, data, i));
    default: return std::to_string(load_as<int64_t>(dtype, data, i));
  }
}

}  // namespace

std::string literal(const tsr_tensor& t) {
  std::string out = "dense<" + std::string(dtype_name(t.dtype)) + "[";
  for (uint32_t d = 0; d < t.rank; ++d) out += (d ? ", " : "") + std::to_string(t.sizes[d]);
  out += t.rank > 0 ? "]: [" : "]: ";
  const int64_t n = elements(t);
  for (int64_t i = 0; i < n; ++i) out += (i ? ", " : "") + element(t.dtype, t.data, i);
  return out + (t.rank > 0 ? "]>" : ">");
}

std::string summary(const tsr_tensor& t) {
  const int64_t n = elements(t);
  if (n == 0) return "empty";
  if (t.rank == 0) return element(t.dtype, t.data, 0);
  const bool complex = is_complex(t.dtype);
  double min = std::numeric_limits<double>::infinity(), max = -min, sum = 0;
  int64_t nans = 0;
  for (int64_t i = 0; i < n; ++i) {
    double v;
    if (complex) {
      const auto z = load_as<ComplexValue<double>>(t.dtype, t.data, i);
      v = std::hypot(z.re, z.im);
    } else {
      v = load_as<double>(t.dtype, t.data, i);
    }
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    min = std::min(min, v);
    max = std::max(max, v);
    sum += v;
  }
  std::string out;
  if (nans < n) {
    const std::string what = complex ? " |z| " : " ";
    out = "min" + what + number_text(min) + ", mean" + what + number_text(sum / static_cast<double>(n - nans)) + ", max" +
          what + number_text(max);
  }
  if (nans > 0) out += (out.empty() ? "" : ", ") + std::to_string(nans) + " of " + std::to_string(n) + " are NaN";
  return out;
}

}  // namespace tessera::command
