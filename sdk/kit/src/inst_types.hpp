// SPDX-License-Identifier: Apache-2.0
// The types that instructions take, for the verifiers of kernels and of programs.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

struct Misfit {
  const char* rule;  // V3, V4 or V8 of verify.hpp
  std::string expected;
};
// Of an instruction that touches no memory and is no reduction: what is wrong with its operands; `types` are theirs.
std::optional<Misfit> misfit(const Inst& x, const std::array<Type, 3>& types);

template <class TypeOf>
std::array<Type, 3> operand_types(const Inst& x, TypeOf type_of) {
  std::array<Type, 3> types{Type::None, Type::None, Type::None};
  for (size_t a = 0; a < 3; ++a)
    if (x.args[a] != kNone) types[a] = type_of(x.args[a]);
  return types;
}

}  // namespace tessera::kit
