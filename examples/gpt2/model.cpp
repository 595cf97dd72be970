// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <cmath>

namespace gpt2 {

void Gpt2::initialise(uint64_t seed) {
  Generator g(seed);
  for (auto& [name, weight] : named_parameters()) {
    const bool norm_weight = name.find("ln_") != name.npos;
    if (norm_weight || name.ends_with(".bias")) continue;  // ones and zeros already, or set below
    double deviation = 0.02;
    if (name.ends_with("c_proj.weight")) deviation /= std::sqrt(2.0 * static_cast<double>(config.layers));
    *weight = tessera::randn(weight->shape(), tessera::f32, &g) * deviation;
  }
  for (auto& [name, bias] : named_parameters())
    if (name.ends_with(".bias")) *bias = tessera::zeros_like(*bias);
}

}  // namespace gpt2
