// SPDX-License-Identifier: Apache-2.0
#include "signature.hpp"

#include <algorithm>
#include <optional>

#include "tessera/dtypes.hpp"
#include "tessera/sizes.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

ValueInfo describe(const tsr_value& v) {
  ValueInfo out;
  out.name = v.name;
  out.key = v.key ? v.key : "";
  out.kind = v.input_kind;
  out.donated = v.donated != 0;
  out.dtype = v.type->dtype;
  out.device = v.type->device;
  out.sizes.assign(v.type->sizes, v.type->sizes + v.type->rank);
  if (v.type->strides) out.strides.assign(v.type->strides, v.type->strides + v.type->rank);
  return out;
}

// Floor semantics of the IR's sizes; null: overflow or division by zero.
std::optional<int64_t> apply(uint32_t op, int64_t a, int64_t b) {
  int64_t r = 0;
  switch (op) {
    case TSR_DIM_ADD: return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case TSR_DIM_SUB: return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case TSR_DIM_MUL: return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
    case TSR_DIM_FLOORDIV:
    case TSR_DIM_MOD: {
      if (b == 0 || (a == INT64_MIN && b == -1)) return std::nullopt;
      const bool inexact = a % b != 0 && (a < 0) != (b < 0);
      return op == TSR_DIM_FLOORDIV ? a / b - inexact : a % b + (inexact ? b : 0);
    }
    case TSR_DIM_MIN: return std::min(a, b);
    case TSR_DIM_MAX: return std::max(a, b);
    default: return std::nullopt;
  }
}

}  // namespace

Signature::Signature(const tsr_tables& t) : graph(t.name ? t.name : "") {
  const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  const auto value = [&](tsr_id id) { return describe(*TSR_AT(tsr_value, t.values, t.value_stride, id)); };
  for (uint32_t i = 0; i < body.num_inputs; ++i) inputs.push_back(value(body.inputs[i]));
  const std::vector<std::string> names = embed::output_names(t);
  for (uint32_t i = 0; i < body.num_outputs; ++i) {
    ValueInfo v = value(body.outputs[i]);
    v.name = names[i];
    v.key.clear();
    v.kind = TSR_INPUT_NONE;
    outputs.push_back(std::move(v));
  }
  for (size_t i = 0; i < t.num_symbols; ++i) {
    const tsr_symbol& s = *TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, i);
    symbols.push_back({s.name, s.min, s.max, s.hint, s.unbacked != 0});
  }
  for (size_t i = 0; i < t.num_exprs; ++i) exprs_.push_back(*TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, i));
}

const ValueInfo* Signature::find(std::string_view name) const {
  const ValueInfo* found = nullptr;
  int best = 3;
  for (const ValueInfo& v : inputs) {
    // What is called so outside of the graph, before what has the name inside of it alone.
    const int rank = v.label() != name ? (v.name == name ? 2 : 3) : v.kind == TSR_INPUT_ARG || v.key.empty() ? 0 : 1;
    if (rank < best) best = rank, found = &v;
  }
  return found;
}

std::vector<std::string> Signature::labels() const {
  std::vector<std::string> out;
  for (const ValueInfo& v : inputs) out.push_back(v.label());
  return out;
}

std::string Signature::dim_text(tsr_dim d) const {
  struct Text {
    std::string text;
    bool sum;
  };
  const auto expr = [this](uint32_t id) -> const tsr_dim_expr& { return exprs_[id]; };
  const auto leaf = [&](tsr_dim x) {
    return Text{TSR_DIM_IS_EXPR(x) ? symbols[expr(TSR_DIM_EXPR_ID(x)).symbol].name : std::to_string(x), false};
  };
  const auto combine = [](uint32_t op, const Text& a, const Text& b) {
    constexpr size_t kReadable = 400;  // characters of an operand that are repeated
    const auto part = [](const Text& x, bool factor) {
      if (x.text.size() > kReadable) return std::string("...");
      return x.sum && factor ? "(" + x.text + ")" : x.text;
    };
    const auto call = [&](const char* f) { return Text{f + ("(" + part(a, false) + ", " + part(b, false) + ")"), false}; };
    switch (op) {
      case TSR_DIM_ADD:
        if (b.text[0] == '-' && !b.sum && b.text.find_first_not_of("0123456789", 1) == std::string::npos)
          return Text{part(a, false) + " - " + b.text.substr(1), true};
        return Text{part(a, false) + " + " + part(b, false), true};
      case TSR_DIM_SUB: return Text{part(a, false) + " - " + part(b, true), true};
      case TSR_DIM_MUL: return Text{part(a, true) + " * " + part(b, true), false};
      case TSR_DIM_FLOORDIV: return call("floordiv");
      case TSR_DIM_MOD: return call("mod");
      case TSR_DIM_MIN: return call("min");
      default: return call("max");
    }
  };
  return sdk::fold_size<Text>(d, expr, leaf, combine).text;
}

