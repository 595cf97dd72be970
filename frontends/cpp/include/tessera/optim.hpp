// SPDX-License-Identifier: Apache-2.0
// Optimisers and learning-rate schedules. An optimiser is a module whose buffers are its state: passed by reference to a
// compiled training step, its state is read and written by the compiled program, and the learning rate is a tensor, so that
// changing it compiles nothing.
//
//   optim::AdamW optimizer(model, {.lr = 3e-4});
//   auto step = tessera::compile([](Model& m, optim::AdamW& o, const Tensor& x, const Tensor& y) {
//     Tensor loss = F::cross_entropy(m(x), y);
//     o.step(m, grad(loss, m));
//     return loss;
//   });
//
// The updates are those of torch.optim, operation by operation. Parameters are floating-point tensors of any dtype; state and
// arithmetic have the parameter's dtype, scalars of an update are computed in f64.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn.hpp"

namespace tessera::optim {

// Parameters whose name begins with `prefix` learn at `lr_scale` times the rate and decay by `weight_decay`, if that is not
// negative. The longest prefix that fits wins. Optimizer::set_lr_scale changes the scale later.
struct Group {
  std::string prefix;
  double lr_scale = 1;
  double weight_decay = -1;
};

// What optimisers share: the learning rate, the number of steps taken, and one slot of each kind of state per parameter.
class Optimizer : public nn::ModuleBase {
 public:
  // `gradients` in the order of model.named_parameters(); their count must agree (TSR-F051). Inside a compiled function.
  void step(nn::ModuleBase& model, const std::vector<Tensor>& gradients);
  // As step, but only where the bool[] tensor `apply` is true: else parameters and state keep their bits. The decision is made
  // in the compiled program, and the host reads nothing.
  void step(nn::ModuleBase& model, const std::vector<Tensor>& gradients, const Tensor& apply);
  // The rate of all groups, and what the group of this prefix multiplies it by (TSR-F051 for a prefix that no group has).
  // Outside of compiled functions. Neither compiles anything.
  void set_lr(double lr);
  void set_lr_scale(const std::string& prefix, double scale);
  double lr() const;
  int64_t steps() const;  // that have been taken
  const std::vector<Group>& groups() const { return groups_; }

 protected:
  // The names of the state tensors that a parameter has, zero at first.
  using SlotsOf = std::function<std::vector<std::string>(const std::string& name, const Tensor& parameter)>;
  // Throws TSR-F051 for hyperparameters out of range.
  Optimizer(nn::ModuleBase& model, double lr, const SlotsOf& slots_of, std::vector<Group> groups);
  Optimizer(nn::ModuleBase& model, double lr, const std::vector<std::string>& slots, std::vector<Group> groups)
      : Optimizer(
            model, lr, [&](const std::string&, const Tensor&) { return slots; }, std::move(groups)) {}
  struct Scalars {
    Tensor lr;    // f64[], scaled for the parameter's group
    Tensor step;  // f64[], 1 in the first step
    double weight_decay;
  };
  // The parameter after the step. `state` holds its slots, which are replaced.
  virtual Tensor update(const Tensor& parameter, const Tensor& gradient, const Scalars&, std::vector<Tensor*>& state) = 0;
  static void expect(bool holds, const char* what, double found, const char* expected);
  double default_weight_decay_ = 0;

 private:
  size_t group_of(const std::string& name) const;  // its index; groups_.size(): none
  Tensor lr_, step_;                               // f64[]
  std::vector<std::unique_ptr<Tensor>> scales_;    // f64[] by group
  std::vector<std::string> names_;
  std::vector<std::vector<std::unique_ptr<Tensor>>> state_;  // by parameter, then slot
  std::vector<Group> groups_;
};

struct SgdOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  std::vector<Group> groups = {};
};
class SGD : public Optimizer {
 public:
  SGD(nn::ModuleBase& model, SgdOptions options = {});

 private:
  Tensor update(const Tensor&, const Tensor&, const Scalars&, std::vector<Tensor*>&) override;
  SgdOptions o_;
};

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::vector<Group> groups = {};
};
// Kingma and Ba 2015; weight decay is added to the gradient.
class Adam : public Optimizer {
 public:
  Adam(nn::ModuleBase& model, AdamOptions options = {});

 protected:
  Adam(nn::ModuleBase& model, AdamOptions options, bool decoupled);
  Tensor update(const Tensor&, const Tensor&, const Scalars&, std::vector<Tensor*>&) override;

 private:
  AdamOptions o_;
  bool decoupled_ = false;
};
// Loshchilov and Hutter 2019: weight decay shrinks the parameter, apart from the gradient.
class AdamW : public Adam {
 public:
  static AdamOptions defaults() {
    AdamOptions o;
    o.weight_decay = 0.01;
    return o;
  }
  AdamW(nn::ModuleBase& model, AdamOptions options = defaults());
};

