// SPDX-License-Identifier: Apache-2.0
#include "kernel.hpp"

#include <algorithm>
#include <numeric>

#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

namespace t = tessera::sdk;

Spec::TypeOf describe(const t::Compile& c, t::Type type) {
  Spec::TypeOf r;
  r.dtype = type.dtype();
  for (const tsr_dim d : type.sizes()) r.sizes.push_back(t::launch_dim(c, d));
  return r;
}

Spec::Attribute describe(const t::Compile& c, const tsr_attr& a) {
  Spec::Attribute r;
  r.name = a.name;
  r.i = a.i;
  r.f = a.f;
  switch (a.kind) {
    case TSR_ATTR_STRING: r.text = a.s; break;
    case TSR_ATTR_INTS: r.ints.assign(a.ints, a.ints + a.count); break;
    case TSR_ATTR_FLOATS: r.floats.assign(a.floats, a.floats + a.count); break;
    case TSR_ATTR_DIM: r.dims.push_back(t::launch_dim(c, a.i)); break;
    case TSR_ATTR_DIMS:
      for (uint32_t i = 0; i < a.count; ++i) r.dims.push_back(t::launch_dim(c, a.ints[i]));
      break;
    case TSR_ATTR_TENSOR: {
      r.i = a.tensor->dtype;
      r.sizes.assign(a.tensor->sizes, a.tensor->sizes + a.tensor->rank);
      const int64_t n = std::accumulate(r.sizes.begin(), r.sizes.end(), int64_t{1}, std::multiplies<>());
      const auto* data = static_cast<const char*>(a.tensor->data);
      r.bytes.assign(data, data + storage_bytes(a.tensor->dtype, n));
      break;
    }
    default: break;
  }
  return r;
}

class ReferenceKernel : public t::Kernel {
 public:
  ReferenceKernel(const t::Compile& c, const Entry& entry) : entry_(entry) {
    const t::Node n = c.node();
    spec_.op = n.op();
    for (const tsr_attr& a : n.attrs()) spec_.attributes.push_back(describe(c, a));
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      spec_.operands.push_back(n.has_operand(i) ? describe(c, n.operand(i).type()) : Spec::TypeOf{});
    for (uint32_t i = 0; i < n.num_results(); ++i) spec_.results.push_back(describe(c, n.result(i).type()));
    if (entry_.sizes) find_symbols(c);
  }

  std::string name() const override { return "reference." + spec_.op; }
  bool has_workspace() const override { return entry_.workspace != nullptr; }
  bool has_sizes() const override { return entry_.sizes != nullptr; }

  int64_t workspace(const int64_t* dims) override {
    std::vector<std::vector<int64_t>> storage;
    std::vector<tsr_tensor> in = shapes(spec_.operands, dims, storage), out = shapes(spec_.results, dims, storage);
    return entry_.workspace(
        Op(spec_, in.data(), static_cast<uint32_t>(in.size()), out.data(), static_cast<uint32_t>(out.size()), nullptr, dims));
  }
  void sizes(const tsr_launch& l, std::span<int64_t> symbols) override {
    entry_.sizes(Op(spec_, l.inputs, l.num_inputs, nullptr, 0, l.workspace, l.dims), symbols);
  }
  void launch(const tsr_launch& l) override {
    entry_.run(Op(spec_, l.inputs, l.num_inputs, l.outputs, l.num_outputs, l.workspace, l.dims));
  }

 private:
  static std::vector<tsr_tensor> shapes(const std::vector<Spec::TypeOf>& types, const int64_t* dims,
                                        std::vector<std::vector<int64_t>>& storage) {
    std::vector<tsr_tensor> out;
    for (const Spec::TypeOf& type : types) {
      std::vector<int64_t>& sizes = storage.emplace_back();
      for (const t::LaunchDim& d : type.sizes) sizes.push_back(d.get(dims));
      tsr_tensor x{};
      x.dtype = type.dtype;
      x.rank = static_cast<uint32_t>(sizes.size());
      x.sizes = sizes.data();
      if (!type.dtype) x.flags = TSR_TENSOR_ABSENT;
      out.push_back(x);
    }
    return out;
  }

  // Which axis of result 0 each new unbacked symbol measures.
  void find_symbols(const t::Compile& c) {
    const tsr_tables& tables = c.graph().tables();
    const t::Node n = c.node();
    std::vector<tsr_dim> known;
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i))
        for (const tsr_dim d : n.operand(i).type().sizes()) known.push_back(d);
    const auto sizes = n.result(0).type().sizes();
    for (uint32_t axis = 0; axis < sizes.size(); ++axis) {
      const tsr_dim d = sizes[axis];
      if (!TSR_DIM_IS_EXPR(d) || std::find(known.begin(), known.end(), d) != known.end()) continue;
      const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, tables.exprs, tables.expr_stride, TSR_DIM_EXPR_ID(d));
      if (e.op != TSR_DIM_SYMBOL || !TSR_AT(tsr_symbol, tables.symbols, tables.symbol_stride, e.symbol)->unbacked) continue;
      known.push_back(d);
      spec_.symbol_axis.push_back(axis);
    }
  }

  const Entry& entry_;
  Spec spec_;
};

t::Claim too_deep(t::Graph g) {
  return t::no(g.scratch_string("the reference backend takes at most " + std::to_string(max_rank) + " dimensions"));
}

}  // namespace

t::Claim claim(t::Graph g, t::Node n) {
  if (!find_entry(n.op())) return t::no("the reference backend knows the ops of the standard set only");
  for (uint32_t i = 0; i < n.num_operands(); ++i)
    if (n.has_operand(i) && n.operand(i).type().rank() > max_rank) return too_deep(g);
  for (uint32_t i = 0; i < n.num_results(); ++i)
    if (n.result(i).type().rank() > max_rank) return too_deep(g);
  return t::yes();
}

std::unique_ptr<t::Kernel> compile(const t::Compile& c) {
  const Entry* e = find_entry(c.node().op());
  if (!e) throw t::Error(TSR_BUG, "TSR-B033", "op '" + std::string(c.node().op()) + "' was refused by claim");
  return std::make_unique<ReferenceKernel>(c, *e);
}

}  // namespace tessera::reference
