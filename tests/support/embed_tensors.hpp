// SPDX-License-Identifier: Apache-2.0
// Tensors of the embedding API for tests, wherever they lie.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tessera/embed.hpp"

namespace tessera::test {

namespace e = tessera::embed;

// f32 on the host, multiples of 1/256 between -3.9 and 3.9 that follow from the seed.
inline e::Tensor numbers(const std::vector<int64_t>& sizes, uint64_t seed) {
  e::Tensor t = e::Tensor::create(TSR_F32, sizes);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < t.elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    static_cast<float*>(t.data())[i] = static_cast<float>(static_cast<int64_t>(state >> 40) % 2001 - 1000) / 256.0f;
  }
  return t;
}

// Of two f32 tensors.
inline bool same_bits(const e::Tensor& a, const e::Tensor& b) {
  const e::Tensor x = a.copy_to(0), y = b.copy_to(0);
  return x.sizes().size() == y.sizes().size() && std::equal(x.sizes().begin(), x.sizes().end(), y.sizes().begin()) &&
         std::memcmp(x.data(), y.data(), static_cast<size_t>(x.elements()) * sizeof(float)) == 0;
}

}  // namespace tessera::test
