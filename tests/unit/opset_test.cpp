// SPDX-License-Identifier: Apache-2.0
// The standard op set, white-box: its records against the core's registry, inference of the ops whose shapes are callbacks,
// and that every decomposition and gradient builds graphs that verify. What the numbers are is the business of the
// differential tests.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "ir/body.hpp"
#include "ir/graph.hpp"
#include "ir/graph_api.hpp"
#include "ir/infer.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/verifier.hpp"
#include "opset.hpp"
#include "places.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace tessera::core::opset_test {
namespace {

// Callbacks and the core must share one host: the tables of this process.
const OpRegistry& standard_ops() {
  static const tsr_host host = make_host(&host_core(), &graph_api(), nullptr);
  static const OpRegistry* ops = [] {
    sdk::host_slot() = &host;
    auto* r = new OpRegistry;
    r->add(*opset::tessera_standard_opset(), "tessera.opset.standard");
    return r;
  }();
  return *ops;
}

std::unique_ptr<Graph> parse(const std::string& text) { return parse_graph(standard_ops(), text, "test.tsr"); }

// Types of the results of one node over the given inputs ("%x: f32[2]"), or the error's code and message.
std::string infer_text(const std::string& inputs, const std::string& node) {
  const auto brace = node.find_first_of(" {");
  const std::string op = node.substr(0, brace);
  const OpRecord& record = standard_ops().get(op);
  size_t results = record.results.size();
  if (op == "split") results = 2;
  std::string names;
  for (size_t i = 0; i < results; ++i) names += (i ? ", %r" : "%r") + std::to_string(i);
  try {
    const auto g = parse("graph @g(" + inputs + ") {\n  " + names + " = " + node + "\n  return " + names + "\n}\n");
    std::string s;
    for (uint32_t i = 0; i < g->region(0).num_outputs; ++i)
      s += (i ? ", " : "") + print_type(*g, *g->value(g->region(0).outputs[i]).type);
    return s;
  } catch (const Error& e) {
    return e.code() + " " + e.message();
  }
}

// Decomposes until only primitives are left.
void decompose_all(Graph& g) {
  for (bool again = true; again;) {
    again = false;
    std::vector<tsr_id> nodes;
    for (tsr_id n : nodes_of(g, 0)) nodes.push_back(n);
    for (tsr_id n : nodes) {
      if (!g.record_of(n).has(kComposite)) continue;
      const std::vector<tsr_id> with = build_decomposition(g, n);
      for (uint32_t i = 0; i < g.node(n).num_results; ++i) g.replace_uses(g.node(n).results[i], with[i]);
      g.erase_node(n);
      again = true;
    }
  }
}

tsr_id ones_like(Graph& g, const tsr_type& type) {
  char data[16] = {};
  store_from(type.dtype, data, 0, 1.0);
  tsr_tensor t{};
  t.data = data;
  t.dtype = type.dtype;
  tsr_attr value = sdk::attr_tensor("value", t);
  NodeSpec scalar;
  scalar.op = "constant";
  scalar.attrs = {value};
  const tsr_id one = g.node(g.create_node(scalar)).results[0];
  NodeSpec full;
  full.op = "full";
  full.operands = {one};
  full.attrs = {sdk::attr_dims("shape", {type.sizes, type.rank})};
  return g.node(g.create_node(full)).results[0];
}

bool differentiable(const tsr_type& t) { return is_float(t.dtype) || is_complex(t.dtype); }

// Builds the gradient of the node that made the graph's first output, with ones for every differentiable result; the
// gradients become outputs. False: the op has none.
bool differentiate(Graph& g) {
  const tsr_id node = g.value(g.region(0).outputs[0]).def_node;
  const OpRecord& r = g.record_of(node);
  if (!r.grad_body && !(r.impl && r.impl->grad)) return false;
  std::vector<tsr_id> given;
  for (uint32_t i = 0; i < g.node(node).num_results; ++i) {
    const tsr_type type = *g.value(g.node(node).results[i]).type;
    given.push_back(differentiable(type) ? ones_like(g, type) : TSR_NONE);
  }
  const std::vector<tsr_id> grads = build_grad(g, node, given);
  std::vector<tsr_id> outputs;
  for (uint32_t i = 0; i < g.node(node).num_operands; ++i) {
    const tsr_id operand = g.node(node).operands[i];
    if (operand == TSR_NONE || grads[i] == TSR_NONE || !differentiable(*g.value(operand).type)) continue;
    const tsr_type &want = *g.value(operand).type, &have = *g.value(grads[i]).type;
    INFO(g.describe(node) << " operand " << i << ": gradient " << print_type(g, have) << " of " << print_type(g, want));
    CHECK(have.dtype == want.dtype);
    CHECK(have.rank == want.rank);
    for (uint32_t k = 0; k < std::min(have.rank, want.rank); ++k)
      CHECK(g.sizes().compare(TSR_EQ, have.sizes[k], want.sizes[k]) == TSR_TRUE);
    outputs.push_back(grads[i]);
  }
  g.set_outputs(0, outputs);
  return true;
}

// Graphs of one op each, over many shapes and dtypes: those of the golden values.
std::vector<std::string> golden_files() {
  std::vector<std::string> out;
  for (const auto& e : std::filesystem::directory_iterator(tessera::test::source_dir() + "/tests/golden/ops"))
    if (e.path().extension() == ".tsr") out.push_back(e.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

TEST_CASE("every op of the standard set is documented and reaches primitives") {
  const auto all = standard_ops().all();
  CHECK(all.size() >= 90);
  for (const OpRecord* r : all) {
    INFO(r->name);
    CHECK(!r->doc.empty());
    CHECK((r->doc.back() == '.' || r->doc.back() == '?'));
    CHECK(r->traits != 0);
    CHECK(r->has(kComposite) == r->can_decompose());
    for (const ResultDecl& d : r->results)
      if (d.dtype.kind == DtypePattern::kUnknown || (d.shape.size() == 1 && d.shape[0].kind == ShapeItem::kUnknown))
        CHECK((r->impl && r->impl->infer));
    if (r->has(kView)) CHECK((r->impl && r->impl->view));
  }
}

TEST_CASE("differentiable ops have gradients") {
  // Ops whose gradient is that of their decomposition, or that have none: integers, comparisons, positions, randomness.
  const std::set<std::string> without = {
      // no gradient exists or is defined
      "argmax", "argmin", "attention_backward", "attention_y_backward", "bitcast", "conv_integer", "matmul_integer",
      "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "constant", "digamma", "dim_value", "eq", "ge", "gt", "iota",
      "is_finite", "is_inf", "is_nan", "le", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "ne", "nextafter",
      "one_hot", "popcount", "random_bits", "random_int", "random_normal", "random_uniform", "reduce_all", "reduce_any",
      "searchsorted", "shift_left", "shift_right", "stop_gradient", "tangent", "unique",
      // through their regions, or beyond this library
      "client_effect", "client_step", "cond", "fused", "grad", "scan", "while_loop",
      // through their decomposition
      "adaptive_avg_pool", "adaptive_max_pool", "attention", "batch_norm", "batch_norm_training", "diagonal", "dropout",
      "group_norm", "interpolate", "mse_loss", "roll", "split", "stack", "tile",
      // sizes that depend on data
      "dynamic_broadcast_to"};
  for (const OpRecord* r : standard_ops().all()) {
    INFO(r->name);
    const bool has = r->grad_body || (r->impl && r->impl->grad);
    CHECK(has != (without.count(r->name) != 0));
  }
}

TEST_CASE("every composite decomposes, in every shape of the golden values") {
  std::set<std::string> seen;
  // Products of integers and the halves of attention have their values in sdk/conformance/cases/linalg.cases.
  const std::string others = R"(
    graph @matmul(%a: u8[2, 3], %b: i8[3, 4], %az: u8[], %bz: i8[4]) { %r = matmul_integer %a, %b, %az, %bz return %r }
    graph @attention_lse(%q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 3]) { %r, %l = attention_lse %q, %k, %v, _ return %r }
    graph @attention_backward(%dy: f32[2, 3, 3], %q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 3], %l: f32[2, 3], %d: f32[2, 3]) {
      %r, %s, %t = attention_backward %dy, %q, %k, %v, _, %l, %d {causal = true} return %r }
    graph @attention_y_backward(%dy: f32[2, 3, 3], %q: f32[2, 3, 4], %k: f32[2, 5, 4], %v: f32[2, 5, 3], %l: f32[2, 3], %d: f32[2, 3, 3]) {
      %r, %s, %t = attention_y_backward %dy, %q, %k, %v, _, %l, %d {causal = true} return %r }
    graph @conv(%x: u8[1, 2, 5], %w: i8[3, 2, 2], %xz: u8[], %wz: i8[]) { %r = conv_integer %x, %w, %xz, %wz {strides = [1], pad_low = [0], pad_high = [0], dilations = [1]} return %r })";
  std::vector<std::pair<std::string, std::string>> texts{{"others.tsr", others}};
  for (const std::string& file : golden_files()) texts.emplace_back(file, read(file));
  for (const auto& [file, text] : texts)
    for (auto& g : parse_module(standard_ops(), text, file)) {
      const tsr_id node = g->value(g->region(0).outputs[0]).def_node;
      if (node == TSR_NONE || !g->record_of(node).has(kComposite)) continue;
      INFO(print_graph(*g));
      seen.insert(g->record_of(node).name);
      g->begin("test");
      REQUIRE_NOTHROW(decompose_all(*g));
      REQUIRE_NOTHROW(g->commit());
      REQUIRE_NOTHROW(verify(*g));
    }
  for (const OpRecord* r : standard_ops().all())
    if (r->has(kComposite)) {
      INFO(r->name << " has no golden graph");
      CHECK(seen.count(r->name));
    }
}

