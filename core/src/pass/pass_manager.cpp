// SPDX-License-Identifier: Apache-2.0
#include "pass/pass_manager.hpp"

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
#include "support/clock.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/text.hpp"
#include "trace/trace.hpp"
#include "trace/trace_graph.hpp"

namespace tessera::core {
namespace {

using Clock = std::chrono::steady_clock;

// Counts over the process, so that one limit bisects a whole compilation, however many graphs it has.
std::atomic<int64_t> g_passes_started{0};

// "" when it cannot be written.
std::string write_file(const std::string& dir, const std::string& name, const std::string& text) {
  std::error_code ignored;
  std::filesystem::create_directories(dir, ignored);
  const std::string path = (std::filesystem::path(dir) / name).string();
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  return out ? path : std::string();
}

// A single-quoted word for a POSIX shell.
std::string shell_word(const std::string& s) {
  std::string q = "'";
  for (const char c : s) q += c == '\'' ? "'\\''" : std::string(1, c);
  return q + "'";
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
  const std::string first(failure.substr(0, failure.find('\n')));
  const std::string text = print_pipeline({pass});
  return "// tessera reproducer: pass '" + pass.factory->name + "' failed: " + first + "\n// pipeline: " + text +
         "\n// replay: tessera opt THIS_FILE --passes " + shell_word(text) + "\n" + print_graph(graph, kPrintLocations);
}

int64_t passes_started() { return g_passes_started; }

namespace {

class Runner {
 public:
  Runner(Graph& g, const PassOptions& o) : g_(g), o_(o), reproducer_dir_(o.reproducer_dir) {
    std::error_code none;
    if (reproducer_dir_.empty()) reproducer_dir_ = (std::filesystem::temp_directory_path(none) / "tessera").string();
  }

  // `position` counts from 1.
  PassRun run(const BoundPass& pass, size_t position) {
    PassRun run;
    run.name = pass.factory->name;
    run.nodes_before = run.nodes_after = g_.num_live_nodes();
    if (skip(pass)) {
      run.skipped = true;
      return run;
    }
    const std::string reproducer = "tessera-reproducer-" + base(pass) + ".tsr";
    std::string standing;  // written before the pass, so that even a crash leaves it behind
    if (o_.reproducer == Reproducer::kAlways) {
      standing = write_file(reproducer_dir_, reproducer, make_reproducer(g_, pass, "the process ended in it"));
      if (standing.empty()) cannot_write(reproducer_dir_, reproducer, "pipeline.reproducer_dir");
    }
    try {
      transform(pass, run);
    } catch (const Error& e) {
      // The transaction has been rolled back: the graph is as it was before the pass, which is what replays the failure.
      std::string hint = e.hint();
      if (o_.reproducer != Reproducer::kNone) {
        const std::string path = write_file(reproducer_dir_, reproducer, make_reproducer(g_, pass, e.message()));
        hint += (hint.empty() ? "" : "\n  ") +
                (path.empty() ? "no reproducer: cannot write to '" + reproducer_dir_ + "'" : "reproducer: " + path);
      }
      throw Error(e.family(), e.code(), "pass '" + run.name + "' on graph @" + g_.tables().name + ": " + e.message(), hint);
    }
    if (!standing.empty()) std::remove(standing.c_str());
    run.nodes_after = g_.num_live_nodes();
    trace(run, position);
    dump(pass, run, position);
    return run;
  }

 private:
  std::string base(const BoundPass& pass) const { return file_safe(g_.tables().name) + "-" + file_safe(pass.factory->name); }

  [[noreturn]] static void cannot_write(const std::string& dir, const std::string& file, const char* key) {
    throw environment_error("TSR-E010", "cannot write '" + dir + "/" + file + "'", std::string("choose another ") + key);
  }

  bool skip(const BoundPass& pass) const {
    const int64_t number = ++g_passes_started;
    if (o_.bisect_limit < 0) return false;
    const bool skipped = number > o_.bisect_limit;
    log_always(Artifact::kPasses, std::string("bisect: ") + (skipped ? "not running" : "running") + " pass (" +
                                      std::to_string(number) + ") " + pass.factory->name + " on graph @" + g_.tables().name);
    return skipped;
  }

