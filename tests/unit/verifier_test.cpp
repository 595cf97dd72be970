// SPDX-License-Identifier: Apache-2.0
// One broken graph per invariant of ir/verifier.hpp, made behind the back of Graph's checked edits.
#include "ir/verifier.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "golden.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace tessera::core {

// The back door: a friend of Graph and of Sizes.
struct GraphTestAccess {
  static tsr_node& node(Graph& g, tsr_id n) { return g.nodes_[n]; }
  static tsr_value& value(Graph& g, tsr_id v) { return g.values_[v]; }
  static tsr_region& region(Graph& g, tsr_id r) { return g.regions_[r]; }
  static std::vector<tsr_use>& uses(Graph& g, tsr_id v) { return g.uses_[v]; }
  static tsr_id& operand(Graph& g, tsr_id n, uint32_t i) { return const_cast<tsr_id*>(g.nodes_[n].operands)[i]; }
  static tsr_id& result(Graph& g, tsr_id n, uint32_t i) { return const_cast<tsr_id*>(g.nodes_[n].results)[i]; }
  static tsr_id& output(Graph& g, tsr_id r, uint32_t i) { return const_cast<tsr_id*>(g.regions_[r].outputs)[i]; }
  static tsr_id& owned(Graph& g, tsr_id n, uint32_t i) { return const_cast<tsr_id*>(g.nodes_[n].regions)[i]; }
  static tsr_attr& attr(Graph& g, tsr_id n, uint32_t i) { return const_cast<tsr_attr*>(g.nodes_[n].attrs)[i]; }
  static tsr_type& type(Graph& g, tsr_id v) {  // types are shared: this value gets its own
    auto* t = new (g.allocate(sizeof(tsr_type))) tsr_type(*g.values_[v].type);
    g.values_[v].type = t;
    return *t;
  }
  static const char* const*& output_names(Graph& g) { return g.tables_.output_names; }
  static size_t& live_nodes(Graph& g) { return g.live_nodes_; }
  static std::vector<tsr_symbol>& symbols(Graph& g) { return g.sizes_.symbols_; }
  static std::vector<tsr_dim_expr>& exprs(Graph& g) { return g.sizes_.exprs_; }
  static std::vector<Assumption>& assumptions(Graph& g) { return g.sizes_.assumptions_; }
};

}  // namespace tessera::core

