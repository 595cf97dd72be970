// SPDX-License-Identifier: Apache-2.0
// Puts an object that clang has made into memory and makes it executable, without LLVM: a process that finds all of its kernels
// in the cache neither loads nor initialises the compiler.
#pragma once

#include <string>
#include <vector>

#include "compiler.hpp"

namespace cpu {

// What kernels consist of: code and constants of one x86-64 ELF object, position independent, with relative references between
// them and calls of functions of the C library (fmaf, sin). Null: anything else is in it, or a symbol is missing; ORC then
// links it or says what is wrong. Every offset is checked before it is followed.
ModulePtr load_elf(const std::string& object, const std::vector<std::string>& symbols);

}  // namespace cpu
