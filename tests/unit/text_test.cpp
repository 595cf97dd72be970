// SPDX-License-Identifier: Apache-2.0
// The text form: what it reads, what it prints, and the exact text of its complaints (tests/golden/ir).
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>

#include "golden.hpp"
#include "ir/equality.hpp"
#include "ir/graph.hpp"
#include "ir/infer.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "test_opset.hpp"

namespace text_test {

using namespace tessera;
using namespace tessera::core;
using tessera::test::test_ops;

namespace {

std::unique_ptr<Graph> parse(const std::string& text) { return parse_graph(test_ops(), text, "t.tsr"); }

std::string code_of(const std::string& text, const ReadLimits& limits = {}) {
  try {
    parse_graph(test_ops(), text, "t.tsr", limits);
    return "";
  } catch (const Error& e) {
    return e.code();
  }
}

// The text of a graph whose body is `body`.
std::string body(const std::string& text) { return "graph @g(%x: f32[2, 3], %n: i64[]) {\n" + text + "\n}\n"; }

std::string constant(const std::string& value) { return body("  %c = constant {value = " + value + "}\n  return %c"); }

const tsr_tensor& tensor_of(const Graph& g) { return *g.attr(g.region(0).first, "value")->tensor; }

}  // namespace

TEST_CASE("large parts of sizes are stated once, under names that no symbol has") {
  Graph g(test_ops(), "g");
  Sizes& s = g.sizes();
  tsr_dim x = s.symbol("n", 0, INT64_MAX, false);
  const tsr_dim e1 = s.symbol("e1", 0, 9, false);
  for (int64_t i = 0; i < 60; ++i)
    x = s.make(TSR_DIM_MOD, s.add(s.make(TSR_DIM_MOD, s.mul(x, x), s.add(e1, i + 1)), x), 1000 + i);
  const std::vector<tsr_dim> sizes = {x, s.mul(x, 2)};
  tsr_type t{};
  t.dtype = TSR_F32;
  t.rank = 2;
  t.sizes = sizes.data();
  const tsr_id input = g.create_input("x", t);
  g.set_outputs(0, std::vector<tsr_id>{input});
  const std::string text = print_graph(g);
  CHECK(text.size() < 20000);
  CHECK(text.find("\n    e0 = ") != text.npos);
  CHECK(text.find("\n    e1 = ") == text.npos);
  CHECK(text.find("\n    e2 = ") != text.npos);
  const auto back = parse_graph(test_ops(), text, "t.tsr");
  CHECK(difference(*back, g).empty());
  CHECK(print_graph(*back) == text);
  const std::vector<int64_t> values = {123456, 3};
  CHECK(back->sizes().evaluate(back->value(back->region(0).inputs[0]).type->sizes[1], values) == s.evaluate(sizes[1], values));
  CHECK(code_of("graph @g(%x: f32[a]) symbols { a: 0.. } sizes { a = 3 } { return %x }") == "TSR-I012");
  CHECK(code_of("graph @g(%x: f32[h]) symbols { a: 0.. } sizes { h = a * 2; k = h + 1 } { return %x }") == "");
  CHECK(code_of("graph @g(%x: f32[h]) symbols { a: 0.. } sizes { h a } { return %x }") == "TSR-I003");
}

TEST_CASE("marks of nodes are part of the text, of copies and of equality") {
  const std::string text =
      "graph @g(%x: f32[4]) -> (f32[4]) {\n"
      "  %y = neg %x : f32[4] mark(checkpoint)\n"
      "  %z = neg %x : f32[4] mark(backward, recomputed, save) loc(\"m.cpp\":3)\n"
      "  %u = add %y, %z : f32[4]\n"
      "  return %u\n"
      "}\n";
  const auto g = parse(text);
  CHECK(print_graph(*g, kPrintLocations) == text);
  CHECK(g->node(0).marks == TSR_MARK_CHECKPOINT);
  CHECK(g->node(1).marks == (TSR_MARK_BACKWARD | TSR_MARK_RECOMPUTED | TSR_MARK_SAVE));
  CHECK(print_graph(*g->clone(), kPrintLocations) == text);
  const auto other = g->clone();
  other->begin("test");
  other->set_marks(2, TSR_MARK_BACKWARD);
  other->commit();
  CHECK(difference(*g, *other) == "the marks of %u = add");
  CHECK_FALSE(same_computation(*g, *other));
  try {
    (void)parse(body("  %a = neg %x mark(backwards)\n  return %a"));
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == "TSR-I040");
    CHECK(std::string(e.message()).find("did you mean 'backward'") != std::string::npos);
  }
}

