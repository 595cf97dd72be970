// SPDX-License-Identifier: Apache-2.0
#include "onednn.hpp"

#if EAGER_HAVE_ONEDNN

#include <alloca.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace eager {
namespace {

// The number of threads that oneDNN uses on this thread, while it lives. (An internal control variable of OpenMP is per
// thread.)
class OmpThreads {
 public:
  explicit OmpThreads(int n) : before_(omp_get_max_threads()) { omp_set_num_threads(n); }
  ~OmpThreads() { omp_set_num_threads(before_); }
  OmpThreads(const OmpThreads&) = delete;

 private:
  int before_;
};

const dnnl::engine& engine() {
  static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}
// A stream of the CPU engine is a handle without a queue: one per call costs less than a microsecond and leaves nothing in
// threads.
dnnl::stream new_stream() { return dnnl::stream(engine()); }

template <class Key>
struct BytesHash {
  size_t operator()(const Key& k) const {
    static_assert(std::is_trivially_copyable_v<Key>);
    const auto* p = reinterpret_cast<const unsigned char*>(&k);
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < sizeof k; ++i) h = (h ^ p[i]) * 0x100000001B3u;
    return h;
  }
};

// Primitives by key, made on first use, kept for the process; a shape that oneDNN refused is remembered as null. Keys are
// zeroed before they are filled, so that their padding is equal too.
template <class Key, class Value>
class Cache {
 public:
  template <class Make>
  const Value* get(const Key& key, Make make) {
    {
      std::shared_lock lock(mutex_);
      if (const auto it = map_.find(key); it != map_.end()) return it->second.get();
    }
    std::unique_ptr<Value> made;
    try {
      made = make();
    } catch (const dnnl::error&) {}
    std::unique_lock lock(mutex_);
    return map_.emplace(key, std::move(made)).first->second.get();
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<Key, std::unique_ptr<Value>, BytesHash<Key>> map_;
};

bool is_reference(const char* implementation) { return std::strstr(implementation, "ref") != nullptr; }
bool is_by_products(const char* implementation) { return std::strstr(implementation, "gemm") != nullptr; }

[[noreturn]] void fail_dnnl(const dnnl::error& e) {
  throw sdk::Error(TSR_ENVIRONMENT, "TSR-R031", std::string("oneDNN: ") + e.what(),
                   "set [eager] onednn = false to do without it");
}

}  // namespace

bool have_onednn() { return true; }

bool dnn_sgemm(const GemmArgs& g) {
  // Row-major with a leading dimension: one of the two strides must be 1.
  const bool ta = g.a_k != 1, tb = g.b_n != 1;
  if ((ta && g.a_m != 1) || (tb && g.b_k != 1)) return false;
  const int64_t lda = ta ? g.a_k : g.a_m, ldb = tb ? g.b_n : g.b_k;
  if (lda < (ta ? g.m : g.k) || ldb < (tb ? g.k : g.n)) return false;
  const OmpThreads one(1);
  return dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', g.m, g.n, g.k, 1.0f, g.a, lda, g.b, ldb, g.accumulate ? 1.0f : 0.0f, g.c,
                    g.c_m) == dnnl_success;
}

struct DnnProduct {
  dnnl::memory::desc a, b, c, scratch;
  dnnl::matmul primitive;
};

const DnnProduct* dnn_product(const DnnProductKey& key) {
  static Cache<DnnProductKey, DnnProduct> cache;
  if ((key.a_k != 1 && key.a_m != 1) || (key.b_k != 1 && key.b_n != 1) || key.m * key.n * key.k == 0) return nullptr;
  return cache.get(key, [&]() -> std::unique_ptr<DnnProduct> {
    using dnnl::memory;
    const OmpThreads one(1);
    auto p = std::make_unique<DnnProduct>();
    const auto bf16 = memory::data_type::bf16;
    p->a = memory::desc({key.m, key.k}, bf16, memory::dims{key.a_m, key.a_k});
    p->b = memory::desc({key.k, key.n}, bf16, memory::dims{key.b_k, key.b_n});
    p->c = memory::desc({key.m, key.n}, key.f32_out ? memory::data_type::f32 : bf16, memory::dims{key.c_m, 1});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(p->a, p->b, p->c), attr, engine());
    if (is_reference(pd.impl_info_str())) return nullptr;
    p->scratch = pd.scratchpad_desc();
    p->primitive = dnnl::matmul(pd);
    return p;
  });
}

