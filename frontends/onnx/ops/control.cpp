// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan: nested graphs become regions. Regions see their own inputs only, so what a nested graph uses of the scope
// around it becomes operands.
#include <algorithm>
#include <deque>
#include <functional>
#include <optional>

#include "../dynamic.hpp"
#include "../importer.hpp"
#include "../wire.hpp"

namespace tessera::onnx {
namespace {

using sdk::attr_int;

struct Captured {
  std::vector<V> values;
  std::vector<std::string_view> names;
};

Captured captured(Op& op, std::span<const GraphProto* const> graphs) {
  Captured c;
  op.importer.captures(graphs, &c.values, &c.names);
  return c;
}

std::vector<V> as_they_are(std::vector<V> v) { return v; }

void if_(Op& op) {
  Build& b = op.b;
  const GraphProto &yes = op.graph("then_branch"), &no = op.graph("else_branch");
  const V condition = b.reshape(op.in(0), {});
  if (const auto known = b.ints(condition); known && Build::are_numbers(*known)) {
    const auto out = op.importer.inline_graph((*known)[0] != 0 ? yes : no, {});
    for (size_t i = 0; i < out.size(); ++i) op.out(out[i], i);
    return;
  }
  const GraphProto* both[] = {&yes, &no};
  const Captured c = captured(op, both);
  const std::vector<tsr_type> types = b.types_of(c.values);
  const auto none = [](std::span<const V>) { return std::vector<V>(); };
  const sdk::Graph g = b.graph();
  const size_t assumed = g.api().assumptions(g.handle());
  tsr_id regions[2] = {};
  try {
    regions[0] = op.importer.region(yes, types, c.names, none, as_they_are);
    regions[1] = op.importer.region(no, types, c.names, none, as_they_are);
  } catch (const sdk::Error&) {
    (void)op.ask_for(0);  // a branch that no call of these sizes takes need not fit them
    throw;
  }
  if (g.api().assumptions(g.handle()) > assumed)
    (void)op.ask_for(0);  // nor need a call that takes the other one keep what it assumes
  for (size_t i = 0; i < std::min(g.outputs(regions[0]).size(), g.outputs(regions[1]).size()); ++i) {
    const sdk::Type a = g.value(g.outputs(regions[0])[i]).type(), z = g.value(g.outputs(regions[1])[i]).type();
    if (a.dtype() != z.dtype() || a.rank() != z.rank())
      op.need(0);  // the branches give different types: only one of them can be in the graph
  }
  std::vector<V> operands = {condition};
  operands.insert(operands.end(), c.values.begin(), c.values.end());
  const auto out = b.ops("cond", operands, {}, regions);
  for (size_t i = 0; i < out.size(); ++i) op.out(out[i], i);
}

// Does the body hand its condition through, or say true? Then the trip count alone ends the loop.
bool condition_is_constant(const GraphProto& body) {
  if (body.outputs.empty() || body.inputs.size() < 2) return false;
  std::string_view name = body.outputs[0].name;
  for (int hops = 0; hops < 64; ++hops) {
    if (name == body.inputs[1].name) return true;
    for (const TensorProto& t : body.initializers)
      if (t.name == name) return t.has_raw && t.raw.size() == 1 && t.raw[0] != 0;
    const auto node = std::find_if(body.nodes.begin(), body.nodes.end(),
                                   [&](const NodeProto& n) { return !n.outputs.empty() && n.outputs[0] == name; });
    if (node == body.nodes.end()) return false;
    if (node->op_type == "Constant") {
      for (const AttributeProto& a : node->attributes)
        if (a.name == "value" && a.t && a.t->type == DataType::Bool) {
          if (a.t->has_raw) return a.t->raw.size() == 1 && a.t->raw[0] != 0;
          for (Fields f(a.t->message); f.next();)
            if (f.number() == 5) {
              bool value = false;
              each_varint(f, [&](uint64_t v) { value = v != 0; });
              return value;
            }
        }
      return false;
    }
    if (node->op_type != "Identity" || node->inputs.size() != 1) return false;
    name = node->inputs[0];
  }
  return false;
}

// The types of a loop's values, with unbacked symbols where carried values change their sizes from turn to turn.
class LoopTypes {
 public:
  LoopTypes(Build& b, std::vector<tsr_type> types, size_t carried) : b_(b), types_(std::move(types)), carried_(carried) {
    for (size_t i = 0; i < carried_; ++i) changes_.emplace_back(types_[i].rank, false);
  }

