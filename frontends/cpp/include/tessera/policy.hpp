// SPDX-License-Identifier: Apache-2.0
// What compiled functions are told beside their arguments: marks on dimensions, whether gradients are recorded, reset.
#pragma once

#include <cstdint>

#include "tessera/tensor.hpp"

namespace tessera {

// Forgets every entry of every compiled function, and what was learned about sizes that vary; frames are numbered from 0 again.
// Functions that run in other threads finish with the entries they have.
void reset();

// How compiled functions treat a dimension of this tensor (of the object itself: views and results have no marks). A call with a marked
// tensor does not use entries that were compiled against the mark.
//   mark_dynamic   a symbol in min..max from the first compile on. UserError TSR-D001 when the function needs its value, TSR-D002 when the
//                  size is not in the range.
//   mark_static    a number, whatever `dynamic` says
//   mark_unbacked  a symbol that nothing is guarded on, 0 and 1 included: host code that asks for its value is an error (TSR-G002)
void mark_dynamic(const Tensor& t, int64_t dim, int64_t min = 0, int64_t max = INT64_MAX);
void mark_static(const Tensor& t, int64_t dim);
void mark_unbacked(const Tensor& t, int64_t dim, int64_t min = 0, int64_t max = INT64_MAX);

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

}  // namespace tessera
