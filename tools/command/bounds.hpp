// SPDX-License-Identifier: Apache-2.0
// What rounding explains of the error of a model's outputs.
#pragma once

#include <vector>

#include "tessera/embed.hpp"

namespace tessera::command {

// Of each output: a relative error in the Euclidean norm that needs no other reason. What its dtype explains (1e-12 for f64,
// 1e-5 for f32, 1e-2 for f16, 6e-2 for bf16, 0 for integers), or less, where the ops that it is computed by explain less: their
// bounds by op and dtype are those of the conformance kit (tools/conformance/tolerance.cpp), independent of each other, so
// that their squares add up; times 4, for what later ops make of an error.
std::vector<double> explained_errors(const tsr_tables& graph);

}  // namespace tessera::command
