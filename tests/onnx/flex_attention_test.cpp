// SPDX-License-Identifier: Apache-2.0
// FlexAttention as ONNX has it, imported and compiled with the default config: its score function runs inside the attention
// kernel of cpu.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "model_builder.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/embed.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr int64_t kHeads = 8, kQueries = 64, kKeys = 80, kDepth = 16;

// A cap, ALiBi and a causal mask; the slopes and the cap are inputs of the model. `kv`: heads of keys and values.
std::string flex_model(int64_t kv) {
  const Msg score = graph(
      {{node("Div", {"scores", "cap"}, {"a"}), node("Tanh", {"a"}, {"b"}), node("Mul", {"b", "cap"}, {"c"}),
        node("Range", {"zero", "queries", "one"}, {"q"}), node("Range", {"zero", "keys", "one"}, {"k"}),
        node("Unsqueeze", {"q", "one_"}, {"q1"}), node("Unsqueeze", {"k", "zero_"}, {"k1"}), node("Sub", {"k1", "q1"}, {"d"}),
        node("Cast", {"d"}, {"f"}, {attribute("to", kFloat)}), node("Mul", {"f", "slopes"}, {"g"}),
        node("Add", {"c", "g"}, {"h"}), node("LessOrEqual", {"k1", "q1"}, {"m"}), node("Where", {"m", "h", "low"}, {"out"})},
       {tensor("zero", kInt64, {}, raw<int64_t>({0})), tensor("one", kInt64, {}, raw<int64_t>({1})),
        tensor("zero_", kInt64, {1}, raw<int64_t>({0})), tensor("one_", kInt64, {1}, raw<int64_t>({1})),
        tensor("queries", kInt64, {}, raw<int64_t>({kQueries})), tensor("keys", kInt64, {}, raw<int64_t>({kKeys})),
        tensor("low", kFloat, {}, raw<float>({-std::numeric_limits<float>::infinity()}))},
       {value_info("scores", kFloat, {1, kHeads, kQueries, kKeys})},
       {value_info("out", kFloat, {1, kHeads, kQueries, kKeys})}},
      "score_mod");
  const Msg whole = graph({{node("FlexAttention", {"Q", "K", "V"}, {"Y"}, {attribute("score_mod", score)}, "ai.onnx.preview")},
                           {},
                           {value_info("Q", kFloat, {1, kHeads, kQueries, kDepth}),
                            value_info("K", kFloat, {1, kv, kKeys, kDepth}), value_info("V", kFloat, {1, kv, kKeys, kDepth}),
                            value_info("slopes", kFloat, {kHeads, 1, 1}), value_info("cap", kFloat, {})},
                           {value_info("Y", kFloat, {1, kHeads, kQueries, kDepth})}});
  return Msg().i(1, 10).m(7, whole).m(8, Msg().i(2, 23)).m(8, Msg().s(1, "ai.onnx.preview").i(2, 1)).bytes();
}

e::Executable compile(const char* config, const std::string& path) {
  e::ContextOptions o;
  o.config_path = config;
  if (const char* build = std::getenv("TESSERA_BUILD_DIR")) o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
  const e::Context c(o);
  return c.compile_model(c.load(path));
}

e::Tensor wave(std::vector<int64_t> sizes, double step, double scale) {
  const e::Tensor t = e::Tensor::create(TSR_F32, sizes);
  for (int64_t i = 0; i < t.elements(); ++i)
    static_cast<float*>(t.data())[i] = static_cast<float>(scale * std::sin(step * static_cast<double>(i + 1)));
  return t;
}

}  // namespace

TEST_CASE("FlexAttention is one kernel of the default config") {
  for (const int64_t kv : {kHeads, kHeads / 4}) {
    INFO(kv << " heads of keys");
    const fs::path path = fs::temp_directory_path() / ("tessera_flex_" + std::to_string(::getpid()) + ".onnx");
    std::ofstream(path, std::ios::binary) << flex_model(kv);
    const e::Executable fused = compile("default", path.string()), reference = compile("reference", path.string());
    fs::remove(path);
    int kernels = 0;
    const Json plan = Json::parse(fused.describe());
    for (const Json& step : plan.at("steps")) {
      if (step.at("kind") == "kernel") CHECK(step.at("kernel").get<std::string>().starts_with("cpu.attention_"));
      kernels += step.at("kind") == "kernel";
    }
    CHECK(kernels == 1);
    // Heads that share keys and values read them where they lie.
    for (const Json& step : plan.at("steps")) CHECK(step.at("kind") != "copy");
    // New slopes and caps are other inputs of the same executable.
    for (const double cap : {1.0, 30.0}) {
      const e::Tensor c = e::Tensor::create(TSR_F32, std::vector<int64_t>{});
      *static_cast<float*>(c.data()) = static_cast<float>(cap);
      const std::vector<e::Tensor> in = {wave({1, kHeads, kQueries, kDepth}, 0.7, 2), wave({1, kv, kKeys, kDepth}, 0.3, 2),
                                         wave({1, kv, kKeys, kDepth}, 0.11, 1), wave({kHeads, 1, 1}, cap, 0.1), c};
      const e::Tensor got = fused.run(in)[0], want = reference.run(in)[0];
      REQUIRE(got.elements() == want.elements());
      // Scores of up to 16 are off by some units of their last place, and so are weights; values are at most 1.
      for (int64_t i = 0; i < got.elements(); ++i)
        REQUIRE(std::abs(static_cast<const float*>(got.data())[i] - static_cast<const float*>(want.data())[i]) <= 2e-5f);
    }
  }
}
