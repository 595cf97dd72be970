// SPDX-License-Identifier: Apache-2.0
// How far a backend's result may be from the reference, per op and dtype: one table, a reason in every row.
#pragma once

#include <string>
#include <string_view>

#include "tessera/abi.h"

namespace tessera::conformance {

// What an error is measured against.
enum class Scale {
  Value,      // the expected value itself
  Component,  // the modulus of the expected complex number; for floats as Value
  Absolute,  // the same op applied to the operands' absolute values: the sum of magnitudes that rounding errors are relative to
  Tensor,    // the largest finite magnitude in the expected tensor
};

// An op without a row is exact: equal values (any NaN equals any NaN, 0 equals -0).
//
// The error is at most
//   f64, c128:   f64 * ulp(scale)
//   f32, c64:    f32 * ulp(scale)
//   narrower:    (1 ulp(value) + steps * ulp(scale)) in the dtype + f32 * ulp of f32 (scale)
// because ops on narrower dtypes compute in f32 and round once; `steps` counts the further roundings to the dtype that the
// record states.
struct Tolerance {
  const char* op;
  double f32, f64;
  Scale scale;
  const char* reason;
  int steps = 0;
  bool only_complex = false;  // real dtypes are exact
  double growth = 0;          // further ulps, in the columns f32 and f64, per element that is combined into one
};

// nullptr: exact.
const Tolerance* tolerance_of(std::string_view op, uint32_t dtype);
const Tolerance* golden_tolerance_of(std::string_view op, uint32_t dtype);  // against the golden values

// How many elements one result combines: of a scan all, of a reduction the ratio of the sizes.
double items_of(std::string_view op, int64_t operand_elements, int64_t result_elements);

// Do the tensors agree? Both dense in host memory, of equal dtype and shape or this is a disagreement. `magnitude`, for
// Scale::Absolute, has the same shape; may be null for other scales. Returns "" or what differs, with the worst element.
// `items`: how many elements one result combines. `factor` multiplies the row: 2 where the expectation has an error of its own.
// *worst: the largest error found, as a part of the allowed.
std::string compare(const tsr_tensor& got, const tsr_tensor& want, const tsr_tensor* magnitude, const Tolerance* row,
                    double items, double factor = 1, double* worst = nullptr);

}  // namespace tessera::conformance
