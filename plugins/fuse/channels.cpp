// SPDX-License-Identifier: Apache-2.0
// Convolutions of two spatial dimensions with the channels of their tensors last, which the matrix units of GPUs want: the
// taps of one pixel then lie side by side. Between two convolutions the tensors stay so: what is computed element by element
// is computed in that order. Weights that are constants are rearranged here, once.
//
//   %y = conv %x, %w, %b        %xl = transpose %x {perm = [0, 2, 3, 1]}       where %x is no such transpose itself
//                               %yl = fused(%xl, %wl, %b) {transpose, transpose, conv, transpose}
//                               %y = transpose %yl {perm = [0, 3, 1, 2]}
#include <algorithm>
#include <array>
#include <map>

#include "epilogue.hpp"
#include "patches.hpp"

namespace tessera::passes {
namespace {

using sdk::Node, sdk::Value;

constexpr std::array<int64_t, 4> kToFirst = {0, 3, 1, 2}, kToLast = {0, 2, 3, 1};  // where the channels of the result lie

bool permutes(const Node& n, const std::array<int64_t, 4>& want) {
  if (!n || !n.is("transpose")) return false;
  const auto perm = n.attr("perm").as_ints();
  return std::equal(perm.begin(), perm.end(), want.begin(), want.end(),
                    [](int64_t p, int64_t w) { return (p < 0 ? p + 4 : p) == w; });
}

class ChannelsLast {
 public:
  ChannelsLast(sdk::Graph g, tsr_id region) : g_(g), region_(region) {}

  bool run() {
    std::vector<Node> nodes;
    bool any = false;
    for (const Node& n : g_.nodes(region_)) {
      // The gradients of convolutions read what the forward half keeps, as it lies.
      if (n.marked(TSR_MARK_BACKWARD)) return false;
      any = any || n.is("conv");
      nodes.push_back(n);
    }
    if (!any) return false;
    // In program order: what a node reads has been looked at before.
    for (const Node& n : nodes) {
      if (n.is("conv"))
        wrap(n);
      else if (n.is("max_pool") || n.is("avg_pool"))
        pool(n);
      else if (n.is("mean"))
        reduce(n);
      else if (edited_)
        sink(n);
    }
    for (size_t i = transposes_.size(); i-- > 0;)
      if (transposes_[i].alive() && transposes_[i].result().num_uses() == 0) g_.erase(transposes_[i]);
    for (const Wrapped& w : wrapped_) fuse_longest(g_, w.nodes, chain_of(g_, w.nodes.back(), false), 0, w.backend);
    return edited_;
  }

 private:
  struct Wrapped {
    std::vector<Node> nodes;
    std::string backend;
  };

  Value transpose(sdk::Graph::At at, Value v, const std::array<int64_t, 4>& perm, uint32_t marks) {
    const Value out = g_.op(at, "transpose", {v}, {sdk::attr_ints("perm", perm)});
    g_.set_marks(out.def(), marks);
    transposes_.push_back(out.def());
    return out;
  }

  // The same tensor with its channels last.
  Value last(sdk::Graph::At at, Value v, uint32_t marks) {
    if (permutes(v.def(), kToFirst)) return v.def().operand(0);
    const auto known = last_.find(v.id);
    return known != last_.end() ? known->second : transpose(at, v, kToLast, marks);
  }
  void wrap(const Node& conv) {
    const Value x = conv.operand(0), w = conv.operand(1);
    uint64_t capabilities = 0;
    const std::string backend(g_.backend_of(conv, &capabilities));
    if (backend.empty() || !(capabilities & TSR_CAP_FUSION) || x.type().rank() != 4) return;
    if (!x.type().is_static() || !w.type().is_static()) return;
    edited_ = true;  // an attempt is an edit
    if (const Value patches = cut_patches(g_, conv))
      return replace(conv, transpose(sdk::Graph::before(conv), patches, kToFirst, conv.marks()));
    const sdk::Graph::At at = sdk::Graph::before(conv);
    const uint32_t marks = conv.marks();
    const bool point = w.type().size(2) == 1 && w.type().size(3) == 1;  // then both orders of the weights are one
    const Value xl = last(at, x, marks), wl = point ? w : last(at, w, marks);
    Wrapped out{{}, backend};
    const auto add = [&](Value v) {
      out.nodes.push_back(v.def());
      return v;
    };
    std::vector<Value> operands = {add(transpose(at, xl, kToFirst, marks)),
                                   point ? w : add(transpose(at, wl, kToFirst, marks))};
    for (uint32_t i = 2; i < conv.num_operands(); ++i) operands.push_back(conv.has_operand(i) ? conv.operand(i) : g_.none());
    const Node made = g_.create(at, "conv", operands, conv.attrs());
    g_.set_marks(made, marks);
    out.nodes.push_back(made);
    const Value yl = add(transpose(at, made.result(), kToLast, marks));

    kit::Piece piece{g_, out.nodes, {xl}, {yl}};
    if (wl.id != xl.id) piece.inputs.push_back(wl);
    if (conv.has_operand(2) && conv.operand(2).id != wl.id && conv.operand(2).id != xl.id)
      piece.inputs.push_back(conv.operand(2));
    const Node asked = make_group(g_, piece, backend);
    const bool taken = g_.backend_of(asked) == backend;
    g_.erase(asked);
    if (!taken) {
      for (size_t i = out.nodes.size(); i-- > 0;) g_.erase(out.nodes[i]);
      return;
    }
    if (const Node deeper = space_to_depth(g_, conv)) {
      for (size_t i = out.nodes.size(); i-- > 0;) g_.erase(out.nodes[i]);
      const std::string name(conv.result().name());
      g_.replace_uses(conv.result(), deeper.result());
      g_.erase(conv);
      g_.set_name(deeper.result(), name.c_str());
      return wrap(deeper);
    }
    last_[x.id] = xl;
    if (!point) last_[w.id] = constant(wl);
    replace(conv, transpose(at, yl, kToFirst, marks));
    wrapped_.push_back(std::move(out));
  }

