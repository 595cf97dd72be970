// SPDX-License-Identifier: Apache-2.0
#include "attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "tessera/dtypes.hpp"
#include "tessera/kit/saved.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr std::string_view kAttentionMagic = "cuda attention 2";
using Plans = DnnPlans<AttentionProblem, AttentionPlan>;
using Strides = std::vector<int64_t>;

Strides dense_strides(std::span<const tsr_dim> sizes) {
  Strides out(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) out[d - 1] = out[d] * sizes[d];
  return out;
}

// Strides of a reshape of a tensor that is a view of it; none: it has to be copied.
std::optional<Strides> reshaped(std::span<const tsr_dim> from, const Strides& strides, std::span<const tsr_dim> to) {
  Strides out(to.size(), 1);
  size_t left = to.size();  // dimensions of `to` that have no stride yet
  for (size_t d = from.size(); d > 0;) {
    if (from[--d] == 1) continue;  // lies anywhere
    // As many dimensions as lie like one: each steps over all elements of those behind it.
    const int64_t step = strides[d];
    int64_t run = from[d], made = 1;
    for (; d > 0 && (from[d - 1] == 1 || strides[d - 1] == run * step); --d) run *= from[d - 1];
    for (; left > 0 && made < run; made *= to[left]) out[--left] = made * step;
    if (made != run) return std::nullopt;
  }
  while (left > 0 && to[left - 1] == 1) --left;
  return left == 0 ? std::optional(out) : std::nullopt;
}

// How a value of known sizes will probably lie: a view of something dense. A launch looks where it really does.
Strides strides_of(const t::Value& v) {
  const t::Type type = v.type();
  const t::Node d = v.def();
  if (!d || d.num_operands() < 1 || !d.operand(0).type().is_static()) return dense_strides(type.sizes());
  const t::Value x = d.operand(0);
  if (d.is("transpose")) {
    const Strides from = strides_of(x);
    Strides out;
    for (const int64_t p : d.attr("perm").as_ints())
      out.push_back(from[static_cast<size_t>(p < 0 ? p + static_cast<int64_t>(from.size()) : p)]);
    return out;
  }
  if (d.is("slice")) {
    Strides out = strides_of(x);
    const auto steps = d.attr("strides").as_ints();
    for (size_t i = 0; i < out.size() && i < steps.size(); ++i) out[i] *= steps[i];
    return out;
  }
  if (d.is("reshape"))
    if (auto out = reshaped(x.type().sizes(), strides_of(x), type.sizes())) return *out;
  return dense_strides(type.sizes());
}

// Attention of the graph: what is computed, and which operands of the node are what.
struct AttentionNode {
  AttentionProblem problem;
  int32_t q = -1, k = -1, v = -1, mask = -1, dy = -1, lse = -1, y = -1;
  int32_t y_result = 0, lse_result = 1;  // of forward
};

// The attention of a group that holds it and a transpose of [.., heads, queries, width] to [.., queries, heads, width].
t::Node attention_of_group(t::Graph g, t::Node n) {
  if (!n.is("fused") || n.regions().size() != 1) return {};
  std::vector<t::Node> nodes;
  for (const t::Node& x : g.nodes(n.regions()[0])) nodes.push_back(x);
  if (nodes.size() != 2 || !nodes[1].is("transpose") || nodes[1].operand(0) != nodes[0].result()) return {};
  if (!nodes[0].is("attention") && !nodes[0].is("attention_lse")) return {};
  for (const tsr_id v : g.outputs(n.regions()[0]))
    if (v == nodes[0].result().id) return {};
  const auto perm = nodes[1].attr("perm").as_ints();
  static constexpr int64_t kHeadsLast[] = {0, 2, 1, 3};
  return std::equal(perm.begin(), perm.end(), std::begin(kHeadsLast), std::end(kHeadsLast)) ? nodes[0] : t::Node{};
}