TEST_CASE("every gradient builds, in every shape of the golden values") {
  for (const std::string& file : golden_files())
    for (auto& g : parse_module(standard_ops(), read(file), file)) {
      const tsr_id node = g->value(g->region(0).outputs[0]).def_node;
      if (node == TSR_NONE) continue;
      bool any = false;
      for (uint32_t i = 0; i < g->node(node).num_results; ++i) any |= differentiable(*g->value(g->node(node).results[i]).type);
      if (!any) continue;
      INFO(print_graph(*g));
      g->begin("test");
      bool built = false;
      try {
        built = differentiate(*g);
      } catch (const Error& e) {
        // Products of complex numbers by scatter.
        INFO(e.what());
        CHECK(e.code() == "TSR-I220");
        g->rollback();
        continue;
      }
      if (built) REQUIRE_NOTHROW(decompose_all(*g));
      REQUIRE_NOTHROW(g->commit());
      REQUIRE_NOTHROW(verify(*g));
    }
}

struct InferCase {
  const char *inputs, *node, *expected;  // of an error: part of it
};

void check_cases(std::initializer_list<InferCase> cases) {
  for (const InferCase& c : cases) {
    INFO(c.inputs << " | " << c.node);
    const std::string found = infer_text(c.inputs, c.node);
    // An error's message shows its place too; a type is the whole text.
    if (found.rfind("TSR-", 0) == 0)
      CHECK_THAT(found, Catch::Contains(c.expected));
    else
      CHECK(found == c.expected);
  }
}

