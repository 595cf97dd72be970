// SPDX-License-Identifier: Apache-2.0
#include "log/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "support/error.hpp"

namespace tessera::core {
namespace {

struct Row {
  const char* name;
  const char* summary;
};
constexpr std::array<Row, kNumArtifacts> kRows = {{
    {"recompiles", "Why a function is compiled again: the guard that failed and its value."},
    {"recompiles_verbose", "As recompiles, with every entry that was tried."},
    {"graph_breaks", "Where and why a capture ended early."},
    {"guards", "The guards of each new entry."},
    {"graph", "The captured graph as text."},
    {"graph_code", "The captured graph as C++ that rebuilds it."},
    {"aot_graphs", "The graph after partitioning."},
    {"aot_joint_graph", "The joint graph before partitioning."},
    {"partition", "What is kept for the backward half, what is computed again, and how far that can be from the best plan."},
    {"output_code", "The code of each executable: what kernel_code says of its kernels, then their calls in order."},
    {"kernel_code", "The source of each kernel that a backend generates, with the nodes that it computes."},
    {"schedule", "The schedule chosen for each kernel."},
    {"fusion", "What was fused, and what was not and why."},
    {"perf_hints", "What keeps a program from running faster."},
    {"cudagraphs", "Which plans are replayed as device graphs, and which are not and why."},
    {"benchmarking", "Measurements made while compiling."},
    {"autotuning", "Candidates of a search with their times."},
    {"dynamic", "Sizes that become symbols, and why."},
    {"sym_node", "Each new symbolic expression and assumption."},
    {"compute_dependencies", "Dependencies between steps."},
    {"passes", "Each pass: time, nodes, graphs as pipeline.dump_after asks."},
    {"plan", "The memory plan: slots, offsets, peak."},
    {"stages", "Each stage of a compile in its order, with its time."},
    {"plugins", "Plugins found, loaded and left out."},
}};

using Levels = std::array<signed char, kNumArtifacts>;  // -1 silent, 0 normal, 1 verbose

struct State {
  std::array<std::atomic<signed char>, kNumArtifacts> levels;
  std::atomic<uint64_t> tapped{0};  // bit per artifact
  static_assert(kNumArtifacts <= 64);
  std::atomic<LogTap> tap{nullptr};
  std::atomic<int> captures{0};  // of all threads, those that read
  std::mutex sink_mutex;
  LogSink sink;
  std::set<std::string, std::less<>> notices;
  std::optional<Error> startup_error;

