// SPDX-License-Identifier: Apache-2.0
#include "graph_cache/cached.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "cache/cache.hpp"
#include "cache/constant_digests.hpp"
#include "compile/driver.hpp"
#include "compile/pair.hpp"
#include "compile/partition.hpp"
#include "context/context.hpp"
#include "ir/graph.hpp"
#include "ir/host_functions.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "pass/pass_manager.hpp"
#include "plan/constant_forms.hpp"
#include "plan/graph_constants.hpp"
#include "plugin/sha256.hpp"
#include "run/executable.hpp"
#include "support/clock.hpp"
#include "support/error.hpp"
#include "trace/debug_folder.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

// What asks to see the passes run, or to run some of them, is not answered from a cache.
bool may_be_cached(const Graph& graph, const CompileRequest& r) {
  const Cache* cache = r.context.cache();
  if (!cache || !cache->keeps(CacheKind::kGraph)) return false;
  if (has_host_functions(graph) || is_pair(graph)) return false;
  const PassOptions o = pass_options_of(r.config);
  return o.bisect_limit < 0 && o.dump_after == DumpWhen::kNone && o.reproducer != Reproducer::kAlways;
}

// What must not differ between a graph and what its entry reads back to.
std::string text_of(const Graph& graph, ConstantForms& forms) {
  const GraphConstants constants(graph);
  std::vector<std::string> digests;
  for (const GraphConstants::Item& i : constants.items()) digests.push_back(forms.digest(i.view()));
  const ConstantContents contents(constants, digests);
  return print_graph(graph, kPrintLocations, &contents);
}

// A store that does not map holds constants in entries, which are read whole: past some size that takes longer than a compile.
bool is_too_large(const Graph& graph, ConstantForms& forms) {
  constexpr size_t kMost = size_t{4} << 20;
  if (forms.keeps_blobs()) return false;
  size_t bytes = 0;
  const GraphConstants constants(graph);
  for (const GraphConstants::Item& i : constants.items())
    if (!forms.captured(forms.digest(i.view()), i.bytes)) bytes += i.bytes;
  return bytes > kMost;
}

// Takes the place of the stages before the plan where the cache knows their result, and keeps what they make where it does not.
class CacheHook final : public StageHook {
 public:
  explicit CacheHook(const CompileRequest& r) : r_(r), cache_(*r.context.cache()) {}

  bool before(Stage stage, Compilation& c) override {
    if (stage == Stage::kPasses) look_up(c);
    return !captured_ || stage >= Stage::kPlan;
  }

  void after(Stage stage, Compilation& c) override {
    if (stage != Stage::kExecutable) return;
    if (!captured_) {
      if (c.options.failed.empty()) store(*c.executable);  // else what failed may work the next time
      return;
    }
    // Its constants are those of the captured graph.
    *owner_ = std::move(captured_);
    forms_->store();
    log_write(Artifact::kPasses, "graph @" + name_ + " comes from the cache, entry " + key_.substr(0, 16));
    c.executable->times.passes += lookup_seconds_;
  }

  // What was found cannot be used after all: the graph to begin with again. Null: nothing was found.
  std::unique_ptr<Graph> refuse(const Error& e) {
    if (captured_) cache_.refuse(CacheKind::kGraph, key_, e.message());
    refused_ = true;
    return std::move(captured_);
  }

 private:
  // A plan that keeps to a budget is made for the sizes of the call, and holds up to sizes that follow from them.
  bool is_solved_at_hints() const {
    const PartitionOptions* p = r_.options.partition.get();
    return p && (p->bytes >= 0 || p->fraction < 1);
  }

  void look_up(Compilation& c) {
    const TracePhase phase("cache");
    const auto start = std::chrono::steady_clock::now();
    Graph& graph = *c.graph;
    name_ = graph.tables().name;
    const GraphConstants constants(graph);
    const std::vector<std::string> digests = constant_digests(graph.sources(), constants.views(), cache_,
                                                              static_cast<int>(r_.config.get_int("cache.settle_seconds")));
    const ConstantContents contents(constants, digests);
    key_ = sha256_hex(
        cache_environment(r_) + (graph.tables().output_names ? "\ngraph, outputs named\n" : "\ngraph\n") +
        print_graph(graph, is_solved_at_hints() ? kPrintLocations : kPrintLocations | kPrintWithoutHints, &contents));
    // Anew for a compile: it remembers constants by their addresses, and those of what could not be restored are gone.
    const auto begin = [&] { forms_.emplace(cache_, graph.sources(), constants, digests, key_); };
    begin();
    c.options.forms = &*forms_;
    if (!refused_ && restore(c)) {
      lookup_seconds_ = seconds_since(start);
      return;
    }
    begin();
    c.options.restore = nullptr;
    c.options.save = &kernels_;
    assignment_ = &c.assignment;
  }

