// SPDX-License-Identifier: Apache-2.0
// Control flow in executables: cond, while_loop, scan.
#include <catch2/catch.hpp>

#include "fake_backend.hpp"
#include "memory/parallel.hpp"

namespace control_test {

using namespace tessera::core;
using namespace tessera::test;

using Values = std::vector<double>;

TEST_CASE("cond runs one branch") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%p: bool[], %x: f32[s0]) -> (f32[s0]) {
    %r = cond %p, %x : f32[s0]
      region(%a: f32[s0]) { %b = neg %a  return %b }
      region(%c: f32[s0]) { return %c }
    %q = add %r, %r
    return %q
  })",
                              fake);
  TensorRef yes = tensor_of({1}, {}, TSR_BOOL), no = tensor_of({0}, {}, TSR_BOOL), x = vector_of({1, 2, 3});
  REQUIRE(values_of(*run(*e, {yes.get(), x.get()})[0]) == Values{-2, -4, -6});
  REQUIRE(values_of(*run(*e, {no.get(), x.get()})[0]) == Values{2, 4, 6});
  REQUIRE(values_of(*x) == Values{1, 2, 3});
}

TEST_CASE("while_loop carries values, with invariants and a count known to no one before") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%i: f32[], %x: f32[2], %limit: f32[]) -> (f32[], f32[2]) {
    %n, %y = while_loop %i, %x, %limit {carried = 2} : f32[], f32[2]
      region(%a: f32[], %b: f32[2], %l: f32[]) { %p = lt %a, %l  return %p }
      region(%a1: f32[], %b1: f32[2], %l1: f32[]) {
        %one = constant {value = dense<f32[]: 1.0>}
        %a2 = add %a1, %one
        %b2 = add %b1, %b1
        return %a2, %b2
      }
    return %n, %y
  })",
                              fake);
  TensorRef zero = tensor_of({0}, {}), x = vector_of({1, 3}), five = tensor_of({5}, {}), none = tensor_of({-1}, {});
  auto out = run(*e, {zero.get(), x.get(), five.get()});
  REQUIRE(values_of(*out[0]) == Values{5});
  REQUIRE(values_of(*out[1]) == Values{32, 96});
  out = run(*e, {zero.get(), x.get(), none.get()});
  REQUIRE(values_of(*out[0]) == Values{0});
  REQUIRE(values_of(*out[1]) == Values{1, 3});
  REQUIRE(out[1]->desc.data != x->desc.data);
}

TEST_CASE("scan walks both ways and stacks what it makes") {
  for (const bool reverse : {false, true}) {
    FakeBackend fake;
    const auto e = compile_text(
        std::string(R"(graph @g(%c: f32[2], %xs: f32[s0, 2], %k: f32[]) -> (f32[2], f32[s0, 2]) symbols { s0: 0.. } {
      %last, %ys = scan %c, %xs, %k {carried = 1, scanned = 1, length = s0, reverse = )") +
            (reverse ? "true" : "false") + R"(} : f32[2], f32[s0, 2]
        region(%a: f32[2], %x: f32[2], %f: f32[]) {
          %s = add %a, %x
          %m = mul %s, %f
          return %s, %m
        }
      return %last, %ys
    })",
        fake);
    TensorRef c = vector_of({0, 100}), xs = tensor_of({1, 2, 3, 4, 5, 6}, {3, 2}), k = tensor_of({10}, {}),
              empty = tensor_of({}, {0, 2});
    auto out = run(*e, {c.get(), xs.get(), k.get()});
    REQUIRE(values_of(*out[0]) == Values{9, 112});
    REQUIRE(values_of(*out[1]) == (reverse ? Values{90, 1120, 80, 1100, 50, 1060} : Values{10, 1020, 40, 1060, 90, 1120}));
    out = run(*e, {c.get(), empty.get(), k.get()});
    REQUIRE(values_of(*out[0]) == Values{0, 100});
    REQUIRE(sizes_of(*out[1]) == std::vector<int64_t>{0, 2});
  }
}

