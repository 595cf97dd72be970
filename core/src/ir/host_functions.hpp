// SPDX-License-Identifier: Apache-2.0
// Functions of a client that operations of a graph call when they run.
#pragma once

#include <cstdint>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

struct HostFunction {
  void* self = nullptr;
  tsr_error* (*call)(void* self, const tsr_tensor* inputs, uint32_t num_inputs, const tsr_tensor* outputs,
                     uint32_t num_outputs) = nullptr;
  void (*destroy)(void* self) = nullptr;
};

// The graph and its copies keep the function; its number is never used again.
int64_t add_host_function(Graph& graph, const HostFunction& function);
// Whether an operation of the graph calls one: then the graph means nothing in another process.
bool has_host_functions(const Graph& graph);
// TSR-R032 for a number that stands for nothing, as in a graph that was read from a file.
tsr_error* call_host_function(int64_t function, const tsr_tensor* inputs, uint32_t num_inputs, const tsr_tensor* outputs,
                              uint32_t num_outputs) noexcept;

}  // namespace tessera::core
