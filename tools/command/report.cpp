// SPDX-License-Identifier: Apache-2.0
#include "report/report.hpp"

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "json.hpp"
#include "options.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {

namespace {

std::string where(const report::Problem& p) { return p.file + (p.line ? ":" + std::to_string(p.line) : ""); }

// "3 compiles"
std::string counted(const Json& summary, const char* key, const char* one) {
  const int64_t n = summary.value(key, int64_t{0});
  return std::to_string(n) + " " + one + (n == 1 ? "" : std::string_view(one).ends_with("ss") ? "es" : "s");
}

}  // namespace

int report_traces(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  std::string folder, output, perfetto;
  options.positional("DIR", &folder);
  options.value("output,o", "FILE.html", &output, "Write the page there (default: DIR/report.html).");
  options.value("perfetto", "FILE.json", &perfetto, "Write the Perfetto trace there (default: beside the page).");
  if (!options.parse(args)) return kOk;

  std::error_code code;
  if (!std::filesystem::is_directory(folder, code))
    throw usage_error("TSR-U008", quote(folder) + " is not a folder", "name the folder that TESSERA_TRACE named");
  report::Traces traces;
  try {
    traces = report::read_folder(folder);
  } catch (const std::filesystem::filesystem_error& e) {
    throw Error(TSR_ENVIRONMENT, "TSR-U008", quote(folder) + " cannot be read: " + e.code().message(), "");
  }
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < traces.problems.size() && i < kShown; ++i)
    std::cerr << styled(Style::kYellow, "warning", 2) << ": " << where(traces.problems[i]) << ": " << traces.problems[i].what
              << "\n";
  if (traces.problems.size() > kShown)
    std::cerr << styled(Style::kYellow, "warning", 2) << ": and " << traces.problems.size() - kShown
              << " more; the page lists them\n";
  if (traces.processes.empty())
    throw usage_error("TSR-U011", quote(folder) + " holds no trace", "record one: TESSERA_TRACE=" + folder + " PROGRAM");

  if (output.empty()) output = (std::filesystem::path(folder) / "report.html").string();
  if (perfetto.empty()) perfetto = std::filesystem::path(output).replace_extension(".perfetto.json").string();
  const Json model = report::make_model(traces);
  write_file(output, report::make_page(model));
  write_file(perfetto, report::make_perfetto(model));
  const Json& summary = model["summary"];
  if (options.json()) {
    print_json(
        "tessera.report/1",
        {{"folder", folder}, {"page", output}, {"perfetto", perfetto}, {"summary", summary}, {"problems", model["problems"]}});
    return kOk;
  }
  std::cout << counted(summary, "processes", "process") << ", " << counted(summary, "functions", "function") << ", "
            << counted(summary, "compiles", "compile") << ", " << counted(summary, "recompiles", "recompile") << ", "
            << counted(summary, "graph_breaks", "graph break") << "\n"
            << "page: " << output << "\n"
            << "for ui.perfetto.dev: " << perfetto << "\n";
  return kOk;
}

}  // namespace tessera::command
