// SPDX-License-Identifier: Apache-2.0
// Symbolic floats of a trace.
#pragma once

#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "tessera/tensor.hpp"

namespace tessera::detail {

struct Trace;

struct SymNode {
  Tensor value;       // f64[] of the trace; undefined: the argument is guarded by value, and looking at it makes the guard
  double number = 0;  // for the arguments of the traced call
  std::vector<uint32_t> args;  // the leaves that it depends on
  SymInt size = 0;             // symbolic: `value` is this size
  std::shared_ptr<Trace> trace;

  static SymFloat wrap(std::shared_ptr<const SymNode> node);
};

std::string text(std::source_location where);  // "model.cpp:12"; "" when unknown
// The number behind a symbolic float; every argument that it depends on is guarded by value from now on.
double read_number(const SymNode& node, std::source_location where);
// The traced value, or an undefined tensor when it is guarded by value (then the number may be used).
Tensor traced_value(const SymNode& node, std::source_location where);

}  // namespace tessera::detail
