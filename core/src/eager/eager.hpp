// SPDX-License-Identifier: Apache-2.0
// Single ops on concrete tensors: one-op executables, cached by signature.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "plan/compile_options.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Context;
class Executable;

// Thread-safe; a hit takes no lock. Runs on the config's fallback backend, the one that takes every op.
class EagerCache {
 public:
  explicit EagerCache(std::shared_ptr<const Context> context);
  ~EagerCache();

  // Operands may be null (omitted). Results are new references, at most `capacity`. Throws TSR-O001 (unknown op), TSR-I
  // (operands or attributes that do not fit the record), TSR-R.
  void run(const char* op, tsr_tensor_handle* const* operands, size_t num_operands, const tsr_attr* attrs, size_t num_attrs,
           tsr_tensor_handle** results, size_t capacity, size_t* num_results);

 private:
  struct Generation;
  struct Entry;
  std::unique_ptr<Executable> compile(const char* op, tsr_tensor_handle* const* operands, size_t num_operands,
                                      const tsr_attr* attrs, size_t num_attrs) const;

  std::shared_ptr<const Context> context_;
  CompileOptions options_;
  std::atomic<Generation*> current_;
  std::atomic<int64_t> readers_{0};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Generation>> generations_;  // the last is current; others wait until no reader can be in them
};

}  // namespace tessera::core
