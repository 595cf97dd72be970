// SPDX-License-Identifier: Apache-2.0
// Sampling at positions that are data.
#include <algorithm>
#include <cmath>

#include "../op.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_int;

// A coordinate thrown back into [low, high] as often as it takes.
V reflect(Build& b, const V& x, double low, const V& high) {
  const V range = maximum(high - low, b.scalar(1e-30, x.dtype()));
  const V folded = (x - low).call("abs").call("remainder", range * 2.0);
  return minimum(folded, range * 2.0 - folded) + low;
}

// Values of x [N, C, d...] at integer positions, one tensor of positions [N, P] per spatial dimension; 0 outside.
V pixels(Build& b, const V& x, const std::vector<V>& at, tsr_dtype t, bool zeros) {
  const auto spatial = std::span(x.sizes()).subspan(2);
  V index, inside;
  for (size_t d = 0; d < at.size(); ++d) {
    const V n = b.dim(spatial[d], t);
    if (zeros) {
      const V in = both(at[d] >= 0.0, at[d] < n);
      inside = inside ? both(inside, in) : in;
    }
    const V i = b.op("clamp", {at[d], b.scalar(0, t), n - 1.0});
    index = index ? index * b.dim(spatial[d]) + b.cast(i, TSR_I64) : b.cast(i, TSR_I64);
  }
  const tsr_dim N = x.size(0), C = x.size(1), P = index.size(1);
  const V flat = b.reshape(x, {N, C, b.product(spatial)});
  const V value = flat.call("take_along_axis", b.broadcast(b.expand(index, {1}), {N, C, P}), {attr_int("axis", 2)});
  return inside ? select(b.expand(inside, {1}), value, 0.0) : value;
}

