// SPDX-License-Identifier: Apache-2.0
// Prints the parameters after each of ten steps of every optimiser, as JSON, for optim_peers.py, which does the same in
// PyTorch. Parameters and gradients are fractions that both sides compute exactly.
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>

#include <nlohmann/json.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

namespace {

constexpr int64_t kSteps = 10;
const std::vector<std::vector<int64_t>> kShapes = {{5, 7}, {7}, {8, 3}};

double number(int64_t seed, int64_t i) { return static_cast<double>((i * 7919 + seed * 104729) % 2003 - 1001) / 1024; }

Tensor values(const std::vector<int64_t>& shape, int64_t seed) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(number(seed, i)));
  return tensor(v, shape);
}

struct Parameters : nn::Module<Parameters> {
  std::vector<Tensor> all;
  explicit Parameters(bool matrices) {
    for (size_t i = 0; i < kShapes.size(); ++i)
      if (!matrices || kShapes[i].size() == 2) all.push_back(values(kShapes[i], static_cast<int64_t>(i)));
    for (size_t i = 0; i < all.size(); ++i) add("p" + std::to_string(i), all[i]);
  }
  Tensor forward(const Tensor& x) { return x; }
};

template <class O>
nlohmann::json trajectory(bool matrices, const std::function<std::unique_ptr<O>(Parameters&)>& make, double clip = 0) {
  Parameters p(matrices);
  const auto optimizer = make(p);
  auto step = compile(
      [clip](Parameters& m, O& o, const std::vector<Tensor>& given) {
        std::vector<Tensor> gradients = given;
        if (clip > 0) optim::clip_grad_norm(gradients, clip);
        o.step(m, gradients);
        return given[0].sum();
      },
      {.name = "step"});
  nlohmann::json steps = nlohmann::json::array();
  const double base = optimizer->lr();
  for (int64_t s = 0; s < kSteps; ++s) {
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < p.all.size(); ++i)
      gradients.push_back(values(p.all[i].sizes(), 100 + 10 * s + static_cast<int64_t>(i)));
    optimizer->set_lr(base / static_cast<double>(1 + s / 4));  // a schedule by steps
    step(p, *optimizer, gradients);
    nlohmann::json now = nlohmann::json::array();
    for (const Tensor& t : p.all) now.push_back(t.to_vector<double>());
    steps.push_back(now);
  }
  return {{"steps", steps}, {"entries", nlohmann::json::parse(step.describe()).at("entries").size()}};
}

template <class O, class Options>
nlohmann::json run(Options options, bool matrices = false, double clip = 0) {
  return trajectory<O>(
      matrices, [&](Parameters& p) { return std::make_unique<O>(p, options); }, clip);
}

}  // namespace

int main() {
  try {
    using namespace optim;
    const std::vector<Group> groups = {{"p1", 0.1, 0}};
    nlohmann::json out;
    out["sgd"] = run<SGD>(SgdOptions{.lr = 0.1});
    out["sgd_momentum"] = run<SGD>(SgdOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01});
    out["sgd_nesterov"] = run<SGD>(SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
    out["adam"] = run<Adam>(AdamOptions{.lr = 0.01, .weight_decay = 0.1});
    out["adamw"] = run<AdamW>(AdamOptions{.lr = 0.01, .beta2 = 0.95, .weight_decay = 0.1});
    out["adamw_groups"] = run<AdamW>(AdamOptions{.lr = 0.01, .weight_decay = 0.1, .groups = groups});
    out["adamw_clipped"] = run<AdamW>(AdamOptions{.lr = 0.01}, false, 0.5);
    out["lion"] = run<Lion>(LionOptions{.lr = 0.01, .weight_decay = 0.1});
    out["muon"] = run<Muon>(MuonOptions{.lr = 0.02}, true);
    out["muon_plain"] = run<Muon>(MuonOptions{.lr = 0.02, .nesterov = false, .adjust = MuonOptions::match_rms_adamw}, true);
    std::printf("%s\n", out.dump().c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
