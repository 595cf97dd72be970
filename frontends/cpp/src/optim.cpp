// SPDX-License-Identifier: Apache-2.0
// Each update follows the single-tensor implementation in torch.optim, in its order of operations.
#include "tessera/optim.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trace.hpp"

namespace tessera::optim {

using detail::fail;

namespace {

// Scalars of an update are f64; beside a tensor they take its dtype, as Python's numbers do in PyTorch.
Tensor beside(const Tensor& scalar, const Tensor& x) { return scalar.to(x.dtype()); }

}  // namespace

void Optimizer::expect(bool holds, const char* what, double found, const char* expected) {
  if (!holds)
    fail("TSR-F051", std::string("an optimiser's ") + what + " is " + std::to_string(found) + ", expected " + expected);
}

Optimizer::Optimizer(nn::ModuleBase& model, double lr, std::vector<std::string> slots, std::vector<Group> groups)
    : slots_(std::move(slots)), groups_(std::move(groups)) {
  expect(lr >= 0 && std::isfinite(lr), "learning rate", lr, "a finite number of 0 or more");
  lr_ = scalar(lr, f64);
  step_ = scalar(0.0, f64);
  add_buffer("lr", lr_);
  add_buffer("step", step_);
  for (const auto& [name, parameter] : model.named_parameters()) {
    names_.push_back(name);
    for (const std::string& slot : slots_) {
      state_.push_back(std::make_unique<Tensor>(zeros_like(*parameter)));
      add_buffer(name + "." + slot, *state_.back());
    }
  }
  for (const Group& g : groups_) {
    const auto fits = [&](const std::string& name) { return name.starts_with(g.prefix); };
    if (std::none_of(names_.begin(), names_.end(), fits))
      fail("TSR-F051", "the group '" + g.prefix + "' of an optimiser fits no parameter",
           "groups go by the beginning of a parameter's name: " + (names_.empty() ? "there are none" : names_[0] + ", ..."));
  }
}

const Group* Optimizer::group_of(const std::string& name) const {
  const Group* best = nullptr;
  for (const Group& g : groups_)
    if (name.starts_with(g.prefix) && (!best || g.prefix.size() > best->prefix.size())) best = &g;
  return best;
}

void Optimizer::step(nn::ModuleBase& model, const std::vector<Tensor>& gradients) {
  const auto parameters = model.named_parameters();
  if (parameters.size() != names_.size() || gradients.size() != names_.size())
    fail("TSR-F051",
         "an optimiser made for " + std::to_string(names_.size()) + " parameters got a module with " +
             std::to_string(parameters.size()) + " and " + std::to_string(gradients.size()) + " gradients",
         "give the module that it was made for, and grad(loss, module)");
  step_ = step_ + 1.0;
  for (size_t i = 0; i < names_.size(); ++i) {
    const Group* group = group_of(names_[i]);
    Scalars s{lr_, step_, default_weight_decay_};
    if (group && group->lr_scale != 1) s.lr = lr_ * group->lr_scale;
    if (group && group->weight_decay >= 0) s.weight_decay = group->weight_decay;
    std::vector<Tensor*> state;
    for (size_t k = 0; k < slots_.size(); ++k) state.push_back(state_[i * slots_.size() + k].get());
    *parameters[i].second = update(*parameters[i].second, gradients[i], s, state);
  }
}

void Optimizer::set_lr(double lr) {
  expect(lr >= 0 && std::isfinite(lr), "learning rate", lr, "a finite number of 0 or more");
  lr_ = scalar(lr, f64);
}
double Optimizer::lr() const { return lr_.item<double>(); }
int64_t Optimizer::steps() const { return static_cast<int64_t>(step_.item<double>()); }

SGD::SGD(nn::ModuleBase& model, SgdOptions o)
    : Optimizer(model, o.lr, o.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}, o.groups),
      o_(std::move(o)) {
  expect(o_.momentum >= 0, "momentum", o_.momentum, "0 or more");
  expect(!o_.nesterov || (o_.momentum > 0 && o_.dampening == 0), "dampening with Nesterov's momentum", o_.dampening,
         "0, beside a momentum above 0");
  default_weight_decay_ = o_.weight_decay;
}

