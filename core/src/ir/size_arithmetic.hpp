// SPDX-License-Identifier: Apache-2.0
// Overflow-checked arithmetic on sizes that are numbers, and saturating arithmetic on their ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ir/sizes.hpp"
#include "support/error.hpp"

namespace tessera::core {

// Handles live in the lowest 2^32 values, so a number there cannot be told from a handle: it counts as overflow.
inline constexpr int64_t kSmallestNumber = INT64_MIN + (int64_t{1} << 32);

[[noreturn]] inline void size_overflow(int64_t a, const char* sign, int64_t b) {
  throw user_error("TSR-S001", "size arithmetic overflows 64 bits: " + std::to_string(a) + " " + sign + " " + std::to_string(b),
                   "use smaller sizes");
}

inline int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r) || r < kSmallestNumber) size_overflow(a, "+", b);
  return r;
}
inline int64_t checked_sub(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_sub_overflow(a, b, &r) || r < kSmallestNumber) size_overflow(a, "-", b);
  return r;
}
inline int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r) || r < kSmallestNumber) size_overflow(a, "*", b);
  return r;
}
inline int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) throw user_error("TSR-S003", "size expression divides by zero: floordiv(" + std::to_string(a) + ", 0)");
  if (b == -1) return checked_sub(0, a);  // INT64_MIN / -1 traps
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
inline int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) throw user_error("TSR-S003", "size expression divides by zero: mod(" + std::to_string(a) + ", 0)");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

// Interval arithmetic saturates: an unbounded end stays unbounded.
inline bool is_infinite(int64_t v) { return v == INT64_MIN || v == INT64_MAX; }
inline int64_t saturate(__int128 v) { return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : static_cast<int64_t>(v); }
inline int64_t add_end(int64_t a, int64_t b, int64_t unbounded) {
  if (is_infinite(a) || is_infinite(b)) return unbounded;
  return saturate(static_cast<__int128>(a) + b);
}
inline int64_t mul_end(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (is_infinite(a) || is_infinite(b)) return ((a < 0) != (b < 0)) ? INT64_MIN : INT64_MAX;
  return saturate(static_cast<__int128>(a) * b);
}
inline Range add_range(Range a, Range b) { return {add_end(a.min, b.min, INT64_MIN), add_end(a.max, b.max, INT64_MAX)}; }
inline Range mul_range(Range a, Range b) {
  const int64_t e[] = {mul_end(a.min, b.min), mul_end(a.min, b.max), mul_end(a.max, b.min), mul_end(a.max, b.max)};
  return {*std::min_element(e, e + 4), *std::max_element(e, e + 4)};
}

}  // namespace tessera::core
