// SPDX-License-Identifier: Apache-2.0
// Devices whose plans run as graphs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "support.hpp"

namespace tessera::test {

// One device with a context whose plans run as graphs, and one whose plans run step by step.
struct Place {
  std::string device;
  std::unique_ptr<e::Context> graphs, steps;

  explicit Place(const std::string& name, const std::string& options = "") : device(name + ":0") {
    const std::string plugin = "\"tessera.backend." + name + "\", \"tessera.executor.cudagraphs\"";
    const std::string section = name == "cuda" ? hardware() ? "" : kFakeOptions : "";
    const std::string sim = name == "sim" ? "[sim]\nkernels = \"text\"\n" : "";
    const std::string executor = "[executor]\nname = \"cudagraphs\"\n[cudagraphs]\ndevice = \"" + name + "\"\n" + options;
    const auto make = [&](const std::string& more) {
      e::ContextOptions o;
      o.config_text =
          "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.pass.fuse\", "
          "\"tessera.backend.reference\", " +
          plugin + "]\n[pipeline]\npasses = [\"fuse\"]\n[backends]\norder = [\"" + name + "\", \"reference\"]\n" + sim + more +
          (name == "cuda" ? "[cuda]\n" + section : "");
      o.plugin_dirs = {plugin_directory()};
      return std::make_unique<e::Context>(o);
    };
    graphs = make(executor);
    steps = make("");
  }
  tsr_device id() const { return e::device(device); }
  std::string text(std::string t) const {
    for (size_t at; (at = t.find("@gpu")) != std::string::npos;) t.replace(at, 4, "@" + device);
    return t;
  }
  e::Tensor on(const e::Tensor& t) const { return t.copy_to(id()); }
};

inline std::vector<std::string> places() {
  if (hardware()) return {"cuda"};
#ifdef TESSERA_TEST_SIM
  return {"sim", "cuda"};
#else
  return {"cuda"};
#endif
}

}  // namespace tessera::test
