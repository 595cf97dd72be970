// SPDX-License-Identifier: Apache-2.0
// The cpu backend: matrix products on kernels of its own. The rest goes to the next backend of the config.
#include "tessera/plugin.hpp"

#include "conv.hpp"
#include "jit/isa.hpp"
#include "product.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

const Isa& choose_isa(std::string_view name) {
  if (name == "auto") return native_isa();
  const Isa* isa = find_isa(name);
  if (!isa || !can_run(*isa))
    throw sdk::Error(
        TSR_USER, "TSR-C004",
        "[cpu] isa = \"" + std::string(name) + "\": this machine has " + native_isa().name + " and what is below it",
        "use isa = \"auto\"");
  return *isa;
}

class CpuBackend final : public sdk::Backend {
 public:
  explicit CpuBackend(const sdk::Options& options) : isa_(choose_isa(options.get_string("isa", "auto"))) {}
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_STRIDED_INPUTS | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }

  sdk::Claim claim(sdk::Graph, sdk::Node n) override {
    if (!is_product(n.op()) && !n.is("conv")) return sdk::no("cpu takes matrix products and convolutions only");
    const char* why = n.is("conv") ? refuse_conv(n) : claim_product(n).why;
    return why ? sdk::no(why) : sdk::yes();
  }

  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c) override {
    if (is_product(c.node().op())) return make_product(c, isa_);
    if (c.node().is("conv")) return make_conv(c, isa_);
    throw sdk::Error(TSR_BUG, "TSR-B005",
                     "cpu was asked to compile '" + std::string(c.node().op()) + "', which it does not claim");
  }

 private:
  const Isa& isa_;
};

}  // namespace

}  // namespace cpu

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_backend("cpu", std::make_unique<cpu::CpuBackend>(plugin.options));
}
