// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <iostream>

#include "golden.hpp"
#include "json.hpp"
#include "session.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

// The pass report as a tree, for people.
std::string timing_tree(const Json& report) {
  Table table("rlrl", {"time", "pass", "nodes", ""});
  table.row({ms_text(report.value("ms", 0.0)), "pipeline", "", ""});
  for (const Json& run : report.value("passes", Json::array())) {
    const std::string nodes =
        std::to_string(run.value("nodes_before", 0)) + " -> " + std::to_string(run.value("nodes_after", 0));
    if (run.value("skipped", false)) {
      table.row({"-", "|- " + run.value("pass", ""), "", "skipped by the bisect limit"});
      continue;
    }
    table.row(
        {ms_text(run.value("ms", 0.0)), "|- " + run.value("pass", ""), nodes, run.value("changed", false) ? "" : "no change"});
    if (const double verify = run.value("verify_ms", 0.0); verify > 0) table.row({ms_text(verify), "|  `- verify", "", ""});
  }
  return table.text();
}

}  // namespace

int opt(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  std::string file, passes, dump_after, dump_dir, verify, output;
  int64_t bisect = -1;
  bool timing = false, locations = false, authors = false, check = false, progress_lines = false;
  options.positional("FILE", &file);
  options.value("passes,p", "LIST", &passes,
                "Passes in order, with options: \"canonicalize,fuse{max_size=64}\"; default: the config's; '' for none.");
  context.add_to(options, true, false);
  options.value("output,o", "FILE", &output, "Write the text there instead of to stdout.");
  options.choice("dump-after", {"none", "changed", "all"}, &dump_after,
                 "Print the graph after passes that changed it, or after all.");
  options.value("dump-dir", "DIR", &dump_dir, "Write those dumps as files there; default: to stderr.");
  options.choice("verify", {"changed", "never", "each"}, &verify, "When the whole-graph verifier runs.");
  options.integer("bisect-limit", "N", &bisect, -1, INT64_MAX, "Run only the first N passes; every decision is logged.");
  options.flag("timing", &timing, "Print the time of every pass to stderr.");
  options.flag("locations", &locations, "Print source locations.");
  options.flag("authors", &authors, "Print which pass made or last edited each node.");
  options.flag("check", &check, "Compare the text with the lines of FILE that begin with '//| '.");
  options.flag("progress", &progress_lines, "Say on stderr, in plain lines, what takes more than a second.");
  if (!options.parse(args)) return kOk;

  const auto set = [&](const char* key, const std::string& value) {
    context.overrides.push_back(std::string(key) + "=" + Json(value).dump());
  };
  if (options.given("dump-after")) set("pipeline.dump_after", dump_after);
  if (options.given("dump-dir")) {
    set("pipeline.dump_dir", dump_dir);
    if (!options.given("dump-after")) set("pipeline.dump_after", "changed");
  }
  if (options.given("verify")) set("pipeline.verify", verify);
  if (options.given("bisect-limit")) context.overrides.push_back("pipeline.bisect_limit=" + std::to_string(bisect));
  // Dumps without a directory and the decisions of a bisection are log lines: what was asked for must be seen.
  const bool dumps_to_log = options.given("dump-after") && dump_after != "none" && dump_dir.empty();
  if ((dumps_to_log || options.given("bisect-limit")) && !std::getenv("TESSERA_LOGS")) set("log.artifacts", "passes");

  Progress progress(progress_lines);
  progress.phase("loading plugins");
  const embed::Context c(context.options());
  progress.phase("reading " + file);
  embed::Graph graph = file == "-" ? c.parse(read_file(file), "<stdin>") : c.load(file);
  progress.phase("running passes");
  std::string report = R"({"ms": 0, "passes": []})";
  if (!options.given("passes"))
    report = c.run_passes(graph);
  else if (passes.find_first_not_of(" ,") != passes.npos)
    report = c.run_passes(graph, passes);
  else
    graph.verify();
  progress.finish();

  const std::string text = graph.print((locations ? TSR_PRINT_LOCATIONS : 0) | (authors ? TSR_PRINT_AUTHORS : 0));
  const Json parsed = Json::parse(report);
  if (timing) std::cerr << timing_tree(parsed);
  if (!output.empty()) write_file(output, text);
  int status = kOk;
  if (check) status = check_expectation(file, text);
  if (options.json()) {
    Json document = {{"file", file},
                     {"output", output.empty() ? Json() : Json(output)},
                     {"text", output.empty() ? Json(text) : Json()},
                     {"report", parsed}};
    if (check) document["check"] = status == kOk;
    print_json("tessera.opt/1", document);
  } else if (!check && output.empty()) {
    std::cout << text;
  }
  return status;
}

}  // namespace tessera::command
