// SPDX-License-Identifier: Apache-2.0
// Compilation through the cache: the same executable, without the work.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "api/api.hpp"
#include "cache/cache.hpp"
#include "eager/eager.hpp"
#include "graph_cache/cached.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"
#include "plugin/sha256.hpp"
#include "run/executable.hpp"
#include "support.hpp"
#include "support/error.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

const std::vector<std::string> kPlugins = {"tessera.opset.standard", "tessera.frontend.text", "tessera.pass.canonicalize",
                                           "tessera.pass.cse", "tessera.backend.eager"};
const char* const kConfig = "[pipeline]\npasses = [\"canonicalize\", \"cse\"]\n[backends]\norder = [\"eager\"]\n";

const char* const kGraph = R"(graph @net(%x: f32[s0, 8] arg, %w: f32[8, 8] param "w") -> (f32[s0, 8], bool[])
  symbols { s0: 2..64 hint 3 }
{
  %zero = constant {value = dense<f32[1]: [0.0]>}
  %a = add %x, %zero loc("net.cpp":12:3)
  %b = add %x, %zero
  %c = mul %a, %b
  %e = dot_general %c, %w {lhs_contract = [1], rhs_contract = [0]} : f32[s0, 8]
  %f = softmax %e {axis = 1}
  %g = constant {value = dense<bool[]: true>}
  return %f, %g
})";

struct Compiled {
  std::unique_ptr<Executable> executable;
  std::string graph, plan;
  bool hit;
};

Compiled compile(const std::shared_ptr<Context>& context, const std::string& text = kGraph) {
  std::string log;
  const LogSink before = set_log_sink([&](std::string_view lines) { log += lines; });
  configure_logs("passes");
  Compiled out;
  const CompileOptions options = api::compile_options(context, context->config(), nullptr);
  const std::vector<BoundPass> passes = context->pipeline(context->config());
  out.executable = compile_cached(parse_graph(context->ops(), text, "net.tsr"), {*context, context->config(), passes, options});
  configure_logs("");
  set_log_sink(before);
  out.graph = print_graph(out.executable->graph());
  out.plan = out.executable->plan_text();
  out.hit = log.find("comes from the cache") != std::string::npos;
  CHECK(out.hit == (log.find("pipeline") == std::string::npos));
  return out;
}

std::shared_ptr<Context> context_in(const std::string& folder, const std::vector<std::string>& overrides = {}) {
  return make_context(folder, kPlugins, kConfig, overrides);
}

}  // namespace

TEST_CASE("a second context takes what the first one compiled") {
  const TemporaryFolder folder;
  const Compiled first = compile(context_in(folder.path));
  CHECK_FALSE(first.hit);
  const Compiled second = compile(context_in(folder.path));
  CHECK(second.hit);
  CHECK(second.graph == first.graph);
  CHECK(second.plan == first.plan);
}

TEST_CASE("whatever may change the result is part of the key") {
  const TemporaryFolder folder;
  REQUIRE_FALSE(compile(context_in(folder.path)).hit);
  for (const char* other : {"numerics=relaxed", "mode=aot_eager", "pipeline.skip=[\"cse\"]", "deterministic=true",
                            "fallback_random=true", "freezing=false", "max_autotune=true"}) {
    INFO(other);
    CHECK_FALSE(compile(context_in(folder.path, {other})).hit);
    CHECK(compile(context_in(folder.path, {other})).hit);
  }
  std::string hinted = kGraph;
  hinted.replace(hinted.find("hint 3"), 6, "hint 9");  // the size of the first call
  CHECK(compile(context_in(folder.path), hinted).hit);
  for (const char* same : {"log.artifacts=plan", "name=other", "guards.recompile_limit=9", "disk.max_bytes=1000000",
                           "mode=default", "runtime.measure_steps=true", "runtime.arena_max_bytes=100000000"}) {
    INFO(same);
    CHECK(compile(context_in(folder.path, {same})).hit);
  }
  std::string text = kGraph;
  text.replace(text.find("[0.0]"), 5, "[1.0]");  // a constant
  CHECK_FALSE(compile(context_in(folder.path), text).hit);
  text.replace(text.find("net.cpp"), 7, "new.cpp");  // a place, which messages name
  CHECK_FALSE(compile(context_in(folder.path), text).hit);
}

