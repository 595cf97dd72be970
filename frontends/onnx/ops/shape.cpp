// SPDX-License-Identifier: Apache-2.0
// Constants and rearrangement of elements. Shapes are known sizes where shape arithmetic (known.cpp) could find them, else
// data.
#include <algorithm>

#include "../dynamic.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_int;
using sdk::attr_ints;

void reshape(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const bool zero_copies = !op.flag("allowzero");
  std::optional<Dims> to;
  if (op.version < 5)
    to = op.ints("shape");
  else
    to = b.ints(op.in(1));
  if (to) {
    tsr_dim rest = 1;
    int64_t inferred = -1;
    for (size_t i = 0; i < to->size(); ++i) {
      tsr_dim& d = (*to)[i];
      if (d == 0 && zero_copies) {
        op.expect(static_cast<int64_t>(i) < x.rank(), "a size of 0 copies one that the input does not have");
        d = x.sizes()[i];
      }
      if (d == -1) {
        op.expect(inferred < 0, "the shape has two sizes of -1");
        inferred = static_cast<int64_t>(i);
      } else {
        op.expect(!Build::is_number(d) || d >= 0, "the shape has the size " + std::to_string(d));
        rest = b.mul(rest, d);
      }
    }
    if (inferred >= 0) {
      const tsr_dim all = b.elements(x);
      op.expect(rest != 0, "the size of -1 cannot be told beside a size of 0");
      op.expect(!Build::is_number(all) || !Build::is_number(rest) || all % rest == 0,
                std::to_string(all) + " elements do not fill the shape " + b.print(*to));
      (*to)[static_cast<size_t>(inferred)] = b.floordiv(all, rest);
    }
    return op.out(b.reshape(x, *to));
  }
  const int64_t rank = vector_length(op, 1);
  V shape = b.cast(op.in(1), TSR_I64);
  if (zero_copies && rank > 0) {  // sizes of 0 copy those of the input
    Dims own(x.sizes().begin(), x.sizes().begin() + std::min(rank, x.rank()));
    own.resize(static_cast<size_t>(rank), 0);
    shape = select(shape == 0.0, b.known(own), shape);
  }
  op.out(dynamic_reshape(b, x, shape, op.declared().value_or(Dims{})));
}

void flatten(Op& op) {
  const V x = op.in();
  int64_t axis = op.i("axis", 1);
  op.expect(axis >= -x.rank() && axis <= x.rank(),
            "axis " + std::to_string(axis) + " of a tensor of rank " + std::to_string(x.rank()));
  if (axis < 0) axis += x.rank();
  const auto s = std::span(x.sizes());
  op.out(
      op.b.reshape(x, {op.b.product(s.first(static_cast<size_t>(axis))), op.b.product(s.subspan(static_cast<size_t>(axis)))}));
}

// Axes that are data: only the shape depends on them, and the model may declare that.
bool reshape_as_declared(Op& op) {
  const auto shape = op.declared();
  if (!shape || std::find(shape->begin(), shape->end(), -1) != shape->end()) return false;
  op.out(op.b.reshape(op.in(0), *shape));
  return true;
}

void squeeze(Op& op) {
  const V x = op.in(0);
  Ints axes;
  if (op.version >= 13 ? op.has(1) : op.has_attr("axes")) {
    if (op.version >= 13 && !op.b.ints(op.in(1)) && reshape_as_declared(op)) return;
    axes = op.axes(op.version >= 13 ? op.numbers(1) : op.ints("axes"), x.rank());
  } else {
    // Which dimensions are 1 decides the rank of the result: it holds for the calls in which no symbolic one is.
    for (int64_t i = 0; i < x.rank(); ++i)
      if (x.size(i) == 1)
        axes.push_back(i);
      else if (!Build::is_number(x.size(i)))
        op.b.graph().require(TSR_NE, x.size(i), 1, "Squeeze without axes removes dimensions of 1, and so changes the rank");
  }
  op.out(op.b.squeeze(x, axes));
}

void unsqueeze(Op& op) {
  const V x = op.in(0);
  if (op.version >= 13 && !op.b.ints(op.in(1)) && reshape_as_declared(op)) return;
  const Ints axes = op.version >= 13 ? op.numbers(1) : op.ints("axes");
  op.out(op.b.expand(x, op.axes(axes, x.rank() + static_cast<int64_t>(axes.size()))));
}