// Sizes or strides of [.., heads, rows, elements] as batch, heads, rows and elements.
template <class T>
std::array<int64_t, 4> four(const T& from, int64_t missing) {
  std::array<int64_t, 4> out{missing, missing, missing, missing};
  for (size_t i = 0; i < from.size(); ++i) out[4 - from.size() + i] = from[i];
  return out;
}

// Empty, or why not.
std::string read_attention(t::Graph g, t::Node node, bool any_order, AttentionNode* out) {
  const t::Node grouped = attention_of_group(g, node), n = grouped ? grouped : node;
  AttentionProblem& p = out->problem;
  p.backward = n.is("attention_y_backward");
  if (!p.backward && !n.is("attention") && !n.is("attention_lse")) return "no attention";
  p.lse = n.is("attention_lse");
  p.any_order = p.backward && any_order;
  const auto operand = [&](uint32_t i) -> int32_t {
    if (!n.has_operand(i)) return -1;
    if (!grouped) return static_cast<int32_t>(i);
    const auto inputs = g.inputs(node.regions()[0]);
    const auto at = std::find(inputs.begin(), inputs.end(), n.operand(i).id);
    return at == inputs.end() ? -1 : static_cast<int32_t>(at - inputs.begin());
  };
  const uint32_t first = p.backward ? 1 : 0;  // behind dy
  out->q = operand(first), out->k = operand(first + 1), out->v = operand(first + 2), out->mask = operand(first + 3);
  if (out->q < 0 || out->k < 0 || out->v < 0 || (n.has_operand(first + 3) && out->mask < 0))
    return "operands of the group's own";
  if (p.backward) out->dy = 0, out->lse = 5, out->y = 6;
  if (grouped && p.lse) {
    const auto results = g.outputs(node.regions()[0]);
    const auto at = std::find(results.begin(), results.end(), n.result(1).id);
    if (results.size() != 2 || at == results.end()) return "logarithms that nobody reads";
    out->lse_result = static_cast<int32_t>(at - results.begin()), out->y_result = 1 - out->lse_result;
  }
  const t::Type q = n.operand(first).type(), k = n.operand(first + 1).type(), v = n.operand(first + 2).type();
  if (q.dtype() != TSR_BF16 && q.dtype() != TSR_F16)
    return "cuDNN's attention is not used for " + std::string(dtype_name(q.dtype()));
  p.type = dnn_type_of(q.dtype());
  if (!q.is_static() || !k.is_static() || !v.is_static()) return "cuDNN plans attention of known sizes";
  if (q.rank() > 4 || k.rank() != q.rank() || v.rank() != q.rank()) return "cuDNN's attention has batches and heads alone";
  if (q.elements() == 0 || k.elements() == 0 || v.elements() == 0) return "an empty attention";
  const auto sq = four(q.sizes(), 1), sk = four(k.sizes(), 1), sv = four(v.sizes(), 1);
  if (sq[0] != sk[0] || sq[0] != sv[0] || sk[1] != sv[1] || sq[1] % sk[1] != 0) return "batches that differ";
  p.batch = sq[0], p.heads = sq[1], p.key_heads = sk[1], p.queries = sq[2], p.keys = sk[2], p.depth = sq[3], p.width = sv[3];
  if (p.backward && p.queries == 1 && p.keys == 1) return "one query and one key";
  if (p.depth % 8 != 0 || p.width % 8 != 0) return "cuDNN's attention has heads of a multiple of 8 elements";
  p.causal = n.attr("causal").as_bool();
  const double scale = n.attr("scale").as_float();
  p.scale = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(p.depth)));
  // The library's weights of a query that sees no key are NaN, where ours are 0; only the values of a mask tell.
  if (out->mask >= 0) return "a mask may hide all keys from a query";
  const auto lies = [&](const t::Value& value, int64_t* to) {
    const auto s = four(strides_of(value), 0);
    std::copy_n(s.begin(), 3, to);
    return s[3] == 1;
  };
  const auto value = [&](int32_t i) { return node.operand(static_cast<uint32_t>(i)); };
  if (!lies(value(out->q), p.q) || !lies(value(out->k), p.k) || !lies(value(out->v), p.v)) return "elements of a head apart";
  if (p.backward) return lies(value(out->dy), p.y) && lies(value(out->y), p.o) ? std::string() : "elements of a head apart";
  if (grouped)
    p.y[0] = p.queries * p.heads * p.width, p.y[1] = p.width, p.y[2] = p.heads * p.width;
  else
    p.y[0] = p.heads * p.queries * p.width, p.y[1] = p.queries * p.width, p.y[2] = p.width;
  return {};
}