TEST_CASE("force_disable_caches: nothing is read and nothing written") {
  const TemporaryFolder folder;
  const auto files = [&] { return entry_files(folder.path).size(); };
  {
    const auto off = context_in(folder.path, {"force_disable_caches=true"});
    CHECK(off->cache() == nullptr);
    CHECK_FALSE(compile(off).hit);
  }
  CHECK(std::filesystem::is_empty(folder.path));
  CHECK_FALSE(compile(context_in(folder.path)).hit);
  CHECK(files() == 1);
  CHECK_FALSE(compile(context_in(folder.path, {"force_disable_caches=true"})).hit);
  setenv("TESSERA_FORCE_DISABLE_CACHES", "1", 1);
  CHECK_FALSE(compile(context_in(folder.path)).hit);
  unsetenv("TESSERA_FORCE_DISABLE_CACHES");
  CHECK(compile(context_in(folder.path)).hit);
  // The command says who has done it.
  tsr_context c;
  c.context = context_in(folder.path, {"force_disable_caches=true"});
  char* text = nullptr;
  tsr_api table{};
  api::cache_functions(table);
  CHECK_THROWS_WITH(throw_if(table.cache_list(&c, &text)),
                    Catch::Contains("TSR-K002") && Catch::Contains("force_disable_caches is on (--set)"));
}

#ifdef TEST_WITH_CPU
TEST_CASE("force_disable_caches reaches a backend that keeps files of its own") {
  const TemporaryFolder folder;
  const std::string own = folder.path + "/cpu";
  const auto compile_with = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> load = kPlugins;
    load.push_back("tessera.backend.cpu");
    const auto context = make_context(
        folder.path, load,
        "[pipeline]\npasses = [\"cse\"]\n[backends]\norder = [\"cpu\", \"eager\"]\n[cpu]\ncache_directory = \"" + own + "\"\n",
        overrides);
    return compile(context, "graph @g(%x: f32[64]) -> (f32[64]) {\n  %y = exp %x\n  return %y\n}");
  };
  const Compiled off = compile_with({"force_disable_caches=true"});
  CHECK(std::filesystem::is_empty(folder.path));
  const Compiled only_graphs = compile_with({"cpu.force_disable_caches=true"});
  CHECK_FALSE(std::filesystem::exists(own));
  CHECK(entry_files(folder.path).size() == 1);
  const Compiled on = compile_with({});
  const bool generated = on.plan.find(" cpu ") != std::string::npos;  // there is a compiler
  CHECK(std::filesystem::exists(own) == generated);
  CHECK(on.plan == off.plan);
}
#endif

#ifdef TEST_WITH_SIM
TEST_CASE("kernels that are text for GPUs come back from the cache") {
  const TemporaryFolder folder;
  const auto context = [&] {
    std::vector<std::string> load = kPlugins;
    load.insert(load.end(), {"tessera.backend.reference", "tessera.backend.sim"});
    return make_context(folder.path, load,
                        "[pipeline]\npasses = [\"canonicalize\", \"cse\"]\n[backends]\norder = [\"sim\", "
                        "\"reference\"]\n[sim]\nkernels = \"text\"\n",
                        {});
  };
  // The device stays with the process, and with it the context that brought it: one that compiles nothing.
  const auto devices = context();
  for (const Factory* f : devices->plugins().all(TSR_DEVICE))
    register_devices(f->as<tsr_device_table>(), f->self, f->plugin->id, f->plugin->vendor, devices);
  const auto compiled = [&] {
    return compile(context(),
                   "graph @g(%x: f32[8, 96]@sim:0) -> (f32[8, 96]@sim:0) {\n"
                   "  %y = softmax %x {axis = 1}\n  return %y\n}");
  };
  compiled();
  CHECK(compiled().hit);
  // The entry holds the object that was compiled; when that is damaged, the graph is compiled again.
  const auto c = context();
  const std::string key = c->cache()->list().at(0).key;
  std::string payload = *c->cache()->get(CacheKind::kGraph, key);
  const size_t object = payload.find(
      "\x7f"
      "ELF");
  REQUIRE(object != std::string::npos);
  payload.replace(object, 4, "none");
  c->cache()->put(CacheKind::kGraph, key, payload);
  CHECK_FALSE(compiled().hit);
  CHECK(compiled().hit);
}
#endif