  // For one region: each has symbols of its own.
  std::vector<tsr_type> fresh() {
    std::vector<tsr_type> out = types_;
    for (size_t i = 0; i < carried_; ++i) {
      if (std::find(changes_[i].begin(), changes_[i].end(), true) == changes_[i].end()) continue;
      Dims& sizes = memory_.emplace_back(types_[i].sizes, types_[i].sizes + types_[i].rank);
      for (size_t d = 0; d < sizes.size(); ++d)
        if (changes_[i][d]) sizes[d] = b_.graph().symbol("u", 0, INT64_MAX, true);
      out[i].sizes = sizes.data();
    }
    return out;
  }

  // Takes the sizes that `region` gives for the carried values; whether one changes that was thought not to.
  bool learn(tsr_id region) {
    const sdk::Graph g = b_.graph();
    bool news = false;
    for (size_t i = 0; i < carried_; ++i) {
      const sdk::Type out = g.value(g.outputs(region)[i]).type();
      for (size_t d = 0; d < changes_[i].size(); ++d)
        if (!changes_[i][d] && !b_.proven(TSR_EQ, out.sizes()[d], types_[i].sizes[d])) news = changes_[i][d] = true;
    }
    return news;
  }

 private:
  Build& b_;
  std::vector<tsr_type> types_;
  size_t carried_;
  std::vector<std::vector<bool>> changes_;  // by carried value and dimension
  std::deque<Dims> memory_;
};

// Translates the body of a loop: Importer::region, whose first `carried` inputs are given by its first outputs in the turn
// after. What it does to their sizes is known once it has been translated: where they do not stay, that is thrown away and done
// again with sizes that may be any.
tsr_id loop_body(Op& op, const GraphProto& body, LoopTypes& types, std::span<const std::string_view> names,
                 const std::function<std::vector<V>(std::span<const V>)>& enter,
                 const std::function<std::vector<V>(std::vector<V>)>& leave) {
  Build& b = op.b;
  const sdk::Graph g = b.graph();
  for (;;) {
    const size_t assumed = g.api().assumptions(g.handle());
    const uint64_t drawn = op.importer.drawn();
    const tsr_id region = op.importer.region(body, types.fresh(), names, enter, leave);
    if (!types.learn(region)) return region;
    b.discard(region);
    g.api().forget_assumptions(g.handle(), assumed);
    op.importer.draw_again_from(drawn);
  }
}

void check_carried(Op& op, std::span<const V> before, std::span<const V> after) {
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].dtype() != after[i].dtype() || before[i].rank() != after[i].rank())
      op.unsupported("carried value " + std::to_string(i) + " changes its dtype or rank from turn to turn");
}

