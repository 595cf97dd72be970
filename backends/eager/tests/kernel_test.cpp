// SPDX-License-Identifier: Apache-2.0
// Kernels against plain loops in f64, over dtypes and strides; and against themselves on other ISAs and thread counts.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

#include "fake_host.hpp"

using namespace fake;

namespace {

Backend& backend() {
  static Backend b;
  return b;
}

// Largest distance in units in the last place of `dtype` (f32 for narrower than f32: half a unit of theirs plus one f32 ulp).
double tolerance(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return 1e-14;
    case TSR_F32: return 3e-7;
    case TSR_F16: return 6e-4;
    case TSR_BF16: return 5e-3;
    case TSR_F8E4M3FN:
    case TSR_F8E4M3FNUZ: return 0.07;
    case TSR_F8E5M2:
    case TSR_F8E5M2FNUZ: return 0.13;
    default: return 0.26;
  }
}
void check_close(const Tensor& got, const std::function<double(int64_t)>& want, double factor = 1) {
  for (int64_t i = 0, n = got.elements(); i < n; ++i) {
    const double w = want(i), g = got.at(i);
    if (std::isnan(w)) {
      if (!std::isnan(g)) FAIL("element " << i << ": " << g << ", expected NaN");
      continue;
    }
    if (w == g) continue;
    const double limit = tolerance(got.dtype) * factor;
    if (!(std::fabs(g - w) <= limit * std::max(1.0, std::fabs(w)))) FAIL("element " << i << ": " << g << ", expected " << w);
  }
}

}  // namespace

TEST_CASE("broadcasting addition over strides and dtypes") {
  for (uint32_t d :
       {TSR_F64, TSR_F32, TSR_F16, TSR_BF16, TSR_F8E4M3FN, TSR_F8E5M2, TSR_F4E2M1, TSR_I32, TSR_I8, TSR_I4, TSR_U2, TSR_I64})
    for (int variant : {-1, 0, 1, 2}) {
      Tensor a = random(d, {5, 7, 33}, 1), b = random(d, {7, 1}, 2);
      const Tensor va = variant < 0 ? a : strided(a, variant), vb = variant < 0 ? b : strided(b, variant);
      const Tensor y = backend().run1("add", {&va, &vb}, {}, {d, {5, 7, 33}});
      Tensor want(d, {5, 7, 33});
      for (int64_t i = 0; i < y.elements(); ++i) {
        if (tessera::is_int(d))
          want.set(i, a.int_at(i) + b.int_at(i / 33 % 7));
        else
          want.set(i, d == TSR_F64 ? a.at(i) + b.at(i / 33 % 7) : double(float(a.at(i)) + float(b.at(i / 33 % 7))));
      }
      INFO(tessera::dtype_name(d) << " variant " << variant);
      const bool same = y.data == want.data;
      REQUIRE(same);
    }
}

TEST_CASE("sums do not depend on layout, threads or ISA") {
  for (int64_t rows : {1, 3, 100, 1000, 5000, 20000}) {
    const Tensor x = random(TSR_F32, {rows, 21}, 5), xt = strided(x, 1), xg = strided(x, 0);
    std::vector<char> first;
    for (const char* isa : {"baseline", "avx2", "avx512"}) {
      std::unique_ptr<Backend> b;
      try {
        b = std::make_unique<Backend>(isa);
      } catch (const Error&) {
        continue;  // the machine does not have it
      }
      for (int threads : {1, 2, 5}) {
        set_threads(threads);
        for (const Tensor* t : {&x, &xt, &xg}) {
          const Tensor y = b->run1("reduce_sum", {t}, {ints("axes", {0}), flag("keepdims", false)}, {TSR_F32, {21}});
          if (first.empty()) first = y.data;
          INFO(isa << " threads " << threads << " rows " << rows);
          const bool same = y.data == first;
          REQUIRE(same);
        }
      }
      set_threads(1);
    }
    const Tensor y = backend().run1("reduce_sum", {&x}, {ints("axes", {0}), flag("keepdims", false)}, {TSR_F32, {21}});
    check_close(
        y,
        [&](int64_t c) {
          double s = 0;
          for (int64_t r = 0; r < rows; ++r) s += x.at(r * 21 + c);
          return s;
        },
        std::sqrt(double(rows)));
  }
}

