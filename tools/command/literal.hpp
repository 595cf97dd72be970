// SPDX-License-Identifier: Apache-2.0
// Tensors as the text IR writes constants, so that a printed output can be pasted into a graph.
#pragma once

#include <string>

#include "tessera/embed.hpp"

namespace tessera::command {

// "dense<f32[2]: [0.0, 6.0]>" of a dense host tensor. Every element is written; NaN payloads are not (`nan`).
std::string literal(const tsr_tensor& t);

// "min -1.5, mean 0.01, max 3" of a dense host tensor, with a count of NaNs when there are any; "empty" when it has no
// elements.
std::string summary(const tsr_tensor& t);

}  // namespace tessera::command
