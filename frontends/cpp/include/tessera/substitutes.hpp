// SPDX-License-Identifier: Apache-2.0
// The tensors of modules while a function is traced on them: the tracing thread sees traced tensors in their place, and every
// other thread the ones that are there.
#pragma once

#include <cstdint>

namespace tessera {
class Tensor;
namespace nn {
class ModuleBase;
}

namespace detail {

struct Substitutes;
extern constinit thread_local Substitutes* t_substitutes;  // of this thread, the innermost first; null outside of traces

// Where the reference of `t` is kept for this thread: its own place (`own`), or that of its substitute. Host code that runs
// outside of the trace meanwhile (a disabled function) sees the tensor itself. UserError TSR-F046 when it reads one that the
// traced function has assigned, or assigns one.
uintptr_t* substitute_of(const Tensor* t, uintptr_t* own, bool assigns);
// Puts a traced tensor in the place of an argument of the trace.
void give(Tensor& place, const Tensor& traced);

// While one lives, this thread has substitutes for the module's tensors; they begin as what is there.
class SubstituteModule {
 public:
  explicit SubstituteModule(nn::ModuleBase& m);
  ~SubstituteModule();
  SubstituteModule(const SubstituteModule&) = delete;

 private:
  Substitutes* const outer_;
};

}  // namespace detail
}  // namespace tessera
