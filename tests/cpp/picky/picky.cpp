// SPDX-License-Identifier: Apache-2.0
// A backend for tests: takes add, mul and relu of dense f32, refuses everything else, and fails to compile relu.
#include <tessera/plugin.hpp>

namespace {

namespace t = tessera::sdk;

class Kernel final : public t::Kernel {
 public:
  explicit Kernel(bool product) : product_(product) {}
  std::string name() const override { return product_ ? "picky.mul" : "picky.add"; }
  void launch(const tsr_launch& l) override {
    const tsr_tensor& out = l.outputs[0];
    const auto *a = static_cast<const float*>(l.inputs[0].data), *b = static_cast<const float*>(l.inputs[1].data);
    const int64_t n = count(out), step_a = count(l.inputs[0]) == n, step_b = count(l.inputs[1]) == n;
    auto* o = static_cast<float*>(out.data);
    for (int64_t i = 0; i < n; ++i) o[i] = product_ ? a[i * step_a] * b[i * step_b] : a[i * step_a] + b[i * step_b];
  }

 private:
  static int64_t count(const tsr_tensor& x) {
    int64_t n = 1;
    for (uint32_t d = 0; d < x.rank; ++d) n *= x.sizes[d];
    return n;
  }
  bool product_;
};

class Picky final : public t::Backend {
 public:
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_DETERMINISTIC; }
  t::Claim claim(t::Graph, t::Node n) override {
    if (n.op() != "add" && n.op() != "mul" && n.op() != "relu") return t::no("picky takes add, mul and relu");
    if (n.result().type().dtype() != TSR_F32) return t::no("picky takes f32");
    for (uint32_t i = 0; i < n.raw().num_operands; ++i)  // no broadcasting but of 0-d tensors
      if (const uint32_t rank = n.operand(i).type().rank(); rank != 0 && rank != n.result().type().rank())
        return t::no("picky takes equal ranks");
    return t::yes();
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override {
    if (c.node().op() == "relu") throw t::Error(TSR_ENVIRONMENT, "ACME-001", "picky has no code for relu today");
    return std::make_unique<Kernel>(c.node().op() == "mul");
  }
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  (void)plugin.options;
  plugin.add_backend("picky", std::make_unique<Picky>());
}
