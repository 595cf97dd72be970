// SPDX-License-Identifier: Apache-2.0
// Executables: assignment, running with static, symbolic and data-dependent sizes, views, states, refusals; for control flow
// see control_test.cpp.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "fake_backend.hpp"
#include "plan/layout.hpp"
#include "run/run_state.hpp"

namespace executable_test {

using namespace tessera::core;
using namespace tessera::test;

using Values = std::vector<double>;

namespace {
bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  UNSCOPED_INFO("found: " << text);
  return false;
}
}  // namespace

TEST_CASE("a static graph runs, again and again, and lets go of everything") {
  drop_arenas();  // those of other tests' executables
  const int64_t before = device(kCpu).in_use();
  FakeBackend fake;
  {
    const auto e = compile_text(R"(graph @g(%x: f32[3], %y: f32[3]) -> (f32[3]) {
      %a = add %x, %y
      %b = mul %a, %y
      return %b
    })",
                                fake);
    TensorRef x = vector_of({1, 2, 3}), y = vector_of({10, 20, 30});
    for (int k = 0; k < 3; ++k) {
      const auto out = run(*e, {x.get(), y.get()});
      REQUIRE(values_of(*out[0]) == Values{110, 440, 990});
      REQUIRE(out[0]->desc.flags == TSR_TENSOR_CONTIGUOUS);
      REQUIRE(out[0]->refcount == 1);
    }
    REQUIRE(fake.compiled == 2);
    REQUIRE(fake.destroyed == 0);
  }
  REQUIRE(fake.destroyed == 2);
  drop_arenas();
  REQUIRE(device(kCpu).in_use() == before);
}

TEST_CASE("wrong inputs are named, with what was found and expected") {
  FakeBackend fake;
  const auto e = compile_text(
      R"(graph @net(%x: f32[s0, 4], %w: f32[4] param "fc.w", %y: f32[s0]) -> (f32[s0, 4]) symbols { s0: 2..8 } assume { s0 % 2 == 0 } {
    %a = add %x, %w
    return %a
  })",
      fake);
  TensorRef x = tensor_of(Values(16, 1), {4, 4}), w = vector_of({1, 2, 3, 4}), y = vector_of({1, 2, 3, 4});
  REQUIRE(values_of(*run(*e, {x.get(), w.get(), y.get()})[0])[3] == 5);
  const auto refused = [&](Tensor* a, Tensor* b, Tensor* c) { return error_of([&] { run(*e, {a, b, c}); }); };
  TensorRef f64 = tensor_of(Values(16, 1), {4, 4}, TSR_F64), flat = tensor_of(Values(16, 1), {16}),
            wide = tensor_of(Values(20, 1), {4, 5}), short_y = vector_of({1, 2, 3}), big = tensor_of(Values(40, 1), {10, 4}),
            big_y = vector_of(Values(10, 1)), odd = tensor_of(Values(12, 1), {3, 4}), odd_y = vector_of({1, 2, 3});
  REQUIRE(refused(f64.get(), w.get(), y.get()) ==
          "TSR-T021 input 'x' (number 0 of graph 'net'): dtype mismatch. found f64, expected f32");
  REQUIRE(contains(refused(flat.get(), w.get(), y.get()),
                   "TSR-T022 input 'x' (number 0 of graph 'net'): rank mismatch. found 1 (f32[16]), expected 2 (f32[s0, 4])"));
  REQUIRE(contains(refused(wide.get(), w.get(), y.get()),
                   "TSR-T023 input 'x' (number 0 of graph 'net'): size mismatch at index 1. found 5 (f32[4, 5]), expected 4"));
  REQUIRE(contains(
      refused(x.get(), w.get(), short_y.get()),
      "TSR-T023 input 'y' (number 2 of graph 'net'): size mismatch at index 0. found 3 (f32[3]), expected s0 = 4 (f32[s0]); "
      "s0 is the size at index 0 of input 'x'"));
  REQUIRE(contains(refused(x.get(), y.get(), flat.get()), "TSR-T023"));
  REQUIRE(
      contains(refused(big.get(), w.get(), big_y.get()),
               "TSR-T025 input 'x' (number 0 of graph 'net'): size at index 0 is out of range. found s0 = 10, expected 2..8"));
  REQUIRE(contains(refused(odd.get(), w.get(), odd_y.get()),
                   "TSR-T026 the sizes of this call break an assumption of graph 'net': s0 % 2 == 0, found 3 and 2; "
                   "s0 is the size at index 0 of input 'x'"));
  float data[16] = {};
  const int64_t sizes[] = {4, 4};
  TensorRef elsewhere(tensor_wrap({data, TSR_F32, 2, sizes, nullptr, device_intern("imaginary:0"), 0}, nullptr, nullptr));
  REQUIRE(contains(refused(elsewhere.get(), w.get(), y.get()),
                   "TSR-T024 input 'x' (number 0 of graph 'net'): device mismatch. found 'imaginary:0', expected 'cpu'"));
  REQUIRE(contains(refused(x.get(), nullptr, y.get()), "TSR-T020 input 'fc.w' of graph 'net' is missing"));
  REQUIRE(contains(error_of([&] { run(*e, {x.get()}); }), "TSR-T020 graph 'net' got 1 inputs, expected 3: x, fc.w, y"));
  REQUIRE(values_of(*run(*e, {x.get(), w.get(), y.get()})[0])[3] == 5);  // still usable
}

