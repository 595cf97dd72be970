// SPDX-License-Identifier: Apache-2.0
// Textual pipelines: "canonicalize, fuse{max_size=64, mode=\"deep\"}, dce".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::core {

class Context;
struct BoundPass;

struct PipelineItem {
  std::string name;
  std::vector<std::pair<std::string, std::string>> given;  // option and its value as TOML text
};

// Throws TSR-C020 with the text, a caret and what was expected.
std::vector<PipelineItem> parse_pipeline(std::string_view text);
// Looks the passes up and completes their options. Throws TSR-P030 for an unknown pass, TSR-C for a bad option.
std::vector<BoundPass> bind_pipeline(const Context& context, std::string_view text);
std::string print_pipeline(const std::vector<BoundPass>& passes);  // with every option; parse_pipeline reads it back

}  // namespace tessera::core
