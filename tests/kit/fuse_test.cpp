// SPDX-License-Identifier: Apache-2.0
// The pass fuse, and fused against unfused bits on random graphs: by the interpreter, against the reference backend where
// arithmetic is exact, and as compiled text.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "api/api.hpp"
#include "compile/driver.hpp"
#include "compile/services.hpp"
#include "context/context.hpp"
#include "golden.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "kit_support.hpp"
#include "pass/pass_manager.hpp"
#include "pass/pipeline.hpp"
#include "random_graph.hpp"
#include "random_run.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/kit/interpret.hpp"
#include "tessera/kit/lower.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/kit/verify.hpp"

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test;

namespace {

std::shared_ptr<const Context> make_context(const std::string& order, const std::string& passes) {
  return random_context("\"tessera.backend.reference\", \"acme.backend.kit\", \"tessera.pass.fuse\"", order,
                        "[pipeline]\npasses = [" + passes + "]\n", {TESSERA_PLUGIN_DIR, KIT_PLUGIN_DIR});
}

struct Pipelines {
  std::shared_ptr<const Context> reference = make_context("\"reference\"", ""),
                                 apart = make_context("\"kit\", \"reference\"", ""),
                                 fused = make_context("\"kit\", \"reference\"", "\"fuse\"");
};
const Pipelines& pipelines() {
  static const Pipelines p;
  return p;
}

Outcome run(const std::shared_ptr<const Context>& context, const Graph& g, const std::vector<int64_t>& symbols, uint64_t seed) {
  try {
    return test::run(*test::compile(context, g), random_inputs(g, symbols, seed));
  } catch (const Error& e) {
    if (e.family() == TSR_BUG) throw;
    return {{}, e.code() + " " + e.message()};
  }
}
std::string bits_differ(const Outcome& a, const Outcome& b) {
  if (a.error != b.error) return "one ended with '" + a.error + "', the other with '" + b.error + "'";
  for (size_t i = 0; i < a.outputs.size(); ++i)
    if (const std::string d = first_difference(a.outputs[i]->desc, b.outputs[i]->desc, true); !d.empty())
      return "output " + std::to_string(i) + ": " + d;
  return "";
}

constexpr uint32_t kInts[] = {TSR_I8, TSR_I16, TSR_I32, TSR_I64, TSR_U8, TSR_U16, TSR_U32, TSR_U64, TSR_BOOL};

std::string fuse_text(const std::string& text, const std::string& pipeline = "fuse") {
  const auto g = core::parse_graph(pipelines().fused->ops(), text, "case.tsr");
  const CompileOptions options = api::compile_options(pipelines().fused, pipelines().fused->config(), nullptr);
  const ServiceScope scope(options);
  PassOptions o;
  o.verify = VerifyWhen::kEach;
  o.reproducer = Reproducer::kNone;
  run_passes(*g, bind_pipeline(*pipelines().fused, pipeline), o);
  const std::string after = print_graph(*g);
  REQUIRE(print_graph(*core::parse_graph(pipelines().fused->ops(), after, "after.tsr")) == after);
  return after;
}

}  // namespace

TEST_CASE("what fuse makes of graphs") {
  for (const std::string& path : golden_files("kit/fuse", ".tsr")) {
    INFO(path);
    check_golden(path.substr(0, path.size() - 4) + ".expected", fuse_text(read_file(golden_path(path))));
  }
}

TEST_CASE("groups that span others do not need each other") {
  // %d may not join %a: through the group of %b and %c, which stands on both sides of the sort, %a leads to what %d needs.
  const std::string text = fuse_text(
      "graph @g(%x: f32[64, 64], %y: f32[64, 64]) {\n"
      "  %b = exp %x\n  %s, %i = sort %b {axis = 1}\n  %a = abs %y\n  %c = mul %b, %a\n  %d = add %s, %a\n"
      "  return %c, %d\n}\n",
      "fuse{max_fusion_size=2}");
  CHECK(text.find("= fused %x, %a") != std::string::npos);
  CHECK(text.find("%d = add") != std::string::npos);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomGraphOptions options;
    options.max_nodes = 60;
    options.devices = false;
    options.states = false;
    const auto g = random_graph(pipelines().fused->ops(), seed, options);
    INFO("seed " << seed << "\n" << print_graph(*g));
    CHECK_NOTHROW(fuse_text(print_graph(*g), "fuse{max_fusion_size=" + std::to_string(2 + seed % 5) + "}"));
  }
}

