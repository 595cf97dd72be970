// SPDX-License-Identifier: Apache-2.0
#include "product.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "algorithms.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/kit/saved.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr std::string_view kMagic = "cuda product 4";
// For sizes that only a launch knows, whose plan is not known yet when the workspace is laid out.
constexpr size_t kSymbolicWorkspace = size_t{4} << 20;

// Which dimensions of an operand are what: batch first, then the free ones and the contracted ones, either first.
struct Side {
  uint32_t free = 0;  // how many
  bool contract_first = false;
  bool operator==(const Side&) const = default;
};
struct Contraction {
  uint32_t batch = 0, contract = 0;  // how many dimensions
  Side a, b;
  int type = kRealF32, result_type = kRealF32, compute = kComputeF32;
  // Operands of the node: of the product, and what follows it; -1: nothing.
  uint32_t left = 0, right = 1;
  int32_t bias = -1, residual = -1;
  int activation = kNoActivation;
};

bool counts_up(std::span<const int64_t> axes, int64_t from) {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != from + static_cast<int64_t>(i)) return false;
  return true;
}

std::optional<Side> side_of(uint32_t rank, std::span<const int64_t> batch, std::span<const int64_t> contract) {
  Side s;
  s.free = rank - static_cast<uint32_t>(batch.size() + contract.size());
  const auto first = static_cast<int64_t>(batch.size());
  if (!counts_up(batch, 0)) return std::nullopt;
  if (counts_up(contract, first + s.free)) return s;
  s.contract_first = true;
  if (counts_up(contract, first)) return s;
  return std::nullopt;
}

int blas_type(uint32_t dtype) {
  switch (dtype) {
    case TSR_F32: return kRealF32;
    case TSR_F64: return kRealF64;
    case TSR_F16: return kRealF16;
    case TSR_BF16: return kRealBf16;
    default: return -1;
  }
}

// Empty, or why the library does not compute it.
std::string analyse_product(t::Node n, bool tf32, Contraction& out) {
  if (!n.is("dot_general")) return "no contraction";
  const t::Type a = n.operand(0).type(), b = n.operand(1).type(), d = n.result().type();
  out.type = blas_type(a.dtype());
  out.result_type = blas_type(d.dtype());
  if (out.type < 0) return std::string("cuBLASLt is not used for ") + std::string(dtype_name(a.dtype()));
  const bool narrow = out.type == kRealF16 || out.type == kRealBf16;
  if (out.result_type != out.type && !(narrow && out.result_type == kRealF32))
    return "cuBLASLt has no product of " + std::string(dtype_name(a.dtype())) + " that gives " +
           std::string(dtype_name(d.dtype()));
  out.compute = out.type == kRealF64 ? kComputeF64 : out.type == kRealF32 && tf32 ? kComputeTf32 : kComputeF32;
  const auto lhs_batch = n.attr("lhs_batch").as_ints(), rhs_batch = n.attr("rhs_batch").as_ints();
  const auto lhs = n.attr("lhs_contract").as_ints(), rhs = n.attr("rhs_contract").as_ints();
  const auto left = side_of(a.rank(), lhs_batch, lhs), right = side_of(b.rank(), rhs_batch, rhs);
  if (!left || !right) return "its batch, free and contracted dimensions do not lie beside each other";
  out.batch = static_cast<uint32_t>(lhs_batch.size());
  out.contract = static_cast<uint32_t>(lhs.size());
  out.a = *left;
  out.b = *right;
  return {};
}

// What follows the product in a group: reshapes, a bias along its last dimension, a residual, and an activation at the end.
// They are computed in the accumulator's type, which rounds once; the unfused ops round between them.
class EpilogueReader {
 public:
  EpilogueReader(t::Graph g, t::Node fused) : g_(g), region_(fused.regions()[0]) {}

