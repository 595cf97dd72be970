// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "plan/compile_options.hpp"

namespace tessera::core {

class Config;
class Context;

// How this context compiles; `config` is its own or one derived from it, `backends` a list that replaces the config's order.
CompileOptions compile_options(const std::shared_ptr<const Context>& context, const Config& config, const char* backends);

}  // namespace tessera::core