void transpose(Op& op) {
  const V x = op.in();
  Ints reversed = axes_from(0, x.rank());
  std::reverse(reversed.begin(), reversed.end());
  const Ints perm = op.axes(op.ints("perm", reversed), x.rank());
  op.expect(static_cast<int64_t>(perm.size()) == x.rank(),
            "attribute 'perm' has " + std::to_string(perm.size()) + " entries for rank " + std::to_string(x.rank()));
  op.out(op.b.transpose(x, perm));
}

void concat(Op& op) {
  const V x = op.in(0);
  op.out(op.b.concat(op.inputs(), op.axis(op.version < 4 ? op.i("axis", 1) : op.i("axis"), x.rank())));
}

void split(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t axis = op.axis_attr("axis", 0, x.rank());
  const size_t outputs = op.num_outputs();
  const tsr_dim n = x.size(axis);
  Dims sizes;
  const bool given = op.version >= 13 || op.version == 1 ? op.has(1) : op.has_attr("split");
  if (given && (op.version >= 13 || op.has(1))) {
    if (const auto known = b.ints(op.in(1))) {
      sizes = *known;
    } else {  // sizes that are data
      V start = b.integer(0);
      for (size_t i = 0; i < outputs; ++i) {
        const V length = element(b, op.in(1), static_cast<int64_t>(i));
        const V index = start + dynamic_range(b, length, op.declared_size(axis, i));
        op.out(b.gather(x, index, axis), i);
        start = start + length;
      }
      return;
    }
  } else if (op.has_attr("split")) {
    sizes = op.ints("split");
  } else {
    const auto parts = static_cast<int64_t>(op.has_attr("num_outputs") ? op.i("num_outputs") : static_cast<int64_t>(outputs));
    op.expect(parts == static_cast<int64_t>(outputs), "attribute 'num_outputs' is not the number of outputs");
    const tsr_dim each = b.ceildiv(n, parts);
    tsr_dim left = n;
    for (int64_t i = 0; i + 1 < parts; ++i) {
      sizes.push_back(each);
      left = b.sub(left, each);
    }
    if (Build::is_number(left))
      op.expect(left >= 0,
                "a size of " + std::to_string(n) + " has no " + std::to_string(parts) + " parts of " + std::to_string(each));
    else if (parts > 2)
      b.graph().require(TSR_GE, left, 0, "the last part of Split is what the others leave");
    sizes.push_back(left);
  }
  op.expect(sizes.size() == outputs, std::to_string(sizes.size()) + " sizes for " + std::to_string(outputs) + " outputs");
  const auto parts = b.split(x, sizes, axis);
  for (size_t i = 0; i < outputs; ++i) op.out(parts[i], i);
}

// One axis of a slice with numbers or symbolic bounds, clamped as ONNX says: the start to [0, n] or, backwards, to [0, n - 1];
// the end to [0, n] or [-1, n - 1].
V slice_axis(Op& op, const V& x, int64_t axis, tsr_dim start, tsr_dim end, int64_t step) {
  Build& b = op.b;
  const tsr_dim n = x.size(axis), last = b.sub(n, 1);
  op.expect(step != 0, "a step of 0");
  // With a symbolic size a number of 2^31 or more stands for all, as exporters write it, so that the size's form stays simple.
  const int64_t all = Build::is_number(n) ? kBeyond : INT32_MAX;
  const auto above = [&](tsr_dim v) { return Build::is_number(v) && v >= all; };
  const auto below = [&](tsr_dim v) { return Build::is_number(v) && v <= -all; };
  const auto wrap = [&](tsr_dim v) { return b.proven(TSR_LT, v, 0) ? b.add(v, n) : v; };
  if (step > 0) {
    const auto clip = [&](tsr_dim v) { return above(v) ? n : below(v) ? tsr_dim{0} : b.min(b.max(wrap(v), 0), n); };
    const tsr_dim to = clip(end);
    return b.slice(x, axis, b.min(clip(start), to), to, step);
  }
  const tsr_dim first = above(start) ? last : below(start) ? tsr_dim{0} : wrap(start);
  const tsr_dim from = first == last ? last : b.min(b.max(first, 0), last);
  const tsr_dim to = above(end) ? last : below(end) ? tsr_dim{-1} : b.max(b.min(wrap(end), last), -1);
  return b.slice(x, axis, from, b.min(to, from), step);
}

