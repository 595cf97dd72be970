// SPDX-License-Identifier: Apache-2.0
// Groups of a node that does the work, the anchor, and what follows it element by element.
#pragma once

#include <string>
#include <vector>

#include "groups.hpp"

namespace tessera::passes {

// The nodes behind `anchor`, each the only reader of the one before, that keep shape and dtype; or, if asked for, reshape.
std::vector<sdk::Node> chain_of(sdk::Graph g, const sdk::Node& anchor, bool through_reshapes);
// Makes a group of `head`, which holds the anchor, with the longest part of `chain` that the backend takes, of `least` nodes at
// least. False: it takes none.
bool fuse_longest(sdk::Graph g, const std::vector<sdk::Node>& head, const std::vector<sdk::Node>& chain, size_t least,
                  const std::string& backend);

}  // namespace tessera::passes
