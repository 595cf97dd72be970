// SPDX-License-Identifier: Apache-2.0
// The folders that compiles leave with trace.enabled.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/api.hpp"
#include "golden.hpp"
#include "graph_cache/cached.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "places.hpp"
#include "run/executable.hpp"

using namespace tessera::core;
using namespace tessera::test;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

struct Folder {
  std::string path = (fs::temp_directory_path() / "tessera-debug-XXXXXX").string();
  Folder() { REQUIRE(mkdtemp(path.data())); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

Names files_of(const std::string& folder) {
  Names out;
  for (const auto& e : fs::directory_iterator(folder)) out.push_back(e.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

struct Said {
  std::string text;
  LogSink before = set_log_sink([this](std::string_view lines) { text += lines; });
  ~Said() { set_log_sink(std::move(before)); }
};

// "dense<f32[n]: hex ...>", of 1 and 2 in turn.
std::string weights(int n) {
  std::string text = "dense<f32[" + std::to_string(n) + "]: hex \"";
  for (int i = 0; i < n; ++i) text += i % 2 ? "0000803f" : "00000040";
  return text + "\">";
}

// A constant that is folded (which compiles it), one that is large, and one that is nested, of so many elements.
std::string net(int nested = 80) {
  const std::string n = std::to_string(nested);
  return R"(graph @net(%x: f32[2, 80], %u: f32[)" + n + R"(], %p: bool[]) -> (f32[2, 80], f32[)" + n + R"(]) {
  %a = constant {value = dense<f32[2]: [1.0, 2.0]>}
  %b = exp %a loc("net.cpp":3)
  %s = reshape %b {shape = [2, 1]}
  %w = constant {value = )" +
         weights(80) + R"(}
  %y = mul %x, %s
  %z = add %y, %w
  %r = cond %p, %u : f32[)" +
         n + R"(]
    region(%k: f32[)" +
         n + R"(]) {
      %c = constant {value = )" +
         weights(nested) + R"(}
      %d = mul %k, %c
      return %d
    }
    region(%m: f32[)" +
         n + R"(]) {
      return %m
    }
  return %z, %r
})";
}

std::shared_ptr<Context> context_with(const Names& overrides, const std::string& cache = {}) {
  std::string config = R"([plugins]
load = ["tessera.opset.standard", "tessera.frontend.text", "tessera.pass.canonicalize", "tessera.pass.constant_fold",
        "tessera.backend.eager", "tessera.store.disk"]
[pipeline]
passes = ["canonicalize", "constant_fold"]
[backends]
order = ["eager"]
)";
  if (!cache.empty()) config += "[disk]\npath = \"" + cache + "\"\n";
  std::vector<const char*> set;
  for (const std::string& s : overrides) set.push_back(s.c_str());
  const std::string plugins = build_dir() + "/lib/tessera/plugins";
  const char* dir = plugins.c_str();
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = config.c_str();
  options.overrides = set.data();
  options.num_overrides = set.size();
  options.plugin_dirs = &dir;
  options.num_plugin_dirs = 1;
  return Context::create(&options, api::host());
}

std::unique_ptr<Executable> compile(const Context& context, const Config& config, const std::string& text = net()) {
  const std::shared_ptr<const Context> shared(std::shared_ptr<const Context>(), &context);
  const CompileOptions options = api::compile_options(shared, config, nullptr);
  const std::vector<BoundPass> passes = context.pipeline(config);
  return compile_cached(parse_graph(context.ops(), text, "net.tsr"), {context, config, passes, options});
}

const Names kAll = {"graph.tsr", "graph_final.tsr", "output_code.cpp", "steps.txt"};

}  // namespace

