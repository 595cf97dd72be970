// SPDX-License-Identifier: Apache-2.0
// Sums and products whose own error stays below the one rounding of the result, so that the judge's verdict does not depend on
// the order of its loops.
#pragma once

#include <cmath>

#include "tensor.hpp"

namespace tessera::reference {

// Integers wrap; they are exact without further ado.
template <class T>
class Sum {
 public:
  void add(T x) { sum_ += x; }
  T value() const { return sum_; }

 private:
  T sum_{};
};

// A. Neumaier 1974: the rounding error of every addition is exact in double and summed apart.
template <>
class Sum<double> {
 public:
  void add(double x) {
    const double next = sum_ + x;
    lost_ += std::fabs(sum_) >= std::fabs(x) ? (sum_ - next) + x : (x - next) + sum_;
    sum_ = next;
  }
  double value() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

 private:
  double sum_ = 0, lost_ = 0;
};

template <>
class Sum<Complex> {
 public:
  void add(Complex z) {
    re_.add(z.real());
    im_.add(z.imag());
  }
  Complex value() const { return {re_.value(), im_.value()}; }

 private:
  Sum<double> re_, im_;
};

template <class T>
class Product {
 public:
  void add(T x) { product_ = times(product_, x); }
  T value() const { return product_; }

 private:
  T product_ = T(1);
};

// T. Ogita, S. Rump, S. Oishi 2005: the rounding error of every product, by a fused multiply-add, carried along.
template <>
class Product<double> {
 public:
  void add(double x) {
    const double next = product_ * x;
    lost_ = lost_ * x + std::fma(product_, x, -next);
    product_ = next;
  }
  // Without an error to add, the product itself: -0.0 + 0.0 would lose its sign.
  double value() const { return lost_ != 0 && std::isfinite(product_ + lost_) ? product_ + lost_ : product_; }

 private:
  double product_ = 1, lost_ = 0;
};

}  // namespace tessera::reference
