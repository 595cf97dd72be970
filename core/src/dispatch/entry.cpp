// SPDX-License-Identifier: Apache-2.0
#include "dispatch/entry.hpp"

#include <algorithm>
#include <string>

#include "dispatch/scalar_inputs.hpp"
#include "plan/plan.hpp"
#include "support/error.hpp"

namespace tessera::core {

void Entry::set_key(uint64_t key_hash, uint64_t state, const uint64_t* words, size_t n) {
  if (state > kMaxState || n > kMaxKey)
    throw environment_error("TSR-R001",
                            "the guarded values of a call take " + std::to_string(8 * n) + " bytes, at most " +
                                std::to_string(8 * kMaxKey) + " fit an entry",
                            "pass shorter texts or fewer arguments");
  if (n > kInlineKey) long_key_ = std::make_unique<uint64_t[]>(n);
  hash = key_hash;
  state_and_size_ = static_cast<uint32_t>(state_and_size(state, n));
  std::copy_n(words, n, n > kInlineKey ? long_key_.get() : short_key_);
}

void Entry::run_slowly(const tsr_arg* args, tsr_tensor_handle** outputs) const {
  const uint32_t n = num_inputs;
  const uint32_t* from = inputs.data();
  const FastCall* const steady = executable->fast_call();
  if (trusted && num_scalars == 0 && steady) {  // it takes aligned inputs for granted: as good as all are
    bool aligned = true;
    for (uint32_t i = 0; i < n; ++i)
      aligned = aligned && reinterpret_cast<uintptr_t>(args[from[i]].tensor->desc.data) % kAlignment == 0;
    if (aligned && !steady->gives_away()) return steady->run(args, from, outputs);
    if (aligned && steady->run_giving(args, from, outputs)) return;
  }
  tsr_tensor_handle* stack[64];
  std::vector<tsr_tensor_handle*> heap;
  tsr_tensor_handle** in = stack;
  if (n > 64) {
    heap.resize(n);
    in = heap.data();
  }
  const uint32_t tensors = n - num_scalars;
  for (uint32_t i = 0; i < tensors; ++i) in[i] = args[from[i]].tensor;
  ScalarInputs scalars(num_scalars);
  for (uint32_t i = tensors; i < n; ++i) in[i] = scalars.add(args[from[i]]);
  if (trusted)
    executable->run_trusted(in, outputs);
  else
    executable->run({in, num_inputs}, {outputs, num_outputs}, true);
}

}  // namespace tessera::core
