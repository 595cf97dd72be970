// SPDX-License-Identifier: Apache-2.0
// From what a plan relies on to guards: nothing is left out, and what is not covered is a fault that is named.
#include <catch2/catch.hpp>
#include <string>

#include "dispatch/make_guards.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace make_guards_test {

using namespace tessera::core;
using tessera::test::test_ops;

namespace {

struct Case {
  std::unique_ptr<Graph> graph;
  std::vector<TensorRef> tensors;
  std::vector<tsr_arg> args;
  std::vector<uint32_t> leaves;
  std::vector<uint8_t> used;
  std::vector<ArgPolicy> policies;
  std::map<uint32_t, Recorder::Scalar> scalars;
  std::vector<std::string> paths;

  Case(const std::string& text, const std::vector<std::vector<int64_t>>& shapes)
      : graph(parse_graph(test_ops(), text, "t.tsr")) {
    for (const auto& shape : shapes) {
      leaves.push_back(static_cast<uint32_t>(args.size()));
      used.push_back(1);
      paths.push_back("x" + std::to_string(args.size()));
      policies.emplace_back().dims.resize(shape.size());
      args.push_back(arg(tensors.emplace_back(tensor_create(TSR_F32, shape, 0)).get()));
    }
  }
  static tsr_arg arg(tsr_tensor_handle* t) {
    tsr_arg a{};
    a.kind = TSR_ARG_TENSOR;
    a.role = TSR_INPUT_ARG;
    a.tensor = t;
    return a;
  }
  Guards make() const {
    return make_guards(*graph, input_facts(*graph, 0, {}), {leaves, used, policies, scalars, true}, args.data(), args.size(),
                       paths);
  }
  bool hold(const Guards& g, const std::vector<std::vector<int64_t>>& shapes) const {
    std::vector<TensorRef> owned;
    std::vector<tsr_arg> now;
    for (const auto& shape : shapes) now.push_back(arg(owned.emplace_back(tensor_create(TSR_F32, shape, 0)).get()));
    return g.symbolic.hold(now.data());
  }
};

}  // namespace

TEST_CASE("every relation among input sizes is a guard") {
  const Case c(
      "graph @g(%x: f32[s0, s1], %y: f32[s1]) -> (f32[s0, s1]) symbols { s0: 2..; s1: 1.. } "
      "assume { s1 <= s0; s0 % 2 == 0 } { %z = add %x, %y return %z }",
      {{4, 3}, {3}});
  const Guards g = c.make();
  CHECK(g.symbolic.relations.size() == 2);
  CHECK(c.hold(g, {{6, 5}, {5}}));
  CHECK_FALSE(c.hold(g, {{4, 5}, {5}}));
  CHECK_FALSE(c.hold(g, {{5, 3}, {3}}));
  CHECK_FALSE(c.hold(g, {{4, 3}, {2}}));  // one symbol, two sizes
  CHECK_FALSE(c.hold(g, {{4, 0}, {0}}));  // out of its range
}

TEST_CASE("a symbol that only an expression gives is solved for, and its relations are guards") {
  const Case c("graph @g(%x: f32[s0 * 2]) -> (f32[s0 * 2]) assume { s0 >= 3 } { %z = neg %x return %z }", {{8}});
  const Guards g = c.make();
  CHECK(c.hold(g, {{6}}));
  CHECK_FALSE(c.hold(g, {{4}}));
  CHECK_FALSE(c.hold(g, {{7}}));
}

TEST_CASE("a stride that an assumption is about is looked at") {
  Case c(
      "graph @g(%x: f32[s0, 2; t0, 1]) -> (f32[s0, 2]) symbols { s0: 2..; t0: 0.. } assume { t0 == 4 } "
      "{ %z = neg %x return %z }",
      {{3, 2}});
  c.policies[0].any_strides = true;
  const TensorRef base(tensor_create(TSR_F32, std::vector<int64_t>{64}, 0));
  const std::vector<int64_t> sizes = {3, 2}, four = {4, 1}, five = {5, 1};
  const TensorRef a(tensor_view(*base, 0, sizes, four.data())), b(tensor_view(*base, 0, sizes, five.data()));
  const tsr_arg fits = Case::arg(a.get()), differs = Case::arg(b.get());
  c.args[0] = fits;
  const Guards g = c.make();
  CHECK(g.symbolic.hold(&fits));
  CHECK_FALSE(g.symbolic.hold(&differs));
  REQUIRE(g.mismatches(&differs, 1, true).size() == 1);
  CHECK(g.mismatches(&differs, 1, true)[0].text == "x0.stride(0) == 4");
}

TEST_CASE("what no guard covers is a fault") {
  Case c("graph @g(%x: f32[s0]) -> (f32[s0]) symbols { s0: 0.. } assume { s0 >= 3 } { %z = neg %x return %z }", {{4}});
  c.used[0] = 0;
  try {
    c.make();
    FAIL("made");
  } catch (const Error& e) {
    CHECK(e.code() == "TSR-B042");
  }
}

}  // namespace make_guards_test
