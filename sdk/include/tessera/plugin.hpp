// SPDX-License-Identifier: Apache-2.0
// The C++20 wrapper over abi.h, header-only. What a plugin is made of:
//
//   #include <tessera/plugin.hpp>
//   namespace t = tessera::sdk;
//
//   class Cse : public t::Pass {
//     const char* summary() const override { return "..."; }
//     const char* ensures() const override { return "..."; }
//     bool run(t::Graph g, const t::Options&) override { ... }   // true: changed
//   };
//   TESSERA_PLUGIN("tessera.pass.cse", "0.1.0", "Tessera") {
//     plugin.add_pass("cse", std::make_unique<Cse>());
//   }
//
// Exceptions thrown by overridden functions never leave the library: the thunks turn t::Error into its tsr_error, anything else
// into a bug of the plugin. All views (Graph, Node, Value, Type) are cheap, borrow from the host and are valid inside the
// callback.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/abi.h"

#ifndef TESSERA_PLUGIN_BUILD_INFO
#define TESSERA_PLUGIN_BUILD_INFO __VERSION__
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TESSERA_SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define TESSERA_SANITIZER "thread"
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TESSERA_SANITIZER "address"
#elif __has_feature(thread_sanitizer)
#define TESSERA_SANITIZER "thread"
#endif
#endif
#ifndef TESSERA_SANITIZER
#define TESSERA_SANITIZER ""
#endif

namespace tessera::sdk {

inline const tsr_host*& host_slot() {
  static const tsr_host* h = nullptr;
  return h;
}
inline const tsr_host& host() { return *host_slot(); }  // set by the handshake, before anything else runs

// ------------------------------------------------------------------------------------------------------------- errors

class Error : public std::runtime_error {
 public:
  Error(tsr_family family, std::string code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), family(family), code(std::move(code)), hint(std::move(hint)) {}
  tsr_family family;
  std::string code, hint;
};

// Throws what a host function reported.
inline void check(tsr_error* e) {
  if (!e) return;
  const tsr_host_core& c = *host().core;
  const char* hint = c.error_hint(e);
  Error out(static_cast<tsr_family>(c.error_family(e)), c.error_code(e), c.error_message(e), hint ? hint : "");
  c.error_free(e);
  throw out;
}

// The exception that is being handled, as an error of the host's.
inline tsr_error* current_error() noexcept {
  const tsr_host_core& c = *host().core;
  try {
    throw;
  } catch (const Error& e) {
    return c.error_create(e.family, e.code.c_str(), e.what(), e.hint.empty() ? nullptr : e.hint.c_str());
  } catch (const std::bad_alloc&) {
    return c.error_create(TSR_ENVIRONMENT, "TSR-R001", "out of memory", nullptr);
  } catch (const std::exception& e) {
    return c.error_create(TSR_BUG, "TSR-P900", e.what(), "report this to the plugin's vendor");
  } catch (...) {
    return c.error_create(TSR_BUG, "TSR-P900", "unknown exception", "report this to the plugin's vendor");
  }
}

template <class F>
tsr_error* guarded(F&& f) noexcept {
  try {
    f();
    return nullptr;
  } catch (...) {
    return current_error();
  }
}

inline bool log_enabled(const char* artifact, int level = 0) { return host().core->log_enabled(artifact, level) != 0; }
inline void log(const char* artifact, const std::string& text, int level = 0) {
  host().core->log_write(artifact, level, text.c_str());
}

// Tells whoever waits that `done` of `total` units of `what` are done ("measuring schedules"); equal: it has ended.
inline void progress(const char* what, size_t done, size_t total) { host().core->progress(what, done, total); }

// Runs f(begin, end) over disjoint ranges of [0, n) on the host's threads. f may throw: the first exception is rethrown here.
template <class F>
void parallel(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain) {
    f(int64_t{0}, n);
    return;
  }
  struct Ctx {
    std::remove_reference_t<F>* f;
    std::exception_ptr error;
    bool failed = false;
  } ctx{&f, nullptr, false};
  host().core->parallel(
      n, grain,
      [](void* p, int64_t begin, int64_t end) {
        auto* c = static_cast<Ctx*>(p);
        try {
          (*c->f)(begin, end);
        } catch (...) {
          if (!__atomic_test_and_set(&c->failed, __ATOMIC_ACQ_REL)) c->error = std::current_exception();
        }
      },
      &ctx);
  if (ctx.error) std::rethrow_exception(ctx.error);
}

// -------------------------------------------------------------------------------------------------------------- views

struct Type {
  const tsr_type* p = nullptr;
  tsr_dtype dtype() const { return static_cast<tsr_dtype>(p->dtype); }
  uint32_t rank() const { return p->rank; }
  std::span<const tsr_dim> sizes() const { return {p->sizes, p->rank}; }
  tsr_dim size(int64_t axis) const { return p->sizes[axis < 0 ? axis + p->rank : axis]; }
  bool is_static() const {
    for (tsr_dim d : sizes())
      if (TSR_DIM_IS_EXPR(d)) return false;
    return true;
  }
  // Number of elements when every size is a number; -1 otherwise.
  int64_t elements() const {
    int64_t n = 1;
    for (tsr_dim d : sizes()) {
      if (TSR_DIM_IS_EXPR(d)) return -1;
      n *= d;
    }
    return n;
  }
};

struct Attr {
  const tsr_attr* p = nullptr;
  explicit operator bool() const { return p != nullptr; }
  int64_t as_int() const { return p->i; }
  double as_float() const { return p->f; }
  bool as_bool() const { return p->i != 0; }
  std::string_view as_string() const { return p->s; }
  tsr_dtype as_dtype() const { return static_cast<tsr_dtype>(p->i); }
  std::span<const int64_t> as_ints() const { return {p->ints, p->count}; }
  std::span<const double> as_floats() const { return {p->floats, p->count}; }
  const tsr_tensor& as_tensor() const { return *p->tensor; }
};

inline const tsr_attr* find_attr(const tsr_attr* attrs, uint32_t n, std::string_view name) {
  for (uint32_t i = 0; i < n; ++i)
    if (name == attrs[i].name) return &attrs[i];
  return nullptr;
}
// The attribute that the record promises; a missing one is a bug of the caller.
inline Attr need_attr(const tsr_attr* attrs, uint32_t n, std::string_view name, const char* op) {
  const tsr_attr* a = find_attr(attrs, n, name);
  if (!a) throw Error(TSR_BUG, "TSR-B002", std::string("op '") + op + "' has no attribute '" + std::string(name) + "'");
  return {a};
}