void dnn_run(const DnnProduct& p, const void* a, const void* b, void* c) {
  const OmpThreads one(1);
  const size_t bytes = p.scratch.get_size();
  constexpr size_t kOnStack = 768 << 10;
  std::unique_ptr<char[]> heap;
  char* space =
      bytes + 64 <= kOnStack ? static_cast<char*>(alloca(bytes + 64)) : (heap = std::make_unique<char[]>(bytes + 64)).get();
  space = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(space) + 63) / 64 * 64);
  try {
    using dnnl::memory;
    dnnl::stream stream = new_stream();
    p.primitive.execute(stream, {{DNNL_ARG_SRC, memory(p.a, engine(), const_cast<void*>(a))},
                                 {DNNL_ARG_WEIGHTS, memory(p.b, engine(), const_cast<void*>(b))},
                                 {DNNL_ARG_DST, memory(p.c, engine(), c)},
                                 {DNNL_ARG_SCRATCHPAD, memory(p.scratch, engine(), space)}});
    stream.wait();
  } catch (const dnnl::error& e) {
    fail_dnnl(e);
  }
}

// -------------------------------------------------------------------------------------------------------- convolution

struct DnnConv {
  int threads = 1, rank = 0;
  bool transposed = false, grouped = false, bias = false;
  int64_t groups = 1;
  dnnl::memory::data_type type;
  dnnl::memory::desc x, w, b, y, y_plain, scratch;  // as the primitive wants them; the result as the graph wants it
  dnnl::primitive primitive;
  bool reorder_y = false;
  bool by_products = false;  // as a matrix product over columns, not by a kernel of its own
};

namespace {

using dnnl::memory;

memory::dims tail(const Spatial& s, int n) { return memory::dims(s.v + 3 - n, s.v + 3); }

// Weights of the graph ([O, C / g, ..], transposed [C, O / g, ..]) as oneDNN names them: [g,] O, C, spatial.
memory::desc weight_desc(const DnnConv& c, const int64_t* sizes, const int64_t* strides) {
  memory::dims d, s;
  const auto push = [&](int64_t size, int64_t stride) { d.push_back(size), s.push_back(stride); };
  if (c.grouped) push(c.groups, strides[0] * (sizes[0] / c.groups));
  if (c.transposed) {
    push(sizes[1], strides[1]);
    push(sizes[0] / c.groups, strides[0]);
  } else {
    push(sizes[0] / c.groups, strides[0]);
    push(sizes[1], strides[1]);
  }
  for (int i = 2; i < c.rank; ++i) push(sizes[i], strides[i]);
  return memory::desc(d, c.type, s);
}

memory::dims dense_strides(const int64_t* sizes, int rank) {
  memory::dims s(static_cast<size_t>(rank));
  int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    s[static_cast<size_t>(i)] = step;
    step *= sizes[i];
  }
  return s;
}

template <class Primitive>
void describe(DnnConv& c, const DnnConvKey& key, dnnl::algorithm algorithm) {
  const int n = key.rank - 2;
  const memory::dims x(key.x, key.x + key.rank), y(key.y, key.y + key.rank);
  const memory::dims plain_w = dense_strides(key.w, key.rank);
  // A 1 x 1 convolution is a product as it stands; others gain from the layout that oneDNN prefers.
  bool plain = !key.transposed && key.groups == 1;
  for (int i = 2; i < key.rank; ++i) plain = plain && key.w[i] == 1;
  const auto any = memory::format_tag::any;
  const memory::desc dx = plain ? memory::desc(x, c.type, dense_strides(key.x, key.rank)) : memory::desc(x, c.type, any);
  const memory::desc dy = plain ? memory::desc(y, c.type, dense_strides(key.y, key.rank)) : memory::desc(y, c.type, any);
  const memory::desc dw(weight_desc(c, key.w, plain_w.data()).dims(), c.type, any);
  const memory::desc db = key.bias ? memory::desc({key.y[1]}, c.type, memory::format_tag::x) : memory::desc();
  memory::dims dilation = tail(key.dilation, n);
  for (auto& d : dilation) d -= 1;  // oneDNN counts the gap
  const typename Primitive::desc desc =
      key.bias ? typename Primitive::desc(dnnl::prop_kind::forward_inference, algorithm, dx, dw, db, dy, tail(key.strides, n),
                                          dilation, tail(key.low, n), tail(key.high, n))
               : typename Primitive::desc(dnnl::prop_kind::forward_inference, algorithm, dx, dw, dy, tail(key.strides, n),
                                          dilation, tail(key.low, n), tail(key.high, n));
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const typename Primitive::primitive_desc pd(desc, attr, engine());
  if (is_reference(pd.impl_info_str())) throw dnnl::error(dnnl_unimplemented, "only a reference implementation");
  c.x = pd.src_desc(), c.w = pd.weights_desc(), c.y = pd.dst_desc(), c.scratch = pd.scratchpad_desc();
  if (key.bias) c.b = pd.bias_desc();
  c.primitive = Primitive(pd);
  c.by_products = is_by_products(pd.impl_info_str());
  c.y_plain = memory::desc(y, c.type, dense_strides(key.y, key.rank));
  c.reorder_y = c.y != c.y_plain;
}

