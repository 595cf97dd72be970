// SPDX-License-Identifier: Apache-2.0
// matmul_integer and conv_integer: products of 8-bit integers with exact sums, on the instructions that the machine has for
// them. Zero points are taken from the sums afterwards:
//
//   sum of (a - za)(b - zb) = sum of a b - za (sum of b) - zb (sum of a) + K za zb
#pragma once

#include <cstdint>
#include <memory>

#include "integer/tables.hpp"
#include "jit/isa.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Null: this backend takes the node; else the reason why not.
const char* refuse_integer_product(const tessera::sdk::Node& node);
const char* refuse_integer_conv(const tessera::sdk::Node& node);
inline bool is_integer_product(const tessera::sdk::Node& n) { return n.is("matmul_integer") || n.is("conv_integer"); }

std::unique_ptr<tessera::sdk::Kernel> make_integer_product(const tessera::sdk::Compile& c, const Isa& isa);
std::unique_ptr<tessera::sdk::Kernel> make_integer_conv(const tessera::sdk::Compile& c, const Isa& isa);

// ---- what both are made of

const IntegerIsa& integer_kernels(const Isa& isa);

// Tiles of nearly equal height.
struct RowTiles {
  int64_t m, count, base, extra;
  RowTiles(int64_t rows, int most)
      : m(rows), count((rows + most - 1) / most), base(count ? m / count : 0), extra(count ? m % count : 0) {}
  int64_t first(int64_t tile) const { return tile * base + (tile < extra ? tile : extra); }
  int height(int64_t tile) const { return static_cast<int>(base + (tile < extra ? 1 : 0)); }
};

// One side of a product: how its bytes become elements, and what that adds to its zero points.
struct IntegerSide {
  Elements elements;
  bool as_signed = false;  // of quads: elements are signed
  int32_t offset = 0;
  IntegerSide(const IntegerIsa& isa, uint32_t dtype, bool signed_side) {
    elements.is_signed = dtype == TSR_I8;
    if (isa.per != 4) return;
    as_signed = signed_side;
    elements.flip = elements.is_signed != signed_side;
    if (elements.flip) offset = signed_side ? -128 : 128;
  }
  // The zero point of an element that is this byte, as elements have it.
  int32_t zero(uint8_t byte) const { return (elements.is_signed ? static_cast<int8_t>(byte) : byte) + offset; }
};

inline int64_t words_of(const IntegerIsa& isa, int64_t k) { return (k + isa.per - 1) / isa.per; }
inline int64_t line_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Parts [begin, end) of `n` units of work on at most `slots` threads: f(slot, begin, end).
template <class F>
void in_parts(int64_t n, int64_t slots, F&& f) {
  slots = slots < n ? slots : n;
  if (slots <= 0) return;
  tessera::sdk::parallel(slots, 1, [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) f(s, s * n / slots, (s + 1) * n / slots);
  });
}

}  // namespace cpu
