// SPDX-License-Identifier: Apache-2.0
// When and why a compiled function compiles again: each row calls a function with varying arguments. The blocks on stderr are
// those of TESSERA_LOGS=recompiles; docs/recompiles.md explains them.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <tessera/tessera.hpp>
#include <vector>

using namespace tessera;

namespace {

// The entries of a compiled function.
template <class F>
void compiles(const F& f) {
  const std::string json = f.describe();
  int n = 0;
  for (size_t at = json.find("\"compile_ms\""); at != std::string::npos; at = json.find("\"compile_ms\"", at + 1)) ++n;
  std::fprintf(stderr, "%d compiles\n", n);
}

void row(const char* title) {
  reset();
  std::fprintf(stderr, "\n== %s\n", title);
}

Tensor add_one(const Tensor& x) { return x + 1; }
Tensor big(const Tensor& x) { return x + 1; }

const std::vector<std::string> kSpecializeFloat = {"guards.specialize_float=true"};

// ---- an optimizer as PyTorch has it: hyperparameters in a vector of maps, state in tensors
struct Adam {
  std::vector<std::map<std::string, SymFloat>> param_groups;
  std::vector<Tensor> params, exp_avg, exp_avg_sq;
  Tensor steps;
  std::optional<Tensor> lr;  // in place of the group's
  explicit Adam(std::vector<Tensor> parameters) : params(std::move(parameters)), steps(zeros({})) {
    param_groups.push_back({{"lr", 0.01}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}});
    for (const Tensor& p : params) {
      exp_avg.push_back(zeros_like(p));
      exp_avg_sq.push_back(zeros_like(p));
    }
  }
};
TESSERA_FIELDS(Adam, param_groups, params, exp_avg, exp_avg_sq, steps, lr)

void adam_step(Adam& self, const std::vector<Tensor>& grads) {
  auto& group = self.param_groups[0];
  const SymFloat &beta1 = group.at("beta1"), &beta2 = group.at("beta2"), &eps = group.at("eps");
  self.steps = self.steps + 1;
  const Tensor correction1 = 1 - beta1.tensor().to(f32).pow(self.steps),
               correction2 = 1 - beta2.tensor().to(f32).pow(self.steps);
  for (size_t i = 0; i < self.params.size(); ++i) {
    const Tensor& g = grads[i];
    self.exp_avg[i] = self.exp_avg[i] * beta1 + g * (1 - beta1);
    self.exp_avg_sq[i] = self.exp_avg_sq[i] * beta2 + g * g * (1 - beta2);
    const Tensor size = (self.exp_avg_sq[i] / correction2).sqrt() + eps;
    const Tensor step = self.exp_avg[i] / correction1 / size;
    self.params[i] = self.params[i] - (self.lr ? step * *self.lr : step * group.at("lr"));
  }
}

void adam(std::vector<std::string> options, std::optional<Tensor> lr = {}) {
  nn::Linear model(3, 3);
  Adam optimizer({model.weight, model.bias});
  optimizer.lr = std::move(lr);
  auto step = compile(adam_step, {.options = std::move(options), .name = "step", .args = {"self", "grads"}});
  for (int call = 1; call <= 5; ++call) {
    step(optimizer, {ones({3, 3}), ones({3})});
    SymFloat& group_lr = optimizer.param_groups[0]["lr"];
    if (optimizer.lr)
      optimizer.lr = *optimizer.lr * 0.9;
    else
      group_lr = group_lr * 0.9;
  }
  compiles(step);
}

void two_calls(const char* title, const Tensor& first, const Tensor& second) {
  row(title);
  auto fn = compile(add_one, {.name = "fn", .args = {"x"}});
  fn(first);
  fn(second);
}

}  // namespace

