// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of a folder that generate.cpp and compile.sh made, on a CUDA device: results of small shapes against the
// family's judge, bit for bit; then times at full size against a copy of as many bytes in the same run. The driver is opened at
// run time.
//
//   launch FOLDER [--repeats N] [--only NAME]
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

// ---- the driver, as much of it as is needed

using Result = int;
using DevicePtr = unsigned long long;
using Handle = void*;

struct Driver {
  void* library = nullptr;
  Result (*init)(unsigned) = nullptr;
  Result (*device_get)(int*, int) = nullptr;
  Result (*device_name)(char*, int, int) = nullptr;
  Result (*context_retain)(Handle*, int) = nullptr;
  Result (*context_set)(Handle) = nullptr;
  Result (*module_load)(Handle*, const char*) = nullptr;
  Result (*module_function)(Handle*, Handle, const char*) = nullptr;
  Result (*function_set)(Handle, int, int) = nullptr;
  Result (*alloc)(DevicePtr*, size_t) = nullptr;
  Result (*release)(DevicePtr) = nullptr;
  Result (*to_device)(DevicePtr, const void*, size_t) = nullptr;
  Result (*to_host)(void*, DevicePtr, size_t) = nullptr;
  Result (*copy)(DevicePtr, DevicePtr, size_t, Handle) = nullptr;
  Result (*fill)(DevicePtr, unsigned char, size_t) = nullptr;
  Result (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                   void**) = nullptr;
  Result (*synchronize)() = nullptr;
  Result (*event_create)(Handle*, unsigned) = nullptr;
  Result (*event_record)(Handle, Handle) = nullptr;
  Result (*event_elapsed)(float*, Handle, Handle) = nullptr;
  Result (*error_name)(Result, const char**) = nullptr;

  bool open() {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const auto find = [&](auto& f, const char* name) {
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library, name));
    };
    find(init, "cuInit"), find(device_get, "cuDeviceGet"), find(device_name, "cuDeviceGetName");
    find(context_retain, "cuDevicePrimaryCtxRetain"), find(context_set, "cuCtxSetCurrent");
    find(module_load, "cuModuleLoad"), find(module_function, "cuModuleGetFunction");
    find(function_set, "cuFuncSetAttribute");
    find(alloc, "cuMemAlloc_v2"), find(release, "cuMemFree_v2"), find(to_device, "cuMemcpyHtoD_v2"),
        find(to_host, "cuMemcpyDtoH_v2");
    find(copy, "cuMemcpyDtoDAsync_v2"), find(fill, "cuMemsetD8_v2"), find(launch, "cuLaunchKernel"),
        find(synchronize, "cuCtxSynchronize");
    find(event_create, "cuEventCreate"), find(event_record, "cuEventRecord"), find(event_elapsed, "cuEventElapsedTime");
    find(error_name, "cuGetErrorName");
    return init && launch && event_elapsed && error_name;
  }
} cu;

void check_cu(Result r, const char* call) {
  if (r == 0) return;
  const char* name = "?";
  cu.error_name(r, &name);
  std::fprintf(stderr, "launch: %s: %s (%d)\n", call, name, r);
  std::exit(1);
}
#define CHECK_CU(call) check_cu((call), #call)

// ---- the manifest

struct Buffer {
  std::string name, kind, type;
  int64_t count;
  size_t element() const {
    return type == "f32" || type == "i32" || type == "u32" ? 4 : type == "bool" || type == "i8" ? 1 : type[1] == '6' ? 8 : 2;
  }
  size_t bytes() const { return static_cast<size_t>(count) * element(); }
};
struct Launch {
  std::string entry;
  unsigned blocks, threads, dynamic_shared;
  std::vector<std::string> arguments;
};
struct Kernel {
  std::string name, module, order, data, schedule;
  int64_t bytes;
  std::vector<Buffer> buffers;
  std::vector<Launch> launches;
};

