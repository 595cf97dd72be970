// SPDX-License-Identifier: Apache-2.0
// Slices, squeezed dimensions, transposed convolutions and Shrink, against the operators' text written out in loops.
#include <limits>
#include <random>

#include "run_model.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;

namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kGreatest = std::numeric_limits<int64_t>::max();

// https://onnx.ai/onnx/operators/onnx__Slice.html: which indices of a dimension of size n are taken.
Sizes taken(int64_t n, int64_t start, int64_t end, int64_t step) {
  const auto wrap = [n](int64_t v) { return v < 0 ? v + n : v; };
  Sizes out;
  if (n == 0) return out;
  const __int128 s = step;
  if (step > 0) {
    const int64_t to = std::clamp<int64_t>(wrap(end), 0, n);
    for (__int128 i = std::clamp<int64_t>(wrap(start), 0, n); i < to; i += s) out.push_back(static_cast<int64_t>(i));
  } else {
    const int64_t to = std::clamp<int64_t>(wrap(end), -1, n - 1);
    for (__int128 i = std::clamp<int64_t>(wrap(start), 0, n - 1); i > to; i += s) out.push_back(static_cast<int64_t>(i));
  }
  return out;
}

Msg any_shape(const char* name, int type) { return Msg().s(1, name).m(2, Msg().m(1, Msg().i(1, type))); }

// A slice of x, or of the vector that `before` makes of it.
std::string slice_model(const Msg& x, int64_t start, int64_t end, int64_t step, const std::vector<Msg>& before = {}) {
  std::vector<Msg> nodes = before;
  nodes.push_back(node("Slice", {before.empty() ? "x" : "v", "start", "end", "axis", "step"}, {"y"}));
  return model(graph({nodes,
                      {tensor("start", kInt64, {1}, raw<int64_t>({start})), tensor("end", kInt64, {1}, raw<int64_t>({end})),
                       tensor("axis", kInt64, {1}, raw<int64_t>({0})), tensor("step", kInt64, {1}, raw<int64_t>({step}))},
                      {x},
                      {any_shape("y", before.empty() ? kFloat : kInt64)}}))
      .bytes();
}

e::Tensor iota(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i)] = static_cast<float>(i);
  return floats({n}, v);
}

void check_slice(const Folder& folder, int64_t n, bool symbolic, int64_t start, int64_t end, int64_t step) {
  INFO((symbolic ? "symbolic " : "") << n << ": [" << start << ":" << end << ":" << step << "]");
  const e::Tensor x = iota(n);
  const Msg in = symbolic ? value_info("x", kFloat, {"n"}) : value_info("x", kFloat, {n});
  const std::vector<double> got = values_of(compile(folder, slice_model(in, start, end, step)).run(std::span(&x, 1))[0]);
  const Sizes want = taken(n, start, end, step);
  CHECK(Sizes(got.begin(), got.end()) == want);
}

}  // namespace

TEST_CASE("a slice is clamped as the operator's text says, at both ends of 64 bits too") {
  const Folder folder;
  for (const bool symbolic : {false, true}) {
    check_slice(folder, 3, symbolic, -5, kLeast, -1);           // x3[-5::-1] is [0]
    check_slice(folder, 3, symbolic, 0, kGreatest, kGreatest);  // one element
    check_slice(folder, 3, symbolic, kGreatest, kLeast, kLeast);
    check_slice(folder, 3, symbolic, kLeast, kGreatest, 2);
    check_slice(folder, 0, symbolic, -1, kLeast, -1);
    check_slice(folder, 0, symbolic, -5, kLeast, -1);
  }
  // Of a shape vector: x[5, 6, 7] reversed from before its begin.
  const auto shape_slice = [&](int64_t start, int64_t end, int64_t step) {
    const std::string bytes = slice_model(value_info("x", kFloat, {5, 6, 7}), start, end, step, {node("Shape", {"x"}, {"v"})});
    const e::Tensor x = floats({5, 6, 7}, std::vector<float>(210));
    return values_of(compile(folder, bytes).run(std::span(&x, 1))[0]);
  };
  CHECK(shape_slice(-5, kLeast, -1) == std::vector<double>{5});
  CHECK(shape_slice(-1, kLeast, -1) == std::vector<double>{7, 6, 5});
  CHECK(shape_slice(1, kGreatest, kGreatest) == std::vector<double>{6});
}

TEST_CASE("random slices of numbers and symbolic sizes take what the operator's text says") {
  const Folder folder;
  std::mt19937 random(9);
  const auto bound = [&]() -> int64_t {
    switch (random() % 8) {
      case 0: return kLeast;
      case 1: return kGreatest;
      case 2: return std::numeric_limits<int32_t>::max();
      default: return static_cast<int64_t>(random() % 17) - 8;
    }
  };
  for (int i = 0; i < 400; ++i) {
    int64_t step = bound();
    if (step == 0) step = -1;
    const int64_t start = bound(), end = bound();
    check_slice(folder, static_cast<int64_t>(random() % 7), i % 2 == 1, start, end, step);
  }
}

