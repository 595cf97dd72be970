// SPDX-License-Identifier: Apache-2.0
// Test cases as data. A file cases/*.cases holds one case or one set of cases per line:
//
//   layer_norm T[2, 3, 8] T[8] _ {axis = -1} for float
//   sqrt @unary(0..9, special) for float complex
//
// op, operands, attributes, dtypes of T. `_` is an omitted operand. An operand is DTYPE[sizes](values): DTYPE is T or a dtype;
// values are `lo..hi`, `= 2 -1 5` (these, in order), `full` (the integer dtype's whole range), `special` (NaN, infinities and
// zeros among them) and `distinct` (never laid out with stride 0). Default: -2..2 for floats and complex numbers, -9..9 for
// integers. `{..}` is the text of attributes, in which T stands for the dtype; dtypes are names or classes of docs/ir.md:
// float, int, sint, uint, complex, real, number, any, index. `@name` stands for each of a set of shapes (cases.cpp). `//`
// begins a comment; a line that ends in `\` goes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::conformance {

struct Operand {
  bool omitted = false;
  uint32_t dtype = 0;
  std::vector<int64_t> sizes;
  double lo = 0, hi = 0;
  bool has_range = false, full = false, special = false, distinct = false;
  std::vector<int64_t> exact;
};

struct Case {
  std::string op, attributes;  // attributes with braces, or empty
  std::vector<Operand> operands;
  uint32_t dtype = 0;        // of T; 0 when the line has none
  std::string where;         // "reduce.cases:12"
  size_t results = 0;        // of the op; 0: as cases.cpp knows
  std::string text() const;  // the graph
};

// Throws std::runtime_error with the place.
std::vector<Case> read_cases(const std::string& directory);

// The dense elements of operand `index`, a function of the case and the index alone.
std::vector<char> make_values(const Case&, size_t index);
// The same with every float or complex number replaced by its absolute value; integers stay.
std::vector<char> absolute_values(const Operand&, const std::vector<char>&);

}  // namespace tessera::conformance
