// SPDX-License-Identifier: Apache-2.0
// Resize and Upsample. Where the rules are those of the op set's `interpolate` it stays whole; else every axis is resampled on
// its own (the operator is separable): with taps and weights that are computed here where the sizes are numbers, by the same
// formulas at run time where they are symbolic. Positions are fractions of integers, so that no element is missed by a
// rounding.
#include <algorithm>
#include <bit>
#include <cmath>

#include "../op.hpp"

namespace tessera::onnx {
namespace {

struct Rules {
  std::string mode, coordinates, nearest;
  bool antialias, exclude_outside;
  double cubic, extrapolation;
};

// A fraction of sizes, which may be symbolic; the denominator is above 0.
struct Ratio {
  tsr_dim num = 1, den = 1;
};

struct Axis {
  int64_t axis;
  tsr_dim in, out;
  Ratio scale;               // out / in where sizes are given
  Ratio roi_start, roi_end;  // of the input, for tf_crop_and_resize
  bool from_sizes;
};

// The simplest fraction that rounds to this f32: scales are written as f32, and 0.6 means 3/5, not the little more that f32
// holds. By continued fractions; an f32 has one whose terms are below 2^25 unless its magnitude lies outside 2^-24 to 2^24.
std::optional<Ratio> simplest(double value) {
  const auto target = static_cast<float>(value);
  if (!(std::abs(target) <= 0x1p24F)) return std::nullopt;
  const bool negative = target < 0;
  double rest = std::abs(static_cast<double>(target));
  int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
  for (int i = 0; i < 40; ++i) {
    const double whole = std::floor(rest);
    if (whole > 0x1p25) break;
    const auto a = static_cast<int64_t>(whole);
    const int64_t p = a * p1 + p0, q = a * q1 + q0;
    if (p > (int64_t{1} << 25) || q > (int64_t{1} << 25)) break;
    p0 = std::exchange(p1, p);
    q0 = std::exchange(q1, q);
    if (static_cast<float>(static_cast<double>(p) / static_cast<double>(q)) == std::abs(target))
      return Ratio{negative ? -p : p, q};
    if (rest == whole) break;
    rest = 1 / (rest - whole);
  }
  return std::nullopt;
}

// Where output i lies in the input: (slope * i + offset) / divisor; `single` / divisor where the output has one element and a
// rule for it.
struct Line {
  tsr_dim slope, offset, divisor;
  std::optional<tsr_dim> single;
};

Line line(Build& b, const Rules& r, const Axis& x) {
  const auto [p, q] = x.scale;
  const std::string& how = r.coordinates;
  if (how == "asymmetric") return {q, 0, p, {}};
  if (how == "tf_half_pixel_for_nn") return {b.mul(2, q), q, b.mul(2, p), {}};
  if (how == "half_pixel") return {b.mul(2, q), b.sub(q, p), b.mul(2, p), {}};
  if (how == "pytorch_half_pixel") return {b.mul(2, q), b.sub(q, p), b.mul(2, p), tsr_dim{0}};
  if (how == "half_pixel_symmetric")  // from sizes in * p is out * q: the same as half_pixel
    return {b.mul(2, q), b.add(x.from_sizes ? 0 : b.sub(b.mul(x.in, p), b.mul(x.out, q)), b.sub(q, p)), b.mul(2, p), {}};
  // The rest counts steps between the first and the last element. The length that is scaled may be no integer.
  const tsr_dim steps = b.sub(x.in, 1), den = x.from_sizes ? 1 : q,
                parts = b.max(x.from_sizes ? b.sub(x.out, 1) : b.sub(b.mul(x.in, p), q), 1);
  if (how == "align_corners") return {b.mul(steps, den), 0, parts, tsr_dim{0}};
  const auto [s, t] = x.roi_start;  // tf_crop_and_resize: from s / t to e / f of the steps
  const auto [e, f] = x.roi_end;
  const tsr_dim start = b.mul(s, f), end = b.mul(e, t);
  return {b.mul(b.mul(b.mul(2, b.sub(end, start)), steps), den), b.mul(b.mul(b.mul(2, start), steps), parts),
          b.mul(b.mul(2, b.mul(t, f)), parts), b.mul(b.mul(b.add(start, end), steps), parts)};
}

// Nearest: the element that is read is floor((scale * position's numerator + shift * divisor) / (scale * divisor)).
struct Rounding {
  int64_t scale, shift;
  bool up;  // rounded up instead of down
};
Rounding rounding(Op& op, const std::string& mode) {
  if (mode == "floor") return {1, 0, false};
  if (mode == "ceil") return {1, 0, true};
  if (mode == "round_prefer_ceil") return {2, 1, false};
  op.expect(mode == "round_prefer_floor", "attribute 'nearest_mode' is '" + mode + "'");
  return {2, -1, true};
}

// Filters: of a distance in taps, as a number and as a value of the model. Keys 1981, with `a`.
double filter(const Rules& r, double distance) {
  const double x = std::abs(distance), a = r.cubic;
  if (r.mode == "linear") return std::max(1 - x, 0.0);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}
V filter(const Rules& r, const V& distance) {
  Build& b = distance.build();
  const V x = distance.call("abs");
  if (r.mode == "linear") return maximum(1.0 - x, b.scalar(0, x.dtype()));
  const double a = r.cubic;
  const V inner = ((x * (a + 2) - (a + 3)) * x * x) + 1.0, outer = ((x * a - 5 * a) * x + 8 * a) * x - 4 * a;
  return select(x <= 1.0, inner, select(x < 2.0, outer, 0.0));
}

// The taps of a filter that is stretched where antialiasing lets it cover the elements that are left out.
struct Taps {
  int64_t count;
  double stretch;
};
Taps taps(Op& op, const Rules& r, const Axis& a) {
  const double scale = r.antialias ? static_cast<double>(a.scale.num) / static_cast<double>(a.scale.den) : 1.0;
  const double stretch = std::min(scale, 1.0), reach = r.mode == "cubic" ? 2 : 1;
  const auto count = static_cast<int64_t>(std::min(2 * std::ceil(reach / stretch), 8192.0));
  op.expect(count > 0 && count <= 4096, "a reduction by more than 1000");
  return {count, stretch};
}

int64_t floor_div(int64_t a, int64_t d) { return a / d - (a % d < 0 ? 1 : 0); }

// An axis whose sizes are numbers: everything is computed here.
class Static {
 public:
  Static(Op& op, const Rules& r, const Axis& a) : op_(op), b_(op.b), r_(r), a_(a), n_(a.in), m_(a.out) {
    op.expect(n_ > 0 && m_ > 0 && m_ < (int64_t{1} << 22),
              "a resize of " + std::to_string(n_) + " to " + std::to_string(m_) + " elements");
    line_ = line(b_, r, a);
    if (m_ == 1 && line_.single) line_.offset = *line_.single;
    int64_t most = 0;  // with room for twice the numerator and a divisor beside it
    op.expect(!__builtin_mul_overflow(std::max(std::abs(line_.slope), int64_t{1}), m_ + 1, &most) &&
                  most + std::abs(line_.offset) < (int64_t{1} << 60) && line_.divisor < (int64_t{1} << 60),
              "a scale or a region whose positions do not fit 64 bits");
  }