TEST_CASE("the graph of the IR page reads back as printed") {
  const std::string text =
      "graph @mlp(%x: f32[s0, 4], %w: f32[8, 4] param \"fc.weight\", %n: f32[] state \"calls\" -> 1 donated)"
      " -> (f32[s0, 8], f32[])\n"
      "  symbols { s0: 2..1024 hint 16; u0: 0.. unbacked }\n"
      "  assume { s0 % 8 == 0 \"tile\"; s0 <= 512 }\n"
      "{\n"
      "  %0 = linear %x, %w : f32[s0, 8] loc(\"mlp.cpp\":12:3)\n"
      "  %one = constant {value = dense<f32[]: 1.0>} : f32[]\n"
      "  %n1 = add %n, %one : f32[]\n"
      "  return %0, %n1\n"
      "}\n";
  const auto g = parse(text);
  verify(*g);
  CHECK(print_graph(*g) == text);
  CHECK(print_graph(*g, 0).find("loc(") == std::string::npos);
  CHECK(g->sizes().assumptions().at(0).why == "tile");
  CHECK(equal(*g, *parse(text)));
  CHECK(equal(*g, *g->clone()));
}

TEST_CASE("types, kinds and locations may be left out") {
  const auto g = parse(R"(
    // a comment
    graph @g(%x: f32[s0, 4] arg, %y: f32[s0, 4]) {
      %z = add %x, %y   // inferred
      %r = reduce_sum %z {axes = [-1]}
      %c = clamp %r
      consume %c
      return %c
    })");
  verify(*g);
  CHECK(print_graph(*g) ==
        "graph @g(%x: f32[s0, 4], %y: f32[s0, 4]) -> (f32[s0])\n"
        "  symbols { s0: 0.. }\n"
        "{\n"
        "  %z = add %x, %y : f32[s0, 4]\n"
        "  %r = reduce_sum %z {axes = [-1]} : f32[s0]\n"
        "  %c = clamp %r : f32[s0]\n"
        "  consume %c\n"
        "  return %c\n"
        "}\n");
}

TEST_CASE("regions nest, and are printed with their inputs") {
  const std::string text =
      "graph @g(%p: bool[], %x: f32[4]) -> (f32[4]) {\n"
      "  %r = cond %p, %p, %x : f32[4]\n"
      "    region(%q: bool[], %a: f32[4]) {\n"
      "      %b = neg %a : f32[4]\n"
      "      %c = cond %q, %b : f32[4]\n"
      "        region(%d: f32[4]) {\n"
      "          return %d\n"
      "        }\n"
      "        region(%e: f32[4]) {\n"
      "          return %e\n"
      "        } loc(\"inner.cpp\":3)\n"
      "      return %c\n"
      "    }\n"
      "    region(%q1: bool[], %a1: f32[4]) {\n"
      "      return %a1\n"
      "    }\n"
      "  return %r\n"
      "}\n";
  const auto g = parse(text);
  verify(*g);
  CHECK(print_graph(*g) == text);
}

