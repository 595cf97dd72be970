// SPDX-License-Identifier: Apache-2.0
#include "ir/body.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "ir/graph.hpp"
#include "ir/op_callback.hpp"
#include "ir/printer.hpp"
#include "ir/reader.hpp"
#include "ir/records.hpp"
#include "ir/records_parser.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

struct BuildValue {
  enum Kind { kDim, kFloat, kBool, kString, kDtype, kList, kTensor } kind = kDim;
  int64_t i = 0;
  double f = 0;
  const char* s = nullptr;
  const tsr_tensor* tensor = nullptr;
  std::vector<BuildValue> list;
};

class BodyBuilder {
 public:
  BodyBuilder(Graph& g, tsr_id node, const Body& body, bool grad)
      : g_(g),
        node_(node),
        r_(g.record_of(node)),
        body_(body),
        grad_(grad),
        region_(g.node(node).parent),
        before_(grad ? TSR_NONE : node) {
    const tsr_node& n = g_.node(node);
    for (size_t d = 0; d < r_.operands.size(); ++d) {
      std::vector<tsr_id>& ids = values_[r_.operands[d].name];
      if (r_.operands[d].variadic)
        ids.assign(n.operands + d, n.operands + n.num_operands);
      else if (d < n.num_operands)
        ids.push_back(n.operands[d]);
      else
        ids.push_back(TSR_NONE);
      const DtypePattern& p = r_.operands[d].dtype;
      const tsr_id first = ids.empty() ? TSR_NONE : ids[0];
      if (first == TSR_NONE) continue;
      if (first_dtype_ == TSR_DTYPE_INVALID) first_dtype_ = g_.value(first).type->dtype;
      if (p.kind == DtypePattern::kVariable) dtypes_.try_emplace(p.name, g_.value(first).type->dtype);
    }
  }

