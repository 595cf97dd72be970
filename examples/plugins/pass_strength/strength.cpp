// SPDX-License-Identifier: Apache-2.0
// Strength reduction that keeps every bit: a costly op becomes a cheaper one where both round to the same number.
#include <cmath>
#include <optional>

#include <tessera/dtypes.hpp>
#include <tessera/plugin.hpp>

namespace {

namespace t = tessera::sdk;

// The value that every element of a constant has, if it is one number.
std::optional<double> splat(t::Value v) {
  if (!v || !v.def() || !v.def().is("constant")) return std::nullopt;
  const tsr_tensor& c = v.def().attr("value").as_tensor();
  int64_t n = 1;
  for (uint32_t d = 0; d < c.rank; ++d) n *= c.sizes[d];
  if (n == 0 || n > 4096 || tessera::is_complex(c.dtype)) return std::nullopt;
  const double first = tessera::load_as<double>(c.dtype, c.data, 0);
  for (int64_t i = 1; i < n; ++i)
    if (tessera::load_as<double>(c.dtype, c.data, i) != first) return std::nullopt;
  return first;
}

// x / c equals x * (1 / c) exactly when both c and 1 / c are the dtype's: then the two are one real number, rounded once. That
// holds for powers of two, as far as their reciprocals are normal.
bool has_exact_reciprocal(double c, uint32_t dtype) {
  int exponent = 0;
  if (!std::isfinite(c) || std::abs(std::frexp(c, &exponent)) != 0.5) return false;
  double stored = 0;
  tessera::store_from(TSR_F64, &stored, 0, 1 / c);
  unsigned char bytes[16] = {};
  tessera::store_from(dtype, bytes, 0, 1 / c);
  return std::isfinite(1 / c) && tessera::load_as<double>(dtype, bytes, 0) == stored;
}

// A 0-d constant, which broadcasts.
t::Value scalar(t::Graph g, t::Graph::At at, uint32_t dtype, double value) {
  unsigned char bytes[16] = {};
  tessera::store_from(dtype, bytes, 0, value);
  tsr_tensor c{};
  c.data = bytes;
  c.dtype = dtype;
  c.flags = TSR_TENSOR_CONTIGUOUS;
  return g.constant(at, c);
}

struct Rule {
  const char* name;
  const char* op;
  t::Value (*apply)(t::Graph, t::Node);  // the replacement of result 0, or none
};

// A constant of a larger shape broadcasts the result: the other operand must have the result's type.
bool keeps_type(t::Node n, t::Value v) { return v.raw().type == n.result().raw().type; }

t::Value double_is_sum(t::Graph g, t::Node n) {
  for (uint32_t i = 0; i < 2; ++i)
    if (const t::Value x = n.operand(i); keeps_type(n, x) && splat(n.operand(1 - i)) == 2.0)
      return g.op(t::Graph::before(n), "add", {x, x});
  return g.none();
}

t::Value division_is_product(t::Graph g, t::Node n) {
  const uint32_t dtype = n.result().type().dtype();
  const auto c = splat(n.operand(1));
  if (!tessera::is_float(dtype) || !c || !keeps_type(n, n.operand(0)) || !has_exact_reciprocal(*c, dtype)) return g.none();
  const auto at = t::Graph::before(n);
  return g.op(at, "mul", {n.operand(0), scalar(g, at, dtype, 1 / *c)});
}

const Rule rules[] = {
    {"mul-two", "mul", double_is_sum},                 // x * 2 -> x + x
    {"div-power-of-two", "div", division_is_product},  // x / 2^k -> x * 2^-k, floats
};

tsr_error* apply(void* self, tsr_graph* graph, tsr_id id, int* changed) noexcept {
  return t::guarded([&] {
    const t::Graph g(graph);
    const t::Node n = g.node(id);
    const t::Value v = static_cast<const Rule*>(self)->apply(g, n);
    if (!v) return;
    g.replace_uses(n.result(), v);
    g.erase(n);
    *changed = 1;
  });
}

class Strength final : public t::Pass {
  const char* summary() const override { return "replaces multiplications by two and divisions by powers of two"; }
  const char* ensures() const override { return "no mul by a constant 2, no float div by a constant power of two"; }
  bool run(t::Graph g, const t::Options&) override {
    std::vector<tsr_pattern> patterns;
    for (const Rule& r : rules) {
      tsr_pattern p{};
      p.name = r.name;
      p.op = r.op;
      p.self = const_cast<Rule*>(&r);
      p.apply = apply;
      patterns.push_back(p);
    }
    return g.rewrite(patterns);
  }
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("strength", std::make_unique<Strength>());
}
