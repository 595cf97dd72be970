// SPDX-License-Identifier: Apache-2.0
#include "compile/cached.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "autograd/expand.hpp"
#include "cache/cache.hpp"
#include "cache/constant_digests.hpp"
#include "compile/constant_forms.hpp"
#include "compile/executable.hpp"
#include "compile/graph_constants.hpp"
#include "compile/services.hpp"
#include "context/context.hpp"
#include "ir/graph.hpp"
#include "ir/host_functions.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "pass/pass_manager.hpp"
#include "plugin/sha256.hpp"
#include "support/error.hpp"
#include "trace/debug_folder.hpp"
#include "trace/trace.hpp"
#include "trace/trace_graph.hpp"

namespace tessera::core {

namespace {

double passes(Graph& graph, const CompileRequest& r, const std::vector<BoundPass>& pipeline) {
  if (pipeline.empty()) return 0;
  const ServiceScope scope(r.options);
  const auto start = std::chrono::steady_clock::now();
  run_passes(graph, pipeline, pass_options_of(r.config));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Expands gradients, and runs the passes marked joint over what came of it. Does nothing to a graph without gradients.
double autograd(Graph& graph, const CompileRequest& r) {
  if (!has_gradients(graph)) return 0;
  const auto start = std::chrono::steady_clock::now();
  {
    const TracePhase phase("autograd");
    expand_gradients(graph);
  }
  if (trace_details()) trace_graph(graph, "joint");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() +
         passes(graph, r, r.context.joint_pipeline(r.config));
}

std::unique_ptr<Executable> compile(std::unique_ptr<Graph> graph, const CompileRequest& r) {
  const double seconds = passes(*graph, r, r.passes) + autograd(*graph, r);
  std::unique_ptr<Executable> e = Executable::compile(std::move(graph), r.options);
  e->times.passes = seconds;
  return e;
}

// trace.enabled. Past the cache, which knows neither what passes said nor the text of kernels.
std::unique_ptr<Executable> compile_with_folder(std::unique_ptr<Graph> graph, const CompileRequest& r) {
  if (graph->in_transaction()) graph->commit();
  DebugFolder folder(r.config, *graph);
  CompileOptions options = r.options;
  options.debug = &folder;
  try {
    return compile(std::move(graph), {r.context, r.config, r.passes, options});
  } catch (const std::exception& e) {
    folder.failed(e.what());
    throw;
  }
}

// What asks to see the passes run, or to run some of them, is not answered from a cache.
bool may_be_cached(const Graph& graph, const CompileRequest& r) {
  const Cache* cache = r.context.cache();
  if (!cache || !cache->keeps(CacheKind::kGraph)) return false;
  if (has_host_functions(graph)) return false;
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

// Null: the cache has nothing that can be used. Else the executable has taken the captured graph, whose constants it borrows.
std::unique_ptr<Executable> restore(std::unique_ptr<Graph>& captured, const std::string& key, const CompileRequest& r,
                                    ConstantForms& forms) {
  Cache& cache = *r.context.cache();
  CachedGraph found;
  {
    const TracePhase phase("cache");
    const auto payload = cache.get(CacheKind::kGraph, key);
    if (!payload) return nullptr;
    const std::string why = decode_graph(*payload, r.context.ops(), r.options.backends, &found, &forms);
    if (!why.empty()) {
      cache.refuse(CacheKind::kGraph, key, why);
      return nullptr;
    }
  }
  found.graph->sources() = captured->sources();
  const auto owner = std::make_shared<std::unique_ptr<Graph>>();
  found.graph->keep(owner);
  CompileOptions options = r.options;
  options.forms = &forms;
  try {
    std::unique_ptr<Executable> e = Executable::restore(std::move(found.graph), found.assignment, found.kernels, options);
    *owner = std::move(captured);
    forms.store();
    return e;
  } catch (const Error& e) {
    // A compile makes the program run all the same, or says better what is wrong.
    cache.refuse(CacheKind::kGraph, key, e.message());
    return nullptr;
  }
}

void store(const Executable& e, const std::string& key, const CompileRequest& r, const std::vector<Assignment>& assignment,
           const SavedKernels& kernels, ConstantForms& forms) {
  const TracePhase phase("cache");
  Cache& cache = *r.context.cache();
  const std::string name = e.graph().tables().name;
  if (is_too_large(e.graph(), forms)) {
    log_write(Artifact::kPasses, "graph @" + name + " is not cached: the store keeps no constants of this size");
    return;
  }
  std::string payload = encode_graph(e.graph(), assignment, kernels, &forms);
  if (!forms.store()) {
    log_write(Artifact::kPasses, "graph @" + name + " is not cached: a file that holds constants of it has just changed");
    return;
  }
  // Kept only if it reads back to the same: a cache must never make a difference.
  CachedGraph again;
  std::string why = decode_graph(payload, r.context.ops(), r.options.backends, &again, &forms);
  if (why.empty()) {
    again.graph->sources() = e.graph().sources();
    if (text_of(*again.graph, forms) != text_of(e.graph(), forms)) why = "its text reads back to another graph";
  }
  if (!why.empty())
    log_warning("graph @" + name + " is not cached: " + why);
  else if (forms.stored_blobs())
    cache.put_later(CacheKind::kGraph, key, std::move(payload));  // behind what it needs
  else
    cache.put(CacheKind::kGraph, key, payload);
}

}  // namespace

std::unique_ptr<Executable> compile_cached(std::unique_ptr<Graph> graph, const CompileRequest& r) {
  if (r.config.get_bool("trace.enabled")) return compile_with_folder(std::move(graph), r);
  if (!may_be_cached(*graph, r)) return compile(std::move(graph), r);
  if (graph->in_transaction()) graph->commit();
  std::vector<BoundPass> pipeline = r.passes;
  const std::string name = graph->tables().name;
  const auto start = std::chrono::steady_clock::now();
  // Passes that go by the sizes of the call at hand make of it a graph for more calls than one; that is what has an entry.
  const auto of_call = std::stable_partition(
      pipeline.begin(), pipeline.end(), [](const BoundPass& p) { return p.factory->as<tsr_pass>().stage == TSR_STAGE_CALL; });
  const double call_seconds = passes(*graph, r, {pipeline.begin(), of_call});
  pipeline.erase(pipeline.begin(), of_call);
  std::optional<TracePhase> phase("cache");
  const GraphConstants constants(*graph);
  const std::vector<std::string> digests = constant_digests(graph->sources(), constants.views(), *r.context.cache(),
                                                            static_cast<int>(r.config.get_int("cache.settle_seconds")));
  const ConstantContents contents(constants, digests);
  const std::string key =
      sha256_hex(cache_environment(r) + (graph->tables().output_names ? "\ngraph, outputs named\n" : "\ngraph\n") +
                 print_graph(*graph, kPrintLocations | kPrintWithoutHints, &contents));
  std::optional<ConstantForms> forms(std::in_place, *r.context.cache(), graph->sources(), constants, digests, key);
  phase.reset();
  if (std::unique_ptr<Executable> e = restore(graph, key, r, *forms)) {
    e->times.passes = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() - e->times.kernels;
    log_write(Artifact::kPasses, "graph @" + name + " comes from the cache, entry " + key.substr(0, 16));
    return e;
  }
  // Anew: it remembers constants by their addresses, and those of what could not be restored are gone.
  forms.emplace(*r.context.cache(), graph->sources(), constants, digests, key);
  CompileOptions options = r.options;
  options.forms = &*forms;
  const double seconds = call_seconds + passes(*graph, r, pipeline) + autograd(*graph, r);
  SavedKernels kernels;
  std::vector<Assignment> assignment;
  // The graph itself goes through: what `constants` borrows lives as long as the executable.
  std::unique_ptr<Executable> e = Executable::compile(std::move(graph), options, &assignment, &kernels);
  e->times.passes = seconds;
  store(*e, key, r, assignment, kernels, *forms);
  return e;
}

}  // namespace tessera::core
