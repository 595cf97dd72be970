// SPDX-License-Identifier: Apache-2.0
#include "report/report.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace tessera::report;

namespace {

const char* const kHeader =
    R"({"event":"process","t":0,"thread":0,"schema":"tessera.trace/1","pid":7,"unix_us":1000000,"command":"prog","version":"0.1.0"})";

// A process with a function that is compiled, recompiled and breaks, and one that fails.
const char* const kEvents = R"lines(
{"event":"context","t":5,"thread":0,"config":"default.toml","mode":"default","loaded":{"plugins":[]}}
{"event":"compile_begin","t":10,"thread":0,"compile":1,"kind":"function","name":"fn","loc":"a.cpp:1","entry":"0/0","stack":[]}
{"event":"phase","t":11,"thread":0,"compile":1,"name":"capture","us":4}
{"event":"graph","t":15,"thread":0,"compile":1,"stage":"captured","name":"fn","nodes":1,"text":"graph @fn</script>"}
{"event":"graph_break","t":16,"thread":0,"compile":1,"name":"fn","loc":"a.cpp:1","entry":"0/0","code":"TSR-G101","place":"a.cpp:3","what":"item()","why":"w","hint":"h"}
{"event":"compile_begin","t":17,"thread":0,"compile":2,"kind":"constant","name":"add","stack":[{"compile":1,"name":"fn","loc":"a.cpp:1"}]}
{"event":"compile_end","t":19,"thread":0,"compile":2,"us":2,"ok":true}
{"event":"guards","t":20,"thread":0,"compile":1,"entry":"0/0","guards":["x.size(0) == 3"]}
{"event":"compile_end","t":30,"thread":0,"compile":1,"us":20,"ok":true}
{"event":"recompile","t":40,"thread":0,"name":"fn","loc":"a.cpp:1","entry":"0/1","reasons":[{"entry":"0/0","guards":["x.size(0) == 3"]}]}
{"event":"compile_begin","t":41,"thread":0,"compile":3,"kind":"function","name":"fn","loc":"a.cpp:1","entry":"0/1","stack":[]}
{"event":"compile_end","t":51,"thread":0,"compile":3,"us":10,"ok":false,"error":{"code":"TSR-I003","message":"m","hint":""}}
{"event":"compile_begin","t":60,"thread":1,"compile":4,"kind":"passes","name":"net","stack":[]}
{"event":"pass","t":61,"thread":1,"compile":4,"name":"cse","position":1,"us":1,"verify_us":1,"changed":true,"nodes_before":2,"nodes_after":1}
{"event":"compile_end","t":70,"thread":1,"compile":4,"us":10,"ok":true}
{"event":"compile_begin","t":71,"thread":1,"compile":5,"kind":"graph","name":"net","stack":[]}
{"event":"compile_end","t":90,"thread":1,"compile":5,"us":19,"ok":true}
{"event":"process_end","t":100,"thread":0}
)lines";

Traces parsed(const std::string& text) {
  Traces traces;
  std::istringstream in(text);
  read_trace(in, "a.jsonl", traces);
  return traces;
}

std::vector<std::string> problems(const Traces& t) {
  std::vector<std::string> out;
  for (const Problem& p : t.problems) out.push_back(std::to_string(p.line) + ": " + p.what);
  return out;
}

}  // namespace

