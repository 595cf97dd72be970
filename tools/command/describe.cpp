// SPDX-License-Identifier: Apache-2.0
#include "describe.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "json.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

std::string word_at(const Json& row, const char* key) {
  const auto at = row.find(key);
  return at != row.end() && at->is_string() ? at->get<std::string>() : "";
}

std::string names(const Json& row, const char* key) {
  std::string out;
  for (const Json& n : row.value(key, Json::array()))
    out += (out.empty() ? "" : " ") + (n.is_string() ? n.get<std::string>() : "_");
  return out;
}

void count_from(const Json& before, Json& after) {
  const Json& old_steps = before.at("steps");
  Json& steps = after.at("steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    const Json& old = old_steps.at(i);
    Json& step = steps[i];
    const auto total = [](const Json& s) {
      return s["measured_ms"].is_number() ? s["measured_ms"].get<double>() * s["measured_runs"].get<double>() : 0.0;
    };
    const int64_t runs = step["measured_runs"].get<int64_t>() - old["measured_runs"].get<int64_t>();
    step["measured_ms"] = runs > 0 ? Json((total(step) - total(old)) / static_cast<double>(runs)) : Json(nullptr);
    step["measured_runs"] = runs;
    if (step.contains("regions"))
      for (size_t r = 0; r < step["regions"].size(); ++r) count_from(old["regions"].at(r), step["regions"][r]);
  }
}

struct Measured {
  double ms;  // of one call
  std::string number;
  Json step;
};

double total(const Json& step) {
  const Json measured = step.value("measured_ms", Json());
  return measured.is_number() ? measured.get<double>() * step.value("measured_runs", 0.0) : 0;
}

// The steps of `plan`, which takes `call_ms` of a call (negative: each step what was measured). Steps of nested plans share the
// time of their control step: turns that threads run side by side take less time than they add up to.
void collect(const Json& plan, const std::string& prefix, double call_ms, std::vector<Measured>& out) {
  double sum = 0;
  for (const Json& step : plan.value("steps", Json::array())) sum += total(step);
  for (const Json& step : plan.value("steps", Json::array())) {
    if (!step.value("measured_ms", Json()).is_number()) continue;
    const double ms = call_ms < 0 ? step["measured_ms"].get<double>() : sum > 0 ? call_ms * total(step) / sum : 0;
    const std::string number = prefix + std::to_string(step.value("index", 0));
    const Json regions = step.value("regions", Json::array());
    double inside = 0;
    for (const Json& r : regions)
      for (const Json& s : r.value("steps", Json::array())) inside += total(s);
    if (inside <= 0) {
      out.push_back({ms, number, step});
      continue;
    }
    for (size_t r = 0; r < regions.size(); ++r) {
      double part = 0;
      for (const Json& s : regions[r].value("steps", Json::array())) part += total(s);
      collect(regions[r], number + "." + std::to_string(r) + ".", ms * part / inside, out);
    }
  }
}

}  // namespace

std::string steps_text(const std::string& description) {
  const Json d = Json::parse(description);
  std::vector<Measured> rows;
  collect(d, "", -1, rows);
  double sum = 0;
  for (const Measured& r : rows) sum += r.ms;
  std::stable_sort(rows.begin(), rows.end(), [](const Measured& a, const Measured& b) { return a.ms > b.ms; });
  Table table("rrrllll", {"part", "mean", "step", "op", "kernel", "results", "from"});
  for (const Measured& r : rows) {
    char part[16];
    std::snprintf(part, sizeof part, "%.1f %%", sum > 0 ? 100 * r.ms / sum : 0.0);
    table.row({part, ms_text(r.ms), r.number, word_at(r.step, "op"), word_at(r.step, "kernel"), names(r.step, "results"),
               word_at(r.step, "loc")});
  }
  return table.text() + "\nall steps: " + ms_text(sum) + "\n";
}

std::string measured_since(const std::string& before, const std::string& after) {
  Json d = Json::parse(after);
  count_from(Json::parse(before), d);
  return d.dump();
}

}  // namespace tessera::command
