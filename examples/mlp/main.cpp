// SPDX-License-Identifier: Apache-2.0
// The smallest program: a module, compiled in place; what the first call captured and when it compiles again.
#include <cmath>
#include <cstdio>

#include <tessera/tessera.hpp>

using tessera::Tensor;
namespace F = tessera::F;
namespace nn = tessera::nn;

struct Mlp : nn::Module<Mlp> {
  nn::Linear fc1{64, 128}, fc2{128, 10};
  Mlp() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) { return F::softmax(fc2(F::relu(fc1(x))), -1); }
};

int main() {
  try {
    tessera::manual_seed(1);
    Mlp model;
    for (auto& [name, weight] : model.named_parameters())
      std::printf("%-12s %lld values\n", name.c_str(), static_cast<long long>(weight->numel()));

    const Tensor x = tessera::randn({8, 64});
    const Tensor eager = model(x);  // op by op
    tessera::compile(model, {.args = {"x"}});
    const Tensor compiled = model(x);  // captures, compiles, runs
    const Tensor again = model(x);     // dispatches on guards
    const double difference = (eager - compiled).abs().max().item<double>();
    std::printf("eager against compiled: max difference %g\n", difference);
    std::printf("rows sum to one: %s\n", (compiled.sum({1}) - 1.0).abs().max().item<double>() < 1e-5 ? "yes" : "no");
    const bool same = (compiled == again).all().item<bool>();
    std::printf("second call, same bits: %s\n", same ? "yes" : "no");
    const Tensor other = model(tessera::randn({3, 64}));  // another size: a guard fails, it compiles again
    std::printf("batch of 3: %s\n", other.str().c_str());
    // Compiled code adds in an order of its own: a few roundings of numbers up to 1.
    return difference < 1e-6 && same ? 0 : 1;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
