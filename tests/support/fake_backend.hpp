// SPDX-License-Identifier: Apache-2.0
// A backend for white-box tests of the compiler: a few elementwise ops in plain loops, whose capabilities, claims and failures
// a test sets, and which notes what the host hands to its kernels. Ops are those of the standard set.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "compile/driver.hpp"
#include "ir/graph.hpp"
#include "ir/graph_api.hpp"
#include "ir/parser.hpp"
#include "ir/records.hpp"
#include "memory/tensor.hpp"
#include "opset.hpp"
#include "plugin/plugin_host.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace tessera::test {

using core::Tensor;
using core::TensorRef;

inline const core::OpRegistry& standard_ops() {
  static const tsr_host host = core::make_host(&core::host_core(), &core::graph_api(), nullptr);
  static const core::OpRegistry* ops = [] {
    if (!sdk::host_slot()) sdk::host_slot() = &host;
    auto* r = new core::OpRegistry;
    r->add(*opset::tessera_standard_opset(), "tessera.opset.standard");
    return r;
  }();
  return *ops;
}

class FakeBackend {
 public:
  // ---- what a test sets before compiling
  std::string name = "fake", device = "cpu";
  uint64_t capabilities = TSR_CAP_STRIDED_INPUTS | TSR_CAP_UNALIGNED;
  std::set<std::string> refuses, decomposes, fails;  // op names; `fails`: launch reports TSR-R010
  std::set<std::string> fails_to_compile;
  std::set<std::string> claims;  // beside those of known(); their results mean nothing
  bool in_place = false;         // elementwise kernels may overwrite operand 0
  int64_t workspace = 0;         // bytes that every kernel asks for; it fills them
  int64_t copy_bytes = 0;        // what it asks for beside them for each input that is not dense; it fills these too
  int asked_for_workspace = 0;   // how often kernels were: once for every layout
  int64_t holds = 0;             // bytes that every kernel says it keeps
  bool fails_to_prepare = false;
  uint64_t strided = 0, unaligned = 0;                // what kernels say of their operands
  std::function<void(const tsr_compile&)> compiling;  // called for every kernel

  // ---- what the kernels noted
  struct Launch {
    std::string op;
    std::vector<tsr_tensor> inputs, outputs;  // data and flags; sizes are not kept
    std::vector<bool> dense;
    void* workspace;
  };
  std::vector<Launch> launches;
  std::vector<std::vector<std::string>> prepared;  // ops of each call
  std::vector<tsr_compile> asked;                  // the requests; what they point to is gone
  std::atomic<int> compiled{0}, destroyed{0};

  FakeBackend() {
    plugin_.id = "acme.fake";
    plugin_.vendor = "Acme";
    factory_.kind = TSR_BACKEND;
    factory_.table = &table_;
    factory_.self = this;
    factory_.plugin = &plugin_;
    table_.struct_size = sizeof table_;
    table_.claim = claim;
    table_.compile = compile;
    table_.prepare = prepare;
  }
  const core::Factory* factory() {
    factory_.name = name;
    table_.device = device.c_str();
    table_.capabilities = capabilities;
    return &factory_;
  }
  core::CompileOptions options() {
    core::CompileOptions o;
    o.backends = {factory()};
    return o;
  }
  std::vector<std::string> ops() const {
    std::vector<std::string> names;
    for (const Launch& l : launches) names.push_back(l.op);
    return names;
  }

 private:
  struct Kernel {
    FakeBackend* owner;
    std::string op, label;
  };

  static tsr_claim claim(void* self, tsr_graph* graph, tsr_id node, const char** why) noexcept {
    auto& b = *static_cast<FakeBackend*>(self);
    const std::string op = core::Graph::from(graph).node(node).op;
    if (b.decomposes.count(op)) return TSR_CLAIM_DECOMPOSE;
    if (b.refuses.count(op) || (!known().count(op) && !b.claims.count(op))) {
      *why = "not among the ops of the fake";
      return TSR_CLAIM_NO;
    }
    return TSR_CLAIM_YES;
  }

  static tsr_error* prepare(void* self, const tsr_compile* requests, size_t count, size_t stride) noexcept {
    auto& b = *static_cast<FakeBackend*>(self);
    if (b.fails_to_prepare) return core::host_core().error_create(TSR_BUG, "TSR-X002", "the fake was told to fail", nullptr);
    b.prepared.emplace_back();
    for (size_t i = 0; i < count; ++i) {
      const tsr_compile& c = *TSR_AT(tsr_compile, requests, stride, i);
      b.prepared.back().emplace_back(core::Graph::from(c.graph).node(c.node).op);
    }
    return nullptr;
  }