namespace verifier_test {

using namespace tessera::core;
using tessera::test::test_ops;
using Access = GraphTestAccess;

namespace {

const char* const kText = R"(
graph @g(%x: f32[s0, 4], %y: f32[s0, 4], %p: bool[], %w: f32[4, 4] param "w", %s: f32[s0, 4] state "s" -> 0, %t: f32[] state "t" -> 1)
    -> (f32[s0, 4], f32[])
  symbols { s0: 2..64; s1: 2..64 }
  assume { s0 + s1 <= 100 }
{
  %a = add %x, %y : f32[s0, 4]
  %b = mul %a, %a : f32[s0, 4]
  %c = constant {value = dense<f32[2, 2]: [1.0, 2.0, 3.0, 4.0]>} : f32[2, 2]
  %d = reduce_sum %c {axes = [0, 1]} : f32[]
  %e = clamp %b, _, %d : f32[s0, 4]
  %q = cast %c {dtype = i4} : i4[2, 2]
  %r = cond %p, %e : f32[s0, 4]
    region(%i: f32[s0, 4]) {
      %j = neg %i : f32[s0, 4]
      %j2 = neg %j : f32[s0, 4]
      return %j2
    }
    region(%k: f32[s0, 4]) {
      return %k
    }
  return %r, %d
}
)";

struct Broken {
  std::unique_ptr<Graph> g = parse_graph(test_ops(), kText, "t.tsr");
  tsr_id v(const char* name) const { return g->find_value(name); }
  tsr_id n(const char* name) const { return g->value(v(name)).def_node; }
  tsr_value& value(const char* name) { return Access::value(*g, v(name)); }
  tsr_node& node(const char* name) { return Access::node(*g, n(name)); }
};

using Break = std::function<void(Broken&)>;

// By invariant: each way of breaking it.
const std::multimap<int, Break>& breaks() {
  static const std::multimap<int, Break> all = {
      {1, [](Broken& b) { Access::region(*b.g, 0).parent_node = b.n("a"); }},
      {1, [](Broken& b) { Access::region(*b.g, 0).alive = 0; }},
      {2, [](Broken& b) { b.node("b").prev = TSR_NONE; }},
      {2, [](Broken& b) { b.node("b").parent = 1; }},
      {2, [](Broken& b) { b.node("b").alive = 0; }},
      {2, [](Broken& b) { b.node("b").next = 9999; }},
      {2,
       [](Broken& b) {  // a list that runs in a circle
         b.node("b").next = b.n("a");
         b.node("a").prev = b.n("b");
       }},
      {2, [](Broken& b) { Access::region(*b.g, 0).last = b.n("a"); }},
      {3,
       [](Broken& b) {  // left out of the list, still alive
         b.node("e").next = b.n("r");
         b.node("r").prev = b.n("e");
       }},
      {3, [](Broken& b) { ++Access::live_nodes(*b.g); }},
      {4, [](Broken& b) { Access::region(*b.g, 1).alive = 0; }},
      {4, [](Broken& b) { Access::region(*b.g, 1).parent_node = b.n("a"); }},
      {4, [](Broken& b) { Access::owned(*b.g, b.n("r"), 1) = Access::owned(*b.g, b.n("r"), 0); }},
      {4, [](Broken& b) { Access::owned(*b.g, b.n("r"), 1) = 0; }},
      {5, [](Broken& b) { Access::operand(*b.g, b.n("b"), 0) = 9999; }},
      {5, [](Broken& b) { Access::output(*b.g, 0, 0) = 9999; }},
      {5, [](Broken& b) { b.value("q").alive = 0; }},
      {6,
       [](Broken& b) {  // mul before the add that feeds it
         tsr_node &a = b.node("a"), &m = b.node("b"), &c = b.node("c");
         const tsr_id ia = b.n("a"), im = b.n("b"), ic = b.n("c");
         Access::region(*b.g, 0).first = im;
         m.prev = TSR_NONE;
         m.next = ia;
         a.prev = im;
         a.next = ic;
         c.prev = ia;
       }},
      {7, [](Broken& b) { Access::operand(*b.g, b.n("j"), 0) = b.v("x"); }},
      {7, [](Broken& b) { Access::operand(*b.g, b.n("b"), 0) = b.v("j"); }},
      {8, [](Broken& b) { b.value("a").def_node = b.n("b"); }},
      {8, [](Broken& b) { b.value("a").def_index = 1; }},
      {8, [](Broken& b) { b.value("a").region = 1; }},
      {8, [](Broken& b) { b.value("y").def_index = 0; }},
      {8, [](Broken& b) { b.value("i").def_node = b.n("j"); }},
      {9, [](Broken& b) { Access::uses(*b.g, b.v("a")).pop_back(); }},
      {9, [](Broken& b) { ++b.value("a").num_uses; }},
      {9,
       [](Broken& b) {  // one listed twice instead of the other
         Access::uses(*b.g, b.v("a"))[0] = Access::uses(*b.g, b.v("a"))[1];
       }},
      {9,
       [](Broken& b) {  // consistent in itself, but the second use is missing
         Access::uses(*b.g, b.v("a")).pop_back();
         --b.value("a").num_uses;
       }},
      {9, [](Broken& b) { Access::operand(*b.g, b.n("b"), 0) = b.v("x"); }},
      {10, [](Broken& b) { b.value("a").name = ""; }},
      {10, [](Broken& b) { b.value("a").name = b.value("b").name; }},
      {10, [](Broken& b) { b.value("a").name = "elsewhere"; }},
      {11, [](Broken& b) { Access::output(*b.g, 0, 0) = b.v("j2"); }},
      {11, [](Broken& b) { Access::output(*b.g, 1, 0) = b.v("x"); }},
      {12, [](Broken& b) { b.value("x").input_kind = TSR_INPUT_BLOCK; }},
      {12, [](Broken& b) { b.value("x").input_kind = TSR_INPUT_NONE; }},
      {12, [](Broken& b) { b.value("i").input_kind = TSR_INPUT_ARG; }},
      {12, [](Broken& b) { b.value("a").input_kind = TSR_INPUT_ARG; }},
      {13, [](Broken& b) { b.value("s").writeback = 1; }},  // the type of another output
      {13, [](Broken& b) { b.value("s").writeback = 2; }},  // no output
      {13, [](Broken& b) { b.value("s").writeback = TSR_NONE; }},
      {13, [](Broken& b) { b.value("x").writeback = 0; }},  // no state
      {13, [](Broken& b) { b.value("a").writeback = 0; }},
      {13, [](Broken& b) { b.value("i").writeback = 0; }},
      {13, [](Broken& b) { b.value("t").writeback = 0; }},
      {14, [](Broken& b) { b.value("w").donated = 1; }},
      {14, [](Broken& b) { b.value("a").donated = 1; }},
      {14, [](Broken& b) { b.value("i").donated = 1; }},
      {15, [](Broken& b) { b.value("t").key = "s"; }},
      {16, [](Broken& b) { b.node("a").op = "nothing"; }},
      {16, [](Broken& b) { b.node("a").op = nullptr; }},
      {16, [](Broken& b) { ++b.node("a").op_index; }},
      {17, [](Broken& b) { b.node("d").num_attrs = 1; }},
      {17, [](Broken& b) { Access::attr(*b.g, b.n("d"), 1).name = "axes"; }},
      {17, [](Broken& b) { Access::attr(*b.g, b.n("d"), 0).kind = TSR_ATTR_DIMS; }},
      {17, [](Broken& b) { Access::attr(*b.g, b.n("d"), 1).i = 2; }},
      {18,
       [](Broken& b) {
         Access::attr(*b.g, b.n("q"), 0).i = TSR_F32;
         Access::type(*b.g, b.v("q")).dtype = TSR_F32;
         const_cast<int64_t*>(Access::attr(*b.g, b.n("d"), 0).ints)[1] = 0;
       }},  // axis 0 twice
      {18, [](Broken& b) { Access::type(*b.g, b.v("x")).dtype = TSR_F64; }},
      {18,
       [](Broken& b) {
         b.node("a").num_operands = 1;
         Access::uses(*b.g, b.v("y")).clear();
         b.value("y").num_uses = 0;
       }},
      {18,
       [](Broken& b) {  // sizes that nothing says are equal
         Graph& g = *b.g;
         const tsr_dim sizes[] = {g.sizes().find("s1"), 4};
         Access::type(g, b.v("y")).sizes = g.copy_dims(sizes);
       }},
      {18,
       [](Broken& b) {
         Access::type(*b.g, b.v("i")).dtype = TSR_F64;
         Access::type(*b.g, b.v("j")).dtype = TSR_F64;
         Access::type(*b.g, b.v("j2")).dtype = TSR_F64;
       }},  // a region's signature
      {19, [](Broken& b) { Access::type(*b.g, b.v("q")).dtype = TSR_I8; }},
      {19,
       [](Broken& b) {
         const tsr_dim sizes[] = {4, 1};
         Access::type(*b.g, b.v("q")).sizes = b.g->copy_dims(sizes);
       }},
      {20,
       [](Broken& b) {
         b.node("d").regions = b.node("r").regions;
         b.node("d").num_regions = 1;
         b.node("r").num_regions = 0;
         Access::region(*b.g, 1).parent_node = b.n("d");
         tsr_region& second = Access::region(*b.g, 2);
         Access::uses(*b.g, b.v("k")).clear();
         b.value("k").num_uses = 0;
         second.alive = 0;
       }},
      {21, [](Broken& b) { const_cast<tsr_tensor*>(Access::attr(*b.g, b.n("c"), 0).tensor)->strides = nullptr; }},
      {21, [](Broken& b) { const_cast<int64_t*>(Access::attr(*b.g, b.n("c"), 0).tensor->strides)[0] = 1; }},
      {21, [](Broken& b) { const_cast<tsr_tensor*>(Access::attr(*b.g, b.n("c"), 0).tensor)->data = nullptr; }},
      {21, [](Broken& b) { const_cast<tsr_tensor*>(Access::attr(*b.g, b.n("c"), 0).tensor)->device = 1; }},
      {21, [](Broken& b) { const_cast<tsr_tensor*>(Access::attr(*b.g, b.n("c"), 0).tensor)->flags = 0; }},
      {21, [](Broken& b) { const_cast<int64_t*>(Access::attr(*b.g, b.n("c"), 0).tensor->sizes)[0] = b.g->sizes().find("s0"); }},
      {22, [](Broken& b) { Access::type(*b.g, b.v("a")).dtype = 99; }},
      {22, [](Broken& b) { Access::type(*b.g, b.v("a")).rank = 65; }},
      {22,
       [](Broken& b) {
         const tsr_dim sizes[] = {b.g->sizes().sub(b.g->sizes().find("s0"), 65), 4};
         Access::type(*b.g, b.v("y")).sizes = b.g->copy_dims(sizes);
       }},
      {22,
       [](Broken& b) {
         const tsr_dim sizes[] = {int64_t{1} << 40, int64_t{1} << 40};
         Access::type(*b.g, b.v("q")).sizes = b.g->copy_dims(sizes);
       }},
      {23,
       [](Broken& b) {
         const tsr_dim strides[] = {1, 2};
         Access::type(*b.g, b.v("q")).strides = b.g->copy_dims(strides);
       }},
      {24,
       [](Broken& b) {
         const tsr_dim sizes[] = {TSR_DIM_OF_EXPR(9999), 4};
         Access::type(*b.g, b.v("y")).sizes = b.g->copy_dims(sizes);
       }},
      {24, [](Broken& b) { Access::exprs(*b.g).back().op = 99; }},
      {24,
       [](Broken& b) {
         Access::exprs(*b.g).back() = {TSR_DIM_ADD, 0, TSR_DIM_OF_EXPR(Access::exprs(*b.g).size() - 1), 1};
       }},
      {24, [](Broken& b) { Access::exprs(*b.g)[0].symbol = 7; }},
      {24, [](Broken& b) { Access::assumptions(*b.g)[0].b = TSR_DIM_OF_EXPR(9999); }},
      {25, [](Broken& b) { Access::symbols(*b.g)[0].name = "two words"; }},
      {25, [](Broken& b) { Access::symbols(*b.g)[0].name = Access::symbols(*b.g)[1].name; }},
      {25, [](Broken& b) { Access::symbols(*b.g)[0].max = 1; }},
      {26,
       [](Broken& b) {
         Access::assumptions(*b.g)[0].relation = TSR_GT;
         Access::assumptions(*b.g)[0].b = 1000;
       }},
      {27, [](Broken& b) { Access::output_names(*b.g) = new (b.g->allocate(2 * sizeof(char*))) const char* [2] { "y", "y" }; }},
      {27,
       [](Broken& b) { Access::output_names(*b.g) = new (b.g->allocate(2 * sizeof(char*))) const char* [2] { "", nullptr }; }},
  };
  return all;
}

}  // namespace