TEST_CASE("symbolic sizes: one executable, many shapes") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[s0, s1], %y: f32[s1 * 2]) -> (f32[s1, s0], f32[s1 * 2]) {
    %a = neg %x
    %t = transpose %a {perm = [1, 0]}
    %b = neg %t
    %z = add %y, %y
    return %b, %z
  })",
                              fake);
  REQUIRE_FALSE(e->plan().is_static);
  for (int round = 0; round < 2; ++round)
    for (const auto& [n, m] : {std::pair<int64_t, int64_t>{2, 3}, {5, 1}, {0, 4}, {2, 3}}) {
      Values v(static_cast<size_t>(n * m));
      for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i);
      TensorRef x = tensor_of(v, {n, m}), y = tensor_of(Values(static_cast<size_t>(2 * m), 4), {2 * m});
      const auto out = run(*e, {x.get(), y.get()});
      REQUIRE(sizes_of(*out[0]) == std::vector<int64_t>{m, n});
      Values expected;
      for (int64_t j = 0; j < m; ++j)
        for (int64_t i = 0; i < n; ++i) expected.push_back(v[static_cast<size_t>(i * m + j)]);
      REQUIRE(values_of(*out[0]) == expected);
      REQUIRE(values_of(*out[1]) == Values(static_cast<size_t>(2 * m), 8));
    }
}

TEST_CASE("a symbol that only appears in an expression is solved for") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[s0 * 2 + 1]) -> (f32[s0 * 2 + 1]) { %a = neg %x  return %a })", fake);
  TensorRef x = vector_of({1, 2, 3}), even = vector_of({1, 2});
  REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values{-1, -2, -3});
  REQUIRE(contains(error_of([&] { run(*e, {even.get()}); }), "TSR-T023"));
}

TEST_CASE("data-dependent sizes end a section of the plan") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[s0]) -> (i64[u0, 1], f32[s0]) symbols { u0: 0.. unbacked } {
    %a = neg %x
    %n = nonzero %a : i64[u0, 1]
    %m = add %n, %n
    %b = neg %a
    return %m, %b
  })",
                              fake);
  REQUIRE(e->plan().num_sections == 2);
  for (const Values& v : {Values{0, 5, 0, 7}, Values{0, 0}, Values{1}, Values{0, 5, 0, 7}}) {
    TensorRef x = vector_of(v);
    const auto out = run(*e, {x.get()});
    Values expected;
    for (size_t i = 0; i < v.size(); ++i)
      if (v[i] != 0) expected.push_back(2 * static_cast<double>(i));
    REQUIRE(values_of(*out[0]) == expected);
    REQUIRE(sizes_of(*out[0]) == std::vector<int64_t>{static_cast<int64_t>(expected.size()), 1});
    REQUIRE(values_of(*out[1]) == v);
  }
}

