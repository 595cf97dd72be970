// SPDX-License-Identifier: Apache-2.0
// A proved graph, on padded tensors.
#pragma once

#include <string>

#include "proof.hpp"

namespace tessera::bucket {

// Adds the padded nodes, makes slices of their results the graph's outputs, and erases what nobody reads any more. "" or why it
// could not be done: then the graph computes what it did.
std::string rebuild(sdk::Graph g, const Proof& proof, Sizes& sizes);

}  // namespace tessera::bucket
