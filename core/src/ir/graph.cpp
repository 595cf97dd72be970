// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "ir/graph_undo.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

// From this size on, a constant's data is a block of its own that clones share; constants are never written.
constexpr size_t kOwnedConstant = 4096;

uintptr_t element_alignment(uint32_t dtype) {
  const auto bytes = static_cast<uintptr_t>(std::max(dtype_bits(dtype) / 8, 1));
  return is_complex(dtype) ? bytes / 2 : bytes;
}

// Whether a table still shows all of a vector. Compares ends, since the length of a vector takes a division.
template <class T, class N>
bool shows(const T* data, N count, const std::vector<T>& of) {
  return data == of.data() && data + count == std::to_address(of.end());
}

std::string type_key(const tsr_type& t) {
  std::string k;
  const uint32_t head[] = {t.dtype, t.rank, t.device, t.strides ? 1u : 0u};
  k.append(reinterpret_cast<const char*>(head), sizeof head);
  k.append(reinterpret_cast<const char*>(t.sizes), sizeof(tsr_dim) * t.rank);
  if (t.strides) k.append(reinterpret_cast<const char*>(t.strides), sizeof(tsr_dim) * t.rank);
  return k;
}

}  // namespace

int64_t tensor_bytes(tsr_dtype dtype, int64_t elements) {
  int64_t bits;
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(tessera::dtype_info(dtype).bits), &bits) || bits > INT64_MAX - 7)
    throw user_error("TSR-S001", "a tensor of " + std::to_string(elements) + " elements overflows 64 bits",
                     "use smaller sizes");
  return (bits + 7) / 8;
}

bool same_type(const tsr_type& a, const tsr_type& b) {
  if (a.dtype != b.dtype || a.rank != b.rank || a.device != b.device) return false;
  for (uint32_t i = 0; i < a.rank; ++i) {
    if (a.sizes[i] != b.sizes[i]) return false;
    if ((a.strides == nullptr) != (b.strides == nullptr) || (a.strides && a.strides[i] != b.strides[i])) return false;
  }
  return true;
}

Graph::Graph(const OpRegistry& ops, std::string_view name) : ops_(&ops), memory_(4096) {
  tables_.struct_size = sizeof tables_;
  tables_.name = intern(name);
  tables_.node_stride = sizeof(tsr_node);
  tables_.value_stride = sizeof(tsr_value);
  tables_.region_stride = sizeof(tsr_region);
  tables_.symbol_stride = sizeof(tsr_symbol);
  tables_.expr_stride = sizeof(tsr_dim_expr);
  begin("build");
  create_region({});
  journal_.clear();  // the body itself is not an edit
}

Graph::~Graph() = default;

// Threads that share a finished graph all come here: what has not changed is not written.
void Graph::sync_tables() const {
  tsr_tables& t = tables_;
  if (!shows(t.nodes, t.num_nodes, nodes_)) t.nodes = nodes_.data(), t.num_nodes = nodes_.size();
  if (!shows(t.values, t.num_values, values_)) t.values = values_.data(), t.num_values = values_.size();
  if (!shows(t.regions, t.num_regions, regions_)) t.regions = regions_.data(), t.num_regions = regions_.size();
  if (const auto& symbols = sizes_.symbols(); !shows(t.symbols, t.num_symbols, symbols))
    t.symbols = symbols.data(), t.num_symbols = symbols.size();
  if (const auto& exprs = sizes_.exprs(); !shows(t.exprs, t.num_exprs, exprs))
    t.exprs = exprs.data(), t.num_exprs = exprs.size();
}

// ------------------------------------------------------------------------------------------------------------- memory

void* Graph::allocate(size_t bytes, size_t align) { return memory_.allocate(bytes ? bytes : 1, align); }

void* Graph::scratch(size_t bytes) {
  if (!scratch_) scratch_ = std::make_unique<std::pmr::monotonic_buffer_resource>(1024);
  return scratch_->allocate(bytes ? bytes : 1, 16);
}

void Graph::reset_scratch() {
  if (scratch_) scratch_->release();
}

const char* Graph::intern(std::string_view s) {
  if (auto it = strings_.find(s); it != strings_.end()) return it->data();
  char* p = static_cast<char*>(allocate(s.size() + 1, 1));
  std::memcpy(p, s.data(), s.size());
  p[s.size()] = 0;
  strings_.emplace(p, s.size());
  return p;
}

tsr_dim* Graph::copy_dims(std::span<const tsr_dim> dims) {
  auto* p = static_cast<tsr_dim*>(allocate(dims.size_bytes(), alignof(tsr_dim)));
  std::copy(dims.begin(), dims.end(), p);
  return p;
}

tsr_type Graph::make_type(tsr_dtype dtype, std::span<const tsr_dim> sizes, tsr_device device) {
  tsr_type t{};
  t.dtype = dtype;
  t.rank = static_cast<uint32_t>(sizes.size());
  t.sizes = copy_dims(sizes);
  t.device = device;
  return t;
}