TEST_CASE("views cost no kernel; strided memory is copied only for kernels that want it dense") {
  const char* text = R"(graph @g(%x: f32[2, 3]) -> (f32[3, 2]) {
    %a = neg %x
    %t = transpose %a {perm = [1, 0]}
    %b = neg %t
    return %b
  })";
  TensorRef x = tensor_of({1, 2, 3, 4, 5, 6}, {2, 3});
  FakeBackend strided;
  const auto e = compile_text(text, strided);
  REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values{1, 4, 2, 5, 3, 6});
  REQUIRE(strided.ops() == std::vector<std::string>{"neg", "neg"});
  REQUIRE_FALSE(strided.launches[1].dense[0]);
  REQUIRE(e->plan().primary->program.size() == 2);

  FakeBackend dense;
  dense.capabilities = TSR_CAP_UNALIGNED;
  const auto f = compile_text(text, dense);
  REQUIRE(values_of(*run(*f, {x.get()})[0]) == Values{1, 4, 2, 5, 3, 6});
  REQUIRE(dense.launches[1].dense[0]);
  REQUIRE(f->plan().primary->program.size() == 3);

  // Strided inputs of a call: the same executable, another layout.
  const int64_t sizes[] = {2, 3}, strides[] = {1, 2};
  TensorRef flipped(tensor_view(*x, 0, sizes, strides));
  dense.launches.clear();
  REQUIRE(values_of(*run(*f, {flipped.get()})[0]) == Values{1, 2, 3, 4, 5, 6});
  REQUIRE(dense.launches[0].dense[0]);
  REQUIRE(values_of(*run(*e, {flipped.get()})[0]) == Values{1, 2, 3, 4, 5, 6});
}

TEST_CASE("kernels that want aligned memory get it") {
  FakeBackend fake;
  fake.capabilities = TSR_CAP_STRIDED_INPUTS;
  const auto e = compile_text(R"(graph @g(%x: f32[8]) -> (f32[3]) {
    %a = neg %x
    %s = slice %a {starts = [1], limits = [4], strides = [1]}
    %b = neg %s
    return %b
  })",
                              fake);
  TensorRef base = vector_of(Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  const int64_t sizes[] = {8};
  for (const int64_t offset : {0, 1}) {
    TensorRef x(tensor_view(*base, offset, sizes, nullptr));
    fake.launches.clear();
    const double o = static_cast<double>(offset);
    REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values{1 + o, 2 + o, 3 + o});
    for (const auto& l : fake.launches) REQUIRE(reinterpret_cast<uintptr_t>(l.inputs[0].data) % 64 == 0);
  }
}

TEST_CASE("a view of all of a temporary is dense and aligned at all sizes, so that no call looks at it") {
  FakeBackend fake;
  fake.capabilities = 0;
  const auto e = compile_text(R"(graph @g(%x: f32[s0, 4]) -> (f32[1, 4, s0], f32[1, s0, 4]) symbols { s0: 1.. } {
    %a = neg %x
    %r = reshape %a {shape = [4, s0]}
    %q = expand_dims %r {axes = [0]}
    %y = neg %q
    %t = transpose %q {perm = [0, 2, 1]}
    %z = neg %t
    return %y, %z
  })",
                              fake);
  std::vector<std::string> copies;  // that some sizes, strides or addresses may ask for
  const auto plan = nlohmann::json::parse(e->describe_json());
  for (const auto& step : plan.at("steps"))
    if (step.at("kind") == "copy") copies.push_back(step.at("results")[0]);
  CHECK(copies == std::vector<std::string>{"%x'", "%t'"});
  TensorRef x = tensor_of({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4});
  const auto out = run(*e, {x.get()});
  CHECK(values_of(*out[0]) == Values{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(values_of(*out[1]) == Values{1, 3, 5, 7, 2, 4, 6, 8});
}

TEST_CASE("a view that strided memory cannot give is taken of a copy") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[2, 3]) -> (f32[6]) {
    %t = transpose %x {perm = [1, 0]}
    %r = reshape %t {shape = [6]}
    %b = neg %r
    return %b
  })",
                              fake);
  TensorRef x = tensor_of({1, 2, 3, 4, 5, 6}, {2, 3});
  REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values{-1, -4, -2, -5, -3, -6});
  const auto d = compile_text(R"(graph @g(%x: f32[s0, s1]) -> (f32[s0 * s1]) {
    %t = transpose %x {perm = [1, 0]}
    %r = reshape %t {shape = [s0 * s1]}
    %b = neg %r
    return %b
  })",
                              fake);
  REQUIRE(values_of(*run(*d, {x.get()})[0]) == Values{-1, -4, -2, -5, -3, -6});
  TensorRef row = tensor_of({1, 2, 3}, {1, 3});
  REQUIRE(values_of(*run(*d, {row.get()})[0]) == Values{-1, -2, -3});
}

