// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set for products of 8-bit integers, with sums in 32 bits that are exact on all of them.
//
// A word of 32 bits holds neighbours along K, which one instruction multiplies and adds up:
//   quads  four bytes, the one side unsigned and the other signed, as VPDPBUSD multiplies them
// pairs  two values widened to 16 bits, as PMADDWD multiplies them; where there is no VPDPBUSD, for PMADDUBSW saturates its
// sums of two products at 16 bits
// Packed forms are [K / per][height] words of rows of the left side, and [K / per][nr] words of columns of the right side, with
// zeros behind the end of K.
#pragma once

#include <cstdint>

namespace cpu {

// How the bytes of an operand become elements of words.
struct Elements {
  bool is_signed = false;  // of a pair: how a byte is widened
  bool flip = false;       // of a quad: 128 is added to a signed byte, or subtracted from an unsigned one
};

// `k` bytes of each of `rows` rows (or columns), row r from src + at[r] on, k_stride apart. Rows from `rows` to `height` become
// zeros.
struct PackWords {
  const uint8_t* src;
  const int64_t* at;
  int rows, height;
  int64_t k, k_stride;
  Elements elements;
  uint32_t* out;
};

// Words of `count` places from up to four (two) rows of bytes, from[0] first; null: zeros.
struct Interleave {
  const uint8_t* from[4];
  int64_t count;
  Elements elements;
  uint32_t* out;
};

// A tile of sums and what zero points take from it: out[i][j] = sums[i][j] - row[i] - column[j] - by_row[i] * by_column[j].
struct StoreSums {
  const int32_t* sums;  // nr between rows
  int rows, cols;
  const int32_t *row, *column;
  const int32_t *by_row, *by_column;  // null: no such product
  int32_t* out;
  int64_t ld;
};

struct IntegerIsa {
  static constexpr int kMostRows = 14;
  // sums[i][j] = sum over all words of the products of left[w][i] and right[w][j].
  using Micro = void (*)(int64_t words, const uint32_t* left, const uint32_t* right, int32_t* sums);

  const char* name;
  int mr, nr;
  int per;                             // elements of a word
  Micro unsigned_left[kMostRows + 1];  // by height; quads: the left side is the unsigned one
  Micro unsigned_right[kMostRows + 1];
  void (*pack)(const PackWords&);
  void (*interleave)(const Interleave&);
  void (*take)(const uint32_t* from, int64_t step, int64_t count, uint32_t* to);  // every step-th word
  // Adds the elements of words[w][j] over all w to sums[j]. `is_signed`: of quads.
  void (*add_up)(const uint32_t* words, int64_t count, int width, bool is_signed, int32_t* sums);
  void (*store)(const StoreSums&);
};

const IntegerIsa& integer_baseline();
const IntegerIsa& integer_avx2();
const IntegerIsa& integer_avx512();
const IntegerIsa& integer_avx512_vnni();

}  // namespace cpu
