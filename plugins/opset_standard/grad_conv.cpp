// SPDX-License-Identifier: Apache-2.0
// Gradients of conv and conv_transpose. With respect to the input each is the other; with respect to the weight both are a
// convolution whose kernel is the gradient, with batch and channels exchanged and strides and dilations exchanged
// (Dumoulin & Visin 2016, "A guide to convolution arithmetic for deep learning").
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

struct ConvAttrs {
  explicit ConvAttrs(Build& b)
      : strides(b.ints("strides")),
        low(b.ints("pad_low")),
        high(b.ints("pad_high")),
        dilations(b.ints("dilations")),
        groups(b.integer("groups")) {}
  Ints strides, low, high, dilations;
  int64_t groups;
};

Var conv(const Var& x, const Var& weight, const ConvAttrs& a) {
  return x.builder().op(
      "conv", {x, weight, Var()},
      {sdk::attr_ints("strides", a.strides), sdk::attr_ints("pad_low", a.low), sdk::attr_ints("pad_high", a.high),
       sdk::attr_ints("dilations", a.dilations), sdk::attr_int("groups", a.groups)});
}

// Spatial dimensions padded by low (maybe negative) and as much as gives `sizes`.
Var fit(Build& b, const Var& v, const DimVector& low_given, const DimVector& sizes) {
  DimVector low(2, 0), high(2, 0);
  bool same = true;
  for (size_t i = 0; i < low_given.size(); ++i) {
    const tsr_dim have = v.size(2 + static_cast<int64_t>(i));
    low.push_back(low_given[i]);
    high.push_back(b.dims.sub(b.dims.sub(sizes[2 + i], have), low_given[i]));
    same = same && low.back() == 0 && high.back() == 0;
  }
  return same ? v : v.call("pad", Var(), {sdk::attr_dims("low", low), sdk::attr_dims("high", high)});
}

// The transposed convolution without padding covers every place that the windows read; cutting and padding it to the input
// works for any strides, also with symbolic sizes.
Var conv_input_grad(Build& b, const Var& g, const Var& weight, const ConvAttrs& a, const DimVector& input) {
  const Ints zero(a.strides.size(), 0);
  const Var full =
      b.op("conv_transpose", {g, weight, Var()},
           {sdk::attr_ints("strides", a.strides), sdk::attr_ints("pad_low", zero), sdk::attr_ints("pad_high", zero),
            sdk::attr_ints("output_pad", zero), sdk::attr_ints("dilations", a.dilations), sdk::attr_int("groups", a.groups)});
  DimVector low;
  for (int64_t p : a.low) low.push_back(-p);
  return fit(b, full, low, input);
}

// [N, G*C, *S] -> [C, G*N, *S]: channels of a group become the batch, the batch becomes channels of its group.
Var channels_as_batch(Build& b, const Var& v, int64_t groups) {
  const DimVector s = v.sizes();
  const auto spatial = static_cast<int64_t>(s.size()) - 2;
  DimVector apart = {s[0], groups, b.dims.floordiv(s[1], groups)}, joined = {apart[2], b.dims.mul(groups, s[0])};
  apart.insert(apart.end(), s.begin() + 2, s.end());
  joined.insert(joined.end(), s.begin() + 2, s.end());
  Ints perm = {2, 1, 0};
  for (int64_t i = 0; i < spatial; ++i) perm.push_back(3 + i);
  return v.reshape(apart).transpose(perm).reshape(joined);
}

Var swap_batch_and_channels(const Var& v) {
  Ints perm = iota_ints(0, v.rank());
  std::swap(perm[0], perm[1]);
  return v.transpose(perm);
}

// Gradient of a weight [O, C/groups, k]: `input` [N, C, ..] is what windows were read from, `windows` [N, O, ..] has one
// element per window.
Var weight_grad(Build& b, const Var& input, const Var& windows, const ConvAttrs& a, const DimVector& weight) {
  ConvAttrs exchanged = a;
  std::swap(exchanged.strides, exchanged.dilations);
  Var d = conv(channels_as_batch(b, input, a.groups), swap_batch_and_channels(windows), exchanged);
  // Elements of the input behind the last window lengthen the result beyond the kernel.
  for (size_t i = 0; i < a.strides.size(); ++i) d = d.slice(2 + static_cast<int64_t>(i), 0, weight[2 + i]);
  return swap_batch_and_channels(d);
}

Ints all_but_channels(const Var& g) {
  Ints axes = iota_ints(0, g.rank());
  axes.erase(axes.begin() + 1);
  return axes;
}

void conv_grad(GradBuild& b) {
  const Var x = b.operand(0), weight = b.operand(1), g = b.grad();
  const ConvAttrs a(b);
  b.set(0, conv_input_grad(b, g, weight.conj(), a, x.sizes()));
  b.set(1, weight_grad(b, x.conj(), g, a, weight.sizes()));
  if (b.has(2)) b.set(2, g.sum(all_but_channels(g), false));
}

void conv_transpose_grad(GradBuild& b) {
  const Var x = b.operand(0), weight = b.operand(1), g = b.grad();
  const ConvAttrs a(b);
  Var dx = conv(g, weight.conj(), a);
  // An output_pad of a stride or more adds windows that no input element made.
  for (size_t i = 0; i < a.strides.size(); ++i) {
    const auto axis = 2 + static_cast<int64_t>(i);
    dx = dx.slice(axis, 0, x.size(axis));
  }
  b.set(0, dx);
  b.set(1, weight_grad(b, g, x.conj(), a, weight.sizes()));
  if (b.has(2)) b.set(2, g.sum(all_but_channels(g), false));
}

}  // namespace

void add_grad_conv(Table& t) {
  t.grad("conv", conv_grad);
  t.grad("conv_transpose", conv_transpose_grad);
}

}  // namespace tessera::opset
