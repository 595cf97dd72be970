// SPDX-License-Identifier: Apache-2.0
// Convolution and its transpose as products of blocks: rows are output channels, columns output positions, and the sum runs
// over (input channel, tap). The matrix of input values is built block by block on the stack, never whole.
#include "conv.hpp"

#include <algorithm>
#include <cstring>

#include "block_product.hpp"
#include "onednn.hpp"

namespace eager {

ConvShape::ConvShape(const tsr_launch& l, const ConvAttrs& a) : attrs(a), x(l.inputs[0]), w(l.inputs[1]) {
  const View out(l.outputs[0]);
  batch = x.sizes[0];
  groups = a.groups;
  in_channels = x.sizes[1] / groups;
  out_channels = out.sizes[1] / groups;
  in = spatial(x.sizes);
  this->out = spatial(out.sizes);
  kernel = spatial(w.sizes);
  taps = kernel.v[0] * kernel.v[1] * kernel.v[2];
  positions = this->out.v[0] * this->out.v[1] * this->out.v[2];
  const int rank = x.rank();
  for (int d = 0; d < 3; ++d) {
    const int axis = d - 3 + rank;
    x_step[d] = axis < 2 ? 0 : x.strides[axis];
    w_step[d] = axis < 2 ? 0 : w.strides[axis];
  }
}

namespace {

// Values of input channel c at the input positions of tap (t0, t1, t2), for output positions [first, first + n).
template <class T>
void input_row(const Isa& isa, const ConvShape& s, int64_t channel_at, const int64_t (&tap)[3], int64_t first, int64_t n,
               T* row) {
  const ConvAttrs& a = s.attrs;
  const int64_t width = s.out.v[2];
  for (int64_t done = 0; done < n;) {
    const int64_t o = first + done, column = o % width, m = std::min(n - done, width - column);
    const int64_t o1 = o / width % s.out.v[1], o0 = o / width / s.out.v[1];
    T* dst = row + done;
    done += m;
    const int64_t i0 = o0 * a.strides.v[0] - a.low.v[0] + tap[0] * a.dilation.v[0];
    const int64_t i1 = o1 * a.strides.v[1] - a.low.v[1] + tap[1] * a.dilation.v[1];
    if (i0 < 0 || i0 >= s.in.v[0] || i1 < 0 || i1 >= s.in.v[1]) {
      std::fill_n(dst, m, T{});
      continue;
    }
    // Columns j whose input position start + j * stride lies inside.
    const int64_t stride = a.strides.v[2], start = column * stride - a.low.v[2] + tap[2] * a.dilation.v[2];
    const int64_t lo = std::clamp<int64_t>(start >= 0 ? 0 : (-start + stride - 1) / stride, 0, m);
    const int64_t hi = std::clamp<int64_t>(start >= s.in.v[2] ? 0 : (s.in.v[2] - start + stride - 1) / stride, lo, m);
    std::fill_n(dst, lo, T{});
    if (hi > lo)
      load_as_type(isa, s.x.dtype, s.x.data,
                   channel_at + i0 * s.x_step[0] + i1 * s.x_step[1] + (start + lo * stride) * s.x_step[2], stride * s.x_step[2],
                   hi - lo, dst + lo, 1);
    std::fill_n(dst + hi, m - hi, T{});
  }
}

// The same for the transpose: the input position that reaches o through the tap, where there is one.
template <class T>
void input_row_transposed(const Isa& isa, const ConvShape& s, int64_t channel_at, const int64_t (&tap)[3], int64_t first,
                          int64_t n, T* row) {
  const ConvAttrs& a = s.attrs;
  for (int64_t j = 0; j < n; ++j) {
    int64_t o = first + j, index[3];
    bool inside = true;
    for (int d = 2; d >= 0; --d) {
      const int64_t p = o % s.out.v[d] + a.low.v[d] - tap[d] * a.dilation.v[d];
      o /= s.out.v[d];
      inside = inside && p >= 0 && p % a.strides.v[d] == 0 && p / a.strides.v[d] < s.in.v[d];
      index[d] = p / a.strides.v[d];
    }
    if (!inside) {
      row[j] = T{};
      continue;
    }
    load_as_type(isa, s.x.dtype, s.x.data,
                 channel_at + index[0] * s.x_step[0] + index[1] * s.x_step[1] + index[2] * s.x_step[2], 1, 1, row + j, 1);
  }
}

template <class T>
void conv_block(const Isa& isa, const ConvShape& s, const tsr_launch& l, bool transposed, int64_t sample, int64_t group,
                int64_t o0, int64_t m, int64_t p0, int64_t n) {
  alignas(64) T a[kBlockM * kBlockK], b[kBlockK * kBlockN], c[kBlockM * kBlockN];
  const int64_t channels = s.in_channels, total_k = channels * s.taps;
  for (int64_t i = 0; i < m; ++i) {
    T bias{};
    if (l.num_inputs > 2 && !absent(l.inputs[2])) {
      const View v(l.inputs[2]);
      load_as_type(isa, v.dtype, v.data, (group * s.out_channels + o0 + i) * v.strides[0], 1, 1, &bias, 1);
    }
    std::fill_n(c + i * kBlockN, n, bias);
  }
  for (int64_t k0 = 0; k0 < total_k; k0 += kBlockK) {
    const int64_t k = std::min(kBlockK, total_k - k0);
    for (int64_t q = 0; q < k; ++q) {
      const int64_t channel = (k0 + q) / s.taps;
      int64_t rest = (k0 + q) % s.taps, tap[3];
      for (int d = 2; d >= 0; --d) {
        tap[d] = rest % s.kernel.v[d];
        rest /= s.kernel.v[d];
      }
      const int64_t channel_at = s.x.offset + sample * s.x.strides[0] + (group * channels + channel) * s.x.strides[1];
      if (transposed)
        input_row_transposed(isa, s, channel_at, tap, p0, n, b + q * kBlockN);
      else
        input_row(isa, s, channel_at, tap, p0, n, b + q * kBlockN);
      // Weights: [O, C / groups, ..], for the transpose [C, O / groups, ..].
      const int64_t tap_at = tap[0] * s.w_step[0] + tap[1] * s.w_step[1] + tap[2] * s.w_step[2];
      const int64_t at = transposed ? (group * channels + channel) * s.w.strides[0] + o0 * s.w.strides[1]
                                    : (group * s.out_channels + o0) * s.w.strides[0] + channel * s.w.strides[1];
      load_as_type(isa, s.w.dtype, s.w.data, s.w.offset + at + tap_at, transposed ? s.w.strides[1] : s.w.strides[0], m, a + q,
                   kBlockK);
    }
    multiply_block(isa, a, b, c, m, n, k);
  }
  for (int64_t i = 0; i < m; ++i) {
    const int64_t channel = (sample * s.groups + group) * s.out_channels + o0 + i;
    store_as_type(isa, l.outputs[0].dtype, l.outputs[0].data, channel * s.positions + p0, n, c + i * kBlockN);
  }
}

}  // namespace

void run_conv(const Isa& isa, const ConvAttrs& attrs, bool transposed, const tsr_launch& l) {
  const ConvShape s(l, attrs);
  const auto pieces = [](int64_t size, int64_t piece) { return (size + piece - 1) / piece; };
  const int64_t mb = pieces(s.out_channels, kBlockM), nb = pieces(s.positions, kBlockN);
  const int64_t tasks = s.batch * s.groups * mb * nb;
  if (tasks == 0) return;
  const double flops = 2.0 * static_cast<double>(std::min(s.out_channels, kBlockM)) *
                       static_cast<double>(std::min(s.positions, kBlockN)) * static_cast<double>(s.in_channels * s.taps + 8);
  const int64_t grain =
      tessera::is_packed(l.outputs[0].dtype) ? tasks : std::max<int64_t>(1, static_cast<int64_t>(5e5 / flops));
  sdk::parallel(tasks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t p0 = t % nb * kBlockN, o0 = t / nb % mb * kBlockM, group = t / nb / mb % s.groups,
                    sample = t / nb / mb / s.groups;
      with_accumulator(comp_of(l.outputs[0].dtype), [&](auto zero) {
        conv_block<decltype(zero)>(isa, s, l, transposed, sample, group, o0, std::min(kBlockM, s.out_channels - o0), p0,
                                   std::min(kBlockN, s.positions - p0));
      });
    }
  });
}

