// SPDX-License-Identifier: Apache-2.0
#include "importer.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>

#include "tessera/sizes.hpp"

namespace tessera::onnx {
namespace {

constexpr int kDeepest = 64;              // functions that call functions, graphs within graphs
constexpr size_t kMostNodes = 1'000'000;  // translated, functions expanded: a short file can call itself large

std::string_view standard(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

void names_used(const NodeProto& n, std::vector<std::string_view>* out);

// The name of a value inside the graph: readable in its text form.
std::string clean(std::string_view name) {
  std::string out(name.substr(0, 256));
  for (size_t i = 0; i < out.size();) {
    const auto c = static_cast<unsigned char>(out[i]);
    const size_t length = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    bool good = length > 0 && i + length <= out.size() && c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
    for (size_t k = 1; good && k < length; ++k) good = (static_cast<unsigned char>(out[i + k]) & 0xc0) == 0x80;
    if (!good) out[i] = '_';
    i += good ? length : 1;
  }
  return out;
}

std::string quoted(std::string_view name) { return "'" + clean(name) + "'"; }

// The name of an input or output: as it stands in the model, whatever its characters, for people and archives ask for it.
std::string signature_name(std::string_view name, const std::string& place) {
  if (name.empty()) fail(kName, place + " has no name", "give it one: no node can use it otherwise");
  if (const size_t zero = name.find('\0'); zero != name.npos)
    fail(kName, place + ": its name has a zero byte at index " + std::to_string(zero),
         "names of inputs and outputs are texts without one");
  return std::string(name);
}

// Whether a size's text is a name, which equal sizes share, or stands for one that is not known, as exporters write '?', '-1'
// and 'None'.
bool names_a_size(std::string_view param) {
  const auto letter = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80 || c == '_';
  };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  if (param == "None") return false;
  return std::any_of(param.begin(), param.end(), letter) || (std::any_of(param.begin(), param.end(), digit) && param[0] != '-');
}

std::string symbol_prefix(std::string_view param) {
  std::string out;
  for (const char c : param.substr(0, 64)) out += (std::isalnum(static_cast<unsigned char>(c)) || c == '_') ? c : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out.insert(out.begin(), 'd');
  return out;
}

// Names that `g` uses and does not define, graphs inside it included.
void free_names(const GraphProto& g, std::vector<std::string_view>* out) {
  std::unordered_set<std::string_view> defined;
  for (const auto& v : g.inputs) defined.insert(v.name);
  for (const auto& t : g.initializers) defined.insert(t.name);
  for (const auto& t : g.sparse_initializers) defined.insert(t.values.name);
  for (const NodeProto& n : g.nodes) defined.insert(n.outputs.begin(), n.outputs.end());
  std::vector<std::string_view> used;
  for (const NodeProto& n : g.nodes) names_used(n, &used);
  for (const auto& v : g.outputs) used.push_back(v.name);
  for (const std::string_view name : used)
    if (!name.empty() && !defined.contains(name)) out->push_back(name);
}

// What a node reads: its inputs, and what the graphs in its attributes use of the scope around them.
void names_used(const NodeProto& n, std::vector<std::string_view>* out) {
  out->insert(out->end(), n.inputs.begin(), n.inputs.end());
  for (const AttributeProto& a : n.attributes)
    if (a.g) free_names(*a.g, out);
}

// The order in which every node stands behind those that it reads, otherwise that of the file; files that converters wrote are
// not always in such an order. The nodes of a cycle, and those behind it, come last.
std::vector<size_t> topological_order(std::span<const NodeProto> nodes) {
  std::vector<size_t> order;
  order.reserve(nodes.size());
  std::unordered_map<std::string_view, size_t> producer;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const std::string_view name : nodes[i].outputs)
      if (!name.empty()) producer.emplace(name, i);
  std::vector<std::vector<size_t>> readers(nodes.size());
  std::vector<size_t> missing(nodes.size());
  std::vector<std::string_view> used;
  for (size_t i = 0; i < nodes.size(); ++i) {
    used.clear();
    names_used(nodes[i], &used);
    for (const std::string_view name : used)
      if (const auto found = producer.find(name); found != producer.end()) {
        readers[found->second].push_back(i);
        ++missing[i];
      }
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (missing[i] == 0) ready.push(i);
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const size_t reader : readers[i])
      if (--missing[reader] == 0) ready.push(reader);
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    if (missing[i] != 0) order.push_back(i);
  return order;
}

}  // namespace