TEST_CASE("events become compiles with what happened in them") {
  const Traces traces = parsed(std::string(kHeader) + kEvents);
  REQUIRE(traces.problems.empty());
  REQUIRE(traces.processes.size() == 1);
  CHECK(traces.processes[0].ended);
  const Json m = make_model(traces);
  const Json& s = m["summary"];
  CHECK(s["functions"] == 2);
  CHECK(s["compiles"] == 3);
  CHECK(s["failed"] == 1);
  CHECK(s["recompiles"] == 1);
  CHECK(s["graph_breaks"] == 1);
  CHECK(m["small"]["constant"]["add"] == Json({{"count", 1}, {"us", 2.0}}));
  const Json& first = m["compiles"][0];
  CHECK(first["us"] == 20.0);
  CHECK(first["guards"] == Json::array({"x.size(0) == 3"}));
  CHECK(first["breaks"].size() == 1);
  CHECK(first["phases"][0]["t"] == 11.0);
  CHECK_FALSE(first.contains("recompile"));
  const Json& second = m["compiles"][1];
  CHECK(second["ok"] == false);
  CHECK(second["recompile"]["reasons"].size() == 1);
  // Passes and compile of one graph are one.
  const Json& third = m["compiles"][2];
  CHECK(third["kind"] == "graph");
  CHECK(third["passes"].size() == 1);
  CHECK(third["t"] == 60.0);
  CHECK(third["us"] == 30.0);
}

TEST_CASE("a trace that was cut short is read up to there") {
  const std::string whole = std::string(kHeader) + kEvents;
  for (size_t length = std::string(kHeader).size() + 1; length < whole.size(); ++length) {
    const Traces traces = parsed(whole.substr(0, length));
    REQUIRE(traces.processes.size() == 1);
    CHECK(traces.problems.size() <= 1);
    if (!traces.problems.empty())
      CHECK(traces.problems[0].what == "the last line is cut short: the process ended while it wrote it");
    const Json m = make_model(traces);
    for (const Json& c : m["compiles"]) CHECK((c["us"].is_null() || c["us"].is_number()));
    CHECK(make_page(m).size() > 1000);
    CHECK(Json::parse(make_perfetto(m))["traceEvents"].size() > 0);
  }
}

TEST_CASE("what is no trace is reported") {
  CHECK(problems(parsed("")) == std::vector<std::string>{"0: the file is empty"});
  CHECK(problems(parsed("hello\n")) == std::vector<std::string>{"0: this is no trace: the first line is not a JSON object"});
  CHECK(problems(parsed("{\"a\": 1}\n")) ==
        std::vector<std::string>{"0: this is no trace: the first line is not a 'process' event of schema tessera.trace"});
  CHECK(problems(parsed("[]\n")).size() == 1);
  CHECK(parsed("hello\n").processes.empty());
  std::string newer = kHeader;
  newer.replace(newer.find("trace/1"), 7, "trace/9");
  CHECK(problems(parsed(newer + "\n")) == std::vector<std::string>{"1: schema tessera.trace/9 is newer than this reader"});
}

TEST_CASE("lines that are no events are passed over, counted past a number") {
  const std::string header = std::string(kHeader) + "\n";
  CHECK(problems(parsed(header + "nonsense\n\n{\"event\":\"phase\"}\n[1]\n{\"event\":5,\"t\":1,\"thread\":0}\n")) ==
        std::vector<std::string>{"2: this is no event of a trace", "4: an event without 'event', 't' or 'thread'",
                                 "5: this is no event of a trace", "6: an event without 'event', 't' or 'thread'"});
  std::string many = header;
  for (int i = 0; i < 1000; ++i) many += "x\n";
  const Traces traces = parsed(many);
  REQUIRE(traces.problems.size() == 21);
  CHECK(traces.problems.back().what == "and 980 more lines that are no events");
  // So deep that a recursive reader would overflow its stack.
  const std::string deep = header + "{\"event\":\"phase\",\"t\":1,\"thread\":0,\"x\":" + std::string(1000000, '[') +
                           std::string(1000000, ']') + "}\n";
  CHECK(problems(parsed(deep)) == std::vector<std::string>{"2: this is no event of a trace"});
}