TEST_CASE("code of Squeeze without axes that was imported for no call refuses a symbolic size of 1") {
  const Folder folder;
  const e::Executable m = compile(
      folder,
      model(graph({{node("Squeeze", {"x"}, {"y"})}, {}, {value_info("x", kFloat, {"n", 1, 3})}, {any_shape("y", kFloat)}}))
          .bytes());
  const e::Tensor two = floats({2, 1, 3}, {1, 2, 3, 4, 5, 6}), one = floats({1, 1, 3}, {1, 2, 3});
  CHECK(sizes_of(m.run(std::span(&two, 1))[0]) == Sizes{2, 3});
  CHECK_THROWS_WITH(m.run(std::span(&one, 1)), Catch::Contains("TSR-T026") && Catch::Contains("Squeeze without axes"));
}

TEST_CASE("Shrink moves integers by fractions and truncates") {
  const Folder folder;
  const auto shrink = [&](int type, const e::Tensor& x, float lambd, float bias) {
    Msg n = node("Shrink", {"x"}, {"y"});
    n.m(5, Msg().s(1, "lambd").f(2, lambd).i(20, 1)).m(5, Msg().s(1, "bias").f(2, bias).i(20, 1));
    return values_of(
        compile(
            folder,
            model(graph({{n}, {}, {value_info("x", type, {x.elements()})}, {value_info("y", type, {x.elements()})}})).bytes())
            .run(std::span(&x, 1))[0]);
  };
  CHECK(shrink(kInt32, tensor_of<int32_t>(TSR_I32, {4}, {-3, -2, 2, 3}), 1.5F, .5F) == std::vector<double>{-2, -1, 1, 2});
  CHECK(shrink(kInt8, tensor_of<int8_t>(TSR_I8, {5}, {-128, -1, 0, 1, 127}), .5F, 1.75F) ==
        std::vector<double>{-126, 0, 0, 0, 125});
  CHECK(shrink(kUint8, tensor_of<uint8_t>(TSR_U8, {4}, {0, 1, 2, 200}), 1.25F, .25F) == std::vector<double>{0, 0, 1, 199});
  CHECK(shrink(kInt64, ints({4}, {-3, -2, 2, int64_t{1} << 40}), 2.F, -.5F) == std::vector<double>{-3, 0, 0, 0x1p40});
  CHECK(shrink(kFloat, floats({4}, {-3, -2, 2, 3}), 1.5F, .5F) == std::vector<double>{-2.5, -1.5, 1.5, 2.5});
}

TEST_CASE("a transposed convolution has the output shape that is asked for, the odd pad where auto_pad says") {
  const Folder folder;
  const std::vector<float> w = {1, 10, 100, 1000};
  // The whole convolution, cut in front by `front`, to `length` elements; beyond it there is nothing but the bias.
  const auto expected = [&](const std::vector<float>& x, int64_t stride, int64_t front, int64_t length, float bias) {
    std::vector<double> y(static_cast<size_t>(length), static_cast<double>(bias));
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t k = 0; k < w.size(); ++k) {
        const int64_t at = static_cast<int64_t>(i) * stride + static_cast<int64_t>(k) - front;
        if (at >= 0 && at < length) y[static_cast<size_t>(at)] += static_cast<double>(x[i] * w[k]);
      }
    return y;
  };
  for (const bool symbolic : {false, true})
    for (const std::string automatic : {"NOTSET", "SAME_UPPER", "SAME_LOWER"})
      for (const int64_t stride : {1, 2, 3})
        for (const int64_t n : {1, 4, 5})
          for (const int64_t shape : {0, 3, 7, 8, 20}) {
            if (shape == 0 && automatic == "NOTSET") continue;
            INFO((symbolic ? "symbolic " : "") << automatic << ", stride " << stride << ", " << n << " elements to " << shape);
            Msg c = node("ConvTranspose", {"x", "w", "b"}, {"y"},
                         {attribute("strides", std::vector<int64_t>{stride}), text_attribute("auto_pad", automatic.c_str())});
            if (shape != 0) c.m(5, attribute("output_shape", std::vector<int64_t>{shape}));
            const std::string bytes =
                model(graph({{c},
                             {tensor("w", kFloat, {1, 1, 4}, raw<float>({1, 10, 100, 1000})),
                              tensor("b", kFloat, {1}, raw<float>({.5F}))},
                             {symbolic ? value_info("x", kFloat, {1, 1, "n"}) : value_info("x", kFloat, {1, 1, n})},
                             {any_shape("y", kFloat)}}))
                    .bytes();
            std::vector<float> x(static_cast<size_t>(n));
            for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
            const e::Tensor in = floats({1, 1, n}, x);
            const e::Tensor y = compile(folder, bytes).run(std::span(&in, 1))[0];
            const int64_t length = shape ? shape : n * stride, total = std::max<int64_t>(stride * (n - 1) + 4 - length, 0);
            REQUIRE(sizes_of(y) == Sizes{1, 1, length});
            CHECK(values_of(y) == expected(x, stride, automatic == "SAME_UPPER" ? total / 2 : total - total / 2, length, .5F));
          }
}
