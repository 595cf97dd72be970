// SPDX-License-Identifier: Apache-2.0
// Inputs and outputs keep the names that the model gives them: through import, passes, text and the command, up to the keys of
// archives.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "model_builder.hpp"
#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "tessera/embed.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;
namespace npz = tessera::npz;
namespace fs = std::filesystem;

namespace {

// Passes that merge, remove and replace the values that outputs name.
constexpr const char* kConfig = R"(
name = "names"
[plugins]
load = ["tessera.opset.standard", "tessera.frontend.text", "tessera.frontend.onnx", "tessera.pass.canonicalize", "tessera.pass.constant_fold",
        "tessera.pass.cse", "tessera.pass.dce", "tessera.backend.eager"]
[pipeline]
passes = ["canonicalize", "constant_fold", "cse", "dce"]
[backends]
order = ["eager"]
)";

std::string build_dir() {
  const char* build = std::getenv("TESSERA_BUILD_DIR");
  return build ? build : ".";
}

const e::Context& context() {
  static const e::Context c([] {
    e::ContextOptions o;
    o.config_text = kConfig;
    o.plugin_dirs = {build_dir() + "/lib/tessera/plugins"};
    return o;
  }());
  return c;
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tessera_names_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path_ = name;
    write("c.toml", kConfig);
  }
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  // The command in this folder, with the config above; what it prints goes to its caller when it fails.
  void tessera(const std::string& arguments) const {
    INFO("tessera " << arguments);
    const std::string line = "cd '" + path_.string() + "' && '" + build_dir() + "/bin/tessera' " + arguments + " >out.txt 2>&1";
    const int status = std::system(line.c_str());
    std::ifstream in(path_ / "out.txt", std::ios::binary);
    const std::string out{std::istreambuf_iterator<char>(in), {}};
    INFO(out);
    REQUIRE(WEXITSTATUS(status) == 0);
  }

 private:
  fs::path path_;
};

using Values = std::vector<float>;

// A model with its names and what it computes, over values of f32[3].
struct Model {
  std::vector<std::pair<std::string, Values>> inputs, outputs;
  std::string bytes;
  [[nodiscard]] std::vector<std::string> names(const std::vector<std::pair<std::string, Values>>& list) const {
    std::vector<std::string> out;
    for (const auto& [name, v] : list) out.push_back(name);
    return out;
  }
};

