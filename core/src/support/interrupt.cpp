// SPDX-License-Identifier: Apache-2.0
#include "support/interrupt.hpp"

namespace tessera::core {

namespace {
thread_local InterruptScope* t_scope = nullptr;
constexpr std::chrono::milliseconds kBetween{10};
}  // namespace

InterruptScope::InterruptScope(Ask ask, void* self) noexcept : ask_(ask), self_(self), outer_(t_scope) { t_scope = this; }
InterruptScope::~InterruptScope() { t_scope = outer_; }

void end_if_interrupted() {
  InterruptScope* const scope = t_scope;
  if (!scope || !scope->ask_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - scope->last_ < kBetween) return;
  scope->last_ = now;
  tsr_error* const answer = scope->ask_(scope->self_);
  try {
    throw_if(answer);
  } catch (const Error& e) {
    throw Interrupted(e.family(), e.code(), e.message(), e.hint());
  }
}

}  // namespace tessera::core