// An op applied to operands (infer, compute, view).
struct Call {
  const tsr_call* p = nullptr;
  std::string_view op() const { return p->op; }
  uint32_t num_operands() const { return p->num_operands; }
  bool has(uint32_t i) const { return i < p->num_operands && p->operands[i] != nullptr; }
  Type operand(uint32_t i) const { return {p->operands[i]}; }
  Attr attr(std::string_view name) const { return need_attr(p->attrs, p->num_attrs, name, p->op); }
};

class Graph;

struct Value;
struct Node {
  tsr_graph* g = nullptr;
  tsr_id id = TSR_NONE;
  explicit operator bool() const { return id != TSR_NONE; }
  bool operator==(const Node& o) const { return id == o.id; }
  const tsr_node& raw() const;
  std::string_view op() const { return raw().op; }
  bool is(std::string_view op) const { return raw().op == op; }
  bool alive() const { return raw().alive != 0; }
  uint32_t num_operands() const { return raw().num_operands; }
  uint32_t num_results() const { return raw().num_results; }
  bool has_operand(uint32_t i) const { return i < raw().num_operands && raw().operands[i] != TSR_NONE; }
  Value operand(uint32_t i) const;
  Value result(uint32_t i = 0) const;
  std::span<const tsr_attr> attrs() const { return {raw().attrs, raw().num_attrs}; }
  Attr attr(std::string_view name) const { return need_attr(raw().attrs, raw().num_attrs, name, raw().op); }
  Attr find(std::string_view name) const { return {find_attr(raw().attrs, raw().num_attrs, name)}; }
  std::span<const tsr_id> regions() const { return {raw().regions, raw().num_regions}; }
  uint32_t marks() const { return raw().marks; }  // TSR_MARK_*
  bool marked(uint32_t mark) const { return (raw().marks & mark) != 0; }
  Node next() const { return {g, raw().next}; }
  Node prev() const { return {g, raw().prev}; }
};

struct Value {
  tsr_graph* g = nullptr;
  tsr_id id = TSR_NONE;
  explicit operator bool() const { return id != TSR_NONE; }
  bool operator==(const Value& o) const { return id == o.id; }
  const tsr_value& raw() const;
  Type type() const { return {raw().type}; }
  Node def() const { return {g, raw().def_node}; }  // false for inputs
  std::string_view name() const { return raw().name; }
  uint32_t num_uses() const { return raw().num_uses; }
  std::span<const tsr_use> uses() const {
    uint32_t n = 0;
    const tsr_use* u = host().graph->uses(g, id, &n);
    return {u, n};
  }
};

class NodeRange {  // live nodes of a region in program order; the current node may be erased after its successor was read
 public:
  NodeRange(tsr_graph* g, tsr_id first) : g_(g), first_(first) {}
  struct Iterator {
    Node n;
    tsr_id next;
    Node operator*() const { return n; }
    Iterator& operator++() {
      n.id = next;
      next = n ? n.raw().next : TSR_NONE;
      return *this;
    }
    bool operator!=(const Iterator& o) const { return n.id != o.n.id; }
  };
  Iterator begin() const {
    Node n{g_, first_};
    return {n, n ? n.raw().next : TSR_NONE};
  }
  Iterator end() const { return {{g_, TSR_NONE}, TSR_NONE}; }

 private:
  tsr_graph* g_;
  tsr_id first_;
};

// ------------------------------------------------------------------------------------------------- attributes to create

inline tsr_attr attr_int(const char* n, int64_t v) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_INT;
  a.i = v;
  return a;
}
inline tsr_attr attr_float(const char* n, double v) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_FLOAT;
  a.f = v;
  return a;
}
inline tsr_attr attr_bool(const char* n, bool v) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_BOOL;
  a.i = v;
  return a;
}
inline tsr_attr attr_string(const char* n, const char* v) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_STRING;
  a.s = v;
  return a;
}
inline tsr_attr attr_dtype(const char* n, tsr_dtype v) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_DTYPE;
  a.i = v;
  return a;
}
inline tsr_attr attr_dim(const char* n, tsr_dim v) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_DIM;
  a.i = v;
  return a;
}
// Spans are borrowed until the node is created.
inline tsr_attr attr_ints(const char* n, std::span<const int64_t> v) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_INTS;
  a.ints = v.data();
  a.count = static_cast<uint32_t>(v.size());
  return a;
}
inline tsr_attr attr_dims(const char* n, std::span<const tsr_dim> v) {
  tsr_attr a = attr_ints(n, v);
  a.kind = TSR_ATTR_DIMS;
  return a;
}
inline tsr_attr attr_tensor(const char* n, const tsr_tensor& t) {
  tsr_attr a{};
  a.name = n;
  a.kind = TSR_ATTR_TENSOR;
  a.tensor = &t;
  return a;
}

// -------------------------------------------------------------------------------------------------------------- graph

class Graph {
 public:
  explicit Graph(tsr_graph* g) : g_(g), t_(host().graph->tables(g)) {}
  tsr_graph* handle() const { return g_; }
  const tsr_tables& tables() const { return *t_; }
  const tsr_graph_api& api() const { return *host().graph; }

  Node node(tsr_id id) const { return {g_, id}; }
  Value value(tsr_id id) const { return {g_, id}; }
  NodeRange nodes(tsr_id region = 0) const { return {g_, region_raw(region).first}; }
  const tsr_region& region_raw(tsr_id r) const { return *TSR_AT(tsr_region, t_->regions, t_->region_stride, r); }
  std::span<const tsr_id> inputs(tsr_id region = 0) const { return {region_raw(region).inputs, region_raw(region).num_inputs}; }
  std::span<const tsr_id> outputs(tsr_id region = 0) const {
    return {region_raw(region).outputs, region_raw(region).num_outputs};
  }
  // What output `i` of the graph is called outside of it.
  std::string_view output_name(uint32_t i) const {
    const bool named = TSR_HAS(t_, tsr_tables, output_names) && t_->output_names && t_->output_names[i];
    return named ? t_->output_names[i] : value(outputs()[i]).name();
  }
  size_t num_node_slots() const { return t_->num_nodes; }
  size_t num_value_slots() const { return t_->num_values; }
  // Does the record of `op` have this trait?
  bool has_trait(const char* op, std::string_view trait) const {
    const char* s = api().op_traits(g_, op);
    if (!s) return false;
    std::string_view all(s);
    for (size_t at = all.find(trait); at != all.npos; at = all.find(trait, at + 1))
      if ((at == 0 || all[at - 1] == ' ') && (at + trait.size() == all.size() || all[at + trait.size()] == ' ')) return true;
    return false;
  }

