// SPDX-License-Identifier: Apache-2.0
#include "node_table.hpp"

#include <algorithm>
#include <cstring>

#include "tessera/dtypes.hpp"

namespace tessera::kit {
namespace {

uint32_t accumulate(uint32_t dtype) { return dtype == TSR_F16 || dtype == TSR_BF16 ? static_cast<uint32_t>(TSR_F32) : dtype; }

std::vector<double> params_of(sdk::Node n, std::string_view op) {
  if (op == "leaky_relu") return {n.attr("slope").as_float()};
  if (op == "elu" || op == "celu") return {n.attr("alpha").as_float()};
  if (op == "softplus") return {n.attr("beta").as_float(), n.attr("threshold").as_float()};
  if (op == "hardsigmoid") return {n.attr("alpha").as_float(), n.attr("beta").as_float()};
  if (op == "gelu") return {n.attr("approximate").as_string() == "tanh" ? 1.0 : 0.0};
  return {};
}

}  // namespace

int TensorTable::push(Tensor t) {
  t.origin = origin_;
  tensors_.push_back(std::move(t));
  return static_cast<int>(tensors_.size() - 1);
}

int TensorTable::find(tsr_id value) const {
  for (size_t i = values_.size(); i-- > 0;)
    if (values_[i].first == value) return values_[i].second;
  return -1;
}

Expr TensorTable::symbol(tsr_dim d, const std::string& name, int64_t min) {
  const Expr x = pool_.symbol(kernel_->add_symbol(name, min));
  symbols_.emplace_back(d, x);
  symbol_dims.push_back(d);
  return x;
}

Expr TensorTable::expr(tsr_dim d) {
  if (!TSR_DIM_IS_EXPR(d)) return pool_.number(d);
  for (const auto& [s, x] : symbols_)
    if (s == d) return x;
  // One by its range alone: what is broadcast along it lies at 0.
  if (g_.compare(TSR_EQ, d, 1) == TSR_TRUE) return kOne;
  const tsr_tables& t = g_.tables();
  const tsr_dim_expr e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
  if (e.op == TSR_DIM_SYMBOL) {
    const tsr_symbol& s = *TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, e.symbol);
    return symbol(d, s.name, s.min);
  }
  // What is no sum or product is passed as a number of its own, computed once per call: as text it would stand at every index,
  // and layers that differ by it alone share a kernel.
  const bool sum = e.op == TSR_DIM_ADD || e.op == TSR_DIM_SUB || e.op == TSR_DIM_MUL;
  if (!sum && g_.compare(TSR_GE, d, 0) == TSR_TRUE)
    return symbol(d, "size" + std::to_string(symbols_.size()), g_.compare(TSR_GE, d, 1) == TSR_TRUE ? 1 : 0);
  switch (e.op) {
    case TSR_DIM_ADD: return pool_.add(expr(e.lhs), expr(e.rhs));
    case TSR_DIM_SUB: return pool_.sub(expr(e.lhs), expr(e.rhs));
    case TSR_DIM_MUL: return pool_.mul(expr(e.lhs), expr(e.rhs));
    case TSR_DIM_FLOORDIV: return pool_.floordiv(expr(e.lhs), expr(e.rhs));
    case TSR_DIM_MOD: return pool_.mod(expr(e.lhs), expr(e.rhs));
    case TSR_DIM_MIN: return pool_.min(expr(e.lhs), expr(e.rhs));
    default: return pool_.max(expr(e.lhs), expr(e.rhs));
  }
}

bool TensorTable::same_size(std::span<const tsr_dim> narrow, std::span<const tsr_dim> wide, size_t d) const {
  return g_.compare(TSR_EQ, narrow[d], wide[wide.size() - narrow.size() + d]) == TSR_TRUE;
}

std::vector<Expr> TensorTable::shape(sdk::Type t) {
  std::vector<Expr> s;
  for (const tsr_dim d : t.sizes()) s.push_back(expr(d));
  return s;
}

int TensorTable::input(sdk::Value v, uint32_t buffer) {
  if (const int known = find(v.id); known >= 0) return known;
  Tensor t;
  t.kind = Kind::Input;
  t.dtype = v.type().dtype();
  if (type_of(t.dtype) == Type::None) unfit("no kernel type for " + std::string(dtype_name(t.dtype)));
  t.shape = shape(v.type());
  t.number = buffer;
  const int i = push(std::move(t));
  values_.emplace_back(v.id, i);
  return i;
}

