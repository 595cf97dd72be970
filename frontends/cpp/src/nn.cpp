// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn.hpp"

#include <cmath>
#include <set>

#include "attrs.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera::nn {

using detail::fail;

Tensor& ModuleBase::add(const std::string& name, Tensor& parameter) {
  entries_.push_back({name, &parameter, nullptr, false});
  return parameter;
}
Tensor& ModuleBase::add_buffer(const std::string& name, Tensor& buffer) {
  entries_.push_back({name, &buffer, nullptr, true});
  return buffer;
}
void ModuleBase::add_child(const std::string& name, ModuleBase& child) { entries_.push_back({name, nullptr, &child, false}); }

size_t ModuleBase::registrations() const {
  size_t n = entries_.size();
  for (const Entry& e : entries_)
    if (e.child) n += e.child->registrations();
  return n;
}

void ModuleBase::collect(const std::string& prefix, std::vector<Leaf>& leaves, std::vector<const bool*>& flags) {
  flags.push_back(&training_);
  for (const Entry& e : entries_) {
    if (e.child)
      e.child->collect(prefix + e.name + ".", leaves, flags);
    else
      leaves.push_back({e.tensor, e.buffer, prefix + e.name});
  }
}

const std::vector<ModuleBase::Leaf>& ModuleBase::leaves() {
  // A module may grow between calls (ModuleList::emplace): collect again when the count changed.
  if (const size_t n = registrations(); n != collected_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(collecting_);  // several threads may be the first
    if (n == collected_.load(std::memory_order_relaxed)) return leaves_;
    leaves_.clear();
    flags_.clear();
    collect("", leaves_, flags_);
    collected_.store(n, std::memory_order_release);
  }
  return leaves_;
}
const std::vector<const bool*>& ModuleBase::training_flags() {
  leaves();
  return flags_;
}

std::vector<std::pair<std::string, Tensor*>> ModuleBase::named_parameters() {
  std::vector<std::pair<std::string, Tensor*>> out;
  for (const Leaf& l : leaves())
    if (!l.buffer && l.tensor->defined()) out.emplace_back(l.path, l.tensor);
  return out;
}
std::vector<std::pair<std::string, Tensor*>> ModuleBase::named_buffers() {
  std::vector<std::pair<std::string, Tensor*>> out;
  for (const Leaf& l : leaves())
    if (l.buffer && l.tensor->defined()) out.emplace_back(l.path, l.tensor);
  return out;
}
int64_t ModuleBase::num_parameters() {
  int64_t n = 0;
  std::set<const void*> seen;  // tied weights count once
  for (auto& [name, t] : named_parameters())
    if (seen.insert(t->handle()).second) n += static_cast<int64_t>(t->numel());
  return n;
}
std::map<std::string, Tensor> ModuleBase::state_dict() {
  std::map<std::string, Tensor> out;
  for (const Leaf& l : leaves())
    if (l.tensor->defined()) out.emplace(l.path, *l.tensor);
  return out;
}
void ModuleBase::load_state_dict(const std::map<std::string, Tensor>& state) {
  std::string faults;
  std::set<std::string> known;
  for (const Leaf& l : leaves()) {
    if (!l.tensor->defined()) continue;
    known.insert(l.path);
    auto it = state.find(l.path);
    if (it == state.end())
      faults += "\n  missing: " + l.path;
    else if (it->second.sizes() != l.tensor->sizes() || it->second.dtype() != l.tensor->dtype())
      faults += "\n  " + l.path + ": shape or dtype differs";
  }
  for (const auto& [key, t] : state)
    if (!known.count(key)) faults += "\n  unexpected: " + key;
  if (!faults.empty())
    fail("TSR-F040", "the state does not fit the module:" + faults, "save the state from a module of the same structure");
  for (const Leaf& l : leaves())
    if (l.tensor->defined()) {
      Tensor now = state.at(l.path).to(l.tensor->device());
      if (l.tensor->requires_grad()) now = now.detach().requires_grad_();
      *l.tensor = now;
    }
}
void ModuleBase::train(bool on) {
  training_ = on;
  for (const Entry& e : entries_)
    if (e.child) e.child->train(on);
}
void ModuleBase::convert(const std::function<Tensor(const Tensor&)>& f) {
  std::map<const void*, std::pair<Tensor, Tensor>> seen;  // keeps what was converted, so that no address comes twice
  for (const Leaf& l : leaves()) {
    if (!l.tensor->defined()) continue;
    auto [at, fresh] = seen.try_emplace(l.tensor->handle());
    if (fresh) {
      Tensor now = f(*l.tensor);
      if (l.tensor->requires_grad() && !now.requires_grad()) now.requires_grad_();
      at->second = {*l.tensor, std::move(now)};
    }
    *l.tensor = at->second.second;
  }
}
void ModuleBase::to(DType dtype) {
  convert([&](const Tensor& t) { return is_float(static_cast<uint32_t>(t.dtype())) ? t.to(dtype) : t; });
}
void ModuleBase::to(const Device& device) {
  convert([&](const Tensor& t) { return t.to(device); });
}

