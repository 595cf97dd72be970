// SPDX-License-Identifier: Apache-2.0
// The embedding API as this library uses it.
#pragma once

#include <atomic>

#include "tessera/embed.h"
#include "tessera/types.hpp"

namespace tessera::detail {

extern constinit std::atomic<const tsr_api*> g_api;  // null until it is asked for
const tsr_api& load_api();
inline const tsr_api& api() {  // throws when libtessera is of another major version
  const tsr_api* const table = g_api.load(std::memory_order_acquire);
  return table ? *table : load_api();
}
inline const tsr_graph_api& graph_api() { return *api().host->graph; }
void check(tsr_error* e);  // throws the error as UserError, EnvironmentError or BugError and frees it
// For errors that this library finds itself.
[[noreturn]] void fail(const char* code, const std::string& message, const std::string& hint = {});
tsr_error* to_c(const Error& e);
// A text for the C table, where it ends at its first zero byte: one inside it is refused (TSR-E015). `what` names it in the
// message.
const char* c_text(const std::string& text, const char* what);

}  // namespace tessera::detail
