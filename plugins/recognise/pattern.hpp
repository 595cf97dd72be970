// SPDX-License-Identifier: Apache-2.0
// Patterns over values, written as text:
//
//   mul(x, add(erf([div(x, 1.4142135623730951) | mul(x, 0.7071067811865476)]), 1))
//
//   x             any value; the same name is the same value
// 0.5           a constant whose elements all are this number: exactly where its dtype holds the number, else to one unit in
// the last place
//   #eps          a constant whose elements all are one number, which takes this name
//   d=sub(x, m)   a value that also takes the name d
//   [p | q]       either
//   op(p, q)      the result of that op; operands that the pattern does not name are omitted ones. Commutative ops match in
//                 either order.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/plugin.hpp>

namespace tessera::passes {

struct Found {
  std::map<std::string, sdk::Value, std::less<>> values;
  std::map<std::string, double, std::less<>> numbers;
  sdk::Value operator[](std::string_view name) const { return values.find(name)->second; }
  [[nodiscard]] bool has(std::string_view name) const { return values.contains(name); }
  [[nodiscard]] double number(std::string_view name, double fallback) const {
    const auto at = numbers.find(name);
    return at == numbers.end() ? fallback : at->second;
  }
};

class Pattern {
 public:
  explicit Pattern(std::string_view text);  // throws std::logic_error: a fault of the rule
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  [[nodiscard]] const std::string& root() const;  // the op of the outermost pattern
  bool match(sdk::Graph g, sdk::Value v, Found* found) const;

 private:
  struct Part;
  std::unique_ptr<Part> part_;
};

}  // namespace tessera::passes
