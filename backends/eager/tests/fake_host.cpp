// SPDX-License-Identifier: Apache-2.0
#include "fake_host.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

struct tsr_error {
  uint32_t family;
  std::string code, message, hint;
};
struct tsr_graph {
  std::vector<tsr_node> nodes;
  std::vector<tsr_value> values;
  std::vector<tsr_type> types;
  std::vector<tsr_attr> attrs;
  std::vector<tsr_tensor> tensors;
  std::vector<tsr_symbol> symbols;
  std::vector<tsr_dim_expr> exprs;
  std::vector<std::vector<int64_t>> dims;
  std::vector<tsr_id> operands, results;
  tsr_tables tables{};
};

namespace fake {
namespace {

int threads = 1;

tsr_error* make_error(uint32_t family, const char* code, const char* message, const char* hint) {
  return new tsr_error{family, code, message, hint ? hint : ""};
}
// Ranges are dealt out unevenly on purpose: results must not depend on the split.
void run_parallel(int64_t n, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* ctx) {
  const int64_t parts = std::min<int64_t>(threads, (n + grain - 1) / std::max<int64_t>(1, grain));
  if (parts <= 1) return fn(ctx, 0, n);
  std::vector<std::thread> workers;
  int64_t begin = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t end =
        i + 1 == parts ? n : std::min(n, begin + std::max(grain, (n - begin) * (i % 2 ? 2 : 1) / (parts - i + 1)));
    if (end > begin) workers.emplace_back([=] { fn(ctx, begin, end); });
    begin = end;
  }
  for (auto& w : workers) w.join();
}

// Seconds. The thread's own processor time where it does all the work: a busy machine then disturbs less.
double now() {
  timespec t{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

const tsr_host& host() {
  static const tsr_host_core core = [] {
    tsr_host_core c{};
    c.struct_size = sizeof c;
    c.error_create = make_error;
    c.error_code = [](const tsr_error* e) { return e->code.c_str(); };
    c.error_message = [](const tsr_error* e) { return e->message.c_str(); };
    c.error_hint = [](const tsr_error* e) { return e->hint.empty() ? nullptr : e->hint.c_str(); };
    c.error_family = [](const tsr_error* e) { return e->family; };
    c.error_free = [](tsr_error* e) { delete e; };
    c.log_enabled = [](const char*, int) { return 0; };
    c.log_write = [](const char*, int, const char*) {};
    c.parallel = run_parallel;
    c.num_threads = [] { return threads; };
    c.progress = [](const char*, uint64_t, uint64_t) {};
    return c;
  }();
  static const tsr_graph_api graph = [] {
    tsr_graph_api g{};
    g.struct_size = sizeof g;
    g.tables = [](const tsr_graph* g) { return &g->tables; };
    g.op_traits = [](const tsr_graph*, const char*) -> const char* { return ""; };
    return g;
  }();
  static const tsr_host h = [] {
    tsr_host h{};
    h.struct_size = sizeof h;
    h.abi_major = TSR_ABI_MAJOR;
    h.abi_minor = TSR_ABI_MINOR;
    h.ir_version = TSR_IR_VERSION;
    h.version = "0.1.0";
    h.sanitizer = "";
    h.core = &core;
    h.graph = &graph;
    return h;
  }();
  return h;
}

void check(tsr_error* e) {
  if (!e) return;
  Error out{e->code, e->message, e->hint};
  delete e;
  throw out;
}

tsr_tensor view_of(const Tensor& t) {
  tsr_tensor v{};
  const int bits = tessera::dtype_bits(t.dtype);
  v.data = const_cast<char*>(t.data.data()) + (bits < 8 ? 0 : t.offset * bits / 8);
  v.dtype = t.dtype;
  v.rank = static_cast<uint32_t>(t.sizes.size());
  v.sizes = t.sizes.data();
  v.strides = t.strides.data();
  return v;
}

}  // namespace

void set_threads(int n) { threads = n; }

Tensor::Tensor(uint32_t dtype, std::vector<int64_t> s) : dtype(dtype), sizes(std::move(s)), strides(sizes.size()) {
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  data.resize(static_cast<size_t>(tessera::storage_bytes(dtype, step)));
}
int64_t Tensor::elements() const {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}
int64_t Tensor::position(int64_t flat) const {
  int64_t at = offset;
  for (size_t i = sizes.size(); i-- > 0;) {
    at += flat % sizes[i] * strides[i];
    flat /= sizes[i];
  }
  return at;
}

Tensor strided(const Tensor& t, int variant) {
  Tensor out = t;
  if (tessera::is_packed(t.dtype) || t.sizes.empty() || t.elements() == 0) return out;
  const size_t rank = t.sizes.size();
  // 0: a gap after every element; 1: dims stored in reverse order; 2: the first dim runs backwards
  int64_t step = variant == 0 ? 3 : 1;
  for (size_t k = 0; k < rank; ++k) {
    const size_t d = variant == 1 ? k : rank - 1 - k;
    out.strides[d] = step;
    step *= t.sizes[d];
  }
  out.data.assign(static_cast<size_t>(tessera::storage_bytes(t.dtype, step + 3)), 0x5a);
  if (variant == 2) {
    out.offset = (t.sizes[0] - 1) * out.strides[0];
    out.strides[0] = -out.strides[0];
  }
  for (int64_t i = 0, n = t.elements(); i < n; ++i)
    tessera::cast_element(t.dtype, out.data.data(), out.position(i), t.dtype, t.data.data(), t.position(i));
  return out;
}

Tensor random(uint32_t dtype, std::vector<int64_t> sizes, uint64_t seed, double lo, double hi) {
  Tensor t(dtype, std::move(sizes));
  std::mt19937_64 rng(seed);
  std::uniform_real_distribution<double> u(lo, hi);
  for (int64_t i = 0, n = t.elements(); i < n; ++i) {
    if (tessera::is_complex(dtype)) {
      t.set(i, tessera::ComplexValue<double>{u(rng), u(rng)});
    } else if (tessera::is_bool(dtype)) {
      t.set(i, static_cast<int>(rng() & 1));
    } else {
      t.set(i, u(rng));
    }
  }
  return t;
}

struct Backend::Impl {
  const tsr_plugin_desc* desc = nullptr;
  void* instance = nullptr;
  const tsr_backend* table = nullptr;
  void* self = nullptr;

  struct Compiled {
    tsr_graph graph;
    tsr_kernel kernel{};
    std::vector<std::string> names;
  };

  // Builds the one-node graph and compiles it. Unbacked sizes become symbols u0, u1, .. whose slots are 0, 1, ..
  void compile(Compiled& c, const std::string& op, const std::vector<const Tensor*>& operands, const std::vector<Attr>& attrs,
               const std::vector<ResultType>& results) {
    tsr_graph& g = c.graph;
    g.types.reserve(operands.size() + results.size());
    g.dims.reserve(operands.size() + results.size());
    g.tensors.reserve(attrs.size());
    const auto add = [&](uint32_t dtype, const std::vector<int64_t>& sizes) {
      g.dims.push_back(sizes);
      tsr_type t{};
      t.dtype = dtype;
      t.rank = static_cast<uint32_t>(sizes.size());
      t.sizes = g.dims.back().data();
      g.types.push_back(t);
      tsr_value v{};
      v.name = "v";
      v.type = &g.types.back();
      g.values.push_back(v);
      return static_cast<tsr_id>(g.values.size() - 1);
    };
    for (const Tensor* t : operands) g.operands.push_back(t ? add(t->dtype, t->sizes) : TSR_NONE);
    uint32_t unbacked = 0;
    for (const ResultType& r : results) {
      std::vector<int64_t> sizes = r.sizes;
      for (int64_t& s : sizes)
        if (s == -1) s = TSR_DIM_OF_EXPR(unbacked++);
      g.results.push_back(add(r.dtype, sizes));
    }
    for (const Attr& a : attrs) {
      tsr_attr t{};
      t.name = a.name.c_str();
      t.i = a.i;
      t.f = a.f;
      t.s = a.s.c_str();
      t.ints = a.ints.data();
      t.count = static_cast<uint32_t>(a.ints.size());
      if (a.kind == Attr::TensorValue) {
        g.tensors.push_back(view_of(a.tensor));
        t.tensor = &g.tensors.back();
      }
      g.attrs.push_back(t);
    }
    tsr_node n{};
    n.op = op.c_str();
    n.alive = 1;
    n.operands = g.operands.data();
    n.num_operands = static_cast<uint32_t>(g.operands.size());
    n.results = g.results.data();
    n.num_results = static_cast<uint32_t>(g.results.size());
    n.attrs = g.attrs.data();
    n.num_attrs = static_cast<uint32_t>(g.attrs.size());
    g.nodes.push_back(n);
    g.tables.struct_size = sizeof g.tables;
    g.tables.nodes = g.nodes.data(), g.tables.num_nodes = 1, g.tables.node_stride = sizeof(tsr_node);
    g.tables.values = g.values.data(), g.tables.num_values = g.values.size(), g.tables.value_stride = sizeof(tsr_value);
    for (uint32_t i = 0; i < unbacked; ++i) {
      g.symbols.push_back({"u", 0, INT64_MAX, -1, 1, 0});
      g.exprs.push_back({TSR_DIM_SYMBOL, i, 0, 0});
    }
    g.tables.symbols = g.symbols.data(), g.tables.num_symbols = unbacked, g.tables.symbol_stride = sizeof(tsr_symbol);
    g.tables.exprs = g.exprs.data(), g.tables.num_exprs = unbacked, g.tables.expr_stride = sizeof(tsr_dim_expr);
    const char* why = nullptr;
    if (table->claim(self, &g, 0, &why) != TSR_CLAIM_YES) throw Error{"claim", why ? why : "", ""};
    tsr_compile compile{};
    compile.struct_size = sizeof compile;
    compile.graph = &g;
    compile.dim_slot = [](void*, tsr_dim d) { return TSR_DIM_IS_EXPR(d) ? static_cast<int32_t>(TSR_DIM_EXPR_ID(d)) : -1; };
    c.kernel.in_place = -1;
    check(table->compile(self, &compile, &c.kernel));
  }

  std::vector<Tensor> launch(Compiled& c, const std::vector<const Tensor*>& operands, const std::vector<ResultType>& results,
                             int repeats, double* seconds) {
    std::vector<tsr_tensor> in, out;
    for (const Tensor* t : operands) {
      in.push_back(t ? view_of(*t) : tsr_tensor{});
      if (!t) in.back().flags = TSR_TENSOR_ABSENT;
    }
    tsr_launch l{};
    l.struct_size = sizeof l;
    l.inputs = in.data();
    l.num_inputs = static_cast<uint32_t>(in.size());
    std::vector<int64_t> symbols;
    for (const ResultType& r : results)
      for (int64_t s : r.sizes)
        if (s == -1) symbols.push_back(-1);
    if (!symbols.empty()) {
      if (!c.kernel.sizes) throw Error{"sizes", "the kernel computes no sizes", ""};
      check(c.kernel.sizes(c.kernel.self, &l, symbols.data(), static_cast<uint32_t>(symbols.size())));
    }
    std::vector<Tensor> outputs;
    size_t next = 0;
    for (const ResultType& r : results) {
      std::vector<int64_t> sizes = r.sizes;
      for (int64_t& s : sizes)
        if (s == -1) s = symbols[next++];
      outputs.emplace_back(r.dtype, sizes);
      std::fill(outputs.back().data.begin(), outputs.back().data.end(), 0x3c);  // kernels write everything
    }
    for (Tensor& t : outputs) out.push_back(view_of(t));
    l.outputs = out.data();
    l.num_outputs = static_cast<uint32_t>(out.size());
    l.dims = symbols.data();
    std::vector<char> space;
    if (c.kernel.workspace) {
      const int64_t bytes = c.kernel.workspace(c.kernel.self, symbols.data());
      // Exactly what was asked for, at the end of its block: an overrun is seen by the address sanitizer.
      space.resize(static_cast<size_t>(bytes) + 64);
      l.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(space.data()) + 63) / 64 * 64);
    }
    double best = 1e30;
    for (int i = 0; i < repeats; ++i) {
      const double start = now();
      check(c.kernel.launch(c.kernel.self, &l));
      double took = now() - start;
      if (repeats > 1 && took < 2e-5) {  // the clock itself takes part of a microsecond
        const double begin = now();
        for (int k = 0; k < 500; ++k) check(c.kernel.launch(c.kernel.self, &l));
        took = (now() - begin) / 500;
      }
      best = std::min(best, took);
    }
    if (seconds) *seconds = best;
    return outputs;
  }
};

