// SPDX-License-Identifier: Apache-2.0
#include "node_program.hpp"

#include <algorithm>

#include "tessera/dtypes.hpp"

namespace tessera::kit {
namespace {

struct Writer {
  std::string_view op;
  void (*write)(NodeWriter&);
};
constexpr Writer kWriters[] = {
    {"cumsum", write_scan},
    {"cumprod", write_scan},
    {"cummax", write_scan},
    {"cummin", write_scan},
    {"sort", write_sort},
    {"topk", write_sort},
    {"searchsorted", write_search},
    {"scatter", write_scatter},
    {"scatter_nd", write_scatter_nd},
    {"attention", [](NodeWriter& w) { write_attention(w, true); }},
    {"attention_lse", [](NodeWriter& w) { write_attention(w, true); }},
    {"attention_backward", [](NodeWriter& w) { write_attention(w, true); }},
    {"random_bits", write_random},
    {"random_int", write_random},
    {"random_uniform", write_random},
    {"random_normal", write_random},
};

// The attention of a group that holds it and, behind it, the transpose that puts its heads next to their width; else no node.
sdk::Node attention_in(sdk::Graph g, sdk::Node n) {
  if (!n.is("fused") || n.regions().size() != 1) return {};
  const tsr_id region = n.regions()[0];
  std::vector<sdk::Node> nodes;
  for (const sdk::Node& x : g.nodes(region)) nodes.push_back(x);
  if (nodes.size() != 2 || !nodes[0].is("attention") || !nodes[1].is("transpose") || g.outputs(region).size() != 1) return {};
  if (nodes[1].operand(0) != nodes[0].result() || nodes[1].result().id != g.outputs(region)[0]) return {};
  const auto perm = nodes[1].attr("perm").as_ints();
  static constexpr int64_t kHeadsLast[] = {0, 2, 1, 3};
  if (!std::equal(perm.begin(), perm.end(), std::begin(kHeadsLast), std::end(kHeadsLast))) return {};
  for (uint32_t i = 0; i < nodes[0].num_operands(); ++i)
    if (nodes[0].has_operand(i) && nodes[0].operand(i).def()) return {};  // inputs of the region have none
  return nodes[0];
}

}  // namespace

std::string why_no_node_program(sdk::Graph g, sdk::Node n, const GpuDescription& device) {
  if (n.is("fused")) {
    const sdk::Node inner = attention_in(g, n);
    return inner ? why_no_node_program(g, inner, device) : "no attention with a transpose behind it";
  }
  const std::string op(n.op());
  if (std::none_of(std::begin(kWriters), std::end(kWriters), [&](const Writer& w) { return w.op == op; }))
    return "op '" + op + "' is not generated";
  const auto type = [&](const sdk::Value& v) -> std::string {
    const uint32_t dtype = v.type().dtype();
    return type_of(dtype) == Type::None ? "op '" + op + "' is not generated for " + std::string(dtype_name(dtype)) : "";
  };
  for (uint32_t i = 0; i < n.num_operands(); ++i)
    if (n.has_operand(i))
      if (const std::string why = type(n.operand(i)); !why.empty()) return why;
  for (uint32_t i = 0; i < n.num_results(); ++i)
    if (const std::string why = type(n.result(i)); !why.empty()) return why;
  if (op == "random_int" && n.attr("high").as_int() <= n.attr("low").as_int()) return "its range is empty";
  if (is_one_update(n)) return "a kernel of points computes it";
  if (op == "scatter_nd" && TSR_DIM_IS_EXPR(n.operand(1).type().sizes().back()))
    return "only the run tells how many numbers a tuple of indices has";
  return op.starts_with("attention") ? why_no_attention(n, device) : std::string();
}

namespace {

NodeProgram attention_program(sdk::Graph g, sdk::Node fused, const std::string& name, const GpuDescription& device) {
  const sdk::Node inner = attention_in(g, fused);
  const auto write = [&](bool vectors) {
    NodeWriter w(g, inner, name, device);
    w.heads_last = true;
    write_attention(w, vectors);
    NodeProgram out = w.take();
    check_program(out.program, device);
    return out;
  };
  NodeProgram out = write(true);
  out.any_strides = write(false).program;
  // Operands of the group are the inputs of its region.
  const auto inputs = g.inputs(fused.regions()[0]);
  const auto outer = [&](uint32_t operand) {
    return static_cast<uint32_t>(std::find(inputs.begin(), inputs.end(), inner.operand(operand).id) - inputs.begin());
  };
  for (uint32_t& o : out.operand_of) o = outer(o);
  for (OperandStride& x : out.strides) x.operand = outer(x.operand);
  return out;
}

}  // namespace

NodeProgram node_program(sdk::Graph g, sdk::Node n, const std::string& name, const GpuDescription& device) {
  if (const std::string why = why_no_node_program(g, n, device); !why.empty()) unfit(why);
  if (n.is("fused")) return attention_program(g, n, name, device);
  NodeWriter w(g, n, name, device);
  for (const Writer& x : kWriters)
    if (n.is(x.op)) x.write(w);
  NodeProgram out = w.take();
  check_program(out.program, device);
  if (!out.strides.empty()) {
    NodeWriter any(g, n, name, device);
    write_attention(any, false);
    out.any_strides = any.take().program;
    check_program(*out.any_strides, device);
  }
  return out;
}

NodeWriter::NodeWriter(sdk::Graph g, sdk::Node n, const std::string& name, const GpuDescription& device)
    : node(n), b(name, device), table_(g, k_.pool, &k_, {}), device_(device) {
  std::vector<std::vector<Expr>> shapes;
  const auto add = [&](const sdk::Value& v, Access access, const char* prefix, uint32_t number) {
    shapes.push_back(table_.shape(v.type()));
    k_.buffers.push_back({prefix + std::to_string(number), access, type_of(v.type().dtype()), k_.pool.product(shapes.back())});
    return static_cast<uint32_t>(k_.buffers.size() - 1);
  };
  for (uint32_t i = 0; i < n.num_operands(); ++i)
    inputs_.push_back(n.has_operand(i) ? add(n.operand(i), Access::In, "x", i) : kNone);
  for (uint32_t i = 0; i < n.num_results(); ++i) outputs_.push_back(add(n.result(i), Access::Out, "y", i));
  for (size_t i = 0; i < k_.symbols.size(); ++i) k_.symbols[i].name = "n" + std::to_string(i);
  declare_buffers(b, k_, {});
  KernelCopy copy(b, k_, {});
  for (const auto& s : shapes) {
    shapes_.emplace_back();
    for (const Expr e : s) shapes_.back().push_back(copy.index(e));
  }
}

void NodeWriter::read_strided(uint32_t count, bool vectors) {
  for (uint32_t o = 0; o < count; ++o) {
    const std::vector<Expr>& sizes = shapes_[inputs_[o]];
    std::vector<Expr> all;
    Expr reach = kOne;
    for (uint32_t d = 0; d < sizes.size(); ++d) {
      const bool last = d + 1 == sizes.size();
      const std::string symbol = "t" + std::to_string(o) + "_" + std::to_string(d);
      const uint32_t s = b.p.add_symbol(symbol, 0, vectors && !last ? kStrideMultiple : 1);
      stride_symbols_.push_back({o, d});
      all.push_back(vectors && last ? kOne : pool().symbol(s));
      reach = pool().add(reach, pool().mul(pool().sub(sizes[d], kOne), all.back()));
    }
    strides_.push_back(std::move(all));
    b.p.buffers[inputs_[o]].extent = reach;
  }
}

NodeProgram NodeWriter::take() {
  NodeProgram out{std::move(b.p), table_.symbol_dims, {}, stride_symbols_, std::nullopt, in_place_};
  for (uint32_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i] != kNone) out.operand_of.push_back(i);
  return out;
}

