// SPDX-License-Identifier: Apache-2.0
// Between memory of any dtype and runs of a compute type.
#pragma once

#include "tessera/dtypes.hpp"
#include "tile.hpp"
#include "view.hpp"

namespace eager {

// f64, f32 for f32 and narrower floats, i32 for integers that fit it, i64 (u32 included), u64, u8 for bool, c64, c128.
Comp comp_of(uint32_t dtype);
int64_t comp_size(Comp c);
// Memory of `dtype` is an array of comp_of(dtype): no conversion needed. A bool byte may hold any non-zero value.
bool is_native(uint32_t dtype);

// dst[i] = element index + i * stride, for i in [0, n), as comp_of(dtype); bools become 0 or 1.
void load_run(const Isa& isa, uint32_t dtype, const void* base, int64_t index, int64_t stride, int64_t n, void* dst);
// Stores n values of comp_of(dtype) at index, index + 1, ..; rounds or wraps once. For packed dtypes no other thread may be
// writing the bytes at both ends.
void store_run(const Isa& isa, uint32_t dtype, void* base, int64_t index, int64_t n, const void* src);

// A pointer to the run as comp_of(dtype): into memory when it lies there as such, else `buffer` filled by load_run.
inline const void* run_pointer(const Isa& isa, uint32_t dtype, const void* base, int64_t index, int64_t stride, int64_t n,
                               void* buffer) {
  if ((stride == 1 || n == 1) && is_native(dtype)) return static_cast<const char*>(base) + index * comp_size(comp_of(dtype));
  load_run(isa, dtype, base, index, stride, n, buffer);
  return buffer;
}

// dst[j .. j + width) for n elements of `width` bytes that may have a stride: 1, 2, 4, 8 or 16 bytes.
inline int64_t element_bytes(uint32_t dtype) { return tessera::dtype_bits(dtype) / 8; }  // 0: packed

template <class F>
decltype(auto) with_comp(Comp c, F&& f) {
  switch (c) {
    case Comp::F32: return f(float{});
    case Comp::F64: return f(double{});
    case Comp::I32: return f(int32_t{});
    case Comp::I64: return f(int64_t{});
    case Comp::U64: return f(uint64_t{});
    case Comp::U8: return f(uint8_t{});
    case Comp::C64: return f(C64{});
    case Comp::C128: break;
  }
  return f(C128{});
}

}  // namespace eager
