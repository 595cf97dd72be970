// SPDX-License-Identifier: Apache-2.0
// Cases of an op drawn from its record alone, for ops that no case file names: every dtype that the record allows, sizes 0 and
// 1 among the shapes, required attributes guessed. The host's inference says which draws are valid.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cases.hpp"

namespace tessera::conformance {

struct OpRecord {  // of the document "op records" (docs/json.md)
  struct Attribute {
    std::string name, kind;
    bool required = false;
    std::vector<std::string> choices;
  };
  struct Operand {
    std::string name, dtype;  // a dtype, or a variable of `where`; "" where the signature says neither
    bool optional = false, variadic = false;
  };
  std::string name, plugin;
  std::vector<std::string> traits;
  std::vector<Operand> operands;
  std::vector<Attribute> attributes;
  std::vector<std::pair<std::string, std::vector<std::string>>> where;  // dtypes of each variable
  size_t results = 1;
  [[nodiscard]] bool has_trait(const std::string&) const;
};

std::vector<OpRecord> read_op_records(const std::string& json);

// At most `per_dtype` cases for each dtype of the first variable. `valid` says whether the host accepts a graph's text.
std::vector<Case> draw_cases(const OpRecord&, size_t per_dtype, const std::function<bool(const std::string& text)>& valid);

}  // namespace tessera::conformance