TEST_CASE("a sound graph passes") {
  Broken b;
  CHECK_NOTHROW(verify(*b.g));
  std::vector<tsr_id> nodes;
  for (tsr_id n = 0; n < b.g->num_nodes(); ++n) nodes.push_back(n);
  CHECK_NOTHROW(verify_nodes(*b.g, nodes));
}

TEST_CASE("each invariant has broken graphs that fail with its number") {
  for (const auto& [invariant, edit] : breaks()) {
    Broken b;
    edit(b);
    char want[16];
    std::snprintf(want, sizeof want, "TSR-I1%02d", invariant);
    std::string code = "accepted", message;
    try {
      verify(*b.g);
    } catch (const Error& e) {
      code = e.code();
      message = e.message();
      CHECK(e.family() == TSR_BUG);
      CHECK(message.find("graph @g breaks invariant V" + std::string(want + 6)) == 0);
    }
    INFO(message);
    CHECK(code == want);
  }
}

TEST_CASE("the checklist and the tests name the same invariants") {
  std::set<int> listed, tested;
  const std::string header = tessera::test::read_file(tessera::test::golden_path("../core/src/ir/verifier.hpp"));
  for (size_t at = header.find("//   V"); at != std::string::npos; at = header.find("//   V", at + 1))
    listed.insert(std::stoi(header.substr(at + 6, 2)));
  for (const auto& [invariant, edit] : breaks()) tested.insert(invariant);
  CHECK(listed == tested);
  CHECK(listed.size() == 27);
}

