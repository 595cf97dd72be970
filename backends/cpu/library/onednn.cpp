// SPDX-License-Identifier: Apache-2.0
#include "library/onednn.hpp"

#ifdef CPU_HAVE_ONEDNN

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <optional>
#include <string>
#include <unordered_map>

#include "conv_shape.hpp"
#include "finish.hpp"
#include "packed.hpp"
#include "strided.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

using dnnl::memory;

// The number of threads that oneDNN uses on this thread, while it lives. (An internal control variable of OpenMP is per
// thread.)
class Team {
 public:
  explicit Team(int n) : before_(omp_get_max_threads()) { omp_set_num_threads(n); }
  ~Team() { omp_set_num_threads(before_); }
  Team(const Team&) = delete;

 private:
  int before_;
};

const dnnl::engine& engine() {
  static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

int64_t padded(size_t bytes) { return static_cast<int64_t>((bytes + 63) / 64 * 64); }
memory::desc plain(const memory::dims& d) {
  memory::dims strides(d.size());
  int64_t step = 1;
  for (size_t i = d.size(); i-- > 0;) strides[i] = step, step *= d[i];
  return memory::desc(d, memory::data_type::f32, strides);
}

std::optional<memory::dims> numbers(const sdk::Type& t) {
  memory::dims out;
  for (const tsr_dim d : t.sizes()) {
    if (TSR_DIM_IS_EXPR(d) || d == 0) return std::nullopt;
    out.push_back(d);
  }
  if (t.dtype() != TSR_F32) return std::nullopt;
  return out;
}

bool is_constant(const sdk::Value& v) { return v.def() && v.def().is("constant"); }

// What follows, of the compiled node.
struct Behind {
  int bias = -1, add = -1;  // operands of the compiled node, or none
  bool relu = false;
};
std::optional<Behind> behind(const sdk::Compile& c, const sdk::Node& anchor) {
  Behind out;
  if (anchor == c.node()) return out;
  const char* why = nullptr;
  const std::optional<Finish> finish = Finish::of(c.node(), anchor, &why);
  if (!finish || !finish->sums_and_relu(&out.bias, &out.add, &out.relu)) return std::nullopt;
  return out;
}

// One primitive with constant weights. Operands that are not dense are copied into the workspace first.
class OnednnKernel final : public CopyingKernel {
 public:
  struct Parts {
    std::string name;
    memory::desc x, w_plain, b, y;  // as the graph has them; y is dense
    uint32_t at[3] = {0, 1, 2};     // operands of the compiled node
    bool bias = false;
    Behind behind;
  };

  // Throws dnnl::error where oneDNN cannot. `describe` makes the primitive from its attributes, and says which forms it wants.
  template <class Describe>
  OnednnKernel(const sdk::Compile& c, Parts parts, Describe describe)
      : parts_(std::move(parts)), threads_(std::max(1, sdk::host().core->num_threads())) {
    const Team team(threads_);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops post;
    if (parts_.behind.add >= 0) post.append_binary(dnnl::algorithm::binary_add, parts_.y);
    if (parts_.behind.relu) post.append_eltwise(1, dnnl::algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(post);
    const auto pd = describe(attr);
    const std::string implementation = pd.impl_info_str();
    if (implementation.find("ref") != std::string::npos)
      throw dnnl::error(dnnl_unimplemented, "only a reference implementation");
    x_ = pd.src_desc(), w_ = pd.weights_desc(), y_ = pd.dst_desc(), scratch_ = pd.scratchpad_desc();
    if (parts_.behind.add >= 0 && y_ != parts_.y)
      throw dnnl::error(dnnl_unimplemented, "the residual would have to be rearranged");
    primitive_ = dnnl::primitive(pd);
    for (const int at :
         {static_cast<int>(parts_.at[0]), parts_.bias ? static_cast<int>(parts_.at[2]) : -1, parts_.behind.add}) {
      copies_.emplace_back();
      if (at < 0) continue;
      const auto operand = static_cast<uint32_t>(at);
      const sdk::Value v = c.node().operand(operand);
      if (may_be_strided(c.graph(), v)) copies_.back() = {operand, LaunchSizes(c, v.type())};
    }
    const sdk::Value w = c.node().operand(parts_.at[1]);
    std::string form = "onednn " + implementation + " threads " + std::to_string(threads_);
    for (const int64_t d : w_.dims()) form += " " + std::to_string(d);
    for (const int64_t d : y_.dims()) form += " " + std::to_string(d);
    packed_.make(c, w, form, padded(w_.get_size()) + kPackedSlack, [&](char* to) {
      memory from(parts_.w_plain, engine(), w.def().attr("value").as_tensor().data), into(w_, engine(), to);
      dnnl::stream stream(engine());
      dnnl::reorder(from, into).execute(stream, from, into);
      stream.wait();
    });
  }

  std::string name() const override { return parts_.name; }
  double pack_seconds() const override { return packed_.seconds(); }
  int64_t held_bytes() const override { return packed_.bytes(); }
  uint64_t unread() const override { return uint64_t{1} << parts_.at[1]; }

  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    int64_t bytes = padded(scratch_.get_size()) + (x_ == parts_.x ? 0 : padded(x_.get_size())) +
                    (y_ == parts_.y ? 0 : padded(y_.get_size()));
    for (const Copy& x : copies_)
      if (x.sizes && is_strided(strided, x.operand)) bytes += x.sizes->bytes(d);
    return bytes;
  }

  void launch(const tsr_launch& l) override {
    const Team team(threads_);
    char* space = static_cast<char*>(l.workspace);
    const auto take = [&](const memory::desc& d) {
      char* p = space;
      space += padded(d.get_size());
      return p;
    };
    const auto dense = [&](size_t which, uint32_t at) -> void* {
      const tsr_tensor& t = l.inputs[at];
      if (!copies_[which].sizes || (t.flags & TSR_TENSOR_CONTIGUOUS)) return t.data;
      char* copy = space;
      space += copies_[which].sizes->bytes(l.dims);
      copy_dense(t, copy);
      return copy;
    };
    try {
      dnnl::stream stream(engine());
      memory x(parts_.x, engine(), dense(0, parts_.at[0]));
      if (x_ != parts_.x) {
        memory into(x_, engine(), take(x_));
        dnnl::reorder(x, into).execute(stream, x, into);
        x = into;
      }
      memory y(y_, engine(), y_ == parts_.y ? static_cast<char*>(l.outputs[0].data) : take(y_));
      std::unordered_map<int, memory> args = {{DNNL_ARG_SRC, x},
                                              {DNNL_ARG_WEIGHTS, memory(w_, engine(), const_cast<char*>(packed_.data()))},
                                              {DNNL_ARG_DST, y},
                                              {DNNL_ARG_SCRATCHPAD, memory(scratch_, engine(), take(scratch_))}};
      if (parts_.bias) args.emplace(DNNL_ARG_BIAS, memory(parts_.b, engine(), dense(1, parts_.at[2])));
      if (parts_.behind.add >= 0)
        args.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1,
                     memory(parts_.y, engine(), dense(2, static_cast<uint32_t>(parts_.behind.add))));
      primitive_.execute(stream, args);
      if (y_ != parts_.y) {
        memory into(parts_.y, engine(), l.outputs[0].data);
        dnnl::reorder(y, into).execute(stream, y, into);
      }
      stream.wait();
    } catch (const dnnl::error& e) {
      throw sdk::Error(TSR_ENVIRONMENT, "TSR-R031", std::string("oneDNN: ") + e.what(),
                       "set max_autotune = false to do without it");
    }
  }

 private:
  Parts parts_;
  int threads_;
  memory::desc x_, w_, y_, scratch_;  // as the primitive wants them
  dnnl::primitive primitive_;
  struct Copy {
    uint32_t operand = 0;
    std::optional<LaunchSizes> sizes;  // none: it is dense
  };
  std::vector<Copy> copies_;  // of the input, the bias and the residual
  PackedConstant packed_;
};

