// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters: torch.nn.init. Each replaces the tensor's values; random ones are drawn from `g`, or from
// default_generator(). The fan of a tensor [out, in, kernel...] counts the kernel's elements. Throws TSR-F057 for a tensor that
// has too few dimensions.
#pragma once

#include "tessera/ops.hpp"

namespace tessera::nn::init {

void constant_(Tensor& t, double value);
inline void zeros_(Tensor& t) { constant_(t, 0); }
inline void ones_(Tensor& t) { constant_(t, 1); }
void uniform_(Tensor& t, double low = 0, double high = 1, Generator* g = nullptr);
void normal_(Tensor& t, double mean = 0, double deviation = 1, Generator* g = nullptr);
// Normal, drawn again where it lies outside of [low, high] (by inverting the distribution, so that one draw is enough).
void trunc_normal_(Tensor& t, double mean = 0, double deviation = 1, double low = -2, double high = 2, Generator* g = nullptr);
// Glorot and Bengio 2010: variance gain^2 * 2 / (fan_in + fan_out).
void xavier_uniform_(Tensor& t, double gain = 1, Generator* g = nullptr);
void xavier_normal_(Tensor& t, double gain = 1, Generator* g = nullptr);
// He et al. 2015: variance gain^2 / fan_in; the gain of relu is sqrt(2), and that of a leaky relu depends on its slope.
void kaiming_uniform_(Tensor& t, double slope = 0, Generator* g = nullptr);
void kaiming_normal_(Tensor& t, double slope = 0, Generator* g = nullptr);
// Saxe et al. 2013: rows, or columns where there are fewer of them, are orthonormal, times the gain.
void orthogonal_(Tensor& t, double gain = 1, Generator* g = nullptr);

}  // namespace tessera::nn::init
