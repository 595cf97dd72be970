// SPDX-License-Identifier: Apache-2.0
// Reads the text form of graphs (docs/ir.md).
//
// Errors show FILE:LINE:COL, the source line and a caret. Codes: TSR-I001 characters and strings, I002 limits, I003 syntax,
// I004 undefined or invisible value, I005 name used twice, I006 number out of range, I007 unknown dtype, I008 impossible type,
// I009 result names or types, I010 the graph's header, I011 constants, I012 symbols and assumptions; those of attributes
// (I02x), of inference (I03x), of sizes (S) and of unknown ops (O001) get the place of their node.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ir/reader.hpp"

namespace tessera::core {

class Graph;
class OpRegistry;

// The first graph of the text; the others are read and checked too. It is committed: the next edit needs begin().
std::unique_ptr<Graph> parse_graph(const OpRegistry& ops, std::string_view text, std::string_view file,
                                   const ReadLimits& limits = {});
std::vector<std::unique_ptr<Graph>> parse_module(const OpRegistry& ops, std::string_view text, std::string_view file,
                                                 const ReadLimits& limits = {});
// As parse_graph, into an empty graph that is open for edits. After an error the graph holds part of the text: roll it back.
void parse_into(Graph& graph, std::string_view text, std::string_view file, const ReadLimits& limits = {});

}  // namespace tessera::core
