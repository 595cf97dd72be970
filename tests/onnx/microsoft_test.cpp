// SPDX-License-Identifier: Apache-2.0
// Operators of com.microsoft where the values follow from the documentation alone; fixtures/microsoft holds those of ONNX
// Runtime.
#include <cmath>

#include "run_model.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;

namespace {

Msg real(const char* name, float v) { return Msg().s(1, name).f(2, v).i(20, 1); }
Msg output(const char* name, int type) { return Msg().s(1, name).m(2, Msg().m(1, Msg().i(1, type))); }
std::string with_microsoft(const GraphParts& parts) {
  return model(graph(parts)).m(8, Msg().s(1, "com.microsoft").i(2, 1)).bytes();
}

// One head of size 1: the weights are those of scores q * k + bias, which are written out.
double attended(const std::vector<double>& scores, const std::vector<double>& values) {
  double sum = 0, weighted = 0, most = scores[0];
  for (const double s : scores) most = std::max(most, s);
  for (size_t i = 0; i < scores.size(); ++i) {
    sum += std::exp(scores[i] - most);
    weighted += std::exp(scores[i] - most) * values[i];
  }
  return weighted / sum;
}

}  // namespace

TEST_CASE("keys that a mask hides get mask_filter_value added, all of a query's keys too") {
  const Folder folder;
  for (const float filter : {-10000.F, -2.F})
    for (const std::vector<int32_t>& mask : {std::vector<int32_t>{0, 0, 0}, {1, 0, 1}, {1, 1, 1}}) {
      Msg n = node("MultiHeadAttention", {"q", "k", "v", "", "m"}, {"y"},
                   {attribute("num_heads", 1), real("mask_filter_value", filter)}, "com.microsoft");
      const std::string bytes = with_microsoft({{n},
                                                {},
                                                {value_info("q", kFloat, {1, 1, 1}), value_info("k", kFloat, {1, 3, 1}),
                                                 value_info("v", kFloat, {1, 3, 1}), value_info("m", kInt32, {1, 3})},
                                                {output("y", kFloat)}});
      const e::Tensor in[] = {floats({1, 1, 1}, {1}), floats({1, 3, 1}, {0, 1, 2}), floats({1, 3, 1}, {1, 10, 100}),
                              tensor_of<int32_t>(TSR_I32, {1, 3}, mask)};
      std::vector<double> scores;
      for (size_t i = 0; i < 3; ++i) scores.push_back(static_cast<double>(i) + (mask[i] ? 0 : static_cast<double>(filter)));
      // Beside -10000 an f32 keeps scores to a thousandth.
      CHECK(values_of(compile(folder, bytes).run(in)[0])[0] == Approx(attended(scores, {1, 10, 100})).epsilon(1e-3));
    }
}

TEST_CASE("QLinearReduceMean is the mean of what the integers stand for") {
  const Folder folder;
  Msg n = node("QLinearReduceMean", {"x", "xs", "xz", "ys", "yz"}, {"y"},
               {attribute("axes", std::vector<int64_t>{1}), attribute("keepdims", int64_t{0})}, "com.microsoft");
  const std::string bytes =
      with_microsoft({{n},
                      {tensor("xs", kFloat, {}, raw<float>({.5F})), tensor("xz", kUint8, {}, raw<uint8_t>({10})),
                       tensor("ys", kFloat, {}, raw<float>({.25F})), tensor("yz", kUint8, {}, raw<uint8_t>({100}))},
                      {value_info("x", kUint8, {2, "n"})},
                      {output("y", kUint8)}});
  const e::Tensor x = tensor_of<uint8_t>(TSR_U8, {2, 3}, {10, 12, 14, 0, 200, 255});
  // Means 1 and 70.83 in steps of .25 from 100; the second is saturated.
  CHECK(values_of(compile(folder, bytes).run(std::span(&x, 1))[0]) == std::vector<double>{104, 255});
}

TEST_CASE("MatMulNBits unpacks the lowest bits first, and gives the bias where its weights are left out") {
  const Folder folder;
  const auto run = [&](int64_t bits, const Msg& weights, const e::Tensor& x) {
    Msg n =
        node("MatMulNBits", {"x", "w", "s", "", "", "b"}, {"y"},
             {attribute("bits", bits), attribute("block_size", 16), attribute("N", 1), attribute("K", 16)}, "com.microsoft");
    return values_of(compile(folder, with_microsoft({{n},
                                                     {weights, tensor("s", kFloat, {1, 1}, raw<float>({2})),
                                                      tensor("b", kFloat, {1}, raw<float>({.5F}))},
                                                     {value_info("x", kFloat, {"n", 16})},
                                                     {output("y", kFloat)}}))
                         .run(std::span(&x, 1))[0]);
  };
  std::vector<float> unit(48, 0);
  unit[0] = unit[16 + 1] = unit[32 + 4] = 1;  // rows that pick elements 0, 1 and 4
  const e::Tensor x = floats({3, 16}, unit);
  CHECK(run(2, tensor("w", kUint8, {1, 1, 4}, raw<uint8_t>({0xe4, 0x02, 0, 0})), x) == std::vector<double>{-3.5, -1.5, .5});
  CHECK(run(4, tensor("w", kUint8, {1, 1, 8}, raw<uint8_t>({0xf1, 0, 0x09, 0, 0, 0, 0, 0})), x) ==
        std::vector<double>{-13.5, 14.5, 2.5});
  CHECK(run(4, tensor("w", kUint8, {1, 1, 0}, ""), x) == std::vector<double>{.5, .5, .5});
}
