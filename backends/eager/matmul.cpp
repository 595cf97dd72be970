// SPDX-License-Identifier: Apache-2.0
// The factories: from the dims of an op to a Contraction.
#include "matmul.hpp"

#include <algorithm>

namespace eager {
namespace {

int64_t stride_at(const View& v, int d) { return v.sizes[d] == 1 ? 0 : v.strides[d]; }

void push_batch(Contraction& c, int64_t size, int64_t sa, int64_t sb) {
  const int64_t step[2] = {sa, sb};
  c.batch.push(size, step);
}
void push_k(Contraction& c, int64_t size, int64_t sa, int64_t sb) {
  const int64_t step[2] = {sa, sb};
  c.k.push(size, step);
}

}  // namespace

KernelPtr make_dot_general(const Build& b, int) {
  const auto lb = b.axes("lhs_batch", b.rank(0)), rb = b.axes("rhs_batch", b.rank(1));
  const auto lc = b.axes("lhs_contract", b.rank(0)), rc = b.axes("rhs_contract", b.rank(1));
  return make_kernel(b, [=, isa = b.isa](const tsr_launch& l) {
    Contraction c;
    c.a = View(l.inputs[0]), c.b = View(l.inputs[1]);
    c.out = l.outputs[0].data, c.out_dtype = l.outputs[0].dtype;
    for (size_t i = 0; i < lb.size(); ++i) push_batch(c, c.a.sizes[lb[i]], c.a.strides[lb[i]], c.b.strides[rb[i]]);
    for (size_t i = 0; i < lc.size(); ++i) push_k(c, c.a.sizes[lc[i]], c.a.strides[lc[i]], c.b.strides[rc[i]]);
    const auto is_free = [](const std::vector<int>& x, const std::vector<int>& y, int d) {
      return std::find(x.begin(), x.end(), d) == x.end() && std::find(y.begin(), y.end(), d) == y.end();
    };
    for (int d = 0; d < c.a.rank(); ++d)
      if (is_free(lb, lc, d)) c.m.push(c.a.sizes[d], &c.a.strides[d]);
    for (int d = 0; d < c.b.rank(); ++d)
      if (is_free(rb, rc, d)) c.n.push(c.b.sizes[d], &c.b.strides[d]);
    contract(*isa, c);
  });
}

KernelPtr make_matmul(const Build& b, int) {
  return make_kernel(b, [isa = b.isa](const tsr_launch& l) {
    Contraction c;
    c.a = View(l.inputs[0]), c.b = View(l.inputs[1]);
    c.out = l.outputs[0].data, c.out_dtype = l.outputs[0].dtype;
    const int ra = c.a.rank(), rb = c.b.rank();
    const int ka = ra - 1, kb = rb == 1 ? 0 : rb - 2;
    push_k(c, c.a.sizes[ka], c.a.strides[ka], c.b.strides[kb]);
    if (rb > 1) c.n.push(c.b.sizes[rb - 1], &c.b.strides[rb - 1]);
    const int batch_a = std::max(0, ra - 2), batch_b = std::max(0, rb - 2), batch = std::max(batch_a, batch_b);
    // A plain matrix on the right: the batch of the left is more rows.
    const bool rows = batch_b == 0 && ra > 1;
    for (int i = 0; i < batch; ++i) {
      const int da = i - (batch - batch_a), db = i - (batch - batch_b);
      const int64_t na = da < 0 ? 1 : c.a.sizes[da], nb = db < 0 ? 1 : c.b.sizes[db];
      const int64_t sa = da < 0 ? 0 : stride_at(c.a, da), sb = db < 0 ? 0 : stride_at(c.b, db);
      if (rows)
        c.m.push(na, &sa);
      else
        push_batch(c, na == 1 ? nb : na, sa, sb);
    }
    if (ra > 1) c.m.push(c.a.sizes[ra - 2], &c.a.strides[ra - 2]);
    contract(*isa, c);
  });
}

KernelPtr make_linear(const Build& b, int) {
  return make_kernel(b, [isa = b.isa](const tsr_launch& l) {
    Contraction c;
    c.a = View(l.inputs[0]), c.b = View(l.inputs[1]);
    c.out = l.outputs[0].data, c.out_dtype = l.outputs[0].dtype;
    const int last = c.a.rank() - 1;
    push_k(c, c.a.sizes[last], c.a.strides[last], c.b.strides[1]);
    for (int d = 0; d < last; ++d) c.m.push(c.a.sizes[d], &c.a.strides[d]);
    c.n.push(c.b.sizes[0], &c.b.strides[0]);
    View bias;
    if (l.num_inputs > 2 && !absent(l.inputs[2])) {
      bias = View(l.inputs[2]);
      c.bias = &bias;
    }
    contract(*isa, c);
  });
}

}  // namespace eager
