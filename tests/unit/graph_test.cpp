// SPDX-License-Identifier: Apache-2.0
// The graph's tables under each edit: order, names, uses, regions, and what is refused.
#include "ir/graph.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "edit_support.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/verifier.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace graph_test {

using namespace tessera::core;
using namespace tessera::test;

namespace {

std::unique_ptr<Graph> parse(const std::string& text) { return parse_graph(test_ops(), text, "test.tsr"); }

struct Built {
  std::unique_ptr<Graph> g;
  tsr_type f32x4;
  tsr_id x, y;
  Built() : g(std::make_unique<Graph>(test_ops(), "built")) {
    const tsr_dim four[] = {4};
    f32x4 = g->make_type(TSR_F32, four);
    x = g->create_input("x", f32x4);
    y = g->create_input("y", f32x4);
  }
  tsr_id node(const char* op, std::vector<tsr_id> operands, tsr_id before = TSR_NONE, tsr_id region = 0,
              const char* name = "") {
    NodeSpec s;
    s.op = op;
    s.operands = std::move(operands);
    if (*name) s.result_names = {name};
    return g->create_node(s, region, before);
  }
  tsr_id out(tsr_id n) const { return g->node(n).results[0]; }
  void outputs(std::vector<tsr_id> v) { g->set_outputs(0, v); }
  std::string order() const {
    std::string s;
    for (const tsr_id n : nodes_of(*g, 0)) s += (s.empty() ? "" : " ") + std::string(g->value(g->node(n).results[0]).name);
    return s;
  }
};

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code() + " " + e.message();
  }
  return "none";
}

}  // namespace

TEST_CASE("nodes stand where they are put") {
  Built b;
  const tsr_id n1 = b.node("neg", {b.x}, TSR_NONE, 0, "n1");
  const tsr_id n3 = b.node("neg", {b.x}, TSR_NONE, 0, "n3");
  const tsr_id n2 = b.node("neg", {b.x}, n3, 0, "n2");
  b.node("neg", {b.x}, n1, 0, "n0");
  CHECK(b.order() == "n0 n1 n2 n3");
  b.g->move_node(n2, TSR_NONE);
  CHECK(b.order() == "n0 n1 n3 n2");
  b.g->move_node(n2, n1);
  CHECK(b.order() == "n0 n2 n1 n3");
  b.g->move_node(n2, n2);
  b.g->move_node(n2, n1);  // it is there already
  CHECK(b.order() == "n0 n2 n1 n3");
  b.g->erase_node(n2);
  CHECK(b.order() == "n0 n1 n3");
  CHECK(b.g->num_live_nodes() == 3);
  CHECK(b.g->find_value("n2") == TSR_NONE);
  CHECK_FALSE(b.g->node(n2).alive);
  b.outputs({b.out(n3)});
  REQUIRE_NOTHROW(b.g->commit());
  REQUIRE_NOTHROW(verify(*b.g));
}

TEST_CASE("names are made unique and can be found") {
  Built b;
  const tsr_id a = b.node("neg", {b.x}, TSR_NONE, 0, "x");
  CHECK(std::string(b.g->value(b.out(a)).name) == "x_1");
  const tsr_id c = b.node("neg", {b.x}, TSR_NONE, 0, "x");
  CHECK(std::string(b.g->value(b.out(c)).name) == "x_2");
  const tsr_id d = b.node("neg", {b.x});
  CHECK(std::string(b.g->value(b.out(d)).name) == "0");
  const tsr_id e = b.node("neg", {b.x}, TSR_NONE, 0, "1");
  const tsr_id f = b.node("neg", {b.x});
  CHECK(std::string(b.g->value(b.out(e)).name) == "1");
  CHECK(std::string(b.g->value(b.out(f)).name) == "2");
  CHECK(b.g->find_value("x_2") == b.out(c));
  b.g->set_name(b.out(c), "final");
  CHECK(b.g->find_value("x_2") == TSR_NONE);
  CHECK(b.g->find_value("final") == b.out(c));
  b.g->set_name(b.out(c), "final");
  CHECK(std::string(b.g->value(b.out(c)).name) == "final");
  b.g->set_name(b.out(d), "final");
  CHECK(std::string(b.g->value(b.out(d)).name) == "final_1");
  // A name is free again once its value is gone.
  b.g->erase_node(c);
  CHECK(std::string(b.g->value(b.out(b.node("neg", {b.x}, TSR_NONE, 0, "final"))).name) == "final");
}