int TensorTable::literal(double x, uint32_t dtype) { return literal_bits(constant_bits(type_of(dtype), x), dtype); }
int TensorTable::literal_bits(uint64_t bits, uint32_t dtype) {
  Tensor t;
  t.kind = Kind::Constant;
  t.dtype = dtype;
  t.bits = bits;
  return push(std::move(t));
}

int TensorTable::operand(sdk::Node n, uint32_t i, bool alone) {
  const sdk::Value v = n.operand(i);
  if (const int known = find(v.id); known >= 0) return known;
  if (alone) return input(v, 0);
  // A constant of one element is a literal.
  const sdk::Node def = v.def();
  if (def && def.is("constant") && v.type().elements() == 1) {
    const tsr_tensor& c = def.attr("value").as_tensor();
    Tensor t;
    t.kind = Kind::Constant;
    t.dtype = c.dtype;
    if (type_of(t.dtype) == Type::None) unfit("no kernel type for " + std::string(dtype_name(t.dtype)));
    t.shape = shape(v.type());
    std::memcpy(&t.bits, c.data, static_cast<size_t>(type_bytes(type_of(t.dtype))));
    if (t.dtype == TSR_BOOL) t.bits = t.bits != 0;
    const int k = push(std::move(t));
    values_.emplace_back(v.id, k);
    return k;
  }
  throw sdk::Error(
      TSR_BUG, "TSR-K023",
      "value %" + std::string(v.name()) + " is used by a piece but is neither one of its inputs nor defined in it");
}

int TensorTable::elementwise(std::string op, uint32_t dtype, std::vector<int> operands, std::vector<double> params) {
  Tensor t;
  t.kind = Kind::Elementwise;
  const uint32_t in = at(operands.back()).dtype;
  if (!known_elementwise(op, in, operands.size())) unfit("op '" + op + "' is not generated for " + std::string(dtype_name(in)));
  t.op = std::move(op);
  t.dtype = dtype;
  t.params = std::move(params);
  // Broadcast: sizes align from the right, and 1 gives way.
  size_t rank = 0;
  for (const int o : operands) rank = std::max(rank, at(o).shape.size());
  t.shape.assign(rank, kOne);
  for (const int o : operands) {
    const auto& s = at(o).shape;
    for (size_t d = 0; d < s.size(); ++d)
      if (s[d] != kOne) t.shape[rank - s.size() + d] = s[d];
  }
  t.operands = std::move(operands);
  return push(std::move(t));
}

int TensorTable::cast(int x, uint32_t dtype) {
  if (at(x).dtype == dtype) return x;
  if (const std::string why = why_no_cast(at(x).dtype, dtype); !why.empty()) unfit(why);
  Tensor t;
  t.kind = Kind::Cast;
  t.dtype = dtype;
  t.shape = at(x).shape;
  t.operands = {x};
  return push(std::move(t));
}

int TensorTable::reduce(ReduceKind kind, int x, const std::vector<uint32_t>& axes) {
  Tensor t;
  t.kind = Kind::Reduce;
  t.reduce = kind;
  t.dtype = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin ? static_cast<uint32_t>(TSR_I64) : at(x).dtype;
  t.shape = at(x).shape;
  for (const uint32_t a : axes) t.shape[a] = kOne;
  t.operands = {x};
  t.axes = axes;
  return push(std::move(t));
}

int TensorTable::view(ViewKind kind, int x, std::vector<Expr> to) {
  Tensor t;
  t.kind = Kind::View;
  t.view = kind;
  t.dtype = at(x).dtype;
  t.shape = std::move(to);
  t.operands = {x};
  return push(std::move(t));
}

std::vector<uint32_t> TensorTable::axes_of(sdk::Node n, std::string_view name, size_t rank) {
  std::vector<uint32_t> out;
  const sdk::Attr a = n.attr(name);
  const auto add = [&](int64_t i) { out.push_back(static_cast<uint32_t>(i < 0 ? i + static_cast<int64_t>(rank) : i)); };
  if (a.p->kind == TSR_ATTR_INT)
    add(a.as_int());
  else
    for (const int64_t i : a.as_ints()) add(i);
  std::sort(out.begin(), out.end());
  for (const uint32_t i : out)
    if (i >= rank) unfit("an axis is out of range");
  return out;
}

