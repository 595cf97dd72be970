// SPDX-License-Identifier: Apache-2.0
// State of the calling thread that compiled code depends on whatever its arguments are.
#pragma once

#include <cstdint>

namespace tessera::core {

// One word, part of every key: bit 0, whether gradients are recorded (see set_grad_enabled).
uint64_t global_state() noexcept;
bool grad_enabled() noexcept;
bool set_grad_enabled(bool on) noexcept;                   // the value before
const char* global_state_text(uint64_t was, uint64_t is);  // what differs: "grad_mode"

}  // namespace tessera::core
