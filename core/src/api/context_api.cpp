// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "api/api.hpp"
#include "api/op_list.hpp"
#include "eager/eager.hpp"
#include "memory/device.hpp"
#include "memory/stream_pool.hpp"
#include "support/error.hpp"

namespace tessera::core::api {

char* to_c_string(const std::string& s) {
  auto* p = static_cast<char*>(std::malloc(s.size() + 1));
  if (!p) throw std::bad_alloc();
  std::memcpy(p, s.c_str(), s.size() + 1);
  return p;
}

namespace {

// "sim:0=268435456"
void apply_pool_limit(const std::string& text) {
  const size_t at = text.find('=');
  size_t bytes = 0;
  const char *const first = text.data() + (at == std::string::npos ? text.size() : at + 1), *const last =
                                                                                                text.data() + text.size();
  const auto [end, error] = std::from_chars(first, last, bytes);
  if (first == last || error != std::errc() || end != last || bytes == SIZE_MAX)
    throw user_error("TSR-C004", "runtime.pool_limits: '" + text + "' does not say how many bytes of which device",
                     "write a device, '=' and a number of bytes, such as \"cuda:0=268435456\"");
  Device& d = device(device_intern(text.substr(0, at)));
  d.require();
  if (d.id() != kCpu) set_pool_limit(d, bytes);
}

tsr_error* context_create(const tsr_context_options* options, tsr_context** out) noexcept {
  return guarded([&] {
    required(out, "the context to be returned");
    auto c = std::make_unique<tsr_context>();
    c->context = Context::create(options, host());
    for (const Factory* f : c->context->plugins().all(TSR_DEVICE))
      register_devices(f->as<tsr_device_table>(), f->self, f->plugin->id, f->plugin->vendor, c->context);
    for (const std::string& limit : c->context->config().get_strings("runtime.pool_limits")) apply_pool_limit(limit);
    c->eager = std::make_unique<EagerCache>(c->context);
    *out = c.release();
  });
}

template <class F>
tsr_error* json(char** out, F&& f) noexcept {
  return guarded([&] {
    required(out, "the text to be returned");
    *out = to_c_string(f());
  });
}

}  // namespace

void context_functions(tsr_api& t) {
  t.context_create = context_create;
  t.context_destroy = [](tsr_context* c) noexcept { delete c; };
  t.config_explain = [](tsr_context* c, char** out) noexcept {
    return json(out, [&] { return required(c, "context").context->config().explain_json(); });
  };
  t.config_options = [](tsr_context* c, char** out) noexcept {
    return json(out, [&] { return required(c, "context").context->config().options_json(); });
  };
  t.config_modes = [](char** out) noexcept { return json(out, [] { return modes_json(); }); };
  t.plugin_list = [](const tsr_context_options* o, int all, char** out) noexcept {
    return json(out, [&] { return plugin_list_json(o, all != 0); });
  };
  t.plugin_check = [](const char* path, char** out) noexcept {
    return json(out, [&] {
      required(path, "the path");
      return plugin_check_json(path, host());
    });
  };
  t.op_list = [](tsr_context* c, char** out) noexcept {
    return json(out, [&] { return op_list_json(required(c, "context").context->ops()); });
  };
  t.loaded = [](tsr_context* c, char** out) noexcept {
    return json(out, [&] { return required(c, "context").context->plugins().loaded_json(); });
  };
}

}  // namespace tessera::core::api