size_t NodeWriter::axis(std::string_view attribute, uint32_t buffer) const {
  const int64_t a = node.attr(attribute).as_int(), rank = static_cast<int64_t>(shapes_[buffer].size());
  return static_cast<size_t>(a < 0 ? a + rank : a);
}

void NodeWriter::each(Expr count, const std::function<void(Expr)>& body) {
  const int64_t threads = std::max(128, device_.wave);
  b.begin_launch();
  const Expr block = b.begin(Bind::Grid, "b", b.ceil_div(count, threads)),
             thread = b.begin(Bind::Block, "t", pool().number(threads));
  const Expr point = pool().add(b.scaled(block, threads), thread);
  const bool opened = b.begin_if(b.below(point, count));
  body(point);
  b.end_if(opened);
  b.end();
  b.end();
  b.end_launch();
}

uint32_t NodeWriter::convert(uint32_t v, Type to) {
  if (b.type_of(v) == to) return v;
  Inst x;
  x.op = Op::Convert;
  x.type = to;
  x.args[0] = v;
  return b.inst(x);
}

uint32_t NodeWriter::less(uint32_t x, uint32_t y) {
  if (b.type_of(x) == Type::Bool) return both(no(x), y);
  const uint32_t plain = b.binary(Op::Lt, x, y);
  return is_float(b.type_of(x)) ? either(plain, both(b.binary(Op::Eq, x, x), is_nan(y))) : plain;
}

NodeWriter::Checked NodeWriter::checked(uint32_t buffer, Expr at, Expr size) {
  const uint32_t i = convert(b.load(buffer, at), Type::I64), zero = b.constant(Type::I64, 0);
  const uint32_t inside = both(b.binary(Op::Ge, i, zero), b.binary(Op::Lt, i, b.index(size)));
  Inst check;
  check.op = Op::Check;
  check.id = kFaultIndex;
  check.args[0] = inside;
  b.inst(check);
  return {pool().value(b.select(inside, i, zero)), inside};
}

}  // namespace tessera::kit
