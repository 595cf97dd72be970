// SPDX-License-Identifier: Apache-2.0
// Traces of real programs, line by line against docs/trace.md.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "schema.hpp"

using namespace tessera::test;

namespace {

std::string source(const std::string& path) {
  const char* dir = std::getenv("TESSERA_SOURCE_DIR");
  return std::string(dir ? dir : ".") + "/" + path;
}

// The events of one run, all of them valid.
std::vector<Json> record(const std::string& command) {
  const TemporaryFolder folder;
  INFO(command);
  REQUIRE(std::system(("TESSERA_TRACE='" + folder.path + "' " + command + " > /dev/null").c_str()) == 0);
  REQUIRE(folder.files().size() == 1);
  const TraceSchema schema;
  std::vector<Json> events;
  for (const std::string& line : lines_of(folder.files()[0])) {
    INFO(line.substr(0, 500));
    CHECK(schema.fault(line) == "");
    events.push_back(Json::parse(line));
  }
  REQUIRE(events.size() > 2);
  CHECK(events.front()["event"] == "process");
  CHECK(events.back()["event"] == "process_end");
  return events;
}

std::vector<Json> select(const std::vector<Json>& events, const std::string& kind) {
  std::vector<Json> out;
  for (const Json& e : events)
    if (e["event"] == kind) out.push_back(e);
  return out;
}

// Every compile begins once and ends once, and events of a compile lie between.
void check_compiles(const std::vector<Json>& events) {
  std::map<int64_t, int> open;
  for (const Json& e : events) {
    if (!e.contains("compile")) continue;
    const int64_t id = e["compile"];
    if (e["event"] == "compile_begin") CHECK(open[id]++ == 0);
    CHECK(open[id] == 1);
    if (e["event"] == "compile_end") ++open[id];
  }
  for (const auto& [id, state] : open) CHECK(state == 2);
}

}  // namespace

#ifdef PROGRAM_tessera_command
TEST_CASE("a run of the command records passes, graphs, kernels and steps") {
  const std::vector<Json> events =
      record(std::string(PROGRAM_tessera_command) + " run " + source("tests/cli/files/mlp.tsr") + " --dim s0=4");
  check_compiles(events);
  CHECK(select(events, "context").size() == 1);
  const std::vector<Json> compiles = select(events, "compile_begin");
  REQUIRE(compiles.size() >= 1);
  CHECK(compiles[0]["kind"] == "graph");
  CHECK(select(events, "pass").size() == 8);
  const std::vector<Json> graphs = select(events, "graph");
  REQUIRE(graphs.size() >= 2);
  CHECK(graphs.front()["stage"] == "input");
  CHECK(graphs.back()["stage"] == "final");
  const std::vector<Json> steps = select(events, "steps");
  REQUIRE(steps.size() == 1);
  CHECK(steps[0]["executable"]["steps"].size() > 0);
  CHECK(select(events, "kernel").size() > 0);
}
#endif

#ifdef PROGRAM_mlp
TEST_CASE("a program that compiles functions records them") {
  const std::vector<Json> events = record(PROGRAM_mlp);
  check_compiles(events);
  CHECK(select(events, "steps").size() > 0);
  REQUIRE(select(events, "guards").size() > 0);
  for (const Json& b : select(events, "compile_begin"))
    if (b["kind"] == "function") CHECK(b["loc"].get<std::string>().find("main.cpp:") != std::string::npos);
  std::set<std::string> phases;
  for (const Json& p : select(events, "phase")) phases.insert(p["name"].get<std::string>());
  CHECK(phases.count("capture") == 1);
}

TEST_CASE("a second process starts dynamic, and takes what the first one compiled") {
  const TemporaryFolder cache;
  const std::string command = "TESSERA_CACHE_DIR='" + cache.path + "' " + PROGRAM_mlp;
  const auto functions = [](const std::vector<Json>& events) {
    std::map<std::string, int> compiles;
    for (const Json& e : select(events, "compile_begin"))
      if (e["kind"] == "function") ++compiles[e["name"].get<std::string>() + e["loc"].get<std::string>()];
    return compiles;
  };
  const auto cached = [](const std::vector<Json>& events) {
    std::map<std::string, int> count;
    for (const Json& e : select(events, "cache")) ++count[e["what"].get<std::string>() + " " + e["kind"].get<std::string>()];
    return count;
  };
  const std::vector<Json> first = record(command);
  CHECK(cached(first)["store graph"] == 2);
  CHECK(cached(first)["store profile"] == 1);
  CHECK(functions(first).begin()->second == 2);  // the size of its batch changes
  const std::vector<Json> second = record(command);
  check_compiles(second);
  for (const auto& [name, compiles] : functions(second)) CHECK(compiles == 1);
  CHECK(cached(second)["hit graph"] == 1);
  CHECK(cached(second)["hit profile"] == 1);
  CHECK(cached(second).count("miss graph") == 0);
  CHECK(select(second, "recompile").empty());
  CHECK(select(second, "pass").empty());
}
#endif

#if defined(PROGRAM_tessera_command) && defined(PROGRAM_mlp) && defined(PROGRAM_graph_breaks) && defined(PROGRAM_recompiles)
TEST_CASE("every documented event is recorded by some program") {
  const TemporaryFolder cache;
  std::set<std::string> recorded;
  for (const std::string program : {PROGRAM_mlp, PROGRAM_graph_breaks, PROGRAM_recompiles}) {
    const std::vector<Json> events = record("TESSERA_CACHE_DIR='" + cache.path + "' " + program);
    for (const Json& e : events) recorded.insert(e["event"].get<std::string>());
    check_compiles(events);
  }
  CHECK(recorded == TraceSchema().events());
}
#endif
