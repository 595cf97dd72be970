// SPDX-License-Identifier: Apache-2.0
#include "trace/trace.hpp"

#include <pthread.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "log/log.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "trace/trace_file.hpp"

namespace tessera::core {

namespace detail {
std::atomic<int> g_trace{-1};
}

namespace {

struct State {
  std::mutex mutex;
  std::string dir;
  TraceFile file;
  std::atomic<int64_t> start{0};  // trace_clock() at the first line
  bool hooked = false;
  std::atomic<uint64_t> next_compile{1};
  std::atomic<int64_t> next_thread{0};
};

// Never destroyed: plugins may compile from static destructors.
State& state() {
  static State* s = new State;
  return *s;
}

struct OpenCompile {
  uint64_t id;
  bool details;
  std::string name, place;
};
thread_local std::vector<OpenCompile> t_compiles;

int64_t thread_number() {
  thread_local const int64_t number = state().next_thread++;
  return number;
}

using Json = nlohmann::ordered_json;
std::string json_string(std::string_view s) {
  return Json(std::string(s)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string s((std::istreambuf_iterator<char>(in)), {});
  while (!s.empty() && s.back() == '\0') s.pop_back();
  for (char& c : s)
    if (c == '\0') c = ' ';
  constexpr size_t kLimit = 1000;
  if (s.size() > kLimit) s.replace(kLimit, s.npos, "...");
  return s;
}

// Requires the mutex.
std::string header() {
  const auto unix_us =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  Json j;
  j["event"] = "process";
  j["t"] = 0.0;
  j["thread"] = thread_number();
  j["schema"] = kTraceSchema;
  j["pid"] = static_cast<int64_t>(getpid());
  j["unix_us"] = unix_us;
  j["command"] = command_line();
  j["version"] = host_version();
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Requires the mutex.
void give_up(State& s, const std::string& why, const char* what = "nothing more is recorded") {
  detail::g_trace.store(0, std::memory_order_relaxed);
  s.file.close();
  set_log_tap(nullptr, {});
  log_warning(std::string(what) + " in '" + s.dir + "': " + why);
}

// Requires the mutex.
bool open(State& s) {
  if (const std::string why = s.file.open(s.dir, getpid()); !why.empty()) {
    give_up(s, why, "nothing is recorded");
    return false;
  }
  s.start.store(trace_clock(), std::memory_order_relaxed);
  if (const int code = s.file.write(header()); code != 0) {
    give_up(s, std::strerror(code));
    return false;
  }
  return true;
}

void write_line(std::string line) {
  line += '\n';
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.file.is_open()) return;
  if (const int code = s.file.write(line); code != 0) give_up(s, std::strerror(code));
}

// A lock that another thread holds while a process forks would stay held in the child.
void hook_process(State& s) {
  if (std::exchange(s.hooked, true)) return;
  pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                 [] {
                   State& child = state();
                   if (child.file.is_open()) open(child);
                   child.mutex.unlock();
                 });
  std::atexit([] {
    if (detail::g_trace.load(std::memory_order_relaxed) > 0) TraceEvent("process_end").write();
  });
}

// Texts that have no event of their own: what plugins and the compiler say under these artifacts.
constexpr Artifact kTapped[] = {Artifact::kOutputCode, Artifact::kKernelCode, Artifact::kSchedule,  Artifact::kFusion,
                                Artifact::kPerfHints,  Artifact::kCudagraphs, Artifact::kAutotuning};

void tap(Artifact artifact, std::string_view text) {
  if (trace_enabled()) TraceEvent("log").text("artifact", artifact_name(artifact)).text("text", text).write();
}

}  // namespace

int64_t trace_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool detail::trace_from_environment() {
  static const bool asked = [] {
    const char* dir = std::getenv("TESSERA_TRACE");
    if (dir && *dir) return start_trace(dir);
    int unread = -1;
    g_trace.compare_exchange_strong(unread, 0);
    return false;
  }();
  (void)asked;
  return g_trace.load(std::memory_order_relaxed) > 0;
}

bool start_trace(const std::string& dir) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.dir = dir;
  if (!open(s)) return false;
  hook_process(s);
  set_log_tap(tap, kTapped);
  detail::g_trace.store(1, std::memory_order_relaxed);
  return true;
}

void stop_trace() {
  if (!trace_enabled()) return;
  TraceEvent("process_end").write();
  State& s = state();
  const std::lock_guard lock(s.mutex);
  detail::g_trace.store(0, std::memory_order_relaxed);
  set_log_tap(nullptr, {});
  s.file.close();
}

std::string trace_file() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return s.file.path();
}

