// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient through cuDNN's graph API.
#pragma once

#include "dnn_plan.hpp"

namespace tessera::cuda {

// y = softmax(q k^T * scale + mask) v with the logarithms of the sums of its exponentials, or the gradients of q, k and v from
// these and the gradient dy of y.
// Two with equal fields get the same algorithm.
struct AttentionProblem {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, depth = 1, width = 1;
  int type = kDnnBf16;
  float scale = 1;
  bool causal = false;
  bool lse = false;  // the logarithms are written
  bool backward = false;
  bool any_order = false;                   // of backward: partial sums may be added in any order
  int64_t mask[4] = {0, 0, 0, 0};           // sizes of what is added to scores, dense, each that of the scores or 1; 0: no mask
  int64_t q[3] = {}, k[3] = {}, v[3] = {};  // strides of batch, heads and rows in elements; rows are dense
  int64_t y[3] = {};                        // of y, or in backward of dy
  int64_t o[3] = {};                        // of y in backward; the gradients of q, k and v are dense
  auto operator<=>(const AttentionProblem&) const = default;
  bool masked() const { return mask[3] != 0; }
};
std::string to_text(const AttentionProblem& p);  // "4 x 32 heads (8 of keys) of 1024 x 1024 by 64, bf16, causal"

// How one problem is computed on one device. Immutable.
class AttentionPlan : public DnnPlan {
 public:
  // `choice`, `measure`: see DnnPlan. Throws TSR-R031 where the library has no algorithm.
  AttentionPlan(Dnn& dnn, Gpu& gpu, const AttentionProblem& problem, const std::string& choice, bool measure);
  static std::string subject(const AttentionProblem& p) { return "attention " + to_text(p); }
  static std::string record_of(const Gpu& gpu, const std::string& version, const AttentionProblem& problem);  // see Algorithms
  struct Tensors {  // null: the problem has none
    const void *q = nullptr, *k = nullptr, *v = nullptr, *mask = nullptr;
    void *y = nullptr, *lse = nullptr;  // lse: read by backward
    const void* dy = nullptr;           // of backward
    void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  };
  size_t workspace_bytes() const { return deltas_bytes() + sums_bytes() + DnnPlan::workspace_bytes(); }
  void launch(const Tensors& tensors, void* workspace, CUstream stream) const;

 private:
  void describe_forward(DnnGraph& graph) const;
  void describe_backward(DnnGraph& graph) const;
  DnnGraph::Node modify(DnnGraph& graph, DnnGraph::Node products) const;  // scale and mask
  DnnGraph::Node hide(DnnGraph& graph, DnnGraph::Node scores) const;      // from causal queries what they do not see
  // What backward keeps in memory, in front of the library's own workspace: for each query the sum over dy * y, and the
  // gradient of the queries where it is summed up in f32.
  size_t deltas_bytes() const;
  size_t sums_bytes() const;
  double seconds_of_run() const;  // measured

  AttentionProblem p_;
};

}  // namespace tessera::cuda
