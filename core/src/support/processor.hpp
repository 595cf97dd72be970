// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tessera::core {

// What tells this processor from others, its instructions included, as text for keys of caches.
const std::string& processor_text();

}  // namespace tessera::core
