// SPDX-License-Identifier: Apache-2.0
// freezing = false: kernels keep no form of a constant and large constants are not folded; what is computed stays the same.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/api.hpp"
#include "graph_cache/cached.hpp"
#include "ir/dense.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "memory/tensor.hpp"
#include "plan/plan.hpp"
#include "random_run.hpp"
#include "run/executable.hpp"

using namespace tessera;
using namespace tessera::core;
using Catch::Contains;

namespace {

std::shared_ptr<const Context> context(bool freezing, const std::string& cpu = "") {
  const std::string config =
      std::string("freezing = ") + (freezing ? "true" : "false") +
      "\n[plugins]\nload = [\"tessera.opset.standard\", \"tessera.backend.cpu\", \"tessera.backend.eager\", "
      "\"tessera.pass.fuse\", \"tessera.pass.constant_fold\"]\n[backends]\norder = [\"cpu\", \"eager\"]\n"
      "[pipeline]\npasses = [\"constant_fold\", \"fuse\"]\n[constant_fold]\nmax_bytes = 1000000000\n"
      "[cpu]\ncache = false\n" +
      cpu;
  const char* dir = TESSERA_PLUGIN_DIR;
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = config.c_str();
  options.plugin_dirs = &dir;
  options.num_plugin_dirs = 1;
  return Context::create(&options, api::host());
}

// `ref N` in the text of a graph: small values of both signs, others for each N.
class Weights final : public NamedConstants {
 public:
  bool print(std::string&, const tsr_tensor&) const override { return false; }
  const void* find(uint64_t id, uint32_t, int64_t bytes) const override {
    auto values = std::make_unique<std::vector<float>>(static_cast<size_t>(bytes) / sizeof(float));
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] = (static_cast<float>((i * 7919 + id * 104729) % 31) - 15.0f) / 64;
    kept_.push_back(std::move(values));
    return kept_.back()->data();
  }

 private:
  mutable std::vector<std::unique_ptr<std::vector<float>>> kept_;
};

struct Outcome {
  std::vector<float> values;
  std::string graph, plan;
  int64_t kernel_bytes = 0;
};

Outcome run(const char* text, const std::shared_ptr<const Context>& c) {
  const auto weights = std::make_shared<Weights>();
  ReadLimits limits;
  limits.constants = weights.get();
  auto graph = parse_graph(c->ops(), text, "net.tsr", limits);
  graph->keep(weights);
  const std::vector<TensorRef> inputs = test::random_inputs(*graph, {}, 5);
  const CompileOptions options = api::compile_options(c, c->config(), nullptr);
  const auto executable = compile_cached(std::move(graph), {*c, c->config(), c->pipeline(c->config()), options});
  Outcome out;
  for (int again = 0; again < 2; ++again) {  // the second time in an arena that was used before
    const test::Outcome o = test::run(*executable, inputs);
    REQUIRE(o.error.empty());
    const tsr_tensor& y = o.outputs[0]->desc;
    const auto* from = static_cast<const float*>(y.data);
    std::vector<float> values(from, from + num_elements({y.sizes, y.rank}));
    if (again) REQUIRE(std::memcmp(values.data(), out.values.data(), values.size() * sizeof(float)) == 0);
    out.values = std::move(values);
  }
  out.graph = print_graph(executable->graph());
  out.plan = executable->describe_json();  // with the names of kernels
  out.kernel_bytes = executable->plan().with_nested(&Plan::held_bytes);
  return out;
}

// Of the largest value: what two algorithms may differ by.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(double{a[i]} - double{b[i]}));
    scale = std::max(scale, std::fabs(double{a[i]}));
  }
  REQUIRE(scale > 0);
  return most / scale;
}

const char* const kProducts = R"(graph @net(%x: f32[5, 300] arg) -> (f32[5, 40])
{
  %w = constant {value = dense<f32[200, 300]: ref 0>}
  %b = constant {value = dense<f32[200]: ref 1>}
  %l = linear %x, %w, %b
  %r = relu %l
  %v = constant {value = dense<f32[200, 40]: ref 2>}
  %y = matmul %r, %v
  return %y
})";