TEST_CASE("uses follow operands and outputs") {
  Built b;
  const tsr_id a = b.node("add", {b.x, b.x}), c = b.node("mul", {b.out(a), b.y}), d = b.node("add", {b.out(a), b.out(c)});
  b.outputs({b.out(a), b.out(d), b.out(a)});
  const auto count = [&](tsr_id v) {
    CHECK(b.g->value(v).num_uses == b.g->uses(v).size());
    return b.g->uses(v).size();
  };
  CHECK(count(b.x) == 2);
  CHECK(count(b.out(a)) == 4);
  b.g->set_operand(d, 0, b.y);
  CHECK(count(b.out(a)) == 3);
  CHECK(count(b.y) == 2);
  b.g->replace_uses(b.out(a), b.x);
  CHECK(count(b.out(a)) == 0);
  CHECK(count(b.x) == 5);
  CHECK(b.g->region(0).outputs[0] == b.x);
  CHECK(b.g->region(0).outputs[2] == b.x);
  CHECK(b.g->node(c).operands[0] == b.x);
  b.g->erase_node(a);
  CHECK(count(b.x) == 3);
  CHECK(misplaced_use(*b.g) == "");
  REQUIRE_NOTHROW(b.g->commit());
  REQUIRE_NOTHROW(verify(*b.g));
}

TEST_CASE("what cannot be is refused") {
  Built b;
  const tsr_id a = b.node("neg", {b.x}, TSR_NONE, 0, "a"), c = b.node("neg", {b.out(a)}, TSR_NONE, 0, "c");
  const tsr_dim five[] = {5};
  const tsr_id other = b.g->create_input("other", b.g->make_type(TSR_F32, five));
  const tsr_id region = b.g->create_region({&b.f32x4, 1});
  const tsr_id inside = b.node("neg", {b.g->region(region).inputs[0]}, TSR_NONE, region);

  CHECK(message_of([&] { b.g->erase_node(a); }) == "TSR-B001 cannot erase %a = neg: %a still has 1 uses");
  CHECK(message_of([&] { b.g->erase_node(99); }) == "TSR-B001 no live node with id 99");
  CHECK(message_of([&] { b.node("neg", {99}); }) == "TSR-B001 no live value with id 99");
  CHECK(message_of([&] { b.node("neg", {b.x}, inside); }) == "TSR-B001 the insertion point is in another region");
  CHECK(message_of([&] { b.node("neg", {b.x}, TSR_NONE, 7); }) == "TSR-B001 no live region with id 7");
  CHECK(message_of([&] { b.node("nog", {b.x}); }).rfind("TSR-O001", 0) == 0);
  CHECK(message_of([&] { b.g->move_node(a, inside); }) == "TSR-B001 a node moves within its region only");
  CHECK(message_of([&] { b.g->set_operand(c, 1, b.x); }) == "TSR-B001 %c = neg has no operand 1");
  CHECK(message_of([&] { b.g->replace_uses(b.x, other); }) ==
        "TSR-B001 cannot replace %x of type f32[4] by %other of type f32[5]");
  CHECK(message_of([&] { b.g->replace_uses(b.x, b.out(inside)); }) ==
        "TSR-B001 cannot replace a value by one of another region");
  const tsr_id foreign[] = {b.out(inside)};
  CHECK(message_of([&] { b.g->set_outputs(0, foreign); }) ==
        "TSR-B001 %1 cannot be an output of region 0: it belongs to another");
  CHECK(message_of([&] { b.g->set_attr(a, tsr_attr{}); }) != "none");
  const tsr_id twice[] = {b.x, b.x};
  b.g->set_outputs(0, twice);
  const char *const same[] = {"y", "y"}, *const empty[] = {nullptr, ""};
  CHECK(message_of([&] { b.g->set_output_names(same); }) == "TSR-B001 two outputs are called 'y'");
  CHECK(message_of([&] { b.g->set_output_names(empty); }) == "TSR-B001 the name of output 1 is empty");
  CHECK(message_of([&] { b.g->set_output_names({same, 1}); }).rfind("TSR-B001 1 names for the 2 outputs of graph", 0) == 0);
  CHECK(b.g->num_live_nodes() == 3);
}

