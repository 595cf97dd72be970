// SPDX-License-Identifier: Apache-2.0
// The recorder and the graph services over the embedding API: from text and from a client to something that runs.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "capture/recorder.hpp"
#include "fake_backend.hpp"
#include "host_support.hpp"
#include "ir/printer.hpp"
#include "tessera/embed.h"

namespace capture_test {

using namespace tessera::core;
using namespace tessera::test;

using Values = std::vector<double>;

namespace {

const tsr_api& api_table() { return *tsr_get_api(TSR_ABI_MAJOR); }
void check(tsr_error* e) { throw_if(e); }

struct Context {
  tsr_context* c = nullptr;
  explicit Context(const std::string& config) {
    const std::string dir = build_dir() + "/lib/tessera/plugins";
    const char* dirs[] = {dir.c_str()};
    tsr_context_options o{};
    o.struct_size = sizeof o;
    o.config_text = config.c_str();
    o.plugin_dirs = dirs;
    o.num_plugin_dirs = 1;
    check(api_table().context_create(&o, &c));
  }
  ~Context() { api_table().context_destroy(c); }
};

const char* const kConfig =
    "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.backend.reference\", "
    "\"tessera.backend.null\"]\n"
    "[backends]\norder = [\"reference\"]\n";

tsr_type type(uint32_t dtype, const std::vector<tsr_dim>& sizes) {
  tsr_type t{};
  t.dtype = dtype;
  t.rank = static_cast<uint32_t>(sizes.size());
  t.sizes = sizes.data();
  return t;
}

}  // namespace

TEST_CASE("a recorder builds a graph that names its inputs by their path") {
  Recorder r(standard_ops(), "fn");
  const std::vector<tsr_dim> sizes = {4, 4};
  r.add_input("state['h'][0]", type(TSR_F32, sizes), TSR_INPUT_ARG);
  r.add_input("self.fc.weight", type(TSR_F32, sizes), TSR_INPUT_PARAM);
  const tsr_capture_api& c = capture_api();
  REQUIRE(c.num_inputs(r.handle()) == 2);
  REQUIRE(c.input(r.handle(), 2) == TSR_NONE);
  const tsr_id operands[] = {c.input(r.handle(), 0), c.input(r.handle(), 1)};
  tsr_node_desc d{};
  d.struct_size = sizeof d;
  d.op = "add";
  d.operands = operands;
  d.num_operands = 2;
  tsr_id out = TSR_NONE;
  uint32_t n = 0;
  check(c.op(r.handle(), &d, &out, 1, &n));
  REQUIRE(n == 1);
  d.op = "nonsense";
  REQUIRE(error_of([&] { check(c.op(r.handle(), &d, &out, 1, &n)); }).substr(0, 8) == "TSR-O001");
  REQUIRE_FALSE(r.has_outputs());
  check(c.set_outputs(r.handle(), &out, 1));
  REQUIRE(r.has_outputs());
  const auto g = r.take();
  g->commit();
  const std::string text = print_graph(*g);
  REQUIRE(equal(*g, *parse_graph(standard_ops(), text, "again.tsr")));
  REQUIRE(g->value(g->region(0).inputs[1]).input_kind == TSR_INPUT_PARAM);
  REQUIRE(std::string(g->value(g->region(0).inputs[1]).key) == "self.fc.weight");
  REQUIRE(std::string(g->value(g->region(0).inputs[0]).name) == "state['h'][0]");
}

TEST_CASE("text to numbers through the table, with handles that outlive their context") {
  tsr_executable* e = nullptr;
  tsr_graph* copy = nullptr;
  {
    Context context(kConfig);
    const std::string text = "graph @g(%x: f32[2]) -> (f32[2]) { %a = add %x, %x  return %a }";
    tsr_graph* g = nullptr;
    check(api_table().graph_parse(context.c, text.data(), text.size(), "inline.tsr", &g));
    check(api_table().graph_verify(g));
    check(api_table().graph_clone(g, &copy));
    char* report = nullptr;
    check(api_table().graph_run_passes(context.c, g, nullptr, &report));
    REQUIRE(nlohmann::json::parse(report)["passes"].empty());
    api_table().string_free(report);
    check(api_table().compile(context.c, g, "reference", &e));
    for (auto f : {api_table().config_explain, api_table().config_options, api_table().op_list, api_table().loaded}) {
      char* json = nullptr;
      check(f(context.c, &json));
      REQUIRE(nlohmann::json::parse(json).is_object());
      api_table().string_free(json);
    }
  }
  TensorRef x = vector_of({1, 2});
  tsr_tensor_handle* in[] = {x.get()};
  tsr_tensor_handle* out[1] = {};
  check(api_table().run(e, in, 1, out, 1));
  REQUIRE(values_of(*TensorRef(out[0])) == Values{2, 4});
  REQUIRE(std::string(api_table().executable_graph(e)->name) == "g");
  char* json = nullptr;
  check(api_table().executable_describe(e, &json));
  REQUIRE(nlohmann::json::parse(json)["steps"][0]["backend"] == "reference");
  api_table().string_free(json);
  api_table().executable_destroy(e);
  char* text = nullptr;
  check(api_table().graph_print(copy, 0, &text));
  REQUIRE(std::string(text).find("add %x, %x") != std::string::npos);
  api_table().string_free(text);
  api_table().graph_destroy(copy);
}

TEST_CASE("files go through the frontend that reads them") {
  Context context(kConfig);
  const auto dir = std::filesystem::temp_directory_path() / ("tessera_capture_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  const std::string good = (dir / "net.tsr").string(), bad = (dir / "bad.tsr").string(), other = (dir / "net.xyz").string();
  std::ofstream(good) << "graph @net(%x: f32[2]) -> (f32[2]) { %a = neg %x  return %a }";
  std::ofstream(bad) << "graph @net(%x: f32[2]) -> (f32[2]) { %a = nag %x  return %a }";
  std::ofstream(other) << "something else";
  const auto load = [&](const std::string& path) {
    tsr_graph* g = nullptr;
    const std::string error = error_of([&] { check(api_table().graph_load(context.c, path.c_str(), &g)); });
    api_table().graph_destroy(g);
    return error;
  };
  REQUIRE(load(good).empty());
  REQUIRE(load(bad).find(bad + ":1") != std::string::npos);
  REQUIRE(load(other).substr(0, 8) == "TSR-P031");
  REQUIRE(load((dir / "missing.tsr").string()).substr(0, 8) == "TSR-R030");
  REQUIRE(load(dir.string()).substr(0, 8) == "TSR-R030");
  std::filesystem::remove_all(dir);
}

TEST_CASE("null pointers from a client are errors") {
  const tsr_api& api = api_table();
  const auto code = [](tsr_error* e) { return error_of([&] { check(e); }).substr(0, 8); };
  REQUIRE(code(api.graph_load(nullptr, nullptr, nullptr)) == "TSR-E002");
  REQUIRE(code(api.tensor_copy(nullptr, 0, nullptr)) == "TSR-E002");
  REQUIRE(code(api.tensor_create(TSR_F32, 1, nullptr, 0, nullptr)) == "TSR-E002");
  REQUIRE(code(api.run(nullptr, nullptr, 0, nullptr, 0)) == "TSR-E002");
  REQUIRE(code(api.eager_op(nullptr, "add", nullptr, 0, nullptr, 0, nullptr, 0, nullptr)) == "TSR-E002");
  REQUIRE(tsr_get_api(TSR_ABI_MAJOR + 1) == nullptr);
  api.tensor_release(nullptr);
  api.graph_destroy(nullptr);
  api.executable_destroy(nullptr);
  api.callable_destroy(nullptr);
  api.context_destroy(nullptr);
}

TEST_CASE("the null backend runs whole graphs on either of its devices") {
  Context context("[plugins]\nload = [\"tessera.opset.standard\", \"tessera.backend.null\"]\n[backends]\norder = [\"null\"]\n");
  for (const char* device : {"", "@null:0", "@null:1"}) {
    const std::string d = device;
    const std::string text = "graph @g(%x: f32[2]" + d + ") -> (f32[2]" + d + ") { %a = neg %x  %b = exp %a  return %b }";
    tsr_graph* g = nullptr;
    check(api_table().graph_parse(context.c, text.data(), text.size(), "g.tsr", &g));
    tsr_executable* e = nullptr;
    check(api_table().compile(context.c, g, nullptr, &e));
    const int64_t sizes[] = {2};
    const tsr_device id = device_intern(d.empty() ? "cpu" : d.substr(1));
    TensorRef x(tensor_create(TSR_F32, sizes, id));
    tsr_tensor_handle* in[] = {x.get()};
    tsr_tensor_handle* out[1] = {};
    check(api_table().run(e, in, 1, out, 1));
    TensorRef y(out[0]);
    REQUIRE(y->desc.device == id);
    api_table().executable_destroy(e);
  }
}

}  // namespace capture_test
