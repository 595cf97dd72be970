// SPDX-License-Identifier: Apache-2.0
// What decompositions and gradients compute, on the reference backend, over the graphs and inputs of the golden values:
// decompositions against PyTorch's results, gradients against difference quotients.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "evaluate.hpp"
#include "ir/body.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "npz/npz.hpp"
#include "places.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::opset {
namespace {

struct Case {
  std::unique_ptr<core::Graph> graph;
  std::string name;
  std::vector<Array> inputs, expected;
  tsr_id node() const { return graph->value(graph->region(0).outputs[0]).def_node; }
  const core::OpRecord& record() const { return graph->record_of(node()); }
};

// Packed dtypes travel unpacked in archives; their ops are elementwise and no composite.
bool plain(const tsr_type& t) { return !is_packed(t.dtype); }

// Calls f for every golden graph that `wanted` takes by its text's op name.
template <class F>
void for_each_case(const std::function<bool(const core::OpRecord&)>& wanted, F&& f) {
  const std::string dir = tessera::test::source_dir() + "/tests/golden/ops";
  std::vector<std::filesystem::path> files;
  for (const auto& e : std::filesystem::directory_iterator(dir))
    if (e.path().extension() == ".tsr") files.push_back(e.path());
  std::sort(files.begin(), files.end());
  for (auto path : files) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    auto graphs = core::parse_module(standard_ops(), text.str(), path.string());
    path.replace_extension(".npz");
    const auto archive = npz::read(path.string());
    std::map<std::string, const npz::Array*> arrays;
    for (const npz::Array& a : archive) arrays[a.name] = &a;
    for (auto& g : graphs) {
      Case c{std::move(g), "", {}, {}};
      c.name = c.graph->tables().name;
      if (c.node() == TSR_NONE || !wanted(c.record())) continue;
      bool usable = true;
      const auto load = [&](const char* kind, const tsr_id* values, uint32_t n, std::vector<Array>& out) {
        for (uint32_t i = 0; usable && i < n; ++i) {
          const tsr_type& t = *c.graph->value(values[i]).type;
          const auto at = arrays.find(c.name + "/" + kind + std::to_string(i));
          usable = plain(t) && at != arrays.end();
          if (!usable) return;
          Array a = Array::make(t.dtype, at->second->shape);
          const size_t bytes = std::min(a.bytes.size(), at->second->data.size());
          if (bytes > 0) std::memcpy(a.bytes.data(), at->second->data.data(), bytes);
          out.push_back(std::move(a));
        }
      };
      load("in", c.graph->region(0).inputs, c.graph->region(0).num_inputs, c.inputs);
      load("out", c.graph->region(0).outputs, c.graph->region(0).num_outputs, c.expected);
      if (usable) f(c);
    }
  }
}

// Decompositions round at every op of the compute dtype, f32 for the narrow ones, and once to the result's dtype.
double tolerance(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return 1e-12;
    case TSR_F32: return 3e-6;
    case TSR_F16: return 1.0 / 1024;
    case TSR_BF16: return 1.0 / 128;
    case TSR_F8E4M3FN:
    case TSR_F8E4M3FNUZ: return 1.0 / 8;
    case TSR_F8E5M2:
    case TSR_F8E5M2FNUZ: return 1.0 / 4;
    case TSR_C64: return 3e-6;
    case TSR_C128: return 1e-12;
    default: return 0;
  }
}

bool close(double a, double b, double tol) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  return std::abs(a - b) <= tol * std::max({1.0, std::abs(a), std::abs(b)});
}

void check_equal(const Array& found, const Array& expected) {
  REQUIRE(found.dtype == expected.dtype);
  REQUIRE(found.sizes == expected.sizes);
  const double tol = tolerance(found.dtype);
  for (int64_t i = 0; i < found.count(); ++i) {
    const double fr = found.get(i), er = expected.get(i), fi = found.get_imag(i), ei = expected.get_imag(i);
    if (close(fr, er, tol) && close(fi, ei, tol)) continue;
    FAIL_CHECK("element " << i << ": found " << fr << " " << fi << "i, expected " << er << " " << ei << "i");
    return;
  }
}

TEST_CASE("decompositions compute what PyTorch computes") {
  std::set<std::string> seen;
  for_each_case([](const core::OpRecord& r) { return r.has(core::kComposite); },
                [&](Case& c) {
                  INFO(core::print_graph(*c.graph));
                  const std::string op = c.record().name;
                  c.graph->begin("test");
                  decompose_all(*c.graph);
                  std::vector<Array> found;
                  REQUIRE_NOTHROW(found = evaluate(*c.graph, c.inputs));
                  for (size_t i = 0; i < found.size(); ++i) check_equal(found[i], c.expected[i]);
                  seen.insert(op);
                });
  CHECK(seen.size() >= 40);
}

