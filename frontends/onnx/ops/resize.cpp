// SPDX-License-Identifier: Apache-2.0
// Resize and Upsample. Where the rules are those of the op set's `interpolate` it stays whole, symbolic sizes included; else every axis is
// resampled with taps and weights that are computed here (the operator is separable).
#include <algorithm>
#include <cmath>

#include "../op.hpp"

namespace tessera::onnx {
namespace {

struct Rules {
  std::string mode, coordinates, nearest;
  bool antialias, exclude_outside;
  double cubic, extrapolation;
};

struct Axis {
  int64_t axis;
  tsr_dim in, out;
  double scale;  // out / in where sizes are given
  double roi_start, roi_end;
  bool exact;  // out is in * scale, without rounding
};

// Keys 1981, with `a`; |x| in taps.
double cubic_weight(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

double source(const Rules& r, const Axis& x, int64_t i) {
  const double in = static_cast<double>(x.in), whole = x.scale * in, at = static_cast<double>(i);
  if (r.coordinates == "align_corners") return whole == 1 ? 0 : at * (in - 1) / (whole - 1);
  if (r.coordinates == "asymmetric") return at / x.scale;
  if (r.coordinates == "tf_crop_and_resize")
    return x.roi_start * (in - 1) +
           (whole == 1 ? (x.roi_end - x.roi_start) * (in - 1) / 2 : at * (x.roi_end - x.roi_start) * (in - 1) / (whole - 1));
  if (r.coordinates == "pytorch_half_pixel" && whole == 1) return -0.5;
  const double half = (at + 0.5) / x.scale - 0.5;
  if (r.coordinates != "half_pixel_symmetric") return half;
  return in / 2 * (1 - static_cast<double>(x.out) / whole) + half;
}

double nearest(const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  if (mode == "round_prefer_ceil") return std::floor(x + 0.5);
  return std::ceil(x - 0.5);
}

V resample(Op& op, const V& x, const Rules& r, const Axis& a) {
  Build& b = op.b;
  const int64_t n = a.in, m = a.out;
  const auto clamp = [n](int64_t i) { return std::clamp<int64_t>(i, 0, n - 1); };
  op.expect(n > 0 && m >= 0 && m < (int64_t{1} << 22),
            "a resize of " + std::to_string(n) + " to " + std::to_string(m) + " elements");
  std::vector<double> outside(static_cast<size_t>(m), 0);
  bool any_outside = false;
  V y;
  const auto index_vector = [&](const std::vector<int64_t>& at) { return b.known(Dims(at.begin(), at.end()), 1); };
  if (r.mode == "nearest") {
    std::vector<int64_t> at(static_cast<size_t>(m));
    for (int64_t i = 0; i < m; ++i) {
      const double s = source(r, a, i);
      at[static_cast<size_t>(i)] = clamp(static_cast<int64_t>(nearest(r.nearest, s)));
      outside[static_cast<size_t>(i)] = r.coordinates == "tf_crop_and_resize" && (s < 0 || s > static_cast<double>(n - 1));
      any_outside = any_outside || outside[static_cast<size_t>(i)] != 0;
    }
    y = b.gather(x, index_vector(at), a.axis);
  } else {
    // Antialiasing stretches the filter where the picture shrinks.
    const double stretch = r.antialias ? std::min(a.scale, 1.0) : 1.0, reach = r.mode == "cubic" ? 2 : 1;
    const auto taps = static_cast<int64_t>(std::min(2 * std::ceil(reach / stretch), 8192.0));
    op.expect(taps > 0 && taps <= 4096, "a reduction by more than 1000");
    op.expect(taps * m < (int64_t{1} << 24),
              "a resize to " + std::to_string(m) + " elements of " + std::to_string(taps) + " taps each");
    std::vector<std::vector<int64_t>> at(static_cast<size_t>(taps), std::vector<int64_t>(static_cast<size_t>(m)));
    std::vector<std::vector<double>> weight(static_cast<size_t>(taps), std::vector<double>(static_cast<size_t>(m)));
    for (int64_t i = 0; i < m; ++i) {
      const auto at_i = static_cast<size_t>(i);
      const double s = source(r, a, i);
      outside[at_i] = r.coordinates == "tf_crop_and_resize" && (s < 0 || s > static_cast<double>(n - 1));
      any_outside = any_outside || outside[at_i] != 0;
      const auto first = static_cast<int64_t>(std::floor(s)) - taps / 2 + 1;
      double sum = 0;
      for (int64_t k = 0; k < taps; ++k) {
        const double distance = (static_cast<double>(first + k) - s) * stretch;
        double w = r.mode == "cubic" ? cubic_weight(distance, r.cubic) : std::max(1 - std::abs(distance), 0.0);
        if (r.exclude_outside && (first + k < 0 || first + k >= n)) w = 0;
        at[static_cast<size_t>(k)][at_i] = clamp(first + k);
        weight[static_cast<size_t>(k)][at_i] = w;
        sum += w;
      }
      if (r.exclude_outside || r.antialias)
        for (int64_t k = 0; k < taps; ++k) weight[static_cast<size_t>(k)][at_i] /= sum;
    }
    Ints shape(x.sizes().size() - static_cast<size_t>(a.axis), 1);
    shape[0] = m;
    for (size_t k = 0; k < at.size(); ++k) {
      const V part = b.gather(x, index_vector(at[k]), a.axis) * b.floats(weight[k], x.dtype(), shape);
      y = y ? y + part : part;
    }
  }
  if (!any_outside) return y;
  Ints shape(x.sizes().size() - static_cast<size_t>(a.axis), 1);
  shape[0] = m;
  return b.select(b.floats(outside, TSR_F32, shape) > 0.0, r.extrapolation, y);
}

// The op set's interpolate samples by PyTorch's rules; says how, or nothing.
std::optional<std::pair<const char*, bool>> whole(const Rules& r, const std::vector<Axis>& axes, int64_t rank) {
  if (r.antialias || r.exclude_outside || rank < 3 || rank > 5) return std::nullopt;
  for (const Axis& a : axes)
    if (a.axis < 2 || !a.exact) return std::nullopt;
  if (r.mode == "nearest")
    return r.coordinates == "asymmetric" && r.nearest == "floor" ? std::optional(std::pair("nearest", false)) : std::nullopt;
  if (r.mode == "cubic" && r.cubic != -0.75) return std::nullopt;
  const char* mode = r.mode == "cubic" ? "cubic" : "linear";
  if (r.coordinates == "half_pixel") return std::pair(mode, false);
  if (r.coordinates == "align_corners") return std::pair(mode, true);
  if (r.coordinates != "pytorch_half_pixel") return std::nullopt;
  for (const Axis& a : axes)
    if (!Build::is_number(a.out) || a.out <= 1) return std::nullopt;
  return std::pair(mode, false);
}

void apply(Op& op, const Rules& r, const std::vector<Axis>& axes) {
  Build& b = op.b;
  V x = op.in(0);
  const tsr_dtype dtype = x.dtype();
  if (const auto how = whole(r, axes, x.rank()); how && is_float(dtype)) {
    Dims output(x.sizes().begin() + 2, x.sizes().end());
    for (const Axis& a : axes) output[static_cast<size_t>(a.axis - 2)] = a.out;
    return op.out(x.call("interpolate", {sdk::attr_dims("output", output), sdk::attr_string("mode", how->first),
                                         sdk::attr_bool("align_corners", how->second)}));
  }
  if (r.mode != "nearest" || r.coordinates == "tf_crop_and_resize")
    x = b.cast(x, is_float(dtype) ? Build::wide(dtype) : TSR_F32);
  for (const Axis& a : axes) {
    if (!Build::is_number(a.in) || !Build::is_number(a.out))
      op.unsupported(
          "mode " + r.mode + ", " + r.coordinates + " over a symbolic size",
          "linear and cubic with half_pixel or align_corners, and nearest with asymmetric and floor, take symbolic sizes");
    const bool untouched = a.in == a.out && a.scale == 1 && r.coordinates != "tf_crop_and_resize";
    if (!untouched) x = resample(op, x, r, a);
  }
  op.out(b.cast(x, dtype));
}

void resize(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const bool old = op.version < 11;  // X, scales; coordinates as Upsample's
  Rules r{std::string(op.s("mode", "nearest")),
          old ? "asymmetric" : std::string(op.s("coordinate_transformation_mode", "half_pixel")),
          old ? "floor" : std::string(op.s("nearest_mode", "round_prefer_floor")),
          op.flag("antialias"),
          op.flag("exclude_outside"),
          op.f("cubic_coeff_a", -0.75),
          op.f("extrapolation_value", 0.0)};
  if (r.coordinates == "tf_half_pixel_for_nn") op.unsupported("coordinate_transformation_mode tf_half_pixel_for_nn");
  op.expect(r.mode == "nearest" || r.mode == "linear" || r.mode == "cubic", "attribute 'mode' is '" + r.mode + "'");
  const Ints axes = op.axes(op.ints("axes", axes_from(0, x.rank())), x.rank());
  std::vector<double> roi;
  if (r.coordinates == "tf_crop_and_resize") {
    roi = op.reals(1);
    op.expect(roi.size() == 2 * axes.size(),
              std::to_string(roi.size()) + " numbers in roi for " + std::to_string(axes.size()) + " axes");
  }
  const size_t scales_at = old ? 1 : 2;
  const auto empty = [&](size_t i) { return !op.has(i) || (op.in(i).rank() == 1 && op.in(i).size(0) == 0); };
  std::vector<double> scales;
  Dims sizes;
  if (!empty(scales_at))
    scales = op.reals(scales_at);
  else
    sizes = op.sizes(3);
  op.expect(std::max(scales.size(), sizes.size()) == axes.size(), "scales or sizes do not fit the axes");
  const std::string policy(op.s("keep_aspect_ratio_policy", "stretch"));
  if (policy != "stretch" && !sizes.empty()) {  // one scale for all axes
    double common = policy == "not_larger" ? HUGE_VAL : 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      const tsr_dim in = x.size(axes[i]);
      if (!Build::is_number(in) || !Build::is_number(sizes[i]) || in == 0)
        op.unsupported("keep_aspect_ratio_policy over symbolic sizes");
      const double s = static_cast<double>(sizes[i]) / static_cast<double>(in);
      common = policy == "not_larger" ? std::min(common, s) : std::max(common, s);
    }
    op.expect(common > 0 && common < 1e9, "a scale of " + std::to_string(common));
    for (size_t i = 0; i < axes.size(); ++i)
      sizes[i] = static_cast<int64_t>(std::floor(common * static_cast<double>(x.size(axes[i])) + 0.5));
    scales.assign(axes.size(), common);
  }
  std::vector<Axis> list;
  for (size_t i = 0; i < axes.size(); ++i) {
    Axis a{axes[i], x.size(axes[i]), 0, 1, roi.empty() ? 0 : roi[i], roi.empty() ? 1 : roi[i + axes.size()], true};
    if (!scales.empty()) {
      a.scale = scales[i];
      op.expect(a.scale > 0 && a.scale < 1e9, "a scale of " + std::to_string(a.scale));
      const double span = r.coordinates == "tf_crop_and_resize" ? a.roi_end - a.roi_start : 1;
      if (!sizes.empty()) {
        a.out = sizes[i];
        a.exact = false;
      } else if (Build::is_number(a.in)) {
        const double exact = static_cast<double>(a.in) * span * a.scale;
        op.expect(exact >= 0 && exact < 0x1p31, "a resize to " + std::to_string(exact) + " elements");
        // scales are f32: 0.6 is a little more than 0.6
        a.out = static_cast<int64_t>(
            std::floor(exact + (std::abs(exact - std::round(exact)) < 1e-5 * std::max(1.0, exact) ? 0.5 : 0.0)));
        a.exact = static_cast<double>(a.out) == exact;
      } else if (a.scale == std::floor(a.scale) && span == 1) {
        a.out = b.mul(a.in, static_cast<int64_t>(a.scale));
      } else if (1 / a.scale == std::floor(1 / a.scale) && span == 1) {
        a.out = b.floordiv(a.in, static_cast<int64_t>(1 / a.scale));
        a.exact = false;
      } else {
        op.unsupported("a scale of " + std::to_string(a.scale) + " of a symbolic size",
                       "export with whole scales, or with sizes");
      }
    } else {
      a.out = sizes[i];
      if (Build::is_number(a.in) && Build::is_number(a.out) && a.in > 0)
        a.scale = static_cast<double>(a.out) / static_cast<double>(a.in);
    }
    const bool untouched = a.in == a.out && a.scale == 1 && r.coordinates != "tf_crop_and_resize";
    if (!untouched) list.push_back(a);
  }
  if (list.empty()) return op.out(x);
  apply(op, r, list);
}

void upsample(Op& op) {
  const V x = op.in(0);
  const std::string mode(op.s("mode", "nearest"));
  const Rules r{mode == "bilinear" ? "linear" : mode, "asymmetric", "floor", false, false, -0.75, 0};
  std::vector<double> scales;
  if (op.version < 7) {
    scales = {1, 1, op.f("height_scale"), op.f("width_scale")};
  } else {
    scales = op.version < 9 ? op.reals("scales") : op.reals(1);
  }
  op.expect(static_cast<int64_t>(scales.size()) == x.rank(),
            std::to_string(scales.size()) + " scales for rank " + std::to_string(x.rank()));
  std::vector<Axis> list;
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] == 1) continue;
    op.expect(scales[i] > 0 && scales[i] < 1e9 && static_cast<double>(x.size(static_cast<int64_t>(i))) * scales[i] < 0x1p31,
              "a scale of " + std::to_string(scales[i]));
    Axis a{static_cast<int64_t>(i), x.sizes()[i], 0, scales[i], 0, 1, true};
    if (!Build::is_number(a.in) && a.scale != std::floor(a.scale))
      op.unsupported("a scale of " + std::to_string(a.scale) + " of a symbolic size");
    a.out = Build::is_number(a.in) ? static_cast<int64_t>(std::floor(static_cast<double>(a.in) * a.scale))
                                   : op.b.mul(a.in, static_cast<int64_t>(a.scale));
    a.exact = Build::is_number(a.in) ? static_cast<double>(a.out) == static_cast<double>(a.in) * a.scale : true;
    list.push_back(a);
  }
  if (list.empty()) return op.out(x);
  apply(op, r, list);
}

}  // namespace

std::span<const Record> resize_records() {
  static constexpr Record records[] = {
      {"", "Resize", resize},
      {"", "Upsample", upsample},
  };
  return records;
}

}  // namespace tessera::onnx
