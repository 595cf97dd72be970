// SPDX-License-Identifier: Apache-2.0
// The judge of every other backend.
#include "kernel.hpp"

namespace tessera::reference {

namespace {

class ReferenceBackend : public sdk::Backend {
 public:
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_STRIDED_INPUTS | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }
  sdk::Claim claim(sdk::Graph g, sdk::Node n) override { return reference::claim(g, n); }
  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c) override { return reference::compile(c); }
};

}  // namespace

}  // namespace tessera::reference

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_backend("reference", std::make_unique<tessera::reference::ReferenceBackend>());
}
