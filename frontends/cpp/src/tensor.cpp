// SPDX-License-Identifier: Apache-2.0
// Tensor: references, description, values, conversion.
#include "tessera/tensor.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>

#include "attrs.hpp"
#include "recording.hpp"
#include "tessera/breaks.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera {

using detail::api;
using detail::check;
using detail::fail;

namespace {
// Of the reference that a tensor itself holds, whatever stands in its place for this thread.
detail::Traced* traced_of(uintptr_t bits) {
  return bits & 1 ? reinterpret_cast<detail::Traced*>(bits & ~uintptr_t{1}) : nullptr;
}
}  // namespace

void Tensor::retain() const {
  if (detail::Traced* t = traced_of(bits_))
    t->refs.fetch_add(1, std::memory_order_relaxed);
  else
    api().tensor_retain(reinterpret_cast<tsr_tensor_handle*>(bits_));
}

void Tensor::release() {
  detail::Traced* t = traced_of(bits_);
  if (!t) {
    auto* h = reinterpret_cast<tsr_tensor_handle*>(bits_);
    if (h->requires_grad > 1 && __atomic_load_n(&h->refcount, __ATOMIC_ACQUIRE) == 1) [[unlikely]]
      detail::forget_gradient(h->requires_grad);
    api().tensor_release(h);
  } else if (t->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
    delete t;
}

namespace {
void need_defined(const Tensor& t) {
  if (!t.defined())
    fail("TSR-F004", "an undefined tensor is used",
         "assign it first; omitted optional arguments are the only use for undefined tensors");
}
const tsr_tensor& desc(const Tensor& t) { return t.handle()->desc; }

std::string type_text(const Tensor& t) {
  std::string s(name(t.dtype()));
  s += "[";
  for (int64_t i = 0; i < t.dim(); ++i) s += (i ? ", " : "") + t.size(i).str();
  return s + "]";
}
}  // namespace

tsr_tensor_handle* Tensor::handle() const {
  need_defined(*this);
  if (is_traced()) {
    detail::Traced& t = *const_cast<Tensor*>(this)->traced();
    return detail::read_tensor(t, detail::loc_of(t), "its memory is used", true).handle_unchecked();
  }
  return handle_unchecked();
}

int64_t Tensor::dim() const {
  need_defined(*this);
  return is_traced() ? detail::type_of(*traced()).rank : desc(*this).rank;
}

namespace {
int64_t wrap(int64_t axis, int64_t rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= (rank ? rank : 1))
    fail("TSR-F005", "dimension " + std::to_string(axis) + " is out of range for a tensor of rank " + std::to_string(rank) +
                         ": expected " + std::to_string(-rank) + ".." + std::to_string(rank - 1));
  return a;
}
}  // namespace

SymInt Tensor::size(int64_t axis, std::source_location where) const {
  const int64_t a = wrap(axis, dim());
  if (!is_traced())
    return desc(*this).rank ? SymInt(desc(*this).sizes[a])
                            : (fail("TSR-F005", "a 0-d tensor has no dimension " + std::to_string(axis)), SymInt(0));
  const tsr_type& t = detail::type_of(*traced());
  if (t.rank == 0) fail("TSR-F005", "a 0-d tensor has no dimension " + std::to_string(axis));
  return SymInt(t.sizes[a], traced()->trace->graph, where);
}

Shape Tensor::shape(std::source_location where) const {
  Shape s;
  const int64_t rank = dim();
  s.reserve(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) s.push_back(size(i, where));
  return s;
}

std::vector<int64_t> Tensor::sizes(std::source_location where) const {
  std::vector<int64_t> s;
  for (const SymInt& d : shape(where)) s.push_back(d);
  return s;
}

