// SPDX-License-Identifier: Apache-2.0
// What the compiler offers to passes and partitioners through tsr_graph_api: evaluation of constant nodes, and estimates.
#pragma once

#include "ir/graph_services.hpp"

namespace tessera::core {

struct CompileOptions;

// Names the compile options that the services use on this thread while it lives. Without one, evaluate_node has the ops' own
// host kernels only, and estimate knows no backend. Scopes nest.
class ServiceScope {
 public:
  explicit ServiceScope(const CompileOptions& options) noexcept;
  ~ServiceScope();
  ServiceScope(const ServiceScope&) = delete;

 private:
  const CompileOptions* previous_;
};
// Those of the innermost scope of this thread.
const CompileOptions& service_options() noexcept;

}  // namespace tessera::core
