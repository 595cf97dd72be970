// SPDX-License-Identifier: Apache-2.0
// The cpu backend: products, convolutions and pooling on kernels of its own, and text for what the kernel kit lowers. The rest
// goes to the next backend of the config.
#include "tessera/plugin.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "attention/attention.hpp"
#include "attention/form.hpp"
#include "conv.hpp"
#include "depthwise/expanded.hpp"
#include "depthwise/max_pool.hpp"
#include "finish.hpp"
#include "generated.hpp"
#include "integer/integer.hpp"
#include "interpreted.hpp"
#include "jit/compiler.hpp"
#include "product.hpp"
#include "profitability.hpp"
#include "tessera/kit/prepared_kernels.hpp"
#include "tuning/tuner.hpp"

namespace cpu {

namespace sdk = tessera::sdk;
namespace kit = tessera::kit;

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

Compiler::Options compiler_options(const sdk::Options& o, const Isa& isa) {
  Compiler::Options out;
  const std::string_view which = o.get_string("compiler", "auto");
  // "auto" without clang compiles nothing; see has_compiler().
  out.toolchain = which == "system" || (which == "auto" && !have_clang()) ? Toolchain::kSystem : Toolchain::kClang;
  out.isa = &isa;
  out.system_compiler = o.get_string("system_compiler", "c++");
  if (o.get_bool("cache", true) && !o.get_bool("force_disable_caches", false)) {
    out.cache_directory = o.get_string("cache_directory", "");
    if (out.cache_directory.empty()) out.cache_directory = tessera::kit::default_cache_directory("cpu");
  }
  return out;
}

// Results of a block of minimal filtering each way, at most; 0: none.
int winograd_of(std::string_view option) { return option == "4x4" ? 4 : option == "2x2" ? 2 : 0; }

class CpuBackend final : public sdk::Backend {
 public:
  explicit CpuBackend(const sdk::Options& options)
      : isa_(choose_isa(options.get_string("isa", "auto"))),
        generate_(options.get_bool("generate", true)),
        auto_compiler_(options.get_string("compiler", "auto") == "auto"),
        winograd_(winograd_of(options.get_string("winograd", "4x4"))),
        pays_after_(options.get_int("pays_after", 0)),
        device_(describe_device(isa_)),
        compiler_(compiler_options(options, isa_)),
        tuner_(compiler_options(options, isa_), compiler_options(options, isa_).cache_directory, isa_, device_, winograd_,
               options.get_bool("strassen", true)) {}
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override {
    return TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED | TSR_CAP_FUSION;  // kernels say which operands may be strided
  }

  sdk::Claim claim(sdk::Graph g, sdk::Node n) override {
    if (is_product(n.op()) || n.is("conv")) {
      const char* why = n.is("conv") ? refuse_conv(n) : claim_product(n).why;
      return why ? sdk::no(why) : sdk::yes();
    }
    if (is_integer_product(n)) {
      const char* why = n.is("conv_integer") ? refuse_integer_conv(n) : refuse_integer_product(n);
      return why ? sdk::no(why) : sdk::yes();
    }
    if (n.is("max_pool")) {
      const char* why = refuse_max_pool(n);
      return why ? sdk::no(why) : sdk::yes();
    }
    if (is_attention(n)) {
      const char* why = refuse_attention(n);
      return why ? sdk::no(why) : sdk::yes();
    }
    if (is_attention_group(n)) {
      const std::string why = refuse_attention_group(n, generate_ && has_compiler());
      if (why.empty()) return sdk::yes();
      if (sdk::log_enabled("perf_hints")) sdk::log("perf_hints", "cpu leaves a group of attention in parts: " + why);
      return sdk::no(g.scratch_string(why));
    }
    if (is_expanded(n)) {
      const char* why = refuse_expanded(n, isa_);
      return why ? sdk::no(why) : sdk::yes();
    }
    if (const sdk::Node anchor = anchor_of(n)) {
      const char* why = anchor.is("conv") ? refuse_conv(anchor) : claim_product(anchor).why;
      return why || !Finish::of(n, anchor, &why) ? sdk::no(why) : sdk::yes();
    }
    if (is_interpreted(g, n)) return sdk::yes();
    if (pays_after_ > 0 && n.is("fused") && of_interpreted_ops(g, n) && !pays(g, n))
      return sdk::no("a group that can be interpreted in parts only");
    if (!generate_) return sdk::no("cpu has no kernel of its own for this op, and generate is off");
    if (!n.regions().empty() && !n.is("fused")) return sdk::no("cpu has no kernel for an op with regions");
    // The kit's would write every element, where a donated tensor takes one update a line.
    if (n.is("scatter")) return sdk::no("an op that others compute in place");
    try {
      check_node(g, n);
      if (!n.is("fused") && !pays(g, n)) return sdk::no("generating code for so little work does not pay");
      if (!has_compiler()) return sdk::no("there is no compiler for generated code");
      return sdk::yes();
    } catch (const kit::Unfit& u) {
      // What has no kernel, but parts that have.
      static constexpr std::string_view parts[] = {
          "cross_entropy", "mse_loss", "logsumexp", "group_norm", "batch_norm_training",
          "split",         "stack",    "norm",      "sum_to",     "tile"};
      if (std::find(std::begin(parts), std::end(parts), n.op()) != std::end(parts) && pays(g, n) && has_compiler())
        return sdk::decompose("its parts are generated");
      return sdk::no(g.scratch_string(u.why));
    }
  }

