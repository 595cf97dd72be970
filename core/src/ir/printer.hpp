// SPDX-License-Identifier: Apache-2.0
// The text form of graphs (docs/ir.md). parse_graph(print_graph(g)) is equal to g.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/equality.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class Graph;
class NamedConstants;
class Sizes;

enum PrintFlags : uint32_t {
  kPrintLocations = 1,       // loc("file":line:column), as TSR_PRINT_LOCATIONS
  kPrintAuthors = 2,         // who made each node, as a comment, as TSR_PRINT_AUTHORS
  kPrintWithoutHints = 8,    // symbols without the values seen at capture: what graphs have in common that serve the same calls
  kPrintParams = 16,         // large constants as inputs, as TSR_PRINT_PARAMS
  kPrintElideConstants = 4,  // `dense<f32[512]: elided>` for more than 64 elements: for reading, cannot be parsed
};

std::string print_graph(const Graph& graph, uint32_t flags = kPrintLocations, const NamedConstants* names = nullptr);
// One node without indentation or line break at its end, regions included.
std::string print_node(const Graph& graph, tsr_id node, uint32_t flags = 0);
std::string print_type(const Graph& graph, const tsr_type& type);
// `sizes` null: all sizes are numbers (or print as "?").
std::string print_type(const Sizes* sizes, const tsr_type& type);

void append_type(std::string& out, const Sizes* sizes, const tsr_type& type);
void append_attr(std::string& out, const Sizes* sizes, const tsr_attr& attr, uint32_t flags = 0,
                 const NamedConstants* names = nullptr);
// The shortest text that reads back to the same f64, always with a point or an exponent: "1.0".
void append_float(std::string& out, double value);
void append_float(std::string& out, float value);
void append_int(std::string& out, int64_t value);
// "%x", or %"odd name" with quotes where needed; sigil is '%' or '@'.
void append_name(std::string& out, char sigil, std::string_view name);

}  // namespace tessera::core