TEST_CASE("matmul of every dtype and layout") {
  for (uint32_t d : {TSR_F64, TSR_F32, TSR_F16, TSR_BF16, TSR_I32, TSR_I8, TSR_U64, TSR_C64, TSR_C128})
    for (int64_t m : {1, 2, 4, 5, 130})
      for (int64_t k : {0, 1, 31, 300})
        for (int variant : {-1, 1}) {
          const Tensor a = random(d, {m, k}, 1), b = random(d, {k, 67}, 2);
          const Tensor va = variant < 0 ? a : strided(a, variant), vb = variant < 0 ? b : strided(b, variant);
          const Tensor y = backend().run1("matmul", {&va, &vb}, {}, {d, {m, 67}});
          INFO(tessera::dtype_name(d) << " m " << m << " k " << k << " variant " << variant);
          if (tessera::is_complex(d)) {
            for (int64_t i = 0; i < y.elements(); i += 7) {
              double re = 0, im = 0;
              for (int64_t p = 0; p < k; ++p) {
                const auto x = tessera::load_as<tessera::ComplexValue<double>>(d, a.data.data(), i / 67 * k + p);
                const auto z = tessera::load_as<tessera::ComplexValue<double>>(d, b.data.data(), p * 67 + i % 67);
                re += x.re * z.re - x.im * z.im, im += x.re * z.im + x.im * z.re;
              }
              const auto g = tessera::load_as<tessera::ComplexValue<double>>(d, y.data.data(), i);
              REQUIRE(g.re == Approx(re).epsilon(1e-5).margin(1e-4));
              REQUIRE(g.im == Approx(im).epsilon(1e-5).margin(1e-4));
            }
          } else if (tessera::is_int(d)) {
            for (int64_t i = 0; i < y.elements(); ++i) {
              uint64_t s = 0;
              for (int64_t p = 0; p < k; ++p) s += uint64_t(a.int_at(i / 67 * k + p)) * uint64_t(b.int_at(p * 67 + i % 67));
              Tensor w(d, {1});
              w.set(0, int64_t(s));
              REQUIRE(y.int_at(i) == w.int_at(0));
            }
          } else {
            check_close(
                y,
                [&](int64_t i) {
                  double s = 0;
                  for (int64_t p = 0; p < k; ++p) s += a.at(i / 67 * k + p) * b.at(p * 67 + i % 67);
                  return s;
                },
                std::max(20.0, double(k)));
          }
        }
}

TEST_CASE("softmax and layer_norm along any axis") {
  for (uint32_t d : {TSR_F64, TSR_F32, TSR_BF16})
    for (int64_t axis : {0, 1, 2}) {
      const Tensor x = random(d, {6, 40, 19}, 3);
      const int64_t n = x.sizes[size_t(axis)], inner = axis == 2 ? 1 : axis == 1 ? 19 : 760;
      for (int variant : {-1, 0, 1, 2}) {
        const Tensor v = variant < 0 ? x : strided(x, variant);
        const Tensor y = backend().run1("softmax", {&v}, {integer("axis", axis)}, {d, x.sizes});
        INFO(tessera::dtype_name(d) << " axis " << axis << " variant " << variant);
        check_close(y, [&](int64_t i) {
          const int64_t base = i / (inner * n) * (inner * n) + i % inner;
          double s = 0;
          for (int64_t j = 0; j < n; ++j) s += std::exp(x.at(base + j * inner));
          return std::exp(x.at(i)) / s;
        });
      }
    }
  const Tensor x = random(TSR_F32, {3, 4, 50}, 3), w = random(TSR_F32, {4, 50}, 4), b = random(TSR_F32, {4, 50}, 5);
  const Tensor y = backend().run1("layer_norm", {&x, &w, &b}, {integer("axis", 1), number("eps", 1e-5)}, {TSR_F32, x.sizes});
  check_close(
      y,
      [&](int64_t i) {
        double mean = 0, var = 0;
        for (int64_t j = 0; j < 200; ++j) mean += x.at(i / 200 * 200 + j) / 200;
        for (int64_t j = 0; j < 200; ++j) var += std::pow(x.at(i / 200 * 200 + j) - mean, 2) / 200;
        return (x.at(i) - mean) / std::sqrt(var + 1e-5) * w.at(i % 200) + b.at(i % 200);
      },
      4);
}