  std::string read(t::Node dot, Contraction& out) {
    if (g_.outputs(region_).size() != 1) return "more than one result";
    const int32_t left = input(dot.operand(0)), right = input(dot.operand(1));
    if (left < 0 || right < 0) return "operands of the product that are computed in the group";
    out.left = static_cast<uint32_t>(left), out.right = static_cast<uint32_t>(right);
    if (!dot.result().type().is_static() || dot.result().type().rank() == 0) return "a product of unknown sizes";
    if (dot.operand(0).type().elements() <= 0 || dot.operand(1).type().elements() <= 0) return "an epilogue behind nothing";
    if (out.batch != 0) return "an epilogue behind products in a batch";
    if (out.result_type != out.type) return "an epilogue behind a product that widens";
    columns_ = columns_of(dot);
    t::Value v = dot.result();
    size_t taken = 1;
    for (; v.id != g_.outputs(region_)[0]; ++taken) {
      const auto uses = v.uses();
      if (uses.size() != 1 || uses[0].node == TSR_NONE) return "a result that several ops read";
      const t::Node step = g_.node(uses[0].node);
      if (std::string why = take(step, v, out); !why.empty()) return why;
      v = step.result();
    }
    for (const t::Node& x : g_.nodes(region_)) taken -= x.is("constant") ? 0 : 1;
    if (taken != 0) return "other ops in the group";
    if (out.activation == kNoActivation && out.bias < 0) return "no bias and no activation behind the product";
    return {};
  }

 private:
  int32_t input(const t::Value& v) const {
    const auto all = g_.inputs(region_);
    const auto at = std::find(all.begin(), all.end(), v.id);
    return at == all.end() ? -1 : static_cast<int32_t>(at - all.begin());
  }
  static int64_t columns_of(const t::Node& dot) {
    const t::Type b = dot.operand(1).type();
    const auto contract = dot.attr("rhs_contract").as_ints();
    int64_t n = b.elements();
    for (const int64_t axis : contract) n /= std::max<int64_t>(1, b.size(axis));
    return n;
  }

  std::string take(const t::Node& step, const t::Value& v, Contraction& out) {
    const t::Type type = step.result().type();
    if (step.num_results() != 1 || type.elements() != v.type().elements() || type.dtype() != v.type().dtype())
      return "'" + std::string(step.op()) + "' behind the product";
    if (step.is("reshape")) return {};
    if (out.activation != kNoActivation) return "ops behind the activation";
    if (step.is("relu")) {
      out.activation = kReluProduct;
      return {};
    }
    if (step.is("gelu")) {
      if (step.attr("approximate").as_string() != "tanh") return "gelu by erf, which the library has not";
      out.activation = kGeluTanhProduct;
      return {};
    }
    if (!step.is("add")) return "'" + std::string(step.op()) + "' behind the product";
    const t::Value other = step.operand(step.operand(0) == v ? 1 : 0);
    const int32_t operand = other == v ? -1 : input(other);
    if (operand < 0) return "a sum with something that is computed in the group";
    const t::Type o = other.type();
    const bool row = o.rank() >= 1 && o.elements() == columns_ && o.size(-1) == columns_ && type.size(-1) == columns_;
    if (row && columns_ > 1 && out.bias < 0) {
      out.bias = operand;
    } else if (o.elements() == type.elements() && out.residual < 0) {
      out.residual = operand;
    } else {
      return "a sum with another shape";
    }
    return {};
  }

  t::Graph g_;
  tsr_id region_;
  int64_t columns_ = 0;
};

t::Node product_in(t::Graph g, t::Node n) {
  if (!n.is("fused")) return n;
  for (const t::Node& x : g.nodes(n.regions()[0]))
    if (x.is("dot_general")) return x;
  return n;
}

std::string analyse(t::Graph g, t::Node n, bool tf32, Contraction& out) {
  const t::Node dot = product_in(g, n);
  if (std::string why = analyse_product(dot, tf32, out); !why.empty()) return why;
  return n.is("fused") ? EpilogueReader(g, n).read(dot, out) : std::string();
}

template <class Size>
ProductShape shape_of(const Contraction& c, Size&& size) {  // size(operand, dimension)
  ProductShape s;
  const auto product = [&](int operand, uint32_t from, uint32_t count) {
    int64_t n = 1;
    for (uint32_t i = from; i < from + count; ++i) n *= size(operand, i);
    return n;
  };
  s.batch = product(0, 0, c.batch);
  s.m = product(0, c.batch + (c.a.contract_first ? c.contract : 0), c.a.free);
  s.k = product(0, c.batch + (c.a.contract_first ? 0 : c.a.free), c.contract);
  s.n = product(1, c.batch + (c.b.contract_first ? c.contract : 0), c.b.free);
  s.a_transposed = c.a.contract_first;
  s.b_transposed = !c.b.contract_first;
  s.type = c.type, s.result_type = c.result_type, s.compute = c.compute;
  s.bias = c.bias >= 0, s.residual = c.residual >= 0, s.activation = c.activation;
  return s;
}

