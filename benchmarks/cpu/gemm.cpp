// SPDX-License-Identifier: Apache-2.0
// Matrix products: ours with weights packed beforehand, ours as they come, and oneDNN with reordered weights, interleaved in
// one run; GFLOP/s and the fraction of what dependent-free FMA instructions reach in the same run. bench-cpu-gemm [--json]
// [--threads N] [--isa NAME] [--dtype f32|bf16] [--size MxNxK]... [--way NAME] [--cold] [--runs N] --cold: packed weights come
// from memory in each run, as in a model that is larger than the caches; not oneDNN's.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bare_host.hpp"
#include "gemm/gemm.hpp"
#include "strassen/strassen.hpp"
#include "tessera/dtypes.hpp"
#ifdef HAVE_ONEDNN
#include <dnnl.hpp>
#endif

namespace {

using namespace cpu;
using Clock = std::chrono::steady_clock;

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;
Memory memory(int64_t bytes) {
  Memory m(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>(bytes + 127) / 64 * 64)));
  std::memset(m.get(), 0, static_cast<size_t>(bytes));
  return m;
}
Memory filled(uint32_t dtype, int64_t n) {
  Memory m = memory(n * tessera::dtype_bits(dtype) / 8);
  for (int64_t i = 0; i < n; ++i) tessera::store_from(dtype, m.get(), i, static_cast<float>((i * 7919) % 17 - 8) / 16);
  return m;
}

// The micro-kernel on operands in the first-level cache: what the machine gives at that moment.
double peak(const GemmIsa& isa, int threads) {
  double best = 0;
  const int height = isa.mr;
  const int64_t k = std::max<int64_t>(128, isa.k_unit);
  for (int r = 0; r < 5; ++r) {
    const int64_t repeat = 20000;
    const auto start = Clock::now();
    tessera::sdk::parallel(threads, 1, [&](int64_t b, int64_t e) {
      if (isa.begin) isa.begin();
      for (int64_t t = b; t < e; ++t) {
        const Memory a = memory(k * height * 4 + 64), x = memory(k * isa.nr * 4 + 64), c = memory(height * isa.nr * 4);
        float* sums = reinterpret_cast<float*>(c.get());
        for (int64_t i = 0; i < repeat; ++i)
          isa.micro[height].whole(k, a.get(), x.get(), sums, isa.nr, false, Prefetch::only(x.get(), 0, sums));
      }
      if (isa.end) isa.end();
    });
    const double s = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * threads * repeat * height * isa.nr * static_cast<double>(k) / s * 1e-9);
  }
  return best;
}

struct Way {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds;
  double median() {
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }
};

// Lines of memory leave all caches.
void flush(const Memory& m, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_ia32_clflush(m.get() + i);
  __builtin_ia32_mfence();
}

struct Problem {
  int64_t m, n, k;
  uint32_t dtype;
  Memory a, b, c, packed, sums, workspace, strassen_workspace;
  Gemm g, unpacked, strassen;
};

void ours(Problem& p, const Isa& isa, int threads, std::vector<Way>& ways) {
  const GemmIsa& kernels = *gemm_kernels(isa, p.dtype, p.dtype);
  Gemm& g = p.g;
  g.isa = &kernels;
  g.m.push(p.m, {p.k});
  g.n.push(p.n, {p.k});  // weights as linear has them: [n, k]
  g.k.push(p.k, {1, 1});
  g.a = p.a.get(), g.b = p.b.get(), g.c = p.c.get();
  g.a_dtype = g.b_dtype = g.c_dtype = p.dtype;
  p.unpacked = g;
  p.packed = memory(packed_matrix_bytes(kernels, p.n, p.k));
  pack_matrix(kernels, g.b, p.dtype, g.n, g.k, p.packed.get());
  g.packed_b = p.packed.get();
  p.workspace = memory(std::max(gemm_workspace(kernels, 1, p.m, p.n, p.k, {false, true, false}, threads),
                                gemm_workspace(kernels, 1, p.m, p.n, p.k, {}, threads)));
  ways.push_back({"packed", [&p, threads] { gemm_run(p.g, p.workspace.get(), threads); }, {}});
  if (!kernels.bf16 && p.dtype == TSR_F32) {
    p.strassen = g;
    p.sums = memory(strassen_packed_bytes(kernels, p.n, p.k));
    strassen_pack(kernels, reinterpret_cast<const float*>(p.b.get()), g.n, g.k, p.sums.get());
    p.strassen.packed_b = p.sums.get();
    p.strassen_workspace = memory(strassen_workspace(kernels, p.m, p.n, p.k, threads));
    if (!strassen_plain_form(p.sums.get()))
      ways.push_back({"strassen", [&p, threads] { strassen_run(p.strassen, p.strassen_workspace.get(), threads); }, {}});
  }
  ways.push_back({"unpacked", [&p, threads] { gemm_run(p.unpacked, p.workspace.get(), threads); }, {}});
}

