// SPDX-License-Identifier: Apache-2.0
// Free functions over tensors: creation, joining, selection, random numbers, and nn functions (namespace F, as in PyTorch).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor.hpp"

namespace tessera {

// ---- creation
Tensor empty(Shape shape, DType = f32, const Device& = {});  // concrete; contents unspecified
Tensor zeros(Shape shape, DType = f32);
Tensor ones(Shape shape, DType = f32);
Tensor full(Shape shape, Scalar value, DType = f32);
Tensor zeros_like(const Tensor&);  // on its device
Tensor ones_like(const Tensor&);
Tensor scalar(Scalar value, DType);
Tensor arange(SymInt stop, DType = i64);
Tensor arange(SymInt start, SymInt stop, int64_t step = 1, DType = i64);
Tensor eye(int64_t n, DType = f32);
// From host values, row-major, copied. The shape must match the count.
Tensor tensor(const std::vector<float>& values, std::vector<int64_t> shape = {-1});
Tensor tensor(const std::vector<double>& values, std::vector<int64_t> shape = {-1});
Tensor tensor(const std::vector<int64_t>& values, std::vector<int64_t> shape = {-1});
Tensor tensor(const std::vector<int32_t>& values, std::vector<int64_t> shape = {-1});
Tensor tensor(const std::vector<bool>& values, std::vector<int64_t> shape = {-1});
inline Tensor tensor(std::initializer_list<float> v) { return tensor(std::vector<float>(v)); }
// Without a copy; `data` must outlive every use. Strides in elements; empty: dense.
Tensor from_blob(void* data, std::vector<int64_t> shape, DType, std::vector<int64_t> strides = {});

// ---- elementwise, selection, joining
Tensor where(const Tensor& cond, const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor atan2(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor cat(const std::vector<Tensor>& xs, int64_t axis = 0);
Tensor stack(const std::vector<Tensor>& xs, int64_t axis = 0);
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor einsum_dot(const Tensor& a, const Tensor& b, Axes lhs_batch, Axes rhs_batch, Axes lhs_contract, Axes rhs_contract);

// ---- control flow that does not break the graph: functions over tensors, traced into regions
template <class Then, class Else>
std::vector<Tensor> cond(const Tensor& pred, Then&& then_fn, Else&& else_fn, const std::vector<Tensor>& args);
template <class Cond, class Body>
std::vector<Tensor> while_loop(Cond&& cond_fn, Body&& body_fn, const std::vector<Tensor>& init,
                               const std::vector<Tensor>& invariant = {});
template <class Body>
std::pair<std::vector<Tensor>, std::vector<Tensor>> scan(Body&& body, const std::vector<Tensor>& init,
                                                         const std::vector<Tensor>& xs,
                                                         const std::vector<Tensor>& invariant = {}, bool reverse = false);

// ---- random numbers: a counter-based generator with explicit state. Compiled functions take it as an argument.
struct Generator {
  Tensor state;  // u64[2]: key, counter; replaced by every draw
  explicit Generator(uint64_t seed = 0, const Device& device = {});
  // Where its numbers are drawn without a copy of the state: beside the tensors that they are for.
  Generator& to(const Device& device);
};
Generator& default_generator();  // of this thread; used outside compiled functions
void manual_seed(uint64_t seed);
Tensor rand(Shape shape, DType = f32, Generator* = nullptr);
Tensor randn(Shape shape, DType = f32, Generator* = nullptr);
Tensor randint(int64_t low, int64_t high, Shape shape, DType = i64, Generator* = nullptr);

namespace F {
Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor gelu(const Tensor& x, const std::string& approximate = "none");
Tensor silu(const Tensor& x);
Tensor mish(const Tensor& x);
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor hardswish(const Tensor& x);
Tensor hardsigmoid(const Tensor& x);
Tensor softmax(const Tensor& x, int64_t axis);
Tensor log_softmax(const Tensor& x, int64_t axis);
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});  // weight [out, in]
Tensor layer_norm(const Tensor& x, const std::vector<int64_t>& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
Tensor rms_norm(const Tensor& x, const std::vector<int64_t>& normalized_shape, const Tensor& weight = {}, double eps = 1e-6);
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);
Tensor embedding(const Tensor& indices, const Tensor& weight);
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask = {},
                                    bool causal = false, double scale = 0);
Tensor conv(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Axes stride = {1}, Axes padding = {0},
            Axes dilation = {1}, int64_t groups = 1);
inline Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b = {}, Axes stride = {1}, Axes padding = {0},
                     Axes dilation = {1}, int64_t groups = 1) {
  return conv(x, w, b, std::move(stride), std::move(padding), std::move(dilation), groups);
}
Tensor max_pool2d(const Tensor& x, Axes kernel, Axes stride = {}, Axes padding = {0}, Axes dilation = {1},
                  bool ceil_mode = false);