TEST_CASE("the check of edited nodes finds what their edit broke") {
  auto code = [](const char* name, const Break& edit) {
    Broken b;
    const tsr_id n = b.n(name);
    edit(b);
    try {
      verify_nodes(*b.g, std::span(&n, 1));
      return std::string("accepted");
    } catch (const Error& e) {
      return e.code();
    }
  };
  CHECK(code("b", [](Broken&) {}) == "accepted");
  CHECK(code("b", [](Broken& b) { Access::operand(*b.g, b.n("b"), 0) = 9999; }) == "TSR-I105");
  CHECK(code("a", [](Broken& b) { Access::operand(*b.g, b.n("a"), 0) = b.v("b"); }) == "TSR-I106");
  CHECK(code("b", [](Broken& b) { Access::operand(*b.g, b.n("b"), 0) = b.v("e"); }) == "TSR-I106");
  CHECK(code("b", [](Broken& b) { Access::operand(*b.g, b.n("b"), 0) = b.v("j"); }) == "TSR-I107");
  CHECK(code("b", [](Broken& b) { Access::operand(*b.g, b.n("b"), 0) = b.v("x"); }) == "TSR-I109");
  CHECK(code("a", [](Broken& b) { b.value("a").def_index = 1; }) == "TSR-I108");
  CHECK(code("a", [](Broken& b) { b.node("a").op = "nothing"; }) == "TSR-I116");
  CHECK(code("q", [](Broken& b) { Access::type(*b.g, b.v("q")).dtype = TSR_I8; }) == "TSR-I119");
  // A move after its user: the user was not edited.
  CHECK(code("a", [](Broken& b) {
          tsr_node &a = b.node("a"), &m = b.node("b"), &c = b.node("c");
          const tsr_id ia = b.n("a"), im = b.n("b"), ic = b.n("c");
          Access::region(*b.g, 0).first = im;
          m.prev = TSR_NONE;
          m.next = ia;
          a.prev = im;
          a.next = ic;
          c.prev = ia;
        }) == "TSR-I106");
}

TEST_CASE("a commit that breaks a node is rolled back") {
  Broken b;
  const std::string before = print_graph(*b.g);
  b.g->begin("test");
  b.g->set_operand(b.n("a"), 0, b.v("e"));
  CHECK_THROWS_WITH(b.g->commit(), Catch::Contains("TSR-I106"));
  CHECK(print_graph(*b.g) == before);
  CHECK_NOTHROW(verify(*b.g));
}

}  // namespace verifier_test
