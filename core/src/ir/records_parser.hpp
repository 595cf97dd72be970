// SPDX-License-Identifier: Apache-2.0
// Reads .tops files. Grammar: docs/ir.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/records.hpp"

namespace tessera::core {

// Every record of the text, named with `prefix` ("acme" gives acme.NAME). Throws TSR-O002 for text that is not a record,
// TSR-O006 for one that contradicts itself, TSR-O007 for a bad body, with the place and a caret.
std::vector<std::unique_ptr<OpRecord>> parse_records(std::string_view text, std::string_view file, std::string_view prefix,
                                                     const std::string& plugin);

// "pure", "elementwise", ... of one trait bit; "int", "strs", ... of a tsr_attr_kind.
std::string_view trait_name(Trait t);
std::string_view attr_kind_name(uint32_t kind);

}  // namespace tessera::core
