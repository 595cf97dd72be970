// SPDX-License-Identifier: Apache-2.0
#include "targets.hpp"

#include <atomic>
#include <cstring>

#include "jit/compiler.hpp"
#include "need.hpp"
#include "tessera/kit/gpu/text_runner.hpp"

namespace tessera::sim {
namespace {

namespace t = tessera::sdk;

// One launch, by value: what the call says is gone when it runs.
struct QueuedCall {
  std::weak_ptr<const kit::SimtModule> module;
  void* function = nullptr;
  std::string entry;
  std::vector<void*> pointers;
  std::vector<int64_t> bytes;  // of each pointer; none: nobody said, as in graphs
  std::vector<int64_t> sizes;
  int64_t blocks = 0, threads = 1, shared_bytes = 0;
  bool checks = false;
  tsr_fault* fault = nullptr;
  uint64_t site = 0, seed = 0;
};

// What both targets have: a description, the way of a call into the queue, and complaints about what a kernel did.
class SimTarget : public kit::SimtTarget {
 public:
  SimTarget(SimDevice& device, const TargetOptions& options)
      : sim_(device), description_(kit::gpu_description(options.wave == 64 ? "sim64" : "sim32")), seed_(options.seed) {}

  const char* device() const override { return "sim"; }
  const kit::GpuDescription& description(uint32_t) override { return description_; }
  const kit::GpuDialect& dialect() const override { return kit::sim_dialect(); }

  // Text has no shared memory of its own here.
  int64_t launch_shared(const kit::SimtCall& c) override { return c.shared_bytes; }

  void launch(const kit::SimtCall& c) override {
    need(c.stream && c.stream->index == c.index, "launch", "a stream of the same device");
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
    q->bytes.assign(c.bytes.begin(), c.bytes.end());
    q->sizes.assign(c.sizes.begin(), c.sizes.end());
    q->blocks = c.blocks, q->threads = c.threads, q->shared_bytes = c.shared_bytes;
    q->checks = c.checks, q->fault = c.fault, q->site = c.site;
    sim_.queues().push(c.stream, work_of(std::move(q)));
  }

  // Of a call that is described as data; null: it complained.
  std::function<void()> work(std::weak_ptr<const kit::SimtModule> module, const void* function, uint32_t index,
                             const tsr_device_call& c) {
    auto q = std::make_shared<QueuedCall>();
    q->module = std::move(module);
    q->function = const_cast<void*>(function);
    q->entry = c.name;
    for (size_t i = 0; i < c.num_arguments; ++i) {
      const tsr_argument& a = *TSR_AT(tsr_argument, c.layout, c.argument_stride, i);
      uint64_t bits = 0;
      std::memcpy(&bits, static_cast<const char*>(c.arguments) + a.offset, sizeof bits);
      switch (a.kind) {
        case TSR_ARGUMENT_INPUT:
        case TSR_ARGUMENT_OUTPUT:
        case TSR_ARGUMENT_WORKSPACE: {
          void* const p = reinterpret_cast<void*>(bits);
          char* const at = p ? sim_.bytes_of(index, p, 1, "kernel '" + q->entry + "' of a graph") : nullptr;
          if (p && !at) return nullptr;
          q->pointers.push_back(at);
          break;
        }
        case TSR_ARGUMENT_FAULT:
          q->checks = true;
          q->fault = reinterpret_cast<tsr_fault*>(bits);
          break;
        case TSR_ARGUMENT_SITE: q->site = bits; break;
        default: q->sizes.push_back(static_cast<int64_t>(bits));
      }
    }
    q->blocks = c.grid[0], q->threads = c.block[0], q->shared_bytes = c.shared_bytes;
    return work_of(std::move(q));
  }

 protected:
  virtual void run(const kit::SimtModule& module, QueuedCall& q) = 0;
  const kit::GpuDescription& described() const { return description_; }

 private:
  std::function<void()> work_of(std::shared_ptr<QueuedCall> q) {
    q->seed = seed_ + launches_.fetch_add(1, std::memory_order_relaxed);
    return [this, q = std::move(q)] {
      const std::shared_ptr<const kit::SimtModule> module = q->module.lock();
      if (!module) return sim_.queues().complain("kernel '" + q->entry + "' was destroyed before work of it had run");
      try {
        run(*module, *q);
      } catch (const t::Error& e) {
        sim_.queues().complain(e.what());
      }
    };
  }

  SimDevice& sim_;
  kit::GpuDescription description_;
  uint64_t seed_;
  std::atomic<uint64_t> launches_{0};
};

// ---- text

class TextModule final : public kit::SimtModule {
 public:
  struct Functions final : SimFunction {
    SimTarget* target = nullptr;
    void *bind = nullptr, *thunk = nullptr;
    std::weak_ptr<const kit::SimtModule> module;
    std::function<void()> work(uint32_t index, const tsr_device_call& call) const override {
      return target->work(module, static_cast<const SimFunction*>(this), index, call);
    }
  };
  static std::shared_ptr<const TextModule> make(cpu::ModulePtr code, SimTarget& target) {
    auto m = std::make_shared<TextModule>();
    m->functions_.resize(code->count() - 1);
    for (size_t i = 1; i < code->count(); ++i) {
      Functions& f = m->functions_[i - 1];
      f.target = &target;
      f.bind = code->address(0);
      f.thunk = code->address(i);
      f.module = m;
    }
    m->code_ = std::move(code);
    return m;
  }
  void* function(size_t entry) const override {
    return const_cast<SimFunction*>(static_cast<const SimFunction*>(&functions_[entry]));
  }

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

  std::string compiler() override { return "sim text 2"; }  // the object's key has the rest
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
    return TextModule::make(objects().restore(std::move(linked), 0, count), *this);
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
    const auto& functions = static_cast<const TextModule::Functions&>(*static_cast<const SimFunction*>(q.function));
    launch.bind = reinterpret_cast<void (*)(const kit::TextRunnerApi*)>(functions.bind);
    launch.entry = reinterpret_cast<void (*)(void* const*)>(functions.thunk);
    launch.blocks = q.blocks;
    launch.threads = q.threads;
    launch.shared_bytes = q.shared_bytes;
    launch.wave = described().wave;
    launch.seed = q.seed;
    launch.bytes = q.bytes;
    kit::run_text(launch, arguments.data());
  }

 private:
  cpu::Compiler& objects() {
    static cpu::Compiler compiler([] {
      cpu::Compiler::Options o;
      o.cache_directory = kit::default_cache_directory("cpu");
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
