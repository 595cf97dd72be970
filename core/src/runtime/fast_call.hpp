// SPDX-License-Identifier: Apache-2.0
// The steady call: a static plan of kernels alone, flattened into one block of memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "tessera/embed.h"

namespace tessera::core {

class Plan;

// Everything that a call of such a plan reads stands in one allocation in the order in which it is read, because with many cached
// executables a call is as fast as the cache lines it touches are few. One call at a time uses a block; Plan keeps a few.
class FastCall {
 public:
  // Whether a plan can be run this way: one section, static sizes, kernels only, outputs in memory of their own.
  static bool fits(const Plan& plan);
  static FastCall* make(const Plan& plan);
  static void destroy(FastCall*) noexcept;

  // The inputs are as the plan's primary layout expects them. Outputs are new references. Throws what kernels report.
  void run(const Plan& plan, tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs);

 private:
  FastCall() = default;
  struct Launch;
  struct Patch;
  struct Output;
  struct Arena;
  struct Base;
  void set(Base& base, void* p);
  void prepare(tsr_tensor_handle* const* inputs);
  void launch(const Plan& plan);

  uint32_t num_inputs_ = 0, num_outputs_ = 0, num_launches_ = 0, num_arenas_ = 0;
  int threads_ = 0;
  Base* bases_ = nullptr;  // inputs, outputs, arenas
  Output* outputs_ = nullptr;
  Launch* launches_ = nullptr;
  Arena* arenas_ = nullptr;
  Patch* patches_ = nullptr;
};

// A lock-free bag of blocks for one plan: taking one is an exchange, so nothing can be taken twice.
class FastCallPool {
 public:
  FastCallPool() = default;
  ~FastCallPool();
  FastCallPool(const FastCallPool&) = delete;
  const FastCall* fill(const Plan& plan);  // makes the first block now
  void run(const Plan& plan, tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs);

 private:
  static constexpr size_t kPlaces = 3;  // calls in flight beyond that make their own
  std::atomic<FastCall*> places_[kPlaces] = {};
};

}  // namespace tessera::core
