// SPDX-License-Identifier: Apache-2.0
// Opens plugin libraries and keeps them open: unloading one that has run an OpenMP region or holds a device module crashes
// or silently zeroes results.
#pragma once

#include <string>

#include "config/faults.hpp"
#include "tessera/abi.h"

namespace tessera::core {

enum class OpenProblem { kNone, kNotALibrary, kMissingDependency, kUndefinedSymbol, kNoEntryPoint, kReplaced };

struct OpenResult {
  tsr_plugin_query_fn query = nullptr;
  OpenProblem problem = OpenProblem::kNone;
  std::string reason;  // the dynamic linker's own words
};

// Binds every symbol at once (now) and keeps them to itself (local). One library file is opened once per process; `hash` is
// that of its bytes, and another one for the same file is refused: the process would go on running the old code.
// Thread-safe.
OpenResult open_library(const std::string& path, const std::string& hash);

}  // namespace tessera::core
