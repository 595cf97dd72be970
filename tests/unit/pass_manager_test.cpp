// SPDX-License-Identifier: Apache-2.0
// Running pipelines: transactions, verification, reports, dumps, bisection, reproducers, and passes that misbehave.
#include "pass/pass_manager.hpp"

#include <unistd.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "config/config.hpp"
#include "context/context.hpp"
#include "edit_support.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "pass/pipeline.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace pass_manager_test {

namespace fs = std::filesystem;
using namespace tessera::core;
using namespace tessera::test;

namespace {

// A pass made of a function, as a plugin would bring it.
using Body = std::function<bool(Graph&, const tsr_options*)>;

class Passes {
 public:
  const Factory* make(const std::string& name, Body run) {
    bodies_.push_back(std::move(run));
    tsr_pass t{};
    t.struct_size = sizeof t;
    t.summary = t.ensures = "test";
    t.run = [](void* self, tsr_graph* g, const tsr_options* o, int* changed) -> tsr_error* {
      try {
        *changed = (*static_cast<Body*>(self))(Graph::from(g), o);
        return nullptr;
      } catch (...) {
        return current_exception_to_c();
      }
    };
    tables_.push_back(t);
    Factory f;
    f.kind = TSR_PASS;
    f.name = name;
    f.table = &tables_.back();
    f.self = &bodies_.back();
    f.plugin = &plugin_;
    factories_.push_back(f);
    return &factories_.back();
  }
  BoundPass operator()(const std::string& name, Body run) { return {make(name, std::move(run)), OptionSet()}; }

 private:
  LoadedPlugin plugin_ = [] {
    LoadedPlugin p;
    p.id = "acme.pass.test";
    p.vendor = "Acme";
    return p;
  }();
  std::deque<Body> bodies_;
  std::deque<tsr_pass> tables_;
  std::deque<Factory> factories_;
};

struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    static int count = 0;
    path = fs::temp_directory_path() / ("tessera-passes-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    fs::create_directories(path);
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& e : fs::directory_iterator(path)) names.push_back(e.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

struct Captured {  // what is logged
  std::string text;
  LogSink before;
  explicit Captured(const char* artifacts) : before(set_log_sink([this](std::string_view s) { text += s; })) {
    configure_logs(artifacts);
  }
  ~Captured() {
    set_log_sink(std::move(before));
    configure_logs("");
  }
};

const char* const kText =
    "graph @g(%x: f32[4]) -> (f32[4]) {\n  %a = neg %x : f32[4]\n  %b = neg %a : f32[4]\n  return %b\n}\n";

std::unique_ptr<Graph> parse(const std::string& text = kText) { return parse_graph(test_ops(), text, "test.tsr"); }

PassOptions quiet() {
  PassOptions o;
  o.reproducer = Reproducer::kNone;
  return o;
}

bool nothing(Graph&, const tsr_options*) { return false; }
bool add_dead_node(Graph& g, const tsr_options*) {
  NodeSpec s;
  s.op = "exp";
  s.operands = {g.find_value("x")};
  g.create_node(s);
  return true;
}
bool erase_dead_nodes(Graph& g, const tsr_options*) {
  bool changed = false;
  for (tsr_id n = 0; n < g.num_nodes(); ++n)
    if (g.node(n).alive && g.uses(g.node(n).results[0]).empty()) {
      g.erase_node(n);
      changed = true;
    }
  return changed;
}

Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  FAIL("nothing was thrown");
  throw std::logic_error("unreachable");
}

}  // namespace

