// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include <cstdlib>
#include <cstring>
#include <map>

#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

}  // namespace

namespace {

e::Context make_context(const std::string& more_plugins, const std::string& order, const std::string& sections,
                        const std::string& keys = {}) {
  e::ContextOptions o;
  o.config_text = "name = \"differential\"\n" + keys +
                  "[plugins]\n"
                  "load = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.backend.eager\"" +
                  more_plugins +
                  "]\n"
                  "[backends]\n"
                  "order = [" +
                  order + "]\n" + sections;
  if (const char* build = std::getenv("TESSERA_BUILD_DIR")) o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
  return e::Context(o);
}

// `kind`: "cpu", "cpu+2x2", "cpu+fuse", "cpu+fuse+relaxed", "cpu+fuse+plain", "cpu+fuse+map" or "cpu+fuse+threadsN".
const e::Context& cpu_context(const std::string& isa, const std::string& kind = "cpu") {
  static std::map<std::string, e::Context> contexts;
  const std::string key = kind + ":" + isa;
  if (const auto it = contexts.find(key); it != contexts.end()) return it->second;
  const char* build = std::getenv("TESSERA_BUILD_DIR");
  const std::string cache = build ? std::string(build) + "/cache/cpu" : std::string();
  const bool fused = kind.starts_with("cpu+fuse"), relaxed = kind.ends_with("+relaxed"), mapped = kind.ends_with("+map");
  const size_t threads = kind.find("+threads");
  return contexts
      .emplace(
          key,
          make_context(
              std::string(", \"tessera.backend.cpu\"") + (fused ? ", \"tessera.pass.fuse\"" : "") +
                  (mapped ? ", \"tessera.pass.map_batch\"" : ""),
              "\"cpu\", \"eager\"",
              "[cpu]\nisa = \"" + isa + "\"\ncache_directory = \"" + cache + "\"\n" +
                  (kind == "cpu+2x2" ? "winograd = \"2x2\"\n" : "") + (kind.ends_with("+plain") ? "strassen = false\n" : "") +
                  (fused ? std::string("[pipeline]\npasses = [") + (mapped ? "\"map_batch\", " : "") + "\"fuse\"]\n" : "") +
                  (threads == kind.npos ? "" : "[runtime]\nthreads = " + kind.substr(threads + 8) + "\n") +
                  (mapped ? "[map_batch]\nmin_flops = 1\nmin_rows = 1\nmin_items = 2\n" : ""),
              relaxed ? "numerics = \"relaxed\"\n" : ""))
      .first->second;
}

// `wave`: "32" or "64".
const e::Context& sim_context(const std::string& wave, bool fused) {
  static std::map<std::string, e::Context> contexts;
  const std::string key = wave + (fused ? " fused" : "");
  if (const auto it = contexts.find(key); it != contexts.end()) return it->second;
  return contexts
      .emplace(key, make_context(std::string(", \"tessera.backend.reference\", \"tessera.backend.sim\"") +
                                     (fused ? ", \"tessera.pass.fuse\"" : ""),
                                 "\"sim\", \"reference\"",
                                 std::string(fused ? "[pipeline]\npasses = [\"fuse\"]\n" : "") +
                                     "[sim]\nkernels = \"text\"\nwave = \"" + wave + "\"\n"))
      .first->second;
}

// On a GPU, or on the driver and compiler that TESSERA_CUDA_LIBRARY names.
const e::Context& cuda_context() {
  static const e::Context c = [] {
    const char* library = std::getenv("TESSERA_CUDA_LIBRARY");
    const std::string fake =
        library ? "driver = \"" + std::string(library) + "\"\nnvrtc = \"" + library + "\"\ncublaslt = \"" + library + "\"\n"
                : "";
    return make_context(", \"tessera.backend.reference\", \"tessera.backend.cuda\"", "\"cuda\", \"reference\"",
                        "[cuda]\n" + fake);
  }();
  return c;
}

}  // namespace

const e::Context& context() {
  static const e::Context c = make_context(", \"tessera.backend.reference\"", "\"eager\", \"reference\"", "");
  return c;
}

e::Executable compile(const std::string& text, const std::string& backend) {
  if (const size_t colon = backend.find(':'); colon != backend.npos) {
    const bool sim = backend.starts_with("sim");
    const e::Context& c = sim ? sim_context(backend.substr(colon + 1), backend.starts_with("sim+fuse:"))
                              : cpu_context(backend.substr(colon + 1), backend.substr(0, colon));
    e::Graph g = c.parse(text, "case");
    if (backend.starts_with("cpu+fuse+map:")) c.run_passes(g);  // fuse runs when backends are known, with compile()
    return c.compile(std::move(g), sim ? "sim,reference" : "cpu,eager");
  }
  if (backend == "cuda") return cuda_context().compile(cuda_context().parse(text, "case"), "cuda,reference");
  return context().compile(context().parse(text, "case"), backend);
}