TEST_CASE("outputs are memory of their own, whatever they are in the graph") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[4]) -> (f32[4], f32[4], f32[4], f32[2, 2], f32[2], f32[2], f32[2, 2]) {
    %c = constant {value = dense<f32[2]: [7.0, 8.0]>}
    %a = neg %x
    %v = reshape %a {shape = [2, 2]}
    %b = add %a, %a
    %w = reshape %b {shape = [2, 2]}
    %s = slice %x {starts = [1], limits = [3], strides = [1]}
    return %x, %a, %a, %v, %s, %c, %w
  })",
                              fake);
  TensorRef x = vector_of({1, 2, 3, 4});
  const auto out = run(*e, {x.get()});
  REQUIRE(values_of(*out[0]) == Values{1, 2, 3, 4});
  REQUIRE(values_of(*out[1]) == Values{-1, -2, -3, -4});
  REQUIRE(values_of(*out[3]) == Values{-1, -2, -3, -4});
  REQUIRE(values_of(*out[4]) == Values{2, 3});
  REQUIRE(values_of(*out[5]) == Values{7, 8});
  REQUIRE(values_of(*out[6]) == Values{-2, -4, -6, -8});
  std::set<void*> memory{x->desc.data};
  for (const TensorRef& t : out) {
    REQUIRE(memory.insert(t->desc.data).second);
    REQUIRE(t->desc.flags == TSR_TENSOR_CONTIGUOUS);
    REQUIRE(reinterpret_cast<uintptr_t>(t->desc.data) % 64 == 0);
  }
  // A reshape of a temporary needs no copy: x, a, v, s and c are copied, w is computed in place.
  size_t copies = 0;
  for (const Instruction& x2 : e->plan().primary->program) copies += x2.kind == Instruction::kCopy;
  REQUIRE(copies == 5);
}

TEST_CASE("states are written back, donated ones in their own memory") {
  FakeBackend fake;
  fake.in_place = true;
  const char* kept =
      R"(graph @g(%x: f32[2], %n: f32[2] state "n" -> 0, %m: f32[2] state "m" -> 2 donated) -> (f32[2], f32[2], f32[2]) {
    %n1 = add %n, %x
    %old = neg %n
    %m1 = add %m, %x
    return %n1, %old, %m1
  })";
  const auto e = compile_text(kept, fake);
  TensorRef x = vector_of({1, 2}), n = vector_of({10, 20}), m = vector_of({100, 200});
  void* memory = m->desc.data;
  for (int k = 1; k <= 3; ++k) {
    const auto out = run(*e, {x.get(), n.get(), m.get()});
    REQUIRE(values_of(*n) == Values{10.0 + k, 20.0 + 2 * k});
    REQUIRE(values_of(*m) == Values{100.0 + k, 200.0 + 2 * k});
    REQUIRE(values_of(*out[0]) == values_of(*n));
    REQUIRE(values_of(*out[1]) == Values{-(10.0 + k - 1), -(20.0 + 2 * (k - 1))});
    REQUIRE(out[0]->desc.data != n->desc.data);
    REQUIRE(out[2]->desc.data == memory);  // computed in the state itself
    REQUIRE(m->desc.data == memory);
  }
  // The same tensor as argument and as donated state: it must be read as it was.
  TensorRef both = vector_of({1, 2}), other = vector_of({0, 0});
  const auto out = run(*e, {both.get(), other.get(), both.get()});
  REQUIRE(values_of(*both) == Values{2, 4});
  REQUIRE(values_of(*out[0]) == Values{1, 2});
  REQUIRE(out[2]->desc.data != both->desc.data);
}

TEST_CASE("a donated state that is read after its new value exists is not overwritten early") {
  FakeBackend fake;
  fake.in_place = true;
  const auto e = compile_text(R"(graph @g(%x: f32[2], %n: f32[2] state "n" -> 0 donated) -> (f32[2], f32[2]) {
    %n1 = add %n, %x
    %d = sub %n1, %n
    return %n1, %d
  })",
                              fake);
  TensorRef x = vector_of({1, 2}), n = vector_of({10, 20});
  const auto out = run(*e, {x.get(), n.get()});
  REQUIRE(values_of(*out[1]) == Values{1, 2});
  REQUIRE(values_of(*n) == Values{11, 22});
}