std::vector<int64_t> Tensor::strides() const {
  if (is_traced()) {
    const tsr_type& t = detail::type_of(*const_cast<Tensor*>(this)->traced());
    tsr_graph* g = const_cast<Tensor*>(this)->traced()->trace->graph;
    std::vector<int64_t> out(t.rank, 1);
    if (t.strides)
      for (uint32_t i = 0; i < t.rank; ++i) out[i] = SymInt(t.strides[i], g);
    else
      for (uint32_t i = t.rank; i-- > 1;) out[i - 1] = out[i] * SymInt(t.sizes[i], g);
    return out;
  }
  return {desc(*this).strides, desc(*this).strides + desc(*this).rank};
}

SymInt Tensor::numel(std::source_location where) const {
  SymInt n = 1;
  for (const SymInt& d : shape(where)) n = n * d;
  return n;
}

DType Tensor::dtype() const {
  need_defined(*this);
  return static_cast<DType>(is_traced() ? detail::type_of(*traced()).dtype : desc(*this).dtype);
}

Device Tensor::device() const {
  need_defined(*this);
  return Device(is_traced() ? detail::type_of(*traced()).device : desc(*this).device);
}

bool Tensor::is_contiguous() const {
  if (is_traced()) return detail::type_of(*traced()).strides == nullptr;
  const tsr_tensor& d = desc(*this);
  int64_t expected = 1;
  for (uint32_t i = d.rank; i-- > 0;) {
    if (d.sizes[i] == 0) return true;
    if (d.sizes[i] != 1 && d.strides[i] != expected) return false;
    expected *= d.sizes[i];
  }
  return true;
}

bool Tensor::requires_grad() const { return !is_traced() && handle()->requires_grad != 0; }

// -------------------------------------------------------------------------------------------------------------- values

void* Tensor::raw_data(std::source_location where) const {
  need_defined(*this);
  if (is_traced()) {
    detail::Traced& t = *const_cast<Tensor*>(this)->traced();
    return detail::read_tensor(t, detail::to_loc(where), "raw_data() of " + type_text(*this), true).raw_data(where);
  }
  if (desc(*this).device != 0)
    fail("TSR-F006", "the tensor is on " + device().name() + ": its memory cannot be read by the host",
         "call .to(\"cpu\") first");
  return desc(*this).data;
}

Tensor Tensor::to(const Device& d) const {
  if (device() == d) return *this;
  if (is_traced()) return detail::run_op1("to_device", {*this}, {detail::string_attr("device", d.name().c_str())});
  if (d != Device()) (void)Context::current();  // whose plugins bring the device
  tsr_tensor_handle* out = nullptr;
  check(api().tensor_copy(handle(), d.id(), &out));
  return adopt(out);
}

Tensor Tensor::clone() const {
  if (is_traced()) return *this;  // values are immutable in a graph
  tsr_tensor_handle* out = nullptr;
  check(api().tensor_copy(handle(), desc(*this).device, &out));
  return adopt(out);
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::to(DType d) const {
  if (dtype() == d) return *this;
  return detail::run_op1("cast", {*this}, {detail::dtype_attr("dtype", d)});
}

namespace {

void need_one(int64_t n) {
  if (n != 1) fail("TSR-F007", "item() needs a tensor of one element; this one has " + std::to_string(n), "index it first");
}

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, float>) return "float";
  if constexpr (std::is_same_v<T, double>) return "double";
  if constexpr (std::is_integral_v<T>)
    return sizeof(T) == 8 ? "int64_t" : sizeof(T) == 4 ? "int" : sizeof(T) == 2 ? "int16_t" : "int8_t";
  return "std::complex";
}

template <class T>
T load_one(const Tensor& t) {
  const Tensor host = t.to(Device());
  const tsr_tensor& d = desc(host);
  int64_t n = 1;
  for (uint32_t i = 0; i < d.rank; ++i) n *= d.sizes[i];
  need_one(n);
  if constexpr (std::is_same_v<T, bool>)
    return load_as<double>(d.dtype, d.data, 0) != 0;
  else
    return load_as<T>(d.dtype, d.data, 0);
}