TEST_CASE("names that are no plain words are quoted") {
  const std::string text =
      "graph @\"a graph\"(%\"layer one\": f32[2], %layers.0.w: f32[2]) -> (f32[2]) {\n"
      "  %\"\\\"\\\\\\n\" = add %\"layer one\", %layers.0.w : f32[2]\n"
      "  return %\"\\\"\\\\\\n\"\n"
      "}\n";
  const auto g = parse(text);
  CHECK(print_graph(*g) == text);
  CHECK(g->find_value("layer one") != TSR_NONE);
  CHECK(g->find_value("\"\\\n") != TSR_NONE);
}

TEST_CASE("outputs may have names of their own, which edits leave alone") {
  const std::string text =
      "graph @g(%x: f32[2], %\"in \\\"1\\\"\": f32[2] arg \"\") -> (f32[2], \"z \\\"q\\\"\\x01\": f32[2], f32[2], \"y_2\": "
      "f32[2]) {\n"
      "  %y = neg %x : f32[2]\n"
      "  return %y, %y, %x, %y\n"
      "}\n";
  const auto g = parse(text);
  verify(*g);
  CHECK(print_graph(*g) == text);
  CHECK(equal(*g, *g->clone()));
  const auto names = [](const Graph& of) {
    std::vector<std::string> out;
    for (uint32_t i = 0; i < of.region(0).num_outputs; ++i) out.emplace_back(of.output_name(i));
    return out;
  };
  CHECK(names(*g) == std::vector<std::string>{"y", "z \"q\"\x01", "x", "y_2"});
  // The value of an unnamed output may get another name; named ones stay.
  g->begin("test");
  g->replace_uses(g->find_value("y"), g->find_value("x"));
  CHECK(names(*g) == std::vector<std::string>{"x", "z \"q\"\x01", "x", "y_2"});
  g->rollback();
  CHECK(print_graph(*g) == text);
  g->begin("test");
  g->name_outputs();
  g->replace_uses(g->find_value("y"), g->find_value("x"));
  const std::vector<std::string> all{"y", "z \"q\"\x01", "x", "y_2"};
  CHECK(names(*g) == all);
  CHECK(names(*g->clone()) == all);
  CHECK(names(*parse(print_graph(*g))) == all);
  const tsr_id x = g->find_value("x"), two[] = {x, x};
  g->begin("inner");
  g->set_name(x, "other");
  CHECK(std::string(g->value(x).name) == "other");
  CHECK(std::string(g->input_name(x)) == "x");
  g->rollback();
  CHECK(g->value(x).key == nullptr);
  g->set_outputs(0, two);
  CHECK(names(*g) == std::vector<std::string>{"y", "z \"q\"\x01"});
  g->commit();
  CHECK(difference(*g, *parse("graph @g(%x: f32[2], %\"in \\\"1\\\"\": f32[2] arg \"\") -> (\"y\": f32[2], \"w\": f32[2]) {\n"
                              "  %y = neg %x : f32[2]\n  return %x, %x\n}\n")) == "the name of output 1");
}

TEST_CASE("names that would be equal get a suffix, those that were given keep theirs") {
  const auto g =
      parse("graph @g(%x: f32[2]) -> (f32[2], f32[2], \"x_2\": f32[2], \"x\": f32[2], f32[2]) { return %x, %x, %x, %x, %x }");
  g->begin("test");
  g->name_outputs();
  g->commit();
  std::vector<std::string> names;
  for (uint32_t i = 0; i < 5; ++i) names.emplace_back(g->output_name(i));
  CHECK(names == std::vector<std::string>{"x_3", "x_4", "x_2", "x", "x_5"});
}

TEST_CASE("strides and devices are part of a type") {
  const std::string text =
      "graph @g(%x: f32[4, s0; s0, 1]@null:0) -> (f32[4, s0]@null:0)\n"
      "  symbols { s0: 0.. }\n"
      "{\n"
      "  %0 = neg %x : f32[4, s0]@null:0\n"
      "  return %0\n"
      "}\n";
  const auto g = parse(text);
  verify(*g);
  CHECK(print_graph(*g) == text);
  CHECK(g->value(g->find_value("x")).type->strides != nullptr);
}

