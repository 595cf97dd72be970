// SPDX-License-Identifier: Apache-2.0
#include "conv.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "tessera/dtypes.hpp"
#include "tessera/kit/saved.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr std::string_view kConvMagic = "cuda convolution 2";

// A convolution of the graph: what is computed, and which operands of the node are what.
struct ConvNode {
  ConvProblem problem;
  uint32_t x = 0, w = 0;
  int32_t bias = -1, residual = -1;
};

bool permutes(const t::Node& n, std::array<int64_t, 4> want) {
  if (!n || !n.is("transpose")) return false;
  const auto perm = n.attr("perm").as_ints();
  if (perm.size() != 4) return false;
  for (size_t i = 0; i < 4; ++i)
    if ((perm[i] < 0 ? perm[i] + 4 : perm[i]) != want[i]) return false;
  return true;
}
constexpr std::array<int64_t, 4> kToChannelsFirst = {0, 3, 1, 2}, kToChannelsLast = {0, 2, 3, 1};

// Finds out what a node computes. Of a group it takes a convolution whose operands and result may lie with their channels last,
// a residual that is added, and relu.
class ConvReader {
 public:
  ConvReader(t::Graph g, t::Node n, bool tf32) : g_(g), n_(n) { out_.problem.tf32 = tf32; }

  // Empty, or why not.
  std::string read(ConvNode* out) {
    const bool group = n_.is("fused");
    if (!group && !n_.is("conv")) return "no convolution";
    t::Node conv = n_;
    if (group) {
      for (const t::Node& x : g_.nodes(n_.regions()[0]))
        if (x.is("conv")) conv = x;
      if (conv == n_) return "no convolution";
      const auto inputs = g_.inputs(n_.regions()[0]);
      inputs_.assign(inputs.begin(), inputs.end());
    }
    if (std::string why = convolution(conv, group); !why.empty()) return why;
    if (group)
      if (std::string why = steps(conv); !why.empty()) return why;
    *out = out_;
    return {};
  }

 private:
  // Which operand of the node a value is; -1: computed inside.
  int32_t operand(const t::Value& v) const {
    if (inputs_.empty()) {
      for (uint32_t i = 0; i < n_.num_operands(); ++i)
        if (n_.has_operand(i) && n_.operand(i) == v) return static_cast<int32_t>(i);
      return -1;
    }
    const auto at = std::find(inputs_.begin(), inputs_.end(), v.id);
    return at == inputs_.end() ? -1 : static_cast<int32_t>(at - inputs_.begin());
  }
  // The same behind a transpose that says that the channels lie last.
  int32_t operand_last(const t::Value& v) {
    const t::Node d = v.def();
    if (!permutes(d, kToChannelsFirst)) return -1;
    ++taken_;
    return operand(d.operand(0));
  }

  std::string convolution(const t::Node& conv, bool group) {
    ConvProblem& p = out_.problem;
    const t::Type x = conv.operand(0).type(), w = conv.operand(1).type();
    p.type = dnn_type_of(x.dtype());
    if (p.type < 0) return "cuDNN is not used for " + std::string(dtype_name(x.dtype()));
    if (x.rank() != 4) return "cuDNN is used for two spatial dimensions";
    if (!x.is_static() || !w.is_static()) return "cuDNN plans convolutions of known sizes";
    p.images = x.size(0), p.channels = x.size(1), p.height = x.size(2), p.width = x.size(3);
    p.features = w.size(0), p.taps[0] = w.size(2), p.taps[1] = w.size(3);
    p.groups = conv.attr("groups").as_int();
    const auto copy = [&](const char* name, int64_t* to) {
      const auto from = conv.attr(name).as_ints();
      std::copy_n(from.begin(), std::min<size_t>(2, from.size()), to);
    };
    copy("strides", p.stride), copy("pad_low", p.pad_low), copy("pad_high", p.pad_high), copy("dilations", p.dilation);
    if (x.elements() == 0 || w.elements() == 0 || p.out(0) <= 0 || p.out(1) <= 0) return "an empty convolution";
    if (p.pad_low[0] < 0 || p.pad_low[1] < 0 || p.pad_high[0] < 0 || p.pad_high[1] < 0) return "padding that crops";
    ++taken_;
    const bool point = p.taps[0] == 1 && p.taps[1] == 1;
    int32_t from = operand(conv.operand(0)), weight = operand(conv.operand(1));
    p.channels_last = group && from < 0;
    if (p.channels_last) {
      from = operand_last(conv.operand(0));
      // Weights of one tap lie in the same order either way.
      if (weight < 0)
        weight = operand_last(conv.operand(1));
      else if (!point)
        return "weights whose channels do not lie last";
    }
    if (from < 0 || weight < 0) return "operands that are computed in the group";
    out_.x = static_cast<uint32_t>(from), out_.w = static_cast<uint32_t>(weight);
    if (conv.has_operand(2)) {
      out_.bias = operand(conv.operand(2));
      if (out_.bias < 0) return "a bias that is computed in the group";
      p.bias = true;
    }
    return {};
  }

