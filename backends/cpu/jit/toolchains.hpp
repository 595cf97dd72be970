// SPDX-License-Identifier: Apache-2.0
// The two ways from text to an object and from an object to addresses, behind Compiler.
#pragma once

#include <string>
#include <vector>

#include "compiler.hpp"
#include "jit_api.h"

namespace cpu {

// clang inside this process. The library is opened on the first call; TSR-J002 when it cannot be.
const cpu_jit_api& clang_api();
std::string clang_build(const Source&, const Isa&);
ModulePtr clang_load(const Source&, const std::string& object);

// A compiler as a process. `system_version` runs it once per process and path: the first line of --version. TSR-J003 when it
// cannot be started.
std::string system_version(const std::string& compiler);
std::string system_build(const Source&, const Isa&, const std::string& compiler);  // bytes of a shared library
ModulePtr system_load(const Source&, const std::string& library);

// TSR-J001: what the compiler said, with the numbered lines that it is about.
[[noreturn]] void fail_text(const Source&, const std::string& messages);

}  // namespace cpu
