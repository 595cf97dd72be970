// SPDX-License-Identifier: Apache-2.0
// A TOML document as a plain tree with positions. The parser library stays behind this header.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

struct Value;

struct TomlNode {
  enum Kind : uint8_t { kTable, kArray, kInt, kFloat, kBool, kString, kDate };
  Kind kind = kTable;
  std::string key;                // empty for elements of arrays and for the root
  uint32_t line = 0, column = 0;  // of the key; of the value where there is no key. 1-based
  int64_t i = 0;
  double f = 0;
  bool b = false;
  std::string s;
  std::vector<TomlNode> items;  // in the order of the text

  const TomlNode* find(std::string_view name) const;  // of a table; null: none
};

const char* to_string(TomlNode::Kind kind);  // "table", "array", "int", ...

// Throws TSR-C001 "name:line:column: what is wrong".
TomlNode parse_toml(std::string_view text, const std::string& name);

// A scalar or an array of strings as a Value; an empty array becomes empty strings. false: any other shape.
bool to_value(const TomlNode& node, Value* out);
std::string describe(const TomlNode& node);  // for messages: "the int 3", "a table"

// The bytes of a file of at most `limit` bytes. Throws TSR-C005.
std::string read_text_file(const std::string& path, size_t limit = 64u << 20);

}  // namespace tessera::core
