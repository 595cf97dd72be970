// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "errors.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/sizes.hpp"

namespace tessera::onnx {
namespace {

constexpr int64_t kKnown = 4096;  // elements that shape arithmetic looks at
constexpr int kFoldDepth = 100;
constexpr size_t kMostValues = 4'000'000;  // that a model may need: a short file can ask for many

[[noreturn]] void omitted() { fail(kNode, "an input that the operator needs is omitted"); }

}  // namespace

// --------------------------------------------------------------------------------------------------------------- values

tsr_dtype V::dtype() const {
  if (!info_) omitted();
  return info_->dtype;
}
const Dims& V::sizes() const {
  if (!info_) omitted();
  return info_->sizes;
}
tsr_dim V::size(int64_t axis) const {
  const int64_t a = axis < 0 ? axis + rank() : axis;
  if (a < 0 || a >= rank())
    fail(kNode, "a tensor of rank " + std::to_string(rank()) + " where one of at least " +
                    std::to_string(axis < 0 ? -axis : axis + 1) + " dimensions is expected");
  return sizes()[static_cast<size_t>(a)];
}
Build& V::build() const { return *info_->build; }
tsr_id V::id() const {
  if (!info_) omitted();
  return info_->build->materialise(*info_);
}
V V::call(const char* name, std::initializer_list<tsr_attr> attrs) const { return build().op(name, {*this}, attrs); }
V V::call(const char* name, const V& o, std::initializer_list<tsr_attr> attrs) const {
  return build().op(name, {*this, o}, attrs);
}
V V::call(const char* name, const V& second, const V& third) const { return build().op(name, {*this, second, third}); }
V V::like(double number) const { return build().scalar(number, dtype()); }

V Build::make(tsr_dtype dtype, Dims sizes) {
  if (infos_.size() >= kMostValues)
    fail(kLimit, "more than " + std::to_string(kMostValues) + " values", "the model repeats itself without end");
  V::Info& info = infos_.emplace_back();
  info.build = this;
  info.dtype = dtype;
  info.sizes = std::move(sizes);
  return V(&info);
}

V Build::value(tsr_id id) {
  if (const auto found = by_id_.find(id); found != by_id_.end()) return V(found->second);
  const sdk::Type t = graph_.value(id).type();
  V v = make(t.dtype(), {t.sizes().begin(), t.sizes().end()});
  v.info_->built.emplace_back(region, id);
  by_id_[id] = v.info_;
  return v;
}

V Build::known(Dims elements, int64_t rank, tsr_dtype dtype) {
  V v = make(dtype, rank == 0 ? Dims{} : Dims{static_cast<tsr_dim>(elements.size())});
  v.info_->known = std::move(elements);
  return v;
}

V Build::constant(HostTensor t, std::string name) {
  V v = make(t.dtype, t.sizes);
  v.info_->name = std::move(name);
  v.info_->constant = std::move(t);
  return v;
}

V Build::initializer(const TensorProto& t) {
  const std::string what = "initializer '" + std::string(t.name) + "'";
  const HostTensor type = tensors_->declare(t, what);
  V v = make(type.dtype, type.sizes);
  v.info_->name = t.name;
  v.info_->initializer = &t;
  return v;
}

V Build::sequence(std::vector<V> elements) {
  V v = make(TSR_DTYPE_INVALID, {});
  v.info_->sequence = std::move(elements);
  return v;
}

V Build::scalar(double x, tsr_dtype dtype) {
  uint64_t bits[2] = {};
  store_from<double>(dtype, bits, 0, x);
  HostTensor t{dtype, {}, nullptr, static_cast<size_t>(storage_bytes(dtype, 1))};
  const auto key = std::make_tuple(region, static_cast<uint32_t>(dtype), bits[0]);
  if (const auto found = scalars_.find(key); found != scalars_.end() && bits[1] == 0) return value(found->second);
  tsr_tensor desc{bits, dtype, 0, nullptr, nullptr, 0, TSR_TENSOR_CONTIGUOUS};
  const tsr_attr attr = sdk::attr_tensor("value", desc);
  const tsr_id id = create("constant", {}, {&attr, 1}, {});
  if (bits[1] == 0) scalars_[key] = id;
  return value(id);
}

V Build::integer(int64_t x, tsr_dtype dtype) {
  V v = known({x}, 0, dtype);
  if (dtype == TSR_I64 || dtype == TSR_I32) return v;
  return scalar(static_cast<double>(x), dtype);
}

V Build::floats(std::span<const double> x, tsr_dtype dtype, Ints sizes) {
  HostTensor t{dtype, std::move(sizes), nullptr, static_cast<size_t>(storage_bytes(dtype, static_cast<int64_t>(x.size())))};
  void* data = tensors_->allocate(t.bytes);
  std::memset(data, 0, t.bytes);
  for (size_t i = 0; i < x.size(); ++i) store_from<double>(dtype, data, static_cast<int64_t>(i), x[i]);
  t.data = data;
  return constant(std::move(t));
}

void Build::name(const V& v, std::string_view name) {
  V::Info& info = *v.info_;
  if (!info.name.empty() || name.empty()) return;
  info.name = name;
  for (const auto& [in, id] : info.built)
    if (graph_.value(id).def()) graph_.set_name(graph_.value(id), info.name.c_str());
}

tsr_id Build::create(const char* name, std::span<const tsr_id> operands, std::span<const tsr_attr> attrs,
                     std::span<const tsr_id> regions) {
  const sdk::Node node = graph_.create({region, TSR_NONE, loc}, name, operands, attrs, regions);
  return node.num_results() ? node.result(0).id : TSR_NONE;
}

tsr_id Build::materialise(V::Info& v) {
  for (const auto& [in, id] : v.built)
    if (in == region) return id;
  tsr_id id = TSR_NONE;
  if (v.initializer && !v.constant) v.constant = tensors_->load(*v.initializer, "initializer '" + v.name + "'");
  if (v.known && are_numbers(*v.known) && !v.constant) {
    HostTensor t{v.dtype, v.sizes, nullptr, static_cast<size_t>(storage_bytes(v.dtype, static_cast<int64_t>(v.known->size())))};
    void* data = tensors_->allocate(t.bytes);
    for (size_t i = 0; i < v.known->size(); ++i) store_from<int64_t>(v.dtype, data, static_cast<int64_t>(i), (*v.known)[i]);
    t.data = data;
    v.constant = std::move(t);
  }
  if (v.constant) {
    tsr_tensor desc{};
    desc.data = const_cast<void*>(v.constant->data);
    desc.dtype = v.constant->dtype;
    desc.rank = static_cast<uint32_t>(v.constant->sizes.size());
    desc.sizes = v.constant->sizes.data();
    desc.flags = TSR_TENSOR_CONTIGUOUS | TSR_TENSOR_KEPT;
    const tsr_attr attr = sdk::attr_tensor("value", desc);
    id = create("constant", {}, {&attr, 1}, {});
  } else if (v.known) {
    std::vector<V> parts;
    for (const tsr_dim d : *v.known) parts.push_back(dim(d, v.dtype));
    if (v.sizes.empty())
      id = parts[0].id();
    else {
      for (V& p : parts) p = expand(p, {0});
      id = parts.size() == 1 ? parts[0].id() : concat(parts, 0).id();
    }
  } else {
    if (v.sequence)
      fail(kType, "a sequence of tensors stands where one tensor is expected",
           "sequences are resolved while a model is imported");
    throw sdk::Error(TSR_BUG, "TSR-B000", "a value of another region is used: " + v.name);
  }
  if (!v.name.empty()) graph_.set_name(graph_.value(id), v.name.c_str());
  v.built.emplace_back(region, id);
  by_id_.try_emplace(id, &v);
  return id;
}

V Build::dim(tsr_dim d, tsr_dtype dtype) {
  if (is_number(d) && (dtype == TSR_I64 || dtype == TSR_I32)) return known({d}, 0, dtype);
  if (is_number(d)) return scalar(static_cast<double>(d), dtype);
  return cast(op("dim_value", {}, {sdk::attr_dim("value", d)}), dtype);
}

// ------------------------------------------------------------------------------------------------------- what is known

bool Build::are_numbers(std::span<const tsr_dim> d) {
  return std::all_of(d.begin(), d.end(), [](tsr_dim x) { return is_number(x); });
}

std::string Build::print(std::span<const tsr_dim> d) const {
  // The printer knows how sizes read: a node that holds them is not needed for messages that name numbers alone.
  std::string s = "[";
  for (size_t i = 0; i < d.size(); ++i) s += (i ? ", " : "") + (is_number(d[i]) ? std::to_string(d[i]) : std::string("?"));
  return s + "]";
}

std::optional<Dims> Build::peek(const V& v) {
  V::Info& info = *v.info_;
  if (info.sequence) return std::nullopt;
  if (info.known) return info.known;
  if (info.sizes.size() > 1 || !are_numbers(info.sizes) || (!is_int(info.dtype) && info.dtype != TSR_BOOL) ||
      info.dtype == TSR_U64)
    return std::nullopt;
  if (!info.sizes.empty() && info.sizes[0] > kKnown) return std::nullopt;
  if (info.initializer && !info.constant) info.constant = tensors_->load(*info.initializer, "initializer '" + info.name + "'");
  const void* data = nullptr;
  if (info.constant) {
    data = info.constant->data;
  } else {
    const sdk::Node def = graph_.value(info.built.front().second).def();
    if (!def || !def.is("constant")) return std::nullopt;
    data = def.attr("value").as_tensor().data;
  }
  Dims out(info.sizes.empty() ? 1 : static_cast<size_t>(info.sizes[0]));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = info.dtype == TSR_BOOL ? static_cast<const uint8_t*>(data)[i] != 0
                                    : load_as<int64_t>(info.dtype, data, static_cast<int64_t>(i));
    if (TSR_DIM_IS_EXPR(out[i])) return std::nullopt;  // a number that looks like a handle
  }
  info.known = out;
  return out;
}

