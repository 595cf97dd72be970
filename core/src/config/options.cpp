// SPDX-License-Identifier: Apache-2.0
#include "config/options.hpp"
#include "support/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace tessera::core {
namespace {

constexpr std::array<const char*, 5> kTypeNames = {"int", "float", "bool", "string", "strings"};

// The shortest text that reads back to the same number, always recognisable as a float.
std::string float_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
  std::string out(buffer, error == std::errc() ? end : buffer);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string in_quotes(const std::string& s) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (u < 0x20 || u == 0x7f) {
      out += "\\u00";
      out += kHex[u >> 4];
      out += kHex[u & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string bound_text(double bound, OptionType type) {
  if (type == OptionType::kInt && std::fabs(bound) < 9.2e18) return std::to_string(static_cast<int64_t>(bound));
  return float_text(bound);
}

}  // namespace

const char* to_string(OptionType type) { return kTypeNames[static_cast<size_t>(type)]; }

std::string with_article(OptionType type) {
  if (type == OptionType::kStrings) return "an array of strings";
  return (type == OptionType::kInt ? "an " : "a ") + std::string(to_string(type));
}

bool parse_option_type(std::string_view text, OptionType* out) {
  const auto at = std::find(kTypeNames.begin(), kTypeNames.end(), text);
  if (at == kTypeNames.end()) return false;
  *out = static_cast<OptionType>(at - kTypeNames.begin());
  return true;
}

Value Value::of_int(int64_t v) {
  Value out;
  out.i = v;
  return out;
}
Value Value::of_float(double v) {
  Value out;
  out.type = OptionType::kFloat;
  out.f = v;
  return out;
}
Value Value::of_bool(bool v) {
  Value out;
  out.type = OptionType::kBool;
  out.b = v;
  return out;
}
Value Value::of_string(std::string v) {
  Value out;
  out.type = OptionType::kString;
  out.s = std::move(v);
  return out;
}
Value Value::of_strings(std::vector<std::string> v) {
  Value out;
  out.type = OptionType::kStrings;
  out.strings = std::move(v);
  return out;
}

std::string to_text(const Value& value) {
  switch (value.type) {
    case OptionType::kInt: return std::to_string(value.i);
    case OptionType::kFloat: return float_text(value.f);
    case OptionType::kBool: return value.b ? "true" : "false";
    case OptionType::kString: return in_quotes(value.s);
    case OptionType::kStrings: break;
  }
  std::vector<std::string> items;
  for (const std::string& s : value.strings) items.push_back(in_quotes(s));
  return "[" + listed(items) + "]";
}

std::string range_text(const OptionDecl& decl) {
  if (!decl.choices.empty()) return "one of " + listed(decl.choices);
  const bool low = std::isfinite(decl.min), high = std::isfinite(decl.max);
  if (low && high) return bound_text(decl.min, decl.type) + ".." + bound_text(decl.max, decl.type);
  if (low) return ">= " + bound_text(decl.min, decl.type);
  if (high) return "<= " + bound_text(decl.max, decl.type);
  return "";
}

namespace {

// "3 GiB", "1.5 GB", "4096": -1 where it is none of these.
int64_t parse_bytes(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return -1;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, factor] : kUnits)
    if (unit == name) return number * factor < 0x1p62 ? static_cast<int64_t>(number * factor) : -1;
  return -1;
}

}  // namespace

