// SPDX-License-Identifier: Apache-2.0
// Running what random_graph() makes on several configurations, and comparing what comes out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "context/context.hpp"
#include "ir/graph.hpp"
#include "memory/tensor.hpp"
#include "run/executable.hpp"

namespace tessera::test {

// The standard op set and `plugins`, backends in `order` (both as in a TOML list), further lines of the config, and where
// plugins lie.
std::shared_ptr<const core::Context> random_context(const std::string& plugins, const std::string& order,
                                                    const std::string& more, const std::vector<const char*>& plugin_dirs);

inline uint64_t dtype_bit(uint32_t dtype) { return uint64_t{1} << dtype; }  // for RandomGraphOptions::dtypes

// A loop of a random graph may have no end.
bool may_not_end(const core::Graph& g);

// Floats between -7.8 and 7.8 in steps of 1/128, some of them negative zeros; integers from 0 to 4. The same for the same seed.
std::vector<core::TensorRef> random_inputs(const core::Graph& g, const std::vector<int64_t>& symbols, uint64_t seed);

// Throws what compile_graph() throws.
std::unique_ptr<core::Executable> compile(const std::shared_ptr<const core::Context>& context, const core::Graph& g);

struct Outcome {
  std::vector<core::TensorRef> outputs;
  std::string error;  // "CODE text" of what ended the run; a bug of ours is thrown instead
};
Outcome run(const core::Executable& e, const std::vector<core::TensorRef>& inputs);

// Where two tensors differ first; empty: nowhere. `bitwise`: zeros have signs. NaN equals NaN. Packed and complex elements are
// not compared.
std::string first_difference(const tsr_tensor& x, const tsr_tensor& y, bool bitwise);

}  // namespace tessera::test