  std::vector<tsr_id> run(std::span<const tsr_id> grad_results) {
    if (grad_) {
      for (size_t i = 0; i < r_.results.size() && i < grad_results.size(); ++i) {
        values_[r_.results[i].name] = {g_.node(node_).results[i]};
        const std::string d = "d" + r_.results[i].name;
        values_[d] = {grad_results[i]};
        if (grad_results[i] == TSR_NONE) zero_of_[d] = g_.node(node_).results[i];
      }
    }
    for (const BodyStatement& s : body_.statements) {
      line_ = s.line;
      try {
        statement(s);
      } catch (const Error& e) {
        if (e.code() == "TSR-O007") throw;
        fail(e.message(), e.hint());
      }
    }
    line_ = body_.line;
    std::vector<tsr_id> out;
    for (const BodyExpr& e : body_.returns) {
      if (e.kind == BodyExpr::kOmitted)
        out.push_back(TSR_NONE);
      else
        out.push_back(single(e.text));
    }
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const {
    throw bug("TSR-O007",
              r_.file + ":" + std::to_string(line_) + ": " + (grad_ ? "grad" : "decompose") + " of " + g_.describe(node_) +
                  ": " + what,
              hint.empty() ? "the record comes from plugin '" + r_.plugin + "'" : hint);
  }

  const std::vector<tsr_id>& values(const std::string& name) {
    // A gradient that is zero becomes a tensor only when the body needs it as one.
    if (auto z = zero_of_.find(name); z != zero_of_.end()) {
      const tsr_type type = *g_.value(z->second).type;
      zero_of_.erase(z);
      values_[name] = {filled(type)};
    }
    return values_.at(name);
  }

  tsr_id single(const std::string& name) {
    const auto& ids = values(name);
    if (ids.size() != 1) fail("%" + name + " is variadic: it can only be passed on to a variadic operand");
    return ids[0];
  }

  tsr_id filled(const tsr_type& type) {
    BuildValue zero;
    const tsr_id scalar = literal(zero, type.dtype);
    if (type.rank == 0) return scalar;
    tsr_attr shape{};
    shape.name = "shape";
    shape.kind = TSR_ATTR_DIMS;
    shape.count = type.rank;
    shape.ints = type.sizes;
    NodeSpec s;
    s.op = "full";
    s.operands = {scalar};
    s.attrs = {shape};
    return create(std::move(s));
  }

  tsr_id create(NodeSpec s) {
    s.loc = g_.node(node_).loc;
    const tsr_id made = g_.create_node(s, region_, before_);
    return g_.node(made).num_results ? g_.node(made).results[0] : TSR_NONE;
  }

  // A 0-d constant. Equal literals of one body share it.
  tsr_id literal(const BuildValue& v, uint32_t dtype) {
    alignas(16) char data[16] = {};
    switch (v.kind) {
      case BuildValue::kDim:
        if (TSR_DIM_IS_EXPR(v.i)) return symbolic(v.i, dtype);
        store_from(dtype, data, 0, v.i);
        break;
      case BuildValue::kFloat:
        if ((is_int(dtype) || is_bool(dtype)) && v.f != std::trunc(v.f))
          fail("the literal " + number(v.f) + " does not fit the dtype " + std::string(dtype_name(dtype)));
        store_from(dtype, data, 0, v.f);
        break;
      case BuildValue::kBool: store_from(dtype, data, 0, v.i != 0); break;
      default: fail("found a text or a list as an operand, expected a number");
    }
    const std::string key = std::to_string(dtype) + std::string(data, sizeof data);
    if (auto it = literals_.find(key); it != literals_.end()) return it->second;
    tsr_tensor t{};
    t.data = data;
    t.dtype = dtype;
    t.flags = TSR_TENSOR_CONTIGUOUS;
    tsr_attr value{};
    value.name = "value";
    value.kind = TSR_ATTR_TENSOR;
    value.tensor = &t;
    NodeSpec s;
    s.op = "constant";
    s.attrs = {value};
    return literals_[key] = create(std::move(s));
  }

  static std::string number(double v) {
    std::string s;
    append_float(s, v);
    return s;
  }

  // A size that is known at run time only.
  tsr_id symbolic(tsr_dim d, uint32_t dtype) {
    tsr_attr value{};
    value.name = "value";
    value.kind = TSR_ATTR_DIM;
    value.i = d;
    NodeSpec s;
    s.op = "dim_value";
    s.attrs = {value};
    const tsr_id size = create(std::move(s));
    if (dtype == TSR_I64) return size;
    tsr_attr to{};
    to.name = "dtype";
    to.kind = TSR_ATTR_DTYPE;
    to.i = dtype;
    NodeSpec c;
    c.op = "cast";
    c.operands = {size};
    c.attrs = {to};
    return create(std::move(c));
  }

  void statement(const BodyStatement& s) {
    const OpRecord& callee = g_.ops().get(s.op);
    NodeSpec spec;
    spec.op = s.op;
    // Two rounds: literals take their dtype from the tensors beside them.
    std::vector<std::pair<size_t, BuildValue>> literals;
    for (const BodyExpr& e : s.operands) {
      if (e.kind == BodyExpr::kValue) {
        const auto& ids = values(e.text);
        spec.operands.insert(spec.operands.end(), ids.begin(), ids.end());
      } else {
        if (e.kind != BodyExpr::kOmitted) literals.emplace_back(spec.operands.size(), evaluate(e));
        spec.operands.push_back(TSR_NONE);
      }
    }
    for (const auto& [at, value] : literals)
      spec.operands[at] = literal(value, literal_dtype(callee, spec.operands, at, value));
    while (spec.operands.size() < callee.operands.size() && callee.operands[spec.operands.size()].optional)
      spec.operands.push_back(TSR_NONE);
    for (const auto& [name, expr] : s.attrs) {
      const AttrDecl* decl = callee.attr(name);
      if (!decl) fail("op " + callee.name + " has no attribute '" + name + "'");
      tsr_attr a = attribute(evaluate(expr), *decl);
      a.name = decl->name.c_str();
      spec.attrs.push_back(a);
    }
    spec.result_names = s.results;
    spec.loc = g_.node(node_).loc;
    const tsr_id made = g_.create_node(spec, region_, before_);
    const tsr_node& n = g_.node(made);
    if (n.num_results != s.results.size() && !s.results.empty())
      fail("op " + callee.name + " gives " + std::to_string(n.num_results) + " results, the body names " +
           std::to_string(s.results.size()));
    for (size_t i = 0; i < s.results.size(); ++i) values_[s.results[i]] = {n.results[i]};
  }

  // The dtype that the callee's record asks for at this place; else the dtype of its first tensor operand; else of ours.
  uint32_t literal_dtype(const OpRecord& callee, const std::vector<tsr_id>& operands, size_t at, const BuildValue& v) const {
    auto decl = [&](size_t i) -> const OperandDecl& { return callee.operands[std::min(i, callee.operands.size() - 1)]; };
    auto type_of = [&](size_t i) { return g_.value(operands[i]).type->dtype; };
    if (!callee.operands.empty()) {
      const DtypePattern& p = decl(at).dtype;
      if (p.kind == DtypePattern::kConcrete) return p.dtype;
      if (p.kind == DtypePattern::kVariable)
        for (size_t i = 0; i < operands.size(); ++i)
          if (operands[i] != TSR_NONE && decl(i).dtype.kind == DtypePattern::kVariable && decl(i).dtype.slot == p.slot)
            return type_of(i);
    }
    if (v.kind == BuildValue::kBool) return TSR_BOOL;
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] != TSR_NONE) return type_of(i);
    if (first_dtype_ != TSR_DTYPE_INVALID) return first_dtype_;
    fail("the dtype of a literal operand cannot be told: there is no tensor operand");
  }

  // ---------------------------------------------------------------------------------------------------- expressions
  static BuildValue dim_value(tsr_dim d) {
    BuildValue v;
    v.i = d;
    return v;
  }
  static BuildValue dtype_value(uint32_t d) {
    BuildValue v;
    v.kind = BuildValue::kDtype;
    v.i = d;
    return v;
  }

  tsr_dim dim(const BuildValue& v) const {
    if (v.kind != BuildValue::kDim) fail("found something else where an integer or a size is needed");
    return v.i;
  }

  const tsr_type& type_of(const BodyExpr& value) {
    const tsr_id v = single(value.text);
    if (v == TSR_NONE) fail("%" + value.text + " is left out, its type is asked for");
    return *g_.value(v).type;
  }

  BuildValue evaluate(const BodyExpr& e) {
    BuildValue v;
    switch (e.kind) {
      case BodyExpr::kInt: v.i = e.i; break;
      case BodyExpr::kFloat:
        v.kind = BuildValue::kFloat;
        v.f = e.f;
        break;
      case BodyExpr::kBool:
        v.kind = BuildValue::kBool;
        v.i = e.i;
        break;
      case BodyExpr::kString:
        v.kind = BuildValue::kString;
        v.s = e.text.c_str();
        break;
      case BodyExpr::kTensor:
        v.kind = BuildValue::kTensor;
        v.tensor = e.tensor;
        break;
      case BodyExpr::kName: return dtype_value(dtype_named(e.text));
      case BodyExpr::kAttr: return from_attr(*g_.attr(node_, e.text));
      case BodyExpr::kList:
        v.kind = BuildValue::kList;
        for (const BodyExpr& item : e.args) {
          BuildValue x = evaluate(item);
          if (x.kind == BuildValue::kList)
            v.list.insert(v.list.end(), x.list.begin(), x.list.end());
          else
            v.list.push_back(std::move(x));
        }
        break;
      case BodyExpr::kSum:
      case BodyExpr::kDifference:
      case BodyExpr::kProduct: return arithmetic(e);
      case BodyExpr::kCall: return call(e);
      case BodyExpr::kValue:
      case BodyExpr::kOmitted: fail("found a tensor where an attribute's value is needed");
    }
    return v;
  }

  uint32_t dtype_named(const std::string& name) const {
    if (auto it = dtypes_.find(name); it != dtypes_.end()) return it->second;
    if (r_.dtype_sets.count(name)) fail("the dtype " + name + " cannot be told: the operands that have it are left out");
    return dtype_from_name(name);
  }

  BuildValue from_attr(const tsr_attr& a) const {
    BuildValue v;
    auto list = [&](auto&& element) {
      v.kind = BuildValue::kList;
      for (uint32_t i = 0; i < a.count; ++i) v.list.push_back(element(i));
    };
    switch (a.kind) {
      case TSR_ATTR_INT:
      case TSR_ATTR_DIM: v.i = a.i; break;
      case TSR_ATTR_FLOAT:
        v.kind = BuildValue::kFloat;
        v.f = a.f;
        break;
      case TSR_ATTR_BOOL:
        v.kind = BuildValue::kBool;
        v.i = a.i;
        break;
      case TSR_ATTR_STRING:
        v.kind = BuildValue::kString;
        v.s = a.s;
        break;
      case TSR_ATTR_DTYPE: return dtype_value(static_cast<uint32_t>(a.i));
      case TSR_ATTR_INTS:
      case TSR_ATTR_DIMS: list([&](uint32_t i) { return dim_value(a.ints[i]); }); break;
      case TSR_ATTR_FLOATS:
        list([&](uint32_t i) {
          BuildValue x;
          x.kind = BuildValue::kFloat;
          x.f = a.floats[i];
          return x;
        });
        break;
      case TSR_ATTR_STRINGS:
        list([&](uint32_t i) {
          BuildValue x;
          x.kind = BuildValue::kString;
          x.s = a.strings[i];
          return x;
        });
        break;
      default: v.kind = BuildValue::kTensor; v.tensor = a.tensor;
    }
    return v;
  }

  BuildValue arithmetic(const BodyExpr& e) {
    const BuildValue a = evaluate(e.args[0]), b = evaluate(e.args[1]);
    if (a.kind == BuildValue::kFloat || b.kind == BuildValue::kFloat) {
      auto real = [&](const BuildValue& v) {
        if (v.kind == BuildValue::kFloat) return v.f;
        if (TSR_DIM_IS_EXPR(dim(v))) fail("a float and a size that is known at run time only cannot be combined here");
        return static_cast<double>(v.i);
      };
      BuildValue v;
      v.kind = BuildValue::kFloat;
      const double x = real(a), y = real(b);
      v.f = e.kind == BodyExpr::kSum ? x + y : e.kind == BodyExpr::kDifference ? x - y : x * y;
      return v;
    }
    const tsr_dim_op op = e.kind == BodyExpr::kSum ? TSR_DIM_ADD : e.kind == BodyExpr::kDifference ? TSR_DIM_SUB : TSR_DIM_MUL;
    return dim_value(g_.sizes().make(op, dim(a), dim(b)));
  }

  int64_t plain(const BuildValue& v) const {
    if (TSR_DIM_IS_EXPR(dim(v))) fail("found the size " + g_.sizes().print(v.i) + " where a plain number is needed");
    return v.i;
  }

  BuildValue call(const BodyExpr& e) {
    const std::string& f = e.text;
    if (f == "shape") {
      BuildValue v;
      v.kind = BuildValue::kList;
      const tsr_type& t = type_of(e.args[0]);
      for (uint32_t i = 0; i < t.rank; ++i) v.list.push_back(dim_value(t.sizes[i]));
      return v;
    }
    if (f == "rank") return dim_value(type_of(e.args[0]).rank);
    if (f == "dtype") return dtype_value(type_of(e.args[0]).dtype);
    if (f == "numel") {
      const tsr_type& t = type_of(e.args[0]);
      return dim_value(g_.sizes().product({t.sizes, t.rank}));
    }
    if (f == "size") {
      const int64_t i = plain(evaluate(e.args[1]));
      const tsr_type& t = type_of(e.args[0]);
      const int64_t rank = t.rank;
      if (i < -rank || i >= rank)
        fail("size(%" + e.args[0].text + ", " + std::to_string(i) + "): there are " + std::to_string(rank) + " dimensions");
      return dim_value(t.sizes[i < 0 ? i + rank : i]);
    }
    if (f == "real" || f == "complex" || f == "accumulate") {
      const BuildValue d = evaluate(e.args[0]);
      if (d.kind != BuildValue::kDtype) fail(f + " takes a dtype");
      const auto dtype = static_cast<uint32_t>(d.i);
      return dtype_value(f == "real"      ? to_real_dtype(dtype)
                         : f == "complex" ? to_complex_dtype(dtype)
                                          : accumulate_dtype(dtype));
    }
    const BuildValue a = evaluate(e.args[0]), b = evaluate(e.args[1]);
    if (f == "range") {
      BuildValue v;
      v.kind = BuildValue::kList;
      const int64_t first = plain(a), last = plain(b);
      if (last > first && static_cast<uint64_t>(last) - static_cast<uint64_t>(first) > kMaxRank)
        fail("range(" + std::to_string(first) + ", " + std::to_string(last) + ") is longer than any shape");
      for (int64_t i = first; i < last; ++i) v.list.push_back(dim_value(i));
      return v;
    }
    const tsr_dim_op op = f == "floordiv" ? TSR_DIM_FLOORDIV
                          : f == "mod"    ? TSR_DIM_MOD
                          : f == "min"    ? TSR_DIM_MIN
                                          : TSR_DIM_MAX;
    return dim_value(g_.sizes().make(op, dim(a), dim(b)));
  }

  template <class T, class F>
  const T* array(const BuildValue& v, tsr_attr& a, F&& element) const {
    if (v.kind != BuildValue::kList) fail("found a single value where a list is needed");
    auto* p = static_cast<T*>(g_.scratch(v.list.size() * sizeof(T)));
    for (size_t i = 0; i < v.list.size(); ++i) p[i] = element(v.list[i]);
    a.count = static_cast<uint32_t>(v.list.size());
    return p;
  }

  double real(const BuildValue& v) const { return v.kind == BuildValue::kFloat ? v.f : static_cast<double>(plain(v)); }

  const char* string(const BuildValue& v) const {
    if (v.kind != BuildValue::kString) fail("found something else where a text is needed");
    return v.s;
  }

  tsr_attr attribute(const BuildValue& v, const AttrDecl& decl) const {
    tsr_attr a{};
    a.kind = decl.kind;
    auto wrong = [&] { fail("attribute '" + decl.name + "' takes a value of kind " + std::string(attr_kind_name(decl.kind))); };
    switch (decl.kind) {
      case TSR_ATTR_INT: a.i = plain(v); break;
      case TSR_ATTR_DIM: a.i = dim(v); break;
      case TSR_ATTR_FLOAT: a.f = real(v); break;
      case TSR_ATTR_BOOL:
        if (v.kind != BuildValue::kBool) wrong();
        a.i = v.i;
        break;
      case TSR_ATTR_STRING: a.s = string(v); break;
      case TSR_ATTR_DTYPE:
        if (v.kind != BuildValue::kDtype) wrong();
        a.i = v.i;
        break;
      case TSR_ATTR_INTS: a.ints = array<int64_t>(v, a, [this](const BuildValue& x) { return plain(x); }); break;
      case TSR_ATTR_DIMS: a.ints = array<int64_t>(v, a, [this](const BuildValue& x) { return dim(x); }); break;
      case TSR_ATTR_FLOATS: a.floats = array<double>(v, a, [this](const BuildValue& x) { return real(x); }); break;
      case TSR_ATTR_STRINGS: a.strings = array<const char*>(v, a, [this](const BuildValue& x) { return string(x); }); break;
      default:
        if (v.kind != BuildValue::kTensor) wrong();
        a.tensor = v.tensor;
    }
    return a;
  }

  Graph& g_;
  const tsr_id node_;
  const OpRecord& r_;
  const Body& body_;
  const bool grad_;
  const tsr_id region_, before_;
  std::map<std::string, std::vector<tsr_id>> values_;
  std::map<std::string, tsr_id> zero_of_;  // gradients that are zero: the result whose shape they have
  std::map<std::string, uint32_t> dtypes_;
  std::map<std::string, tsr_id> literals_;
  uint32_t first_dtype_ = TSR_DTYPE_INVALID;
  uint32_t line_ = 0;
};

