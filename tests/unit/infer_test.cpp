// SPDX-License-Identifier: Apache-2.0
// Inference from records: dtypes, shape patterns, symbolic sizes, and what it refuses.
#include "ir/infer.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace infer_test {

using namespace tessera::core;
using tessera::test::test_ops;

namespace {

// The type of the last node's results in a graph with these inputs, or the code of the error.
std::string type_of(const std::string& inputs, const std::string& node, const std::string& header = "") {
  try {
    const auto g =
        parse_graph(test_ops(), "graph @g(" + inputs + ") " + header + " {\n%r = " + node + "\nreturn %r }", "t.tsr");
    return print_type(*g, *g->value(g->find_value("r")).type);
  } catch (const Error& e) {
    return e.code();
  }
}

std::string message_of(const std::string& inputs, const std::string& node) {
  try {
    parse_graph(test_ops(), "graph @g(" + inputs + ") {\n%r = " + node + "\nreturn %r }", "t.tsr");
    return "";
  } catch (const Error& e) {
    return e.message();
  }
}

}  // namespace

TEST_CASE("dtype variables bind, and derived dtypes follow") {
  CHECK(type_of("%x: c64[2]", "abs %x") == "f32[2]");
  CHECK(type_of("%x: c128[2]", "abs %x") == "f64[2]");
  CHECK(type_of("%x: i8[2]", "abs %x") == "i8[2]");
  CHECK(type_of("%x: f32[2], %y: f32[]", "complex %x, %y") == "c64[2]");
  CHECK(type_of("%x: f16[2], %y: f16[]", "complex %x, %y") == "TSR-I031");
  CHECK(type_of("%x: bool[2]", "neg %x") == "TSR-I031");
  CHECK(type_of("%x: f32[2], %y: f64[2]", "add %x, %y") == "TSR-I031");
  CHECK(type_of("%x: f32[2]", "cast %x {dtype = u2}") == "u2[2]");
  CHECK(type_of("%q: f32[2], %x: c64[2]", "polar %q, %x") == "c64[2]");  // real(T) before T is known
  CHECK(type_of("%q: f64[2], %x: c64[2]", "polar %q, %x") == "TSR-I031");
  CHECK(message_of("%x: f32[2], %y: f64[2]", "add %x, %y")
            .find("add: operand 'b' has the type f64[2], expected the dtype f32, as operand 'a' has") != std::string::npos);
}

TEST_CASE("broadcasting follows NumPy") {
  CHECK(type_of("%x: f32[2, 3], %y: f32[3]", "add %x, %y") == "f32[2, 3]");
  CHECK(type_of("%x: f32[3], %y: f32[2, 1]", "add %x, %y") == "f32[2, 3]");
  CHECK(type_of("%x: f32[], %y: f32[2]", "add %x, %y") == "f32[2]");
  CHECK(type_of("%x: f32[0], %y: f32[1]", "add %x, %y") == "f32[0]");
  CHECK(type_of("%x: f32[0], %y: f32[2]", "add %x, %y") == "TSR-I033");
  CHECK(type_of("%x: f32[2, 3], %y: f32[2]", "add %x, %y") == "TSR-I033");
  CHECK(type_of("%p: bool[4, 1, 1], %x: f32[3], %y: f32[2, 1]", "select %p, %x, %y") == "f32[4, 2, 3]");
  CHECK(type_of("%x: f32[2], %y: f32[5, 1]", "clamp %x, _, %y") == "f32[5, 2]");
  CHECK(message_of("%x: f32[2, 3], %y: f32[4]", "add %x, %y")
            .find("add: the sizes 3 and 4 in dimension 1 of the result do not broadcast: operand 'a' has the type "
                  "f32[2, 3], operand 'b' has the type "
                  "f32[4]") != std::string::npos);
}

TEST_CASE("symbolic sizes broadcast by proof, else by assumption") {
  CHECK(type_of("%x: f32[s0], %y: f32[1]", "add %x, %y") == "f32[s0]");
  CHECK(type_of("%x: f32[s0], %y: f32[s0]", "add %x, %y") == "f32[s0]");
  CHECK(type_of("%x: f32[s0], %y: f32[4]", "add %x, %y") == "f32[4]");  // under s0 == 4
  CHECK(type_of("%x: f32[4], %y: f32[s0]", "add %x, %y") == "f32[4]");
  CHECK(type_of("%x: f32[s0], %y: f32[s1]", "add %x, %y", "symbols { s0: 1..1; s1: 2..9 }") == "f32[s1]");
  CHECK(type_of("%x: f32[s0], %y: f32[s1]", "add %x, %y", "symbols { s0: 2..3; s1: 5..9 }") == "TSR-I033");
  CHECK(type_of("%x: f32[s0 + 1], %y: f32[s0]", "add %x, %y") == "TSR-I033");
  CHECK(type_of("%x: f32[s0], %y: f32[s1]", "add %x, %y", "assume { s0 == s1 }") == "f32[s0]");
}

