// SPDX-License-Identifier: Apache-2.0
#include "simt_support.hpp"

#include <algorithm>

#include "tessera/kit/program/order.hpp"

namespace tessera::test {

SimtKernel lower_case(const SimtCase& c) {
  SimtKernel k;
  const auto g = parse(c.text);
  k.rows = lower_graph(*g, c.name, {.everything = true});
  if (c.columns.empty()) return k;
  k.pair = true;
  const auto h = parse(c.columns);
  k.columns = lower_graph(*h, c.name + "_columns");
  for (const kit::Buffer& b : k.columns.kernel.buffers) {
    uint32_t same = kit::kNone;
    for (uint32_t i = 0; i < k.rows.kernel.buffers.size(); ++i)
      if (b.access == kit::Access::In && k.rows.kernel.buffers[i].name == b.name) same = i;
    k.shared.push_back(same);
  }
  return k;
}

kit::SimtSchedule choose(SimtKernel& k, const SimtCase& c, const kit::GpuDescription& d, const kit::SimtOrder& o) {
  return k.pair ? kit::choose_norm_backward(k.rows.kernel, k.columns.kernel, d, o)
                : kit::choose_simt(k.rows.kernel, d, o, {c.multiples});
}
kit::Program make(SimtKernel& k, const SimtCase& c, const kit::SimtSchedule& s, const kit::GpuDescription& d,
                  const kit::SimtOrder& o) {
  return k.pair ? kit::make_norm_backward(k.rows.kernel, k.columns.kernel, k.shared, s, d, o)
                : kit::make_program(k.rows.kernel, s, d, o, {c.multiples});
}
std::vector<kit::SimtSchedule> reachable(SimtKernel& k, const SimtCase& c, const kit::GpuDescription& d,
                                         const kit::SimtOrder& o, size_t most) {
  std::vector<kit::SimtSchedule> all = {choose(k, c, d, o)};
  for (size_t i = 0; i < all.size() && all.size() < most; ++i) {
    const auto near = k.pair ? kit::norm_backward_neighbours(k.rows.kernel, k.columns.kernel, k.shared, all[i], d, o)
                             : kit::simt_neighbours(k.rows.kernel, all[i], d, o, {c.multiples});
    for (const kit::SimtSchedule& s : near)
      if (all.size() < most && std::find(all.begin(), all.end(), s) == all.end()) all.push_back(s);
  }
  return all;
}

Data case_data(const SimtKernel& k, const SimtCase& c, uint64_t seed, bool wild) {
  Data d = make_data(k.rows.kernel, c.symbols, seed, wild);
  if (!k.pair) return d;
  Data more = make_data(k.columns.kernel, c.symbols, seed + 1, wild);
  for (size_t i = 0; i < k.shared.size(); ++i)
    if (k.shared[i] == kit::kNone) d.bytes.push_back(std::move(more.bytes[i]));
  return d;
}
namespace {
// Where the buffers of the second kernel lie among the case's.
std::vector<size_t> places(const SimtKernel& k) {
  std::vector<size_t> at;
  size_t next = k.rows.kernel.buffers.size();
  for (const uint32_t s : k.shared) at.push_back(s == kit::kNone ? next++ : s);
  return at;
}
}  // namespace
uint32_t judge(const SimtKernel& k, const SimtCase& c, const kit::SimtOrder& o, Data& data) {
  const std::vector<void*> all = data.pointers();
  uint32_t faults = kit::interpret(k.rows.kernel, std::span(all).first(k.rows.kernel.buffers.size()), c.symbols, o);
  if (k.pair) {
    std::vector<void*> columns;
    for (const size_t i : places(k)) columns.push_back(all[i]);
    faults |= kit::interpret(k.columns.kernel, columns, c.symbols, o);
  }
  return faults;
}
std::string case_difference(const SimtKernel& k, const Data& a, const Data& b) {
  if (!k.pair) return difference(k.rows.kernel, a, b);
  kit::Kernel both;  // for its buffers alone
  both.buffers = k.rows.kernel.buffers;
  for (size_t i = 0; i < k.shared.size(); ++i)
    if (k.shared[i] == kit::kNone) both.buffers.push_back(k.columns.kernel.buffers[i]);
  return difference(both, a, b);
}

std::vector<SimtCase> simt_cases() {
  const auto backward = [](const std::string& name, const std::string& t, int rows, int n) {
    const std::string shape = "[" + std::to_string(rows) + ", " + std::to_string(n) + "]",
                      row = "[" + std::to_string(rows) + ", 1]";
    const std::string head = "graph @g(%x: " + t + shape + ", %dy: " + t + shape + ", %w: f32[" + std::to_string(n) +
                             "], %rstd: f32" + row +
                             ") {\n %xf = cast %x {dtype = f32}\n %gf = cast %dy {dtype = f32}\n %h = mul %xf, %rstd\n";
    return SimtCase{
        name,
        head +
            " %gw = mul %gf, %w\n %p = mul %gw, %h\n %m = mean %p {axes = [1], keepdims = true}\n %hm = mul %h, %m\n"
            " %d = sub %gw, %hm\n %dx = mul %d, %rstd\n %out = cast %dx {dtype = " +
            t + "}\n return %out\n}\n",
        head + " %p = mul %gf, %h\n %dw = reduce_sum %p {axes = [0]}\n return %dw\n}\n",
        {}};
  };
  return {
      {"gelu",
       "graph @g(%x: bf16[s0, 64], %b: bf16[64]) symbols { s0: 1.. } {\n %a = add %x, %b\n %c = gelu %a\n return %c\n}\n",
       "",
       {37}},
      {"flat", "graph @g(%x: f32[s0], %y: f32[s0]) symbols { s0: 0.. } {\n %a = mul %x, %y\n return %a\n}\n", "", {4001}},
      {"odd", "graph @g(%x: f16[7, 5, 9], %y: f16[5, 1]) {\n %a = sub %x, %y\n %b = abs %a\n return %b, %a\n}\n", "", {}},
      {"mask",
       "graph @g(%x: f32[300, 12], %c: bool[300, 12]) {\n %z = neg %x\n %a = select %c, %x, %z\n return %a\n}\n",
       "",
       {}},
      {"turn",
       "graph @g(%x: bf16[136, 72], %y: bf16[72, 136]) {\n %a = transpose %x {perm = [1, 0]}\n %c = add %a, %y\n return "
       "%c\n}\n",
       "",
       {}},
      {"turn_odd",
       "graph @g(%x: f32[2, s1, s0], %y: f32[2, s0, s1]) symbols { s0: 1..; s1: 1.. } {\n %a = transpose %x {perm = [0, 2, "
       "1]}\n %c = add %a, %y\n return %c\n}\n",
       "",
       {45, 37}},
      {"row_sum",
       "graph @g(%x: bf16[s0, 2304]) symbols { s0: 0.. } {\n %f = cast %x {dtype = f32}\n %a = reduce_sum %f {axes = [1]}\n "
       "return %a\n}\n",
       "",
       {5}},
      {"row_max_odd",
       "graph @g(%x: f32[9, 1003]) {\n %a = reduce_max %x {axes = [1]}\n %b = reduce_sum %x {axes = [1]}\n return %a, %b\n}\n",
       "",
       {}},
      // Products of odd integers: those of even ones are 0 modulo 2^32 soon, whatever is read.
      {"row_any",
       "graph @g(%x: i32[9, 700]) {\n %o = constant {value = dense<i32[]: 1>}\n %d = add %x, %x\n %y = add %d, %o\n %a = "
       "reduce_prod %y {axes = [1]}\n %b = reduce_min %x {axes = [1]}\n return %a, %b\n}\n",
       "",
       {}},
      {"whole_sum",
       "graph @g(%x: bf16[66000]) {\n %f = cast %x {dtype = f32}\n %a = reduce_sum %f {axes = [0]}\n return %a\n}\n",
       "",
       {}},
      {"whole_norm",
       "graph @g(%x: f32[2, 40003], %y: f32[2, 1]) {\n %d = sub %x, %y\n %q = mul %d, %d\n %a = reduce_sum %q {axes = [1]}\n "
       "%m = reduce_max %d {axes = [1]}\n %s = sqrt %a\n return %s, %m\n}\n",
       "",
       {}},
      {"row_unknown",
       "graph @g(%x: f32[s0, s1]) symbols { s0: 0..; s1: 0.. } {\n %a = reduce_sum %x {axes = [1]}\n return %a\n}\n",
       "",
       {3, 5001}},
      {"softmax", "graph @g(%x: bf16[s0, 2048]) symbols { s0: 1.. } {\n %a = softmax %x\n return %a\n}\n", "", {3}},
      {"softmax_f32", "graph @g(%x: f32[5, 1040]) {\n %a = softmax %x\n return %a\n}\n", "", {}},
      {"softmax_unknown", "graph @g(%x: f32[3, s0]) symbols { s0: 1.. } {\n %a = softmax %x\n return %a\n}\n", "", {5003}},
      {"layer_norm",
       "graph @g(%x: f32[s0, 768], %w: f32[768], %b: f32[768]) symbols { s0: 1.. } {\n %a = layer_norm %x, %w, %b\n return "
       "%a\n}\n",
       "",
       {3}},
      // Two loads of one tensor that differ in the order of the axes of rows alone, and results in another order of rows.
      {"softmax_square",
       "graph @g(%x: f32[6, 6, 256]) {\n %t = transpose %x {perm = [1, 0, 2]}\n %s = add %x, %t\n %a = softmax %s\n return "
       "%a\n}\n",
       "",
       {}},
      {"layer_norm_turned",
       "graph @g(%x: bf16[3, 19, 256], %w: bf16[256], %b: bf16[256]) {\n %a = layer_norm %x, %w, %b\n %t = transpose %a {perm "
       "= [1, 0, 2]}\n return %t\n}\n",
       "",
       {}},
      {"column_sum",
       "graph @g(%x: bf16[s0, 104]) symbols { s0: 1.. } {\n %f = cast %x {dtype = f32}\n %a = reduce_sum %f {axes = [0]}\n "
       "return %a\n}\n",
       "",
       {1301}},
      {"column_max",
       "graph @g(%x: f32[700, 33]) {\n %a = reduce_max %x {axes = [0]}\n %b = reduce_sum %x {axes = [0]}\n return %a, %b\n}\n",
       "",
       {}},
      {"column_mean", "graph @g(%x: f32[3, 20, 40]) {\n %a = mean %x {axes = [0, 1]}\n return %a\n}\n", "", {}},
      {"product",
       "graph @g(%x: f32[s0, 70], %w: f32[70, 45]) symbols { s0: 1.. } {\n %a = matmul %x, %w\n return %a\n}\n",
       "",
       {37}},
      // A gelu before it, a bias and a residual behind.
      {"product_fused",
       "graph @g(%x: bf16[50, s0], %w: bf16[33, s0], %b: bf16[33], %r: bf16[50, 33]) symbols { s0: 1.. } {\n %g = gelu %x\n "
       "%a = linear %g, %w, %b\n %c = add %a, %r\n return %c\n}\n",
       "",
       {43}},
      {"product_batch", "graph @g(%x: f16[2, 3, 20, 40], %y: f16[3, 40, 40]) {\n %a = matmul %x, %y\n return %a\n}\n", "", {}},
      {"product_lines",
       "graph @g(%x: bf16[72, 136], %y: bf16[136, 136]) {\n %a = matmul %x, %y\n %b = relu %a\n return %b\n}\n",
       "",
       {}},
      {"product_of_gradients",
       "graph @g(%x: f16[104, 72], %y: f16[104, 80]) {\n %a = dot_general %x, %y {lhs_contract = [0], rhs_contract = [0]}\n "
       "return %a\n}\n",
       "",
       {}},
      {"product_linear",
       "graph @g(%x: bf16[s0, 72], %w: bf16[136, 72]) symbols { s0: 1.. } {\n %a = linear %x, %w\n return %a\n}\n",
       "",
       {70}},
      {"product_tiles",
       "graph @g(%x: f32[2, 40, 32], %y: f32[2, 60, 32]) {\n %a = dot_general %x, %y {lhs_batch = [0], rhs_batch = [0], "
       "lhs_contract = [2], rhs_contract = [2]}\n return %a\n}\n",
       "",
       {}},
      {"product_integer", "graph @g(%x: i8[34, 30], %y: i8[30, 20]) {\n %a = matmul %x, %y\n return %a\n}\n", "", {}},
      {"convolution",
       "graph @g(%x: f32[s0, 6, 9, 11], %w: f32[32, 3, 3, 3], %b: f32[32]) symbols { s0: 1.. } {\n %a = conv %x, %w, %b "
       "{strides = [2, 1], pad_low = [1, 1], pad_high = [1, 2], dilations = [1, 2], groups = 2}\n %r = relu %a\n return "
       "%r\n}\n",
       "",
       {2}},
      {"pool",
       "graph @g(%x: f32[s0, 3, 7, 8]) symbols { s0: 1.. } {\n %a, %i = max_pool %x {kernel = [3, 2], strides = [2, 1], "
       "pad_low = [1, 1], pad_high = [1, 0], dilations = [1, 1]}\n return %a, %i\n}\n",
       "",
       {2}},
      // The halves of heads exchanged, and the result with its heads before its rows too.
      {"rotary",
       "graph @g(%x: bf16[s0, 3, 32], %c: bf16[s0, 1, 32], %s: bf16[s0, 1, 32]) symbols { s0: 1.. } {\n %h = reshape %x {shape "
       "= [s0, 3, 2, 16]}\n %f = flip %h {axes = [2]}\n %o = reshape %f {shape = [s0, 3, 32]}\n %a = mul %x, %c\n %b = mul %o, "
       "%s\n %y = add %a, %b\n %t = transpose %y {perm = [1, 0, 2]}\n return %y, %t\n}\n",
       "",
       {45}},
      // More than the registers of a block hold at two bytes each, where they do not have to.
      {"long_row",
       "graph @g(%x: bf16[1, 33000]) {\n %m = reduce_max %x {axes = [1], keepdims = true}\n %d = sub %x, %m\n %f = cast %d "
       "{dtype = f32}\n %q = mul %f, %f\n %a = reduce_sum %q {axes = [1]}\n return %a\n}\n",
       "",
       {}},
      {"column_stores",
       "graph @g(%x: bf16[70, 72], %y: f32[70, 72], %w: bf16[72]) {\n %a = mul %x, %w\n %s = reduce_sum %a {axes = "
       "[0]}\n %c = cast %x {dtype = f32}\n %d = mul %c, %y\n return %s, %d, %a\n}\n",
       "",
       {}},
      {"column_stores_odd",
       "graph @g(%x: f32[s0, 21]) symbols { s0: 1.. } {\n %a = mul %x, %x\n %m = reduce_max %a {axes = [0]}\n return %a, "
       "%m\n}\n",
       "",
       {300}},
      {"one_update",
       "graph @g(%x: bf16[s0, 40], %i: bool[s0, 1], %u: bf16[s0, 1]) symbols { s0: 1.. } {\n %j = cast %i {dtype = i64}\n %a = "
       "scatter %x, %j, %u {axis = 1}\n return %a\n}\n",
       "",
       {9}},
      // The gradient of a cross entropy of given classes: one update a row, its sum, and what both give.
      {"one_update_rows",
       "graph @g(%l: f32[s0, 40], %i: bool[s0, 1], %u: f32[s0, 1]) symbols { s0: 1.. } {\n %z = constant {value = dense<f32[]: "
       "0.0>}\n %f = full %z {shape = [s0, 40]}\n %j = cast %i {dtype = i64}\n %a = scatter %f, %j, %u {axis = 1}\n %e = exp "
       "%l\n %s = reduce_sum %a {axes = [1], keepdims = true}\n %p = mul %e, %s\n %d = sub %a, %p\n return %d\n}\n",
       "",
       {9}},
      // So few rows that a thread reads them all: in the middle, with a result whose heads are exchanged, and a store on the
      // way.
      {"few_rows",
       "graph @g(%x: bf16[2, 3, 4, s0, 16]) symbols { s0: 1.. } {\n %s = reduce_sum %x {axes = [2]}\n %t = transpose %s {perm "
       "= "
       "[0, 2, 1, 3]}\n return %t\n}\n",
       "",
       {7}},
      {"few_rows_maximum",
       "graph @g(%x: f32[5, 24], %w: f32[24]) {\n %a = mul %x, %w\n %m = reduce_max %a {axes = [0]}\n %s = reduce_sum %a {axes "
       "= [0]}\n %d = sub %s, %m\n return %a, %d\n}\n",
       "",
       {}},
      {"column_runs", "graph @g(%x: f32[4200, 8]) {\n %a = reduce_sum %x {axes = [0]}\n return %a\n}\n", "", {}},
      {"column_runs_symbolic",
       "graph @g(%x: f32[s0, 5]) symbols { s0: 1.. } {\n %a = reduce_sum %x {axes = [0]}\n return %a\n}\n",
       "",
       {8300}},
      // Along rows that do not lie side by side: chunks of them, an odd number of columns, and a batch.
      {"turned_max",
       "graph @g(%x: bf16[1100, 48]) {\n %t = transpose %x {perm = [1, 0]}\n %f = cast %t {dtype = f32}\n %a = reduce_max %f "
       "{axes = [1]}\n %b = reduce_sum %f {axes = [1]}\n return %a, %b\n}\n",
       "",
       {}},
      {"turned_unknown",
       "graph @g(%x: f32[s0, s1]) symbols { s0: 1..; s1: 1.. } {\n %t = transpose %x {perm = [1, 0]}\n %a = reduce_sum %t "
       "{axes "
       "= [1]}\n return %a\n}\n",
       "",
       {601, 37}},
      {"turned_batch",
       "graph @g(%x: f32[2, 127, 40]) {\n %t = transpose %x {perm = [0, 2, 1]}\n %q = mul %t, %t\n %a = reduce_sum %q {axes = "
       "[2]}\n %r = sqrt %a\n return %r\n}\n",
       "",
       {}},
      backward("rms_backward", "bf16", 150, 1024),
      backward("rms_backward_runs", "bf16", 600, 264),
      backward("rms_backward_f32", "f32", 67, 264),
  };
}

}  // namespace tessera::test
