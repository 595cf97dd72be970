// SPDX-License-Identifier: Apache-2.0
// Convolutions of 3 x 3 taps, stride 1, by minimal filtering (winograd/tables.hpp): filters are transformed when they are
// packed; then blocks of 2 x 2 or 4 x 4 results are the rows of 16 or 36 matrix products whose columns are output channels.
#pragma once

#include <cstdint>

#include "conv_shape.hpp"
#include "gemm/gemm.hpp"
#include "winograd/tables.hpp"

namespace cpu {

// The blocks' size, 2 or 4 and at most `most`, with which minimal filtering takes the fewest cycles; 0 where the product of all
// taps, which takes `direct` (see conv_positions.cpp), takes fewer. `out`: sizes of a result; `packed`: the filters are
// transformed beforehand, not by each run.
int winograd_size(const GemmIsa& isa, int most, int64_t images, int64_t channels, int64_t outputs, const int64_t (&out)[2],
                  double direct, bool packed);

// Filters [outputs][channels][3][3] as winograd_run reads them for blocks of that size.
int64_t winograd_packed_bytes(const GemmIsa& isa, int size, int64_t outputs, int64_t channels);
void winograd_pack(const GemmIsa& isa, int size, const float* filters, int64_t outputs, int64_t channels, char* to);

// The same form for blocks of 2 x 2, in f32, for one run: winograd_pack() rounds once.
void winograd_transform(const GemmIsa& isa, const WinogradIsa& kernels, const float* filters, int64_t outputs, int64_t channels,
                        char* to);

struct WinogradConv {
  const GemmIsa* isa;
  const WinogradIsa* kernels;
  const ConvShape* shape;  // with x
  const char* packed;
  const float* bias;  // [outputs], or null
  float* y;           // dense
  const FinishStep* steps;
  int num_steps;
};
int64_t winograd_workspace(const GemmIsa& isa, const WinogradIsa& kernels, const ConvShape& s, int slots);
// False where some result, before the steps, is not finite: differences of infinite values are NaN in more places than the sums
// themselves, and differences may overflow where sums do not. The caller then computes all of them again, another way. Which
// results there are does not depend on the number of threads. Reentrant; allocates nothing.
bool winograd_run(const WinogradConv& c, void* workspace, int slots);

}  // namespace cpu