// Evaluates what computes `value` from constants. What it replaces stays behind unused and is swept at the end.
bool Build::fold(tsr_id value, int64_t most, int depth, HostTensor* out) {
  const sdk::Value v = graph_.value(value);
  const sdk::Node n = v.def();
  if (!n || depth > kFoldDepth) return false;
  if (n.is("constant")) {
    const tsr_tensor& t = n.attr("value").as_tensor();
    if (out) {
      out->dtype = static_cast<tsr_dtype>(t.dtype);
      out->sizes.assign(t.sizes, t.sizes + t.rank);
      out->data = t.data;
      out->bytes = static_cast<size_t>(storage_bytes(t.dtype, out->elements()));
    }
    return true;
  }
  if (!n.regions().empty() || !graph_.has_trait(n.raw().op, "pure") || graph_.has_trait(n.raw().op, "unbacked")) return false;
  for (uint32_t i = 0; i < n.num_results(); ++i) {
    const sdk::Type t = n.result(i).type();
    if (!t.is_static() || t.elements() > most) return false;
  }
  for (const tsr_attr& a : n.attrs()) {
    if (a.kind == TSR_ATTR_DIM && TSR_DIM_IS_EXPR(a.i)) return false;
    for (uint32_t i = 0; a.kind == TSR_ATTR_DIMS && i < a.count; ++i)
      if (TSR_DIM_IS_EXPR(a.ints[i])) return false;
  }
  for (uint32_t i = 0; i < n.num_operands(); ++i)
    if (n.has_operand(i) && !fold(n.operand(i).id, std::max<int64_t>(most, 1 << 16), depth + 1, nullptr)) return false;
  std::vector<tsr_tensor> results;
  try {
    results = graph_.evaluate(n);
  } catch (const sdk::Error&) {
    return false;  // it will fail, or be computed, when the model runs
  }
  for (uint32_t i = 0; i < n.num_results(); ++i) {
    if (n.result(i).num_uses() == 0 && n.result(i).id != value) continue;
    const sdk::Value c = graph_.constant({n.raw().parent, n.id, loc}, results[i]);
    const sdk::Value old = n.result(i);
    graph_.replace_uses(old, c);
    if (const auto info = by_id_.find(old.id); info != by_id_.end()) {
      for (auto& [in, id] : info->second->built)
        if (id == old.id) id = c.id;
      by_id_[c.id] = info->second;
    }
    if (old.id == value) return fold(c.id, most, depth, out);
  }
  return true;
}

