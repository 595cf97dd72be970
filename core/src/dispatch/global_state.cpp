// SPDX-License-Identifier: Apache-2.0
#include "dispatch/global_state.hpp"

#include <utility>

namespace tessera::core {

constinit thread_local uint64_t t_global_state TESSERA_INITIAL_EXEC = 1;

bool grad_enabled() noexcept { return t_global_state & 1; }
bool set_grad_enabled(bool on) noexcept {
  return std::exchange(t_global_state, on ? t_global_state | 1 : t_global_state & ~uint64_t{1}) & 1;
}
const char* global_state_text(uint64_t was, uint64_t is) { return (was ^ is) & 1 ? "grad_mode" : ""; }

}  // namespace tessera::core
