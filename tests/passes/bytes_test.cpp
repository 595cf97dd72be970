// SPDX-License-Identifier: Apache-2.0
// What recognise_quantised does without changing a bit, before and after: tables for functions of a byte, over random chains
// between quantised tensors, and products for convolutions of one position.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "support.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

class Chain {
 public:
  explicit Chain(uint64_t seed) : random_(seed) {}

  std::string graph() {
    const bool symbolic = pick(3) == 0;
    shape_ = symbolic ? "[s0, 7]" : pick(2) ? "[3, 7]" : "[40]";
    const std::string type = dtype(), in = type + shape_;
    std::vector<std::pair<std::string, std::string>> bytes{{"%q", type}};
    const size_t stages = 1 + pick(4);
    for (size_t i = 0; i < stages; ++i) {
      // Of the last tensor, and sometimes of an earlier one too.
      const std::string x = dequantised(bytes.back());
      std::string y = function(x);
      if (pick(2)) y = function(y);
      if (pick(2)) y = add(std::string(pick(2) ? "mul " : "add ") + y + ", " + dequantised(bytes[pick(bytes.size())]));
      const std::string to = dtype();
      bytes.emplace_back(quantised(y, to), to);
    }
    std::string outputs = bytes.back().first;
    if (pick(2)) outputs += ", " + bytes[pick(bytes.size())].first;
    return "graph @g(%q: " + in + ")" + (symbolic ? " symbols { s0: 1.. }" : "") + " {\n" + body_ + "  return " + outputs +
           "\n}\n";
  }

 private:
  size_t pick(size_t n) { return random_() % n; }
  std::string dtype() { return pick(2) ? "i8" : "u8"; }
  std::string add(const std::string& statement) {
    const std::string name = "%v" + std::to_string(count_++);
    body_ += "  " + name + " = " + statement + "\n";
    return name;
  }
  std::string constant(const std::string& dtype, const std::string& number) {
    return add("constant {value = dense<" + dtype + "[]: " + number + ">}");
  }
  std::string scale() {
    static const char* const kScales[] = {"0.0078125", "0.0365", "0.11", "1.7", "1e-30"};
    return constant("f32", kScales[pick(5)]);
  }
  std::string dequantised(const std::pair<std::string, std::string>& q) {
    std::string x = add("cast " + q.first + " {dtype = i32}");
    if (pick(2)) {
      const std::string zero = add("cast " + constant(q.second, std::to_string(pick(100))) + " {dtype = i32}");
      x = add("sub " + x + ", " + zero);
    }
    return add("mul " + add("cast " + x + " {dtype = f32}") + ", " + scale());
  }
  std::string function(const std::string& x) {
    static const char* const kOps[] = {
        "sigmoid", "hardswish", "hardsigmoid {alpha = 0.2, beta = 0.5}", "relu", "gelu", "tanh", "exp", "sqrt", "neg"};
    std::string op = kOps[pick(9)], attributes;
    if (const size_t at = op.find(' '); at != op.npos) attributes = op.substr(at), op = op.substr(0, at);
    return add(op + " " + x + attributes);
  }
  std::string quantised(const std::string& x, const std::string& to) {
    const bool is_signed = to == "i8";
    std::string y = add("round " + add("div " + x + ", " + scale()));
    y = add("add " + y + ", " + constant("f32", std::to_string(pick(9)) + ".0"));
    y = add("clamp " + y + ", " + constant("f32", is_signed ? "-128.0" : "0.0") + ", " +
            constant("f32", is_signed ? "127.0" : "255.0"));
    return add("cast " + y + " {dtype = " + to + "}");
  }

  std::mt19937_64 random_;
  std::string shape_, body_;
  size_t count_ = 0;
};

}  // namespace

TEST_CASE("tables of bytes keep every bit") {
  size_t tables = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::string text = Chain(seed).graph();
    INFO("seed " << seed << "\n" << text);
    const auto g = parse_graph(pass_context().ops(), text, "chain.tsr");
    const auto after = g->clone();
    run_pipeline(*after, "canonicalize, recognise_quantised, constant_fold, cse, dce");
    const std::string became = print_graph(*after);
    tables += became.find("gather") != became.npos;
    const std::vector<int64_t> symbols = small_symbols(*g);
    const Outcome want = run_on_reference(*g, symbols, seed);
    REQUIRE(want.error == "");
    const std::string d = bit_difference(want, run_on_reference(*after, symbols, seed));
    if (!d.empty()) FAIL(d << "\nbecame\n" << became);
  }
  CHECK(tables > 200);
}

TEST_CASE("convolutions of one position become products, bit for bit") {
  std::mt19937_64 random(3);
  const auto pick = [&](size_t n) { return random() % n; };
  size_t products = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const bool two = pick(2);
    const std::string ones = two ? ", 1, 1]" : ", 1]", n = pick(3) ? std::to_string(1 + pick(3)) : "s0",
                      c = std::to_string(1 + pick(9)), o = std::to_string(1 + pick(9)), x = pick(2) ? "u8" : "i8",
                      w = pick(2) ? "u8" : "i8";
    const std::string zx = "[]", zw = pick(3) == 0 ? "[]" : pick(2) ? "[1, 1" + ones : "[" + o + ", 1" + ones;
    const std::string pair = two ? "[1, 1]" : "[1]", none = two ? "[0, 0]" : "[0]";
    const std::string text = "graph @g(%x: " + x + "[" + n + ", " + c + ones + ", %w: " + w + "[" + o + ", " + c + ones +
                             ", %zx: " + x + zx + ", %zw: " + w + zw + ")" + (n == "s0" ? " symbols { s0: 1.. }" : "") +
                             " {\n  %y = conv_integer %x, %w, %zx, %zw {strides = " + pair + ", pad_low = " + none +
                             ", pad_high = " + none + ", dilations = " + pair + "}\n  return %y\n}\n";
    INFO("seed " << seed << "\n" << text);
    const auto g = parse_graph(pass_context().ops(), text, "conv.tsr");
    const auto after = g->clone();
    run_pipeline(*after, "canonicalize, recognise_quantised, dce");
    products += print_graph(*after).find("matmul_integer") != std::string::npos;
    const std::vector<int64_t> symbols = small_symbols(*g);
    const Outcome want = run_on_reference(*g, symbols, seed);
    REQUIRE(want.error == "");
    const std::string d = bit_difference(want, run_on_reference(*after, symbols, seed));
    if (!d.empty()) FAIL(d << "\nbecame\n" << print_graph(*after));
  }
  CHECK(products == 200);
}
