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

Optimizer::Optimizer(nn::ModuleBase& model, double lr, const SlotsOf& slots_of, std::vector<Group> groups)
    : groups_(std::move(groups)) {
  expect(lr >= 0 && std::isfinite(lr), "learning rate", lr, "a finite number of 0 or more");
  // Scalars lie beside the parameters, so that no step waits for the host.
  const auto parameters = model.named_parameters();
  const Device home = parameters.empty() ? Device() : parameters[0].second->device();
  lr_ = scalar(lr, f64).to(home);
  step_ = scalar(0.0, f64).to(home);
  add_buffer("lr", lr_);
  add_buffer("step", step_);
  for (const auto& [name, parameter] : parameters) {
    names_.push_back(name);
    auto& slots = state_.emplace_back();
    for (const std::string& slot : slots_of(name, *parameter)) {
      slots.push_back(std::make_unique<Tensor>(zeros_like(*parameter)));
      add_buffer(name + "." + slot, *slots.back());
    }
  }
  for (const Group& g : groups_) {
    const auto fits = [&](const std::string& name) { return name.starts_with(g.prefix); };
    if (std::none_of(names_.begin(), names_.end(), fits))
      fail("TSR-F051", "the group '" + g.prefix + "' of an optimiser fits no parameter",
           "groups go by the beginning of a parameter's name: " + (names_.empty() ? "there are none" : names_[0] + ", ..."));
    expect(g.lr_scale >= 0 && std::isfinite(g.lr_scale), "lr_scale", g.lr_scale, "a finite number of 0 or more");
    scales_.push_back(std::make_unique<Tensor>(scalar(g.lr_scale, f64).to(home)));
    add_buffer("lr_scale." + g.prefix, *scales_.back());
  }
}

size_t Optimizer::group_of(const std::string& name) const {
  size_t best = groups_.size();
  for (size_t i = 0; i < groups_.size(); ++i)
    if (name.starts_with(groups_[i].prefix) &&
        (best == groups_.size() || groups_[i].prefix.size() > groups_[best].prefix.size()))
      best = i;
  return best;
}

void Optimizer::step(nn::ModuleBase& model, const std::vector<Tensor>& gradients) { step(model, gradients, Tensor()); }

void Optimizer::step(nn::ModuleBase& model, const std::vector<Tensor>& gradients, const Tensor& apply) {
  const auto parameters = model.named_parameters();
  if (parameters.size() != names_.size() || gradients.size() != names_.size())
    fail("TSR-F051",
         "an optimiser made for " + std::to_string(names_.size()) + " parameters got a module with " +
             std::to_string(parameters.size()) + " and " + std::to_string(gradients.size()) + " gradients",
         "give the module that it was made for, and grad(loss, module)");
  const auto replace = [&](Tensor& place, const Tensor& next) { place = apply.defined() ? where(apply, next, place) : next; };
  const Tensor steps = step_ + 1.0;
  for (size_t i = 0; i < names_.size(); ++i) {
    const size_t group = group_of(names_[i]);
    Scalars s{lr_, steps, default_weight_decay_};
    if (group < groups_.size()) {
      s.lr = lr_ * *scales_[group];
      if (groups_[group].weight_decay >= 0) s.weight_decay = groups_[group].weight_decay;
    }
    std::vector<Tensor> next;
    std::vector<Tensor*> slots;
    for (const auto& slot : state_[i]) next.push_back(*slot);
    for (Tensor& slot : next) slots.push_back(&slot);
    const Tensor& parameter = *parameters[i].second;
    replace(*parameters[i].second, update(parameter, gradients[i].to(parameter.dtype()), s, slots));
    for (size_t k = 0; k < next.size(); ++k) replace(*state_[i][k], next[k]);
  }
  replace(step_, steps);
}

void Optimizer::set_lr(double lr) {
  expect(lr >= 0 && std::isfinite(lr), "learning rate", lr, "a finite number of 0 or more");
  lr_ = scalar(lr, f64).to(lr_.device());
}
void Optimizer::set_lr_scale(const std::string& prefix, double scale) {
  expect(scale >= 0 && std::isfinite(scale), "lr_scale", scale, "a finite number of 0 or more");
  for (size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].prefix == prefix) {
      *scales_[i] = scalar(scale, f64).to(scales_[i]->device());
      return;
    }
  fail("TSR-F051", "an optimiser has no group '" + prefix + "'", "groups are given when the optimiser is made");
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

