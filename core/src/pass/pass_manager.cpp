// SPDX-License-Identifier: Apache-2.0
#include "pass/pass_manager.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "context/context.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "log/log.hpp"
#include "pass/pipeline.hpp"
#include "support/error.hpp"

namespace tessera::core {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Counts over the process, so that one limit bisects a whole compilation, however many graphs it has.
std::atomic<int64_t> g_passes_run{0};

std::string file_safe(std::string s) {
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '_';
  return s;
}

std::string write_file(const std::string& dir, const std::string& name, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(dir, ignored);
  const std::string path = (std::filesystem::path(dir) / name).string();
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  return out ? path : std::string();
}

struct TransactionScope {
  Graph& g;
  bool open = true;
  TransactionScope(Graph& graph, std::string_view author) : g(graph) { g.begin(author); }
  ~TransactionScope() {
    if (open && g.in_transaction()) g.rollback();
  }
  void commit() {
    open = false;  // commit rolls back by itself when its check fails
    g.commit();
  }
};

}  // namespace

std::string make_reproducer(const Graph& graph, const BoundPass& pass, std::string_view failure) {
  std::string first(failure.substr(0, failure.find('\n')));
  const std::string text = print_pipeline({pass});
  return "// tessera reproducer: pass '" + pass.factory->name + "' failed: " + first + "\n// pipeline: " + text +
         "\n// replay: tessera opt THIS_FILE --passes '" + text + "'\n" + print_graph(graph, TSR_PRINT_LOCATIONS);
}

PassReport run_passes(Graph& g, const std::vector<BoundPass>& pipeline, const PassOptions& o) {
  PassReport report;
  const auto begin = Clock::now();
  for (size_t k = 0; k < pipeline.size(); ++k) {
    const BoundPass& pass = pipeline[k];
    const std::string& name = pass.factory->name;
    PassRun run;
    run.name = name;
    run.nodes_before = run.nodes_after = g.num_live_nodes();

    const int64_t number = ++g_passes_run;
    if (o.bisect_limit >= 0) {
      run.skipped = number > o.bisect_limit;
      log_write(Artifact::kPasses, 0, std::string("bisect: ") + (run.skipped ? "not running" : "running") + " pass (" + std::to_string(number) +
                                 ") " + name + " on graph @" + g.tables().name);
      if (run.skipped) {
        report.runs.push_back(run);
        continue;
      }
    }

    const std::string base = file_safe(std::string(g.tables().name)) + "-" + file_safe(name);
    std::string standing;  // written before the pass, so that even a crash leaves it behind
    if (o.reproducer == Reproducer::kAlways)
      standing = write_file(o.reproducer_dir, "tessera-reproducer-" + base + ".tsr", make_reproducer(g, pass, "crash"));

    const auto start = Clock::now();
    try {
      TransactionScope transaction(g, name);
      int changed = 0;
      pass.factory->check(pass.factory->as<tsr_pass>().run(pass.factory->self, g.handle(), pass.options.view(), &changed));
      const bool edited = g.changed();
      if (edited && !changed)
        throw bug("TSR-B011", "plugin '" + pass.factory->plugin->id + "' (" + pass.factory->plugin->vendor + "): pass '" + name + "' edited the graph but reported no change",
                  "set *changed to 1 (return true from run)");
      run.changed = edited;
      run.seconds = seconds_since(start);
      if (o.verify == VerifyWhen::kEach || (o.verify == VerifyWhen::kChanged && run.changed)) {
        const auto verify_start = Clock::now();
        verify(g);  // before the commit: a broken graph is rolled back too
        run.verify_seconds = seconds_since(verify_start);
      }
      transaction.commit();
    } catch (const Error& e) {
      std::string hint = e.hint();
      // The transaction has been rolled back: the graph is as it was before the pass, which is what replays the failure.
      if (o.reproducer != Reproducer::kNone) {
        const std::string path = write_file(o.reproducer_dir, "tessera-reproducer-" + base + ".tsr", make_reproducer(g, pass, e.message()));
        if (!path.empty()) hint += (hint.empty() ? "" : "\n  ") + std::string("reproducer: ") + path;
      }
      throw Error(e.family(), e.code(), "pass '" + name + "' on graph @" + g.tables().name + ": " + e.message(), hint);
    }
    if (!standing.empty()) std::remove(standing.c_str());
    run.nodes_after = g.num_live_nodes();

    const bool dump = o.dump_after == DumpWhen::kAll || (o.dump_after == DumpWhen::kChanged && run.changed);
    if (dump || log_enabled(Artifact::kPasses, 1)) {
      const std::string title = "// after pass " + std::to_string(k + 1) + " " + name + (run.changed ? "" : " (no change)") + "\n";
      if (dump && !o.dump_dir.empty()) {
        char number_text[16];
        std::snprintf(number_text, sizeof number_text, "%02zu-", k + 1);
        const std::string file = number_text + base + ".tsr";
        if (write_file(o.dump_dir, file, title + print_graph(g, TSR_PRINT_LOCATIONS)).empty())
          throw environment_error("TSR-E010", "cannot write '" + o.dump_dir + "/" + file + "'", "choose another pipeline.dump_dir");
      } else if (dump || run.changed) {
        log_write(Artifact::kPasses, dump ? 0 : 1, title + print_graph(g, 0));
      }
    }
    report.runs.push_back(run);
  }
  report.seconds = seconds_since(begin);
  if (log_enabled(Artifact::kPasses, 0)) log_write(Artifact::kPasses, 0, print_timing_tree(report));
  return report;
}

