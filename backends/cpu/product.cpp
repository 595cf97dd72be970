// SPDX-License-Identifier: Apache-2.0
#include "product.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "finish.hpp"
#include "packed.hpp"
#include "strassen/strassen.hpp"
#include "strided.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

bool is_half_or_single(uint32_t d) { return d == TSR_F32 || d == TSR_BF16 || d == TSR_F16; }

std::vector<int> axes_of(const sdk::Node& n, const char* name, int rank) {
  std::vector<int> out;
  for (const int64_t a : n.attr(name).as_ints()) out.push_back(static_cast<int>(a < 0 ? a + rank : a));
  return out;
}

ProductAxes dot_general_axes(const sdk::Node& n) {
  const int ra = static_cast<int>(n.operand(0).type().rank()), rb = static_cast<int>(n.operand(1).type().rank());
  const auto lb = axes_of(n, "lhs_batch", ra), rb_ = axes_of(n, "rhs_batch", rb);
  const auto lc = axes_of(n, "lhs_contract", ra), rc = axes_of(n, "rhs_contract", rb);
  ProductAxes out;
  for (size_t i = 0; i < lb.size(); ++i) out.batch.push_back({lb[i], rb_[i]});
  for (size_t i = 0; i < lc.size(); ++i) out.k.push_back({lc[i], rc[i]});
  const auto free = [](int rank, const std::vector<int>& x, const std::vector<int>& y, std::vector<int>& to) {
    for (int d = 0; d < rank; ++d)
      if (std::find(x.begin(), x.end(), d) == x.end() && std::find(y.begin(), y.end(), d) == y.end()) to.push_back(d);
  };
  free(ra, lb, lc, out.m);
  free(rb, rb_, rc, out.n);
  return out;
}

}  // namespace

ProductAxes matmul_axes(const sdk::Node& n) {
  const int ra = static_cast<int>(n.operand(0).type().rank()), rb = static_cast<int>(n.operand(1).type().rank());
  ProductAxes out;
  out.k.push_back({ra - 1, rb == 1 ? 0 : rb - 2});
  if (rb > 1) out.n.push_back(rb - 1);
  const int batch_a = std::max(0, ra - 2), batch_b = std::max(0, rb - 2), batch = std::max(batch_a, batch_b);
  if (batch_b == 0) {  // a plain matrix on the right: the batch of the left is more rows
    for (int d = 0; d + 1 < ra; ++d) out.m.push_back(d);
    return out;
  }
  for (int i = 0; i < batch; ++i)
    out.batch.push_back({std::max(-1, i - (batch - batch_a)), std::max(-1, i - (batch - batch_b))});
  if (ra > 1) out.m.push_back(ra - 2);
  return out;
}

namespace {

ProductAxes linear_axes(const sdk::Node& n) {
  const int last = static_cast<int>(n.operand(0).type().rank()) - 1;
  ProductAxes out;
  out.k.push_back({last, 1});
  for (int d = 0; d < last; ++d) out.m.push_back(d);
  out.n.push_back(0);
  return out;
}

int64_t stride_at(const tsr_tensor& t, int axis) { return axis < 0 || t.sizes[axis] == 1 ? 0 : t.strides[axis]; }
int64_t size_at(const tsr_tensor& t, int axis) { return axis < 0 ? 1 : t.sizes[axis]; }

bool is_constant_matrix(const sdk::Value& v, const ProductAxes& axes) {
  if (!v.def() || !v.def().is("constant") || !v.type().is_static()) return false;
  return std::all_of(axes.batch.begin(), axes.batch.end(), [](const auto& b) { return b.second < 0; });
}

// Rows, columns and depth of a product that Strassen's algorithm can compute.
struct StrassenSizes {
  int64_t m = 1, n = 1, k = 1;
};
std::optional<StrassenSizes> strassen_sizes(const sdk::Node& product, const sdk::Value& weights, const ProductAxes& axes) {
  const sdk::Type a = product.operand(0).type(), b = product.operand(1).type();
  if (a.dtype() != TSR_F32 || b.dtype() != TSR_F32 || product.result().type().dtype() != TSR_F32) return std::nullopt;
  if (!a.is_static() || !is_constant_matrix(weights, axes) || !axes.batch.empty() || axes.k.size() != 1 ||
      axes.k[0].first != static_cast<int>(a.rank()) - 1)
    return std::nullopt;
  StrassenSizes s;
  for (const int x : axes.m) s.m *= a.size(x);
  for (const int x : axes.n) s.n *= b.size(x);
  s.k = a.size(axes.k[0].first);
  return s.m > 0 && s.n > 0 && s.k > 0 ? std::optional(s) : std::nullopt;
}

class ProductKernel final : public CopyingKernel {
 public:
  ProductKernel(const sdk::Compile& c, const Isa& isa, const sdk::Node& product, ProductAxes axes, ProductWay way)
      : axes_(std::move(axes)), a_(c, product.operand(0).type()), b_(c, product.operand(1).type()), name_(product.op()) {
    isa_ = product_kernels(isa, product, axes_);
    slots_ = std::max(1, sdk::host().core->num_threads());
    bias_ = product.is("linear") && product.has_operand(2);
    const bool alone = product == c.node();
    for (uint32_t i = 0; i < product.num_operands() && i < 3; ++i)
      if (product.has_operand(i)) at_[i] = alone ? i : outer_operand(c.node(), product, i);
    if (!alone) {
      const char* why = nullptr;
      finish_ = Finish::of(c.node(), product, &why);
      if (!finish_)
        throw sdk::Error(TSR_BUG, "TSR-B005", std::string("cpu was asked to compile a group that it does not claim: ") + why);
      finish_->bind(c);
    }
    const sdk::Value weights = c.node().operand(at_[1]);
    if (way != ProductWay::kPlain && !c.unfrozen())
      if (const auto s = strassen_sizes(product, weights, axes_))
        strassen_ = way == ProductWay::kStrassen || strassen_pays(*isa_, s->m, s->n, s->k);
    strided_ = strassen_ && may_be_strided(c.graph(), c.node().operand(at_[0]));
    pack_constant(c, weights);
  }

