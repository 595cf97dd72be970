// SPDX-License-Identifier: Apache-2.0
// Pools, and ops that read their operand elsewhere than they write.
#include <algorithm>
#include <limits>

#include "node_table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::kit {
namespace {

// Geometry of a pool's windows.
struct Windows {
  std::vector<int64_t> kernel, stride, low, high, dilation;

  explicit Windows(sdk::Node n) {
    for (const auto& [name, to] : {std::pair{"kernel", &kernel}, std::pair{"strides", &stride}, std::pair{"pad_low", &low},
                                   std::pair{"pad_high", &high}, std::pair{"dilations", &dilation}})
      for (const int64_t i : n.attr(name).as_ints()) to->push_back(i);
  }
  // The element that the windows read: dimensions N, C, spatial, then the taps. `padded`: counted from the padding's first
  // element.
  ReadMap read(bool padded) const {
    return [w = *this, padded](IndexPool& p, const Position& at) {
      Reading r;
      const size_t spatial = w.kernel.size();
      r.at = {at[0], at[1]};
      for (size_t d = 0; d < spatial; ++d) {
        const Expr from = p.add(p.mul(at[2 + d], p.number(w.stride[d])), p.mul(at[2 + spatial + d], p.number(w.dilation[d])));
        r.at.push_back(padded ? from : p.sub(from, p.number(w.low[d])));
      }
      return r;
    };
  }
  // Does every window of `out` hold an element of `in`? Padding is less than the extent of a window.
  bool all_hold(size_t d, std::optional<int64_t> in, std::optional<int64_t> out) const {
    if (dilation[d] == 1) return true;
    if (!in || !out) return false;
    for (int64_t o = 0; o < *out; ++o) {
      bool some = false;
      for (int64_t k = 0; k < kernel[d] && !some; ++k) {
        const int64_t i = o * stride[d] - low[d] + k * dilation[d];
        some = i >= 0 && i < *in;
      }
      if (!some) return false;
    }
    return true;
  }
};

// The least value of a dtype: what a maximum over nothing is.
uint64_t least_bits(Type t) {
  if (is_float(t)) return constant_bits(t, -std::numeric_limits<double>::infinity());
  if (is_unsigned(t)) return 0;
  const int bits = type_bytes(t) * 8;
  return uint64_t{1} << (bits - 1);
}

}  // namespace

int TensorTable::window(int x, int fill, std::vector<Expr> to, ReadMap read) {
  Tensor t;
  t.kind = Kind::Window;
  t.dtype = at(x).dtype;
  t.shape = std::move(to);
  t.operands = {x, fill};
  t.read = std::move(read);
  return push(std::move(t));
}

