// SPDX-License-Identifier: Apache-2.0
// What the keys deterministic, fallback_random and freezing promise of a compiled graph: who is passed over, and what backends
// are told.
#include <catch2/catch.hpp>

#include "compile/assign.hpp"
#include "compile/driver.hpp"
#include "compile/services.hpp"
#include "fake_backend.hpp"
#include "log/log.hpp"
#include "plan/compile_options.hpp"
#include "run/executable.hpp"

namespace promises_test {

using namespace tessera::core;
using namespace tessera::test;
using Catch::Contains;
using Ops = std::vector<std::string>;

namespace {

constexpr uint64_t kDeterministic = TSR_CAP_STRIDED_INPUTS | TSR_CAP_UNALIGNED | TSR_CAP_DETERMINISTIC;

// "fast" promises nothing and stands first; "safe" is the fallback.
struct Two {
  FakeBackend fast, safe;
  Two() {
    fast.name = "fast";
    safe.name = "safe";
    safe.capabilities = kDeterministic;
  }
  CompileOptions options() {
    CompileOptions o;
    o.backends = {fast.factory(), safe.factory()};
    return o;
  }
  CompileOptions deterministic() {
    CompileOptions o = options();
    o.deterministic = true;
    return o;
  }
};

std::unique_ptr<Executable> compile(const std::string& text, const CompileOptions& options) {
  return compile_graph(graph_of(text), options);
}

// Ops that were compiled, by backend, in program order.
Ops compiled(const FakeBackend& b) {
  Ops out;
  for (const Ops& ops : b.prepared) out.insert(out.end(), ops.begin(), ops.end());
  return out;
}

const char* const kNeg = "graph @g(%x: f32[2]) -> (f32[2]) {\n  %y = neg %x loc(\"net.cpp\":7:3)\n  return %y\n}";

}  // namespace

TEST_CASE("deterministic passes over a backend that does not promise it") {
  Two two;
  compile(kNeg, two.options());
  CHECK(compiled(two.fast) == Ops{"neg"});
  compile(kNeg, two.deterministic());
  CHECK(compiled(two.fast) == Ops{"neg"});
  CHECK(compiled(two.safe) == Ops{"neg"});
}

TEST_CASE("deterministic takes an op apart rather than give it whole to whom promises nothing") {
  Two two;
  two.safe.refuses = {"relu"};
  two.safe.claims = {"maximum"};
  const char* relu = "graph @g(%x: f32[2]) -> (f32[2]) {\n  %y = relu %x\n  return %y\n}";
  compile(relu, two.deterministic());
  CHECK(compiled(two.safe) == Ops{"maximum"});
  CHECK(compiled(two.fast).empty());
}

TEST_CASE("where nobody promises it the compile is refused, and everybody named") {
  Two two;
  two.safe.refuses = {"neg"};
  try {
    compile(kNeg, two.deterministic());
    FAIL("expected an error");
  } catch (const Error& e) {
    CHECK(e.code() == "TSR-R027");
    CHECK(std::string(e.message()) ==
          "deterministic = true, and nobody who promises the same bits on every run takes %y = neg (net.cpp:7):\n"
          "  fast: does not promise the same bits on every run\n"
          "  safe: not among the ops of the fake");
    CHECK_THAT(e.hint(), Contains("TSR_CAP_DETERMINISTIC"));
  }
  // Without that key it is not mentioned.
  two.fast.refuses = {"neg"};
  CHECK_THAT(error_of([&] { compile(kNeg, two.options()); }), Contains("TSR-R020") && !Contains("promise"));
  two.fast.refuses.clear();
  // In the region of a loop too.
  const char* loop = R"(graph @g(%p: bool[], %x: f32[2]) -> (f32[2]) {
  %y = cond %p, %x : f32[2]
    region(%a: f32[2]) { %b = neg %a  return %b }
    region(%c: f32[2]) { return %c }
  return %y
})";
  CHECK_THAT(error_of([&] { compile(loop, two.deterministic()); }), Contains("TSR-R027") && Contains("neg"));
}