// end - start, where the graph says that it is a number: x[i : i + 1] with an i that is data.
std::optional<int64_t> difference(Build& b, const V& end, const V& start) {
  const sdk::Graph g = b.graph();
  const auto plain = [&](tsr_id id) {  // without what only changes the shape
    for (sdk::Node n = g.value(id).def(); n && (n.is("expand_dims") || n.is("squeeze") || n.is("reshape"));
         n = g.value(id).def())
      id = n.operand(0).id;
    return id;
  };
  const sdk::Node sum = g.value(plain(end.id())).def();
  if (!sum || !sum.is("add")) return std::nullopt;
  for (uint32_t i = 0; i < 2; ++i)
    if (plain(sum.operand(i).id) == plain(start.id()))
      if (const auto k = b.ints(b.value(sum.operand(1 - i).id)); k && k->size() == 1 && Build::is_number((*k)[0]))
        return (*k)[0];
  return std::nullopt;
}

// One axis of a slice whose bounds are data: the elements are gathered at start, start + step ...
V slice_axis(Op& op, const V& x, int64_t axis, const V& start, const V& end, const V& step, tsr_dim declared) {
  Build& b = op.b;
  const V n = b.dim(x.size(axis)), zero = b.integer(0);
  const auto wrap = [&](const V& v) { return select(v < zero, v + n, v); };
  const V up = step > zero;
  const V low = select(up, zero, b.integer(-1)), high = select(up, n, n - b.integer(1));
  const auto clip = [&](const V& v) { return b.op("clamp", {wrap(v), low, high}); };
  const V from = b.op("clamp", {wrap(start), zero, high});
  const V distance = clip(end) - from;
  // ceil(distance / step), not below 0
  const V length = maximum(-(-distance).call("floor_div", step), zero);
  return b.gather(x, from + step * dynamic_range(b, length, declared), axis);
}

void slice(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  Ints axes;
  if (op.version < 10) {
    const Dims starts = bounds(op, "starts"), ends = bounds(op, "ends");
    axes = op.axes(op.ints("axes", axes_from(0, static_cast<int64_t>(starts.size()))), x.rank());
    op.expect(starts.size() == ends.size() && starts.size() == axes.size(), "starts, ends and axes differ in length");
    for (size_t i = 0; i < axes.size(); ++i) x = slice_axis(op, x, axes[i], starts[i], ends[i], 1);
    return op.out(x);
  }
  const int64_t count = vector_length(op, 1);
  axes = op.axes(op.has(3) ? op.numbers(3) : axes_from(0, count), x.rank());
  const auto starts = bounds(op, 1), ends = bounds(op, 2);
  const auto steps = op.has(4) ? bounds(op, 4) : std::optional<Dims>(Dims(static_cast<size_t>(count), 1));
  const auto fits = [&](const std::optional<Dims>& d) { return !d || d->size() == axes.size(); };
  op.expect(static_cast<int64_t>(axes.size()) == count && fits(starts) && fits(ends) && fits(steps),
            "starts, ends, axes and steps differ in length");
  const auto declared = op.declared();
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const bool known = starts && ends && steps && Build::is_number((*steps)[i]);
    // The sign of a bound that is an expression decides what it means.
    const auto sign = [&](tsr_dim d) { return b.proven(TSR_GE, d, 0) || b.proven(TSR_LT, d, 0); };
    if (known && sign((*starts)[i]) && sign((*ends)[i]))
      x = slice_axis(op, x, axes[i], (*starts)[i], (*ends)[i], (*steps)[i]);
    else if (const auto d =
                 count == 1 && (!op.has(4) || (steps && (*steps)[0] == 1)) ? difference(b, op.in(2), op.in(1)) : std::nullopt;
             d && *d > 0) {
      // A start that does not leave room for so many is an index out of range when it runs.
      const V from = element(b, op.in(1), 0);
      x = b.gather(x, select(from < 0.0, from + b.dim(x.size(axes[i])), from) + b.range(*d), axes[i]);
    } else
      x = slice_axis(op, x, axes[i], element(b, op.in(1), at), element(b, op.in(2), at),
                     op.has(4) ? element(b, op.in(4), at) : b.integer(1),
                     declared && declared->size() == x.sizes().size() ? (*declared)[static_cast<size_t>(axes[i])] : -1);
  }
  op.out(x);
}

