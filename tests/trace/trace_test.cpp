// SPDX-License-Identifier: Apache-2.0
// The writer: what it promises about threads, crashes, forks, disks and bytes.
#include "trace/trace.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "log/log.hpp"
#include "schema.hpp"
#include "support/error.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

struct Recording {
  TemporaryFolder folder;
  Recording() { REQUIRE(start_trace(folder.path)); }
  ~Recording() { stop_trace(); }
  std::vector<Json> stop() {
    const std::string file = trace_file();
    stop_trace();
    std::vector<Json> out;
    for (const std::string& line : lines_of(file)) out.push_back(Json::parse(line));
    return out;
  }
};

struct Warnings {
  std::string text;
  LogSink before = set_log_sink([this](std::string_view lines) { text += lines; });
  ~Warnings() { set_log_sink(std::move(before)); }
};

// Runs f in a child and returns how that ended, as waitpid says.
template <class F>
int in_child(F&& f) {
  const pid_t child = fork();
  if (child == 0) {
    f();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("nothing is recorded until it is asked for") {
  CHECK_FALSE(trace_enabled());
  CHECK_FALSE(trace_details());
  CHECK(trace_file().empty());
  const TraceCompile scope({"function", "fn", "a.cpp:1", "0/0"});
  const TracePhase phase("capture");
  CHECK_FALSE(trace_details());
}

TEST_CASE("lines of many threads stay whole") {
  Recording recording;
  constexpr int kThreads = 8, kEvents = 500;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([i] {
      const TraceCompile scope({"function", "fn" + std::to_string(i), "a.cpp:1", {}});
      for (int k = 0; k < kEvents; ++k)
        TraceEvent("phase").text("name", std::string(static_cast<size_t>(k), 'x')).real("us", k).write();
    });
  for (std::thread& t : threads) t.join();
  const std::vector<Json> lines = recording.stop();
  CHECK(lines.size() == size_t{2 + kThreads * (kEvents + 2)});
  std::map<int64_t, std::set<int64_t>> compiles;  // by thread
  for (const Json& j : lines)
    if (j.contains("compile")) compiles[j["thread"].get<int64_t>()].insert(j["compile"].get<int64_t>());
  CHECK(compiles.size() == kThreads);
  for (const auto& [thread, ids] : compiles) CHECK(ids.size() == 1);
}

TEST_CASE("what was recorded before a kill is there, and the end is missing") {
  const TemporaryFolder folder;
  const int status = in_child([&] {
    start_trace(folder.path);
    const TraceCompile scope({"function", "fn", "a.cpp:1", "0/0"});
    for (int k = 0; k < 100; ++k) TraceEvent("phase").text("name", "p").real("us", k).write();
    std::raise(SIGKILL);
  });
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(folder.files().size() == 1);
  const std::vector<std::string> lines = lines_of(folder.files()[0]);
  REQUIRE(lines.size() == 102);
  CHECK(Json::parse(lines.front())["event"] == "process");
  CHECK(Json::parse(lines.back())["us"] == 99);
}

TEST_CASE("a forked child records into a file of its own") {
  Recording recording;
  TraceEvent("phase").text("name", "parent").real("us", 1).write();
  REQUIRE(in_child([&] { TraceEvent("phase").text("name", "child").real("us", 1).write(); }) == 0);
  TraceEvent("phase").text("name", "parent").real("us", 2).write();
  REQUIRE(recording.folder.files().size() == 2);
  std::set<int64_t> pids;
  for (const std::string& file : recording.folder.files()) {
    const std::vector<std::string> lines = lines_of(file);
    pids.insert(Json::parse(lines.at(0))["pid"].get<int64_t>());
    const std::string name = Json::parse(lines.at(1))["name"];
    for (size_t i = 1; i < lines.size(); ++i) CHECK(Json::parse(lines[i])["name"] == name);
  }
  CHECK(pids.size() == 2);
}

TEST_CASE("a folder that cannot be written is one warning and no trace") {
  const TemporaryFolder folder;
  const std::string file = folder.path + "/file";
  std::ofstream(file) << "not a folder";
  Warnings warnings;
  CHECK_FALSE(start_trace(file));
  CHECK_FALSE(trace_enabled());
  CHECK(warnings.text == "tessera: warning: nothing is recorded in '" + file + "': Not a directory\n");
}

TEST_CASE("a disk that is full ends the recording with one warning") {
  const TemporaryFolder folder;
  const std::string said = folder.path + "/said";
  const int status = in_child([&] {
    const rlimit small{2000, 2000};
    std::signal(SIGXFSZ, SIG_IGN);
    std::string text;
    set_log_sink([&](std::string_view lines) { text += lines; });
    start_trace(folder.path + "/trace");
    setrlimit(RLIMIT_FSIZE, &small);
    for (int k = 0; k < 100; ++k) TraceEvent("phase").text("name", "p").real("us", k).write();
    std::ofstream(said) << text << (trace_enabled() ? "on" : "off");
  });
  REQUIRE(status == 0);
  CHECK(lines_of(said) ==
        std::vector<std::string>{"tessera: warning: nothing more is recorded in '" + folder.path + "/trace': File too large",
                                 "off"});
}

TEST_CASE("any bytes make a line of JSON") {
  Recording recording;
  const std::string odd = std::string("a\"\\\n\r\t") + '\0' + "\xff\xc3 \xe2\x82\xac </script>";
  TraceEvent("phase").text("name", odd).real("us", std::numeric_limits<double>::infinity()).write();
  TraceEvent("log").texts("list", std::vector<std::string>{odd, ""}).json("deep", "{\n  \"a\": [\n    1\n  ]\n}").write();
  TraceEvent("phase").real("us", 1e300).write();
  const std::vector<Json> lines = recording.stop();
  REQUIRE(lines.size() == 5);
  CHECK(lines[1]["name"] == std::string("a\"\\\n\r\t") + '\0' + "\xef\xbf\xbd\xef\xbf\xbd \xe2\x82\xac </script>");
  CHECK(lines[1]["us"].is_null());
  CHECK(lines[2]["list"].size() == 2);
  CHECK(lines[2]["deep"] == Json::parse(R"({"a": [1]})"));
  CHECK(lines[3]["us"] == 1e300);
}

TEST_CASE("a compile that throws ends as failed, and so does the one around it") {
  Recording recording;
  CHECK_THROWS_AS(traced_compile({"function", "outer", "a.cpp:1", "0/0"},
                                 [&]() -> int {
                                   return traced_compile({"graph", "inner", {}, {}}, [&]() -> int {
                                     throw user_error("TSR-I003", "no such thing", "try another");
                                   });
                                 }),
                  Error);
  { const TraceCompile fine({"graph", "fine", {}, {}}); }
  std::vector<Json> ends, begins;
  for (const Json& j : recording.stop()) {
    if (j["event"] == "compile_end") ends.push_back(j);
    if (j["event"] == "compile_begin") begins.push_back(j);
  }
  REQUIRE(begins.size() == 3);
  CHECK(begins[1]["stack"] == Json::array({{{"compile", begins[0]["compile"]}, {"name", "outer"}, {"loc", "a.cpp:1"}}}));
  REQUIRE(ends.size() == 3);
  CHECK(ends[0]["error"] ==
        Json::parse(R"({"code": "TSR-I003", "family": "user", "message": "no such thing", "hint": "try another"})"));
  CHECK(ends[1]["ok"] == false);
  CHECK(ends[2]["ok"] == true);
}

TEST_CASE("artifacts without events of their own are recorded, printed or not") {
  Warnings printed;
  Recording recording;
  CHECK(log_enabled(Artifact::kKernelCode));
  CHECK_FALSE(log_enabled(Artifact::kKernelCode, 1));
  CHECK_FALSE(log_enabled(Artifact::kGuards));
  log_write(Artifact::kKernelCode, "void f();\nvoid g();");
  const std::vector<Json> lines = recording.stop();
  CHECK_FALSE(log_enabled(Artifact::kKernelCode));
  REQUIRE(lines.size() == 3);
  CHECK(lines[1]["artifact"] == "kernel_code");
  CHECK(lines[1]["text"] == "void f();\nvoid g();");
  CHECK(printed.text.empty());
}