const tsr_type* Graph::intern_type(const tsr_type& t) {
  auto [it, fresh] = types_.try_emplace(type_key(t), nullptr);
  if (!fresh) return it->second;
  auto* p = static_cast<tsr_type*>(allocate(sizeof(tsr_type), alignof(tsr_type)));
  *p = t;
  p->sizes = copy_dims({t.sizes, t.rank});
  p->strides = t.strides ? copy_dims({t.strides, t.rank}) : nullptr;
  p->reserved = 0;
  return it->second = p;
}

tsr_attr Graph::copy_attr(const tsr_attr& a) {
  tsr_attr c{};
  c.name = intern(a.name);
  c.kind = a.kind;
  c.count = a.count;
  c.i = a.i;
  c.f = a.f;
  auto copy = [&](auto* from, size_t n) {
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(from)>>;
    auto* p = static_cast<T*>(allocate(n * sizeof(T), alignof(T)));
    if (n) std::memcpy(p, from, n * sizeof(T));
    return p;
  };
  switch (a.kind) {
    case TSR_ATTR_STRING: c.s = intern(a.s); break;
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS: c.ints = copy(a.ints, a.count); break;
    case TSR_ATTR_FLOATS: c.floats = copy(a.floats, a.count); break;
    case TSR_ATTR_STRINGS: {
      auto** p = static_cast<const char**>(allocate(a.count * sizeof(char*), alignof(char*)));
      for (uint32_t i = 0; i < a.count; ++i) p[i] = intern(a.strings[i]);
      c.strings = p;
      break;
    }
    case TSR_ATTR_TENSOR: {
      auto* t = static_cast<tsr_tensor*>(allocate(sizeof(tsr_tensor), alignof(tsr_tensor)));
      *t = *a.tensor;
      t->sizes = copy(a.tensor->sizes, a.tensor->rank);
      int64_t elements = 1;
      for (uint32_t i = 0; i < t->rank; ++i)
        if (t->sizes[i] < 0 || __builtin_mul_overflow(elements, t->sizes[i], &elements))
          throw user_error("TSR-S001", "a constant's shape overflows 64 bits or is negative", "use smaller sizes");
      auto* strides = static_cast<int64_t*>(allocate(t->rank * sizeof(int64_t), alignof(int64_t)));
      int64_t s = 1;
      for (uint32_t i = t->rank; i-- > 0;) {
        strides[i] = s;
        s *= std::max<int64_t>(t->sizes[i], 1);
      }
      t->strides = strides;
      t->flags = TSR_TENSOR_CONTIGUOUS;
      const size_t bytes = static_cast<size_t>(tensor_bytes(static_cast<tsr_dtype>(t->dtype), elements));
      // Shared: the source keeps it alive through owners_, which clone() copied. A bool is copied, to be normalised below.
      const bool kept = (a.tensor->flags & TSR_TENSOR_KEPT) != 0 && t->dtype != TSR_BOOL;
      if (kept && reinterpret_cast<uintptr_t>(a.tensor->data) % element_alignment(t->dtype) != 0)
        graph_misuse("a constant names memory that is not aligned to its elements");
      // A constant that moves, say into a region, is one that this graph holds already.
      const auto held = bytes >= kOwnedConstant && t->dtype != TSR_BOOL ? held_.find(a.tensor->data) : held_.end();
      if (kept || (bytes >= kOwnedConstant && share_constants_) || (held != held_.end() && bytes <= held->second)) {
        t->data = a.tensor->data;
      } else if (bytes >= kOwnedConstant) {
        std::shared_ptr<void> data(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
        if (!data) throw environment_error("TSR-R001", "out of memory for a constant of " + std::to_string(bytes) + " bytes");
        std::memcpy(data.get(), a.tensor->data, bytes);
        t->data = data.get();
        owners_.push_back(std::move(data));
      } else {
        t->data = allocate(bytes, 64);
        if (bytes) std::memcpy(t->data, a.tensor->data, bytes);
      }
      if (bytes >= kOwnedConstant) {
        size_t& known = held_[t->data];
        known = std::max(known, bytes);
      }
      // A bool is one of two bytes: that any other reads as true must not depend on who reads it.
      if (t->dtype == TSR_BOOL && t->data != a.tensor->data)
        for (size_t i = 0; i < bytes; ++i)
          static_cast<uint8_t*>(t->data)[i] = static_cast<const uint8_t*>(a.tensor->data)[i] != 0;
      c.tensor = t;
      break;
    }
    default: break;
  }
  return c;
}

std::shared_ptr<const void> Graph::owner_of(const void* p) const {
  for (const auto& owner : owners_)
    if (owner.get() == p) return owner;
  return nullptr;
}

// -------------------------------------------------------------------------------------------------------------- names

const char* Graph::unique_name(std::string_view base) {
  std::string candidate;
  if (base.empty()) {
    do candidate = std::to_string(next_anonymous_++);
    while (find_value(candidate) != TSR_NONE);
    return intern(candidate);
  }
  if (find_value(base) == TSR_NONE) return intern(base);
  const char* stem = intern(base);
  uint32_t& n = next_suffix_[std::string_view(stem)];
  do candidate = std::string(stem) + "_" + std::to_string(++n);
  while (find_value(candidate) != TSR_NONE);
  return intern(candidate);
}

void Graph::take_name(tsr_id v) { names_.insert(values_[v].name, v); }
void Graph::release_name(tsr_id v) { names_.erase(values_[v].name, v); }

tsr_id Graph::find_value(std::string_view name) const {
  return names_.find(name, [this](tsr_id v) { return std::string_view(values_[v].name); });
}

const char* Graph::output_name(uint32_t index) const {
  const char* given = given_output_name(index);
  return given ? given : values_[regions_[0].outputs[index]].name;
}

tsr_id Graph::new_value(const tsr_type& type, std::string_view name) {
  tsr_value v{};
  v.name = unique_name(name);
  v.type = intern_type(type);
  v.def_node = TSR_NONE;
  v.region = 0;
  v.writeback = TSR_NONE;
  v.alive = 1;
  const tsr_id id = static_cast<tsr_id>(values_.size());
  values_.push_back(v);
  uses_.emplace_back();
  take_name(id);
  return id;
}

// ------------------------------------------------------------------------------------------------------------- checks

void Graph::require_edit() const {
  if (marks_.empty()) graph_misuse("graph '" + std::string(tables_.name) + "' was edited outside a transaction");
}

void Graph::check_node(tsr_id n) const {
  if (n >= nodes_.size() || !nodes_[n].alive) graph_misuse("no live node with id " + std::to_string(n));
}

void Graph::check_value(tsr_id v) const {
  if (v >= values_.size() || !values_[v].alive) graph_misuse("no live value with id " + std::to_string(v));
}

const OpRecord& Graph::record_of(tsr_id n) const { return ops_->get(nodes_[n].op); }

const tsr_attr* Graph::attr(tsr_id n, std::string_view name) const {
  for (uint32_t i = 0; i < nodes_[n].num_attrs; ++i)
    if (name == nodes_[n].attrs[i].name) return &nodes_[n].attrs[i];
  return nullptr;
}

std::string Graph::describe(tsr_id n) const {
  const tsr_node& x = nodes_[n];
  std::string s;
  for (uint32_t i = 0; i < x.num_results; ++i) s += (i ? ", %" : "%") + std::string(values_[x.results[i]].name);
  s += (x.num_results ? " = " : "") + std::string(x.op);
  if (x.loc.file) s += " (" + std::string(x.loc.file) + ":" + std::to_string(x.loc.line) + ")";
  return s;
}

// --------------------------------------------------------------------------------------------------- links and uses

void Graph::link(tsr_id n, tsr_id before) {
  tsr_region& r = regions_[nodes_[n].parent];
  const tsr_id prev = before == TSR_NONE ? r.last : nodes_[before].prev;
  nodes_[n].prev = prev;
  nodes_[n].next = before;
  (prev == TSR_NONE ? r.first : nodes_[prev].next) = n;
  (before == TSR_NONE ? r.last : nodes_[before].prev) = n;
}

void Graph::unlink(tsr_id n) {
  tsr_region& r = regions_[nodes_[n].parent];
  const tsr_id prev = nodes_[n].prev, next = nodes_[n].next;
  (prev == TSR_NONE ? r.first : nodes_[prev].next) = next;
  (next == TSR_NONE ? r.last : nodes_[next].prev) = prev;
}

uint32_t& Graph::use_slot(tsr_id v, tsr_use use) {
  return use.node == TSR_NONE ? output_slots_[values_[v].region][use.operand] : node_slots_[use.node][use.operand];
}

void Graph::add_use(tsr_id v, tsr_use use) {
  if (v == TSR_NONE) return;
  use_slot(v, use) = static_cast<uint32_t>(uses_[v].size());
  uses_[v].push_back(use);
  values_[v].num_uses = static_cast<uint32_t>(uses_[v].size());
}

void Graph::remove_use(tsr_id v, tsr_use use) {
  if (v == TSR_NONE) return;
  auto& list = uses_[v];
  const uint32_t at = use_slot(v, use);
  list[at] = list.back();
  use_slot(v, list[at]) = at;
  list.pop_back();
  values_[v].num_uses = static_cast<uint32_t>(list.size());
}

void Graph::lost_use(tsr_id v) {
  if (listener_ && v != TSR_NONE && values_[v].def_node != TSR_NONE) listener_->unused(values_[v].def_node);
}

void Graph::touch(tsr_id n) {
  nodes_[n].author = author_;
  edited_.push_back(n);
  if (listener_) listener_->modified(n);
}

// The signature of a nested region is part of its node.
void Graph::touch_owner(tsr_id region) {
  const tsr_id n = regions_[region].parent_node;
  if (n == TSR_NONE) return;
  edited_.push_back(n);
  if (listener_) listener_->modified(n);
}

void Graph::log(const Undo& u) { journal_.push_back(u); }

}  // namespace tessera::core