TEST_CASE("a written type must be the inferred one, in dtype and sizes") {
  CHECK(code_of(body("%a = neg %x : f32[2, 3]\nreturn %a")) == "");
  CHECK(code_of(body("%a = neg %x : f32[2, 3; 3, 1]\nreturn %a")) == "");  // layout is not inferred
  CHECK(code_of(body("%a = neg %x : f64[2, 3]\nreturn %a")) == "TSR-I039");
  CHECK(code_of(body("%a = neg %x : f32[3, 2]\nreturn %a")) == "TSR-I039");
  CHECK(code_of(body("%a = neg %x : f32[2, 3], f32[]\nreturn %a")) == "TSR-I009");
}

TEST_CASE("sizes that must be equal and may not be become assumptions") {
  const auto g = parse("graph @g(%x: f32[s0], %y: f32[s1]) { %a = add %x, %y %b = add %a, %y return %b }");
  REQUIRE(g->sizes().assumptions().size() == 1);
  CHECK(g->sizes().print(g->sizes().assumptions()[0].a) == "s0");
  verify(*g);
  const auto back = parse(print_graph(*g));
  CHECK(difference(*g, *back) == "");
}

TEST_CASE("sizes made before and after an assumption read back as they were") {
  Graph g(test_ops(), "g");
  auto& s = g.sizes();
  const tsr_dim s0 = s.symbol("s0", 0, INT64_MAX, false), s1 = s.symbol("s1", 0, INT64_MAX, false);
  auto input = [&] {
    const tsr_dim sizes[] = {s.make(TSR_DIM_MIN, s0, s1), s.make(TSR_DIM_MOD, s0, 4)};
    return g.create_input("x", g.make_type(TSR_F32, sizes));
  };
  const tsr_id x = input();
  s.require(TSR_LE, s0, s1, "");
  s.require(TSR_DIVISIBLE, s0, 4, "");
  const tsr_id out[] = {x, input()};
  g.set_outputs(0, out);
  g.commit();
  CHECK(g.value(out[0]).type == g.value(out[1]).type);  // one form
  CHECK(difference(g, *parse(print_graph(g))) == "");
}

TEST_CASE("constants of every dtype read back bit for bit") {
  CHECK(load_as<float>(TSR_F32, tensor_of(*parse(constant("dense<f32[2]: [1.0, 0.1]>"))).data, 1) == 0.1f);
  CHECK(load_as<double>(TSR_F64, tensor_of(*parse(constant("dense<f64[]: 5e-324>"))).data, 0) == 5e-324);
  CHECK(std::signbit(load_as<float>(TSR_F32, tensor_of(*parse(constant("dense<f32[]: -0.0>"))).data, 0)));
  CHECK(load_as<uint64_t>(TSR_U64, tensor_of(*parse(constant("dense<u64[]: 18446744073709551615>"))).data, 0) == UINT64_MAX);
  CHECK(load_as<int64_t>(TSR_I64, tensor_of(*parse(constant("dense<i64[]: -9223372036854775808>"))).data, 0) == INT64_MIN);
  const auto packed = parse(constant("dense<i4[3]: [-8, 7, -1]>"));
  CHECK(load_as<int>(TSR_I4, tensor_of(*packed).data, 0) == -8);
  CHECK(load_as<int>(TSR_I4, tensor_of(*packed).data, 2) == -1);
  const auto splat = parse(constant("dense<u2[5]: splat 3>"));
  CHECK(static_cast<const unsigned char*>(tensor_of(*splat).data)[0] == 0xff);
  CHECK(static_cast<const unsigned char*>(tensor_of(*splat).data)[1] == 0x03);  // unused bits are zero
  const auto nan = parse(constant("dense<f32[2]: hex \"0100c07f0000803f\">"));
  uint32_t bits;
  std::memcpy(&bits, tensor_of(*nan).data, 4);
  CHECK(bits == 0x7fc00001);
  CHECK(print_graph(*nan).find("hex \"0100c07f0000803f\"") != std::string::npos);
  CHECK(print_graph(*parse(constant("dense<f32[2]: [nan, -inf]>"))).find("[nan, -inf]") != std::string::npos);
  CHECK(print_graph(*parse(constant("dense<c64[2]: [(1.0, -2.0), (0.0, inf)]>"))).find("[(1.0, -2.0), (0.0, inf)]") !=
        std::string::npos);
  CHECK(print_graph(*parse(constant("dense<bool[2, 0]: []>"))).find("dense<bool[2, 0]: []>") != std::string::npos);

  // Every code of the 8-bit and 16-bit floats.
  for (const uint32_t dtype : {TSR_F16, TSR_BF16, TSR_F8E4M3FN, TSR_F8E4M3FNUZ, TSR_F8E5M2, TSR_F8E5M2FNUZ, TSR_F8E8M0}) {
    const int64_t n = int64_t{1} << dtype_bits(dtype);
    for (int64_t first = 0; first < n; first += 64) {
      std::string hex;
      for (int64_t i = first; i < first + 64; ++i)
        for (int k = 0; k < dtype_bits(dtype); k += 8) {
          char digits[3];
          std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(i >> k & 0xff));
          hex += digits;
        }
      const auto g = parse(constant("dense<" + std::string(dtype_name(dtype)) + "[64]: hex \"" + hex + "\">"));
      const std::string text = print_graph(*g);
      const std::string d = difference(*g, *parse(text));
      if (!d.empty()) FAIL(text << d);
    }
  }
}

