// SPDX-License-Identifier: Apache-2.0
// Runs kernels on the memory of a simulated device, when its streams come to them: those that the kit generates, as text of a
// GPU, and for everything else the reference's.
#include <atomic>
#include <cstring>

#include "device.hpp"
#include "kernel.hpp"
#include "targets.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/kit/gpu/simt_backend.hpp"

namespace tessera::sim {

namespace {

namespace t = tessera::sdk;

// The kernel, for as long as work of it is queued; whether the host has let go of it meanwhile.
struct Code {
  std::unique_ptr<t::Kernel> kernel;
  std::string name;
  std::atomic<bool> destroyed{false};
  int32_t dims = 0;  // that it may read
};

// What a launch says, by value: the host's description of it is gone when the kernel runs.
struct Queued {
  std::vector<TensorCopy> tensors;  // inputs, then outputs
  std::vector<char*> data;
  std::vector<int64_t> dims;
  uint32_t num_inputs = 0;
  char* workspace = nullptr;
  tsr_fault* fault = nullptr;
  uint64_t site = 0;

  bool take(SimDevice& device, uint32_t index, const tsr_launch& l, const Code& code, size_t workspace_bytes) {
    num_inputs = l.num_inputs;
    for (uint32_t i = 0; i < l.num_inputs; ++i) tensors.emplace_back(l.inputs[i]);
    for (uint32_t i = 0; i < l.num_outputs; ++i) tensors.emplace_back(l.outputs[i]);
    for (const TensorCopy& x : tensors) {
      int64_t before = 0, behind = 0;
      if (!(x.t.flags & TSR_TENSOR_ABSENT)) x.extent(&before, &behind);
      char* low = nullptr;
      if (behind > 0) {
        low = device.bytes_of(index, static_cast<char*>(x.t.data) - before, static_cast<size_t>(before + behind),
                              "kernel '" + code.name + "'");
        if (!low) return false;
      }
      data.push_back(low ? low + before : nullptr);
    }
    if (workspace_bytes > 0) {
      workspace = device.bytes_of(index, l.workspace, workspace_bytes, "kernel '" + code.name + "'");
      if (!workspace) return false;
    }
    dims.assign(l.dims, l.dims + code.dims);
    if (TSR_HAS(&l, tsr_launch, site)) {
      fault = l.fault;
      site = l.site;
    }
    return true;
  }

  // Calls f with the launch as a kernel on the host sees it.
  template <class F>
  void with_launch(F&& f) const {
    std::vector<tsr_tensor> all;
    for (size_t i = 0; i < tensors.size(); ++i)
      all.push_back(tensors[i].t.flags & TSR_TENSOR_ABSENT ? tensors[i].t : tensors[i].at(data[i]));
    tsr_launch l{};
    l.struct_size = sizeof l;
    l.inputs = all.data();
    l.num_inputs = num_inputs;
    l.outputs = all.data() + num_inputs;
    l.num_outputs = static_cast<uint32_t>(all.size()) - num_inputs;
    l.workspace = workspace;
    l.dims = dims.data();
    f(l);
  }

  void run(const Code& code) const {
    with_launch([&](const tsr_launch& l) {
      try {
        code.kernel->launch(l);
      } catch (const t::Error& e) {
        const std::string_view what = e.code;
        t::report_fault(fault, site,
                        what == "TSR-R011"   ? TSR_FAULT_INDEX
                        : what == "TSR-R010" ? TSR_FAULT_DIVISION
                                             : TSR_FAULT_OTHER);
        for (size_t i = num_inputs; i < tensors.size(); ++i) {  // goes on with zeros
          int64_t before = 0, behind = 0;
          tensors[i].extent(&before, &behind);
          if (behind > 0) std::memset(data[i] - before, 0, static_cast<size_t>(before + behind));
        }
      }
    });
  }
};

class SimKernel final : public t::Kernel {
 public:
  SimKernel(SimDevice& device, uint32_t index, std::shared_ptr<Code> code)
      : device_(device), index_(index), code_(std::move(code)) {}
  ~SimKernel() override { code_->destroyed = true; }

  std::string name() const override { return code_->name; }
  bool has_workspace() const override { return code_->kernel->has_workspace(); }
  int64_t workspace(const int64_t* dims) override { return code_->kernel->workspace(dims); }
  bool has_sizes() const override { return code_->kernel->has_sizes(); }

  void sizes(const tsr_launch& l, std::span<int64_t> symbols) override {
    Queued q;
    if (!q.take(device_, index_, l, *code_, workspace_bytes(l.dims))) return;
    device_.queues().finish(l.stream);
    q.with_launch([&](const tsr_launch& mapped) { code_->kernel->sizes(mapped, symbols); });
  }

