// SPDX-License-Identifier: Apache-2.0
#include "dispatch/stance.hpp"

#include <string>
#include <utility>
#include <vector>

#include "support/error.hpp"

namespace tessera::core {

constinit std::atomic<Stance> g_stance{Stance::kDefault};

namespace {
constexpr const char* kNames[] = {"default",           "force_eager",        "eager_on_recompile",
                                  "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile"};
constinit thread_local bool t_reuse_only = false;
}  // namespace

const char* stance_name(Stance s) noexcept { return kNames[static_cast<size_t>(s)]; }

Stance set_stance(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return g_stance.exchange(static_cast<Stance>(i));
  const std::vector<std::string> known(std::begin(kNames), std::end(kNames));
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  throw user_error("TSR-D004", "unknown stance '" + std::string(name) + "'" + did_you_mean(name, known), "one of: " + list);
}

bool reuse_only() noexcept { return t_reuse_only; }
bool set_reuse_only(bool on) noexcept { return std::exchange(t_reuse_only, on); }

}  // namespace tessera::core