void loop(Op& op) {
  Build& b = op.b;
  const GraphProto& body = op.graph("body");
  const size_t carried = op.num_inputs() >= 2 ? op.num_inputs() - 2 : 0;
  op.expect(body.inputs.size() == carried + 2 && body.outputs.size() >= carried + 1,
            "the body does not take the iteration, the condition and the carried values");
  const bool draws = op.importer.draws(body);
  const GraphProto* only[] = {&body};
  const Captured c = captured(op, only);
  std::vector<V> state;
  for (size_t i = 0; i < carried; ++i) state.push_back(op.in(i + 2));
  const V start = op.has(1) ? b.reshape(op.in(1), {}) : V();
  const auto start_known = start ? b.ints(start) : std::optional<Dims>(Dims{1});
  const bool starts = start_known && (*start_known)[0] == 1;

  if (op.has(0) && condition_is_constant(body)) {  // a counted loop: a scan over the iteration numbers
    V trips = b.cast(b.reshape(op.in(0), {}), TSR_I64);
    if (!starts) trips = select(start, trips, b.integer(0));
    const V turns = dynamic_range(b, b.ints(trips) ? b.dim(b.max((*b.ints(trips))[0], 0)) : maximum(trips, b.integer(0)));
    std::vector<V> args = state;
    args.push_back(turns);
    const V yes = b.known({1}, 0, TSR_BOOL);
    args.insert(args.end(), c.values.begin(), c.values.end());
    std::vector<tsr_type> types = b.types_of(args);
    --types[carried].rank;
    ++types[carried].sizes;
    LoopTypes loop_types(b, types, carried);
    const tsr_id regions[] = {loop_body(
        op, body, loop_types, c.names,
        [&](std::span<const V> in) {
          if (draws) op.importer.begin_iteration(in[carried]);
          std::vector<V> own = {in[carried], yes};
          own.insert(own.end(), in.begin(), in.begin() + static_cast<int64_t>(carried));
          return own;
        },
        [&](std::vector<V> out) {
          out.erase(out.begin());
          check_carried(op, state, out);
          return out;
        })};
    const tsr_attr attrs[] = {attr_int("carried", static_cast<int64_t>(carried)), attr_int("scanned", 1),
                              sdk::attr_dim("length", turns.size(0))};
    const auto r = b.ops("scan", args, attrs, regions);
    for (size_t i = 0; i < r.size(); ++i) op.out(r[i], i);
    return;
  }

  // Any other loop: (iteration, condition, carried ...) while the condition holds. What it stacks grows with the turns that are
  // made.
  const V limit = op.has(0) ? b.cast(b.reshape(op.in(0), {}), TSR_I64) : V();
  std::vector<V> args = {b.dim(0), start ? start : b.known({1}, 0, TSR_BOOL)};
  args.insert(args.end(), state.begin(), state.end());
  const size_t changing = args.size();
  if (limit) args.push_back(limit);
  args.insert(args.end(), c.values.begin(), c.values.end());

  LoopTypes types(b, b.types_of(args), changing);
  V turn;
  const tsr_id turns = loop_body(
      op, body, types, c.names,
      [&](std::span<const V> in) {
        turn = in[0];
        if (draws) op.importer.begin_iteration(turn);
        return std::vector<V>(in.begin(), in.begin() + static_cast<int64_t>(changing));
      },
      [&](std::vector<V> out) {
        check_carried(op, state, std::span(out).subspan(1));
        out[0] = b.reshape(out[0], {});
        out.insert(out.begin(), turn + b.integer(1));
        return out;
      });
  const tsr_id condition = b.make_region(
      types.fresh(), [&](std::span<const V> in) { return std::vector<V>{limit ? both(in[1], in[0] < in[changing]) : in[1]}; });
  const tsr_id regions[] = {condition, turns};
  const tsr_attr attrs[] = {attr_int("carried", static_cast<int64_t>(changing))};
  const auto r = b.ops("while_loop", args, attrs, regions);
  for (size_t i = 2; i < r.size(); ++i) op.out(r[i], i - 2);
}

// The body over slices along dimension 0: `xs` are the scanned tensors, `state` the carried ones.
std::vector<V> scan_over(Op& op, const GraphProto& body, const std::vector<V>& state, const std::vector<V>& xs) {
  Build& b = op.b;
  const size_t carried = state.size();
  const tsr_dim length = xs[0].size(0);
  const bool draws = op.importer.draws(body);
  const GraphProto* only[] = {&body};
  const Captured c = captured(op, only);
  std::vector<V> args = state;
  args.insert(args.end(), xs.begin(), xs.end());
  if (draws) args.push_back(b.range(length));
  const size_t scanned = args.size() - carried;
  args.insert(args.end(), c.values.begin(), c.values.end());
  std::vector<tsr_type> types = b.types_of(args);
  for (size_t i = 0; i < scanned; ++i) {
    op.expect(args[carried + i].rank() > 0, "a scan over a scalar");
    --types[carried + i].rank;
    ++types[carried + i].sizes;
  }
  LoopTypes loop_types(b, types, carried);
  const tsr_id regions[] = {loop_body(
      op, body, loop_types, c.names,
      [&](std::span<const V> in) {
        if (draws) op.importer.begin_iteration(in[carried + scanned - 1]);
        return std::vector<V>(in.begin(), in.begin() + static_cast<int64_t>(carried + xs.size()));
      },
      [&](std::vector<V> out) {
        check_carried(op, state, out);
        return out;
      })};
  const tsr_attr attrs[] = {attr_int("carried", static_cast<int64_t>(carried)),
                            attr_int("scanned", static_cast<int64_t>(scanned)), sdk::attr_dim("length", length)};
  return b.ops("scan", args, attrs, regions);
}

