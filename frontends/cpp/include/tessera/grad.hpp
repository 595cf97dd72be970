// SPDX-License-Identifier: Apache-2.0
// Gradients of what a compiled function computes, and functions made of functions: value_and_grad, grad_of, vjp, jvp,
// custom_gradient, checkpoint, differentiable.
//
//   auto step = tessera::compile([](const Tensor& w, const Tensor& x, const Tensor& y) {
//     Tensor loss = F::mse_loss(x.matmul(w), y);
//     return w - 0.1 * grad(loss, w);
//   });
//
// Gradients are recorded: they exist inside functions given to tessera::compile, and nowhere else (TSR-F049). The whole
// program, gradients included, is one graph (docs/training.md).
#pragma once

#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/compile.hpp"
#include "tessera/nn.hpp"
#include "tessera/tensor.hpp"

namespace tessera {

// The sum over `outputs` of each output's derivative with respect to each of `wanted`, weighted by its seed: one tensor of the
// same type per wanted tensor, zeros where the outputs do not depend on it. Without seeds every output has one element, and its
// seed is 1. Wanted tensors may be arguments, parameters, or anything that has been computed since; all of floating-point
// dtypes. The results are part of the graph, so that gradients of gradients are asked for in the same way. Throws TSR-F049
// outside a compiled function, TSR-F050 for undefined tensors and seeds that do not fit the outputs.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& wanted,
                         const std::vector<Tensor>& seeds = {});
std::vector<Tensor> grad(const Tensor& output, const std::vector<Tensor>& wanted);
Tensor grad(const Tensor& output, const Tensor& wanted);
// One gradient per parameter, in the order of named_parameters().
std::vector<Tensor> grad(const Tensor& output, nn::ModuleBase& module);

// The same values, through which no gradient flows; `detach` in PyTorch.
Tensor stop_gradient(const Tensor& x);

namespace detail {
inline std::vector<Tensor> as_list(const Tensor& t) { return {t}; }
inline std::vector<Tensor> as_list(const std::vector<Tensor>& ts) { return ts; }
// A value of its own, so that gradients with respect to it are not those of the tensor it was made from.
Tensor leaf(const Tensor& x);
inline Tensor leaves(const Tensor& t) { return leaf(t); }
inline std::vector<Tensor> leaves(const std::vector<Tensor>& ts) {
  std::vector<Tensor> out;
  for (const Tensor& t : ts) out.push_back(leaf(t));
  return out;
}
// The cotangent of y, which the backward half is given.
Tensor cotangent(const Tensor& y);
// Marks what is recorded while it lives, but for the results, as what the backward half computes again.
class CheckpointScope {
 public:
  CheckpointScope();
  void end(const std::vector<Tensor*>& results);

 private:
  size_t first_ = 0;
};
inline Tensor shaped_as(const Tensor&, std::vector<Tensor> gradients) { return std::move(gradients[0]); }
inline std::vector<Tensor> shaped_as(const std::vector<Tensor>&, std::vector<Tensor> gradients) { return gradients; }
}  // namespace detail

// What can be differentiated with respect to: a tensor, or a list of tensors.
template <class T>
concept CanDifferentiate =
    std::same_as<std::remove_cvref_t<T>, Tensor> || std::same_as<std::remove_cvref_t<T>, std::vector<Tensor>>;

// value_and_grad(f)(x, rest...) is the pair of f(x, rest...), a tensor of one element, and its gradient with respect to x.
template <class F>
auto value_and_grad(F f) {
  return [f = std::move(f)]<CanDifferentiate X, class... Rest>(const X& x, Rest&&... rest) {
    const X at = detail::leaves(x);
    Tensor value = f(at, std::forward<Rest>(rest)...);
    X gradient = detail::shaped_as(x, grad(std::vector<Tensor>{value}, detail::as_list(at)));
    return std::pair<Tensor, X>(std::move(value), std::move(gradient));
  };
}

// grad_of(f)(x, rest...) is the gradient alone; jax.grad.
template <class F>
auto grad_of(F f) {
  return [g = value_and_grad(std::move(f))]<CanDifferentiate X, class... Rest>(const X& x, Rest&&... rest) {
    return g(x, std::forward<Rest>(rest)...).second;
  };
}

// (f(x), cotangent^T J) with J the Jacobian of f at x. The cotangent has the type of f(x).
template <class F, CanDifferentiate X>
std::pair<Tensor, X> vjp(F&& f, const X& x, const Tensor& cotangent) {
  const X at = detail::leaves(x);
  Tensor value = f(at);
  X gradient = detail::shaped_as(x, grad(std::vector<Tensor>{value}, detail::as_list(at), {cotangent}));
  return {std::move(value), std::move(gradient)};
}

// What the forward function of a custom gradient gives: its results, and what its backward function needs of them.
struct WithSaved {
  std::vector<Tensor> results, saved;
};
namespace detail {
std::vector<Tensor> with_gradient(const WithSaved& forward, const std::vector<Tensor>& inputs, RegionCallback backward);
}  // namespace detail

