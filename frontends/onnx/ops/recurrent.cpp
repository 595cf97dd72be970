// SPDX-License-Identifier: Apache-2.0
// RNN, GRU and LSTM: the products with the inputs of all steps at once, then a scan per direction.
// Hochreiter and Schmidhuber 1997; Cho et al. 2014; the equations are those of the ONNX operator reference.
#include <algorithm>
#include <cctype>
#include <tuple>

#include "quantize.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_bool;
using sdk::attr_float;
using sdk::attr_int;

struct Activation {
  std::string name;
  double alpha, beta;

  V operator()(const V& x) const {
    if (name == "Tanh") return x.call("tanh");
    if (name == "Sigmoid") return x.call("sigmoid");
    if (name == "Relu") return x.call("relu");
    if (name == "Affine") return x * alpha + beta;
    if (name == "LeakyRelu") return x.call("leaky_relu", {attr_float("slope", alpha)});
    if (name == "ThresholdedRelu") return select(x > alpha, x, 0.0);
    if (name == "ScaledTanh") return (x * beta).call("tanh") * alpha;
    if (name == "HardSigmoid") return x.call("hardsigmoid", {attr_float("alpha", alpha), attr_float("beta", beta)});
    if (name == "Elu") return x.call("elu", {attr_float("alpha", alpha)});
    if (name == "Softsign") return x / (x.call("abs") + 1.0);
    return x.call("relu") + (-x.call("abs")).call("exp").call("log1p");  // Softplus
  }
};

// The activations of every direction, `each` of them per direction.
std::vector<Activation> activations(Op& op, size_t directions, std::vector<std::string> defaults) {
  static constexpr struct {
    const char* name;
    double alpha, beta;
    bool has_alpha, has_beta;
  } kKnown[] = {{"Tanh", 0, 0, false, false},     {"Sigmoid", 0, 0, false, false},       {"Relu", 0, 0, false, false},
                {"Affine", 1, 0, true, true},     {"LeakyRelu", 0.01, 0, true, false},   {"ThresholdedRelu", 1, 0, true, false},
                {"ScaledTanh", 1, 1, true, true}, {"HardSigmoid", 0.2, 0.5, true, true}, {"Elu", 1, 0, true, false},
                {"Softsign", 0, 0, false, false}, {"Softplus", 0, 0, false, false}};
  std::vector<std::string> names;
  for (const std::string_view s : op.strings("activations")) names.emplace_back(s);
  if (names.empty())
    for (size_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  op.expect(names.size() == directions * defaults.size(),
            std::to_string(names.size()) + " activations for " + std::to_string(directions) + " directions");
  const auto alphas = op.reals("activation_alpha", std::vector<double>{}),
             betas = op.reals("activation_beta", std::vector<double>{});
  std::vector<Activation> out;
  size_t alpha = 0, beta = 0;
  for (const std::string& n : names) {
    const auto same = [](char x, char y) {
      return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
    };
    const auto* found = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const auto& k) {
      const std::string_view name = k.name;
      return name.size() == n.size() && std::equal(n.begin(), n.end(), name.begin(), same);
    });
    if (found == std::end(kKnown)) op.fail(kNode, "there is no activation '" + n + "'");
    Activation a{found->name, found->alpha, found->beta};
    if (found->has_alpha && alpha < alphas.size()) a.alpha = alphas[alpha++];
    if (found->has_beta && beta < betas.size()) a.beta = betas[beta++];
    out.push_back(a);
  }
  return out;
}

enum class Cell { Rnn, Gru, Lstm };

class Recurrent {
 public:
  // `integers`: DynamicQuantizeLSTM, whose weights are integers (stored transposed, their scales and zero points in inputs 8 to
  // 11) and whose inputs and states are quantised by their own range before each product.
  Recurrent(Op& op, Cell cell, bool integers = false)
      : op_(op),
        b_(op.b),
        cell_(cell),
        integers_(integers),
        gates_(cell == Cell::Rnn   ? 1
               : cell == Cell::Gru ? 3
                                   : 4) {}

