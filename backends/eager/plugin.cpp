// SPDX-License-Identifier: Apache-2.0
// The eager backend: every op of the standard set, one at a time, in every dtype of its record.
#include "tessera/plugin.hpp"
#include "onednn.hpp"
#include "registry.hpp"

namespace eager {

namespace {

// The best ISA this machine has, or the one that the option names (which must not be more than the machine has). oneDNN chooses
// its own instructions, so it takes part only when nobody forced a lesser ISA.
const Isa* choose_isa(std::string_view name, bool onednn) {
  onednn = onednn && have_onednn();
  const Isa* best = isa_avx512(onednn) ? isa_avx512(onednn) : isa_avx2(onednn) ? isa_avx2(onednn) : isa_baseline(onednn);
  if (name == "auto" || name == best->name) return best;
  const Isa* chosen = name == "baseline" ? isa_baseline(false) : name == "avx2" ? isa_avx2(false) : isa_avx512(false);
  if (!chosen)
    throw sdk::Error(TSR_USER, "TSR-C004", "[eager] isa = \"" + std::string(name) + "\": this machine does not have it",
                     "use isa = \"auto\"");
  return chosen;
}

class EagerBackend final : public sdk::Backend {
 public:
  explicit EagerBackend(const Isa* isa) : isa_(isa) {}
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_STRIDED_INPUTS | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }

  sdk::Claim claim(sdk::Graph, sdk::Node n) override {
    const OpEntry* e = find_op(n.op());
    if (!e) return sdk::no("eager has no kernel for this op");
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i) && n.operand(i).type().rank() > kMaxOpRank)
        return sdk::no("eager takes tensors of at most 32 dimensions");
    for (uint32_t i = 0; i < n.num_results(); ++i)
      if (n.result(i).type().rank() > kMaxOpRank) return sdk::no("eager takes tensors of at most 32 dimensions");
    return sdk::yes();
  }

  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c) override {
    const OpEntry* e = find_op(c.node().op());
    if (!e)
      throw sdk::Error(TSR_BUG, "TSR-B033",
                       "eager was asked to compile '" + std::string(c.node().op()) + "', which it does not claim");
    return e->make(Build{c, c.node(), isa_}, e->arg);
  }

 private:
  const Isa* isa_;
};

}  // namespace

}  // namespace eager

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_backend("eager", std::make_unique<eager::EagerBackend>(eager::choose_isa(
                                  plugin.options.get_string("isa", "auto"), plugin.options.get_bool("onednn", true))));
}
