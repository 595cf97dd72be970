// SPDX-License-Identifier: Apache-2.0
// Optimisers and learning-rate schedules. An optimiser is a module whose buffers are its state: passed by reference to a compiled
// training step, its state is read and written by the compiled program, and the learning rate is a tensor, so that changing it
// compiles nothing.
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
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn.hpp"

namespace tessera::optim {

// Parameters whose name begins with `prefix` learn at `lr_scale` times the rate and decay by `weight_decay`, if that is not
// negative. The longest prefix that fits wins.
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
  void set_lr(double lr);  // outside of compiled functions
  double lr() const;
  int64_t steps() const;  // that have been taken
  const std::vector<Group>& groups() const { return groups_; }

 protected:
  // `slots`: names of the state tensors that each parameter has, zero at first. Throws TSR-F051 for hyperparameters out of range.
  Optimizer(nn::ModuleBase& model, double lr, std::vector<std::string> slots, std::vector<Group> groups);
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
  const Group* group_of(const std::string& name) const;
  Tensor lr_, step_;                            // f64[]
  std::vector<std::unique_ptr<Tensor>> state_;  // by parameter, then slot
  std::vector<std::string> slots_, names_;
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

// Scales gradients so that the 2-norm of all of them together is at most `max_norm`. Returns the norm before (f32 or f64, 0-d);
// torch.nn.utils.clip_grad_norm_.
Tensor clip_grad_norm(std::vector<Tensor>& gradients, double max_norm);

// Learning rates by step, counted from 0, as plain numbers for Optimizer::set_lr.
double warmup_cosine(int64_t step, int64_t warmup, int64_t total, double peak, double floor = 0);
double step_decay(int64_t step, int64_t every, double base, double factor);

}  // namespace tessera::optim
