// SPDX-License-Identifier: Apache-2.0
#include "op.hpp"

#include <algorithm>
#include <set>

#include "importer.hpp"
#include "tessera/closest.hpp"

namespace tessera::onnx {

void Op::fail(const char* code, const std::string& message, const std::string& hint) const {
  onnx::fail(code, place_ + ": " + message, hint);
}

V Op::in(size_t i) const {
  if (!has(i)) fail(kNode, "input " + std::to_string(i) + " is missing");
  return inputs_[i];
}

const AttributeProto* Op::find(std::string_view name) const {
  for (const AttributeProto* a : attributes_)
    if (a->name == name) return a;
  return nullptr;
}

const AttributeProto* Op::typed(std::string_view name, int type, const char* what) const {
  const AttributeProto* a = find(name);
  if (a && a->type != type) fail(kNode, "attribute '" + std::string(name) + "' is not " + what);
  return a;
}

namespace {
template <class T>
T required(const Op& op, std::string_view name, std::optional<T>&& fallback) {
  if (!fallback) op.fail(kNode, "attribute '" + std::string(name) + "' is missing");
  return std::move(*fallback);
}
// The least numbers of 64 bits stand for sizes that are expressions.
void expect_number(const Op& op, std::string_view name, int64_t v) {
  if (!Build::is_number(v)) op.unsupported("attribute '" + std::string(name) + "' holds an integer near the least of 64 bits");
}
}  // namespace

int64_t Op::i(std::string_view name, std::optional<int64_t> fallback) const {
  const auto* a = typed(name, AttributeProto::Int, "an integer");
  if (a) expect_number(*this, name, a->i);
  return a ? a->i : required(*this, name, std::move(fallback));
}
double Op::f(std::string_view name, std::optional<double> fallback) const {
  const auto* a = typed(name, AttributeProto::Float, "a float");
  return a ? static_cast<double>(a->f) : required(*this, name, std::move(fallback));
}
std::string_view Op::s(std::string_view name, std::optional<std::string_view> fallback) const {
  const auto* a = typed(name, AttributeProto::String, "a string");
  if (a) expect(a->s.find('\0') == a->s.npos, "attribute '" + std::string(name) + "' has a zero byte; expected text");
  return a ? a->s : required(*this, name, std::move(fallback));
}
Ints Op::ints(std::string_view name, std::optional<Ints> fallback) const {
  const auto* a = typed(name, AttributeProto::Ints, "a list of integers");
  if (a)
    for (const int64_t v : a->ints) expect_number(*this, name, v);
  return a ? a->ints : required(*this, name, std::move(fallback));
}
int64_t Op::small(std::string_view name, std::optional<int64_t> fallback) const {
  const int64_t v = i(name, fallback);
  expect(v >= -INT32_MAX && v <= INT32_MAX, "attribute '" + std::string(name) + "' is " + std::to_string(v));
  return v;
}
Ints Op::small_ints(std::string_view name, std::optional<Ints> fallback) const {
  Ints list = ints(name, std::move(fallback));
  for (const int64_t v : list)
    expect(v >= -INT32_MAX && v <= INT32_MAX, "attribute '" + std::string(name) + "' holds " + std::to_string(v));
  return list;
}
std::vector<double> Op::reals(std::string_view name, std::optional<std::vector<double>> fallback) const {
  const auto* a = typed(name, AttributeProto::Floats, "a list of floats");
  return a ? std::vector<double>(a->floats.begin(), a->floats.end()) : required(*this, name, std::move(fallback));
}
std::vector<std::string_view> Op::strings(std::string_view name) const {
  const auto* a = typed(name, AttributeProto::Strings, "a list of strings");
  return a ? a->strings : std::vector<std::string_view>();
}
V Op::tensor(std::string_view name) const {
  const auto* a = typed(name, AttributeProto::Tensor, "a tensor");
  if (!a || !a->t) fail(kNode, "attribute '" + std::string(name) + "' is missing");
  return b.constant(importer.tensors().load(*a->t, "attribute '" + std::string(name) + "'"));
}
const GraphProto& Op::graph(std::string_view name) const {
  const auto* a = typed(name, AttributeProto::Graph, "a graph");
  if (!a || !a->g) fail(kNode, "attribute '" + std::string(name) + "' is missing");
  return *a->g;
}

std::optional<Dims> Op::declared(size_t i) const {
  if (!wants(i)) return std::nullopt;
  const TypeProto* t = importer.declared(node.outputs[i]);
  if (!t || t->kind != TypeProto::Tensor || !t->has_shape) return std::nullopt;
  Dims out;
  for (const TypeProto::Dim& d : t->dims) out.push_back(importer.declared_dim(d));
  return out;
}

tsr_dim Op::declared_size(int64_t axis, size_t i) const {
  const auto d = declared(i);
  return d && axis >= 0 && axis < static_cast<int64_t>(d->size()) ? (*d)[static_cast<size_t>(axis)] : -1;
}

tsr_dtype Op::declared_dtype(size_t i) const {
  const TypeProto* t = wants(i) ? importer.declared(node.outputs[i]) : nullptr;
  return t && t->kind == TypeProto::Tensor ? dtype_of(t->element) : TSR_DTYPE_INVALID;
}

std::string Op::ask_for(size_t i) const {
  const sdk::Graph g = b.graph();
  std::set<std::string> roots;
  std::set<tsr_dim> sizes;
  std::set<tsr_id> seen;
  std::vector<tsr_id> stack = {in(i).id()};
  const auto size = [&](tsr_dim d) {
    if (!Build::is_number(d)) sizes.insert(d);
  };
  while (!stack.empty()) {
    const sdk::Value v = g.value(importer.captured_from(stack.back()));
    stack.pop_back();
    if (!seen.insert(v.id).second) continue;
    if (const sdk::Node def = v.def()) {
      for (uint32_t k = 0; k < def.num_operands(); ++k)
        if (def.has_operand(k)) stack.push_back(def.operand(k).id);
      for (const tsr_attr& a : def.attrs()) {
        if (a.kind == TSR_ATTR_DIM) size(a.i);
        if (a.kind == TSR_ATTR_DIMS) std::for_each(a.ints, a.ints + a.count, size);
      }
    } else if (v.raw().input_kind == TSR_INPUT_ARG) {
      roots.insert(std::string(v.name()));
    }
  }
  std::string names;
  for (const std::string& r : roots) {
    g.api().need_input(g.handle(), r.c_str(), TSR_NEED_VALUE);
    names += (names.empty() ? "'" : ", '") + r + "'";
  }
  std::set<std::string> symbols;
  std::set<tsr_dim> parts;
  for (std::vector<tsr_dim> rest(sizes.begin(), sizes.end()); !rest.empty();) {
    const tsr_dim d = rest.back();
    rest.pop_back();
    if (Build::is_number(d) || !parts.insert(d).second) continue;
    const tsr_tables& t = *g.api().tables(g.handle());
    const tsr_dim_expr& e = *TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(d));
    if (e.op == TSR_DIM_SYMBOL)
      symbols.insert(TSR_AT(tsr_symbol, t.symbols, t.symbol_stride, e.symbol)->name);
    else
      rest.insert(rest.end(), {e.lhs, e.rhs});
  }
  for (const tsr_dim d : sizes) g.api().need_size(g.handle(), d);
  std::string dims;
  for (const std::string& s : symbols) dims += (dims.empty() ? "" : ", ") + s;
  return !names.empty() ? "the graph inputs: " + names : !dims.empty() ? "the sizes " + dims : "";
}