Importer::Importer(sdk::Graph graph, const ModelProto& model, Tensors& tensors, std::string path)
    : b(graph, tensors), model_(model), tensors_(tensors), path_(std::move(path)) {}

// ---------------------------------------------------------------------------------------------------------------- names

const V* Importer::find(std::string_view name) const {
  for (const Scope* s = scope_; s; s = s->outer)
    if (const auto found = s->values.find(name); found != s->values.end()) return &found->second;
  return nullptr;
}

void Importer::define(std::string_view name, const V& v, const std::string& place) {
  if (!scope_->values.emplace(name, v).second)
    fail(kDuplicate, place + ": the value " + quoted(name) + " is defined a second time" + scope_->within,
         "every value of a graph has one definition (SSA)");
}

V Importer::lookup(std::string_view name, const std::string& place) const {
  if (name.empty()) return {};
  if (const V* v = find(name)) return *v;
  fail(kUndefined, place + ": the value " + quoted(name) + " is used before anything defines it" + scope_->within,
       "it is no input, no initializer and no output of a node: a name is wrong, or the nodes form a cycle");
}

tsr_id Importer::captured_from(tsr_id value) const {
  for (auto at = captured_from_.find(value); at != captured_from_.end(); at = captured_from_.find(value)) value = at->second;
  return value;
}

const TypeProto* Importer::declared(std::string_view name) const {
  const auto found = scope_->declared.find(name);
  return found == scope_->declared.end() ? nullptr : found->second;
}

std::optional<int64_t> Importer::size_in_call(tsr_dim d) const {
  using Value = std::optional<int64_t>;
  const tsr_tables& t = b.graph().tables();
  const auto leaf = [&](tsr_dim x) -> Value {
    if (Build::is_number(x)) return x;
    const auto at = sizes_in_call_.find(TSR_AT(tsr_dim_expr, t.exprs, t.expr_stride, TSR_DIM_EXPR_ID(x))->symbol);
    return at == sizes_in_call_.end() ? Value() : Value(at->second);
  };
  return sdk::fold_size<Value>(t, d, leaf, [](uint32_t op, Value x, Value y) -> Value {
    int64_t r = 0;
    if (!x || !y) return std::nullopt;
    switch (op) {
      case TSR_DIM_ADD: return __builtin_add_overflow(*x, *y, &r) ? Value() : Value(r);
      case TSR_DIM_SUB: return __builtin_sub_overflow(*x, *y, &r) ? Value() : Value(r);
      case TSR_DIM_MUL: return __builtin_mul_overflow(*x, *y, &r) ? Value() : Value(r);
      case TSR_DIM_MIN: return std::min(*x, *y);
      case TSR_DIM_MAX: return std::max(*x, *y);
      default: break;
    }
    if (*y == 0 || (*y == -1 && *x == INT64_MIN)) return std::nullopt;
    const int64_t rest = *x % *y, mod = rest != 0 && (rest < 0) != (*y < 0) ? rest + *y : rest;
    return op == TSR_DIM_MOD ? mod : *x / *y - (mod != rest ? 1 : 0);
  });
}

tsr_dim Importer::declared_dim(const TypeProto::Dim& d) const {
  if (d.value) return *d.value < 0 ? -1 : *d.value;
  const auto found = names_a_size(d.param) ? symbols_.find(d.param) : symbols_.end();
  return found == symbols_.end() ? -1 : found->second;
}

void Importer::declare(const GraphProto& g) {
  for (const auto* list : {&g.value_infos, &g.outputs})
    for (const ValueInfoProto& v : *list) scope_->declared[v.name] = &v.type;
}

// --------------------------------------------------------------------------------------------------- inputs, initializers