TEST_CASE("a report has every pass with what it did") {
  Passes pass;
  const auto g = parse();
  const PassReport r =
      run_passes(*g, {pass("grow", add_dead_node), pass("look", nothing), pass("shrink", erase_dead_nodes)}, quiet());
  REQUIRE(r.runs.size() == 3);
  CHECK(r.runs[0].name == "grow");
  CHECK(r.runs[0].changed);
  CHECK(r.runs[0].nodes_before == 2);
  CHECK(r.runs[0].nodes_after == 3);
  CHECK(r.runs[0].verify_seconds > 0);
  CHECK_FALSE(r.runs[1].changed);
  CHECK(r.runs[2].nodes_after == 2);
  double sum = 0;
  for (const PassRun& run : r.runs) sum += run.seconds + run.verify_seconds;
  CHECK(sum <= r.seconds);
  CHECK(std::string(g->node(0).author) == "text");

  const auto json = nlohmann::json::parse(timing_json(r));
  CHECK(json["passes"].size() == 3);
  CHECK(json["passes"][0]["pass"] == "grow");
  CHECK(json["passes"][0]["changed"] == true);
  CHECK(json["passes"][1]["changed"] == false);
  CHECK(json["passes"][2]["nodes_before"] == 3);
  CHECK(json["ms"] >= json["passes"][0]["ms"]);
}

TEST_CASE("the timing tree") {
  PassReport r;
  r.seconds = 0.0125;
  PassRun run;
  run.name = "canonicalize";
  run.seconds = 0.01;
  run.verify_seconds = 0.001;
  run.changed = true;
  run.nodes_before = 120;
  run.nodes_after = 80;
  r.runs.push_back(run);
  run.changed = false;
  run.verify_seconds = 0;
  run.name = "cse";
  r.runs.push_back(run);
  run.skipped = true;
  run.name = "dce";
  r.runs.push_back(run);
  CHECK(print_timing_tree(r) ==
        "    12.500 ms  pipeline\n"
        "    10.000 ms  |- canonicalize            120 ->     80 nodes\n"
        "     1.000 ms  |  `- verify\n"
        "    10.000 ms  |- cse                     120 ->     80 nodes  (no change)\n"
        "         -     |- dce (skipped by bisect)\n");
}

TEST_CASE("options reach the pass") {
  Passes pass;
  int64_t seen = 0;
  BoundPass p = pass("configured", [&](Graph&, const tsr_options* o) {
    seen = TSR_AT(tsr_option, o->items, o->stride, 0)->i;
    return false;
  });
  p.options = OptionSet({{"size", Value::of_int(64)}});
  run_passes(*parse(), {p}, quiet());
  CHECK(seen == 64);
}

TEST_CASE("edits carry the name of the pass") {
  Passes pass;
  const auto g = parse();
  run_passes(*g, {pass("grow", add_dead_node)}, quiet());
  CHECK(std::string(g->node(2).author) == "grow");
}

TEST_CASE("a pass that edits but reports no change is a bug, and is taken back") {
  Passes pass;
  const auto g = parse();
  const std::string before = fingerprint(*g);
  const auto lie = [](Graph& graph, const tsr_options* o) {
    add_dead_node(graph, o);
    return false;
  };
  const Error e = error_of([&] { run_passes(*g, {pass("liar", lie)}, quiet()); });
  CHECK(e.code() == "TSR-B011");
  CHECK(e.family() == TSR_BUG);
  CHECK(e.message() ==
        "pass 'liar' on graph @g: plugin 'acme.pass.test' (Acme): pass 'liar' edited the graph but reported no change");
  CHECK(fingerprint(*g) == before);
  // The other way round is no more than modesty.
  const PassReport r = run_passes(*g, {pass("modest", [](Graph&, const tsr_options*) { return true; })}, quiet());
  CHECK_FALSE(r.runs[0].changed);
  // An assumption is a change too.
  const auto assume = [](Graph& graph, const tsr_options*) {
    graph.sizes().fresh("s", 0, 4, false);
    return false;
  };
  CHECK(error_of([&] { run_passes(*g, {pass("quiet", assume)}, quiet()); }).code() == "TSR-B011");
  CHECK(fingerprint(*g) == before);
}

