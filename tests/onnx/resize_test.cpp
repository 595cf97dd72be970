// SPDX-License-Identifier: Apache-2.0
// Resize against the operator's text, its formulas in fractions of integers: every coordinate and nearest mode, random sizes
// and scales, the same models with symbolic sizes.
#include <cmath>
#include <numeric>
#include <random>

#include "run_model.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;

namespace {

struct Fraction {
  int64_t n = 0, d = 1;
  Fraction(int64_t num, int64_t den = 1) {  // NOLINT(google-explicit-constructor)
    const int64_t g = std::max<int64_t>(std::gcd(num, den), 1) * (den < 0 ? -1 : 1);
    n = num / g;
    d = den / g;
  }
  [[nodiscard]] int64_t floor() const { return n / d - (n % d < 0 ? 1 : 0); }
  [[nodiscard]] int64_t ceil() const { return -Fraction(-n, d).floor(); }
  [[nodiscard]] double value() const { return static_cast<double>(n) / static_cast<double>(d); }
};
Fraction operator+(Fraction a, Fraction b) { return {a.n * b.d + b.n * a.d, a.d * b.d}; }
Fraction operator-(Fraction a, Fraction b) { return {a.n * b.d - b.n * a.d, a.d * b.d}; }
Fraction operator*(Fraction a, Fraction b) { return {a.n * b.n, a.d * b.d}; }
Fraction operator/(Fraction a, Fraction b) { return {a.n * b.d, a.d * b.n}; }
bool operator==(Fraction a, Fraction b) { return a.n == b.n && a.d == b.d; }

const Fraction kHalf(1, 2);

struct Case {
  std::string mode, coordinates, nearest;
  int64_t in, out;
  Fraction scale{1};
  bool by_scale = false, exclude_outside = false, antialias = false, symbolic = false,
       front = false;  // front: before other axes
  Fraction roi_start{0}, roi_end{1};
};

// The formulas of https://onnx.ai/onnx/operators/onnx__Resize.html.
Fraction position(const Case& c, int64_t i) {
  const Fraction x(i), in(c.in), length = c.scale * in, s = c.scale;
  if (c.coordinates == "half_pixel") return (x + kHalf) / s - kHalf;
  if (c.coordinates == "half_pixel_symmetric")
    return in / Fraction(2) * (Fraction(1) - Fraction(c.out) / length) + (x + kHalf) / s - kHalf;
  if (c.coordinates == "pytorch_half_pixel") return c.out > 1 ? (x + kHalf) / s - kHalf : Fraction(0);
  if (c.coordinates == "align_corners")
    return length == Fraction(1) ? Fraction(0) : x * (in - Fraction(1)) / (length - Fraction(1));
  if (c.coordinates == "asymmetric") return x / s;
  if (c.coordinates == "tf_half_pixel_for_nn") return (x + kHalf) / s;
  return c.out > 1
             ? c.roi_start * (in - Fraction(1)) + x * (c.roi_end - c.roi_start) * (in - Fraction(1)) / (length - Fraction(1))
             : kHalf * (c.roi_start + c.roi_end) * (in - Fraction(1));
}

double cubic(double x) {
  constexpr double a = -0.75;
  x = std::abs(x);
  if (x <= 1) return (a + 2) * x * x * x - (a + 3) * x * x + 1;
  return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : 0;
}

// One line resized.
std::vector<double> expected(const Case& c, const std::vector<double>& x) {
  std::vector<double> y;
  const auto at = [&](int64_t i) { return x[static_cast<size_t>(std::clamp<int64_t>(i, 0, c.in - 1))]; };
  for (int64_t i = 0; i < c.out; ++i) {
    const Fraction p = position(c, i);
    if (c.coordinates == "tf_crop_and_resize" && (p.n < 0 || (p - Fraction(c.in - 1)).n > 0)) {
      y.push_back(-7);
      continue;
    }
    if (c.mode == "nearest") {
      y.push_back(at(c.nearest == "floor"               ? p.floor()
                     : c.nearest == "ceil"              ? p.ceil()
                     : c.nearest == "round_prefer_ceil" ? (p + kHalf).floor()
                                                        : (p - kHalf).ceil()));
      continue;
    }
    const double stretch = c.antialias ? std::min(c.scale.value(), 1.0) : 1;
    const auto reach = static_cast<int64_t>(std::ceil(2 / stretch)) + 1;
    double sum = 0, weights = 0;
    for (int64_t k = p.floor() - reach; k <= p.floor() + reach; ++k) {
      const double distance = (Fraction(k) - p).value() * stretch;
      double w = c.mode == "cubic" ? cubic(distance) : std::max(1 - std::abs(distance), 0.0);
      if (c.exclude_outside && (k < 0 || k >= c.in)) w = 0;
      sum += w * at(k);
      weights += w;
    }
    y.push_back(c.exclude_outside || c.antialias ? sum / weights : sum);
  }
  return y;
}

// x [in, 2] or [2, in] (in the middle of four dimensions where the op set's interpolate takes it).
std::string resize_model(const Case& c, int64_t rank, int64_t axis) {
  std::vector<Msg> initializers;
  std::string scales, sizes, roi;
  for (int64_t d = 0; d < rank; ++d) {
    const auto scale = static_cast<float>(d == axis ? c.scale.value() : 1);
    scales += raw<float>({scale});
  }
  const std::vector<int64_t> axes = {axis};
  roi = raw<float>({static_cast<float>(c.roi_start.value()), static_cast<float>(c.roi_end.value())});
  const auto one_scale = raw<float>({static_cast<float>(c.scale.value())});
  initializers.push_back(tensor("roi", kFloat, {2}, roi));
  if (c.by_scale)
    initializers.push_back(tensor("scales", kFloat, {1}, one_scale));
  else
    initializers.push_back(tensor("sizes", kInt64, {1}, raw<int64_t>({c.out})));
  std::vector<Msg> attributes = {text_attribute("mode", c.mode.c_str()),
                                 text_attribute("coordinate_transformation_mode", c.coordinates.c_str()),
                                 text_attribute("nearest_mode", c.nearest.c_str()),
                                 attribute("exclude_outside", int64_t{c.exclude_outside}),
                                 attribute("antialias", int64_t{c.antialias}),
                                 Msg().s(1, "extrapolation_value").f(2, -7).i(20, 1),
                                 attribute("axes", axes)};
  Msg n = Msg().s(1, "x").s(1, "roi").s(1, c.by_scale ? "scales" : "");
  if (!c.by_scale) n.s(1, "sizes");
  n.s(2, "y").s(4, "Resize");
  for (const Msg& a : attributes) n.m(5, a);
  Msg shape;
  for (int64_t d = 0; d < rank; ++d) shape.m(1, d != axis ? Msg().i(1, 2) : c.symbolic ? Msg().s(2, "n") : Msg().i(1, c.in));
  return model(graph({{n},
                      initializers,
                      {Msg().s(1, "x").m(2, Msg().m(1, Msg().i(1, kFloat).m(2, shape)))},
                      {Msg().s(1, "y").m(2, Msg().m(1, Msg().i(1, kFloat)))}}),
               19)
      .bytes();
}

void check(const Folder& folder, const Case& c, int64_t rank, int64_t axis) {
  INFO(c.mode << ", " << c.coordinates << ", " << c.nearest << ": " << c.in << " to " << c.out << (c.by_scale ? " by " : " as ")
              << c.scale.n << "/" << c.scale.d << (c.symbolic ? ", symbolic" : "")
              << (c.exclude_outside ? ", exclude_outside" : "") << (c.antialias ? ", antialias" : "") << ", axis " << axis
              << " of " << rank);
  Sizes sizes(static_cast<size_t>(rank), 2), want_sizes = sizes;
  sizes[static_cast<size_t>(axis)] = c.in;
  want_sizes[static_cast<size_t>(axis)] = c.out;
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < rank; ++d) (d < axis ? outer : inner) *= d == axis ? 1 : 2;
  std::vector<float> x(static_cast<size_t>(outer * inner * c.in));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 2654435761u >> 7) % 1000);
  const e::Tensor in = floats(sizes, x);
  const e::Tensor y = compile(folder, resize_model(c, rank, axis)).run(std::span(&in, 1))[0];
  REQUIRE(sizes_of(y) == want_sizes);
  const std::vector<double> got = values_of(y);
  for (int64_t a = 0; a < outer; ++a)
    for (int64_t b = 0; b < inner; ++b) {
      std::vector<double> line;
      for (int64_t i = 0; i < c.in; ++i)
        line.push_back(static_cast<double>(x[static_cast<size_t>((a * c.in + i) * inner + b)]));
      const std::vector<double> want = expected(c, line);
      for (int64_t i = 0; i < c.out; ++i) {
        INFO("element " << i);
        const double g = got[static_cast<size_t>((a * c.out + i) * inner + b)], w = want[static_cast<size_t>(i)];
        if (c.mode == "nearest")
          REQUIRE(g == w);
        else  // positions in f32 (interpolate's rule) are off by some units of their last place
          REQUIRE(std::abs(g - w) <= 0.02);
      }
    }
}

}  // namespace

