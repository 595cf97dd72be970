// SPDX-License-Identifier: Apache-2.0
// Random graphs over the standard op set on the cpu backend: what is exact has the reference's values, fused bits are unfused
// bits, and an executable of symbolic sizes is right for every size. TESSERA_SEEDS=FROM..TO takes other graphs than the suite's
// share, TESSERA_ISA another instruction set.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "conformance/tolerance.hpp"
#include "exact.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "random_graph.hpp"
#include "random_run.hpp"
#include "support/error.hpp"

using namespace tessera;
using namespace tessera::core;
using tessera::test::RandomGraphOptions;

namespace {

std::shared_ptr<const Context> make_context(const std::string& plugins, const std::string& order, const std::string& more) {
  return test::random_context(plugins, order, more, {TESSERA_PLUGIN_DIR});
}

// `isa`: a value of [cpu] isa.
struct Pipelines {
  std::shared_ptr<const Context> reference, apart, fused;
  explicit Pipelines(const std::string& isa)
      : reference(make_context("\"tessera.backend.reference\"", "\"reference\"", "")),
        apart(make_context("\"tessera.backend.cpu\", \"tessera.backend.eager\"", "\"cpu\", \"eager\"", options(isa))),
        fused(make_context("\"tessera.backend.cpu\", \"tessera.backend.eager\", \"tessera.pass.fuse\"", "\"cpu\", \"eager\"",
                           options(isa) + "[pipeline]\npasses = [\"fuse\"]\n")) {}
  static std::string options(const std::string& isa) { return "[cpu]\ncache = false\nisa = \"" + isa + "\"\n"; }
};
std::string asked_isa() {
  const char* isa = std::getenv("TESSERA_ISA");
  return isa && *isa ? isa : "auto";
}
// Those of the instruction set in use.
std::unique_ptr<Pipelines>& current() {
  static std::unique_ptr<Pipelines> p = std::make_unique<Pipelines>(asked_isa());
  return p;
}
const Pipelines& pipelines() { return *current(); }

struct Counts {
  size_t graphs = 0, values = 0, dynamic = 0;
};

void one(uint64_t seed, Counts& counts) {
  std::vector<int64_t> symbols;
  RandomGraphOptions options;
  options.devices = false;
  options.states = false;
  options.max_nodes = 24;
  options.witness = &symbols;
  options.dtypes = test::dtype_bit(TSR_F32) | test::dtype_bit(TSR_BF16) | test::dtype_bit(TSR_BOOL) | test::dtype_bit(TSR_I64) |
                   test::dtype_bit(TSR_I32) | test::dtype_bit(TSR_U8) | test::dtype_bit(TSR_F16) | test::dtype_bit(TSR_F64);
  const auto g = test::random_graph(pipelines().fused->ops(), seed, options);
  if (test::may_not_end(*g)) return;
  INFO("seed " << seed << "\n" << print_graph(*g));
  std::unique_ptr<Executable> reference, apart, fused;
  try {
    reference = test::compile(pipelines().reference, *g);
  } catch (const Error& e) {
    if (e.family() == TSR_BUG) FAIL(e.what());
    return;
  }
  try {
    apart = test::compile(pipelines().apart, *g);
    fused = test::compile(pipelines().fused, *g);
  } catch (const Error& e) {
    FAIL(e.what());
  }
  const std::vector<uint8_t> exact = test::exact_values(*g);
  std::mt19937_64 random(seed);
  for (int shape = 0; shape < 3; ++shape) {
    if (shape > 0 && !test::other_sizes(*g, symbols, random)) break;
    const std::vector<TensorRef> inputs = test::random_inputs(*g, symbols, seed);
    const test::Outcome want = test::run(*reference, inputs), whole = test::run(*fused, inputs),
                        parts = test::run(*apart, inputs);
    // What fails may fail elsewhere, or not at all where the fault was dead code.
    if (!want.error.empty()) continue;
    INFO("shape " << shape);
    if (!whole.error.empty()) FAIL(whole.error);
    if (!parts.error.empty()) FAIL(parts.error);
    for (size_t i = 0; i < want.outputs.size(); ++i) {
      INFO("output " << i);
      if (const std::string d = test::first_difference(parts.outputs[i]->desc, whole.outputs[i]->desc, true); !d.empty())
        FAIL("apart and fused: " << d);
      if (!exact[g->region(0).outputs[i]]) continue;
      if (const std::string d = test::first_difference(want.outputs[i]->desc, whole.outputs[i]->desc, false); !d.empty())
        FAIL("reference and cpu: " << d);
      ++counts.values;
    }
    counts.graphs += shape == 0;
    counts.dynamic += shape > 0;
  }
}

}  // namespace

TEST_CASE("random graphs on the cpu backend have the reference's values") {
  uint64_t from = 0, to = 200;
  const char* seeds = std::getenv("TESSERA_SEEDS");
  if (seeds) REQUIRE(std::sscanf(seeds, "%lu..%lu", &from, &to) == 2);
  Counts counts;
  for (uint64_t seed = from; seed < to; ++seed) one(seed, counts);
  std::printf("seeds %lu..%lu: %zu graphs agree, %zu outputs of them exact with the reference, %zu runs with other sizes\n",
              from, to, counts.graphs, counts.values, counts.dynamic);
  if (seeds) return;
  CHECK(counts.graphs > 100);
  CHECK(counts.values > 60);
  CHECK(counts.dynamic > 40);
}

TEST_CASE("random graphs have the reference's values with every instruction set of this machine") {
  for (const char* isa : {"baseline", "avx2", "avx512", "avx512_bf16", "amx"}) {
    INFO(isa);
    try {
      current() = std::make_unique<Pipelines>(isa);
    } catch (const Error& e) {
      REQUIRE(
          (e.code() == "TSR-C004" || std::string(e.what()).find("TSR-C004") != std::string::npos));  // this machine has no more
      break;
    }
    Counts counts;
    for (uint64_t seed = 200; seed < 240; ++seed) one(seed, counts);
    CHECK(counts.graphs > 15);
  }
  current() = std::make_unique<Pipelines>(asked_isa());
}

TEST_CASE("a symbol that nothing determines is refused by every backend, and only where its value is needed") {
  size_t refused = 0, ran = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    std::vector<int64_t> symbols;
    RandomGraphOptions options;
    options.devices = false;
    options.states = false;
    options.unbound = true;
    options.max_nodes = 6;
    options.witness = &symbols;
    options.dtypes = test::dtype_bit(TSR_F32) | test::dtype_bit(TSR_I64) | test::dtype_bit(TSR_BOOL);
    const auto g = test::random_graph(pipelines().fused->ops(), seed, options);
    if (test::may_not_end(*g)) continue;
    INFO("seed " << seed << "\n" << print_graph(*g));
    const auto outcome = [&](const std::shared_ptr<const Context>& context) {
      try {
        const auto e = test::compile(context, *g);
        return test::run(*e, test::random_inputs(*g, symbols, seed)).error.substr(0, 8);
      } catch (const Error& e) {
        return e.code();
      }
    };
    const std::string reference = outcome(pipelines().reference), cpu = outcome(pipelines().fused);
    // A backend may leave out what nobody reads, and with it the only reader of a symbol; but none makes a size up.
    for (const std::string& code : {reference, cpu}) CHECK(code.substr(0, 5) != "TSR-B");
    CHECK((reference == "TSR-R023") == (cpu == "TSR-R023"));
    refused += cpu == "TSR-R023";
    ran += cpu.empty();
  }
  CHECK(refused > 20);
  CHECK(ran > 100);
}