std::string check_value(const OptionDecl& decl, Value* value) {
  if (decl.is_bytes && value->type == OptionType::kString) {
    const int64_t bytes = parse_bytes(value->s);
    if (bytes < 0)
      return "found " + to_text(*value) + ", expected a number of bytes, such as 1000000, \"512 MiB\" or \"3 GiB\"";
    *value = Value::of_int(bytes);
  }
  if (decl.type == OptionType::kFloat && value->type == OptionType::kInt)
    *value = Value::of_float(static_cast<double>(value->i));
  // `dynamic = true` beside `dynamic = "auto"`: a choice may look like a bool.
  const auto choice = [&](const std::string& s) {
    return std::find(decl.choices.begin(), decl.choices.end(), s) != decl.choices.end();
  };
  if (decl.type == OptionType::kString && value->type == OptionType::kBool && choice(value->b ? "true" : "false"))
    *value = Value::of_string(value->b ? "true" : "false");
  if (decl.type != value->type)
    return "found the " + std::string(value->type == OptionType::kStrings ? "array" : to_string(value->type)) + " " +
           to_text(*value) + ", expected " + with_article(decl.type) +
           (range_text(decl).empty() ? "" : " (" + range_text(decl) + ")");
  switch (decl.type) {
    case OptionType::kInt:
      // Bounds are doubles; every bound in use is an integer below 2^53 or a type's limit, where <= and >= stay right.
      if (static_cast<double>(value->i) >= decl.min && static_cast<double>(value->i) <= decl.max) return "";
      break;
    case OptionType::kFloat:
      if (!std::isnan(value->f) && value->f >= decl.min && value->f <= decl.max) return "";
      if (std::isnan(value->f) && range_text(decl).empty()) return "found nan, expected a number";
      break;
    case OptionType::kBool: return "";
    case OptionType::kString:
      if (decl.choices.empty() || choice(value->s)) return "";
      break;
    case OptionType::kStrings: {
      if (decl.choices.empty()) return "";
      const auto bad = std::find_if_not(value->strings.begin(), value->strings.end(), choice);
      if (bad == value->strings.end()) return "";
      return "found " + in_quotes(*bad) + ", expected " + range_text(decl);
    }
  }
  return "found " + to_text(*value) + ", expected " + range_text(decl);
}

std::string to_text(const Origin& origin) {
  switch (origin.kind) {
    case Origin::kDefault: return "default";
    case Origin::kMode: return "mode '" + origin.source + "'";
    case Origin::kOverride: return origin.source;
    case Origin::kFile: break;
  }
  return origin.source + ":" + std::to_string(origin.line) + ":" + std::to_string(origin.column);
}

struct OptionSet::Storage {
  std::vector<std::pair<std::string, Value>> values;
  std::vector<std::vector<const char*>> lists;
  std::vector<tsr_option> items;
  tsr_options view{};
};

OptionSet::OptionSet() : OptionSet(std::vector<std::pair<std::string, Value>>{}) {}

OptionSet::OptionSet(std::vector<std::pair<std::string, Value>> values) {
  auto storage = std::make_shared<Storage>();
  storage->values = std::move(values);
  storage->lists.reserve(storage->values.size());
  for (const auto& [name, value] : storage->values) {
    tsr_option o{};
    o.name = name.c_str();
    switch (value.type) {
      case OptionType::kInt:
        o.kind = TSR_ATTR_INT;
        o.i = value.i;
        break;
      case OptionType::kFloat:
        o.kind = TSR_ATTR_FLOAT;
        o.f = value.f;
        break;
      case OptionType::kBool:
        o.kind = TSR_ATTR_BOOL;
        o.i = value.b ? 1 : 0;
        break;
      case OptionType::kString:
        o.kind = TSR_ATTR_STRING;
        o.s = value.s.c_str();
        break;
      case OptionType::kStrings: {
        std::vector<const char*>& list = storage->lists.emplace_back();
        for (const std::string& s : value.strings) list.push_back(s.c_str());
        o.kind = TSR_ATTR_STRINGS;
        o.count = static_cast<uint32_t>(list.size());
        o.strings = list.data();
        break;
      }
    }
    storage->items.push_back(o);
  }
  storage->view = {sizeof(tsr_options), storage->items.data(), storage->items.size(), sizeof(tsr_option)};
  storage_ = std::move(storage);
}

const tsr_options* OptionSet::view() const { return &storage_->view; }

const Value* OptionSet::find(std::string_view name) const {
  for (const auto& [n, v] : storage_->values)
    if (n == name) return &v;
  return nullptr;
}

const std::vector<std::pair<std::string, Value>>& OptionSet::values() const { return storage_->values; }

}  // namespace tessera::core