V Importer::graph_input(const ValueInfoProto& info) {
  const std::string what = path_ + ": input " + quoted(info.name), name = signature_name(info.name, what);
  const sdk::Graph g = b.graph();
  if (const tsr_tensor* bound = g.api().bound_input(g.handle(), name.c_str())) {
    HostTensor t{static_cast<tsr_dtype>(bound->dtype), {bound->sizes, bound->sizes + bound->rank}, nullptr, 0};
    t.bytes = static_cast<size_t>(storage_bytes(bound->dtype, t.elements()));
    void* data = tensors_.allocate(t.bytes);
    if (t.bytes) std::memcpy(data, bound->data, t.bytes);
    t.data = data;
    if (info.type.kind == TypeProto::Tensor && dtype_of(info.type.element) != t.dtype)
      fail(kType, what + " is fixed to a value of " + std::string(dtype_name(t.dtype)) + "; the model says " +
                      type_name(info.type.element));
    return b.constant(std::move(t), name);
  }
  if (info.type.kind != TypeProto::Tensor)
    fail(kType, what + " is " + kind_name(info.type.kind) + "; expected a tensor",
         "values of a program here are tensors: export the model so that it takes and gives tensors");
  const tsr_dtype dtype = dtype_of(info.type.element);
  if (dtype == TSR_DTYPE_INVALID)
    fail(kType, what + " holds elements of " + type_name(info.type.element) + ", which tensors here do not have");
  // What the caller has fixed of the type of the call that the model is imported for.
  const tsr_type* const fixed = g.api().bound_type(g.handle(), name.c_str());
  std::vector<TypeProto::Dim> declared = info.type.dims;
  if (!info.type.has_shape && fixed) declared.resize(fixed->rank);
  if (!info.type.has_shape && !fixed) {
    g.api().need_input(g.handle(), name.c_str(), TSR_NEED_RANK);
    if (lacks_rank_.empty()) lacks_rank_ = info.name;
  }
  if (declared.size() > 64) fail(kTensor, what + " has " + std::to_string(declared.size()) + " dimensions; at most 64");
  Dims dims;
  int64_t product = 1;
  for (size_t k = 0; k < declared.size(); ++k) {
    const TypeProto::Dim& d = declared[k];
    if ((!d.value || *d.value < 0) && fixed && fixed->rank == declared.size() && fixed->sizes[k] >= 0) {
      dims.push_back(fixed->sizes[k]);
      if (names_a_size(d.param)) symbols_.emplace(d.param, fixed->sizes[k]);
      continue;
    }
    if (d.value && *d.value >= 0) {  // exporters write -1 for a size that is not known
      if (__builtin_mul_overflow(product, std::max<int64_t>(*d.value, 1), &product) || product > INT64_MAX / 128)
        fail(kTensor, what + " has the size " + std::to_string(*d.value) + "; expected sizes whose product fits 64 bits",
             "an unknown size has a name or nothing in its place");
      dims.push_back(*d.value);
      continue;
    }
    const bool named = names_a_size(d.param);
    const auto known = symbols_.find(d.param);
    if (named && known != symbols_.end()) {
      dims.push_back(known->second);
      continue;
    }
    const tsr_dim s = g.symbol(symbol_prefix(d.param).c_str(), 0, INT64_MAX, false);
    if (fixed && fixed->rank == declared.size() && fixed->sizes[k] <= -2)
      sizes_in_call_.emplace(TSR_AT(tsr_dim_expr, g.tables().exprs, g.tables().expr_stride, TSR_DIM_EXPR_ID(s))->symbol,
                             -2 - fixed->sizes[k]);
    if (named) symbols_.emplace(d.param, s);
    dims.push_back(s);
  }
  tsr_type type{};
  type.dtype = dtype;
  type.rank = static_cast<uint32_t>(dims.size());
  type.sizes = dims.data();
  tsr_id id = TSR_NONE;
  sdk::check(g.api().input_create(g.handle(), name.c_str(), &type, TSR_INPUT_ARG, nullptr, &id));
  return b.value(id);
}