void grid_sample(Op& op) {
  Build& b = op.b;
  const V x0 = op.in(0), grid = op.in(1);
  const int64_t r = x0.rank() - 2;
  op.expect(r >= 1 && grid.rank() == x0.rank(), "ranks of input and grid differ");
  if (r > 3) op.unsupported(std::to_string(r) + " spatial dimensions", "at most 3 are known here");
  std::string mode(op.s("mode", op.version < 20 ? "bilinear" : "linear"));
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  const std::string padding(op.s("padding_mode", "zeros"));
  const bool align = op.flag("align_corners");
  op.expect(mode == "linear" || mode == "nearest" || mode == "cubic", "attribute 'mode' is '" + mode + "'");
  const tsr_dtype t = Build::wide(is_float(grid.dtype()) ? grid.dtype() : TSR_F32);
  const V x = b.cast(x0, is_float(x0.dtype()) ? Build::wide(x0.dtype()) : TSR_F64);
  const tsr_dim N = x.size(0), P = b.product(std::span(grid.sizes()).subspan(1, static_cast<size_t>(r)));
  const V flat = b.reshape(b.cast(grid, t), {N, P, r});
  // The last spatial dimension comes first in the grid.
  std::vector<V> at;
  for (int64_t d = 0; d < r; ++d) {
    const V g = b.squeeze(b.slice(flat, 2, r - 1 - d, r - d), {2}), n = b.dim(x.size(d + 2), t);
    V c = align ? (g + 1.0) / 2.0 * (n - 1.0) : ((g + 1.0) * n - 1.0) / 2.0;
    if (mode == "nearest") c = c.call("round");
    if (mode != "cubic" || mode == "nearest") {
      if (padding == "border") c = b.op("clamp", {c, b.scalar(0, t), n - 1.0});
      if (padding == "reflection") c = align ? reflect(b, c, 0, n - 1.0) : reflect(b, c, -0.5, n - 0.5);
      if (mode == "nearest" && padding == "reflection") c = c.call("round");
    }
    at.push_back(c);
  }
  const bool zeros = padding == "zeros";
  const auto tap = [&](const V& c, int64_t d) {  // cubic taps beyond the edge
    const V n = b.dim(x.size(d + 2), t);
    if (padding != "reflection") return c;
    return (align ? reflect(b, c, 0, n - 1.0) : reflect(b, c, -0.5, n - 0.5)).call("round");
  };
  V y;
  if (mode == "nearest") {
    y = pixels(b, x, at, t, zeros);
  } else {
    // Keys 1981 with a = -0.75, or linear: products of weights over all corners.
    const int64_t taps = mode == "cubic" ? 4 : 2;
    std::vector<V> base;
    std::vector<std::vector<V>> weight;
    for (const V& c : at) {
      base.push_back(c.call("floor"));
      const V f = c - base.back();
      std::vector<V> w;
      if (taps == 2) {
        w = {1.0 - f, f};
      } else {
        const double a = -0.75;
        const auto outer = [&](const V& s) { return ((s * a - 5 * a) * s + 8 * a) * s - 4 * a; };
        const auto inner = [&](const V& s) { return (s * (a + 2) - (a + 3)) * s * s + 1.0; };
        w = {outer(f + 1.0), inner(f), inner(1.0 - f), outer(2.0 - f)};
      }
      weight.push_back(std::move(w));
    }
    int64_t corners = 1;
    for (int64_t d = 0; d < r; ++d) corners *= taps;
    for (int64_t corner = 0; corner < corners; ++corner) {
      std::vector<V> position;
      V w;
      for (int64_t d = 0, rest = corner; d < r; ++d, rest /= taps) {
        const auto k = static_cast<size_t>(rest % taps);
        position.push_back(
            tap(base[static_cast<size_t>(d)] + static_cast<double>(static_cast<int64_t>(k) - (taps == 4 ? 1 : 0)), d));
        const V& part = weight[static_cast<size_t>(d)][k];
        w = w ? w * part : part;
      }
      const V value = pixels(b, x, position, t, zeros) * b.cast(b.expand(w, {1}), x.dtype());
      y = y ? y + value : value;
    }
  }
  Dims shape = {N, x.size(1)};
  for (int64_t d = 1; d <= r; ++d) shape.push_back(grid.size(d));
  op.out(b.cast(b.reshape(y, shape), x0.dtype()));
}

void affine_grid(Op& op) {
  Build& b = op.b;
  const V theta = op.in(0);
  const Dims size = op.sizes(1);
  op.expect(size.size() == 4 || size.size() == 5,
            "input 'size' has " + std::to_string(size.size()) + " entries; expected 4 or 5");
  const bool align = op.flag("align_corners");
  const tsr_dtype t = theta.dtype();
  const size_t r = size.size() - 2;
  const Dims spatial(size.begin() + 2, size.end());
  const tsr_dim P = b.product(spatial);
  std::vector<V> rows;  // homogeneous positions [P, r + 1], the last dimension first
  for (size_t d = r; d-- > 0;) {
    Dims shape(r, 1);
    shape[d] = spatial[d];
    const V i = b.iota(shape, static_cast<int64_t>(d), t), n = b.dim(spatial[d], t);
    const V at = align ? i * 2.0 / (n - 1.0) - 1.0 : (i * 2.0 + 1.0) / n - 1.0;
    rows.push_back(b.reshape(b.broadcast(at, spatial), {P, 1}));
  }
  rows.push_back(b.full(1, t, {P, 1}));
  const V y = b.matmul(b.concat(rows, 1), b.transpose(theta, {0, 2, 1}));  // [N, P, r]
  Dims shape = {theta.size(0)};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  shape.push_back(static_cast<int64_t>(r));
  op.out(b.reshape(y, shape));
}

