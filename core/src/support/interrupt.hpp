// SPDX-License-Identifier: Apache-2.0
// Compiles that their caller may end: Ctrl-C in a language client.
#pragma once

#include <chrono>

#include "support/error.hpp"

namespace tessera::core {

// What ends a compile that its caller no longer wants. It is no fault of the program: nothing takes its place.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// While one lives, what this thread compiles asks the caller between passes and between kernels whether to go on. The answer
// null means yes; an error ends the compile. Scopes nest; the innermost one is asked.
class InterruptScope {
 public:
  using Ask = tsr_error* (*)(void* self);
  InterruptScope(Ask ask, void* self) noexcept;  // ask null: nobody is asked
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;

 private:
  friend void end_if_interrupted();
  Ask ask_;
  void* self_;
  InterruptScope* outer_;
  std::chrono::steady_clock::time_point last_{};  // the caller may have to wait for a lock: it is not asked all the time
};

// Throws Interrupted when the caller says so.
void end_if_interrupted();

}  // namespace tessera::core
