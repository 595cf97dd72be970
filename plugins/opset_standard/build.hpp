// SPDX-License-Identifier: Apache-2.0
// What decompose and grad callbacks build with. `Var` is a value with operators, so that a body reads like its formula:
//
//   Var x = b.wide(b.operand(0));
//   b.replace(0, b.narrow(x * x.call("sigmoid"), b.operand(0).dtype()));
//
// The operators: tessera/formula.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "dims.hpp"
#include "tessera/formula.hpp"
#include "tessera/plugin.hpp"

namespace tessera::opset {

class Build;
using Ints = std::vector<int64_t>;

class Var : public sdk::Formula<Var> {
 public:
  Var() = default;
  Var(Build* b, tsr_id id) : b_(b), id_(id) {}
  explicit operator bool() const { return id_ != TSR_NONE; }
  tsr_id id() const { return id_; }
  Build& builder() const { return *b_; }

  sdk::Type type() const;
  tsr_dtype dtype() const { return type().dtype(); }
  int64_t rank() const { return type().rank(); }
  DimVector sizes() const {
    auto s = type().sizes();
    return {s.begin(), s.end()};
  }
  tsr_dim size(int64_t axis) const { return type().size(axis); }

  // Op `name` applied to this value (and others).
  Var call(const char* name, std::initializer_list<tsr_attr> attrs = {}) const;
  Var call(const char* name, const Var& other, std::initializer_list<tsr_attr> attrs = {}) const;
  Var call(const char* name, const Var& second, const Var& third) const;
  Var like(double number) const;  // a 0-d constant of this value's dtype

  // ---- ops that most formulas need
  Var exp() const { return call("exp"); }
  Var log() const { return call("log"); }
  Var conj() const;               // itself when real
  Var to(tsr_dtype dtype) const;  // cast, or itself
  Var sum(const Ints& axes, bool keepdims) const;
  Var max(const Ints& axes, bool keepdims) const;
  Var reshape(const DimVector& shape) const;    // itself when the shape is this one
  Var broadcast(const DimVector& shape) const;  // likewise
  Var sum_to(const DimVector& shape) const;     // likewise
  Var transpose(const Ints& perm) const;
  Var expand(const Ints& axes) const;  // expand_dims
  Var slice(int64_t axis, tsr_dim start, tsr_dim limit, int64_t stride = 1) const;
  Var gather(const Var& indices, int64_t axis) const;

 private:
  Build* b_ = nullptr;
  tsr_id id_ = TSR_NONE;
};

class Build {
 public:
  static Build before(tsr_graph* g, tsr_id node);
  Build(const Build&) = delete;

  const Dims dims;
  const sdk::Node& node() const { return node_; }
  sdk::Graph& graph() { return graph_; }

  bool has(uint32_t i) const { return node_.has_operand(i); }
  Var operand(uint32_t i) { return {this, node_.raw().operands[i]}; }
  Var result(uint32_t i = 0) { return {this, node_.raw().results[i]}; }  // of the node itself: grad bodies may use it
  sdk::Attr attr(std::string_view name) const { return node_.attr(name); }
  int64_t integer(std::string_view name) const { return attr(name).as_int(); }
  double number(std::string_view name) const { return attr(name).as_float(); }
  bool flag(std::string_view name) const { return attr(name).as_bool(); }
  std::string_view text(std::string_view name) const { return attr(name).as_string(); }
  Ints ints(std::string_view name) const {
    auto s = attr(name).as_ints();
    return {s.begin(), s.end()};
  }
  int64_t axis(std::string_view name, int64_t rank) const { return normal(integer(name), rank); }
  Ints axes(std::string_view name, int64_t rank) const;
  static int64_t normal(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

  // ---- creating
  Var op(const char* name, std::initializer_list<Var> operands, std::initializer_list<tsr_attr> attrs = {});
  std::vector<Var> ops(const char* name, std::span<const Var> operands, std::span<const tsr_attr> attrs = {});  // all results
  Var scalar(double value, tsr_dtype dtype);                                                                    // 0-d
  Var integer_scalar(int64_t value, tsr_dtype dtype = TSR_I64);                                                 // 0-d, exact
  Var count(tsr_dim d, tsr_dtype dtype);  // a size as a 0-d tensor
  Var full(double value, tsr_dtype dtype, const DimVector& shape);
  Var zeros_like(const Var& v) { return full(0, v.dtype(), v.sizes()); }
  Var iota(const DimVector& shape, int64_t axis, tsr_dtype dtype = TSR_I64);
  Var concat(std::span<const Var> parts, int64_t axis);
  // The dtype that composites compute in: f32 for f32 and narrower floats, else the dtype itself.
  static tsr_dtype compute_dtype(tsr_dtype dtype);
  Var wide(const Var& v) { return v.to(compute_dtype(v.dtype())); }
  // Product of the sizes of `v` at axes.
  tsr_dim elements(const Var& v, const Ints& axes) const;

  // ---- what decompose gives back
  void replace(uint32_t result, const Var& v) { replacements_[result] = v.id(); }
  tsr_id replacement(uint32_t result) const { return replacements_[result]; }

 protected:
  Build(tsr_graph* g, tsr_id node, sdk::Graph::At at);

 private:
  sdk::Graph graph_;
  sdk::Node node_;
  sdk::Graph::At at_;
  std::vector<tsr_id> replacements_;
};

// Gradient of a node: built at the end of its region. A gradient of zero is left out on both sides.
class GradBuild : public Build {
 public:
  GradBuild(tsr_graph* g, tsr_id node, const tsr_id* grad_results);
  bool any() const;  // is any result's gradient not zero?
  bool has_grad(uint32_t result) const { return grads_[result] != TSR_NONE; }
  Var grad(uint32_t result = 0) { return {this, grads_[result]}; }
  Var grad_or_zeros(uint32_t r) { return has_grad(r) ? grad(r) : zeros_like(result(r)); }
  void set(uint32_t operand, const Var& v) { out_[operand] = v.id(); }
  // As set, and undoes a broadcast of the operand.
  void set_summed(uint32_t operand, const Var& v) { set(operand, v.sum_to(this->operand(operand).sizes())); }
  tsr_id operand_grad(uint32_t operand) const { return out_[operand]; }
  // TSR-I220: no gradient is defined for these attributes.
  [[noreturn]] void undefined(const std::string& what) const;

 private:
  std::vector<tsr_id> grads_, out_;
};

inline Ints iota_ints(int64_t begin, int64_t end) {
  Ints v;
  for (int64_t i = begin; i < end; ++i) v.push_back(i);
  return v;
}

}  // namespace tessera::opset
