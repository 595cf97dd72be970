// SPDX-License-Identifier: Apache-2.0
// Reductions, arg-reductions, running sums.
#include "../dynamic.hpp"
#include "../op.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_bool;
using sdk::attr_int;

struct Plan {
  Ints axes;
  bool keepdims;
  bool noop;  // the input itself
};

// `since`: the opset from which the axes are an input.
Plan plan(Op& op, int64_t since) {
  const int64_t rank = op.in().rank();
  Plan p{{}, op.flag("keepdims", true), false};
  Ints axes;
  if (op.version >= since) {
    if (op.has(1)) axes = op.numbers(1);
  } else {
    axes = op.ints("axes", Ints{});
  }
  if (axes.empty()) {
    p.noop = op.version >= since && op.flag("noop_with_empty_axes");
    if (!p.noop) axes = axes_from(0, rank);
  }
  p.axes = op.axes(std::move(axes), rank);
  return p;
}

V count(Op& op, const V& x, const Plan& p, tsr_dtype dtype) {
  tsr_dim n = 1;
  for (const int64_t a : p.axes) n = op.b.mul(n, x.size(a));
  return op.b.dim(n, dtype);
}

enum class Kind { Sum, Prod, Max, Min, Mean, L1, L2, SumSquare, LogSum, LogSumExp };

// Axes that arrive when the model runs: one dimension after the other is reduced or left as it is, at full size, and what was
// reduced shrinks at the end. An axis out of range reduces nothing.
class RunTimeAxes {
 public:
  RunTimeAxes(Op& op, const V& x) : op_(op), b_(op.b), sizes_(x.sizes()) {
    const V axes = b_.cast(op.in(1), TSR_I64);
    const int64_t length = vector_length(op, 1);
    for (int64_t d = 0; d < x.rank(); ++d) {
      const auto n = static_cast<double>(d);
      const V hit = either(axes == n, axes == n - static_cast<double>(x.rank()));
      chosen_.push_back(hit.call("reduce_any", {sdk::attr_ints("axes", Ints{0})}));
    }
    rank_ = op.flag("keepdims", true) ? x.rank() : x.rank() - length;
    op.expect(rank_ >= 0, std::to_string(length) + " axes of a tensor of rank " + std::to_string(x.rank()));
  }

  // `name` over the chosen dimensions, each element in all places that it stands for. A dimension that may be empty has one
  // place more.
  V reduce(const char* name, V v) const {
    for (size_t d = 0; d < chosen_.size(); ++d) {
      const auto axis = static_cast<int64_t>(d);
      const V r = b_.reduce(name, v, {axis}, true);
      v = select(chosen_[d], b_.broadcast(r, v.sizes()), v);
      if (!b_.proven(TSR_GT, sizes_[d], 0)) v = b_.concat({v, r}, axis);
    }
    return v;
  }

  // Without those places.
  V trim(V v) const {
    for (size_t d = 0; d < sizes_.size(); ++d) v = b_.slice(v, static_cast<int64_t>(d), 0, sizes_[d]);
    return v;
  }

  V shrink(V v) const {
    const auto declared = op_.declared();
    const bool keep = rank_ == v.rank(), said = declared && static_cast<int64_t>(declared->size()) == rank_;
    std::vector<V> kept;
    for (size_t d = 0; d < chosen_.size(); ++d) {
      const V n = select(chosen_[d], b_.dim(1), b_.dim(sizes_[d]));
      kept.push_back(b_.expand(n, {0}));
      v = b_.gather(v, dynamic_range(b_, n, keep && said ? (*declared)[d] : -1), static_cast<int64_t>(d));
    }
    if (keep) return v;
    std::vector<V> left;
    for (const V& c : chosen_) left.push_back(b_.expand(negated(c), {0}));
    const V shape = kept.empty() ? b_.known({}) : b_.op("masked_select", {b_.concat(kept, 0), b_.concat(left, 0)});
    return dynamic_reshape(b_, v, b_.reshape(shape, {rank_}), said ? *declared : Dims{});
  }

 private:
  Op& op_;
  Build& b_;
  Dims sizes_;
  std::vector<V> chosen_;  // bool[]
  int64_t rank_ = 0;       // of the result
};

template <Kind K>
void reduce_at_run_time(Op& op) {
  Build& b = op.b;
  const V x = op.in(), f = b.cast(x, is_float(x.dtype()) ? Build::wide(x.dtype()) : TSR_F64);
  const RunTimeAxes axes(op, x);
  V y;
  switch (K) {
    case Kind::Sum: y = axes.reduce("reduce_sum", x); break;
    case Kind::Prod: y = axes.reduce("reduce_prod", x); break;
    case Kind::Max: y = axes.reduce("reduce_max", x); break;
    case Kind::Min: y = axes.reduce("reduce_min", x); break;
    case Kind::Mean: y = axes.reduce("mean", f); break;
    case Kind::L1: y = axes.reduce("reduce_sum", x.call("abs")); break;
    case Kind::L2: y = axes.reduce("reduce_sum", f * f).call("sqrt"); break;
    case Kind::SumSquare: y = axes.reduce("reduce_sum", x * x); break;
    case Kind::LogSum: y = axes.reduce("reduce_sum", f).call("log"); break;
    case Kind::LogSumExp: {
      const V most = axes.reduce("reduce_max", f), from = select(most.call("is_finite"), most, 0.0);
      y = axes.reduce("reduce_sum", (f - axes.trim(from)).call("exp")).call("log") + from;
      break;
    }
  }
  op.out(axes.shrink(b.cast(y, x.dtype())));
}

