// SPDX-License-Identifier: Apache-2.0
// The worklist driver: fixed point, order, what is looked at again, dead nodes, rules that do not settle.
#include "ir/rewrite.hpp"

#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "edit_support.hpp"
#include "ir/graph.hpp"
#include "ir/graph_api.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/verifier.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace rewrite_test {

using namespace tessera::core;
using namespace tessera::test;

namespace {

using Apply = std::function<bool(Graph&, tsr_id)>;

class Rules {
 public:
  Rules& add(const char* name, const char* op, Apply apply, uint32_t benefit = 0) {
    functions_.push_back(std::move(apply));
    tsr_pattern p{};
    p.name = name;
    p.op = op;
    p.benefit = benefit;
    p.self = &functions_.back();
    p.apply = [](void* self, tsr_graph* g, tsr_id n, int* changed) -> tsr_error* {
      try {
        *changed = (*static_cast<Apply*>(self))(Graph::from(g), n);
        return nullptr;
      } catch (...) {
        return current_exception_to_c();
      }
    };
    patterns_.push_back(p);
    return *this;
  }
  // In one transaction, committed.
  bool run(Graph& g) {
    std::vector<const tsr_pattern*> list;
    for (const tsr_pattern& p : patterns_) list.push_back(&p);
    g.begin("test");
    try {
      const bool changed = rewrite(g, list);
      g.commit();
      return changed;
    } catch (...) {
      if (g.in_transaction()) g.rollback();
      throw;
    }
  }

 private:
  std::deque<Apply> functions_;
  std::deque<tsr_pattern> patterns_;
};

std::unique_ptr<Graph> parse(const std::string& text) { return parse_graph(test_ops(), text, "test.tsr"); }

std::string body(const Graph& g) {
  std::string s = print_graph(g, 0);
  return s.substr(s.find(" {\n") + 3);
}

tsr_id def(const Graph& g, tsr_id n, uint32_t operand = 0) { return g.value(g.node(n).operands[operand]).def_node; }

// neg(neg x) -> x
bool cancel(Graph& g, tsr_id n) {
  const tsr_id inner = def(g, n);
  if (inner == TSR_NONE || std::string(g.node(inner).op) != "neg") return false;
  g.replace_uses(g.node(n).results[0], g.node(inner).operands[0]);
  g.erase_node(n);
  return true;
}

tsr_id make(Graph& g, const char* op, std::vector<tsr_id> operands, tsr_id before) {
  NodeSpec s;
  s.op = op;
  s.operands = std::move(operands);
  return g.node(g.create_node(s, g.node(before).parent, before)).results[0];
}

bool replace_by(Graph& g, tsr_id n, tsr_id v) {
  g.replace_uses(g.node(n).results[0], v);
  g.erase_node(n);
  return true;
}

}  // namespace

TEST_CASE("rules run to a fixed point, dead producers included") {
  const auto g = parse(
      "graph @g(%x: f32[4]) -> (f32[4])\n{\n  %a = neg %x\n  %b = neg %a\n  %c = neg %b\n  %d = neg %c\n  %e = exp %d\n  "
      "return %e\n}\n");
  Rules rules;
  rules.add("cancel", "neg", cancel);
  CHECK(rules.run(*g));
  CHECK(body(*g) == "  %e = exp %x : f32[4]\n  return %e\n}\n");
  CHECK_FALSE(rules.run(*g));
  REQUIRE_NOTHROW(verify(*g));
}

TEST_CASE("greater benefit first, then the given order, rules for any op among them") {
  const auto fired = [](std::vector<std::tuple<std::string, const char*, uint32_t>> given) {
    const auto g = parse("graph @g(%x: f32[4]) -> (f32[4])\n{\n  %a = neg %x\n  return %a\n}\n");
    std::string order;
    Rules rules;
    for (const auto& [name, op, benefit] : given)
      rules.add(
          "rule", op,
          [&order, name = name](Graph&, tsr_id) {
            order += name;
            return false;
          },
          benefit);
    CHECK_FALSE(rules.run(*g));
    return order;
  };
  CHECK(fired({{"a", "neg", 0}, {"b", "neg", 0}}) == "ab");
  CHECK(fired({{"a", "neg", 0}, {"b", nullptr, 2}, {"c", "neg", 1}, {"d", "exp", 9}}) == "bca");
  CHECK(fired({{"a", nullptr, 1}, {"b", "neg", 1}, {"c", nullptr, 1}}) == "abc");
  CHECK(fired({{"a", nullptr, 1}}) == "a");
}

TEST_CASE("an edit brings back users, new nodes and producers") {
  // mul(a, b) becomes add(a, b) when a has one use: true only after the exp that also used it is gone.
  const auto g = parse(
      "graph @g(%x: f32[4]) -> (f32[4], f32[4])\n{\n  %a = neg %x\n  %m = mul %a, %x\n  %u = exp %a\n  %k = exp %x\n  return "
      "%m, %k\n}\n");
  Rules rules;
  rules.add("single-use", "neg", [](Graph& graph, tsr_id n) {
    const auto uses = graph.uses(graph.node(n).results[0]);
    if (uses.size() != 1 || uses[0].node == TSR_NONE || std::string(graph.node(uses[0].node).op) != "mul") return false;
    const tsr_id user = uses[0].node;
    return replace_by(graph, user, make(graph, "add", {graph.node(user).operands[0], graph.node(user).operands[1]}, user));
  });
  CHECK(rules.run(*g));  // %u is dead, goes, and its producer is looked at again
  CHECK(body(*g) == "  %a = neg %x : f32[4]\n  %0 = add %a, %x : f32[4]\n  %k = exp %x : f32[4]\n  return %0, %k\n}\n");

  // A rule that redirects an operand leaves its old producer dead.
  const auto h = parse("graph @g(%x: f32[4]) -> (f32[4])\n{\n  %a = exp %x\n  %b = neg %a\n  return %b\n}\n");
  Rules redirect;
  redirect.add("redirect", "neg", [](Graph& graph, tsr_id n) {
    const tsr_id x = graph.find_value("x");
    if (graph.node(n).operands[0] == x) return false;
    graph.set_operand(n, 0, x);
    return true;
  });
  CHECK(redirect.run(*h));
  CHECK(body(*h) == "  %b = neg %x : f32[4]\n  return %b\n}\n");
}