// Opset 8: one scan per sample of a batch, along dimension 1; the first input holds the lengths of the sequences.
void scan_batch(Op& op, const GraphProto& body, size_t scanned) {
  Build& b = op.b;
  if (op.has(0)) op.unsupported("sequence lengths", "export for opset 9 or newer");
  const size_t inputs = op.num_inputs() - 1, carried = inputs - scanned;
  const tsr_dim batch = op.in(1).rank() > 0 ? op.in(1).size(0) : 0;
  op.need_number(batch);
  if (!Build::is_number(batch) || batch < 1 || batch > 1024)
    op.unsupported("a batch of a symbolic size", "export for opset 9 or newer");
  const Ints back = op.ints("directions", Ints(scanned, 0)), first = {0};
  op.expect(back.size() == scanned, "directions do not fit the scan inputs");
  std::vector<std::vector<V>> results(op.num_outputs());
  for (int64_t i = 0; i < batch; ++i) {
    std::vector<V> state, xs;
    for (size_t k = 0; k < inputs; ++k) {
      V v = b.squeeze(b.slice(op.in(k + 1), 0, i, i + 1), {0});
      if (k >= carried && back[k - carried]) v = v.call("flip", {sdk::attr_ints("axes", first)});
      (k < carried ? state : xs).push_back(v);
    }
    std::optional<Importer::LoopIteration> sample;
    if (op.importer.draws(body)) sample.emplace(op.importer, b.integer(i));
    const auto r = scan_over(op, body, state, xs);
    op.expect(r.size() >= results.size(), "the body gives too few outputs");
    for (size_t k = 0; k < results.size(); ++k) results[k].push_back(b.expand(r[k], {0}));
  }
  for (size_t k = 0; k < results.size(); ++k) op.out(b.concat(results[k], 0), k);
}

void scan(Op& op) {
  Build& b = op.b;
  const GraphProto& body = op.graph("body");
  const auto scanned = static_cast<size_t>(std::max<int64_t>(op.i("num_scan_inputs"), 0));
  op.expect(scanned >= 1 && scanned + (op.version < 9 ? 1 : 0) <= op.num_inputs(),
            "attribute 'num_scan_inputs' is " + std::to_string(scanned));
  if (op.version < 9) return scan_batch(op, body, scanned);
  const size_t carried = op.num_inputs() - scanned;
  op.expect(body.outputs.size() >= carried, "the body gives fewer outputs than there are states");
  const size_t outputs = body.outputs.size() - carried;
  const Ints axes = op.ints("scan_input_axes", Ints(scanned, 0)), back = op.ints("scan_input_directions", Ints(scanned, 0));
  const Ints out_axes = op.ints("scan_output_axes", Ints(outputs, 0)),
             out_back = op.ints("scan_output_directions", Ints(outputs, 0));
  op.expect(axes.size() == scanned && back.size() == scanned && out_axes.size() == outputs && out_back.size() == outputs,
            "axes or directions do not fit the scan inputs and outputs");
  const Ints first = {0};
  std::vector<V> state, xs;
  for (size_t i = 0; i < carried; ++i) state.push_back(op.in(i));
  for (size_t i = 0; i < scanned; ++i) {
    V x = op.in(carried + i);
    const int64_t axis = op.axis(axes[i], x.rank());
    Ints perm = {axis};
    for (int64_t d = 0; d < x.rank(); ++d)
      if (d != axis) perm.push_back(d);
    x = b.transpose(x, perm);
    if (back[i]) x = x.call("flip", {sdk::attr_ints("axes", first)});
    xs.push_back(x);
  }
  const auto r = scan_over(op, body, state, xs);
  for (size_t i = 0; i < r.size(); ++i) {
    V y = r[i];
    if (i >= carried) {
      if (out_back[i - carried]) y = y.call("flip", {sdk::attr_ints("axes", first)});
      const int64_t axis = op.axis(out_axes[i - carried], y.rank());
      Ints perm;
      for (int64_t d = 1; d < y.rank(); ++d) perm.push_back(d);
      perm.insert(perm.begin() + axis, 0);
      y = b.transpose(y, perm);
    }
    op.out(y, i);
  }
}

}  // namespace

std::span<const Record> control_records() {
  static constexpr Record records[] = {
      {"", "If", if_},
      {"", "Loop", loop},
      {"", "Scan", scan},
  };
  return records;
}

}  // namespace tessera::onnx