// The shape whose algorithm a product of symbolic sizes takes. Rows of the left operand that nothing else depends on count up
// to the next multiple of 16, or of an eighth to a fourth of their number: an algorithm for some more rows computes fewer as
// well, mostly, and calls of like sizes have the same kernels then, which nodes of a graph can be set to.
ProductShape shape_of_like_sizes(ProductShape s) {
  if (s.batch != 1 || s.a_transposed || s.m == 1) return s;  // one row is a product of a matrix and a vector
  int64_t step = 16;
  while (s.m > 8 * step) step *= 2;
  s.m = (s.m + step - 1) / step * step;
  return s;
}

bool trivial(const ProductShape& s) { return s.batch == 0 || s.m == 0 || s.n == 0 || s.k == 0; }

class ProductKernel final : public t::Kernel {
 public:
  // `shape`: where all sizes are numbers.
  // `plan`: null where a size is unknown, or nothing is to be computed.
  ProductKernel(std::shared_ptr<Blas> blas, CudaDevice& device, uint32_t index, const Contraction& c,
                const std::optional<ProductShape>& shape, std::shared_ptr<const ProductPlan> plan)
      : blas_(std::move(blas)),
        gpu_(device.gpu(index)),
        device_(device),
        index_(index),
        contraction_(c),
        shape_(shape),
        plan_(std::move(plan)) {
    name_ = std::string("cuda.cublaslt.dot_general") + (c.bias >= 0 ? ".bias" : "") + (c.residual >= 0 ? ".residual" : "") +
            (c.activation == kReluProduct       ? ".relu"
             : c.activation == kGeluTanhProduct ? ".gelu"
                                                : "");
  }

  std::string name() const override { return name_; }
  bool has_workspace() const override { return !shape_ || (plan_ && plan_->workspace_bytes() > 0); }
  int64_t workspace(const int64_t*) override {
    return static_cast<int64_t>(!shape_ ? kSymbolicWorkspace : plan_ ? plan_->workspace_bytes() : 0);
  }

  void launch(const tsr_launch& l) override {
    const uint32_t sides[] = {contraction_.left, contraction_.right};
    const tsr_tensor &a = l.inputs[sides[0]], &b = l.inputs[sides[1]], &d = l.outputs[0];
    const ProductShape s =
        shape_ ? *shape_ : shape_of(contraction_, [&](int operand, uint32_t i) { return l.inputs[sides[operand]].sizes[i]; });
    if (s.batch == 0 || s.m == 0 || s.n == 0) return;
    if (s.k == 0) {  // a sum of nothing
      const int64_t item = dtype_bits(d.dtype) / 8;
      return device_.fill(index_, d.data, 0, static_cast<size_t>(s.batch * s.m * s.n * item), l.stream);
    }
    const Gpu::Scope scope(gpu_);
    const auto at = [&](int32_t i) { return i < 0 ? nullptr : l.inputs[i].data; };
    const ProductOperands operands{a.data, b.data, at(contraction_.bias), at(contraction_.residual), d.data};
    if (plan_)
      plan_->launch(operands, l.workspace, l.stream->native);
    else if (!launch_like(s, operands, l))
      blas_->plan(gpu_, s, kSymbolicWorkspace)->launch(operands, l.workspace, l.stream->native);
    gpu_.queued(l.stream, "cuda.cublaslt.dot_general");
  }

  bool can_serialize() const override { return shape_.has_value(); }
  std::string serialize() const override {
    kit::SavedWriter w;
    w.text(kMagic);
    w.text(blas_->version_text());  // another version may choose another algorithm: the graph is compiled again
    w.number(index_);
    w.number(contraction_);
    w.number(*shape_);
    w.number<bool>(plan_ != nullptr);
    if (plan_) w.number(plan_->choice());
    return w.take();
  }