// Padding whose amounts are data: along each axis the elements are gathered, and what lies outside is filled.
V pad_axis(Op& op, const V& x, int64_t axis, const V& low, const V& high, const std::string& mode, const V& fill,
           tsr_dim declared) {
  Build& b = op.b;
  const V n = b.dim(x.size(axis)), zero = b.integer(0), one = b.integer(1);
  const V at = dynamic_range(b, n + low + high, declared) - low;
  V index = at;
  if (mode == "reflect") {
    const V period = maximum((n - one) * b.integer(2), one);
    const V r = at.call("remainder", period);
    index = minimum(r, period - r);
  } else if (mode == "wrap") {
    index = at.call("remainder", n);
  }
  index = b.op("clamp", {index, zero, n - one});
  V y = b.gather(x, index, axis);
  if (mode == "constant") {
    V inside = both(at >= zero, at < n);
    if (axis + 1 < x.rank()) inside = b.expand(inside, axes_from(1, x.rank() - axis));
    y = select(inside, y, fill);
  }
  return y;
}

void pad(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  std::string mode(op.s("mode", "constant"));
  op.expect(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap", "attribute 'mode' is '" + mode + "'");
  V fill;
  if (op.version >= 11) {
    if (op.has(2)) fill = b.reshape(op.in(2), {});
  } else if (op.f("value", 0.0) != 0) {
    fill = b.scalar(op.f("value"), x.dtype());
  }
  Ints axes = axes_from(0, x.rank());
  if (op.has(3)) axes = op.axes(op.numbers(3), x.rank());
  const size_t count = axes.size();
  std::optional<Dims> pads;
  if (op.version >= 11)
    pads = b.ints(op.in(1));
  else
    pads = op.ints(op.version == 1 ? "paddings" : "pads");
  if (pads) {
    op.expect(pads->size() == 2 * count, std::to_string(pads->size()) + " pads for " + std::to_string(count) + " axes");
    Dims low(x.sizes().size(), 0), high = low;
    for (size_t i = 0; i < count; ++i) {
      low[static_cast<size_t>(axes[i])] = (*pads)[i];
      high[static_cast<size_t>(axes[i])] = (*pads)[i + count];
    }
    return op.out(b.pad(x, low, high, mode.c_str(), fill));
  }
  if (!fill) fill = b.scalar(0, x.dtype());
  const auto declared = op.declared();
  for (size_t i = 0; i < count; ++i)
    x = pad_axis(op, x, axes[i], element(b, op.in(1), static_cast<int64_t>(i)),
                 element(b, op.in(1), static_cast<int64_t>(i + count)), mode, fill,
                 declared && declared->size() == x.sizes().size() ? (*declared)[static_cast<size_t>(axes[i])] : -1);
  op.out(x);
}

void tile(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  if (op.version < 6) {  // one axis
    const int64_t axis = op.axis(op.number(2), x.rank());
    Ints repeats(x.sizes().size(), 1);
    repeats[static_cast<size_t>(axis)] = op.number(1);
    return op.out(x.call("tile", {attr_ints("repeats", repeats)}));
  }
  if (const auto r = b.ints(op.in(1)); r && Build::are_numbers(*r)) {
    op.expect(static_cast<int64_t>(r->size()) == x.rank(),
              std::to_string(r->size()) + " repeats for rank " + std::to_string(x.rank()));
    return op.out(x.call("tile", {attr_ints("repeats", *r)}));
  }
  for (int64_t d = 0; d < x.rank(); ++d) {
    const V n = b.dim(x.size(d));
    const V all = n * element(b, op.in(1), d);
    x = b.gather(x, dynamic_range(b, all, op.declared_size(d)).call("remainder", n), d);
  }
  op.out(x);
}

void expand(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const auto to = b.ints(op.in(1));
  if (!to) {
    (void)vector_length(op, 1);
    return op.out(dynamic_broadcast(b, x, op.in(1), op.declared().value_or(Dims{})));
  }
  const size_t rank = std::max(to->size(), x.sizes().size());
  Dims shape(rank);
  for (size_t i = 0; i < rank; ++i) {
    const tsr_dim a = i + x.sizes().size() < rank ? 1 : x.sizes()[i + x.sizes().size() - rank];
    const tsr_dim c = i + to->size() < rank ? 1 : (*to)[i + to->size() - rank];
    shape[i] = Build::is_number(a) && Build::is_number(c) ? (c == 1 ? a : c) : b.broadcast(a, c);
    b.require_repeats(c, shape[i]);  // broadcast_to asks the same of a
  }
  op.out(b.broadcast(x, shape));
}

void shape(Op& op) {  // for inputs of whatever kind; known.cpp translates it
  op.unsupported("the sizes of the input are not known");
}

void constant(Op& op) {
  Build& b = op.b;
  if (op.has_attr("value")) return op.out(op.tensor("value"));
  if (op.has_attr("value_float")) return op.out(b.floats(std::vector<double>{op.f("value_float")}, TSR_F32, {}));
  if (op.has_attr("value_int")) return op.out(b.known({op.i("value_int")}, 0));
  if (op.has_attr("value_floats")) {
    const auto v = op.reals("value_floats");
    return op.out(b.floats(v, TSR_F32, {static_cast<int64_t>(v.size())}));
  }
  if (op.has_attr("value_ints")) {
    for (const int64_t v : op.ints("value_ints"))
      if (!Build::is_number(v)) op.unsupported("an integer near the least of 64 bits");
    return op.out(b.known(op.ints("value_ints"), 1));
  }
  if (op.has_attr("value_string") || op.has_attr("value_strings"))
    op.fail(kType, "a constant of strings", "there are no strings here");
  if (op.has_attr("sparse_value")) op.unsupported("a sparse constant", "write it as a sparse initializer, or densely");
  op.fail(kNode, "no attribute gives the value");
}

void constant_of_shape(Op& op) {
  Build& b = op.b;
  const V value = op.has_attr("value") ? b.reshape(op.tensor("value"), {}) : b.scalar(0, TSR_F32);
  if (const auto to = b.ints(op.in(0))) {
    for (const tsr_dim d : *to) op.expect(!Build::is_number(d) || d >= 0, "the shape has the size " + std::to_string(d));
    return op.out(b.full(value, *to));
  }
  (void)vector_length(op, 0);
  op.out(dynamic_broadcast(b, value, op.in(0), op.declared().value_or(Dims{})));
}

void eye_like(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  op.expect(x.rank() == 2, "the input is no matrix");
  const tsr_dtype dtype = op.has_attr("dtype") ? dtype_of(static_cast<DataType>(op.i("dtype"))) : x.dtype();
  op.out(b.cast(b.iota({x.size(0), 1}, 0) + static_cast<double>(op.i("k", 0)) == b.iota({1, x.size(1)}, 1), dtype));
}

void range(Op& op) {
  Build& b = op.b;
  const V start = b.reshape(op.in(0), {}), limit = b.reshape(op.in(1), {}), delta = b.reshape(op.in(2), {});
  const tsr_dtype t = start.dtype();
  // With known sizes: the common case 0 .. n.
  const auto s = b.ints(start), e = b.ints(limit), d = b.ints(delta);
  if (s && e && d && (*s)[0] == 0 && (*d)[0] == 1) return op.out(b.range(b.max((*e)[0], 0), t));
  if (s && e && d && (*d)[0] == 1) return op.out(b.range(b.max(b.sub((*e)[0], (*s)[0]), 0), t) + b.cast(b.dim((*s)[0]), t));
  const tsr_dtype wide = is_float(t) ? TSR_F64 : TSR_I64;
  const V distance = b.cast(limit, wide) - b.cast(start, wide), step = b.cast(delta, wide);
  V n = is_float(t) ? b.cast((distance / step).call("ceil"), TSR_I64) : -(-distance).call("floor_div", step);
  n = maximum(n, b.integer(0));
  const auto declared = op.declared();
  const V at = dynamic_range(b, n, declared && declared->size() == 1 ? (*declared)[0] : -1);
  op.out(b.cast(at, t) * delta + start);
}

void trilu(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const bool upper = op.flag("upper", true);
  if (!op.has(1) || b.ints(op.in(1))) {
    constexpr int64_t most = int64_t{1} << 60;  // beyond any size
    const int64_t k = op.has(1) ? std::clamp(op.number(1), -most, most) : 0;
    return op.out(x.call(upper ? "triu" : "tril", {attr_int("diagonal", k)}));
  }
  const V d = b.iota({1, x.size(-1)}, 1) - b.iota({x.size(-2), 1}, 0), k = b.reshape(op.in(1), {});
  op.out(select(upper ? d >= k : d <= k, x, 0.0));
}

void depth_to_space(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const int64_t s = op.small("blocksize");
  op.expect(x.rank() == 4 && s > 0, "expected rank 4 and a positive blocksize");
  const tsr_dim n = x.size(0), c = b.floordiv(x.size(1), s * s), h = x.size(2), w = x.size(3);
  const bool dcr = op.s("mode", "DCR") == "DCR";
  const V blocks = dcr ? b.transpose(b.reshape(x, {n, s, s, c, h, w}), {0, 3, 4, 1, 5, 2})
                       : b.transpose(b.reshape(x, {n, c, s, s, h, w}), {0, 1, 4, 2, 5, 3});
  op.out(b.reshape(blocks, {n, c, b.mul(h, s), b.mul(w, s)}));
}

void space_to_depth(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const int64_t s = op.small("blocksize");
  op.expect(x.rank() == 4 && s > 0, "expected rank 4 and a positive blocksize");
  const tsr_dim n = x.size(0), c = x.size(1), h = b.floordiv(x.size(2), s), w = b.floordiv(x.size(3), s);
  const bool dcr = op.s("mode", "DCR") == "DCR";
  const V split = b.reshape(x, {n, c, h, s, w, s});
  op.out(b.reshape(b.transpose(split, dcr ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4}), {n, b.mul(c, s * s), h, w}));
}