  std::string steps(const t::Node& conv) {
    ConvProblem& p = out_.problem;
    const tsr_id region = n_.regions()[0];
    if (g_.outputs(region).size() != 1) return "more than one result";
    t::Value v = conv.result();
    const auto reader = [&] {
      const auto uses = v.uses();
      return uses.size() == 1 && uses[0].node != TSR_NONE ? g_.node(uses[0].node) : t::Node{};
    };
    if (p.channels_last) {
      const t::Node back = reader();
      if (!permutes(back, kToChannelsLast)) return "a result whose channels do not lie last";
      ++taken_;
      v = back.result();
    }
    while (v.id != g_.outputs(region)[0]) {
      const t::Node step = reader();
      if (!step || p.relu || step.num_results() != 1 || step.result().type().p != v.type().p) return "what follows it";
      if (step.is("relu")) {
        p.relu = true;
      } else if (step.is("add") && !p.residual) {
        const t::Value other = step.operand(step.operand(0) == v ? 1 : 0);
        if (other == v || other.type().p != v.type().p || operand(other) < 0) return "a sum of something else";
        p.residual = true;
        out_.residual = operand(other);
      } else {
        return "'" + std::string(step.op()) + "' behind it";
      }
      ++taken_;
      v = step.result();
    }
    size_t all = 0;
    for ([[maybe_unused]] const t::Node& x : g_.nodes(region)) ++all;
    return all == taken_ ? std::string() : "other ops in the group";
  }

  t::Graph g_;
  t::Node n_;
  std::vector<tsr_id> inputs_;
  size_t taken_ = 0;  // nodes of the group that are understood
  ConvNode out_;
};

// A convolution of one tap is a product of pixels and channels with the weights.
bool is_product(const ConvProblem& p) {
  const auto all = [](const int64_t* v, int64_t x) { return v[0] == x && v[1] == x; };
  const int64_t vector = p.type == kDnnF64 ? 2 : p.type == kDnnF32 ? 4 : 8;  // of 16 bytes
  if (p.channels % vector != 0 || p.features % vector != 0) return false;
  return p.channels_last && p.groups == 1 && all(p.taps, 1) && all(p.stride, 1) && all(p.pad_low, 0) && all(p.pad_high, 0);
}
ProductShape product_of(const ConvProblem& p) {
  ProductShape s;
  s.m = p.images * p.height * p.width, s.n = p.features, s.k = p.channels;
  s.b_transposed = true;
  s.type = s.result_type = p.type == kDnnF64    ? kRealF64
                           : p.type == kDnnF16  ? kRealF16
                           : p.type == kDnnBf16 ? kRealBf16
                                                : kRealF32;
  s.compute = p.type == kDnnF64 ? kComputeF64 : p.type == kDnnF32 && p.tf32 ? kComputeTf32 : kComputeF32;
  s.bias = p.bias, s.residual = p.residual;
  s.activation = p.relu ? kReluProduct : kNoActivation;
  return s;
}

class ConvKernel final : public t::Kernel {
 public:
  // One of both plans.
  ConvKernel(std::shared_ptr<Dnn> dnn, std::shared_ptr<const ConvPlan> plan, std::shared_ptr<Blas> blas,
             std::shared_ptr<const ProductPlan> product, CudaDevice& device, uint32_t index, const ConvNode& node)
      : dnn_(std::move(dnn)),
        plan_(std::move(plan)),
        blas_(std::move(blas)),
        product_(std::move(product)),
        gpu_(device.gpu(index)),
        index_(index),
        node_(node) {
    name_ = product_ ? "cuda.cublaslt.conv" : "cuda.cudnn.conv";
    const ConvProblem& p = node_.problem;
    name_ += std::string(p.bias ? ".bias" : "") + (p.residual ? ".residual" : "") + (p.relu ? ".relu" : "");
  }

  std::string name() const override { return name_; }
  bool has_workspace() const override { return bytes() > 0; }
  int64_t workspace(const int64_t*) override { return static_cast<int64_t>(bytes()); }

