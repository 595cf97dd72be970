// SPDX-License-Identifier: Apache-2.0
// Programs for checks that are about more than one op: random ones in f32, the same for the same seed, and one training step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

namespace tessera::conformance {

namespace e = tessera::embed;

struct Program {
  std::string name, text;
  std::vector<std::vector<int64_t>> inputs;  // sizes; all in f32
};

// 6 to 14 nodes over [rows, columns], [1, columns] and [rows, 1]: elementwise ops, reductions along rows and columns, softmax,
// transpositions. `symbolic`: rows is a symbol, and inputs_of() takes the sizes given here.
Program random_program(uint64_t seed, bool symbolic = false);
// A multilayer perceptron with a squared error and the gradients of its weights.
Program training_step();

std::vector<e::Tensor> inputs_of(const Program&, int seed);
std::vector<e::Tensor> run_to_host(const e::Executable&, const std::vector<e::Tensor>& in);  // dense results on the host
bool same_bits(const std::vector<e::Tensor>& a, const std::vector<e::Tensor>& b);
// "" or how far results are from others, where that is more than `relative` of the largest of a tensor.
std::string far_apart(const std::vector<e::Tensor>& got, const std::vector<e::Tensor>& want, double relative);

}  // namespace tessera::conformance