int main() {
  setenv("TESSERA_LOGS", "recompiles", 0);
  std::fprintf(stderr, "Each row starts with reset().\n");

  row("1: fn(x) = x + 1, dynamic = auto; ones(3), ones(4)");
  {
    auto fn = compile(add_one, {.name = "fn", .args = {"x"}});
    fn(ones({3}));
    fn(ones({4}));
    compiles(fn);
  }

  row("2: gn(x) = x + 1, dynamic = true; ones(3), ones(4)");
  {
    auto gn = compile(add_one, {.dynamic = Dynamic::yes, .name = "gn", .args = {"x"}});
    gn(ones({3}));
    gn(ones({4}));
    compiles(gn);
  }

  const auto add = [](const Tensor& x, SymFloat c) { return x + c; };
  row("3: fn(x, c) = x + c, dynamic = auto, specialize_float; ones(i), 0.5 + i for i = 0..4");
  {
    auto fn = compile(add, {.options = kSpecializeFloat, .name = "fn", .args = {"x", "c"}});
    for (int i = 0; i < 5; ++i) fn(ones({i}), 0.5 + i);
    compiles(fn);
  }

  row("4: row 3 with floats as they are by default");
  {
    auto fn = compile(add, {.name = "fn", .args = {"x", "c"}});
    for (int i = 0; i < 5; ++i) fn(ones({i}), 0.5 + i);
    compiles(fn);
  }
  row("4: row 3 with c a 0-d tensor");
  {
    auto fn = compile([](const Tensor& x, const Tensor& c) { return x + c; },
                      {.options = kSpecializeFloat, .name = "fn", .args = {"x", "c"}});
    for (int i = 0; i < 5; ++i) fn(ones({i}), scalar(0.5 + i, f32));
    compiles(fn);
  }

  row("5: Adam's step, dynamic = auto, specialize_float; five calls, lr changes");
  adam(kSpecializeFloat);
  row("6: row 5 with floats as they are by default");
  adam({});
  row("6: row 5 with lr a 0-d tensor");
  adam(kSpecializeFloat, scalar(0.01, f32));

  row("7: fn(x) = x + 1, dynamic = false; ones(i) for i = 1..9");
  {
    auto fn = compile(add_one, {.dynamic = Dynamic::no, .name = "fn", .args = {"x"}});
    for (int i = 1; i <= 9; ++i) fn(ones({i}));
    compiles(fn);
  }
  row("8: row 7 as gn, cache_size_limit = 16");
  {
    auto gn =
        compile(add_one, {.dynamic = Dynamic::no, .options = {"guards.cache_size_limit=16"}, .name = "gn", .args = {"x"}});
    for (int i = 1; i <= 9; ++i) gn(ones({i}));
    compiles(gn);
  }

  row("9: fn(x, c): y = big(x); return y + c; dynamic = false; ones(3), c = 1..4");
  {
    auto fn = compile(
        [](const Tensor& x, int64_t c) {
          const Tensor y = big(x);
          return y + c;
        },
        {.dynamic = Dynamic::no, .name = "fn", .args = {"x", "c"}});
    for (int c = 1; c <= 4; ++c) fn(ones({3}), c);
    compiles(fn);

    std::fprintf(stderr, "\n== 10: without reset after 9, gn(x, c): y = big(x); graph_break(); return y + c; the same calls\n");
    auto gn = compile(
        [](const Tensor& x, int64_t c) {
          const Tensor y = big(x);
          graph_break();
          return y + c;
        },
        {.dynamic = Dynamic::no, .name = "gn", .args = {"x", "c"}});
    for (int c = 1; c <= 4; ++c) gn(ones({3}), c);
    for (const Explanation::Graph& g : explain(gn).graphs) std::fprintf(stderr, "%s %s\n", g.id.c_str(), g.function.c_str());
  }

  two_calls("dtype", ones({4}), ones({4}, bf16));
  two_calls("rank", ones({2, 4}), ones({2, 4, 1}));
  std::vector<float> wide(32, 1);
  two_calls("strides", ones({4, 4}), from_blob(wide.data(), {4, 4}, f32, {8, 1}));
  {
    const NoGradGuard nothing_is_recorded;
    two_calls("requires_grad", ones({4}).requires_grad_(), ones({4}));
  }
  const Context null("null");
  const ContextScope scope(null);
  two_calls("device", empty({4}), empty({4}, f32, "null:0"));
  two_calls("device index", empty({4}, f32, "null:0"), empty({4}, f32, "null:1"));
  return 0;
}