std::vector<std::string> cpu_backends() {
  std::vector<std::string> out;
#ifdef TESSERA_TEST_CPU
  for (const char* isa : {"baseline", "avx2", "avx512", "avx512_bf16", "amx"}) {
    try {
      cpu_context(isa);
    } catch (const e::Error& error) {
      if (error.code() != "TSR-C004" && error.message().find("TSR-C004") == std::string::npos) throw;
      break;  // this machine has no more
    }
    out.push_back(std::string("cpu:") + isa);
  }
#endif
  return out;
}

const char* layout_name(Layout l) {
  switch (l) {
    case Layout::Dense: return "dense";
    case Layout::Transposed: return "transposed";
    case Layout::Sliced: return "sliced";
    case Layout::Repeated: return "repeated";
    case Layout::Reversed: return "reversed";
  }
  return "?";
}

e::Tensor arrange(uint32_t dtype, const std::vector<int64_t>& sizes, const std::vector<char>& dense, Layout layout) {
  const size_t rank = sizes.size();
  const int64_t n = product(sizes);
  if (is_packed(dtype) || rank == 0 || n == 0) layout = Layout::Dense;  // packed tensors have no strides
  std::vector<int64_t> strides = row_major(sizes), walk = strides;
  int64_t offset = 0, span = n;
  size_t repeated = rank;  // the axis whose index does not matter
  switch (layout) {
    case Layout::Dense: break;
    case Layout::Transposed:
      for (size_t d = 0; d < rank; ++d) strides[d] = d == 0 ? 1 : strides[d - 1] * sizes[d - 1];
      break;
    case Layout::Sliced:
      for (int64_t& s : strides) s *= 2;
      offset = 2 * sizes[rank - 1] + 1;
      span = offset + 2 * n;
      break;
    case Layout::Repeated:
      for (size_t d = 0; d < rank && repeated == rank; ++d)
        if (sizes[d] > 1) repeated = d;
      if (repeated < rank) strides[repeated] = 0;
      break;
    case Layout::Reversed:
      strides[rank - 1] = -1;
      offset = sizes[rank - 1] - 1;
      break;
  }
  const e::Tensor base = e::Tensor::create(dtype, std::vector<int64_t>{span});
  const size_t bytes = static_cast<size_t>(storage_bytes(dtype, span));
  if (bytes) std::memset(base.data(), 0, bytes);
  if (layout == Layout::Dense) {
    if (bytes) std::memcpy(base.data(), dense.data(), bytes);
  } else {
    const auto width = static_cast<int64_t>(dtype_bits(dtype) / 8);
    for (int64_t i = 0; i < n; ++i) {
      int64_t to = offset, from = 0;
      for (size_t d = 0; d < rank; ++d) {
        const int64_t k = i / walk[d] % sizes[d];
        to += k * strides[d];
        if (d != repeated) from += k * walk[d];
      }
      std::memcpy(static_cast<char*>(base.data()) + to * width, dense.data() + from * width, static_cast<size_t>(width));
    }
  }
  return base.view(offset, sizes, strides);
}

std::string print_element(const tsr_tensor& t, int64_t i) {
  char text[96];
  if (is_complex(t.dtype)) {
    const auto z = load_as<ComplexValue<double>>(t.dtype, t.data, i);
    std::snprintf(text, sizeof text, "%.17g%+.17gi", z.re, z.im);
  } else if (is_float(t.dtype)) {
    std::snprintf(text, sizeof text, "%.17g", load_as<double>(t.dtype, t.data, i));
  } else if (is_signed_int(t.dtype)) {
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(load_as<int64_t>(t.dtype, t.data, i)));
  } else {
    std::snprintf(text, sizeof text, "%llu", static_cast<unsigned long long>(load_as<uint64_t>(t.dtype, t.data, i)));
  }
  return text;
}

std::string print(const tsr_tensor& t, int64_t limit) {
  std::string out = std::string(dtype_name(t.dtype)) + "[";
  int64_t n = 1;
  for (uint32_t d = 0; d < t.rank; ++d) {
    out += (d ? ", " : "") + std::to_string(t.sizes[d]);
    n *= t.sizes[d];
  }
  out += "] {";
  for (int64_t i = 0; i < n && i < limit; ++i) out += (i ? ", " : "") + print_element(t, i);
  return out + (n > limit ? ", ...}" : "}");
}

}  // namespace tessera::differential
