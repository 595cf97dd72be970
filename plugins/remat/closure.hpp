// SPDX-License-Identifier: Apache-2.0
// The exact trade of saved bytes for computing again, at one price per byte: a minimum cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace tessera::remat {

// The plan that minimises the sum of (cost of each node that runs once more) and (price of each saved value), exactly.
//
// Of each value x says whether it is there in the backward half, of each node y whether it runs once more: y implies x of all
// that it reads, x of a value that is read is true, and a value with x whose node has no y is saved. Every condition is between
// two variables, so that a minimum cut over one vertex for each of them is a minimum of the sum (Picard 1976); whole chains of
// recomputation are charged.
//
// `price`: by value, in the unit of `cost`. `cost`: by node. `keep`: by node; those may not run again (empty: none).
Plan minimum_closure(const Problem& problem, const std::vector<int64_t>& price, const std::vector<int64_t>& cost,
                     const std::vector<uint8_t>& keep = {});

// Prices are `per_byte` times the bytes, costs those of the problem.
Plan minimum_closure(const Problem& problem, double per_byte, const std::vector<uint8_t>& keep = {});

// What the sum is for a plan at a price per byte, in picoseconds.
double lagrangian(const Plan& plan, double per_byte);

// Plans on the lower convex hull of (saved bytes, cost), by ascending cost, at most `most` of them. The first computes as
// little again as there can be, the last saves as little as there can be.
struct Hull {
  std::vector<Plan> plans;
  std::vector<double> prices;  // of every cut that was made, with its value: each is a bound
  std::vector<double> values;
  // No plan that saves at most `bytes` computes less than this again, in picoseconds: the largest of value - price * bytes.
  double bound(int64_t bytes) const;
};
Hull lower_hull(const Problem& problem, size_t most, const std::vector<uint8_t>& keep = {});

}  // namespace tessera::remat