  void launch(const tsr_launch& l) override {
    const auto at = [&](int32_t i) { return i < 0 ? nullptr : l.inputs[i].data; };
    const void *x = l.inputs[node_.x].data, *w = l.inputs[node_.w].data;
    const Gpu::Scope scope(gpu_);
    if (product_)
      product_->launch({x, w, at(node_.bias), at(node_.residual), l.outputs[0].data}, l.workspace, l.stream->native);
    else
      plan_->launch(x, w, at(node_.bias), at(node_.residual), l.outputs[0].data, l.workspace, l.stream->native);
    gpu_.queued(l.stream, product_ ? "cuda.cublaslt.conv" : "cuda.cudnn.conv");
  }

  bool can_serialize() const override { return product_ || !plan_->choice().empty(); }
  std::string serialize() const override {
    kit::SavedWriter w;
    w.text(kConvMagic);
    w.number<bool>(product_ != nullptr);
    w.text(product_ ? blas_->version_text() : dnn_->version_text());  // another version may choose another algorithm
    w.number(index_);
    w.number(node_);
    if (product_)
      w.number(product_->choice());
    else
      w.text(plan_->choice());
    return w.take();
  }

 private:
  size_t bytes() const { return product_ ? product_->workspace_bytes() : plan_->workspace_bytes(); }

  std::shared_ptr<Dnn> dnn_;
  std::shared_ptr<const ConvPlan> plan_;
  std::shared_ptr<Blas> blas_;
  std::shared_ptr<const ProductPlan> product_;
  Gpu& gpu_;
  uint32_t index_;
  ConvNode node_;
  std::string name_;
};

}  // namespace

bool Convolutions::is_one(t::Graph g, t::Node n) {
  if (n.is("conv")) return true;
  if (!n.is("fused")) return false;
  for (const t::Node& x : g.nodes(n.regions()[0]))
    if (x.is("conv")) return true;
  return false;
}

std::string Convolutions::why_not(t::Graph g, t::Node n) {
  ConvNode node;
  if (std::string why = ConvReader(g, n, tf32_).read(&node); !why.empty()) return why;
  const std::shared_ptr<Dnn>& dnn = library_->get();
  if (!dnn) return library_->why();  // layouts are chosen for all convolutions or none: products alone do not need the library
  std::string why;
  if (is_product(node.problem) && products_.blas()) return why;
  (void)plans_.get(*dnn, device_->gpu(0), node.problem, &why);
  return why;
}

std::unique_ptr<t::Kernel> Convolutions::compile(const t::Compile& c, const Algorithms& algorithms) {
  ConvNode node;
  std::string why = ConvReader(c.graph(), c.node(), tf32_).read(&node);
  const uint32_t index = CudaDevice::index_of(c.p->device);
  const std::shared_ptr<Dnn>& dnn = library_->get();
  if (why.empty() && !dnn) why = library_->why();
  if (why.empty() && is_product(node.problem) && products_.blas()) {
    auto plan = products_.blas()->plan(device_->gpu(index), product_of(node.problem), Products::kMostWorkspace, algorithms);
    return std::make_unique<ConvKernel>(nullptr, nullptr, products_.blas(), std::move(plan), *device_, index, node);
  }
  std::shared_ptr<const ConvPlan> plan;
  if (why.empty()) plan = plans_.get(*dnn, device_->gpu(index), node.problem, &why, {}, algorithms);
  if (!plan) throw t::Error(TSR_BUG, "TSR-B005", "cuda was asked for a convolution that it does not compute: " + why);
  return std::make_unique<ConvKernel>(dnn, std::move(plan), nullptr, nullptr, *device_, index, node);
}

std::unique_ptr<t::Kernel> Convolutions::restore(std::string_view bytes) {
  kit::SavedWriter w;
  w.text(kConvMagic);
  if (!bytes.starts_with(w.take())) return nullptr;
  kit::SavedReader in(bytes);
  in.text();
  const bool product = in.number<bool>();
  const std::string_view version = in.text();
  const auto index = in.number<uint32_t>();
  const auto node = in.number<ConvNode>();
  if (product) {
    const auto choice = in.number<BlasChoice>();
    in.end();
    if (!products_.blas() || version != products_.blas()->version_text()) kit::SavedReader::fail();
    auto plan = products_.blas()->plan(device_->gpu(index), product_of(node.problem), Products::kMostWorkspace, &choice);
    return std::make_unique<ConvKernel>(nullptr, nullptr, products_.blas(), std::move(plan), *device_, index, node);
  }
  const std::string choice(in.text());
  in.end();
  const std::shared_ptr<Dnn>& dnn = library_->get();
  if (!dnn || version != dnn->version_text()) kit::SavedReader::fail();
  std::string why;
  auto plan = plans_.get(*dnn, device_->gpu(index), node.problem, &why, choice);
  if (!plan) kit::SavedReader::fail();
  return std::make_unique<ConvKernel>(dnn, std::move(plan), nullptr, nullptr, *device_, index, node);
}

}  // namespace tessera::cuda
