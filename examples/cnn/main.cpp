// SPDX-License-Identifier: Apache-2.0
// A small convolutional network on images drawn by the program: training mode updates the running statistics of its batch
// normalisation, evaluation mode is another entry of the same compiled module.
#include <cstdio>

#include <tessera/tessera.hpp>

using tessera::Tensor;
namespace F = tessera::F;
namespace nn = tessera::nn;

struct Stage : nn::Module<Stage> {
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
  Stage(int64_t in, int64_t out) : conv(in, out, 3, 1, 1), norm(out) {
    add("conv", conv);
    add("norm", norm);
  }
  Tensor forward(const Tensor& x) { return F::max_pool2d(F::relu(norm(conv(x))), {2}); }
};

struct Cnn : nn::Module<Cnn> {
  Stage stage1{1, 8}, stage2{8, 16};
  nn::Linear head{16, 4};
  Cnn() {
    add("stage1", stage1);
    add("stage2", stage2);
    add("head", head);
  }
  Tensor forward(const Tensor& x) { return head(F::adaptive_avg_pool2d(stage2(stage1(x)), {1}).flatten(1)); }
};

// Images of 28 x 28 with a bar whose direction is the class.
Tensor images(int64_t n) {
  Tensor x = tessera::zeros({n, 1, 28, 28}).clone();
  float* p = x.data<float>();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 4; k < 24; ++k) {
      const int64_t y[] = {14, k, k, 27 - k}, col[] = {k, 14, k, k};
      p[i * 784 + y[i % 4] * 28 + col[i % 4]] = 1;
    }
  return x;
}

int main() {
  try {
    tessera::manual_seed(2);
    Cnn model;
    const Tensor x = images(8);
    model.eval();
    const Tensor eager = model(x);
    tessera::compile(model, {.name = "cnn", .args = {"x"}});
    const double difference = (model(x) - eager).abs().max().item<double>();
    std::printf("evaluation, eager against compiled: max difference %g\n", difference);

    const std::vector<float> before = model.stage1.norm.running_mean.to_vector<float>();
    model.train();
    model(x);
    const std::vector<float> after = model.stage1.norm.running_mean.to_vector<float>();
    std::printf("training moved the running mean of %s: %g -> %g\n", "stage1.norm", before[0], after[0]);
    model.eval();
    std::printf("logits: %s\n", model(images(2)).str().c_str());
    // Compiled code adds in an order of its own: a few roundings of numbers below 1.
    return difference < 1e-6 && before != after ? 0 : 1;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
