// SPDX-License-Identifier: Apache-2.0
// Elements of the fakes' tensors as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fake {

enum class Kind { F16, BF16, F32, F64 };

inline size_t bytes_of(Kind k) { return k == Kind::F64 ? 8 : k == Kind::F32 ? 4 : 2; }

inline double read(const char* p, Kind type) {
  if (type == Kind::F64) return *reinterpret_cast<const double*>(p);
  if (type == Kind::F32) return *reinterpret_cast<const float*>(p);
  uint16_t h;
  std::memcpy(&h, p, 2);
  if (type == Kind::BF16) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }
  _Float16 x;
  std::memcpy(&x, &h, 2);
  return static_cast<double>(x);
}
inline void write(char* p, Kind type, double v) {
  if (type == Kind::F64) {
    *reinterpret_cast<double*>(p) = v;
  } else if (type == Kind::F32) {
    *reinterpret_cast<float*>(p) = static_cast<float>(v);
  } else if (type == Kind::BF16) {
    const auto x = static_cast<float>(v);
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const auto h = static_cast<uint16_t>(x != x ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    std::memcpy(p, &h, 2);
  } else {
    const auto x = static_cast<_Float16>(v);
    std::memcpy(p, &x, 2);
  }
}

}  // namespace fake
