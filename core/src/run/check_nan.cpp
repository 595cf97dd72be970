// SPDX-License-Identifier: Apache-2.0
#include "run/check_nan.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "memory/copy.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

int64_t elements(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.sizes[i];
  return n;
}

// The index of the first NaN among the elements in row-major order; -1: there is none.
int64_t first_nan(const tsr_tensor& t) {
  const int64_t n = elements(t);
  std::vector<int64_t> index(t.rank, 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(load_as<double>(t.dtype, t.data, offset))) return i;
    for (uint32_t d = t.rank; d-- > 0;) {
      offset += t.strides[d];
      if (++index[d] < t.sizes[d]) break;
      offset -= t.strides[d] * t.sizes[d];
      index[d] = 0;
    }
  }
  return -1;
}

}  // namespace

void throw_if_nan(RunState& state, const SectionRun::Ready& step) {
  // The steps of nested plans are looked at one by one; sizes and copies make no numbers.
  if (step.instruction->kind != Instruction::kLaunch && step.instruction->kind != Instruction::kCompute) return;
  for (uint32_t i = 0; i < step.launch.num_outputs; ++i) {
    const tsr_tensor& t = step.launch.outputs[i];
    if (!is_float(t.dtype) || elements(t) == 0) continue;
    int64_t at = -1;
    if (t.device == kCpu) {
      at = first_nan(t);
    } else {
      Stream* const stream = state.stream_of(t.device);
      std::vector<char> bytes(static_cast<size_t>(storage_bytes(t.dtype, elements(t))));
      std::vector<int64_t> strides(t.rank);
      dense_strides({t.sizes, t.rank}, strides.data());
      const tsr_tensor host{bytes.data(), t.dtype, t.rank, t.sizes, strides.data(), kCpu, TSR_TENSOR_CONTIGUOUS};
      copy_tensor(host, t, nullptr, stream);
      if (stream) stream->synchronize(Wait::kNone);
      at = first_nan(host);
    }
    if (at >= 0)
      throw user_error(
          "TSR-R051",
          "a NaN at element " + std::to_string(at) + " of result " + std::to_string(i) + ", where runtime.check_nan ends a run",
          "it is the first step of the run that gives one: look at what it was given");
  }
}

}  // namespace tessera::core
