// SPDX-License-Identifier: Apache-2.0
// Windows, Fourier transforms (as a product with the matrix of the transform: there is no fast one) and mel weights.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "../dynamic.hpp"

namespace tessera::onnx {
namespace {

using std::numbers::pi;

// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)
V cosine_window(Op& op, double a0, double a1, double a2) {
  Build& b = op.b;
  const tsr_dtype to = op.has_attr("output_datatype") ? dtype_of(static_cast<DataType>(op.i("output_datatype"))) : TSR_F32;
  op.expect(is_float(to) || is_int(to), "attribute 'output_datatype' is no number type");
  const V n = b.cast(b.reshape(op.in(0), {}), TSR_I64);
  const auto declared = op.declared();
  const V at = b.cast(dynamic_range(b, n, declared && declared->size() == 1 ? (*declared)[0] : -1), TSR_F64);
  V period = b.cast(n, TSR_F64);
  if (!op.flag("periodic", true)) period = period - 1.0;
  const V angle = at * (2 * pi) / period;
  V w = a0 - angle.call("cos") * a1;
  if (a2 != 0) w = w + (angle * 2.0).call("cos") * a2;
  return b.cast(w, to);
}

void hann(Op& op) { op.out(cosine_window(op, 0.5, 0.5, 0)); }
void hamming(Op& op) { op.out(cosine_window(op, 25.0 / 46, 1 - 25.0 / 46, 0)); }
void blackman(Op& op) { op.out(cosine_window(op, 0.42, 0.5, 0.08)); }

// cos or sin of 2 pi j k / n, [rows, columns]; j * k is reduced modulo n first, so that angles stay exact.
V fourier(Build& b, const char* function, tsr_dim rows, tsr_dim columns, tsr_dim n, tsr_dtype t) {
  const V jk = (b.iota({rows, 1}, 0) * b.iota({1, columns}, 1)).call("remainder", b.dim(n));
  return b.cast((b.cast(jk, TSR_F64) * (2 * pi) / b.dim(n, TSR_F64)).call(function), t);
}

// A spectrum of n values of which x holds the first n / 2 + 1: the others are their conjugates in reverse.
V mirrored(Op& op, const V& x, tsr_dim n) {
  Build& b = op.b;
  if (!Build::is_number(n) || !Build::is_number(x.size(-2))) op.unsupported("a symbolic length");
  const int64_t axis = x.rank() - 2, half = n / 2 + 1;
  Dims low(x.sizes().size(), 0), high = low;
  high[static_cast<size_t>(axis)] = half - x.size(-2);
  const V front = b.pad(x, low, high);
  if (n - half <= 0) return b.slice(front, axis, 0, n);
  const V back = b.slice(front, axis, n - half, 0, -1);  // n - half, ... 1
  const std::vector<double> signs = {1, -1};
  return b.concat({front, x.size(-1) == 2 ? back * b.floats(signs, x.dtype(), {2}) : back}, axis);
}

// x [..., length, 1 or 2], real and imaginary parts in the last dimension, transformed along the one before it.
V transform(Op& op, V x, tsr_dim n, bool inverse, bool onesided) {
  Build& b = op.b;
  const int64_t axis = x.rank() - 2;
  const tsr_dtype t = x.dtype();
  op.expect(Build::is_number(x.size(-1)) && (x.size(-1) == 1 || x.size(-1) == 2),
            "the last dimension is neither 1 (real) nor 2 (complex)");
  const bool complex = x.size(-1) == 2;
  if (inverse && onesided) {  // the other half is the mirror image
    const V whole = mirrored(op, x, n);
    return b.slice(transform(op, whole, n, true, false), -1, 0, 1);
  }
  // Cut or filled with zeros to n.
  if (x.size(axis) != n) {
    if (!Build::is_number(n) || !Build::is_number(x.size(axis))) op.unsupported("a length that differs from a symbolic size");
    Dims low(x.sizes().size(), 0), high = low;
    high[static_cast<size_t>(axis)] = n - x.size(axis);
    x = b.pad(x, low, high);
  }
  const tsr_dim out = onesided ? b.add(b.floordiv(n, 2), 1) : n;
  const V c = fourier(b, "cos", n, out, n, t), s = fourier(b, "sin", n, out, n, t);
  const auto part = [&](int64_t i) { return b.squeeze(b.slice(x, -1, i, i + 1), {x.rank() - 1}); };
  const V re = part(0);
  V yr = b.matmul(re, c), yi = b.matmul(re, s);
  if (!inverse) yi = -yi;
  if (complex) {
    const V im = part(1);
    const V a = b.matmul(im, s), z = b.matmul(im, c);
    yr = inverse ? yr - a : yr + a;
    yi = yi + z;
  }
  V y = b.concat({b.expand(yr, {yr.rank()}), b.expand(yi, {yi.rank()})}, yr.rank());
  if (inverse) y = y / b.dim(n, t);
  return y;
}

void dft(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  const bool inverse = op.flag("inverse"), onesided = op.flag("onesided");
  const int64_t axis = op.version < 20 ? op.axis_attr("axis", 1, x.rank()) : op.axis(op.has(2) ? op.number(2) : -2, x.rank());
  op.expect(axis < x.rank() - 1, "the axis is that of the real and imaginary parts");
  Ints perm;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != axis && d != x.rank() - 1) perm.push_back(d);
  perm.push_back(axis);
  perm.push_back(x.rank() - 1);
  Ints back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const tsr_dtype t = x.dtype();
  x = b.cast(b.transpose(x, perm), TSR_F64);  // n products are summed: rounded once, at the end
  tsr_dim n = x.size(-2);
  if (op.has(1))
    n = op.size(1);
  else if (inverse && onesided)
    n = b.mul(b.sub(n, 1), 2);
  op.expect(!Build::is_number(n) || (n > 0 && n < INT32_MAX), "a length of " + std::to_string(n));
  op.out(b.cast(b.transpose(transform(op, x, n, inverse, onesided), back), t));
}

// Frames of the signal, each times the window, each transformed.
void stft(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  const int64_t hop = op.number(1);
  if (x.rank() == 2) x = b.expand(x, {2});
  op.expect(x.rank() == 3 && hop > 0, "expected a signal of rank 3 and a positive frame step");
  tsr_dim length;
  if (op.has(3))
    length = op.size(3);
  else
    length = op.in(2).size(0);
  op.expect(!Build::is_number(length) || (length > 0 && length < INT32_MAX), "frames of " + std::to_string(length));
  const tsr_dim frames = b.add(b.floordiv(b.sub(x.size(1), length), hop), 1);
  const V index = b.iota({frames, 1}, 0) * static_cast<double>(hop) + b.iota({1, length}, 1);
  V framed = b.gather(x, index, 1);  // [batch, frames, length, 1 or 2]
  if (op.has(2)) {
    V w = op.in(2);
    if (w.size(0) != length) {
      if (!Build::is_number(length) || !Build::is_number(w.size(0)))
        op.unsupported("a window of another length than the frames");
      const int64_t missing = length - w.size(0);
      w = b.pad(w, {missing / 2}, {missing - missing / 2});
    }
    framed = framed * b.expand(w, {1});
  }
  op.out(transform(op, framed, length, false, op.flag("onesided", true) && x.size(-1) == 1));
}

// Triangles that are equally spaced on the mel scale, 2595 log10(1 + f / 700).
void mel_weight_matrix(Op& op) {
  const int64_t bins = op.number(0), length = op.number(1), rate = op.number(2);
  const double low = op.reals(3).at(0), high = op.reals(4).at(0);
  const tsr_dtype to = op.has_attr("output_datatype") ? dtype_of(static_cast<DataType>(op.i("output_datatype"))) : TSR_F32;
  op.expect(bins > 0 && length > 0 && rate > 0 && bins < 1 << 16 && length < 1 << 20 && is_float(to),
            "a number of bins, length, rate or type out of range");
  const int64_t rows = length / 2 + 1;
  op.expect(rows * bins <= 1 << 26, "a matrix of " + std::to_string(rows) + " by " + std::to_string(bins));
  const auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
  op.expect(low > -700 && high > -700 && std::isfinite(low) && std::isfinite(high), "a frequency out of range");
  const double step = (mel(high) - mel(low)) / static_cast<double>(bins + 2);
  std::vector<int64_t> edge;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double f = 700 * (std::pow(10, (static_cast<double>(i) * step + mel(low)) / 2595) - 1);
    const double at = std::floor(static_cast<double>(length + 1) * f / static_cast<double>(rate));
    edge.push_back(static_cast<int64_t>(std::clamp(at, -1.0, 2.0 * static_cast<double>(rows))));
  }
  std::vector<double> w(static_cast<size_t>(rows * bins), 0);
  for (int64_t i = 0; i < bins; ++i) {
    const int64_t left = edge[static_cast<size_t>(i)], peak = edge[static_cast<size_t>(i) + 1],
                  right = edge[static_cast<size_t>(i) + 2];
    const auto set = [&](int64_t j, double v) {
      if (j >= 0 && j < rows) w[static_cast<size_t>(j * bins + i)] = v;
    };
    if (peak == left) set(peak, 1);
    for (int64_t j = std::max<int64_t>(left, 0); j <= peak && j < rows && peak > left; ++j)
      set(j, static_cast<double>(j - left) / static_cast<double>(peak - left));
    for (int64_t j = std::max<int64_t>(peak, 0); j < right && j < rows; ++j)
      set(j, static_cast<double>(right - j) / static_cast<double>(right - peak));
  }
  op.out(op.b.floats(w, to, {rows, bins}));
}

}  // namespace

std::span<const Record> signal_records() {
  static constexpr Record records[] = {
      {"", "HannWindow", hann},
      {"", "HammingWindow", hamming},
      {"", "BlackmanWindow", blackman},
      {"", "DFT", dft},
      {"", "STFT", stft},
      {"", "MelWeightMatrix", mel_weight_matrix},
  };
  return records;
}

}  // namespace tessera::onnx
