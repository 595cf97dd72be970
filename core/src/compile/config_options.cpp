// SPDX-License-Identifier: Apache-2.0
#include "compile/config_options.hpp"

#include "cache/cache.hpp"
#include "compile/late_passes.hpp"
#include "compile/partition.hpp"
#include "context/context.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"
#include "plugin/plugin_host.hpp"

namespace tessera::core {

CompileOptions compile_options(const std::shared_ptr<const Context>& context, const Config& config, const char* backends) {
  CompileOptions o;
  o.backends = backends && *backends ? context->backends_named(backends) : context->backends_in_order(config);
  o.executor = context->executor(config);
  o.relaxed = config.get_string("numerics") == "relaxed";
  o.deterministic = config.get_bool("deterministic");
  if (const std::string& name = config.get_string("device"); !name.empty()) {
    o.device = device_intern(name);
    device(o.device).require();
  }
  o.sync_faults = config.get_bool("runtime.sync_faults");
  o.check_nan = config.get_bool("runtime.check_nan");
  o.strict_backends = config.get_string("backends.on_compile_error") == "error";
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
  if (const Factory* f = context->partitioner(config)) {
    const Setting& bytes = config.setting("partitioner.budget_bytes");
    const Setting& origin = bytes.value.i >= 0 ? bytes : config.setting("partitioner.budget");
    o.partition = std::make_shared<const PartitionOptions>(
        PartitionOptions{f, config.plugin_options(f->plugin->id), config.get_float("partitioner.budget"), bytes.value.i,
                         origin.origin.kind == Origin::kDefault ? std::string() : to_text(origin.origin)});
    const std::string costs = config.get_string("partitioner.costs");
    o.measure_costs = costs != "predicted";
    o.remeasure_costs = costs == "remeasured";
    if (Cache* cache = context->cache(); cache && cache->keeps(CacheKind::kCost)) o.cost_cache = cache;
  }
  o.keep = context;
  return o;
}

}  // namespace tessera::core
