// SPDX-License-Identifier: Apache-2.0
// explain(): which graphs a compiled function consists of, where it breaks and why, and what is guarded.
//
//   std::puts(tessera::explain(tessera::compile(model_step), x, y).str().c_str());
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compile.hpp"

namespace tessera {

struct Explanation {
  struct Graph {
    std::string function, place;  // "tessera_resume_in_fn_at_12", "model.cpp:12"
    std::string id;               // "1/0", as logs print it
    int64_t ops = 0;              // constants not counted
    std::vector<std::string> guards;
  };
  struct Break {
    std::string code, place;   // "TSR-G010", "model.cpp:12"
    std::string what, detail;  // "A branch on a tensor", "the truth of bool[]"
    std::string why;
    std::vector<std::string> fixes;
    int64_t paths = 0;  // ways through the function that break here
  };
  std::vector<Graph> graphs;
  std::vector<Break> breaks;
  size_t graph_count() const { return graphs.size(); }
  size_t break_count() const { return breaks.size(); }
  int64_t op_count() const;
  std::string str() const;  // for people
};

namespace detail {
Explanation explanation_of(const std::string& description);
template <class T>
inline constexpr bool is_compiled = false;
template <class S>
inline constexpr bool is_compiled<Compiled<S>> = true;
}  // namespace detail

// What has been compiled of the function so far.
template <class R, class... A>
Explanation explain(const Compiled<R(A...)>& fn) {
  return detail::explanation_of(fn.describe());
}
// What a call with these inputs compiles, from the start: the function is compiled afresh, with the same options, and called.
template <class R, class... A, class... Inputs>
requires(sizeof...(Inputs) > 0) Explanation explain(const Compiled<R(A...)>& fn, Inputs&&... inputs) {
  const Compiled<R(A...)> fresh = fn.afresh();
  fresh(std::forward<Inputs>(inputs)...);
  return detail::explanation_of(fresh.describe());
}
template <class F, class... Inputs>
requires(!detail::is_compiled<std::remove_cvref_t<F>> && !std::is_base_of_v<nn::ModuleBase, std::remove_cvref_t<F>>) Explanation
    explain(F&& fn, Inputs&&... inputs) {
  return explain(compile(std::forward<F>(fn)), std::forward<Inputs>(inputs)...);
}

}  // namespace tessera
