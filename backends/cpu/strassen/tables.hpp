// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set for products by Strassen's algorithm: Strassen, "Gaussian elimination is not
// optimal", 1969. With both operands in quarters, C = A B takes seven products of sums of quarters instead of eight of
// quarters. Here in the order in which they are computed:
//
//   0  (A11 + A22) (B11 + B22)   begins C11 and C22
//   1  (A12 - A22) (B21 + B22)   is added to C11
//   2  A22 (B21 - B11)           is added to C11, begins C21
//   3  (A11 + A12) B22           is subtracted from C11, begins C12
//   4  A11 (B12 - B22)           is added to C12 and C22
//   5  (A21 + A22) B11           is added to C21, subtracted from C22
//   6  (A21 - A11) (B11 + B12)   is added to C22
//
// What a quarter is made of need not lie together: rows i and i + half of a block of rows are partners, columns of two
// neighbouring panels, and the first and second half of a piece of K.
//
// Rounding. An error of a result is a part of the largest terms of all sums that it comes from, so of its partners' too. Rows
// of A and columns of B are scaled by powers of two, which is exact, to a largest magnitude between 1 and 2: then it is a part
// of what the largest elements of its own row and its own column give (Ballard, Benson, Druinsky, Lipshitz and Schwartz,
// "Improving the numerical stability of fast matrix multiplication", 2016: outside scaling).
#pragma once

#include <cstdint>

#include "gemm/tables.hpp"

namespace cpu {

inline constexpr int kStrassenProducts = 7;

// Elements of one row or column.
struct StrassenLook {
  uint32_t largest;  // magnitude, as bits: those of infinity and NaN are greater than those of all numbers
  int64_t nonzero;
};

// A's sums of a row and its partner, from `count` elements of K in each half on.
struct StrassenLeft {
  const float *upper, *lower;      // at the first of the elements in the first half of the piece of K
  float upper_scale, lower_scale;  // 0 for a row that does not exist
  int64_t half;                    // elements from the first half of K to the second one
  int64_t first, second;           // of `count` elements those that exist in each half: zeros for the others
  int64_t count;
  // Product q's side goes to out + q * product, which is 64-byte aligned if out is; up to a vector less one element behind it
  // is written too.
  float* out;
  int64_t product;
  // The quarters A11, A12, A21 and A22 as they are instead of the seven sums: for what must not be mixed.
  bool plain;
};

// A piece of K of two neighbouring panels of B.
struct StrassenRight {
  const float *b11, *b12, *b21, *b22;  // [k][nr]
  int64_t k;
  float* out;  // [7][k][nr]
};

// The quarters of B back from the sums.
struct StrassenBack {
  const float* sums;                        // [7][k][nr]
  const float *left_factor, *right_factor;  // [nr]: columns of B11 and B21, of B12 and B22 are multiplied by these
  int64_t k;
  float* out;  // B11, B12, B21, B22: [4][k][nr]
};

struct StrassenIsa {
  void (*look)(const float* row, int64_t k, StrassenLook* out);
  // Of each of the nr columns of a packed panel.
  void (*look_down)(const float* panel, int64_t k, StrassenLook* out);
  void (*scale_columns)(float* panel, int64_t k, const float* factors);
  void (*left)(const StrassenLeft&);
  // Sums from which one of their terms is subtracted have the sign of the other, so that `back` gives zeros where there are
  // zeros, and no other.
  void (*right)(const StrassenRight&);
  void (*back)(const StrassenBack&);
};

const StrassenIsa& strassen_baseline();
const StrassenIsa& strassen_avx2();
const StrassenIsa& strassen_avx512();

}  // namespace cpu
