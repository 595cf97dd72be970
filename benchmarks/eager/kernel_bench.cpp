// SPDX-License-Identifier: Apache-2.0
// Single kernels of the eager backend, without a compiler around them: rates of products, and of memory-bound ops in GB/s of
// least traffic. eager_kernel_bench [isa] [threads] [filter]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fake_host.hpp"

using namespace fake;

int main(int argc, char** argv) {
  const std::string isa = argc > 1 ? argv[1] : "auto", filter = argc > 3 ? argv[3] : "";
  set_threads(argc > 2 ? std::atoi(argv[2]) : 1);
  Backend b(isa);
  const auto show = [&](const std::string& name, double seconds, double flops, double bytes) {
    std::printf("%-34s %10.1f us", name.c_str(), seconds * 1e6);
    if (flops > 0) std::printf("  %7.1f GFLOP/s", flops / seconds * 1e-9);
    if (bytes > 0) std::printf("  %7.1f GB/s", bytes / seconds * 1e-9);
    std::printf("\n");
  };
  const auto wanted = [&](const std::string& n) { return filter.empty() || n.find(filter) != n.npos; };

  const struct {
    int64_t m, n, k;
  } products[] = {{128, 768, 768}, {128, 3072, 768}, {128, 768, 3072}, {128, 50257, 768}, {1, 3072, 768},
                  {8, 3072, 768},  {32, 3072, 768},  {512, 1536, 384}, {1024, 1024, 1024}};
  for (uint32_t d : {TSR_F32, TSR_BF16, TSR_F64})
    for (const auto& p : products) {
      const std::string size = std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
      const double flops = 2.0 * double(p.m) * double(p.n) * double(p.k);
      if (d != TSR_F32 && flops > 3e9) continue;
      const Tensor x = random(d, {p.m, p.k}, 1), w = random(d, {p.n, p.k}, 2), wt = random(d, {p.k, p.n}, 2);
      const std::string type(tessera::dtype_name(d));
      if (wanted("linear " + type))
        show("linear " + type + " " + size, b.time("linear", {&x, &w, nullptr}, {}, {{d, {p.m, p.n}}}, 5), flops, 0);
      if (wanted("matmul " + type))
        show("matmul " + type + " " + size, b.time("matmul", {&x, &wt}, {}, {{d, {p.m, p.n}}}, 5), flops, 0);
    }

  if (wanted("attention"))
    for (int64_t l : {128, 256, 1024}) {
      const Tensor q = random(TSR_F32, {1, 12, l, 64}, 1), k = random(TSR_F32, {1, 12, l, 64}, 2),
                   v = random(TSR_F32, {1, 12, l, 64}, 3);
      const double flops = 4.0 * 12 * double(l) * double(l) * 64;
      for (bool causal : {false, true})
        show("attention 12x" + std::to_string(l) + "x64" + (causal ? " causal" : ""),
             b.time("attention", {&q, &k, &v, nullptr}, {flag("causal", causal), number("scale", 0)},
                    {{TSR_F32, {1, 12, l, 64}}}, 5),
             causal ? flops / 2 : flops, 0);
    }

  for (uint32_t d : {TSR_F32, TSR_BF16}) {
    const int64_t rows = 1024, cols = 1024;
    const Tensor x = random(d, {rows, cols}, 1), y = random(d, {rows, cols}, 2), w = random(d, {cols}, 3);
    const double bytes = double(rows * cols) * (d == TSR_F32 ? 4 : 2);
    const std::string type = " " + std::string(tessera::dtype_name(d));
    const ResultType same{d, {rows, cols}};
    for (const char* op : {"neg", "exp", "tanh", "gelu", "sigmoid", "sqrt", "sin", "log", "erf", "relu"})
      if (wanted(op + type)) show(op + type, b.time(op, {&x}, {text("approximate", "none")}, {same}, 9), 0, 2 * bytes);
    if (wanted("gelu_tanh" + type))
      show("gelu_tanh" + type, b.time("gelu", {&x}, {text("approximate", "tanh")}, {same}, 9), 0, 2 * bytes);
    for (const char* op : {"add", "mul", "maximum", "div", "pow"})
      if (wanted(op + type)) show(op + type, b.time(op, {&x, &y}, {}, {same}, 9), 0, 3 * bytes);
    if (wanted("bias" + type)) show("bias" + type, b.time("add", {&x, &w}, {}, {same}, 9), 0, 2 * bytes);
    if (wanted("softmax" + type))
      show("softmax" + type, b.time("softmax", {&x}, {integer("axis", -1)}, {same}, 9), 0, 2 * bytes);
    if (wanted("softmax0" + type))
      show("softmax0" + type, b.time("softmax", {&x}, {integer("axis", 0)}, {same}, 9), 0, 2 * bytes);
    if (wanted("layer_norm" + type))
      show("layer_norm" + type, b.time("layer_norm", {&x, &w, &w}, {integer("axis", -1), number("eps", 1e-5)}, {same}, 9), 0,
           2 * bytes);
    for (int64_t axis : {0, 1})
      if (wanted("sum" + type))
        show("sum axis " + std::to_string(axis) + type,
             b.time("reduce_sum", {&x}, {ints("axes", {axis}), flag("keepdims", false)}, {{d, {cols}}}, 9), 0, bytes);
    if (wanted("sum all" + type))
      show("sum all" + type, b.time("reduce_sum", {&x}, {ints("axes", {0, 1}), flag("keepdims", false)}, {{d, {}}}, 9), 0,
           bytes);
    if (wanted("transpose" + type))
      show("transpose" + type, b.time("transpose", {&x}, {ints("perm", {1, 0})}, {same}, 9), 0, 2 * bytes);
    if (wanted("cast" + type)) {
      const uint32_t to = d == TSR_F32 ? TSR_BF16 : TSR_F32;
      show("cast" + type, b.time("cast", {&x}, {dtype("dtype", to)}, {{to, {rows, cols}}}, 9), 0, double(rows * cols) * 6);
    }
    if (wanted("argmax" + type))
      show("argmax" + type, b.time("argmax", {&x}, {integer("axis", 1), flag("keepdims", false)}, {{TSR_I64, {rows}}}, 9), 0,
           bytes);
    if (wanted("cumsum" + type))
      show("cumsum" + type,
           b.time("cumsum", {&x}, {integer("axis", 1), flag("exclusive", false), flag("reverse", false)}, {same}, 9), 0,
           2 * bytes);
  }
  if (wanted("launch")) {  // the fixed cost of one kernel
    const Tensor a = random(TSR_F32, {4}, 1), x = random(TSR_F32, {1, 64}, 2), w = random(TSR_F32, {64, 64}, 3),
                 v = random(TSR_F32, {64}, 4);
    show("launch add f32[4]", b.time("add", {&a, &a}, {}, {{TSR_F32, {4}}}, 9), 0, 0);
    show("launch layer_norm f32[1, 64]",
         b.time("layer_norm", {&x, &v, &v}, {integer("axis", -1), number("eps", 1e-5)}, {{TSR_F32, {1, 64}}}, 9), 0, 0);
    show("launch linear 1x64x64", b.time("linear", {&x, &w, &v}, {}, {{TSR_F32, {1, 64}}}, 9), 0, 0);
    show("launch reduce_sum f32[64]",
         b.time("reduce_sum", {&v}, {ints("axes", {0}), flag("keepdims", false)}, {{TSR_F32, {}}}, 9), 0, 0);
    show("launch transpose f32[64, 64]", b.time("transpose", {&w}, {ints("perm", {1, 0})}, {{TSR_F32, {64, 64}}}, 9), 0, 0);
  }
  if (wanted("conv")) {
    const struct {
      int64_t c, o, s, k, stride, groups;
    } convs[] = {
        {3, 64, 224, 7, 2, 1}, {64, 64, 56, 3, 1, 1}, {64, 256, 56, 1, 1, 1}, {256, 256, 14, 3, 1, 1}, {96, 96, 56, 3, 1, 96}};
    for (const auto& c : convs) {
      const Tensor x = random(TSR_F32, {1, c.c, c.s, c.s}, 1), w = random(TSR_F32, {c.o, c.c / c.groups, c.k, c.k}, 2);
      const int64_t p = c.k / 2, out = (c.s + 2 * p - c.k) / c.stride + 1;
      show("conv " + std::to_string(c.c) + "->" + std::to_string(c.o) + " " + std::to_string(c.s) + " k" + std::to_string(c.k),
           b.time("conv", {&x, &w, nullptr},
                  {ints("strides", {c.stride, c.stride}), ints("pad_low", {p, p}), ints("pad_high", {p, p}),
                   ints("dilations", {1, 1}), integer("groups", c.groups)},
                  {{TSR_F32, {1, c.o, out, out}}}, 5),
           2.0 * double(c.o * out * out) * double(c.c / c.groups * c.k * c.k), 0);
    }
  }
}