TEST_CASE("a pass that throws leaves the graph as it was") {
  Passes pass;
  const auto g = parse();
  const std::string before = fingerprint(*g);
  const auto user = [](Graph& graph, const tsr_options* o) -> bool {
    add_dead_node(graph, o);
    throw user_error("TSR-X001", "this graph is not for me", "use another");
  };
  const Error e = error_of([&] { run_passes(*g, {pass("grow", add_dead_node), pass("throws", user)}, quiet()); });
  CHECK(e.code() == "TSR-X001");
  CHECK(e.family() == TSR_USER);
  CHECK(e.message() == "pass 'throws' on graph @g: this graph is not for me");
  CHECK(e.hint() == "use another");
  CHECK(g->num_live_nodes() == 3);  // what the first pass did stays
  CHECK_FALSE(g->in_transaction());
  run_passes(*g, {pass("shrink", erase_dead_nodes)}, quiet());

  const auto unknown = [](Graph& graph, const tsr_options* o) -> bool {
    add_dead_node(graph, o);
    throw std::runtime_error("out of ideas");
  };
  const Error bug_error = error_of([&] { run_passes(*g, {pass("unknown", unknown)}, quiet()); });
  CHECK(bug_error.family() == TSR_BUG);
  CHECK(bug_error.message().find("plugin 'acme.pass.test' (Acme)") != std::string::npos);
  CHECK(bug_error.message().find("out of ideas") != std::string::npos);
  CHECK(g->num_live_nodes() == 2);
  CHECK(print_graph(*g, 0) == kText);
  (void)before;
}

TEST_CASE("a pass that breaks the graph is found by the check of its edits, and taken back") {
  Passes pass;
  const auto g = parse();
  const std::string before = fingerprint(*g);
  const auto wrong_order = [](Graph& graph, const tsr_options*) {
    graph.move_node(0, TSR_NONE);  // behind its user
    return true;
  };
  PassOptions never = quiet();
  never.verify = VerifyWhen::kNever;
  const Error e = error_of([&] { run_passes(*g, {pass("mixer", wrong_order)}, never); });
  CHECK(e.code() == "TSR-I106");
  CHECK(e.family() == TSR_BUG);
  CHECK(e.message().rfind("pass 'mixer' on graph @g: plugin 'acme.pass.test' (Acme): ", 0) == 0);
  CHECK(e.message().find("%a") != std::string::npos);
  CHECK(fingerprint(*g) == before);
}

TEST_CASE("the whole-graph verifier runs when it is asked to") {
  // Broken where no edit is: only the verifier of the whole graph can see it.
  const auto broken = [] {
    auto g = parse();
    ++const_cast<tsr_value&>(g->value(g->find_value("x"))).num_uses;
    return g;
  };
  Passes pass;
  const auto touch_b = [](Graph& graph, const tsr_options*) {
    graph.set_name(graph.find_value("b"), "c");
    return true;
  };
  PassOptions o = quiet();
  o.verify = VerifyWhen::kNever;
  REQUIRE_NOTHROW(run_passes(*broken(), {pass("touch", touch_b)}, o));
  o.verify = VerifyWhen::kChanged;
  REQUIRE_NOTHROW(run_passes(*broken(), {pass("look", nothing)}, o));
  CHECK(error_of([&] { run_passes(*broken(), {pass("touch", touch_b)}, o); }).code() == "TSR-I109");
  o.verify = VerifyWhen::kEach;
  CHECK(error_of([&] { run_passes(*broken(), {pass("look", nothing)}, o); }).code() == "TSR-I109");
}

