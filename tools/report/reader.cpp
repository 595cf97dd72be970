// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "report/report.hpp"

namespace tessera::report {

namespace {

constexpr const char* kSchemaName = "tessera.trace/";
constexpr int kMaxDepth = 64;            // of one line's JSON
constexpr size_t kProblemsPerFile = 20;  // then they are only counted

// Null: not JSON, not an object, or nested absurdly deep.
Json parse_line(const std::string& line) {
  bool too_deep = false;
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return depth <= kMaxDepth;
  };
  Json j = Json::parse(line, shallow, false);
  return too_deep || !j.is_object() ? Json() : j;
}

class Reader {
 public:
  Reader(std::istream& in, const std::string& file, Traces& traces) : in_(in), file_(file), traces_(traces) {}

  void read() {
    std::string line;
    while (std::getline(in_, line)) {
      ++number_;
      const bool whole = !in_.eof();  // a line that the end of the file ends has lost its newline
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      Json j = parse_line(line);
      if (j.is_null()) {
        if (!open_) return problem("this is no trace: the first line is not a JSON object", 0);
        problem(whole ? "this is no event of a trace" : "the last line is cut short: the process ended while it wrote it",
                number_);
        continue;
      }
      event(std::move(j));
      if (!open_) return;
    }
    if (number_ == 0) return problem("the file is empty", 0);
    if (dropped_ > 0) problem("and " + std::to_string(dropped_) + " more lines that are no events", 0, true);
  }

 private:
  void event(Json j) {
    const std::string kind = text_at(j, "event");
    if (!open_) {
      const std::string schema = text_at(j, "schema");
      if (kind != "process" || !schema.starts_with(kSchemaName))
        return problem("this is no trace: the first line is not a 'process' event of schema tessera.trace", 0);
      if (schema != std::string(kSchemaName) + "1") problem("schema " + schema + " is newer than this reader", number_);
      traces_.processes.push_back({file_, std::move(j), {}, false});
      open_ = true;
      return;
    }
    const auto number = [&](const char* key) { return j.contains(key) && j[key].is_number(); };
    if (kind.empty() || !number("t") || !number("thread")) return problem("an event without 'event', 't' or 'thread'", number_);
    Process& p = traces_.processes.back();
    if (kind == "process_end") p.ended = true;
    p.events.push_back(std::move(j));
  }

  void problem(std::string what, uint64_t line, bool always = false) {
    if (!always && ++problems_ > kProblemsPerFile) {
      ++dropped_;
      return;
    }
    traces_.problems.push_back({file_, line, std::move(what)});
  }

  std::istream& in_;
  const std::string& file_;
  Traces& traces_;
  uint64_t number_ = 0;
  size_t problems_ = 0, dropped_ = 0;
  bool open_ = false;
};

}  // namespace

std::string text_at(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

double number_at(const Json& object, const char* key, double fallback) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : fallback;
}

int64_t integer_at(const Json& object, const char* key, int64_t fallback) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number_integer() ? at->get<int64_t>() : fallback;
}

void read_trace(std::istream& in, const std::string& file, Traces& traces) { Reader(in, file, traces).read(); }

Traces read_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  Traces traces;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& path : files) {
    const std::string name = path.filename().string();
    std::error_code code;
    if (!fs::is_regular_file(path, code)) {
      traces.problems.push_back({name, 0, "this is no file, and was passed over"});
      continue;
    }
    if (name.ends_with(".html") || name.ends_with(".perfetto.json")) continue;
    if (!name.ends_with(".jsonl")) {
      traces.problems.push_back({name, 0, "this is no trace (its name does not end with .jsonl), and was passed over"});
      continue;
    }
    std::ifstream in(path, std::ios::binary);
    if (!in)
      traces.problems.push_back({name, 0, "cannot be read"});
    else
      read_trace(in, name, traces);
  }
  std::stable_sort(traces.processes.begin(), traces.processes.end(), [](const Process& a, const Process& b) {
    return integer_at(a.header, "unix_us") < integer_at(b.header, "unix_us");
  });
  return traces;
}

}  // namespace tessera::report