// One for each way in which the backend makes a product of a convolution: a point, rows, columns, groups, planes, and a pair of
// two.
const char* const kConvolutions[] = {
    R"(graph @point(%x: f32[4, 64, 1, 1] arg) -> (f32[4, 96, 1, 1]) {
  %w = constant {value = dense<f32[96, 64, 1, 1]: ref 0>}
  %y = conv %x, %w, _ {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], groups = 1}
  return %y
})",
    R"(graph @small(%x: f32[1, 128, 7, 7] arg) -> (f32[1, 256, 4, 4]) {
  %w = constant {value = dense<f32[256, 128, 3, 3]: ref 0>}
  %y = conv %x, %w, _ {strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 1}
  return %y
})",
    R"(graph @large(%x: f32[1, 8, 32, 32] arg) -> (f32[1, 24, 32, 32]) {
  %w = constant {value = dense<f32[24, 8, 5, 5]: ref 0>}
  %b = constant {value = dense<f32[24]: ref 1>}
  %c = conv %x, %w, %b {strides = [1, 1], pad_low = [2, 2], pad_high = [2, 2], dilations = [1, 1], groups = 1}
  %y = relu %c
  return %y
})",
    R"(graph @groups(%x: f32[2, 32, 9, 9] arg) -> (f32[2, 48, 9, 9]) {
  %w = constant {value = dense<f32[48, 8, 3, 3]: ref 0>}
  %y = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 4}
  return %y
})",
    R"(graph @pair(%x: f32[1, 16, 28, 28] arg) -> (f32[1, 96, 28, 28]) {
  %w = constant {value = dense<f32[96, 16, 1, 1]: ref 0>}
  %v = constant {value = dense<f32[96, 1, 3, 3]: ref 1>}
  %a = conv %x, %w, _ {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], groups = 1}
  %r = relu %a
  %y = conv %r, %v, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 96}
  return %y
})"};

}  // namespace

TEST_CASE("products without packed weights have the same bits") {
  const Outcome frozen = run(kProducts, context(true)), unfrozen = run(kProducts, context(false));
  CHECK(frozen.kernel_bytes > 0);
  CHECK_THAT(frozen.plan, Contains(".packed."));
  CHECK(unfrozen.kernel_bytes == 0);
  CHECK_THAT(unfrozen.plan, !Contains(".packed."));
  CHECK(difference(frozen.values, unfrozen.values) == 0);
}

TEST_CASE("convolutions without packed weights have the same bits, whichever way they are computed") {
  const auto yes = context(true, "winograd = \"off\"\n"), no = context(false, "winograd = \"off\"\n");
  for (const char* text : kConvolutions) {
    const Outcome frozen = run(text, yes), unfrozen = run(text, no);
    INFO(frozen.plan << "\n" << unfrozen.plan);
    CHECK(frozen.kernel_bytes > 0);
    CHECK_THAT(frozen.plan, Contains(".packed."));
    CHECK(unfrozen.kernel_bytes == 0);
    CHECK_THAT(unfrozen.plan, !Contains(".packed."));
    CHECK(difference(frozen.values, unfrozen.values) == 0);
  }
}

TEST_CASE("minimal filtering of weights that stay as they are transforms them in every run") {
  const char* text = R"(graph @net(%x: f32[1, 64, 56, 56] arg) -> (f32[1, 64, 56, 56]) {
  %w = constant {value = dense<f32[64, 64, 3, 3]: ref 0>}
  %y = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 1}
  return %y
})";
  const Outcome frozen = run(text, context(true)), unfrozen = run(text, context(false));
  CHECK_THAT(frozen.plan, Contains(".winograd4.packed."));
  CHECK_THAT(unfrozen.plan, Contains(".winograd2."));
  CHECK_THAT(unfrozen.plan, !Contains(".packed."));
  CHECK(unfrozen.kernel_bytes == 0);
  CHECK(difference(frozen.values, unfrozen.values) < 1e-5);
}

TEST_CASE("large constants are not folded into others") {
  const char* text = R"(graph @net(%x: f32[64, 64] arg) -> (f32[64, 64]) {
  %w = constant {value = dense<f32[64, 64]: ref 0>}
  %s = add %w, %w
  %c = constant {value = dense<f32[64]: ref 1>}
  %d = mul %c, %c
  %p = add %x, %s
  %y = add %p, %d
  return %y
})";
  const Outcome frozen = run(text, context(true)), unfrozen = run(text, context(false));
  CHECK_THAT(frozen.graph, !Contains("%w") && !Contains("mul"));
  CHECK_THAT(unfrozen.graph, Contains("%w") && !Contains("mul"));  // 256 bytes cost nothing
  CHECK(difference(frozen.values, unfrozen.values) == 0);
}
