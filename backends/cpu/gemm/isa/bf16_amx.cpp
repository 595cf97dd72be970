// SPDX-License-Identifier: Apache-2.0
// bf16 products on tiles (AMX): 2 x 2 tiles of 16 x 16 sums, K in steps of 32.
#include <immintrin.h>

#include "finish.hpp"
#include "pack.hpp"
#include "store.hpp"

namespace cpu {
namespace {

constexpr int kMR = 32, kNR = 32;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t columns[16] = {};  // bytes
  uint8_t rows[16] = {};
};

void begin() {
  TileConfig c;
  for (int t = 0; t < 8; ++t) {
    c.columns[t] = 64;
    c.rows[t] = 16;
  }
  // g++'s intrinsic says that it reads the first 8 bytes only; the others would never be written.
  asm volatile("" : : "r"(&c) : "memory");
  _tile_loadconfig(&c);
}
void end() { _tile_release(); }

// Tiles 0..3 hold sums, 4 and 5 rows of A, 6 and 7 columns of B.
template <int H>
void micro(int64_t k, const void* pa, const void* pb, float* sums, int64_t ld, bool add, const Prefetch&) {
  const char* a = static_cast<const char*>(pa);
  const char* b = static_cast<const char*>(pb);
  float* const low = sums + 16 * ld;
  const size_t step = static_cast<size_t>(ld) * 4;
  if (add) {
    _tile_loadd(0, sums, step);
    _tile_loadd(1, sums + 16, step);
    if constexpr (H == 32) {
      _tile_loadd(2, low, step);
      _tile_loadd(3, low + 16, step);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (H == 32) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  for (int64_t p = 0; p < k; p += 32, a += 64 * H, b += 16 * 128) {
    _tile_loadd(6, b, 128);
    _tile_loadd(7, b + 64, 128);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (H == 32) {
      _tile_loadd(5, a + 16 * 64, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, step);
  _tile_stored(1, sums + 16, step);
  if constexpr (H == 32) {
    _tile_stored(2, low, step);
    _tile_stored(3, low + 16, step);
  }
}

constexpr GemmIsa table() {
  GemmIsa t{.name = "amx",
            .bf16 = true,
            .mr = kMR,
            .nr = kNR,
            .row_unit = 16,
            .k_unit = 32,
            .kc = 1024,
            .packed_bytes = 2,
            .micro = {},
            .pack_a = pack_rows,
            .pack_b = pack_pairs,
            .store = store_tile,
            .transpose = nullptr,
            .begin = begin,
            .end = end};
  t.micro[16].whole = micro<16>;
  t.micro[32].whole = micro<32>;
  return t;
}

}  // namespace

const GemmIsa* gemm_bf16_amx() {
  static constexpr GemmIsa t = table();
  return &t;
}

}  // namespace cpu