// The one bias that there may be: the op's own, or the one that is added behind it.
bool take_bias(bool own, const Behind& behind, OnednnKernel::Parts* p) {
  if (own && behind.bias >= 0) return false;
  p->bias = own || behind.bias >= 0;
  if (behind.bias >= 0) p->at[2] = static_cast<uint32_t>(behind.bias);
  p->behind = behind;
  return true;
}

}  // namespace

bool have_onednn() { return true; }

std::unique_ptr<sdk::Kernel> make_onednn_product(const sdk::Compile& c, const sdk::Node& product, const ProductAxes& axes) {
  const auto a = numbers(product.operand(0).type()), b = numbers(product.operand(1).type()),
             y = numbers(product.result().type());
  const auto follows = behind(c, product);
  if (!a || !b || !y || !follows || !axes.batch.empty() || axes.k.size() != 1 || axes.n.size() != 1) return nullptr;
  // Rows of the left side are dense, with K innermost; the right side is a matrix in either order.
  const auto [ka, kb] = axes.k[0];
  if (ka != static_cast<int>(a->size()) - 1 || b->size() != 2 || y->empty()) return nullptr;
  OnednnKernel::Parts p;
  int64_t m = 1;
  for (const int x : axes.m) m *= (*a)[static_cast<size_t>(x)];
  const int64_t k = (*b)[static_cast<size_t>(kb)], n = (*b)[static_cast<size_t>(1 - kb)];
  const bool alone = product == c.node();
  for (uint32_t i = 0; i < product.num_operands() && i < 3; ++i)
    if (product.has_operand(i)) p.at[i] = alone ? i : outer_operand(c.node(), product, i);
  if (!is_constant(c.node().operand(p.at[1]))) return nullptr;
  p.name = "cpu." + std::string(product.op()) + ".onednn";
  p.x = plain({m, k}), p.y = plain({m, n});
  p.w_plain = memory::desc({k, n}, memory::data_type::f32, kb == 0 ? memory::dims{n, 1} : memory::dims{1, k});
  p.b = plain({1, n});
  if (!take_bias(product.is("linear") && product.has_operand(2), *follows, &p)) return nullptr;
  try {
    return std::make_unique<OnednnKernel>(c, p, [&](const dnnl::primitive_attr& attr) {
      const memory::desc any({k, n}, memory::data_type::f32, memory::format_tag::any);
      return dnnl::matmul::primitive_desc(p.bias ? dnnl::matmul::desc(p.x, any, p.b, p.y) : dnnl::matmul::desc(p.x, any, p.y),
                                          attr, engine());
    });
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

std::unique_ptr<sdk::Kernel> make_onednn_conv(const sdk::Compile& c, const sdk::Node& conv) {
  const auto x = numbers(conv.operand(0).type()), w = numbers(conv.operand(1).type()), y = numbers(conv.result().type());
  const auto follows = behind(c, conv);
  if (!x || !w || !y || !follows || x->size() != 4) return nullptr;
  const ConvAttributes a(conv);
  if (a.low[0] < 0 || a.low[1] < 0) return nullptr;
  OnednnKernel::Parts p;
  const bool alone = conv == c.node();
  for (uint32_t i = 0; i < conv.num_operands() && i < 3; ++i)
    if (conv.has_operand(i)) p.at[i] = alone ? i : outer_operand(c.node(), conv, i);
  if (!is_constant(c.node().operand(p.at[1]))) return nullptr;
  p.name = "cpu.conv.onednn";
  p.x = plain(*x), p.y = plain(*y);
  memory::dims weights = *w;
  if (a.groups > 1) weights = {a.groups, (*w)[0] / a.groups, (*w)[1], (*w)[2], (*w)[3]};
  p.w_plain = plain(weights);
  p.b = plain({(*y)[1]});
  if (!take_bias(conv.has_operand(2), *follows, &p)) return nullptr;
  // A 1 x 1 convolution is a product as it stands, and a residual must lie as the result does; others gain from the layout that
  // oneDNN prefers.
  const bool as_it_is = p.behind.add >= 0 || ((*w)[2] == 1 && (*w)[3] == 1 && a.groups == 1);
  try {
    return std::make_unique<OnednnKernel>(c, p, [&](const dnnl::primitive_attr& attr) {
      const auto any = [&](const memory::dims& d) { return memory::desc(d, memory::data_type::f32, memory::format_tag::any); };
      const memory::desc dx = as_it_is ? p.x : any(*x), dy = as_it_is ? p.y : any(*y), dw = any(weights);
      const memory::dims strides = {a.stride[0], a.stride[1]}, low = {a.low[0], a.low[1]}, high = {a.high[0], a.high[1]},
                         gaps = {a.dilation[0] - 1, a.dilation[1] - 1};
      using Conv = dnnl::convolution_forward;
      const auto kind = dnnl::prop_kind::forward_inference;
      const auto algorithm = dnnl::algorithm::convolution_direct;
      return Conv::primitive_desc(p.bias ? Conv::desc(kind, algorithm, dx, dw, p.b, dy, strides, gaps, low, high)
                                         : Conv::desc(kind, algorithm, dx, dw, dy, strides, gaps, low, high),
                                  attr, engine());
    });
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

}  // namespace cpu

#else

namespace cpu {

bool have_onednn() { return false; }
std::unique_ptr<tessera::sdk::Kernel> make_onednn_product(const tessera::sdk::Compile&, const tessera::sdk::Node&,
                                                          const ProductAxes&) {
  return nullptr;
}
std::unique_ptr<tessera::sdk::Kernel> make_onednn_conv(const tessera::sdk::Compile&, const tessera::sdk::Node&) {
  return nullptr;
}

}  // namespace cpu

#endif