  [[nodiscard]] Ints nearest() const {
    const Rounding how = rounding(op_, r_.nearest);
    Ints at(static_cast<size_t>(m_));
    for (int64_t i = 0; i < m_; ++i) {
      const int64_t num = how.scale * position(i) + how.shift * line_.divisor, den = how.scale * line_.divisor;
      at[static_cast<size_t>(i)] = inside(how.up ? -floor_div(-num, den) : floor_div(num, den));
    }
    return at;
  }

  V resample(const V& x) {
    const V y = r_.mode == "nearest" ? b_.gather(x, indices(nearest()), a_.axis) : filtered(x);
    if (r_.coordinates != "tf_crop_and_resize") return y;
    std::vector<double> out(static_cast<size_t>(m_));
    for (int64_t i = 0; i < m_; ++i) out[static_cast<size_t>(i)] = position(i) < 0 || position(i) > (n_ - 1) * line_.divisor;
    if (std::find(out.begin(), out.end(), 1.0) == out.end()) return y;
    return select(b_.floats(out, TSR_F32, along(x)) > 0.0, r_.extrapolation, y);
  }

 private:
  [[nodiscard]] int64_t position(int64_t i) const { return line_.slope * i + line_.offset; }
  [[nodiscard]] int64_t inside(int64_t i) const { return std::clamp<int64_t>(i, 0, n_ - 1); }
  V indices(const Ints& at) { return b_.known(at, 1); }
  [[nodiscard]] Ints along(const V& x) const {
    Ints shape(static_cast<size_t>(x.rank() - a_.axis), 1);
    shape[0] = m_;
    return shape;
  }

