// SPDX-License-Identifier: Apache-2.0
// Where two configs part: the first pass with which outputs differ, and the first value.
#pragma once

#include <string>
#include <vector>

#include "inputs.hpp"
#include "session.hpp"

namespace tessera::command {

struct Divergence {
  bool found = false;
  std::string pass;   // of B's pipeline; "": B differs without any pass already
  std::string value;  // "%h = matmul %x, %w", as B's frontend reads it; "": none differs once every value is an output
  [[nodiscard]] std::string text() const;
};

// `a` and `b`: the arguments of the two configs. B is compiled with ever more passes of its pipeline until its outputs are not
// those of A, bit for bit; then both run the model once more without passes, every value an output, and are compared in program
// order.
Divergence find_divergence(const ContextArguments& a, const ContextArguments& b, const std::string& model,
                           InputArguments& arguments, const Inputs& inputs, const std::vector<embed::Tensor>& outputs_of_a,
                           Progress& progress);

// The model's text with every value of its body as an output, in program order, and those values' lines.
std::string with_all_outputs(const std::string& text, std::vector<std::string>& lines);

}  // namespace tessera::command