  static tsr_error* compile(void* self, const tsr_compile* c, tsr_kernel* out) noexcept {
    auto& b = *static_cast<FakeBackend*>(self);
    const std::string op = core::Graph::from(c->graph).node(c->node).op;
    if (b.fails_to_compile.count(op))
      return core::host_core().error_create(TSR_BUG, "TSR-X001", "the fake was told to fail", nullptr);
    b.asked.push_back(*c);
    if (b.compiling) b.compiling(*c);
    auto* k = new Kernel{&b, op, "fake." + op};
    ++b.compiled;
    out->self = k;
    out->name = k->label.c_str();
    if (b.workspace > 0)
      out->workspace = [](void* p, const int64_t*) noexcept {
        ++static_cast<Kernel*>(p)->owner->asked_for_workspace;
        return static_cast<Kernel*>(p)->owner->workspace;
      };
    if (b.copy_bytes > 0)
      out->workspace_of = [](void* p, const int64_t*, uint64_t strided) noexcept {
        const FakeBackend& owner = *static_cast<Kernel*>(p)->owner;
        return owner.workspace + owner.copy_bytes * std::popcount(strided);
      };
    if (op == "nonzero") out->sizes = sizes;
    if (b.holds > 0) out->held_bytes = b.holds, out->pack_seconds = 0.25;
    out->strided = b.strided;
    out->unaligned = b.unaligned;
    out->launch = launch;
    out->destroy = [](void* p) noexcept {
      auto* k = static_cast<Kernel*>(p);
      ++k->owner->destroyed;
      delete k;
    };
    out->in_place = b.in_place && op != "nonzero" && op != "reduce_sum" ? 0 : -1;
    return nullptr;
  }

  static const std::set<std::string>& known() {
    static const std::set<std::string> ops = {"add",  "sub",        "mul",     "div", "neg",  "lt",    "relu",
                                              "cast", "reduce_sum", "nonzero", "exp", "full", "concat"};
    return ops;
  }

  static double at(const tsr_tensor& t, const std::vector<int64_t>& index) {
    int64_t offset = 0;
    const size_t skip = index.size() - t.rank;  // broadcasting aligns the last dimensions
    for (uint32_t k = 0; k < t.rank; ++k) offset += t.sizes[k] == 1 ? 0 : index[skip + k] * t.strides[k];
    return load_as<double>(t.dtype, t.data, offset);
  }

  template <class F>
  static void each(const tsr_tensor& out, F&& f) {
    std::vector<int64_t> index(out.rank, 0);
    const int64_t n = core::num_elements({out.sizes, out.rank});
    for (int64_t i = 0; i < n; ++i) {
      int64_t rest = i;
      for (uint32_t k = out.rank; k-- > 0; rest /= out.sizes[k]) index[k] = rest % out.sizes[k];
      f(i, index);
    }
  }

  static tsr_error* sizes(void*, const tsr_launch* l, int64_t* symbols, uint32_t count) noexcept {
    if (count != 1) return core::host_core().error_create(TSR_BUG, "TSR-X002", "one symbol expected", nullptr);
    int64_t n = 0;
    each(l->inputs[0], [&](int64_t, const std::vector<int64_t>& index) { n += at(l->inputs[0], index) != 0; });
    symbols[0] = n;
    return nullptr;
  }