TEST_CASE("deterministic: a fused group of another backend stands alone again") {
  Two two;
  two.fast.capabilities |= TSR_CAP_FUSION;
  two.fast.claims = {"fused"};
  const char* text = R"(graph @g(%x: f32[2]) -> (f32[2]) {
  %y = fused %x {backend = "fast"} : f32[2]
    region(%a: f32[2]) { %b = neg %a  %c = exp %b  return %c }
  return %y
})";
  compile(text, two.options());
  CHECK(compiled(two.fast) == Ops{"fused"});
  compile(text, two.deterministic());
  CHECK(compiled(two.safe) == Ops{"neg", "exp"});
}

TEST_CASE("deterministic: host kernels of pure ops promise it, others only where nobody reads what they give") {
  static const tsr_record_file file{"acme.tops",
                                    "op twice(%x: T[*S]) -> (T[*S])\n  where T: any\n  traits: pure\n"
                                    "op dice(%x: T[*S]) -> (T[*S])\n  where T: any\n"};
  const auto impl = [](const char* op) {
    tsr_op_impl i{};
    i.op = op;
    i.compute = [](void*, const tsr_call*, const tsr_tensor*, uint32_t, const tsr_tensor*, uint32_t) noexcept -> tsr_error* {
      return nullptr;
    };
    return i;
  };
  static const tsr_op_impl impls[] = {impl("twice"), impl("dice")};
  tsr_opset set{};
  set.struct_size = sizeof set;
  set.prefix = "acme";
  set.files = &file;
  set.num_files = 1;
  set.file_stride = sizeof file;
  set.impls = impls;
  set.num_impls = 2;
  set.impl_stride = sizeof(tsr_op_impl);
  OpRegistry ops;
  ops.add(set, "acme.opset");
  Two two;
  const auto compile_as = [&](const char* op, const char* result, const CompileOptions& options) {
    const std::string text =
        std::string("graph @g(%x: f32[2]) -> (f32[2]) {\n  %y = acme.") + op + " %x\n  return " + result + "\n}";
    return error_of([&] { compile_graph(parse_graph(ops, text, "t.tsr"), options); });
  };
  CHECK(compile_as("twice", "%y", two.deterministic()) == "");
  CHECK(compile_as("dice", "%y", two.options()) == "");
  CHECK(compile_as("dice", "%x", two.deterministic()) == "");
  CHECK_THAT(compile_as("dice", "%y", two.deterministic()),
             Contains("TSR-R027") &&
                 Contains("its host kernel: does not promise the same bits on every run, since the op is not pure"));
}

TEST_CASE("deterministic: an executor that promises nothing is not used") {
  static int prepared = 0;
  prepared = 0;
  LoadedPlugin plugin;
  tsr_executor table{};
  table.struct_size = sizeof table;
  table.device = "cpu";
  table.prepare = [](void*, const tsr_step_table*, void** out, const char**) noexcept -> tsr_error* {
    ++prepared;
    *out = nullptr;
    return nullptr;
  };
  table.run = [](void*, void*, const tsr_executor_call*, int*) noexcept -> tsr_error* { return nullptr; };
  table.release = [](void*, void*) noexcept {};
  const Factory factory{TSR_EXECUTOR, "replay", &table, nullptr, &plugin};
  Two two;
  CompileOptions options = two.deterministic();
  options.executor = &factory;
  std::string log;
  const LogSink before = set_log_sink([&](std::string_view lines) { log += lines; });
  compile(kNeg, options);
  CHECK(prepared == 0);
  CHECK_THAT(log, Contains("executor 'replay' does not promise the same bits on every run"));
  table.capabilities = TSR_CAP_DETERMINISTIC;
  log.clear();
  compile(kNeg, options);
  CHECK(prepared == 1);
  CHECK(log.empty());
  set_log_sink(before);
}

