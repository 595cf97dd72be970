// The backend @NAME@: which nodes it takes, and how it compiles one. The kernels are in kernels.cpp.
#include <tessera/plugin.hpp>

namespace @VENDOR@_@NAME@ {

namespace t = tessera::sdk;

// out[i] = f(a[i], b[i]) for i in [begin, end).
using Loop = void (*)(const float* a, const float* b, float* out, int64_t begin, int64_t end);
Loop find_loop(std::string_view op);  // kernels.cpp; null: not an op of this backend

namespace {

// One compiled node. Launches may overlap, so a kernel changes nothing in itself.
class Elementwise final : public t::Kernel {
 public:
  Elementwise(std::string op, Loop loop, int64_t grain) : op_(std::move(op)), loop_(loop), grain_(grain) {}
  std::string name() const override { return "@NAME@." + op_; }
  void launch(const tsr_launch& l) override {
    const auto* a = static_cast<const float*>(l.inputs[0].data);
    const auto* b = static_cast<const float*>(l.inputs[1].data);
    auto* out = static_cast<float*>(l.outputs[0].data);
    int64_t n = 1;
    for (uint32_t d = 0; d < l.outputs[0].rank; ++d) n *= l.outputs[0].sizes[d];
    t::parallel(n, grain_, [&](int64_t begin, int64_t end) { loop_(a, b, out, begin, end); });
  }

 private:
  std::string op_;
  Loop loop_;
  int64_t grain_;
};

class Backend final : public t::Backend {
 public:
  explicit Backend(int64_t grain) : grain_(grain) {}
  const char* device() const override { return "cpu"; }  // a device of its own is another factory: Plugin::add_device
  // No TSR_CAP_STRIDED_INPUTS: operands come row-major.
  uint64_t capabilities() const override { return TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }

  // The reason of a refusal is for people: say what would have been taken.
  t::Claim claim(t::Graph, t::Node n) override {
    if (!find_loop(n.op())) return t::no("@NAME@ has no kernel for this op");
    const tsr_type* type = n.result().raw().type;
    if (type->dtype != TSR_F32) return t::no("@NAME@ computes in f32 only");
    // Types are interned: equal types are equal pointers.
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.operand(i).raw().type != type) return t::no("@NAME@ does not broadcast");
    return t::yes();
  }

  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override {
    const std::string op(c.node().op());
    return std::make_unique<Elementwise>(op, find_loop(op), grain_);
  }

 private:
  int64_t grain_;
};

}  // namespace
}  // namespace @VENDOR@_@NAME@

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_backend("@NAME@", std::make_unique<@VENDOR@_@NAME@::Backend>(plugin.options.get_int("grain", 4096)));
}