  // ---- sizes
  tsr_dim dim(tsr_dim_op op, tsr_dim a, tsr_dim b) const {
    tsr_dim out = 0;
    check(api().dim(g_, op, a, b, &out));
    return out;
  }
  tsr_dim add(tsr_dim a, tsr_dim b) const { return dim(TSR_DIM_ADD, a, b); }
  tsr_dim sub(tsr_dim a, tsr_dim b) const { return dim(TSR_DIM_SUB, a, b); }
  tsr_dim mul(tsr_dim a, tsr_dim b) const { return dim(TSR_DIM_MUL, a, b); }
  tsr_dim floordiv(tsr_dim a, tsr_dim b) const { return dim(TSR_DIM_FLOORDIV, a, b); }
  tsr_dim product(std::span<const tsr_dim> d) const {
    tsr_dim p = 1;
    for (tsr_dim x : d) p = mul(p, x);
    return p;
  }
  tsr_truth compare(tsr_relation r, tsr_dim a, tsr_dim b) const { return api().dim_compare(g_, r, a, b); }
  void require(tsr_relation r, tsr_dim a, tsr_dim b, const char* why) const { check(api().dim_require(g_, r, a, b, why)); }
  tsr_dim symbol(const char* prefix, int64_t min, int64_t max, bool unbacked) const {
    return api().symbol_create(g_, prefix, min, max, unbacked);
  }

  // ---- building and editing; types are inferred from the record
  struct At {  // where a new node goes
    tsr_id region = 0, before = TSR_NONE;
    tsr_loc loc{};
  };
  static At before(Node n) { return {n.raw().parent, n.id, n.raw().loc}; }
  Node create(At at, const char* op, std::span<const Value> operands, std::span<const tsr_attr> attrs = {},
              std::span<const tsr_id> regions = {}) const {
    std::vector<tsr_id> ids;
    ids.reserve(operands.size());
    for (const Value& v : operands) ids.push_back(v.id);
    return create(at, op, std::span<const tsr_id>(ids), attrs, regions);
  }
  Node create(At at, const char* op, std::span<const tsr_id> operands, std::span<const tsr_attr> attrs = {},
              std::span<const tsr_id> regions = {}) const {
    tsr_node_desc d{};
    d.struct_size = sizeof d;
    d.op = op;
    d.operands = operands.data();
    d.num_operands = static_cast<uint32_t>(operands.size());
    d.attrs = attrs.data();
    d.num_attrs = static_cast<uint32_t>(attrs.size());
    d.regions = regions.data();
    d.num_regions = static_cast<uint32_t>(regions.size());
    d.loc = at.loc;
    tsr_id out = TSR_NONE;
    check(api().node_create(g_, &d, at.region, at.before, &out));
    return {g_, out};
  }
  Value op(At at, const char* name, std::initializer_list<Value> operands, std::initializer_list<tsr_attr> attrs = {}) const {
    return create(at, name, std::span<const Value>(operands.begin(), operands.size()),
                  std::span<const tsr_attr>(attrs.begin(), attrs.size()))
        .result(0);
  }
  Value none() const { return {g_, TSR_NONE}; }  // an omitted optional operand
  // A constant with the bytes of `t` (dense, host memory).
  Value constant(At at, const tsr_tensor& t) const { return op(at, "constant", {}, {attr_tensor("value", t)}); }
  void erase(Node n) const { check(api().node_erase(g_, n.id)); }
  void set_marks(Node n, uint32_t marks) const { check(api().set_marks(g_, n.id, marks)); }
  void set_operand(Node n, uint32_t i, Value v) const { check(api().set_operand(g_, n.id, i, v.id)); }
  void set_attr(Node n, const tsr_attr& a) const { check(api().set_attr(g_, n.id, &a)); }
  void replace_uses(Value from, Value to) const { check(api().replace_uses(g_, from.id, to.id)); }
  void set_type(Value v, const tsr_type& t) const { check(api().set_type(g_, v.id, &t)); }
  void set_name(Value v, const char* name) const { check(api().set_name(g_, v.id, name)); }  // made unique by a suffix
  // Null: as its value.
  void set_output_names(std::span<const char* const> names) const {
    check(api().outputs_set_names(g_, names.data(), static_cast<uint32_t>(names.size())));
  }
  void decompose(Node n) const { check(api().decompose(g_, n.id)); }
  // Results live in scratch memory until the transaction ends.
  std::vector<tsr_tensor> evaluate(Node n) const {
    std::vector<tsr_tensor> out(n.num_results());
    check(api().evaluate(g_, n.id, out.data(), static_cast<uint32_t>(out.size())));
    return out;
  }
  bool rewrite(std::span<const tsr_pattern> patterns) const {
    int changed = 0;
    check(api().rewrite(g_, patterns.data(), patterns.size(), sizeof(tsr_pattern), &changed));
    return changed != 0;
  }
  template <class T>
  T* scratch(size_t n) const {
    return static_cast<T*>(api().scratch(g_, n * sizeof(T)));
  }
  const char* scratch_string(const std::string& s) const {
    char* p = scratch<char>(s.size() + 1);
    std::copy(s.begin(), s.end(), p);
    p[s.size()] = 0;
    return p;
  }
  // The backend that runs this node, and its TSR_CAP_*; empty: the host, or nobody.
  std::string_view backend_of(Node n, uint64_t* capabilities = nullptr) const {
    const char* name = api().backend_of(g_, n.id, capabilities);
    return name ? name : std::string_view();
  }
  std::string print(Node n = {}) const { return api().print(g_, n.id); }

 private:
  tsr_graph* g_;
  const tsr_tables* t_;
};

inline const tsr_node& Node::raw() const {
  const tsr_tables* t = host().graph->tables(g);
  return *TSR_AT(tsr_node, t->nodes, t->node_stride, id);
}
inline Value Node::operand(uint32_t i) const { return {g, raw().operands[i]}; }
inline Value Node::result(uint32_t i) const { return {g, raw().results[i]}; }
inline const tsr_value& Value::raw() const {
  const tsr_tables* t = host().graph->tables(g);
  return *TSR_AT(tsr_value, t->values, t->value_stride, id);
}

