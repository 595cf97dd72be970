// SPDX-License-Identifier: Apache-2.0
// How far the outputs of one config are from those of another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

namespace tessera::command {

// Of one output, element by element, a: the config's, r: the reference's. Equal infinities and NaN against NaN agree.
struct OutputError {
  double max_abs = 0;     // max |a - r|
  double max_rel = 0;     // max |a - r| / |r| where r is not 0
  double rel_l2 = 0;      // ||a - r|| / ||r||, Euclidean norms; 0 / 0 is 0
  int64_t nonfinite = 0;  // elements where one is finite (or another infinity, or NaN) and the other is not
  bool shapes_agree = true;
  bool bits_equal = true;
};

// Dense host tensors of the same output. Complex numbers: by magnitude. The reference of a float may be f64.
OutputError compare_outputs(const tsr_tensor& actual, const tsr_tensor& reference);

}  // namespace tessera::command