  std::string name() const override {
    return "cpu." + name_ + (finish_ ? finish_->name() : "") + (strassen_ ? ".strassen" : "") + (packed_ ? ".packed." : ".") +
           isa_->name;
  }
  double pack_seconds() const override { return packed_.seconds(); }
  int64_t held_bytes() const override { return packed_.bytes(); }
  uint64_t unread() const override { return packed_ ? uint64_t{1} << at_[1] : 0; }
  // The product's own, the copy of its left side, those of the steps behind it.
  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    const bool copies = strided_ && is_strided(strided, at_[0]);
    return product_workspace(d) + (copies ? a_.bytes(d) : 0) + (finish_ ? finish_->workspace_of(d, strided) : 0);
  }

  void launch(const tsr_launch& l) override {
    const tsr_tensor &a_given = l.inputs[at_[0]], &b = l.inputs[at_[1]];
    tsr_tensor dense;
    int64_t strides[kMaxRank];
    const bool copies = strided_ && !(a_given.flags & TSR_TENSOR_CONTIGUOUS);
    char* space = static_cast<char*>(l.workspace) + (copies || finish_ ? product_workspace(l.dims) : 0);
    if (copies) {
      copy_dense(a_given, space);
      dense = a_given;
      dense.data = space;
      space += a_.bytes(l.dims);
      dense.strides = strides;
      for (int64_t d = static_cast<int64_t>(dense.rank) - 1, step = 1; d >= 0; step *= dense.sizes[d--]) strides[d] = step;
    }
    const tsr_tensor& a = copies ? dense : a_given;
    Gemm g;
    g.isa = isa_;
    g.a = a.data, g.b = b.data;
    g.a_dtype = a.dtype, g.b_dtype = b.dtype;
    for (const auto& [x, y] : axes_.batch)
      g.batch.push(size_at(a, x) == 1 ? size_at(b, y) : size_at(a, x), {stride_at(a, x), stride_at(b, y)});
    for (const int x : axes_.m) g.m.push(a.sizes[x], {a.strides[x]});
    for (const int x : axes_.n) g.n.push(b.sizes[x], {b.strides[x]});
    for (const auto& [x, y] : axes_.k) g.k.push(a.sizes[x], {a.strides[x], b.strides[y]});
    g.packed_b = form_;
    FinishStep steps[Finish::kMaxSteps];
    if (finish_) {
      g.num_steps = finish_->steps(l, space, steps);
      g.steps = steps;
    }
    g.c = l.outputs[0].data;
    g.c_dtype = l.outputs[0].dtype;
    if (bias_) {
      const tsr_tensor& bias = l.inputs[at_[2]];
      g.bias = bias.data;
      g.bias_dtype = bias.dtype;
      g.bias_stride = bias.strides[0];
    }
    if (strassen_) return strassen_run(g, l.workspace, slots_);
    if (swaps(g.m.total(), g.n.total())) swap(g);
    gemm_run(g, l.workspace, slots_);
  }

 private:
  int64_t product_workspace(const int64_t* d) const {
    int64_t batch = 1, m = 1, n = 1, k = 1;
    for (const auto& [x, y] : axes_.batch) {
      const int64_t s = a_.at(x, d);
      batch *= s == 1 ? b_.at(y, d) : s;
    }
    for (const int x : axes_.m) m *= a_.at(x, d);
    for (const int x : axes_.n) n *= b_.at(x, d);
    for (const auto& [x, y] : axes_.k) k *= a_.at(x, d);
    if (strassen_) return strassen_workspace(*isa_, m, n, k, slots_);
    if (swaps(m, n)) std::swap(m, n);
    return gemm_workspace(*isa_, batch, m, n, k, {false, static_cast<bool>(packed_), false}, slots_);
  }