void Op::need(size_t i) const {
  const std::string of_what = ask_for(i);
  fail(kData,
       "the value of input " + std::to_string(i) + " '" + std::string(node.inputs[i]) +
           "' must be known when the model is imported; it " +
           (of_what.empty() ? "is computed from data" : "depends on " + of_what),
       of_what.empty() ? "export the model with constants there"
                       : "import the model for a call: tessera run, bench and compare do so where --inputs gives those inputs, "
                         "callable_load for "
                         "every call; or export the model with constants there");
}

void Op::need_number(tsr_dim size) const {
  if (!Build::is_number(size)) b.graph().api().need_size(b.graph().handle(), size);
}

Dims Op::sizes(size_t i) const {
  auto d = b.ints(in(i));
  if (!d) need(i);
  return *d;
}

Ints Op::numbers(size_t i) const {
  const Dims d = sizes(i);
  for (const tsr_dim x : d) need_number(x);
  if (!Build::are_numbers(d)) unsupported("input " + std::to_string(i) + " holds symbolic sizes; expected numbers");
  return d;
}

tsr_dim Op::size(size_t i) const {
  const Dims d = sizes(i);
  expect(d.size() == 1, "input " + std::to_string(i) + " has " + std::to_string(d.size()) + " elements; expected one");
  return d[0];
}

int64_t Op::number(size_t i) const {
  const Ints d = numbers(i);
  expect(d.size() == 1, "input " + std::to_string(i) + " has " + std::to_string(d.size()) + " elements; expected one");
  return d[0];
}

std::vector<double> Op::reals(size_t i) const {
  auto r = b.reals(in(i));
  if (!r) need(i);
  return *r;
}

int64_t Op::axis(int64_t a, int64_t rank) const {
  if (a < -rank || a >= rank) fail(kNode, "axis " + std::to_string(a) + " of a tensor of rank " + std::to_string(rank));
  return a < 0 ? a + rank : a;
}

Ints Op::axes(Ints list, int64_t rank) const {
  for (int64_t& a : list) a = axis(a, rank);
  Ints sorted = list;
  std::sort(sorted.begin(), sorted.end());
  expect(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "an axis is named twice");
  return list;
}

// ---------------------------------------------------------------------------------------------------------------- table

namespace {

constexpr Family kFamilies[] = {activation_records,
                                attention_records,
                                control_records,
                                conv_records,
                                elementwise_records,
                                index_records,
                                linalg_records,
                                loss_records,
                                microsoft_records,
                                microsoft_attention_records,
                                microsoft_quantized_records,
                                ml_records,
                                norm_records,
                                pool_records,
                                quantize_records,
                                random_records,
                                recurrent_records,
                                reduce_records,
                                resize_records,
                                sequence_records,
                                shape_records,
                                signal_records,
                                text_records,
                                training_records,
                                vision_records};

using Table = std::map<std::pair<std::string_view, std::string_view>, const Record*>;
const Table& table() {
  static const Table t = [] {
    Table out;
    for (const Family family : kFamilies)
      for (const Record& r : family()) out[{r.domain, r.name}] = &r;
    return out;
  }();
  return t;
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Record* find_record(std::string_view domain, std::string_view name) {
  const auto found = table().find({domain, name});
  return found == table().end() ? nullptr : found->second;
}

std::string nearest_operator(std::string_view domain, std::string_view name) {
  std::string best;
  size_t least = 3;
  if (name.size() > 64) return best;
  for (const auto& [key, record] : table())
    if (key.first == domain && edit_distance(key.second, name) < least) {
      least = edit_distance(key.second, name);
      best = key.second;
    }
  return best;
}

}  // namespace tessera::onnx
