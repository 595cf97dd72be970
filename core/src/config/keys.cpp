// SPDX-License-Identifier: Apache-2.0
#include "config/keys.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::core {
namespace {

constexpr bool kFixed = true;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

KeyDecl key(const char* name, Value fallback, const char* help) {
  KeyDecl d;
  d.name = name;
  d.type = fallback.type;
  d.fallback = std::move(fallback);
  d.help = help;
  return d;
}
KeyDecl fixed(KeyDecl d) {
  d.fixed = kFixed;
  return d;
}
KeyDecl integer(const char* name, int64_t fallback, double min, double max, const char* help) {
  KeyDecl d = key(name, Value::of_int(fallback), help);
  d.min = min;
  d.max = max;
  return d;
}
KeyDecl real(const char* name, double fallback, double min, double max, const char* help) {
  KeyDecl d = key(name, Value::of_float(fallback), help);
  d.min = min;
  d.max = max;
  return d;
}
KeyDecl boolean(const char* name, bool fallback, const char* help) { return key(name, Value::of_bool(fallback), help); }
KeyDecl text(const char* name, const char* fallback, const char* help) { return key(name, Value::of_string(fallback), help); }
KeyDecl choice(const char* name, std::vector<std::string> choices, const char* help) {
  KeyDecl d = text(name, choices.front().c_str(), help);  // the first is the default
  d.choices = std::move(choices);
  return d;
}
KeyDecl bytes(const char* name, int64_t fallback, double min, const char* help) {
  KeyDecl d = integer(name, fallback, min, kNoLimit, help);
  d.is_bytes = true;
  return d;
}
KeyDecl list(const char* name, const char* help) { return key(name, Value::of_strings({}), help); }

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const ModeDecl& m : known_modes()) names.push_back(m.name);
  return names;
}

