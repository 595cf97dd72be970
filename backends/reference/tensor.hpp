// SPDX-License-Identifier: Apache-2.0
// What the reference kernels compute on: strided views whose elements are read and written as double, 128-bit integer or double
// complex, whatever the stored dtype is. Nothing here allocates.
#pragma once

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "tessera/abi.h"

namespace tessera::reference {

__extension__ typedef __int128 Int;  // holds every i64 and u64 and their sums
using Complex = std::complex<double>;
inline constexpr double inf = std::numeric_limits<double>::infinity();

// The low 64 bits of the product, all that is ever kept: a product of two u64 would leave the range of Int.
inline Int times(Int a, Int b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
inline double times(double a, double b) { return a * b; }
// The textbook formula: C++'s operator would recover infinities from NaN (C99 Annex G), which PyTorch does not.
inline Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

inline constexpr uint32_t max_rank = 32;  // the backend refuses nodes beyond it

// A multi-index, a shape, strides or a permutation: up to max_rank numbers.
class Index {
 public:
  Index() = default;
  Index(std::initializer_list<int64_t> v) {
    for (const int64_t x : v) push(x);
  }
  Index(const int64_t* v, uint32_t n) : rank_(n) {
    for (uint32_t i = 0; i < n; ++i) v_[i] = v[i];
  }
  static Index filled(uint32_t rank, int64_t value) {
    Index r;
    for (uint32_t i = 0; i < rank; ++i) r.push(value);
    return r;
  }
  uint32_t rank() const { return rank_; }
  int64_t& operator[](int64_t i) { return v_[i]; }
  int64_t operator[](int64_t i) const { return v_[i]; }
  const int64_t* begin() const { return v_; }
  const int64_t* end() const { return v_ + rank_; }
  void push(int64_t x) { v_[rank_++] = x; }
  void insert(int64_t at, int64_t x);
  void remove(int64_t at);
  bool has(int64_t x) const;
  // Entries [from, to).
  Index part(uint32_t from, uint32_t to) const { return Index(v_ + from, to - from); }
  Index& append(const Index& other);

 private:
  uint32_t rank_ = 0;
  int64_t v_[max_rank];
};

int64_t product(const Index& shape);
Index row_major_strides(const Index& shape);
// The index whose row-major number is `position`.
Index unravel(int64_t position, const Index& shape);
int64_t ravel(const Index& index, const Index& shape);

// Every index of `shape` in row-major order:  for (Walk w(shape); w; w.next()) use(w.index());
// Of an empty shape there is none; of a 0-d one there is one.
class Walk {
 public:
  explicit Walk(const Index& shape);
  explicit operator bool() const { return position_ < count_; }
  void next();
  const Index& index() const { return index_; }
  int64_t position() const { return position_; }  // its row-major number

 private:
  Index shape_, index_;
  int64_t position_ = 0, count_ = 1;
};

// A view. Copies are cheap and share the elements. Offsets count elements from the view's first memory element.
class Tensor {
 public:
  Tensor() = default;  // stands for an omitted operand
  explicit Tensor(const tsr_tensor& t);

  explicit operator bool() const { return dtype_ != 0; }
  uint32_t dtype() const { return dtype_; }
  uint32_t rank() const { return sizes_.rank(); }
  const Index& sizes() const { return sizes_; }
  int64_t size(int64_t axis) const { return sizes_[axis]; }
  int64_t elements() const { return product(sizes_); }

  int64_t offset(const Index& i) const {
    int64_t o = origin_;
    for (uint32_t d = 0; d < i.rank(); ++d) o += i[d] * strides_[d];
    return o;
  }
  int64_t offset_of(int64_t position) const { return offset(unravel(position, sizes_)); }

  // T is double (floats), Int (integers and bool), Complex (complex, and real parts of anything). `put` rounds once: floats to
  // nearest even, integers modulo 2^n.
  template <class T>
  T get(int64_t offset) const;
  template <class T>
  void put(int64_t offset, T value) const;
  double real(const Index& i) const;
  Int integer(const Index& i) const;

  // Views of the same elements.
  Tensor with(const Index& sizes, const Index& strides, int64_t origin_shift = 0) const;
  Tensor broadcast(const Index& shape) const;  // NumPy's rule: aligned at the last axis, size 1 repeats
  Tensor permute(const Index& perm) const;
  Tensor as(uint32_t dtype) const;  // the same bits read as another dtype of the same width
  const Index& strides() const { return strides_; }

  // The bits of one element, unchanged. Both have the same element width.
  void copy_element(int64_t to, const Tensor& from, int64_t from_offset) const;
  void copy_from(const Tensor& view) const;  // same shape
  void zero_element(int64_t offset) const;

 private:
  uint32_t dtype_ = 0;
  char* data_ = nullptr;
  int64_t origin_ = 0;
  Index sizes_, strides_;
};

template <>
double Tensor::get<double>(int64_t) const;
template <>
Int Tensor::get<Int>(int64_t) const;
template <>
Complex Tensor::get<Complex>(int64_t) const;
template <>
void Tensor::put<double>(int64_t, double) const;
template <>
void Tensor::put<Int>(int64_t, Int) const;
template <>
void Tensor::put<Complex>(int64_t, Complex) const;

inline double Tensor::real(const Index& i) const { return get<double>(offset(i)); }
inline Int Tensor::integer(const Index& i) const { return get<Int>(offset(i)); }

}  // namespace tessera::reference