void Importer::initializers(const GraphProto& g) {
  for (const TensorProto& t : g.initializers) define(t.name, b.initializer(t), path_ + ": initializer " + quoted(t.name));
  for (const SparseTensorProto& t : g.sparse_initializers) {
    const std::string what = path_ + ": sparse initializer " + quoted(t.values.name);
    const HostTensor values = tensors_.load(t.values, "sparse initializer " + quoted(t.values.name));
    const HostTensor indices = tensors_.load(t.indices, "the indices of sparse initializer " + quoted(t.values.name));
    const size_t rank = t.dims.size();
    TensorProto shape;
    shape.dims = t.dims;
    shape.type = t.values.type;
    (void)tensors_.declare(shape, "sparse initializer " + quoted(t.values.name));  // checks the sizes
    const int64_t n = values.elements();
    const bool tuples = indices.sizes.size() == 2;
    if (values.sizes.size() != 1 || indices.dtype != TSR_I64 || rank == 0 ||
        indices.elements() != n * (tuples ? static_cast<int64_t>(rank) : 1))
      fail(kTensor, what + ": expected a vector of values and one i64 index, or tuple of indices, for each");
    // Written into zeros when the model runs: the file is small however large the tensor is.
    const V zero = b.full(0, values.dtype, {b.product(t.dims)});
    V at = b.constant(indices);
    if (tuples) {
      V linear;
      for (size_t i = 0; i < rank; ++i) {
        const V part = b.squeeze(b.slice(at, 1, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1), {1});
        linear = linear ? linear * static_cast<double>(t.dims[i]) + part : part;
      }
      at = linear;
    }
    const V dense = b.op("scatter", {zero, at, b.constant(values)}, {sdk::attr_int("axis", 0)});
    define(t.values.name, b.reshape(dense, t.dims), what);
  }
}

// ---------------------------------------------------------------------------------------------------------------- nodes

int64_t Importer::version_of(std::string_view domain, const std::string& place) const {
  for (const auto& [d, version] : *scope_->opsets)
    if (standard(d) == domain) {
      if (version < 1) fail(kOpset, place + ": operator set version " + std::to_string(version) + "; expected 1 or more");
      if (domain.empty() && version > kNewestOpset)
        fail(kOpset,
             place + ": the model imports version " + std::to_string(version) + " of ai.onnx; the newest known here is " +
                 std::to_string(kNewestOpset),
             "export the model for an operator set of at most that version");
      return version;
    }
  // Exporters name com.microsoft and the like not always; the version says nothing there.
  if (!domain.empty()) return 1;
  fail(kOpset, place + ": the model imports no version of ai.onnx", "the file lacks opset_import: export it again");
}

const FunctionProto* Importer::function(const NodeProto& n) const {
  for (const FunctionProto& f : model_.functions)
    if (f.name == n.op_type && standard(f.domain) == standard(n.domain) && f.overload == n.overload) return &f;
  return nullptr;
}

void Importer::unknown_operator(const NodeProto& n, int64_t version, const std::string& place) const {
  const std::string_view domain = standard(n.domain);
  const std::string near = nearest_operator(domain, n.op_type);
  fail(kUnknownOp,
       place + ": there is no translation of the operator " + quoted(n.op_type) + " of domain " +
           quoted(domain.empty() ? "ai.onnx" : domain) + ", version " + std::to_string(version) +
           (near.empty() ? "" : "; did you mean '" + near + "'?"),
       "give the model a function of that name (ModelProto.functions) that says it in known operators, or add the operator: a "
       "record in an "
       "op set plugin (tessera new op) and a line in frontends/onnx/ops");
}

void Importer::nodes(std::span<const NodeProto> list) {
  for (const size_t i : topological_order(list)) node(list[i], i);
}