int64_t padded(size_t bytes) { return static_cast<int64_t>((bytes + 63) / 64 * 64); }

}  // namespace

const DnnConv* dnn_conv(const DnnConvKey& key) {
  static Cache<DnnConvKey, DnnConv> cache;
  int64_t work = 1;
  for (int i = 0; i < key.rank; ++i) work *= key.x[i] * key.w[i] * key.y[i] != 0;
  if (work == 0) return nullptr;
  return cache.get(key, [&] {
    auto c = std::make_unique<DnnConv>();
    c->rank = key.rank;
    c->transposed = key.transposed, c->groups = key.groups, c->grouped = key.groups > 1, c->bias = key.bias;
    c->type = key.dtype == TSR_F32 ? memory::data_type::f32 : memory::data_type::bf16;
    const auto describe_for = [&](int threads) {
      const OmpThreads team(threads);
      c->threads = threads;
      if (key.transposed)
        describe<dnnl::deconvolution_forward>(*c, key, dnnl::algorithm::deconvolution_direct);
      else
        describe<dnnl::convolution_forward>(*c, key, dnnl::algorithm::convolution_direct);
    };
    describe_for(key.threads);
    if (c->by_products && key.threads > 1) describe_for(1);
    return c;
  });
}

int64_t dnn_workspace(const DnnConv& c) {
  return padded(c.x.get_size()) + padded(c.w.get_size()) + padded(c.y.get_size()) + padded(c.bias ? c.b.get_size() : 0) +
         padded(c.scratch.get_size());
}

// Strides that oneDNN takes: positive. Those of sizes of 1 do not matter and are made so.
static bool usable_strides(View& v) {
  for (int d = 0; d < v.rank(); ++d) {
    if (v.sizes[d] == 1) v.strides[d] = v.sizes.product(d + 1);
    if (v.strides[d] <= 0) return false;
  }
  return true;
}

bool dnn_run(const DnnConv& c, View x, View w, const tsr_tensor* bias, const tsr_tensor& y, void* workspace) {
  if (!usable_strides(x) || !usable_strides(w)) return false;
  const OmpThreads team(c.threads);
  char* space = static_cast<char*>(workspace);
  const auto take = [&](const memory::desc& d) {
    char* p = space;
    space += padded(d.get_size());
    return p;
  };
  dnnl::stream stream = new_stream();
  const int64_t size = element_bytes(x.dtype);
  const auto at = [size](const View& v) { return static_cast<char*>(v.data) + v.offset * size; };
  // The operand in place, or reordered into the workspace.
  const auto bring = [&](const memory::desc& have, char* data, const memory::desc& want) {
    memory from(have, engine(), data);
    if (have == want) return from;
    memory to(want, engine(), take(want));
    dnnl::reorder(from, to).execute(stream, from, to);
    return to;
  };
  try {
    const memory mx = bring(
        memory::desc(memory::dims(x.sizes.v, x.sizes.v + c.rank), c.type, memory::dims(x.strides.v, x.strides.v + c.rank)),
        at(x), c.x);
    const memory mw = bring(weight_desc(c, w.sizes.v, w.strides.v), at(w), c.w);
    const memory my(c.y, engine(), c.reorder_y ? take(c.y) : static_cast<char*>(y.data));
    std::unordered_map<int, memory> args = {{DNNL_ARG_SRC, mx}, {DNNL_ARG_WEIGHTS, mw}, {DNNL_ARG_DST, my}};
    if (c.bias) {
      const View b(*bias);
      char* values = take(c.b);
      for (int64_t i = 0; i < b.sizes[0]; ++i)
        std::memcpy(values + i * size, at(b) + i * b.strides[0] * size, static_cast<size_t>(size));
      args.emplace(DNNL_ARG_BIAS, memory(c.b, engine(), values));
    }
    args.emplace(DNNL_ARG_SCRATCHPAD, memory(c.scratch, engine(), take(c.scratch)));
    c.primitive.execute(stream, args);
    if (c.reorder_y) {
      memory to(c.y_plain, engine(), y.data), from = my;
      dnnl::reorder(from, to).execute(stream, from, to);
    }
    stream.wait();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_invalid_arguments || e.status == dnnl_unimplemented) return false;  // overlapping strides
    fail_dnnl(e);
  }
  return true;
}

}  // namespace eager

#else

namespace eager {

bool have_onednn() { return false; }
bool dnn_sgemm(const GemmArgs&) { return false; }
const DnnProduct* dnn_product(const DnnProductKey&) { return nullptr; }
void dnn_run(const DnnProduct&, const void*, const void*, void*) {}
const DnnConv* dnn_conv(const DnnConvKey&) { return nullptr; }
int64_t dnn_workspace(const DnnConv&) { return 0; }
bool dnn_run(const DnnConv&, View, View, const tsr_tensor*, const tsr_tensor&, void*) { return false; }

}  // namespace eager

#endif