// A function of tensors whose gradient another function computes; jax.custom_vjp, torch.autograd.Function.
//   forward: (const std::vector<Tensor>& inputs) -> WithSaved backward: (const std::vector<Tensor>& saved, const
//   std::vector<Tensor>& cotangents) -> std::vector<Tensor>, one gradient per
//             floating-point input, of its type
// Tensors that backward uses are among `saved`; tensors that forward uses and that are no inputs are constants. Outside a
// compiled function it is `forward`. Gradients of the gradient are those of what backward computes. Throws TSR-F059 where the
// gradients do not fit the inputs.
//
//   auto clipped = custom_gradient([](const std::vector<Tensor>& x) { return WithSaved{{x[0]}, {}}; },
//                                  [](const auto&, const auto& dy) { return std::vector<Tensor>{dy[0].clamp(-1.0, 1.0)}; });
//   Tensor y = clipped({x})[0];
template <class Forward, class Backward>
auto custom_gradient(Forward forward, Backward backward) {
  return [forward = std::move(forward), backward = std::move(backward)](const std::vector<Tensor>& inputs) {
    if (!is_compiling()) return forward(inputs).results;
    const WithSaved made = forward(inputs);
    const size_t results = made.results.size();
    const auto region = [&](const std::vector<Tensor>& given) -> std::vector<Tensor> {
      const auto middle = given.begin() + static_cast<std::ptrdiff_t>(results);
      return backward(std::vector<Tensor>(middle, given.end()), std::vector<Tensor>(given.begin(), middle));
    };
    return detail::with_gradient(made, inputs, detail::region(region));
  };
}

namespace F {
// The cross entropy of logits x w^T: cross_entropy(linear(x, w), target), without holding all of the logits at once. x is [..,
// D], w [C, D], targets [..] are integers. Rows are taken a chunk at a time. In a compiled function that asks for its gradient,
// that is computed with the loss, chunk by chunk, and scaled by the cotangent afterwards; of one that does not, the loss alone.
// `reduction` is "mean" or "sum"; `rows` is the length of a chunk, 0: as many as make a million logits. TSR-F066 for others.
struct LinearCrossEntropyOptions {
  std::string reduction = "mean";
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  int64_t rows = 0;
};
Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& target,
                            const LinearCrossEntropyOptions& options = {});
}  // namespace F

// What `block` computes is computed again in the backward half instead of being kept: the arguments are kept, and the results
// like any other value. Works with every partitioner and without one. Gradients are the same bits. Outside a compiled function
// it calls `block`.
//
//   for (Block& b : blocks) x = checkpoint(b, x);
template <class F, class... Args>
auto checkpoint(F&& block, Args&&... args) {
  if (!is_compiling()) return std::forward<F>(block)(std::forward<Args>(args)...);
  detail::CheckpointScope scope;
  auto results = std::forward<F>(block)(std::forward<Args>(args)...);
  detail::CollectVisitor leaves;
  detail::visit(leaves, results);
  scope.end(leaves.tensors);
  return results;
}

// What a call of a differentiable function leaves for its backward half: values of the forward half that it reads. Copies share
// them.
template <class X>
class Pullback {
 public:
  Pullback(std::shared_ptr<detail::Saved> saved, X like) : saved_(std::move(saved)), like_(std::move(like)) {}
  // The gradients for this cotangent of the result, shaped as the first argument. What was kept is released: a second call
  // throws TSR-A020.
  X operator()(const Tensor& cotangent) const { return detail::shaped_as(like_, detail::run_backward(*saved_, {cotangent})); }

 private:
  std::shared_ptr<detail::Saved> saved_;
  X like_;
};

// differentiable(f)(x, rest...) is the pair of f(x, rest...) and its pullback: a function from a cotangent of the result to the
// gradient with respect to x, a tensor or a list of tensors. Both halves are compiled; the partitioner decides what is kept in
// between.
//
//   auto layer = differentiable([](const Tensor& x, const Tensor& w) { return F::gelu(x.matmul(w)); });
//   auto [y, back] = layer(x, w);
//   Tensor dx = back(dy);
template <class Signature>
class Differentiable;
template <class X, class... Rest>
class Differentiable<Tensor(X, Rest...)> {
  using First = std::remove_cvref_t<X>;
  static_assert(CanDifferentiate<First>, "the first argument is a Tensor or a std::vector<Tensor>");
  static_assert(!(detail::is_mutable_arg<X> || ... || detail::is_mutable_arg<Rest>), "arguments are read, not assigned");

 public:
  Differentiable(std::function<Tensor(X, Rest...)> f, CompileOptions options, std::source_location where)
      : pair_(
            [f = std::move(f)](X x, Rest... rest) {
              const First at = detail::leaves(x);
              Tensor y = f(at, rest...);
              std::vector<Tensor> out = grad(std::vector<Tensor>{y}, detail::as_list(at), {detail::cotangent(y)});
              out.insert(out.begin(), y);
              return out;
            },
            std::move(options), where) {}
  std::pair<Tensor, Pullback<First>> operator()(X x, Rest... rest) const {
    detail::SavingCall call = pair_.call_saving(x, rest...);
    return {std::move(call.results[0]), Pullback<First>(std::move(call.saved), x)};
  }

 private:
  Compiled<std::vector<Tensor>(X, Rest...)> pair_;
};
template <class F>
auto differentiable(F&& f, CompileOptions options = {}, std::source_location where = std::source_location::current()) {
  options.fullgraph = true;  // what follows a break would be a program of its own, without a backward half
  return Differentiable<typename detail::SignatureOf<std::decay_t<F>>::type>(std::forward<F>(f), std::move(options), where);
}

// (f(x), J tangent). Computed as two reverse passes: the derivative of u -> u^T J, which is linear, applied to the tangent. The
// tangent has the type of x.
template <class F, CanDifferentiate X>
std::pair<Tensor, Tensor> jvp(F&& f, const X& x, const X& tangent) {
  const X at = detail::leaves(x);
  Tensor value = f(at);
  const Tensor u = detail::leaf(value * 0.0);
  const std::vector<Tensor> pulled = grad(std::vector<Tensor>{value}, detail::as_list(at), {u});
  std::vector<Tensor> pushed = grad(pulled, {u}, detail::as_list(tangent));
  return {std::move(value), std::move(pushed[0])};
}

}  // namespace tessera
