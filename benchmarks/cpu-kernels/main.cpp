// SPDX-License-Identifier: Apache-2.0
// Memory-bound kernels through the whole compiler, in GB/s of least traffic (every input read once, every output written once),
// beside the rate of a plain copy in the same run. Two sizes: inside the last-level cache and far beyond it. Interleaved,
// medians. bench-cpu-kernels [--json] [--threads N] [--config FILE]... [--dtype f32|bf16] [--only NAME] [--size near|far]
// [--runs N] [--cpu-time] [--dynamic] [--relaxed] [--set KEY=VALUE]... --relaxed: the last config a second time with numerics =
// "relaxed", which is what compilers do that keep bf16 in f32 inside a kernel. --dynamic: every config a second time with both
// sizes symbols, and what that costs, as a part of the time with numbers.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/caches.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/embed.hpp"

namespace {

namespace embed = tessera::embed;

bool cpu_time = false;
double now() {  // seconds: of the wall clock, or of this process on any core
  if (!cpu_time) return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

using Json = nlohmann::ordered_json;

struct Case {
  const char* name;
  double traffic;    // tensors of rows x cols read or written
  const char* text;  // R, C: sizes; T: dtype
};
// clang-format off
constexpr Case kCases[] = {
  {"copy", 2, "graph @copy(%x: T[R, C]) {\n  %y = neg %x\n  return %y\n}\n"},
  {"bias+gelu", 2, "graph @gelu(%x: T[R, C], %b: T[C]) {\n  %a = add %x, %b\n  %y = gelu %a\n  return %y\n}\n"},
  {"softmax", 2, "graph @softmax(%x: T[R, C]) {\n  %y = softmax %x {axis = -1}\n  return %y\n}\n"},
  {"layernorm", 2, "graph @layernorm(%x: T[R, C], %w: T[C], %b: T[C]) {\n  %y = layer_norm %x, %w, %b {axis = -1}\n  return %y\n}\n"},
  {"residual+rmsnorm", 4, "graph @rmsnorm(%x: T[R, C], %r: T[R, C], %w: T[C]) {\n  %h = add %x, %r\n  %y = rms_norm %h, %w {axis = -1}\n  return %h, %y\n}\n"},
  {"swiglu", 3, "graph @swiglu(%x: T[R, C], %g: T[R, C]) {\n  %s = silu %g\n  %y = mul %x, %s\n  return %y\n}\n"},
  {"cross entropy", 1, "graph @loss(%x: T[R, C], %t: i64[R]) {\n  %y = cross_entropy %x, %t\n  return %y\n}\n"},
  {"adam", 7,
   "graph @adam(%p: T[R, C], %g: T[R, C], %m: T[R, C], %v: T[R, C]) {\n"
   "  %k1 = constant {value = dense<T[]: [0.9]>}\n  %m1 = mul %m, %k1\n  %k2 = constant {value = dense<T[]: [0.1]>}\n  %g1 = mul %g, %k2\n  %mn = add %m1, %g1\n"
   "  %k3 = constant {value = dense<T[]: [0.999]>}\n  %v1 = mul %v, %k3\n  %gg = mul %g, %g\n  %k4 = constant {value = dense<T[]: [0.001]>}\n  %g2 = mul %gg, %k4\n  %vn = add %v1, %g2\n"
   "  %q = sqrt %vn\n  %k5 = constant {value = dense<T[]: [1e-08]>}\n  %d = add %q, %k5\n  %u = div %mn, %d\n  %k6 = constant {value = dense<T[]: [0.001]>}\n  %s = mul %u, %k6\n  %pn = sub %p, %s\n"
   "  return %pn, %mn, %vn\n}\n"},
  {"transpose+add", 3, "graph @transpose(%x: T[C, R], %y: T[R, C]) {\n  %t = transpose %x {perm = [1, 0]}\n  %z = add %t, %y\n  return %z\n}\n"},
  {"column sum", 1, "graph @columns(%x: T[R, C]) {\n  %y = reduce_sum %x {axes = [0]}\n  return %y\n}\n"},
  {"full sum", 1, "graph @sum(%x: T[R, C]) {\n  %y = reduce_sum %x {axes = [0, 1]}\n  return %y\n}\n"},
};
// clang-format on

std::string replaced(std::string s, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = s.find(what, at)) != s.npos; at += by.size()) s.replace(at, what.size(), by);
  return s;
}

