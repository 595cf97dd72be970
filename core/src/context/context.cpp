// SPDX-License-Identifier: Apache-2.0
#include "context/context.hpp"

#include <algorithm>
#include <cstdlib>

#include "cache/cache.hpp"
#include "config/document.hpp"
#include "context/resolve.hpp"
#include "log/log.hpp"
#include "support/text.hpp"
#include "trace/trace.hpp"

namespace tessera::core {
namespace {

// Optional plugins whose machine lacks what they need, and those that need one of them. What names their factories is passed
// over.
class LeftOut {
 public:
  // Whether this plugin cannot be loaded because another one is left out; that is a fault, or a notice.
  bool needed_by(const ResolvedPlugin& p, Faults& faults, std::vector<std::string>& notices) const {
    for (const std::string& need : p.manifest->needs) {
      if (std::find(ids_.begin(), ids_.end(), need) == ids_.end()) continue;
      if (p.optional)
        notices.push_back("optional plugin '" + p.manifest->id + "' is left out: it needs '" + need + "'");
      else
        faults.add(TSR_USER, "TSR-P011",
                   p.manifest->place("needs") + ": plugin '" + p.manifest->id + "' needs '" + need +
                       "', which is optional and cannot be used on this machine",
                   "make '" + p.manifest->id + "' optional too");
      return true;
    }
    return false;
  }
  void add(const Manifest& m, const Config& config, Faults& faults) {
    ids_.push_back(m.id);
    // The last backend is what everything else falls back on: to go on without it would change results silently.
    const Setting& order = config.setting("backends.order");
    const std::vector<std::string>& names = order.value.strings;
    if (!names.empty() && std::find(m.provides.begin(), m.provides.end(), "backend:" + names.back()) != m.provides.end())
      faults.add(TSR_USER, "TSR-C008",
                 to_text(order.origin) + ": the fallback backend '" + names.back() + "' belongs to the optional plugin '" +
                     m.id + "', which cannot be used on this machine",
                 "put a backend that is always there last in 'backends.order'");
  }