// clang-format off
TEST_CASE("shapes of contractions, convolutions and pools") {
  check_cases({
      {"%a: f32[s0, 3, 4], %b: f32[s0, 4, 5]", "dot_general %a, %b {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1]}", "f32[s0, 3, 5]"},
      {"%a: f16[2, 3], %b: f16[3, 2]", "dot_general %a, %b {lhs_contract = [-1, 0], rhs_contract = [0, -1], out_dtype = f32}", "f32[]"},
      {"%a: f32[2, 3], %b: f32[4, 5]", "dot_general %a, %b {lhs_contract = [1], rhs_contract = [0]}", "TSR-I202 test.tsr"},
      {"%a: f32[2, 3], %b: f32[3, 5]", "dot_general %a, %b {lhs_contract = [1, 0], rhs_contract = [0]}", "attribute 'rhs_contract': found 1 entries, expected 2"},
      {"%a: f32[2, 3], %b: f32[3, 5]", "dot_general %a, %b {lhs_contract = [1], rhs_contract = [0], out_dtype = i32}", "attribute 'out_dtype': found i32, expected the kind of f32"},
      {"%a: f32[2, 1, 3, 4], %b: f32[5, 4, 6]", "matmul %a, %b", "f32[2, 5, 3, 6]"},
      {"%a: f32[4], %b: f32[5, 4, 6]", "matmul %a, %b", "f32[5, 6]"},
      {"%a: f32[4], %b: f32[4]", "matmul %a, %b", "f32[]"},
      {"%a: f32[], %b: f32[4]", "matmul %a, %b", "a: found rank 0 ([]), expected rank 1 or more"},

      {"%x: f32[2, 4, 9, 8], %w: f32[6, 2, 3, 2]", "conv %x, %w, _ {strides = [2, 3], pad_low = [1, 0], pad_high = [0, 1], dilations = [2, 1], groups = 2}", "f32[2, 6, 3, 3]"},
      {"%x: f32[s0, 3, s1, 32], %w: f32[8, 3, 3, 3]", "conv %x, %w, _ {strides = [2, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}", "f32[s0, 8, floordiv(s1 + 1, 2), 32]"},
      {"%x: f32[2, 3, 8], %w: f32[6, 2, 3]", "conv %x, %w, _ {strides = [1], pad_low = [0], pad_high = [0], dilations = [1]}", "channels of x: found 3, expected 2"},
      {"%x: f32[2, 3, 2], %w: f32[6, 3, 3]", "conv %x, %w, _ {strides = [1], pad_low = [0], pad_high = [0], dilations = [1]}", "TSR-I208"},
      {"%x: f32[2, 3, 8], %w: f32[6, 3, 3]", "conv %x, %w, _ {strides = [0], pad_low = [0], pad_high = [0], dilations = [1]}", "attribute 'strides': found 0, expected at least 1"},
      {"%x: f32[2, 3], %w: f32[6, 3]", "conv %x, %w, _ {strides = [], pad_low = [], pad_high = [], dilations = []}", "x: found rank 2 ([2, 3]), expected rank 3 to 5"},
      {"%x: f32[2, 4, 5], %w: f32[4, 3, 3]", "conv_transpose %x, %w, _ {strides = [2], pad_low = [1], pad_high = [0], output_pad = [1], dilations = [1], groups = 2}", "f32[2, 6, 11]"},
      {"%x: f32[2, 5, 5], %w: f32[4, 3, 3]", "conv_transpose %x, %w, _ {strides = [2], pad_low = [1], pad_high = [0], output_pad = [1], dilations = [1]}", "weight, axis 0: found 4, expected 5"},

      // floor((7 + 2 - 3)/2) + 1, and rounded up
      {"%x: f32[1, 2, 8]", "max_pool %x {kernel = [3], strides = [2], pad_low = [1], pad_high = [1], dilations = [1]}", "f32[1, 2, 4], i64[1, 2, 4]"},
      {"%x: f32[1, 2, 8]", "max_pool %x {kernel = [3], strides = [2], pad_low = [1], pad_high = [1], dilations = [1], ceil_mode = true}", "f32[1, 2, 5], i64[1, 2, 5]"},
      // A sixth window would begin in the padding.
      {"%x: f32[1, 2, 9]", "avg_pool %x {kernel = [2], strides = [2], pad_low = [1], pad_high = [1], dilations = [1], ceil_mode = true}", "f32[1, 2, 5]"},
      {"%x: f32[1, 2, s0]", "avg_pool %x {kernel = [2], strides = [2], pad_low = [0], pad_high = [0], dilations = [1]}", "f32[1, 2, floordiv(s0, 2)]"},
      {"%x: f32[1, 2, 8]", "max_pool %x {kernel = [2], strides = [1], pad_low = [2], pad_high = [0], dilations = [1]}", "less than the extent of the kernel, 2"},
      {"%x: f32[1, 2, 8]", "max_pool %x {kernel = [2, 2], strides = [1], pad_low = [0], pad_high = [0], dilations = [1]}", "attribute 'kernel': found 2 entries, expected 1"},
      {"%x: f32[1, 2, 8, 7]", "adaptive_max_pool %x {output = [3, 5]}", "f32[1, 2, 3, 5], i64[1, 2, 3, 5]"},
      {"%x: f32[1, 2, 0]", "adaptive_avg_pool %x {output = [3]}", "TSR-I208"},
  });
}