TEST_CASE("what is unfit is refused with its reason where it is claimed, and an error with it where it was promised") {
  static_assert(std::is_base_of_v<std::exception, kit::Unfit>);
  const auto g = core::parse_graph(pipelines().fused->ops(),
                                   "graph @g(%x: f32[4, 4], %i: i64[2]) { %y, %j = sort %x {axis = 1} return %y }", "case.tsr");
  const auto with = [&](const char* backend) {
    CompileOptions options = api::compile_options(pipelines().fused, pipelines().fused->config(), backend);
    try {
      compile_graph(g->clone(), options);
    } catch (const Error& e) {
      return e.code() + " " + e.message();
    }
    return std::string("compiled");
  };
  CHECK(with("kit,reference") == "compiled");
  CHECK(with("kit").find("sort") != std::string::npos);
  CHECK(with("rash").find("TSR-P900") == 0);
  CHECK(with("rash").find("too much of a good thing") != std::string::npos);
}

TEST_CASE("an output takes over the memory of an input that nobody reads any more") {
  const auto kernel = [](const char* lines) {
    return kit::parse(
        std::string("kernel @k(%x: in f32[16], %y: in f32[16], %u: out f32[16], %v: out f32[16]) {\n parallel p0 < 16 {\n") +
        lines + "\n }\n}\n");
  };
  kit::Kernel both = kernel("%0 = load %x[p0] : f32\n %1 = load %y[p0] : f32\n store %u[p0], %0\n store %v[p0], %1");
  CHECK(kit::in_place_input(both) == 0);
  kit::Kernel second = kernel("%0 = load %x[15 - p0] : f32\n %1 = load %y[p0] : f32\n store %u[p0], %1\n store %v[p0], %0");
  CHECK(kit::in_place_input(second) == 1);
  kit::Kernel late = kernel("%0 = load %x[15 - p0] : f32\n store %u[p0], %0\n %2 = load %y[p0] : f32\n store %v[p0], %2");
  CHECK(kit::in_place_input(late) == -1);
}

// Lets the nodes behind the first third belong to the backward half, so that groups may lie where the halves meet.
void mark_backward(Graph& g) {
  std::vector<tsr_id> nodes;
  for (const tsr_id n : nodes_of(g, 0)) nodes.push_back(n);
  g.begin("halves");
  for (size_t i = nodes.size() / 3; i < nodes.size(); ++i) g.set_marks(nodes[i], g.node(nodes[i]).marks | TSR_MARK_BACKWARD);
  g.commit();
}

TEST_CASE("fused bits are unfused bits") {
  size_t fused = 0, compared = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    std::vector<int64_t> witness;
    RandomGraphOptions options;
    options.devices = false;
    options.states = false;
    options.max_nodes = 24;
    options.witness = &witness;
    options.dtypes = dtype_bit(TSR_F32) | dtype_bit(TSR_BF16) | dtype_bit(TSR_BOOL) | dtype_bit(TSR_I64) | dtype_bit(TSR_I8) |
                     dtype_bit(TSR_F16) | dtype_bit(TSR_F64);
    const auto g = random_graph(pipelines().fused->ops(), seed, options);
    if (may_not_end(*g)) continue;
    if (seed % 2) mark_backward(*g);
    INFO("seed " << seed << "\n" << print_graph(*g));
    const Outcome want = run(pipelines().apart, *g, witness, seed);
    const Outcome got = run(pipelines().fused, *g, witness, seed);
    // What fails may fail elsewhere, or not at all where the fault was dead code.
    if (!want.error.empty()) continue;
    const std::string d = bits_differ(want, got);
    if (!d.empty()) FAIL(d << "\n" << fuse_text(print_graph(*g)));
    ++compared;
    fused += fuse_text(print_graph(*g)).find(" fused ") != std::string::npos;
  }
  CHECK(compared > 800);
  CHECK(fused > 200);
}

TEST_CASE("a size that is one by its range alone is broadcast") {
  const auto g = core::parse_graph(pipelines().fused->ops(),
                                   "graph @g(%x: f16[1, 1], %y: f32[5000]) {\n"
                                   "  %u, %a, %b, %c = unique %x\n  %f = is_finite %y\n  %n = is_nan %u\n"
                                   "  %o = logical_or %f, %n\n  %r = logical_not %o\n  return %r\n}\n",
                                   "case.tsr");
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Outcome want = run(pipelines().reference, *g, {}, seed), fused = run(pipelines().fused, *g, {}, seed);
    CHECK(want.error == "");
    CHECK(bits_differ(want, fused) == "");
    CHECK(bits_differ(want, run(pipelines().apart, *g, {}, seed)) == "");
  }
}