const HostTensor* Build::literal(const V& v, int64_t most) {
  V::Info& info = *v.info_;
  if (info.constant) return &*info.constant;
  if (info.initializer) {
    info.constant = tensors_->load(*info.initializer, "initializer '" + info.name + "'");
    return &*info.constant;
  }
  if (info.known) {
    if (!are_numbers(*info.known)) return nullptr;
    (void)materialise(info);
    return &*info.constant;
  }
  if (info.sequence) return nullptr;
  HostTensor t;
  if (!fold(info.built.front().second, most, 0, &t)) return nullptr;
  info.constant = std::move(t);
  return &*info.constant;
}

std::optional<Dims> Build::ints(const V& v) {
  if (auto k = peek(v)) return k;
  if (v.rank() > 1 || (!is_int(v.dtype()) && v.dtype() != TSR_BOOL)) return std::nullopt;
  if (!literal(v, kKnown)) return std::nullopt;
  return peek(v);
}

std::optional<std::vector<double>> Build::reals(const V& v) {
  if (is_complex(v.dtype())) return std::nullopt;
  const HostTensor* t = literal(v);
  if (!t || t->elements() > 1 << 16) return std::nullopt;
  std::vector<double> out(static_cast<size_t>(t->elements()));
  for (size_t i = 0; i < out.size(); ++i) out[i] = load_as<double>(t->dtype, t->data, static_cast<int64_t>(i));
  return out;
}