// He et al., Mask R-CNN, 2017.
void roi_align(Op& op) {
  Build& b = op.b;
  const V x = op.in(0), rois = op.in(1);
  const int64_t samples = op.small("sampling_ratio", 0), ph = op.small("output_height", 1), pw = op.small("output_width", 1);
  if (samples <= 0)
    op.unsupported("a number of samples that depends on the size of each region (sampling_ratio 0)",
                   "export with a sampling_ratio above 0");
  const bool half =
      op.s("coordinate_transformation_mode", op.version < 16 ? "output_half_pixel" : "half_pixel") == "half_pixel";
  const bool max = op.s("mode", "avg") == "max";
  const double scale = op.f("spatial_scale", 1.0), offset = half ? 0.5 : 0;
  const tsr_dtype t = Build::wide(x.dtype());
  const tsr_dim R = rois.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  const V scaled = b.cast(rois, t) * scale - offset;
  const auto column = [&](int64_t i) { return b.slice(scaled, 1, i, i + 1); };  // [R, 1]
  const auto positions = [&](const V& from, const V& to, int64_t bins, const V& n) {
    V size = to - from;
    if (!half) size = maximum(size, b.scalar(1, t));
    const V step = (b.iota({1, bins * samples}, 1, t) + 0.5) / static_cast<double>(samples) / static_cast<double>(bins);
    return std::pair(from + size * step, n);  // [R, bins * samples]
  };
  struct Taps {
    V low, high, w_low, w_high, inside;
  };
  const auto taps = [&](const std::pair<V, V>& p) {
    const V inside = both(p.first >= -1.0, p.first <= p.second);
    const V c = b.op("clamp", {p.first, b.scalar(0, t), p.second - 1.0});
    const V low = c.call("floor"), high = minimum(low + 1.0, p.second - 1.0);
    return Taps{b.cast(low, TSR_I64), b.cast(high, TSR_I64), 1.0 - (c - low), c - low, inside};
  };
  const Taps ty = taps(positions(column(1), column(3), ph, b.dim(H, t))),
             tx = taps(positions(column(0), column(2), pw, b.dim(W, t)));
  const V image = b.gather(b.cast(x, t), op.in(2), 0);  // [R, C, H, W]
  const V flat = b.reshape(image, {R, C, b.mul(H, W)});
  op.expect(ph > 0 && pw > 0, "an output of no size");
  const int64_t ny = ph * samples, nx = pw * samples;
  const tsr_dim points = b.mul(ny, nx);
  const V inside = b.cast(both(b.expand(ty.inside, {2}), b.expand(tx.inside, {1})), t);  // [R, ny, nx]
  std::vector<V> parts;
  for (int corner = 0; corner < 4; ++corner) {
    const V &yi = corner / 2 ? ty.high : ty.low, &xi = corner % 2 ? tx.high : tx.low;
    const V &wy = corner / 2 ? ty.w_high : ty.w_low, &wx = corner % 2 ? tx.w_high : tx.w_low;
    const V index = b.reshape(b.expand(yi, {2}) * b.dim(W) + b.expand(xi, {1}), {R, 1, points});
    const V value = flat.call("take_along_axis", b.broadcast(index, {R, C, points}), {attr_int("axis", 2)});
    parts.push_back(value * b.reshape(b.expand(wy, {2}) * b.expand(wx, {1}) * inside, {R, 1, points}));
  }
  // The greatest of the four weighted neighbours, not of their sum: so the operator is defined.
  const V sampled =
      max ? maximum(maximum(parts[0], parts[1]), maximum(parts[2], parts[3])) : parts[0] + parts[1] + parts[2] + parts[3];
  const V bins = b.reshape(sampled, {R, C, ph, samples, pw, samples});
  op.out(b.cast(b.reduce(max ? "reduce_max" : "mean", bins, {3, 5}, false), x.dtype()));
}

}  // namespace

std::span<const Record> vision_records() {
  static constexpr Record records[] = {
      {"", "GridSample", grid_sample},
      {"", "AffineGrid", affine_grid},
      {"", "RoiAlign", roi_align},
  };
  return records;
}

}  // namespace tessera::onnx
