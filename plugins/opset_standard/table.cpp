// SPDX-License-Identifier: Apache-2.0
// The C side of the callbacks: one set of thunks for all ops, `self` is the op's entry.
#include "table.hpp"

#include <algorithm>

#include "build.hpp"
#include "cost.hpp"
#include "infer.hpp"
#include "tessera/plugin.hpp"
#include "view.hpp"

namespace tessera::opset {

const std::vector<tsr_op_impl>& Table::impls() {
  if (!impls_.empty()) return impls_;
  for (auto& [op, e] : entries_) {
    tsr_op_impl i{};
    i.op = op.data();
    i.self = &e;
    if (e.infer)
      i.infer = [](void* self, const tsr_call* call, tsr_type* results, uint32_t capacity, uint32_t* n) noexcept {
        return sdk::guarded([&] {
          Infer in(*call, results, capacity);
          static_cast<Entry*>(self)->infer(in);
          *n = in.num_results();
        });
      };
    if (e.view)
      i.view = [](void* self, const tsr_call* call, const tsr_tensor* in, tsr_tensor* out, int64_t* strides) noexcept {
        try {
          return static_cast<int>(static_cast<Entry*>(self)->view(ViewQuery{*call, *in, *out, strides}));
        } catch (...) {
          return 0;  // a copy is always right
        }
      };
    if (e.decompose)
      i.decompose = [](void* self, tsr_graph* g, tsr_id node, tsr_id* replacements) noexcept {
        return sdk::guarded([&] {
          Build b = Build::before(g, node);
          static_cast<Entry*>(self)->decompose(b);
          for (uint32_t k = 0; k < b.node().num_results(); ++k) replacements[k] = b.replacement(k);
        });
      };
    if (e.grad)
      i.grad = [](void* self, tsr_graph* g, tsr_id node, const tsr_id* results, tsr_id* operands) noexcept {
        return sdk::guarded([&] {
          GradBuild b(g, node, results);
          std::fill_n(operands, b.node().num_operands(), TSR_NONE);
          if (!b.any()) return;
          static_cast<Entry*>(self)->grad(b);
          for (uint32_t k = 0; k < b.node().num_operands(); ++k) operands[k] = b.operand_grad(k);
        });
      };
    if (e.cost)
      i.cost = [](void* self, const tsr_call* call, tsr_cost* out) noexcept {
        return sdk::guarded([&] {
          CostQuery q(*call);
          static_cast<Entry*>(self)->cost(q);
          out->flops = q.flops;
          out->bytes_read = q.bytes_read;
          out->bytes_written = q.bytes_written;
        });
      };
    impls_.push_back(i);
  }
  return impls_;
}

}  // namespace tessera::opset
