// SPDX-License-Identifier: Apache-2.0
// The steady call: a static plan of kernels alone, flattened into one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/embed.h"

namespace tessera::core {

class Plan;
struct ThreadCache;
struct TensorImage;

// Everything that a call of such a plan reads stands in one block in the order in which it is read, because with many cached
// executables a call is as fast as the cache lines it touches are few; what describes a tensor is shared with every block that
// has one like it. The block is not written once it is in use: a call describes the tensors of one launch after the other on
// its stack, so that any number of threads share a block without taking turns.
class FastCall {
 public:
  // Null: the plan cannot be run this way. It takes one section, static sizes, kernels only, and outputs in memory of their
  // own. The plan outlives what is made of it.
  struct Free {
    void operator()(const FastCall*) const noexcept;
  };
  using Owner = std::unique_ptr<const FastCall, Free>;
  static Owner make(const Plan& plan);

  // The inputs are as the plan's primary layout expects them. Outputs are new references. Throws what kernels report.
  void run(tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const;
  // Graph input i is the tensor args[leaves[i]], or, when `leaves` is null, args[i].
  void run(const tsr_arg* args, const uint32_t* leaves, tsr_tensor_handle** outputs) const;
  // The address of graph input i's data is bases[1 + i]; there is room for kFewBases, and what else stands there goes. Only of
  // a block that does with so many.
  static constexpr size_t kFewBases = 256;
  void run_on(void** bases, tsr_tensor_handle** outputs) const;
  bool runs_on_few_bases() const;
  // Whether outputs lie in the memory of donated states. Then only these run it; false: some state's memory is held by others,
  // and nothing has happened.
  bool gives_away() const;
  bool run_giving(tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const;
  bool run_giving(const tsr_arg* args, const uint32_t* leaves, tsr_tensor_handle** outputs) const;
  // On plain tensors, into memory that the caller gives. False: an input is not as the primary layout expects it, and nothing
  // has happened.
  bool run_raw(const tsr_raw_call& call) const;

  // Gives outputs the number of their type from now on (Tensor::type). Thread-safe; the same number for the same type, always.
  void number_outputs(uint32_t (*number_of)(const tsr_tensor&)) const;

 private:
  FastCall() = default;
  struct Launch;
  struct Output;
  struct Arena;
  struct Place;
  struct Held;
  class Maker;
  template <class T>
  const T* at(uint32_t offset) const {
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(this) + offset);
  }
  template <class DataOf>
  void run_with(DataOf data_of, tsr_tensor_handle** outputs) const;
  template <class HandleOf>
  bool run_giving(HandleOf handle_of, tsr_tensor_handle** outputs) const;
  void launch_on(void** bases, void** base, ThreadCache* cache, Held& held) const;
  void launch(void* const* bases) const;
  [[gnu::noinline]] void launch_limited(void* const* bases) const;
  [[gnu::cold, gnu::noinline]] void failed(const Launch& l, tsr_error* e) const;

  // The outputs follow; the rest stands at distances in bytes from here.
  struct Cold;
  const Cold* cold_ = nullptr;  // what a call does not read
  uint16_t num_inputs_ = 0, num_outputs_ = 0, num_arenas_ = 0, num_fixed_ = 0, num_places_ = 0, num_launches_ = 0;
  int16_t threads_ = 0;
  uint16_t arenas_ = 0;
  uint32_t fixed_ = 0, places_ = 0, launches_ = 0;
  uint32_t operands_ = 0, bases_ = 0;  // of all launches
  uint32_t dims_ = 0;                  // values of the size program
};

}  // namespace tessera::core
