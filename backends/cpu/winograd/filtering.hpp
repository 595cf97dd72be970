// SPDX-License-Identifier: Apache-2.0
// One dimension of Winograd's transforms, of whole vectors: see winograd/tables.hpp for the matrices. Included by the file that
// is compiled per instruction set.
#pragma once

#include "gemm/isa/lanes.hpp"

namespace cpu {
namespace {

template <int M>
struct Filtering;

template <>
struct Filtering<2> {
  [[gnu::always_inline]] static void forward(const Vec (&d)[4], Vec (&v)[4]) {
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
  }
  [[gnu::always_inline]] static void filter(const Vec (&g)[3], Vec (&u)[4]) {
    const Vec outer = g[0] + g[2];
    u[0] = g[0];
    u[1] = 0.5f * (outer + g[1]);
    u[2] = 0.5f * (outer - g[1]);
    u[3] = g[2];
  }
  [[gnu::always_inline]] static void back(const Vec (&m)[4], Vec (&y)[2]) {
    y[0] = (m[0] + m[1]) + m[2];
    y[1] = (m[1] - m[2]) - m[3];
  }
};

template <>
struct Filtering<4> {
  static constexpr float kP = 0.70710678118654752f, kQ = 1.41421356237309505f;

  [[gnu::always_inline]] static void forward(const Vec (&d)[6], Vec (&v)[6]) {
    const Vec even_p = d[4] - 2.0f * d[2], odd_p = d[3] - 2.0f * d[1];
    const Vec even_q = d[4] - 0.5f * d[2], odd_q = d[3] - 0.5f * d[1];
    v[0] = d[0] + (d[4] - 2.5f * d[2]);
    v[1] = even_p + kP * odd_p;
    v[2] = even_p - kP * odd_p;
    v[3] = even_q + kQ * odd_q;
    v[4] = even_q - kQ * odd_q;
    v[5] = d[1] + (d[5] - 2.5f * d[3]);
  }
  [[gnu::always_inline]] static void back(const Vec (&m)[6], Vec (&y)[4]) {
    const Vec sum_p = m[1] + m[2], sum_q = m[3] + m[4];
    const Vec difference_p = m[1] - m[2], difference_q = m[3] - m[4];
    y[0] = m[0] + (sum_p + sum_q);
    y[1] = kP * difference_p + kQ * difference_q;
    y[2] = 0.5f * sum_p + 2.0f * sum_q;
    y[3] = m[5] + (0.5f * kP * difference_p + 2.0f * kQ * difference_q);
  }
};

}  // namespace
}  // namespace cpu
