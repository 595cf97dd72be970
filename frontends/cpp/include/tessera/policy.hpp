// SPDX-License-Identifier: Apache-2.0
// What compiled functions are told beside their arguments: marks on dimensions, the stance, whether gradients are recorded,
// reset.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/compile.hpp"
#include "tessera/tensor.hpp"

namespace tessera {

// Forgets every entry of every compiled function, and what was learned about sizes that vary; frames are numbered from 0 again.
// Functions that run in other threads finish with the entries they have.
void reset();

// How compiled functions treat a dimension of this tensor (of the object itself: views and results have no marks). A call with
// a marked tensor does not use entries that were compiled against the mark.
//   mark_dynamic   a symbol in min..max from the first compile on. UserError TSR-D001 when the function needs its value,
//                  TSR-D002 when the
//                  size is not in the range.
//   mark_static    a number, whatever `dynamic` says
//   mark_unbacked  a symbol that nothing is guarded on, 0 and 1 included: host code that asks for its value is an error
//                  (TSR-G002)
void mark_dynamic(const Tensor& t, int64_t dim, int64_t min = 0, int64_t max = INT64_MAX);
void mark_static(const Tensor& t, int64_t dim);
void mark_unbacked(const Tensor& t, int64_t dim, int64_t min = 0, int64_t max = INT64_MAX);

// How compiled functions behave, all of them and in every thread.
enum class Stance {
  standard,               // use what fits, compile what misses
  force_eager,            // call the functions themselves
  eager_on_recompile,     // use what fits; a call that misses runs the function itself
  fail_on_recompile,      // use what fits; a call that misses is an error (TSR-D010)
  eager_then_compile,     // a function's first call runs it as it is and shows what varies; later ones compile
  aot_eager_then_compile  // the same, with the first call through the passes to the fallback backend
};
Stance stance();
void set_stance(Stance s);
class StanceScope {  // sets it while it lives
 public:
  explicit StanceScope(Stance s) : previous_(stance()) { set_stance(s); }
  ~StanceScope() { set_stance(previous_); }
  StanceScope(const StanceScope&) = delete;

 private:
  Stance previous_;
};

// Filters for CompileOptions::guard_filter_unsafe.
inline bool skip_all_guards_unsafe(const GuardInfo&) { return false; }
inline bool keep_tensor_guards_unsafe(const GuardInfo& g) { return g.kind == GuardInfo::tensor; }
inline bool skip_guards_on_globals_unsafe(const GuardInfo& g) { return g.kind != GuardInfo::global; }
// On what lies below one of these paths: {"self"} stands for self.weight, self.training, and so on.
inline auto skip_guards_under_unsafe(std::vector<std::string> paths) {
  return [paths = std::move(paths)](const GuardInfo& g) {
    for (const std::string& p : paths)
      if (g.path.substr(0, p.size()) == p && (g.path.size() == p.size() || g.path[p.size()] == '.' || g.path[p.size()] == '['))
        return false;
    return true;
  };
}

// Whether this thread records gradients. Compiled code is guarded on it.
bool is_grad_enabled();
class GradMode {  // sets it while it lives
 public:
  explicit GradMode(bool on);
  ~GradMode();
  GradMode(const GradMode&) = delete;

 private:
  bool previous_;
};
struct NoGradGuard : GradMode {
  NoGradGuard() : GradMode(false) {}
};

// Mixed precision while it lives, on this thread: products (matmul, linear, convolutions, attention) take f32 operands as
// `dtype`; softmax, losses and norms take narrower ones as f32; everything else keeps its types. In a traced function the
// conversions are recorded, and calls of a compiled function are guarded on the mode that they are made in. `dtype` is bf16 or
// f16 (TSR-F067).
//
//   auto step = compile([](Model& m, const Tensor& x) { const Autocast bf16_products; return m(x); });
class Autocast {
 public:
  explicit Autocast(DType dtype = bf16, bool on = true);
  ~Autocast();
  Autocast(const Autocast&) = delete;

 private:
  uint32_t previous_;
};

}  // namespace tessera