// What is read of a tensor of one element while the function around is captured: exactly what load_one gives of it.
template <class T>
T read_one(detail::Traced& t, const tsr_loc& loc, const std::string& detail) {
  const uint32_t dtype = detail::type_of(t).dtype;
  if constexpr (std::is_same_v<T, bool>) return detail::read_bool(t, loc, detail);
  if constexpr (std::is_integral_v<T>)  // to a narrower type floats saturate and integers wrap
    if (std::is_same_v<T, int64_t> || (!is_float(dtype) && !std::is_same_v<T, bool>))
      return static_cast<T>(detail::read_int(t, loc, detail));
  if constexpr (std::is_floating_point_v<T>)  // one rounding, not two
    if (std::is_same_v<T, double> || is_float(dtype)) return static_cast<T>(detail::read_float(t, loc, detail));
  return load_one<T>(detail::read_tensor(t, loc, detail, false));
}

}  // namespace

Tensor Tensor::item() const {
  const int64_t rank = dim();
  if (rank == 0) return *this;
  if (numel() != 1) need_one(is_traced() ? -1 : static_cast<int64_t>(numel()));
  return reshape({});
}

template <class T>
T Tensor::item(std::source_location where) const {
  need_defined(*this);
  if (!is_traced()) return load_one<T>(*this);
  if (dim() > 0 && !(numel() == 1)) need_one(numel());
  return read_one<T>(*const_cast<Tensor*>(this)->traced(), detail::to_loc(where),
                     std::string("item<") + type_name<T>() + ">() of " + type_text(*this));
}

Tensor::operator bool() const {
  need_defined(*this);
  if (!is_traced()) return load_one<bool>(*this);
  if (dim() > 0 && !(numel() == 1)) need_one(numel());
  detail::Traced& t = *const_cast<Tensor*>(this)->traced();
  return detail::read_bool(t, detail::loc_of(t), "the truth of " + type_text(*this));
}

template <class T>
T Tensor::convert() const {
  need_defined(*this);
  if (!is_traced()) return load_one<T>(*this);
  if (dim() > 0 && !(numel() == 1)) need_one(numel());
  detail::Traced& t = *const_cast<Tensor*>(this)->traced();
  return read_one<T>(t, detail::loc_of(t), std::string(type_name<T>()) + "() of " + type_text(*this));
}

template <class T>
std::vector<T> Tensor::to_vector(std::source_location where) const {
  need_defined(*this);
  if (is_traced()) {
    detail::Traced& t = *const_cast<Tensor*>(this)->traced();
    return detail::read_tensor(t, detail::to_loc(where), "to_vector() of " + type_text(*this), false)
        .template to_vector<T>(where);
  }
  const Tensor host = to(Device()).contiguous();
  const tsr_tensor& d = desc(host);
  const int64_t n = host.numel();
  std::vector<T> out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, bool>)
      out.push_back(load_as<double>(d.dtype, d.data, i) != 0);
    else
      out.push_back(load_as<T>(d.dtype, d.data, i));
  }
  return out;
}

template <class T>
constexpr DType dtype_of();
#define TESSERA_OF(T, D)          \
  template <>                     \
  constexpr DType dtype_of<T>() { \
    return D;                     \
  }
TESSERA_OF(double, f64)
TESSERA_OF(float, f32)
TESSERA_OF(int8_t, i8)
TESSERA_OF(int16_t, i16)
TESSERA_OF(int32_t, i32)
TESSERA_OF(int64_t, i64)
TESSERA_OF(uint8_t, u8)
TESSERA_OF(uint16_t, u16)
TESSERA_OF(uint32_t, u32)
TESSERA_OF(uint64_t, u64)
TESSERA_OF(bool, boolean)
TESSERA_OF(std::complex<float>, c64)
TESSERA_OF(std::complex<double>, c128)
#undef TESSERA_OF

