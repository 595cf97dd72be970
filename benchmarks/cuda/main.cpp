// SPDX-License-Identifier: Apache-2.0
// Generated kernels on an NVIDIA GPU: GB/s with each input read once and each output written once, beside a copy in the same
// run; compile times; products; and what a launch costs the host.
// usage: bench-cuda [--quick] [--tuned] [NAME...]
// NAME: rows of the table, "complaints" for what users of other compilers complain of (without names: all but these).
// --tuned: by schedules that are measured first, as mode max-autotune-no-cudagraphs does. TESSERA_LOGS=autotuning tells all.
// --quick: small sizes, for machines without a GPU. Plugins come from TESSERA_BUILD_DIR/lib/tessera/plugins.
// TESSERA_CUDA_LIBRARY: a driver and compiler to use instead of the system's.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tessera/embed.hpp"
#include "timing.hpp"

namespace {

namespace e = tessera::embed;
using tessera::bench::Driver;
using tessera::bench::now;

struct Program {
  const char* name;
  const char* text;  // T: the dtype, R and C: rows and columns; an input that is no T is indices into C rows
  int64_t rows = 16384, columns = 4096;
  bool complaint = false;  // one that runs when it is asked for, in bf16 alone
};
constexpr const char* kRmsBackward =
    "graph @g(%x: T[R, C], %w: T[C], %dy: T[R, C]) -> (T[R, C], T[C]) {\n  %y = rms_norm %x, %w {axis = -1}\n"
    "  %dx, %dw = grad %y, %dy, %x, %w {seeded = true}\n  return %dx, %dw\n}";
constexpr const char* kSoftmax = "graph @g(%x: T[R, C]) -> (T[R, C]) {\n  %y = softmax %x {axis = -1}\n  return %y\n}";
const Program kPrograms[] = {
    {"add", "graph @g(%x: T[R, C], %y: T[R, C]) -> (T[R, C]) {\n  %z = add %x, %y\n  return %z\n}"},
    {"gelu", "graph @g(%x: T[R, C], %b: T[C]) -> (T[R, C]) {\n  %a = add %x, %b\n  %y = gelu %a\n  return %y\n}"},
    {"swiglu", "graph @g(%x: T[R, C], %y: T[R, C]) -> (T[R, C]) {\n  %s = silu %x\n  %z = mul %s, %y\n  return %z\n}"},
    {"softmax", kSoftmax},
    {"layer_norm",
     "graph @g(%x: T[R, C], %w: T[C], %b: T[C]) -> (T[R, C]) {\n  %y = layer_norm %x, %w, %b {axis = -1}\n  return %y\n}"},
    {"residual_rms_norm",
     "graph @g(%x: T[R, C], %r: T[R, C], %w: T[C]) -> (T[R, C], T[R, C]) {\n  %s = add %x, %r\n  %y = rms_norm %s, %w {axis = "
     "-1}\n"
     "  return %y, %s\n}"},
    {"row_sum", "graph @g(%x: T[R, C]) -> (T[R]) {\n  %y = reduce_sum %x {axes = [1]}\n  return %y\n}"},
    {"column_sum", "graph @g(%x: T[R, C]) -> (T[C]) {\n  %y = reduce_sum %x {axes = [0]}\n  return %y\n}"},
    {"full_sum", "graph @g(%x: T[R, C]) -> (T[]) {\n  %y = reduce_sum %x {axes = [0, 1]}\n  return %y\n}"},
    {"transpose_add",
     "graph @g(%x: T[C, R], %y: T[R, C]) -> (T[R, C]) {\n  %t = transpose %x {perm = [1, 0]}\n  %z = add %t, %y\n  return "
     "%z\n}"},
    {"rms_backward", kRmsBackward},
    {"layer_backward",
     "graph @g(%x: T[R, C], %w: T[C], %b: T[C], %dy: T[R, C]) -> (T[R, C], T[C], T[C]) {\n"
     "  %y = layer_norm %x, %w, %b {axis = -1}\n  %dx, %dw, %db = grad %y, %dy, %x, %w, %b {seeded = true}\n"
     "  return %dx, %dw, %db\n}"},
    {"rms_backward_few_rows", kRmsBackward, 4096, 2048},
    {"softmax_32k", kSoftmax, 4096, 32768},
    {"softmax_64k", kSoftmax, 2048, 65536},
    {"softmax_128k", kSoftmax, 2048, 128256},
    {"rotary",  // of the halves of heads of 64
     "graph @g(%x: T[R, 32, 64], %c: T[R, 1, 64], %s: T[R, 1, 64]) -> (T[R, 32, 64]) {\n"
     "  %h = reshape %x {shape = [R, 32, 2, 32]}\n  %f = flip %h {axes = [2]}\n  %o = reshape %f {shape = [R, 32, 64]}\n"
     "  %a = mul %x, %c\n  %b = mul %o, %s\n  %y = add %a, %b\n  return %y\n}"},
    {"rms_backward_131072", kRmsBackward, 131072, 16384, true},
    {"max_transposed",
     "graph @g(%x: T[R, C]) -> (T[C]) {\n  %t = transpose %x {perm = [1, 0]}\n  %y = reduce_max %t {axes = [1]}\n  return "
     "%y\n}",
     4096, 8192, true},
    {"entropy_of_one_row",
     "graph @g(%x: T[R, C]) -> (T[R]) {\n  %p = softmax %x {axis = -1}\n  %l = log_softmax %x {axis = -1}\n  %m = mul %p, %l\n"
     "  %s = reduce_sum %m {axes = [1]}\n  %y = neg %s\n  return %y\n}",
     1, 32768, true},
    {"sum_of_expanded",
     "graph @g(%x: T[R, 1, 1]) -> (T[]) {\n  %e = broadcast_to %x {shape = [R, C, C]}\n  %y = reduce_sum %e {axes = [0, 1, "
     "2]}\n"
     "  return %y\n}",
     100000000, 2, true},
    {"beyond_2_31", "graph @g(%x: T[R, C]) -> (T[R, C]) {\n  %y = neg %x\n  return %y\n}", 524289, 4096, true},
    {"embedding_backward",
     "graph @g(%z: T[C, 4096], %i: i64[R, 1], %u: T[R, 4096]) -> (T[C, 4096]) {\n"
     "  %y = scatter_nd %z, %i, %u {reduction = \"add\"}\n  return %y\n}",
     32768, 32000, true},
};

std::string program_text(const Program& p, const char* dtype, int64_t rows, int64_t columns) {
  std::string out;
  for (const char* c = p.text; *c; ++c) {
    const bool word = c > p.text && (std::isalnum(static_cast<unsigned char>(c[-1])) || c[-1] == '_');
    const bool followed = std::isalnum(static_cast<unsigned char>(c[1])) || c[1] == '_';
    if (word || followed || !std::strchr("TRC", *c))
      out += *c;
    else
      out += *c == 'T' ? dtype : std::to_string(*c == 'R' ? rows : columns) + "";
  }
  // Everything on the device.
  std::string placed;
  for (size_t i = 0; i < out.size(); ++i) {
    placed += out[i];
    if (out[i] == ']' && out.find('{') > i) placed += "@cuda:0";
  }
  return placed;
}

// Row numbers below `rows`, of which every tenth is the same one.
e::Tensor hot_indices(std::span<const int64_t> sizes, int64_t rows, uint64_t seed) {
  e::Tensor t = e::Tensor::create(TSR_I64, sizes);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < t.elements(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    static_cast<int64_t*>(t.data())[i] =
        i % 10 == 0 ? rows / 3 : static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(rows));
  }
  return t;
}

