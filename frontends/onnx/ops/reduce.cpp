// SPDX-License-Identifier: Apache-2.0
// Reductions, arg-reductions, running sums.
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

template <Kind K>
void reduce(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const Plan p = plan(op, K == Kind::Sum ? 13 : 18);
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
    r = b.select(either(axis == static_cast<double>(d), axis == static_cast<double>(d - x.rank())), along(d), r);
  op.out(r);
}

constexpr Record kRecords[] = {
    {"", "ReduceSum", reduce<Kind::Sum>},       {"", "ReduceProd", reduce<Kind::Prod>},
    {"", "ReduceMax", reduce<Kind::Max>},       {"", "ReduceMin", reduce<Kind::Min>},
    {"", "ReduceMean", reduce<Kind::Mean>},     {"", "ReduceL1", reduce<Kind::L1>},
    {"", "ReduceL2", reduce<Kind::L2>},         {"", "ReduceSumSquare", reduce<Kind::SumSquare>},
    {"", "ReduceLogSum", reduce<Kind::LogSum>}, {"", "ReduceLogSumExp", reduce<Kind::LogSumExp>},
    {"", "ArgMax", arg_reduce<true>},           {"", "ArgMin", arg_reduce<false>},
    {"", "CumSum", cumulative<false>},          {"", "CumProd", cumulative<true>},
};

}  // namespace

std::span<const Record> reduce_records() { return kRecords; }

}  // namespace tessera::onnx
