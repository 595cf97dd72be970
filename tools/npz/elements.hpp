// SPDX-License-Identifier: Apache-2.0
//
// Between numpy's element types and Tessera's dtypes. A dtype that numpy lacks (bf16, f8, f4e2m1, 2 and 4 bits) travels
// as raw bytes, |V1 or |V2, sub-byte elements unpacked: one byte each, signed ones sign-extended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "npz/npz.hpp"

namespace tessera::npz {

// "<f4" for f32, "|V2" for bf16, "|V1" for f8*, f4e2m1, i2, i4, u2 and u4; empty for what is not a dtype.
[[nodiscard]] std::string descr_of(uint32_t dtype);

// The array's elements in the memory layout of `dtype` (packed, if it is), contiguous. The array must have the dtype's
// own descr, or be raw bytes of the same width; i2 and i4 also take |i1, u2 and u4 |u1. Throws Error: TSR-N007 for
// another element type, TSR-N008 for a byte that is no value of a sub-byte type. `file` is for the message.
[[nodiscard]] std::vector<std::byte> to_elements(const Array& array, uint32_t dtype, const std::string& file);

// The array that holds `data`, contiguous elements of `dtype` in its memory layout. Preconditions: a valid dtype and
// shape.
[[nodiscard]] Array from_elements(std::string name, uint32_t dtype, std::vector<int64_t> shape, const void* data);

}  // namespace tessera::npz