  // The kernels of a plan are compiled together.
  void prepare(std::span<const sdk::Compile> requests) override {
    tune(requests);
    if (requests.empty()) return;
    WrittenStructures of_plan;
    WrittenStructures& known = trains(requests[0].graph()) ? of_steps_ : of_plan;
    std::vector<Source> sources;
    for (const sdk::Compile& c : requests) {
      if (is_attention_group(c.node())) {
        if (Source source; prepare_attention_group(c, device_, &source)) sources.push_back(std::move(source));
      } else if (!has_own_kernel(c.node()) && !is_interpreted(c.graph(), c.node())) {
        auto d = std::make_unique<WrittenKernel>(write_or_fail(c, /*log=*/true, /*tuned=*/true, &known));
        sources.push_back(d->source);
        written_.keep(c, std::move(d));
      }
    }
    if (sources.empty()) return;
    std::vector<ModulePtr> modules = compiler_.compile(sources);
    std::lock_guard lock(mutex_);
    modules_ = std::move(modules);  // until the next plan: each kernel takes its own share soon
  }

  // Generated kernels come whole; the others are made in microseconds.
  bool can_deserialize() const override { return true; }
  std::unique_ptr<sdk::Kernel> deserialize(std::string_view bytes) override {
    return restore_generated(bytes, compiler_, device_);
  }

  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c) override {
    if (is_expanded(c.node())) return make_expanded(c, isa_);
    if (is_attention_group(c.node())) return make_attention_group(c, isa_, device_, compiler_);
    if (Tuner::has_ways(c.node())) return tuner_.make(c);
    if (c.node().is("conv_integer")) return make_integer_conv(c, isa_);
    if (c.node().is("matmul_integer")) return make_integer_product(c, isa_);
    if (c.node().is("max_pool")) return make_max_pool(c, isa_);
    if (is_attention(c.node())) return make_attention(c, isa_);
    if (is_interpreted(c.graph(), c.node())) return make_interpreted(c);
    WrittenKernel d = written(c);
    ModulePtr module = compiler_.find(d.source);
    if (!module) module = compiler_.compile(d.source);
    return make_generated(c, std::move(d), std::move(module), device_);
  }

 private:
  static bool has_own_kernel(const sdk::Node& n) {
    return is_product(n.op()) || n.is("conv") || n.is("max_pool") || is_attention(n) || anchor_of(n) || is_expanded(n) ||
           is_integer_product(n) || is_attention_group(n);
  }

  // What the requests ask to be measured, before anything is compiled.
  void tune(std::span<const sdk::Compile> requests) {
    if (requests.empty() || requests[0].tune() == 0) return;
    const Budget budget(requests[0].tune_seconds());
    std::vector<const sdk::Compile*> ways;
    for (const sdk::Compile& c : requests)
      if (Tuner::asked(c, TSR_TUNE_ALGORITHMS) && !is_expanded(c.node()) && Tuner::has_ways(c.node())) ways.push_back(&c);
    tuner_.choose_ways(ways, budget);
    std::vector<const sdk::Compile*> generated;
    for (const sdk::Compile& c : requests)
      if (Tuner::asked(c, TSR_TUNE_SCHEDULES) && !has_own_kernel(c.node())) generated.push_back(&c);
    for (size_t i = 0; i < generated.size(); ++i) {
      sdk::progress("measuring schedules", i, generated.size());
      WrittenKernel d = write_or_fail(*generated[i], /*log=*/false, /*tuned=*/false);
      tuner_.choose_schedule(*generated[i], d, budget);
    }
    if (!generated.empty()) sdk::progress("measuring schedules", generated.size(), generated.size());
  }

