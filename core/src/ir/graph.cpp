// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

// One reversible step. Old pointers stay valid because the graph's memory only grows.
struct Graph::Undo {
  enum Kind {
    kCreateNode,
    kEraseNode,
    kMove,
    kOperand,
    kAttrs,
    kType,
    kName,
    kCreateRegion,
    kOutputs,
    kCreateInput,
    kState,
    kGraphName
  } kind;
  tsr_id id = TSR_NONE;     // node, value or region
  tsr_id other = TSR_NONE;  // successor, old operand
  uint32_t index = 0, count = 0;
  const void* old = nullptr;
  const char* author = nullptr;  // of the node, before the edit
};

namespace {

// From this size on, a constant's data is a block of its own that clones share; constants are never written.
constexpr size_t kOwnedConstant = 4096;

[[noreturn]] void misuse(const std::string& what) {
  throw bug("TSR-B001", what, "this is a bug in the code that edits the graph");
}

uintptr_t element_alignment(uint32_t dtype) {
  const auto bytes = static_cast<uintptr_t>(std::max(dtype_bits(dtype) / 8, 1));
  return is_complex(dtype) ? bytes / 2 : bytes;
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

void Graph::sync_tables() const {
  tables_.nodes = nodes_.data();
  tables_.num_nodes = nodes_.size();
  tables_.values = values_.data();
  tables_.num_values = values_.size();
  tables_.regions = regions_.data();
  tables_.num_regions = regions_.size();
  tables_.symbols = sizes_.symbols().data();
  tables_.num_symbols = sizes_.symbols().size();
  tables_.exprs = sizes_.exprs().data();
  tables_.num_exprs = sizes_.exprs().size();
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
        misuse("a constant names memory that is not aligned to its elements");
      if (kept || (bytes >= kOwnedConstant && share_constants_)) {
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
  if (marks_.empty()) misuse("graph '" + std::string(tables_.name) + "' was edited outside a transaction");
}

void Graph::check_node(tsr_id n) const {
  if (n >= nodes_.size() || !nodes_[n].alive) misuse("no live node with id " + std::to_string(n));
}

void Graph::check_value(tsr_id v) const {
  if (v >= values_.size() || !values_[v].alive) misuse("no live value with id " + std::to_string(v));
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

// -------------------------------------------------------------------------------------------------------------- edits

tsr_id Graph::create_node(const NodeSpec& spec, tsr_id region, tsr_id before) {
  require_edit();
  const OpRecord& rec = ops_->get(spec.op);
  if (region >= regions_.size() || !regions_[region].alive) misuse("no live region with id " + std::to_string(region));
  if (before != TSR_NONE) {
    check_node(before);
    if (nodes_[before].parent != region) misuse("the insertion point is in another region");
  }
  for (tsr_id v : spec.operands)
    if (v != TSR_NONE) check_value(v);
  for (size_t i = 0; i < spec.regions.size(); ++i) {
    const tsr_id r = spec.regions[i];
    bool free = r != 0 && r < regions_.size() && regions_[r].alive && regions_[r].parent_node == TSR_NONE;
    for (size_t k = 0; k < i; ++k) free &= spec.regions[k] != r;
    // Nor may the node stand in what it is about to own.
    for (tsr_id outer = region; free;) {
      free = outer != r;
      const tsr_id owner = regions_[outer].parent_node;
      if (owner == TSR_NONE) break;
      outer = nodes_[owner].parent;
    }
    if (!free) misuse("region " + std::to_string(r) + " is not free to become part of '" + rec.name + "'");
  }

  // Attributes go into the graph's memory first, so that inference sees what the node will hold.
  const std::vector<tsr_attr> complete = complete_attrs(rec, spec.attrs);
  auto* attrs = static_cast<tsr_attr*>(allocate(complete.size() * sizeof(tsr_attr), alignof(tsr_attr)));
  for (size_t i = 0; i < complete.size(); ++i) attrs[i] = copy_attr(complete[i]);

  std::vector<tsr_type> inferred;
  const std::vector<tsr_type>* types = &spec.result_types;
  if (!spec.typed && spec.result_types.empty()) {
    std::vector<const tsr_type*> operand_types;
    operand_types.reserve(spec.operands.size());
    for (tsr_id v : spec.operands) operand_types.push_back(v == TSR_NONE ? nullptr : values_[v].type);
    std::vector<std::vector<const tsr_type*>> region_types(2 * spec.regions.size());
    std::vector<tsr_signature> signatures(spec.regions.size());
    for (size_t i = 0; i < spec.regions.size(); ++i) {
      const tsr_region& r = regions_[spec.regions[i]];
      for (uint32_t k = 0; k < r.num_inputs; ++k) region_types[2 * i].push_back(values_[r.inputs[k]].type);
      for (uint32_t k = 0; k < r.num_outputs; ++k) region_types[2 * i + 1].push_back(values_[r.outputs[k]].type);
      signatures[i] = {region_types[2 * i].data(), r.num_inputs, r.num_outputs, region_types[2 * i + 1].data()};
    }
    tsr_call call{};
    call.struct_size = sizeof call;
    call.graph = handle();
    call.op = rec.name.c_str();
    call.operands = operand_types.data();
    call.num_operands = static_cast<uint32_t>(operand_types.size());
    call.attrs = attrs;
    call.num_attrs = static_cast<uint32_t>(complete.size());
    call.regions = signatures.data();
    call.num_regions = static_cast<uint32_t>(signatures.size());
    const Sizes::Checkpoint before_inference = sizes_.checkpoint();
    try {
      inferred = infer(*this, rec, call);
    } catch (...) {
      sizes_.restore(before_inference);  // a node that was refused leaves no assumptions behind
      throw;
    }
    if (sizes_.assumptions().size() > before_inference.assumptions)
      sizes_.place_assumptions(
          before_inference.assumptions,
          (spec.loc.file ? spec.loc.file + (":" + std::to_string(spec.loc.line)) + " in " : "in ") + rec.name);
    types = &inferred;
  }

  const tsr_id id = static_cast<tsr_id>(nodes_.size());
  tsr_node n{};
  n.op = rec.name.c_str();
  n.op_index = rec.index;
  n.alive = 1;
  n.num_operands = static_cast<uint32_t>(spec.operands.size());
  auto* operands = static_cast<tsr_id*>(allocate(spec.operands.size() * sizeof(tsr_id), alignof(tsr_id)));
  std::copy(spec.operands.begin(), spec.operands.end(), operands);
  n.operands = operands;
  n.attrs = attrs;
  n.num_attrs = static_cast<uint32_t>(complete.size());
  n.num_regions = static_cast<uint32_t>(spec.regions.size());
  auto* owned = static_cast<tsr_id*>(allocate(spec.regions.size() * sizeof(tsr_id), alignof(tsr_id)));
  std::copy(spec.regions.begin(), spec.regions.end(), owned);
  n.regions = owned;
  n.parent = region;
  n.loc = spec.loc;
  if (n.loc.file) n.loc.file = intern(n.loc.file);
  n.author = author_;
  n.num_results = static_cast<uint32_t>(types->size());
  auto* results = static_cast<tsr_id*>(allocate(types->size() * sizeof(tsr_id), alignof(tsr_id)));
  n.results = results;
  nodes_.push_back(n);
  for (uint32_t i = 0; i < n.num_results; ++i) {
    results[i] =
        new_value((*types)[i], i < spec.result_names.size() ? std::string_view(spec.result_names[i]) : std::string_view());
    tsr_value& v = values_[results[i]];
    v.def_node = id;
    v.def_index = i;
    v.region = region;
  }
  node_slots_.push_back(new_slots(n.num_operands));
  for (uint32_t i = 0; i < n.num_operands; ++i) add_use(operands[i], {id, i});
  for (tsr_id r : spec.regions) {
    regions_[r].parent_node = id;
    for (uint32_t k = 0; k < regions_[r].num_inputs; ++k) values_[regions_[r].inputs[k]].input_kind = TSR_INPUT_BLOCK;
  }
  link(id, before);
  ++live_nodes_;
  Undo u{Undo::kCreateNode};
  u.id = id;
  log(u);
  edited_.push_back(id);
  if (listener_) listener_->created(id);
  return id;
}

// Marks a node with its results and everything nested in it; names are freed or taken back.
void Graph::revive(tsr_id n, bool alive) {
  tsr_node& x = nodes_[n];
  x.alive = alive;
  live_nodes_ += alive ? 1 : -1;
  auto mark = [&](tsr_id v) {
    values_[v].alive = alive;
    if (alive)
      take_name(v);
    else
      release_name(v);
  };
  for (uint32_t i = 0; i < x.num_results; ++i) mark(x.results[i]);
  for (uint32_t i = 0; i < x.num_regions; ++i) {
    tsr_region& r = regions_[x.regions[i]];
    r.alive = alive;
    for (uint32_t k = 0; k < r.num_inputs; ++k) mark(r.inputs[k]);
    for (tsr_id m = r.first; m != TSR_NONE; m = nodes_[m].next) revive(m, alive);
  }
}

void Graph::erase_node(tsr_id n) {
  require_edit();
  check_node(n);
  const tsr_node& x = nodes_[n];
  for (uint32_t i = 0; i < x.num_results; ++i)
    if (!uses_[x.results[i]].empty())
      misuse("cannot erase " + describe(n) + ": %" + values_[x.results[i]].name + " still has " +
             std::to_string(uses_[x.results[i]].size()) + " uses");
  if (listener_) listener_->erased(n);
  for (uint32_t i = 0; i < x.num_operands; ++i) remove_use(x.operands[i], {n, i});
  Undo u{Undo::kEraseNode};
  u.id = n;
  u.other = x.next;
  unlink(n);
  revive(n, false);
  log(u);
}

void Graph::move_node(tsr_id n, tsr_id before) {
  require_edit();
  check_node(n);
  if (before != TSR_NONE) {
    check_node(before);
    if (nodes_[before].parent != nodes_[n].parent) misuse("a node moves within its region only");
  }
  if (before == n || nodes_[n].next == before) return;
  Undo u{Undo::kMove};
  u.id = n;
  u.other = nodes_[n].next;
  u.author = nodes_[n].author;
  unlink(n);
  link(n, before);
  log(u);
  touch(n);
}

void Graph::set_operand(tsr_id n, uint32_t index, tsr_id v) {
  require_edit();
  check_node(n);
  if (index >= nodes_[n].num_operands) misuse(describe(n) + " has no operand " + std::to_string(index));
  if (v != TSR_NONE) check_value(v);
  // The array was allocated by create_node; only the table's view of it is const.
  tsr_id& slot = const_cast<tsr_id*>(nodes_[n].operands)[index];
  if (slot == v) return;
  Undo u{Undo::kOperand};
  u.id = n;
  u.index = index;
  u.other = slot;
  u.author = nodes_[n].author;
  remove_use(slot, {n, index});
  slot = v;
  add_use(v, {n, index});
  log(u);
  touch(n);
  lost_use(u.other);
}

void Graph::set_attr(tsr_id n, const tsr_attr& a) {
  require_edit();
  check_node(n);
  const OpRecord& rec = record_of(n);
  std::vector<tsr_attr> given(nodes_[n].attrs, nodes_[n].attrs + nodes_[n].num_attrs);
  bool found = false;
  for (tsr_attr& g : given)
    if (std::strcmp(g.name, a.name) == 0) {
      g = a;
      found = true;
    }
  if (!found) given.push_back(a);
  const std::vector<tsr_attr> complete = complete_attrs(rec, given);
  auto* attrs = static_cast<tsr_attr*>(allocate(complete.size() * sizeof(tsr_attr), alignof(tsr_attr)));
  for (size_t i = 0; i < complete.size(); ++i) {
    const bool changed = std::strcmp(complete[i].name, a.name) == 0;
    attrs[i] = complete[i];
    if (changed) attrs[i] = copy_attr(complete[i]);
  }
  Undo u{Undo::kAttrs};
  u.id = n;
  u.old = nodes_[n].attrs;
  u.count = nodes_[n].num_attrs;
  u.author = nodes_[n].author;
  nodes_[n].attrs = attrs;
  nodes_[n].num_attrs = static_cast<uint32_t>(complete.size());
  log(u);
  touch(n);
}

void Graph::replace_uses(tsr_id from, tsr_id to) {
  require_edit();
  check_value(from);
  check_value(to);
  if (from == to) return;
  const tsr_type &a = *values_[from].type, &b = *values_[to].type;
  bool agree = a.dtype == b.dtype && a.rank == b.rank && a.device == b.device;
  for (uint32_t i = 0; agree && i < a.rank; ++i) agree = sizes_.compare(TSR_EQ, a.sizes[i], b.sizes[i]) == TSR_TRUE;
  if (!agree)
    misuse("cannot replace %" + std::string(values_[from].name) + " of type " + print_type(*this, a) + " by %" +
           values_[to].name + " of type " + print_type(*this, b));
  if (values_[from].region != values_[to].region) misuse("cannot replace a value by one of another region");
  // From the back, where removing one leaves the others where they are.
  while (!uses_[from].empty()) {
    const tsr_use use = uses_[from].back();
    if (use.node != TSR_NONE) {
      set_operand(use.node, use.operand, to);
      continue;
    }
    const tsr_region& r = regions_[values_[from].region];
    std::vector<tsr_id> outputs(r.outputs, r.outputs + r.num_outputs);
    std::replace(outputs.begin(), outputs.end(), from, to);
    set_outputs(values_[from].region, outputs);
  }
}

void Graph::replace_node(tsr_id n, std::span<const tsr_id> values, tsr_id made_from) {
  require_edit();
  check_node(n);
  const std::span<const tsr_id> results(nodes_[n].results, nodes_[n].num_results);
  if (values.size() != results.size())
    misuse("cannot replace " + describe(n) + " by " + std::to_string(values.size()) + " values, it has " +
           std::to_string(results.size()) + " results");
  for (size_t i = 0; i < values.size(); ++i) replace_uses(results[i], values[i]);
  erase_node(n);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] >= made_from && find_value(values_[results[i]].name) == TSR_NONE)
      set_name(values[i], values_[results[i]].name);
}

void Graph::set_type(tsr_id v, const tsr_type& t) {
  require_edit();
  check_value(v);
  Undo u{Undo::kType};
  u.id = v;
  u.old = values_[v].type;
  const tsr_id def = values_[v].def_node;
  if (def != TSR_NONE) u.author = nodes_[def].author;
  values_[v].type = intern_type(t);
  log(u);
  if (def != TSR_NONE) touch(def);
  for (const tsr_use& use : uses_[v])
    if (use.node != TSR_NONE) edited_.push_back(use.node);
  touch_owner(values_[v].region);
}

void Graph::set_name(tsr_id v, std::string_view name) {
  require_edit();
  check_value(v);
  if (name == values_[v].name) return;
  Undo u{Undo::kName};
  u.id = v;
  u.old = values_[v].name;
  release_name(v);
  values_[v].name = unique_name(name);
  take_name(v);
  log(u);
}

tsr_id Graph::create_region(std::span<const tsr_type> input_types, std::span<const std::string> names) {
  require_edit();
  const tsr_id id = static_cast<tsr_id>(regions_.size());
  tsr_region r{};
  r.parent_node = r.first = r.last = TSR_NONE;
  r.alive = 1;
  r.num_inputs = static_cast<uint32_t>(input_types.size());
  auto* inputs = static_cast<tsr_id*>(allocate(input_types.size() * sizeof(tsr_id), alignof(tsr_id)));
  r.inputs = inputs;
  regions_.push_back(r);
  output_slots_.push_back(nullptr);
  for (size_t i = 0; i < input_types.size(); ++i) {
    inputs[i] = new_value(input_types[i], i < names.size() ? std::string_view(names[i]) : std::string_view());
    tsr_value& v = values_[inputs[i]];
    v.region = id;
    v.def_index = static_cast<uint32_t>(i);
    v.input_kind = TSR_INPUT_BLOCK;
  }
  Undo u{Undo::kCreateRegion};
  u.id = id;
  log(u);
  return id;
}

void Graph::set_outputs(tsr_id region, std::span<const tsr_id> values) {
  require_edit();
  if (region >= regions_.size() || !regions_[region].alive) misuse("no live region with id " + std::to_string(region));
  for (tsr_id v : values) {
    check_value(v);
    if (values_[v].region != region)
      misuse("%" + std::string(values_[v].name) + " cannot be an output of region " + std::to_string(region) +
             ": it belongs to another");
  }
  tsr_region& r = regions_[region];
  Undo u{Undo::kOutputs};
  u.id = region;
  u.old = r.outputs;
  u.count = r.num_outputs;
  for (uint32_t i = 0; i < r.num_outputs; ++i) remove_use(r.outputs[i], {TSR_NONE, i});
  output_slots_[region] = new_slots(values.size());
  auto* outputs = static_cast<tsr_id*>(allocate(values.size_bytes(), alignof(tsr_id)));
  std::copy(values.begin(), values.end(), outputs);
  r.outputs = outputs;
  r.num_outputs = static_cast<uint32_t>(values.size());
  for (uint32_t i = 0; i < r.num_outputs; ++i) add_use(outputs[i], {TSR_NONE, i});
  log(u);
  touch_owner(region);
  for (uint32_t i = 0; i < u.count; ++i) lost_use(static_cast<const tsr_id*>(u.old)[i]);
}

tsr_id Graph::create_input(std::string_view name, const tsr_type& type, tsr_input_kind kind, const char* key) {
  require_edit();
  const tsr_id id = new_value(type, name);
  tsr_value& v = values_[id];
  tsr_region& r = regions_[0];
  v.input_kind = kind;
  v.def_index = r.num_inputs;
  v.key = key ? intern(key) : nullptr;
  auto* inputs = const_cast<tsr_id*>(r.inputs);
  if ((r.num_inputs & (r.num_inputs - 1)) == 0) {  // full: the array grows to the next power of two
    inputs = static_cast<tsr_id*>(allocate(std::max(1u, 2 * r.num_inputs) * sizeof(tsr_id), alignof(tsr_id)));
    std::copy(r.inputs, r.inputs + r.num_inputs, inputs);
  }
  inputs[r.num_inputs] = id;
  Undo u{Undo::kCreateInput};
  u.id = id;
  u.old = r.inputs;
  r.inputs = inputs;
  ++r.num_inputs;
  log(u);
  return id;
}

void Graph::set_state(tsr_id v, uint32_t writeback, bool donated) {
  require_edit();
  check_value(v);
  Undo u{Undo::kState};
  u.id = v;
  u.other = values_[v].writeback;
  u.index = values_[v].donated;
  values_[v].writeback = writeback;
  values_[v].donated = donated;
  log(u);
}

void Graph::rename(std::string_view graph_name) {
  require_edit();
  Undo u{Undo::kGraphName};
  u.old = tables_.name;
  tables_.name = intern(graph_name);
  log(u);
}

// ------------------------------------------------------------------------------------------------------- transactions

void Graph::begin(std::string_view author) {
  marks_.push_back({journal_.size(), edited_.size(), sizes_.checkpoint(), author_, next_anonymous_});
  author_ = intern(author);
}

bool Graph::changed() const {
  if (marks_.empty()) return false;
  const Mark& m = marks_.back();
  const Sizes::Checkpoint now = sizes_.checkpoint();
  return journal_.size() > m.journal || now.symbols != m.sizes.symbols || now.assumptions != m.sizes.assumptions;
}

void Graph::commit() {
  if (marks_.empty()) misuse("commit without a transaction");
  if (marks_.size() > 1) {
    author_ = marks_.back().author;
    marks_.pop_back();
    return;
  }
  std::sort(edited_.begin(), edited_.end());
  edited_.erase(std::unique(edited_.begin(), edited_.end()), edited_.end());
  std::erase_if(edited_, [&](tsr_id n) { return !nodes_[n].alive; });
  try {
    verify_nodes(*this, edited_);
  } catch (...) {
    rollback();
    throw;
  }
  close();
}

// Forgets the outermost transaction.
void Graph::close() {
  marks_.clear();
  journal_.clear();
  edited_.clear();
  author_ = nullptr;
  reset_scratch();
}

void Graph::rollback() {
  if (marks_.empty()) misuse("rollback without a transaction");
  const Mark m = marks_.back();
  while (journal_.size() > m.journal) {
    undo(journal_.back());
    journal_.pop_back();
  }
  sizes_.restore(m.sizes);
  next_anonymous_ = m.next_anonymous;
  if (marks_.size() == 1) return close();
  edited_.resize(m.edited);
  author_ = m.author;
  marks_.pop_back();
}

// Undone in reverse order, what an edit has created is the tail of its table, and is dropped there.
void Graph::undo(const Undo& u) {
  switch (u.kind) {
    case Undo::kCreateNode: {
      const tsr_node& n = nodes_[u.id];
      for (uint32_t i = 0; i < n.num_operands; ++i) remove_use(n.operands[i], {u.id, i});
      for (uint32_t i = 0; i < n.num_regions; ++i) regions_[n.regions[i]].parent_node = TSR_NONE;
      unlink(u.id);
      --live_nodes_;
      drop_values(n.num_results);
      nodes_.pop_back();
      node_slots_.pop_back();
      break;
    }
    case Undo::kEraseNode: {
      revive(u.id, true);
      link(u.id, u.other);
      const tsr_node& n = nodes_[u.id];
      for (uint32_t i = 0; i < n.num_operands; ++i) add_use(n.operands[i], {u.id, i});
      break;
    }
    case Undo::kMove:
      unlink(u.id);
      link(u.id, u.other);
      nodes_[u.id].author = u.author;
      break;
    case Undo::kOperand: {
      tsr_id& slot = const_cast<tsr_id*>(nodes_[u.id].operands)[u.index];
      remove_use(slot, {u.id, u.index});
      slot = u.other;
      add_use(slot, {u.id, u.index});
      nodes_[u.id].author = u.author;
      break;
    }
    case Undo::kAttrs:
      nodes_[u.id].attrs = static_cast<const tsr_attr*>(u.old);
      nodes_[u.id].num_attrs = u.count;
      nodes_[u.id].author = u.author;
      break;
    case Undo::kType:
      values_[u.id].type = static_cast<const tsr_type*>(u.old);
      if (values_[u.id].def_node != TSR_NONE) nodes_[values_[u.id].def_node].author = u.author;
      break;
    case Undo::kName:
      release_name(u.id);
      values_[u.id].name = static_cast<const char*>(u.old);
      take_name(u.id);
      break;
    case Undo::kCreateRegion:
      drop_values(regions_[u.id].num_inputs);
      regions_.pop_back();
      output_slots_.pop_back();
      break;
    case Undo::kOutputs: {
      tsr_region& r = regions_[u.id];
      for (uint32_t i = 0; i < r.num_outputs; ++i) remove_use(r.outputs[i], {TSR_NONE, i});
      r.outputs = static_cast<const tsr_id*>(u.old);
      r.num_outputs = u.count;
      output_slots_[u.id] = new_slots(u.count);
      for (uint32_t i = 0; i < r.num_outputs; ++i) add_use(r.outputs[i], {TSR_NONE, i});
      break;
    }
    case Undo::kCreateInput: {
      tsr_region& r = regions_[0];
      r.inputs = static_cast<const tsr_id*>(u.old);
      --r.num_inputs;
      drop_values(1);
      break;
    }
    case Undo::kState:
      values_[u.id].writeback = u.other;
      values_[u.id].donated = u.index;
      break;
    case Undo::kGraphName: tables_.name = static_cast<const char*>(u.old); break;
  }
}

void Graph::drop_values(size_t count) {
  for (; count > 0; --count) {
    const tsr_id v = static_cast<tsr_id>(values_.size() - 1);
    if (values_[v].alive) release_name(v);
    values_.pop_back();
    uses_.pop_back();
  }
}

// -------------------------------------------------------------------------------------------------------------- clone

namespace {
struct Cloner {
  const Graph& from;
  Graph& to;
  std::vector<tsr_id> values;

  explicit Cloner(const Graph& f, Graph& t) : from(f), to(t), values(f.num_values(), TSR_NONE) {}

  void body(tsr_id region, tsr_id target) {
    for (tsr_id n : nodes_of(from, region)) node(n, target);
    std::vector<tsr_id> outputs;
    const tsr_region& r = from.region(region);
    for (uint32_t i = 0; i < r.num_outputs; ++i) outputs.push_back(values[r.outputs[i]]);
    to.set_outputs(target, outputs);
  }

  void node(tsr_id n, tsr_id target) {
    const tsr_node& x = from.node(n);
    NodeSpec s;
    s.op = x.op;
    for (uint32_t i = 0; i < x.num_operands; ++i)
      s.operands.push_back(x.operands[i] == TSR_NONE ? TSR_NONE : values[x.operands[i]]);
    s.attrs.assign(x.attrs, x.attrs + x.num_attrs);
    s.loc = x.loc;
    s.typed = true;
    for (uint32_t i = 0; i < x.num_results; ++i) {
      s.result_types.push_back(*from.value(x.results[i]).type);
      s.result_names.emplace_back(from.value(x.results[i]).name);
    }
    for (uint32_t i = 0; i < x.num_regions; ++i) {
      const tsr_region& r = from.region(x.regions[i]);
      std::vector<tsr_type> types;
      std::vector<std::string> names;
      for (uint32_t k = 0; k < r.num_inputs; ++k) {
        types.push_back(*from.value(r.inputs[k]).type);
        names.emplace_back(from.value(r.inputs[k]).name);
      }
      const tsr_id copy = to.create_region(types, names);
      for (uint32_t k = 0; k < r.num_inputs; ++k) values[r.inputs[k]] = to.region(copy).inputs[k];
      body(x.regions[i], copy);
      s.regions.push_back(copy);
    }
    const tsr_id made = to.create_node(s, target);
    for (uint32_t i = 0; i < x.num_results; ++i) values[x.results[i]] = to.node(made).results[i];
  }
};
}  // namespace

std::unique_ptr<Graph> Graph::clone() const {
  auto g = std::make_unique<Graph>(*ops_, tables_.name);
  g->sizes_.~Sizes();
  new (&g->sizes_) Sizes(sizes_);  // handles keep their meaning: sizes need no renaming
  g->owners_ = owners_;
  g->share_constants_ = true;
  Cloner c(*this, *g);
  const tsr_region& r = regions_[0];
  for (uint32_t i = 0; i < r.num_inputs; ++i) {
    const tsr_value& v = values_[r.inputs[i]];
    c.values[r.inputs[i]] = g->create_input(v.name, *v.type, static_cast<tsr_input_kind>(v.input_kind), v.key);
    g->set_state(c.values[r.inputs[i]], v.writeback, v.donated != 0);
  }
  c.body(0, 0);
  for (tsr_id n = 0; n < g->nodes_.size(); ++n) g->nodes_[n].author = "clone";
  g->share_constants_ = false;
  g->close();  // a copy of a checked graph needs no check
  return g;
}

// ------------------------------------------------------------------------------------------------------------ restart

void Graph::restart() {
  require_edit();
  if (marks_.size() != 1) misuse("a graph can only start again while it is built, outside of other transactions");
  nodes_.clear();
  values_.clear();
  regions_.clear();
  uses_.clear();
  node_slots_.clear();
  output_slots_.clear();
  names_ = NameTable();
  next_suffix_.clear();
  journal_.clear();
  edited_.clear();
  owners_.clear();
  marks_.back() = {0, 0, sizes_.checkpoint(), marks_.back().author, 0};
  live_nodes_ = 0;
  next_anonymous_ = 0;
  create_region({});
  journal_.clear();  // as in the constructor
}

}  // namespace tessera::core