// ---------------------------------------------------------------------------------------------------------------- nodes

std::vector<V> Build::ops(const char* name, std::span<const V> operands, std::span<const tsr_attr> attrs,
                          std::span<const tsr_id> regions) {
  std::vector<tsr_id> ids;
  ids.reserve(operands.size());
  for (const V& v : operands) ids.push_back(v ? v.id() : TSR_NONE);
  const sdk::Node node = graph_.create({region, TSR_NONE, loc}, name, ids, attrs, regions);
  std::vector<V> out;
  for (uint32_t i = 0; i < node.num_results(); ++i) out.push_back(value(node.result(i).id));
  return out;
}

V Build::op(const char* name, std::span<const V> operands, std::span<const tsr_attr> attrs) {
  return ops(name, operands, attrs)[0];
}

tsr_id Build::make_region(std::span<const tsr_type> types, const std::function<std::vector<V>(std::span<const V>)>& fill) {
  std::vector<const tsr_type*> pointers;
  for (const tsr_type& t : types) pointers.push_back(&t);
  tsr_id id = TSR_NONE;
  sdk::check(graph_.api().region_create(graph_.handle(), pointers.data(), static_cast<uint32_t>(pointers.size()), &id));
  struct Restore {
    tsr_id& region;
    tsr_id outer;
    ~Restore() { region = outer; }
  } const restore{region, std::exchange(region, id)};
  std::vector<V> in;
  for (const tsr_id i : graph_.inputs(id)) in.push_back(value(i));
  std::vector<tsr_id> ids;
  for (const V& v : fill(in)) ids.push_back(v.id());
  sdk::check(graph_.api().region_set_outputs(graph_.handle(), id, ids.data(), static_cast<uint32_t>(ids.size())));
  return id;
}

// Every node that lives must be in a region of the graph.
void Build::discard(tsr_id id) {
  sdk::check(graph_.api().region_set_outputs(graph_.handle(), id, nullptr, 0));
  for (sdk::Node n{graph_.handle(), graph_.region_raw(id).last}; n;) {
    const sdk::Node before = n.prev();
    graph_.erase(n);
    n = before;
  }
}

std::vector<tsr_type> Build::types_of(std::span<const V> values) {
  std::vector<tsr_type> out;
  for (const V& v : values) out.push_back(*graph_.value(v.id()).type().p);
  return out;
}

V Build::cast(const V& v, tsr_dtype dtype) {
  return v.dtype() == dtype ? v : op("cast", {v}, {sdk::attr_dtype("dtype", dtype)});
}

V Build::reshape(const V& v, const Dims& shape) {
  return v.sizes() == shape ? v : op("reshape", {v}, {sdk::attr_dims("shape", shape)});
}

V Build::broadcast(const V& v, const Dims& shape) {
  return v.sizes() == shape ? v : op("broadcast_to", {v}, {sdk::attr_dims("shape", shape)});
}

tsr_dim Build::broadcast(tsr_dim a, tsr_dim b) const {
  if (b != 1 && sdk::broadcast_means_equal(graph_.tables(), a, b)) return b;
  return sdk::broadcast_size(
      a, b, [&](tsr_dim_op op, tsr_dim x, tsr_dim y) { return graph_.dim(op, x, y); },
      [&](tsr_relation relation, tsr_dim x, tsr_dim y) { return graph_.compare(relation, x, y); });
}