  // Weights that are known are rearranged now.
  Value constant(Value v) {
    const Node n = v.def();
    if (!n || !n.is("transpose") || !n.operand(0).def() || !n.operand(0).def().is("constant")) return v;
    const Value made = g_.constant(sdk::Graph::before(n), g_.evaluate(n)[0]);
    g_.set_marks(made.def(), n.marks());
    g_.replace_uses(v, made);
    g_.erase(n);
    return made;
  }

  void replace(const Node& n, Value by) {
    const std::string name(n.result().name());
    g_.replace_uses(n.result(), by);
    g_.erase(n);
    g_.set_name(by, name.c_str());
  }

  // Pooling reads and writes channels last, where the backend computes that in one kernel.
  void pool(const Node& n) {
    if (!permutes(n.operand(0).def(), kToFirst) || n.operand(0).type().rank() != 4) return;
    if (n.num_results() > 1 && n.result(1).num_uses() > 0) return;
    const std::string backend(g_.backend_of(n));
    if (backend.empty()) return;
    const sdk::Graph::At at = sdk::Graph::before(n);
    const Value xl = n.operand(0).def().operand(0), x = transpose(at, xl, kToFirst, n.marks());
    const std::vector<Value> operands = {x};
    const Node made = g_.create(at, n.raw().op, operands, n.attrs());
    g_.set_marks(made, n.marks());
    const Value y = transpose(at, made.result(), kToLast, n.marks());
    const kit::Piece piece{g_, {x.def(), made, y.def()}, {xl}, {y}};
    const Node group = make_group(g_, piece, backend);
    if (g_.backend_of(group) != backend) {
      g_.erase(group);
      g_.erase(y.def());
      g_.erase(made);
      return;
    }
    replace_by_group(g_, piece, group);
    replace(n, transpose(at, group.result(), kToFirst, n.marks()));
  }

  // A mean over the pixels.
  void reduce(const Node& n) {
    const auto axes = n.attr("axes").as_ints();
    if (!permutes(n.operand(0).def(), kToFirst) || axes.size() != 2) return;
    const int64_t rank = 4, a = axes[0] < 0 ? axes[0] + rank : axes[0], b = axes[1] < 0 ? axes[1] + rank : axes[1];
    if (std::min(a, b) != 2 || std::max(a, b) != 3) return;
    static constexpr int64_t kPixels[] = {1, 2};
    const sdk::Graph::At at = sdk::Graph::before(n);
    Value v = g_.op(at, "mean", {n.operand(0).def().operand(0)},
                    {sdk::attr_ints("axes", kPixels), sdk::attr_bool("keepdims", false)});
    g_.set_marks(v.def(), n.marks());
    if (n.attr("keepdims").as_bool()) {
      v = g_.op(at, "reshape", {v}, {sdk::attr_dims("shape", n.result().type().sizes())});
      g_.set_marks(v.def(), n.marks());
    }
    replace(n, v);
  }

  // Computes an op element by element on tensors whose channels lie last, where all of its large operands are such ones.
  void sink(const Node& n) {
    if (n.num_results() != 1 || !n.regions().empty() || !g_.has_trait(n.raw().op, "elementwise")) return;
    const sdk::Type t = n.result().type();
    if (t.rank() != 4) return;
    bool any = false;
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      if (!n.has_operand(i)) continue;
      const sdk::Type o = n.operand(i).type();
      const bool whole = o.rank() == 4 && std::equal(o.sizes().begin(), o.sizes().end(), t.sizes().begin());
      if (whole && !permutes(n.operand(i).def(), kToFirst) && !last_.contains(n.operand(i).id)) return;
      if (!whole && o.elements() != 1 && o.rank() != 4) return;
      any = any || whole;
    }
    if (!any) return;
    const sdk::Graph::At at = sdk::Graph::before(n);
    std::vector<Value> operands;
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      const Value v = n.has_operand(i) ? n.operand(i) : g_.none();
      operands.push_back(!n.has_operand(i) || v.type().elements() == 1 ? v : last(at, v, n.marks()));
    }
    const Node made = g_.create(at, n.raw().op, operands, n.attrs());
    g_.set_marks(made, n.marks());
    replace(n, transpose(at, made.result(), kToFirst, n.marks()));
  }

  sdk::Graph g_;
  tsr_id region_;
  std::map<tsr_id, Value> last_;  // by a value: the same with its channels last
  std::vector<Wrapped> wrapped_;
  std::vector<Node> transposes_;  // all that were made: some of them nobody reads in the end
  bool edited_ = false;
};

}  // namespace

bool channels_last(sdk::Graph g, tsr_id region) { return ChannelsLast(g, region).run(); }

}  // namespace tessera::passes
