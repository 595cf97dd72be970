// SPDX-License-Identifier: Apache-2.0
// The attributes of a node, as Python gives them: a sequence of (name, kind, value), where kind is tsr_attr_kind.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "common.hpp"

namespace tessera::python {

class Attributes {  // and what they point at
 public:
  explicit Attributes(PyObject* sequence);
  Attributes(const Attributes&) = delete;
  [[nodiscard]] const std::vector<tsr_attr>& all() const { return attrs_; }

 private:
  void add(PyObject* item);
  const char* text(PyObject* o) { return strings_.emplace_back(text_of(o)).c_str(); }

  std::vector<tsr_attr> attrs_;
  std::deque<std::string> strings_;
  std::deque<std::vector<const char*>> string_lists_;
  std::deque<std::vector<int64_t>> ints_;
  std::deque<std::vector<double>> floats_;
  std::deque<Borrowed> tensors_;
};

}  // namespace tessera::python
