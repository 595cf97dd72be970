// SPDX-License-Identifier: Apache-2.0
#include "dispatch/global_state.hpp"

#include <utility>

#include "runtime/pool.hpp"

namespace tessera::core {

namespace {
constinit thread_local uint64_t t_state TESSERA_INITIAL_EXEC = 1;
}

uint64_t global_state() noexcept { return t_state; }
bool grad_enabled() noexcept { return t_state & 1; }
bool set_grad_enabled(bool on) noexcept { return std::exchange(t_state, on ? t_state | 1 : t_state & ~uint64_t{1}) & 1; }
const char* global_state_text(uint64_t was, uint64_t is) { return (was ^ is) & 1 ? "grad_mode" : ""; }

}  // namespace tessera::core