Tensor SGD::update(const Tensor& p, const Tensor& gradient, const Scalars& s, std::vector<Tensor*>& state) {
  Tensor g = gradient;
  if (s.weight_decay != 0) g = g + p * s.weight_decay;
  if (!state.empty()) {
    Tensor& momentum = *state[0];
    // The first step takes the gradient as it is.
    Tensor next = momentum * o_.momentum + g * (1 - o_.dampening);
    if (o_.dampening != 0) next = where(s.step == scalar(1.0, f64), g, next);
    momentum = next;
    g = o_.nesterov ? g + momentum * o_.momentum : momentum;
  }
  return p - beside(s.lr, p) * g;
}

Adam::Adam(nn::ModuleBase& model, AdamOptions options) : Adam(model, std::move(options), false) {}

Adam::Adam(nn::ModuleBase& model, AdamOptions o, bool decoupled)
    : Optimizer(model, o.lr, {"exp_avg", "exp_avg_sq"}, o.groups), o_(std::move(o)), decoupled_(decoupled) {
  expect(o_.beta1 >= 0 && o_.beta1 < 1, "beta1", o_.beta1, "0 to 1, without 1");
  expect(o_.beta2 >= 0 && o_.beta2 < 1, "beta2", o_.beta2, "0 to 1, without 1");
  expect(o_.eps >= 0, "eps", o_.eps, "0 or more");
  expect(o_.weight_decay >= 0, "weight decay", o_.weight_decay, "0 or more");
  default_weight_decay_ = o_.weight_decay;
}

Tensor Adam::update(const Tensor& parameter, const Tensor& gradient, const Scalars& s, std::vector<Tensor*>& state) {
  Tensor p = parameter, g = gradient;
  if (s.weight_decay != 0 && decoupled_) p = p * beside(1.0 - s.lr * s.weight_decay, p);
  if (s.weight_decay != 0 && !decoupled_) g = g + p * s.weight_decay;
  Tensor &m = *state[0], &v = *state[1];
  m = m + (g - m) * (1 - o_.beta1);
  v = v * o_.beta2 + g * g * (1 - o_.beta2);
  const Tensor correction1 = 1.0 - scalar(o_.beta1, f64).pow(s.step);
  const Tensor correction2 = (1.0 - scalar(o_.beta2, f64).pow(s.step)).sqrt();
  const Tensor denominator = v.sqrt() / beside(correction2, v) + o_.eps;
  return p - beside(s.lr / correction1, p) * (m / denominator);
}

AdamW::AdamW(nn::ModuleBase& model, AdamOptions options) : Adam(model, std::move(options), true) {}

Lion::Lion(nn::ModuleBase& model, LionOptions o) : Optimizer(model, o.lr, {"exp_avg"}, o.groups), o_(std::move(o)) {
  expect(o_.beta1 >= 0 && o_.beta1 < 1, "beta1", o_.beta1, "0 to 1, without 1");
  expect(o_.beta2 >= 0 && o_.beta2 < 1, "beta2", o_.beta2, "0 to 1, without 1");
  default_weight_decay_ = o_.weight_decay;
}

Tensor Lion::update(const Tensor& parameter, const Tensor& g, const Scalars& s, std::vector<Tensor*>& state) {
  Tensor p = parameter;
  if (s.weight_decay != 0) p = p * beside(1.0 - s.lr * s.weight_decay, p);
  Tensor& m = *state[0];
  const Tensor direction = (m * o_.beta1 + g * (1 - o_.beta1)).sign();
  m = m * o_.beta2 + g * (1 - o_.beta2);
  return p - beside(s.lr, p) * direction;
}

Tensor clip_grad_norm(std::vector<Tensor>& gradients, double max_norm) {
  if (!(max_norm > 0))
    fail("TSR-F051", "clip_grad_norm: max_norm is " + std::to_string(max_norm) + ", expected a number above 0");
  if (gradients.empty()) return scalar(0.0, f32);
  std::vector<Tensor> norms;
  for (const Tensor& g : gradients) norms.push_back(g.norm());
  const Tensor total = stack(norms).norm();
  const Tensor factor = (max_norm / (total + 1e-6)).clamp({}, 1.0);
  for (Tensor& g : gradients) g = g * factor.to(g.dtype());
  return total;
}

double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor) {
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return floor;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup));
  return floor + 0.5 * (peak - floor) * (1 + std::cos(std::numbers::pi * done));
}

double step_decay(int64_t step, int64_t every, double base, double factor) {
  return base * std::pow(factor, static_cast<double>(step / std::max<int64_t>(1, every)));
}

}  // namespace tessera::optim