TEST_CASE("what asks to see the passes is not answered from the cache") {
  const TemporaryFolder folder;
  compile(context_in(folder.path));
  CHECK_FALSE(compile(context_in(folder.path, {"pipeline.bisect_limit=1000000"})).hit);
  CHECK_FALSE(compile(context_in(folder.path, {"pipeline.reproducer=always"})).hit);
}

TEST_CASE("a graph with large constants is kept, under their content") {
  const TemporaryFolder folder;
  const auto text = [](int64_t n, const char* first = "1.5") {
    const std::string type = "f32[" + std::to_string(n) + "]";
    return "graph @big(%x: " + type + ") -> (" + type + ") {\n  %c = constant {value = dense<" + type + ": splat " + first +
           ">}\n  %y = add %x, %c\n  return %y\n}";
  };
  compile(context_in(folder.path), text(1 << 20));
  CHECK(compile(context_in(folder.path), text(1 << 20)).hit);
  CHECK_FALSE(compile(context_in(folder.path), text((1 << 20) + 1)).hit);
  CHECK(compile(context_in(folder.path), text((1 << 20) + 1)).hit);
  CHECK_FALSE(compile(context_in(folder.path), text((1 << 20) + 1, "2.5")).hit);
}

TEST_CASE("an entry that decodes and makes no sense is refused, and compiled again") {
  const TemporaryFolder folder;
  const auto context = context_in(folder.path);
  const Compiled good = compile(context);
  const std::string key = context->cache()->list().at(0).key;
  const std::string payload = *context->cache()->get(CacheKind::kGraph, key);
  std::vector<std::string> bad = {"", "x", payload.substr(0, payload.size() / 2), payload.substr(0, payload.size() - 1)};
  {
    SectionWriter w;
    w.add(1, "graph @net( nonsense");
    w.add(2, "");
    bad.push_back(w.take());
  }
  std::string assigned = payload;
  const size_t at = assigned.rfind("eager");
  REQUIRE(at != std::string::npos);
  bad.push_back(assigned.replace(at, 5, "other"));
  for (const std::string& p : bad) {
    context->cache()->put(CacheKind::kGraph, key, p);
    const Compiled again = compile(context_in(folder.path));
    CHECK_FALSE(again.hit);
    CHECK(again.graph == good.graph);
    CHECK(compile(context_in(folder.path)).hit);
  }
}

TEST_CASE("random bytes in place of a payload never end the process") {
  const TemporaryFolder folder;
  const auto context = context_in(folder.path);
  compile(context);
  const std::string payload = *context->cache()->get(CacheKind::kGraph, context->cache()->list().at(0).key);
  const auto backends = context->backends_in_order();
  unsigned seed = 7;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = payload;
    for (int k = 0; k <= i % 3; ++k) {
      seed = seed * 1664525 + 1013904223;
      changed[(seed >> 8) % changed.size()] = static_cast<char>(seed >> 24);
    }
    CachedGraph out;
    if (decode_graph(changed, context->ops(), backends, &out).empty()) CHECK(out.graph);
  }
}