// Faults of older libraries that clients work around, and devices on which the form of a gradient does not fix the order of its
// sums.
std::string why_not_there(const Dnn& dnn, const Gpu& gpu, const AttentionProblem& p) {
  const size_t version = dnn.cudnnGetVersion();
  if (version < 91100) return "attention of cuDNN before 9.11 is not used";
  if (p.backward && p.keys % 128 != 0 && version < 91501)
    return "gradients of attention with keys that are no multiple of 128 are not used before cuDNN 9.15.1";
  if (p.backward && !p.any_order && !gpu.architecture().starts_with("sm_8") && !gpu.architecture().starts_with("sm_9"))
    return "cuDNN's gradient of attention does not promise one order of sums on " + gpu.architecture();
  return {};
}

// A launch of the library takes 6 us at least (H100), in which the kit's kernel is done with two tiles of 64 keys if each block
// of 64 queries has a multiprocessor of its own.
bool few_keys(Gpu& gpu, const AttentionProblem& p) {
  return !p.backward && p.keys <= 128 && p.batch * p.heads * ((p.queries + 63) / 64) <= gpu.attribute(kMultiprocessors);
}

class AttentionKernel final : public t::Kernel {
 public:
  AttentionKernel(std::shared_ptr<Dnn> dnn, std::shared_ptr<Plans> plans, std::shared_ptr<const AttentionPlan> plan,
                  std::shared_ptr<CudaDevice> device, uint32_t index, const AttentionNode& node)
      : dnn_(std::move(dnn)),
        plans_(std::move(plans)),
        plan_(std::move(plan)),
        device_(std::move(device)),
        gpu_(device_->gpu(index)),
        index_(index),
        node_(node),
        name_(node.problem.backward ? "cuda.cudnn.attention_y_backward"
              : node.problem.lse    ? "cuda.cudnn.attention_lse"
                                    : "cuda.cudnn.attention") {}

  std::string name() const override { return name_; }
  bool has_workspace() const override { return plan_->workspace_bytes() > 0; }
  int64_t workspace(const int64_t*) override { return static_cast<int64_t>(plan_->workspace_bytes()); }
  uint64_t strided_inputs() const override { return operands(); }
  uint64_t unaligned_inputs() const override { return operands(); }

  void launch(const tsr_launch& l) override {
    const Gpu::Scope scope(gpu_);
    Elsewhere elsewhere(*this, l);
    const auto at = [&](int32_t i) { return i < 0 ? nullptr : l.inputs[i].data; };
    AttentionPlan::Tensors x;
    x.q = elsewhere.data(node_.q), x.k = elsewhere.data(node_.k), x.v = elsewhere.data(node_.v), x.mask = at(node_.mask);
    if (node_.problem.backward) {
      x.dy = elsewhere.data(node_.dy), x.lse = at(node_.lse), x.y = const_cast<void*>(elsewhere.data(node_.y));
      x.dq = l.outputs[0].data, x.dk = l.outputs[1].data, x.dv = l.outputs[2].data;
    } else {
      x.y = l.outputs[node_.y_result].data;
      if (node_.problem.lse) x.lse = l.outputs[node_.lse_result].data;
    }
    elsewhere.plan().launch(x, elsewhere.workspace(), l.stream->native);
    gpu_.queued(l.stream, name_);
  }

  bool can_serialize() const override { return !plan_->choice().empty(); }
  std::string serialize() const override {
    kit::SavedWriter w;
    w.text(kAttentionMagic);
    w.text(dnn_->version_text());  // another version may choose another algorithm
    w.number(index_);
    w.number(node_);
    w.text(plan_->choice());
    return w.take();
  }

