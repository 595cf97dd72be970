// SPDX-License-Identifier: Apache-2.0
// parse(print(g)) == g over random graphs, and that the generator covers what it promises.
#include "random_graph.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

#if __has_include("opset.hpp")
#include "ir/body.hpp"
#include "ir/graph_api.hpp"
#include "opset.hpp"
#include "plugin/plugin_host.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"
#endif

namespace random_graph_test {

using namespace tessera::core;
using tessera::test::random_graph;
using tessera::test::test_ops;

TEST_CASE("10,000 random graphs round-trip through the text form") {
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    std::string text;
    try {
      const auto g = random_graph(test_ops(), seed);
      verify(*g);
      text = print_graph(*g);
      const auto back = parse_graph(test_ops(), text, "random.tsr");
      verify(*back);
      const std::string d = difference(*g, *back);
      if (!d.empty() || print_graph(*back) != text) {
        INFO("seed " << seed << "\n" << text << "\nread back as\n" << print_graph(*back));
        REQUIRE(d == "");
        FAIL("the second text differs");
      }
    } catch (const Error& e) {
      FAIL("seed " << seed << ": " << e.what() << "\n" << text);
    }
  }
  SUCCEED();
}

TEST_CASE("random graphs are the same for the same seed") {
  for (uint64_t seed = 0; seed < 50; ++seed)
    REQUIRE(print_graph(*random_graph(test_ops(), seed)) == print_graph(*random_graph(test_ops(), seed)));
  CHECK(print_graph(*random_graph(test_ops(), 1)) != print_graph(*random_graph(test_ops(), 2)));
}

TEST_CASE("random graphs cover every op, dtype, attribute kind, input kind and expression") {
  std::set<std::string> ops;
  std::set<uint32_t> dtypes, kinds, inputs, exprs;
  bool strides = false, device = false, nested = false, absent = false, assumed = false;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const auto g = random_graph(test_ops(), seed);
    for (tsr_id n = 0; n < g->num_nodes(); ++n) {
      const tsr_node& x = g->node(n);
      ops.insert(x.op);
      nested |= x.parent != 0;
      for (uint32_t i = 0; i < x.num_attrs; ++i) kinds.insert(x.attrs[i].kind);
      for (uint32_t i = 0; i < x.num_operands; ++i) absent |= x.operands[i] == TSR_NONE;
    }
    for (tsr_id v = 0; v < g->num_values(); ++v) {
      dtypes.insert(g->value(v).type->dtype);
      inputs.insert(g->value(v).input_kind);
      strides |= g->value(v).type->strides != nullptr;
      device |= g->value(v).type->device != 0;
    }
    for (const tsr_dim_expr& e : g->sizes().exprs()) exprs.insert(e.op);
    assumed |= !g->sizes().assumptions().empty();
  }
  for (const OpRecord* r : test_ops().all()) {
    INFO(r->name);
    CHECK(ops.count(r->name) == 1);
  }
  CHECK(dtypes.size() == TSR_DTYPE_COUNT - 1);
  CHECK(kinds.size() == TSR_ATTR_TENSOR);
  CHECK(inputs.size() == TSR_INPUT_BLOCK + 1);
  CHECK(exprs.size() == TSR_DIM_MAX);  // all but SUB, which the normal form writes as a sum
  CHECK(strides);
  CHECK(device);
  CHECK(nested);
  CHECK(absent);
  CHECK(assumed);
}

TEST_CASE("the witness satisfies the graph") {
  size_t symbols = 0, assumptions = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::vector<int64_t> witness;
    tessera::test::RandomGraphOptions options;
    options.witness = &witness;
    const auto g = random_graph(test_ops(), seed, options);
    const Sizes& s = g->sizes();
    REQUIRE(witness.size() == s.symbols().size());
    for (size_t i = 0; i < witness.size(); ++i) REQUIRE((s.symbols()[i].min <= witness[i] && witness[i] <= s.symbols()[i].max));
    for (const Assumption& a : s.assumptions())
      REQUIRE(Sizes::holds(a.relation, s.evaluate(a.a, witness), s.evaluate(a.b, witness)));
    for (tsr_id v = 0; v < g->num_values(); ++v)
      for (uint32_t k = 0; g->value(v).alive && k < g->value(v).type->rank; ++k)
        REQUIRE(s.evaluate(g->value(v).type->sizes[k], witness) >= 0);
    symbols += witness.size();
    assumptions += s.assumptions().size();
  }
  CHECK(symbols > 300);
  CHECK(assumptions > 100);
}

#if __has_include("opset.hpp")
// The standard op set, where this build has it.