// The number of elements along axes, minus a number, as the dtype of x (0-d).
int TensorTable::count_of(int x, const std::vector<uint32_t>& axes, double minus) {
  Expr n = kOne;
  for (const uint32_t a : axes) n = pool_.mul(n, at(x).shape[a]);
  const uint32_t dtype = at(x).dtype;
  if (const auto fixed = pool_.as_number(n)) return literal(std::max(0.0, static_cast<double>(*fixed) - minus), dtype);
  if (minus != static_cast<double>(static_cast<int64_t>(minus))) unfit("a fractional correction of a symbolic count");
  Tensor t;
  t.kind = Kind::Size;
  t.dtype = TSR_I64;
  t.size = pool_.max(pool_.sub(n, pool_.number(static_cast<int64_t>(minus))), kZero);
  return cast(push(std::move(t)), dtype);
}

// (x - mean) * rsqrt(variance + eps), times weight, plus bias, over the dimensions from `axis` on: operation by operation what
// it decomposes to, so that a part of it that runs again gives the same bits.
int TensorTable::normalise(sdk::Node n, int x, int weight, int bias, bool rms) {
  const uint32_t dtype = at(x).dtype, wide = accumulate(dtype);
  const size_t rank = at(x).shape.size();
  std::vector<uint32_t> axes;
  for (uint32_t a = axes_of(n, "axis", rank)[0]; a < rank; ++a) axes.push_back(a);
  int c = cast(x, wide);
  const int count = count_of(c, axes, 0);
  if (!rms) c = elementwise("sub", wide, {c, elementwise("div", wide, {reduce(ReduceKind::Sum, c, axes), count})});
  const int squares = reduce(ReduceKind::Sum, elementwise("mul", wide, {c, c}), axes);
  const int shifted =
      elementwise("add", wide, {elementwise("div", wide, {squares, count}), literal(n.attr("eps").as_float(), wide)});
  int y = elementwise("mul", wide, {c, elementwise("rsqrt", wide, {shifted})});
  if (weight >= 0) y = elementwise("mul", wide, {y, cast(weight, wide)});
  if (bias >= 0) y = elementwise("add", wide, {y, cast(bias, wide)});
  return cast(y, dtype);
}

// Composites in terms of the kinds above, in the compute type, rounded once at the end. -1: not one of them.
int TensorTable::composite(sdk::Node n, std::string_view op, bool alone) {
  const auto optional = [&](uint32_t i) { return n.has_operand(i) ? operand(n, i, alone) : -1; };
  if (op == "softmax" || op == "log_softmax") {
    const int x = operand(n, 0, alone);
    const uint32_t dtype = at(x).dtype, wide = accumulate(dtype);
    const size_t rank = at(x).shape.size();
    const std::vector<uint32_t> axes = rank == 0 ? std::vector<uint32_t>{} : axes_of(n, "axis", rank);
    const int c = cast(x, wide);
    // NaN comes through the sum.
    const int d = elementwise("sub", wide, {c, reduce(ReduceKind::MaxNumber, c, axes)});
    const int e = elementwise("exp_of_less", wide, {d});
    const int s = reduce(ReduceKind::Sum, e, axes);
    const int r = op == "softmax" ? elementwise("divide_many", wide, {e, s})
                                  : elementwise("sub", wide, {d, elementwise("log", wide, {s})});
    return cast(r, dtype);
  }
  if (op == "layer_norm") return normalise(n, operand(n, 0, alone), optional(1), optional(2), false);
  if (op == "rms_norm") return normalise(n, operand(n, 0, alone), optional(1), -1, true);
  if (op == "batch_norm") {
    const int x = operand(n, 0, alone);
    const uint32_t dtype = at(x).dtype, wide = accumulate(dtype);
    const auto channel = [&](int v) {  // [C] beside [N, C, ..]
      std::vector<Expr> s(at(x).shape.size() - 1, kOne);
      s[0] = at(v).shape[0];
      return view(ViewKind::Reshape, cast(v, wide), s);
    };
    const int shifted = elementwise("add", wide, {channel(operand(n, 4, alone)), literal(n.attr("eps").as_float(), wide)});
    int scale = elementwise("reciprocal", wide, {elementwise("sqrt", wide, {shifted})});
    if (n.has_operand(1)) scale = elementwise("mul", wide, {channel(operand(n, 1, alone)), scale});
    int y = elementwise("sub", wide, {cast(x, wide), channel(operand(n, 3, alone))});
    y = elementwise("mul", wide, {y, scale});
    const int shift = n.has_operand(2) ? channel(operand(n, 2, alone)) : literal(0.0, wide);
    return cast(elementwise("add", wide, {y, shift}), dtype);
  }
  if (op == "mean" || op == "variance") {
    const int x = operand(n, 0, alone);
    const uint32_t dtype = at(x).dtype, wide = accumulate(dtype);
    if (!is_float(type_of(dtype))) unfit("mean and variance are generated for floats");
    const std::vector<uint32_t> axes = axes_of(n, "axes", at(x).shape.size());
    const int c = cast(x, wide);
    int r = elementwise("div", wide, {reduce(ReduceKind::Sum, c, axes), count_of(c, axes, 0)});
    if (op == "variance") {
      const int d = elementwise("sub", wide, {c, r});
      r = elementwise("div", wide,
                      {reduce(ReduceKind::Sum, elementwise("mul", wide, {d, d}), axes),
                       count_of(c, axes, n.attr("correction").as_float())});
    }
    return view(ViewKind::Reshape, cast(r, dtype), shape(n.result().type()));
  }
  return -1;
}