TEST_CASE("moving elements: transpose, slice, concat, pad") {
  for (uint32_t d : {TSR_F32, TSR_U8, TSR_C128, TSR_F16, TSR_I64, TSR_I4}) {
    const Tensor x = random(d, {37, 50, 6}, 1, 0, 5);
    const Tensor t = backend().run1("transpose", {&x}, {ints("perm", {2, 0, 1})}, {d, {6, 37, 50}});
    for (int64_t i = 0; i < t.elements(); ++i) REQUIRE(t.at(i) == x.at(i / 50 % 37 * 300 + i % 50 * 6 + i / 1850));
    const Tensor s = backend().run1(
        "slice", {&x}, {dims("limits", {37, -1, 6}), dims("starts", {3, 49, 0}), ints("strides", {2, -7, 1})}, {d, {17, 8, 6}});
    for (int64_t i = 0; i < s.elements(); ++i)
      REQUIRE(s.at(i) == x.at((3 + i / 48 * 2) * 300 + (49 - i / 6 % 8 * 7) * 6 + i % 6));
    const Tensor y = random(d, {37, 50, 3}, 2, 0, 5);
    const Tensor c = backend().run1("concat", {&x, &y, &x}, {integer("axis", -1)}, {d, {37, 50, 15}});
    for (int64_t i = 0; i < c.elements(); ++i) {
      const int64_t row = i / 15, j = i % 15;
      REQUIRE(c.at(i) == (j < 6 ? x.at(row * 6 + j) : j < 9 ? y.at(row * 3 + j - 6) : x.at(row * 6 + j - 9)));
    }
  }
}

TEST_CASE("a division by zero and a bad option are reported") {
  const Tensor a(TSR_I32, {3}, {4, 5, 6}), b(TSR_I32, {3}, {2, 0, 3});
  try {
    backend().run1("div", {&a, &b}, {}, {TSR_I32, {3}});
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code == "TSR-R010");
    CHECK(e.message == "op 'div': integer division by zero");
  }
}

namespace {

struct Sample {
  std::string op;
  std::vector<Tensor> operands;
  std::vector<Attr> attrs;
  std::vector<ResultType> results;
  bool own_order = false;  // products, convolution, attention: their order of summation may depend on the ISA, never on threads
};

std::vector<Sample> samples() {
  std::vector<Sample> out;
  const int64_t rows = 70, cols = 1003;
  for (uint32_t d : {TSR_F32, TSR_BF16, TSR_F16, TSR_F64, TSR_F8E4M3FN}) {
    const Tensor x = random(d, {rows, cols}, 1, -8, 8), y = random(d, {cols}, 2, 0.1, 3), big = random(d, {9, 20000}, 3);
    const ResultType same{d, {rows, cols}};
    for (const char* op : {"abs",  "neg",   "sign",  "exp",        "exp2", "expm1",  "log",    "log2",     "log10",   "log1p",
                           "sqrt", "rsqrt", "cbrt",  "reciprocal", "sin",  "cos",    "tan",    "asin",     "atan",    "sinh",
                           "cosh", "tanh",  "asinh", "erf",        "erfc", "erfinv", "lgamma", "digamma",  "sigmoid", "floor",
                           "ceil", "round", "trunc", "relu",       "selu", "silu",   "mish",   "hardswish"})
      out.push_back({op, {x}, {}, {same}});
    out.push_back({"gelu", {x}, {text("approximate", "none")}, {same}});
    out.push_back({"gelu", {x}, {text("approximate", "tanh")}, {same}});
    out.push_back({"leaky_relu", {x}, {number("slope", 0.1)}, {same}});
    out.push_back({"elu", {x}, {number("alpha", 0.7)}, {same}});
    out.push_back({"celu", {x}, {number("alpha", 0.7)}, {same}});
    out.push_back({"softplus", {x}, {number("beta", 1.5), number("threshold", 20)}, {same}});
    for (const char* op :
         {"add", "sub", "mul", "div", "floor_div", "remainder", "fmod", "pow", "atan2", "hypot", "maximum", "fmin", "copysign"})
      out.push_back({op, {x, y}, {}, {same}});
    for (const char* op : {"softmax", "log_softmax"})
      for (int64_t axis : {0, 1}) out.push_back({op, {x}, {integer("axis", axis)}, {same}});
    out.push_back({"softmax", {big}, {integer("axis", 1)}, {{d, big.sizes}}});
    out.push_back({"layer_norm", {x, y, y}, {integer("axis", 1), number("eps", 1e-5)}, {same}});
    out.push_back({"rms_norm", {x, y}, {integer("axis", 1), number("eps", 1e-5)}, {same}});
    for (const char* op : {"reduce_sum", "reduce_prod", "reduce_max", "mean", "logsumexp"})
      for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0}, {1}, {0, 1}})
        for (const Tensor* t : {&x, &big}) {
          std::vector<int64_t> sizes;
          for (int64_t i = 0; i < 2; ++i)
            if (std::find(axes.begin(), axes.end(), i) == axes.end()) sizes.push_back(t->sizes[size_t(i)]);
          out.push_back({op, {*t}, {ints("axes", axes), flag("keepdims", false)}, {{d, sizes}}});
        }
    out.push_back({"variance", {big}, {ints("axes", {1}), number("correction", 1), flag("keepdims", false)}, {{d, {9}}}});
    out.push_back({"norm", {big}, {ints("axes", {1}), number("p", 2), flag("keepdims", false)}, {{d, {9}}}});
    out.push_back({"cumsum", {x}, {integer("axis", 1), flag("exclusive", false), flag("reverse", true)}, {same}});
    for (uint32_t to : {TSR_F32, TSR_F16, TSR_BF16, TSR_I32, TSR_U8, TSR_I64, TSR_F64, TSR_F4E2M1})
      if (to != d) out.push_back({"cast", {x}, {dtype("dtype", to)}, {{to, {rows, cols}}}});

    const Tensor a = random(d, {130, 300}, 4), w = random(d, {517, 300}, 5), bias = random(d, {517}, 6),
                 wt = random(d, {300, 517}, 7);
    out.push_back({"linear", {a, w, bias}, {}, {{d, {130, 517}}}, true});
    out.push_back({"matmul", {a, wt}, {}, {{d, {130, 517}}}, true});
    const Tensor q = random(d, {3, 90, 32}, 8), k = random(d, {3, 150, 32}, 9), v = random(d, {3, 150, 40}, 10);
    out.push_back({"attention", {q, k, v}, {flag("causal", false), number("scale", 0)}, {{d, {3, 90, 40}}}, true});
    const Tensor image = random(d, {2, 6, 15, 17}, 11), filter = random(d, {8, 3, 3, 3}, 12);
    out.push_back({"conv",
                   {image, filter},
                   {ints("dilations", {1, 1}), integer("groups", 2), ints("pad_high", {1, 1}), ints("pad_low", {1, 1}),
                    ints("strides", {2, 1})},
                   {{d, {2, 8, 8, 17}}},
                   true});
  }
  Tensor state(TSR_U64, {2}, {int64_t{0x123456789abcdef}, int64_t{77}});
  for (uint32_t d : {TSR_F32, TSR_F64, TSR_BF16}) {
    out.push_back({"random_uniform", {state}, {dtype("dtype", d), dims("shape", {5003})}, {{d, {5003}}, {TSR_U64, {2}}}});
    out.push_back({"random_normal", {state}, {dtype("dtype", d), dims("shape", {5003})}, {{d, {5003}}, {TSR_U64, {2}}}});
  }
  return out;
}

}  // namespace

