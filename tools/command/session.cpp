// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include <chrono>
#include <set>

#include "bounds.hpp"
#include "json.hpp"

namespace tessera::command {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void ContextArguments::add_to(Options& o, bool with_config, bool with_threads) {
  if (with_config) o.value("config,c", "FILE", &config, "Config file, or the name of an installed one (default: default).");
  o.list("set", "KEY=VALUE", &overrides, "Override a key of the config, such as numerics=relaxed.");
  o.list("plugin-dir", "DIR", &plugin_dirs, "Search this directory for plugins first.");
  if (with_threads)
    o.integer("threads", "N", &threads, 0, 4096, "Threads of parallel loops (0: OMP_NUM_THREADS, else one per core).");
}

embed::ContextOptions ContextArguments::options() const {
  embed::ContextOptions out{config, {}, overrides, plugin_dirs};
  if (threads > 0) out.overrides.push_back("runtime.threads=" + std::to_string(threads));
  return out;
}

Session open_session(const ContextArguments& arguments, const std::string& model, Progress& progress, InputArguments* inputs) {
  progress.phase("loading plugins");
  embed::Context context(arguments.options());
  progress.phase("reading " + model);
  const double start = now_ms();
  embed::Graph graph = inputs ? load_model(context, model, *inputs) : context.load(model);
  const double loaded = now_ms();
  Signature signature(graph.tables());
  std::vector<double> explained = explained_errors(graph.tables());
  progress.phase("compiling " + model);
  const embed::ProgressScope listening(
      [&progress](std::string_view work, uint64_t done, uint64_t total) { progress.part_of(work, done, total); });
  const double begin = now_ms();
  embed::Executable executable = context.compile_model(std::move(graph));
  const double end = now_ms();
  const Json description = Json::parse(executable.describe());
  const double pack = number_at(description, Json::json_pointer("/compile/pack_ms"), 0);
  const int64_t threads = description.value("threads", int64_t{1});
  return {std::move(context),  std::move(signature), std::move(executable), loaded - start, end - begin - pack, pack, threads,
          std::move(explained)};
}

std::vector<tsr_device> devices_of(const embed::Executable& executable) {
  const tsr_tables& t = executable.tables();
  std::set<tsr_device> seen = {0};
  for (size_t i = 0; i < t.num_values; ++i) {
    const tsr_value& v = *TSR_AT(tsr_value, t.values, t.value_stride, i);
    if (v.alive && v.type) seen.insert(v.type->device);
  }
  return {seen.begin(), seen.end()};
}

int64_t memory_in_use(const std::vector<tsr_device>& devices) {
  int64_t total = 0;
  for (const tsr_device d : devices) total += embed::api().memory_in_use(d);
  return total;
}

int64_t memory_peak(const std::vector<tsr_device>& devices, bool reset) {
  int64_t total = 0;
  for (const tsr_device d : devices) total += embed::api().memory_peak(d, reset ? 1 : 0);
  return total;
}

}  // namespace tessera::command