std::vector<Kernel> read_manifest(const std::string& path) {
  std::vector<Kernel> all;
  std::ifstream in(path);
  std::string line, word;
  while (std::getline(in, line)) {
    std::istringstream s(line);
    s >> word;
    if (word == "kernel") {
      Kernel k;
      s >> k.name >> word >> k.module >> word >> k.order >> word >> k.bytes >> word >> k.data >> word;
      std::getline(s, k.schedule);
      all.push_back(k);
    } else if (word == "buffer") {
      Buffer b;
      s >> b.name >> b.kind >> b.type >> b.count;
      all.back().buffers.push_back(b);
    } else if (word == "launch") {
      Launch l;
      s >> l.entry >> l.blocks >> l.threads >> l.dynamic_shared;
      while (s >> word) l.arguments.push_back(word);
      all.back().launches.push_back(l);
    }
  }
  return all;
}

// ---- memory and launches

// Values of a normal distribution, repeated with a period that is no multiple of a row.
const std::vector<float>& numbers() {
  static const std::vector<float> n = [] {
    std::vector<float> v(4194301);
    std::mt19937 r(5);
    std::normal_distribution<float> d;
    for (float& x : v) x = d(r);
    return v;
  }();
  return n;
}
uint16_t to_bf16(float x) {
  uint32_t b;
  std::memcpy(&b, &x, 4);
  return static_cast<uint16_t>((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
float from_bf16(uint16_t h) {
  const uint32_t b = static_cast<uint32_t>(h) << 16;
  float x;
  std::memcpy(&x, &b, 4);
  return x;
}
// Element i of an input; each input begins elsewhere. Rows' reciprocal deviations are near 1.
float input(const Buffer& b, size_t number, size_t i) {
  float x = numbers()[(i + number * 977) % numbers().size()];
  if (b.name == "rstd") x = 1.0f + 0.1f * x;
  return b.type == "bf16" ? from_bf16(to_bf16(x)) : x;
}
std::vector<char> make_input(const Buffer& b, size_t number) {
  std::vector<char> host(b.bytes());
  for (size_t i = 0; i < static_cast<size_t>(b.count); ++i) {
    const float x = input(b, number, i);
    const uint16_t h = to_bf16(x);
    if (b.type == "bf16")
      std::memcpy(&host[i * 2], &h, 2);
    else
      std::memcpy(&host[i * 4], &x, 4);
  }
  return host;
}

struct Loaded {
  const Kernel* kernel;
  std::vector<DevicePtr> memory;
  std::vector<Handle> functions;
  DevicePtr faults = 0;

  void run() const {
    for (size_t l = 0; l < functions.size(); ++l) {
      const Launch& x = kernel->launches[l];
      std::vector<unsigned long long> values;
      std::vector<void*> arguments;
      for (const std::string& a : x.arguments)
        values.push_back(a[0] == 'b' ? memory[std::stoul(a.substr(1))] : a[0] == 's' ? std::stoull(a.substr(1)) : faults);
      for (auto& v : values) arguments.push_back(&v);
      if (x.blocks > 0)
        CHECK_CU(
            cu.launch(functions[l], x.blocks, 1, 1, x.threads, 1, 1, x.dynamic_shared, nullptr, arguments.data(), nullptr));
    }
  }
};

Loaded load(const Kernel& k, const std::string& folder, std::map<std::string, Handle>& modules) {
  Loaded l{&k, {}, {}, 0};
  Handle& module = modules[k.module];
  if (!module) CHECK_CU(cu.module_load(&module, (folder + "/" + k.module + ".cubin").c_str()));
  for (const Launch& x : k.launches) {
    Handle f = nullptr;
    CHECK_CU(cu.module_function(&f, module, x.entry.c_str()));
    constexpr int kDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if (x.dynamic_shared > 0) CHECK_CU(cu.function_set(f, kDynamicShared, static_cast<int>(x.dynamic_shared)));
    l.functions.push_back(f);
  }
  for (const Buffer& b : k.buffers) {
    DevicePtr p = 0;
    CHECK_CU(cu.alloc(&p, std::max<size_t>(16, b.bytes())));
    CHECK_CU(cu.fill(p, 0xa5, std::max<size_t>(16, b.bytes())));
    l.memory.push_back(p);
  }
  CHECK_CU(cu.alloc(&l.faults, sizeof(uint64_t) * 4));
  CHECK_CU(cu.fill(l.faults, 0, sizeof(uint64_t) * 4));
  return l;
}
void unload(const Loaded& l) {
  for (const DevicePtr p : l.memory) CHECK_CU(cu.release(p));
  CHECK_CU(cu.release(l.faults));
}

// ---- bits against the judge

bool is_nan(const std::string& type, const char* at) {
  uint32_t x = 0;
  std::memcpy(&x, at, type == "f32" ? 4 : type == "bf16" || type == "f16" ? 2 : 0);
  return type == "f32"    ? (x & 0x7fffffffu) > 0x7f800000u
         : type == "bf16" ? (x & 0x7fffu) > 0x7f80u
                          : type == "f16" && (x & 0x7fffu) > 0x7c00u;
}

std::vector<char> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool check(const Kernel& k, const std::string& folder, std::map<std::string, Handle>& modules) {
  const Loaded l = load(k, folder, modules);
  const std::vector<char> in = read_file(folder + "/" + k.data + ".in"),
                          want = read_file(folder + "/" + k.data + "." + k.order + ".out");
  size_t at = 0;
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    if (k.buffers[i].kind == "work") continue;
    CHECK_CU(cu.to_device(l.memory[i], in.data() + at, k.buffers[i].bytes()));
    at += k.buffers[i].bytes();
  }
  l.run();
  CHECK_CU(cu.synchronize());
  bool same = true;
  at = 0;
  for (size_t i = 0; i < k.buffers.size() && same; ++i) {
    const Buffer& b = k.buffers[i];
    if (b.kind == "work") continue;
    std::vector<char> got(b.bytes());
    CHECK_CU(cu.to_host(got.data(), l.memory[i], got.size()));
    for (size_t e = 0; e < got.size() && same; e += b.element())
      if (std::memcmp(&got[e], &want[at + e], b.element()) != 0 &&
          !(is_nan(b.type, &got[e]) && is_nan(b.type, &want[at + e]))) {
        unsigned long long x = 0, y = 0;
        std::memcpy(&x, &got[e], b.element()), std::memcpy(&y, &want[at + e], b.element());
        std::printf("DIFFERS %s, order %s,%s: %s[%zu] is 0x%llx, not 0x%llx\n", k.name.c_str(), k.order.c_str(),
                    k.schedule.c_str(), b.name.c_str(), e / b.element(), x, y);
        same = false;
      }
    at += b.bytes();
  }
  unload(l);
  return same;
}

// ---- times

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
template <class F>
double seconds(int repeats, F f) {
  static Handle begin = nullptr, end = nullptr;
  if (!begin) CHECK_CU(cu.event_create(&begin, 0)), CHECK_CU(cu.event_create(&end, 0));
  for (int i = 0; i < 3; ++i) f();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    CHECK_CU(cu.event_record(begin, nullptr));
    f();
    CHECK_CU(cu.event_record(end, nullptr));
    CHECK_CU(cu.synchronize());
    float ms = 0;
    CHECK_CU(cu.event_elapsed(&ms, begin, end));
    times.push_back(ms * 1e-3);
  }
  return median(times);
}
double copy_seconds(int64_t bytes, int repeats) {
  DevicePtr a = 0, b = 0;
  const auto half = static_cast<size_t>(bytes / 2);
  CHECK_CU(cu.alloc(&a, half)), CHECK_CU(cu.alloc(&b, half));
  CHECK_CU(cu.fill(a, 0x3c, half));
  const double s = seconds(repeats, [&] { CHECK_CU(cu.copy(b, a, half, nullptr)); });
  CHECK_CU(cu.release(a)), CHECK_CU(cu.release(b));
  return s;
}

// Some rows and columns against numbers of more precision; and a checksum of all outputs, which is the same for all schedules
// of one order.
double error_of(const Kernel& k, const std::vector<std::vector<char>>& out) {
  const auto find = [&](const char* name) {
    for (size_t i = 0; i < k.buffers.size(); ++i)
      if (k.buffers[i].name == name) return i;
    return k.buffers.size();
  };
  const auto in = [&](const char* name, size_t i) { return static_cast<double>(input(k.buffers[find(name)], find(name), i)); };
  const auto got = [&](size_t b, size_t i) {
    float x = 0;
    uint16_t h = 0;
    if (k.buffers[b].element() == 4) return std::memcpy(&x, &out[b][i * 4], 4), static_cast<double>(x);
    std::memcpy(&h, &out[b][i * 2], 2);
    return static_cast<double>(from_bf16(h));
  };
  const size_t n = 4096, rows = static_cast<size_t>(k.buffers[0].count) / n, last = k.buffers.size();
  const auto is = [&](const char* name) { return k.name.rfind(name, 0) == 0; };
  size_t y = 0;
  while (y < last && k.buffers[y].kind != "out") ++y;
  double worst = 0, scale = 1e-30;
  const auto compare = [&](double x, double want) {
    worst = std::max(worst, std::fabs(x - want)), scale = std::max(scale, std::fabs(want));
  };
  for (size_t r = 0; r < rows; r += rows / 7 + 1) {
    if (is("column_sum")) {
      const size_t c = r % n;
      double s = 0;
      for (size_t i = 0; i < rows; ++i) s += in("x", i * n + c);
      compare(got(y, c), s);
      scale = std::max(scale, std::sqrt(static_cast<double>(rows)));
      continue;
    }
    double sum = 0, top = -1e30, mean = 0;
    for (size_t c = 0; c < n; ++c) sum += in("x", r * n + c), top = std::max(top, in("x", r * n + c));
    if (is("row_sum")) compare(got(y, r), sum), scale = std::max(scale, 64.0);
    double exps = 0;
    if (is("softmax"))
      for (size_t c = 0; c < n; ++c) exps += std::exp(in("x", r * n + c) - top);
    if (is("rms_backward"))
      for (size_t c = 0; c < n; ++c)
        mean += in("dy", r * n + c) * in("w", c) * in("x", r * n + c) * in("rstd", r) / static_cast<double>(n);
    for (size_t c = 0; c < n; ++c) {
      const size_t i = r * n + c;
      if (is("softmax")) compare(got(y, i), std::exp(in("x", i) - top) / exps);
      if (is("gelu")) {
        const double a = in("x", i) + in("b", c);
        compare(got(y, i), 0.5 * a * std::erfc(-a * 0.70710678118654752));
      }
      if (is("add")) compare(got(y, i), in("x", i) + in("y", i));
      if (is("transpose")) compare(got(y, i), in("x", c * rows + r) + in("y", i));
      if (is("rms_backward"))
        compare(got(y, i), (in("dy", i) * in("w", c) - in("x", i) * in("rstd", r) * mean) * in("rstd", r));
    }
  }
  if (is("rms_backward"))
    for (size_t c = 0; c < n; c += 1111) {
      double s = 0;
      for (size_t r = 0; r < rows; ++r) s += in("dy", r * n + c) * in("x", r * n + c) * in("rstd", r);
      const double e = std::fabs(got(y + 1, c) - s) / std::sqrt(static_cast<double>(rows));
      worst = std::max(worst, e * scale);
    }
  return worst / scale;
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder, only;
  int repeats = 25;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--repeats" && i + 1 < argc)
      repeats = std::atoi(argv[++i]);
    else if (a == "--only" && i + 1 < argc)
      only = argv[++i];
    else
      folder = a;
  }
  if (folder.empty() || repeats < 1) {
    std::fprintf(stderr, "usage: launch FOLDER [--repeats N] [--only NAME]\n");
    return 2;
  }
  const std::vector<Kernel> kernels = read_manifest(folder + "/manifest.txt");
  if (kernels.empty()) {
    std::fprintf(stderr, "launch: %s/manifest.txt has no kernels; make it with generate\n", folder.c_str());
    return 2;
  }
  int device = 0;
  if (!cu.open() || cu.init(0) != 0 || cu.device_get(&device, 0) != 0) {
    std::fprintf(stderr, "launch: no CUDA driver or device here; %zu kernels were not run\n", kernels.size());
    return 3;
  }
  char name[128] = "";
  Handle context = nullptr;
  CHECK_CU(cu.device_name(name, sizeof name, device));
  CHECK_CU(cu.context_retain(&context, device));
  CHECK_CU(cu.context_set(context));
  std::printf("device %s\n", name);

  std::map<std::string, Handle> modules;
  size_t same = 0, checked = 0;
  for (const Kernel& k : kernels)
    if (k.data != "-" && k.name.find(only) != std::string::npos) ++checked, same += check(k, folder, modules);
  std::printf("bits of the judge: %zu of %zu programs\n", same, checked);

  std::map<int64_t, double> copies;
  std::map<std::string, uint64_t> sums;
  std::map<std::string, std::vector<char>> inputs;
  for (const Kernel& k : kernels) {
    if (k.data != "-" || k.name.find(only) == std::string::npos) continue;
    // Operations of a product are no bytes to be copied.
    if (!copies.count(k.bytes)) copies[k.bytes] = k.name.rfind("product", 0) == 0 ? 0 : copy_seconds(k.bytes, repeats);
    const Loaded l = load(k, folder, modules);
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      if (k.buffers[i].kind != "in") continue;
      const std::string key =
          k.buffers[i].name + k.buffers[i].type + std::to_string(k.buffers[i].count) + "." + std::to_string(i);
      if (!inputs.count(key)) inputs[key] = make_input(k.buffers[i], i);
      CHECK_CU(cu.to_device(l.memory[i], inputs[key].data(), inputs[key].size()));
    }
    const double s = seconds(repeats, [&] { l.run(); });
    std::vector<std::vector<char>> out(k.buffers.size());
    uint64_t sum = 1469598103934665603ull;
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      if (k.buffers[i].kind != "out") continue;
      out[i].resize((k.buffers[i].bytes() + 7) / 8 * 8);
      CHECK_CU(cu.to_host(out[i].data(), l.memory[i], k.buffers[i].bytes()));
      for (size_t e = 0; e < out[i].size(); e += 8) {
        uint64_t w;
        std::memcpy(&w, &out[i][e], 8);
        sum = (sum ^ w) * 1099511628211ull;
      }
    }
    unload(l);
    const bool first = sums.try_emplace(k.name + "." + k.order, sum).second;
    const double error = first ? error_of(k, out) : 0;
    std::printf("%-24s %-8s %8.1f us %7.0f GB/s %5.2f of copy (%.0f)%s%s |%s\n", k.name.c_str(), k.order.c_str(), s * 1e6,
                static_cast<double>(k.bytes) / s * 1e-9, copies[k.bytes] / s,
                static_cast<double>(k.bytes) / copies[k.bytes] * 1e-9,
                first                                 ? (error < 0.01 ? " right" : " WRONG")
                : sums[k.name + "." + k.order] == sum ? " same bits"
                                                      : " OTHER BITS",
                error >= 0.01 ? (" " + std::to_string(error)).c_str() : "", k.schedule.c_str());
    std::fflush(stdout);
  }
  return same == checked ? 0 : 1;
}
