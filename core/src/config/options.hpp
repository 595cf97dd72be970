// SPDX-License-Identifier: Apache-2.0
// Typed settings: what one key may hold (declared by the config's table or by a plugin's manifest), a value, and where it
// came from.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

enum class OptionType : uint8_t { kInt, kFloat, kBool, kString, kStrings };
const char* to_string(OptionType type);                          // "int", "float", "bool", "string", "strings"
std::string with_article(OptionType type);                       // "an int", "an array of strings"
bool parse_option_type(std::string_view text, OptionType* out);  // false: not one of the words above

struct Value {  // the field that `type` names is valid
  OptionType type = OptionType::kInt;
  int64_t i = 0;
  double f = 0;
  bool b = false;
  std::string s;
  std::vector<std::string> strings;

  static Value of_int(int64_t v);
  static Value of_float(double v);
  static Value of_bool(bool v);
  static Value of_string(std::string v);
  static Value of_strings(std::vector<std::string> v);
  bool operator==(const Value&) const = default;
};
std::string to_text(const Value& value);  // as TOML: 3, 0.5, true, "a", ["a", "b"]

// Bounds are inclusive and hold for int and float. Choices hold for string and for each element of strings.
struct OptionDecl {
  std::string name;
  OptionType type = OptionType::kInt;
  Value fallback;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;
  std::string help;
  bool is_bytes = false;  // of an int: also text with a unit, "3 GiB"
  // Of a plugin's option: a name at root level that means it too, and maybe options of other plugins. "": none.
  std::string also;
};
std::string range_text(const OptionDecl& decl);  // "0..11", ">= 0", "one of strict, relaxed", or "" when anything goes

// "" when `value` fits the declaration, with an int promoted to float where a float is asked; otherwise what was found and
// expected: "found 12, expected 0..11".
std::string check_value(const OptionDecl& decl, Value* value);

// Where a value came from, for messages and for `config explain`.
struct Origin {
  enum Kind : uint8_t { kDefault, kMode, kFile, kOverride } kind = kDefault;
  std::string source;  // file name, "--set", or the mode's name
  uint32_t line = 0, column = 0;
};
std::string to_text(const Origin& origin);  // "default", "mode 'eager'", "configs/mine.toml:7:3", "--set"

struct Setting {
  Value value;
  Origin origin;
};

// A complete, validated set of plugin options in the form that plugins read. Immutable; copies share the storage. The view
// lives as long as any copy.
class OptionSet {
 public:
  OptionSet();
  explicit OptionSet(std::vector<std::pair<std::string, Value>> values);
  const tsr_options* view() const;
  const Value* find(std::string_view name) const;  // null: no such option
  const std::vector<std::pair<std::string, Value>>& values() const;

 private:
  struct Storage;
  std::shared_ptr<const Storage> storage_;
};

}  // namespace tessera::core