  void run() {
    const bool batch_first = op_.i("layout", 0) == 1;
    V x = op_.in(0);
    op_.expect(x.rank() == 3 && op_.in(1).rank() == 3 && op_.in(2).rank() == 3, "inputs X, W and R have rank 3");
    if (batch_first) x = b_.transpose(x, {1, 0, 2});
    hidden_ = op_.in(2).size(integers_ ? 1 : 2);
    const std::string direction(op_.s("direction", "forward"));
    op_.expect(direction == "forward" || direction == "reverse" || direction == "bidirectional",
               "attribute 'direction' is '" + direction + "'");
    const size_t directions = direction == "bidirectional" ? 2 : 1;
    const auto defaults = cell_ == Cell::Rnn   ? std::vector<std::string>{"Tanh"}
                          : cell_ == Cell::Gru ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                               : std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"};
    const auto acts = activations(op_, directions, defaults);
    std::vector<V> y, h, c;
    for (size_t d = 0; d < directions; ++d) {
      const auto all = std::span(acts).subspan(d * defaults.size(), defaults.size());
      const auto r = one(x, static_cast<int64_t>(d), d == 1 || direction == "reverse", all, batch_first);
      y.push_back(b_.expand(r.y, {1}));
      h.push_back(b_.expand(r.h, {0}));
      if (r.c) c.push_back(b_.expand(r.c, {0}));
    }
    V ys = b_.concat(y, 1), hs = b_.concat(h, 0), cs = c.empty() ? V() : b_.concat(c, 0);
    if (batch_first) {
      ys = b_.transpose(ys, {2, 0, 1, 3});
      hs = b_.transpose(hs, {1, 0, 2});
      if (cs) cs = b_.transpose(cs, {1, 0, 2});
    }
    op_.out(ys, 0);
    op_.out(hs, 1);
    if (cs) op_.out(cs, 2);
  }

 private:
  struct Result {
    V y, h, c;  // [seq, batch, hidden], [batch, hidden]
  };

  V direction_of(size_t input, int64_t d) { return b_.squeeze(b_.slice(op_.in(input), 0, d, d + 1), {0}); }
  // x, quantised by its own range, by quantised weights.
  V quantised_product(const V& x, const V& weights, const V& zero, const V& scale) {
    const Quantised q = quantize_dynamically(op_, x);
    return b_.cast(integer_product(op_, q.values, weights, q.zero, zero), TSR_F32) * (q.scale * scale);
  }
  V gate(const V& all, int64_t g) const {
    return all.build().slice(all, all.rank() - 1, op_.b.mul(hidden_, g), op_.b.mul(hidden_, g + 1));
  }
  V clip(const V& v) const {
    if (!op_.has_attr("clip")) return v;
    const double c = op_.f("clip");
    return b_.op("clamp", {v, b_.scalar(-c, v.dtype()), b_.scalar(c, v.dtype())});
  }
  V initial(size_t input, int64_t d, const V& x, bool batch_first) {
    if (!op_.has(input)) return b_.full(0, x.dtype(), {x.size(1), hidden_});
    V all = op_.in(input);
    if (batch_first) all = b_.transpose(all, {1, 0, 2});
    return b_.squeeze(b_.slice(all, 0, d, d + 1), {0});
  }