// Its text with these sizes.
std::string text_of(const Case& c, const std::string& dtype, const std::string& rows, const std::string& cols) {
  std::string text = c.text;
  for (const auto& [what, by] : {std::pair<std::string, std::string>{"T[R, C]", dtype + "[" + rows + ", " + cols + "]"},
                                 {"T[C, R]", dtype + "[" + cols + ", " + rows + "]"},
                                 {"T[C]", dtype + "[" + cols + "]"},
                                 {"[R]", "[" + rows + "]"},
                                 {"T[]", dtype + "[]"}})
    text = replaced(text, what, by);
  return text;
}

embed::Tensor filled(uint32_t dtype, std::span<const int64_t> sizes, int64_t classes) {
  embed::Tensor t = embed::Tensor::create(dtype, sizes);
  const int64_t n = t.elements();
  uint64_t s = 0x9e3779b97f4a7c15u;
  for (int64_t i = 0; i < n; ++i) {
    s = s * 6364136223846793005u + 1442695040888963407u;
    const double u = static_cast<double>(s >> 40) / (1 << 24);
    if (dtype == TSR_I64)
      static_cast<int64_t*>(t.data())[i] = static_cast<int64_t>(u * static_cast<double>(classes));
    else if (dtype == TSR_F32)
      static_cast<float*>(t.data())[i] = static_cast<float>(4 * u + 0.001);  // Adam's second moment is no less than 0
    else
      tessera::store_from(dtype, t.data(), i, 4 * u + 0.001);
  }
  return t;
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

void plain_copy(void* to, const void* from, int64_t bytes, int threads) {
  struct Job {
    char* to;
    const char* from;
    int64_t bytes, part;
  } job{static_cast<char*>(to), static_cast<const char*>(from), bytes, (bytes / threads + 63) / 64 * 64};
  embed::api().host->core->parallel(
      threads, 1,
      [](void* p, int64_t begin, int64_t end) {
        const Job& j = *static_cast<Job*>(p);
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i * j.part;
          if (at < j.bytes) std::memcpy(j.to + at, j.from + at, static_cast<size_t>(std::min(j.part, j.bytes - at)));
        }
      },
      &job);
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false, dynamic = false, relaxed = false;
  int runs = 11, threads = 0;
  std::string dtypes = "f32,bf16", only, size = "near,far";
  std::vector<std::string> configs, overrides;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (a == "--json")
      json = true;
    else if (a == "--threads")
      threads = std::max(1, std::atoi(value().c_str()));
    else if (a == "--cpu-time")  // for a machine that others use, with one thread
      cpu_time = true;
    else if (a == "--dynamic")
      dynamic = true;
    else if (a == "--relaxed")
      relaxed = true;
    else if (a == "--size")
      size = value();
    else if (a == "--config")
      configs.push_back(value());
    else if (a == "--set")
      overrides.push_back(value());
    else if (a == "--dtype")
      dtypes = value();
    else if (a == "--only")
      only = value();
    else if (a == "--runs")
      runs = std::max(1, std::atoi(value().c_str()));
    else
      return std::fprintf(
                 stderr,
                 "usage: bench-cpu-kernels [--json] [--threads N] [--config FILE]... [--set KEY=VALUE]... "
                 "[--dtype f32|bf16] [--only NAME] [--size near|far] [--runs N] [--cpu-time] [--dynamic] [--relaxed]\n"),
             2;
  }
  if (configs.empty()) configs = {TESSERA_SOURCE_DIR "/configs/eager.toml", TESSERA_SOURCE_DIR "/configs/cpu.toml"};
  if (threads > 0) overrides.push_back("runtime.threads=" + std::to_string(threads));
  if (threads == 0) threads = static_cast<int>(std::max<long>(1, sysconf(_SC_NPROCESSORS_ONLN)));
  Json document = {{"schema", "tessera.bench.cpu-kernels/1"}, {"threads", threads}, {"kernels", Json::array()}};
  try {
    std::vector<std::pair<std::string, embed::Context>> contexts;
    for (const std::string& c : configs) {
      embed::ContextOptions o;
      o.config_path = c;
      o.overrides = overrides;
      const size_t slash = c.rfind('/');
      std::string name = slash == c.npos ? c : c.substr(slash + 1);
      contexts.emplace_back(name.substr(0, name.find('.')), embed::Context(o));
      if (!relaxed || &c != &configs.back()) continue;
      o.overrides.push_back("numerics=relaxed");
      contexts.emplace_back("relaxed", embed::Context(o));
    }
    // A row of 1024: in the cache 1024 rows (4 MiB in f32), beyond it as many as make one tensor twice its size.
    const int64_t cols = 1024,
                  far = std::max<int64_t>(16384, 2 * tessera::cache_bytes(3, int64_t{32} << 20) / (4 * cols) / 1024 * 1024);
    for (const std::string dtype : {"f32", "bf16"}) {
      if (dtypes.find(dtype) == dtypes.npos) continue;
      const uint32_t type = dtype == "f32" ? TSR_F32 : TSR_BF16;
      for (const int64_t rows : {int64_t{1024}, far}) {
        if (size.find(rows == far ? "far" : "near") == size.npos) continue;
        if (!json) {
          std::printf("%s[%lld, %lld], %d threads: GB/s of least traffic\n%-18s %10s", dtype.c_str(),
                      static_cast<long long>(rows), static_cast<long long>(cols), threads, "", "memcpy");
          for (const auto& [name, context] : contexts) {
            std::printf(" %10s", name.c_str());
            if (dynamic) std::printf(" %10s %6s", "dynamic", "time");
          }
          std::printf("\n");
        }
        for (const Case& c : kCases) {
          if (!only.empty() && std::string(c.name).find(only) == std::string::npos) continue;
          const double bytes = c.traffic * static_cast<double>(rows * cols) * tessera::dtype_bits(type) / 8;
          std::vector<embed::Tensor> inputs;
          std::vector<embed::Executable> executables;
          std::vector<std::string> names;
          const auto add = [&](const std::string& name, const embed::Context& context, const std::string& text) {
            embed::Graph g = context.parse(text, c.name);
            context.run_passes(g);
            executables.push_back(context.compile(std::move(g)));
            names.push_back(name);
          };
          for (const auto& [name, context] : contexts) {
            add(name, context, text_of(c, dtype, std::to_string(rows), std::to_string(cols)));
            if (dynamic) add(name + " dynamic", context, text_of(c, dtype, "s0", "s1"));
          }
          const tsr_tables& t = executables[0].tables();
          const tsr_region* region = TSR_AT(tsr_region, t.regions, t.region_stride, 0);
          for (uint32_t i = 0; i < region->num_inputs; ++i) {
            const tsr_type& in = *TSR_AT(tsr_value, t.values, t.value_stride, region->inputs[i])->type;
            inputs.push_back(filled(in.dtype, {in.sizes, in.rank}, cols));
          }
          embed::Tensor from = embed::Tensor::create(TSR_U8, std::vector<int64_t>{static_cast<int64_t>(bytes / 2)}),
                        to = embed::Tensor::create(TSR_U8, std::vector<int64_t>{static_cast<int64_t>(bytes / 2)});
          std::memset(from.data(), 1, static_cast<size_t>(bytes / 2));
          std::memset(to.data(), 1, static_cast<size_t>(bytes / 2));
          std::vector<Way> ways;
          ways.push_back({"memcpy", [&] { plain_copy(to.data(), from.data(), static_cast<int64_t>(bytes / 2), threads); }, {}});
          for (size_t k = 0; k < executables.size(); ++k)
            ways.push_back({names[k], [&, k] { [[maybe_unused]] const auto results = executables[k].run(inputs); }, {}});
          // In the cache one way at a time keeps its data there, for several calls: the first ones fetch what another way has
          // driven out. They take turns at being first.
          const bool near = rows != far;
          const int warm = near ? 3 : 1, calls = std::max(near ? 8 : 1, static_cast<int>(4e7 / bytes));
          for (int r = -2; r < runs; ++r)
            for (size_t k = 0; k < ways.size(); ++k) {
              Way& w = ways[r % 2 == 0 ? k : ways.size() - 1 - k];
              for (int i = 0; i < warm; ++i) w.run();
              const double start = now();
              for (int i = 0; i < calls; ++i) w.run();
              if (r >= 0) w.seconds.push_back((now() - start) / calls);
            }
          Json row = {{"kernel", c.name}, {"dtype", dtype}, {"rows", rows}, {"cols", cols}, {"bytes", bytes}};
          if (!json) std::printf("%-18s", c.name);
          for (Way& w : ways) {
            const double rate = bytes / w.median() * 1e-9;
            row[w.name] = {{"seconds", w.median()}, {"gb_per_s", rate}};
            if (!json) std::printf(" %10.1f", rate);
            if (!w.name.ends_with(" dynamic")) continue;
            const double part = w.median() / (&w - 1)->median();  // its static sibling stands before it
            row[w.name]["of_static"] = part;
            if (!json) std::printf(" %6.2f", part);
          }
          if (!json) std::printf("\n");
          std::fflush(stdout);
          document["kernels"].push_back(row);
        }
      }
    }
  } catch (const embed::Error& e) {
    return std::fprintf(stderr, "%s\n", e.what()), 1;
  }
  if (json) std::printf("%s\n", document.dump(2).c_str());
  return 0;
}
