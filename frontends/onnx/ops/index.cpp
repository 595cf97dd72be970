// SPDX-License-Identifier: Apache-2.0
// Gathering, scattering, sorting, and what finds positions. Negative indices count from the end in ONNX, not in the IR.
#include <algorithm>

#include "../dynamic.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_int;

// Indices into a dimension of size n, none negative.
V wrap(Build& b, const V& indices, tsr_dim n) {
  if (const HostTensor* t = b.literal(indices, 0)) {
    bool negative = false;
    for (int64_t i = 0, e = t->elements(); i < e && !negative; ++i) negative = load_as<int64_t>(t->dtype, t->data, i) < 0;
    if (!negative) return indices;
  }
  return select(indices < 0.0, indices + b.dim(n, indices.dtype()), indices);
}

V as_index(Build& b, const V& v) { return v.dtype() == TSR_I32 || v.dtype() == TSR_I64 ? v : b.cast(v, TSR_I64); }

void gather(Op& op) {
  const V x = op.in(0);
  const int64_t axis = op.axis_attr("axis", 0, x.rank());
  op.out(op.b.gather(x, wrap(op.b, as_index(op.b, op.in(1)), x.size(axis)), axis));
}

void gather_elements(Op& op) {
  const V x = op.in(0);
  const int64_t axis = op.axis_attr("axis", 0, x.rank());
  op.out(x.call("take_along_axis", wrap(op.b, op.in(1), x.size(axis)), {attr_int("axis", axis)}));
}

// Tuples of indices: each entry wraps by the size of its own dimension.
V wrap_tuples(Op& op, const V& indices, const V& x, int64_t first) {
  Build& b = op.b;
  op.expect(indices.rank() >= 1 && Build::is_number(indices.size(-1)), "the last dimension of the indices is not a number");
  const int64_t k = indices.size(-1);
  op.expect(k >= 0 && first + k <= x.rank(), "index tuples of " + std::to_string(k) + " for rank " + std::to_string(x.rank()));
  Dims sizes(x.sizes().begin() + first, x.sizes().begin() + first + k);
  const V n = b.known(sizes);
  return select(indices < 0.0, indices + n, indices);
}

void gather_nd(Op& op) {
  const V x = op.in(0);
  const int64_t batch = op.i("batch_dims", 0);
  op.expect(batch >= 0 && batch < x.rank(), "attribute 'batch_dims' is " + std::to_string(batch));
  op.out(x.call("gather_nd", wrap_tuples(op, op.in(1), x, batch), {attr_int("batch_dims", batch)}));
}

void scatter(Op& op) {
  const V x = op.in(0);
  const int64_t axis = op.axis_attr("axis", 0, x.rank());
  const std::string reduction(op.s("reduction", "none"));
  op.out(op.b.op("scatter", {x, wrap(op.b, op.in(1), x.size(axis)), op.in(2)},
                 {attr_int("axis", axis), sdk::attr_string("reduction", reduction.c_str())}));
}

void scatter_nd(Op& op) {
  const V x = op.in(0);
  const std::string reduction(op.s("reduction", "none"));
  op.out(op.b.op("scatter_nd", {x, wrap_tuples(op, op.in(1), x, 0), op.in(2)},
                 {sdk::attr_string("reduction", reduction.c_str())}));
}

void one_hot(Op& op) {
  Build& b = op.b;
  const V values = op.in(2);
  V indices = op.in(0);
  indices = b.cast(indices, TSR_I64);
  const int64_t axis = op.axis_attr("axis", -1, indices.rank() + 1);
  const V off = b.reshape(b.slice(values, 0, 0, 1), {}), on = b.reshape(b.slice(values, 0, 1, 2), {});
  V depth = b.cast(b.reshape(op.in(1), {}), TSR_I64);
  const V classes = dynamic_range(b, depth, op.declared_size(axis));
  const V n = b.dim(classes.size(0));
  indices = b.expand(select(indices < 0.0, indices + n, indices), {axis});
  const V along = b.expand(classes, axes_from(1, indices.rank() - axis));
  op.out(select(indices == along, on, off));
}