TEST_CASE("passes see the same assignment") {
  Two two;
  const auto g = graph_of(kNeg);
  CompileOptions options = two.options();
  const auto asked = [&] {
    const ServiceScope scope(options);
    const char* name = backend_of(*g, g->region(0).first, nullptr);
    return std::string(name ? name : "");
  };
  CHECK(asked() == "fast");
  options.deterministic = true;
  CHECK(asked() == "safe");
  two.safe.capabilities = TSR_CAP_UNALIGNED;
  two.safe.factory();
  CHECK(asked().empty());
  CHECK_FALSE(assignable(*g, g->region(0).first, options));
  options.deterministic = false;
  CHECK(assignable(*g, g->region(0).first, options));
}

TEST_CASE("fallback_random gives what draws to the fallback, whole or in parts") {
  Two two;
  for (FakeBackend* b : {&two.fast, &two.safe}) b->claims = {"random_uniform", "dropout", "ge", "select", "fused"};
  CompileOptions options = two.options();
  const char* draw = R"(graph @g(%s: u64[2], %x: f32[2]) -> (f32[2], u64[2]) {
  %r, %n = random_uniform %s {shape = [2], dtype = f32}
  %y = add %x, %r
  return %y, %n
})";
  compile(draw, options);
  CHECK(compiled(two.safe).empty());
  options.fallback_random = true;
  two.fast.prepared.clear();
  compile(draw, options);
  CHECK(compiled(two.fast) == Ops{"add"});
  CHECK(compiled(two.safe) == Ops{"random_uniform"});

  const char* dropout = R"(graph @g(%x: f32[2], %s: u64[2]) -> (f32[2], u64[2]) {
  %y, %n = dropout %x, %s {p = 0.5}
  return %y, %n
})";
  two.safe.prepared.clear();
  two.fast.prepared.clear();
  compile(dropout, options);
  CHECK(compiled(two.safe) == Ops{"dropout"});
  CHECK(compiled(two.fast).empty());
  two.safe.decomposes = {"dropout"};
  two.safe.prepared.clear();
  compile(dropout, options);
  CHECK(compiled(two.safe) == Ops{"random_uniform"});  // the rest may run anywhere
  CHECK(compiled(two.fast).size() > 1);
  two.safe.decomposes.clear();
  two.safe.refuses = {"random_uniform"};
  CHECK_THAT(error_of([&] { compile(draw, options); }),
             Contains("TSR-R020") && Contains("fast: leaves random ops to the fallback (fallback_random = true)"));
}

TEST_CASE("fallback_random: a group of another backend that draws is taken apart") {
  Two two;
  for (FakeBackend* b : {&two.fast, &two.safe}) {
    b->claims = {"random_uniform", "fused"};
    b->capabilities |= TSR_CAP_FUSION;
  }
  const auto group = [](const char* backend) {
    return std::string("graph @g(%s: u64[2], %x: f32[2]) -> (f32[2], u64[2]) {\n  %y, %n = fused %s, %x {backend = \"") +
           backend +
           R"("} : f32[2], u64[2]
    region(%t: u64[2], %a: f32[2]) {
      %r, %m = random_uniform %t {shape = [2], dtype = f32}
      %b = add %a, %r
      return %b, %m
    }
  return %y, %n
})";
  };
  CompileOptions options = two.options();
  compile(group("fast"), options);
  CHECK(compiled(two.fast) == Ops{"fused"});
  options.fallback_random = true;
  two.fast.prepared.clear();
  compile(group("fast"), options);
  CHECK(compiled(two.safe) == Ops{"random_uniform"});
  CHECK(compiled(two.fast) == Ops{"add"});
  two.safe.prepared.clear();
  compile(group("safe"), options);
  CHECK(compiled(two.safe) == Ops{"fused"});
}

TEST_CASE("a backend is told that constants stay as they are") {
  Two two;
  CompileOptions options = two.options();
  compile(kNeg, options);
  options.unfrozen = true;
  compile(kNeg, options);
  REQUIRE(two.fast.asked.size() == 2);
  CHECK(two.fast.asked[0].unfrozen == 0);
  CHECK(two.fast.asked[1].unfrozen == 1);
}

}  // namespace promises_test