Backend::Backend(const std::string& isa) : impl_(std::make_unique<Impl>()) {
  const char* build = std::getenv("TESSERA_BUILD_DIR");
  const std::string path = std::string(build ? build : ".") + "/lib/tessera/plugins/tessera.backend.eager.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  const auto query = reinterpret_cast<tsr_plugin_query_fn>(dlsym(library, "tsr_plugin_query"));
  impl_->desc = query(&host());
  tsr_option option{};
  option.name = "isa";
  option.kind = TSR_ATTR_STRING;
  option.s = isa.c_str();
  tsr_options options{sizeof options, &option, 1, sizeof option};
  check(impl_->desc->create(&host(), &options, &impl_->instance));
  const tsr_factory* items = nullptr;
  size_t count = 0, stride = 0;
  check(impl_->desc->factories(impl_->instance, &items, &count, &stride));
  impl_->table = static_cast<const tsr_backend*>(items[0].table);
  impl_->self = items[0].self;
}
Backend::~Backend() { impl_->desc->destroy(impl_->instance); }

std::vector<Tensor> Backend::run(const std::string& op, std::vector<const Tensor*> operands, std::vector<Attr> attrs,
                                 std::vector<ResultType> results) {
  Impl::Compiled c;
  impl_->compile(c, op, operands, attrs, results);
  struct Destroy {
    tsr_kernel& k;
    ~Destroy() { k.destroy(k.self); }
  } destroy{c.kernel};
  return impl_->launch(c, operands, results, 1, nullptr);
}

double Backend::time(const std::string& op, std::vector<const Tensor*> operands, std::vector<Attr> attrs,
                     std::vector<ResultType> results, int repeats) {
  Impl::Compiled c;
  impl_->compile(c, op, operands, attrs, results);
  double seconds = 0;
  impl_->launch(c, operands, results, repeats, &seconds);
  c.kernel.destroy(c.kernel.self);
  return seconds;
}

}  // namespace fake