// ------------------------------------------------------------------------------------------------------------ options

struct Options {
  const tsr_options* p = nullptr;
  const tsr_option* find(std::string_view name) const {
    if (!p) return nullptr;
    for (size_t i = 0; i < p->count; ++i) {
      const tsr_option* o = TSR_AT(tsr_option, p->items, p->stride, i);
      if (name == o->name) return o;
    }
    return nullptr;
  }
  int64_t get_int(std::string_view n, int64_t fallback) const {
    auto* o = find(n);
    return o ? o->i : fallback;
  }
  double get_float(std::string_view n, double fallback) const {
    auto* o = find(n);
    return o ? (o->kind == TSR_ATTR_INT ? double(o->i) : o->f) : fallback;
  }
  bool get_bool(std::string_view n, bool fallback) const {
    auto* o = find(n);
    return o ? o->i != 0 : fallback;
  }
  std::string_view get_string(std::string_view n, std::string_view fallback) const {
    auto* o = find(n);
    return o ? o->s : fallback;
  }
};

// -------------------------------------------------------------------------------------------------------------- kinds

class Pass {
 public:
  virtual ~Pass() = default;
  virtual const char* summary() const = 0;
  virtual const char* ensures() const = 0;
  virtual uint32_t stage() const { return TSR_STAGE_GRAPH; }
  virtual bool run(Graph g, const Options& options) = 0;  // true: the graph changed
};

// What takes the pieces of work that a launch consists of (tsr_kernel.describe).
struct EachCall {
  tsr_error* (*each)(void* ctx, const tsr_device_call*);
  void* ctx;
  void operator()(const tsr_device_call& call) const { check(each(ctx, &call)); }
};

// Decides what of the forward half is kept for the backward half, and what is computed again there. See tsr_partition.
class Partitioner {
 public:
  virtual ~Partitioner() = default;
  virtual const char* summary() const = 0;
  virtual void partition(Graph joint, const Options& options, tsr_partition& partition) = 0;
  // Hands out the plans that it chooses from, by ascending recompute_seconds. The default: the one that `partition` gives.
  virtual void front(Graph joint, const Options& options, tsr_partition& p,
                     const std::function<void(const tsr_partition&)>& each) {
    partition(joint, options, p);
    each(p);
  }
};

// A compiled kernel. Destroyed by the host.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string name() const = 0;                             // asked once, after compile
  virtual int64_t workspace(const int64_t* /*dims*/) { return 0; }  // bytes
  // Where inputs that `strided` has no bit for are dense: for kernels that copy others. Those from 64 on may lie in any way.
  virtual int64_t workspace_of(const int64_t* dims, uint64_t /*strided*/) { return workspace(dims); }
  virtual bool has_workspace() const { return false; }
  virtual bool has_sizes() const { return false; }  // data-dependent results
  virtual void sizes(const tsr_launch&, std::span<int64_t> /*symbols*/) {}
  virtual void launch(const tsr_launch&) = 0;  // reentrant; never allocates
  virtual int in_place() const { return -1; }
  virtual double pack_seconds() const { return 0; }  // of compile, spent on rearranging constants; asked once, after compile
  virtual int64_t held_bytes() const { return 0; }   // memory that it keeps, such as rearranged constants; asked once
  virtual uint64_t unread() const { return 0; }      // bit i: launch never reads input i's data, a constant; asked once
  // Bit i: input i may have any strides, or be aligned to its element alone, whatever Backend::capabilities says; asked once.
  virtual uint64_t strided_inputs() const { return 0; }
  virtual uint64_t unaligned_inputs() const { return 0; }
  virtual uint32_t kernel_flags() const { return 0; }  // TSR_KERNEL_*; asked once
  // The calls of the device that launch() would queue, in order, for executors that build graphs of them.
  virtual bool can_describe_calls() const { return false; }
  virtual void describe_calls(const tsr_launch&, const EachCall&) {}
  // For caches: bytes of which Backend::deserialize makes the same kernel, in any process that runs this plugin with the same
  // options on such a machine. Only asked of kernels whose sizes are all numbers. Objects that several kernels share go first:
  // a cache stores equal beginnings once.
  virtual bool can_serialize() const { return false; }
  virtual std::string serialize() const { return {}; }

 private:
  friend class Plugin;
  std::string exported_name_;  // what name() said: the host borrows it
};

struct Compile {  // what a backend is asked to compile
  const tsr_compile* p;
  Graph graph() const { return Graph(p->graph); }
  Node node() const { return {p->graph, p->node}; }
  bool relaxed() const { return p->relaxed != 0; }
  int32_t slot(tsr_dim d) const { return p->dim_slot(p->ctx, d); }
  uint32_t tune() const { return TSR_HAS(p, tsr_compile, tune) ? p->tune : 0; }  // TSR_TUNE_*
  double tune_seconds() const { return TSR_HAS(p, tsr_compile, tune_seconds) ? p->tune_seconds : 0; }
  bool unfrozen() const { return TSR_HAS(p, tsr_compile, unfrozen) && p->unfrozen != 0; }
  // The size, or what it is for the hints of its symbols; negative: unknown.
  int64_t hint(tsr_dim d) const {
    if (!TSR_DIM_IS_EXPR(d)) return d;
    return TSR_HAS(p, tsr_compile, dim_hint) && p->dim_hint ? p->dim_hint(p->ctx, d) : -1;
  }
  // A constant in the form that a kernel reads: see tsr_compile.rearranged. `fill` takes a char* to `bytes` bytes. Null: the
  // host cannot; the kernel then keeps what it makes.
  template <class F>
  const char* rearranged(const Value& constant, const std::string& form, int64_t bytes, F&& fill) const {
    if (!TSR_HAS(p, tsr_compile, rearranged) || !p->rearranged) return nullptr;
    const void* data = nullptr;
    check(p->rearranged(
        p->ctx, constant.id, form.c_str(), static_cast<size_t>(bytes),
        [](void* f, void* to) noexcept {
          return guarded([&] { (*static_cast<std::remove_reference_t<F>*>(f))(static_cast<char*>(to)); });
        },
        const_cast<void*>(static_cast<const void*>(&fill)), &data));
    return static_cast<const char*>(data);
  }
};