std::vector<KeyDecl> make_keys() {
  return {
      text("name", "", "A name for reports."),
      choice("mode", mode_names(), "A named set of values; see `tessera config modes`."),
      choice("numerics", {"strict", "relaxed"}, "strict: fused bits equal unfused bits. relaxed gives that up for speed."),

      text("device", "",
           "Where graphs that name no device run, such as \"cuda:0\"; empty: where the backend that takes a node runs."),

      boolean("deterministic", false,
              "true: every op runs on what promises the same bits on every run and thread count, or the compile is refused."),
      boolean("fallback_random", false,
              "true: ops that draw random numbers run on the fallback backend, as in eager execution."),
      boolean("freezing", true,
              "Fold constants into others of any size and pack them for kernels. false: less memory and faster compiles."),
      boolean("max_autotune", false,
              "true: measure which of several algorithms computes a product or a convolution, and keep what was found."),
      boolean("coordinate_descent_tuning", false, "true: measure schedules of generated kernels; never changes a bit."),
      real("max_autotune_seconds", 60, 0, 86400,
           "Wall-clock time that measuring may take for one plan; what is not reached is predicted."),

      fixed(boolean(
          "force_disable_caches", false,
          "true: nothing is read from a cache on disk and nothing is written; so does TESSERA_FORCE_DISABLE_CACHES=1.")),

      fixed(list("plugins.path", "Directories searched for plugins before the default one; relative to the config file.")),

      choice("pipeline.verify", {"changed", "never", "each"},
             "Run the whole-graph verifier after passes that changed the graph, after none, or after each."),
      list("pipeline.skip", "Passes of pipeline.passes that are left out."),
      list("pipeline.joint",
           "Passes of pipeline.passes that run once more, in the order of that list, over a graph in which gradients were "
           "expanded."),
      choice("pipeline.dump_after", {"none", "changed", "all"},
             "Print the graph after passes: none, those that changed it, or all."),
      text("pipeline.dump_dir", "", "Directory for those dumps; empty: they are printed."),
      integer("pipeline.bisect_limit", -1, -1, kNoLimit, "Run only the first N passes of the process; -1: all."),
      choice("pipeline.reproducer", {"on_error", "none", "always"},
             "When a pass writes a file from which its run can be replayed."),
      text("pipeline.reproducer_dir", "", "Directory for reproducers; empty: 'tessera' in the directory for temporary files."),

      list("backends.order", "Backends in order of preference; the last is the fallback and must take every op."),
      choice("backends.use", {"all", "fallback"}, "fallback: ignore every backend but the last of backends.order."),
      choice("backends.on_compile_error", {"fallback", "error"},
             "When a backend fails to compile what it has claimed. fallback: the next backend that takes it, with a warning. "
             "error: the compile ends with the backend's error."),

      text("partitioner.name", "",
           "Splits the joint graph of training into forward and backward; empty: keep every activation."),
      real("partitioner.budget", 1.0, 0, 1,
           "Part of what the backward half reads of the forward half that may be kept for it; 1: what is fastest."),
      bytes("partitioner.budget_bytes", -1, -1,
            "Memory at the peak of a call, besides what the caller holds, as a number or as text: \"3 GiB\"; -1: "
            "partitioner.budget holds."),
      choice("partitioner.costs", {"measured", "remeasured", "predicted"},
             "What partitioners choose by. measured: each distinct kernel is timed once on its device, and kept by the cache. "
             "remeasured: once more by every process, of which the shortest time is kept. predicted: a model of the device."),

      text("executor.name", "", "Runs the step table another way; empty: step by step."),
      boolean("executor.optional", false, "true: without that executor the plan runs step by step, with one notice."),

      fixed(integer("runtime.threads", 0, 0, 4096,
                    "Threads of parallel loops, and of trying plans of memory; 0: OMP_NUM_THREADS, or one per core.")),
      integer("runtime.arena_max_bytes", 0, 0, kNoLimit, "A plan that needs a larger arena is refused; 0: no limit."),
      boolean("runtime.sync_faults", false,
              "true: a run waits for each of its steps on a device, so that an error is thrown by the step that made it."),
      boolean("runtime.check_nan", false,
              "true: a run ends at the first step whose result has a NaN, which the error names. Slow: for finding where one "
              "comes from."),
      list("runtime.pool_limits",
           "Bytes of free memory that a device's pool keeps at most, such as \"cuda:0=268435456\". Others keep half of their "
           "memory. Of the whole process."),
      boolean("runtime.measure_steps", false, "Time every step of every call, for descriptions and `tessera bench --steps`."),

      integer("guards.recompile_limit", 8, 1, 1e9,
              "Entries of one function, or of one continuation, before further misses run on the fallback backend. Also called "
              "cache_size_limit."),
      integer("guards.accumulated_recompile_limit", 256, 1, 1e9,
              "The same limit over all functions of the process that share code. Also called accumulated_cache_size_limit."),
      boolean("guards.fail_on_recompile_limit_hit", false, "true: hitting a limit is an error."),
      boolean("guards.error_on_recompile", false, "true: every recompile is an error."),
      integer("guards.max_entries", 0, 0, 1e9,
              "Entries of one function that are kept: the least recently used goes. 0: no limit."),
      integer("guards.max_bytes", 0, 0, kNoLimit, "The same by the bytes that entries hold. 0: no limit."),
      boolean("guards.suppress_errors", false,
              "true: a function that cannot be captured or compiled runs without compiled code, with one warning."),
      choice(
          "guards.on_busy", {"wait", "fallback"},
          "A call that misses while another thread compiles the same function: waits for that entry, or runs without compiled "
          "code."),
      choice("guards.dynamic", {"auto", "true", "false"},
             "auto: a size is a number first, and a symbol once it has changed. true: symbols at once. false: always "
             "numbers."),
      boolean("guards.assume_static_by_default", true,
              "With dynamic = \"auto\": false makes every size a symbol at the first capture."),
      boolean("guards.automatic_dynamic", true, "With dynamic = \"auto\": false never makes a symbol of what has changed."),
      choice("guards.automatic_dynamic_as", {"dynamic", "unbacked"},
             "What a size that has changed becomes: a symbol that may be guarded on, or one that may not."),
      boolean("guards.duck_shaping", true, "Sizes that are equal at capture share one symbol, and must stay equal."),
      boolean("guards.specialize_zero", true, "A size of 0 is always a number."),
      boolean("guards.specialize_one", true, "A size of 1 is always a number: what broadcasts is known at compile time."),
      boolean("guards.specialize_float", false,
              "true: guard SymFloat arguments by value until one changes; false: they become 0-d inputs at once."),
      boolean("guards.specialize_int", false, "true: guard SymInt arguments by value, also after a change."),
      boolean("guards.force_parameter_static_shapes", true, "Sizes of parameters are numbers unless they are marked."),

      fixed(text("cache.store", "", "The store that keeps compiled graphs and profiles; empty: the first that is loaded.")),
      fixed(boolean("cache.graphs", true, "Keep compiled graphs; TESSERA_GRAPH_CACHE=0 wins over it.")),
      fixed(boolean("cache.profiles", true, "Keep which sizes were found dynamic, for the next process.")),
      fixed(integer("cache.settle_seconds", 60, 2, 86400,
                    "A file is recognised by its identity once it has been left alone for this long; before that its constants "
                    "are hashed.")),
      fixed(text("cache.key_file", "",
                 "File with the key (32 bytes or more) that signs entries; needed where other users can write to the store.")),

      boolean("trace.enabled", false, "Every graph that is compiled leaves a folder for people: docs/debug_folder.md."),
      text("trace.debug_dir", "", "Where these folders go; empty: 'tessera_debug' in the current directory."),
      boolean("trace.graph_diagram", false, "A Graphviz diagram of the final graph in each folder."),

      text("log.artifacts", "", "As TESSERA_LOGS, which wins over it: \"recompiles,+guards\"."),
  };
}

}  // namespace

