// SPDX-License-Identifier: Apache-2.0
// What training is made of, from graphs to programs: the backward pass of norms in one sweep, losses forward and backward, the
// gradient of an embedding. Fused or not, at both sizes of a wave, by the interpreter and as text on the simulated GPU the bits
// are the same, and they are close to the reference's.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "ways.hpp"

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test;

namespace {

struct ClassCase {
  std::string name, text;
  std::vector<int64_t> symbols;
  size_t kernels;  // of the fused graph
  double within;   // of the reference's largest element: what the dtype and the length of the sums allow
};

std::string norm_backward(const std::string& op, const std::string& t, const std::string& rows, int n, bool bias) {
  const std::string row = std::to_string(n), shape = t + "[" + rows + ", " + row + "]", vector = t + "[" + row + "]";
  const std::string symbols = rows == "s0" ? " symbols { s0: 1.. }" : "";
  return "graph @g(%x: " + shape + ", %w: " + vector + (bias ? ", %b: " + vector : "") + ", %t: " + shape + ")" + symbols +
         " {\n  %y = " + op + " %x, %w" + (bias ? ", %b" : "") + "\n  %dx, %dw" + (bias ? ", %db" : "") +
         " = grad %y, %t, %x, %w" + (bias ? ", %b" : "") + " {seeded = true}\n  return %dx, %dw" + (bias ? ", %db" : "") +
         "\n}\n";
}

// AdamW's updates of parameters of these shapes; the rate is an input.
std::string adam(const std::vector<std::string>& shapes) {
  std::string head = "%rate: f32[]", body, results;
  const auto constant = [&](const char* name, const char* value) {
    body += std::string("  ") + name + " = constant {value = dense<f32[]: " + value + ">}\n";
  };
  constant("%b1", "0.9"), constant("%c1", "0.1"), constant("%b2", "0.999"), constant("%c2", "0.001"), constant("%eps", "1e-08");
  for (size_t k = 0; k < shapes.size(); ++k) {
    const std::string i = std::to_string(k);
    for (const char* name : {"p", "g", "m", "v"}) head += ", %" + (name + i) + ": f32" + shapes[k];
    const auto line = [&](const char* result, const std::string& text) { body += "  %" + (result + i) + " = " + text + "\n"; };
    line("ma", "mul %m" + i + ", %b1"), line("mb", "mul %g" + i + ", %c1"), line("mn", "add %ma" + i + ", %mb" + i);
    line("gg", "mul %g" + i + ", %g" + i), line("va", "abs %v" + i), line("vb", "mul %va" + i + ", %b2");
    line("vc", "mul %gg" + i + ", %c2"), line("vn", "add %vb" + i + ", %vc" + i), line("r", "sqrt %vn" + i);
    line("d", "add %r" + i + ", %eps"), line("q", "div %mn" + i + ", %d" + i), line("u", "mul %q" + i + ", %rate");
    line("pn", "sub %p" + i + ", %u" + i);
    results += (results.empty() ? "%pn" : ", %pn") + i + ", %mn" + i + ", %vn" + i;
  }
  return "graph @g(" + head + ") symbols { s0: 0.. } {\n" + body + "  return " + results + "\n}\n";
}

std::vector<ClassCase> class_cases() {
  return {
      {"layer_norm backward", norm_backward("layer_norm", "f32", "70", 264, true), {}, 1, 1e-5},
      {"layer_norm backward, symbolic", norm_backward("layer_norm", "f32", "s0", 264, true), {70}, 2, 1e-5},
      {"layer_norm backward, bf16", norm_backward("layer_norm", "bf16", "530", 136, true), {}, 1, 0.01},
      {"rms_norm backward", norm_backward("rms_norm", "f32", "19", 1032, false), {}, 1, 1e-5},
      {"rms_norm backward, f16", norm_backward("rms_norm", "f16", "s0", 64, false), {5}, 1, 2e-3},
      // Rows that are no whole vectors are no sweep.
      {"layer_norm backward, odd rows", norm_backward("layer_norm", "f32", "s0", 33, true), {70}, 3, 1e-5},
      {"cross entropy forward and backward",
       "graph @g(%x: f32[s0, 501], %t: i64[s0]) symbols { s0: 1.. } {\n  %l = cross_entropy %x, %t\n  %dx = grad %l, %x\n  "
       "return %l, %dx\n}\n",
       {37},
       0,
       1e-5},
      {"embedding backward",
       "graph @g(%w: f32[50, 24], %i: i64[s0, 9], %t: f32[s0, 9, 24]) symbols { s0: 0.. } {\n  %y = embedding %w, %i\n  %dw = "
       "grad %y, %t, %w {seeded = true}\n  return %dw\n}\n",
       {41},
       0,
       1e-5},
      {"updates of parameters", adam({"[37]", "[12, 40]", "[s0, 8]", "[]"}), {21}, 1, 1e-6},
      {"variance",
       "graph @g(%x: bf16[s0, 300]) symbols { s0: 1.. } {\n  %a = variance %x {axes = [1]}\n  %b = variance %x {axes = [0]}\n  "
       "return %a, %b\n}\n",
       {19},
       0,
       0.01},
  };
}

size_t kernels_of(const Executable& e) {
  const std::string plan = e.plan_text();
  size_t n = 0;
  for (size_t at = plan.find("programs.interpreted"); at != plan.npos; at = plan.find("programs.interpreted", at + 1)) ++n;
  return n;
}

double farthest(const tsr_tensor& a, const tsr_tensor& b) {
  double most = 0, scale = 1e-30;
  for (int64_t i = 0, n = num_elements({a.sizes, a.rank}); i < n; ++i) {
    const double x = load_as<double>(a.dtype, a.data, i), y = load_as<double>(b.dtype, b.data, i);
    most = std::max(most, std::abs(x - y));
    scale = std::max(scale, std::abs(y));
  }
  return most / scale;
}

}  // namespace

TEST_CASE("what training is made of runs as programs") {
  const std::vector<Way> ways = {{"32 lanes", programs("32", false)},
                                 {"32 lanes, fused", programs("32", true)},
                                 {"64 lanes, fused", programs("64", true)},
#ifdef TESSERA_TEST_SIM
                                 {"text, 32 lanes, fused", text_on_sim("32", true)},
                                 {"text, 64 lanes, fused", text_on_sim("64", true)},
#endif
                                 {"32 lanes, another schedule", programs("32", false), "3"}};
  const auto reference = reference_context();
  for (const ClassCase& c : class_cases()) {
    INFO(c.name << "\n" << c.text);
    const auto g = parse_graph(reference->ops(), c.text, "case");
    const std::vector<TensorRef> inputs = random_inputs(*g, c.symbols, 7);
    const Outcome want = run(*test::compile(reference, *g), inputs);
    REQUIRE(want.error.empty());
    Outcome first;
    for (const Way& w : ways) {
      INFO(w.name);
      const auto e = compile_way(w, *g);
      INFO(print_graph(e->graph()) << e->plan_text());
      Outcome got = run(*e, inputs);
      REQUIRE(got.error.empty());
      for (size_t i = 0; i < got.outputs.size(); ++i) {
        INFO("output " << i);
        CHECK(farthest(got.outputs[i]->desc, want.outputs[i]->desc) <= c.within);
        if (!first.outputs.empty()) CHECK(first_difference(first.outputs[i]->desc, got.outputs[i]->desc, true) == "");
      }
      if (w.name == std::string("32 lanes, fused") && c.kernels > 0) CHECK(kernels_of(*e) == c.kernels);
      if (first.outputs.empty()) first = std::move(got);
    }
  }
}
