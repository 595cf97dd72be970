// SPDX-License-Identifier: Apache-2.0
#include "config/document.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "config/options.hpp"
#include "support/error.hpp"

// The only translation unit that compiles the parser. Limits nesting so that hostile input cannot exhaust the stack.
#define TOML_MAX_NESTED_VALUES 64
#include <toml++/toml.h>

namespace tessera::core {
namespace {

TomlNode convert(const toml::node& node, const toml::source_region& at) {
  TomlNode out;
  out.line = at.begin.line;
  out.column = at.begin.column;
  switch (node.type()) {
    case toml::node_type::table:
      out.kind = TomlNode::kTable;
      for (const auto& [key, value] : *node.as_table()) {
        TomlNode child = convert(value, key.source().begin ? key.source() : value.source());
        child.key = std::string(key.str());
        out.items.push_back(std::move(child));
      }
      // The library keeps tables sorted by key; messages and plugin order follow the text.
      std::stable_sort(out.items.begin(), out.items.end(), [](const TomlNode& a, const TomlNode& b) {
        return a.line != b.line ? a.line < b.line : a.column < b.column;
      });
      break;
    case toml::node_type::array:
      out.kind = TomlNode::kArray;
      for (const toml::node& item : *node.as_array()) out.items.push_back(convert(item, item.source()));
      break;
    case toml::node_type::integer:
      out.kind = TomlNode::kInt;
      out.i = node.as_integer()->get();
      break;
    case toml::node_type::floating_point:
      out.kind = TomlNode::kFloat;
      out.f = node.as_floating_point()->get();
      break;
    case toml::node_type::boolean:
      out.kind = TomlNode::kBool;
      out.b = node.as_boolean()->get();
      break;
    case toml::node_type::string:
      out.kind = TomlNode::kString;
      out.s = node.as_string()->get();
      break;
    default: out.kind = TomlNode::kDate; break;
  }
  return out;
}

}  // namespace

const TomlNode* TomlNode::find(std::string_view name) const {
  for (const TomlNode& item : items)
    if (item.key == name) return &item;
  return nullptr;
}

const char* to_string(TomlNode::Kind kind) {
  constexpr const char* names[] = {"table", "array", "int", "float", "bool", "string", "date"};
  return names[kind];
}

TomlNode parse_toml(std::string_view text, const std::string& name) {
  try {
    const toml::table table = toml::parse(text);
    TomlNode root = convert(table, table.source());
    root.line = root.column = 1;
    return root;
  } catch (const toml::parse_error& e) {
    const toml::source_position at = e.source().begin;
    throw user_error("TSR-C001",
                     name + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": not valid TOML: " +
                         std::string(e.description()),
                     "see https://toml.io for the syntax");
  }
}

bool to_value(const TomlNode& node, Value* out) {
  switch (node.kind) {
    case TomlNode::kInt: *out = Value::of_int(node.i); return true;
    case TomlNode::kFloat: *out = Value::of_float(node.f); return true;
    case TomlNode::kBool: *out = Value::of_bool(node.b); return true;
    case TomlNode::kString: *out = Value::of_string(node.s); return true;
    case TomlNode::kArray: {
      std::vector<std::string> items;
      for (const TomlNode& item : node.items) {
        if (item.kind != TomlNode::kString) return false;
        items.push_back(item.s);
      }
      *out = Value::of_strings(std::move(items));
      return true;
    }
    default: return false;
  }
}

std::string describe(const TomlNode& node) {
  Value value;
  if (node.kind != TomlNode::kArray && to_value(node, &value))
    return std::string("the ") + to_string(node.kind) + " " + to_text(value);
  return node.kind == TomlNode::kArray ? "an array" : std::string("a ") + to_string(node.kind);
}

std::string read_text_file(const std::string& path, size_t limit) {
  const auto fail = [&](const std::string& why) {
    return user_error("TSR-C005", path + ": cannot read the file: " + why, "check the path and its permissions");
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) throw fail(std::generic_category().message(errno));
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    errno = 0;  // reading a directory fails here, not in fopen
    const size_t n = std::fread(buffer, 1, sizeof buffer, file.get());
    if (std::ferror(file.get())) throw fail(std::generic_category().message(errno));
    if (n == 0) return text;
    text.append(buffer, n);
    if (text.size() > limit) throw fail("it is larger than " + std::to_string(limit) + " bytes");
  }
}

}  // namespace tessera::core
