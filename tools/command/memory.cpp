// SPDX-License-Identifier: Apache-2.0
// What a training step can save of memory, and at what cost in time.
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "json.hpp"
#include "session.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * part);
  return text;
}

double peak_of(const Json& plan) { return plan.at("peak_bytes").is_null() ? -1 : plan.at("peak_bytes").get<double>(); }
double time_of(const Json& plan) { return plan.value("recompute_ms", 0.0); }

std::string table_of(const Json& plans) {
  Table table("rrrrrr", {"peak", "activations", "computed again", "of a step", "before fusion", "gap"});
  for (const Json& p : plans) {
    const double step = p.value("step_ms", 0.0);
    table.row({peak_of(p) < 0 ? "-" : bytes_text(peak_of(p)), bytes_text(p.value("saved_bytes", 0.0)), ms_text(time_of(p)),
               step > 0 ? percent(time_of(p) / step) : "-", step > 0 ? percent(p.value("unfused_ms", 0.0) / step) : "-",
               p.at("gap").is_null() ? "-" : percent(p.at("gap").get<double>())});
  }
  return table.text();
}

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", v);
  return text;
}

// The front as steps: below each point lies what no plan of this list gives.
std::string drawing_of(const Json& plans, const std::string& title) {
  constexpr double kWidth = 640, kHeight = 400, kLeft = 90, kRight = 20, kTop = 40, kBottom = 60;
  double most_bytes = 1, most_time = 1e-9;
  for (const Json& p : plans) {
    most_bytes = std::max(most_bytes, peak_of(p));
    most_time = std::max(most_time, time_of(p));
  }
  const auto x = [&](double time) { return kLeft + time / most_time * (kWidth - kLeft - kRight); };
  const auto y = [&](double bytes) { return kHeight - kBottom - bytes / most_bytes * (kHeight - kTop - kBottom); };
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"400\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"640\" height=\"400\" fill=\"white\"/>\n";
  const auto text = [&](double at_x, double at_y, const char* anchor, const std::string& what) {
    std::string safe;
    for (const char c : what) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
    svg += "<text x=\"" + number(at_x) + "\" y=\"" + number(at_y) + "\" text-anchor=\"" + anchor + "\">" + safe + "</text>\n";
  };
  text(kWidth / 2, 20, "middle", title);
  text((kLeft + kWidth - kRight) / 2, kHeight - 15, "middle", "time computed again per step");
  for (int k = 0; k <= 4; ++k) {
    const double bytes = most_bytes * k / 4, time = most_time * k / 4;
    svg += "<line x1=\"" + number(kLeft) + "\" x2=\"" + number(kWidth - kRight) + "\" y1=\"" + number(y(bytes)) + "\" y2=\"" +
           number(y(bytes)) + "\" stroke=\"#ddd\"/>\n";
    text(kLeft - 6, y(bytes) + 4, "end", bytes_text(bytes));
    text(x(time), kHeight - kBottom + 18, "middle", ms_text(time));
  }
  std::string line;
  for (const Json& p : plans) {
    if (peak_of(p) < 0) continue;
    if (!line.empty()) line += " H" + number(x(time_of(p))) + " V" + number(y(peak_of(p)));
    if (line.empty()) line = "M" + number(x(time_of(p))) + " " + number(y(peak_of(p)));
  }
  svg += "<path d=\"" + line + "\" fill=\"none\" stroke=\"#2166ac\" stroke-width=\"2\"/>\n";
  for (const Json& p : plans)
    if (peak_of(p) >= 0)
      svg += "<circle cx=\"" + number(x(time_of(p))) + "\" cy=\"" + number(y(peak_of(p))) + "\" r=\"3\" fill=\"#2166ac\"/>\n";
  return svg + "</svg>\n";
}

}  // namespace

int memory(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  std::string file, drawing;
  bool values = false, progress_lines = false;
  options.positional("MODEL", &file);
  context.add_to(options, true, false);
  options.value("svg", "FILE", &drawing, "Draw the plans as peak over time computed again.");
  options.flag("values", &values, "Name what each plan computes again.");
  options.flag("progress", &progress_lines, "Say on stderr, in plain lines, what takes more than a second.");
  if (!options.parse(args)) return kOk;
  // Plans are those of a partitioner: without one in the config, of the one that keeps to budgets.
  const auto names_one = [](const std::string& o) { return o.starts_with("partitioner.name"); };
  if (std::none_of(context.overrides.begin(), context.overrides.end(), names_one) && context.config.empty())
    context.overrides.emplace_back("partitioner.name=budget");

  Progress progress(progress_lines);
  progress.phase("loading plugins");
  const embed::Context c(context.options());
  progress.phase("reading " + file);
  embed::Graph graph = c.load(file);
  progress.phase("finding plans");
  const std::string text = c.memory_plans(std::move(graph));
  progress.finish();
  const Json plans = Json::parse(text);
  if (!drawing.empty()) write_file(drawing, drawing_of(plans, "Memory of a step of " + file));
  if (options.json()) {
    std::cout << plans.dump(2) << "\n";
    return kOk;
  }
  std::cout << table_of(plans);
  if (values)
    for (const Json& p : plans) {
      std::string names;
      for (const Json& v : p.at("recomputed")) names += (names.empty() ? "%" : ", %") + v.get<std::string>();
      std::cout << "\nat a peak of " << (peak_of(p) < 0 ? "-" : bytes_text(peak_of(p))) << ": "
                << (names.empty() ? "nothing" : names) << "\n";
    }
  return kOk;
}

}  // namespace tessera::command
