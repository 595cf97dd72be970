// SPDX-License-Identifier: Apache-2.0
#include "targets.hpp"

#include <atomic>

#include "jit/compiler.hpp"
#include "tessera/kit/gpu/text_runner.hpp"

namespace tessera::sim {
namespace {

namespace t = tessera::sdk;

// One launch, by value: what the call says is gone when it runs.
struct QueuedCall {
  std::weak_ptr<const kit::SimtModule> module;
  void* function;
  std::string entry;
  std::vector<void*> pointers;
  std::vector<int64_t> sizes;
  int64_t blocks, threads, shared_bytes;
  bool checks;
  tsr_fault* fault;
  uint64_t site, seed;
};

// What both targets have: a description, the way of a call into the queue, and complaints about what a kernel did.
class SimTarget : public kit::SimtTarget {
 public:
  SimTarget(SimDevice& device, const TargetOptions& options)
      : sim_(device), description_(kit::gpu_description(options.wave == 64 ? "sim64" : "sim32")), seed_(options.seed) {}

  const char* device() const override { return "sim"; }
  const kit::GpuDescription& description(uint32_t) override { return description_; }
  const kit::GpuDialect& dialect() const override { return kit::sim_dialect(); }

  void launch(const kit::SimtCall& c) override {
    auto q = std::make_shared<QueuedCall>();
    q->module = *c.module;
    q->function = c.function;
    q->entry = c.entry;
    for (size_t i = 0; i < c.pointers.size(); ++i) {
      char* const at = c.bytes[i] > 0
                           ? sim_.bytes_of(c.index, c.pointers[i], static_cast<size_t>(c.bytes[i]), "kernel '" + q->entry + "'")
                           : nullptr;
      if (!at && c.bytes[i] > 0) return;  // it complained
      q->pointers.push_back(at);
    }
    q->sizes.assign(c.sizes.begin(), c.sizes.end());
    q->blocks = c.blocks, q->threads = c.threads, q->shared_bytes = c.shared_bytes;
    q->checks = c.checks, q->fault = c.fault, q->site = c.site;
    q->seed = seed_ + launches_.fetch_add(1, std::memory_order_relaxed);
    sim_.queues().push(c.stream, [this, q] {
      const std::shared_ptr<const kit::SimtModule> module = q->module.lock();
      if (!module) return sim_.queues().complain("kernel '" + q->entry + "' was destroyed before work of it had run");
      try {
        run(*module, *q);
      } catch (const t::Error& e) {
        sim_.queues().complain(e.what());
      }
    });
  }

 protected:
  virtual void run(const kit::SimtModule& module, QueuedCall& q) = 0;
  const kit::GpuDescription& described() const { return description_; }

 private:
  SimDevice& sim_;
  kit::GpuDescription description_;
  uint64_t seed_;
  std::atomic<uint64_t> launches_{0};
};

// ---- text

class TextModule final : public kit::SimtModule {
 public:
  struct Functions {
    void *bind, *thunk;
  };
  explicit TextModule(cpu::ModulePtr code) : code_(std::move(code)) {
    for (size_t i = 1; i < code_->count(); ++i) functions_.push_back({code_->address(0), code_->address(i)});
  }
  void* function(size_t entry) const override { return const_cast<Functions*>(&functions_[entry]); }

 private:
  cpu::ModulePtr code_;
  std::vector<Functions> functions_;
};

std::vector<std::string> thunks(std::span<const std::string> entries) {
  std::vector<std::string> out = {"text_runner_bind"};
  for (const std::string& e : entries) out.push_back(e + "_thunk");
  return out;
}

class TextTarget final : public SimTarget {
 public:
  using SimTarget::SimTarget;

  std::string compiler() override { return "sim text 1"; }  // the object's key has the rest
  std::string why_unavailable() override { return cpu::why_no_clang(); }

  std::string build(const kit::SimtUnit& unit, const kit::GpuDescription&) override {
    cpu::Source source;
    source.name = unit.entries.empty() ? "nothing" : unit.entries[0];
    source.text = unit.text;
    source.symbols = thunks(unit.entries);
    return objects().compile(source)->linked()->object;
  }
  std::shared_ptr<const kit::SimtModule> load(const std::string& built, std::span<const std::string> entries,
                                              uint32_t) override {
    cpu::Linked linked;
    linked.object = built;
    linked.symbols = thunks(entries);
    for (const std::string& e : entries) linked.id += e + " ";
    const size_t count = linked.symbols.size();
    return std::make_shared<TextModule>(objects().restore(std::move(linked), 0, count));
  }

 protected:
  void run(const kit::SimtModule&, QueuedCall& q) override {
    std::vector<void*> arguments;
    for (void*& p : q.pointers) arguments.push_back(&p);
    for (int64_t& s : q.sizes) arguments.push_back(&s);
    if (q.checks) {
      arguments.push_back(&q.fault);
      arguments.push_back(&q.site);
    }
    kit::TextLaunch launch;
    launch.name = "kernel '" + q.entry + "'";
    const auto& functions = *static_cast<const TextModule::Functions*>(q.function);
    launch.bind = reinterpret_cast<void (*)(const kit::TextRunnerApi*)>(functions.bind);
    launch.entry = reinterpret_cast<void (*)(void* const*)>(functions.thunk);
    launch.blocks = q.blocks;
    launch.threads = q.threads;
    launch.shared_bytes = q.shared_bytes;
    launch.wave = described().wave;
    launch.seed = q.seed;
    kit::run_text(launch, arguments.data());
  }

 private:
  cpu::Compiler& objects() {
    static cpu::Compiler compiler([] {
      cpu::Compiler::Options o;
      o.cache_directory = cpu::default_cache_directory();
      return o;
    }());
    return compiler;
  }
};

}  // namespace

std::shared_ptr<kit::SimtTarget> text_target(SimDevice& device, const TargetOptions& options) {
  return std::make_shared<TextTarget>(device, options);
}
}  // namespace tessera::sim
