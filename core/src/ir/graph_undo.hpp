// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ir/graph.hpp"
#include "support/error.hpp"

namespace tessera::core {

// One reversible step. Old pointers stay valid because the graph's memory only grows.
struct Graph::Undo {
  enum Kind {
    kCreateNode,
    kEraseNode,
    kMove,
    kOperand,
    kAttrs,
    kMarks,
    kType,
    kName,
    kKey,
    kCreateRegion,
    kOutputs,
    kCreateInput,
    kState,
    kOutputNames,
    kGraphName
  } kind;
  tsr_id id = TSR_NONE;     // node, value or region
  tsr_id other = TSR_NONE;  // successor, old operand
  uint32_t index = 0, count = 0;
  const void* old = nullptr;
  const char* author = nullptr;  // of the node, before the edit
};

[[noreturn]] inline void graph_misuse(const std::string& what) {
  throw bug("TSR-B001", what, "this is a bug in the code that edits the graph");
}

}  // namespace tessera::core