std::string Signature::type_text(const ValueInfo& v) const {
  std::string out(dtype_name(v.dtype));
  out += "[";
  for (size_t i = 0; i < v.sizes.size(); ++i) out += (i ? ", " : "") + dim_text(v.sizes[i]);
  for (size_t i = 0; i < v.strides.size(); ++i) out += (i ? ", " : "; ") + dim_text(v.strides[i]);
  out += "]";
  if (v.device != 0) out += "@" + embed::device_name(v.device);
  return out;
}

std::optional<int64_t> Signature::value_of(tsr_dim d, const std::vector<int64_t>& values) const {
  using Value = std::optional<int64_t>;
  const auto expr = [this](uint32_t id) -> const tsr_dim_expr& { return exprs_[id]; };
  const auto leaf = [&](tsr_dim x) -> Value { return TSR_DIM_IS_EXPR(x) ? values[expr(TSR_DIM_EXPR_ID(x)).symbol] : x; };
  return sdk::fold_size<Value>(d, expr, leaf,
                               [](uint32_t op, Value a, Value b) { return a && b ? apply(op, *a, *b) : std::nullopt; });
}

int64_t Signature::evaluate(tsr_dim d, const std::vector<int64_t>& values, const std::string& what) const {
  const std::optional<int64_t> v = value_of(d, values);
  if (v && *v >= 0) return *v;
  std::string known;
  for (size_t i = 0; i < symbols.size(); ++i) known += (i ? ", " : "") + symbols[i].name + " = " + std::to_string(values[i]);
  throw usage_error("TSR-U006",
                    what + ": the size " + dim_text(d) +
                        (v ? " is " + std::to_string(*v) + ", expected at least 0" : " has no value") + " with " + known,
                    "choose other sizes with --dim NAME=SIZE");
}

std::vector<int64_t> Signature::evaluate(const std::vector<tsr_dim>& dims, const std::vector<int64_t>& values,
                                         const std::string& what) const {
  std::vector<int64_t> out;
  for (const tsr_dim d : dims) out.push_back(evaluate(d, values, what));
  return out;
}

std::vector<int64_t> Signature::bind(const std::map<size_t, std::vector<int64_t>>& shapes,
                                     const std::map<std::string, int64_t>& given) const {
  struct Source {
    int64_t value = 0;
    std::string from;  // empty: none yet
  };
  std::vector<Source> bound(symbols.size());
  const auto set = [&](size_t symbol, int64_t value, const std::string& from) {
    const SymbolInfo& s = symbols[symbol];
    if (value < s.min || value > s.max)
      throw usage_error("TSR-U005",
                        from + ": size " + s.name + " is " + std::to_string(value) + ", expected " + std::to_string(s.min) +
                            ".." + (s.max == INT64_MAX ? "" : std::to_string(s.max)),
                        "the model declares this range");
    Source& b = bound[symbol];
    if (!b.from.empty() && b.value != value)
      throw usage_error("TSR-U006",
                        from + ": size " + s.name + " is " + std::to_string(value) + ", but " + b.from + " makes it " +
                            std::to_string(b.value),
                        "sizes of one name must agree");
    if (b.from.empty()) b = {value, from};
  };

  std::vector<std::string> names;
  for (const SymbolInfo& s : symbols)
    if (!s.unbacked) names.push_back(s.name);
  for (const auto& [name, value] : given) {
    const auto at =
        std::find_if(symbols.begin(), symbols.end(), [&](const SymbolInfo& s) { return s.name == name && !s.unbacked; });
    if (at == symbols.end())
      throw usage_error("TSR-U006", "--dim " + name + ": the model has no size of that name" + did_you_mean(name, names),
                        names.empty() ? "all of its sizes are numbers" : "its sizes: " + join(names));
    set(static_cast<size_t>(at - symbols.begin()), value, "--dim " + name);
  }
  for (const auto& [index, shape] : shapes) {
    const ValueInfo& in = inputs[index];
    if (shape.size() != in.sizes.size())
      throw usage_error("TSR-U006",
                        "input " + quote(in.label()) + ": found rank " + std::to_string(shape.size()) + ", expected " +
                            type_text(in) + ", rank " + std::to_string(in.sizes.size()),
                        "reshape the array in the input file");
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const std::string where = "input " + quote(in.label()) + ", axis " + std::to_string(axis);
      const tsr_dim d = in.sizes[axis];
      if (!TSR_DIM_IS_EXPR(d)) {
        if (d != shape[axis])
          throw usage_error("TSR-U006",
                            where + ": found size " + std::to_string(shape[axis]) + ", expected " + std::to_string(d) + " of " +
                                type_text(in),
                            "give the array the model's shape");
      } else if (const tsr_dim_expr& e = exprs_[TSR_DIM_EXPR_ID(d)]; e.op == TSR_DIM_SYMBOL) {
        set(e.symbol, shape[axis], where);
      }
    }
  }
  std::vector<int64_t> values;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const SymbolInfo& s = symbols[i];
    if (!bound[i].from.empty())
      values.push_back(bound[i].value);
    else
      values.push_back(s.hint >= 0
                           ? s.hint
                           : std::clamp<int64_t>(8, std::max<int64_t>(s.min, 0), std::max(s.max, std::max<int64_t>(s.min, 0))));
  }
  return values;
}

}  // namespace tessera::command
