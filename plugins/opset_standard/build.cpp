// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

#include <algorithm>

#include "tessera/dtypes.hpp"

namespace tessera::opset {

// ------------------------------------------------------------------------------------------------------------------ Var

sdk::Type Var::type() const { return b_->graph().value(id_).type(); }

Var Var::call(const char* name, std::initializer_list<tsr_attr> attrs) const { return b_->op(name, {*this}, attrs); }
Var Var::call(const char* name, const Var& other, std::initializer_list<tsr_attr> attrs) const {
  return b_->op(name, {*this, other}, attrs);
}
Var Var::call(const char* name, const Var& second, const Var& third) const { return b_->op(name, {*this, second, third}); }
Var Var::like(double number) const { return b_->scalar(number, dtype()); }

Var Var::conj() const { return is_complex(dtype()) ? call("conj") : *this; }
Var Var::to(tsr_dtype d) const { return d == dtype() ? *this : call("cast", {sdk::attr_dtype("dtype", d)}); }

Var Var::sum(const Ints& axes, bool keepdims) const {
  return call("reduce_sum", {sdk::attr_ints("axes", axes), sdk::attr_bool("keepdims", keepdims)});
}
Var Var::max(const Ints& axes, bool keepdims) const {
  return call("reduce_max", {sdk::attr_ints("axes", axes), sdk::attr_bool("keepdims", keepdims)});
}

Var Var::reshape(const DimVector& shape) const {
  return shape == sizes() ? *this : call("reshape", {sdk::attr_dims("shape", shape)});
}
Var Var::broadcast(const DimVector& shape) const {
  return shape == sizes() ? *this : call("broadcast_to", {sdk::attr_dims("shape", shape)});
}
Var Var::sum_to(const DimVector& shape) const {
  return shape == sizes() ? *this : call("sum_to", {sdk::attr_dims("shape", shape)});
}
Var Var::transpose(const Ints& perm) const {
  return perm == iota_ints(0, rank()) ? *this : call("transpose", {sdk::attr_ints("perm", perm)});
}
Var Var::expand(const Ints& axes) const { return axes.empty() ? *this : call("expand_dims", {sdk::attr_ints("axes", axes)}); }

Var Var::slice(int64_t axis, tsr_dim start, tsr_dim limit, int64_t stride) const {
  if (start == 0 && stride == 1 && limit == size(axis)) return *this;
  DimVector starts(static_cast<size_t>(rank()), 0), limits = sizes();
  Ints strides(static_cast<size_t>(rank()), 1);
  const auto a = static_cast<size_t>(Build::normal(axis, rank()));
  starts[a] = start;
  limits[a] = limit;
  strides[a] = stride;
  return call("slice",
              {sdk::attr_dims("starts", starts), sdk::attr_dims("limits", limits), sdk::attr_ints("strides", strides)});
}
Var Var::gather(const Var& indices, int64_t axis) const { return call("gather", indices, {sdk::attr_int("axis", axis)}); }

// ---------------------------------------------------------------------------------------------------------------- Build

Build::Build(tsr_graph* g, tsr_id node, sdk::Graph::At at)
    : dims(g), graph_(g), node_{g, node}, at_(at), replacements_(node_.num_results(), TSR_NONE) {}

Build Build::before(tsr_graph* g, tsr_id node) { return Build(g, node, sdk::Graph::before({g, node})); }

Ints Build::axes(std::string_view name, int64_t rank) const {
  Ints out = ints(name);
  for (int64_t& a : out) a = normal(a, rank);
  return out;
}

Var Build::op(const char* name, std::initializer_list<Var> operands, std::initializer_list<tsr_attr> attrs) {
  return ops(name, {operands.begin(), operands.size()}, {attrs.begin(), attrs.size()}).front();
}

std::vector<Var> Build::ops(const char* name, std::span<const Var> operands, std::span<const tsr_attr> attrs) {
  std::vector<sdk::Value> values;
  values.reserve(operands.size());
  for (const Var& v : operands) values.push_back(graph_.value(v.id()));
  const sdk::Node n = graph_.create(at_, name, values, attrs);
  std::vector<Var> out;
  for (uint32_t i = 0; i < n.num_results(); ++i) out.emplace_back(this, n.raw().results[i]);
  return out;
}

namespace {
template <class T>
Var scalar_constant(Build& b, T value, tsr_dtype dtype) {
  alignas(16) std::array<char, 16> bytes{};
  store_from(dtype, bytes.data(), 0, value);
  tsr_tensor t{};
  t.data = bytes.data();
  t.dtype = dtype;
  t.flags = TSR_TENSOR_CONTIGUOUS;
  return b.op("constant", {}, {sdk::attr_tensor("value", t)});
}
}  // namespace

Var Build::scalar(double value, tsr_dtype dtype) { return scalar_constant(*this, value, dtype); }
Var Build::integer_scalar(int64_t value, tsr_dtype dtype) { return scalar_constant(*this, value, dtype); }

Var Build::count(tsr_dim d, tsr_dtype dtype) {
  if (Dims::known(d)) return integer_scalar(d, dtype);
  return op("dim_value", {}, {sdk::attr_dim("value", d)}).to(dtype);
}

Var Build::full(double value, tsr_dtype dtype, const DimVector& shape) {
  const Var v = scalar(value, dtype);
  return shape.empty() ? v : v.call("full", {sdk::attr_dims("shape", shape)});
}

Var Build::iota(const DimVector& shape, int64_t axis, tsr_dtype dtype) {
  return op("iota", {}, {sdk::attr_dims("shape", shape), sdk::attr_int("axis", axis), sdk::attr_dtype("dtype", dtype)});
}

Var Build::concat(std::span<const Var> parts, int64_t axis) {
  if (parts.size() == 1) return parts.front();
  const tsr_attr a = sdk::attr_int("axis", axis);
  return ops("concat", parts, {&a, 1}).front();
}

tsr_dtype Build::compute_dtype(tsr_dtype dtype) { return is_float(dtype) && dtype != TSR_F64 ? TSR_F32 : dtype; }

tsr_dim Build::elements(const Var& v, const Ints& axes) const {
  DimVector s;
  for (int64_t a : axes) s.push_back(v.size(a));
  return dims.product(s);
}

// ------------------------------------------------------------------------------------------------------------ GradBuild

GradBuild::GradBuild(tsr_graph* g, tsr_id node, const tsr_id* grad_results)
    : Build(g, node, {sdk::Node{g, node}.raw().parent, TSR_NONE, sdk::Node{g, node}.raw().loc}),
      grads_(grad_results, grad_results + this->node().num_results()),
      out_(this->node().num_operands(), TSR_NONE) {}

bool GradBuild::any() const {
  return std::any_of(grads_.begin(), grads_.end(), [](tsr_id g) { return g != TSR_NONE; });
}

void GradBuild::undefined(const std::string& what) const {
  throw sdk::Error(TSR_USER, "TSR-I220", "op '" + std::string(node().op()) + "' has no gradient: " + what,
                   "rewrite the computation, or stop the gradient before this op");
}

}  // namespace tessera::opset
