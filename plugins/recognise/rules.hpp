// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "pattern.hpp"

namespace tessera::passes {

struct Candidate {  // a node that a pattern has matched
  sdk::Graph g;
  sdk::Node n;
  Found found;
  [[nodiscard]] sdk::Value out() const { return n.result(0); }
  [[nodiscard]] sdk::Graph::At here() const { return sdk::Graph::before(n); }
};

struct Rule {
  const char* name;
  const char* pattern;                      // pattern.hpp
  bool (*when)(const Candidate&);           // what the pattern cannot say
  sdk::Value (*becomes)(const Candidate&);  // the composite
};

std::span<const Rule> rules();            // rules.cpp
std::span<const Rule> quantised_rules();  // quantised.cpp

}  // namespace tessera::passes
