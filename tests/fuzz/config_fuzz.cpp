// SPDX-License-Identifier: Apache-2.0
// Config text, overrides and their binding to plugins. The input is split at zero bytes: the file, then overrides. Whatever
// comes in, the result is a config or faults with a code and a place, and what was accepted prints as JSON.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "plugin/manifest.hpp"

using namespace tessera::core;

namespace {

const std::vector<const Manifest*>& plugins() {
  static const std::vector<Manifest> manifests = [] {
    Manifest fuse;
    fuse.id = "tessera.pass.fuse";
    fuse.provides = {"pass:fuse", "pass:cse"};
    const auto add = [&](const char* name, Value fallback) {
      OptionDecl d;
      d.name = name;
      d.type = fallback.type;
      d.fallback = std::move(fallback);
      d.also = d.name;  // at root level too
      fuse.options.push_back(d);
    };
    add("size", Value::of_int(3));
    add("ratio", Value::of_float(0.5));
    add("on", Value::of_bool(true));
    add("word", Value::of_string("x"));
    add("words", Value::of_strings({"x"}));
    Manifest cpu;
    cpu.id = "tessera.backend.cpu";
    cpu.provides = {"backend:cpu"};
    return std::vector<Manifest>{fuse, cpu};
  }();
  static const std::vector<const Manifest*> pointers = {&manifests[0], &manifests[1]};
  return pointers;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ConfigSource source;
  source.path = "fuzz.toml";
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0)
      parts.emplace_back();
    else
      parts.back() += static_cast<char>(data[i]);
  }
  source.text = parts[0];
  source.overrides.assign(parts.begin() + 1, parts.end());
  Faults faults;
  Config config = Config::parse(source, faults);
  config.bind(plugins(), {}, faults);
  for (const Fault& f : faults.items())
    if (!f.code.starts_with("TSR-C") || f.message.empty()) std::abort();
  if (config.explain_json().empty() || config.options_json().empty()) std::abort();
  if (!faults.empty()) return 0;
  // What was accepted once is accepted again as the base of a callable's config.
  try {
    config.derive("eager", source.overrides);
  } catch (const Error& e) {
    if (e.code() != "TSR-C012") std::abort();
  }
  return 0;
}