// Random ops draw floats whatever dtypes are asked for.
bool has_floats(const Graph& g) {
  for (tsr_id v = 0; v < g.num_values(); ++v)
    if (g.value(v).alive && is_float(g.value(v).type->dtype)) return true;
  return false;
}

TEST_CASE("exact arithmetic agrees with the reference backend") {
  size_t compared = 0;
  for (uint64_t seed = 5000; seed < 6000; ++seed) {
    std::vector<int64_t> witness;
    RandomGraphOptions options;
    options.devices = false;
    options.states = false;
    options.symbolic = false;
    options.max_nodes = 24;
    options.witness = &witness;
    for (const uint32_t t : kInts) options.dtypes |= dtype_bit(t);
    const auto g = random_graph(pipelines().fused->ops(), seed, options);
    if (may_not_end(*g) || has_floats(*g)) continue;
    INFO("seed " << seed << "\n" << print_graph(*g));
    const Outcome want = run(pipelines().reference, *g, witness, seed), got = run(pipelines().fused, *g, witness, seed);
    if (!want.error.empty()) continue;
    const std::string d = bits_differ(want, got);
    if (!d.empty()) FAIL(d << "\n" << fuse_text(print_graph(*g)));
    ++compared;
  }
  CHECK(compared > 600);
}

TEST_CASE("kernels of random graphs: compiled text gives the interpreter's bits") {
  const std::string file = (std::filesystem::temp_directory_path() / ("kit_dump_" + std::to_string(::getpid()))).string();
  setenv("KIT_DUMP", file.c_str(), 1);
  for (uint64_t seed = 9000; seed < 9150; ++seed) {
    std::vector<int64_t> witness;
    RandomGraphOptions options;
    options.devices = false;
    options.states = false;
    options.max_nodes = 24;
    options.witness = &witness;
    options.dtypes = dtype_bit(TSR_F32) | dtype_bit(TSR_BF16) | dtype_bit(TSR_BOOL) | dtype_bit(TSR_I64) | dtype_bit(TSR_I8) |
                     dtype_bit(TSR_F64);
    const auto g = random_graph(pipelines().fused->ops(), seed, options);
    if (!may_not_end(*g)) run(pipelines().fused, *g, witness, seed);
  }
  unsetenv("KIT_DUMP");
  std::ifstream in(file);
  const std::string all((std::istreambuf_iterator<char>(in)), {});
  std::filesystem::remove(file);
  std::map<std::string, kit::Kernel> kernels;
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find("----\n", at);
    const std::string text = all.substr(at, end - at);
    if (kernels.size() < 250 && !kernels.count(text)) kernels.emplace(text, kit::parse(text));
    at = end + 5;
  }
  REQUIRE(kernels.size() > 60);
  const Level level = levels().back();
  kit::ModuleText module(kit::cpu_dialect());
  kit::Device device;
  device.cores = 2;
  device.vector_bytes = level.vector_bytes;
  int number = 0;
  for (auto& [text, k] : kernels) {
    kit::verify(k);
    k.name = "k" + std::to_string(number++);
    module.add(k, kit::choose_schedule(k, device));
  }
  const Compiled compiled(module.text(), "-O0" + level.flags.substr(3));
  std::mt19937_64 random(5);
  for (auto& [text, k] : kernels) {
    INFO(text);
    for (const int64_t size : {3, 1, 40}) {
      std::vector<int64_t> symbols;
      for (const kit::Symbol& s : k.symbols) symbols.push_back(std::max(s.min, size));
      kit::IndexEnv env;
      env.symbols = symbols;
      const bool fits = std::all_of(k.buffers.begin(), k.buffers.end(), [&](const kit::Buffer& b) {
        const int64_t n = k.pool.evaluate(b.extent, env);
        return n >= 0 && n < 1000000;
      });
      if (!fits) continue;  // sizes that the graph's assumptions exclude
      const Data input = make_data(k, symbols, static_cast<uint64_t>(size), true);
      Data want = input, got = input;
      uint32_t faults = 0;
      try {
        faults = kit::interpret(k, want.pointers(), symbols);
      } catch (const sdk::Error&) {
        continue;  // sizes that the graph's assumptions exclude
      }
      REQUIRE(run_compiled(compiled, k.name, got, symbols, random) == faults);
      REQUIRE(difference(k, want, got) == "");
    }
  }
}
