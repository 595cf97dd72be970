// SPDX-License-Identifier: Apache-2.0
#include "tensor.hpp"

#include <cstring>

#include "tessera/dtypes.hpp"

namespace tessera::reference {

void Index::insert(int64_t at, int64_t x) {
  for (int64_t i = rank_; i > at; --i) v_[i] = v_[i - 1];
  v_[at] = x;
  ++rank_;
}
void Index::remove(int64_t at) {
  for (int64_t i = at; i + 1 < rank_; ++i) v_[i] = v_[i + 1];
  --rank_;
}
bool Index::has(int64_t x) const {
  for (const int64_t v : *this)
    if (v == x) return true;
  return false;
}
Index& Index::append(const Index& other) {
  for (const int64_t v : other) push(v);
  return *this;
}

int64_t product(const Index& shape) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  return n;
}

Index row_major_strides(const Index& shape) {
  Index strides = Index::filled(shape.rank(), 1);
  for (int64_t d = int64_t{shape.rank()} - 2; d >= 0; --d) strides[d] = strides[d + 1] * shape[d + 1];
  return strides;
}

Index unravel(int64_t position, const Index& shape) {
  Index i = Index::filled(shape.rank(), 0);
  for (int64_t d = int64_t{shape.rank()} - 1; d >= 0; --d) {
    i[d] = position % shape[d];
    position /= shape[d];
  }
  return i;
}

int64_t ravel(const Index& index, const Index& shape) {
  int64_t position = 0;
  for (uint32_t d = 0; d < shape.rank(); ++d) position = position * shape[d] + index[d];
  return position;
}

Walk::Walk(const Index& shape) : shape_(shape), index_(Index::filled(shape.rank(), 0)), count_(product(shape)) {}

void Walk::next() {
  ++position_;
  for (int64_t d = int64_t{shape_.rank()} - 1; d >= 0; --d) {
    if (++index_[d] < shape_[d]) return;
    index_[d] = 0;
  }
}

Tensor::Tensor(const tsr_tensor& t) {
  if (t.flags & TSR_TENSOR_ABSENT) return;
  dtype_ = t.dtype;
  data_ = static_cast<char*>(t.data);
  sizes_ = Index(t.sizes, t.rank);
  strides_ = t.strides ? Index(t.strides, t.rank) : row_major_strides(sizes_);
}

template <>
double Tensor::get<double>(int64_t o) const {
  return load_as<double>(dtype_, data_, o);
}
template <>
Int Tensor::get<Int>(int64_t o) const {
  if (is_signed_int(dtype_)) return load_as<int64_t>(dtype_, data_, o);
  return load_as<uint64_t>(dtype_, data_, o);
}
template <>
Complex Tensor::get<Complex>(int64_t o) const {
  const auto z = load_as<ComplexValue<double>>(dtype_, data_, o);
  return {z.re, z.im};
}
template <>
void Tensor::put<double>(int64_t o, double v) const {
  store_from(dtype_, data_, o, v);
}
template <>
void Tensor::put<Int>(int64_t o, Int v) const {
  // The low 64 bits decide what an integer dtype holds; a float takes the number as the signed or unsigned one that it is.
  if (is_bool(dtype_))
    store_from(dtype_, data_, o, v != 0);
  else if (v < 0)
    store_from(dtype_, data_, o, static_cast<int64_t>(v));
  else
    store_from(dtype_, data_, o, static_cast<uint64_t>(v));
}
template <>
void Tensor::put<Complex>(int64_t o, Complex v) const {
  store_from(dtype_, data_, o, ComplexValue<double>{v.real(), v.imag()});
}

Tensor Tensor::with(const Index& sizes, const Index& strides, int64_t origin_shift) const {
  Tensor v = *this;
  v.sizes_ = sizes;
  v.strides_ = strides;
  v.origin_ += origin_shift;
  return v;
}

Tensor Tensor::broadcast(const Index& shape) const {
  Index strides = Index::filled(shape.rank(), 0);
  const uint32_t lead = shape.rank() - rank();
  for (uint32_t d = 0; d < rank(); ++d) strides[lead + d] = sizes_[d] == 1 ? 0 : strides_[d];
  return with(shape, strides);
}

Tensor Tensor::permute(const Index& perm) const {
  Index sizes, strides;
  for (const int64_t p : perm) {
    sizes.push(sizes_[p]);
    strides.push(strides_[p]);
  }
  return with(sizes, strides);
}

Tensor Tensor::as(uint32_t dtype) const {
  Tensor v = *this;
  v.dtype_ = dtype;
  return v;
}

void Tensor::copy_element(int64_t to, const Tensor& from, int64_t from_offset) const {
  const int bits = dtype_bits(dtype_);
  if (bits >= 8) {
    const size_t bytes = static_cast<size_t>(bits / 8);
    std::memcpy(data_ + to * bits / 8, from.data_ + from_offset * bits / 8, bytes);
    return;
  }
  // Packed: element 0 lies in the low bits. Moved as the unsigned integer of that width, whatever the dtype is.
  const uint32_t carrier = bits == 4 ? TSR_U4 : TSR_U2;
  store_from(carrier, data_, to, load_as<uint64_t>(carrier, from.data_, from_offset));
}

void Tensor::copy_from(const Tensor& view) const {
  for (Walk w(sizes_); w; w.next()) copy_element(offset(w.index()), view, view.offset(w.index()));
}

void Tensor::zero_element(int64_t o) const {
  const int bits = dtype_bits(dtype_);
  if (bits >= 8)
    std::memset(data_ + o * bits / 8, 0, static_cast<size_t>(bits / 8));
  else
    store_from(bits == 4 ? uint32_t{TSR_U4} : uint32_t{TSR_U2}, data_, o, uint64_t{0});
}

}  // namespace tessera::reference
