// SPDX-License-Identifier: Apache-2.0
// State of the calling thread that compiled code depends on whatever its arguments are.
#pragma once

#include <cstdint>

#include "memory/pool.hpp"

namespace tessera::core {

extern constinit thread_local uint64_t t_global_state TESSERA_INITIAL_EXEC;
// One word, part of every key: bit 0, whether gradients are recorded (see set_grad_enabled).
inline uint64_t global_state() noexcept { return t_global_state; }
bool grad_enabled() noexcept;
bool set_grad_enabled(bool on) noexcept;                   // the value before
const char* global_state_text(uint64_t was, uint64_t is);  // what differs: "grad_mode"

}  // namespace tessera::core