TEST_CASE("where an argument is given up, results without elements have memory as well") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[2] arg donated, %e: f32[2, 0]) -> (f32[2], f32[2, 0], f32[2]) {
    %a = neg %x
    %b = neg %e
    %c = add %a, %x
    return %a, %b, %c
  })",
                              fake);
  TensorRef x = vector_of({1, 2});
  const int64_t none[] = {2, 0};
  TensorRef nothing(tensor_create(TSR_F32, none, 0));
  const auto out = run(*e, {x.get(), nothing.get()});
  REQUIRE(values_of(*out[0]) == Values{-1, -2});
  REQUIRE(out[1]->desc.sizes[1] == 0);
  REQUIRE(values_of(*out[2]) == Values{0, 0});
}

TEST_CASE("refused composites are decomposed, refused primitives are an error that says who refused") {
  FakeBackend fake;
  const char* text = R"(graph @g(%x: f32[3]) -> (f32[3]) { %a = silu %x  return %a })";
  fake.decomposes = {"silu"};
  const std::string why = error_of([&] { compile_text(text, fake); });
  REQUIRE(contains(why, "TSR-R020 no backend takes"));
  REQUIRE(contains(why, "fake: not among the ops of the fake"));
  const auto e = compile_text(R"(graph @g(%x: f32[3]) -> (f32[3]) { %a = relu %x  return %a })", fake);
  TensorRef x = vector_of({-1, 0, 2});
  REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values{0, 0, 2});

  FakeBackend second;
  second.name = "second";
  fake.refuses = {"neg"};
  CompileOptions both = fake.options();
  both.backends.push_back(second.factory());
  const auto two =
      compile_graph(graph_of(R"(graph @g(%x: f32[3]) -> (f32[3]) { %a = neg %x  %b = add %a, %x  return %b })"), both);
  fake.launches.clear();
  REQUIRE(values_of(*run(*two, {x.get()})[0]) == Values{0, 0, 0});
  REQUIRE(second.ops() == std::vector<std::string>{"neg"});
  REQUIRE(fake.ops() == std::vector<std::string>{"add"});

  CompileOptions none;
  REQUIRE(contains(error_of([&] { compile_graph(graph_of(text), none); }), "no backend is configured"));
}

TEST_CASE("errors of backends name the node and leave nothing behind") {
  drop_arenas();  // those of other tests' executables
  const int64_t before = device(kCpu).in_use();
  FakeBackend fake;
  fake.fails_to_compile = {"mul"};
  const std::string compile = error_of([&] {
    compile_text(R"(graph @g(%x: f32[3]) -> (f32[3]) { %a = neg %x  %b = mul %a, %x loc("m.cpp":7)  return %b })", fake);
  });
  REQUIRE(contains(
      compile,
      "TSR-X001 backend 'fake' cannot compile %b = mul (m.cpp:7): plugin 'acme.fake' (Acme): the fake was told to fail"));
  REQUIRE(fake.compiled == fake.destroyed);
  {
    const auto e = compile_text(
        R"(graph @g(%x: f32[3]) -> (f32[3], f32[3]) { %a = neg %x  %b = div %a, %x loc("m.cpp":9)  return %a, %b })", fake);
    fake.fails = {"div"};
    TensorRef x = vector_of({1, 2, 3});
    REQUIRE(error_of([&] { run(*e, {x.get()}); }) == "TSR-R010 integer division by zero in %b = div (m.cpp:9)");
    fake.fails.clear();
    REQUIRE(values_of(*run(*e, {x.get()})[1]) == Values{-1, -1, -1});
  }
  drop_arenas();
  REQUIRE(device(kCpu).in_use() == before);
}

TEST_CASE("what nobody uses is not run") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[3]) -> (f32[3]) { %a = neg %x  %b = neg %a  %c = exp %b  return %a })", fake);
  REQUIRE(fake.compiled == 1);
}

TEST_CASE("where nothing is computed, nothing is waited for") {
  FakeBackend fake;
  fake.capabilities |= TSR_CAP_NO_COMPUTE;
  const auto e = compile_text(R"(graph @g(%x: f32[]) -> (f32[]) {
    %y = while_loop %x {carried = 1} : f32[]
      region(%a: f32[]) { %p = lt %a, %a  %q = lt %a, %a  return %q }
      region(%b: f32[]) { %c = neg %b  return %c }
    return %y
  })",
                              fake);
  TensorRef x = tensor_of({3}, {});
  REQUIRE(run(*e, {x.get()}).size() == 1);
}

