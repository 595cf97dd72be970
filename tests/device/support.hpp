// SPDX-License-Identifier: Apache-2.0
// Contexts on the simulated device and on the host's reference, and tensors for both.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "embed_tensors.hpp"
#include "memory/device.hpp"
#include "memory/stream.hpp"
#include "tessera/embed.hpp"

namespace tessera::test {

namespace e = tessera::embed;

inline e::Context make_context(const std::string& order, const std::string& more = "", const std::string& top = "") {
  e::ContextOptions o;
  o.config_text = top +
                  "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.backend.reference\", "
                  "\"tessera.backend.sim\", \"tessera.backend.null\", \"acme.executor.graphs\"]\n[backends]\norder = [" +
                  order + "]\n" + more;
  o.plugin_dirs = {TESSERA_PLUGIN_DIR, GRAPHS_PLUGIN_DIR};
  return e::Context(o);
}
inline const e::Context& sim() {
  static const e::Context c = make_context("\"sim\", \"reference\"");
  return c;
}
// With the test suite's executor, which makes graphs of the device.
inline const e::Context& graphs() {
  static const e::Context c = make_context("\"sim\", \"reference\"", "[executor]\nname = \"graphs\"\n");
  return c;
}
// Where graphs that name no device run on sim:1.
inline const e::Context& placed() {
  static const e::Context c = make_context("\"sim\", \"reference\"", "", "device = \"sim:1\"\n");
  return c;
}
inline const e::Context& host() {
  static const e::Context c = make_context("\"reference\"");
  return c;
}

inline e::Executable compile(const e::Context& c, const std::string& text) { return c.compile(c.parse(text, "test")); }

// The same program without devices.
inline std::string on_host(std::string text) {
  for (const char* device : {"@sim:0", "@sim:1"})
    for (size_t at; (at = text.find(device)) != std::string::npos;) text.erase(at, std::strlen(device));
  for (const char* device : {"\"sim:0\"", "\"sim:1\""})
    for (size_t at; (at = text.find(device)) != std::string::npos;) text.replace(at, std::strlen(device), "\"cpu\"");
  return text;
}

// Memory of the device itself, counted.
struct Allocator {
  std::mutex mutex;
  std::map<void*, size_t> live;
  int allocated = 0;
  bool fail = false;
  // Set: blocks come from this stream, and go back when the allocator does, as those of a graph that somebody else captures.
  tsr_stream* lasting = nullptr;
  std::vector<std::pair<tsr_device, void*>> kept;
  tsr_allocator table{};
  ~Allocator() {
    for (const auto& [d, p] : kept) tessera::core::device(d).free(p, 0, lasting);
  }
  Allocator() {
    table.struct_size = sizeof table;
    table.ctx = this;
    table.alloc = [](void* ctx, tsr_device d, size_t bytes, tsr_stream_handle* s, void** out) -> tsr_error* {
      auto& self = *static_cast<Allocator*>(ctx);
      if (self.fail) return e::api().host->core->error_create(TSR_ENVIRONMENT, "TSR-R001", "nothing is left", nullptr);
      *out = tessera::core::device(d).allocate(bytes, self.lasting ? self.lasting : tessera::core::Stream::from(s)->raw());
      std::lock_guard lock(self.mutex);
      self.live[*out] = bytes;
      ++self.allocated;
      return nullptr;
    };
    table.free = [](void* ctx, tsr_device d, void* p, size_t bytes, tsr_stream_handle* s) {
      auto& self = *static_cast<Allocator*>(ctx);
      {
        std::lock_guard lock(self.mutex);
        if (self.lasting) self.kept.emplace_back(d, p);
        self.live.erase(p);  // before others may get the address
      }
      if (!self.lasting) tessera::core::device(d).free(p, bytes, tessera::core::Stream::from(s)->raw());
    };
  }
};

template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const e::Error& error) {
    return error.code();
  }
  return "";
}

}  // namespace tessera::test