void Importer::node(const NodeProto& n, size_t index) {
  if (++translated_ > kMostNodes)
    fail(kLimit, path_ + ": more than " + std::to_string(kMostNodes) + " nodes once functions are expanded",
         "the model calls functions without end");
  const std::string_view domain = standard(n.domain);
  const std::string head =
      path_ + ": node " + std::to_string(index) + (n.name.empty() ? "" : " " + quoted(n.name)) + " (" + clean(n.op_type);
  const std::string early = head + ")" + scope_->within;
  const FunctionProto* called = function(n);
  const int64_t version = called ? 1 : version_of(domain, early);
  const std::string place = called ? early : head + ", opset " + std::to_string(version) + ")" + scope_->within;

  std::vector<V> in;
  for (const std::string_view name : n.inputs) in.push_back(lookup(name, place));
  // A reference to an attribute of the function that is expanded stands for that attribute, or for none.
  std::vector<const AttributeProto*> attributes;
  std::vector<AttributeProto> renamed;
  renamed.reserve(n.attributes.size());
  for (const AttributeProto& a : n.attributes) {
    if (a.reference.empty()) {
      attributes.push_back(&a);
      continue;
    }
    if (!scope_->attributes)
      fail(kNode, place + ": attribute " + quoted(a.name) + " refers to one of a function; this is no function");
    const auto found = scope_->attributes->find(a.reference);
    if (found == scope_->attributes->end()) continue;
    const AttributeProto& from = *found->second;
    AttributeProto& to = renamed.emplace_back();
    to.name = a.name;
    to.type = from.type;
    to.f = from.f;
    to.i = from.i;
    to.s = from.s;
    to.floats = from.floats;
    to.ints = from.ints;
    to.strings = from.strings;
    if (from.t) to.t = std::make_unique<TensorProto>(*from.t);
    if (from.g || from.sparse || from.tensors || from.graphs)
      fail(kUnsupported, place + ": attribute " + quoted(a.name) + " refers to a graph that the function's caller gives",
           "expand the function before exporting");
    attributes.push_back(&to);
  }

  b.loc = {path_.c_str(), static_cast<uint32_t>(std::min<size_t>(index + 1, UINT32_MAX)), 0};
  if (called) return call(*called, n, in, attributes, place);
  const Record* record = find_record(domain, n.op_type);
  if (!record) unknown_operator(n, version, place);
  Op op(*this, b, n, version, std::move(in), std::move(attributes), place);
  try {
    if (!translate_known(op)) record->translate(op);
  } catch (const std::out_of_range&) {  // at(): a list that the file says is shorter than the operator needs
    fail(kNode, place + ": an attribute or input has fewer elements than the operator needs");
  } catch (const sdk::Error& e) {
    if (std::string_view(e.what()).starts_with(path_)) throw;
    throw sdk::Error(e.family, e.code, place + ": " + e.what(), e.hint);
  }
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    if (n.outputs[i].empty()) continue;
    if (!op.outputs()[i]) op.unsupported("output " + std::to_string(i) + " '" + clean(n.outputs[i]) + "' is not translated");
    b.name(op.outputs()[i], clean(n.outputs[i]));
    define(n.outputs[i], op.outputs()[i], place);
  }
}

void Importer::call(const FunctionProto& f, const NodeProto& n, const std::vector<V>& in,
                    const std::vector<const AttributeProto*>& given, const std::string& place) {
  if (++depth_ > kDeepest)
    fail(kLimit, place + ": functions call each other more than " + std::to_string(kDeepest) + " deep",
         "a function calls itself");
  std::map<std::string_view, const AttributeProto*> attributes;
  for (const AttributeProto& a : f.defaults) attributes[a.name] = &a;
  for (const AttributeProto* a : given) attributes[a->name] = a;
  Scope inner;
  inner.stream = stream();
  inner.attributes = &attributes;
  inner.opsets = f.opsets.empty() ? &model_.opsets : &f.opsets;
  inner.within = " in function " + quoted(f.name);
  if (in.size() > f.inputs.size())
    fail(kNode, place + ": " + std::to_string(in.size()) + " inputs for a function of " + std::to_string(f.inputs.size()));
  Scope* const outer = std::exchange(scope_, &inner);
  for (size_t i = 0; i < f.inputs.size(); ++i) define(f.inputs[i], i < in.size() ? in[i] : V(), place);
  nodes(f.nodes);
  std::vector<V> out;
  for (const std::string_view name : f.outputs) out.push_back(find(name) ? *find(name) : V());
  scope_ = outer;
  --depth_;
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    if (n.outputs[i].empty()) continue;
    if (i >= out.size() || !out[i]) fail(kUndefined, place + ": the function defines no output " + std::to_string(i));
    b.name(out[i], clean(n.outputs[i]));
    define(n.outputs[i], out[i], place);
  }
}

// --------------------------------------------------------------------------------------------------------- nested graphs

void Importer::captures(std::span<const GraphProto* const> graphs, std::vector<V>* values,
                        std::vector<std::string_view>* names) {
  std::unordered_set<std::string_view> seen;
  for (const GraphProto* g : graphs) {
    std::vector<std::string_view> used;
    free_names(*g, &used);
    for (const std::string_view name : used) {
      if (!seen.insert(name).second) continue;
      const V* v = find(name);
      if (!v || !*v || b.is_free_standing(*v)) continue;  // constants and sizes are made again inside
      values->push_back(*v);
      names->push_back(name);
    }
  }
  if (const V s = stream(); s && std::any_of(graphs.begin(), graphs.end(), [&](const GraphProto* g) { return draws(*g); })) {
    values->push_back(s);
    names->push_back({});
  }
}

