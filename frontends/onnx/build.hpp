// SPDX-License-Identifier: Apache-2.0
// What translations of operators are written with. `V` is a value of the model with operators, so that a translation reads like
// its formula:
//
//   V y = select(x > 0.0, x, x * slope);
//
// A value is a node's result, a tensor of the file that has not become a constant yet, or a small vector of sizes that is known
// while the model is imported (shape arithmetic), which becomes nodes only where something computes with it. Operators take
// operands of one dtype and broadcast; a plain number becomes a 0-d constant of the other operand's dtype.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensors.hpp"
#include "tessera/formula.hpp"
#include "tessera/plugin.hpp"

namespace tessera::onnx {

class Build;
using Dims = std::vector<tsr_dim>;  // sizes, maybe symbolic
using Ints = std::vector<int64_t>;

class V : public sdk::Formula<V> {
 public:
  V() = default;
  explicit operator bool() const { return info_ != nullptr; }
  [[nodiscard]] tsr_dtype dtype() const;
  [[nodiscard]] const Dims& sizes() const;
  [[nodiscard]] int64_t rank() const { return static_cast<int64_t>(sizes().size()); }
  [[nodiscard]] tsr_dim size(int64_t axis) const;  // throws kNode when there is no such dimension
  [[nodiscard]] tsr_id id() const;  // in the region that is being built; makes the constant or the size arithmetic if need be
  [[nodiscard]] Build& build() const;
  [[nodiscard]] bool same(const V& o) const { return info_ == o.info_; }

  // Op `name` applied to this value, and another.
  [[nodiscard]] V call(const char* name, std::initializer_list<tsr_attr> attrs = {}) const;
  [[nodiscard]] V call(const char* name, const V& other, std::initializer_list<tsr_attr> attrs = {}) const;
  [[nodiscard]] V call(const char* name, const V& second, const V& third) const;
  [[nodiscard]] V like(double number) const;  // a 0-d constant of this value's dtype

 private:
  friend class Build;
  struct Info;
  explicit V(Info* info) : info_(info) {}
  Info* info_ = nullptr;
};

struct V::Info {
  Build* build;
  tsr_dtype dtype;
  Dims sizes;
  std::vector<std::pair<tsr_id, tsr_id>> built;  // region, value there
  std::optional<Dims> known;                     // the elements, of rank 0 or 1, where they are known sizes
  std::optional<HostTensor> constant;            // the elements, where they are a constant
  const TensorProto* initializer = nullptr;      // loaded into `constant` when it is first asked for
  std::optional<std::vector<V>> sequence;        // the elements, where it is no tensor but a sequence of known length
  std::string name;                              // for the node that is made of it
};

class Build {
 public:
  Build(sdk::Graph graph, Tensors& tensors) : graph_(graph), tensors_(&tensors) {}
  Build(const Build&) = delete;
  [[nodiscard]] sdk::Graph graph() const { return graph_; }

  // ---- where nodes go
  tsr_id region = 0;
  tsr_loc loc{};

  // ---- values
  V value(tsr_id id);  // a node's result or a region's input, in the region that is being built
  V known(Dims elements, int64_t rank = 1, tsr_dtype dtype = TSR_I64);
  V constant(HostTensor t, std::string name = {});
  V initializer(const TensorProto& t);
  V sequence(std::vector<V> elements);
  [[nodiscard]] static const std::vector<V>* elements_of(const V& v) {
    return v.info_->sequence ? &*v.info_->sequence : nullptr;
  }
  V scalar(double v, tsr_dtype dtype);  // 0-d
  V integer(int64_t v, tsr_dtype dtype = TSR_I64);
  V floats(std::span<const double> v, tsr_dtype dtype, Ints sizes);  // a constant
  void name(const V& v, std::string_view name);
  // A constant or known sizes: a nested region makes its own, where another value must be passed in.
  [[nodiscard]] static bool is_free_standing(const V& v) {
    return v.info_->constant || v.info_->initializer || v.info_->known || (v.info_->sequence && v.info_->sequence->empty());
  }

  // ---- what is known while the model is imported
  std::optional<Dims> peek(const V& v);                           // elements of rank 0 or 1 that are sizes, without computing
  std::optional<Dims> ints(const V& v);                           // likewise, computing on constants where that is needed
  std::optional<std::vector<double>> reals(const V& v);           // of a constant of any real dtype
  const HostTensor* literal(const V& v, int64_t most = 1 << 16);  // the constant that it is, computed if need be; null: none
  static bool is_number(tsr_dim d) { return !TSR_DIM_IS_EXPR(d); }
  static bool are_numbers(std::span<const tsr_dim> d);

