// SPDX-License-Identifier: Apache-2.0
#include "kit_support.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

#include "ir/graph_api.hpp"
#include "ir/parser.hpp"
#include "opset.hpp"
#include "plugin/plugin_host.hpp"

namespace tessera::test {

const core::OpRegistry& standard_ops() {
  static const tsr_host host = core::make_host(&core::host_core(), &core::graph_api(), nullptr);
  static const core::OpRegistry* ops = [] {
    sdk::host_slot() = &host;
    auto* r = new core::OpRegistry;
    r->add(*opset::tessera_standard_opset(), "tessera.opset.standard");
    return r;
  }();
  return *ops;
}

std::unique_ptr<core::Graph> parse(const std::string& text) { return core::parse_graph(standard_ops(), text, "test.tsr"); }

kit::Lowered lower_graph(core::Graph& graph, const std::string& name, const kit::LowerOptions& options) {
  const sdk::Graph g(graph.handle());
  kit::Piece p{g, {}, {}, {}};
  for (const sdk::Node& n : g.nodes()) {
    if (n.is("constant") && n.result().type().elements() == 1) continue;
    p.nodes.push_back(n);
  }
  for (const tsr_id v : g.inputs()) p.inputs.push_back(g.value(v));
  for (const tsr_id v : g.outputs()) p.outputs.push_back(g.value(v));
  return kit::lower(p, name, options);
}

std::vector<void*> Data::pointers() {
  std::vector<void*> p;
  for (auto& b : bytes) p.push_back(b.data());
  return p;
}

namespace {

uint64_t random_bits(kit::Type t, std::mt19937_64& r, bool wild) {
  using kit::Type;
  const uint64_t x = r();
  if (t == Type::Bool) return x & 1;
  if (kit::is_integer(t)) {
    if (wild && x % 16 == 0) return kit::constant_bits(t, static_cast<int64_t>(r()));
    return kit::constant_bits(t, static_cast<int64_t>(x % 7) - (kit::is_signed(t) ? 3 : 0));
  }
  if (wild && x % 16 == 0) {
    const double odd[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, -3e38, 65504.0, 1.0, 0.5, -89.5, 104.0};
    return kit::constant_bits(t, odd[r() % std::size(odd)]);
  }
  return kit::constant_bits(t, std::normal_distribution<double>(0.0, 2.0)(r));
}

}  // namespace

Data make_data(const kit::Kernel& k, const std::vector<int64_t>& symbols, uint64_t seed, bool wild) {
  std::mt19937_64 r(seed);
  Data d;
  kit::IndexEnv env;
  env.symbols = symbols;
  for (const kit::Buffer& b : k.buffers) {
    const int64_t n = k.pool.evaluate(b.extent, env);
    const auto size = static_cast<size_t>(kit::type_bytes(b.type));
    std::vector<char> bytes(static_cast<size_t>(n) * size + 1, 0x55);
    if (b.access != kit::Access::Out)
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        const uint64_t x = random_bits(b.type, r, wild);
        std::memcpy(bytes.data() + i * size, &x, size);
      }
    d.bytes.push_back(std::move(bytes));
  }
  return d;
}

std::string difference(const kit::Kernel& k, const Data& a, const Data& b) {
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const kit::Type t = k.buffers[i].type;
    const auto size = static_cast<size_t>(kit::type_bytes(t));
    for (size_t e = 0; e * size < a.bytes[i].size(); ++e) {
      const size_t n = std::min(size, a.bytes[i].size() - e * size);
      uint64_t x = 0, y = 0;
      std::memcpy(&x, a.bytes[i].data() + e * size, n);
      std::memcpy(&y, b.bytes[i].data() + e * size, n);
      if (x == y) continue;
      if (kit::is_float(t) && n == size && std::isnan(kit::constant_float(t, x)) && std::isnan(kit::constant_float(t, y)))
        continue;
      char text[256];
      std::snprintf(text, sizeof text, "%s[%zu]: 0x%llx (%.9g) and 0x%llx (%.9g)", k.buffers[i].name.c_str(), e,
                    static_cast<unsigned long long>(x), kit::constant_float(t, x), static_cast<unsigned long long>(y),
                    kit::constant_float(t, y));
      return text;
    }
  }
  return "";
}

std::vector<Level> levels() {
  std::vector<Level> l{{16, "-O0"}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) l.push_back({32, "-O0 -march=haswell"});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    l.push_back({64, "-O0 -march=skylake-avx512 -mprefer-vector-width=512"});
#endif
  // Kernels are not instrumented: a sanitizer sees how they are written, for the narrowest vectors and the widest.
  if (const char* sanitizer = std::getenv("TESSERA_SANITIZE"); sanitizer && *sanitizer && l.size() > 2)
    l = {l.front(), l.back()};
  l.back().flags.replace(0, 3, "-O1");  // one level as it is meant to be compiled; the others to be quick
  return l;
}

Compiled::Compiled(const std::string& text, const std::string& flags) {
  char path[] = "/tmp/tessera_kit_XXXXXX";
  if (!mkdtemp(path)) throw std::runtime_error("no temporary directory");
  directory_ = path;
  const std::string base = directory_ + "/kernels";
  std::ofstream(base + ".cpp") << text;
  const std::string command = std::string(KIT_SYSTEM_COMPILER) +
                              " -std=c++20 -w -fPIC -shared -ffp-contract=off -fno-math-errno " + flags + " -o " + base +
                              ".so " + base + ".cpp -lm 2> " + base + ".log";
  if (std::system(command.c_str()) != 0) {
    std::ifstream log(base + ".log");
    std::string all((std::istreambuf_iterator<char>(log)), {});
    throw std::runtime_error(command + "\n" + all.substr(0, 4000));
  }
  library_ = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library_) throw std::runtime_error(dlerror());
}
Compiled::~Compiled() {
  if (library_) dlclose(library_);
  std::error_code ignored;
  if (!std::getenv("TESSERA_KEEP")) std::filesystem::remove_all(directory_, ignored);
}
void* Compiled::symbol(const std::string& name) const {
  void* s = dlsym(library_, name.c_str());
  if (!s) throw std::runtime_error("no symbol " + name);
  return s;
}

uint32_t run_compiled(const Compiled& c, const std::string& name, Data& data, const std::vector<int64_t>& symbols,
                      std::mt19937_64& random) {
  std::vector<int64_t> dims = symbols;
  dims.push_back(0);
  kit::KernelPlan plan{};
  reinterpret_cast<kit::KernelPlanFn>(c.symbol(name + "_plan"))(dims.data(), &plan);
  std::vector<char> workspace(static_cast<size_t>(plan.workspace) + 64);
  std::vector<void*> pointers = data.pointers();
  uint32_t faults = 0;
  const kit::KernelArgs args{pointers.data(), dims.data(), workspace.data(), &faults, static_cast<int64_t>(random() % 2)};
  const auto phase = [&](const std::string& symbol, int64_t units) {
    const auto f = reinterpret_cast<kit::KernelRange>(c.symbol(symbol));
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (int64_t at = 0; at < units;) {
      const int64_t n = std::min<int64_t>(units - at, 1 + static_cast<int64_t>(random() % 7));
      pieces.emplace_back(at, at + n);
      at += n;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (const auto& [begin, end] : pieces) f(&args, begin, end);
  };
  phase(name, plan.units);
  if (plan.join_units > 0) phase(name + "_join", plan.join_units);
  return faults;
}

}  // namespace tessera::test