TEST_CASE("long constants are hex, or elided on request") {
  std::string list = "0";
  for (int i = 1; i < 100; ++i) list += ", " + std::to_string(i);
  const auto g = parse(constant("dense<i32[100]: [" + list + "]>"));
  CHECK(print_graph(*g).find("hex \"0000000001000000") != std::string::npos);
  CHECK(print_graph(*g, kPrintElideConstants).find("dense<i32[100]: elided>") != std::string::npos);
  CHECK(difference(*g, *parse(print_graph(*g))) == "");
}

TEST_CASE("constants that do not fit their type are refused") {
  for (const char* bad :
       {"dense<f32[2]: [1.0]>", "dense<f32[2]: [1.0, 2.0, 3.0]>", "dense<u4[]: 16>", "dense<u8[]: -1>", "dense<i8[]: 128>",
        "dense<i8[]: -129>", "dense<f16[]: 70000>", "dense<f8e4m3fn[]: 500.0>", "dense<f8e4m3fn[]: inf>",
        "dense<f4e2m1[]: nan>", "dense<f32[]: 1e39>", "dense<f8e8m0[]: -1.0>", "dense<f32[1]: hex \"00\">",
        "dense<f32[1]: hex \"0000000g\">", "dense<u4[1]: hex \"10\">", "dense<f32[s0]: []>", "dense<f32[2; 1]: [1.0, 2.0]>",
        "dense<f32[9000000000000000]: [1.0]>", "dense<f32[]: nan(0x7ff8000000000001)>"}) {
    INFO(bad);
    CHECK(code_of(constant(bad)) == "TSR-I011");
  }
  CHECK(code_of(constant("dense<bool[]: 1>")) == "TSR-I003");
  CHECK(code_of(constant("dense<i32[]: 1.5>")) == "TSR-I003");
  CHECK(code_of(constant("dense<f64[]: 1e400>")) == "TSR-I006");
}