 private:
  uint64_t operands() const {
    uint64_t bits = uint64_t{1} << node_.q | uint64_t{1} << node_.k | uint64_t{1} << node_.v;
    return node_.dy < 0 ? bits : bits | uint64_t{1} << node_.dy | uint64_t{1} << node_.y;
  }

  // Operands of one launch as they lie. Where they do not lie as the plan was made for, another plan is looked for, and what
  // the library reads nowhere but in dense rows is copied, in memory of the launch.
  class Elsewhere {
   public:
    Elsewhere(AttentionKernel& kernel, const tsr_launch& l) : k_(kernel), l_(l), problem_(kernel.node_.problem) {
      const AttentionNode& n = k_.node_;
      take(n.q, problem_.q), take(n.k, problem_.k), take(n.v, problem_.v);
      if (n.dy >= 0) take(n.dy, problem_.y), settle(n.y);
      plan_ = k_.plan_;
      workspace_ = l.workspace;
      if (problem_ == n.problem) return;
      std::string why;
      plan_ = k_.plans_->get(*k_.dnn_, k_.gpu_, problem_, &why);
      if (!plan_) {
        copy(n.q, problem_.q), copy(n.k, problem_.k), copy(n.v, problem_.v);
        if (n.dy >= 0) copy(n.dy, problem_.y);
        plan_ = k_.plans_->get(*k_.dnn_, k_.gpu_, problem_, &why);
      }
      if (!plan_) throw t::Error(TSR_ENVIRONMENT, "TSR-R031", why, "[cuda] cudnn = \"off\" computes without it");
      if (plan_->workspace_bytes() > k_.plan_->workspace_bytes()) workspace_ = memory(plan_->workspace_bytes());
    }
    Elsewhere(const Elsewhere&) = delete;
    ~Elsewhere() {
      for (void* p : memory_) k_.gpu_.free(p, l_.stream);
    }
    const AttentionPlan& plan() const { return *plan_; }
    void* workspace() const { return workspace_; }
    const void* data(int32_t operand) const {
      for (const auto& [i, p] : copies_)
        if (i == operand) return p;
      return l_.inputs[operand].data;
    }

   private:
    // Strides of dimensions of one element are nobody's concern: they stay as the plan has them.
    void take(int32_t operand, int64_t* strides) {
      const tsr_tensor& x = l_.inputs[operand];
      const auto sizes = four(std::span(x.sizes, x.rank), 1), lie = four(std::span(x.strides, x.rank), 0);
      bool fits = sizes[3] == 1 || lie[3] == 1;
      fits = fits && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
      for (size_t d = 0; d < 3; ++d) fits = fits && (sizes[d] == 1 || lie[d] % 8 == 0);  // 16 bytes
      if (!fits) return copy(operand, strides);
      for (size_t d = 0; d < 3; ++d)
        if (sizes[d] != 1) strides[d] = lie[d];
    }
    // y lies as forward wrote it, or is copied there: not worth a plan of its own.
    void settle(int32_t operand) {
      const tsr_tensor& x = l_.inputs[operand];
      const auto sizes = four(std::span(x.sizes, x.rank), 1), lie = four(std::span(x.strides, x.rank), 0);
      bool fits = reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && (sizes[3] == 1 || lie[3] == 1);
      int64_t last = sizes[3] - 1;
      for (size_t d = 0; d < 3; ++d) {
        fits = fits && (sizes[d] == 1 || lie[d] == problem_.o[d]);
        last += (sizes[d] - 1) * problem_.o[d];
      }
      if (fits) return;
      Strides strides(x.rank, 1);
      for (uint32_t d = 0; d + 1 < x.rank; ++d) strides[d] = problem_.o[4 - x.rank + d];
      tsr_tensor to = x;
      to.strides = strides.data();
      to.data = memory(2 * static_cast<size_t>(last + 1));
      k_.device_->copy_strided(k_.index_, to, x, l_.stream);
      copies_.emplace_back(operand, to.data);
    }
    void copy(int32_t operand, int64_t* strides) {
      const tsr_tensor& x = l_.inputs[operand];
      const std::vector<int64_t> dense = dense_strides(std::span(x.sizes, x.rank));
      size_t bytes = 2;
      for (uint32_t d = 0; d < x.rank; ++d) bytes *= static_cast<size_t>(x.sizes[d]);
      tsr_tensor to = x;
      to.strides = dense.data();
      to.data = memory(bytes);
      k_.device_->copy_strided(k_.index_, to, x, l_.stream);
      copies_.emplace_back(operand, to.data);
      const auto lie = four(dense, 0);
      for (size_t d = 0; d < 3; ++d) strides[d] = lie[d];
    }
    void* memory(size_t bytes) {
      memory_.push_back(k_.gpu_.allocate(bytes, 64, l_.stream));
      return memory_.back();
    }

