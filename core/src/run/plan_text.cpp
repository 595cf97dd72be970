// SPDX-License-Identifier: Apache-2.0
// The step table and the memory plan of an executable as `tessera run --memory` and the log artifact "plan" print them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "run/executable.hpp"
#include "support/text.hpp"

namespace tessera::core {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 11;
using Row = std::array<std::string, kColumns>;
constexpr std::string_view kColumnAlignment = "lllllllrrrl";

std::string cell(const Json& step, const char* key) { return step[key].is_string() ? step[key].get<std::string>() : ""; }

std::string bytes_cell(const Json& bytes) { return bytes.is_number() ? bytes_text(bytes.get<double>()) : "varies"; }

std::string time_cell(const Json& ms) {
  if (!ms.is_number()) return "-";
  struct Unit {
    double below_ms, factor;
    const char* format;
  };
  static constexpr Unit kUnits[] = {
      {1e-3, 1e6, "%.0f ns"}, {1, 1e3, "%.3g us"}, {1e3, 1, "%.4g ms"}, {HUGE_VAL, 1e-3, "%.4g s"}};
  const double value = ms.get<double>();
  const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits) - 1, [&](const Unit& u) { return value < u.below_ms; });
  char text[64];
  std::snprintf(text, sizeof text, unit->format, value * unit->factor);
  return text;
}

std::string value_names(const Json& values) {
  std::string out;
  for (const Json& v : values) out += (out.empty() ? "" : " ") + (v.is_string() ? v.get<std::string>() : "_");
  return out;
}

void add_steps(std::vector<Row>& rows, const Json& plan, const std::string& prefix) {
  for (const Json& s : plan["steps"]) {
    const std::string number = prefix + std::to_string(s["index"].get<int64_t>());
    rows.push_back({number, cell(s, "kind"), cell(s, "op"), value_names(s["results"]), value_names(s["operands"]),
                    cell(s, "backend"), cell(s, "kernel"), bytes_cell(s["bytes"]), bytes_cell(s["workspace_bytes"]),
                    time_cell(s["measured_ms"]), cell(s, "loc")});
    size_t region = 0;
    for (const Json& nested : s.value("regions", Json::array()))
      add_steps(rows, nested, number + "." + std::to_string(region++) + ".");
  }
}

// Columns that UTF-8 text takes, as far as one per code point holds.
size_t width(std::string_view s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string table(const std::vector<Row>& rows) {
  std::array<size_t, kColumns> widths{};
  for (const Row& row : rows)
    for (size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], width(row[c]));
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t c = 0; c < kColumns; ++c) {
      const std::string pad(widths[c] - width(row[c]), ' ');
      line += (c ? "  " : "") + (kColumnAlignment[c] == 'r' ? pad + row[c] : row[c] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace

std::string Executable::plan_text() const {
  const Json plan = Json::parse(describe_json());
  std::vector<Row> rows = {
      {"step", "kind", "op", "results", "operands", "backend", "kernel", "bytes", "workspace", "measured", "from"}};
  add_steps(rows, plan, "");
  const Json& memory = plan["memory"];
  std::string out = table(rows) + "\n";
  for (const char* what : {"arena", "output", "constant", "peak"})
    out += std::string(what) + ": " + bytes_cell(memory[std::string(what) + "_bytes"]) + "\n";
  // What kernels keep of their own, as most plans have none of it.
  if (memory["kernel_bytes"] > 0) out += "kept by kernels: " + bytes_cell(memory["kernel_bytes"]) + "\n";
  if (memory["mapped_bytes"] > 0) out += "mapped from the cache: " + bytes_cell(memory["mapped_bytes"]) + "\n";
  return out;
}

}  // namespace tessera::core
