// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <cmath>

namespace train_gpt {

void Gpt::initialise(uint64_t seed) {
  tessera::Generator g(seed);
  for (auto& [name, t] : named_parameters()) {
    if (name.find("ln_") != name.npos) continue;  // ones and zeros already
    if (name.ends_with(".bias")) {
      nn::init::zeros_(*t);
      continue;
    }
    const bool residual = name.ends_with("c_proj.weight");
    nn::init::normal_(*t, 0, residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 0.02, &g);
  }
}

}  // namespace train_gpt
