// SPDX-License-Identifier: Apache-2.0
// Random graphs over the standard op set as programs of the SIMT family, in half of them with symbolic sizes: by the
// interpreter at both sizes of a wave, fused and not, with the model's schedules and with others; and as text on the simulated
// GPU. All of them give the same bits, and what is exact has the reference's values.
//
//   TESSERA_SEEDS=0..5000 random_simt_test "random graphs as programs"      other graphs than the suite's share
//   TESSERA_SEEDS=0..300 random_simt_test "random graphs as text"
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "exact.hpp"
#include "ir/printer.hpp"
#include "random_graph.hpp"
#include "share.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "ways.hpp"

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test;

namespace {

struct Counts {
  size_t graphs = 0, values = 0, symbolic = 0, other = 0;
};

// The first way is what the others are compared with, bit for bit.
void one(uint64_t seed, const std::shared_ptr<const Context>& reference, const std::vector<Way>& ways, Counts& counts) {
  std::vector<int64_t> symbols;
  RandomGraphOptions options;
  options.devices = false;
  options.states = false;
  options.symbolic = seed % 2 == 0;
  options.max_nodes = 20;
  options.witness = &symbols;
  for (const uint32_t t : {TSR_F32, TSR_BF16, TSR_BOOL, TSR_I64, TSR_I32, TSR_U8, TSR_I8, TSR_F16, TSR_F64})
    options.dtypes |= dtype_bit(t);
  const auto g = random_graph(ways[0].context->ops(), seed, options);
  if (may_not_end(*g)) return;
  INFO("seed " << seed << "\n" << print_graph(*g));
  std::unique_ptr<Executable> judge;
  try {
    judge = test::compile(reference, *g);
  } catch (const Error& e) {
    if (e.family() == TSR_BUG) FAIL(e.what());
    return;
  }
  std::vector<std::unique_ptr<Executable>> all;
  for (const Way& w : ways) {
    INFO(w.name);
    try {
      all.push_back(compile_way(w, *g));
    } catch (const Error& e) {
      FAIL(e.what());
    }
  }
  const std::vector<uint8_t> exact = exact_values(*g);
  std::mt19937_64 random(seed);
  for (int shape = 0; shape < 2; ++shape) {
    if (shape > 0 && !other_sizes(*g, symbols, random)) break;
    INFO("shape " << shape);
    const std::vector<TensorRef> inputs = random_inputs(*g, symbols, seed);
    const Outcome want = test::run(*judge, inputs);
    if (!want.error.empty()) continue;  // what fails may fail elsewhere, or not at all where the fault was dead code
    Outcome first;
    for (size_t w = 0; w < all.size(); ++w) {
      INFO(ways[w].name);
      Outcome got;
      try {
        got = test::run(*all[w], inputs);
      } catch (const Error& e) {
        FAIL(e.what());
      }
      if (!got.error.empty()) FAIL(got.error);
      for (size_t i = 0; i < got.outputs.size(); ++i) {
        INFO("output " << i);
        if (w > 0) {
          const std::string d = first_difference(first.outputs[i]->desc, got.outputs[i]->desc, true);
          if (!d.empty()) FAIL("differs from " << ways[0].name << ": " << d);
        } else if (exact[g->region(0).outputs[i]]) {
          const std::string d = first_difference(want.outputs[i]->desc, got.outputs[i]->desc, false);
          if (!d.empty()) FAIL("differs from the reference: " << d);
          ++counts.values;
        }
      }
      if (w == 0) first = std::move(got);
    }
    counts.graphs += shape == 0;
    counts.symbolic += shape == 0 && !symbols.empty();
    counts.other += shape > 0;
  }
}

Counts run_seeds(const std::vector<Way>& ways, uint64_t to) {
  uint64_t from = 0;
  if (const char* seeds = std::getenv("TESSERA_SEEDS")) REQUIRE(std::sscanf(seeds, "%lu..%lu", &from, &to) == 2);
  const auto reference = reference_context();
  Counts counts;
  for (uint64_t seed = from; seed < to; ++seed) one(seed, reference, ways, counts);
  std::printf(
      "seeds %lu..%lu: %zu graphs give the same bits %zu ways, %zu of them with symbolic sizes, %zu runs with other sizes; "
      "%zu exact outputs have the reference's values\n",
      from, to, counts.graphs, ways.size(), counts.symbolic, counts.other, counts.values);
  return counts;
}
bool of_the_suite() { return std::getenv("TESSERA_SEEDS") == nullptr; }

}  // namespace

TEST_CASE("random graphs as programs give the same bits fused or not, at both sizes of a wave, with every schedule") {
  const Counts c = run_seeds({{"32 lanes", programs("32", false)},
                              {"32 lanes, fused", programs("32", true)},
                              {"64 lanes, fused", programs("64", true)},
                              {"32 lanes, another schedule", programs("32", false), "1"},
                              {"64 lanes, fused, another schedule", programs("64", true), "2"}},
                             share_of(500));
  if (!of_the_suite()) return;
  CHECK(c.graphs > share_of(250));
  CHECK(c.symbolic > share_of(80));
  CHECK(c.other > share_of(80));
  CHECK(c.values > share_of(150));
}

#ifdef TESSERA_TEST_SIM
TEST_CASE("random graphs as text give the bits of their programs") {
  const Counts c = run_seeds({{"programs", programs("32", false)},
                              {"text, 32 lanes, fused", text_on_sim("32", true)},
                              {"text, 64 lanes", text_on_sim("64", false)}},
                             std::max<size_t>(share_of(30), 5));  // of few seeds, more than one gives no graph
  if (!of_the_suite()) return;
  CHECK(c.graphs > share_of(12));
}
#endif