  bool restore(Compilation& c) {
    const auto payload = cache_.get(CacheKind::kGraph, key_);
    if (!payload) return false;
    const std::string why = decode_graph(*payload, r_.context.ops(), r_.options.backends, &found_, &*forms_);
    if (!why.empty()) {
      cache_.refuse(CacheKind::kGraph, key_, why);
      found_ = {};
      return false;
    }
    found_.graph->sources() = c.graph->sources();
    owner_ = std::make_shared<std::unique_ptr<Graph>>();
    found_.graph->keep(owner_);
    captured_ = std::exchange(c.graph, std::move(found_.graph));
    c.assignment = std::move(found_.assignment);
    c.options.restore = &found_.kernels;
    return true;
  }

  void store(const Executable& e) {
    const TracePhase phase("cache");
    if (is_too_large(e.graph(), *forms_)) {
      log_write(Artifact::kPasses, "graph @" + name_ + " is not cached: the store keeps no constants of this size");
      return;
    }
    std::string payload = encode_graph(e.graph(), *assignment_, kernels_, &*forms_);
    if (!forms_->store()) {
      log_write(Artifact::kPasses, "graph @" + name_ + " is not cached: a file that holds constants of it has just changed");
      return;
    }
    // Kept only if it reads back to the same: a cache must never make a difference.
    CachedGraph again;
    std::string why = decode_graph(payload, r_.context.ops(), r_.options.backends, &again, &*forms_);
    if (why.empty()) {
      again.graph->sources() = e.graph().sources();
      if (text_of(*again.graph, *forms_) != text_of(e.graph(), *forms_)) why = "its text reads back to another graph";
    }
    if (!why.empty())
      log_warning("graph @" + name_ + " is not cached: " + why);
    else if (forms_->stored_blobs())
      cache_.put_later(CacheKind::kGraph, key_, std::move(payload));  // behind what it needs
    else
      cache_.put(CacheKind::kGraph, key_, payload);
  }

  const CompileRequest& r_;
  Cache& cache_;
  std::string name_, key_;
  std::optional<ConstantForms> forms_;
  CachedGraph found_;
  std::shared_ptr<std::unique_ptr<Graph>> owner_;  // of the captured graph, once the executable is made
  std::unique_ptr<Graph> captured_;                // set while a restored graph goes through the stages
  bool refused_ = false;
  double lookup_seconds_ = 0;
  SavedKernels kernels_;
  const std::vector<Assignment>* assignment_ = nullptr;
};

// trace.enabled. Past the cache, which knows neither what passes said nor the text of kernels.
std::unique_ptr<Executable> compile_with_folder(std::unique_ptr<Graph> graph, const CompileRequest& r,
                                                const PassLists& passes) {
  if (graph->in_transaction()) graph->commit();
  DebugFolder folder(r.config, *graph);
  CompileOptions options = r.options;
  options.debug = &folder;
  try {
    return compile_graph(std::move(graph), passes, options);
  } catch (const std::exception& e) {
    folder.failed(e.what());
    throw;
  }
}

// Passes that go by the sizes of the call at hand make a graph for more calls than one. That graph is what has an entry, so
// they run apart from the others.
PassLists cached_passes(const PassLists& all) {
  PassLists lists{{}, {}, all.joint, all.options};
  for (const BoundPass& p : all.graph)
    (p.factory->as<tsr_pass>().stage == TSR_STAGE_CALL ? lists.call : lists.graph).push_back(p);
  return lists;
}

}  // namespace

std::unique_ptr<Executable> compile_cached(std::unique_ptr<Graph> graph, const CompileRequest& r) {
  const PassLists all{{}, r.passes, r.context.joint_pipeline(r.config), pass_options_of(r.config)};
  if (r.config.get_bool("trace.enabled")) return compile_with_folder(std::move(graph), r, all);
  if (!may_be_cached(*graph, r)) return compile_graph(std::move(graph), all, r.options);
  PassLists passes = cached_passes(all);
  CacheHook cache(r);
  StageHook* const hooks[] = {&cache};
  try {
    return compile_graph(std::move(graph), passes, r.options, hooks);
  } catch (const Error& e) {
    // A compile makes the program run all the same, or says better what is wrong.
    graph = cache.refuse(e);
    if (!graph) throw;
  }
  passes.call.clear();  // they have run
  return compile_graph(std::move(graph), passes, r.options, hooks);
}

}  // namespace tessera::core