TEST_CASE("shapes of rearrangements") {
  check_cases({
      {"%x: f32[s0, 6]", "reshape %x {shape = [s0 * 2, 3]}", "f32[s0 * 2, 3]"},
      {"%x: f32[4, 6]", "reshape %x {shape = [5, 5]}", "attribute 'shape': found [5, 5] (25 elements), expected 24 elements, as [4, 6] has"},
      {"%x: f32[4, 6]", "reshape %x {shape = [-1, 6]}", "no negative size"},
      {"%x: f32[3]", "expand_dims %x {axes = [0, -1]}", "f32[1, 3, 1]"},
      {"%x: f32[3]", "expand_dims %x {axes = [0, -3]}", "axis 0 twice"},
      {"%x: f32[1, 3, 1]", "squeeze %x {axes = [-1]}", "f32[1, 3]"},
      {"%x: f32[1, 3, 1]", "squeeze %x {axes = [1]}", "size of axis 1: found 3, expected 1"},
      {"%x: f32[3, 1]", "broadcast_to %x {shape = [s0, 3, 4]}", "f32[s0, 3, 4]"},
      {"%x: f32[3, 2]", "broadcast_to %x {shape = [3, 4]}", "TSR-I203"},
      {"%x: f32[10, 10]", "slice %x {starts = [1, 9], limits = [8, -1], strides = [3, -4]}", "f32[3, 3]"},
      {"%x: f32[s0]", "slice %x {starts = [s0 - 1], limits = [-1], strides = [-1]}", "f32[s0]"},
      {"%x: f32[10]", "slice %x {starts = [3], limits = [3], strides = [2]}", "f32[0]"},
      {"%x: f32[10]", "slice %x {starts = [3], limits = [11], strides = [1]}", "axis 0: found 3:11:1 of size 10, expected 0 <= start <= limit <= size"},
      {"%x: f32[10]", "slice %x {starts = [10], limits = [3], strides = [-1]}", "expected -1 <= limit <= start < size"},
      {"%x: f32[10]", "slice %x {starts = [0], limits = [3], strides = [0]}", "attribute 'strides': found 0"},
      {"%x: f32[4, 5]", "as_strided %x {shape = [3, 3], strides = [5, 1], offset = 2}", "f32[3, 3]"},
      {"%x: f32[4, 5]", "as_strided %x {shape = [5, 3], strides = [5, 1]}", "found a last element at 22, expected one of the 20 elements of x"},
      {"%x: f32[4, 5]", "as_strided %x {shape = [2], strides = [-1], offset = 3}", "no negative stride"},
      {"%a: f32[2, 3], %b: f32[2, s0]", "concat %a, %b {axis = -1}", "f32[2, s0 + 3]"},
      {"%a: f32[2, 3], %b: f32[3, 3]", "concat %a, %b {axis = 1}", "xs[1], axis 0: found 3, expected 2"},
      {"%x: f32[4, 3]", "pad %x {low = [1, -1], high = [2, 0], interior = [2, 0]}", "f32[13, 2]"},
      {"%x: f32[4]", "pad %x {low = [3], high = [3], mode = \"reflect\"}", "f32[10]"},
      {"%x: f32[4]", "pad %x {low = [4], high = [0], mode = \"reflect\"}", "low and high below the size"},
      {"%x: f32[4]", "pad %x {low = [9], high = [1], mode = \"wrap\"}", "f32[14]"},
      {"%x: f32[0]", "pad %x {low = [1], high = [1], mode = \"edge\"}", "a size of at least 1"},
      {"%x: f32[4]", "pad %x {low = [-3], high = [-2]}", "TSR-I208"},
      {"%x: f32[2, 3]", "tile %x {repeats = [2, 1, 4]}", "f32[2, 2, 12]"},
      {"%x: f32[2, 3]", "tile %x {repeats = [2]}", "at least 2"},
      {"%x: f32[5, 3, 4]", "diagonal %x {offset = -2, axis1 = 0, axis2 = 2}", "f32[3, 3]"},
      {"%x: f32[5, 4]", "diagonal %x {offset = 9}", "f32[0]"},
      {"%a: f32[2, 3], %b: f32[2, 3]", "stack %a, %b {axis = -1}", "f32[2, 3, 2]"},
      {"%x: f32[s0 + 2, 3]", "split %x {sizes = [s0, 2], axis = 0}", "f32[s0, 3], f32[2, 3]"},
      {"%x: f32[5, 3]", "split %x {sizes = [3, 1], axis = 0}", "sum of 'sizes': found 4, expected 5"},
      {"%x: f32[5, 3]", "bitcast %x {dtype = i64}", "found i64 (64 bits), expected a dtype of 32 bits"},
      {"%x: f32[5, 3]", "sum_to %x {shape = [1, 3]}", "f32[1, 3]"},
      {"%x: f32[5, 3]", "sum_to %x {shape = [2]}", "a shape that broadcasts to x [5, 3]"},
      {"%x: f32[2, 0]", "argmax %x {axis = 1}", "size of axis 1: found 0, expected at least 1"},
      {"%x: f32[2, 5]", "cumsum %x {axis = 2}", "TSR-I201"},
  });
}