TEST_CASE("results are the same bits on every ISA and thread count") {
  struct Target {
    std::string isa;
    std::unique_ptr<Backend> backend;
  };
  std::vector<Target> targets;
  for (const char* isa : {"baseline", "avx2", "avx512", "auto"}) {
    try {
      targets.push_back({isa, std::make_unique<Backend>(isa)});
    } catch (const Error&) {  // the machine does not have it
    }
  }
  for (const Sample& s : samples()) {
    std::vector<const Tensor*> in;
    for (const Tensor& t : s.operands) in.push_back(&t);
    if (s.op == "linear" || s.op == "conv" || s.op == "layer_norm") in.resize(3, nullptr);
    if (s.op == "attention") in.resize(4, nullptr);
    std::vector<Tensor> first;
    for (const Target& t : targets) {
      std::vector<Tensor> serial;
      for (int threads : {1, 2, 7}) {
        set_threads(threads);
        const std::vector<Tensor> got = t.backend->run(s.op, in, s.attrs, s.results);
        set_threads(1);
        if (serial.empty()) serial = got;
        if (first.empty()) first = got;
        for (size_t r = 0; r < got.size(); ++r) {
          INFO(s.op << " of " << tessera::dtype_name(s.operands[0].dtype) << " to " << tessera::dtype_name(got[r].dtype)
                    << " on " << t.isa << ", " << threads << " threads");
          const bool as_serial = got[r].data == serial[r].data, as_first = got[r].data == first[r].data;
          CHECK(as_serial);
          if (!s.own_order)
            CHECK(as_first);
          else
            check_close(
                got[r], [&](int64_t i) { return first[r].at(i); }, tolerance(got[r].dtype) < 1e-6 ? 100 : 4);
        }
      }
    }
  }
}