  // ---- sizes
  tsr_dim add(tsr_dim a, tsr_dim b) const { return graph_.add(a, b); }
  tsr_dim sub(tsr_dim a, tsr_dim b) const { return graph_.sub(a, b); }
  tsr_dim mul(tsr_dim a, tsr_dim b) const { return graph_.mul(a, b); }
  tsr_dim floordiv(tsr_dim a, tsr_dim b) const { return graph_.floordiv(a, b); }
  tsr_dim ceildiv(tsr_dim a, tsr_dim b) const { return floordiv(sub(add(a, b), 1), b); }
  tsr_dim min(tsr_dim a, tsr_dim b) const { return graph_.dim(TSR_DIM_MIN, a, b); }
  tsr_dim max(tsr_dim a, tsr_dim b) const { return graph_.dim(TSR_DIM_MAX, a, b); }
  tsr_dim product(std::span<const tsr_dim> d) const { return graph_.product(d); }
  tsr_dim broadcast(tsr_dim a, tsr_dim b) const;           // of two dimensions that are broadcast against each other
  void require_repeats(tsr_dim have, tsr_dim want) const;  // a guard, unless it is known: `have` is `want` or 1
  bool proven(tsr_relation r, tsr_dim a, tsr_dim b) const { return graph_.compare(r, a, b) == TSR_TRUE; }
  std::string print(std::span<const tsr_dim> d) const;

  // ---- nodes
  V op(const char* name, std::span<const V> operands, std::span<const tsr_attr> attrs = {});
  V op(const char* name, std::initializer_list<V> operands, std::initializer_list<tsr_attr> attrs = {}) {
    return op(name, std::span(operands.begin(), operands.size()), std::span(attrs.begin(), attrs.size()));
  }
  std::vector<V> ops(const char* name, std::span<const V> operands, std::span<const tsr_attr> attrs = {},
                     std::span<const tsr_id> regions = {});
  std::vector<V> ops(const char* name, std::initializer_list<V> operands, std::initializer_list<tsr_attr> attrs = {}) {
    return ops(name, std::span(operands.begin(), operands.size()), std::span(attrs.begin(), attrs.size()));
  }

  // A region whose inputs have these types; `fill` builds its body and gives its outputs. It is handed to ops().
  tsr_id make_region(std::span<const tsr_type> types, const std::function<std::vector<V>(std::span<const V>)>& fill);
  void discard(tsr_id region);  // one that was made to look at its types
  [[nodiscard]] std::vector<tsr_type> types_of(std::span<const V> values);

  V cast(const V& v, tsr_dtype dtype);         // itself when it has the dtype
  V reshape(const V& v, const Dims& shape);    // itself when it has the shape
  V broadcast(const V& v, const Dims& shape);  // likewise
  // Both with the batch sizes (all dimensions but the last two) that they have in common, where only the run tells which are 1.
  std::pair<V, V> same_batch(const V& a, const V& b);
  V transpose(const V& v, const Ints& perm);  // itself for the identity
  V expand(const V& v, const Ints& axes);     // axes count in the result
  V squeeze(const V& v, const Ints& axes);
  V slice(const V& v, int64_t axis, tsr_dim start, tsr_dim limit, int64_t stride = 1);
  V concat(std::span<const V> parts, int64_t axis);
  V concat(std::initializer_list<V> parts, int64_t axis) { return concat(std::span(parts.begin(), parts.size()), axis); }
  V pad(const V& v, const Dims& low, const Dims& high, const char* mode = "constant", const V& fill = {});
  V gather(const V& x, const V& indices, int64_t axis) { return op("gather", {x, indices}, {sdk::attr_int("axis", axis)}); }
  V iota(const Dims& shape, int64_t axis, tsr_dtype dtype = TSR_I64);
  V range(tsr_dim n, tsr_dtype dtype = TSR_I64) { return iota({n}, 0, dtype); }
  V full(const V& value, const Dims& shape);  // of a 0-d value
  V full(double value, tsr_dtype dtype, const Dims& shape) { return full(scalar(value, dtype), shape); }
  V dim(tsr_dim d, tsr_dtype dtype = TSR_I64);  // a size as a 0-d tensor
  V reduce(const char* op, const V& v, const Ints& axes, bool keepdims);
  V sum(const V& v, const Ints& axes, bool keepdims = false) { return reduce("reduce_sum", v, axes, keepdims); }
  V matmul(const V& a, const V& b) {
    const auto [x, y] = same_batch(a, b);
    return op("matmul", {x, y});
  }
  V dot(const V& a, const V& b, const Ints& lhs_contract, const Ints& rhs_contract, const Ints& lhs_batch = {},
        const Ints& rhs_batch = {});
  std::vector<V> split(const V& v, const Dims& sizes, int64_t axis);
  static tsr_dtype wide(tsr_dtype dtype);  // f32 for narrower floats, else the dtype
  tsr_dim elements(const V& v) const { return product(v.sizes()); }

 private:
  friend class V;
  V make(tsr_dtype dtype, Dims sizes);
  tsr_id materialise(V::Info& v);
  tsr_id create(const char* name, std::span<const tsr_id> operands, std::span<const tsr_attr> attrs,
                std::span<const tsr_id> regions);
  bool fold(tsr_id value, int64_t most, int depth, HostTensor* out);

  sdk::Graph graph_;
  Tensors* tensors_;
  std::deque<V::Info> infos_;
  std::map<tsr_id, V::Info*> by_id_;
  std::map<std::tuple<tsr_id, uint32_t, uint64_t>, tsr_id> scalars_;  // region, dtype, bits -> value
};

inline Ints axes_from(int64_t begin, int64_t end) {
  Ints v;
  for (int64_t i = begin; i < end; ++i) v.push_back(i);
  return v;
}

}  // namespace tessera::onnx