// A size or symbolic attribute resolved at launch: a number, or a slot of dims.
struct LaunchDim {
  int64_t value = 0;
  int32_t slot = -1;
  int64_t get(const int64_t* dims) const { return slot < 0 ? value : dims[slot]; }
};
inline LaunchDim launch_dim(const Compile& c, tsr_dim d) {
  return TSR_DIM_IS_EXPR(d) ? LaunchDim{0, c.slot(d)} : LaunchDim{d, -1};
}

struct Claim {
  tsr_claim claim = TSR_CLAIM_NO;
  const char* why = nullptr;  // static, or scratch memory of the graph
};
inline Claim yes() { return {TSR_CLAIM_YES, nullptr}; }
inline Claim no(const char* why) { return {TSR_CLAIM_NO, why}; }
inline Claim decompose(const char* why) { return {TSR_CLAIM_DECOMPOSE, why}; }

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* device() const = 0;
  virtual uint64_t capabilities() const = 0;  // TSR_CAP_*
  virtual Claim claim(Graph g, Node n) = 0;
  virtual std::unique_ptr<Kernel> compile(const Compile&) = 0;
  // What compile() will be asked next for one plan: code may be made for all of it at once. Graphs compile concurrently, and a
  // plan may be given up after this.
  virtual void prepare(std::span<const Compile> /*requests*/) {}
  virtual bool can_deserialize() const { return false; }
  virtual std::unique_ptr<Kernel> deserialize(std::string_view /*bytes*/) { return nullptr; }  // throws when it cannot
  virtual double cost(Graph, Node) { return -1; }                                              // seconds; negative: unknown
};

// Writes what a kernel on the host's side of a device found (tsr_fault), unless the stream has a fault already. Thread-safe.
inline void report_fault(tsr_fault* record, uint64_t site, uint32_t code) noexcept {
  if (!record || __atomic_exchange_n(&record->claim, 1u, __ATOMIC_ACQUIRE) != 0) return;
  record->site = site;
  record->values[0] = record->values[1] = 0;
  __atomic_store_n(&record->code, code, __ATOMIC_RELEASE);
}

// Queues on a stream that records what becomes one node of a graph.
struct QueueWork {
  tsr_error* (*queue)(void* ctx, tsr_stream*);
  void* ctx;
  void operator()(tsr_stream* recording) const { check(queue(ctx, recording)); }
};

// Memory, streams and events of one kind of device; see tsr_device_table, whose rules hold here. Functions throw Error.
class Device {
 public:
  virtual ~Device() = default;
  virtual void info(uint32_t index, tsr_device_info& out) = 0;
  virtual void* alloc(uint32_t index, size_t bytes, size_t align, tsr_stream* stream) = 0;
  virtual void free(uint32_t index, void* p, tsr_stream* stream) noexcept = 0;
  virtual void copy(uint32_t index, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* stream) = 0;
  virtual void fill(uint32_t index, void* dst, uint8_t value, size_t bytes, tsr_stream* stream) = 0;
  virtual tsr_stream* stream_create(uint32_t index) = 0;
  virtual void stream_destroy(uint32_t index, tsr_stream* stream) noexcept = 0;
  virtual void stream_synchronize(uint32_t index, tsr_stream* stream) = 0;
  virtual tsr_event* event_create(uint32_t index) = 0;
  virtual void event_destroy(uint32_t index, tsr_event* event) noexcept = 0;
  virtual void event_record(uint32_t index, tsr_event* event, tsr_stream* stream) = 0;
  virtual void event_wait(uint32_t index, tsr_event* event, tsr_stream* stream) = 0;
  virtual bool event_query(uint32_t index, tsr_event* event) = 0;
  virtual void event_synchronize(uint32_t index, tsr_event* event) = 0;
  virtual double event_elapsed(uint32_t index, tsr_event* from, tsr_event* to) = 0;  // seconds
  virtual void* host_alloc(uint32_t index, size_t bytes) = 0;
  virtual void host_free(uint32_t index, void* p) noexcept = 0;

  virtual bool copies_strided() const { return false; }
  virtual void copy_strided(uint32_t /*index*/, const tsr_tensor& /*dst*/, const tsr_tensor& /*src*/, tsr_stream*) {}
  virtual bool copies_peer() const { return false; }
  virtual void copy_peer(uint32_t /*index*/, void* /*dst*/, uint32_t /*from*/, const void* /*src*/, size_t /*bytes*/,
                         tsr_stream*) {}
  virtual bool wraps_streams() const { return false; }
  virtual tsr_stream* stream_wrap(uint32_t /*index*/, void* /*native*/) { return nullptr; }
  virtual void* stream_native(uint32_t /*index*/, tsr_stream*) { return nullptr; }
  virtual bool tells_capturing() const { return false; }
  virtual bool stream_capturing(uint32_t /*index*/, tsr_stream*) { return false; }
  virtual bool captures() const { return false; }  // then builds_graphs() too: a captured graph is launched and destroyed alike
  virtual void capture_begin(uint32_t /*index*/, tsr_stream*) {}
  virtual tsr_device_graph* capture_end(uint32_t /*index*/, tsr_stream*) { return nullptr; }

  using Nodes = std::span<const uint32_t>;
  virtual bool builds_graphs() const { return false; }
  virtual tsr_device_graph* graph_create(uint32_t /*index*/) { return nullptr; }
  virtual uint32_t graph_add(uint32_t /*index*/, tsr_device_graph*, const tsr_device_call&, Nodes /*after*/) { return 0; }
  virtual uint32_t graph_add_captured(uint32_t /*index*/, tsr_device_graph*, const QueueWork&, Nodes /*after*/) { return 0; }
  virtual void graph_instantiate(uint32_t /*index*/, tsr_device_graph*) {}
  virtual void graph_set(uint32_t /*index*/, tsr_device_graph*, uint32_t /*node*/, const tsr_device_call&) {}
  virtual void graph_set_captured(uint32_t /*index*/, tsr_device_graph*, uint32_t /*node*/, const QueueWork&) {}
  virtual void graph_info(uint32_t /*index*/, tsr_device_graph*, tsr_device_graph_info&) {}
  virtual void graph_launch(uint32_t /*index*/, tsr_device_graph*, tsr_stream*) {}
  virtual void graph_destroy(uint32_t /*index*/, tsr_device_graph*) noexcept {}

