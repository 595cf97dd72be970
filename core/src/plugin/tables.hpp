// SPDX-License-Identifier: Apache-2.0
// What the host demands of a factory table, by kind: the prefix of the first stable version and the fields that must be set.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

// The host's copy of a plugin's table: full size, a missing tail is zero, arrays of the table in the host's own stride.
struct TableCopy {
  std::unique_ptr<std::byte[]> bytes;
  std::vector<std::unique_ptr<std::byte[]>> arrays;
  const void* get() const { return bytes.get(); }
};

struct TableProblem {
  std::string code, message;  // TSR-P043, TSR-P044
};

// Problems name the factory ("backend:npu"). Reads no more of `table` than its struct_size says.
TableCopy copy_table(tsr_kind kind, const std::string& factory, const void* table, std::vector<TableProblem>* problems);

// Copies min(struct_size, size) bytes of a struct that begins with its size; the rest is zero. 0: it does not even hold the
// size, or less than `prefix` bytes; *found is what it says.
bool read_prefix(const void* source, size_t prefix, size_t size, void* out, size_t* found);

}  // namespace tessera::core