  // A column of results is a row of the transposed product, which wastes no lanes.
  bool swaps(int64_t m, int64_t n) const { return n == 1 && m > 1 && !packed_ && !bias_ && !finish_; }
  static void swap(Gemm& g) {
    std::swap(g.a, g.b);
    std::swap(g.a_dtype, g.b_dtype);
    std::swap(g.m, g.n);
    for (Nest<2>* nest : {&g.batch, &g.k})
      for (int d = 0; d < nest->rank; ++d) std::swap(nest->strides[0][d], nest->strides[1][d]);
  }

  // A constant right side without a batch is packed now, once.
  void pack_constant(const sdk::Compile& c, const sdk::Value& v) {
    if (!is_constant_matrix(v, axes_)) return;
    const tsr_tensor& t = v.def().attr("value").as_tensor();
    std::vector<int64_t> strides(t.rank, 1);
    for (int d = static_cast<int>(t.rank) - 2; d >= 0; --d)
      strides[static_cast<size_t>(d)] = strides[static_cast<size_t>(d) + 1] * t.sizes[d + 1];
    Nest<1> n;
    Nest<2> k;
    for (const int y : axes_.n) n.push(t.sizes[y], {strides[static_cast<size_t>(y)]});
    for (const auto& [x, y] : axes_.k) k.push(t.sizes[y], {0, strides[static_cast<size_t>(y)]});
    const std::string axes = std::string(isa_->name) + " n " + text_of(n) + " k " + text_of(k);
    if (!strassen_) {
      packed_.make(c, v, "right " + axes, packed_matrix_bytes(*isa_, n.total(), k.total()),
                   [&](char* to) { pack_matrix(*isa_, t.data, t.dtype, n, k, to); });
      form_ = packed_.data();
      return;
    }
    packed_.make(c, v, "right of strassen " + axes, strassen_packed_bytes(*isa_, n.total(), k.total()),
                 [&](char* to) { strassen_pack(*isa_, static_cast<const float*>(t.data), n, k, to); });
    form_ = packed_.data();
    if (!form_) return;
    if (const char* plain = strassen_plain_form(form_)) form_ = plain, strassen_ = false, strided_ = false;
  }

  ProductAxes axes_;
  uint32_t at_[3] = {0, 1, 2};  // of the compiled node
  bool bias_ = false;
  std::optional<Finish> finish_;
  LaunchSizes a_, b_;
  std::string name_;
  const GemmIsa* isa_ = nullptr;
  int slots_ = 1;
  PackedConstant packed_;
  const char* form_ = nullptr;               // in `packed_`
  bool strassen_ = false, strided_ = false;  // strided: the left side may not lie as Strassen's algorithm reads it
};

}  // namespace

bool is_product(std::string_view op) { return op == "dot_general" || op == "matmul" || op == "linear"; }

ProductClaim claim_product(const sdk::Node& node) {
  ProductClaim out;
  const uint32_t a = node.operand(0).type().dtype(), b = node.operand(1).type().dtype(), c = node.result().type().dtype();
  if (!is_half_or_single(a) || !is_half_or_single(b) || !is_half_or_single(c)) {
    out.why = "cpu multiplies matrices of f32, bf16 and f16";
    return out;
  }
  for (uint32_t i = 0; i < node.num_operands(); ++i)
    if (node.has_operand(i) && node.operand(i).type().rank() > static_cast<uint32_t>(kMaxRank)) {
      out.why = "cpu takes tensors of at most 32 dimensions";
      return out;
    }
  out.axes = node.is("linear") ? linear_axes(node) : node.is("matmul") ? matmul_axes(node) : dot_general_axes(node);
  return out;
}

const GemmIsa* product_kernels(const Isa& isa, const sdk::Node& product, const ProductAxes& axes) {
  // Pairs of bf16 must be neighbours along one dim.
  if (axes.k.size() > 1) return gemm_kernels(isa, TSR_F32, TSR_F32);
  return gemm_kernels(isa, product.operand(0).type().dtype(), product.operand(1).type().dtype());
}

bool can_strassen(const sdk::Compile& c) {
  const sdk::Node product = c.node().is("fused") ? anchor_of(c.node()) : c.node();
  const uint32_t at = product == c.node() ? 1 : outer_operand(c.node(), product, 1);
  return !c.unfrozen() && strassen_sizes(product, c.node().operand(at), claim_product(product).axes).has_value();
}

std::unique_ptr<sdk::Kernel> make_product(const sdk::Compile& c, const Isa& isa, ProductWay way) {
  const sdk::Node product = c.node().is("fused") ? anchor_of(c.node()) : c.node();
  ProductClaim claim = claim_product(product);
  if (claim.why) throw sdk::Error(TSR_BUG, "TSR-B005", "cpu was asked to compile a product that it does not claim");
  return std::make_unique<ProductKernel>(c, isa, product, std::move(claim.axes), way);
}

}  // namespace cpu
