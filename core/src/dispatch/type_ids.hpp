// SPDX-License-Identifier: Apache-2.0
// Numbers for types of tensors: what guards fix about a tensor's description, in one word.
#pragma once

#include <cstdint>

#include "memory/tensor.hpp"

namespace tessera::core {

// Two tensors have the same number if and only if they have the same dtype, device, flags, rank, sizes and, unless they are
// row-major, strides: numbers are given under a lock after a comparison in full, never given twice, and never taken back. A
// tensor's description does not change while it lives, so that its number may stand in its handle. Only what compiled code
// takes and makes gets a number: there are as many as different types in all compiles of the process. Numbers fit 31 bits.

// The number of a type, given to it now if it has none. Thread-safe; takes a lock. Throws TSR-R001 when numbers run out.
uint32_t give_type_number(const tsr_tensor& t);

// 0: no type like this has a number, so no compiled code was made for it. Takes no lock and allocates nothing.
uint32_t find_type_number(const tsr_tensor& t) noexcept;

// The same, and notes it in the tensor.
[[gnu::cold]] uint32_t note_type_number(Tensor& t) noexcept;

// As find_type_number, and looks at the description only until the tensor's type has a number.
inline uint32_t known_type_of(tsr_tensor_handle* h) noexcept {
  Tensor& t = *Tensor::from(h);
  const uint32_t n = __atomic_load_n(&t.type, __ATOMIC_RELAXED);
  return n != 0 ? n : note_type_number(t);
}

}  // namespace tessera::core