// --------------------------------------------------------------------------------------------------------------- events

TraceEvent::TraceEvent(const char* event, int64_t clock) {
  line_ = "{\"event\":\"";
  line_ += event;
  line_ += '"';
  real("t", static_cast<double>(clock - state().start.load(std::memory_order_relaxed)) * 1e-3);
  number("thread", thread_number());
  if (!t_compiles.empty()) number("compile", static_cast<int64_t>(t_compiles.back().id));
}

void TraceEvent::key(const char* name) {
  line_ += ",\"";
  line_ += name;
  line_ += "\":";
}

TraceEvent& TraceEvent::text(const char* name, std::string_view value) {
  key(name);
  line_ += json_string(value);
  return *this;
}

TraceEvent& TraceEvent::number(const char* name, int64_t value) {
  key(name);
  line_ += std::to_string(value);
  return *this;
}

TraceEvent& TraceEvent::real(const char* name, double value) {
  key(name);
  if (!std::isfinite(value)) {
    line_ += "null";
    return *this;
  }
  char digits[64];
  auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, 3);
  if (end.ec != std::errc{}) end = std::to_chars(digits, digits + sizeof digits, value);  // more than sixty digits
  line_.append(digits, end.ptr);
  return *this;
}

TraceEvent& TraceEvent::flag(const char* name, bool value) {
  key(name);
  line_ += value ? "true" : "false";
  return *this;
}

TraceEvent& TraceEvent::texts(const char* name, std::span<const std::string> values) {
  key(name);
  line_ += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i) line_ += ',';
    line_ += json_string(values[i]);
  }
  line_ += ']';
  return *this;
}

TraceEvent& TraceEvent::json(const char* name, std::string_view value) {
  key(name);
  // Indented JSON becomes one line: outside of strings, where it would be escaped, a newline only separates.
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i] != '\n') {
      line_ += value[i];
      continue;
    }
    while (i + 1 < value.size() && value[i + 1] == ' ') ++i;
  }
  return *this;
}

TraceEvent& TraceEvent::since(int64_t begin) { return real("us", static_cast<double>(trace_clock() - begin) * 1e-3); }

void TraceEvent::write() {
  line_ += '}';
  write_line(std::move(line_));
}

// ------------------------------------------------------------------------------------------------------------- compiles

TraceCompile::TraceCompile(const TraceSubject& subject) {
  if (!trace_enabled()) return;
  // Single ops and evaluated constants come in thousands.
  const bool details = std::strcmp(subject.kind, "op") != 0 && std::strcmp(subject.kind, "constant") != 0;
  const std::string host_stack = details ? host_stack_json() : std::string();  // its cost is not the compile's
  id_ = state().next_compile++;
  begin_ = trace_clock();
  exceptions_ = std::uncaught_exceptions();
  Json stack = Json::array();
  for (auto at = t_compiles.rbegin(); at != t_compiles.rend(); ++at)
    stack.push_back({{"compile", at->id}, {"name", at->name}, {"loc", at->place}});
  t_compiles.push_back({id_, details, subject.name, subject.place});
  TraceEvent e("compile_begin", begin_);
  e.text("kind", subject.kind).text("name", subject.name);
  if (!subject.place.empty()) e.text("loc", subject.place);
  if (!subject.entry.empty()) e.text("entry", subject.entry);
  e.json("stack", stack.dump(-1, ' ', false, Json::error_handler_t::replace));
  if (details) e.json("host_stack", host_stack);
  e.write();
}

void TraceCompile::failed(const Error& error) {
  if (id_ == 0) return;
  static const char* const kFamilies[] = {"?", "user", "environment", "bug"};
  error_ = Json{{"code", error.code()},
                {"family", kFamilies[error.family() <= TSR_BUG ? error.family() : 0]},
                {"message", error.message()},
                {"hint", error.hint()}}
               .dump(-1, ' ', false, Json::error_handler_t::replace);
}

TraceCompile::~TraceCompile() {
  if (id_ == 0) return;
  const bool ok = error_.empty() && std::uncaught_exceptions() <= exceptions_;
  if (trace_enabled()) {
    TraceEvent e("compile_end");
    e.since(begin_).flag("ok", ok);
    if (!error_.empty()) e.json("error", error_);
    e.write();
  }
  t_compiles.pop_back();
}

bool trace_details() { return trace_enabled() && !t_compiles.empty() && t_compiles.back().details; }

TracePhase::~TracePhase() {
  if (begin_ >= 0 && trace_enabled()) TraceEvent("phase", begin_).text("name", name_).since(begin_).write();
}

}  // namespace tessera::core
