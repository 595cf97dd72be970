// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "match.hpp"

namespace tessera::passes {

struct Rule {
  const char* name;
  const char* op;                       // null: any op
  bool (*when)(const Match&);           // the predicate
  sdk::Value (*becomes)(const Match&);  // the value that takes over the uses of result 0; none: the node was edited in place
};

std::span<const Rule> rules();

}  // namespace tessera::passes
