// SPDX-License-Identifier: Apache-2.0
#include "convert.hpp"

#include <cstring>

namespace eager {

Comp comp_of(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return Comp::F64;
    case TSR_U32:
    case TSR_I64: return Comp::I64;
    case TSR_U64: return Comp::U64;
    case TSR_BOOL: return Comp::U8;
    case TSR_C64: return Comp::C64;
    case TSR_C128: return Comp::C128;
    default: return tessera::is_float(dtype) ? Comp::F32 : Comp::I32;
  }
}

int64_t comp_size(Comp c) {
  switch (c) {
    case Comp::F32:
    case Comp::I32: return 4;
    case Comp::F64:
    case Comp::I64:
    case Comp::U64:
    case Comp::C64: return 8;
    case Comp::U8: return 1;
    case Comp::C128: return 16;
  }
  return 0;
}

bool is_native(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64:
    case TSR_F32:
    case TSR_I32:
    case TSR_I64:
    case TSR_U64:
    case TSR_BOOL:
    case TSR_C64:
    case TSR_C128: return true;
    default: return false;
  }
}

namespace {

template <class S, class D, class F>
void map_strided(const void* base, int64_t index, int64_t stride, int64_t n, void* dst, F f) {
  const S* s = static_cast<const S*>(base) + index;
  D* d = static_cast<D*>(dst);
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) d[i] = f(s[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) d[i] = f(s[i * stride]);
  }
}
template <class S, class D>
void copy_strided(const void* base, int64_t index, int64_t stride, int64_t n, void* dst) {
  if (stride == 1 && sizeof(S) == sizeof(D)) {
    std::memcpy(dst, static_cast<const S*>(base) + index, static_cast<size_t>(n) * sizeof(S));
    return;
  }
  map_strided<S, D>(base, index, stride, n, dst, [](const S& x) { return static_cast<D>(x); });
}

// 16-bit floats: a strided run is first made contiguous, piece by piece.
template <class F>
void load_half(F convert, const void* base, int64_t index, int64_t stride, int64_t n, float* dst) {
  const auto* s = static_cast<const uint16_t*>(base) + index;
  if (stride == 1) return convert(s, dst, n);
  uint16_t piece[64];
  for (int64_t i = 0; i < n; i += 64) {
    const int64_t m = n - i < 64 ? n - i : 64;
    for (int64_t j = 0; j < m; ++j) piece[j] = s[(i + j) * stride];
    convert(piece, dst + i, m);
  }
}

template <class D, class S>
void store_narrow(void* base, int64_t index, int64_t n, const void* src) {
  D* d = static_cast<D*>(base) + index;
  const S* s = static_cast<const S*>(src);
  for (int64_t i = 0; i < n; ++i) d[i] = static_cast<D>(s[i]);
}

}  // namespace

void load_run(const Isa& isa, uint32_t dtype, const void* base, int64_t index, int64_t stride, int64_t n, void* dst) {
  switch (dtype) {
    case TSR_F64: return copy_strided<double, double>(base, index, stride, n, dst);
    case TSR_F32: return copy_strided<float, float>(base, index, stride, n, dst);
    case TSR_F16: return load_half(isa.f16_to_f32, base, index, stride, n, static_cast<float*>(dst));
    case TSR_BF16: return load_half(isa.bf16_to_f32, base, index, stride, n, static_cast<float*>(dst));
    case TSR_F8E4M3FN: return map_strided<uint8_t, float>(base, index, stride, n, dst, tessera::f8e4m3fn_to_float);
    case TSR_F8E4M3FNUZ: return map_strided<uint8_t, float>(base, index, stride, n, dst, tessera::f8e4m3fnuz_to_float);
    case TSR_F8E5M2: return map_strided<uint8_t, float>(base, index, stride, n, dst, tessera::f8e5m2_to_float);
    case TSR_F8E5M2FNUZ: return map_strided<uint8_t, float>(base, index, stride, n, dst, tessera::f8e5m2fnuz_to_float);
    case TSR_F8E8M0: return map_strided<uint8_t, float>(base, index, stride, n, dst, tessera::f8e8m0_to_float);
    case TSR_I8: return copy_strided<int8_t, int32_t>(base, index, stride, n, dst);
    case TSR_I16: return copy_strided<int16_t, int32_t>(base, index, stride, n, dst);
    case TSR_I32: return copy_strided<int32_t, int32_t>(base, index, stride, n, dst);
    case TSR_I64: return copy_strided<int64_t, int64_t>(base, index, stride, n, dst);
    case TSR_U8: return copy_strided<uint8_t, int32_t>(base, index, stride, n, dst);
    case TSR_U16: return copy_strided<uint16_t, int32_t>(base, index, stride, n, dst);
    case TSR_U32: return copy_strided<uint32_t, int64_t>(base, index, stride, n, dst);
    case TSR_U64: return copy_strided<uint64_t, uint64_t>(base, index, stride, n, dst);
    case TSR_BOOL:
      return map_strided<uint8_t, uint8_t>(base, index, stride, n, dst, [](uint8_t x) { return static_cast<uint8_t>(x != 0); });
    case TSR_C64: return copy_strided<C64, C64>(base, index, stride, n, dst);
    case TSR_C128: return copy_strided<C128, C128>(base, index, stride, n, dst);
    case TSR_F4E2M1:
      for (int64_t i = 0; i < n; ++i) static_cast<float*>(dst)[i] = tessera::load_as<float>(dtype, base, index + i * stride);
      return;
    default:
      for (int64_t i = 0; i < n; ++i)
        static_cast<int32_t*>(dst)[i] = tessera::load_as<int32_t>(dtype, base, index + i * stride);
  }
}

void store_run(const Isa& isa, uint32_t dtype, void* base, int64_t index, int64_t n, const void* src) {
  const auto* f = static_cast<const float*>(src);
  switch (dtype) {
    case TSR_F16: return isa.f32_to_f16(f, static_cast<uint16_t*>(base) + index, n);
    case TSR_BF16: return isa.f32_to_bf16(f, static_cast<uint16_t*>(base) + index, n);
    case TSR_F8E4M3FN:
    case TSR_F8E4M3FNUZ:
    case TSR_F8E5M2:
    case TSR_F8E5M2FNUZ:
    case TSR_F8E8M0:
    case TSR_F4E2M1:
      for (int64_t i = 0; i < n; ++i) tessera::store_from(dtype, base, index + i, f[i]);
      return;
    case TSR_I8:
    case TSR_U8: return store_narrow<uint8_t, int32_t>(base, index, n, src);
    case TSR_I16:
    case TSR_U16: return store_narrow<uint16_t, int32_t>(base, index, n, src);
    case TSR_U32: return store_narrow<uint32_t, int64_t>(base, index, n, src);
    case TSR_I2:
    case TSR_I4:
    case TSR_U2:
    case TSR_U4:
      for (int64_t i = 0; i < n; ++i) tessera::store_from(dtype, base, index + i, static_cast<const int32_t*>(src)[i]);
      return;
    default: {
      const int64_t size = comp_size(comp_of(dtype));
      char* d = static_cast<char*>(base) + index * size;
      if (d != src) std::memcpy(d, src, static_cast<size_t>(n * size));
    }
  }
}

}  // namespace eager