// What few families have no kernels of their own for: see LowerOptions.
int TensorTable::everything(sdk::Node n, std::string_view op, bool alone) {
  if (op == "dot_general" || op == "matmul" || op == "linear") return product(n, op, alone);
  if (op == "conv" || op == "conv_transpose") return convolution(n, op == "conv_transpose", alone);
  if (op == "avg_pool") return pool_window(n, true, alone)[0];
  return reading(n, op, alone);
}

int TensorTable::add(sdk::Node n, bool alone) {
  const std::string op(n.op());
  const bool pools = options_.everything && op == "max_pool";
  if (n.num_results() != 1 && !pools) unfit("op '" + op + "' has several results");
  const sdk::Type type = n.result(0).type();
  const uint32_t dtype = type.dtype();
  if (type_of(dtype) == Type::None) unfit("op '" + op + "' is not generated for " + std::string(dtype_name(dtype)));
  for (uint32_t i = 0; i < n.num_operands(); ++i)
    if (n.has_operand(i) && type_of(n.operand(i).type().dtype()) == Type::None)
      unfit("op '" + op + "' is not generated for " + std::string(dtype_name(n.operand(i).type().dtype())));
  {
    const tsr_loc loc = n.raw().loc;
    std::string text = "%" + std::string(n.result(0).name()) + " = " + op;
    if (loc.file) text += std::string(" (") + loc.file + ":" + std::to_string(loc.line) + ")";
    for (char& c : text)  // names may hold anything, and this goes into comments of one line
      if (static_cast<unsigned char>(c) < ' ' || c == '\\') c = ' ';
    kernel_->origins.push_back(std::move(text));
    origin_ = static_cast<uint32_t>(kernel_->origins.size() - 1);
  }
  const auto arg = [&](uint32_t i) { return operand(n, i, alone); };
  int r = -1;
  if (pools) {
    const std::vector<int> both = pool_window(n, false, alone);
    for (uint32_t i = 0; i < both.size(); ++i) values_.emplace_back(n.result(i).id, both[i]);
    return both[0];
  }
  uint32_t last = dtype;
  if (n.num_operands() > 0 && n.has_operand(n.num_operands() - 1)) last = n.operand(n.num_operands() - 1).type().dtype();
  if (known_elementwise(op, last, n.num_operands())) {
    std::vector<int> operands;
    for (uint32_t i = 0; i < n.num_operands(); ++i) operands.push_back(arg(i));
    r = elementwise(op, dtype, std::move(operands), params_of(n, op));
  } else if (op == "clamp") {
    r = arg(0);
    if (n.has_operand(1)) r = elementwise("clamp_low", dtype, {r, arg(1)});
    if (n.has_operand(2)) r = elementwise("clamp_high", dtype, {r, arg(2)});
  } else if (op == "cast") {
    r = cast(arg(0), dtype);
  } else if (op == "reshape" || op == "expand_dims" || op == "squeeze") {
    r = view(ViewKind::Reshape, arg(0), shape(type));
  } else if (op == "transpose") {
    r = view(ViewKind::Transpose, arg(0), shape(type));
    const auto perm = n.attr("perm").as_ints();
    const auto rank = static_cast<int64_t>(perm.size());
    for (const int64_t p : perm) tensors_.back().perm.push_back(p < 0 ? p + rank : p);
  } else if (op == "broadcast_to" || op == "full") {
    const int x = arg(0);
    std::vector<Expr> wide = shape(type);
    // What is repeated has to be known when the kernel is made.
    const std::vector<Expr>& narrow = at(x).shape;
    for (size_t d = 0; d < narrow.size(); ++d)
      if (narrow[d] != kOne && narrow[d] != wide[wide.size() - narrow.size() + d] &&
          !same_size(n.operand(0).type().sizes(), type.sizes(), d))
        unfit("only the run tells whether a size is repeated");
    r = view(ViewKind::Broadcast, x, std::move(wide));
  } else if (op == "slice" || op == "flip") {
    const int x = arg(0);
    std::vector<Expr> starts, steps;
    if (op == "slice") {
      for (const int64_t s : n.attr("starts").as_ints()) starts.push_back(expr(s));
      for (const int64_t s : n.attr("strides").as_ints()) steps.push_back(pool_.number(s));
    } else {
      const auto axes = axes_of(n, "axes", at(x).shape.size());
      for (uint32_t d = 0; d < at(x).shape.size(); ++d) {
        const bool turned = std::find(axes.begin(), axes.end(), d) != axes.end();
        starts.push_back(turned ? pool_.sub(at(x).shape[d], kOne) : kZero);
        steps.push_back(turned ? pool_.number(-1) : kOne);
      }
    }
    r = view(ViewKind::Slice, x, shape(type));
    tensors_.back().starts = std::move(starts);
    tensors_.back().steps = std::move(steps);
  } else if (op == "iota" || op == "dim_value") {
    Tensor t;
    t.kind = op == "iota" ? Kind::Iota : Kind::Size;
    t.dtype = TSR_I64;
    t.shape = shape(type);
    if (op == "iota")
      t.number = t.shape.empty() ? 0 : axes_of(n, "axis", t.shape.size())[0];
    else
      t.size = expr(n.attr("value").p->i);
    r = cast(push(std::move(t)), dtype);
  } else if (op.starts_with("reduce_") || op == "argmax" || op == "argmin") {
    const int x = arg(0);
    const Type in = type_of(at(x).dtype);
    static constexpr std::pair<std::string_view, ReduceKind> kinds[] = {
        {"reduce_sum", ReduceKind::Sum}, {"reduce_prod", ReduceKind::Prod}, {"reduce_max", ReduceKind::Max},
        {"reduce_min", ReduceKind::Min}, {"reduce_any", ReduceKind::Any},   {"reduce_all", ReduceKind::All},
        {"argmax", ReduceKind::ArgMax},  {"argmin", ReduceKind::ArgMin}};
    for (const auto& [name, kind] : kinds)
      if (op == name) {
        ReduceKind k = kind;
        if (in == Type::Bool && k == ReduceKind::Max) k = ReduceKind::Any;
        if (in == Type::Bool && k == ReduceKind::Min) k = ReduceKind::All;
        const bool arg_kind = k == ReduceKind::ArgMax || k == ReduceKind::ArgMin;
        if (in == Type::Bool && k != ReduceKind::Any && k != ReduceKind::All)
          unfit("op '" + op + "' is not generated for bool");
        const auto axes = axes_of(n, arg_kind ? "axis" : "axes", at(x).shape.size());
        r = view(ViewKind::Reshape, reduce(k, x, axes), shape(type));
      }
    if (r < 0) unfit("op '" + op + "' is not generated");
  } else if (op == "concat") {
    Tensor t;
    t.kind = Kind::Concat;
    t.dtype = dtype;
    t.shape = shape(type);
    for (uint32_t i = 0; i < n.num_operands(); ++i) t.operands.push_back(arg(i));
    t.number = axes_of(n, "axis", t.shape.size())[0];
    r = push(std::move(t));
  } else if ((op == "pad" && options_.everything) || is_one_update(n)) {
    r = reading(n, op, alone);
  } else if (op == "pad") {
    for (const int64_t i : n.attr("interior").as_ints())
      if (i != 0) unfit("pad with interior elements is not generated");
    if (n.attr("mode").as_string() != "constant") unfit("pad is generated in mode constant only");
    const int x = arg(0), value = n.has_operand(1) ? arg(1) : literal(0.0, dtype);
    Tensor t;
    t.kind = Kind::Pad;
    t.dtype = dtype;
    t.shape = shape(type);
    t.operands = {x, value};
    for (const int64_t low : n.attr("low").as_ints()) t.starts.push_back(expr(low));
    r = push(std::move(t));
  } else if (op == "gather" || op == "embedding" || op == "take_along_axis") {
    Tensor t;
    t.kind = Kind::Gather;
    t.dtype = dtype;
    t.shape = shape(type);
    t.operands = {arg(0), arg(1)};
    t.op = op;
    t.number = op == "embedding" ? 0 : axes_of(n, "axis", at(t.operands[0]).shape.size())[0];
    r = push(std::move(t));
  } else {
    r = composite(n, op, alone);
    if (r < 0 && options_.everything) r = everything(n, op, alone);
    if (r < 0) unfit("op '" + op + "' is not generated");
  }
  values_.emplace_back(n.result().id, r);
  return r;
}

}  // namespace tessera::kit
