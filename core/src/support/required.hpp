// SPDX-License-Identifier: Apache-2.0
// Pointers that a client has to give.
#pragma once

#include <string>

#include "support/error.hpp"

namespace tessera::core {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_null(const char* what) {
  throw user_error("TSR-E002", std::string("a null pointer was passed as ") + what);
}
// A null pointer from a client is the client's mistake, not a crash.
template <class T>
T& required(T* p, const char* what) {
  if (!p) [[unlikely]]
    refuse_null(what);
  return *p;
}

}  // namespace tessera::core