void center_crop_pad(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  const Ints axes = op.axes(op.ints("axes", axes_from(0, x.rank())), x.rank());
  const Ints to = op.numbers(1);
  op.expect(to.size() == axes.size(), std::to_string(to.size()) + " sizes for " + std::to_string(axes.size()) + " axes");
  Dims low(x.sizes().size(), 0), high = low;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto a = static_cast<size_t>(axes[i]);
    if (!Build::is_number(x.sizes()[a])) op.unsupported("a symbolic size along axis " + std::to_string(a));
    op.expect(to[i] >= 0, "a size of " + std::to_string(to[i]));
    const int64_t extra = to[i] - x.sizes()[a];
    // Cropping starts at the lower half; padding puts the odd element behind.
    low[a] = extra >= 0 ? extra / 2 : -(-extra / 2);
    high[a] = extra - low[a];
  }
  op.out(b.pad(x, low, high));
}

void reverse_sequence(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t batch = op.axis_attr("batch_axis", 1, x.rank()), time = op.axis_attr("time_axis", 0, x.rank());
  const V at = b.iota(x.sizes(), time);
  V length = b.cast(op.in(1), TSR_I64);
  Ints axes;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != batch) axes.push_back(d);
  length = b.expand(length, axes);
  const V index = select(at < length, length - at - 1.0, at);
  op.out(x.call("take_along_axis", index, {attr_int("axis", time)}));
}

}  // namespace

std::span<const Record> shape_records() {
  static constexpr Record records[] = {
      {"", "Reshape", reshape},
      {"", "Flatten", flatten},
      {"", "Squeeze", squeeze},
      {"", "Unsqueeze", unsqueeze},
      {"", "Transpose", transpose},
      {"", "Concat", concat},
      {"", "Split", split},
      {"", "Slice", slice},
      {"", "Pad", pad},
      {"", "Tile", tile},
      {"", "Expand", expand},
      {"", "Shape", shape},
      {"", "Size", shape},
      {"", "Constant", constant},
      {"", "ConstantOfShape", constant_of_shape},
      {"", "EyeLike", eye_like},
      {"", "Range", range},
      {"", "Trilu", trilu},
      {"", "DepthToSpace", depth_to_space},
      {"", "SpaceToDepth", space_to_depth},
      {"", "CenterCropPad", center_crop_pad},
      {"", "ReverseSequence", reverse_sequence},
  };
  return records;
}

}  // namespace tessera::onnx