void top_k(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const int64_t axis = op.axis_attr("axis", -1, x.rank());
  const bool largest = op.flag("largest", true);
  tsr_dim k = 0;
  if (op.version < 10) {
    k = op.i("k");
  } else if (const auto known = b.ints(op.in(1)); known && known->size() == 1) {
    k = (*known)[0];
  } else {  // a k that is data: the front of the whole order
    const auto sorted = b.ops("sort", {x}, {attr_int("axis", axis), sdk::attr_bool("descending", largest)});
    const V front = dynamic_range(b, b.reshape(op.in(1), {}), op.declared_size(axis));
    op.out(b.gather(sorted[0], front, axis), 0);
    return op.out(b.gather(sorted[1], front, axis), 1);
  }
  const auto r = b.ops("topk", {x}, {sdk::attr_dim("k", k), attr_int("axis", axis), sdk::attr_bool("largest", largest)});
  op.out(r[0], 0);
  op.out(r[1], 1);
}

void nonzero(Op& op) {
  V x = op.in();
  if (x.rank() == 0) x = op.b.reshape(x, {1});  // numpy: one row for a scalar
  op.out(op.b.transpose(x.call("nonzero"), {1, 0}));
}

void compress(Op& op) {
  Build& b = op.b;
  V x = op.in(0);
  int64_t axis = 0;
  if (op.has_attr("axis"))
    axis = op.axis(op.i("axis"), x.rank());
  else
    x = b.reshape(x, {b.elements(x)});
  const V at = op.in(1).call("nonzero");  // [u, 1]
  op.out(b.gather(x, b.squeeze(at, {1}), axis));
}

void unique(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  const bool sorted = op.flag("sorted", true);
  if (op.has_attr("axis") && x.rank() != 1)
    op.unsupported("distinct slices along an axis", "only elements are told apart here");
  const auto r = b.ops("unique", {x}, {sdk::attr_bool("sorted", sorted)});
  op.out(r[0], 0);
  op.out(r[1], 1);
  op.out(b.reshape(r[2], {b.elements(x)}), 2);
  op.out(r[3], 3);
}

