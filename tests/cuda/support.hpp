// SPDX-License-Identifier: Apache-2.0
// Contexts on the fake CUDA driver and on the host's reference, and tensors for both.
#pragma once

#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "embed_tensors.hpp"
#include "fake_cuda.hpp"
#include "tessera/embed.hpp"

namespace tessera::test {

namespace e = tessera::embed;

inline std::string plugin_directory() { return std::string(std::getenv("TESSERA_BUILD_DIR")) + "/lib/tessera/plugins"; }

// `options`: lines of [cuda]. `plugin`: how plugins.load names the backend.
inline e::Context make_context(const std::string& options, const std::string& order = "\"cuda\", \"reference\"",
                               const std::string& plugin = "\"tessera.backend.cuda\"", const std::string& more = "") {
  e::ContextOptions o;
  o.config_text =
      "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.pass.fuse\", "
      "\"tessera.backend.reference\", " +
      plugin + "]\n[pipeline]\npasses = [\"fuse\"]\n[backends]\norder = [" + order + "]\n[cuda]\n" + options + more;
  o.plugin_dirs = {plugin_directory()};
  return e::Context(o);
}
// Device tests run on a GPU too: TESSERA_TEST_CUDA=hardware in the environment.
inline bool hardware() {
  const char* where = std::getenv("TESSERA_TEST_CUDA");
  return where && std::strcmp(where, "hardware") == 0;
}
inline const std::string kFakeOptions = "driver = \"" FAKE_CUDA_LIBRARY "\"\nnvrtc = \"" FAKE_CUDA_LIBRARY
                                        "\"\ncublaslt = \"" FAKE_CUDA_LIBRARY "\"\ncudnn = \"" FAKE_CUDA_LIBRARY "\"\n";

inline const e::Context& cuda() {
  static const e::Context c = make_context(hardware() ? "" : kFakeOptions);
  return c;
}
inline tsr_device gpu() { return cuda(), e::device("cuda:0"); }
inline const e::Context& host() {
  static const e::Context c = [] {
    e::ContextOptions o;
    o.config_text =
        "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.backend.reference\"]\n"
        "[backends]\norder = [\"reference\"]\n";
    o.plugin_dirs = {plugin_directory()};
    return e::Context(o);
  }();
  return c;
}

// The hooks of the fake.
template <class F>
F* hook(const char* name) {
  static void* library = dlopen(FAKE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  void* const f = library && !hardware() ? dlsym(library, name) : nullptr;
  if (!f) throw std::runtime_error(std::string(name) + " is the fake driver's: unset TESSERA_TEST_CUDA for this test");
  return reinterpret_cast<F*>(f);
}
inline void fail(const char* function, int result, int after = 0) {
  hook<fake_cuda_fail_t>("fake_cuda_fail")(function, result, after);
}
inline uint64_t calls(const char* function) { return hook<fake_cuda_calls_t>("fake_cuda_calls")(function); }
inline uint64_t used(int device = 0) { return hook<fake_cuda_used_t>("fake_cuda_used")(device); }

inline e::Executable compile(const e::Context& c, const std::string& text) { return c.compile(c.parse(text, "test")); }

// The largest difference, as a part of 1 + |b|.
inline double difference(const e::Tensor& a, const e::Tensor& b) {
  const e::Tensor x = a.copy_to(0), y = b.copy_to(0);
  double worst = x.elements() == y.elements() ? 0 : 1e30;
  for (int64_t i = 0; i < x.elements() && worst < 1e30; ++i) {
    const double p = static_cast<const float*>(x.data())[i], q = static_cast<const float*>(y.data())[i];
    const double d = p == q ? 0 : std::abs(p - q) / (1 + std::abs(q));
    worst = d >= 0 && d < 1e30 ? std::max(worst, d) : 1e30;
  }
  return worst;
}

// "TSR-R001 message", or "" where nothing is thrown.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const e::Error& error) {
    return error.code() + " " + error.what();
  }
  return "";
}

// Attention of two heads of 32 elements in bf16, read out of f32[2, rows, 192 + pad], which holds queries, keys and values side
// by side. `rest`: lines from %y, the heads, to the end.
inline std::string attention_of_projection(int64_t rows, int64_t pad, const std::string& rest) {
  const std::string n = std::to_string(rows);
  std::string text = "graph @g(%x: f32[2, " + n + ", " + std::to_string(192 + pad) + "]) {\n  %t = cast %x {dtype = bf16}\n";
  for (int i = 0; i < 3; ++i) {
    const std::string name(1, "qkv"[i]), begin = std::to_string(64 * i), end = std::to_string(64 * i + 64);
    text += "  %" + name + "s = slice %t {starts = [0, 0, " + begin + "], limits = [2, " + n + ", " + end +
            "], strides = [1, 1, 1]}\n  %" + name + "r = reshape %" + name + "s {shape = [2, " + n + ", 2, 32]}\n  %" + name +
            " = transpose %" + name + "r {perm = [0, 2, 1, 3]}\n";
  }
  return text + "  %y = attention %q, %k, %v, _\n" + rest + "}";
}

}  // namespace tessera::test
