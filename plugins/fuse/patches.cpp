// SPDX-License-Identifier: Apache-2.0
#include "patches.hpp"

#include <algorithm>

namespace tessera::passes {
namespace {

using sdk::Node, sdk::Value;

// Adds ops in front of a convolution; those on constants are evaluated at once.
class Front {
 public:
  Front(sdk::Graph g, const Node& conv) : g_(g), conv_(conv), at_(sdk::Graph::before(conv)) {}

  Value op(const char* name, std::initializer_list<Value> operands, std::initializer_list<tsr_attr> attrs) {
    const Value out = g_.op(at_, name, operands, attrs);
    g_.set_marks(out.def(), conv_.marks());
    if (!only_constants(operands)) return out;
    const Value made = g_.constant(at_, g_.evaluate(out.def())[0]);
    g_.set_marks(made.def(), conv_.marks());
    g_.erase(out.def());
    return made;
  }
  Value reshape(Value v, const std::vector<tsr_dim>& shape) { return op("reshape", {v}, {sdk::attr_dims("shape", shape)}); }
  Value transpose(Value v, std::span<const int64_t> perm) { return op("transpose", {v}, {sdk::attr_ints("perm", perm)}); }
  Value pad(Value v, const std::vector<int64_t>& low, const std::vector<int64_t>& high) {
    return op("pad", {v, g_.none()}, {sdk::attr_dims("low", low), sdk::attr_dims("high", high)});
  }
  const sdk::Graph::At& at() const { return at_; }

 private:
  static bool only_constants(std::initializer_list<Value> operands) {
    return std::all_of(operands.begin(), operands.end(),
                       [](const Value& v) { return !v || (v.def() && v.def().is("constant")); });
  }

  sdk::Graph g_;
  Node conv_;
  sdk::Graph::At at_;
};

bool all(const Node& n, const char* name, int64_t want) {
  const auto v = n.attr(name).as_ints();
  return std::all_of(v.begin(), v.end(), [&](int64_t i) { return i == want; });
}

}  // namespace

Value cut_patches(sdk::Graph g, const Node& conv) {
  const sdk::Type x = conv.operand(0).type(), w = conv.operand(1).type(), y = conv.result().type();
  const auto strides = conv.attr("strides").as_ints();
  const int64_t taps[] = {w.size(2), w.size(3)};
  if (taps[0] * taps[1] == 1 || strides[0] != taps[0] || strides[1] != taps[1] || !all(conv, "pad_low", 0) ||
      !all(conv, "pad_high", 0) || !all(conv, "dilations", 1) || conv.attr("groups").as_int() != 1)
    return g.none();
  if (x.size(2) % taps[0] != 0 || x.size(3) % taps[1] != 0 || x.elements() == 0) return g.none();
  const int64_t rows = x.size(2) / taps[0], columns = x.size(3) / taps[1], depth = x.size(1) * taps[0] * taps[1];
  static constexpr int64_t kWindowsFirst[] = {0, 2, 4, 1, 3, 5}, kContract[] = {1};
  Front f(g, conv);
  Value v = f.reshape(conv.operand(0), {x.size(0), x.size(1), rows, taps[0], columns, taps[1]});
  v = f.reshape(f.transpose(v, kWindowsFirst), {x.size(0) * rows * columns, depth});
  const Value weights = f.reshape(conv.operand(1), {w.size(0), depth});
  v = f.op("dot_general", {v, weights}, {sdk::attr_ints("lhs_contract", kContract), sdk::attr_ints("rhs_contract", kContract)});
  if (conv.has_operand(2)) v = f.op("add", {v, conv.operand(2)}, {});
  return f.reshape(v, {y.size(0), y.size(2), y.size(3), y.size(1)});
}

Node space_to_depth(sdk::Graph g, const Node& conv) {
  const Node none{g.handle(), TSR_NONE};
  const sdk::Type x = conv.operand(0).type(), w = conv.operand(1).type(), y = conv.result().type();
  constexpr int64_t kChannels = 16;  // of the result's input: what fills a vector
  if (!all(conv, "strides", 2) || !all(conv, "dilations", 1) || conv.attr("groups").as_int() != 1) return none;
  if (x.size(1) * 4 > kChannels || x.size(2) % 2 != 0 || x.size(3) % 2 != 0 || w.size(2) < 3 || w.size(3) < 3) return none;
  if (!conv.operand(1).def() || !conv.operand(1).def().is("constant")) return none;
  // Tap t of stride 2 and padding p reads pixel 2 o + t - p. With `front` zeros before the taps, p + front is even, and the tap
  // lies in square o + (t + front) / 2 - (p + front) / 2.
  int64_t front[2], back[2], taps[2], low[2], high[2];
  for (int d = 0; d < 2; ++d) {
    const int64_t p = conv.attr("pad_low").as_ints()[static_cast<size_t>(d)], k = w.size(2 + d);
    front[d] = p % 2;
    taps[d] = (k + front[d] + 1) / 2;
    back[d] = 2 * taps[d] - k - front[d];
    low[d] = (p + front[d]) / 2;
    high[d] = y.size(2 + d) - 1 + taps[d] - x.size(2 + d) / 2 - low[d];
    if (p < 0 || high[d] < 0) return none;
  }
  const int64_t n = x.size(0), c = x.size(1), o = w.size(0), more = kChannels - 4 * c;
  static constexpr int64_t kSquaresFirst[] = {0, 2, 4, 3, 5, 1}, kToFirst[] = {0, 3, 1, 2};
  Front f(g, conv);
  Value v = f.reshape(conv.operand(0), {n, c, x.size(2) / 2, 2, x.size(3) / 2, 2});
  v = f.reshape(f.transpose(v, kSquaresFirst), {n, x.size(2) / 2, x.size(3) / 2, 4 * c});
  v = f.transpose(f.pad(v, {0, 0, 0, 0}, {0, 0, 0, more}), kToFirst);
  Value weights = f.pad(conv.operand(1), {0, 0, front[0], front[1]}, {0, 0, back[0], back[1]});
  weights = f.reshape(weights, {o, c, taps[0], 2, taps[1], 2});
  weights = f.reshape(f.transpose(weights, kSquaresFirst), {o, taps[0], taps[1], 4 * c});
  weights = f.transpose(f.pad(weights, {0, 0, 0, 0}, {0, 0, 0, more}), kToFirst);
  static constexpr int64_t kOnes[] = {1, 1};
  const Value bias = conv.has_operand(2) ? conv.operand(2) : g.none();
  const Value made = g.op(f.at(), "conv", {v, weights, bias},
                          {sdk::attr_ints("strides", kOnes), sdk::attr_ints("pad_low", low), sdk::attr_ints("pad_high", high),
                           sdk::attr_ints("dilations", kOnes), sdk::attr_int("groups", 1)});
  g.set_marks(made.def(), conv.marks());
  return made.def();
}

}  // namespace tessera::passes
