// SPDX-License-Identifier: Apache-2.0
// What a kernel factory sees, and the small pieces that factories share.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "convert.hpp"
#include "tessera/plugin.hpp"
#include "tile.hpp"
#include "view.hpp"

namespace eager {

namespace sdk = tessera::sdk;

// A list of sizes that may be symbolic; numbers at launch.
struct LaunchDims {
  std::vector<sdk::LaunchDim> items;
  Dims get(const int64_t* dims) const {
    Dims d;
    for (const auto& i : items) d.push(i.get(dims));
    return d;
  }
};

struct Build {
  sdk::Compile compile;
  sdk::Node node;
  const Isa* isa;

  std::string op() const { return std::string(node.op()); }
  bool has(uint32_t i) const { return node.has_operand(i); }
  sdk::Type operand(uint32_t i) const { return node.operand(i).type(); }
  sdk::Type result(uint32_t i = 0) const { return node.result(i).type(); }
  int rank(uint32_t i = 0) const { return static_cast<int>(operand(i).rank()); }

  int64_t integer(const char* name) const { return node.attr(name).as_int(); }
  double number(const char* name) const { return node.attr(name).as_float(); }
  bool flag(const char* name) const { return node.attr(name).as_bool(); }
  std::string text(const char* name) const { return std::string(node.attr(name).as_string()); }
  std::vector<int64_t> integers(const char* name) const {
    auto s = node.attr(name).as_ints();
    return {s.begin(), s.end()};
  }
  int axis(const char* name, int rank) const { return static_cast<int>(normalise_axis(integer(name), rank)); }
  std::vector<int> axes(const char* name, int rank) const {
    std::vector<int> out;
    for (int64_t a : integers(name)) out.push_back(static_cast<int>(normalise_axis(a, rank)));
    return out;
  }
  sdk::LaunchDim dim(const char* name) const { return sdk::launch_dim(compile, node.attr(name).as_int()); }
  LaunchDims dims(const char* name) const { return dims_of(node.attr(name).as_ints()); }
  LaunchDims shape(const sdk::Type& t) const { return dims_of(t.sizes()); }

 private:
  LaunchDims dims_of(std::span<const int64_t> d) const {
    LaunchDims out;
    for (int64_t x : d) out.items.push_back(sdk::launch_dim(compile, x));
    return out;
  }
};

using KernelPtr = std::unique_ptr<sdk::Kernel>;

// The bits behind the last element of a packed output: 0 on every run.
inline void clear_unused_bits(const tsr_launch& l) {
  for (uint32_t i = 0; i < l.num_outputs; ++i) {
    if (!tessera::is_packed(l.outputs[i].dtype)) continue;
    const int64_t bytes = tessera::storage_bytes(l.outputs[i].dtype, elements(l.outputs[i]));
    if (bytes > 0) static_cast<char*>(l.outputs[i].data)[bytes - 1] = 0;
  }
}

// A kernel made of a launch function object, and maybe one that gives the bytes of workspace and one that gives unbacked sizes.
struct NoWorkspace {};
template <class Launch, class Workspace = NoWorkspace, class Sizes = NoWorkspace>
class FnKernel final : public sdk::Kernel {
 public:
  FnKernel(std::string name, Launch launch, Workspace workspace, Sizes sizes)
      : name_(std::move(name)), launch_(std::move(launch)), workspace_(std::move(workspace)), sizes_(std::move(sizes)) {}
  std::string name() const override { return name_; }
  void launch(const tsr_launch& l) override {
    clear_unused_bits(l);
    launch_(l);
  }
  bool has_workspace() const override { return !std::is_same_v<Workspace, NoWorkspace>; }
  int64_t workspace(const int64_t* dims) override {
    if constexpr (std::is_same_v<Workspace, NoWorkspace>)
      return 0;
    else
      return workspace_(dims);
  }
  int in_place() const override { return in_place_; }
  void set_in_place(int operand) { in_place_ = operand; }
  bool has_sizes() const override { return !std::is_same_v<Sizes, NoWorkspace>; }
  void sizes(const tsr_launch& l, std::span<int64_t> symbols) override {
    if constexpr (!std::is_same_v<Sizes, NoWorkspace>) sizes_(l, symbols);
  }

 private:
  std::string name_;
  int in_place_ = -1;
  Launch launch_;
  [[no_unique_address]] Workspace workspace_;
  [[no_unique_address]] Sizes sizes_;
};

// The first operand whose memory result 0 may take over in a kernel that reads element i before it writes element i: same sizes
// and element width, not packed (clear_unused_bits writes early). -1: none.
inline int overwritable_operand(const Build& b) {
  const sdk::Type out = b.result();
  const int bits = tessera::dtype_bits(out.dtype());
  for (uint32_t i = 0; bits >= 8 && i < b.node.num_operands(); ++i) {
    if (!b.has(i) || tessera::dtype_bits(b.operand(i).dtype()) != bits) continue;
    const auto x = b.operand(i).sizes(), y = out.sizes();
    if (std::equal(x.begin(), x.end(), y.begin(), y.end())) return static_cast<int>(i);
  }
  return -1;
}

template <class Launch, class Workspace = NoWorkspace, class Sizes = NoWorkspace>
KernelPtr make_kernel(const Build& b, Launch launch, Workspace workspace = {}, Sizes sizes = {}) {
  return std::make_unique<FnKernel<Launch, Workspace, Sizes>>("eager." + b.op(), std::move(launch), std::move(workspace),
                                                              std::move(sizes));
}

// A borrowed callable: what std::function would allocate for.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  FunctionRef(const F& f)
      : object_(&f), call_([](const void* o, Args... a) -> R { return (*static_cast<const F*>(o))(a...); }) {}
  R operator()(Args... a) const { return call_(object_, a...); }

 private:
  const void* object_;
  R (*call_)(const void*, Args...);
};

// make_kernel for kernels that may work in place, see overwritable_operand.
template <class Launch, class Workspace = NoWorkspace>
KernelPtr make_overwriting_kernel(const Build& b, Launch launch, Workspace workspace = {}) {
  KernelPtr k = make_kernel(b, std::move(launch), std::move(workspace));
  static_cast<FnKernel<Launch, Workspace, NoWorkspace>&>(*k).set_in_place(overwritable_operand(b));
  return k;
}

// The message names the op, what was found and what was expected.
[[noreturn]] void fail_index(const std::string& op, int64_t index, int64_t size, int64_t axis);  // TSR-R011
[[noreturn]] void fail_division(const std::string& op);                                          // TSR-R010
[[noreturn]] void fail(const char* code, const std::string& message, const std::string& hint = {});

inline int64_t host_threads() { return sdk::host().core->num_threads(); }

// Elements per task below which splitting does not pay.
inline constexpr int64_t kGrain = 16384;

}  // namespace eager