template <class T>
T* Tensor::data(std::source_location where) const {
  if (dtype() != dtype_of<T>())
    fail("TSR-F008",
         "data<T>() asks for " + std::string(name(dtype_of<T>())) + " but the tensor is " + std::string(name(dtype())),
         "convert it with .to(dtype) first");
  if (!is_contiguous()) fail("TSR-F009", "data<T>() needs a contiguous tensor", "call .contiguous() first");
  return static_cast<T*>(raw_data(where));
}

#define TESSERA_VALUES(T)                                  \
  template T Tensor::item<T>(std::source_location) const;  \
  template T* Tensor::data<T>(std::source_location) const; \
  template std::vector<T> Tensor::to_vector<T>(std::source_location) const;
TESSERA_VALUES(double)
TESSERA_VALUES(float)
TESSERA_VALUES(int8_t)
TESSERA_VALUES(int16_t)
TESSERA_VALUES(int32_t)
TESSERA_VALUES(int64_t)
TESSERA_VALUES(uint8_t)
TESSERA_VALUES(uint16_t)
TESSERA_VALUES(uint32_t)
TESSERA_VALUES(uint64_t)
TESSERA_VALUES(bool)
TESSERA_VALUES(std::complex<float>)
TESSERA_VALUES(std::complex<double>)
#undef TESSERA_VALUES
#define TESSERA_CONVERT(T) template T Tensor::convert<T>() const;
TESSERA_CONVERT(double)
TESSERA_CONVERT(float)
TESSERA_CONVERT(char)
TESSERA_CONVERT(signed char)
TESSERA_CONVERT(unsigned char)
TESSERA_CONVERT(short)
TESSERA_CONVERT(unsigned short)
TESSERA_CONVERT(int)
TESSERA_CONVERT(unsigned)
TESSERA_CONVERT(long)
TESSERA_CONVERT(unsigned long)
TESSERA_CONVERT(long long)
TESSERA_CONVERT(unsigned long long)
#undef TESSERA_CONVERT

namespace {
std::string number(uint32_t dtype, const void* data, int64_t i) {
  char buf[64];
  if (is_bool(dtype)) return load_as<double>(dtype, data, i) != 0 ? "true" : "false";
  if (is_complex(dtype)) {
    const auto z = load_as<std::complex<double>>(dtype, data, i);
    std::snprintf(buf, sizeof buf, "%.4g%+.4gi", z.real(), z.imag());
  } else if (is_float(dtype)) {
    std::snprintf(buf, sizeof buf, "%.4g", load_as<double>(dtype, data, i));
  } else if (is_unsigned_int(dtype)) {
    return std::to_string(load_as<uint64_t>(dtype, data, i));
  } else {
    return std::to_string(load_as<int64_t>(dtype, data, i));
  }
  return buf;
}

// Long dimensions show their first and last three entries.
void print(const Tensor& t, int64_t axis, int64_t offset, std::string& s) {
  const std::vector<int64_t> sizes = t.sizes();
  if (axis == static_cast<int64_t>(sizes.size())) {
    s += number(static_cast<uint32_t>(t.dtype()), t.raw_data(), offset);
    return;
  }
  int64_t step = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < sizes.size(); ++i) step *= sizes[i];
  const int64_t n = sizes[static_cast<size_t>(axis)];
  s += "[";
  for (int64_t i = 0; i < n; ++i) {
    if (i) s += axis + 1 == static_cast<int64_t>(sizes.size()) ? ", " : ",\n" + std::string(static_cast<size_t>(axis) + 1, ' ');
    if (n > 8 && i == 3) {
      s += "...";
      i = n - 4;
      continue;
    }
    print(t, axis + 1, offset + i * step, s);
  }
  s += "]";
}
}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "undefined";
  std::string head(name(dtype()));
  head += "[";
  for (int64_t i = 0; i < dim(); ++i) head += (i ? ", " : "") + size(i).str();
  head += "]";
  if (is_traced()) return head + " (traced)";
  std::string s;
  print(to(Device()).contiguous(), 0, 0, s);
  return s + " " + head;
}

}  // namespace tessera