std::vector<int> TensorTable::pool_window(sdk::Node n, bool average, bool alone) {
  const int x = operand(n, 0, alone);
  const std::vector<Expr> in = at(x).shape, out = shape(n.result(0).type());
  const uint32_t dtype = at(x).dtype, wide = dtype == TSR_F64 ? dtype : static_cast<uint32_t>(TSR_F32);
  const size_t spatial = in.size() - 2;
  const Windows w(n);
  std::vector<Expr> full = out;
  std::vector<uint32_t> axes;
  for (size_t d = 0; d < spatial; ++d) {
    axes.push_back(static_cast<uint32_t>(full.size()));
    full.push_back(pool_.number(w.kernel[d]));
  }
  if (average) {
    const int64_t fixed = n.attr("divisor").as_int();
    const bool padding = n.attr("count_include_pad").as_bool(), up = n.attr("ceil_mode").as_bool();
    const int sum = reduce(ReduceKind::Sum, window(cast(x, wide), literal(0.0, wide), full, w.read(false)), axes);
    int divisor;
    if (fixed != 0 || (padding && !up)) {
      int64_t taps = 1;
      for (const int64_t k : w.kernel) taps *= k;
      divisor = literal(static_cast<double>(fixed != 0 ? fixed : taps), wide);
    } else {
      // Taps inside x, or inside x and its padding; what rounding up adds beyond is neither.
      std::vector<Expr> counted = in;
      for (size_t d = 0; d < spatial && padding; ++d) counted[2 + d] = pool_.add(in[2 + d], pool_.number(w.low[d] + w.high[d]));
      const int ones = expanded(literal(1.0, wide), counted);
      divisor = reduce(ReduceKind::Sum, window(ones, literal(0.0, wide), full, w.read(padding)), axes);
      divisor = elementwise("maximum", wide, {divisor, literal(1.0, wide)});  // the mean of no elements is 0
    }
    return {cast(reshaped(elementwise("div", wide, {sum, divisor}), out), dtype)};
  }
  for (size_t d = 0; d < spatial; ++d)
    if (!w.all_hold(d, pool_.as_number(in[2 + d]), pool_.as_number(out[2 + d]))) unfit("a window may lie in the padding alone");
  const Type type = type_of(dtype);
  const int taken = window(x, literal_bits(least_bits(type), dtype), full, w.read(false));
  const int greatest = reduce(ReduceKind::Max, taken, axes);
  // The first place whose element is the greatest: the value is the element there, so that zeros and NaN keep their bits.
  int place = -1;
  for (size_t d = 0; d < spatial; ++d) {
    Tensor t;
    t.kind = Kind::Iota;
    t.dtype = TSR_I64;
    t.shape = in;
    t.number = static_cast<uint32_t>(2 + d);
    const int along = push(std::move(t));
    Tensor size;
    size.kind = Kind::Size;
    size.dtype = TSR_I64;
    size.size = in[2 + d];
    const int extent = push(std::move(size));
    place = place < 0 ? along : elementwise("add", TSR_I64, {elementwise("mul", TSR_I64, {place, extent}), along});
  }
  constexpr uint64_t kNowhere = std::numeric_limits<int64_t>::max();
  const int places = window(place, literal_bits(kNowhere, TSR_I64), full, w.read(false));
  int hit = elementwise("eq", TSR_BOOL, {taken, greatest});
  if (is_float(type))
    hit = elementwise(
        "logical_or", TSR_BOOL,
        {hit, elementwise("logical_and", TSR_BOOL,
                          {elementwise("is_nan", TSR_BOOL, {taken}), elementwise("is_nan", TSR_BOOL, {greatest})})});
  const int nowhere = literal_bits(kNowhere, TSR_I64);
  const int first = reshaped(reduce(ReduceKind::Min, elementwise("select", TSR_I64, {hit, places, nowhere}), axes), out);
  Tensor value;
  value.kind = Kind::Gather;
  value.dtype = dtype;
  value.op = "take_along_axis";
  value.number = 2;
  const Expr plane = pool_.product(std::span<const Expr>(in).subspan(2)),
             many = pool_.product(std::span<const Expr>(out).subspan(2));
  value.shape = {out[0], out[1], many};
  value.operands = {reshaped(x, {in[0], in[1], plane}), reshaped(first, value.shape)};
  const int values = reshaped(push(std::move(value)), out);
  return {values, first};
}

// A scatter of one update along its axis: each element is the update where its index along the axis is the one given, else x.
// The index comes by way of a gather, which checks it.
int TensorTable::one_update(sdk::Node n, bool alone) {
  const int x = operand(n, 0, alone), index = operand(n, 1, alone), update = operand(n, 2, alone);
  const uint32_t axis = axes_of(n, "axis", at(x).shape.size())[0];
  Tensor along;
  along.kind = Kind::Iota;
  along.dtype = TSR_I64;
  along.shape = at(x).shape;
  along.number = axis;
  const int here = push(std::move(along));
  Tensor given;
  given.kind = Kind::Gather;
  given.op = "take_along_axis";
  given.dtype = TSR_I64;
  given.number = axis;
  given.shape = at(index).shape;
  given.operands = {here, index};
  const int there = push(std::move(given));
  const int hit = elementwise("eq", TSR_BOOL, {here, there});
  return elementwise("select", n.result().type().dtype(), {hit, update, x});
}

bool is_one_update(sdk::Node n) {
  if (!n.is("scatter") || n.attr("reduction").as_string() != "none") return false;
  const auto full = n.result().type().sizes(), line = n.operand(1).type().sizes();
  if (full.empty() || line.size() != full.size() || !std::ranges::equal(line, n.operand(2).type().sizes())) return false;
  const int64_t given = n.attr("axis").as_int();
  const auto axis = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(full.size()) : given);
  for (size_t d = 0; d < full.size(); ++d)
    if (line[d] != (d == axis ? 1 : full[d])) return false;
  return true;
}