// Columns back to an image: every element of a block is added where it came from.
void col2im(Op& op) {
  Build& b = op.b;
  const V x = op.in(0);
  const Ints image = op.numbers(1), block = op.numbers(2);
  const size_t n = image.size();
  op.expect(n >= 1 && block.size() == n && x.rank() == 3, "expected rank 3, and as many block as image sizes");
  const Ints ones(n, 1), dilations = op.small_ints("dilations", ones), strides = op.small_ints("strides", ones);
  const Ints pads = op.small_ints("pads", Ints(2 * n, 0));
  op.expect(dilations.size() == n && strides.size() == n && pads.size() == 2 * n,
            "strides, dilations or pads do not fit the image");
  // The index of (tap, position) in the padded image; rows of taps, columns of positions.
  V index;
  tsr_dim taps = 1, positions = 1, padded = 1;
  Ints counts(n);
  for (size_t d = 0; d < n; ++d) {
    op.expect(strides[d] > 0 && image[d] > 0 && image[d] < INT32_MAX && block[d] > 0 && block[d] < INT32_MAX,
              "an image, block or stride below 1 or too large");
    counts[d] = (image[d] + pads[d] + pads[n + d] - dilations[d] * (block[d] - 1) - 1) / strides[d] + 1;
    op.expect(counts[d] > 0, "the block does not fit into the image");
    taps = b.mul(taps, block[d]);
    positions = b.mul(positions, counts[d]);
    padded = b.mul(padded, image[d] + pads[d] + pads[n + d]);
  }
  Dims grid;  // block sizes, then counts
  for (size_t d = 0; d < n; ++d) grid.push_back(block[d]);
  for (size_t d = 0; d < n; ++d) grid.push_back(counts[d]);
  for (size_t d = 0; d < n; ++d) {
    Dims tap(2 * n, 1), position(2 * n, 1);
    tap[d] = block[d];
    position[n + d] = counts[d];
    const V at = b.iota(tap, static_cast<int64_t>(d)) * static_cast<double>(dilations[d]) +
                 b.iota(position, static_cast<int64_t>(n + d)) * static_cast<double>(strides[d]);
    index = index ? index * static_cast<double>(image[d] + pads[d] + pads[n + d]) + at : at;
  }
  index = b.reshape(b.broadcast(index, grid), {b.mul(taps, positions)});
  const tsr_dim batch = x.size(0), channels = b.floordiv(x.size(1), taps), rows = b.mul(batch, channels);
  const V flat = b.reshape(x, {rows, b.mul(taps, positions)});
  const V into = b.full(0, x.dtype(), {rows, padded});
  V y = b.op("scatter", {into, b.broadcast(index, flat.sizes()), flat},
             {attr_int("axis", 1), sdk::attr_string("reduction", "add")});
  Dims shape = {batch, channels}, low(n + 2, 0), high(n + 2, 0);
  for (size_t d = 0; d < n; ++d) {
    shape.push_back(image[d] + pads[d] + pads[n + d]);
    low[d + 2] = -pads[d];
    high[d + 2] = -pads[n + d];
  }
  op.out(b.pad(b.reshape(y, shape), low, high));
}

void tensor_scatter(Op& op) {
  Build& b = op.b;
  const V past = op.in(0), update = op.in(1);
  const int64_t axis = op.axis_attr("axis", -2, past.rank());
  op.expect(axis > 0, "axis 0 is the batch");
  V index = b.iota(update.sizes(), axis);
  if (op.has(2)) index = index + b.expand(b.cast(op.in(2), TSR_I64), axes_from(1, past.rank()));
  if (op.s("mode", "linear") == "circular") index = index.call("remainder", b.dim(past.size(axis)));
  op.out(b.op("scatter", {past, b.broadcast(index, update.sizes()), update}, {attr_int("axis", axis)}));
}