namespace {
// The step of Adam, or with `decoupled` of AdamW, on the first and second moments in `state`.
Tensor adam_step(const AdamOptions& o, bool decoupled, const Tensor& parameter, const Tensor& gradient, const Tensor& lr,
                 const Tensor& step, double weight_decay, std::vector<Tensor*>& state) {
  Tensor p = parameter, g = gradient;
  if (weight_decay != 0 && decoupled) p = p * beside(1.0 - lr * weight_decay, p);
  if (weight_decay != 0 && !decoupled) g = g + p * weight_decay;
  Tensor &m = *state[0], &v = *state[1];
  m = m + (g - m) * (1 - o.beta1);
  v = v * o.beta2 + g * g * (1 - o.beta2);
  const Tensor correction1 = 1.0 - scalar(o.beta1, f64).pow(step);
  const Tensor correction2 = (1.0 - scalar(o.beta2, f64).pow(step)).sqrt();
  const Tensor denominator = v.sqrt() / beside(correction2, v) + o.eps;
  return p - beside(lr / correction1, p) * (m / denominator);
}
}  // namespace

Tensor Adam::update(const Tensor& p, const Tensor& g, const Scalars& s, std::vector<Tensor*>& state) {
  return adam_step(o_, decoupled_, p, g, s.lr, s.step, s.weight_decay, state);
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

// ---------------------------------------------------------------------------------------------------------------- Muon

namespace {

bool among(const std::string& name, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& p) { return name.starts_with(p); });
}

// The orthogonal factor of a matrix, approximately: singular values end up near 1. The coefficients are Jordan's, chosen for
// the steepest slope at zero.
Tensor orthogonalised(const Tensor& matrix, int64_t steps, double eps) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const bool tall = static_cast<int64_t>(matrix.size(0)) > static_cast<int64_t>(matrix.size(1));
  Tensor x = tall ? matrix.t() : matrix;
  x = x / x.norm().clamp(eps);
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor gram = x.matmul(x.t());
    const Tensor polynomial = gram * b + gram.matmul(gram) * c;
    x = x * a + polynomial.matmul(x);
  }
  return tall ? x.t() : x;
}

}  // namespace

Muon::Muon(nn::ModuleBase& model, MuonOptions o)
    : Optimizer(
          model, o.lr,
          [&](const std::string& name, const Tensor& p) {
            return p.dim() == 2 && !among(name, o.adam_prefixes) ? std::vector<std::string>{"momentum"}
                                                                 : std::vector<std::string>{"exp_avg", "exp_avg_sq"};
          },
          o.groups),
      o_(std::move(o)) {
  expect(o_.lr > 0, "learning rate", o_.lr, "a number above 0");
  expect(o_.momentum >= 0, "momentum", o_.momentum, "0 or more");
  expect(o_.steps >= 1 && o_.steps < 100, "number of steps", static_cast<double>(o_.steps), "1 to 99");
  expect(o_.weight_decay >= 0, "weight decay", o_.weight_decay, "0 or more");
  default_weight_decay_ = o_.weight_decay;
}

Tensor Muon::update(const Tensor& parameter, const Tensor& g, const Scalars& s, std::vector<Tensor*>& state) {
  if (state.size() == 2)
    return adam_step(o_.adam, true, parameter, g, s.lr * (o_.adam.lr / o_.lr), s.step, o_.adam.weight_decay, state);
  Tensor& momentum = *state[0];
  momentum = momentum + (g - momentum) * (1 - o_.momentum);
  const Tensor direction = orthogonalised(o_.nesterov ? g + (momentum - g) * o_.momentum : momentum, o_.steps, o_.eps);
  const auto rows = static_cast<double>(static_cast<int64_t>(parameter.size(0)));
  const auto columns = static_cast<double>(static_cast<int64_t>(parameter.size(1)));
  const double ratio =
      o_.adjust == MuonOptions::original ? std::sqrt(std::max(1.0, rows / columns)) : 0.2 * std::sqrt(std::max(rows, columns));
  const Tensor p = parameter * beside(1.0 - s.lr * s.weight_decay, parameter);
  return p - beside(s.lr * ratio, p) * direction;
}

// -------------------------------------------------------------------------------------------------------- accumulation

Accumulator::Accumulator(nn::ModuleBase& model) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    sums_.push_back(std::make_unique<Tensor>(zeros_like(*parameter)));
    add_buffer(name, *sums_.back());
  }
}

