// SPDX-License-Identifier: Apache-2.0
// Costs: exact counts for contractions, convolutions and attention (a multiply-add is two operations), one operation per
// element for everything else that is elementwise or a reduction.
#include "cost.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "table.hpp"
#include "window.hpp"

namespace tessera::opset {
namespace {

// Sizes of two shapes broadcast against each other, at their hints.
std::vector<double> broadcast(const CostQuery& q, std::vector<double> a, std::span<const tsr_dim> b) {
  if (a.size() < b.size()) a.insert(a.begin(), b.size() - a.size(), 1);
  for (size_t i = 0; i < b.size(); ++i) {
    double& x = a[a.size() - b.size() + i];
    const double y = q.dims.estimate(b[i]);
    x = x == 1 ? y : x;
  }
  return a;
}

double product(const std::vector<double>& v) {
  double p = 1;
  for (double x : v) p *= x;
  return p;
}

tsr_dtype first_dtype(const CostQuery& q) {
  for (uint32_t i = 0; i < q.num_operands(); ++i)
    if (q.has(i)) return q.operand(i).dtype();
  return TSR_F32;
}

void elementwise(CostQuery& q) {
  std::vector<double> out;
  for (uint32_t i = 0; i < q.num_operands(); ++i)
    if (q.has(i)) out = broadcast(q, out, q.operand(i).sizes());
  q.flops = product(out);
  q.read_operands();
  const sdk::Attr dtype = q.find("dtype");
  const bool bool_result =
      q.op() == "eq" || q.op() == "ne" || q.op() == "lt" || q.op() == "le" || q.op() == "gt" || q.op() == "ge";
  const uint32_t result = q.op() == "select" ? 1 : 0;
  q.write(dtype ? dtype.as_dtype() : bool_result ? TSR_BOOL : q.operand(result).dtype(), product(out));
}

void reduction(CostQuery& q) {
  q.flops = q.elements(0);
  q.read_operands();
  double reduced = 1;
  const auto rank = static_cast<int64_t>(q.operand(0).rank());
  for (const tsr_attr& a : q.attrs()) {
    if (std::string_view(a.name) == "axes")
      for (uint32_t i = 0; i < a.count; ++i) reduced *= q.size(0, a.ints[i] < 0 ? a.ints[i] + rank : a.ints[i]);
    else if (std::string_view(a.name) == "axis")
      reduced *= q.size(0, a.i);
    else if (std::string_view(a.name) == "shape")
      reduced = q.elements(0) / std::max(1.0, q.elements(std::span<const tsr_dim>(a.ints, a.count)));
  }
  const bool index = q.op() == "argmax" || q.op() == "argmin";
  q.write(index ? TSR_I64 : q.operand(0).dtype(), q.elements(0) / std::max(reduced, 1.0));
}

void dot_general(CostQuery& q) {
  double contracted = 1, batch = 1;
  for (int64_t a : q.attr("lhs_contract").as_ints()) contracted *= q.size(0, a);
  for (int64_t a : q.attr("lhs_batch").as_ints()) batch *= q.size(0, a);
  const double per_batch = std::max(batch * contracted, 1.0);
  const double out = batch * (q.elements(0) / per_batch) * (q.elements(1) / per_batch);
  q.flops = 2 * out * contracted;
  q.read_operands();
  const tsr_dtype dtype = q.attr("out_dtype").as_dtype();
  q.write(dtype == TSR_DTYPE_INVALID ? q.operand(0).dtype() : dtype, out);
}

void matmul(CostQuery& q) {
  const auto a = q.operand(0).sizes(), b = q.operand(1).sizes();
  const auto lead = [](std::span<const tsr_dim> s) {
    return s.size() <= 2 ? std::span<const tsr_dim>{} : s.first(s.size() - 2);
  };
  std::vector<double> batch;
  for (const auto s : {lead(a), lead(b)}) batch = broadcast(q, batch, s);
  const double m = a.size() > 1 ? q.size(0, -2) : 1, n = b.size() > 1 ? q.size(1, -1) : 1;
  q.flops = 2 * product(batch) * m * n * q.size(0, -1);
  q.read_operands();
  q.write(q.op() == "matmul" ? q.operand(0).dtype() : TSR_I32, product(batch) * m * n);
}

void linear(CostQuery& q) {
  const double out = q.elements(0) / std::max(q.size(0, -1), 1.0) * q.size(1, 0);
  q.flops = 2 * out * q.size(0, -1) + (q.has(2) ? out : 0);
  q.read_operands();
  q.write(q.operand(0).dtype(), out);
}

Window window(const CostQuery& q, size_t i, tsr_dim kernel) {
  const auto at = [&](const char* name) { return q.attr(name).as_ints()[i]; };
  return {
      q.operand(0).size(2 + static_cast<int64_t>(i)), kernel, at("strides"), at("pad_low"), at("pad_high"), at("dilations")};
}

void conv(CostQuery& q) {
  const auto x = q.operand(0).sizes(), w = q.operand(1).sizes();
  double places = q.size(0, 0);
  for (size_t i = 2; i < x.size(); ++i) places *= q.dims.estimate(window(q, i - 2, w[i]).output(q.dims));
  // Every output reads one tap per element of a weight row.
  const double out = places * q.size(1, 0);
  q.flops = 2 * places * q.elements(1);
  q.read_operands();
  q.write(q.op() == "conv" ? q.operand(0).dtype() : TSR_I32, out);
}

void conv_transpose(CostQuery& q) {
  const auto x = q.operand(0).sizes(), w = q.operand(1).sizes();
  double out = q.size(0, 0) * q.size(1, 1) * static_cast<double>(q.attr("groups").as_int());
  for (size_t i = 2; i < x.size(); ++i)
    out *=
        q.dims.estimate(window(q, i - 2, w[i]).transposed(q.dims)) + static_cast<double>(q.attr("output_pad").as_ints()[i - 2]);
  // Every input element meets every element of its weight row.
  q.flops = 2 * q.elements(0) / std::max(q.size(0, 1), 1.0) * q.elements(1);
  q.read_operands();
  q.write(q.operand(0).dtype(), out);
}

void pool(CostQuery& q) {
  const auto x = q.operand(0).sizes();
  double out = q.size(0, 0) * q.size(0, 1), taps = 1;
  for (size_t i = 2; i < x.size(); ++i) {
    const int64_t kernel = q.attr("kernel").as_ints()[i - 2];
    out *= q.dims.estimate(window(q, i - 2, kernel).output(q.dims, q.attr("ceil_mode").as_bool()));
    taps *= static_cast<double>(kernel);
  }
  q.flops = out * taps;
  q.read_operands();
  q.write(q.operand(0).dtype(), out);
  if (q.op() == "max_pool") q.write(TSR_I64, out);
}

// Products of queries and keys (along depth or values), and about `others` operations per score for scale, maximum,
// exponential, sum and division. Queries are operand `first`.
void attention_of(CostQuery& q, uint32_t first, double depths, double values, double others) {
  const double rows = q.elements(first) / std::max(q.size(first, -1), 1.0), keys = q.size(first + 1, -2);
  q.flops = rows * keys * (2 * depths * q.size(first, -1) + 2 * values * q.size(first + 2, -1) + others);
  if (q.attr("causal").as_bool()) q.flops /= 2;
  q.read_operands();
}
double queries_of(const CostQuery& q) { return q.elements(0) / std::max(q.size(0, -1), 1.0); }

void attention(CostQuery& q) {
  attention_of(q, 0, 1, 1, 5);
  q.write(q.operand(0).dtype(), queries_of(q) * q.size(2, -1));
}

void attention_lse(CostQuery& q) {
  attention(q);
  q.write(TSR_F32, queries_of(q));
}

void attention_backward(CostQuery& q) {
  attention_of(q, 1, 3, 2, 7);
  for (uint32_t i = 1; i < 4; ++i) q.write(q.operand(i).dtype(), q.elements(i));
}

// A pass over one operand with a result of its shape.
template <int kOperations>
void like_first(CostQuery& q) {
  q.flops = kOperations * q.elements(0);
  q.read_operands();
  q.write(first_dtype(q), q.elements(0));
}

}  // namespace

void add_cost(Table& t) {
  t.cost("dot_general", dot_general);
  t.cost("matmul", matmul);
  t.cost("matmul_integer", matmul);
  t.cost("linear", linear);
  t.cost("conv", conv);
  t.cost("conv_integer", conv);
  t.cost("conv_transpose", conv_transpose);
  t.cost("max_pool", pool);
  t.cost("avg_pool", pool);
  t.cost("attention", attention);
  t.cost("attention_lse", attention_lse);
  t.cost("attention_backward", attention_backward);
  t.cost("attention_y_backward", attention_backward);
  t.cost("softmax", like_first<5>);
  t.cost("log_softmax", like_first<5>);
  t.cost("layer_norm", like_first<8>);
  t.cost("rms_norm", like_first<5>);
  t.cost("group_norm", like_first<8>);
  t.cost("dropout", like_first<8>);
}

void add_default_costs(Table& t, std::span<const tsr_record_file> records) {
  // Names and traits are read off the records' text, so that a new op needs no line here.
  std::string op;
  for (const tsr_record_file& file : records) {
    std::istringstream lines(file.text);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("op ", 0) == 0) op = line.substr(3, line.find('(') - 3);
      if (line.rfind("  traits: ", 0) != 0 || t.has_cost(op)) continue;
      const auto has = [&](const char* trait) {
        return (line + " ").find(" " + std::string(trait) + " ") != std::string::npos;
      };
      if (has("elementwise")) t.cost(t.keep(op), elementwise);
      if (has("reduction")) t.cost(t.keep(op), reduction);
    }
  }
}

}  // namespace tessera::opset