[[noreturn]] void nothing_to_build(const Graph& g, tsr_id node, const char* what) {
  const OpRecord& r = g.record_of(node);
  throw user_error("TSR-O008", g.describe(node) + ": op " + r.name + " of plugin '" + r.plugin + "' has no " + what,
                   "give its record one, as text or as a callback");
}

}  // namespace

std::vector<tsr_id> build_decomposition(Graph& g, tsr_id node) {
  const OpRecord& r = g.record_of(node);
  const MarksScope marks(g, g.node(node).marks);
  std::vector<tsr_id> out;
  if (r.decompose_body) {
    out = BodyBuilder(g, node, *r.decompose_body, false).run({});
  } else if (r.impl && r.impl->decompose) {
    out.assign(g.node(node).num_results, TSR_NONE);
    throw_if(op_callback(r, "decompose", [&] { return r.impl->decompose(r.impl->self, g.handle(), node, out.data()); }));
  } else {
    nothing_to_build(g, node, "decomposition");
  }
  const tsr_node& n = g.node(node);
  const auto blame = [&](const std::string& what) {
    throw bug("TSR-O007", "decompose of " + g.describe(node) + ": " + what, "the record comes from plugin '" + r.plugin + "'");
  };
  if (out.size() != n.num_results)
    blame("found " + std::to_string(out.size()) + " replacements for " + std::to_string(n.num_results) + " results");
  for (uint32_t i = 0; i < n.num_results; ++i) {
    if (out[i] >= g.num_values() || !g.value(out[i]).alive) blame("no replacement for result " + std::to_string(i));
    const tsr_type &have = *g.value(out[i]).type, &want = *g.value(n.results[i]).type;
    bool agree = have.dtype == want.dtype && have.rank == want.rank;
    for (uint32_t k = 0; agree && k < want.rank; ++k)
      agree = g.sizes().compare(TSR_EQ, have.sizes[k], want.sizes[k]) == TSR_TRUE;
    // Sizes that depend on data are new symbols in the replacement.
    if (!agree && !r.has(kUnbacked))
      blame("the replacement of result " + std::to_string(i) + " has the type " + print_type(g, have) + ", expected " +
            print_type(g, want));
    // What is made of constants alone knows no device: it goes where the node was.
    if (have.device != want.device && g.value(out[i]).def_node != TSR_NONE) {
      tsr_type placed = have;
      placed.device = want.device;
      g.set_type(out[i], placed);
    }
  }
  return out;
}