TEST_CASE("a compile leaves one folder, and its texts are what was compiled") {
  const Folder folder;
  Said said;
  const auto context = context_with({"trace.enabled=true", "trace.debug_dir=\"" + folder / "deep/er" + "\""});
  const auto first = compile(*context, context->config());
  const std::string dir = folder / "deep/er";
  CHECK(files_of(dir) == Names{"net_0"});  // and none for the constant that was evaluated
  CHECK(files_of(dir + "/net_0") == kAll);
  CHECK(said.text == "tessera: note: trace.enabled: each compiled graph leaves a folder in '" + dir + "'\n");

  const auto before = parse_graph(context->ops(), read_file(dir + "/net_0/graph.tsr"), "graph.tsr");
  CHECK(print_graph(*before, kPrintLocations) ==
        print_graph(
            *parse_graph(context->ops(),
                         print_graph(*parse_graph(context->ops(), net(), "net.tsr"), kPrintLocations | kPrintParams), "t"),
            kPrintLocations));
  const std::string text = read_file(dir + "/net_0/graph_final.tsr");
  const auto final = parse_graph(context->ops(), text, "graph_final.tsr");
  CHECK(print_graph(*final, kPrintLocations) == print_graph(first->graph(), kPrintLocations | kPrintParams));
  CHECK(text.starts_with("// Params without a key: constants of more than 64 elements.\ngraph @net("));
  CHECK(text.find("exp") == text.npos);  // it was folded
  CHECK(read_file(dir + "/net_0/steps.txt") == first->plan_text());
  const std::string code = read_file(dir + "/net_0/output_code.cpp");
  CHECK(code.starts_with("// code of net: "));
  CHECK(code.find("eager.mul") != code.npos);
  CHECK(code.find("eager.exp") == code.npos);

  compile(*context, context->config());
  CHECK(files_of(dir) == Names{"net_0", "net_1"});
  CHECK(files_of(dir + "/net_1") == kAll);
}

TEST_CASE("threads that compile at once have a folder each") {
  const Folder folder;
  Said said;
  const auto context = context_with({"trace.enabled=true", "trace.debug_dir=\"" + folder.path + "\""});
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      const std::string op = i % 2 ? "neg" : "exp";
      compile(*context, context->config(), "graph @f(%x: f32[4]) -> (f32[4]) { %y = " + op + " %x  return %y }");
    });
  for (std::thread& t : threads) t.join();
  REQUIRE(files_of(folder.path).size() == 8);
  int negations = 0;
  for (const std::string& name : files_of(folder.path)) {
    CHECK(files_of(folder / name) == kAll);
    const std::string code = read_file(folder / name + "/output_code.cpp");
    CHECK(std::count(code.begin(), code.end(), '\n') == 2);  // of its own thread alone
    negations += code.find("eager.neg") != code.npos;
  }
  CHECK(negations == 4);
}

TEST_CASE("a callable's options switch it on for that callable") {
  const Folder folder;
  Said said;
  const auto context = context_with({});
  const Names on = {"trace.enabled=true", "trace.graph_diagram=true", "trace.debug_dir=\"" + folder.path + "\""};
  compile(*context, context->config());
  CHECK(files_of(folder.path).empty());
  compile(*context, context->config().derive(std::nullopt, on));
  CHECK(files_of(folder.path) == Names{"net_0"});
  CHECK(read_file(folder / "net_0/graph_diagram.dot").find("runs on eager") != std::string::npos);
}

TEST_CASE("off, nothing is written and no text is made") {
  const Folder folder;
  Said said;
  const auto context = context_with({"trace.debug_dir=\"" + folder.path + "\"", "trace.graph_diagram=true"});
  compile(*context, context->config());
  CHECK(files_of(folder.path).empty());
  CHECK(said.text == "");
  for (size_t i = 0; i < kNumArtifacts; ++i) CHECK_FALSE(log_enabled(static_cast<Artifact>(i)));
}

TEST_CASE("a compile that fails leaves what there was, and why") {
  const Folder folder;
  Said said;
  const auto context = context_with({"trace.enabled=true", "trace.graph_diagram=true",
                                     "trace.debug_dir=\"" + folder.path + "\"", "runtime.arena_max_bytes=1"});
  std::string what;
  try {
    compile(*context, context->config(), R"(graph @net(%x: f32[64]) -> (f32[]) {
      %e = exp %x
      %y = reduce_sum %e {axes = [0]}
      return %y
    })");
  } catch (const Error& e) {
    what = e.what();
  }
  REQUIRE(what.find("TSR-R025") != what.npos);
  Names files = files_of(folder / "net_0");
  std::erase(files, "graph_diagram.svg");
  CHECK(files == Names{"error.txt", "graph.tsr", "graph_diagram.dot", "graph_final.tsr"});
  CHECK(read_file(folder / "net_0/error.txt") == what + "\n");
  CHECK_FALSE(log_enabled(Artifact::kOutputCode));
}