TEST_CASE("keys of any type do no harm") {
  const std::vector<std::string> values = {"null", "true", "-1", "1e308", "\"x\"", "[]", "[[1]]", "{}", "{\"a\":[null]}"};
  for (const char* event : {"compile_begin", "compile_end", "phase", "pass", "graph", "guards", "steps", "kernel", "recompile",
                            "limit", "fallback", "graph_break", "context", "cache", "log", "unheard_of"})
    for (const std::string& v : values) {
      std::string keys;
      for (const char* key : {"compile", "kind", "name", "loc", "entry", "stack", "host_stack", "us", "ok", "error", "position",
                              "text", "guards", "reasons", "executable", "op", "what", "key", "loaded"})
        keys += std::string(",\"") + key + "\":" + v;
      const std::string line = std::string("{\"event\":\"") + event + "\",\"t\":1,\"thread\":0" + keys + "}\n";
      // Inside and outside of a compile.
      const Traces traces =
          parsed(std::string(kHeader) + "\n" + line +
                 R"({"event":"compile_begin","t":10,"thread":0,"compile":-1,"kind":"function","name":"f","stack":[]})" + "\n" +
                 line + line);
      const Json m = make_model(traces);
      CHECK(make_page(m).size() > 1000);
      CHECK(Json::accept(make_perfetto(m)));
    }
}

TEST_CASE("the page stands alone, and texts cannot leave its data") {
  const std::string page = make_page(make_model(parsed(std::string(kHeader) + kEvents)));
  for (const char* leak : {"http://", "https://", " src=", "@import", "url(", "@DATA@", "@STYLE@", "@SCRIPT@", "innerHTML"}) {
    INFO(leak);
    CHECK(page.find(leak) == std::string::npos);
  }
  const std::string begin = "id=\"data\">", end = "</script>";
  const size_t from = page.find(begin) + begin.size(), to = page.find(end, from);
  const Json data = Json::parse(page.substr(from, to - from));
  CHECK(data["compiles"][0]["graphs"][0]["text"] == "graph @fn</script>");
}

TEST_CASE("a Perfetto trace has a span per compile, phase, pass and kernel") {
  const Json p = Json::parse(make_perfetto(make_model(parsed(std::string(kHeader) + kEvents))));
  std::map<std::string, int> count;
  for (const Json& e : p["traceEvents"]) {
    ++count[e["ph"].get<std::string>() + " " + (e.contains("cat") ? e["cat"].get<std::string>() : "")];
    if (e["ph"] == "X") CHECK((e["dur"].is_number() && e["ts"].is_number() && e["pid"].is_number() && e["tid"].is_number()));
  }
  CHECK(count == std::map<std::string, int>{{"M ", 1},
                                            {"X function", 2},
                                            {"X graph", 1},
                                            {"X phase", 1},
                                            {"X pass", 1},
                                            {"i recompile", 1},
                                            {"i graph_break", 1}});
}

TEST_CASE("a folder holds traces, earlier reports and other things") {
  std::string folder = (std::filesystem::temp_directory_path() / "tessera-report-XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()));
  const auto write = [&](const std::string& name, const std::string& text) { std::ofstream(folder + "/" + name) << text; };
  std::string later = kHeader;
  later.replace(later.find("1000000"), 7, "3000000");
  write("b.jsonl", later + kEvents);
  write("c.jsonl", std::string(kHeader) + kEvents);
  write("report.html", "");
  write("report.perfetto.json", "");
  write("notes.txt", "");
  write("empty.jsonl", "");
  std::filesystem::create_directory(folder + "/sub");
  const Traces traces = read_folder(folder);
  REQUIRE(traces.processes.size() == 2);
  CHECK(traces.processes[0].file == "c.jsonl");
  std::vector<std::string> files;
  for (const Problem& p : traces.problems) files.push_back(p.file);
  CHECK(files == std::vector<std::string>{"empty.jsonl", "notes.txt", "sub"});
  const Json m = make_model(traces);
  CHECK(m["processes"][1]["offset"] == 2e6);
  CHECK(m["compiles"].back()["t"] == 2e6 + 60);
  std::filesystem::remove_all(folder);
}
