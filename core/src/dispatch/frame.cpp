// SPDX-License-Identifier: Apache-2.0
#include "dispatch/frame.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace tessera::core {

namespace {

struct FrameRegistry {
  std::mutex mutex;
  int64_t next = 0, live = 0;
  std::map<std::string, int64_t> compiles, definitions;  // by code: "model.cpp:12 fn"
};
FrameRegistry& frame_registry() {
  static auto* r = new FrameRegistry;  // frames with static storage may go after any destructor here
  return *r;
}
std::string code_of(const Frame& f) { return f.place() + " " + f.name(); }

}  // namespace

std::string CompileId::text() const {
  std::string s = std::to_string(frame) + "/" + std::to_string(compile);
  if (attempt > 0) s += "_" + std::to_string(attempt);
  return s;
}

Frame::Frame(std::string name, std::string file, uint32_t line, Limits limits)
    : name_(std::move(name)), file_(std::move(file)), line_(line), limits_(limits) {}
Frame::~Frame() { reset(); }

std::string Frame::place() const { return line_ == 0 && file_ != "<unknown>" ? file_ : file_ + ":" + std::to_string(line_); }

void Frame::acquire() {
  if (id_ >= 0) return;
  FrameRegistry& r = frame_registry();
  const std::lock_guard lock(r.mutex);
  id_ = r.next++;
  ++r.live;
}

void Frame::reset() {
  warned = false;
  if (id_ < 0) return;
  id_ = -1;
  FrameRegistry& r = frame_registry();
  const std::lock_guard lock(r.mutex);
  if (--r.live == 0) r.next = 0;
  if (const auto at = r.compiles.find(code_of(*this)); at != r.compiles.end() && (at->second -= compiles_) <= 0)
    r.compiles.erase(at);
  compiles_ = 0;
}

int64_t Frame::define() {
  if (std::exchange(defined_, true)) return 0;
  FrameRegistry& r = frame_registry();
  const std::lock_guard lock(r.mutex);
  return ++r.definitions[code_of(*this)];
}

void Frame::finish() {
  ++compiles_;
  FrameRegistry& r = frame_registry();
  const std::lock_guard lock(r.mutex);
  ++r.compiles[code_of(*this)];
}

int64_t Frame::accumulated() const {
  FrameRegistry& r = frame_registry();
  const std::lock_guard lock(r.mutex);
  const auto at = r.compiles.find(code_of(*this));
  return at == r.compiles.end() ? 0 : at->second;
}

}  // namespace tessera::core