  V filtered(const V& x) {
    const Taps t = taps(op_, r_, a_);
    op_.expect(t.count * m_ < (int64_t{1} << 24),
               "a resize to " + std::to_string(m_) + " elements of " + std::to_string(t.count) + " taps each");
    const auto count = static_cast<size_t>(t.count), m = static_cast<size_t>(m_);
    std::vector<Ints> at(count, Ints(m));
    std::vector<std::vector<double>> weight(count, std::vector<double>(m));
    for (size_t i = 0; i < m; ++i) {
      const int64_t num = position(static_cast<int64_t>(i)), whole = floor_div(num, line_.divisor);
      const double part = static_cast<double>(num - whole * line_.divisor) / static_cast<double>(line_.divisor);
      double sum = 0;
      for (size_t k = 0; k < count; ++k) {
        const int64_t offset = static_cast<int64_t>(k) - t.count / 2 + 1;
        double w = filter(r_, (static_cast<double>(offset) - part) * t.stretch);
        if (r_.exclude_outside && inside(whole + offset) != whole + offset) w = 0;
        at[k][i] = inside(whole + offset);
        weight[k][i] = w;
        sum += w;
      }
      if (r_.exclude_outside || r_.antialias)
        for (size_t k = 0; k < count; ++k) weight[k][i] /= sum;
    }
    V y;
    for (size_t k = 0; k < count; ++k) {
      const V part = b_.gather(x, indices(at[k]), a_.axis) * b_.floats(weight[k], x.dtype(), along(x));
      y = y ? y + part : part;
    }
    return y;
  }