TEST_CASE("a scan that carries nothing computes every turn, on any number of threads") {
  FakeBackend fake;
  const auto e =
      compile_text(R"(graph @g(%xs: f32[s0, 16], %k: f32[16]) -> (f32[s0, 16], f32[s0, 16], f32[s0]) symbols { s0: 0.. } {
      %a, %b, %c = scan %xs, %k {carried = 0, scanned = 1, length = s0} : f32[s0, 16], f32[s0, 16], f32[s0]
        region(%x: f32[16], %f: f32[16]) {
          %m = mul %x, %f
          %s = reduce_sum %m {axes = [0]}
          return %m, %x, %s
        }
      return %a, %b, %c
    })",
                   fake);
  const auto aligned =
      compile_text(R"(graph @g(%xs: f32[s0, 16], %k: f32[16]) -> (f32[s0, 16], f32[s0, 16]) symbols { s0: 0.. } {
      %a, %b = scan %xs, %k {carried = 0, scanned = 1, length = s0} : f32[s0, 16], f32[s0, 16]
        region(%x: f32[16], %f: f32[16]) {
          %m = mul %x, %f
          return %m, %x
        }
      return %a, %b
    })",
                   fake);
  for (const int64_t length : {0, 1, 2, 7}) {
    Values values, doubled, sums;
    for (int64_t i = 0; i < length * 16; ++i) {
      values.push_back(static_cast<float>(i));
      doubled.push_back(static_cast<float>(2 * i));
      if (i % 16 == 15) sums.push_back(static_cast<float>(2 * (16 * (i - 15) + 120)));
    }
    TensorRef xs = tensor_of(values, {length, 16}), k = tensor_of(Values(16, 2), {16});
    for (const int threads : {1, 2, 3}) {
      const ThreadLimit limit(threads);
      const auto out = run(*e, {xs.get(), k.get()}), same = run(*aligned, {xs.get(), k.get()});
      REQUIRE(values_of(*out[0]) == doubled);
      REQUIRE(values_of(*out[1]) == values);
      REQUIRE(values_of(*out[2]) == sums);
      REQUIRE(sizes_of(*same[0]) == std::vector<int64_t>{length, 16});
      REQUIRE(values_of(*same[0]) == doubled);
      REQUIRE(values_of(*same[1]) == values);
      REQUIRE((length == 0 || same[1]->desc.data != xs->desc.data));
    }
  }
}

TEST_CASE("scan takes sizes that only the data knows from the first step, and holds the others to them") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%xs: f32[s0, 3]) -> (i64[s0, u0, 1]) symbols { s0: 0..; u0: 0.. unbacked } {
      %ys = scan %xs {carried = 0, scanned = 1, length = s0} : i64[s0, u0, 1]
        region(%x: f32[3]) {
          %n = nonzero %x : i64[u0, 1]
          return %n
        }
      return %ys
    })",
                              fake);
  TensorRef xs = tensor_of({0, 5, 6, 7, 0, 8}, {2, 3}), uneven = tensor_of({0, 5, 6, 7, 0, 0}, {2, 3}),
            none = tensor_of({}, {0, 3});
  const auto out = run(*e, {xs.get()});
  REQUIRE(sizes_of(*out[0]) == std::vector<int64_t>{2, 2, 1});
  REQUIRE(values_of(*out[0]) == Values{1, 2, 0, 2});
  REQUIRE(sizes_of(*run(*e, {none.get()})[0]) == std::vector<int64_t>{0, 0, 1});
  REQUIRE_THAT(error_of([&] { run(*e, {uneven.get()}); }),
               Catch::Contains("TSR-R026 scan: step 1 gives i64[1, 1] for result 0, the first step i64[2, 1]"));
}

TEST_CASE("branches may give results of different sizes") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%p: bool[], %x: f32[s0], %y: f32[3]) -> (f32[u0], f32[u0])
      symbols { s0: 0..; u0: 0.. unbacked } {
    %r = cond %p, %x, %y : f32[u0]
      region(%a: f32[s0], %b: f32[3]) { return %a }
      region(%c: f32[s0], %d: f32[3]) { %n = neg %d  return %n }
    %q = add %r, %r
    return %r, %q
  })",
                              fake);
  TensorRef yes = tensor_of({1}, {}, TSR_BOOL), no = tensor_of({0}, {}, TSR_BOOL), x = vector_of({1, 2}),
            y = vector_of({3, 4, 5}), none = tensor_of({}, {0});
  REQUIRE(values_of(*run(*e, {yes.get(), x.get(), y.get()})[1]) == Values{2, 4});
  REQUIRE(values_of(*run(*e, {no.get(), x.get(), y.get()})[1]) == Values{-6, -8, -10});
  REQUIRE(sizes_of(*run(*e, {yes.get(), none.get(), y.get()})[0]) == std::vector<int64_t>{0});
  // Inferred, the size is a symbol of its own; a written one must be one, too.
  const std::string text =
      "graph @g(%p: bool[], %x: f32[2], %y: f32[3]) -> (f32[TYPE]) { %r = cond %p, %x, %y : f32[TYPE]\n"
      "region(%a: f32[2], %b: f32[3]) { return %a } region(%c: f32[2], %d: f32[3]) { return %d } return %r }";
  const auto with = [&](const std::string& size) {
    std::string s = text;
    for (size_t at; (at = s.find("TYPE")) != s.npos;) s.replace(at, 4, size);
    return error_of([&] { (void)graph_of(s); });
  };
  REQUIRE_THAT(with("2"), Catch::Contains("TSR-I039") && Catch::Contains("f32[2], expected f32[u0]"));
  REQUIRE_THAT(with("s0"), Catch::Contains("TSR-I039"));
}