TEST_CASE("a short text cannot claim much memory, time or stack") {
  CHECK(code_of(constant("dense<f32[1000000000000]: splat 0.0>")) == "TSR-I002");
  CHECK(code_of(constant("dense<f32[1000000000, 1000000000, 1000000000]: splat 0.0>")) == "TSR-I008");
  CHECK(code_of(constant("dense<f32[1000000000000]: hex \"\">")) == "TSR-I011");
  ReadLimits small;
  small.splat_bytes = 4096;
  CHECK(code_of(body("%a = constant {value = dense<f32[512]: splat 1.0>}\n%b = constant {value = dense<f32[512]: splat "
                     "1.0>}\nreturn %a"),
                small) == "");
  CHECK(code_of(body("%a = constant {value = dense<f32[512]: splat 1.0>}\n%b = constant {value = dense<f32[513]: splat "
                     "1.0>}\nreturn %a"),
                small) == "TSR-I002");
  CHECK(code_of("graph @g(%x: f32[" + std::string(10000, '(') + "1]) { return }") == "TSR-I002");
  CHECK(code_of("graph @g(%x: f32[" + std::string(10000, '-') + "1]) { return }") == "TSR-I002");
  std::string sum = "s0";
  for (int i = 1; i < 5000; ++i) sum += " + s" + std::to_string(i);
  CHECK(code_of("graph @g(%x: f32[" + sum + "]) { return }") == "TSR-I002");
  std::string assumed;
  for (int i = 0; i < 1025; ++i) assumed += "a" + std::to_string(i) + " <= b; ";
  CHECK(code_of("graph @g(%x: f32[4]) assume { " + assumed + "} { return %x }") == "TSR-I002");
  std::string deep;
  for (int i = 0; i < 1000; ++i)
    deep += "cond %p" + std::to_string(i) + "\nregion(%p" + std::to_string(i + 1) + ": bool[]) {\n";
  CHECK(code_of("graph @g(%p0: bool[]) {\n" + deep) == "TSR-I002");
  std::string rank = "1";
  for (int i = 0; i < 70; ++i) rank += ", 1";
  CHECK(code_of("graph @g(%x: f32[" + rank + "]) { return }") == "TSR-I008");
  CHECK(code_of("graph @g(%x: f32[99999999999, 99999999999]) { return }") == "TSR-I008");
  CHECK(code_of("graph @g(%x: f32[99999999999999999999]) { return }") == "TSR-I006");
  CHECK(code_of("graph @g(%x: f32[9223372036854775807 * s0 * 2]) { return }") == "TSR-S001");
  CHECK(code_of("graph @g(%x: f32[mod(s0, 0)]) { return }") == "TSR-S003");
  CHECK(code_of("graph @g(%x: f32[-1]) { return }") == "TSR-I008");
}

TEST_CASE("every attribute kind reads back, defaults are not printed") {
  const std::string line =
      "%0 = annotate %x {b = true, choice = \"b\", d = bf16, f = 1e-05, fs = [inf, -0.0, nan], i = -7, is = [], n = s0 "
      "* 2, "
      "ns = [s0, 4], s = \"a\\n\\\"\", ss = [\"\", \"b\"], t = dense<i8[2]: [1, -1]>} : f32[s0]";
  const std::string text = "graph @g(%x: f32[s0]) -> (f32[s0])\n  symbols { s0: 0.. }\n{\n  " + line + "\n  return %0\n}\n";
  CHECK(print_graph(*parse(text)) == text);
  const auto g = parse("graph @g(%x: f32[2]) { %0 = annotate %x {i = 3, f = 0.5, is = [1], t = dense<i8[]: 1>} return %0 }");
  CHECK(print_node(*g, g->region(0).first) == "%0 = annotate %x {t = dense<i8[]: 1>} : f32[2]");
  CHECK(g->attr(g->region(0).first, "i")->i == 3);
}