TEST_CASE("one executable serves many threads") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[s0]) -> (f32[s0]) {
    %a = neg %x
    %b = add %a, %x
    %c = add %b, %x
    %d = add %c, %c
    return %d
  })",
                              fake);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 100; ++k) {
        const auto n = static_cast<size_t>(1 + (t * 7 + k) % 13);
        TensorRef x = vector_of(Values(n, t + 1));
        if (values_of(*run(*e, {x.get()})[0]) != Values(n, 2 * (t + 1))) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(wrong == 0);
}

TEST_CASE("sizes too large for memory are an error, not a crash") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[s0], %y: f32[s1]) -> (f32[s0, s1, s0, s1]) symbols { s0: 0..; s1: 0.. } {
    %a = reshape %x {shape = [s0, 1, 1, 1]}
    %b = reshape %y {shape = [s1, 1, 1]}
    %c = add %a, %b
    %d = reshape %x {shape = [s0, 1]}
    %e = add %c, %d
    %f = add %e, %y
    return %f
  })",
                              fake);
  TensorRef x = tensor_of(Values(100000, 1), {100000}), y = tensor_of(Values(100000, 1), {100000}), small = vector_of({1, 2});
  REQUIRE(contains(error_of([&] { run(*e, {x.get(), y.get()}); }), "TSR-R001"));
  REQUIRE(values_of(*run(*e, {small.get(), small.get()})[0]).size() == 16);
  CompileOptions limited = fake.options();
  limited.arena_max_bytes = 128;
  const auto f =
      compile_graph(graph_of(R"(graph @g(%x: f32[s0]) -> (f32[s0]) { %a = neg %x  %b = neg %a  return %b })"), limited);
  REQUIRE(contains(error_of([&] { run(*f, {y.get()}); }), "TSR-R025"));
  REQUIRE(values_of(*run(*f, {small.get()})[0]) == Values{1, 2});
}

TEST_CASE("describe names every step") {
  FakeBackend fake;
  CompileOptions options = fake.options();
  options.measure = true;
  const auto e = compile_graph(graph_of(R"(graph @g(%x: f32[2, 2]) -> (f32[4]) {
    %a = neg %x loc("m.cpp":3)
    %b = add %a, %x
    %r = reshape %b {shape = [4]}
    return %r
  })"),
                               options);
  TensorRef x = tensor_of({1, 2, 3, 4}, {2, 2});
  run(*e, {x.get()});
  const auto j = nlohmann::json::parse(e->describe_json());
  REQUIRE(j["graph"] == "g");
  REQUIRE(j["inputs"][0]["type"] == "f32[2, 2]");
  REQUIRE(j["steps"].size() == 3);
  REQUIRE(j["steps"][0]["kernel"] == "fake.neg");
  REQUIRE(j["steps"][0]["loc"] == "m.cpp:3");
  REQUIRE(j["steps"][0]["bytes"] == 16);
  REQUIRE(j["steps"][0]["measured_ms"].is_number());
  REQUIRE(j["steps"][2]["kind"] == "view");
  REQUIRE(j["memory"]["arena_bytes"] == 64);
  REQUIRE(j["memory"]["output_bytes"] == 16);
  const StepTable table(e->plan());
  REQUIRE(table.table.count >= 3);
  REQUIRE(table.table.steps[0].kernel->launch != nullptr);
}

TEST_CASE("a backend hears of all its kernels of a plan before it compiles the first") {
  FakeBackend fake;
  const char* text = R"(graph @g(%x: f32[4], %p: bool[]) -> (f32[4]) {
    %a = neg %x
    %b = add %a, %a
    %c = cond %p, %b : f32[4]
      region(%u: f32[4]) { %v = mul %u, %u  return %v }
      region(%w: f32[4]) { return %w }
    return %c
  })";
  const auto e = compile_graph(graph_of(text), fake.options());
  std::multiset<std::vector<std::string>> seen(fake.prepared.begin(), fake.prepared.end());
  REQUIRE(seen == std::multiset<std::vector<std::string>>{{"mul"}, {"neg", "add"}});
  fake.fails_to_prepare = true;
  REQUIRE_THROWS_WITH(
      compile_graph(graph_of("graph @h(%x: f32[4]) -> (f32[4]) { %a = neg %x  return %a }"), fake.options()),
      Catch::Contains("backend 'fake' cannot compile graph 'h': plugin 'acme.fake' (Acme): the fake was told to fail"));
}

