// SPDX-License-Identifier: Apache-2.0
// Generated kernels on an NVIDIA GPU: GB/s with each input read once and each output written once, beside a copy in the same run; compile
// times; and what a launch costs the host.
// usage: bench-cuda [--quick] [NAME...]     plugins: TESSERA_BUILD_DIR/lib/tessera/plugins; --quick: small sizes, for machines without a GPU
// TESSERA_CUDA_LIBRARY: a driver and compiler to use instead of the system's.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

namespace {

namespace e = tessera::embed;

// The calls of the driver that timing needs.
struct Driver {
  int (*stream_create)(void**, unsigned);
  int (*event_create)(void**, unsigned);
  int (*event_record)(void*, void*);
  int (*event_synchronize)(void*);
  int (*event_elapsed)(float*, void*, void*);
  int (*copy)(unsigned long long, unsigned long long, size_t, void*);
  void *stream = nullptr, *begin = nullptr, *end = nullptr;

  Driver() {
    const char* fake = std::getenv("TESSERA_CUDA_LIBRARY");
    void* library = dlopen(fake ? fake : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    const auto find = [&](auto& f, const char* name) {
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library, name));
      if (!f) throw std::runtime_error(std::string("the driver lacks ") + name);
    };
    find(stream_create, "cuStreamCreate"), find(event_create, "cuEventCreate"), find(event_record, "cuEventRecord");
    find(event_synchronize, "cuEventSynchronize"), find(event_elapsed, "cuEventElapsedTime");
    find(copy, "cuMemcpyDtoDAsync_v2");
  }
  void open_stream() {  // in the current context
    if (stream_create(&stream, 1) != 0 || event_create(&begin, 0) != 0 || event_create(&end, 0) != 0)
      throw std::runtime_error("the driver makes no stream or event");
  }
  // Median seconds of one call on the device.
  template <class F>
  double seconds(F&& f, int repeats, int calls) {
    for (int i = 0; i < 3; ++i) f(i);
    std::vector<double> times;
    for (int r = 0; r < repeats; ++r) {
      event_record(begin, stream);
      for (int i = 0; i < calls; ++i) f(r * calls + i);
      event_record(end, stream);
      event_synchronize(end);
      float ms = 0;
      event_elapsed(&ms, begin, end);
      times.push_back(static_cast<double>(ms) * 1e-3 / calls);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Program {
  const char* name;
  const char* text;  // T: the dtype, R and C: rows and columns
};
const Program kPrograms[] = {
    {"add", "graph @g(%x: T[R, C], %y: T[R, C]) -> (T[R, C]) {\n  %z = add %x, %y\n  return %z\n}"},
    {"gelu", "graph @g(%x: T[R, C], %b: T[C]) -> (T[R, C]) {\n  %a = add %x, %b\n  %y = gelu %a\n  return %y\n}"},
    {"swiglu", "graph @g(%x: T[R, C], %y: T[R, C]) -> (T[R, C]) {\n  %s = silu %x\n  %z = mul %s, %y\n  return %z\n}"},
    {"softmax", "graph @g(%x: T[R, C]) -> (T[R, C]) {\n  %y = softmax %x {axis = -1}\n  return %y\n}"},
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

std::vector<std::vector<int64_t>> input_sizes(const e::Executable& program) {
  const tsr_tables& t = program.tables();
  const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  std::vector<std::vector<int64_t>> out;
  for (uint32_t i = 0; i < body.num_inputs; ++i) {
    const tsr_type& type = *TSR_AT(tsr_value, t.values, t.value_stride, body.inputs[i])->type;
    out.emplace_back(type.sizes, type.sizes + type.rank);
  }
  return out;
}

e::Context make_context(bool fused) {
  e::ContextOptions o;
  const char* fake = std::getenv("TESSERA_CUDA_LIBRARY");
  const std::string library =
      fake ? "driver = \"" + std::string(fake) + "\"\nnvrtc = \"" + fake + "\"\ncublaslt = \"" + fake + "\"\n" : "";
  o.config_text =
      std::string("[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.pass.fuse\", ") +
      "\"tessera.backend.reference\", \"tessera.backend.cuda\"]\n[pipeline]\npasses = [" + (fused ? "\"fuse\"" : "") +
      "]\n[backends]\norder = [\"cuda\", \"reference\"]\n[cuda]\n" + library;
  o.plugin_dirs = {std::string(std::getenv("TESSERA_BUILD_DIR")) + "/lib/tessera/plugins"};
  return e::Context(o);
}

int run(int argc, char** argv) {
  bool quick = false;
  std::vector<std::string> names;
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--quick") == 0)
      quick = true;
    else
      names.emplace_back(argv[i]);
  const int64_t rows = quick ? 16 : 16384, columns = quick ? 512 : 4096;
  const int repeats = quick ? 1 : 30;
  double started = now();
  const e::Context fused = make_context(true), plain = make_context(false);
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
  std::printf("%-20s %-5s %9s %9s %7s %6s  %s\n", "kernel", "dtype", "cold ms", "us", "GB/s", "copy", "A/A");
  for (const Program& p : kPrograms) {
    if (!names.empty() && std::find(names.begin(), names.end(), p.name) == names.end()) continue;
    for (const uint32_t dtype : {TSR_BF16, TSR_F32}) {
      const char* dtype_text = dtype == TSR_BF16 ? "bf16" : "f32";
      try {
        const std::string text = program_text(p, dtype_text, rows, columns);
        const double begin = now();
        const e::Executable program = fused.compile(fused.parse(text, p.name));
        const double cold = now() - begin;
        std::vector<std::vector<e::Tensor>> sets(2);
        double moved = 0;
        for (size_t k = 0; k < sets.size(); ++k)
          for (const std::vector<int64_t>& sizes : input_sizes(program))
            sets[k].push_back(random_tensor(dtype, sizes, 10 * k + sets[k].size()).copy_to(gpu));
        const auto size_of = [&](const e::Tensor& t) {
          return static_cast<double>(t.elements()) * (dtype == TSR_BF16 ? 2 : 4);
        };
        for (const e::Tensor& t : sets[0]) moved += size_of(t);
        for (const e::Tensor& t : program.run(sets[0])) moved += size_of(t);
        const auto once = [&](int i) { (void)program.run(sets[static_cast<size_t>(i) % sets.size()]); };
        const double a = driver.seconds(once, repeats, 4), b = driver.seconds(once, repeats, 4);
        std::printf("%-20s %-5s %9.1f %9.1f %7.0f %6.3f  %.3f\n", p.name, dtype_text, cold * 1e3, a * 1e6, moved / a / 1e9,
                    moved / a / copy_rate, b / a);
        if (dtype == TSR_BF16 && program.plan().find("reference") != std::string::npos)
          std::printf("  not on the device alone:\n%s\n", program.plan().c_str());
      } catch (const std::exception& error) {
        std::printf("%-20s %-5s FAILED: %s\n", p.name, dtype_text, error.what());
      }
      std::fflush(stdout);
    }
  }

  // ---- what a launch costs the host: chains of small kernels, op by op
  const auto chain = [&](int length) {
    std::string text = "graph @chain(%v0: f32[4096]@cuda:0) -> (f32[4096]@cuda:0) {\n";
    for (int i = 0; i < length; ++i)
      text += "  %v" + std::to_string(i + 1) + (i % 2 ? " = neg %v" : " = relu %v") + std::to_string(i) + "\n";
    return plain.compile(plain.parse(text + "  return %v" + std::to_string(length) + "\n}", "chain"));
  };
  const std::vector<e::Tensor> x = {random_tensor(TSR_F32, std::vector<int64_t>{4096}, 1).copy_to(gpu)};
  double host[2] = {};
  const int lengths[2] = {1, 101}, runs = quick ? 2 : 200;
  for (int k = 0; k < 2; ++k) {
    const e::Executable program = chain(lengths[k]);
    std::vector<double> times;
    for (int r = 0; r < (quick ? 1 : 15); ++r) {
      e::check(e::api().synchronize(gpu, nullptr));
      const double begin = now();
      const int n = k == 0 ? runs : runs / 10 + 1;  // the queue of the device must not fill up
      for (int i = 0; i < n; ++i) (void)program.run(x);
      times.push_back((now() - begin) / n);
    }
    std::sort(times.begin(), times.end());
    host[k] = times[times.size() / 2];
    const double device = driver.seconds([&](int) { (void)program.run(x); }, quick ? 1 : 15, 4);
    std::printf("%d kernels of 4,096 elements: host %.2f us a run, device %.2f us\n", lengths[k], host[k] * 1e6, device * 1e6);
  }
  std::printf("host time of one launch more: %.2f us\n", (host[1] - host[0]) / (lengths[1] - lengths[0]) * 1e6);
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
