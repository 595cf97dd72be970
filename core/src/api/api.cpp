// SPDX-License-Identifier: Apache-2.0
// The embedding API's table and the one exported symbol.
#include "api/api.hpp"

#include <cstdlib>

#include "log/progress.hpp"
#include "plugin/plugin_host.hpp"

namespace tessera::core::api {

namespace {

tsr_api make_table() {
  tsr_api t{};
  t.struct_size = sizeof t;
  t.abi_major = TSR_ABI_MAJOR;
  t.abi_minor = TSR_ABI_MINOR;
  t.version = host_version();
  t.host = &host();
  t.error_free = host_core().error_free;
  t.string_free = [](char* s) noexcept { std::free(s); };
  t.listen_to_progress = listen_to_progress;
  context_functions(t);
  tensor_functions(t);
  stream_functions(t);
  graph_functions(t);
  executable_functions(t);
  callable_functions(t);
  cache_functions(t);
  return t;
}

}  // namespace

}  // namespace tessera::core::api

extern "C" TSR_EXPORT const tsr_api* tsr_get_api(uint32_t abi_major) {
  if (abi_major != TSR_ABI_MAJOR) return nullptr;
  static const tsr_api table = tessera::core::api::make_table();
  return &table;
}