Msg op(const char* type, const std::vector<std::string>& in, const std::string& out) {
  Msg n;
  for (const std::string& x : in) n.s(1, x);
  return n.s(2, out).s(4, type);
}
Msg info(const std::string& name) {
  return Msg().s(1, name).m(2, Msg().m(1, Msg().i(1, kFloat).m(2, Msg().m(1, Msg().i(1, 3)))));
}
Msg weight(const std::string& name, const Values& v) {
  return tensor(name.c_str(), kFloat, {3}, std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)));
}

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Model model() {
    Model m;
    GraphParts parts;
    values_.clear();
    taken_.clear();
    for (int64_t n = below(3) + 1; n > 0; --n) {
      m.inputs.emplace_back(name(), numbers());
      values_.push_back(m.inputs.back());
      parts.inputs.push_back(info(m.inputs.back().first));
    }
    if (below(2)) {
      values_.emplace_back(name(), numbers());
      parts.initializers.push_back(weight(values_.back().first, values_.back().second));
    }
    for (int64_t n = below(7); n > 0; --n) {
      const auto &a = any(), b = any();
      Values v(3);
      const int64_t kind = below(4);
      for (size_t i = 0; i < 3; ++i)
        v[i] = kind == 0   ? std::max(a.second[i], 0.0f)
               : kind == 1 ? -a.second[i]
               : kind == 2 ? a.second[i]
                           : a.second[i] + b.second[i];
      constexpr const char* kOps[] = {"Relu", "Neg", "Identity", "Add"};
      const std::string out = name();
      parts.nodes.push_back(op(kOps[kind], kind == 3 ? std::vector{a.first, b.first} : std::vector{a.first}, out));
      values_.emplace_back(out, std::move(v));
    }
    // Any values: inputs and weights too.
    std::shuffle(values_.begin(), values_.end(), random_);
    m.outputs.assign(values_.begin(), values_.begin() + 1 + below(static_cast<int64_t>(values_.size())));
    for (const auto& [n, v] : m.outputs) parts.outputs.push_back(info(n));
    m.bytes = ::model(graph(parts)).bytes();
    return m;
  }

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  const std::pair<std::string, Values>& any() {
    return values_[static_cast<size_t>(below(static_cast<int64_t>(values_.size())))];
  }
  Values numbers() {
    Values v(3);
    for (float& x : v) x = static_cast<float>(below(17) - 8);
    return v;
  }
  std::string name() {
    static const std::vector<std::string> odd = {"x",          "y",
                                                 "r",          "r_2",
                                                 "r_1",        "0",
                                                 "1",          "return",
                                                 "a\"b",       "back\\slash",
                                                 "it's",       "two words",
                                                 " before",    "behind ",
                                                 "t\tn\n",     "x=y",
                                                 "x:0",        "a,b",
                                                 "%v",         "@d",
                                                 "#",          "/layer/out",
                                                 "../up",      "n\xc3\xafl",
                                                 "日本",       "name.npy",
                                                 "\x01",       "\x7f",
                                                 "\\x41",      "-> ()",
                                                 "\"y\": f32", "\xff\xfe",
                                                 "\xc3",       std::string(300, 'n'),
                                                 "..."};
    for (;;) {
      std::string s;
      if (below(2)) {
        s = odd[static_cast<size_t>(below(static_cast<int64_t>(odd.size())))];
      } else {
        for (int64_t n = below(30) + 1; n > 0; --n) s += static_cast<char>(below(2) ? 1 + below(255) : 'a' + below(26));
      }
      if (taken_.insert(s).second) return s;
    }
  }

  std::mt19937_64 random_;
  std::vector<std::pair<std::string, Values>> values_;
  std::set<std::string> taken_;
};

void write_inputs(const std::string& path, const Model& m) {
  std::vector<npz::Array> arrays;
  for (const auto& [name, v] : m.inputs) arrays.push_back(npz::from_elements(name, TSR_F32, {3}, v.data()));
  npz::write(path, arrays);
}

void check_archive(const std::string& path, const Model& m) {
  const std::vector<npz::Array> arrays = npz::read(path);
  REQUIRE(arrays.size() == m.outputs.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    CHECK(arrays[i].name == m.outputs[i].first);
    CHECK(std::memcmp(arrays[i].data.data(), m.outputs[i].second.data(), 12) == 0);
  }
}

e::Graph load(const Folder& folder, const std::string& bytes) {
  folder.write("m.onnx", bytes);
  return context().load(folder / "m.onnx");
}

void check_in_process(const Folder& folder, const Model& m) {
  e::Graph graph = load(folder, m.bytes);
  CHECK(graph.input_names() == m.names(m.inputs));
  CHECK(graph.output_names() == m.names(m.outputs));
  const std::string text = graph.print();
  INFO(text);
  const e::Graph again = context().parse(text, "text");
  CHECK(again.print() == text);
  CHECK(again.input_names() == m.names(m.inputs));
  CHECK(again.output_names() == m.names(m.outputs));
  context().run_passes(graph);
  CHECK(graph.output_names() == m.names(m.outputs));
  const e::Graph optimised = context().parse(graph.print(), "text");
  CHECK(optimised.output_names() == m.names(m.outputs));
  const e::Executable executable = context().compile(std::move(graph));
  CHECK(executable.input_names() == m.names(m.inputs));
  CHECK(executable.output_names() == m.names(m.outputs));
  std::vector<e::Tensor> in;
  for (const auto& [name, v] : m.inputs) {
    in.push_back(e::Tensor::create(TSR_F32, std::vector<int64_t>{3}));
    std::memcpy(in.back().data(), v.data(), 12);
  }
  const std::vector<e::Tensor> out = executable.run(in);
  for (size_t i = 0; i < out.size(); ++i) CHECK(std::memcmp(out[i].data(), m.outputs[i].second.data(), 12) == 0);
}

