// SPDX-License-Identifier: Apache-2.0
// A backend with an option that says how it is wrong. It computes add, mul, neg, relu, maximum and reduce_sum (along the last
// axis), in f32 and i32, and is right with fault = "none". faults_test.cpp says which check of the kit finds which fault.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "tessera/plugin.hpp"

namespace t = tessera::sdk;

namespace {

std::string fault;  // of this process: every instance has the same
bool is(const char* name) { return fault == name; }
std::atomic<int64_t> counter{0};

int64_t count(const tsr_tensor& x) {
  int64_t n = 1;
  for (uint32_t d = 0; d < x.rank; ++d) n *= x.sizes[d];
  return n;
}

// Element i in row-major order, whatever the strides.
template <class T>
T at(const tsr_tensor& x, int64_t i) {
  if (is("ignores_strides")) return static_cast<const T*>(x.data)[i];
  int64_t offset = 0;
  for (uint32_t d = x.rank; d-- > 0;) {
    offset += i % x.sizes[d] * x.strides[d];
    i /= x.sizes[d];
  }
  return static_cast<const T*>(x.data)[offset];
}

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    T out;
    const bool overflow = __builtin_add_overflow(a, b, &out);
    if (overflow && is("saturates")) return b < 0 ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
    return out;
  } else {
    return is("wrong_ulp") && a > 1 ? std::nextafter(a + b, T{1e30}) : a + b;
  }
}
template <class T>
T mul(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
  else
    return a * b;
}
template <class T>
T neg(T a) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(0u - static_cast<uint32_t>(a));
  else
    return is("loses_signs_of_zeros") ? 0 - a : -a;
}
template <class T>
T maximum(T a, T b) {
  if constexpr (!std::is_integral_v<T>) {
    if (!is("drops_nan") && (std::isnan(a) || std::isnan(b))) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return b;  // of two zeros the second
  }
  return a > b ? a : b;
}
template <class T>
T relu(T a) {
  if constexpr (!std::is_integral_v<T>)
    if (std::isnan(a)) return a;
  return a > 0 ? a : T{0};
}

enum class Op { kAdd, kMul, kMaximum, kNeg, kRelu, kSum, kNone };
Op op_of(std::string_view name) {
  const std::pair<const char*, Op> all[] = {{"add", Op::kAdd}, {"mul", Op::kMul},   {"maximum", Op::kMaximum},
                                            {"neg", Op::kNeg}, {"relu", Op::kRelu}, {"reduce_sum", Op::kSum}};
  for (const auto& [text, op] : all)
    if (name == text) return op;
  return Op::kNone;
}

// The undefined-behaviour sanitizer would turn the signals of these two into an exit status. A compiler that sees the null may
// leave the write out.
__attribute__((no_sanitize("undefined"))) void write_to_null() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}
__attribute__((no_sanitize("undefined"))) void read_core_of(const tsr_host_info* host) { (void)host->core->num_threads(); }