// ------------------------------------------------------------------------------------------------------------ gradients

bool differentiable(uint32_t dtype) { return dtype == TSR_F64 || dtype == TSR_C128; }

// The real loss sum(re(conj(w) * result)), whose gradient with respect to a result is w.
double loss(const std::vector<Array>& results, const std::vector<Array>& weights) {
  double s = 0;
  for (size_t r = 0; r < results.size(); ++r) {
    if (weights[r].dtype == 0) continue;
    for (int64_t i = 0; i < results[r].count(); ++i)
      s += weights[r].get(i) * results[r].get(i) + weights[r].get_imag(i) * results[r].get_imag(i);
  }
  return s;
}

// By the ops' own kernels, or, where one has none, by what they are made of.
std::vector<Array> values_of(core::Graph& g, const std::vector<Array>& inputs) {
  try {
    return evaluate(g, inputs);
  } catch (const core::Error& e) {
    if (e.code() != "TSR-B033") throw;
    auto parts = g.clone();
    parts->begin("test");
    decompose_all(*parts);
    return evaluate(*parts, inputs);
  }
}

struct Slope {
  double value;
  bool smooth;  // left and right agree, and so do two step sizes
};

Slope slope(core::Graph& g, std::vector<Array>& inputs, size_t input, int64_t element, bool imaginary,
            const std::vector<Array>& weights) {
  const double re = inputs[input].get(element), im = inputs[input].get_imag(element);
  const auto at = [&](double step) {
    inputs[input].set(element, re + (imaginary ? 0 : step), im + (imaginary ? step : 0));
    const double v = loss(values_of(g, inputs), weights);
    inputs[input].set(element, re, im);
    return v;
  };
  const double h = 1e-5 * std::max(1.0, std::abs(imaginary ? im : re));
  const double middle = at(0), up = at(h), down = at(-h), far_up = at(2 * h), far_down = at(-2 * h);
  const double near = (up - down) / (2 * h), wide = (far_up - far_down) / (4 * h), left = (middle - down) / h,
               right = (up - middle) / h;
  const double scale = std::max({1.0, std::abs(near), std::abs(wide)});
  const bool finite = std::isfinite(near) && std::isfinite(wide);
  return {(4 * near - wide) / 3, finite && std::abs(near - wide) < 1e-4 * scale && std::abs(left - right) < 2e-2 * scale};
}

class GradientCheck {
 public:
  // The gradient of the node behind the first output, with random weights for its results, against slopes at a few elements
  // of every operand that is an input.
  void run(core::Graph& g, std::vector<Array> inputs) {
    INFO(core::print_graph(g));
    const tsr_id node = g.value(g.region(0).outputs[0]).def_node;
    const std::string op = g.record_of(node).name;
    g.begin("test");
    g.set_outputs(0, {g.node(node).results, g.node(node).num_results});
    const std::vector<Array> results = values_of(g, inputs);

    auto backward = g.clone();
    const tsr_id copy = backward->value(backward->region(0).outputs[0]).def_node;
    const uint32_t num_results = backward->node(copy).num_results, num_operands = backward->node(copy).num_operands;
    backward->begin("test");
    std::vector<Array> weights(num_results), all = inputs;
    std::vector<tsr_id> given(num_results, TSR_NONE);
    for (uint32_t i = 0; i < num_results; ++i) {
      if (!differentiable(results[i].dtype)) continue;
      weights[i] = random(results[i].dtype, results[i].sizes);
      const tsr_type type = *backward->value(backward->node(copy).results[i]).type;
      given[i] = backward->create_input("w" + std::to_string(i), type);
      all.push_back(weights[i]);
    }
    std::vector<tsr_id> grads;
    try {
      grads = core::build_grad(*backward, copy, given);
    } catch (const core::Error& e) {
      REQUIRE(e.code() == "TSR-I220");  // scatter of complex numbers with mul
      return;
    }
    std::vector<size_t> targets;  // inputs
    std::vector<tsr_id> outputs;
    for (uint32_t i = 0; i < num_operands; ++i) {
      const tsr_id operand = backward->node(copy).operands[i];
      if (operand == TSR_NONE || grads[i] == TSR_NONE || backward->value(operand).def_node != TSR_NONE) continue;
      if (!differentiable(backward->value(operand).type->dtype)) continue;
      targets.push_back(backward->value(operand).def_index);
      outputs.push_back(grads[i]);
    }
    backward->set_outputs(0, outputs);
    const std::vector<Array> found = values_of(*backward, all);
    decompose_all(*backward);
    const std::vector<Array> primitive = evaluate(*backward, all);

    for (size_t k = 0; k < targets.size(); ++k) {
      REQUIRE(found[k].sizes == inputs[targets[k]].sizes);
      check_equal(primitive[k], found[k]);
      for (int sample = 0; sample < 6 && found[k].count() > 0; ++sample) {
        const auto i = static_cast<int64_t>(rng_() % static_cast<uint64_t>(found[k].count()));
        for (bool imaginary : {false, true}) {
          if (imaginary && !is_complex(found[k].dtype)) continue;
          const Slope s = slope(g, inputs, targets[k], i, imaginary, weights);
          if (!s.smooth) continue;
          const double have = imaginary ? found[k].get_imag(i) : found[k].get(i);
          INFO("input " << targets[k] << ", element " << i << (imaginary ? ", imaginary" : "") << " at "
                        << inputs[targets[k]].get(i) << ": gradient " << have << ", slope " << s.value);
          CHECK(std::abs(have - s.value) <= 1e-5 * std::max(1.0, std::abs(s.value)));
          ++compared[op];
        }
      }
    }
  }

