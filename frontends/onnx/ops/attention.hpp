// SPDX-License-Identifier: Apache-2.0
// Parts of attention that several operators share. Heads: [batch, heads, sequence, size].
#pragma once

#include "../op.hpp"

namespace tessera::onnx {

V split_heads(Build& b, const V& v, int64_t heads);   // from [batch, sequence, heads * size]
V merge_heads(Build& b, const V& v);                  // back to it
V repeat_heads(Build& b, const V& v, tsr_dim heads);  // each key head for as many consecutive query heads
// softmax(q k^T * scale + mask) v; scale 0 stands for 1 / sqrt(size).
V whole_attention(Build& b, const V& q, const V& k, const V& v, const V& mask, double scale, bool causal);
// The last dimension rotated in pairs: neighbours (interleaved), or the first half with the second.
V rotate(Build& b, const V& x, const V& cos, const V& sin, bool interleaved);

}  // namespace tessera::onnx
