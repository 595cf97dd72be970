// SPDX-License-Identifier: Apache-2.0
// An index expression as text whose order depends on the text alone, not on the order in which the pool met its parts.
#pragma once

#include <functional>
#include <string>

#include "tessera/kit/index.hpp"

namespace tessera::kit {

// `name` spells axes, symbols and values, `call` a function of two operands.
struct ExprSpelling {
  std::function<std::string(const Atom&)> name;
  std::function<std::string(const Atom&, const std::string&, const std::string&)> call;
  std::string suffix;  // of numbers
};
std::string expr_text(const IndexPool& pool, Expr e, const ExprSpelling& spelling);

}  // namespace tessera::kit