  Array random(uint32_t dtype, std::vector<int64_t> sizes) {
    Array a = Array::make(dtype, std::move(sizes));
    for (int64_t i = 0; i < a.count(); ++i) a.set(i, number(), is_complex(dtype) ? number() : 0);
    return a;
  }
  double number() { return uniform_(rng_); }

  std::map<std::string, int> compared;  // slopes, by op

 private:
  std::mt19937 rng_{7};
  std::uniform_real_distribution<double> uniform_{0.3, 1.0};
};

TEST_CASE("gradients are the slopes of their ops") {
  GradientCheck check;
  for_each_case(
      [](const core::OpRecord& r) { return r.grad_body || (r.impl && r.impl->grad); },
      [&](Case& c) {
        const tsr_node& n = c.graph->node(c.node());
        bool usable = false;
        for (uint32_t i = 0; i < n.num_results; ++i) usable |= differentiable(c.graph->value(n.results[i]).type->dtype);
        if (!usable) return;
        // Special values are for other tests: slopes need numbers that are not at a limit.
        for (Array& a : c.inputs)
          if (differentiable(a.dtype))
            for (int64_t i = 0; i < a.count(); ++i)
              if (!std::isfinite(a.get(i)) || !std::isfinite(a.get_imag(i)) || std::abs(a.get(i)) > 1e3 || a.get(i) == 0)
                a.set(i, check.number(), is_complex(a.dtype) ? check.number() : 0);
        check.run(*c.graph, c.inputs);
      });

  // What the golden values leave out in f64: inputs are drawn from [0.3, 1], or given.
  struct More {
    const char* text;
    std::map<int, std::vector<double>> given;
  };
  const std::vector<More> more = {
      {"(%x: f64[4]) { %y = acosh %x return %y }", {{0, {1.5, 2, 3, 9}}}},
      {"(%x: f64[3, 4]) { %y = pad %x {low = [1, 0], high = [0, 2]} return %y }", {}},
      {"(%x: f64[3, 4], %v: f64[]) { %y = pad %x, %v {low = [1, -1], high = [-2, 2], interior = [0, 2]} return %y }", {}},
      {"(%x: f64[4, 5]) { %y = pad %x {low = [2, 1], high = [3, -1], mode = \"reflect\"} return %y }", {}},
      {"(%x: f64[2, 5]) { %y = pad %x {low = [3, -1], high = [1, 2], mode = \"edge\"} return %y }", {}},
      {"(%x: f64[3, 2]) { %y = pad %x {low = [4, 1], high = [5, 3], mode = \"wrap\"} return %y }", {}},
      {"(%x: f64[5, 7]) { %y = slice %x {starts = [4, 1], limits = [-1, 6], strides = [-2, 2]} return %y }", {}},
      {"(%x: f64[5, 2]) { %y = slice %x {starts = [2, 0], limits = [2, 2], strides = [1, 1]} return %y }", {}},
      {"(%x: f64[s0, 7]) { %y = slice %x {starts = [s0 - 1, 6], limits = [-1, 1], strides = [-2, -2]} return %y }", {}},
      {"(%x: f64[s0, 3]) { %y = slice %x {starts = [1, 0], limits = [s0, 3], strides = [3, 1]} return %y }", {}},
      {"(%x: f64[3, 1], %m: bool[4]) { %y = masked_select %x, %m return %y }", {{1, {1, 0, 1, 1}}}},
      {"(%x: f64[2, 3], %m: bool[2, 3]) { %y = masked_select %x, %m return %y }", {{1, {0, 0, 0, 0, 0, 0}}}},
      {"(%x: f64[6]) { %y = cumprod %x {axis = 0} return %y }", {{0, {2, 3, 0, 4, 0, 5}}}},
      {"(%x: f64[6]) { %y = cumprod %x {axis = 0, exclusive = true, reverse = true} return %y }", {{0, {2, 0, 3, 4, 0, 5}}}},
      {"(%x: f64[2, 3]) { %y = reduce_prod %x {axes = [1]} return %y }", {{0, {2, 0, 3, 0, 0, 5}}}},
      {"(%x: f64[2, 3]) { %y = norm %x {p = 3.5, axes = [0]} return %y }", {{0, {2, -1, 3, -4, 7, 5}}}},
      {"(%x: f64[2, 3]) { %y = norm %x {p = inf, axes = [0, 1]} return %y }", {{0, {2, -1, 3, -4, 7, 5}}}},
      {"(%x: f64[2, 3]) { %y = norm %x {p = -inf, axes = [1], keepdims = true} return %y }", {{0, {2, -1, 3, -4, 7, 5}}}},
      {"(%x: f64[2, 3, 4], %i: i64[2, 5, 1]) { %y = gather_nd %x, %i {batch_dims = 1} return %y }",
       {{1, {0, 2, 1, 2, 0, 1, 1, 0, 2, 2}}}},
      {"(%x: f64[1, 2, 9, 8], %w: f64[4, 1, 3, 2]) { %y = conv %x, %w, _ {strides = [2, 3], pad_low = [1, 0], pad_high "
       "= [0, 1], dilations = [2, 1], groups = 2} return %y }",
       {}},
      {"(%x: f64[2, 4, 3, 3], %w: f64[4, 2, 2, 3], %b: f64[4]) { %y = conv_transpose %x, %w, %b {strides = [2, 3], "
       "pad_low = [1, 0], pad_high = [0, 1], output_pad = [1, 4], dilations = [1, 2], groups = 2} return %y }",
       {}},
      {"(%x: f64[1, 2, 7, 6]) { %y = avg_pool %x {kernel = [3, 2], strides = [2, 2], pad_low = [1, 1], pad_high = [2, "
       "0], dilations = [1, 2], ceil_mode = true, count_include_pad = false} return %y }",
       {}},
      {"(%x: f64[1, 2, 7, 6]) { %y, %i = max_pool %x {kernel = [3, 2], strides = [1, 2], pad_low = [1, 1], pad_high = "
       "[1, 0], dilations = [2, 1]} return %y }",
       {}},
      {"(%x: f64[3, 4], %s: i64[3]) { %y = dynamic_reshape %x, %s {rank = 3} return %y }", {{1, {2, -1, 3}}}},
      {"(%x: f64[s0, 3], %w: f64[2, 3]) { %y = linear %x, %w, _ return %y }", {}},
      {"(%q: f64[2, 3, 4], %k: f64[2, 5, 4], %v: f64[2, 5, 3]) { %y, %l = attention_lse %q, %k, %v, _ {causal = true} return "
       "%y }",
       {}},
      {"(%x: f64[s0, 3, s1]) { %y = softmax %x {axis = 1} return %y }", {}},
      {"(%x: f64[s0, 2, s1], %w: f64[2, 2, 3]) { %y = conv %x, %w, _ {strides = [2], pad_low = [1], pad_high = [1], "
       "dilations = [1]} return %y }",
       {}},
  };
  for (const More& m : more) {
    auto g = core::parse_graph(standard_ops(), std::string("graph @g") + m.text, "more");
    std::vector<Array> inputs;
    for (uint32_t i = 0; i < g->region(0).num_inputs; ++i) {
      const tsr_type& t = *g->value(g->region(0).inputs[i]).type;
      std::vector<int64_t> sizes;
      for (uint32_t k = 0; k < t.rank; ++k) sizes.push_back(TSR_DIM_IS_EXPR(t.sizes[k]) ? 5 + k : t.sizes[k]);
      inputs.push_back(check.random(t.dtype, sizes));
      if (const auto given = m.given.find(static_cast<int>(i)); given != m.given.end())
        for (size_t k = 0; k < given->second.size(); ++k) inputs.back().set(static_cast<int64_t>(k), given->second[k]);
    }
    check.run(*g, inputs);
  }

  // Flat ops have no slope to compare, and integers none at all; what moves to another device is tested where there is one.
  const std::set<std::string> flat = {"sign", "floor", "ceil", "round", "trunc", "floor_div", "shape_of", "nonzero"};
  for (const core::OpRecord* r : standard_ops().all()) {
    if (!(r->grad_body || (r->impl && r->impl->grad)) || flat.count(r->name)) continue;
    if (r->has(core::kAutograd) || r->has(core::kTransfer)) continue;
    INFO(r->name);
    CHECK(check.compared[r->name] > 0);
  }
}

}  // namespace
}  // namespace tessera::opset