  // Whether the graph is a training step, or a half of one. How much such a graph computes depends on what its partitioner
  // keeps, and bits must not: a value that is computed again comes from the same backend as the first time, whatever the
  // budget.
  static bool trains(const sdk::Graph& g) {
    for (const sdk::Node& n : g.nodes())
      if (n.marked(TSR_MARK_BACKWARD | TSR_MARK_SAVE)) return true;
    return false;
  }

  // Small chains of a graph for which generating code does not pay.
  bool is_interpreted(const sdk::Graph& g, const sdk::Node& n) const {
    return pays_after_ > 0 && !refuse_interpreted(g, n) && !pays(g, n);
  }

  // A fused group comes from nodes that were claimed: its program pays, or the group is interpreted.
  bool pays(const sdk::Graph& g, const sdk::Node& n) const {
    const Profitability p = predict_profitability(g, pays_after_, has_own_kernel);
    if (!p.pays && trains(g)) return true;
    if (!p.pays && p.first == n && sdk::log_enabled("perf_hints")) {  // once per graph
      char text[200];
      std::snprintf(text, sizeof text,
                    "cpu generates no code for graph '%s': it would save about %.1f us per call, and take %.0f ms once; [cpu] "
                    "pays_after = %lld calls",
                    g.tables().name, p.saved_seconds * 1e6, Profitability::kCompileSeconds * 1e3,
                    static_cast<long long>(pays_after_));
      sdk::log("perf_hints", text);
    }
    return p.pays;
  }

  // compiler = "auto" goes on without one; any other is there, or compile() says why not.
  bool has_compiler() {
    if (!auto_compiler_) return true;
    std::call_once(compiler_asked_, [&] {
      const std::string why = why_no_clang();
      compiler_found_ = why.empty();
      if (!compiler_found_) sdk::log("notice", "cpu generates no code and leaves it to the next backend: " + why);
    });
    return compiler_found_;
  }

  // The kernel that prepare() has written for this request, or a new one.
  WrittenKernel written(const sdk::Compile& c) {
    if (const std::unique_ptr<WrittenKernel> kept = written_.take(c)) return std::move(*kept);
    return write_or_fail(c, /*log=*/false);
  }

  // `known`: kernels of the same structures, where nothing is measured.
  WrittenKernel write_or_fail(const sdk::Compile& c, bool log, bool tuned = true, WrittenStructures* known = nullptr) const {
    try {
      if (known && c.tune() == 0) return known->write(c.graph(), c.node(), device_, c.relaxed(), log);
      if (!tuned || c.tune() == 0) return write_kernel(c.graph(), c.node(), device_, c.relaxed(), log);
      WrittenKernel predicted = write_kernel(c.graph(), c.node(), device_, c.relaxed(), false);
      const std::optional<kit::Choice> choice = tuner_.schedule_of(c, predicted);
      return write_kernel(c.graph(), c.node(), device_, c.relaxed(), log, choice ? &*choice : nullptr);
    } catch (const kit::Unfit& u) {
      throw sdk::Error(TSR_BUG, "TSR-B005",
                       "cpu was asked to compile '" + std::string(c.node().op()) + "', which it cannot: " + u.why,
                       "set generate = false in [cpu], and report it");
    }
  }

  const Isa& isa_;
  bool generate_, auto_compiler_;
  int winograd_;
  int64_t pays_after_;
  std::once_flag compiler_asked_;
  bool compiler_found_ = false;
  kit::Device device_;
  Compiler compiler_;
  Tuner tuner_;
  std::mutex mutex_;
  std::vector<ModulePtr> modules_;
  kit::PreparedKernels<WrittenKernel> written_;
  WrittenStructures of_steps_;  // of training steps, which a budget of memory lowers several times
};

}  // namespace

}  // namespace cpu

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_backend("cpu", std::make_unique<cpu::CpuBackend>(plugin.options));
}
