// SPDX-License-Identifier: Apache-2.0
// From a folder of traces (docs/trace.md) to a report (docs/report.md). Whatever the files hold, reading never fails: what
// cannot be understood becomes a problem that the report shows.
#pragma once

#include <cstdint>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::report {

using Json = nlohmann::ordered_json;

struct Problem {
  std::string file;  // its name in the folder
  uint64_t line;     // from 1; 0: the file as a whole
  std::string what;
};

struct Process {  // one file
  std::string file;
  Json header;               // the event "process"
  std::vector<Json> events;  // the others, in the order of the file; each is an object with "event", "t" and "thread"
  bool ended = false;        // in order
};

struct Traces {
  std::vector<Process> processes;  // by time of their start
  std::vector<Problem> problems;
};

// Every file of the folder whose name ends with ".jsonl"; any other is a problem, unless it is an earlier report (".html",
// ".perfetto.json"). Throws std::filesystem::filesystem_error when the folder cannot be listed.
Traces read_folder(const std::string& folder);
// Appends a process, if the text begins as one.
void read_trace(std::istream& in, const std::string& file, Traces& traces);

// What the page shows: "summary", "problems", "processes", "compiles" (with everything that happened in each), "events" (of
// dispatch) and "small" (single ops and constants, counted). Times are microseconds since the first process began.
Json make_model(const Traces& traces);

// One self-contained HTML page.
std::string make_page(const Json& model);

// The JSON trace-event format that Perfetto (ui.perfetto.dev) and chrome://tracing open.
std::string make_perfetto(const Json& model);

// Members of events by type, with a default for what is missing or of another type.
std::string text_at(const Json& object, const char* key);
double number_at(const Json& object, const char* key, double fallback = 0);
int64_t integer_at(const Json& object, const char* key, int64_t fallback = 0);

}  // namespace tessera::report