tsr_id Importer::region(const GraphProto& graph, std::span<const tsr_type> types, std::span<const std::string_view> captured,
                        const std::function<std::vector<V>(std::span<const V>)>& enter,
                        const std::function<std::vector<V>(std::vector<V>)>& leave) {
  if (++depth_ > kDeepest) fail(kLimit, path_ + ": graphs nested more than " + std::to_string(kDeepest) + " deep");
  Scope inner, middle;
  inner.attributes = scope_->attributes;
  inner.opsets = scope_->opsets;
  inner.within = scope_->within;
  // Captured names hide those of the scope around; the graph's own inputs hide both.
  inner.outer = &middle;
  middle.outer = scope_;
  middle.region = true;
  std::vector<tsr_id> outside;
  for (const std::string_view name : captured) outside.push_back(name.empty() ? TSR_NONE : find(name)->id());
  const tsr_id id = b.make_region(types, [&](std::span<const V> in) {
    const size_t own = in.size() - captured.size();
    for (size_t i = 0; i < captured.size(); ++i)
      if (outside[i] != TSR_NONE) captured_from_[in[own + i].id()] = outside[i];
    for (size_t i = 0; i < captured.size(); ++i) {
      if (captured[i].empty())
        middle.stream = in[own + i];
      else
        middle.values[captured[i]] = in[own + i];
    }
    struct Restore {  // whoever catches an error of a branch goes on outside
      Scope*& scope;
      Scope* outer;
      ~Restore() { scope = outer; }
    } const restore{scope_, std::exchange(scope_, &inner)};
    return leave(inline_body(graph, enter(in.first(own))));
  });
  --depth_;
  return id;
}

// In the scope that is open: defines the inputs, translates the nodes, gives the outputs.
std::vector<V> Importer::inline_body(const GraphProto& graph, std::span<const V> in) {
  const tsr_loc loc = b.loc;
  const std::string place = path_ + ": graph " + quoted(graph.name);
  if (in.size() != graph.inputs.size())
    fail(kNode,
         place + " takes " + std::to_string(graph.inputs.size()) + " inputs; its operator gives " + std::to_string(in.size()));
  declare(graph);
  initializers(graph);
  for (size_t i = 0; i < in.size(); ++i) define(graph.inputs[i].name, in[i], place);
  nodes(graph.nodes);
  std::vector<V> out;
  for (const ValueInfoProto& v : graph.outputs) {
    out.push_back(lookup(v.name, place));
    if (!out.back()) fail(kUndefined, place + ": output " + quoted(v.name) + " has no value");
  }
  b.loc = loc;
  return out;
}

std::vector<V> Importer::inline_graph(const GraphProto& graph, std::span<const V> in) {
  if (++depth_ > kDeepest) fail(kLimit, path_ + ": graphs nested more than " + std::to_string(kDeepest) + " deep");
  Scope inner;
  inner.outer = scope_;
  inner.attributes = scope_->attributes;
  inner.opsets = scope_->opsets;
  inner.within = scope_->within;
  Scope* const outer = std::exchange(scope_, &inner);
  std::vector<V> out = inline_body(graph, in);
  scope_ = outer;
  --depth_;
  return out;
}

// --------------------------------------------------------------------------------------------------------- random numbers

bool Importer::draws(const GraphProto& graph) const {
  static constexpr std::string_view kOps[] = {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike",
                                              "Bernoulli",     "Multinomial",       "Dropout"};
  std::unordered_set<const FunctionProto*> seen;
  const std::function<bool(std::span<const NodeProto>)> any = [&](std::span<const NodeProto> list) {
    return std::any_of(list.begin(), list.end(), [&](const NodeProto& n) {
      if (std::find(std::begin(kOps), std::end(kOps), n.op_type) != std::end(kOps)) return true;
      if (const FunctionProto* f = function(n); f && seen.insert(f).second && any(f->nodes)) return true;
      return std::any_of(n.attributes.begin(), n.attributes.end(),
                         [&](const AttributeProto& a) { return a.g && any(a.g->nodes); });
    });
  };
  return any(graph.nodes);
}

V Importer::stream() const {
  for (const Scope* s = scope_; s; s = s->outer) {
    if (s->stream) return s->stream;
    if (s->region) break;
  }
  return {};
}