namespace {

const OpRegistry& standard_ops() {
  static const tsr_host host = make_host(&host_core(), &graph_api(), nullptr);
  static const OpRegistry* ops = [] {
    tessera::sdk::host_slot() = &host;
    static OpRegistry registry;
    registry.add(*tessera::opset::tessera_standard_opset(), "tessera.opset.standard");
    return &registry;
  }();
  return *ops;
}

// By the witness: that sizes which are equal can be proved to be is not promised.
bool agree(const Graph& g, tsr_id a, tsr_id b, const std::vector<int64_t>& witness) {
  const tsr_type &x = *g.value(a).type, &y = *g.value(b).type;
  bool same = x.dtype == y.dtype && x.rank == y.rank;
  for (uint32_t k = 0; same && k < x.rank; ++k)
    same = g.sizes().evaluate(x.sizes[k], witness) == g.sizes().evaluate(y.sizes[k], witness);
  return same;
}

void decompose_all(Graph& g) {
  const auto count = static_cast<tsr_id>(g.num_nodes());
  for (tsr_id n = 0; n < count; ++n) {
    if (!g.node(n).alive || !g.record_of(n).can_decompose()) continue;
    g.begin("test");
    const std::vector<tsr_id> out = build_decomposition(g, n);
    for (size_t i = 0; i < out.size(); ++i) g.replace_uses(g.node(n).results[i], out[i]);
    g.erase_node(n);
    g.commit();
  }
}

// Gradients with the results themselves as incoming gradients: they have the right types.
size_t differentiate_all(Graph& g, const std::vector<int64_t>& witness) {
  size_t built = 0;
  const auto count = static_cast<tsr_id>(g.num_nodes());
  for (tsr_id n = 0; n < count; ++n) {
    const OpRecord& r = g.record_of(n);
    if (!g.node(n).alive || g.node(n).num_results == 0 || !(r.grad_body || (r.impl && r.impl->grad))) continue;
    const uint32_t dtype = g.value(g.node(n).results[0]).type->dtype;
    if (!tessera::is_float(dtype) && !tessera::is_complex(dtype)) continue;
    const std::vector<tsr_id> incoming(g.node(n).results, g.node(n).results + g.node(n).num_results);
    g.begin("test");
    try {
      const std::vector<tsr_id> out = build_grad(g, n, incoming);
      REQUIRE(g.sizes().symbols().size() == witness.size());
      for (size_t i = 0; i < out.size(); ++i)
        if (out[i] != TSR_NONE && !agree(g, out[i], g.node(n).operands[i], witness))
          FAIL("operand " << i << " of " << print_node(g, n) << " has a gradient of type "
                          << print_type(g, *g.value(out[i]).type));
      g.commit();
      ++built;
    } catch (const Error& e) {
      if (g.in_transaction()) g.rollback();
      if (e.code() != "TSR-I220") throw;  // says that this instance has no gradient
    }
  }
  return built;
}

}  // namespace

TEST_CASE("random graphs over the standard set verify, round-trip, decompose and differentiate") {
  std::set<std::string> ops;
  size_t gradients = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::string text;
    std::vector<int64_t> witness;
    tessera::test::RandomGraphOptions options;
    options.witness = &witness;
    try {
      const auto g = random_graph(standard_ops(), seed, options);
      verify(*g);
      text = print_graph(*g);
      const std::string d = difference(*g, *parse_graph(standard_ops(), text, "random.tsr"));
      if (!d.empty()) FAIL("seed " << seed << ": " << d << "\n" << text);
      for (tsr_id n = 0; n < g->num_nodes(); ++n) ops.insert(g->node(n).op);
      gradients += differentiate_all(*g, witness);
      decompose_all(*g);
      verify(*g);
      const std::string after = difference(*g, *parse_graph(standard_ops(), print_graph(*g), "random.tsr"));
      if (!after.empty()) FAIL("seed " << seed << ", decomposed: " << after << "\n" << print_graph(*g));
    } catch (const Error& e) {
      FAIL("seed " << seed << ": " << e.what() << "\n" << text);
    }
  }
  // Random attributes seldom fit these: their lists must have one length and their windows must fit.
  const std::set<std::string> rare = {"conv",
                                      "conv_transpose",
                                      "max_pool",
                                      "avg_pool",
                                      "scan",
                                      "fused",
                                      "grad",
                                      "conv_integer",
                                      "to_device",
                                      "tangent",
                                      "client_step",
                                      "client_effect",
                                      "attention_backward",
                                      "attention_y_backward"};  // the last six are never drawn
  for (const OpRecord* r : standard_ops().all()) {
    INFO(r->name);
    CHECK(ops.count(r->name) + rare.count(r->name) >= 1);
  }
  CHECK(gradients > 1000);
}
#endif

}  // namespace random_graph_test