// Greedy suppression, one class of one image after another: boxes are visited in the order of their scores by a scan that
// carries which boxes are still in the running.
void non_max_suppression(Op& op) {
  Build& b = op.b;
  const V boxes = op.in(0), scores = op.in(1);
  op.expect(boxes.rank() == 3 && scores.rank() == 3, "boxes and scores have rank 3");
  const tsr_dim batch = scores.size(0), classes = scores.size(1), n = scores.size(2), pairs = b.mul(batch, classes);
  const auto scalar_or = [&](size_t i, const V& fallback) { return op.has(i) ? b.reshape(op.in(i), {}) : fallback; };
  const V limit = b.cast(scalar_or(2, b.integer(0)), TSR_I64), iou_limit = scalar_or(3, b.scalar(0, TSR_F32));
  const auto column = [&](const V& v, int64_t i) { return b.squeeze(b.slice(v, 2, i, i + 1), {2}); };  // [batch, n]
  V y1 = column(boxes, 0), x1 = column(boxes, 1), y2 = column(boxes, 2), x2 = column(boxes, 3);
  if (op.i("center_point_box", 0) == 1) {
    const V cx = y1, cy = x1, w = y2 * 0.5, h = x2 * 0.5;
    x1 = cx - w, x2 = cx + w, y1 = cy - h, y2 = cy + h;
  } else {
    const V ya = minimum(y1, y2), yb = maximum(y1, y2), xa = minimum(x1, x2), xb = maximum(x1, x2);
    y1 = ya, y2 = yb, x1 = xa, x2 = xb;
  }
  const auto row = [&](const V& v) { return b.expand(v, {2}); };
  const auto col = [&](const V& v) { return b.expand(v, {1}); };
  const auto positive = [&](const V& v) { return maximum(v, b.scalar(0, v.dtype())); };
  const V overlap = positive(minimum(row(x2), col(x2)) - maximum(row(x1), col(x1))) *
                    positive(minimum(row(y2), col(y2)) - maximum(row(y1), col(y1)));
  const V area = (x2 - x1) * (y2 - y1);
  const V joined = row(area) + col(area) - overlap;
  V beats = (overlap / joined) > iou_limit;  // [batch, n, n]
  beats = b.reshape(b.broadcast(b.expand(beats, {1}), {batch, classes, n, n}), {pairs, n, n});
  const auto order = b.ops("sort", {b.reshape(scores, {pairs, n})}, {attr_int("axis", 1), sdk::attr_bool("descending", true)});
  V open = op.has(4) ? b.reshape(scores, {pairs, n}) > b.reshape(op.in(4), {}) : b.full(1, TSR_BOOL, {pairs, n});
  // Turn t looks at the t-th best box of every pair.
  const V turns = b.transpose(order[1], {1, 0});  // [n, pairs]
  const V count = b.full(0, TSR_I64, {pairs}), chosen = b.full(0, TSR_BOOL, {pairs, n});
  const std::vector<V> args = {open, count, chosen, turns, beats, limit};
  std::vector<tsr_type> types = b.types_of(args);
  --types[3].rank;
  ++types[3].sizes;
  const tsr_id region = b.make_region(types, [&](std::span<const V> in) {
    const V box = b.expand(in[3], {1});  // [pairs, 1]
    const V take = both(b.squeeze(in[0].call("take_along_axis", box, {attr_int("axis", 1)}), {1}), in[1] < in[5]);  // [pairs]
    const V here = b.iota({1, n}, 1) == box;                                        // [pairs, n]
    const V beaten = b.op("gather_nd", {in[4], box}, {attr_int("batch_dims", 1)});  // [pairs, n]
    const V taken = b.expand(take, {1});
    return std::vector<V>{both(in[0], negated(either(here, both(taken, beaten)))), in[1] + b.cast(take, TSR_I64),
                          either(in[2], both(here, taken)), take};
  });
  const tsr_attr attrs[] = {attr_int("carried", 3), attr_int("scanned", 1), sdk::attr_dim("length", n)};
  const tsr_id regions[] = {region};
  const auto r = b.ops("scan", args, attrs, regions);
  // r[3]: [n, pairs], the turns in which a pair took its box. Rows of the result in the order of pairs, then of turns.
  const V taken_at = b.transpose(r[3], {1, 0}).call("nonzero");  // [u, 2]: pair, turn
  const V pair = b.squeeze(b.slice(taken_at, 1, 0, 1), {1});
  const V which = b.op("gather_nd", {order[1], taken_at});
  const V c = b.dim(classes);
  const V columns[] = {b.expand(pair.call("floor_div", c), {1}), b.expand(pair.call("remainder", c), {1}),
                       b.expand(which, {1})};
  op.out(b.concat(columns, 1));
}

}  // namespace

std::span<const Record> index_records() {
  static constexpr Record records[] = {
      {"", "Gather", gather},
      {"", "GatherElements", gather_elements},
      {"", "GatherND", gather_nd},
      {"", "Scatter", scatter},
      {"", "ScatterElements", scatter},
      {"", "ScatterND", scatter_nd},
      {"", "OneHot", one_hot},
      {"", "TopK", top_k},
      {"", "NonZero", nonzero},
      {"", "Compress", compress},
      {"", "Unique", unique},
      {"", "Col2Im", col2im},
      {"", "TensorScatter", tensor_scatter},
      {"", "NonMaxSuppression", non_max_suppression},
  };
  return records;
}

}  // namespace tessera::onnx
