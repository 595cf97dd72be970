// SPDX-License-Identifier: Apache-2.0
// Convolutions through cuDNN's graph API.
#pragma once

#include "dnn_plan.hpp"

namespace tessera::cuda {

// A convolution of two spatial dimensions with what follows it: relu(conv(x, w) + bias + residual), each of these three or not.
// Two with equal fields get the same algorithm.
struct ConvProblem {
  int64_t images = 1, channels = 1, height = 1, width = 1, features = 1, taps[2] = {1, 1};
  int64_t stride[2] = {1, 1}, pad_low[2] = {0, 0}, pad_high[2] = {0, 0}, dilation[2] = {1, 1}, groups = 1;
  int type = kDnnF32;
  bool channels_last = false;  // x, y and the residual: [N, H, W, C]; w: [O, H, W, C]. Else [N, C, H, W] and [O, C, H, W]
  bool bias = false, residual = false, relu = false;
  bool tf32 = false;  // f32 on the matrix units
  auto operator<=>(const ConvProblem&) const = default;
  int64_t out(int dim) const {
    const int64_t in = dim == 0 ? height : width;
    return (in + pad_low[dim] + pad_high[dim] - dilation[dim] * (taps[dim] - 1) - 1) / stride[dim] + 1;
  }
};
std::string to_text(const ConvProblem& p);  // "8 x 64 x 56 x 56 by 64 of 3 x 3, bf16, bias, relu"

// How one problem is computed on one device. Immutable.
class ConvPlan : public DnnPlan {
 public:
  // `choice`, `measure`: see DnnPlan. Throws TSR-R031 where the library has no algorithm.
  ConvPlan(Dnn& dnn, Gpu& gpu, const ConvProblem& problem, const std::string& choice, bool measure);
  static std::string subject(const ConvProblem& p) { return "a convolution " + to_text(p); }
  static std::string record_of(const Gpu& gpu, const std::string& version, const ConvProblem& problem);  // see Algorithms
  // `bias`, `residual`: null where the problem has none.
  void launch(const void* x, const void* w, const void* bias, const void* residual, void* y, void* workspace,
              CUstream stream) const;

 private:
  DnnGraph::Shape shape(const int64_t* sizes) const;
  void describe(DnnGraph& graph) const;
  double seconds_of_run() const;  // measured

  ConvProblem p_;
};

}  // namespace tessera::cuda