TEST_CASE("dumps") {
  Passes pass;
  TemporaryFolder folder;
  const std::vector<BoundPass> pipeline = {pass("grow", add_dead_node), pass("look", nothing),
                                           pass("shrink", erase_dead_nodes)};
  PassOptions o = quiet();
  o.dump_after = DumpWhen::kChanged;
  o.dump_dir = (folder.path / "deeper").string();
  run_passes(*parse(), pipeline, o);
  fs::rename(folder.path / "deeper" / "01-g-grow.tsr", folder.path / "one.tsr");
  CHECK(fs::exists(folder.path / "deeper" / "03-g-shrink.tsr"));
  CHECK_FALSE(fs::exists(folder.path / "deeper" / "02-g-look.tsr"));
  const std::string text = folder.read("one.tsr");
  CHECK(text.rfind("// after pass 1 grow\n", 0) == 0);
  CHECK(text.find("exp %x") != std::string::npos);
  REQUIRE_NOTHROW(parse(text));  // a dump is text IR

  o.dump_after = DumpWhen::kAll;
  o.dump_dir = folder.path.string();
  run_passes(*parse(), pipeline, o);
  CHECK(folder.read("02-g-look.tsr").rfind("// after pass 2 look (no change)\n", 0) == 0);

  std::ofstream(folder.path / "file") << "x";
  o.dump_dir = (folder.path / "file").string();
  CHECK(error_of([&] { run_passes(*parse(), pipeline, o); }).code() == "TSR-E010");

  // Without a folder they are printed, whether or not the artifact is on.
  o.dump_dir = "";
  o.dump_after = DumpWhen::kChanged;
  {
    const Captured log("");
    run_passes(*parse(), pipeline, o);
    CHECK(log.text.find("[passes] // after pass 1 grow\n[passes] graph @g") == 0);
    CHECK(log.text.find("look") == std::string::npos);
    CHECK(log.text.find("pipeline") == std::string::npos);  // the timing tree belongs to the artifact
  }
  const Captured log("passes");
  o.dump_after = DumpWhen::kNone;
  run_passes(*parse(), pipeline, o);
  CHECK(log.text.find("ms  pipeline") != std::string::npos);
  CHECK(log.text.find("after pass") == std::string::npos);
}

TEST_CASE("verbose logging shows the graph after each change") {
  Passes pass;
  const Captured log("+passes");
  run_passes(*parse(), {pass("grow", add_dead_node), pass("look", nothing)}, quiet());
  CHECK(log.text.find("after pass 1 grow") != std::string::npos);
  CHECK(log.text.find("after pass 2") == std::string::npos);
}

TEST_CASE("bisection counts the passes of the process") {
  Passes pass;
  const std::vector<BoundPass> pipeline = {pass("grow", add_dead_node), pass("grow2", add_dead_node),
                                           pass("grow3", add_dead_node)};
  const Captured log("");
  const int64_t started = passes_started();
  PassOptions o = quiet();
  o.bisect_limit = started + 4;
  const auto first = parse(), second = parse();
  CHECK_FALSE(run_passes(*first, pipeline, o).runs[2].skipped);
  const PassReport r = run_passes(*second, pipeline, o);
  CHECK(passes_started() == started + 6);
  CHECK_FALSE(r.runs[0].skipped);
  CHECK(r.runs[1].skipped);
  CHECK(r.runs[2].skipped);
  CHECK_FALSE(r.runs[1].changed);
  CHECK(first->num_live_nodes() == 5);
  CHECK(second->num_live_nodes() == 3);
  const auto line = [&](int64_t k, const std::string& verb, const std::string& name) {
    return "[passes] bisect: " + verb + " pass (" + std::to_string(started + k) + ") " + name + " on graph @g\n";
  };
  CHECK(log.text == line(1, "running", "grow") + line(2, "running", "grow2") + line(3, "running", "grow3") +
                        line(4, "running", "grow") + line(5, "not running", "grow2") + line(6, "not running", "grow3"));
  o.bisect_limit = 0;
  CHECK(run_passes(*parse(), pipeline, o).runs[0].skipped);
}