  virtual bool reserves() const { return false; }
  virtual void* reserve(uint32_t /*index*/, size_t /*bytes*/) { return nullptr; }
  virtual void commit(uint32_t /*index*/, void* /*reserved*/, size_t /*bytes*/, tsr_stream*) {}
  virtual void unreserve(uint32_t /*index*/, void* /*reserved*/) noexcept {}
};

class Frontend {
 public:
  virtual ~Frontend() = default;
  virtual const char* description() const = 0;
  virtual std::vector<const char*> extensions() const { return {}; }
  virtual int probe(std::string_view /*head*/) { return 0; }
  virtual bool can_import() const { return false; }
  virtual bool can_capture() const { return false; }
  virtual void import(std::string_view /*bytes*/, const char* /*path*/, Graph) {}
  virtual void capture(tsr_recorder*, const tsr_callable&) {}
};

// ------------------------------------------------------------------------------------------------- the plugin instance

class Plugin {
 public:
  explicit Plugin(Options options) : options(options) {}
  Options options;  // validated; valid while the plugin is being created

  void add_pass(const char* name, std::unique_ptr<Pass> p) {
    auto t = std::make_shared<tsr_pass>();
    t->struct_size = sizeof *t;
    t->summary = p->summary();
    t->ensures = p->ensures();
    t->stage = p->stage();
    t->run = [](void* self, tsr_graph* g, const tsr_options* o, int* changed) noexcept {
      return guarded([&] { *changed = static_cast<Pass*>(self)->run(Graph(g), Options{o}) ? 1 : 0; });
    };
    add(TSR_PASS, name, std::move(t), std::shared_ptr<Pass>(std::move(p)));
  }

  void add_partitioner(const char* name, std::unique_ptr<Partitioner> p) {
    auto t = std::make_shared<tsr_partitioner>();
    t->struct_size = sizeof *t;
    t->summary = p->summary();
    t->partition = [](void* self, tsr_graph* g, const tsr_options* o, tsr_partition* out) noexcept {
      return guarded([&] { static_cast<Partitioner*>(self)->partition(Graph(g), Options{o}, *out); });
    };
    t->front = [](void* self, tsr_graph* g, const tsr_options* o, tsr_partition* p,
                  void (*each)(void* ctx, const tsr_partition* plan), void* ctx) noexcept {
      return guarded([&] {
        static_cast<Partitioner*>(self)->front(Graph(g), Options{o}, *p, [&](const tsr_partition& x) { each(ctx, &x); });
      });
    };
    add(TSR_PARTITIONER, name, std::move(t), std::shared_ptr<Partitioner>(std::move(p)));
  }

  void add_backend(const char* name, std::unique_ptr<Backend> b) {
    auto t = std::make_shared<tsr_backend>();
    t->struct_size = sizeof *t;
    t->device = b->device();
    t->capabilities = b->capabilities();
    t->claim = [](void* self, tsr_graph* g, tsr_id n, const char** why) noexcept {
      Claim c;
      try {
        c = static_cast<Backend*>(self)->claim(Graph(g), {g, n});
      } catch (const std::exception& e) {
        c = no(Graph(g).scratch_string(e.what()));
      } catch (...) {
        c = no("its claim threw something that is no std::exception");
      }
      if (why) *why = c.why;
      return c.claim;
    };
    t->compile = [](void* self, const tsr_compile* c, tsr_kernel* out) noexcept {
      return guarded([&] { export_kernel(static_cast<Backend*>(self)->compile(Compile{c}), out); });
    };
    if (b->can_deserialize())
      t->deserialize = [](void* self, const void* bytes, size_t length, tsr_kernel* out) noexcept {
        return guarded([&] {
          export_kernel(static_cast<Backend*>(self)->deserialize({static_cast<const char*>(bytes), length}), out);
        });
      };
    t->cost = [](void* self, tsr_graph* g, tsr_id n) noexcept {
      try {
        return static_cast<Backend*>(self)->cost(Graph(g), {g, n});
      } catch (...) {
        return -1.0;
      }
    };
    t->prepare = [](void* self, const tsr_compile* requests, size_t count, size_t stride) noexcept {
      return guarded([&] {
        std::vector<Compile> all;
        for (size_t i = 0; i < count; ++i) all.push_back(Compile{TSR_AT(tsr_compile, requests, stride, i)});
        static_cast<Backend*>(self)->prepare(all);
      });
    };
    add(TSR_BACKEND, name, std::move(t), std::shared_ptr<Backend>(std::move(b)));
  }

  void add_frontend(const char* name, std::unique_ptr<Frontend> f) {
    struct Table {
      tsr_frontend t{};
      std::vector<const char*> ext;
    };
    auto t = std::make_shared<Table>();
    t->ext = f->extensions();
    t->t.struct_size = sizeof t->t;
    t->t.extensions = t->ext.data();
    t->t.num_extensions = t->ext.size();
    t->t.description = f->description();
    t->t.probe = [](void* self, const char* head, size_t n) noexcept {
      try {
        return static_cast<Frontend*>(self)->probe({head, n});
      } catch (...) {
        return 0;
      }
    };
    if (f->can_import())
      t->t.import = [](void* self, const char* b, size_t n, const char* path, tsr_graph* g) noexcept {
        return guarded([&] { static_cast<Frontend*>(self)->import({b, n}, path, Graph(g)); });
      };
    if (f->can_capture())
      t->t.capture = [](void* self, tsr_recorder* r, const tsr_callable* c) noexcept {
        return guarded([&] { static_cast<Frontend*>(self)->capture(r, *c); });
      };
    const tsr_frontend* table = &t->t;
    add_raw(TSR_FRONTEND, name, table, f.get());
    keep_.push_back(std::move(t));
    keep_.push_back(std::shared_ptr<Frontend>(std::move(f)));
  }

