// SPDX-License-Identifier: Apache-2.0
// Logging artifacts: what TESSERA_LOGS can switch on. Asking is one relaxed load; writing takes a lock and emits whole lines.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

enum class Artifact : unsigned char {
  kRecompiles,
  kRecompilesVerbose,
  kGraphBreaks,
  kGuards,
  kGraph,
  kGraphCode,
  kAotGraphs,
  kAotJointGraph,
  kPartition,
  kOutputCode,
  kKernelCode,
  kSchedule,
  kFusion,
  kPerfHints,
  kCudagraphs,
  kBenchmarking,
  kAutotuning,
  kDynamic,
  kSymNode,
  kComputeDependencies,
  kPasses,
  kPlan,
  kStages,
  kPlugins,
  kCount
};
inline constexpr size_t kNumArtifacts = static_cast<size_t>(Artifact::kCount);

const char* artifact_name(Artifact artifact);     // "graph_breaks"
const char* artifact_summary(Artifact artifact);  // one sentence
bool find_artifact(std::string_view name, Artifact* out);

// Levels: 0 normal ("guards"), 1 verbose ("+guards"). The first use in a process reads TESSERA_LOGS; what is wrong with
// that variable is thrown by log_startup_check(), not here.
bool log_enabled(Artifact artifact, int level = 0);
// Every line of `text` is prefixed with "[artifact] ". Does nothing when the artifact is not enabled at that level.
void log_write(Artifact artifact, int level, std::string_view text);
inline void log_write(Artifact artifact, std::string_view text) { log_write(artifact, 0, text); }
// As log_write, whether the artifact is enabled or not: for what a config key asks to print.
void log_always(Artifact artifact, std::string_view text);
// A one-line notice that is always shown ("tessera: note: ..."), once per process for equal texts.
void log_notice(std::string_view text);
// A one-line warning that is always shown ("tessera: warning: ...").
void log_warning(std::string_view text);

// Replaces what is enabled: "recompiles,+guards,-fusion"; "+x" raises x to verbose, "-x" silences it, "all" names every
// artifact. Later items win. Throws TSR-L001 for an unknown name, with a suggestion and the list; then nothing has changed.
void configure_logs(std::string_view spec);
// Throws TSR-L001 when TESSERA_LOGS is wrong. Called when a context is created.
void log_startup_check();

// Redirects whole lines (with prefix and newline); an empty function restores stderr. Returns the previous sink.
using LogSink = std::function<void(std::string_view lines)>;
LogSink set_log_sink(LogSink sink);

// A second reader of some artifacts: they count as enabled at the normal level, and the tap gets their texts as they are,
// whether TESSERA_LOGS prints them or not. Null: none. The tap may be called by any thread.
using LogTap = void (*)(Artifact artifact, std::string_view text);
void set_log_tap(LogTap tap, std::span<const Artifact> artifacts);

// Reads what this thread says under some artifacts while it lives, as a tap does for all threads. Scopes nest: the innermost
// one reads alone, and one without a reader keeps from the others what it encloses.
class LogCapture {
 public:
  using Reader = std::function<void(Artifact artifact, std::string_view text)>;
  LogCapture() : LogCapture(nullptr, {}) {}
  LogCapture(Reader read, std::span<const Artifact> artifacts);
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  bool reads(Artifact artifact) const { return (bits_ >> static_cast<unsigned>(artifact) & 1) != 0; }
  void read(Artifact artifact, std::string_view text) const { read_(artifact, text); }

 private:
  Reader read_;
  uint64_t bits_ = 0;
  const LogCapture* outer_;
};

// The functions of tsr_host_core. An unknown artifact is never enabled.
namespace abi {
int log_enabled(const char* artifact, int level) noexcept;
void log_write(const char* artifact, int level, const char* text) noexcept;
}  // namespace abi

}  // namespace tessera::core