TEST_CASE("memory that kernels keep is counted while they live, their packing is reported") {
  FakeBackend fake;
  fake.holds = 1000;
  const int64_t before = device(kCpu).in_use();
  {
    const auto e = compile_graph(graph_of(R"(graph @g(%x: f32[4]) -> (f32[4]) {
      %a = neg %x
      %b = add %a, %a
      return %b
    })"),
                                 fake.options());
    REQUIRE(device(kCpu).in_use() == before + 2000);
    const auto j = nlohmann::json::parse(e->describe_json());
    REQUIRE(j["memory"]["kernel_bytes"] == 2000);
    REQUIRE(j["compile"]["pack_ms"] == 500);
    REQUIRE(e->plan_text().find("kept by kernels: 2.0 KiB") != std::string::npos);
  }
  REQUIRE(device(kCpu).in_use() == before);
}

TEST_CASE("the layout of one size more than are kept takes the place of the one that was used least recently") {
  FakeBackend fake;
  fake.workspace = 64;
  const auto e = compile_text("graph @g(%x: f32[s0]) -> (f32[s0]) { %a = neg %x  return %a }", fake);
  const auto run_size = [&](size_t n) {
    TensorRef x = vector_of(std::vector<double>(n, 1));
    REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values(n, -1));
  };
  for (size_t n = 1; n <= 65; ++n) run_size(n);
  const int made = fake.asked_for_workspace;
  for (size_t n = 65; n >= 2; --n) run_size(n);
  CHECK(fake.asked_for_workspace == made);
  run_size(1);
  CHECK(fake.asked_for_workspace == made + 1);
  run_size(64);  // 65 was used before it, and has gone
  CHECK(fake.asked_for_workspace == made + 1);
}

TEST_CASE("a kernel says per operand which strides and alignment it takes: only the others are copied") {
  const char* text = R"(graph @g(%x: f32[2, 3], %y: f32[2, 3]) -> (f32[2, 3], f32[2, 3]) {
    %a = add %x, %y
    %b = sub %x, %y
    return %a, %b
  })";
  TensorRef wide = tensor_of({0, 1, 2, 3, 4, 5, 6}, {7});
  const int64_t sizes[] = {2, 3}, turned[] = {1, 2}, plain[] = {3, 1};
  TensorRef x(tensor_view(*wide, 0, sizes, turned));
  TensorRef y(tensor_view(*wide, 1, sizes, plain));  // dense, and not aligned
  for (const uint64_t strided : {0, 1, 3}) {
    for (const uint64_t unaligned : {0, 2, 3}) {
      FakeBackend fake;
      fake.capabilities = 0;
      fake.strided = strided;
      fake.unaligned = unaligned;
      const auto e = compile_text(text, fake);
      const auto out = run(*e, {x.get(), y.get()});
      REQUIRE(values_of(*out[0]) == Values{1, 4, 7, 5, 8, 11});
      REQUIRE(values_of(*out[1]) == Values{-1, 0, 1, -3, -2, -1});
      for (const FakeBackend::Launch& l : fake.launches) {
        CHECK(l.dense[0] == !(strided & 1));
        CHECK((reinterpret_cast<uintptr_t>(l.inputs[0].data) % 64 == 0));
        CHECK((reinterpret_cast<uintptr_t>(l.inputs[1].data) % 64 != 0) == ((unaligned & 2) != 0));
      }
    }
  }
}