#ifdef HAVE_ONEDNN
void onednn(Problem& p, std::vector<Way>& ways) {
  using namespace dnnl;
  static engine eng(engine::kind::cpu, 0);
  static stream s(eng);
  const auto dt = p.dtype == TSR_BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const dnnl::memory::desc a({p.m, p.k}, dt, dnnl::memory::format_tag::ab), any({p.k, p.n}, dt, dnnl::memory::format_tag::any),
      b({p.k, p.n}, dt, dnnl::memory::format_tag::ba), c({p.m, p.n}, dt, dnnl::memory::format_tag::ab);
  try {
    const matmul::primitive_desc d(matmul::desc(a, any, c), eng);
    const matmul product(d);
    dnnl::memory ma(a, eng, p.a.get()), mb(b, eng, p.b.get()), mc(c, eng, p.c.get()), weights(d.weights_desc(), eng);
    reorder(mb, weights).execute(s, mb, weights);
    s.wait();
    ways.push_back({"oneDNN",
                    [=]() mutable {
                      product.execute(s, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, mc}});
                      s.wait();
                    },
                    {}});
  } catch (const dnnl::error&) {}
}
#endif

}  // namespace

int main(int argc, char** argv) {
  bool json = false, cold = false;
  int runs = 15;
  std::vector<std::array<int64_t, 3>> sizes;
  std::string isa_name = native_isa().name, dtype = "f32", way;
  bare::set_host();
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (a == "--json")
      json = true;
    else if (a == "--threads")
      bare::threads() = std::max(1, std::atoi(value().c_str()));
    else if (a == "--isa")
      isa_name = value();
    else if (a == "--dtype")
      dtype = value();
    else if (a == "--way")
      way = value();
    else if (a == "--cold")
      cold = true;
    else if (a == "--runs")
      runs = std::max(1, std::atoi(value().c_str()));
    else if (a == "--size") {
      long long m = 0, n = 0, k = 0;
      const std::string size = value();
      if (std::sscanf(size.c_str(), "%lldx%lldx%lld", &m, &n, &k) != 3 || m < 1 || n < 1 || k < 1)
        return std::fprintf(stderr, "--size: found '%s', expected MxNxK, such as 128x768x768\n", size.c_str()), 2;
      sizes.push_back({m, n, k});
    } else
      return std::fprintf(stderr,
                          "usage: bench-cpu-gemm [--json] [--threads N] [--isa NAME] [--dtype f32|bf16] [--size MxNxK]... "
                          "[--way packed|strassen|unpacked|oneDNN] [--cold] [--runs N]\n"),
             2;
  }
  const Isa* isa = find_isa(isa_name);
  if (!isa || !can_run(*isa) || (dtype != "f32" && dtype != "bf16"))
    return std::fprintf(stderr, "this machine does not have '%s', or '%s' is no dtype of this benchmark\n", isa_name.c_str(),
                        dtype.c_str()),
           2;
  const uint32_t d = dtype == "bf16" ? TSR_BF16 : TSR_F32;
  const int threads = bare::threads();
#ifdef _OPENMP
  omp_set_num_threads(threads);
#endif
  const GemmIsa& kernels = *gemm_kernels(*isa, d, d);
  const double top = peak(kernels, threads);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (!json)
    std::printf("%s, %s, %d threads, peak %.1f GFLOP/s\n%-20s", kernels.name, dtype.c_str(), threads, top, "m x n x k");
  if (sizes.empty())
    sizes = {{1, 3072, 768},    {8, 3072, 768},    {32, 3072, 768},    {128, 768, 768},   {128, 2304, 768},
             {128, 3072, 768},  {128, 768, 3072},  {128, 50257, 768},  {512, 384, 1536},  {512, 1536, 384},
             {1024, 768, 3072}, {1024, 3072, 768}, {1024, 1024, 1024}, {2048, 2048, 2048}};
  bool header = !json;
  for (const auto& [m, n, k] : sizes) {
    Problem p{m, n, k, d, filled(d, m * k), filled(d, n * k), memory(m * n * 4), {}, {}, {}, {}, {}, {}, {}};
    std::vector<Way> ways;
    ours(p, *isa, threads, ways);
#ifdef HAVE_ONEDNN
    onednn(p, ways);
#endif
    if (!way.empty()) std::erase_if(ways, [&](const Way& w) { return w.name != way; });
    if (ways.empty())
      return std::fprintf(
                 stderr,
                 "--way: '%s' does not compute %lldx%lldx%lld in %s; there are packed, strassen (f32), unpacked and oneDNN\n",
                 way.c_str(), static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k), dtype.c_str()),
             2;
    if (header) {
      for (const Way& w : ways) std::printf(" %22s", w.name.c_str());
      std::printf("\n");
      header = false;
    }
    for (int r = -2; r < runs; ++r)
      for (Way& w : ways) {
        if (cold && p.packed) flush(p.packed, packed_matrix_bytes(kernels, n, k));
        if (cold && p.sums) flush(p.sums, strassen_packed_bytes(kernels, n, k));
        const auto start = Clock::now();
        w.run();
        if (r >= 0) w.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
      }
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    nlohmann::ordered_json row = {{"m", m}, {"n", n}, {"k", k}};
    if (!json) std::printf("%-20s", (std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k)).c_str());
    for (Way& w : ways) {
      const double rate = flops / w.median() * 1e-9;
      row[w.name] = {{"seconds", w.median()}, {"gflops", rate}, {"of_peak", rate / top}};
      if (!json) std::printf("   %9.1f GF/s (%3.0f%%)", rate, 100 * rate / top);
    }
    if (!json) std::printf("\n");
    rows.push_back(row);
    std::fflush(stdout);
  }
  if (json)
    std::printf("%s\n", nlohmann::ordered_json{{"schema", "tessera.bench.cpu-gemm/1"},
                                               {"isa", kernels.name},
                                               {"dtype", dtype},
                                               {"threads", threads},
                                               {"peak_gflops", top},
                                               {"products", rows}}
                            .dump(2)
                            .c_str());
  return 0;
}
