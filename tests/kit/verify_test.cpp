// SPDX-License-Identifier: Apache-2.0
// One kernel per check of the verifier that breaks it.
#include <catch2/catch.hpp>

#include "kit_support.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/kit/verify.hpp"

using namespace tessera;

namespace {

std::string verdict(kit::Kernel k) {
  try {
    kit::verify(k);
  } catch (const sdk::Error& e) {
    return std::string(e.what());
  }
  return "";
}
kit::Kernel body(const std::string& lines) {
  return kit::parse("kernel @k(%x: in f32[16], %i: in i64[16], %y: out f32[16]) {\n parallel p0 < 4 {\n" + lines + "\n }\n}\n");
}

}  // namespace

TEST_CASE("sound kernels pass") { CHECK(verdict(body("%0 = load %x[p0] : f32\n store %y[p0], %0")) == ""); }

TEST_CASE("V1: instructions stand once") {
  kit::Kernel k = body("%0 = load %x[p0] : f32\n store %y[p0], %0");
  k.body.push_back(k.body[0]);
  CHECK(verdict(k) == "kernel @k, %0 = load: an instruction stands once in a body (V1)");
  k = body("%0 = load %x[p0] : f32\n store %y[p0], %0");
  k.body.pop_back();
  CHECK(verdict(k) == "kernel @k, %1 = store: every instruction stands in a body (V1)");
}
TEST_CASE("V2: values of a loop stay in it") {
  CHECK(verdict(body("loop r0 < 4 {\n %0 = load %x[4 * p0 + r0] : f32\n %1 = reduce sum %0 : f32\n }\n store %y[p0], %0")) ==
        "kernel @k, %2 = store: operands are defined before and in scope (V2)");
  CHECK(
      verdict(body("loop r0 < 4 {\n %0 = load %x[4 * p0 + r0] : f32\n %1 = reduce sum %0 : f32\n %2 = add %1, %0 : f32\n }")) ==
      "kernel @k, %2 = add: operands are defined before and in scope (V2)");
}
TEST_CASE("V3: numbers of operands") {
  CHECK(verdict(body("%0 = load %x[p0] : f32\n %1 = add %0 : f32")) == "kernel @k, %1 = add: 2 operands (V3)");
}
TEST_CASE("V4: types") {
  CHECK(verdict(body("%0 = load %x[p0] : f32\n %1 = const 1.0 : f64\n %2 = add %0, %1 : f32")) ==
        "kernel @k, %2 = add: arithmetic on one compute type (V4)");
  CHECK(verdict(body("%0 = const 1.0 : bf16\n %1 = add %0, %0 : bf16")) ==
        "kernel @k, %1 = add: arithmetic on one compute type (V4)");
  CHECK(verdict(body("%0 = const 1.0 : f32\n %1 = bitcast %0 : i64")) == "kernel @k, %1 = bitcast: types of equal width (V4)");
  CHECK(verdict(body("%0 = const 1.0 : f32\n %1 = select %0, %0, %0 : f32")) ==
        "kernel @k, %1 = select: a bool and two values of the result's type (V4)");
  CHECK(verdict(body("%0 = load %i[p0] : i64\n %1 = lookup normal0 %0 : f32")) ==
        "kernel @k, %1 = lookup: an i32, and f32 as the result (V4)");
  CHECK(verdict(body("loop r0 < 4 {\n %0 = load %i[r0] : i64\n %1 = reduce max_number %0 : i64\n }")) ==
        "kernel @k, %1 = reduce: f32 or f64 (V4)");
}
TEST_CASE("V5: indices") {
  CHECK(verdict(body("loop r0 < 4 {\n %0 = load %x[r0] : f32\n %1 = reduce sum %0 : f32\n }\n store %y[r0], %1")) ==
        "kernel @k, %2 = store: an index mentions axes of loops around it (V5)");
  CHECK(verdict(body("%0 = load %x[p0] : f32\n %1 = load %x[%0] : f32")) ==
        "kernel @k, %1 = load: an index mentions integers of 32 or 64 bits (V5)");
}
TEST_CASE("V6: buffers") {
  CHECK(verdict(body("%0 = load %y[p0] : f32")) ==
        "kernel @k, %0 = load: an input is loaded, or what an earlier loop stored (V6)");
  CHECK(verdict(body("%0 = load %i[p0] : f32")) == "kernel @k, %0 = load: the value has the type of the buffer (V6)");
  CHECK(verdict(body("%0 = load %i[p0] : i64\n store %y[p0], %0")) ==
        "kernel @k, %1 = store: the value has the type of the buffer (V6)");
}
TEST_CASE("V7: reductions") {
  CHECK(verdict(body("%0 = load %x[p0] : f32\n %1 = reduce sum %0 : f32")) ==
        "kernel @k, %1 = reduce: reduce stands in a loop (V7)");
  CHECK(verdict(body("loop r0 < 4 {\n %0 = load %x[r0] : f32\n %1 = reduce sum %0 : f32\n }\n %2 = second %1 : f32")) ==
        "kernel @k, %2 = second: the reduction has two results (V7)");
}
TEST_CASE("V8: functions") {
  CHECK(verdict(body("%0 = load %i[p0] : i64\n %1 = call exp_f32 %0 : f32")) ==
        "kernel @k, %1 = call: an operand of type f32 (V8)");
}
TEST_CASE("V9: axes") {
  CHECK(verdict(body("loop p0 < 4 {\n %0 = const 1.0 : f32\n }")) == "kernel @k: no loop is inside another over 'p0' (V9)");
}
TEST_CASE("V10: what is certainly outside") {
  CHECK(verdict(body("%0 = load %x[p0 + 16] : f32")) == "kernel @k, %0 = load: an index lies inside its buffer (V10)");
  CHECK(verdict(body("%0 = load %x[p0 - 4] : f32")) == "kernel @k, %0 = load: an index lies inside its buffer (V10)");
}