namespace {

ConvAttrs attrs_of(const Build& b) {
  ConvAttrs a;
  a.strides = spatial(b.integers("strides"), 1);
  a.low = spatial(b.integers("pad_low"), 0);
  a.high = spatial(b.integers("pad_high"), 0);
  a.dilation = spatial(b.integers("dilations"), 1);
  a.groups = b.integer("groups");
  return a;
}

}  // namespace

namespace {

// The convolution as oneDNN would do it, or null: another dtype, or a shape that it has no fast code for.
const DnnConv* find_dnn(const Isa& isa, int threads, const ConvAttrs& a, bool transposed, uint32_t dtype, bool bias,
                        const Dims& x, const Dims& w, const Dims& y) {
  if (!isa.onednn || (dtype != TSR_F32 && dtype != TSR_BF16)) return nullptr;
  DnnConvKey key;
  std::memset(static_cast<void*>(&key), 0, sizeof key);
  key.dtype = dtype;
  key.transposed = transposed, key.bias = bias;
  key.threads = threads;
  key.rank = x.rank;
  key.groups = a.groups;
  for (int i = 0; i < x.rank; ++i) key.x[i] = x[i], key.w[i] = w[i], key.y[i] = y[i];
  key.strides = a.strides, key.low = a.low, key.high = a.high, key.dilation = a.dilation;
  // oneDNN wants the far padding that fits the sizes exactly: what the last window does not reach is cut off (negative), what
  // output_pad adds is cut from the transpose's padding.
  for (int i = 2; i < x.rank; ++i) {
    const int d = i + 3 - x.rank;
    const int64_t extent = (w[i] - 1) * a.dilation.v[d] + 1;
    key.high.v[d] = transposed ? (x[i] - 1) * a.strides.v[d] + extent - y[i] - a.low.v[d]
                               : (y[i] - 1) * a.strides.v[d] + extent - x[i] - a.low.v[d];
  }
  return dnn_conv(key);
}

KernelPtr conv_kernel(const Build& b, bool transposed) {
  const ConvAttrs a = attrs_of(b);
  const bool bias = b.has(2);
  const uint32_t dtype = b.operand(0).dtype();
  // Fixed here: the workspace and the launch must find the same primitive.
  const int threads = static_cast<int>(host_threads());
  return make_kernel(
      b,
      [a, threads, transposed, bias, isa = b.isa](const tsr_launch& l) {
        const View x(l.inputs[0]), w(l.inputs[1]);
        if (const DnnConv* c = find_dnn(*isa, threads, a, transposed, x.dtype, bias, x.sizes, w.sizes,
                                        Dims(l.outputs[0].sizes, l.outputs[0].rank)))
          if (dnn_run(*c, x, w, bias ? &l.inputs[2] : nullptr, l.outputs[0], l.workspace)) return;
        run_conv(*isa, a, transposed, l);
      },
      [a, threads, transposed, bias, dtype, isa = b.isa, x = b.shape(b.operand(0)), w = b.shape(b.operand(1)),
       y = b.shape(b.result())](const int64_t* dims) -> int64_t {
        const DnnConv* c = find_dnn(*isa, threads, a, transposed, dtype, bias, x.get(dims), w.get(dims), y.get(dims));
        return c ? dnn_workspace(*c) : 0;
      });
}

}  // namespace

KernelPtr make_conv(const Build& b, int) { return conv_kernel(b, false); }
KernelPtr make_conv_transpose(const Build& b, int) { return conv_kernel(b, true); }

}  // namespace eager