  void transform(const BoundPass& pass, PassRun& run) {
    const Factory& f = *pass.factory;
    TransactionScope transaction(g_, f.name);
    const auto start = Clock::now();
    int claimed = 0;
    f.call("run", [&] { return f.as<tsr_pass>().run(f.self, g_.handle(), pass.options.view(), &claimed); });
    run.changed = g_.changed();
    run.seconds = seconds_since(start);
    const std::string blame = "plugin '" + f.plugin->id + "' (" + f.plugin->vendor + "): ";
    if (run.changed && !claimed)
      throw bug("TSR-B011", blame + "pass '" + f.name + "' edited the graph but reported no change",
                "set *changed to 1 (return true from run)");
    const auto check_start = Clock::now();
    try {
      // Before the commit: a broken graph is rolled back too.
      if (o_.verify == VerifyWhen::kEach || (o_.verify == VerifyWhen::kChanged && run.changed)) verify(g_);
      transaction.commit();
    } catch (const Error& e) {
      throw Error(e.family(), e.code(), (e.family() == TSR_BUG ? blame : "") + e.message(), e.hint());
    }
    run.verify_seconds = seconds_since(check_start);
  }

  void trace(const PassRun& run, size_t position) const {
    if (!trace_details()) return;
    const int64_t passed = static_cast<int64_t>((run.seconds + run.verify_seconds) * 1e9);
    TraceEvent("pass", trace_clock() - passed)
        .text("name", run.name)
        .number("position", static_cast<int64_t>(position))
        .real("us", run.seconds * 1e6)
        .real("verify_us", run.verify_seconds * 1e6)
        .flag("changed", run.changed)
        .number("nodes_before", static_cast<int64_t>(run.nodes_before))
        .number("nodes_after", static_cast<int64_t>(run.nodes_after))
        .write();
    if (run.changed) trace_graph(g_, "pass", run.name);
  }

  void dump(const BoundPass& pass, const PassRun& run, size_t position) const {
    const bool asked = o_.dump_after == DumpWhen::kAll || (o_.dump_after == DumpWhen::kChanged && run.changed);
    const bool logged = run.changed && log_enabled(Artifact::kPasses, 1);
    if (!asked && !logged) return;
    const std::string title =
        "// after pass " + std::to_string(position) + " " + run.name + (run.changed ? "" : " (no change)") + "\n";
    if (asked && !o_.dump_dir.empty()) {
      char number[32];
      std::snprintf(number, sizeof number, "%02zu-", position);
      const std::string file = number + base(pass) + ".tsr";
      if (write_file(o_.dump_dir, file, title + print_graph(g_, kPrintLocations)).empty())
        cannot_write(o_.dump_dir, file, "pipeline.dump_dir");
    } else {
      log_always(Artifact::kPasses, title + print_graph(g_, kPrintElideConstants));
    }
  }

  Graph& g_;
  const PassOptions& o_;
  std::string reproducer_dir_;
};

}  // namespace

PassReport run_passes(Graph& g, const std::vector<BoundPass>& pipeline, const PassOptions& options) {
  PassReport report;
  const auto begin = Clock::now();
  Runner runner(g, options);
  for (size_t k = 0; k < pipeline.size(); ++k) {
    end_if_interrupted();
    const InterruptScope whole(nullptr, nullptr);  // ended in the middle, a pass would be taken for one that fails
    report.runs.push_back(runner.run(pipeline[k], k + 1));
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
      std::snprintf(line, sizeof line, "%10.3f ms  |- %-20s %6zu -> %6zu nodes%s\n", r.seconds * 1e3, r.name.c_str(),
                    r.nodes_before, r.nodes_after, r.changed ? "" : "  (no change)");
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
    runs.push_back({{"pass", r.name},
                    {"ms", r.seconds * 1e3},
                    {"verify_ms", r.verify_seconds * 1e3},
                    {"changed", r.changed},
                    {"skipped", r.skipped},
                    {"nodes_before", r.nodes_before},
                    {"nodes_after", r.nodes_after}});
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
  return o;
}

}  // namespace tessera::core