  Op& op_;
  Build& b_;
  const Rules& r_;
  const Axis& a_;
  int64_t n_, m_;
  Line line_{};
};

// An axis with a symbolic size: the same computed when the model runs.
V resample(Op& op, const V& x, const Rules& r, const Axis& a) {
  Build& b = op.b;
  if (r.antialias && !(Build::is_number(a.scale.num) && Build::is_number(a.scale.den)))
    op.unsupported("antialias to a size of a symbolic one, whose number of taps is not known", "export with scales");
  const V last = b.dim(b.sub(a.in, 1)), zero = b.integer(0), one = b.integer(1);
  const Line at = line(b, r, a);
  const V divisor = maximum(b.dim(at.divisor), one);
  V num = b.iota({a.out}, 0) * b.dim(at.slope) + b.dim(at.offset);
  if (at.single) num = select(b.dim(a.out) == 1.0, b.dim(*at.single), num);
  const Ints behind = axes_from(1, x.rank() - a.axis);
  const auto gather = [&](const V& index) { return b.gather(x, b.op("clamp", {index, zero, last}), a.axis); };
  V y;
  if (r.mode == "nearest") {
    const Rounding how = rounding(op, r.nearest);
    const V scaled = num * static_cast<double>(how.scale) + divisor * static_cast<double>(how.shift),
            parts = divisor * static_cast<double>(how.scale);
    y = gather(how.up ? -(-scaled).call("floor_div", parts) : scaled.call("floor_div", parts));
  } else {
    const Taps t = taps(op, r, a);
    const V whole = num.call("floor_div", divisor);
    const V part = b.cast(num - whole * divisor, x.dtype()) / b.cast(divisor, x.dtype());
    std::vector<V> weights;
    V sum;
    for (int64_t k = 0; k < t.count; ++k) {
      const auto offset = static_cast<double>(k - t.count / 2 + 1);
      V w = filter(r, (offset - part) * t.stretch);
      const V index = whole + offset;
      if (r.exclude_outside) w = select(both(index >= zero, index <= last), w, 0.0);
      weights.push_back(w);
      sum = sum ? sum + w : w;
    }
    for (int64_t k = 0; k < t.count; ++k) {
      V w = weights[static_cast<size_t>(k)];
      if (r.exclude_outside || r.antialias) w = w / sum;
      const V part_of = gather(whole + static_cast<double>(k - t.count / 2 + 1)) * b.expand(w, behind);
      y = y ? y + part_of : part_of;
    }
  }
  if (r.coordinates != "tf_crop_and_resize") return y;
  const V outside = either(num<zero, num> last * divisor);
  return select(b.expand(outside, behind), r.extrapolation, y);
}

// The op set's interpolate samples by PyTorch's rules; says how, or nothing.
std::optional<std::pair<const char*, bool>> whole(Op& op, const Rules& r, const std::vector<Axis>& axes, int64_t rank) {
  if (r.antialias || r.exclude_outside || rank < 3 || rank > 5) return std::nullopt;
  // Does the output have the size that the scale says, without rounding?
  const auto exact = [&](const Axis& a) {
    if (a.from_sizes || a.scale.den == 1) return true;
    return Build::is_number(a.in) && Build::is_number(a.out) && a.out * a.scale.den == a.in * a.scale.num;
  };
  for (const Axis& a : axes)
    if (a.axis < 2 || !exact(a)) return std::nullopt;
  if (r.mode == "nearest") {
    // interpolate takes element floor(i * (in / out)) in f32, which for some sizes is another than the rules' own.
    for (const Axis& a : axes) {
      if (r.coordinates == "tf_crop_and_resize") return std::nullopt;
      if (!Build::is_number(a.in) || !Build::is_number(a.out)) {
        const bool doubling =
            Build::is_number(a.scale.num) && a.scale.den == 1 && std::has_single_bit(static_cast<uint64_t>(a.scale.num));
        const bool left = r.coordinates == "asymmetric"
                              ? r.nearest == "floor"
                              : r.coordinates.starts_with("half_pixel") && r.nearest.starts_with("round");
        if (!doubling || !left) return std::nullopt;
        continue;
      }
      const Ints at = Static(op, r, a).nearest();
      const float ratio = static_cast<float>(a.in) / static_cast<float>(a.out);
      for (size_t i = 0; i < at.size(); ++i)
        if (at[i] != std::min(static_cast<int64_t>(std::floor(static_cast<float>(i) * ratio)), a.in - 1)) return std::nullopt;
    }
    return std::pair("nearest", false);
  }
  if (r.mode == "cubic" && r.cubic != -0.75) return std::nullopt;
  const char* mode = r.mode == "cubic" ? "cubic" : "linear";
  if (r.coordinates == "half_pixel" || r.coordinates == "half_pixel_symmetric") return std::pair(mode, false);
  if (r.coordinates == "align_corners") return std::pair(mode, true);
  if (r.coordinates != "pytorch_half_pixel") return std::nullopt;
  for (const Axis& a : axes)
    if (!Build::is_number(a.out) || a.out <= 1) return std::nullopt;
  return std::pair(mode, false);
}

void apply(Op& op, const Rules& r, const std::vector<Axis>& all) {
  Build& b = op.b;
  V x = op.in(0);
  const tsr_dtype dtype = x.dtype();
  std::vector<Axis> axes;
  for (const Axis& a : all)
    if (a.in != a.out || a.scale.num != a.scale.den || r.coordinates == "tf_crop_and_resize") axes.push_back(a);
  if (axes.empty()) return op.out(x);
  if (std::any_of(axes.begin(), axes.end(), [](const Axis& a) { return a.out == 0; })) {
    Dims shape = x.sizes();
    for (const Axis& a : axes) shape[static_cast<size_t>(a.axis)] = a.out;
    return op.out(b.full(0, dtype, shape));
  }
  if (const auto how = is_float(dtype) ? whole(op, r, axes, x.rank()) : std::nullopt) {
    Dims output(x.sizes().begin() + 2, x.sizes().end());
    for (const Axis& a : axes) output[static_cast<size_t>(a.axis - 2)] = a.out;
    return op.out(x.call("interpolate", {sdk::attr_dims("output", output), sdk::attr_string("mode", how->first),
                                         sdk::attr_bool("align_corners", how->second)}));
  }
  if (r.mode != "nearest" || r.coordinates == "tf_crop_and_resize")
    x = b.cast(x, is_float(dtype) ? Build::wide(dtype) : TSR_F32);
  for (const Axis& a : axes)
    x = Build::is_number(a.in) && Build::is_number(a.out) ? Static(op, r, a).resample(x) : resample(op, x, r, a);
  op.out(b.cast(x, dtype));
}

// `axis` of x resized by a scale; `span`: the part of it that tf_crop_and_resize takes.
Axis scaled(Op& op, const V& x, int64_t axis, double scale, const Ratio& start, const Ratio& end) {
  Build& b = op.b;
  const tsr_dim in = x.size(axis);
  std::optional<Ratio> s = simplest(scale);
  op.expect(s && s->num > 0, "a scale of " + std::to_string(scale));
  if (Build::is_number(in) && in > 0 && in < INT32_MAX) {  // as it comes out of a division of sizes
    const double out = std::round(static_cast<double>(in) * scale);
    if (out > 0 && out < 0x1p31 && static_cast<float>(out / static_cast<double>(in)) == static_cast<float>(scale))
      s = Ratio{static_cast<int64_t>(out), in};
  }
  const tsr_dim width = b.sub(b.mul(end.num, start.den), b.mul(start.num, end.den));
  const tsr_dim out = b.floordiv(b.mul(b.mul(in, width), s->num), b.mul(b.mul(start.den, end.den), s->den));
  op.expect(!Build::is_number(out) || (out >= 0 && out <= INT32_MAX),
            "a resize to " + b.print(std::span(&out, 1)) + " elements");
  return {axis, in, out, *s, start, end, false};
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
  static constexpr std::string_view kCoordinates[] = {"half_pixel",        "half_pixel_symmetric", "pytorch_half_pixel",
                                                      "align_corners",     "asymmetric",           "tf_half_pixel_for_nn",
                                                      "tf_crop_and_resize"};
  op.expect(std::find(std::begin(kCoordinates), std::end(kCoordinates), r.coordinates) != std::end(kCoordinates),
            "attribute 'coordinate_transformation_mode' is '" + r.coordinates + "'");
  op.expect(r.mode == "nearest" || r.mode == "linear" || r.mode == "cubic", "attribute 'mode' is '" + r.mode + "'");
  const Ints axes = op.axes(op.ints("axes", axes_from(0, x.rank())), x.rank());
  std::vector<Ratio> start(axes.size(), {0, 1}), end(axes.size(), {1, 1});
  if (r.coordinates == "tf_crop_and_resize") {
    const std::vector<double> roi = op.reals(1);
    op.expect(roi.size() == 2 * axes.size(),
              std::to_string(roi.size()) + " numbers in roi for " + std::to_string(axes.size()) + " axes");
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto from = simplest(roi[i]), to = simplest(roi[i + axes.size()]);
      op.expect(from && to, "a region from " + std::to_string(roi[i]) + " to " + std::to_string(roi[i + axes.size()]));
      start[i] = *from;
      end[i] = *to;
    }
  }
  const size_t scales_at = old ? 1 : 2;
  const auto empty = [&](size_t i) { return !op.has(i) || (op.in(i).rank() == 1 && op.in(i).size(0) == 0); };
  std::vector<Axis> list;
  if (!empty(scales_at)) {
    const std::vector<double> scales = op.reals(scales_at);
    op.expect(scales.size() == axes.size(), "scales do not fit the axes");
    for (size_t i = 0; i < axes.size(); ++i) list.push_back(scaled(op, x, axes[i], scales[i], start[i], end[i]));
    return apply(op, r, list);
  }
  Dims sizes = op.sizes(3);
  op.expect(sizes.size() == axes.size(), "sizes do not fit the axes");
  for (const tsr_dim s : sizes) op.expect(!Build::is_number(s) || s >= 0, "a resize to " + std::to_string(s) + " elements");
  std::optional<Ratio> common;  // one scale for all axes
  if (const std::string policy(op.s("keep_aspect_ratio_policy", "stretch")); policy != "stretch") {
    op.expect(policy == "not_larger" || policy == "not_smaller", "attribute 'keep_aspect_ratio_policy' is '" + policy + "'");
    for (size_t i = 0; i < axes.size(); ++i) {
      const Ratio s{sizes[i], x.size(axes[i])};
      if (!Build::is_number(s.num) || !Build::is_number(s.den)) op.unsupported("keep_aspect_ratio_policy over symbolic sizes");
      op.expect(s.num > 0 && s.den > 0 && s.num <= INT32_MAX && s.den <= INT32_MAX, "a size of 0, or of 2^31 or more");
      const bool smaller = common && s.num * common->den < common->num * s.den;
      if (!common || smaller == (policy == "not_larger")) common = s;
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    const tsr_dim in = x.size(axes[i]);
    if (common) {  // rounded half up
      const tsr_dim out = b.floordiv(b.add(b.mul(b.mul(2, common->num), in), common->den), b.mul(2, common->den));
      list.push_back({axes[i], in, out, *common, start[i], end[i], false});
    } else {
      list.push_back({axes[i], in, sizes[i], {sizes[i], in}, start[i], end[i], true});
    }
  }
  apply(op, r, list);
}

void upsample(Op& op) {
  const V x = op.in(0);
  const std::string mode(op.s("mode", "nearest"));
  const Rules r{mode == "bilinear" ? "linear" : mode, "asymmetric", "floor", false, false, -0.75, 0};
  op.expect(r.mode == "nearest" || r.mode == "linear" || r.mode == "cubic", "attribute 'mode' is '" + r.mode + "'");
  std::vector<double> scales;
  if (op.version < 7) {
    scales = {1, 1, op.f("height_scale"), op.f("width_scale")};
  } else {
    scales = op.version < 9 ? op.reals("scales") : op.reals(1);
  }
  op.expect(static_cast<int64_t>(scales.size()) == x.rank(),
            std::to_string(scales.size()) + " scales for rank " + std::to_string(x.rank()));
  std::vector<Axis> list;
  for (size_t i = 0; i < scales.size(); ++i) list.push_back(scaled(op, x, static_cast<int64_t>(i), scales[i], {0, 1}, {1, 1}));
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
