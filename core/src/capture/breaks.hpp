// SPDX-License-Identifier: Apache-2.0
// The table of graph breaks: what each code means, why it breaks the graph and how to avoid that. Messages, logs and
// docs/graph_breaks.md are made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/abi.h"

namespace tessera::core {

enum class BreakKind : uint8_t {
  kAsked,        // the program asks for it
  kFundamental,  // no capture can know this: the program has to say it another way
  kMayChange,    // a later version may capture it
  kError,        // not a break: capturing fails
};

struct BreakReason {
  uint32_t code;  // 10: TSR-G010
  BreakKind kind;
  const char* title;  // "A branch on a tensor"
  const char* what;   // one sentence: what the program does
  const char* why;    // why no graph can hold it
  const char* fixes;  // how to avoid it, one per line
};

std::span<const BreakReason> break_reasons();      // ascending codes
const BreakReason& break_reason(uint32_t code);    // an unknown code: TSR-G000, "another reason"
std::string break_code_text(uint32_t code);        // "TSR-G010"
std::string_view break_kind_text(BreakKind kind);  // one sentence

std::string place_text(const tsr_loc& loc);  // "FILE:LINE"; "<unknown>" without a file

// The page docs/graph_breaks.md between its fixed head and end.
std::string break_table_markdown();

}  // namespace tessera::core