Tensor avg_pool2d(const Tensor& x, Axes kernel, Axes stride = {}, Axes padding = {0}, bool ceil_mode = false,
                  bool count_include_pad = true);
Tensor adaptive_avg_pool2d(const Tensor& x, Axes output);
Tensor interpolate(const Tensor& x, Shape output, const std::string& mode = "nearest", bool align_corners = false);
Tensor pad(const Tensor& x, Axes pad, const std::string& mode = "constant",
           double value = 0);  // PyTorch's order: last dimension first
Tensor dropout(const Tensor& x, double p, bool training, Generator* = nullptr);
Tensor one_hot(const Tensor& indices, int64_t classes);  // i64
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const std::string& reduction = "mean",
                     int64_t ignore_index = -100, double label_smoothing = 0);
Tensor mse_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean");
}  // namespace F

// ---- any op of the loaded op sets by name: op("acme.relu6", {x}, {{"max", 6.0}}). A tensor that is not defined is an omitted
// operand.
class AttrValue {
 public:
  AttrValue(bool v);
  AttrValue(int v);
  AttrValue(int64_t v);
  AttrValue(double v);
  AttrValue(const char* v);
  AttrValue(std::string v);
  AttrValue(DType v);
  AttrValue(Axes v);
  AttrValue(std::vector<double> v);
  AttrValue(SymInt v);
  AttrValue(Shape v);
  tsr_attr_kind kind;
  int64_t i = 0;
  double f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<double> floats;
};
using Attrs = std::vector<std::pair<const char*, AttrValue>>;
Tensor op(const char* name, const std::vector<Tensor>& operands, const Attrs& attrs = {});
std::vector<Tensor> op_multi(const char* name, const std::vector<Tensor>& operands, const Attrs& attrs = {});

namespace detail {
using RegionFn = void (*)(void* ctx, const std::vector<Tensor>& in, std::vector<Tensor>& out);
struct RegionCallback {
  RegionFn fn;
  void* ctx;
};
template <class F>
RegionCallback region(F& f) {
  return {[](void* c, const std::vector<Tensor>& in, std::vector<Tensor>& out) {
            out = (*static_cast<std::remove_reference_t<F>*>(c))(in);
          },
          (void*)&f};
}
std::vector<Tensor> cond(const Tensor& pred, RegionCallback a, RegionCallback b, const std::vector<Tensor>& args);
std::vector<Tensor> while_loop(RegionCallback c, RegionCallback b, const std::vector<Tensor>& init,
                               const std::vector<Tensor>& invariant);
std::vector<Tensor> scan(RegionCallback b, const std::vector<Tensor>& init, const std::vector<Tensor>& xs,
                         const std::vector<Tensor>& invariant, bool reverse);
}  // namespace detail

// cond's functions take the args and return vectors of equal types; while_loop's condition returns one bool[] tensor.
template <class Then, class Else>
std::vector<Tensor> cond(const Tensor& pred, Then&& a, Else&& b, const std::vector<Tensor>& args) {
  return detail::cond(pred, detail::region(a), detail::region(b), args);
}
template <class Cond, class Body>
std::vector<Tensor> while_loop(Cond&& c, Body&& b, const std::vector<Tensor>& init, const std::vector<Tensor>& invariant) {
  return detail::while_loop(detail::region(c), detail::region(b), init, invariant);
}
// The body takes (carried, slices of xs, invariants) and returns (carried, outputs to stack); returns final carried and stacked
// outputs.
template <class Body>
std::pair<std::vector<Tensor>, std::vector<Tensor>> scan(Body&& body, const std::vector<Tensor>& init,
                                                         const std::vector<Tensor>& xs, const std::vector<Tensor>& invariant,
                                                         bool reverse) {
  std::vector<Tensor> all = detail::scan(detail::region(body), init, xs, invariant, reverse);
  std::vector<Tensor> stacked(all.begin() + static_cast<std::ptrdiff_t>(init.size()), all.end());
  all.resize(init.size());
  return {std::move(all), std::move(stacked)};
}

}  // namespace tessera