TEST_CASE("dead pure nodes go, effects and definitions of sizes stay") {
  const auto g = parse(R"(graph @g(%x: f32[4], %f: bool[4]) -> (f32[4])
{
  %a = neg %x
  %b = exp %a
  %i = nonzero %f
  consume %x
  return %x
}
)");
  Rules none;
  CHECK(none.run(*g));
  CHECK(body(*g).find("exp") == std::string::npos);
  CHECK(body(*g).find("neg") == std::string::npos);
  CHECK(body(*g).find("consume") != std::string::npos);
  CHECK(body(*g).find("nonzero") != std::string::npos);
  CHECK_FALSE(none.run(*g));
}

TEST_CASE("nested regions are rewritten too") {
  const auto g = parse(R"(graph @g(%p: bool[], %x: f32[4]) -> (f32[4])
{
  %r = cond %p, %x
    region(%a: f32[4]) {
      %b = neg %a
      %c = neg %b
      return %c
    }
    region(%d: f32[4]) {
      return %d
    }
  return %r
}
)");
  Rules rules;
  rules.add("cancel", "neg", cancel);
  CHECK(rules.run(*g));
  CHECK(body(*g).find("neg") == std::string::npos);
  REQUIRE_NOTHROW(verify(*g));
}

TEST_CASE("rules that undo each other are stopped") {
  const auto g = parse("graph @g(%x: f32[4]) -> (f32[4])\n{\n  %a = neg %x\n  return %a\n}\n");
  const std::string before = fingerprint(*g);
  Rules rules;
  rules.add("to-exp", "neg",
            [](Graph& graph, tsr_id n) { return replace_by(graph, n, make(graph, "exp", {graph.node(n).operands[0]}, n)); });
  rules.add("to-neg", "exp",
            [](Graph& graph, tsr_id n) { return replace_by(graph, n, make(graph, "neg", {graph.node(n).operands[0]}, n)); });
  try {
    rules.run(*g);
    FAIL("settled");
  } catch (const Error& e) {
    CHECK(e.code() == "TSR-B010");
    CHECK(e.family() == TSR_BUG);
    CHECK(e.message().find("the last to fire was 'to-") != std::string::npos);
  }
  CHECK(fingerprint(*g) == before);

  Rules liar;
  liar.add("liar", "neg", [](Graph&, tsr_id) { return true; });
  CHECK(code_of([&] { liar.run(*g); }) == "TSR-B010");
  Rules growing;
  growing.add("growing", "neg", [](Graph& graph, tsr_id n) {
    make(graph, "neg", {graph.node(n).operands[0]}, n);
    return true;
  });
  CHECK(code_of([&] { growing.run(*g); }) == "TSR-B010");
  CHECK(fingerprint(*g) == before);
}

TEST_CASE("a rule's error ends the run, and the listener with it") {
  const auto g = parse("graph @g(%x: f32[4]) -> (f32[4])\n{\n  %a = neg %x\n  return %a\n}\n");
  Rules rules;
  rules.add("throws", "neg", [](Graph&, tsr_id) -> bool { throw user_error("TSR-X001", "no"); });
  CHECK(code_of([&] { rules.run(*g); }) == "TSR-X001");
  g->begin("after");
  g->set_name(g->find_value("a"), "b");
  REQUIRE_NOTHROW(g->commit());

  // A rule may run the driver itself; the outer run goes on watching.
  const auto h = parse(
      "graph @g(%x: f32[4]) -> (f32[4])\n{\n  %z = exp %x\n  %a = neg %z\n  %b = neg %a\n  %c = neg %b\n  return %c\n}\n");
  Rules outer;
  bool nested = false;
  outer.add("outer", "exp", [&](Graph& graph, tsr_id) {
    if (nested) return false;
    nested = true;
    return rewrite(graph, {});
  });
  outer.add("cancel", "neg", cancel);
  CHECK(outer.run(*h));
  CHECK(body(*h) == "  %z = exp %x : f32[4]\n  %c = neg %z : f32[4]\n  return %c\n}\n");
}

TEST_CASE("random graphs stay sound and settle") {
  size_t changed = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto g = random_graph(test_ops(), seed);
    Rules rules;
    rules.add("cancel", "neg", cancel);
    rules.add("exp-to-neg", "exp",
              [](Graph& graph, tsr_id n) { return replace_by(graph, n, make(graph, "neg", {graph.node(n).operands[0]}, n)); });
    INFO("seed " << seed);
    bool first = false;
    REQUIRE_NOTHROW(first = rules.run(*g));
    changed += first;
    REQUIRE_NOTHROW(verify(*g));
    REQUIRE(misplaced_use(*g) == "");
    CHECK_FALSE(rules.run(*g));
  }
  CHECK(changed > 50);
}

}  // namespace rewrite_test
