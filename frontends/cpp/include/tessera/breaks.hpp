// SPDX-License-Identifier: Apache-2.0
// Graph breaks: where host code needs what only running the graph gives (docs/graph_breaks.md).
//
// The part before a break is compiled and run, and what follows is compiled as a function of its own,
// tessera_resume_in_FN_at_LINE. On a way through the function that a call has taken before, only compiled parts run, and no
// host code: effects of host code that must recur are host steps (disable).
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/compile.hpp"
#include "tessera/tensor.hpp"

namespace tessera {

// Breaks the graph here; `why` is for the logs. Nothing happens outside a compiled function.
void graph_break(const std::string& why = {}, std::source_location where = std::source_location::current());

// While one lives, a graph break on this thread is an error (on = true), or not (on = false); the innermost one counts.
// `fullgraph` forbids breaks in any case.
class ErrorOnGraphBreak {
 public:
  explicit ErrorOnGraphBreak(bool on = true);
  ~ErrorOnGraphBreak();
  ErrorOnGraphBreak(const ErrorOnGraphBreak&) = delete;

 private:
  bool previous_;
};

// Calls `fn` with the values of `inputs` at every run, without a break: for printing, logging and other effects. It may be
// called on any thread. Outside a compiled function it is called at once. Effects happen in the order of the calls.
void host_call(std::function<void(const std::vector<Tensor>&)> fn, const std::vector<Tensor>& inputs,
               std::source_location where = std::source_location::current());

struct TensorType {
  DType dtype;
  Shape shape;
};
namespace detail {
std::vector<Tensor> opaque_call(std::function<std::vector<Tensor>(const std::vector<Tensor>&)> fn,
                                const std::vector<Tensor>& inputs, const std::vector<TensorType>& results,
                                const std::source_location& where);
}  // namespace detail

// The function as one operation of the graph, which nothing looks into: called with tensors that exist, at every run. `results`
// gives the types of what it returns for such inputs, while the function around is captured: [](const std::vector<Tensor>& in)
// { return std::vector<TensorType>{{in[0].dtype(), in[0].shape()}}; }. Without effects: equal inputs may be computed once.
template <class F, class Types>
auto allow_in_graph(F fn, Types results) {
  return [fn, results](const std::vector<Tensor>& inputs, std::source_location where = std::source_location::current()) {
    if (!is_compiling()) return std::vector<Tensor>(fn(inputs));
    return detail::opaque_call(fn, inputs, results(inputs), where);
  };
}

namespace detail {

// What a host step gives: tensors, and whatever else later host code can see of it, as bytes to compare and as an object to
// use.
struct StepResult {
  std::vector<Tensor> tensors;
  std::string key;
  std::shared_ptr<void> outcome;
};
using StepFn = std::function<StepResult(const std::vector<Tensor>& inputs)>;

// Breaks the graph and calls `fn` with the values of `inputs` (traced tensors), now and at every later call that comes here.
// Returns its tensors as traced ones, and its outcome.
StepResult host_step(uint32_t code, const tsr_loc& where, const std::string& detail, const std::vector<Tensor>& inputs,
                     StepFn fn);
tsr_loc to_loc(const std::source_location& where);
std::string host_key(const std::function<void(FlattenVisitor&)>& flatten);  // of all leaves but tensors

template <class F, class Signature>
class Disabled;

template <class F, class R, class... A>
class Disabled<F, R(A...)> {
  static_assert(((!is_mutable_arg<A> && !is_module_arg<A>)&&...),
                "tessera::disable: the function takes its arguments by value or const reference, and no modules");

 public:
  Disabled(F fn, std::string name) : fn_(std::make_shared<F>(std::move(fn))), name_(std::move(name)) {}

  R operator()(A... args, std::source_location where = std::source_location::current()) const {
    if (!is_compiling()) return (*fn_)(std::forward<A>(args)...);
    auto copies = std::make_shared<std::tuple<std::remove_cvref_t<A>...>>(std::forward<A>(args)...);
    ScalarVisitor numbers;
    std::apply([&](auto&... a) { (visit(numbers, a), ...); }, *copies);
    settle_scalars(numbers);
    std::vector<Tensor> inputs;
    std::vector<size_t> places;
    const std::vector<Tensor*> leaves = leaves_of(*copies);
    for (size_t i = 0; i < leaves.size(); ++i)
      if (leaves[i]->defined() && leaves[i]->is_traced()) {
        inputs.push_back(std::exchange(*leaves[i], Tensor()));
        places.push_back(i);
      }
    auto fn = fn_;
    StepResult out = host_step(13, to_loc(where), name_, inputs, [fn, copies, places](const std::vector<Tensor>& now) {
      auto given = *copies;  // several threads may be here
      const std::vector<Tensor*> slots = leaves_of(given);
      for (size_t i = 0; i < places.size(); ++i) *slots[places[i]] = now[i];
      StepResult r;
      if constexpr (std::is_void_v<R>) {
        std::apply(*fn, std::move(given));
      } else {
        auto result = std::make_shared<std::remove_cvref_t<R>>(std::apply(*fn, std::move(given)));
        CollectVisitor found;
        visit(found, *result);
        r.key = host_key([&](FlattenVisitor& v) { visit(v, *result); });
        for (Tensor* t : found.tensors) r.tensors.push_back(std::exchange(*t, Tensor()));
        r.outcome = result;
      }
      return r;
    });
    if constexpr (!std::is_void_v<R>) {
      std::remove_cvref_t<R> result = *static_cast<std::remove_cvref_t<R>*>(out.outcome.get());
      CollectVisitor found;
      visit(found, result);
      for (size_t i = 0; i < found.tensors.size(); ++i) *found.tensors[i] = out.tensors[i];
      return result;
    }
  }

 private:
  static std::vector<Tensor*> leaves_of(std::tuple<std::remove_cvref_t<A>...>& args) {
    CollectVisitor v;
    std::apply([&](auto&... a) { (visit(v, a), ...); }, args);
    return v.tensors;
  }
  std::shared_ptr<F> fn_;
  std::string name_;
};

std::string guard_text(int64_t v);
std::string guard_text(double v);
std::string guard_text(bool v);
inline std::string guard_text(const std::string& v) { return "s" + v; }
void check_guarded(const std::string& name, std::function<std::string()> now, const std::source_location& where);

}  // namespace detail

// A number, bool, enum or string that the function captures, or a global, as a guard: read again at every call, and another
// value is another path. Without it, what is captured is baked in. `value` must live as long as the compiled function; read it
// before the first operation and nothing else changes (later it breaks the graph).
template <class T>
const T& guarded(const T& value, const std::string& name, std::source_location where = std::source_location::current()) {
  if (is_compiling())
    detail::check_guarded(
        name,
        [&value] {
          if constexpr (std::is_enum_v<T>)
            return detail::guard_text(static_cast<int64_t>(value));
          else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
            return detail::guard_text(static_cast<int64_t>(value));
          else if constexpr (std::is_floating_point_v<T>)
            return detail::guard_text(static_cast<double>(value));
          else
            return detail::guard_text(value);
        },
        where);
  return value;
}

// The function as it is, never captured: called from a compiled function it runs at every call, on tensors that exist, between
// the compiled parts before and after it. What it captures is kept as long as the compiled function. Arguments and results are
// those of compile().
template <class F>
auto disable(F&& fn, std::string name = "a disabled function") {
  using Signature = typename detail::SignatureOf<std::decay_t<F>>::type;
  return detail::Disabled<std::decay_t<F>, Signature>(std::forward<F>(fn), std::move(name));
}

}  // namespace tessera
