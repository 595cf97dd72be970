// SPDX-License-Identifier: Apache-2.0
// The parsed input of a config, before it is merged: the file's tree and the overrides in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.hpp"
#include "config/faults.hpp"
#include "config/keys.hpp"
#include "config/options.hpp"

namespace tessera::core {

struct Override {
  std::string key;  // "partitioner.budget"
  TomlNode value;
  std::string raw;    // the value as written: `0.5`, `cpu,eager`
  std::string place;  // for messages: "--set partitioner.budget=0.5"
  Origin origin;
  int layer = 0;  // a later one wins; within one, the last override of a key
};

struct ConfigDocument {
  TomlNode root;
  std::vector<Override> overrides;
};

// The modes of a document: what the file's mode sets ranks below the file, what an override's mode sets below the overrides.
// Null: none that there is, or none that counts.
struct ChosenModes {
  const ModeDecl *by_file = nullptr, *by_override = nullptr;
};
ChosenModes chosen_modes(const ConfigDocument& document);

// "key=value". Throws TSR-C006. `source` names where it came from: "--set", "mode", "options".
Override parse_override(std::string_view text, const std::string& source);
// A bare TOML value; a word that is not one is a string. Throws TSR-C006.
TomlNode parse_override_value(std::string_view raw, const std::string& place);

// One value to be checked against a declaration.
struct Given {
  const TomlNode* node;
  std::string key;    // full, for messages
  std::string place;  // "configs/mine.toml:7:3"
  Origin origin;
  const std::string* raw = nullptr;  // of an override: words need no quotes there, lists no brackets
};
// Checks type, range and choices; a fault (TSR-C003, TSR-C004) or the value with its origin.
std::optional<Setting> check_given(const OptionDecl& decl, const Given& given, Faults& faults);

std::string place_of(const std::string& file, const TomlNode& node);  // "file:line:column"
Origin origin_of(const std::string& file, const TomlNode& node);

}  // namespace tessera::core