  Result one(const V& x, int64_t d, bool reverse, std::span<const Activation> act, bool batch_first) {
    const bool before = cell_ != Cell::Gru || op_.i("linear_before_reset", 0) != 0;
    // Inputs of all steps: [seq, batch, gates * hidden], biases in it where nothing needs them apart.
    V inputs = integers_ ? quantised_product(x, direction_of(1, d), direction_of(9, d), direction_of(8, d))
                         : b_.dot(x, direction_of(1, d), {2}, {1});
    V recurrent_bias;
    if (op_.has(3)) {
      const V bias = direction_of(3, d);
      const tsr_dim n = b_.mul(hidden_, gates_);
      inputs = inputs + b_.slice(bias, 0, 0, n);
      recurrent_bias = b_.slice(bias, 0, n, b_.mul(n, 2));
      if (cell_ != Cell::Gru || !before) {
        inputs = inputs + recurrent_bias;
        recurrent_bias = {};
      }
    }
    std::vector<V> args = {initial(5, d, x, batch_first)};
    if (cell_ == Cell::Lstm) args.push_back(initial(6, d, x, batch_first));
    const size_t carried = args.size();
    args.push_back(inputs);
    const bool lengths = op_.has(4);
    if (lengths) args.push_back(b_.range(x.size(0)));
    const size_t scanned = args.size() - carried;
    const size_t first_invariant = args.size();
    args.push_back(integers_ ? direction_of(2, d) : b_.transpose(direction_of(2, d), {1, 0}));  // [hidden, gates * hidden]
    if (lengths) args.push_back(b_.expand(b_.cast(op_.in(4), TSR_I64), {1}));
    const size_t bias_at = args.size();
    if (recurrent_bias) args.push_back(recurrent_bias);
    const size_t peep_at = args.size();
    const bool peeps = cell_ == Cell::Lstm && op_.has(7);
    if (peeps) args.push_back(direction_of(7, d));
    if (integers_) args.push_back(direction_of(11, d)), args.push_back(direction_of(10, d));

    std::vector<tsr_type> types = b_.types_of(args);
    for (size_t i = 0; i < scanned; ++i) {
      --types[carried + i].rank;
      ++types[carried + i].sizes;
    }
    const tsr_id body = b_.make_region(types, [&](std::span<const V> in) {
      const V h = in[0], c = carried > 1 ? in[1] : V(), xs = in[carried], weights = in[first_invariant];
      const V bias = recurrent_bias ? in[bias_at] : V(), peep = peeps ? in[peep_at] : V();
      V next_h, next_c;
      if (cell_ == Cell::Rnn) {
        next_h = act[0](clip(xs + b_.matmul(h, weights)));
      } else if (cell_ == Cell::Gru) {
        next_h = gru(h, xs, weights, bias, act, before);
      } else {
        const V product = integers_ ? quantised_product(h, weights, in[in.size() - 2], in.back()) : b_.matmul(h, weights);
        std::tie(next_h, next_c) = lstm(c, xs + product, peep, act);
      }
      V y = next_h;
      if (lengths) {  // past the end of a sequence the state stays and the output is 0
        const V inside = in[carried + 1] < in[first_invariant + 1];
        y = select(inside, next_h, 0.0);
        next_h = select(inside, next_h, h);
        if (next_c) next_c = select(inside, next_c, c);
      }
      std::vector<V> out = {next_h};
      if (next_c) out.push_back(next_c);
      out.push_back(y);
      return out;
    });
    const tsr_id regions[] = {body};
    const tsr_attr attrs[] = {attr_int("carried", static_cast<int64_t>(carried)),
                              attr_int("scanned", static_cast<int64_t>(scanned)), attr_bool("reverse", reverse),
                              sdk::attr_dim("length", x.size(0))};
    const auto out = b_.ops("scan", args, attrs, regions);
    return {out.back(), out[0], carried > 1 ? out[1] : V()};
  }

  // Gates in the order z r h.
  V gru(const V& h, const V& xs, const V& weights, const V& bias, std::span<const Activation> act, bool before) {
    const V zr_weights = b_.slice(weights, 1, 0, b_.mul(hidden_, 2)), h_weights = gate(weights, 2);
    V zr = b_.slice(xs, 1, 0, b_.mul(hidden_, 2)) + b_.matmul(h, zr_weights);
    if (bias) zr = zr + b_.slice(bias, 0, 0, b_.mul(hidden_, 2));
    const V both = act[0](clip(zr));
    const V z = gate(both, 0), reset = gate(both, 1);
    V candidate;
    if (before) {
      V product = b_.matmul(h, h_weights);
      if (bias) product = product + gate(bias, 2);
      candidate = gate(xs, 2) + reset * product;
    } else {
      candidate = gate(xs, 2) + b_.matmul(reset * h, h_weights);
    }
    const V n = act[1](clip(candidate));
    return (1.0 - z) * n + z * h;
  }

  // Gates in the order i o f c; peepholes in the order i o f.
  std::pair<V, V> lstm(const V& c, const V& all, const V& peep, std::span<const Activation> act) {
    const auto with = [&](int64_t g, const V& cell) {
      const V v = gate(all, g);
      return clip(peep ? v + gate(peep, g) * cell : v);
    };
    const V i = act[0](with(0, c));
    const V f = op_.i("input_forget", 0) != 0 ? 1.0 - i : act[0](with(2, c));
    const V n = f * c + i * act[1](clip(gate(all, 3)));
    const V o = act[0](with(1, n));
    return {o * act[2](n), n};
  }

  Op& op_;
  Build& b_;
  Cell cell_;
  bool integers_;
  int64_t gates_;
  tsr_dim hidden_ = 0;
};

template <Cell C>
void recurrent(Op& op) {
  Recurrent(op, C).run();
}
void dynamic_quantize_lstm(Op& op) { Recurrent(op, Cell::Lstm, true).run(); }

}  // namespace

std::span<const Record> recurrent_records() {
  static constexpr Record records[] = {
      {"", "RNN", recurrent<Cell::Rnn>},
      {"", "GRU", recurrent<Cell::Gru>},
      {"", "LSTM", recurrent<Cell::Lstm>},
      {"com.microsoft", "DynamicQuantizeLSTM", dynamic_quantize_lstm},
  };
  return records;
}

}  // namespace tessera::onnx
