// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include <cstdlib>
#include <map>

namespace tessera::differential {

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
  if (const char* build = std::getenv("TESSERA_BUILD_DIR")) {
    o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
    if (more_plugins.find("acme.") != more_plugins.npos) o.plugin_dirs.push_back(std::string(build) + "/tests/simt_plugins");
  }
  return e::Context(o);
}

// `kind`: "cpu", "cpu+2x2", "cpu+fuse", "cpu+fuse+relaxed", "cpu+fuse+plain", "cpu+fuse+map", "cpu+fuse+small" or
// "cpu+fuse+threadsN".
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
                  (kind.ends_with("+small") ? "pays_after = 1000\n" : "") +
                  (fused ? std::string("[pipeline]\npasses = [") + (mapped ? "\"map_batch\", " : "") + "\"fuse\"]\n" : "") +
                  (threads == kind.npos ? "" : "[runtime]\nthreads = " + kind.substr(threads + 8) + "\n") +
                  (mapped ? "[map_batch]\nmin_flops = 1\nmin_rows = 1\nmin_items = 2\n" : ""),
              relaxed ? "numerics = \"relaxed\"\n" : ""))
      .first->second;
}

// As configs/sim.toml has it.
constexpr const char* kSimFusion = "[pipeline]\npasses = [\"fuse\"]\n[fuse]\noperand_views = true\n";

// `wave`: "32" or "64".
const e::Context& sim_context(const std::string& wave, bool fused) {
  static std::map<std::string, e::Context> contexts;
  const std::string key = wave + (fused ? " fused" : "");
  if (const auto it = contexts.find(key); it != contexts.end()) return it->second;
  return contexts
      .emplace(key, make_context(std::string(", \"tessera.backend.reference\", \"tessera.backend.sim\"") +
                                     (fused ? ", \"tessera.pass.fuse\"" : ""),
                                 "\"sim\", \"reference\"",
                                 std::string(fused ? kSimFusion : "") + "[sim]\nkernels = \"text\"\nwave = \"" + wave + "\"\n"))
      .first->second;
}

// Every kernel as a program that the interpreter runs: tests/random_simt/program_backend.cpp.
const e::Context& programs_context(const std::string& wave, bool fused) {
  static std::map<std::string, e::Context> contexts;
  const std::string key = wave + (fused ? " fused" : "");
  if (const auto it = contexts.find(key); it != contexts.end()) return it->second;
  return contexts
      .emplace(key, make_context(std::string(", \"tessera.backend.reference\", \"acme.backend.programs\"") +
                                     (fused ? ", \"tessera.pass.fuse\"" : ""),
                                 "\"programs" + wave + "\", \"reference\"", fused ? kSimFusion : ""))
      .first->second;
}

// On a GPU, or on the driver and compiler that TESSERA_CUDA_LIBRARY names.
const e::Context& cuda_context() {
  static const e::Context c = [] {
    const char* library = std::getenv("TESSERA_CUDA_LIBRARY");
    const std::string fake = library ? "driver = \"" + std::string(library) + "\"\nnvrtc = \"" + library + "\"\ncublaslt = \"" +
                                           library + "\"\ncudnn = \"" + library + "\"\n"
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
    if (backend.starts_with("programs")) {
      const std::string wave = backend.substr(colon + 1);
      const e::Context& c = programs_context(wave, backend.starts_with("programs+fuse:"));
      return c.compile(c.parse(text, "case"), "programs" + wave + ",reference");
    }
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

}  // namespace tessera::differential