// A word of the generator keyed by the turns around, at the counter of this turn: as good as a key of its own for every turn of
// every loop, of which nobody has to know the length.
void Importer::begin_iteration(const V& turn) {
  const V outer = stream();
  const uint64_t zero = 0;
  auto* data = static_cast<char*>(tensors_.allocate(sizeof zero));
  std::memcpy(data, &zero, sizeof zero);
  const V parts[] = {outer ? outer : b.constant({TSR_U64, {1}, data, sizeof zero}), b.cast(b.reshape(turn, {1}), TSR_U64)};
  const V word = b.ops("random_int", {b.concat(parts, 0)},
                       {sdk::attr_dims("shape", Dims{1}), sdk::attr_int("low", 0), sdk::attr_int("high", INT64_MAX),
                        sdk::attr_dtype("dtype", TSR_I64)})[0];
  scope_->stream = b.cast(word, TSR_U64);
}

// ------------------------------------------------------------------------------------------------------------ the whole

void Importer::run() {
  const GraphProto& g = model_.graph;
  Scope scope;
  scope.opsets = &model_.opsets;
  scope_ = &scope;
  declare(g);
  // Before IR version 4 every initializer was an input too; since then one of that name is a default, which is taken.
  std::unordered_set<std::string_view> given;
  for (const TensorProto& t : g.initializers) given.insert(t.name);
  for (const SparseTensorProto& t : g.sparse_initializers) given.insert(t.values.name);
  for (const ValueInfoProto& v : g.inputs)
    if (!given.contains(v.name)) define(v.name, graph_input(v), path_ + ": input " + quoted(v.name));
  if (!lacks_rank_.empty())
    fail(kData,
         path_ + ": input " + quoted(lacks_rank_) +
             " has no shape, not even a rank; it depends on the graph inputs: " + quoted(lacks_rank_),
         "import the model for a call (tessera run with --inputs, callable_load), or give the input a shape "
         "(onnx.shape_inference, or the exporter's input description)");
  initializers(g);
  nodes(g.nodes);
  if (g.outputs.empty()) fail(kStructure, path_ + ": the graph has no outputs");
  std::vector<tsr_id> outputs;
  std::vector<std::string> names;
  std::unordered_set<std::string> taken, listed;
  for (const ValueInfoProto& v : g.outputs) taken.insert(std::string(v.name));
  for (const ValueInfoProto& v : g.outputs) {
    const std::string name = signature_name(v.name, path_ + ": output " + std::to_string(outputs.size()));
    if (v.type.kind != TypeProto::Tensor && v.type.kind != TypeProto::None)
      fail(kType, path_ + ": output " + quoted(v.name) + " is " + kind_name(v.type.kind) + "; expected a tensor");
    const V value = lookup(v.name, path_ + ": output " + quoted(v.name));
    if (!value) fail(kUndefined, path_ + ": output " + quoted(v.name) + " has no value");
    b.name(value, clean(v.name));
    outputs.push_back(value.id());
    // One that is listed a second time cannot have the same name.
    names.push_back(name);
    if (!listed.insert(name).second)
      for (int n = 2; !taken.insert(names.back()).second; ++n) names.back() = name + "_" + std::to_string(n);
  }
  const sdk::Graph graph = b.graph();
  sdk::check(graph.api().region_set_outputs(graph.handle(), 0, outputs.data(), static_cast<uint32_t>(outputs.size())));
  std::vector<const char*> texts;
  for (const std::string& s : names) texts.push_back(s.c_str());
  graph.set_output_names(texts);
  sweep(0);
}

// What translations built and then did not need.
void Importer::sweep(tsr_id region) {
  const sdk::Graph g = b.graph();
  for (sdk::Node n{g.handle(), g.region_raw(region).last}; n;) {
    const sdk::Node before = n.prev();
    bool used = g.has_trait(n.raw().op, "unbacked");  // its sizes may be used where its data is not: the pass dce tells
    for (uint32_t i = 0; i < n.num_results(); ++i) used = used || n.result(i).num_uses() != 0;
    if (used)
      for (const tsr_id r : n.regions()) sweep(r);
    else if (n.num_results() > 0 && g.has_trait(n.raw().op, "pure"))
      g.erase(n);
    n = before;
  }
}

}  // namespace tessera::onnx
