// SPDX-License-Identifier: Apache-2.0
// Captures C++ functions. The client library (tessera/tessera.hpp) supplies the callable; running it once over the recorder's inputs
// records its graph.
#include <tessera/plugin.hpp>

namespace tessera::frontends {
namespace {

class Cpp final : public sdk::Frontend {
  const char* description() const override { return "C++ functions over tessera::Tensor, captured by running them once"; }
  bool can_capture() const override { return true; }
  void capture(tsr_recorder* recorder, const tsr_callable& callable) override {
    sdk::check(callable.invoke(callable.self, recorder));
  }
};

}  // namespace
}  // namespace tessera::frontends

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_frontend("cpp", std::make_unique<tessera::frontends::Cpp>());
}