void Build::require_repeats(tsr_dim have, tsr_dim want) const {
  if (have == 1 || have == want || is_number(have)) return;
  const auto distance = [&](tsr_dim to) { return max(sub(have, to), sub(to, have)); };
  if (sdk::broadcast_means_equal(graph_.tables(), have, want)) return graph_.require(TSR_EQ, have, want, "sizes are broadcast");
  graph_.require(TSR_LE, min(distance(want), distance(1)), 0, "a size that is broadcast is equal, or 1");
}

std::pair<V, V> Build::same_batch(const V& a, const V& b) {
  Dims to[] = {a.sizes(), b.sizes()};
  bool any = false;
  for (size_t k = 3; k <= std::min(to[0].size(), to[1].size()); ++k) {
    tsr_dim &x = to[0][to[0].size() - k], &y = to[1][to[1].size() - k];
    if (x == y || x == 1 || y == 1 || (is_number(x) && is_number(y)) || graph_.compare(TSR_EQ, x, y) == TSR_TRUE ||
        sdk::broadcast_means_equal(graph_.tables(), x, y))
      continue;
    x = y = broadcast(x, y);
    any = true;
  }
  return any ? std::pair(broadcast(a, to[0]), broadcast(b, to[1])) : std::pair(a, b);
}

V Build::transpose(const V& v, const Ints& perm) {
  return std::is_sorted(perm.begin(), perm.end()) ? v : op("transpose", {v}, {sdk::attr_ints("perm", perm)});
}

V Build::expand(const V& v, const Ints& axes) {
  return axes.empty() ? v : op("expand_dims", {v}, {sdk::attr_ints("axes", axes)});
}
V Build::squeeze(const V& v, const Ints& axes) { return axes.empty() ? v : op("squeeze", {v}, {sdk::attr_ints("axes", axes)}); }

V Build::slice(const V& v, int64_t axis, tsr_dim start, tsr_dim limit, int64_t stride) {
  if (axis < 0) axis += v.rank();
  Dims starts(v.sizes().size(), 0), limits = v.sizes();
  Ints strides(v.sizes().size(), 1);
  const auto a = static_cast<size_t>(axis);
  (void)v.size(axis);
  if (start == 0 && limit == limits[a] && stride == 1) return v;
  starts[a] = start;
  limits[a] = limit;
  strides[a] = stride;
  return op("slice", {v},
            {sdk::attr_dims("starts", starts), sdk::attr_dims("limits", limits), sdk::attr_ints("strides", strides)});
}

V Build::concat(std::span<const V> parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : op("concat", parts, std::initializer_list<tsr_attr>{sdk::attr_int("axis", axis)});
}

V Build::pad(const V& v, const Dims& low, const Dims& high, const char* mode, const V& fill) {
  const auto zero = [](const Dims& d) { return std::all_of(d.begin(), d.end(), [](tsr_dim x) { return x == 0; }); };
  if (zero(low) && zero(high)) return v;
  return op("pad", {v, fill}, {sdk::attr_dims("low", low), sdk::attr_dims("high", high), sdk::attr_string("mode", mode)});
}

V Build::iota(const Dims& shape, int64_t axis, tsr_dtype dtype) {
  return op("iota", {}, {sdk::attr_dims("shape", shape), sdk::attr_int("axis", axis), sdk::attr_dtype("dtype", dtype)});
}

V Build::full(const V& value, const Dims& shape) { return op("full", {value}, {sdk::attr_dims("shape", shape)}); }

V Build::reduce(const char* name, const V& v, const Ints& axes, bool keepdims) {
  return op(name, {v}, {sdk::attr_ints("axes", axes), sdk::attr_bool("keepdims", keepdims)});
}

V Build::dot(const V& a, const V& b, const Ints& lhs_contract, const Ints& rhs_contract, const Ints& lhs_batch,
             const Ints& rhs_batch) {
  return op("dot_general", {a, b},
            {sdk::attr_ints("lhs_contract", lhs_contract), sdk::attr_ints("rhs_contract", rhs_contract),
             sdk::attr_ints("lhs_batch", lhs_batch), sdk::attr_ints("rhs_batch", rhs_batch)});
}

std::vector<V> Build::split(const V& v, const Dims& sizes, int64_t axis) {
  return ops("split", {v}, {sdk::attr_dims("sizes", sizes), sdk::attr_int("axis", axis)});
}

tsr_dtype Build::wide(tsr_dtype dtype) { return is_float(dtype) && dtype_bits(dtype) < 32 ? TSR_F32 : dtype; }

}  // namespace tessera::onnx