void Accumulator::add(const std::vector<Tensor>& gradients) {
  if (gradients.size() != sums_.size())
    fail("TSR-F051", "an accumulator made for " + std::to_string(sums_.size()) + " parameters got " +
                         std::to_string(gradients.size()) + " gradients");
  for (size_t i = 0; i < sums_.size(); ++i) *sums_[i] = *sums_[i] + gradients[i];
}

std::vector<Tensor> Accumulator::take(int64_t batches) {
  if (batches < 1) fail("TSR-F051", "Accumulator::take: " + std::to_string(batches) + " batches, expected 1 or more");
  std::vector<Tensor> out;
  for (const auto& sum : sums_) {
    out.push_back(*sum / static_cast<double>(batches));
    *sum = zeros_like(*sum);
  }
  return out;
}

// -------------------------------------------------------------------------------------------------------- loss scaling

LossScaler::LossScaler(double initial, double growth, double backoff, int64_t interval)
    : growth_(growth), backoff_(backoff), interval_(interval) {
  if (!(initial > 0 && std::isfinite(initial) && growth >= 1 && backoff > 0 && backoff <= 1 && interval >= 1))
    fail("TSR-F051",
         "a loss scaler of " + std::to_string(initial) + " that grows by " + std::to_string(growth) + " and shrinks by " +
             std::to_string(backoff) + " every " + std::to_string(interval) + " steps",
         "expected a scale above 0, growth of 1 or more, backoff above 0 and at most 1, and an interval of 1 or more");
  scale_ = scalar(initial, f32);
  good_ = scalar(0.0, f32);
  add_buffer("scale", scale_);
  add_buffer("good_steps", good_);
}

Tensor LossScaler::scale(const Tensor& loss) const {
  return loss.dtype() == f64 ? loss * scale_.to(f64) : loss.to(f32) * scale_;
}

Tensor LossScaler::unscale(std::vector<Tensor>& gradients) {
  Tensor finite = ones({}, boolean);
  for (Tensor& g : gradients) {
    if (g.dtype() != f64) g = g.to(f32);
    finite = finite & (g * 0.0 == 0.0).all();  // infinities and NaN give NaN
    g = g / scale_.to(g.dtype());
  }
  const Tensor good = where(finite, good_ + 1.0, zeros_like(good_));
  const Tensor grows = good >= static_cast<double>(interval_);
  scale_ = where(finite, where(grows, scale_ * growth_, scale_), scale_ * backoff_);
  good_ = where(grows, zeros_like(good), good);
  return finite;
}

// ------------------------------------------------------------------------------------------------ clipping, schedules

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

void clip_grad_value(std::vector<Tensor>& gradients, double limit) {
  if (!(limit > 0)) fail("TSR-F051", "clip_grad_value: limit is " + std::to_string(limit) + ", expected a number above 0");
  for (Tensor& g : gradients) g = g.clamp(-limit, limit);
}

namespace {
double rising(int64_t step, int64_t warmup, double peak) {
  return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
}
double done(int64_t step, int64_t warmup, int64_t total) {  // of what follows the warmup, 0 to 1
  return static_cast<double>(step - warmup) / static_cast<double>(std::max<int64_t>(1, total - warmup));
}
}  // namespace

double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor) {
  if (step < warmup) return rising(step, warmup, peak);
  if (step >= total) return floor;
  return floor + 0.5 * (peak - floor) * (1 + std::cos(std::numbers::pi * done(step, warmup, total)));
}

double warmup_linear(int64_t step, int64_t warmup, int64_t total, double peak, double floor) {
  if (step < warmup) return rising(step, warmup, peak);
  if (step >= total) return floor;
  return peak - (peak - floor) * done(step, warmup, total);
}

double inverse_sqrt(int64_t step, int64_t warmup, double peak) {
  if (step < warmup) return rising(step, warmup, peak);
  return peak * std::sqrt(static_cast<double>(std::max<int64_t>(1, warmup)) / static_cast<double>(step + 1));
}

double exponential_decay(int64_t step, double base, double factor) {
  return base * std::pow(factor, static_cast<double>(step));
}

double step_decay(int64_t step, int64_t every, double base, double factor) {
  return base * std::pow(factor, static_cast<double>(step / std::max<int64_t>(1, every)));
}

}  // namespace tessera::optim