TEST_CASE("shapes of indexing and of sizes that depend on data") {
  check_cases({
      {"%x: f32[2, 7, 3], %i: i32[4, 5]", "gather %x, %i {axis = 1}", "f32[2, 4, 5, 3]"},
      {"%x: f32[2, 7], %i: i64[2, 9]", "take_along_axis %x, %i {axis = 1}", "f32[2, 9]"},
      {"%x: f32[2, 7], %i: i64[3, 2]", "take_along_axis %x, %i {axis = 1}", "sizes at most those of x [2, 7] but for axis 1"},
      {"%x: f32[2, 3, 4, 5], %i: i64[2, 6, 2]", "gather_nd %x, %i {batch_dims = 1}", "f32[2, 6, 5]"},
      {"%x: f32[3, 4], %i: i64[3]", "gather_nd %x, %i", "last size of indices: found 3, expected at most 2"},
      {"%x: f32[3, 4], %i: i64[2, 0]", "gather_nd %x, %i", "f32[2, 3, 4]"},
      {"%x: f32[8, 4], %i: i64[2, 1], %u: f32[2, 4]", "scatter_nd %x, %i, %u", "f32[8, 4]"},
      {"%x: f32[8, 4], %i: i64[2, 1], %u: f32[2, 3]", "scatter_nd %x, %i, %u", "updates, axis 1: found 3, expected 4"},
      {"%x: f32[8, 4], %i: i64[2, 4], %u: f32[2, 3]", "scatter %x, %i, %u {axis = 0}", "updates, axis 1: found 3, expected 4"},
      {"%x: f32[2, 3]", "nonzero %x", "i64[u0, 2]"},
      {"%x: f32[2, 3], %m: bool[3]", "masked_select %x, %m", "f32[u0]"},
      {"%x: i64[2, 3]", "unique %x", "i64[u0], i64[u0], i64[2, 3], i64[u0]"},
      {"%x: f32[6, 4], %s: i64[2]", "dynamic_reshape %x, %s {rank = 2}", "f32[u0, u1]"},
      {"%x: f32[6, s0], %s: i64[2]", "dynamic_reshape %x, %s {rank = 2, hint = [-1, 3]}", "f32[s0 * 2, 3]"},
      {"%x: f32[6, 4], %s: i64[3]", "dynamic_reshape %x, %s {rank = 2}", "length of shape: found 3, expected 2"},
      {"%x: f32[6, 4], %s: i64[2]", "dynamic_reshape %x, %s {rank = 2, hint = [5, -1]}", "a divisor of 24 elements"},
      {"%x: f32[3, 1], %s: i64[3]", "dynamic_broadcast_to %x, %s {rank = 3}", "f32[u0, 3, u1]"},
      {"%x: f32[3, 4], %a: i64[], %b: i64[]", "dynamic_slice %x, %a, %b {sizes = [2, 4]}", "f32[2, 4]"},
      {"%x: f32[3, 4], %a: i64[]", "dynamic_slice %x, %a {sizes = [2, 4]}", "starts: found 1 of them, expected 2, one per dimension of x"},
      {"%x: f32[3, 4]", "topk %x {k = 5}", "attribute 'k': found 5, expected 0 to the size of axis 1, 4"},
      {"%s: f32[2, 8], %v: f32[3, 4]", "searchsorted %s, %v", "values, axis 0: found 3, expected 2"},
      {"%i: i32[4]", "one_hot %i {depth = s0, axis = 0, dtype = bool}", "bool[s0, 4]"},
      {"%s: u64[2]", "random_int %s {shape = [2], low = 3, high = 3}", "low below high"},
      {"%s: u64[2]", "random_uniform %s {shape = [2], dtype = i32}", "a float dtype"},
  });
}

TEST_CASE("shapes of composites") {
  check_cases({
      {"%q: f32[2, 8, 5, 4], %k: f32[2, 2, 7, 4], %v: f32[2, 2, 7, 3]", "attention %q, %k, %v, _", "f32[2, 8, 5, 3]"},
      {"%q: f32[2, 8, 5, 4], %k: f32[2, 3, 7, 4], %v: f32[2, 3, 7, 3]", "attention %q, %k, %v, _", "q, axis 1: found 8, expected a multiple of the key heads, 3"},
      {"%q: f32[2, 8, 5, 4], %k: f32[1, 2, 7, 4], %v: f32[1, 2, 7, 3]", "attention %q, %k, %v, _", "k, axis 0: found 1, expected 2"},
      {"%q: f32[s0, 8, s1, 4], %k: f32[s0, 8, s2, 4], %v: f32[s0, 8, s2, 4], %m: bool[s1, s2]", "attention %q, %k, %v, %m", "f32[s0, 8, s1, 4]"},
      {"%q: f32[8, 5, 4], %k: f32[8, 7, 4], %v: f32[8, 7, 4], %m: f32[5, 6]", "attention %q, %k, %v, %m", "a shape that broadcasts to the scores [8, 5, 7]"},
      {"%q: f32[8, 5, 4], %k: f32[8, 7, 4], %v: f32[8, 7, 4], %m: i32[5, 7]", "attention %q, %k, %v, %m", "mask: found i32, expected bool or f32"},
      {"%x: f32[2, 3, 4], %w: f32[3, 4]", "layer_norm %x, %w, _ {axis = 1}", "f32[2, 3, 4]"},
      {"%x: f32[2, 3, 4], %w: f32[3]", "layer_norm %x, %w, _ {axis = 1}", "weight: found rank 1 ([3]), expected rank 2"},
      {"%x: f32[2, 6, 4]", "group_norm %x, _, _ {groups = 4}", "channels of x: found 6, expected a multiple of groups 4"},
      {"%x: f32[4, 5, 3], %t: i64[4, 3]", "cross_entropy %x, %t, _ {reduction = \"none\"}", "f32[4, 3]"},
      {"%x: f32[4, 5, 3], %t: i64[4, 3]", "cross_entropy %x, %t, _", "f32[]"},
      {"%x: f32[4, 5], %t: i64[4]", "cross_entropy %x, %t, _ {label_smoothing = 1.5}", "a number in [0, 1]"},
      {"%x: f32[1, 2, 8, 7]", "interpolate %x {output = [16, s0]}", "f32[1, 2, 16, s0]"},
      {"%x: f32[4]", "dropout %x, %x", "TSR-I031"},
  });
}