TEST_CASE("floats print as the shortest text that reads back") {
  auto print = [](double v) {
    std::string s;
    append_float(s, v);
    return s;
  };
  CHECK(print(1.0) == "1.0");
  CHECK(print(1e-5) == "1e-05");
  CHECK(print(0.1) == "0.1");
  CHECK(print(-0.0) == "-0.0");
  CHECK(print(1e22) == "1e+22");
  CHECK(print(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(print(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(print(std::bit_cast<double>(uint64_t{0xfff8000000000001})) == "nan(0xfff8000000000001)");
}

TEST_CASE("a module holds several graphs, each checked") {
  const std::string two = "graph @a(%x: f32[s0]) { return %x }\n// second\ngraph @b(%x: f32[4]) { %y = neg %x return %y }\n";
  const auto graphs = parse_module(test_ops(), two, "two.tsr");
  REQUIRE(graphs.size() == 2);
  CHECK(std::string(graphs[1]->tables().name) == "b");
  CHECK(graphs[1]->sizes().symbols().empty());
  CHECK(std::string(parse(two)->tables().name) == "a");
  try {
    parse(two + "graph @c() { return %z }");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.message().substr(0, 11) == "t.tsr:4:21:");
  }
}

TEST_CASE("text goes into an empty graph that is open, and into no other") {
  Graph g(test_ops(), "empty");
  parse_into(g, "graph @g(%x: f32[4]) { %y = neg %x return %y }", "t.tsr");
  g.commit();
  CHECK(print_graph(g) == "graph @g(%x: f32[4]) -> (f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n");
  g.begin("test");
  CHECK_THROWS_WITH(parse_into(g, "graph @h() { return }", "t.tsr"), Catch::Contains("TSR-B005"));
}

TEST_CASE("equality sees every part of a graph") {
  const std::string base =
      "graph @g(%x: f32[s0, 4], %s: f32[] state \"k\" -> 1) -> (f32[s0, 4], f32[])\n  symbols { s0: 1..9 hint 2 }\n  "
      "assume { s0 < 8 }\n"
      "{\n  %a = annotate %x {f = 1.5, t = dense<f32[2]: [1.0, 2.0]>} loc(\"f\":1:2)\n  return %a, %s\n}\n";
  const auto g = parse(base);
  const std::pair<const char*, const char*> edits[] = {{"@g", "@h"},
                                                       {"%a", "%b"},
                                                       {"1..9", "1..10"},
                                                       {"hint 2", "hint 3"},
                                                       {"hint 2", "hint 2 unbacked"},
                                                       {"s0 < 8", "s0 < 7"},
                                                       {"1.5", "1.25"},
                                                       {"1.0, 2.0", "1.0, 3.0"},
                                                       {"\"f\":1:2", "\"f\":1:3"},
                                                       {"\"k\"", "\"l\""},
                                                       {"-> 1)", "-> 1 donated)"},
                                                       {"assume { s0 < 8 }", ""},
                                                       {"-> (f32[s0, 4]", "-> (\"a1\": f32[s0, 4]"},
                                                       {"%x: f32[s0, 4]", "%x: f32[s0, 4] param"},
                                                       {"s0 < 8", "s0 < 8 \"why\""}};
  for (const auto& [from, to] : edits) {
    std::string text = base;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + std::strlen(to)))
      text.replace(at, std::strlen(from), to);
    INFO(text);
    CHECK(difference(*g, *parse(text)) != "");
  }
  CHECK(equal(*g, *parse(base)));
}

TEST_CASE("authors are shown as comments") {
  const auto g = parse("graph @g(%x: f32[4]) { %y = neg %x return %y }");
  CHECK(print_graph(*g, kPrintAuthors).find("%y = neg %x : f32[4]  // text\n") != std::string::npos);
  CHECK(equal(*g, *parse(print_graph(*g, kPrintAuthors))));
}

TEST_CASE("messages of the text reader are golden") {
  for (const std::string& file : tessera::test::golden_files("golden/ir", ".tsr")) {
    const std::string name = file.substr(file.rfind('/') + 1);
    std::string out;
    try {
      out = print_graph(*parse_graph(test_ops(), tessera::test::read_file(tessera::test::golden_path(file)), name));
    } catch (const Error& e) {
      out = std::string(e.what()) + "\n";
    }
    tessera::test::check_golden(file.substr(0, file.size() - 4) + ".expected", out);
  }
}

}  // namespace text_test