template <Kind K>
void reduce(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  constexpr int64_t since = K == Kind::Sum ? 13 : 18;
  // Without axes all are reduced, or none: a vector that may be empty must be known.
  if (op.version >= since && op.has(1) && !b.ints(op.in(1)) && vector_length(op, 1) > 0) return reduce_at_run_time<K>(op);
  const Plan p = plan(op, since);
  const auto r = [&](const char* name, const V& v) { return p.noop ? v : b.reduce(name, v, p.axes, p.keepdims); };
  switch (K) {
    case Kind::Sum: return op.out(r("reduce_sum", x));
    case Kind::Prod: return op.out(r("reduce_prod", x));
    case Kind::Max: return op.out(r("reduce_max", x));
    case Kind::Min: return op.out(r("reduce_min", x));
    case Kind::Mean:
      if (is_float(x.dtype())) return op.out(r("mean", x));
      return op.out(p.noop ? x : b.sum(x, p.axes, p.keepdims) / count(op, x, p, x.dtype()));
    case Kind::L1: return op.out(r("reduce_sum", x.call("abs")));
    case Kind::L2: {
      if (is_float(x.dtype()) && !p.noop)
        return op.out(
            x.call("norm", {sdk::attr_float("p", 2), sdk::attr_ints("axes", p.axes), attr_bool("keepdims", p.keepdims)}));
      const V s = r("reduce_sum", x * x);
      return op.out(b.cast(b.cast(s, is_float(x.dtype()) ? x.dtype() : TSR_F64).call("sqrt"), x.dtype()));
    }
    case Kind::SumSquare: return op.out(r("reduce_sum", x * x));
    case Kind::LogSum: {
      const V s = r("reduce_sum", x);
      return op.out(b.cast(b.cast(s, is_float(x.dtype()) ? x.dtype() : TSR_F64).call("log"), x.dtype()));
    }
    case Kind::LogSumExp: {
      if (p.noop) return op.out(x);
      const V f = b.cast(x, is_float(x.dtype()) ? x.dtype() : TSR_F64);
      return op.out(
          b.cast(f.call("logsumexp", {sdk::attr_ints("axes", p.axes), attr_bool("keepdims", p.keepdims)}), x.dtype()));
    }
  }
}

template <bool Max>
void arg_reduce(Op& op) {
  Build& b = op.b;
  V x = op.in();
  const int64_t axis = op.axis_attr("axis", 0, x.rank());
  const bool keep = op.flag("keepdims", true), last = op.flag("select_last_index");
  if (last) {
    const Ints axes = {axis};
    x = x.call("flip", {sdk::attr_ints("axes", axes)});
  }
  V r = x.call(Max ? "argmax" : "argmin", {attr_int("axis", axis), attr_bool("keepdims", keep)});
  if (last) r = b.dim(b.sub(x.size(axis), 1)) - r;
  op.out(r);
}

template <bool Product>
void cumulative(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const auto along = [&](int64_t axis) {
    return x.call(Product ? "cumprod" : "cumsum", {attr_int("axis", axis), attr_bool("exclusive", op.flag("exclusive")),
                                                   attr_bool("reverse", op.flag("reverse"))});
  };
  if (const auto axis = b.ints(op.in(1))) {
    op.expect(axis->size() == 1 && Build::are_numbers(*axis), "input 1 'axis' is not one number");
    return op.out(along(op.axis((*axis)[0], x.rank())));
  }
  // An axis that is data: the sums have one shape, so the right one is selected.
  const V axis = b.reshape(op.in(1), {});
  V r = along(0);
  for (int64_t d = 1; d < x.rank(); ++d)
    r = select(either(axis == static_cast<double>(d), axis == static_cast<double>(d - x.rank())), along(d), r);
  op.out(r);
}

}  // namespace

std::span<const Record> reduce_records() {
  static constexpr Record records[] = {
      {"", "ReduceSum", reduce<Kind::Sum>},       {"", "ReduceProd", reduce<Kind::Prod>},
      {"", "ReduceMax", reduce<Kind::Max>},       {"", "ReduceMin", reduce<Kind::Min>},
      {"", "ReduceMean", reduce<Kind::Mean>},     {"", "ReduceL1", reduce<Kind::L1>},
      {"", "ReduceL2", reduce<Kind::L2>},         {"", "ReduceSumSquare", reduce<Kind::SumSquare>},
      {"", "ReduceLogSum", reduce<Kind::LogSum>}, {"", "ReduceLogSumExp", reduce<Kind::LogSumExp>},
      {"", "ArgMax", arg_reduce<true>},           {"", "ArgMin", arg_reduce<false>},
      {"", "CumSum", cumulative<false>},          {"", "CumProd", cumulative<true>},
  };
  return records;
}

}  // namespace tessera::onnx