TEST_CASE("while_loop carries values whose sizes change, and stacks a slice per turn") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%i: f32[], %x: f32[2], %limit: f32[]) -> (f32[], f32[u2], f32[u3], f32[u3, 2])
      symbols { u0: 0.. unbacked; u1: 0.. unbacked; u2: 0.. unbacked; u3: 0.. unbacked } {
    %n, %y, %s, %m = while_loop %i, %x, %limit {carried = 2} : f32[], f32[u2], f32[u3], f32[u3, 2]
      region(%a: f32[], %b: f32[u0], %l: f32[]) { %p = lt %a, %l  return %p }
      region(%a1: f32[], %b1: f32[u1], %l1: f32[]) {
        %one = constant {value = dense<f32[]: 1.0>}
        %a2 = add %a1, %one
        %w = concat %b1, %b1 {axis = 0}
        %k = mul %l1, %a2
        %f = full %k {shape = [2]}
        return %a2, %w, %a2, %f
      }
    return %n, %y, %s, %m
  })",
                              fake);
  TensorRef zero = tensor_of({0}, {}), x = vector_of({1, 3}), three = tensor_of({3}, {}), none = tensor_of({-1}, {});
  auto out = run(*e, {zero.get(), x.get(), three.get()});
  REQUIRE(values_of(*out[0]) == Values{3});
  REQUIRE(values_of(*out[1]) == Values{1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3});
  REQUIRE(values_of(*out[2]) == Values{1, 2, 3});
  REQUIRE(values_of(*out[3]) == Values{3, 3, 6, 6, 9, 9});
  out = run(*e, {zero.get(), x.get(), none.get()});
  REQUIRE(values_of(*out[1]) == Values{1, 3});
  REQUIRE(sizes_of(*out[2]) == std::vector<int64_t>{0});
  REQUIRE(sizes_of(*out[3]) == std::vector<int64_t>{0, 2});
}

TEST_CASE("a carried value whose size changes needs a size that may") {
  FakeBackend fake;
  const std::string message = error_of([&] {
    (void)graph_of(R"(graph @g(%x: f32[2], %xs: f32[3]) -> (f32[2]) {
      %y = scan %x, %xs {carried = 1, scanned = 1, length = 3}
        region(%a: f32[2], %b: f32[]) { %w = concat %a, %a {axis = 0}  return %w }
      return %y
    })");
  });
  REQUIRE_THAT(message, Catch::Contains("TSR-I207") && Catch::Contains("found f32[4], expected f32[2], or an unbacked symbol"));
  const auto e = compile_text(R"(graph @g(%x: f32[2], %xs: f32[3]) -> (f32[u1]) symbols { u0: 0.. unbacked; u1: 0.. unbacked } {
      %y = scan %x, %xs {carried = 1, scanned = 1, length = 3} : f32[u1]
        region(%a: f32[u0], %b: f32[]) { %c = reshape %b {shape = [1]}  %w = concat %a, %c {axis = 0}  return %w }
      return %y
    })",
                              fake);
  TensorRef x = vector_of({1, 3}), xs = vector_of({5, 6, 7});
  REQUIRE(values_of(*run(*e, {x.get(), xs.get()})[0]) == Values{1, 3, 5, 6, 7});
}

TEST_CASE("what a region assumes about sizes of its own is checked where it learns them") {
  FakeBackend fake;
  const auto e =
      compile_text(R"(graph @g(%p: bool[], %x: f32[3]) -> (f32[3]) symbols { u0: 0.. unbacked } assume { u0 * 2 == 6 } {
      %r = cond %p, %x : f32[3]
        region(%a: f32[3]) {
          %n = nonzero %a : i64[u0, 1]
          %f = cast %n {dtype = f32} : f32[u0, 1]
          %t = reshape %f {shape = [3]} : f32[3]
          %s = add %t, %a
          return %s
        }
        region(%b: f32[3]) {
          return %b
        }
      return %r
    })",
                   fake);
  TensorRef yes = tensor_of({1}, {}, TSR_BOOL), no = tensor_of({0}, {}, TSR_BOOL), full = vector_of({1, 1, 1}),
            two = vector_of({1, 0, 1});
  REQUIRE(values_of(*run(*e, {yes.get(), full.get()})[0]) == Values{1, 2, 3});
  REQUIRE(values_of(*run(*e, {no.get(), two.get()})[0]) == Values{1, 0, 1});
  REQUIRE_THAT(error_of([&] {
                 run(*e, {yes.get(), two.get()});
               }),
               Catch::Contains("TSR-T026 the sizes of this call break an assumption of graph 'g': u0 * 2 == 6, found 4 and 6"));
}

}  // namespace control_test