void check_command(const Folder& folder, const Model& m) {
  folder.write("m.onnx", m.bytes);
  write_inputs(folder / "x.npz", m);
  folder.tessera("run m.onnx --config c.toml --inputs x.npz --outputs y.npz");
  check_archive(folder / "y.npz", m);
  folder.tessera("import m.onnx --config c.toml --output t.tsr");
  folder.tessera("run t.tsr --config c.toml --inputs x.npz --outputs z.npz");
  check_archive(folder / "z.npz", m);
}

std::string refusal(const Folder& folder, const Model& m) {
  try {
    (void)load(folder, m.bytes);
    return "accepted";
  } catch (const e::Error& error) {
    CHECK(error.family() == TSR_USER);
    return error.code();
  }
}

}  // namespace

TEST_CASE("names are the model's where passes make one value of several outputs, an input or a constant") {
  const Folder folder;
  const Values x{1, -2, 3}, r{1, 0, 3}, w{4, 5, 6};
  const std::string y(300, 'y'), quoted = "z \"quoted\" \\ 'name'";
  Model m{{{"x", x}}, {{y, r}, {quoted, r}, {"r", r}, {"x", x}, {"w", w}, {"c", w}}, {}};
  GraphParts parts{
      {op("Relu", {"x"}, "r"), op("Identity", {"r"}, y), op("Identity", {"r"}, quoted), op("Identity", {"w"}, "c")},
      {weight("w", w)},
      {info("x")},
      {}};
  for (const auto& [name, v] : m.outputs) parts.outputs.push_back(info(name));
  m.bytes = model(graph(parts)).bytes();
  check_in_process(folder, m);
  check_command(folder, m);

  folder.tessera("compare c.toml c.toml m.onnx --inputs x.npz --no-time --reference c.toml --json");
  std::ifstream in(folder / "out.txt", std::ios::binary);
  const auto document = nlohmann::json::parse(std::string{std::istreambuf_iterator<char>(in), {}});
  REQUIRE(document["b"]["outputs"].size() == m.outputs.size());
  for (size_t i = 0; i < m.outputs.size(); ++i) CHECK(document["b"]["outputs"][i]["name"] == m.outputs[i].first);
}

TEST_CASE(
    "an output that is listed a second time gets a name of its own; without a name, or with a zero byte in it, it is refused") {
  const Folder folder;
  const auto made = [](const std::string& in, const std::vector<std::string>& outputs) {
    GraphParts parts{{}, {}, {info(in)}, {}};
    for (const std::string& s : outputs) {
      if (std::find(outputs.begin(), outputs.end(), s) == &s - outputs.data() + outputs.begin())
        parts.nodes.push_back(op("Relu", {in}, s));
      parts.outputs.push_back(info(s));
    }
    return Model{{}, {}, model(graph(parts)).bytes()};
  };
  CHECK(load(folder, made("x", {"y", "y", "y_2"}).bytes).output_names() == std::vector<std::string>{"y", "y_3", "y_2"});
  CHECK(refusal(folder, made("x", {""})) == "TSR-X014");
  CHECK(refusal(folder, made(std::string("x\0y", 3), {"y"})) == "TSR-X014");
  CHECK(refusal(folder, made("x", {std::string("y\0z", 3)})) == "TSR-X014");
}

TEST_CASE("outputs of a text file keep the names of the values that it returns") {
  const Folder folder;
  folder.write("t.tsr",
               "graph @g(%x: f32[3], %w: f32[3] param \"fc.weight\") -> (f32[3], f32[3], f32[3]) {\n"
               "  %z = constant {value = dense<f32[3]: splat 0.0>}\n  %y = relu %x\n  %a = reshape %y {shape = [3]}\n"
               "  %b = relu %x\n  return %a, %b, %y\n}\n");
  e::Graph graph = context().load(folder / "t.tsr");
  CHECK(graph.input_names() == std::vector<std::string>{"x", "fc.weight"});
  context().run_passes(graph);
  INFO(graph.print());
  CHECK(graph.print().find("return %y, %y, %y") != std::string::npos);
  CHECK(context().compile(std::move(graph)).output_names() == std::vector<std::string>{"a", "b", "y"});
}