const std::vector<KeyDecl>& known_keys() {
  static const std::vector<KeyDecl> keys = make_keys();
  return keys;
}

const KeyDecl* find_key(std::string_view name) {
  const auto& keys = known_keys();
  if (name == "guards.cache_size_limit") name = "guards.recompile_limit";
  if (name == "guards.accumulated_cache_size_limit") name = "guards.accumulated_recompile_limit";
  const auto at = std::find_if(keys.begin(), keys.end(), [&](const KeyDecl& k) { return k.name == name; });
  return at == keys.end() ? nullptr : &*at;
}

std::vector<std::string> all_key_names() {
  std::vector<std::string> names = {std::string(kPluginsLoad), std::string(kPipelinePasses)};
  for (const KeyDecl& k : known_keys()) names.push_back(k.name);
  return names;
}

bool is_known_section(std::string_view section) {
  return std::any_of(known_keys().begin(), known_keys().end(), [&](const KeyDecl& k) {
    return k.name.size() > section.size() && k.name[section.size()] == '.' && std::string_view(k.name).starts_with(section);
  });
}

const std::vector<ModeDecl>& known_modes() {
  static const std::vector<ModeDecl> modes = {
      {"default", "Balances compile time, memory and speed; changes nothing.", {}},
      {"reduce-overhead",
       "Replays the launches of static plans as one device graph where an executor offers it.",
       {{"executor.name", Value::of_string("cudagraphs")}, {"executor.optional", Value::of_bool(true)}}},
      {"max-autotune",
       "As reduce-overhead, with algorithms and schedules measured on this machine.",
       {{"executor.name", Value::of_string("cudagraphs")},
        {"executor.optional", Value::of_bool(true)},
        {"max_autotune", Value::of_bool(true)},
        {"coordinate_descent_tuning", Value::of_bool(true)}}},
      {"max-autotune-no-cudagraphs",
       "As max-autotune, launching step by step.",
       {{"max_autotune", Value::of_bool(true)}, {"coordinate_descent_tuning", Value::of_bool(true)}}},
      {"lite",
       "Only the passes that are cheap and keep the program close to how it was written.",
       {{"pipeline.skip", Value::of_strings({"constant_fold", "cse", "fuse"})}}},
      {"eager",
       "Runs the captured ops as they are, on the fallback backend.",
       {{std::string(kPipelinePasses), Value::of_strings({})}, {"backends.use", Value::of_string("fallback")}}},
      {"aot_eager",
       "The whole pipeline, then the fallback backend: separates capture and passes from code generation.",
       {{"backends.use", Value::of_string("fallback")}}},
  };
  return modes;
}

const ModeDecl* find_mode(std::string_view name) {
  for (const ModeDecl& m : known_modes())
    if (m.name == name) return &m;
  return nullptr;
}

}  // namespace tessera::core