TEST_CASE("regions of control flow are checked") {
  const auto error = [](const std::string& text) {
    try {
      parse(text);
      return std::string();
    } catch (const Error& e) {
      return e.code() + " " + e.message();
    }
  };
  const std::string head = "graph @g(%p: bool[], %x: f32[4]) {\n";
  CHECK(error(head + "%r = cond %p, %x\n region(%a: f32[4]) { %n = neg %a\n return %n }\n region(%b: f32[4]) { return %b }\n return %r }") == "");
  CHECK_THAT(error(head + "%r = cond %p, %x\n region(%a: f32[4]) { %n = neg %a\n return %n }\n region(%b: f32[4]) { return }\n return %r }"),
             Catch::Contains("the else region's outputs: found 0, expected 1"));
  CHECK_THAT(error(head + "%r = cond %p, %x\n region(%a: f32[3]) { return %a }\n region(%b: f32[4]) { return %b }\n return %r }"),
             Catch::Contains("TSR-I207") && Catch::Contains("the then region's input 0: found f32[3], expected f32[4]"));
  CHECK_THAT(error(head + "%r = while_loop %x {carried = 1}\n region(%a: f32[4]) { return %a }\n region(%b: f32[4]) { return %b }\n return %r }"),
             Catch::Contains("the condition region's output: found f32[4], expected bool[]"));
  CHECK_THAT(error(head + "%r, %s = scan %x, %x {carried = 1, scanned = 1, length = 5}\n region(%a: f32[4], %b: f32[]) { return %a, %b }\n return %r }"),
             Catch::Contains("args[1], axis 0: found 4, expected 5"));
  const auto g = parse(head + "%r, %s = scan %x, %x {carried = 1, scanned = 1, length = 4}\n region(%a: f32[4], %b: f32[]) { %c = add %a, %b\n return %c, %c }\n return %r, %s }");
  CHECK(print_type(*g, *g->value(g->region(0).outputs[0]).type) == "f32[4]");
  CHECK(print_type(*g, *g->value(g->region(0).outputs[1]).type) == "f32[4, 4]");
}

// clang-format on

// Result 0 of a view op as strides over operand 0, or "copy".
std::string view_text(const std::string& op, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                      std::vector<int64_t> out_sizes, std::vector<tsr_attr> attrs, uint32_t dtype = TSR_F32) {
  static char memory[4096];
  tsr_tensor in{};
  in.data = memory;
  in.dtype = dtype;
  in.rank = static_cast<uint32_t>(sizes.size());
  in.sizes = sizes.data();
  in.strides = strides.data();
  tsr_tensor out = in;
  out.rank = static_cast<uint32_t>(out_sizes.size());
  out.sizes = out_sizes.data();
  std::vector<int64_t> found(out_sizes.size() + 1);
  std::sort(attrs.begin(), attrs.end(), [](const tsr_attr& a, const tsr_attr& b) { return std::string(a.name) < b.name; });
  tsr_call call{};
  call.struct_size = sizeof call;
  call.op = op.c_str();
  call.attrs = attrs.data();
  call.num_attrs = static_cast<uint32_t>(attrs.size());
  const tsr_op_impl& impl = *standard_ops().get(op).impl;
  if (!impl.view(impl.self, &call, &in, &out, found.data())) return "copy";
  std::string s = "+" + std::to_string((static_cast<char*>(out.data) - memory) / (dtype_bits(dtype) / 8)) + " [";
  for (size_t i = 0; i < out_sizes.size(); ++i) s += (i ? ", " : "") + std::to_string(found[i]);
  return s + "]";
}

TEST_CASE("views know their strides, or that they are copies") {
  using V = std::vector<int64_t>;
  const V none, one = {1}, swapped = {1, 0}, starts = {1, 2}, steps = {2, 3}, back = {-1, 1}, deep = {1, 5};
  const auto ints = [](const char* name, const V& v) { return sdk::attr_ints(name, v); };
  CHECK(view_text("reshape", {4, 6}, {6, 1}, {2, 12}, {}) == "+0 [12, 1]");
  CHECK(view_text("reshape", {4, 6}, {12, 1}, {2, 2, 3, 2}, {}) == "+0 [24, 12, 2, 1]");
  CHECK(view_text("reshape", {4, 6}, {12, 1}, {24}, {}) == "copy");
  CHECK(view_text("reshape", {4, 6}, {1, 4}, {4, 2, 3}, {}) == "+0 [1, 12, 4]");
  CHECK(view_text("reshape", {4, 1, 6}, {12, 77, 1}, {4, 6, 1}, {}) == "+0 [12, 1, 1]");
  CHECK(view_text("reshape", {0, 6}, {99, 3}, {3, 0}, {}) == "+0 [1, 1]");
  CHECK(view_text("reshape", {4, 3}, {0, 1}, {2, 2, 3}, {}) == "+0 [0, 0, 1]");
  CHECK(view_text("transpose", {4, 6}, {6, 1}, {6, 4}, {ints("perm", swapped)}) == "+0 [1, 6]");
  CHECK(view_text("transpose", {4, 6}, {6, 1}, {6, 4}, {ints("perm", swapped)}, TSR_I4) == "copy");
  CHECK(view_text("expand_dims", {4, 6}, {6, 1}, {4, 1, 6}, {ints("axes", one)}) == "+0 [6, 6, 1]");
  CHECK(view_text("squeeze", {4, 1, 6}, {6, 9, 1}, {4, 6}, {ints("axes", one)}) == "+0 [6, 1]");
  CHECK(view_text("broadcast_to", {4, 1}, {1, 1}, {2, 4, 3}, {}) == "+0 [0, 1, 0]");
  CHECK(view_text("slice", {8, 8}, {8, 1}, {4, 2}, {ints("starts", starts), ints("strides", steps)}) == "+10 [16, 3]");
  CHECK(view_text("slice", {8, 8}, {8, 1}, {4, 2}, {ints("starts", starts), ints("strides", back)}) == "copy");
  CHECK(view_text("as_strided", {4, 5}, {5, 1}, {2, 2}, {ints("strides", deep), sdk::attr_dim("offset", 3)}) == "+3 [1, 5]");
  CHECK(view_text("as_strided", {4, 5}, {1, 4}, {2, 2}, {ints("strides", deep), sdk::attr_dim("offset", 3)}) == "copy");
  CHECK(view_text("diagonal", {4, 5}, {5, 1}, {3},
                  {sdk::attr_int("offset", 2), sdk::attr_int("axis1", 0), sdk::attr_int("axis2", -1)}) == "+2 [6]");
  CHECK(view_text("diagonal", {4, 5}, {5, 1}, {2},
                  {sdk::attr_int("offset", -2), sdk::attr_int("axis1", 0), sdk::attr_int("axis2", 1)}) == "+10 [6]");
}