std::vector<tsr_id> build_grad(Graph& g, tsr_id node, std::span<const tsr_id> grad_results) {
  const OpRecord& r = g.record_of(node);
  const tsr_node& n = g.node(node);
  if (grad_results.size() != n.num_results)
    throw bug("TSR-B003", "grad of " + g.describe(node) + ": found " + std::to_string(grad_results.size()) + " gradients for " +
                              std::to_string(n.num_results) + " results");
  std::vector<tsr_id> out(n.num_operands, TSR_NONE);
  if (!r.grad_body && !(r.impl && r.impl->grad)) nothing_to_build(g, node, "gradient");
  if (std::all_of(grad_results.begin(), grad_results.end(), [](tsr_id v) { return v == TSR_NONE; })) return out;
  if (r.grad_body) {
    std::vector<tsr_id> built = BodyBuilder(g, node, *r.grad_body, true).run(grad_results);
    built.resize(out.size(), TSR_NONE);
    // An operand that was left out has no gradient, whatever the body says.
    for (size_t i = 0; i < out.size(); ++i)
      if (g.node(node).operands[i] != TSR_NONE) out[i] = built[i];
  } else {
    throw_if(
        op_callback(r, "grad", [&] { return r.impl->grad(r.impl->self, g.handle(), node, grad_results.data(), out.data()); }));
  }
  return out;
}

}  // namespace tessera::core