// gather_nd, dynamic_slice, dynamic_update_slice, pad of every kind, tril and triu, as_strided.
int TensorTable::reading(sdk::Node n, std::string_view op, bool alone) {
  const sdk::Type type = n.result().type();
  const auto arg = [&](uint32_t i) { return operand(n, i, alone); };
  if (op == "gather_nd") {
    Tensor t;
    t.kind = Kind::GatherNd;
    t.dtype = type.dtype();
    t.shape = shape(type);
    t.operands = {arg(0), arg(1)};
    t.number = static_cast<uint32_t>(n.attr("batch_dims").as_int());
    const auto length = pool_.as_number(at(t.operands[1]).shape.back());
    if (!length || *length > 8) unfit("a tuple of indices has at most 8 numbers, and how many is known");
    return push(std::move(t));
  }
  if (op == "dynamic_slice" || op == "dynamic_update_slice") {
    Tensor t;
    t.kind = op == "dynamic_slice" ? Kind::DynamicSlice : Kind::DynamicUpdate;
    t.dtype = type.dtype();
    t.shape = shape(type);
    if (t.shape.size() > 8) unfit("a slice of more than 8 dimensions");
    for (uint32_t i = 0; i < n.num_operands(); ++i) t.operands.push_back(arg(i));
    return push(std::move(t));
  }
  if (is_one_update(n)) return one_update(n, alone);
  if (op == "tril" || op == "triu") {
    const int64_t diagonal = n.attr("diagonal").as_int();
    const bool lower = op == "tril";
    return window(arg(0), literal_bits(0, type.dtype()), shape(type), [diagonal, lower](IndexPool& p, const Position& at_all) {
      Reading r;
      r.at = at_all;
      r.inside = true;
      const Expr i = p.add(at_all[at_all.size() - 2], p.number(diagonal)), j = at_all.back();
      r.below = {lower ? std::pair{j, p.add(i, kOne)} : std::pair{i, p.add(j, kOne)}};
      return r;
    });
  }
  if (op == "as_strided") {
    const int x = arg(0);
    std::vector<Expr> strides;
    for (const int64_t s : n.attr("strides").as_ints()) strides.push_back(expr(s));
    const Expr offset = expr(n.attr("offset").p->i);
    const int flat = reshaped(x, {pool_.product(at(x).shape)});
    return window(flat, literal_bits(0, type.dtype()), shape(type), [strides, offset](IndexPool& p, const Position& at_all) {
      Reading r;
      Expr sum = offset;
      for (size_t d = 0; d < at_all.size(); ++d) sum = p.add(sum, p.mul(at_all[d], strides[d]));
      r.at = {sum};
      r.inside = true;
      return r;
    });
  }
  if (op != "pad") return -1;
  const int x = arg(0), fill = n.has_operand(1) ? arg(1) : literal_bits(0, type.dtype());
  const std::string mode(n.attr("mode").as_string());
  std::vector<Expr> low, size = at(x).shape;
  for (const int64_t l : n.attr("low").as_ints()) low.push_back(expr(l));
  std::vector<int64_t> between(size.size(), 0);
  const auto interior = n.attr("interior").as_ints();
  for (size_t d = 0; d < interior.size(); ++d) between[d] = interior[d];
  return window(x, fill, shape(type), [=](IndexPool& p, const Position& at_all) {
    Reading r;
    for (size_t d = 0; d < at_all.size(); ++d) {
      const Expr from = p.sub(at_all[d], low[d]), last = p.sub(size[d], kOne);
      if (mode == "edge") {
        r.at.push_back(p.max(p.min(from, last), kZero));
      } else if (mode == "reflect") {
        const Expr folded = p.max(from, p.sub(kZero, from));
        r.at.push_back(p.min(folded, p.sub(p.add(last, last), folded)));
      } else if (mode == "wrap") {
        r.at.push_back(p.mod(from, size[d]));
      } else if (between[d] > 0) {
        r.at.push_back(p.floordiv(from, p.number(between[d] + 1)));
        r.zeros.push_back(p.mod(from, p.number(between[d] + 1)));
      } else {
        r.at.push_back(from);
      }
    }
    r.inside = mode != "constant";
    return r;
  });
}

}  // namespace tessera::kit
