// SPDX-License-Identifier: Apache-2.0
// A file of checks that are expected to fail, each with its reason:
//
//   # comment
//   ops/tanh f16[*: the unit's tanh has 3 ulps of error
//
// What stands before ": " is a name of a check, in which "*" stands for any characters. An expected failure that passes is a
// failure, and so is a line that names no check.
#pragma once

#include <string>
#include <vector>

namespace tessera::conformance {

struct Expectation {
  std::string pattern, reason, where;  // where: "FILE:LINE"
};
using Expectations = std::vector<Expectation>;

// Throws e::Error (TSR-U008, TSR-U004) with the line.
Expectations read_expectations(const std::string& path);
const Expectation* expectation_of(const Expectations&, const std::string& check);

}  // namespace tessera::conformance
