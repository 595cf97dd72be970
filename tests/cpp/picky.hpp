// SPDX-License-Identifier: Apache-2.0
// A context with the backend of picky/ beside eager, which is the fallback.
#pragma once

#include <string>

#include <tessera/tessera.hpp>

inline const tessera::Context& picky_context() {
  static const tessera::Context c = tessera::Context::from_text(std::string(R"([plugins]
path = [")") + PICKY_PLUGIN_DIR + R"("]
load = ["tessera.opset.standard", "tessera.frontend.cpp", "tessera.backend.eager", "acme.backend.picky"]
[pipeline]
passes = []
[backends]
order = ["eager"]
)");
  return c;
}