  void launch(const tsr_launch& l) override {
    auto q = std::make_shared<Queued>();
    if (!q->take(device_, index_, l, *code_, workspace_bytes(l.dims))) return;
    device_.queues().push(l.stream, [&queues = device_.queues(), code = code_, q] {
      if (code->destroyed) queues.complain("kernel '" + code->name + "' was destroyed before work of it had run");
      q->run(*code);
    });
  }

 private:
  size_t workspace_bytes(const int64_t* dims) {
    return has_workspace() ? static_cast<size_t>(std::max<int64_t>(0, workspace(dims))) : 0;
  }

  SimDevice& device_;
  uint32_t index_;
  std::shared_ptr<Code> code_;
};

std::unique_ptr<t::Kernel> compile_reference(SimDevice& device, const t::Compile& c) {
  // Which sizes the kernel will read, so that a launch takes no more of them along.
  struct Slots {
    const tsr_compile* outer;
    int32_t count;
  } slots{c.p, 0};
  tsr_compile inner{};
  inner.struct_size = sizeof inner;
  inner.graph = c.p->graph;
  inner.node = c.p->node;
  inner.device = c.p->device;
  inner.ctx = &slots;
  inner.dim_slot = [](void* ctx, tsr_dim d) noexcept -> int32_t {
    auto& s = *static_cast<Slots*>(ctx);
    const int32_t slot = s.outer->dim_slot(s.outer->ctx, d);
    s.count = std::max(s.count, slot + 1);
    return slot;
  };
  auto code = std::make_shared<Code>();
  code->kernel = reference::compile(t::Compile{&inner});
  code->name = "sim.reference." + std::string(c.node().op());
  code->dims = slots.count;
  const std::string where = t::host().core->device_name(c.p->device);
  return std::make_unique<SimKernel>(device, where == "sim:1" ? 1 : 0, std::move(code));
}

// kernels = "reference".
class ReferenceBackend final : public t::Backend {
 public:
  explicit ReferenceBackend(SimDevice& device) : device_(device) {}
  const char* device() const override { return "sim"; }
  uint64_t capabilities() const override { return TSR_CAP_STRIDED_INPUTS | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }
  t::Claim claim(t::Graph g, t::Node n) override { return reference::claim(g, n); }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override { return compile_reference(device_, c); }

 private:
  SimDevice& device_;
};

// kernels = "text". What no kernel computes is the reference's.
class TextBackend final : public kit::SimtBackend {
 public:
  TextBackend(SimDevice& device, std::shared_ptr<kit::SimtTarget> target) : SimtBackend(std::move(target)), device_(device) {}

  t::Claim claim(t::Graph g, t::Node n) override {
    const t::Claim c = SimtBackend::claim(g, n);
    // The parts of a composite may have text where the whole has none.
    if (c.claim == TSR_CLAIM_YES || n.is("fused") || g.has_trait(n.raw().op, "composite")) return c;
    return reference::claim(g, n);
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override {
    if (generates(c.graph(), c.node())) return SimtBackend::compile(c);
    if (t::log_enabled("perf_hints"))
      t::log("perf_hints", "sim runs '" + std::string(c.node().op()) + "' by the reference: " + why_not(c.graph(), c.node()));
    return compile_reference(device_, c);
  }

 protected:
  bool generates(t::Graph g, t::Node n) override { return why_not(g, n).empty(); }

 private:
  SimDevice& device_;
};

}  // namespace

}  // namespace tessera::sim

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  namespace sim = tessera::sim;
  // Devices are the process's, and so are their queues: the options of the first instance hold.
  static const auto device = std::make_shared<sim::SimDevice>(
      static_cast<uint64_t>(plugin.options.get_int("seed", 1)),
      static_cast<size_t>(plugin.options.get_int("memory_mb", 1024)) << 20,
      static_cast<size_t>(plugin.options.get_int("ahead", 256)), plugin.options.get_int("lose_after", -1));
  sim::TargetOptions options;
  options.wave = plugin.options.get_string("wave", "32") == "64" ? 64 : 32;
  options.seed = static_cast<uint64_t>(plugin.options.get_int("seed", 1));
  plugin.add_device("sim", sim::kDevices, device);
  if (plugin.options.get_string("kernels", "reference") == "text")
    plugin.add_backend("sim", std::make_unique<sim::TextBackend>(*device, sim::text_target(*device, options)));
  else
    plugin.add_backend("sim", std::make_unique<sim::ReferenceBackend>(*device));
}