TEST_CASE("what replaces a node takes over its names if it was made for that") {
  Built b;
  const tsr_id a = b.node("neg", {b.x}, TSR_NONE, 0, "y1"), c = b.node("neg", {b.x}, TSR_NONE, 0, "y2");
  b.outputs({b.out(a), b.out(c)});
  const auto made_from = static_cast<tsr_id>(b.g->num_values());
  const tsr_id e = b.node("exp", {b.x}, a);
  const tsr_id made[] = {b.out(e)}, there[] = {b.x};
  CHECK(code_of([&] { b.g->replace_node(a, {}, made_from); }) == "TSR-B001");
  b.g->replace_node(a, made, made_from);
  b.g->replace_node(c, there, made_from);
  CHECK(std::string(b.g->value(b.g->region(0).outputs[0]).name) == "y1");
  CHECK(std::string(b.g->value(b.g->region(0).outputs[1]).name) == "x");
  CHECK(b.g->find_value("y2") == TSR_NONE);
  CHECK(b.order() == "y1");
  REQUIRE_NOTHROW(b.g->commit());
}

TEST_CASE("sizes that cannot be proved equal do not replace each other") {
  const auto g = parse("graph @g(%x: f32[s0], %y: f32[s1], %z: f32[s0]) -> (f32[s0])\n{\n  %a = neg %x\n  return %a\n}\n");
  g->begin("test");
  CHECK(message_of([&] { g->replace_uses(g->find_value("a"), g->find_value("y")); }) ==
        "TSR-B001 cannot replace %a of type f32[s0] by %y of type f32[s1]");
  g->sizes().require(TSR_EQ, g->sizes().find("s0"), g->sizes().find("s1"), "test");
  REQUIRE_NOTHROW(g->replace_uses(g->find_value("a"), g->find_value("y")));
  REQUIRE_NOTHROW(g->commit());
}

TEST_CASE("a region belongs to one node, which does not stand in it") {
  Built b;
  const tsr_id pred = b.g->create_input("p", b.g->make_type(TSR_BOOL, {}));
  std::vector<tsr_id> regions;
  for (int k = 0; k < 2; ++k) {
    const tsr_id r = b.g->create_region({&b.f32x4, 1});
    const tsr_id v[] = {b.out(b.node("neg", {b.g->region(r).inputs[0]}, TSR_NONE, r))};
    b.g->set_outputs(r, v);
    regions.push_back(r);
  }
  const auto cond = [&](std::vector<tsr_id> owned, tsr_id where = 0) {
    NodeSpec s;
    s.op = "cond";
    s.operands = {pred, b.x};
    s.regions = std::move(owned);
    return b.g->create_node(s, where);
  };
  CHECK(message_of([&] {
          cond({regions[0], regions[0]});
        }) == "TSR-B001 region " + std::to_string(regions[0]) + " is not free to become part of 'cond'");
  CHECK(code_of([&] { cond({regions[0], 0}); }) == "TSR-B001");
  CHECK(code_of([&] { cond({regions[0], regions[1]}, regions[1]); }) == "TSR-B001");  // it would contain itself
  const tsr_id n = cond({regions[0], regions[1]});
  CHECK(b.g->region(regions[0]).parent_node == n);
  CHECK(code_of([&] { cond({regions[0], regions[1]}); }) == "TSR-B001");
  CHECK(b.g->num_live_nodes() == 3);

  // Erasing the node takes what is nested with it, and frees the names.
  const std::string nested = b.g->value(b.g->region(regions[1]).inputs[0]).name;
  b.g->erase_node(n);
  CHECK(b.g->num_live_nodes() == 0);
  CHECK(b.g->find_value(nested) == TSR_NONE);
  CHECK_FALSE(b.g->region(regions[1]).alive);
}

TEST_CASE("attributes are copied, completed and sorted") {
  Built b;
  NodeSpec s;
  s.op = "annotate";
  s.operands = {b.x};
  float data[] = {1, 2};
  int64_t two[] = {2};
  tsr_tensor t{};
  t.data = data;
  t.dtype = TSR_F32;
  t.rank = 1;
  t.sizes = two;
  std::string choice = "b";
  tsr_attr c{}, v{};
  c.name = "choice";
  c.kind = TSR_ATTR_STRING;
  c.s = choice.c_str();
  v.name = "t";
  v.kind = TSR_ATTR_TENSOR;
  v.tensor = &t;
  s.attrs = {v, c};
  const tsr_id n = b.g->create_node(s);
  data[0] = 7;
  choice[0] = 'a';
  const tsr_attr* kept = b.g->attr(n, "t");
  REQUIRE(kept);
  CHECK(static_cast<const float*>(kept->tensor->data)[0] == 1);
  CHECK(kept->tensor->strides[0] == 1);
  CHECK(std::string(b.g->attr(n, "choice")->s) == "b");
  CHECK(b.g->attr(n, "i")->i == 3);  // the default
  CHECK(b.g->attr(n, "nothing") == nullptr);
  for (uint32_t i = 1; i < b.g->node(n).num_attrs; ++i)
    CHECK(std::strcmp(b.g->node(n).attrs[i - 1].name, b.g->node(n).attrs[i].name) < 0);

  const uint32_t before = b.g->node(n).num_attrs;
  c.s = "c";
  CHECK(code_of([&] { b.g->set_attr(n, c); }) == "TSR-I024");
  c.s = "a";
  b.g->set_attr(n, c);
  CHECK(std::string(b.g->attr(n, "choice")->s) == "a");
  CHECK(b.g->node(n).num_attrs == before);
}