class Kernel final : public t::Kernel {
 public:
  Kernel(Op op, uint32_t dtype) : op_(op), dtype_(dtype) {
    if (is("leaks_compile")) keep_ = new char[4096];
    if (is("keeps_files_open")) (void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  std::string name() const override { return "faulty"; }
  void launch(const tsr_launch& l) override {
    if (is("crashes") && op_ == Op::kMul) write_to_null();
    if (is("hangs") && op_ == Op::kMul)
      for (;;) usleep(1000);
    if (is("ends_the_process") && op_ == Op::kMul) _exit(0);
    if (is("leaks_run")) keep_ = new char[256];
    if (is("fails_on_empty") && count(l.outputs[0]) == 0) throw t::Error(TSR_ENVIRONMENT, "ACME-1", "nothing to launch");
    if (is("throws_anything")) throw 7;
    if (dtype_ == TSR_F32)
      compute<float>(l);
    else
      compute<int32_t>(l);
  }

 private:
  template <class T>
  void compute(const tsr_launch& l) {
    const tsr_tensor& out = l.outputs[0];
    auto* to = static_cast<T*>(out.data);
    const int64_t n = count(out);
    if (op_ == Op::kSum) return sum<T>(l, to, n);
    if (is("shares_state")) {  // of the kernel, while other launches run
      shared_ = l.inputs[0];
      std::this_thread::yield();
    }
    const tsr_tensor& a = is("shares_state") ? shared_ : l.inputs[0];
    const tsr_tensor& b = l.num_inputs > 1 ? l.inputs[1] : a;
    for (int64_t i = 0; i < n - (is("leaves_the_tail") ? 1 : 0); ++i) {
      const T x = at<T>(a, i), y = at<T>(b, i);
      switch (op_) {
        case Op::kAdd: to[i] = add(x, y); break;
        case Op::kMul: to[i] = mul(x, y); break;
        case Op::kMaximum: to[i] = maximum(x, y); break;
        case Op::kNeg: to[i] = neg(x); break;
        default: to[i] = relu(x); break;
      }
    }
    if (is("varies") && op_ == Op::kAdd && n) to[0] = static_cast<T>(to[0] + static_cast<T>(counter.fetch_add(1) % 2));
    if (is("writes_beyond") && n) to[n] = 1;
    if (is("writes_before") && n) to[-1] = 1;
    if (is("reads_beyond") && n) keep_sum_ += static_cast<double>(static_cast<const volatile T*>(a.data)[n + 16]);
    if (is("writes_operands") && n) static_cast<T*>(a.data)[0] = 0;
  }
  template <class T>
  void sum(const tsr_launch& l, T* to, int64_t n) {
    const tsr_tensor& in = l.inputs[0];
    const int64_t width = in.sizes[in.rank - 1];
    const int parts = is("sums_by_threads") ? t::host().core->num_threads() : 1;
    for (int64_t i = 0; i < n; ++i) {
      T total{0};
      for (int p = 0; p < parts; ++p) {
        T part{0};
        for (int64_t k = p; k < width; k += parts) part = add(part, at<T>(in, i * width + k));
        total = add(total, part);
      }
      to[i] = total;
    }
  }
  Op op_;
  uint32_t dtype_;
  char* keep_ = nullptr;
  double keep_sum_ = 0;
  tsr_tensor shared_{};
};

class Backend final : public t::Backend {
 public:
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override {
    return TSR_CAP_STRIDED_INPUTS | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED |
           (is("invents_capabilities") ? uint64_t{1} << 40 : 0);
  }
  t::Claim claim(t::Graph, t::Node n) override {
    const Op op = op_of(n.op());
    if (op == Op::kNone) return t::no(is("refuses_without_reason") ? "" : "faulty has no kernel for this op");
    const tsr_type* type = n.result().raw().type;
    if (is("changes_its_mind") && counter.fetch_add(1) % 2) return t::no("not today");
    const bool dtype = type->dtype == TSR_F32 || type->dtype == TSR_I32 || (is("claims_too_much") && type->dtype == TSR_F64);
    if (!dtype) return t::no("faulty computes in f32 and i32");
    if (op == Op::kSum) {
      const auto axes = n.attr("axes").as_ints();
      const int64_t rank = n.operand(0).type().rank();
      if (rank == 0 || axes.size() != 1 || (axes[0] + rank) % rank != rank - 1) return t::no("faulty sums along the last axis");
      return t::yes();
    }
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (!same_sizes(n.operand(i).raw().type, type)) return t::no("faulty does not broadcast");
    return t::yes();
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override {
    const uint32_t dtype = c.node().result().raw().type->dtype;
    if (dtype == TSR_F64) throw t::Error(TSR_BUG, "ACME-2", "no kernel in f64");
    return std::make_unique<Kernel>(op_of(c.node().op()), dtype);
  }

 private:
  static bool same_sizes(const tsr_type* a, const tsr_type* b) {
    return a->dtype == b->dtype && a->rank == b->rank && std::equal(a->sizes, a->sizes + a->rank, b->sizes);
  }
};

void fill(t::Plugin& plugin) {
  fault = std::string(plugin.options.get_string("fault", "none"));
  if (is("create_fails_second") && counter.fetch_add(1) > 0) throw t::Error(TSR_ENVIRONMENT, "ACME-3", "the card is in use");
  plugin.add_backend("faulty", std::make_unique<Backend>());
  if (is("throws_through_the_boundary")) {
    static tsr_backend table;
    table = *static_cast<const tsr_backend*>(plugin.factories().back().table);
    table.compile = [](void*, const tsr_compile*, tsr_kernel*) -> tsr_error* { throw std::runtime_error("out of here"); };
    const_cast<tsr_factory&>(plugin.factories().back()).table = &table;
  }
  if (is("crashes_at_exit")) std::atexit([] { std::abort(); });
  if (is("crashes_when_destroyed")) plugin.keep(std::shared_ptr<void>(nullptr, [](void*) { std::abort(); }));
}

}  // namespace

extern "C" TSR_EXPORT const tsr_plugin_desc* tsr_plugin_query(const tsr_host_info* host) {
  // No options are known here, so these two are chosen by the environment.
  const char* how = std::getenv("FAULTY_QUERY");
  const std::string_view chosen = how ? how : "";
  if (chosen == "reads_every_table") read_core_of(host);
  const tsr_plugin_desc* d = t::describe<fill>(host, TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR);
  if (chosen == "describes_anew") return new tsr_plugin_desc(*d);
  return d;
}