// flops, bytes read and written of the first node.
std::string cost_text(const std::string& inputs, const std::string& node) {
  const auto g = parse("graph @g(" + inputs + ") {\n  %r = " + node + "\n  return %r\n}\n");
  const tsr_id id = g->region(0).first;
  const CallView view(*g, id);
  const tsr_op_impl& impl = *g->record_of(id).impl;
  tsr_cost c{};
  c.struct_size = sizeof c;
  throw_if(impl.cost(impl.self, &view.call(), &c));
  std::ostringstream s;
  s << c.flops << " " << c.bytes_read << " " << c.bytes_written;
  return s.str();
}

TEST_CASE("costs count operations and bytes") {
  CHECK(cost_text("%a: f32[3, 4], %b: f32[4, 5]", "matmul %a, %b") == "120 128 60");
  CHECK(cost_text("%a: f16[2, 3, 4], %b: f16[2, 4, 5]",
                  "dot_general %a, %b {lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1], "
                  "out_dtype = f32}") == "240 128 120");
  CHECK(cost_text("%x: f32[10, 4], %w: f32[5, 4], %b: f32[5]", "linear %x, %w, %b") == "450 260 200");
  CHECK(cost_text("%x: f32[1, 4, 8], %w: f32[6, 2, 3]",
                  "conv %x, %w, _ {strides = [1], pad_low = [0], pad_high = [0], dilations = [1], groups = 2}") ==
        "432 272 144");
  CHECK(cost_text("%x: f32[2, 3], %y: f32[3]", "add %x, %y") == "6 36 24");
  CHECK(cost_text("%x: f32[2, 3], %y: f32[3]", "lt %x, %y") == "6 36 6");
  CHECK(cost_text("%x: f32[2, 3]", "cast %x {dtype = f64}") == "6 24 48");
  CHECK(cost_text("%x: f32[2, 3]", "reduce_sum %x {axes = [1]}") == "6 24 8");
  CHECK(cost_text("%q: f32[2, 5, 4], %k: f32[2, 7, 4], %v: f32[2, 7, 4]", "attention %q, %k, %v, _") == "1470 608 160");
}

