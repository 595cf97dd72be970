// SPDX-License-Identifier: Apache-2.0
#include "compile/cached.hpp"

#include <chrono>

#include "cache/cache.hpp"
#include "capture/host_functions.hpp"
#include "compile/executable.hpp"
#include "compile/services.hpp"
#include "context/context.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "pass/pass_manager.hpp"
#include "plugin/sha256.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

double passes(Graph& graph, const CompileRequest& r) {
  if (r.passes.empty()) return 0;
  const ServiceScope scope(r.options);
  const auto start = std::chrono::steady_clock::now();
  run_passes(graph, r.passes, pass_options_of(r.config));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::unique_ptr<Executable> compile(std::unique_ptr<Graph> graph, const CompileRequest& r) {
  const double seconds = passes(*graph, r);
  std::unique_ptr<Executable> e = Executable::compile(std::move(graph), r.options);
  e->times.passes = seconds;
  return e;
}

// An entry holds its graph's constants, and its key their hash: past some size both cost more than the compile that they save.
bool has_large_constants(const Graph& graph) {
  constexpr int64_t kMost = int64_t{4} << 20;
  int64_t bytes = 0;
  for (tsr_id n = 0; n < graph.num_nodes(); ++n) {
    const tsr_node& node = graph.node(n);
    if (!node.alive) continue;
    for (uint32_t i = 0; i < node.num_attrs; ++i) {
      if (node.attrs[i].kind != TSR_ATTR_TENSOR) continue;
      const tsr_tensor& t = *node.attrs[i].tensor;
      int64_t elements = 1;
      for (uint32_t d = 0; d < t.rank; ++d) elements *= t.sizes[d];
      bytes += storage_bytes(t.dtype, elements);
    }
  }
  return bytes > kMost;
}

// What asks to see the passes run, or to run some of them, is not answered from a cache.
bool may_be_cached(const Graph& graph, const CompileRequest& r) {
  const Cache* cache = r.context.cache();
  if (!cache || !cache->keeps(CacheKind::kGraph)) return false;
  if (has_host_functions(graph) || has_large_constants(graph)) return false;
  const PassOptions o = pass_options_of(r.config);
  return o.bisect_limit < 0 && o.dump_after == DumpWhen::kNone && o.reproducer != Reproducer::kAlways;
}

}  // namespace

std::unique_ptr<Executable> compile_cached(std::unique_ptr<Graph> graph, const CompileRequest& r) {
  if (!may_be_cached(*graph, r)) return compile(std::move(graph), r);
  if (graph->in_transaction()) graph->commit();
  Cache& cache = *r.context.cache();
  const std::string name = graph->tables().name;
  std::string key;
  CachedGraph found;
  {
    const TracePhase phase("cache");
    key = sha256_hex(cache_environment(r) + "\ngraph\n" + print_graph(*graph, kPrintLocations | kPrintWithoutHints));
    if (const auto payload = cache.get(CacheKind::kGraph, key)) {
      const std::string why = decode_graph(*payload, r.context.ops(), r.options.backends, &found);
      if (!why.empty()) {
        cache.refuse(CacheKind::kGraph, key, why);
        found = {};
      }
    }
  }
  if (found.graph) {
    try {
      std::unique_ptr<Executable> e = Executable::restore(std::move(found.graph), found.assignment, found.kernels, r.options);
      log_write(Artifact::kPasses, "graph @" + name + " comes from the cache, entry " + key.substr(0, 16));
      return e;
    } catch (const Error& e) {
      // A compile makes the program run all the same, or says better what is wrong.
      cache.refuse(CacheKind::kGraph, key, e.message());
    }
  }
  const double seconds = passes(*graph, r);
  SavedKernels kernels;
  std::vector<Assignment> assignment;
  std::unique_ptr<Executable> e = Executable::compile(std::move(graph), r.options, &assignment, &kernels);
  e->times.passes = seconds;
  const TracePhase phase("cache");
  std::string payload = encode_graph(e->graph(), assignment, kernels);
  // Kept only if it reads back to the same: a cache must never make a difference.
  CachedGraph again;
  std::string why = decode_graph(payload, r.context.ops(), r.options.backends, &again);
  if (why.empty() && print_graph(*again.graph, kPrintLocations) != print_graph(e->graph(), kPrintLocations))
    why = "its text reads back to another graph";
  if (why.empty())
    cache.put(CacheKind::kGraph, key, payload);
  else
    log_warning("graph @" + name + " is not cached: " + why);
  return e;
}

}  // namespace tessera::core