TEST_CASE("a failing pass leaves a reproducer that replays it") {
  Passes pass;
  TemporaryFolder folder;
  PassOptions o;
  o.reproducer_dir = folder.path.string();
  const auto fail_on_exp = [](Graph& g, const tsr_options* options) -> bool {
    if (TSR_AT(tsr_option, options->items, options->stride, 0)->s != std::string("it's")) return false;
    for (tsr_id n = 0; n < g.num_nodes(); ++n)
      if (std::string(g.node(n).op) == "exp") throw bug("TSR-X002", "cannot take exp\nsecond line");
    return false;
  };
  BoundPass failing = pass("exp/fails", fail_on_exp);
  failing.options = OptionSet({{"word", Value::of_string("it's")}});
  const auto g = parse();
  const Error e = error_of([&] { run_passes(*g, {pass("grow", add_dead_node), failing}, o); });
  CHECK(folder.files() == std::vector<std::string>{"tessera-reproducer-g-exp_fails.tsr"});
  CHECK(e.hint() == "reproducer: " + (folder.path / "tessera-reproducer-g-exp_fails.tsr").string());
  const std::string text = folder.read("tessera-reproducer-g-exp_fails.tsr");
  const std::string head =
      "// tessera reproducer: pass 'exp/fails' failed: plugin 'acme.pass.test' (Acme): cannot take exp\n"
      "// pipeline: exp/fails{word=\"it's\"}\n"
      "// replay: tessera opt THIS_FILE --passes 'exp/fails{word=\"it'\\''s\"}'\n";
  CHECK(text.substr(0, head.size()) == head);

  // The graph is the one before the pass that failed; running that pass on it fails in the same way.
  const auto again = parse(text);
  CHECK(again->num_live_nodes() == 3);
  CHECK(error_of([&] { run_passes(*again, {failing}, quiet()); }).code() == "TSR-X002");

  o.reproducer_dir = (folder.path / "tessera-reproducer-g-exp_fails.tsr").string();  // a file, not a folder
  CHECK(error_of([&] { run_passes(*again, {failing}, o); }).hint().find("no reproducer: cannot write to") == 0);
}

TEST_CASE("a standing reproducer is there while the pass runs, and gone after it") {
  Passes pass;
  TemporaryFolder folder;
  PassOptions o;
  o.reproducer = Reproducer::kAlways;
  o.reproducer_dir = folder.path.string();
  std::string during;
  const auto look = [&](Graph&, const tsr_options*) {
    during = folder.read("tessera-reproducer-g-look.tsr");
    return false;
  };
  run_passes(*parse(), {pass("look", look)}, o);
  CHECK(during.rfind("// tessera reproducer: pass 'look'", 0) == 0);
  REQUIRE_NOTHROW(parse(during));
  CHECK(folder.files().empty());
  std::ofstream(folder.path / "file") << "x";
  o.reproducer_dir = (folder.path / "file").string();
  CHECK(error_of([&] { run_passes(*parse(), {pass("look", look)}, o); }).code() == "TSR-E010");
}

TEST_CASE("options come from the config") {
  const auto options = [](const std::string& pipeline) {
    Faults faults;
    const Config c = Config::parse({"c.toml", "[pipeline]\n" + pipeline, {}}, faults);
    faults.throw_if_any();
    return pass_options_of(c);
  };
  const PassOptions defaults = options("");
  CHECK(defaults.verify == VerifyWhen::kChanged);
  CHECK(defaults.dump_after == DumpWhen::kNone);
  CHECK(defaults.dump_dir == "");
  CHECK(defaults.bisect_limit == -1);
  CHECK(defaults.reproducer == Reproducer::kOnError);
  CHECK(defaults.reproducer_dir == "");
  const PassOptions o = options(
      "verify = \"each\"\ndump_after = \"all\"\ndump_dir = \"d\"\nbisect_limit = 7\nreproducer = \"always\"\nreproducer_dir = "
      "\"r\"\n");
  CHECK(o.verify == VerifyWhen::kEach);
  CHECK(o.dump_after == DumpWhen::kAll);
  CHECK(o.dump_dir == "d");
  CHECK(o.bisect_limit == 7);
  CHECK(o.reproducer == Reproducer::kAlways);
  CHECK(o.reproducer_dir == "r");
  CHECK(options("verify = \"never\"").verify == VerifyWhen::kNever);
  CHECK(options("dump_after = \"changed\"").dump_after == DumpWhen::kChanged);
  CHECK(options("reproducer = \"none\"").reproducer == Reproducer::kNone);
  CHECK(code_of([&] { options("verify = \"sometimes\""); }) == "TSR-C004");
  CHECK(code_of([&] { options("bisect_limit = -2"); }) == "TSR-C004");
}

}  // namespace pass_manager_test
