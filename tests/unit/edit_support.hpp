// SPDX-License-Identifier: Apache-2.0
// For tests that edit graphs: everything that can be read of a graph as text, and random edits.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "ir/graph.hpp"

namespace tessera::test {

// Ids, links, authors, uses (sorted), names, symbols and assumptions included, so that equal texts are equal graphs.
std::string fingerprint(const core::Graph& graph);
// Each use stands where the graph says it does. "" or the first that does not.
std::string misplaced_use(const core::Graph& graph);

// Attempts one random edit of any kind on a graph over test_ops(); what the graph refuses is fine. True: something was tried
// and not refused.
bool random_edit(core::Graph& graph, std::mt19937_64& random);

// The code of the error that f throws; "none".
std::string code_of(const std::function<void()>& f);

}  // namespace tessera::test
