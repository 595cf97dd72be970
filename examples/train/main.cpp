// SPDX-License-Identifier: Apache-2.0
// Trains a small network to tell three spirals apart. A step, optimiser included, is one compiled function; the learning rate
// follows a schedule and compiles nothing.
#include <cmath>
#include <cstdio>
#include <vector>

#include <tessera/tessera.hpp>

using tessera::Tensor;
namespace F = tessera::F;
namespace nn = tessera::nn;
namespace optim = tessera::optim;

struct Classifier : nn::Module<Classifier> {
  nn::Linear fc1{2, 64}, fc2{64, 64}, fc3{64, 3};
  nn::LayerNorm norm{64};
  Classifier() {
    add("fc1", fc1);
    add("norm", norm);
    add("fc2", fc2);
    add("fc3", fc3);
  }
  Tensor forward(const Tensor& x) { return fc3(F::gelu(fc2(F::gelu(norm(fc1(x)))))); }
};

// `points` of each of three arms, with their arm's number.
static void spirals(int points, Tensor& x, Tensor& y) {
  std::vector<float> at;
  std::vector<int64_t> arm;
  for (int a = 0; a < 3; ++a)
    for (int i = 0; i < points; ++i) {
      const double r = (i + 1.0) / points, angle = 4 * r + a * 2.0943951023931953;
      at.push_back(static_cast<float>(r * std::cos(angle)));
      at.push_back(static_cast<float>(r * std::sin(angle)));
      arm.push_back(a);
    }
  x = tessera::tensor(at, {3 * points, 2});
  y = tessera::tensor(arm);
}

int main() {
  try {
    tessera::manual_seed(1);
    Classifier model;
    Tensor x, y;
    spirals(100, x, y);
    constexpr int64_t kSteps = 300;
    optim::AdamW optimizer(model, {.lr = 0.01, .weight_decay = 0.01});
    auto step = tessera::compile(
        [](Classifier& m, optim::AdamW& o, const Tensor& inputs, const Tensor& targets) {
          const Tensor loss = F::cross_entropy(m(inputs), targets);
          std::vector<Tensor> gradients = tessera::grad(loss, m);
          const Tensor norm = optim::clip_grad_norm(gradients, 1.0);
          o.step(m, gradients);
          return std::pair(loss, norm);
        },
        {.name = "train_step", .args = {"model", "optimizer", "inputs", "targets"}});
    double first = 0, last = 0;
    for (int64_t i = 0; i < kSteps; ++i) {
      optimizer.set_lr(optim::warmup_cosine(i, 20, kSteps, 0.01));
      const auto [loss, norm] = step(model, optimizer, x, y);
      last = loss.item<double>();
      if (i == 0) first = last;
      if (i % 50 == 0 || i + 1 == kSteps)
        std::printf("step %3lld  loss %.4f  gradient norm %.3f  rate %.5f\n", static_cast<long long>(i), last,
                    norm.item<double>(), optimizer.lr());
    }
    const double right = (model(x).argmax(1) == y).to(tessera::f32).mean().item<double>();
    std::printf("%.1f %% of the points are told right\n", 100 * right);
    return last < 0.2 * first && right > 0.95 ? 0 : 1;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
