// SPDX-License-Identifier: Apache-2.0
// Runs a pipeline over a graph: one transaction per pass, verification, timing, dumps, bisection, reproducers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

class Graph;
class Config;
struct BoundPass;

enum class VerifyWhen { kNever, kChanged, kEach };
enum class DumpWhen { kNone, kChanged, kAll };
enum class Reproducer { kNone, kOnError, kAlways };

struct PassOptions {
  VerifyWhen verify = VerifyWhen::kChanged;  // the whole-graph verifier; edited nodes are always checked at commit
  DumpWhen dump_after = DumpWhen::kNone;
  std::string dump_dir;       // files NN-GRAPH-PASS.tsr; empty: printed under the log artifact "passes", enabled or not
  int64_t bisect_limit = -1;  // run only the first N passes of the process; -1: all. Each decision is logged.
  Reproducer reproducer = Reproducer::kOnError;
  std::string reproducer_dir;  // files tessera-reproducer-GRAPH-PASS.tsr; empty: "tessera" in the directory for temporary files
};

struct PassRun {
  std::string name;
  double seconds = 0;         // in the pass
  double verify_seconds = 0;  // checking what it did: the edited nodes, and the whole graph where the options ask for it
  bool changed = false, skipped = false;
  size_t nodes_before = 0, nodes_after = 0;
};
struct PassReport {
  std::vector<PassRun> runs;
  double seconds = 0;  // of the whole pipeline, verification and dumps included
};

// A failing pass leaves the graph as it was before it: its transaction is rolled back, then the error is thrown, naming the
// pass, its plugin and, when written, the reproducer file. The graph must not be in a transaction. Passes come from any number
// of threads (on different graphs); bisection counts them in the order in which they start.
PassReport run_passes(Graph& graph, const std::vector<BoundPass>& pipeline, const PassOptions& options);
PassOptions pass_options_of(
    const Config& config);  // the keys pipeline.verify, dump_after, dump_dir, bisect_limit, reproducer, reproducer_dir

int64_t passes_started();  // by this process so far: what bisect_limit is compared with

std::string print_timing_tree(const PassReport& report);
std::string timing_json(const PassReport& report);  // schema: docs/json.md, "pass report"

// A reproducer is text IR whose first lines say how to replay it:
//   // tessera reproducer: pass 'cse' failed: ...
//   // pipeline: cse{...}
//   // replay: tessera opt THIS_FILE --passes 'cse{...}'
std::string make_reproducer(const Graph& graph, const BoundPass& pass, std::string_view failure);

}  // namespace tessera::core