TEST_CASE("named sizes and runs unify") {
  CHECK(type_of("%x: f32[7, 2, 4], %w: f32[5, 4]", "linear %x, %w") == "f32[7, 2, 5]");
  CHECK(type_of("%x: f32[4], %w: f32[5, 4]", "linear %x, %w") == "f32[5]");
  CHECK(type_of("%x: f32[s0, k], %w: f32[n, k], %b: f32[n]", "linear %x, %w, %b") == "f32[s0, n]");
  CHECK(type_of("%x: f32[2, 4], %w: f32[5, 3]", "linear %x, %w") == "TSR-I032");
  CHECK(type_of("%x: f32[2, 4], %w: f32[5, 4], %b: f32[4]", "linear %x, %w, %b") == "TSR-I032");
  CHECK(type_of("%x: f32[], %w: f32[5, 4]", "linear %x, %w") == "TSR-I032");
  CHECK(type_of("%w: f32[9, 4], %i: i32[2, 3]", "embedding %w, %i") == "f32[2, 3, 4]");
  CHECK(type_of("%w: f32[9, 4], %i: i8[2, 3]", "embedding %w, %i") == "TSR-I031");
  CHECK(type_of("%x: f32[2, 3], %y: f32[2, 3]", "stack %x, %y {axis = 1}") == "f32[2, 2, 3]");
  CHECK(type_of("%x: f32[2, 3], %y: f32[3, 2]", "stack %x, %y") == "TSR-I032");
  CHECK(message_of("%x: f32[2, 4], %w: f32[5, 3]", "linear %x, %w")
            .find("linear: operand 'weight' has the type f32[5, 3]: found the size 3 in dimension 1, expected 4, K of "
                  "operand 'x'") != std::string::npos);
}

TEST_CASE("reduce, permute and concat compute shapes") {
  CHECK(type_of("%x: f32[2, s0, 4]", "reduce_sum %x {axes = [0, -1]}") == "f32[s0]");
  CHECK(type_of("%x: f32[2, s0, 4]", "reduce_sum %x {axes = [0, -1], keepdims = true}") == "f32[1, s0, 1]");
  CHECK(type_of("%x: f32[2, 3]", "reduce_sum %x {axes = []}") == "f32[2, 3]");
  CHECK(type_of("%x: f32[2, 3]", "reduce_sum %x {axes = [2]}") == "TSR-I034");
  CHECK(type_of("%x: f32[2, 3]", "reduce_sum %x {axes = [1, -1]}") == "TSR-I034");
  CHECK(type_of("%x: f32[]", "reduce_sum %x {axes = [0]}") == "TSR-I034");
  CHECK(type_of("%x: f32[2, s0, 4]", "transpose %x {perm = [2, 0, -2]}") == "f32[4, 2, s0]");
  CHECK(type_of("%x: f32[2, 3]", "transpose %x {perm = [0]}") == "TSR-I034");
  CHECK(type_of("%x: f32[2, 3]", "transpose %x {perm = [0, 0]}") == "TSR-I034");
  CHECK(type_of("%x: f32[2, s0], %y: f32[2, 5]", "concat2 %x, %y {axis = -1}") == "f32[2, s0 + 5]");
  CHECK(type_of("%x: f32[2, 3], %y: f32[3, 3]", "concat2 %x, %y {axis = 1}") == "TSR-I033");
  CHECK(type_of("%x: f32[2, 3], %y: f32[2]", "concat2 %x, %y {axis = 1}") == "TSR-I032");
  CHECK(type_of("%x: f32[9223372036854775807], %y: f32[1]", "concat2 %x, %y {axis = 0}") == "TSR-I008");
}

