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
