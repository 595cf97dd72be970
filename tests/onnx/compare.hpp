// SPDX-License-Identifier: Apache-2.0
// The suite's own comparison: numpy.testing.assert_allclose with the case's tolerances, two units in the last place for
// bfloat16 (onnx/backend/test/runner/__init__.py).
#pragma once

#include <string>

#include "tessera/embed.hpp"

namespace tessera::onnx_suite {

// Empty: `got` is as expected. Else what differs, in one line.
std::string difference(const tsr_tensor& got, const tsr_tensor& want, double rtol, double atol);

}  // namespace tessera::onnx_suite