  State() {
    for (auto& level : levels) level.store(-1, std::memory_order_relaxed);
  }
  void set(const Levels& from) {
    for (size_t i = 0; i < kNumArtifacts; ++i) levels[i].store(from[i], std::memory_order_relaxed);
  }
};

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

Levels parse(std::string_view spec, const char* where) {
  Levels levels;
  levels.fill(-1);
  bool kernels = false;  // said something about kernel_code alone
  while (!spec.empty()) {
    const size_t comma = std::min(spec.find(','), spec.size());
    std::string_view item = trimmed(spec.substr(0, comma));
    spec.remove_prefix(std::min(comma + 1, spec.size()));
    if (item.empty()) continue;
    signed char level = 0;
    if (item.front() == '+' || item.front() == '-') {
      level = item.front() == '+' ? 1 : -1;
      item = trimmed(item.substr(1));
    }
    if (item == "all") {
      levels.fill(level);
      continue;
    }
    Artifact artifact;
    if (!find_artifact(item, &artifact)) {
      std::vector<std::string> names;
      std::string list;
      for (const Row& r : kRows) {
        names.emplace_back(r.name);
        list += (list.empty() ? "" : ", ") + names.back();
      }
      throw user_error("TSR-L001",
                       std::string(where) + ": unknown artifact '" + std::string(item) + "'" + did_you_mean(item, names),
                       "artifacts: " + list + "; +name is verbose, -name silent, all means every one");
    }
    levels[static_cast<size_t>(artifact)] = level;
    kernels = kernels || artifact == Artifact::kKernelCode;
    if (artifact == Artifact::kOutputCode && !kernels) levels[static_cast<size_t>(Artifact::kKernelCode)] = level;
  }
  return levels;
}

thread_local const LogCapture* t_capture = nullptr;

uint64_t bits_of(std::span<const Artifact> artifacts) {
  uint64_t bits = 0;
  for (const Artifact a : artifacts) bits |= uint64_t{1} << static_cast<unsigned>(a);
  return bits;
}

// Never destroyed: plugins may log from static destructors.
State& state() {
  static State* s = [] {
    State* fresh = new State;
    if (const char* spec = std::getenv("TESSERA_LOGS")) {
      try {
        fresh->set(parse(spec, "TESSERA_LOGS"));
      } catch (const Error& e) {
        fresh->startup_error = e;
      }
    }
    return fresh;
  }();
  return *s;
}

// Requires sink_mutex.
void emit(State& s, const std::string& lines) {
  if (s.sink) {
    s.sink(lines);
    return;
  }
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

const char* artifact_name(Artifact artifact) { return kRows[static_cast<size_t>(artifact)].name; }
const char* artifact_summary(Artifact artifact) { return kRows[static_cast<size_t>(artifact)].summary; }

bool find_artifact(std::string_view name, Artifact* out) {
  for (size_t i = 0; i < kNumArtifacts; ++i) {
    if (name != kRows[i].name) continue;
    *out = static_cast<Artifact>(i);
    return true;
  }
  return false;
}

namespace {
bool printed(const State& s, Artifact artifact, int level) {
  return s.levels[static_cast<size_t>(artifact)].load(std::memory_order_relaxed) >= std::max(level, 0);
}
bool tapped(const State& s, Artifact artifact, int level) {
  return level <= 0 && (s.tapped.load(std::memory_order_relaxed) >> static_cast<unsigned>(artifact) & 1) != 0;
}
// Null: nobody on this thread. Most processes have no capture, and then this is one more relaxed load.
const LogCapture* capture_of(const State& s, Artifact artifact, int level) {
  if (level > 0 || s.captures.load(std::memory_order_relaxed) == 0) return nullptr;
  return t_capture && t_capture->reads(artifact) ? t_capture : nullptr;
}
}  // namespace

bool log_enabled(Artifact artifact, int level) {
  const State& s = state();
  return printed(s, artifact, level) || tapped(s, artifact, level) || capture_of(s, artifact, level);
}

void log_write(Artifact artifact, int level, std::string_view text) {
  const State& s = state();
  if (tapped(s, artifact, level))
    if (const LogTap tap = s.tap.load(std::memory_order_acquire)) tap(artifact, text);
  if (const LogCapture* capture = capture_of(s, artifact, level)) capture->read(artifact, text);
  if (printed(s, artifact, level)) log_always(artifact, text);
}

void log_always(Artifact artifact, std::string_view text) {
  const std::string prefix = std::string("[") + artifact_name(artifact) + "] ";
  std::string lines;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  for (;;) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines += prefix;
    lines += text.substr(0, end);
    lines += '\n';
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  State& s = state();
  const std::lock_guard lock(s.sink_mutex);
  emit(s, lines);
}

void log_notice(std::string_view text) {
  State& s = state();
  const std::lock_guard lock(s.sink_mutex);
  if (s.notices.emplace(text).second) emit(s, "tessera: note: " + std::string(text) + "\n");
}

void log_warning(std::string_view text) {
  State& s = state();
  const std::lock_guard lock(s.sink_mutex);
  emit(s, "tessera: warning: " + std::string(text) + "\n");
}

void configure_logs(std::string_view spec) { state().set(parse(spec, "log.artifacts")); }

void log_startup_check() {
  if (state().startup_error) throw *state().startup_error;
}

LogSink set_log_sink(LogSink sink) {
  State& s = state();
  const std::lock_guard lock(s.sink_mutex);
  std::swap(s.sink, sink);
  return sink;
}

void set_log_tap(LogTap tap, std::span<const Artifact> artifacts) {
  State& s = state();
  s.tap.store(tap, std::memory_order_release);
  s.tapped.store(tap ? bits_of(artifacts) : 0, std::memory_order_relaxed);
}

LogCapture::LogCapture(Reader read, std::span<const Artifact> artifacts)
    : read_(std::move(read)), bits_(read_ ? bits_of(artifacts) : 0), outer_(std::exchange(t_capture, this)) {
  if (bits_) ++state().captures;
}

LogCapture::~LogCapture() {
  if (bits_) --state().captures;
  t_capture = outer_;
}

namespace abi {

int log_enabled(const char* artifact, int level) noexcept {
  Artifact a;
  return artifact && find_artifact(artifact, &a) && core::log_enabled(a, level) ? 1 : 0;
}

void log_write(const char* artifact, int level, const char* text) noexcept {
  Artifact a;
  if (!artifact || !text) return;
  try {
    if (std::string_view(artifact) == "notice")
      log_notice(text);
    else if (find_artifact(artifact, &a))
      core::log_write(a, level, text);
  } catch (...) {
    // A log line is not worth an error; out of memory surfaces where the program needs it.
  }
}

}  // namespace abi
}  // namespace tessera::core