struct LionOptions {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  std::vector<Group> groups = {};
};
// Chen et al. 2023: the sign of an interpolation of momentum and gradient.
class Lion : public Optimizer {
 public:
  Lion(nn::ModuleBase& model, LionOptions options = {});

 private:
  Tensor update(const Tensor&, const Tensor&, const Scalars&, std::vector<Tensor*>&) override;
  LionOptions o_;
};

struct MuonOptions {
  double lr = 1e-3, momentum = 0.95, weight_decay = 0.1, eps = 1e-7;
  bool nesterov = true;
  int64_t steps = 5;  // of the Newton-Schulz iteration
  // How the rate follows from the shape [a, b] of a matrix. original: sqrt(max(1, a / b)); match_rms_adamw: 0.2 sqrt(max(a,
  // b)).
  enum Adjust { original, match_rms_adamw } adjust = original;
  // Parameters that are no matrices, and those whose name begins with one of these, take AdamW's step with `adam`, whose lr
  // counts relative to that of Muon's at the start.
  std::vector<std::string> adam_prefixes = {};
  AdamOptions adam = {.lr = 3e-4, .weight_decay = 0.01};
  std::vector<Group> groups = {};
};
// Jordan et al. 2024: the momentum of a matrix, made orthogonal by a Newton-Schulz iteration. As torch.optim.Muon, but that the
// iteration has the parameter's dtype where PyTorch takes bf16.
class Muon : public Optimizer {
 public:
  Muon(nn::ModuleBase& model, MuonOptions options = {});

 private:
  Tensor update(const Tensor&, const Tensor&, const Scalars&, std::vector<Tensor*>&) override;
  MuonOptions o_;
};

// Sums of gradients over several micro-batches. A module whose buffers are the sums.
//
//   optim::Accumulator sums(model);
//   auto step = compile([](Model& m, Optimizer& o, optim::Accumulator& a, const Tensor& x, const Tensor& y, bool last) {
//     Tensor loss = F::cross_entropy(m(x), y);
//     a.add(grad(loss, m));
//     if (last) o.step(m, a.take(4));  // `last` is guarded: two programs, whatever the number of micro-batches
//     return loss;
//   });
class Accumulator : public nn::ModuleBase {
 public:
  explicit Accumulator(nn::ModuleBase& model);
  void add(const std::vector<Tensor>& gradients);  // TSR-F051 where their number is not that of the parameters
  std::vector<Tensor> take(int64_t batches);       // the sums divided by `batches`; the sums are zero afterwards

 private:
  std::vector<std::unique_ptr<Tensor>> sums_;
};

// Loss scaling for gradients in f16, whose small ones would be zero: the loss is multiplied before the gradient is taken. A
// step whose gradients are not finite is skipped and halves the scale; `interval` good ones in a row double it. Everything is
// part of the compiled program, and the host reads nothing. A module whose buffers are the scale and the number of good steps.
//
//   std::vector<Tensor> g = grad(scaler.scale(loss), m);
//   Tensor finite = scaler.unscale(g);
//   o.step(m, g, finite);
class LossScaler : public nn::ModuleBase {
 public:
  explicit LossScaler(double initial = 65536, double growth = 2, double backoff = 0.5, int64_t interval = 2000);
  Tensor scale(const Tensor& loss) const;
  // Divides the gradients by the scale, in f32 where they are narrower, and adapts it. Returns whether all are finite: bool[].
  Tensor unscale(std::vector<Tensor>& gradients);
  double current() const { return scale_.item<double>(); }  // outside of compiled functions

 private:
  Tensor scale_, good_;  // f32[]
  double growth_, backoff_;
  int64_t interval_;
};

// Scales gradients so that the 2-norm of all of them together is at most `max_norm`. Returns the norm before (f32 or f64, 0-d);
// torch.nn.utils.clip_grad_norm_.
Tensor clip_grad_norm(std::vector<Tensor>& gradients, double max_norm);
// Limits each element to [-limit, limit]; torch.nn.utils.clip_grad_value_.
void clip_grad_value(std::vector<Tensor>& gradients, double limit);

// Learning rates by step, counted from 0, as plain numbers for Optimizer::set_lr. Those with a warmup rise linearly to `peak`
// in the first `warmup` steps.
double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor = 0);
double warmup_linear(int64_t step, int64_t warmup, int64_t total, double peak, double floor = 0);
double inverse_sqrt(int64_t step, int64_t warmup, double peak);  // peak sqrt(warmup / step), Vaswani et al. 2017
double step_decay(int64_t step, int64_t every, double base, double factor);
double exponential_decay(int64_t step, double base, double factor);

}  // namespace tessera::optim
