// SPDX-License-Identifier: Apache-2.0
#include "norm.hpp"
#include "rows.hpp"

namespace eager {

KernelPtr make_softmax(const Build& b, int log) {
  const int axis = b.axis("axis", b.rank());
  // A 0-d tensor is a row of one element.
  const std::vector<int> axes = b.rank() == 0 ? std::vector<int>{} : std::vector<int>{axis};
  const uint32_t dtype = b.operand(0).dtype();
  return make_overwriting_kernel(
      b,
      [axes, log, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]);
        if (comp_of(x.dtype) == Comp::F64)
          return for_rows(*isa, x, l.outputs[0], axes, l.workspace, [&](int64_t, const void* in, void* y, int64_t n) {
            isa->row_f64.softmax(static_cast<double*>(y), static_cast<const double*>(in), n, log != 0);
          });
        for_rows(*isa, x, l.outputs[0], axes, l.workspace, [&](int64_t, const void* in, void* y, int64_t n) {
          isa->row_f32.softmax(static_cast<float*>(y), static_cast<const float*>(in), n, log != 0);
        });
      },
      [axes, dtype, shape = b.shape(b.operand(0))](const int64_t* dims) {
        return rows_workspace(shape.get(dims), axes, dtype);
      });
}

}  // namespace eager
