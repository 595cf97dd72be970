// SPDX-License-Identifier: Apache-2.0
// Attributes and sizes of a convolution over one or two dimensions; one spatial dimension is a row of height 1.
#pragma once

#include <cstdint>

#include "strided.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

struct ConvAttributes {
  int64_t stride[2] = {1, 1}, low[2] = {0, 0}, high[2] = {0, 0}, dilation[2] = {1, 1};
  int64_t groups = 1;
  explicit ConvAttributes(const tessera::sdk::Node& n)
      : groups(n.is("conv") || n.is("conv_integer") ? n.attr("groups").as_int() : 1) {
    const auto read = [&](const char* name, int64_t(&to)[2]) {
      const auto v = n.attr(name).as_ints();
      for (size_t i = 0; i < v.size() && i < 2; ++i) to[2 - v.size() + i] = v[i];
    };
    read("strides", stride), read("pad_low", low), read("pad_high", high), read("dilations", dilation);
  }
};

struct ConvShape {
  ConvAttributes a;
  int64_t images, channels, in[2], outputs, out[2], kernel[2];  // channels and outputs of a group
  const float* x = nullptr;
  // Of a launch with these operands.
  ConvShape(const ConvAttributes& attributes, const LaunchSizes& x_sizes, const LaunchSizes& w, const LaunchSizes& y,
            const int64_t* d)
      : a(attributes), images(x_sizes.at(0, d)), in{1, 0}, out{1, 0}, kernel{1, 0} {
    const int rank = static_cast<int>(x_sizes.dims.size());
    channels = x_sizes.at(1, d) / a.groups;
    outputs = w.at(0, d) / a.groups;
    in[1] = x_sizes.at(rank - 1, d), out[1] = y.at(rank - 1, d), kernel[1] = w.at(rank - 1, d);
    if (rank == 4) in[0] = x_sizes.at(2, d), out[0] = y.at(2, d), kernel[0] = w.at(2, d);
  }
  // Of a window that moves over each channel.
  ConvShape(const ConvAttributes& attributes, const int64_t (&window)[2], const LaunchSizes& x_sizes, const LaunchSizes& y,
            const int64_t* d)
      : a(attributes),
        images(x_sizes.at(0, d)),
        channels(x_sizes.at(1, d)),
        in{1, 0},
        outputs(1),
        out{1, 0},
        kernel{window[0], window[1]} {
    const int rank = static_cast<int>(x_sizes.dims.size());
    in[1] = x_sizes.at(rank - 1, d), out[1] = y.at(rank - 1, d);
    if (rank == 4) in[0] = x_sizes.at(2, d), out[0] = y.at(2, d);
  }
  int64_t batches() const { return images * a.groups; }
  int64_t depth() const { return channels * kernel[0] * kernel[1]; }
  int64_t positions() const { return out[0] * out[1]; }
  // A tap of one element that walks every position: rows follow each other.
  bool is_flat() const {
    return kernel[0] == 1 && kernel[1] == 1 && in[0] == out[0] && in[1] == out[1] && a.stride[0] == 1 && a.stride[1] == 1 &&
           a.low[0] == 0 && a.low[1] == 0;
  }
  void flatten() {
    if (!is_flat()) return;
    in[1] *= in[0], out[1] *= out[0];
    in[0] = out[0] = 1;
  }
};

}  // namespace cpu