TEST_CASE("a cache keeps models apart that differ in names alone") {
  const Folder folder;
  e::ContextOptions options;
  options.config_text = kConfig;
  options.plugin_dirs = {build_dir() + "/lib/tessera/plugins"};
  options.config_text.replace(options.config_text.find("\"tessera.backend.eager\""), 0, "\"tessera.store.disk\", ");
  options.overrides = {"disk.path=\"" + (folder / "cache") + "\""};
  const e::Context cached(options);
  const auto names = [&](const std::string& y, const std::string& z) {
    const std::string text =
        "graph @g(%x: f32[3]) -> (\"" + y + "\": f32[3], \"" + z + "\": f32[3]) { %y = relu %x return %y, %y }";
    return cached.compile_model(cached.parse(text, "text")).output_names();
  };
  const size_t before = nlohmann::json::parse(cached.cache_list())["entries"].size();
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(names("y", "z") == std::vector<std::string>{"y", "z"});
    CHECK(names("z", "y") == std::vector<std::string>{"z", "y"});
    CHECK(names("p", "q") == std::vector<std::string>{"p", "q"});
    cached.cache_flush();
    CHECK(nlohmann::json::parse(cached.cache_list())["entries"].size() == before + 3);
  }
}

TEST_CASE("names with '=' can be written on the command line") {
  const Folder folder;
  const std::string name = "a=b";
  const Model m{{{name, {1, -2, 3}}},
                {{"y", {1, 0, 3}}},
                model(graph({{op("Relu", {name}, "y")}, {}, {info(name)}, {info("y")}})).bytes()};
  folder.write("m.onnx", m.bytes);
  npz::write(folder / "x=0.npy", std::vector<npz::Array>{npz::from_elements("", TSR_F32, {3}, m.inputs[0].second.data())});
  folder.tessera("run m.onnx --config c.toml --inputs a=b=x=0.npy --outputs y.npz");
  check_archive(folder / "y.npz", m);
  folder.tessera("run m.onnx --config c.toml --range a=b=0:1");
}

TEST_CASE("weights that text takes as params do not get in the way of inputs") {
  const Folder folder;
  const Values x(100, 1), w(100, 2), y(100, 3);
  const auto vector = [](const std::string& name) {
    return Msg().s(1, name).m(2, Msg().m(1, Msg().i(1, kFloat).m(2, Msg().m(1, Msg().i(1, 100)))));
  };
  const auto bytes = [](const Values& v) {
    return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
  };
  // Both are called a_b where text shows them.
  GraphParts parts{{op("Add", {"a_b", "a\"b"}, "y")},
                   {tensor("a\"b", kFloat, {100}, bytes(w))},
                   {vector("a_b")},
                   {vector("y"), vector("a\"b")}};
  folder.write("m.onnx", model(graph(parts)).bytes());
  npz::write(folder / "x.npz", std::vector<npz::Array>{npz::from_elements("a_b", TSR_F32, {100}, x.data())});
  folder.tessera("import m.onnx --config c.toml --output t.tsr");
  folder.tessera("run t.tsr --config c.toml --inputs x.npz --inputs t.npz --outputs z.npz");
  const std::vector<npz::Array> arrays = npz::read(folder / "z.npz");
  REQUIRE(arrays.size() == 2);
  CHECK(arrays[0].name == "y");
  CHECK(std::memcmp(arrays[0].data.data(), y.data(), 400) == 0);
  CHECK(arrays[1].name == "a\"b");
  CHECK(std::memcmp(arrays[1].data.data(), w.data(), 400) == 0);
}

TEST_CASE("random names, random uses of values as outputs: through passes and text") {
  const Folder folder;
  Generator generator(11);
  for (int i = 0; i < 150; ++i) {
    INFO("model " << i);
    check_in_process(folder, generator.model());
  }
}

TEST_CASE("random names: from archive to archive through the command, also by way of text") {
  const Folder folder;
  Generator generator(12);
  for (int i = 0; i < 12; ++i) {
    INFO("model " << i);
    check_command(folder, generator.model());
  }
}
