// SPDX-License-Identifier: Apache-2.0
// The inputs of one call: arrays of files by name, the rest seeded random.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "options.hpp"
#include "signature.hpp"

namespace tessera::command {

// What the options --inputs, --fix, --seed, --range and --dim say.
struct InputArguments {
  std::vector<std::string> files;
  int64_t seed = 0;
  std::vector<std::string> ranges, dims, fixed;
  // Of a model that could only be imported for a call: the inputs of that call, and whether a file gave them (load_model).
  std::map<std::string, std::pair<embed::Tensor, bool>> made;
  void add_to(Options&);
};

// The graph of a model. Where its import has to know something of a call (values that shapes are computed from, sizes that
// decide between branches), it is imported for these inputs, which make_inputs() then gives without those that have become
// constants. Inputs that --fix names are constants in any case. Throws npz errors, TSR-U004..7; TSR-U007 names inputs whose
// value no file and no --range gives.
embed::Graph load_model(const embed::Context& context, const std::string& model, InputArguments& arguments);

struct Inputs {
  std::vector<embed::Tensor> tensors;  // in the order of the signature, on the device that it says
  std::vector<bool> from_file;
  std::vector<int64_t> symbols;  // values, in the order of signature.symbols
  [[nodiscard]] int64_t bytes() const;
};

// An array goes to the input of its name or key. What the file lacks is random: floats standard normal, integers 0..9 (as far
// as the dtype reaches), bools either; with --range NAME=lo:hi floats are uniform in [lo, hi), integers in lo..hi inclusive. An
// input's numbers depend on the seed, its name and its shape alone.
// Throws npz errors, TSR-U004..7, and what the allocation reports.
Inputs make_inputs(const Signature& signature, const InputArguments& arguments);

// A copy of tensor `i` where a call may change it (states are written back, donated memory is reused), else the tensor itself.
std::vector<embed::Tensor> fresh(const Signature& signature, const Inputs& inputs);

}  // namespace tessera::command