 private:
  std::vector<std::string> ids_;
};

}  // namespace

Context::Context(const tsr_host& host) : plugins_(host) {}
Context::~Context() = default;

std::shared_ptr<Context> Context::create(const tsr_context_options* options, const tsr_host& host) {
  log_startup_check();
  ResolvedPlugins resolved = resolve_plugins(options);
  resolved.faults.throw_if_any();

  std::shared_ptr<Context> context(new Context(host));
  context->config_ = std::move(resolved.config);
  const Config& config = context->config_;
  // Only once everything was found to be right: a refused config must not change what a process logs.
  if (!std::getenv("TESSERA_LOGS") && !config.get_string("log.artifacts").empty())
    configure_logs(config.get_string("log.artifacts"));

  Faults faults;
  std::vector<std::string> notices = std::move(resolved.notices);
  LeftOut left_out;
  for (const ResolvedPlugin& p : resolved.plugins) {
    const size_t before = faults.size();
    const bool loaded =
        !left_out.needed_by(p, faults, notices) &&
        context->plugins_.load(*p.manifest, config.plugin_options(p.manifest->id), p.optional, faults, &notices);
    if (!loaded && faults.size() == before) left_out.add(*p.manifest, config, faults);
  }
  for (std::string& notice : idle_settings(config)) notices.push_back(std::move(notice));
  faults.throw_if_any();
  for (const Factory* f : context->plugins_.all(TSR_OPSET)) {
    try {
      context->ops_.add(f->as<tsr_opset>(), f->plugin->id);
    } catch (const Error& e) {
      faults.add(e);
    }
  }
  faults.throw_if_any();
  for (const std::string& notice : notices) log_notice(notice);
  context->cache_ = Cache::open(context->plugins_, config);
  if (trace_enabled())
    TraceEvent("context")
        .text("config", config.source_path())
        .text("mode", config.get_string("mode"))
        .json("loaded", context->plugins_.loaded_json())
        .write();
  return context;
}

std::vector<std::string> idle_settings(const Config& config) {
  std::vector<std::string> out;
  for (const char* key : {"partitioner.budget", "partitioner.budget_bytes", "partitioner.costs"}) {
    const Setting& s = config.setting(key);
    if (s.origin.kind == Origin::kDefault) continue;
    if (!config.get_string("partitioner.name").empty()) continue;
    out.push_back(to_text(s.origin) + ": '" + key + "' has no effect: 'partitioner.name' names no partitioner");
  }
  return out;
}

const Factory& Context::frontend_for(std::string_view path, std::string_view head) const {
  const Factory* best = nullptr;
  int best_score = 0;
  const auto by_extension = [&](const tsr_frontend& f) {
    for (size_t i = 0; i < f.num_extensions; ++i)
      if (path.ends_with(f.extensions[i])) return true;
    return false;
  };
  for (const Factory* f : plugins_.all(TSR_FRONTEND)) {
    const auto& table = f->as<tsr_frontend>();
    if (!table.import) continue;
    int score = table.probe ? f->call("probe", [&] { return table.probe(f->self, head.data(), head.size()); }) : 0;
    if (score <= 0 && by_extension(table)) score = 1;
    if (score > best_score) {
      best = f;
      best_score = score;
    }
  }
  if (best) return *best;
  std::string known;
  for (const Factory* f : plugins_.all(TSR_FRONTEND)) {
    const auto& table = f->as<tsr_frontend>();
    if (!table.import) continue;
    known += (known.empty() ? "" : "; ") + f->name;
    for (size_t i = 0; i < table.num_extensions; ++i) known += std::string(i ? ", " : " (") + table.extensions[i];
    if (table.num_extensions > 0) known += ")";
  }
  throw user_error("TSR-P031", std::string(path) + ": no loaded frontend reads this file",
                   "loaded frontends: " + (known.empty() ? "none" : known) + "; further ones are named in plugins.load");
}

std::vector<const Factory*> Context::backends_in_order(const Config& config) const {
  std::vector<const Factory*> out;
  for (const std::string& name : config.get_strings("backends.order"))
    if (const Factory* f = plugins_.find(TSR_BACKEND, name)) out.push_back(f);  // an absent optional one has had its notice
  if (out.empty())
    throw user_error("TSR-C011", config.source_path() + ": 'backends.order' names no backend that is there",
                     "backends of the loaded plugins: " + listed(plugins_.names(TSR_BACKEND), "none"));
  if (config.get_string("backends.use") == "fallback") out.erase(out.begin(), out.end() - 1);
  return out;
}

std::vector<const Factory*> Context::backends_named(std::string_view list) const {
  std::vector<const Factory*> out;
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view name = rest.substr(0, comma);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (!name.empty()) {
      const Factory* f = &backend(name);
      if (std::find(out.begin(), out.end(), f) == out.end()) out.push_back(f);
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (out.empty())
    throw user_error("TSR-C011", "the list of backends '" + std::string(list) + "' names none",
                     "backends of the loaded plugins: " + listed(plugins_.names(TSR_BACKEND), "none"));
  return out;
}

std::vector<BoundPass> Context::pipeline(const Config& config, uint32_t stage) const {
  std::vector<BoundPass> out;
  if (stage == TSR_STAGE_GRAPH) out = pipeline(config, TSR_STAGE_CALL);
  for (const PassRequest& r : config.passes())
    if (const Factory* f = plugins_.find(TSR_PASS, r.name))  // absent: an optional plugin's
      if (f->as<tsr_pass>().stage == stage) out.push_back({f, r.options});
  return out;
}

std::vector<BoundPass> Context::joint_pipeline(const Config& config) const {
  const std::vector<std::string>& joint = config.get_strings("pipeline.joint");
  std::vector<BoundPass> out = pipeline(config);
  std::erase_if(out, [&](const BoundPass& p) { return std::find(joint.begin(), joint.end(), p.factory->name) == joint.end(); });
  return out;
}

const Factory* Context::partitioner(const Config& config) const {
  const std::string& name = config.get_string("partitioner.name");
  return name.empty() ? nullptr : &plugins_.get(TSR_PARTITIONER, name);
}

const Factory* Context::executor(const Config& config) const {
  const std::string& name = config.get_string("executor.name");
  if (name.empty()) return nullptr;
  if (!config.get_bool("executor.optional")) return &plugins_.get(TSR_EXECUTOR, name);
  const Factory* f = plugins_.find(TSR_EXECUTOR, name);
  if (!f) log_notice("no loaded plugin provides the executor '" + name + "'; plans run step by step");
  return f;
}

}  // namespace tessera::core