  // The devices NAME:0 to NAME:count-1. Instances of a plugin may share them: the first one of a process serves them until it
  // ends.
  void add_device(const char* name, uint32_t count, std::shared_ptr<Device> d) {
    auto t = std::make_shared<tsr_device_table>();  // value-initialised: what is not set below is not offered
    t->struct_size = sizeof *t;
    t->name = name;
    t->count = count;
    t->info = [](void* self, uint32_t i, tsr_device_info* out) noexcept {
      return guarded([&] { device_of(self).info(i, *out); });
    };
    t->alloc = [](void* self, uint32_t i, size_t bytes, size_t align, tsr_stream* s, void** out) noexcept {
      return guarded([&] { *out = device_of(self).alloc(i, bytes, align, s); });
    };
    t->free = [](void* self, uint32_t i, void* p, tsr_stream* s) noexcept { device_of(self).free(i, p, s); };
    t->copy = [](void* self, uint32_t i, void* dst, const void* src, size_t bytes, uint32_t flags, tsr_stream* s) noexcept {
      return guarded([&] { device_of(self).copy(i, dst, src, bytes, flags, s); });
    };
    t->fill = [](void* self, uint32_t i, void* dst, uint32_t value, size_t bytes, tsr_stream* s) noexcept {
      return guarded([&] { device_of(self).fill(i, dst, static_cast<uint8_t>(value), bytes, s); });
    };
    t->stream_create = [](void* self, uint32_t i, tsr_stream** out) noexcept {
      return guarded([&] { *out = device_of(self).stream_create(i); });
    };
    t->stream_destroy = [](void* self, uint32_t i, tsr_stream* s) noexcept { device_of(self).stream_destroy(i, s); };
    t->stream_synchronize = [](void* self, uint32_t i, tsr_stream* s) noexcept {
      return guarded([&] { device_of(self).stream_synchronize(i, s); });
    };
    t->event_create = [](void* self, uint32_t i, tsr_event** out) noexcept {
      return guarded([&] { *out = device_of(self).event_create(i); });
    };
    t->event_destroy = [](void* self, uint32_t i, tsr_event* e) noexcept { device_of(self).event_destroy(i, e); };
    t->event_record = [](void* self, uint32_t i, tsr_event* e, tsr_stream* s) noexcept {
      return guarded([&] { device_of(self).event_record(i, e, s); });
    };
    t->event_wait = [](void* self, uint32_t i, tsr_event* e, tsr_stream* s) noexcept {
      return guarded([&] { device_of(self).event_wait(i, e, s); });
    };
    t->event_query = [](void* self, uint32_t i, tsr_event* e, int* done) noexcept {
      return guarded([&] { *done = device_of(self).event_query(i, e) ? 1 : 0; });
    };
    t->event_synchronize = [](void* self, uint32_t i, tsr_event* e) noexcept {
      return guarded([&] { device_of(self).event_synchronize(i, e); });
    };
    t->event_elapsed = [](void* self, uint32_t i, tsr_event* from, tsr_event* to, double* seconds) noexcept {
      return guarded([&] { *seconds = device_of(self).event_elapsed(i, from, to); });
    };
    t->host_alloc = [](void* self, uint32_t i, size_t bytes, void** out) noexcept {
      return guarded([&] { *out = device_of(self).host_alloc(i, bytes); });
    };
    t->host_free = [](void* self, uint32_t i, void* p) noexcept { device_of(self).host_free(i, p); };
    if (d->copies_strided())
      t->copy_strided = [](void* self, uint32_t i, const tsr_tensor* dst, const tsr_tensor* src, tsr_stream* s) noexcept {
        return guarded([&] { device_of(self).copy_strided(i, *dst, *src, s); });
      };
    if (d->copies_peer())
      t->copy_peer = [](void* self, uint32_t i, void* dst, uint32_t from, const void* src, size_t bytes,
                        tsr_stream* s) noexcept {
        return guarded([&] { device_of(self).copy_peer(i, dst, from, src, bytes, s); });
      };
    if (d->wraps_streams()) {
      t->stream_wrap = [](void* self, uint32_t i, void* native, tsr_stream** out) noexcept {
        return guarded([&] { *out = device_of(self).stream_wrap(i, native); });
      };
      t->stream_native = [](void* self, uint32_t i, tsr_stream* s) noexcept { return device_of(self).stream_native(i, s); };
    }
    if (d->tells_capturing())
      t->stream_capturing = [](void* self, uint32_t i, tsr_stream* s, int* capturing) noexcept {
        return guarded([&] { *capturing = device_of(self).stream_capturing(i, s) ? 1 : 0; });
      };
    if (d->captures()) {
      t->capture_begin = [](void* self, uint32_t i, tsr_stream* s) noexcept {
        return guarded([&] { device_of(self).capture_begin(i, s); });
      };
      t->capture_end = [](void* self, uint32_t i, tsr_stream* s, tsr_device_graph** out) noexcept {
        return guarded([&] { *out = device_of(self).capture_end(i, s); });
      };
    }
    if (d->builds_graphs()) set_graph_functions(*t);
    if (d->reserves()) {
      t->reserve = [](void* self, uint32_t i, size_t bytes, void** out) noexcept {
        return guarded([&] { *out = device_of(self).reserve(i, bytes); });
      };
      t->commit = [](void* self, uint32_t i, void* p, size_t bytes, tsr_stream* s) noexcept {
        return guarded([&] { device_of(self).commit(i, p, bytes, s); });
      };
      t->unreserve = [](void* self, uint32_t i, void* p) noexcept { device_of(self).unreserve(i, p); };
    }
    add(TSR_DEVICE, name, std::move(t), std::move(d));
  }

  // For kinds that are used in their C form (opset, store), and by executor.hpp. Both pointers must live as long as the plugin.
  void add_raw(tsr_kind kind, const char* name, const void* table, void* self) {
    tsr_factory f{};
    f.kind = kind;
    f.name = name;
    f.table = table;
    f.self = self;
    factories_.push_back(f);
  }
  // Keeps something alive as long as the plugin.
  void keep(std::shared_ptr<void> p) { keep_.push_back(std::move(p)); }
  const std::vector<tsr_factory>& factories() const { return factories_; }

 private:
  static Device& device_of(void* self) { return *static_cast<Device*>(self); }

