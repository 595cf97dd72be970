// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "api/api.hpp"
#include "api/op_list.hpp"
#include "compile/late_passes.hpp"
#include "dispatch/eager.hpp"
#include "log/log.hpp"
#include "runtime/device.hpp"

namespace tessera::core::api {

void refuse_null(const char* what) { throw user_error("TSR-E002", std::string("a null pointer was passed as ") + what); }

char* to_c_string(const std::string& s) {
  auto* p = static_cast<char*>(std::malloc(s.size() + 1));
  if (!p) throw std::bad_alloc();
  std::memcpy(p, s.c_str(), s.size() + 1);
  return p;
}

CompileOptions compile_options(const std::shared_ptr<const Context>& context, const Config& config, const char* backends) {
  CompileOptions o;
  o.backends = backends && *backends ? context->backends_named(backends) : context->backends_in_order(config);
  o.executor = context->executor(config);
  o.relaxed = config.get_string("numerics") == "relaxed";
  o.deterministic = config.get_bool("deterministic");
  o.fallback_random = config.get_bool("fallback_random");
  o.unfrozen = !config.get_bool("freezing");
  // Measuring may choose another algorithm on another day, and with it other bits.
  if (config.get_bool("max_autotune") && !o.deterministic) o.tune |= TSR_TUNE_ALGORITHMS;
  if (config.get_bool("coordinate_descent_tuning")) o.tune |= TSR_TUNE_SCHEDULES;
  o.tune_seconds = config.get_float("max_autotune_seconds");
  o.threads = static_cast<int>(config.get_int("runtime.threads"));
  o.arena_max_bytes = config.get_int("runtime.arena_max_bytes");
  o.measure = log_enabled(Artifact::kBenchmarking) || config.get_bool("runtime.measure_steps");
  if (LatePasses late{context->pipeline(config, TSR_STAGE_ASSIGNED), pass_options_of(config)}; !late.passes.empty())
    o.late_passes = std::make_shared<const LatePasses>(std::move(late));
  o.keep = context;
  return o;
}

namespace {

tsr_error* context_create(const tsr_context_options* options, tsr_context** out) noexcept {
  return guarded([&] {
    required(out, "the context to be returned");
    auto c = std::make_unique<tsr_context>();
    c->context = Context::create(options, host());
    for (const Factory* f : c->context->plugins().all(TSR_DEVICE))
      register_devices(f->as<tsr_device_table>(), f->self, f->plugin->id, f->plugin->vendor, c->context);
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