 private:
  // With the algorithm of like sizes. False: the library takes it for other sizes only, or there are none, and nothing was
  // queued.
  bool launch_like(const ProductShape& s, const ProductOperands& operands, const tsr_launch& l) {
    const ProductShape like = shape_of_like_sizes(s);
    if (like == s) return false;
    {
      const std::lock_guard lock(mutex_);
      if (refused_.contains(s)) return false;
    }
    try {
      const std::shared_ptr<const ProductPlan> of_like = blas_->plan(gpu_, like, kSymbolicWorkspace);
      blas_->plan(gpu_, s, kSymbolicWorkspace, &of_like->choice())->launch(operands, l.workspace, l.stream->native);
      return true;
    } catch (const t::Error& e) {
      if (e.code != "TSR-R031") throw;
      const std::lock_guard lock(mutex_);
      if (refused_.size() >= kMostRefused) refused_.clear();
      refused_.insert(s);
      return false;
    }
  }

  std::shared_ptr<Blas> blas_;
  Gpu& gpu_;
  CudaDevice& device_;
  uint32_t index_;
  Contraction contraction_;
  std::optional<ProductShape> shape_;
  std::shared_ptr<const ProductPlan> plan_;
  std::string name_;
  static constexpr size_t kMostRefused = 1024;
  std::mutex mutex_;
  std::set<ProductShape> refused_;  // that do not run with the algorithm of like sizes
};

}  // namespace

const std::shared_ptr<Blas>& Products::blas() {
  std::call_once(opened_, [&] {
    if (library_ == "off")
      why_none_ = "[cuda] cublaslt = \"off\"";
    else
      blas_ = Blas::open(library_, &why_none_);
  });
  return blas_;
}

bool Products::is_one(t::Graph g, t::Node n) { return product_in(g, n).is("dot_general"); }

bool Products::takes(t::Node n) {
  Contraction c;
  return analyse_product(n, tf32_, c).empty() && blas();
}

std::string Products::why_not(t::Graph g, t::Node n) {
  Contraction c;
  if (std::string why = analyse(g, n, tf32_, c); !why.empty()) return why;
  return blas() ? std::string() : why_none_;
}

std::unique_ptr<t::Kernel> Products::compile(const t::Compile& c, const Algorithms& algorithms) {
  Contraction contraction;
  const t::Node dot = product_in(c.graph(), c.node());
  if (const std::string why = analyse(c.graph(), c.node(), tf32_, contraction); !why.empty() || !blas())
    throw t::Error(TSR_BUG, "TSR-B005",
                   "cuda was asked for a product that it does not compute: " + (why.empty() ? why_none_ : why));
  const t::Type operands[] = {dot.operand(0).type(), dot.operand(1).type()};
  std::optional<ProductShape> shape;
  if (operands[0].is_static() && operands[1].is_static())
    shape = shape_of(contraction, [&](int operand, uint32_t i) { return operands[operand].size(i); });
  const uint32_t index = CudaDevice::index_of(c.p->device);
  std::shared_ptr<const ProductPlan> plan;
  if (shape && !trivial(*shape)) plan = blas()->plan(device_->gpu(index), *shape, kMostWorkspace, algorithms);
  return std::make_unique<ProductKernel>(blas(), *device_, index, contraction, shape, std::move(plan));
}

std::unique_ptr<t::Kernel> Products::restore(std::string_view bytes) {
  kit::SavedWriter w;
  w.text(kMagic);
  if (!bytes.starts_with(w.take())) return nullptr;
  kit::SavedReader in(bytes);
  in.text();
  if (!blas() || in.text() != blas()->version_text()) kit::SavedReader::fail();
  const auto index = in.number<uint32_t>();
  const auto contraction = in.number<Contraction>();
  const auto shape = in.number<ProductShape>();
  std::optional<BlasChoice> choice;
  if (in.number<bool>()) choice = in.number<BlasChoice>();
  in.end();
  std::shared_ptr<const ProductPlan> plan;
  if (choice) plan = blas()->plan(device_->gpu(index), shape, kMostWorkspace, &*choice);
  return std::make_unique<ProductKernel>(blas(), *device_, index, contraction, shape, std::move(plan));
}

}  // namespace tessera::cuda