TEST_CASE("composites and gradients build over symbolic sizes") {
  // clang-format off
  const char* graphs[] = {
      "(%x: f32[s0, s1]) { %r = softmax %x return %r }",
      "(%x: f16[s0, s1]) { %r = log_softmax %x {axis = 0} return %r }",
      "(%x: bf16[s0, s1], %w: bf16[s1], %b: bf16[s1]) { %r = layer_norm %x, %w, %b return %r }",
      "(%x: bf16[s0, s1], %w: bf16[s1]) { %r = rms_norm %x, %w return %r }",
      "(%x: f32[s0, 6, s1]) { %r = group_norm %x, _, _ {groups = 3} return %r }",
      "(%x: f32[s0, s1, s2], %m: f32[s1], %v: f32[s1]) { %r = batch_norm %x, _, _, %m, %v return %r }",
      "(%x: f32[s0, s1, s2], %m: f32[s1], %v: f32[s1]) { %r, %a, %b = batch_norm_training %x, _, _, %m, %v return %r, %a, %b }",
      "(%q: f16[s0, 8, s1, 16], %k: f16[s0, 2, s2, 16], %m: bool[s1, s2]) { %r = attention %q, %k, %k, %m {causal = true} return %r }",
      "(%q: f32[s0, s1, s3], %k: f32[s0, s2, s3]) { %r = attention %q, %k, %k, _ return %r }",
      "(%w: f32[s0, s1], %i: i32[s2, 3]) { %r = embedding %w, %i return %r }",
      "(%x: f32[s0, s1, s2], %t: i64[s0, s2], %w: f32[s1]) { %r = cross_entropy %x, %t, %w {label_smoothing = 0.1} return %r }",
      "(%x: f32[s0, s1]) { %r = mse_loss %x, %x return %r }",
      "(%x: f16[s0, s1], %s: u64[2]) { %r, %n = dropout %x, %s return %r, %n }",
      "(%x: f32[s0, s1, s2, s3]) { %r = interpolate %x {output = [s2 * 2, s3 + 1], mode = \"linear\"} return %r }",
      "(%x: f32[s0, s1, s2, s3]) { %r = interpolate %x {output = [s2 * 2, 7]} return %r }",
      "(%x: f32[s0, 3, s1, 32]) { %r = adaptive_avg_pool %x {output = [1, 5]} return %r }",
      "(%x: f32[s0, 3, s1]) { %r, %i = adaptive_max_pool %x {output = [4]} return %r, %i }",
      "(%x: f32[s0, s1, 4], %y: f32[s0, 4, s2]) { %r = matmul %x, %y return %r }",
      "(%x: f32[s0, 1, s1, 4], %y: f32[s2, 4, s3]) { %r = matmul %x, %y return %r }",
      "(%x: f32[s0, s1, 4], %w: f32[5, 4], %b: f32[5]) { %r = linear %x, %w, %b return %r }",
      "(%a: f32[s0, s1, 4], %b: f32[4, s0, s2]) { %r = dot_general %a, %b {lhs_batch = [0], rhs_batch = [1], lhs_contract = [2], rhs_contract = [0]} return %r }",
      "(%x: f32[s0, s1]) { %r = mean %x {axes = [0]} return %r }",
      "(%x: f32[s0, s1]) { %r = variance %x {axes = [0, 1]} return %r }",
      "(%x: f32[s0, s1]) { %r = logsumexp %x {axes = [1], keepdims = true} return %r }",
      "(%x: f32[s0, s1]) { %r = norm %x {axes = [1], p = 3.0} return %r }",
      "(%x: f32[s0, 3, s1]) { %r = sum_to %x {shape = [1, s1]} return %r }",
      "(%x: f32[s0, 3]) { %r = tile %x {repeats = [2, 3]} return %r }",
      "(%x: f32[s0, s1]) { %r = roll %x {shifts = [-2], axes = [1]} return %r }",
      "(%x: f32[s0, s1]) { %r = roll %x {shifts = [5], axes = []} return %r }",
      "(%x: f32[s0, s1, s1]) { %r = diagonal %x {axis1 = 1, axis2 = 2} return %r }",
      "(%x: f32[s0, s1]) { %r = stack %x, %x {axis = 1} return %r }",
      "(%x: f32[s0 + s1, 3]) { %r, %q = split %x {sizes = [s0, s1], axis = 0} return %r, %q }",
      "(%x: f32[s0, s1]) { %r = tril %x return %r }",
      "(%i: i64[s0]) { %r = one_hot %i {depth = s1} return %r }",
      "(%x: f32[s0, s1]) { %r = gelu %x return %r }",
      "(%x: f32[s0, s1]) { %r = mish %x return %r }",
      // gradients of primitives
      "(%x: f32[s0, s1], %y: f32[1, s1]) { %r = mul %x, %y return %r }",
      "(%x: f32[s0, s1], %y: f32[s1]) { %r = clamp %x, %y, %y return %r }",
      "(%x: f32[s0, s1]) { %r = reduce_max %x {axes = [1]} return %r }",
      "(%x: f32[s0, s1]) { %r = reduce_prod %x {axes = [0]} return %r }",
      "(%x: f32[s0, s1]) { %r = slice %x {starts = [1, 0], limits = [s0, s1], strides = [2, 1]} return %r }",
      "(%x: f32[s0, s1]) { %r = pad %x, _ {low = [1, s1], high = [0, 2]} return %r }",
      "(%x: f32[s0, s1]) { %r = pad %x, _ {low = [1, 1], high = [0, 1], mode = \"reflect\"} return %r }",
      "(%x: f32[s0, s1], %y: f32[s2, s1]) { %r = concat %x, %y {axis = 0} return %r }",
      "(%x: f32[s0, s1, s2], %i: i64[s3]) { %r = gather %x, %i {axis = 1} return %r }",
      "(%x: f32[s0, s1], %m: bool[s1]) { %r = masked_select %x, %m return %r }",
      "(%x: f32[s0, 4, s1, s2], %w: f32[8, 2, 3, 3]) { %r = conv %x, %w, _ {strides = [2, 1], pad_low = [1, 0], pad_high = [1, 0], dilations = [1, 2], groups = 2} return %r }",
      "(%x: f32[s0, 4, s1], %w: f32[4, 3, 3]) { %r = conv_transpose %x, %w, _ {strides = [2], pad_low = [1], pad_high = [1], output_pad = [1], dilations = [1], groups = 2} return %r }",
      "(%x: f32[s0, 4, s1]) { %r, %i = max_pool %x {kernel = [3], strides = [2], pad_low = [1], pad_high = [1], dilations = [1], ceil_mode = true} return %r, %i }",
      "(%x: f32[s0, 4, s1]) { %r = avg_pool %x {kernel = [3], strides = [2], pad_low = [1], pad_high = [1], dilations = [1], ceil_mode = true} return %r }",
  };
  // clang-format on
  for (const char* text : graphs) {
    INFO(text);
    auto g = parse(std::string("graph @g") + text);
    g->begin("test");
    REQUIRE_NOTHROW(differentiate(*g));
    REQUIRE_NOTHROW(decompose_all(*g));
    REQUIRE_NOTHROW(g->commit());
    REQUIRE_NOTHROW(verify(*g));
  }
  // The values themselves, without gradients in the way.
  for (const char* text : graphs) {
    INFO(text);
    auto g = parse(std::string("graph @g") + text);
    g->begin("test");
    REQUIRE_NOTHROW(decompose_all(*g));
    REQUIRE_NOTHROW(g->commit());
    REQUIRE_NOTHROW(verify(*g));
  }
}

TEST_CASE("the mapping tables name ops of the set") {
  for (const char* name : {"aten_mapping.md", "onnx_mapping.md"}) {
    std::istringstream lines(read(tessera::test::source_dir() + "/docs/" + name));
    int rows = 0;
    for (std::string line; std::getline(lines, line);) {
      // | operator | `op`, `op` | remark |
      const size_t first = line.find('|', 1);
      if (line.rfind("| ", 0) != 0 || first == line.npos) continue;
      const std::string ops = line.substr(first + 1, line.find('|', first + 1) - first - 1);
      INFO(name << ": " << line);
      for (size_t at = ops.find('`'); at != ops.npos; at = ops.find('`', at + 1)) {
        const size_t end = ops.find('`', at + 1);
        CHECK(standard_ops().find(ops.substr(at + 1, end - at - 1)));
        ++rows;
        at = end;
      }
    }
    CHECK(rows > 150);
  }
}

}  // namespace
}  // namespace tessera::core::opset_test
