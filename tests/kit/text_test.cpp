// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "kit_support.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/kit/verify.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

const char* const kSoftmax = R"(kernel @softmax(%x: in f32[1024 * s0], %y: out f32[1024 * s0]) symbols(s0 >= 1) {
  parallel p0 < s0 {
    loop r0 < 1024 {
      %0 = load %x[1024 * p0 + r0] : f32
      %1 = reduce max %0 : f32
    }
    loop r0 < 1024 {
      %2 = load %x[1024 * p0 + r0] : f32
      %3 = sub %2, %1 : f32
      %4 = call exp_f32 %3 : f32
      %5 = reduce sum %4 : f32
    }
    loop r0 < 1024 {
      %6 = load %x[1024 * p0 + r0] : f32
      %7 = sub %6, %1 : f32
      %8 = call exp_f32 %7 : f32
      %9 = div %8, %5 : f32
      store %y[1024 * p0 + r0], %9
    }
  }
}
)";

std::string parse_error(const std::string& text) {
  try {
    kit::parse(text);
  } catch (const sdk::Error& e) {
    return e.code + " " + e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a kernel's text reads back as it was") {
  kit::Kernel k = kit::parse(kSoftmax);
  kit::verify(k);
  CHECK(kit::print(k) == kSoftmax);
}

TEST_CASE("every instruction reads back as it was") {
  const std::string text =
      R"(kernel @all(%x: in f32[8 * n], %i: in i64[n], %h: in bf16[8 * n], %y: out f32[8 * n], %z: inout i32[n]) symbols(n >= 0) {
  parallel p0 < n, p1 < 8 {
    %0 = const 0.5 : f32
    %1 = const -inf : f32
    %2 = const 0x7fc00001 : f32
    %3 = const true : bool
    %4 = const -3 : i64
    %5 = index 8 * p0 + floordiv(p1, 3) + mod(p1, 3) - 1 : i64
    %6 = load %i[p0] : i64
    %7 = lt %6, %4 : bool
    %8 = load %x[8 * p0 + %6] if %7 else %0 : f32
    check %7, 2
    %10 = load %h[8 * p0 + p1] : bf16
    %11 = convert exact %10 : f32
    %12 = fma %11, %8, %0 : f32
    %13 = select %7, %12, %1 : f32
    %14 = bitcast %13 : i32
    %15 = lookup normal1 %14 : f32
    store %z[p0], %14 if %7
    store %y[8 * p0 + p1], %15
  }
}
)";
  kit::Kernel k = kit::parse(text);
  // Numbers of values follow from the order of instructions.
  std::string again = kit::print(k);
  CHECK(again == text);
  CHECK(kit::print(kit::parse(again)) == again);
  kit::verify(k);
}

TEST_CASE("kernels from graphs read back as they were") {
  for (const char* graph :
       {"graph @g(%x: f32[s0, 12, 8], %w: f32[8]) symbols { s0: 1.. } {\n %a = layer_norm %x, %w\n return %a\n}\n",
        "graph @g(%x: f32[10, 20]) {\n %c = pad %x {low = [1, 2], high = [0, 3]}\n return %c\n}\n",
        "graph @g(%x: f16[9, 20], %i: i64[30]) {\n %c = gather %x, %i {axis = 0}\n return %c\n}\n"}) {
    const auto g = parse(graph);
    const kit::Lowered l = lower_graph(*g, "k");
    const std::string text = kit::print(l.kernel);
    CHECK(kit::print(kit::parse(text)) == kit::print(kit::parse(kit::print(kit::parse(text)))));
    kit::Kernel again = kit::parse(text);
    kit::verify(again);
  }
}

TEST_CASE("what is no kernel is said with its place") {
  CHECK(parse_error("kernel @k() {") == "TSR-K025 kernel text:1:14: expected 'parallel', found the end");
  CHECK(parse_error("kernel @k(%x: in f33[2]) {\n  parallel {\n  }\n}\n") ==
        "TSR-K025 kernel text:1:18: expected a type, found 'f33[2]) {'");
  CHECK(parse_error("kernel @k(%x: in f32[2]) {\n  parallel {\n    %0 = load %y[0] : f32\n  }\n}\n") ==
        "TSR-K025 kernel text:3:17: expected a buffer, not '%y', found '[0] : f32'");
  CHECK(parse_error("kernel @k(%x: in f32[2]) {\n  parallel {\n    %0 = load %x[q] : f32\n  }\n}\n") ==
        "TSR-K025 kernel text:3:19: expected an axis or a symbol, not 'q', found '] : f32'");
  CHECK(parse_error("kernel @k(%x: in f32[2]) {\n  parallel {\n    %0 = frob %1 : f32\n  }\n}\n") ==
        "TSR-K025 kernel text:3:14: expected an instruction, not 'frob', found ' %1 : f32'");
}

TEST_CASE("functions print") {
  CHECK(kit::print(kit::function(kit::function_named("rsqrt_f64"))) ==
        "func @rsqrt_f64(%0: f64) -> f64 {\n  %1 = sqrt %0 : f64\n  %2 = const 1.0 : f64\n  %3 = div %2, %1 : f64\n  return "
        "%3\n}\n");
  CHECK(kit::print(kit::function(kit::function_named("erf_f64"))) == "func @erf_f64(%0: f64) -> f64 = external erf\n");
}