TEST_CASE("constants of bools hold 0 and 1") {
  Built b;
  uint8_t data[] = {0, 1, 0x5a, 0xff};
  int64_t four[] = {4};
  tsr_tensor t{};
  t.data = data;
  t.dtype = TSR_BOOL;
  t.rank = 1;
  t.sizes = four;
  NodeSpec s;
  s.op = "constant";
  tsr_attr v{};
  v.name = "value";
  v.kind = TSR_ATTR_TENSOR;
  v.tensor = &t;
  s.attrs = {v};
  const tsr_id n = b.g->create_node(s);
  const uint8_t want[] = {0, 1, 1, 1};
  CHECK(std::memcmp(b.g->attr(n, "value")->tensor->data, want, 4) == 0);
}

TEST_CASE("types are interned") {
  Built b;
  const tsr_id a = b.node("neg", {b.x}), c = b.node("add", {b.x, b.y});
  CHECK(b.g->value(b.out(a)).type == b.g->value(b.x).type);
  CHECK(b.g->value(b.out(c)).type == b.g->value(b.x).type);
}

TEST_CASE("a clone is equal, independent, and without gaps") {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto g = random_graph(test_ops(), seed);
    const auto copy = g->clone();
    INFO("seed " << seed);
    REQUIRE(difference(*g, *copy) == "");
    REQUIRE(print_graph(*copy) == print_graph(*g));
    REQUIRE_NOTHROW(verify(*copy));
    CHECK(copy->num_nodes() == copy->num_live_nodes());
    CHECK_FALSE(copy->in_transaction());
    // Sizes keep their handles, so that both may be compared.
    CHECK(copy->sizes().exprs().size() == g->sizes().exprs().size());
  }
  const auto g = parse("graph @g(%x: f32[4]) -> (f32[4])\n{\n  %a = neg %x\n  %b = neg %a\n  return %b\n}\n");
  const auto copy = g->clone();
  const std::string before = fingerprint(*g);
  copy->begin("test");
  copy->replace_uses(copy->find_value("b"), copy->find_value("x"));
  copy->erase_node(copy->value(copy->find_value("b")).def_node);
  copy->commit();
  CHECK(fingerprint(*g) == before);
  CHECK(copy->num_live_nodes() == 1);
}

TEST_CASE("large constants are shared by clones and outlive the original") {
  std::unique_ptr<Graph> copy;
  {
    const auto g =
        parse("graph @g() -> (f32[4096])\n{\n  %c = constant {value = dense<f32[4096]: splat 3.0>}\n  return %c\n}\n");
    copy = g->clone();
    CHECK(copy->attr(0, "value")->tensor->data == g->attr(0, "value")->tensor->data);
  }
  const float* data = static_cast<const float*>(copy->attr(0, "value")->tensor->data);
  CHECK(data[0] == 3);
  CHECK(data[4095] == 3);
}

TEST_CASE("a table view stays where it is while its pointers move") {
  Built b;
  const tsr_tables* t = &b.g->tables();
  for (int k = 0; k < 1000; ++k) b.node("neg", {b.x});
  CHECK(&b.g->tables() == t);
  CHECK(t->num_nodes == 1000);
  CHECK(TSR_AT(tsr_node, t->nodes, t->node_stride, 999)->alive == 1);
}

TEST_CASE("sizes in bytes") {
  CHECK(tensor_bytes(TSR_F32, 3) == 12);
  CHECK(tensor_bytes(TSR_I4, 3) == 2);
  CHECK(tensor_bytes(TSR_I2, 0) == 0);
  CHECK(tensor_bytes(TSR_C128, 2) == 32);
  CHECK(code_of([] { tensor_bytes(TSR_F64, INT64_MAX / 8); }) == "TSR-S001");
}

}  // namespace graph_test
