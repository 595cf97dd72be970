// SPDX-License-Identifier: Apache-2.0
// Products and convolutions through oneDNN, where it was found when this plugin was built. Without it every function here says
// "not mine" and the plugin's own kernels run.
//
// Threads: products are called block by block from the host's threads, each block on one thread, so that the result does not
// depend on their number and no second team of threads runs. Convolutions let oneDNN split the work over as many OpenMP threads
// as the host has; those that it makes of products stay on one, for where it cuts them for several changes sums. Allocation:
// sgemm and the primitives take small buffers from the heap; primitives are made once per shape and kept for the process.
#pragma once

#include "conv.hpp"

namespace eager {

bool have_onednn();

// C = A * B, or C += A * B, on the calling thread; no bias. False: these strides are not supported, nothing was done.
bool dnn_sgemm(const GemmArgs& g);

// bf16 blocks: sums in f32, rounded once to f32 or bf16. Null: not supported.
struct DnnProduct;
struct DnnProductKey {
  int64_t m, n, k, a_m, a_k, b_k, b_n, c_m;
  bool f32_out;
  bool operator==(const DnnProductKey&) const = default;
};
const DnnProduct* dnn_product(const DnnProductKey& key);
void dnn_run(const DnnProduct& p, const void* a, const void* b, void* c);

// f32 and bf16 convolutions. Null: not supported. dnn_run reorders x and weight as it needs them; false: not with these
// strides.
struct DnnConv;
struct DnnConvKey {
  uint32_t dtype;
  bool transposed, bias;
  int threads;
  int rank;
  int64_t groups;
  int64_t x[5], w[5], y[5];
  Spatial strides, low, high, dilation;
  bool operator==(const DnnConvKey&) const = default;
};
const DnnConv* dnn_conv(const DnnConvKey& key);
int64_t dnn_workspace(const DnnConv& c);
bool dnn_run(const DnnConv& c, View x, View w, const tsr_tensor* bias, const tsr_tensor& y, void* workspace);

}  // namespace eager