  static tsr_error* launch(void* self, const tsr_launch* l) noexcept {
    const auto& k = *static_cast<Kernel*>(self);
    FakeBackend& b = *k.owner;
    if (b.fails.count(k.op)) return core::host_core().error_create(TSR_USER, "TSR-R010", "integer division by zero", nullptr);
    {
      const std::lock_guard lock(b.mutex_);
      Launch note{k.op, {l->inputs, l->inputs + l->num_inputs}, {l->outputs, l->outputs + l->num_outputs}, {}, l->workspace};
      for (const tsr_tensor& t : note.inputs)
        note.dense.push_back((t.flags & TSR_TENSOR_ABSENT) || core::is_dense(t.rank, t.sizes, t.strides));
      b.launches.push_back(std::move(note));
    }
    int64_t used = b.workspace;
    for (uint32_t i = 0; i < l->num_inputs; ++i)
      if (!(l->inputs[i].flags & (TSR_TENSOR_CONTIGUOUS | TSR_TENSOR_ABSENT))) used += b.copy_bytes;
    if (used > 0) std::memset(l->workspace, 0xAB, static_cast<size_t>(used));
    const tsr_tensor& out = l->outputs[0];
    if (k.op == "nonzero") {
      int64_t row = 0;
      each(l->inputs[0], [&](int64_t, const std::vector<int64_t>& index) {
        if (at(l->inputs[0], index) == 0) return;
        for (size_t d = 0; d < index.size(); ++d)
          static_cast<int64_t*>(out.data)[row * static_cast<int64_t>(index.size()) + static_cast<int64_t>(d)] = index[d];
        ++row;
      });
      return nullptr;
    }
    if (k.op == "reduce_sum") {  // over everything
      double sum = 0;
      each(l->inputs[0], [&](int64_t, const std::vector<int64_t>& index) { sum += at(l->inputs[0], index); });
      each(out, [&](int64_t i, const std::vector<int64_t>&) { store_from(out.dtype, out.data, i, sum); });
      return nullptr;
    }
    if (k.op == "concat") {  // along dimension 0
      int64_t begin = 0;
      for (uint32_t i = 0; i < l->num_inputs; ++i) {
        const int64_t n = core::num_elements({l->inputs[i].sizes, l->inputs[i].rank});
        each(l->inputs[i], [&](int64_t e, const std::vector<int64_t>& index) {
          store_from(out.dtype, out.data, begin + e, at(l->inputs[i], index));
        });
        begin += n;
      }
      return nullptr;
    }
    each(out, [&](int64_t i, const std::vector<int64_t>& index) {
      const double x = at(l->inputs[0], index), y = l->num_inputs > 1 ? at(l->inputs[1], index) : 0;
      double v = x;
      if (k.op == "add") v = x + y;
      if (k.op == "sub") v = x - y;
      if (k.op == "mul") v = x * y;
      if (k.op == "div") v = x / y;
      if (k.op == "neg") v = -x;
      if (k.op == "exp") v = std::exp(x);
      if (k.op == "relu") v = x > 0 ? x : 0;
      if (k.op == "lt") v = x < y;
      store_from(out.dtype, out.data, i, v);
    });
    return nullptr;
  }

  core::LoadedPlugin plugin_;
  core::Factory factory_{};
  tsr_backend table_{};
  std::mutex mutex_;
};

// ---- graphs and tensors in few words

inline std::unique_ptr<core::Graph> graph_of(const std::string& text) {
  return core::parse_graph(standard_ops(), text, "test.tsr");
}

inline std::unique_ptr<core::Executable> compile_text(const std::string& text, FakeBackend& backend) {
  return core::compile_graph(graph_of(text), backend.options());
}

inline TensorRef tensor_of(std::vector<double> values, std::vector<int64_t> sizes, uint32_t dtype = TSR_F32) {
  TensorRef t(core::tensor_create(dtype, sizes, core::kCpu));
  for (size_t i = 0; i < values.size(); ++i) store_from(dtype, t->desc.data, static_cast<int64_t>(i), values[i]);
  return t;
}
inline TensorRef vector_of(std::vector<double> values, uint32_t dtype = TSR_F32) {
  const auto n = static_cast<int64_t>(values.size());
  return tensor_of(std::move(values), {n}, dtype);
}

inline std::vector<double> values_of(const Tensor& t) {
  TensorRef dense(core::tensor_copy(t, core::kCpu));
  std::vector<double> out;
  for (int64_t i = 0, n = core::num_elements({t.desc.sizes, t.desc.rank}); i < n; ++i)
    out.push_back(load_as<double>(t.desc.dtype, dense->desc.data, i));
  return out;
}
inline std::vector<int64_t> sizes_of(const Tensor& t) { return {t.desc.sizes, t.desc.sizes + t.desc.rank}; }

inline std::vector<TensorRef> run(const core::Executable& e, const std::vector<Tensor*>& inputs) {
  std::vector<tsr_tensor_handle*> in(inputs.begin(), inputs.end()), out(e.num_outputs(), nullptr);
  e.run(in, out);
  std::vector<TensorRef> results;
  for (tsr_tensor_handle* h : out) results.emplace_back(h);
  return results;
}

// "CODE message" of the error that f throws, or "".
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const core::Error& e) {
    return e.code() + " " + e.message();
  }
  return "";
}

}  // namespace tessera::test
