// SPDX-License-Identifier: Apache-2.0
#include "special.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensors.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::conformance {

namespace {

// The least distance from 0, and the least and the largest number with a full mantissa.
struct Range {
  double subnormal, normal, largest;
};
Range range_of(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return {0x1p-1074, 0x1p-1022, std::numeric_limits<double>::max()};
    case TSR_F16: return {0x1p-24, 0x1p-14, 65504};
    case TSR_BF16: return {0x1p-133, 0x1p-126, 0x1.fep127};
    default: return {0x1p-149, 0x1p-126, 0x1.fffffep127};  // narrower formats saturate or round what they cannot hold
  }
}

std::vector<double> special_floats(uint32_t dtype) {
  const Range r = range_of(dtype);
  std::vector<double> out = {std::numeric_limits<double>::quiet_NaN()};
  for (const double magnitude : {0.0, std::numeric_limits<double>::infinity(), r.subnormal, r.normal - r.subnormal, r.normal,
                                 r.largest, 0.5, 1.0, 2.0, 3.0, 0.1})
    for (const double sign : {1.0, -1.0}) out.push_back(sign * magnitude);
  return out;
}

std::vector<uint64_t> special_integers(uint32_t dtype, bool zero) {
  const int bits = dtype_bits(dtype);
  std::vector<uint64_t> out = {1, 2, 3, ~uint64_t{0}, ~uint64_t{1}, uint64_t{1} << (bits - 1), (uint64_t{1} << (bits - 1)) - 1};
  if (zero) out.push_back(0);
  return out;
}

bool is_division(const std::string& op) { return op == "div" || op == "floor_div" || op == "remainder" || op == "fmod"; }

// Operands for which an op's record lets a result differ from the exact one: the product in hardswish overflows before it is
// divided by 6.
bool may_overflow(const Case& c, double x) {
  return c.op == "hardswish" && (c.dtype == TSR_F32 || c.dtype == TSR_BF16 || c.dtype == TSR_F64) &&
         std::fabs(x) > range_of(c.dtype).largest / 6;
}

}  // namespace

std::vector<char> special_values(const Case& c, size_t index, int64_t inner, int64_t n) {
  const uint32_t dtype = c.operands[index].dtype;
  std::vector<char> out(static_cast<size_t>(storage_bytes(dtype, n)) + 16);
  const std::vector<double> floats = special_floats(dtype);
  const std::vector<uint64_t> integers =
      is_bool(dtype) ? std::vector<uint64_t>{0, 1} : special_integers(dtype, index == 0 || !is_division(c.op));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i / inner);
    if (const double x = floats[at % floats.size()]; is_float(dtype))
      store_from(dtype, out.data(), i, may_overflow(c, x) && std::isfinite(x) ? 1.0 : x);
    else
      store_from(dtype, out.data(), i, integers[at % integers.size()]);
  }
  return out;
}
int64_t special_count(const Case& c, size_t index) {
  const uint32_t dtype = c.operands[index].dtype;
  return is_float(dtype) ? static_cast<int64_t>(special_floats(dtype).size()) : is_bool(dtype) ? 2 : 8;
}

std::vector<Case> special_cases(const std::vector<Case>& all, const std::set<std::string>& elementwise) {
  std::set<std::string> seen;
  std::vector<Case> out;
  for (Case c : all) {
    bool usable = elementwise.contains(c.op);
    std::string key = c.op + c.attributes;
    int64_t n = 1;
    for (size_t i = 0; i < c.operands.size(); ++i) {
      if (c.operands[i].omitted) continue;
      usable = usable && !is_complex(c.operands[i].dtype) && !is_packed(c.operands[i].dtype);
      key += " " + std::to_string(i) + std::string(dtype_name(c.operands[i].dtype));
      if (usable) n *= special_count(c, i);
    }
    if (!usable || c.op == "bitcast" || !seen.insert(key).second) continue;
    n = std::max<int64_t>(n, 64) + 5;
    for (Operand& o : c.operands)
      if (!o.omitted) {
        Operand own;
        own.dtype = o.dtype, own.sizes = {n};
        o = own;
      }
    out.push_back(std::move(c));
  }
  return out;
}

std::string zeros_differ(const tsr_tensor& got, const tsr_tensor& want) {
  if (!is_float(want.dtype)) return "";
  for (int64_t i = 0; i < want.sizes[0]; ++i) {
    const auto a = load_as<double>(want.dtype, got.data, i), b = load_as<double>(want.dtype, want.data, i);
    if (a == 0 && b == 0 && std::signbit(a) != std::signbit(b))
      return "element " + std::to_string(i) + " is a zero with the wrong sign, expected " + print_element(want, i);
  }
  return "";
}

}  // namespace tessera::conformance