TEST_CASE("nearest takes element 15 where 66 * 25 / 110 is 15") {
  const Folder folder;
  Case c{"nearest", "asymmetric", "floor", 25, 110, Fraction(110, 25)};
  for (const bool symbolic : {false, true}) {
    c.symbolic = symbolic;
    check(folder, c, 2, 1);
    check(folder, c, 4, 2);
  }
}

TEST_CASE("a half of a symbolic size is resized linearly") {
  const Folder folder;
  for (const int64_t n : {6, 7, 1, 2}) {
    Case c{"linear", "half_pixel", "floor", n, n / 2, Fraction(1, 2), true};
    c.symbolic = true;
    check(folder, c, 4, 2);
    check(folder, c, 2, 1);
  }
}

TEST_CASE("sizes and scales of every mode give what the operator's text gives") {
  const Folder folder;
  std::mt19937 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (const char* mode : {"nearest", "linear", "cubic"})
    for (const char* coordinates : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                                    "tf_half_pixel_for_nn", "tf_crop_and_resize"})
      for (const char* nearest : {"floor", "ceil", "round_prefer_floor", "round_prefer_ceil"}) {
        const bool is_nearest = std::string(mode) == "nearest";
        for (int i = 0; i < (is_nearest ? 24 : 8); ++i) {
          Case c{mode, coordinates, nearest, 1 + below(i % 3 ? 40 : 8), 0};
          c.by_scale = i % 2 == 1;
          c.symbolic = below(2) == 0;
          if (c.by_scale) {
            c.scale = Fraction(1 + below(20), 1 + below(12));
            c.out = (c.scale * Fraction(c.in)).floor();
          } else {
            c.out = 1 + below(i % 5 ? 120 : 6);
            c.scale = Fraction(c.out, c.in);
          }
          if (std::string(coordinates) == "tf_crop_and_resize" && below(4) != 0) {
            c.roi_start = Fraction(below(10) - 2, 10);
            c.roi_end = c.roi_start + Fraction(1 + below(9), 8);
            if (c.by_scale) c.out = (c.scale * Fraction(c.in) * (c.roi_end - c.roi_start)).floor();
          }
          // The length that the corners are aligned to is not defined below one element, nor is a crop of less than one.
          const Fraction length = c.scale * Fraction(c.in);
          // A scale of 1 leaves an axis alone, batch and channels above all: that shows where a rule does not.
          if (c.scale == Fraction(1) && std::string(coordinates) == "tf_half_pixel_for_nn") continue;
          if (length.n < length.d || c.out == 0 || (std::string(coordinates) == "tf_crop_and_resize" && length == Fraction(1)))
            continue;
          if (!is_nearest) {
            c.exclude_outside = below(2) == 0;
            c.antialias = below(3) == 0 && !(c.symbolic && !c.by_scale);
          }
          const int64_t rank = below(2) == 0 ? 2 : 4;
          check(folder, c, rank, rank == 2 ? below(2) : 2 + below(2));
        }
      }
}