e::Tensor random_tensor(uint32_t dtype, std::span<const int64_t> sizes, uint64_t seed) {
  e::Tensor t = e::Tensor::create(dtype, sizes);
  const int64_t n = t.elements(), period = std::min<int64_t>(n, 1000003);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  const int64_t item = dtype == TSR_BF16 ? 2 : 4;
  for (int64_t i = 0; i < period; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const float x = static_cast<float>(static_cast<int64_t>(state >> 40) % 2001 - 1000) / 256.0f;
    if (item == 4) {
      static_cast<float*>(t.data())[i] = x;
    } else {
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      static_cast<uint16_t*>(t.data())[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
  char* p = static_cast<char*>(t.data());
  for (int64_t done = period; done < n; done += period)
    std::memcpy(p + done * item, p, static_cast<size_t>(std::min(period, n - done) * item));
  return t;
}

struct Input {
  uint32_t dtype;
  std::vector<int64_t> sizes;
};
std::vector<Input> inputs_of(const e::Executable& program) {
  const tsr_tables& t = program.tables();
  const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  std::vector<Input> out;
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_type& type = *TSR_AT(tsr_value, t.values, t.value_stride, body.inputs[i])->type;
    out.push_back({type.dtype, {type.sizes, type.sizes + type.rank}});
  }
  return out;
}

enum class Kind { Fused, OpByOp, Graphs };
e::Context make_context(Kind kind, bool tuned = false) {
  e::ContextOptions o;
  const char* fake = std::getenv("TESSERA_CUDA_LIBRARY");
  const std::string library =
      fake ? "driver = \"" + std::string(fake) + "\"\nnvrtc = \"" + fake + "\"\ncublaslt = \"" + fake + "\"\n" : "";
  o.config_text =
      std::string(tuned ? "mode = \"max-autotune-no-cudagraphs\"\n" : "") +
      std::string(
          "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.pass.fuse\", "
          "\"tessera.pass.dce\", ") +
      "\"tessera.backend.reference\", \"tessera.backend.cuda\", \"tessera.executor.cudagraphs\"]\n[pipeline]\npasses = [" +
      (kind == Kind::Fused ? "\"fuse\"" : "") + "]\njoint = [\"dce\"]\n[backends]\norder = [\"cuda\", \"reference\"]\n" +
      (kind == Kind::Graphs ? "[executor]\nname = \"cudagraphs\"\n" : "") + "[cuda]\n" + library;
  if (const char* build = std::getenv("TESSERA_BUILD_DIR"))  // else those beside libtessera
    o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
  return e::Context(o);
}

// What the driver alone takes for a launch of a kernel with three arguments: the floor of what follows.
void measure_driver_launch(Driver& driver, bool quick) {
  if (std::getenv("TESSERA_CUDA_LIBRARY")) return;  // has no PTX
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto load = reinterpret_cast<int (*)(void**, const void*)>(dlsym(library, "cuModuleLoadData"));
  const auto find = reinterpret_cast<int (*)(void**, void*, const char*)>(dlsym(library, "cuModuleGetFunction"));
  using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  const auto launch = reinterpret_cast<Launch>(dlsym(library, "cuLaunchKernel"));
  const auto wait = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuStreamSynchronize"));
  void *module = nullptr, *function = nullptr;
  if (load(&module,
           ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry none(.param .u64 a, .param .u64 b, .param .u64 c)\n"
           "{ ret; }\n") != 0 ||
      find(&function, module, "none") != 0)
    throw std::runtime_error("the driver does not load a kernel that does nothing");
  std::vector<double> times;
  for (int r = 0; r < 15; ++r) {
    const int n = quick ? 2 : 1000;
    wait(driver.stream);
    const double begin = now();
    for (int i = 0; i < n; ++i) {
      void* pointers[3] = {};
      void* arguments[] = {&pointers[0], &pointers[1], &pointers[2]};
      launch(function, 16, 1, 1, 256, 1, 1, 0, driver.stream, arguments, nullptr);
    }
    times.push_back((now() - begin) / n);
  }
  std::sort(times.begin(), times.end());
  std::printf("cuLaunchKernel alone: host %.2f us\n", times[times.size() / 2] * 1e6);
}

// What a launch costs the host: chains of small kernels, op by op, step by step and as one graph.
void measure_launches(Driver& driver, tsr_device gpu, bool quick) {
  const std::vector<e::Tensor> x = {random_tensor(TSR_F32, std::vector<int64_t>{4096}, 1).copy_to(gpu),
                                    random_tensor(TSR_F32, std::vector<int64_t>{4096}, 2).copy_to(gpu)};
  for (const Kind kind : {Kind::OpByOp, Kind::Graphs}) {
    const e::Context context = make_context(kind);
    double host[2] = {};
    const int lengths[2] = {2, 102}, runs = quick ? 2 : 200;
    for (int k = 0; k < 2; ++k) {
      std::string text = "graph @chain(%v0: f32[4096]@cuda:0) -> (f32[4096]@cuda:0) {\n";
      for (int i = 0; i < lengths[k]; ++i)
        text += "  %v" + std::to_string(i + 1) + (i % 2 ? " = neg %v" : " = relu %v") + std::to_string(i) + "\n";
      const e::Executable program =
          context.compile(context.parse(text + "  return %v" + std::to_string(lengths[k]) + "\n}", "chain"));
      const auto once = [&](int i) { (void)program.run(std::span(&x[static_cast<size_t>(i % 2)], 1)); };
      for (int i = 0; i < 4; ++i) once(i);
      for (const bool moving : {false, true}) {
        std::vector<double> times;
        for (int r = 0; r < (quick ? 1 : 15); ++r) {
          e::check(e::api().synchronize(gpu, nullptr));
          const int n = k == 0 ? runs : runs / 10 + 1;  // the queue of the device must not fill up
          const double begin = now();
          for (int i = 0; i < n; ++i) once(moving ? i : 0);
          times.push_back((now() - begin) / n);
        }
        std::sort(times.begin(), times.end());
        if (!moving) host[k] = times[times.size() / 2];
        const double device = driver.seconds([&](int i) { once(moving ? i : 0); }, quick ? 1 : 15, 4);
        std::printf("%s, %d kernels of 4,096 elements, input %s: host %.2f us a run, device %.2f us\n",
                    kind == Kind::Graphs ? "one graph" : "step by step", lengths[k], moving ? "moves" : "stays",
                    times[times.size() / 2] * 1e6, device * 1e6);
      }
    }
    std::printf("%s: host time of one kernel more: %.2f us\n", kind == Kind::Graphs ? "one graph" : "step by step",
                (host[1] - host[0]) / (lengths[1] - lengths[0]) * 1e6);
    std::fflush(stdout);
  }
}

void measure_products(Driver& driver, tsr_device gpu, const e::Context& context, bool quick) {
  struct Shape {
    int64_t m, n, k;
  };
  const std::vector<Shape> shapes =
      quick ? std::vector<Shape>{{8, 16, 24}}
            : std::vector<Shape>{{4096, 2048, 2048}, {4096, 8192, 2048}, {4096, 2048, 8192}, {8192, 8192, 8192}};
  for (const Shape& s : shapes)
    for (const uint32_t dtype : {TSR_BF16, TSR_F32}) {
      if (dtype == TSR_F32 && s.m > 4096) continue;
      const char* type = dtype == TSR_BF16 ? "bf16" : "f32";
      try {
        const std::string m = std::to_string(s.m), n = std::to_string(s.n), k = std::to_string(s.k), t = type;
        const double begin = now();
        const e::Executable program = context.compile(
            context.parse("graph @p(%a: " + t + "[" + m + ", " + k + "]@cuda:0, %b: " + t + "[" + k + ", " + n +
                              "]@cuda:0) -> (" + t + "[" + m + ", " + n + "]@cuda:0) {\n  %d = matmul %a, %b\n  return %d\n}",
                          "product"));
        const double cold = now() - begin;
        std::vector<std::vector<e::Tensor>> sets;
        for (uint64_t i = 0; i < 2; ++i)
          sets.push_back({random_tensor(dtype, std::vector<int64_t>{s.m, s.k}, 2 * i).copy_to(gpu),
                          random_tensor(dtype, std::vector<int64_t>{s.k, s.n}, 2 * i + 1).copy_to(gpu)});
        const double seconds =
            driver.seconds([&](int i) { (void)program.run(sets[static_cast<size_t>(i) % 2]); }, quick ? 1 : 15, 4);
        std::printf("product %s x %s x %s %-5s %9.1f ms cold %9.1f us %7.1f TFLOP/s\n", m.c_str(), n.c_str(), k.c_str(), type,
                    cold * 1e3, seconds * 1e6, 2.0 * static_cast<double>(s.m * s.n * s.k) / seconds / 1e12);
      } catch (const std::exception& error) {
        std::printf("product %s FAILED: %s\n", type, error.what());
      }
      std::fflush(stdout);
    }
}

int run(int argc, char** argv) {
  bool quick = false, tuned = false;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--quick") == 0)
      quick = true;
    else if (std::strcmp(argv[i], "--tuned") == 0)
      tuned = true;
    else
      names.emplace_back(argv[i]);
  const int64_t rows = quick ? 16 : 16384, columns = quick ? 512 : 4096;
  const int repeats = quick ? 1 : 30;
  double started = now();
  const e::Context fused = make_context(Kind::Fused, tuned);
  Driver driver;
  const tsr_device gpu = e::device("cuda:0");
  {  // makes the device's context current for this thread
    (void)random_tensor(TSR_F32, std::vector<int64_t>{16}, 1).copy_to(gpu);
  }
  driver.open_stream();
  tsr_stream_handle* stream = nullptr;
  e::check(e::api().stream_wrap(gpu, driver.stream, &stream));
  e::check(e::api().set_current_stream(gpu, stream, nullptr));
  std::printf("contexts and device: %.0f ms\n", (now() - started) * 1e3);

  if (names.empty()) measure_driver_launch(driver, quick);
  if (names.empty()) measure_launches(driver, gpu, quick);
  if (names.empty()) measure_products(driver, gpu, fused, quick);

  // ---- the ceiling
  const size_t bytes = static_cast<size_t>(rows * columns) * 2;
  double copy_rate = 0;
  {
    std::vector<e::Tensor> buffers;
    for (uint64_t i = 0; i < 4; ++i)
      buffers.push_back(random_tensor(TSR_BF16, std::vector<int64_t>{rows, columns}, i).copy_to(gpu));
    const auto at = [&](int i) { return reinterpret_cast<unsigned long long>(buffers[static_cast<size_t>(i) % 4].data()); };
    const double s = driver.seconds([&](int i) { driver.copy(at(2 * i), at(2 * i + 1), bytes, driver.stream); }, repeats, 4);
    copy_rate = 2.0 * static_cast<double>(bytes) / s;
    std::printf("copy of %lld x %lld bf16: %.0f GB/s\n", static_cast<long long>(rows), static_cast<long long>(columns),
                copy_rate / 1e9);
  }

  // ---- kernels
  std::printf("%-22s %-5s %9s %9s %7s %6s  %s\n", "kernel", "dtype", "cold ms", "us", "GB/s", "copy", "A/A");
  for (const Program& p : kPrograms) {
    const auto named = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
    if (!named(p.name) && !(p.complaint ? named("complaints") : names.empty())) continue;
    for (const uint32_t dtype : {TSR_BF16, TSR_F32}) {
      if (p.complaint && dtype != TSR_BF16) continue;
      const char* dtype_text = dtype == TSR_BF16 ? "bf16" : "f32";
      try {
        const std::string text = program_text(p, dtype_text, quick ? std::min<int64_t>(p.rows, 16) : p.rows,
                                              quick ? std::min<int64_t>(p.columns, 512) : p.columns);
        const double begin = now();
        const e::Executable program = fused.compile(fused.parse(text, p.name));
        const double cold = now() - begin;
        constexpr int64_t kBeyondCaches = int64_t{1}
                                          << 30;  // elements of tensors of which no set leaves anything to the next run
        std::vector<std::vector<e::Tensor>> sets(p.rows * p.columns >= kBeyondCaches ? 1 : 2);
        double moved = 0;
        for (size_t k = 0; k < sets.size(); ++k)
          for (const Input& x : inputs_of(program)) {
            const uint64_t seed = 10 * k + sets[k].size();
            sets[k].push_back((x.dtype == TSR_I64
                                   ? hot_indices(x.sizes, quick ? std::min<int64_t>(p.columns, 512) : p.columns, seed)
                                   : random_tensor(x.dtype, x.sizes, seed))
                                  .copy_to(gpu));
          }
        const auto size_of = [&](const e::Tensor& t) {
          return static_cast<double>(t.elements()) * (t.dtype() == TSR_BF16 ? 2 : t.dtype() == TSR_F32 ? 4 : 8);
        };
        for (const e::Tensor& t : sets[0]) moved += size_of(t);
        for (const e::Tensor& t : program.run(sets[0])) moved += size_of(t);
        e::check(e::api().synchronize(gpu, nullptr));
        const double first = now();
        (void)program.run(sets.back());
        e::check(e::api().synchronize(gpu, nullptr));
        if (now() - first > 0.2) {
          std::printf("%-22s %-5s %9.1f ms cold, %.0f ms a run: too slow to be timed\n", p.name, dtype_text, cold * 1e3,
                      (now() - first) * 1e3);
          continue;
        }
        const auto once = [&](int i) { (void)program.run(sets[static_cast<size_t>(i) % sets.size()]); };
        const double a = driver.seconds(once, repeats, 4), b = driver.seconds(once, repeats, 4);
        std::printf("%-22s %-5s %9.1f %9.1f %7.0f %6.3f  %.3f\n", p.name, dtype_text, cold * 1e3, a * 1e6, moved / a / 1e9,
                    moved / a / copy_rate, b / a);
        if (dtype == TSR_BF16 && program.plan().find("reference") != std::string::npos)
          std::printf("  not on the device alone:\n%s\n", program.plan().c_str());
      } catch (const std::exception& error) {
        std::printf("%-22s %-5s FAILED: %s\n", p.name, dtype_text, error.what());
      }
      std::fflush(stdout);
    }
  }

  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-cuda: %s\n", error.what());
    return 1;
  }
}