  static void set_graph_functions(tsr_device_table& t) {
    using Graph = tsr_device_graph;
    t.graph_create = [](void* self, uint32_t i, Graph** out) noexcept {
      return guarded([&] { *out = device_of(self).graph_create(i); });
    };
    t.graph_add = [](void* self, uint32_t i, Graph* g, const tsr_device_call* call, const uint32_t* after, uint32_t n,
                     uint32_t* node) noexcept {
      return guarded([&] { *node = device_of(self).graph_add(i, g, *call, {after, n}); });
    };
    t.graph_add_captured = [](void* self, uint32_t i, Graph* g, tsr_error* (*queue)(void*, tsr_stream*), void* ctx,
                              const uint32_t* after, uint32_t n, uint32_t* node) noexcept {
      return guarded([&] { *node = device_of(self).graph_add_captured(i, g, QueueWork{queue, ctx}, {after, n}); });
    };
    t.graph_instantiate = [](void* self, uint32_t i, Graph* g) noexcept {
      return guarded([&] { device_of(self).graph_instantiate(i, g); });
    };
    t.graph_set = [](void* self, uint32_t i, Graph* g, uint32_t node, const tsr_device_call* call) noexcept {
      return guarded([&] { device_of(self).graph_set(i, g, node, *call); });
    };
    t.graph_set_captured = [](void* self, uint32_t i, Graph* g, uint32_t node, tsr_error* (*queue)(void*, tsr_stream*),
                              void* ctx) noexcept {
      return guarded([&] { device_of(self).graph_set_captured(i, g, node, QueueWork{queue, ctx}); });
    };
    t.graph_info = [](void* self, uint32_t i, Graph* g, tsr_device_graph_info* out) noexcept {
      return guarded([&] { device_of(self).graph_info(i, g, *out); });
    };
    t.graph_launch = [](void* self, uint32_t i, Graph* g, tsr_stream* s) noexcept {
      return guarded([&] { device_of(self).graph_launch(i, g, s); });
    };
    t.graph_destroy = [](void* self, uint32_t i, Graph* g) noexcept { device_of(self).graph_destroy(i, g); };
  }

  template <class T, class S>
  void add(tsr_kind kind, const char* name, std::shared_ptr<T> table, std::shared_ptr<S> self) {
    add_raw(kind, name, table.get(), self.get());
    keep_.push_back(std::move(table));
    keep_.push_back(std::move(self));
  }

  static void export_kernel(std::unique_ptr<Kernel> k, tsr_kernel* out) {
    if (!k) throw Error(TSR_BUG, "TSR-B007", "compile returned no kernel");
    k->exported_name_ = k->name();
    // Hosts before these fields bring a smaller struct.
    if (TSR_HAS(out, tsr_kernel, pack_seconds)) out->pack_seconds = k->pack_seconds();
    if (TSR_HAS(out, tsr_kernel, held_bytes)) out->held_bytes = k->held_bytes();
    if (TSR_HAS(out, tsr_kernel, unread)) out->unread = k->unread();
    if (TSR_HAS(out, tsr_kernel, describe)) {
      out->strided = k->strided_inputs();
      out->unaligned = k->unaligned_inputs();
      if (k->can_describe_calls())
        out->describe = [](void* self, const tsr_launch* l, tsr_error* (*each)(void*, const tsr_device_call*),
                           void* ctx) noexcept {
          return guarded([&] { static_cast<Kernel*>(self)->describe_calls(*l, EachCall{each, ctx}); });
        };
    }
    out->flags = k->kernel_flags();
    out->struct_size = std::min(out->struct_size, sizeof *out);
    out->name = k->exported_name_.c_str();
    out->in_place = k->in_place();
    if (k->has_workspace())
      out->workspace = [](void* self, const int64_t* dims) noexcept -> int64_t {
        return static_cast<Kernel*>(self)->workspace(dims);
      };
    if (k->has_workspace() && TSR_HAS(out, tsr_kernel, workspace_of))
      out->workspace_of = [](void* self, const int64_t* dims, uint64_t strided) noexcept -> int64_t {
        return static_cast<Kernel*>(self)->workspace_of(dims, strided);
      };
    if (k->has_sizes())
      out->sizes = [](void* self, const tsr_launch* l, int64_t* s, uint32_t n) noexcept {
        return guarded([&] { static_cast<Kernel*>(self)->sizes(*l, {s, n}); });
      };
    out->launch = [](void* self, const tsr_launch* l) noexcept {
      return guarded([&] { static_cast<Kernel*>(self)->launch(*l); });
    };
    if (k->can_serialize())
      out->serialize = [](void* self, void* (*alloc)(void*, size_t), void* ctx) noexcept {
        return guarded([&] {
          const std::string bytes = static_cast<Kernel*>(self)->serialize();
          void* to = alloc(ctx, bytes.size());
          if (!to && !bytes.empty()) throw std::bad_alloc();
          std::copy(bytes.begin(), bytes.end(), static_cast<char*>(to));
        });
      };
    out->destroy = [](void* self) noexcept { delete static_cast<Kernel*>(self); };
    out->self = k.release();
  }

  std::vector<tsr_factory> factories_;
  std::vector<std::shared_ptr<void>> keep_;
};

template <void (*Fill)(Plugin&)>
const tsr_plugin_desc* describe(const tsr_host_info* h, const char* id, const char* version, const char* vendor) {
  host_slot() = h;
  static tsr_plugin_desc d{};
  d.struct_size = sizeof d;
  d.abi_major = TSR_ABI_MAJOR;
  d.abi_minor = TSR_ABI_MINOR;
  d.abi_minor_min = TSR_ABI_MINOR;
  d.ir_min = d.ir_max = TSR_IR_VERSION;
  d.id = id;
  d.version = version;
  d.vendor = vendor;
  d.sanitizer = TESSERA_SANITIZER;
  d.build_info = TESSERA_PLUGIN_BUILD_INFO;
  d.create = [](const tsr_host* hh, const tsr_options* o, void** instance) noexcept -> tsr_error* {
    host_slot() = hh;
    return guarded([&] {
      auto p = std::make_unique<Plugin>(Options{o});
      Fill(*p);
      *instance = p.release();
    });
  };
  d.factories = [](void* instance, const tsr_factory** items, size_t* count, size_t* stride) noexcept -> tsr_error* {
    const auto& f = static_cast<Plugin*>(instance)->factories();
    *items = f.data();
    *count = f.size();
    *stride = sizeof(tsr_factory);
    return nullptr;
  };
  d.destroy = [](void* instance) noexcept { delete static_cast<Plugin*>(instance); };
  return &d;
}

}  // namespace tessera::sdk

// Defines the exported symbol; the block that follows fills `plugin`.
#define TESSERA_PLUGIN(ID, VERSION, VENDOR)                                                       \
  static void tessera_plugin_fill(::tessera::sdk::Plugin& plugin);                                \
  extern "C" TSR_EXPORT const tsr_plugin_desc* tsr_plugin_query(const tsr_host_info* host_info) { \
    return ::tessera::sdk::describe<tessera_plugin_fill>(host_info, ID, VERSION, VENDOR);         \
  }                                                                                               \
  static void tessera_plugin_fill([[maybe_unused]] ::tessera::sdk::Plugin& plugin)
