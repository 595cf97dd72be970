// SPDX-License-Identifier: Apache-2.0
// Transactions: whatever was edited, rollback gives back the graph as it was, ids included.
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "edit_support.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/verifier.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace transaction_test {

using namespace tessera::core;
using namespace tessera::test;

namespace {

std::unique_ptr<Graph> parse(const char* text) { return parse_graph(test_ops(), text, "test.tsr"); }

const char* const kText = R"(
graph @g(%x: f32[s0, 4], %y: f32[s0, 4]) -> (f32[s0, 4])
  symbols { s0: 2..64 }
{
  %a = add %x, %y : f32[s0, 4]
  %b = neg %a : f32[s0, 4]
  %c = mul %b, %b : f32[s0, 4]
  return %c
}
)";

}  // namespace

TEST_CASE("rollback restores everything after random edits") {
  std::mt19937_64 random(7);
  size_t edits = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto g = random_graph(test_ops(), seed);
    const std::string before = fingerprint(*g);
    g->begin("edits");
    CHECK_FALSE(g->changed());
    for (int k = 0; k < 40; ++k) edits += random_edit(*g, random);
    INFO("seed " << seed);
    REQUIRE(misplaced_use(*g) == "");
    g->rollback();
    if (fingerprint(*g) != before) REQUIRE(fingerprint(*g) == before);
    REQUIRE(misplaced_use(*g) == "");
    REQUIRE_NOTHROW(verify(*g));
    CHECK_FALSE(g->in_transaction());
  }
  CHECK(edits > 5000);
}

TEST_CASE("an inner rollback takes back its own edits alone") {
  std::mt19937_64 random(8);
  for (uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    const auto g = random_graph(test_ops(), seed);
    const std::string outside = fingerprint(*g);
    g->begin("outer");
    for (int k = 0; k < 10; ++k) random_edit(*g, random);
    const std::string between = fingerprint(*g);
    g->begin("inner");
    CHECK_FALSE(g->changed());
    for (int k = 0; k < 10; ++k) random_edit(*g, random);
    g->rollback();
    REQUIRE(fingerprint(*g) == between);
    g->begin("inner");
    for (int k = 0; k < 10; ++k) random_edit(*g, random);
    const std::string kept = fingerprint(*g);
    g->commit();
    REQUIRE(fingerprint(*g) == kept);
    for (int k = 0; k < 5; ++k) random_edit(*g, random);
    g->rollback();
    REQUIRE(fingerprint(*g) == outside);
  }
}

TEST_CASE("commit keeps sound edits and takes broken ones back") {
  std::mt19937_64 random(9);
  size_t kept = 0, refused = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const auto g = random_graph(test_ops(), seed);
    const std::string before = fingerprint(*g);
    g->begin("edits");
    for (int k = 0; k < 4; ++k) random_edit(*g, random);
    const std::string after = fingerprint(*g);
    INFO("seed " << seed);
    try {
      g->commit();
      ++kept;
      REQUIRE(fingerprint(*g) == after);
    } catch (const Error& e) {
      ++refused;
      INFO(e.what());
      CHECK(e.family() == TSR_BUG);
      REQUIRE(fingerprint(*g) == before);
      REQUIRE_NOTHROW(verify(*g));
    }
    CHECK_FALSE(g->in_transaction());
  }
  CHECK(kept > 100);
  CHECK(refused > 20);
}

TEST_CASE("edits need a transaction") {
  const auto g = parse(kText);
  const std::string before = fingerprint(*g);
  const tsr_id x = g->find_value("x"), a = g->find_value("a");
  const tsr_id add = g->value(a).def_node;
  NodeSpec neg;
  neg.op = "neg";
  neg.operands = {x};
  const tsr_type t = *g->value(x).type;
  for (const auto& edit : std::vector<std::function<void()>>{
           [&] { g->create_node(neg); }, [&] { g->erase_node(add); }, [&] { g->move_node(add, TSR_NONE); },
           [&] { g->set_operand(add, 0, x); }, [&] { g->replace_uses(a, x); }, [&] { g->set_type(a, t); },
           [&] { g->set_name(a, "z"); }, [&] { g->create_region({}); }, [&] { g->set_outputs(0, {}); },
           [&] { g->create_input("z", t); }, [&] { g->set_state(x, 0, false); }, [&] { g->rename("z"); }})
    CHECK(code_of(edit) == "TSR-B001");
  CHECK(code_of([&] { g->commit(); }) == "TSR-B001");
  CHECK(code_of([&] { g->rollback(); }) == "TSR-B001");
  CHECK(fingerprint(*g) == before);
}

TEST_CASE("ids and names that were taken back are given out again") {
  const auto g = parse(kText);
  NodeSpec neg;
  neg.op = "neg";
  neg.operands = {g->find_value("x")};
  g->begin("one");
  const tsr_id first = g->create_node(neg);
  const std::string name = g->value(g->node(first).results[0]).name;
  CHECK(std::string(g->node(first).author) == "one");
  g->rollback();
  CHECK(g->num_nodes() == first);
  CHECK(g->find_value(name) == TSR_NONE);
  g->begin("two");
  const tsr_id second = g->create_node(neg);
  CHECK(second == first);
  CHECK(g->value(g->node(second).results[0]).name == name);
  CHECK(std::string(g->node(second).author) == "two");
  g->commit();
  CHECK(g->edited().empty());
}

TEST_CASE("authors follow the transaction, and go back with it") {
  const auto g = parse(kText);
  const tsr_id b = g->value(g->find_value("b")).def_node;
  CHECK(std::string(g->node(b).author) == "text");
  g->begin("outer");
  g->set_operand(b, 0, g->find_value("x"));
  CHECK(std::string(g->node(b).author) == "outer");
  g->begin("inner");
  g->set_operand(b, 0, g->find_value("y"));
  CHECK(std::string(g->node(b).author) == "inner");
  g->rollback();
  CHECK(std::string(g->node(b).author) == "outer");
  g->set_operand(b, 0, g->find_value("a"));
  CHECK(std::string(g->node(b).author) == "outer");
  g->rollback();
  CHECK(std::string(g->node(b).author) == "text");
}

TEST_CASE("a refused node leaves no assumptions and symbols behind") {
  const auto g = parse(R"(
graph @g(%x: f32[s0, 4], %y: f32[s1, 5], %z: f32[s1, 4]) -> (f32[s0, 4])
{
  return %x
}
)");
  g->begin("test");
  NodeSpec bad;
  bad.op = "add";
  bad.operands = {g->find_value("x"), g->find_value("y")};  // s0 against s1 may be assumed, 4 against 5 not
  CHECK(code_of([&] { g->create_node(bad); }) == "TSR-I033");
  CHECK(g->sizes().assumptions().empty());
  CHECK_FALSE(g->changed());
  bad.operands[1] = g->find_value("z");
  g->create_node(bad);
  CHECK(g->sizes().assumptions().size() == 1);
  g->rollback();
  CHECK(g->sizes().assumptions().empty());

  // An assumption alone is a change.
  g->begin("test");
  g->sizes().require(TSR_GE, g->sizes().find("s0"), 8, "vector width");
  CHECK(g->changed());
  g->commit();
  CHECK(g->sizes().assumptions().size() == 1);
}

}  // namespace transaction_test
