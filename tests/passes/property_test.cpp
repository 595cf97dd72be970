// SPDX-License-Identifier: Apache-2.0
// Random graphs over the standard set, before and after each pass, on the reference backend: the bits agree where the pass
// promises them, and no pass makes a running graph fail.
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>

#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "random_graph.hpp"
#include "share.hpp"
#include "support.hpp"
#include "support/error.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

// Random conditions need not become false.
bool may_not_end(const Graph& g) {
  for (tsr_id n = 0; n < g.num_nodes(); ++n)
    if (g.node(n).alive && std::strcmp(g.node(n).op, "while_loop") == 0) return true;
  return false;
}

struct Counts {
  size_t compared = 0, changed = 0, failing = 0;
};

Counts check(const std::string& pipeline, uint64_t from, size_t graphs) {
  Counts c;
  for (uint64_t seed = from; seed < from + share_of(graphs); ++seed) {
    std::vector<int64_t> witness;
    RandomGraphOptions options;
    options.devices = false;
    options.max_nodes = 24;
    options.witness = &witness;
    const auto g = random_graph(pass_context().ops(), seed, options);
    const std::string before = print_graph(*g);
    INFO("seed " << seed << ", " << pipeline << "\n" << before);
    const auto after = g->clone();
    bool changed = false;
    try {
      for (const PassRun& r : run_pipeline(*after, pipeline).runs) changed |= r.changed;
    } catch (const Error& e) {
      FAIL(e.what());
    }
    // What was printed is what is there, and a second run finds nothing.
    REQUIRE(difference(*after, *parse_graph(pass_context().ops(), print_graph(*after), "after.tsr")) == "");
    c.changed += changed;
    if (!changed) {
      REQUIRE(print_graph(*after) == before);
      continue;
    }
    if (may_not_end(*g)) continue;
    const Outcome want = run_on_reference(*g, witness, seed);
    REQUIRE(want.error.find("TSR-B") == std::string::npos);
    if (!want.error.empty()) {  // an index out of range, a division by zero: what is dead may be gone, so nothing is promised
      ++c.failing;
      continue;
    }
    const std::string d = bit_difference(want, run_on_reference(*after, witness, seed));
    if (!d.empty()) FAIL(d << "\nbecame\n" << print_graph(*after));
    ++c.compared;
  }
  return c;
}

}  // namespace

TEST_CASE("canonicalize keeps every bit") {
  const Counts c = check("canonicalize", 0, 4000);
  CHECK(c.compared > share_of(2000));
}
TEST_CASE("cse keeps every bit") {
  const Counts c = check("cse", 4000, 6000);
  CHECK(c.compared > share_of(300));
}
TEST_CASE("dce keeps every bit") {
  const Counts c = check("dce", 10000, 3000);
  CHECK(c.compared > share_of(1500));
}
TEST_CASE("constant_fold keeps every bit") {
  const Counts c = check("constant_fold", 13000, 3000);
  CHECK(c.compared > share_of(800));
}
TEST_CASE("passes together keep every bit") {
  const Counts c = check("canonicalize, constant_fold, cse, canonicalize, cse, dce", 16000, 4000);
  CHECK(c.compared > share_of(2000));
}
// Products of one item may sum in another order than those of the batch, but not on the reference.
TEST_CASE("map_batch keeps every bit") {
  const Counts c = check("dce, map_batch{min_flops=0, min_rows=1, min_items=2}", 24000, 10000);
  CHECK(c.compared > share_of(300));
}

TEST_CASE("graphs that live on another device stay sound") {
  size_t elsewhere = 0;
  for (uint64_t seed = 20000; seed < 20000 + share_of(4000); ++seed) {
    RandomGraphOptions options;
    options.devices = true;
    const auto g = random_graph(pass_context().ops(), seed, options);
    INFO("seed " << seed << "\n" << print_graph(*g));
    bool device = false;
    for (tsr_id v = 0; v < g->num_values(); ++v) device |= g->value(v).type->device != 0;
    elsewhere += device;
    if (!device) continue;
    REQUIRE_NOTHROW(run_pipeline(*g, "canonicalize, constant_fold, decompose, canonicalize, cse, dce"));
  }
  CHECK(elsewhere > share_of(200));
}