TEST_CASE("a folder that cannot be written is one warning, and the program goes on") {
  const Folder folder;
  std::ofstream(folder / "file") << "not a folder";
  Said said;
  const auto context =
      context_with({"trace.enabled=true", "trace.graph_diagram=true", "trace.debug_dir=\"" + folder / "file" + "\""});
  for (int i = 0; i < 3; ++i) CHECK(compile(*context, context->config())->num_outputs() == 2);
  CHECK(said.text == "tessera: warning: trace.enabled: nothing more is left in '" + folder / "file" +
                         "': Not a directory; trace.debug_dir names the folder\n");
}

TEST_CASE("what a cache holds is compiled again for its folder") {
  const Folder folder, cache;
  Said said;
  const auto context = context_with({}, cache.path);
  compile(*context, context->config());
  const Names on = {"trace.enabled=true", "trace.debug_dir=\"" + folder.path + "\""};
  said.text.clear();
  configure_logs("passes");
  compile(*context, context->config().derive(std::nullopt, on));
  CHECK(said.text.find("comes from the cache") == std::string::npos);
  compile(*context, context->config());  // the keys are no part of an entry's name
  CHECK(said.text.find("comes from the cache") != std::string::npos);
  configure_logs("");
}

TEST_CASE("weights of nested regions are left out when they are many") {
  const Folder folder;
  Said said;
  const auto context = context_with({"trace.enabled=true", "trace.debug_dir=\"" + folder.path + "\""});
  compile(*context, context->config(), net(1 << 19));
  const std::string final = read_file(folder / "net_0/graph_final.tsr");
  CHECK(final.find("\n// Constants of nested regions, 2.0 MiB, are elided: this text does not parse.\n") != final.npos);
  CHECK(final.size() < 2000);
}

#ifdef PROGRAM_tessera_command
namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string out;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
  INFO(command << "\n" << out);
  REQUIRE(pclose(pipe) == 0);
  return out;
}

const char* const kModel = R"(graph @model(%x: f32[64, 96], %w: f32[96, 96] param "w", %b: f32[96] param "b") -> (f32[64, 96]) {
  %m = dot_general %x, %w {lhs_contract = [1], rhs_contract = [0]} loc("model.cpp":7)
  %a = add %m, %b
  %r = relu %a
  %s = softmax %r {axis = 1}
  %y = add %s, %x loc("model.cpp":9)
  return %y
})";

}  // namespace

TEST_CASE("the command leaves generated code, what was fused, and the text that --memory prints") {
  const Folder folder;
  std::ofstream(folder / "model.tsr") << kModel;
  const std::string printed =
      output_of("cd '" + folder.path +
                "' && TESSERA_TRACE=trace '" PROGRAM_tessera_command
                "' run model.tsr --config cpu --memory --set trace.enabled=true --set trace.graph_diagram=true 2> err");
  const std::string dir = folder / "tessera_debug/model_0";
  CHECK(files_of(folder / "tessera_debug") == Names{"model_0"});
  Names files = files_of(dir);
  const bool drawn = std::erase(files, "graph_diagram.svg") > 0;
  CHECK(files == Names{"fusion.log", "graph.tsr", "graph_diagram.dot", "graph_final.tsr", "output_code.cpp", "steps.txt"});
  const bool installed = std::system("dot -V > /dev/null 2>&1") == 0;
  CHECK(drawn == installed);
  CHECK((read_file(folder / "err").find("apt-get install graphviz") != std::string::npos) == !installed);

  const std::string steps = read_file(dir + "/steps.txt");
  CHECK(printed.starts_with(steps + "\n"));
  const std::string code = read_file(dir + "/output_code.cpp");
  CHECK(code.find("extern \"C\" void k_fused_softmax_add_") != code.npos);
  CHECK(code.find(" = add (model.cpp:9)") != code.npos);
  CHECK(code.find("\n// code of model: 2 steps\n") != code.npos);
  CHECK(read_file(dir + "/fusion.log").find("[fusion] cpu: ") != std::string::npos);
  const std::string dot = read_file(dir + "/graph_diagram.dot");
  CHECK(dot.find("label=\"fused: cpu.fused_softmax_add\"") != dot.npos);

  // The final graph of the trace is another way to what was compiled.
  std::ifstream trace(folder / "trace/" + files_of(folder / "trace").at(0));
  std::string final;
  for (std::string line; std::getline(trace, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["event"] == "graph" && event["stage"] == "final" && event["name"] == "model") final = event["text"];
  }
  CHECK(read_file(dir + "/graph_final.tsr") == final);
  CHECK(output_of("'" PROGRAM_tessera_command "' opt '" + dir + "/graph_final.tsr' --passes '' --locations") == final);
}
#endif