TEST_CASE("attributes and callbacks decide what patterns cannot") {
  CHECK(type_of("%x: f32[]", "full %x {shape = [s0, 4]}") == "f32[s0, 4]");
  CHECK(type_of("%x: f32[]", "full %x {shape = [-1]}") == "TSR-I034");
  CHECK(type_of("%x: f32[]", "full %x {shape = [4611686018427387904, 4]}") == "TSR-I034");
  CHECK(type_of("%x: f32[3]", "full %x {shape = [4]}") == "TSR-I032");
  CHECK(type_of("%s: u64[2]", "iota {shape = [3], axis = 0, dtype = i8}") == "i8[3]");
  CHECK(type_of("%x: f32[3, 2]", "nonzero %x") == "i64[u0, 2]");
  CHECK(type_of("%s: u64[3]", "constant {value = dense<u8[2]: [1, 2]>}") == "u8[2]");
  CHECK(type_of("%x: f32[4]", "split %x {sizes = [4], axis = 0}") == "f32[4]");
  CHECK(type_of("%x: f32[4]", "split %x {sizes = [3], axis = 0}") == "TSR-I090");
}

TEST_CASE("operands are counted, and only optional ones may be left out") {
  CHECK(type_of("%x: f32[2]", "add %x") == "TSR-I030");
  CHECK(type_of("%x: f32[2]", "add %x, %x, %x") == "TSR-I030");
  CHECK(type_of("%x: f32[2]", "add %x, _") == "TSR-I030");
  CHECK(type_of("%x: f32[2]", "clamp %x") == "f32[2]");
  CHECK(type_of("%x: f32[2]", "clamp _, %x, %x") == "TSR-I030");
  CHECK(type_of("%x: f32[2]", "stack") == "TSR-I030");
  CHECK(type_of("%x: f32[2]", "neg %x region() { return }") == "TSR-I037");
}

TEST_CASE("the result is where the operands are") {
  CHECK(type_of("%x: f32[2]@null:0, %y: f32[]", "add %x, %y") == "f32[2]@null:0");
  CHECK(type_of("%x: f32[2]@null:0, %y: f32[2]@null:1", "add %x, %y") == "TSR-I038");
}

TEST_CASE("strict inference assumes nothing") {
  Graph g(test_ops(), "g");
  const tsr_dim s0 = g.sizes().symbol("s0", 0, INT64_MAX, false), s1 = g.sizes().symbol("s1", 0, INT64_MAX, false);
  const tsr_id x = g.create_input("x", g.make_type(TSR_F32, std::span(&s0, 1))),
               y = g.create_input("y", g.make_type(TSR_F32, std::span(&s1, 1)));
  const tsr_id operands[] = {x, y};
  const OpRecord& add = test_ops().get("add");
  const CallView view(g, add, operands, {}, {});
  CHECK_THROWS_WITH(infer(g, add, view.call(), Prove::kStrict),
                    Catch::Contains("TSR-I033") && Catch::Contains("not known to be equal"));
  CHECK(g.sizes().assumptions().empty());
  CHECK(infer(g, add, view.call(), Prove::kAssume).size() == 1);
  CHECK(g.sizes().assumptions().size() == 1);
  CHECK(infer(g, add, view.call(), Prove::kStrict).size() == 1);  // now it is known
}

TEST_CASE("callbacks that break their contract are blamed") {
  static int mode;
  tsr_op_impl impl{};
  impl.op = "f";
  impl.infer = [](void*, const tsr_call* c, tsr_type* out, uint32_t capacity, uint32_t* n) -> tsr_error* {
    *n = mode == 0 ? capacity + 1 : mode == 1 ? 0 : 2;
    out[0] = out[1] = *c->operands[0];
    if (mode == 2) out[0].dtype = 77;
    if (mode == 3) out[1].dtype = TSR_F64;
    if (mode == 4) out[1].sizes = nullptr;
    return nullptr;
  };
  const tsr_record_file file{"r.tops", "op f(%x: T[?]) -> (%a: T[?], %b: T[?]) where T: any"};
  tsr_opset set{};
  set.struct_size = sizeof set;
  set.prefix = "";
  set.files = &file;
  set.num_files = 1;
  set.file_stride = sizeof file;
  set.impls = &impl;
  set.num_impls = 1;
  set.impl_stride = sizeof impl;
  OpRegistry r;
  r.add(set, "acme.opset");
  for (mode = 0; mode <= 5; ++mode) {
    INFO(mode);
    const auto parse = [&] { parse_graph(r, "graph @g(%x: f32[4]) { %y, %z = f %x return %y }", "t"); };
    if (mode == 5)
      CHECK_NOTHROW(parse());
    else
      CHECK_THROWS_WITH(parse(), Catch::Contains("TSR-I036") && Catch::Contains("'acme.opset'"));
  }
}

}  // namespace infer_test
