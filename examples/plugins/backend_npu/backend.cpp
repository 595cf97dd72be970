// SPDX-License-Identifier: Apache-2.0
// The backend npu: which nodes it takes, and what their launches queue on a stream of the device. The factories of the plugin
// stand at the end.
#include <algorithm>
#include <string>

#include "device.hpp"
#include "executor.hpp"

namespace acme_npu {

namespace {

int64_t elements(const tsr_tensor& x) {
  int64_t n = 1;
  for (uint32_t d = 0; d < x.rank; ++d) n *= x.sizes[d];
  return n;
}

// out[i] = f(a[i], b[i]). An operand with fewer elements is repeated: a bias of [4] under [s0, 4].
template <class F>
Command elementwise(const tsr_launch& l, F f) {
  const tsr_tensor &a = l.inputs[0], &b = l.inputs[l.num_inputs - 1];
  return [=, x = static_cast<const float*>(a.data), y = static_cast<const float*>(b.data),
          out = static_cast<float*>(l.outputs[0].data), nx = elements(a), ny = elements(b), n = elements(l.outputs[0])] {
    for (int64_t i = 0; i < n; ++i) out[i] = f(x[i % nx], y[i % ny]);
  };
}

// [m, k] times [k, n]. Sums in f32, one after the other: docs/ir.md leaves the order of a product open.
Command product(const tsr_launch& l) {
  return [a = static_cast<const float*>(l.inputs[0].data), b = static_cast<const float*>(l.inputs[1].data),
          out = static_cast<float*>(l.outputs[0].data), m = l.inputs[0].sizes[0], k = l.inputs[0].sizes[1],
          n = l.inputs[1].sizes[1]] {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
        out[i * n + j] = sum;
      }
  };
}

// What a launch of the op queues. The launch's sizes, strides and dims are the host's, and gone when the command runs: it takes
// along what it needs of them.
Command command_of(std::string_view op, const tsr_launch& l) {
  if (op == "add") return elementwise(l, [](float x, float y) { return x + y; });
  if (op == "mul") return elementwise(l, [](float x, float y) { return x * y; });
  if (op == "relu") return elementwise(l, [](float x, float) { return x < 0 ? 0 : x; });  // NaN stays NaN
  return product(l);
}

class Kernel final : public t::Kernel {
 public:
  Kernel(std::shared_ptr<NpuDevice> device, std::string op) : device_(std::move(device)), op_(std::move(op)) {}
  std::string name() const override { return "npu." + op_; }
  void launch(const tsr_launch& l) override { device_->submit(l.stream, {command_of(op_, l)}); }

 private:
  std::shared_ptr<NpuDevice> device_;
  std::string op_;
};

// Whether the sizes of x are the last ones of out.
bool is_suffix(const t::Type& x, const t::Type& out) {
  return x.rank() <= out.rank() && std::equal(x.sizes().begin(), x.sizes().end(), out.sizes().end() - x.rank());
}

class Backend final : public t::Backend {
 public:
  explicit Backend(std::shared_ptr<NpuDevice> device) : device_(std::move(device)) {}
  const char* device() const override { return "npu"; }
  // No TSR_CAP_STRIDED_INPUTS: the host makes operands row-major first.
  uint64_t capabilities() const override { return TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }

  t::Claim claim(t::Graph, t::Node n) override {
    const bool product = n.is("dot_general");
    if (!product && !n.is("add") && !n.is("mul") && !n.is("relu")) return t::no("npu takes add, mul, relu and dot_general");
    if (n.result().type().dtype() != TSR_F32) return t::no("npu computes in f32");
    if (product) {
      const auto is = [&](const char* attr, int64_t axis) {
        const auto axes = n.attr(attr).as_ints();
        return axes.size() == 1 && axes[0] == axis;
      };
      const bool plain = n.operand(0).type().rank() == 2 && n.operand(1).type().rank() == 2 &&
                         n.operand(0).type().dtype() == TSR_F32 && is("lhs_contract", 1) && is("rhs_contract", 0);
      return plain ? t::yes() : t::no("npu multiplies matrices as they lie in memory: [m, k] times [k, n]");
    }
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (!is_suffix(n.operand(i).type(), n.result().type()))
        return t::no("npu repeats an operand along leading dimensions only");
    return t::yes();
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override {
    return std::make_unique<Kernel>(device_, std::string(c.node().op()));
  }

 private:
  std::shared_ptr<NpuDevice> device_;
};

}  // namespace

}  // namespace acme_npu

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  // Devices belong to the process: tensors outlive the context that made them. Every instance of the plugin uses one device.
  static const auto device = std::make_shared<acme_npu::NpuDevice>();
  plugin.add_device("npu", 1, device);
  plugin.add_backend("npu", std::make_unique<acme_npu::Backend>(device));
  tessera::sdk::add_executor(plugin, "npu", acme_npu::make_executor(device));
}