    AttentionKernel& k_;
    const tsr_launch& l_;
    AttentionProblem problem_;
    std::shared_ptr<const AttentionPlan> plan_;
    void* workspace_ = nullptr;
    std::vector<std::pair<int32_t, const void*>> copies_;
    std::vector<void*> memory_;
  };

  std::shared_ptr<Dnn> dnn_;
  std::shared_ptr<Plans> plans_;
  std::shared_ptr<const AttentionPlan> plan_;
  std::shared_ptr<CudaDevice> device_;
  Gpu& gpu_;
  uint32_t index_;
  AttentionNode node_;
  const char* name_;
};

}  // namespace

bool Attention::is_one(t::Graph g, t::Node n) {
  return n.is("attention") || n.is("attention_lse") || n.is("attention_y_backward") || attention_of_group(g, n);
}

std::string Attention::why_not(t::Graph g, t::Node n) {
  AttentionNode node;
  std::string why = read_attention(g, n, any_order_, &node);
  if (!why.empty()) return why;
  const std::shared_ptr<Dnn>& dnn = library_->get();
  if (!dnn) return library_->why();
  if (few_keys(device_->gpu(0), node.problem)) return "so few keys take the library longer";
  if (why = why_not_there(*dnn, device_->gpu(0), node.problem); !why.empty()) return why;
  (void)plans_->get(*dnn, device_->gpu(0), node.problem, &why);
  return why;
}

std::unique_ptr<t::Kernel> Attention::compile(const t::Compile& c, const Algorithms& algorithms) {
  AttentionNode node;
  std::string why = read_attention(c.graph(), c.node(), any_order_, &node);
  const uint32_t index = CudaDevice::index_of(c.p->device);
  const std::shared_ptr<Dnn>& dnn = library_->get();
  if (why.empty() && !dnn) why = library_->why();
  std::shared_ptr<const AttentionPlan> plan;
  if (why.empty()) plan = plans_->get(*dnn, device_->gpu(index), node.problem, &why, {}, algorithms);
  if (!plan) throw t::Error(TSR_BUG, "TSR-B005", "cuda was asked for an attention that it does not compute: " + why);
  return std::make_unique<AttentionKernel>(dnn, plans_, std::move(plan), device_, index, node);
}

std::unique_ptr<t::Kernel> Attention::restore(std::string_view bytes) {
  kit::SavedWriter w;
  w.text(kAttentionMagic);
  if (!bytes.starts_with(w.take())) return nullptr;
  kit::SavedReader in(bytes);
  in.text();
  const std::string_view version = in.text();
  const auto index = in.number<uint32_t>();
  const auto node = in.number<AttentionNode>();
  const std::string choice(in.text());
  in.end();
  const std::shared_ptr<Dnn>& dnn = library_->get();
  if (!dnn || version != dnn->version_text()) kit::SavedReader::fail();
  std::string why;
  auto plan = plans_->get(*dnn, device_->gpu(index), node.problem, &why, choice);
  if (!plan) kit::SavedReader::fail();
  return std::make_unique<AttentionKernel>(dnn, plans_, std::move(plan), device_, index, node);
}

}  // namespace tessera::cuda
