// SPDX-License-Identifier: Apache-2.0
// The table of graph breaks and the page that is made from it.
#include <catch2/catch.hpp>
#include <string>

#include "capture/breaks.hpp"
#include "capture/recorder.hpp"
#include "golden.hpp"
#include "ir/equality.hpp"
#include "ir/graph.hpp"
#include "ir/host_functions.hpp"
#include "ir/parser.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace graph_breaks_test {

using namespace tessera::core;

TEST_CASE("every graph break says what, why and how to avoid it") {
  uint32_t last = 0;
  for (const BreakReason& r : break_reasons()) {
    INFO(break_code_text(r.code));
    REQUIRE((r.code > last || r.code == 0));
    last = r.code;
    for (const char* text : {r.title, r.what, r.why, r.fixes}) REQUIRE(std::string(text).size() > 10);
    REQUIRE(std::string(r.title).back() != '.');
    REQUIRE(std::string(r.what).back() == '.');
    REQUIRE(std::string(r.why).back() == '.');
    REQUIRE(&break_reason(r.code) == &r);
  }
  REQUIRE(break_reason(999).code == 0);
  REQUIRE(break_code_text(7) == "TSR-G007");
}

TEST_CASE("docs/graph_breaks.md holds the table") {
  const std::string marker = "<!-- From here on made from core/src/capture/breaks.cpp: ./dev bless -->\n";
  const std::string page = tessera::test::read_file(tessera::test::golden_path("../docs/graph_breaks.md"));
  const size_t at = page.find(marker);
  REQUIRE(at != std::string::npos);
  tessera::test::check_golden("../docs/graph_breaks.md", page.substr(0, at + marker.size()) + break_table_markdown());
}

namespace {
std::unique_ptr<Graph> parse(const std::string& text) { return parse_graph(tessera::test::test_ops(), text, "test.tsr"); }
}  // namespace

TEST_CASE("graphs compute the same whatever their values are called") {
  const auto a = parse("graph @a(%x: f32[2], %y: f32[2]) -> (f32[2]) { %s = add %x, %y  return %s }");
  const auto b = parse("graph @b(%p: f32[2], %q: f32[2]) -> (f32[2]) { %t = add %p, %q  return %t }");
  const auto swapped = parse("graph @a(%x: f32[2], %y: f32[2]) -> (f32[2]) { %s = add %y, %x  return %s }");
  const auto other = parse("graph @a(%x: f32[3], %y: f32[3]) -> (f32[3]) { %s = add %x, %y  return %s }");
  CHECK(same_computation(*a, *b));
  CHECK_FALSE(equal(*a, *b));
  CHECK(computation_hash(*a) == computation_hash(*b));
  CHECK_FALSE(same_computation(*a, *swapped));
  CHECK_FALSE(same_computation(*a, *other));
}

TEST_CASE("a graph that starts again keeps its sizes and nothing else") {
  Graph g(tessera::test::test_ops(), "g");
  const tsr_dim n = g.sizes().fresh("s", 2, INT64_MAX, false, 5);
  const tsr_dim twice = g.sizes().mul(n, 2);
  const tsr_dim sizes[] = {n};
  const tsr_id x = g.create_input("x", g.make_type(TSR_F32, sizes));
  NodeSpec sum;
  sum.op = "add";
  sum.operands = {x, x};
  const tsr_id node = g.create_node(sum);
  g.set_outputs(0, {g.node(node).results, 1});
  g.restart();
  CHECK(g.num_live_nodes() == 0);
  CHECK(g.region(0).num_inputs == 0);
  CHECK(g.region(0).num_outputs == 0);
  CHECK(g.sizes().mul(n, 2) == twice);
  const tsr_id again = g.create_input("x", g.make_type(TSR_F32, sizes));
  CHECK(std::string(g.value(again).name) == "x");
  sum.operands = {again, again};
  g.create_node(sum);
  g.commit();
}

TEST_CASE("only a call can go on after a graph break") {
  Recorder recorder(tessera::test::test_ops(), "fn");
  tsr_break b{};
  b.struct_size = sizeof b;
  b.code = 10;
  b.loc = {"model.cpp", 3, 1};
  b.read = TSR_NONE;
  std::string message;
  try {
    throw_if(capture_api().graph_break(recorder.handle(), &b));
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message.find("TSR-G021") != std::string::npos);
  CHECK(message.find("model.cpp:3: A branch on a tensor") != std::string::npos);
  CHECK(std::string(break_reason(21).title) == "A client that cannot go on after a break");
}

TEST_CASE("a host function is gone with the last graph that has it") {
  static int calls = 0, gone = 0;
  int64_t number = 0;
  const auto call = [] { return call_host_function(0, nullptr, 0, nullptr, 0); };
  tsr_error* unknown = call();
  CHECK(std::string(host_core().error_code(unknown)) == "TSR-R032");
  host_core().error_free(unknown);
  std::unique_ptr<Graph> copy;
  {
    Graph g(tessera::test::test_ops(), "g");
    const HostFunction f{nullptr,
                         [](void*, const tsr_tensor*, uint32_t, const tsr_tensor*, uint32_t) -> tsr_error* {
                           ++calls;
                           return nullptr;
                         },
                         [](void*) { ++gone; }};
    number = add_host_function(g, f);
    CHECK_FALSE(has_host_functions(g));  // until an operation calls it
    g.set_outputs(0, {});
    copy = g.clone();
  }
  CHECK(gone == 0);
  CHECK(call_host_function(number, nullptr, 0, nullptr, 0) == nullptr);
  CHECK(calls == 1);
  copy.reset();
  CHECK(gone == 1);
}

}  // namespace graph_breaks_test
