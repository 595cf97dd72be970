// SPDX-License-Identifier: Apache-2.0
#include "config/layers.hpp"

#include <algorithm>

namespace tessera::core {
namespace {

std::string_view trimmed(std::string_view s) {
  constexpr std::string_view blank = " \t\r\n";
  const size_t first = s.find_first_not_of(blank);
  return first == s.npos ? std::string_view() : s.substr(first, s.find_last_not_of(blank) - first + 1);
}

bool is_dotted_key(std::string_view key) {
  bool word = false;  // the current part has a character
  for (const char c : key) {
    const bool in_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!in_word && (c != '.' || !word)) return false;
    word = in_word;
  }
  return word;
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = trimmed(text.substr(0, comma));
    if (!item.empty()) out.emplace_back(item);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string place_of(const std::string& file, const TomlNode& node) {
  return file + ":" + std::to_string(node.line) + ":" + std::to_string(node.column);
}

Origin origin_of(const std::string& file, const TomlNode& node) { return {Origin::kFile, file, node.line, node.column}; }

ChosenModes chosen_modes(const ConfigDocument& document) {
  const Override* given = nullptr;
  for (const Override& o : document.overrides)
    if (o.key == "mode") given = &o;
  if (given) return {nullptr, given->value.kind == TomlNode::kString ? find_mode(given->value.s) : nullptr};
  const TomlNode* of_file = document.root.find("mode");
  return {of_file && of_file->kind == TomlNode::kString ? find_mode(of_file->s) : nullptr, nullptr};
}

TomlNode parse_override_value(std::string_view raw, const std::string& place) {
  const std::string value(trimmed(raw));
  if (value.empty()) throw user_error("TSR-C006", place + ": found no value after '='", "an empty string is written \"\"");
  // A newline would smuggle further keys into the one-line document below.
  if (value.find_first_of("\r\n") != value.npos)
    throw user_error("TSR-C006", place + ": found a line break, expected one TOML value");
  try {
    TomlNode document = parse_toml("v = " + value, "value");
    if (document.items.size() == 1 && document.items[0].key == "v") return std::move(document.items[0]);
  } catch (const Error& e) {
    if (e.code() == "TSR-C013") throw user_error("TSR-C013", place + ": " + e.message(), e.hint());
    if (std::string_view("\"'[{").find(value[0]) != std::string_view::npos)
      throw user_error("TSR-C006", place + ": " + e.message(), "quote the whole argument so that the shell leaves it alone");
  }
  TomlNode word;
  word.kind = TomlNode::kString;
  word.s = value;
  return word;
}

Override parse_override(std::string_view text, const std::string& source) {
  Override out;
  out.place = source + " ";
  for (const char c : text) out.place += c == '\n' ? "\\n" : std::string(1, c);  // messages stay on their line
  out.origin = {Origin::kOverride, source, 0, 0};
  const size_t equals = text.find('=');
  if (equals == text.npos)
    throw user_error("TSR-C006", out.place + ": found no '=', expected key=value", "for example: partitioner.budget=0.5");
  out.key = std::string(trimmed(text.substr(0, equals)));
  if (!is_dotted_key(out.key))
    throw user_error("TSR-C006", out.place + ": found the key '" + out.key + "', expected words joined by dots",
                     "for example: partitioner.budget=0.5");
  out.raw = std::string(trimmed(text.substr(equals + 1)));
  out.value = parse_override_value(out.raw, out.place);
  return out;
}

std::optional<Setting> check_given(const OptionDecl& decl, const Given& given, Faults& faults) {
  const std::string what = given.place + ": '" + given.key + "': ";
  Value value;
  if (given.raw && decl.type == OptionType::kStrings && given.node->kind != TomlNode::kArray) {
    value = Value::of_strings(split_commas(given.node->kind == TomlNode::kString ? given.node->s : *given.raw));
  } else if (given.raw && decl.type == OptionType::kString && given.node->kind != TomlNode::kString) {
    value = Value::of_string(*given.raw);
  } else if (!to_value(*given.node, &value)) {
    const std::string range = range_text(decl);
    faults.add(TSR_USER, "TSR-C003",
               what + "found " + describe(*given.node) + ", expected " + with_article(decl.type) +
                   (range.empty() ? "" : " (" + range + ")"),
               decl.help);
    return std::nullopt;
  }
  const std::string problem = check_value(decl, &value);
  if (problem.empty()) return Setting{std::move(value), given.origin};
  const bool wrong_type = value.type != decl.type;
  std::string message = what + problem;
  if (!wrong_type && value.type == OptionType::kString) message += did_you_mean(value.s, decl.choices);
  faults.add(TSR_USER, wrong_type ? "TSR-C003" : "TSR-C004", std::move(message), decl.help);
  return std::nullopt;
}

}  // namespace tessera::core