TEST_CASE("an executor gets rows with slots, roots and waits, and the launches of each call") {
  struct Executor {
    struct Layout {
      Executor* owner;
      std::vector<tsr_step> rows;
      std::vector<std::vector<uint32_t>> waits;
      std::vector<tsr_root> roots;
    };
    std::vector<Layout*> layouts;
    int runs = 0, released = 0;
    bool takes = true;
  } mine;
  LoadedPlugin plugin;
  tsr_executor table{};
  table.struct_size = sizeof table;
  table.device = "cpu";
  table.prepare = [](void* self, const tsr_step_table* t, void** prepared, const char**) noexcept -> tsr_error* {
    auto& e = *static_cast<Executor*>(self);
    auto* l = new Executor::Layout{&e, {}, {}, {}};
    for (size_t i = 0; i < t->count; ++i) {
      l->rows.push_back(*TSR_AT(tsr_step, t->steps, t->stride, i));
      l->waits.emplace_back(l->rows[i].waits, l->rows[i].waits + l->rows[i].num_waits);
      for (uint32_t k = 0; k < l->rows[i].num_outputs; ++k)
        CHECK(TSR_AT(tsr_slot, t->slots, t->slot_stride, l->rows[i].outputs[k])->root < t->num_roots);
    }
    for (size_t i = 0; i < t->num_roots; ++i) l->roots.push_back(*TSR_AT(tsr_root, t->roots, t->root_stride, i));
    e.layouts.push_back(l);
    *prepared = l;
    return nullptr;
  };
  table.run = [](void*, void* prepared, const tsr_executor_call* call, int* taken) noexcept -> tsr_error* {
    auto& l = *static_cast<Executor::Layout*>(prepared);
    *taken = l.owner->takes;
    if (!l.owner->takes) return nullptr;
    ++l.owner->runs;
    for (size_t i = 0; i < l.rows.size(); ++i) {
      const tsr_kernel& k = *l.rows[i].kernel;
      if (tsr_error* error = k.launch(k.self, TSR_AT(tsr_launch, call->launches, call->launch_stride, i))) return error;
    }
    return nullptr;
  };
  table.release = [](void*, void* prepared) noexcept {
    auto* l = static_cast<Executor::Layout*>(prepared);
    ++l->owner->released;
    std::erase(l->owner->layouts, l);
    delete l;
  };
  const Factory factory{TSR_EXECUTOR, "mine", &table, &mine, &plugin};

  FakeBackend fake;
  CompileOptions options = fake.options();
  options.executor = &factory;
  const char* text = R"(graph @g(%x: f32[2, 2]) -> (f32[2, 2]) {
    %a = neg %x
    %t = transpose %a {perm = [1, 0]}
    %b = add %t, %x
    return %b
  })";
  {
    const auto e = compile_graph(graph_of(text), options);
    TensorRef x = tensor_of({1, 2, 3, 4}, {2, 2});
    for (int k = 0; k < 2; ++k) REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values{0, -1, 1, 0});
    REQUIRE(mine.runs == 2);
    REQUIRE(mine.layouts.size() == 1);
    REQUIRE(mine.layouts[0]->waits == std::vector<std::vector<uint32_t>>{{}, {0}});
    const auto& roots = mine.layouts[0]->roots;
    REQUIRE(roots.size() == 3);
    REQUIRE((roots[0].kind == TSR_ROOT_INPUT && roots[1].kind == TSR_ROOT_OUTPUT && roots[2].kind == TSR_ROOT_ARENA));
    REQUIRE(roots[2].bytes == 64);
    // A strided input has a layout of its own.
    const int64_t sizes[] = {2, 2}, strides[] = {1, 2};
    TensorRef flipped(tensor_view(*x, 0, sizes, strides));
    REQUIRE(values_of(*run(*e, {flipped.get()})[0]) == Values{0, 1, -1, 0});
    REQUIRE(mine.runs == 3);
    REQUIRE(mine.layouts.size() == 2);
    mine.takes = false;
    REQUIRE(values_of(*run(*e, {x.get()})[0]) == Values{0, -1, 1, 0});
    REQUIRE(mine.runs == 3);
    REQUIRE(fake.launches.size() == 8);
    mine.takes = true;
  }
  REQUIRE(mine.released == 2);
  const auto dynamic = compile_graph(graph_of("graph @g(%x: f32[s0]) -> (f32[s0]) { %a = neg %x  return %a }"), options);
  for (const size_t n : {2, 3, 2}) {
    TensorRef y = vector_of(std::vector<double>(n, 1));
    REQUIRE(values_of(*run(*dynamic, {y.get()})[0]) == Values(n, -1));
  }
  REQUIRE(mine.runs == 6);
  REQUIRE(mine.layouts.size() == 2);
  // With upper bounds one serves all sizes, and memory is placed as the largest needs it.
  table.capabilities = TSR_EXECUTOR_BOUNDS;
  const auto bounded = compile_graph(
      graph_of("graph @g(%x: f32[s0]) -> (f32[s0]) symbols { s0: 2..100 } { %a = neg %x  %b = add %a, %a  return %b }"),
      options);
  for (const size_t n : {2, 30, 100, 7}) {
    TensorRef y = vector_of(std::vector<double>(n, 1));
    REQUIRE(values_of(*run(*bounded, {y.get()})[0]) == Values(n, -2));
  }
  REQUIRE(mine.runs == 10);
  REQUIRE(mine.layouts.size() == 3);
  REQUIRE(mine.layouts[2]->roots[2].bytes == 448);
  REQUIRE(dynamic->plan_text().find("neg") != std::string::npos);
}

}  // namespace executable_test