std::string print_timing_tree(const PassReport& report) {
  char line[200];
  std::snprintf(line, sizeof line, "%10.3f ms  pipeline\n", report.seconds * 1e3);
  std::string s = line;
  for (const PassRun& r : report.runs) {
    if (r.skipped) {
      std::snprintf(line, sizeof line, "         -     |- %s (skipped by bisect)\n", r.name.c_str());
    } else {
      std::snprintf(line, sizeof line, "%10.3f ms  |- %-20s %6zu -> %6zu nodes%s\n", r.seconds * 1e3, r.name.c_str(), r.nodes_before,
                    r.nodes_after, r.changed ? "" : "  (no change)");
      s += line;
      if (r.verify_seconds <= 0) continue;
      std::snprintf(line, sizeof line, "%10.3f ms  |  `- verify\n", r.verify_seconds * 1e3);
    }
    s += line;
  }
  return s;
}

std::string timing_json(const PassReport& report) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const PassRun& r : report.runs)
    runs.push_back({{"pass", r.name}, {"ms", r.seconds * 1e3}, {"verify_ms", r.verify_seconds * 1e3}, {"changed", r.changed},
                    {"skipped", r.skipped}, {"nodes_before", r.nodes_before}, {"nodes_after", r.nodes_after}});
  return nlohmann::ordered_json{{"ms", report.seconds * 1e3}, {"passes", runs}}.dump();
}

PassOptions pass_options_of(const Config& config) {
  PassOptions o;
  const std::string& verify = config.get_string("pipeline.verify");
  o.verify = verify == "never" ? VerifyWhen::kNever : verify == "each" ? VerifyWhen::kEach : VerifyWhen::kChanged;
  const std::string& dump = config.get_string("pipeline.dump_after");
  o.dump_after = dump == "all" ? DumpWhen::kAll : dump == "changed" ? DumpWhen::kChanged : DumpWhen::kNone;
  o.dump_dir = config.get_string("pipeline.dump_dir");
  o.bisect_limit = config.get_int("pipeline.bisect_limit");
  const std::string& reproducer = config.get_string("pipeline.reproducer");
  o.reproducer = reproducer == "none" ? Reproducer::kNone : reproducer == "always" ? Reproducer::kAlways : Reproducer::kOnError;
  o.reproducer_dir = config.get_string("pipeline.reproducer_dir");
  if (o.reproducer_dir.empty()) o.reproducer_dir = (std::filesystem::temp_directory_path() / "tessera").string();
  return o;
}

}  // namespace tessera::core
