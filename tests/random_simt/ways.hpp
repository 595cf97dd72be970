// SPDX-License-Identifier: Apache-2.0
// Ways to run a graph on the SIMT family: by the interpreter of programs, and as text on the simulated GPU.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "random_run.hpp"

namespace tessera::test {

inline std::shared_ptr<const core::Context> simt_context(const std::string& plugins, const std::string& order, bool fused,
                                                         const std::string& more = {}) {
  return random_context("\"tessera.backend.reference\", " + plugins + (fused ? ", \"tessera.pass.fuse\"" : ""), order,
                        more + (fused ? "[pipeline]\npasses = [\"fuse\"]\n[fuse]\noperand_views = true\n" : ""),
                        {TESSERA_PLUGIN_DIR, SIMT_PLUGIN_DIR});
}
inline std::shared_ptr<const core::Context> reference_context() {
  return simt_context("\"tessera.backend.eager\"", "\"reference\"", false);
}
inline std::shared_ptr<const core::Context> programs(const char* wave, bool fused) {
  return simt_context("\"acme.backend.programs\"", "\"programs" + std::string(wave) + "\", \"reference\"", fused);
}
inline std::shared_ptr<const core::Context> text_on_sim(const char* wave, bool fused) {
  return simt_context("\"tessera.backend.sim\"", "\"sim\", \"reference\"", fused,
                      "[sim]\nkernels = \"text\"\nwave = \"" + std::string(wave) + "\"\n");
}

struct Way {
  const char* name;
  std::shared_ptr<const core::Context> context;
  const char* vary = nullptr;  // PROGRAMS_VARY while it compiles
};

inline std::unique_ptr<core::Executable> compile_way(const Way& way, const core::Graph& g) {
  struct Variation {
    explicit Variation(const char* seed) {
      if (seed) setenv("PROGRAMS_VARY", seed, 1);
    }
    ~Variation() { unsetenv("PROGRAMS_VARY"); }
  } variation(way.vary);
  return compile(way.context, g);
}

}  // namespace tessera::test
