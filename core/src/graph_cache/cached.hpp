// SPDX-License-Identifier: Apache-2.0
// Compilation through the context's cache: what passes, assignment and backends made of a graph is kept under a key of
// everything that could have made it different, and taken from there the next time, in whatever process that is.
// docs/caches.md.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/assign.hpp"
#include "ir/reader.hpp"
#include "plan/compile_options.hpp"
#include "plan/saved_kernels.hpp"

namespace tessera::core {

class Config;
class ConstantForms;
class Context;
class Executable;
class Graph;
class OpRegistry;
struct BoundPass;

struct CompileRequest {
  const Context& context;
  const Config& config;  // the context's, or one derived from it
  const std::vector<BoundPass>& passes;
  const CompileOptions& options;
};

// The driver (driver.hpp); its stages before the plan are skipped when the cache knows their result. Throws what they throw; a
// cache that fails is only warned about.
std::unique_ptr<Executable> compile_cached(std::unique_ptr<Graph> graph, const CompileRequest& request);

// What a compile depends on besides the graph, as text: versions, plugins with their hashes, pass pipeline, config, backends,
// devices.
std::string cache_environment(const CompileRequest& request);

// ---- the payload of an entry of kind "graph"
// `forms` null: no captured graph and no blobs stand behind the entry, which then holds every constant itself.
struct CachedGraph {
  std::unique_ptr<Graph> graph;        // as it was planned
  std::vector<Assignment> assignment;  // by node id of that graph
  SavedKernels kernels;                // of those backends that can write theirs
};
std::string encode_graph(const Graph& graph, const std::vector<Assignment>& assignment, const SavedKernels& kernels,
                         ConstantForms* forms);
// "" and *out, or why the payload cannot be used. `backends`: those that may be assigned to. The graph borrows what `forms`
// calls captured.
std::string decode_graph(std::string_view payload, const OpRegistry& ops, const std::vector<const Factory*>& backends,
                         CachedGraph* out, ConstantForms* forms = nullptr, const ReadLimits& limits = {});

}  // namespace tessera::core