void ModuleBase::requires_grad_(bool on) {
  for (const auto& [name, t] : named_parameters())
    if (is_float(static_cast<uint32_t>(t->dtype()))) t->requires_grad_(on);
}
std::vector<Tensor> ModuleBase::gradients() {
  std::vector<Tensor> out;
  for (const auto& [name, t] : named_parameters()) {
    out.push_back(t->grad());
    if (!out.back().defined()) out.back() = zeros_like(*t);
  }
  return out;
}
void ModuleBase::zero_grad() {
  for (const auto& [name, t] : named_parameters()) t->zero_grad();
}

// ------------------------------------------------------------------------------------------------------------- modules

namespace {
Tensor uniform(Shape shape, double bound, DType d) { return ((rand(std::move(shape)) * (2 * bound)) - bound).to(d); }
}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias, DType d) {
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  weight = uniform({out, in}, bound, d);
  if (with_bias) bias = uniform({out}, bound, d);
  add("weight", weight);
  add("bias", bias);
}
Embedding::Embedding(int64_t count, int64_t width, DType d) : weight(randn({count, width}).to(d)) { add("weight", weight); }
LayerNorm::LayerNorm(int64_t width, double e, DType d)
    : weight(ones({width}, d)), bias(zeros({width}, d)), shape{width}, eps(e) {
  add("weight", weight);
  add("bias", bias);
}
RMSNorm::RMSNorm(int64_t width, double e, DType d) : weight(ones({width}, d)), shape{width}, eps(e) { add("weight", weight); }
Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t s, int64_t p, int64_t dil, int64_t g, bool with_bias, DType d)
    : stride{s}, padding{p}, dilation{dil}, groups(g) {
  const double bound = 1 / std::sqrt(static_cast<double>(in / g * kernel * kernel));
  weight = uniform({out, in / g, kernel, kernel}, bound, d);
  if (with_bias) bias = uniform({out}, bound, d);
  add("weight", weight);
  add("bias", bias);
}
BatchNorm2d::BatchNorm2d(int64_t c, double e, double m, DType d)
    : weight(ones({c}, d)), bias(zeros({c}, d)), running_mean(zeros({c}, d)), running_var(ones({c}, d)), eps(e), momentum(m) {
  add("weight", weight);
  add("bias", bias);
  add_buffer("running_mean", running_mean);
  add_buffer("running_var", running_var);
}
Tensor BatchNorm2d::forward(const Tensor& x) {
  if (!is_training()) return F::batch_norm(x, running_mean, running_var, weight, bias, eps);
  const Tensor in[] = {x, weight, bias, running_mean, running_var};
  const tsr_attr attrs[] = {detail::float_attr("momentum", momentum), detail::float_attr("eps", eps)};
  std::vector<Tensor> out;
  detail::run_op("batch_norm_training", in, attrs, out);
  running_mean = out[1];
  running_var = out[2];
  return out[0];
}

}  // namespace tessera::nn
