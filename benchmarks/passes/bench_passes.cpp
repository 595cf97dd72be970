// SPDX-License-Identifier: Apache-2.0
// How the time of canonicalize, CSE and DCE grows with the graph: the pass plugins on generated graphs of 5,000 and 10,000
// nodes, with the verification that the default config asks for. Medians over runs that take turns. `seconds` is processor time
// of the one thread that works, which a busy machine distorts least: longer runs are interrupted more often, so that wall time
// seems to grow faster than it does. `wall_seconds` and the figures by pass are wall time.
//
//   bench-passes [--json] [--runs N] [--nodes A,B]
//
// {"schema": "tessera.bench.passes/1", "seconds": {"5000": s, "10000": s}, "ratio": s10000 / s5000, "wall_seconds": {..},
//  "passes": {"5000": [{"pass", "seconds", "verify_seconds", "nodes_before", "nodes_after"}, ..], ..}, "runs": n}
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "api/api.hpp"
#include "context/context.hpp"
#include "generate.hpp"
#include "pass/pass_manager.hpp"
#include "pass/pipeline.hpp"
#include "support/error.hpp"

using namespace tessera::core;

namespace {

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

std::shared_ptr<Context> load() {
  const char* dirs[] = {TESSERA_PLUGIN_DIR};
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = R"(
[plugins]
load = ["tessera.opset.standard", "tessera.pass.canonicalize", "tessera.pass.cse", "tessera.pass.dce", "tessera.backend.null"]
[backends]
order = ["null"]
)";
  options.plugin_dirs = dirs;
  options.num_plugin_dirs = 1;
  return Context::create(&options, api::host());
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Series {
  std::vector<double> processor, wall;
  std::vector<std::vector<double>> pass, verify;  // by pass
  PassReport last;
};

int run(bool json, size_t runs, const std::vector<size_t>& sizes) {
  const auto context = load();
  const auto pipeline = bind_pipeline(*context, "canonicalize, cse, dce");
  const PassOptions options = pass_options_of(context->config());
  std::map<size_t, std::unique_ptr<Graph>> graphs;
  std::map<size_t, Series> series;
  for (const size_t n : sizes) graphs[n] = tessera::bench::transformer_like(context->ops(), n, 1);
  for (size_t k = 0; k <= runs; ++k)
    for (const size_t n : sizes) {
      const auto graph = graphs[n]->clone();
      const double start = processor_seconds();
      const PassReport report = run_passes(*graph, pipeline, options);
      const double processor = processor_seconds() - start;
      if (k == 0) continue;  // warms caches and the allocator
      Series& s = series[n];
      s.processor.push_back(processor);
      s.wall.push_back(report.seconds);
      s.pass.resize(report.runs.size());
      s.verify.resize(report.runs.size());
      for (size_t i = 0; i < report.runs.size(); ++i) {
        s.pass[i].push_back(report.runs[i].seconds);
        s.verify[i].push_back(report.runs[i].verify_seconds);
      }
      s.last = report;
    }

  nlohmann::ordered_json seconds, wall, passes;
  for (const size_t n : sizes) {
    const Series& s = series[n];
    seconds[std::to_string(n)] = median(s.processor);
    wall[std::to_string(n)] = median(s.wall);
    auto& rows = passes[std::to_string(n)] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < s.last.runs.size(); ++i)
      rows.push_back({{"pass", s.last.runs[i].name},
                      {"seconds", median(s.pass[i])},
                      {"verify_seconds", median(s.verify[i])},
                      {"nodes_before", s.last.runs[i].nodes_before},
                      {"nodes_after", s.last.runs[i].nodes_after}});
  }
  const double ratio = median(series[sizes.back()].processor) / median(series[sizes.front()].processor);
  if (json) {
    const nlohmann::ordered_json document = {{"schema", "tessera.bench.passes/1"},
                                             {"seconds", seconds},
                                             {"ratio", ratio},
                                             {"wall_seconds", wall},
                                             {"passes", passes},
                                             {"runs", runs}};
    std::printf("%s\n", document.dump(2).c_str());
    return 0;
  }
  for (const size_t n : sizes) {
    std::printf("%6zu nodes  %8.2f ms (%.2f ms wall)\n", n, median(series[n].processor) * 1e3, median(series[n].wall) * 1e3);
    for (const auto& row : passes[std::to_string(n)])
      std::printf("  %-14s %8.2f ms + %6.2f ms verify  %6zu -> %6zu nodes\n", row["pass"].get<std::string>().c_str(),
                  row["seconds"].get<double>() * 1e3, row["verify_seconds"].get<double>() * 1e3,
                  row["nodes_before"].get<size_t>(), row["nodes_after"].get<size_t>());
  }
  std::printf("ratio %.2f (medians of %zu runs)\n", ratio, runs);
  return 0;
}

int usage(const char* found) {
  std::fprintf(stderr, "bench-passes: found '%s', expected [--json] [--runs N] [--nodes A,B]\n", found);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  size_t runs = 21;
  std::vector<size_t> sizes = {5000, 10000};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (a == "--json")
      json = true;
    else if (a == "--runs" && std::atol(value) > 0)
      runs = static_cast<size_t>(std::atol(argv[++i]));
    else if (a == "--nodes" && *value) {
      sizes.clear();
      for (char* p = argv[++i]; *p; p += *p == ',') {
        const long n = std::strtol(p, &p, 10);
        if (n < 100 || (*p && *p != ',')) return usage(value);
        sizes.push_back(static_cast<size_t>(n));
      }
      if (sizes.empty()) return usage(value);
    } else {
      return usage(argv[i]);
    }
  }
  try {
    return run(json, runs, sizes);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.family() == TSR_USER ? 2 : e.family() == TSR_ENVIRONMENT ? 3 : 70;
  }
}
