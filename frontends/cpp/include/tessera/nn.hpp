// SPDX-License-Identifier: Apache-2.0
// Modules with named parameters, as torch.nn.
//
//   struct Mlp : tessera::nn::Module<Mlp> {
//     tessera::nn::Linear fc1{4, 8}, fc2{8, 2};
//     Mlp() { add("fc1", fc1); add("fc2", fc2); }
//     Tensor forward(const Tensor& x) { return fc2(F::relu(fc1(x))); }
//   };
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ops.hpp"

namespace tessera::nn {

// What a module owns, by name. Members register their own address, so modules are neither copied nor moved.
class ModuleBase {
 public:
  ModuleBase() = default;
  ModuleBase(const ModuleBase&) = delete;
  ModuleBase& operator=(const ModuleBase&) = delete;
  virtual ~ModuleBase() = default;

  // With their paths ("layers.0.weight"), in order of registration, submodules included.
  std::vector<std::pair<std::string, Tensor*>> named_parameters();
  std::vector<std::pair<std::string, Tensor*>> named_buffers();
  int64_t num_parameters();
  std::map<std::string, Tensor> state_dict();  // parameters and buffers
  // Every key must be there and fit in shape and dtype; throws UserError listing what is missing, unexpected or of another
  // shape. Tensors of another device are copied to that of the module's.
  void load_state_dict(const std::map<std::string, Tensor>& state);
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }
  void to(DType dtype);  // floating-point parameters and buffers
  // All parameters and buffers. Optimisers are made after it, or moved too; load_state_dict fills modules where they lie.
  void to(const Device& device);
  // For Tensor::backward: of all floating-point parameters; their gradients in the order of named_parameters(), zeros where a
  // parameter has none; and to forget them. A parameter that a compiled function replaces goes on requiring gradients.
  void requires_grad_(bool on = true);
  std::vector<Tensor> gradients();
  void zero_grad();

  // ---- for the frontend
  struct Leaf {
    Tensor* tensor;
    bool buffer;
    std::string path;
  };
  const std::vector<Leaf>& leaves();  // cached; order of registration
  const std::vector<const bool*>& training_flags();

 protected:
  Tensor& add(const std::string& name, Tensor& parameter);
  Tensor& add_buffer(const std::string& name, Tensor& buffer);
  template <class M>
  requires std::is_base_of_v<ModuleBase, M> M& add(const std::string& name, M& child) {
    add_child(name, child);
    return child;
  }

 private:
  void add_child(const std::string& name, ModuleBase& child);
  void convert(const std::function<Tensor(const Tensor&)>& f);  // every tensor; tied ones stay tied
  void collect(const std::string& prefix, std::vector<Leaf>& leaves, std::vector<const bool*>& flags);
  struct Entry {
    std::string name;
    Tensor* tensor;
    ModuleBase* child;
    bool buffer;
  };
  std::vector<Entry> entries_;
  std::vector<Leaf> leaves_;
  std::vector<const bool*> flags_;
  bool training_ = true;
  std::atomic<size_t> collected_{SIZE_MAX};  // registrations that leaves_ and flags_ are made of
  std::mutex collecting_;
  size_t registrations() const;
};

// Calling a module calls its forward; after tessera::compile(module) it calls the compiled one, wherever the module is held.
template <class Derived>
class Module : public ModuleBase {
 public:
  template <class... A>
  decltype(auto) operator()(A&&... a) {
    if (compiled_ && !is_tracing()) return call_compiled(static_cast<Derived&>(*this), std::forward<A>(a)...);
    return static_cast<Derived&>(*this).forward(std::forward<A>(a)...);
  }
  std::shared_ptr<void> compiled_;  // a Compiled<Signature of forward>; set by compile(module)

 private:
  template <class D, class... A>
  static auto call_compiled(D& self, A&&... a);  // compile.hpp
  static bool is_tracing();
};

// Parameters start as PyTorch starts them (uniform, 1/sqrt(fan_in)), drawn from default_generator().
struct Linear : Module<Linear> {
  Tensor weight, bias;  // [out, in], [out]
  Linear(int64_t in, int64_t out, bool with_bias = true, DType = f32);
  Tensor forward(const Tensor& x) { return F::linear(x, weight, bias); }
};
struct Embedding : Module<Embedding> {
  Tensor weight;  // [count, width]
  Embedding(int64_t count, int64_t width, DType = f32);
  Tensor forward(const Tensor& indices) { return F::embedding(indices, weight); }
};
struct LayerNorm : Module<LayerNorm> {
  Tensor weight, bias;
  std::vector<int64_t> shape;
  double eps;
  explicit LayerNorm(int64_t width, double eps = 1e-5, DType = f32);
  Tensor forward(const Tensor& x) { return F::layer_norm(x, shape, weight, bias, eps); }
};
struct RMSNorm : Module<RMSNorm> {
  Tensor weight;
  std::vector<int64_t> shape;
  double eps;
  explicit RMSNorm(int64_t width, double eps = 1e-6, DType = f32);
  Tensor forward(const Tensor& x) { return F::rms_norm(x, shape, weight, eps); }
};
struct Conv2d : Module<Conv2d> {
  Tensor weight, bias;  // [out, in / groups, k, k], [out]
  Axes stride, padding, dilation;
  int64_t groups;
  Conv2d(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t padding = 0, int64_t dilation = 1,
         int64_t groups = 1, bool with_bias = true, DType = f32);
  Tensor forward(const Tensor& x) { return F::conv2d(x, weight, bias, stride, padding, dilation, groups); }
};
// Running statistics are buffers; in training they are updated by assignment.
struct BatchNorm2d : Module<BatchNorm2d> {
  Tensor weight, bias, running_mean, running_var;
  double eps, momentum;
  explicit BatchNorm2d(int64_t channels, double eps = 1e-5, double momentum = 0.1, DType = f32);
  Tensor forward(const Tensor& x);
};

// A list of modules made one by one: ModuleList<Block> layers; layers.emplace(args...).
template <class M>
class ModuleList : public ModuleBase {
 public:
  template <class... A>
  M& emplace(A&&... a) {
    items_.push_back(std::make_unique<M>(std::forward<A>(a)...));
    add(std::to_string(items_.size() - 1), *items_.back());
    return *items_.back();
  }
  size_t size() const { return items_.size(); }
  M& operator[](size_t i) { return *items_[i]; }
  struct Iterator {
    std::unique_ptr<M>* p;
    M& operator*() const { return **p; }
    Iterator& operator++() {
      ++p;
      return *this;
    }
    bool operator!=(const Iterator& o) const { return p != o.p; }
  };
  Iterator begin() { return {items_.data()}; }
  Iterator end() { return {items_.data() + items_.size()}; }

 private:
  std::vector<std::unique_ptr<M>> items_;
};

}  // namespace tessera::nn
