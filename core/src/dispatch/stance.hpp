// SPDX-License-Identifier: Apache-2.0
// How compiled functions behave as a whole, for the process; and whether this thread may compile.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace tessera::core {

enum class Stance : uint8_t {
  kDefault,
  kForceEager,           // nothing compiled is used
  kEagerOnRecompile,     // entries are used; what misses runs without
  kFailOnRecompile,      // entries are used; what misses is an error
  kEagerThenCompile,     // a function's first call runs without, and shows which sizes vary
  kAotEagerThenCompile,  // the same, through the passes to the fallback backend
};
extern constinit std::atomic<Stance> g_stance;
inline Stance stance() noexcept { return g_stance.load(std::memory_order_relaxed); }
const char* stance_name(Stance s) noexcept;  // "eager_on_recompile"
Stance set_stance(std::string_view name);    // what it was; throws TSR-D004 for an unknown name

// While it is set, calls on this thread use the entries there are and compile nothing: what a function past its limit calls.
bool reuse_only() noexcept;
bool set_reuse_only(bool on) noexcept;  // what it was

}  // namespace tessera::core
