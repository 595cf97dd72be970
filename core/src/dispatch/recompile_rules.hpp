// SPDX-License-Identifier: Apache-2.0
// When a frame may not be compiled once more: the limits, and what the config says about them. One set of rules for functions
// and for their continuations.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::core {

class Config;
class Frame;

struct RecompileRules {
  bool error_on_recompile = false;  // guards.error_on_recompile
  bool fail_on_limit = false;       // guards.fail_on_recompile_limit_hit
  static RecompileRules of(const Config& config);

  struct Limit {
    const char* key = nullptr;  // of the limit that is hit; null: none
    int64_t value = 0;
    explicit operator bool() const { return key != nullptr; }
  };
  // `compiled`: how many versions of the frame are kept.
  static Limit limit_hit(const Frame& frame, int64_t compiled);

  // Before a compile, or before a run without one because of `limit`. Throws TSR-D012 where a limit is an error, TSR-D011 where
  // a recompile is one. `recompile`: there are versions, and their guards failed; `last_reason`: of the most recently used one.
  void check(const Frame& frame, const Limit& limit, bool recompile, const std::string& last_reason) const;
  // Throws TSR-D010: the stance forbids every compile.
  [[noreturn]] static void refuse(const Frame& frame, const std::string& last_reason);
};

}  // namespace tessera::core
