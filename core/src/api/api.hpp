// SPDX-License-Identifier: Apache-2.0
// The functions behind the tables of embed.h and abi.h, by topic. Every function here is noexcept: exceptions become tsr_error.
#pragma once

#include <memory>
#include <string>

#include "compile/config_options.hpp"
#include "context/context.hpp"
#include "support/error.hpp"
#include "support/required.hpp"
#include "tessera/embed.h"

namespace tessera::core {
class EagerCache;
}

// A context as clients hold it.
struct tsr_context {
  std::shared_ptr<const tessera::core::Context> context;
  std::unique_ptr<tessera::core::EagerCache> eager;
};

namespace tessera::core::api {

const tsr_host& host();  // the table handed to plugins, with graph and capture services

using core::compile_options;
using core::refuse_null;
using core::required;

char* to_c_string(const std::string& s);  // string_free frees it
// Fill in their part of the table.
void context_functions(tsr_api&);
void tensor_functions(tsr_api&);
void stream_functions(tsr_api&);
void graph_functions(tsr_api&);
void executable_functions(tsr_api&);
void callable_functions(tsr_api&);
void cache_functions(tsr_api&);

}  // namespace tessera::core::api
