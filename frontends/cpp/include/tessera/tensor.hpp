// SPDX-License-Identifier: Apache-2.0
// Tensor: PyTorch's tensor, as far as a compiler needs it. Operations on tensors run at once; inside a function given to
// tessera::compile they are recorded instead. Free functions and their promotion, broadcasting and rounding are PyTorch's
// (docs/ir.md, Numerics).
#pragma once

#include <complex>
#include <cstddef>
#include <optional>
#include <source_location>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/types.hpp"

struct tsr_tensor_handle;  // embed.h

namespace tessera {

class Tensor;

namespace detail {
class ArgBuffer;
struct Trace;
struct Traced;
struct Substitutes;
extern constinit thread_local const Trace* t_traced_now;  // the trace that this thread records; null: none
extern constinit thread_local Substitutes*
    t_substitutes;  // see substitutes.hpp; null but while a function is traced on a module
uintptr_t* substitute_of(const Tensor* t, uintptr_t* own, bool assigns);
}  // namespace detail

// A number on one side of an operator; weak in promotion, as in PyTorch.
class Scalar {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T v, std::source_location where = std::source_location::current()) : where_(where) {
    if constexpr (std::is_same_v<T, bool>)
      kind_ = kBool, i_ = v;
    else if constexpr (std::is_integral_v<T>)
      kind_ = kInt, i_ = static_cast<int64_t>(v);
    else
      kind_ = kFloat, f_ = static_cast<double>(v);
  }
  Scalar(std::complex<double> v) : kind_(kComplex), f_(v.real()), im_(v.imag()) {}
  // A symbolic number stays symbolic beside a tensor; `where` is named by the guard when it has to be a number.
  Scalar(const SymFloat& v, std::source_location where = std::source_location::current())
      : kind_(kFloat), f_(v.number()), sym_(v.node()), where_(where) {}
  Scalar(const SymInt& v, std::source_location where = std::source_location::current());
  enum Kind { kBool, kInt, kFloat, kComplex };
  Kind kind() const { return kind_; }
  // As a number: of a symbolic one this makes a guard.
  int64_t as_int() const {
    if (sym_) return static_cast<int64_t>(read());
    return kind_ <= kInt ? i_ : static_cast<int64_t>(f_);
  }
  double as_double() const {
    if (sym_) return read();
    return kind_ <= kInt ? static_cast<double>(i_) : f_;
  }
  std::complex<double> as_complex() const { return {as_double(), kind_ == kComplex ? im_ : 0.0}; }
  const std::shared_ptr<const detail::SymNode>& sym() const { return sym_; }  // null: a plain number
  std::source_location where() const { return where_; }                       // of the expression that it stands in

 private:
  double read() const;
  Kind kind_;
  int64_t i_ = 0;
  double f_ = 0, im_ = 0;
  std::shared_ptr<const detail::SymNode> sym_;
  std::source_location where_;
};

// One entry of Tensor::index: an integer (removes the dimension), Slice, None (inserts one), Ellipsis, or an index tensor.
struct Slice {
  std::optional<SymInt> start, stop;
  int64_t step = 1;
  Slice() = default;
  Slice(std::optional<SymInt> start_, std::optional<SymInt> stop_, int64_t step_ = 1)
      : start(start_), stop(stop_), step(step_) {}
};
struct None_t {};
inline constexpr None_t None{};
struct Ellipsis_t {};
inline constexpr Ellipsis_t Ellipsis{};
class Index;

// A reference to a tensor; copies share it. Default-constructed: undefined. Thread-safety: as std::shared_ptr. A tensor made
// while tracing is valid until its trace ends.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& o) : bits_(o.bits()) {
    if (bits_) retain();
  }
  Tensor(Tensor&& o) noexcept : bits_(std::exchange(o.place(false), 0)) {}
  Tensor& operator=(const Tensor& o) {
    Tensor copy(o);
    std::swap(place(true), copy.bits_);
    return *this;
  }
  Tensor& operator=(Tensor&& o) {
    std::swap(place(true), o.place(false));
    return *this;
  }
  ~Tensor() {
    if (bits_) release();
  }

  bool defined() const { return bits() != 0; }

  // ---- description
  int64_t dim() const;
  // Symbolic while a dynamic program is traced; a guard on it as a number names the line of this call. Negative axes count from
  // the end.
  SymInt size(int64_t axis, std::source_location where = std::source_location::current()) const;
  SymInt sym_size(int64_t axis, std::source_location where = std::source_location::current()) const {
    return size(axis, where);
  }
  Shape shape(std::source_location where = std::source_location::current()) const;
  std::vector<int64_t> sizes(std::source_location where = std::source_location::current()) const;  // as numbers
  std::vector<int64_t> strides() const;  // in elements; of a concrete tensor
  SymInt numel(std::source_location where = std::source_location::current()) const;
  DType dtype() const;
  Device device() const;
  bool is_contiguous() const;

  // ---- gradients of calls of compiled functions (autograd.hpp)
  bool requires_grad() const;
  // Compiled functions called with the tensor record its gradient from now on, on threads where gradients are on. Not while it
  // is traced.
  Tensor& requires_grad_(bool on = true);
  // Adds the derivative of this tensor, which a compiled function has returned, to grad() of all tensors that require gradients
  // and that it was computed from. Without a seed it has one element, and its seed is 1. Once per call of the function: what it
  // has kept is released. Throws TSR-F063 (nothing is recorded), TSR-A020 (a second time), TSR-F050 (a seed that does not fit).
  void backward() const;
  void backward(const Tensor& seed) const;
  Tensor grad() const;      // the sum so far; undefined: none
  void zero_grad() const;   // grad() is undefined again
  Tensor detach() const;    // the same memory, of which nothing is recorded
  std::string str() const;  // values, for people

  // ---- values. Inside a compiled function reading one breaks the graph (docs/graph_breaks.md); what is read is then part of
  // the path that later calls are compared with.
  Tensor item() const;  // of one element, as a 0-d tensor: breaks nothing until it is converted
  template <class T>
  T item(std::source_location where = std::source_location::current()) const;  // of one element
  // The value of a tensor of one element, as item<T>(): `if (x.sum() > 0)`, `double(x.mean())`. defined() says whether there is
  // a tensor.
  explicit operator bool() const;
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) explicit operator T() const { return convert<T>(); }
  template <class T>
  T* data(std::source_location where = std::source_location::current()) const;  // T must match dtype(); contiguous
  void* raw_data(std::source_location where = std::source_location::current()) const;
  template <class T>
  std::vector<T> to_vector(std::source_location where = std::source_location::current()) const;  // row-major, converted

  // ---- writes in place, outside of compiled functions (TSR-F063 within): every tensor of the same memory has the new values.
  // A backward half that still needs the old ones refuses (TSR-A022).
  const Tensor& copy_(const Tensor& values) const;  // of its dtype and shape (TSR-T029)
  const Tensor& fill_(Scalar value) const;
  const Tensor& zero_() const;
  void mark_written() const;  // by host code, through data()

  // ---- conversion
  Tensor to(DType) const;
  Tensor to(const Device&) const;  // x.to("cuda"), which is cuda:0
  Tensor contiguous() const;
  Tensor clone() const;

  // ---- shape
  Tensor reshape(Shape shape) const;  // one -1 is inferred
  Tensor view(Shape shape) const { return reshape(std::move(shape)); }
  Tensor permute(Axes perm) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const { return transpose(0, 1); }
  Tensor unsqueeze(int64_t axis) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t axis) const;
  Tensor flatten(int64_t start = 0, int64_t end = -1) const;
  Tensor expand(Shape shape) const;  // -1 keeps a size
  Tensor flip(Axes axes) const;
  Tensor roll(Axes shifts, Axes axes) const;
  Tensor repeat(Axes repeats) const;
  std::vector<Tensor> split(SymInt size, int64_t axis = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t axis = 0) const;
  Tensor narrow(int64_t axis, SymInt start, SymInt length) const;
  Tensor select(int64_t axis, SymInt index) const;
  Tensor slice(int64_t axis, std::optional<SymInt> start = {}, std::optional<SymInt> stop = {}, int64_t step = 1) const;
  Tensor index(std::initializer_list<Index> items) const;  // x.index({0, Slice(1, 3), Ellipsis})
  Tensor operator[](int64_t i) const { return select(0, i); }
  Tensor tril(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;
  Tensor diagonal(int64_t offset = 0, int64_t axis1 = 0, int64_t axis2 = 1) const;

  // ---- elementwise
  Tensor operator-() const;
  Tensor abs() const;
  Tensor neg() const;
  Tensor sign() const;
  Tensor exp() const;
  Tensor exp2() const;
  Tensor expm1() const;
  Tensor log() const;
  Tensor log2() const;
  Tensor log10() const;
  Tensor log1p() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor reciprocal() const;
  Tensor square() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tan() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor erf() const;
  Tensor erfc() const;
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor trunc() const;
  Tensor relu() const;
  Tensor isnan() const;
  Tensor isinf() const;
  Tensor logical_not() const;
  Tensor pow(const Tensor& e) const;
  Tensor pow(Scalar e) const;
  Tensor clamp(std::optional<Scalar> lo, std::optional<Scalar> hi = {}) const;
  Tensor masked_fill(const Tensor& mask, Scalar value) const;

  // ---- reductions; without axes over everything
  Tensor sum(std::source_location where = std::source_location::current()) const;
  Tensor sum(Axes axes, bool keepdim = false) const;
  Tensor prod() const;
  Tensor prod(Axes axes, bool keepdim = false) const;
  Tensor mean(std::source_location where = std::source_location::current()) const;
  Tensor mean(Axes axes, bool keepdim = false) const;
  Tensor amax(Axes axes = {}, bool keepdim = false) const;
  Tensor amin(Axes axes = {}, bool keepdim = false) const;
  Tensor max() const { return amax(); }
  Tensor min() const { return amin(); }
  std::pair<Tensor, Tensor> max(int64_t axis, bool keepdim = false) const;  // values, indices
  std::pair<Tensor, Tensor> min(int64_t axis, bool keepdim = false) const;
  Tensor argmax(std::optional<int64_t> axis = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> axis = {}, bool keepdim = false) const;
  Tensor var(Axes axes, double correction = 1, bool keepdim = false) const;
  Tensor std(Axes axes, double correction = 1, bool keepdim = false) const;
  Tensor norm(double p = 2, Axes axes = {}, bool keepdim = false) const;
  Tensor logsumexp(Axes axes, bool keepdim = false) const;
  Tensor any(std::source_location where = std::source_location::current()) const;
  Tensor all(std::source_location where = std::source_location::current()) const;
  Tensor cumsum(int64_t axis) const;
  Tensor softmax(int64_t axis) const;
  Tensor log_softmax(int64_t axis) const;

  // ---- indexing, sorting, products
  Tensor gather(int64_t axis, const Tensor& indices) const;
  Tensor index_select(int64_t axis, const Tensor& indices) const;
  Tensor scatter(int64_t axis, const Tensor& indices, const Tensor& src) const;
  Tensor scatter_add(int64_t axis, const Tensor& indices, const Tensor& src) const;
  std::pair<Tensor, Tensor> sort(int64_t axis = -1, bool descending = false) const;
  Tensor argsort(int64_t axis = -1, bool descending = false) const;
  std::pair<Tensor, Tensor> topk(SymInt k, int64_t axis = -1, bool largest = true) const;
  Tensor nonzero() const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor matmul(const Tensor& b) const;

  // ---- plumbing (client code and tests)
  static Tensor adopt(tsr_tensor_handle* h) { return Tensor(reinterpret_cast<uintptr_t>(h)); }  // takes the reference
  static Tensor adopt(detail::Traced* t) { return Tensor(reinterpret_cast<uintptr_t>(t) | 1); }
  bool is_traced() const { return (bits() & 1) != 0; }
  tsr_tensor_handle* handle() const;                                                                    // concrete; borrowed
  tsr_tensor_handle* handle_unchecked() const { return reinterpret_cast<tsr_tensor_handle*>(bits()); }  // known to be concrete
  detail::Traced* traced() const { return reinterpret_cast<detail::Traced*>(bits() & ~uintptr_t{1}); }

 private:
  friend struct detail::Substitutes;
  friend class detail::ArgBuffer;
  explicit Tensor(uintptr_t bits) : bits_(bits) {}
  void retain() const;
  void release();
  template <class T>
  T convert() const;
  // The tensor of a module has another value for a thread that traces a function on the module.
  uintptr_t bits() const {
    if (detail::t_substitutes) [[unlikely]]
      return *detail::substitute_of(this, const_cast<uintptr_t*>(&bits_), false);
    return bits_;
  }
  uintptr_t& place(bool assigns) {
    if (detail::t_substitutes) [[unlikely]]
      return *detail::substitute_of(this, &bits_, assigns);
    return bits_;
  }
  uintptr_t bits_ = 0;  // tsr_tensor_handle*, or Traced* with the low bit set
};

class Index {
 public:
  Index(int64_t i) : kind(kAt), at(i) {}
  Index(int i) : kind(kAt), at(i) {}
  Index(SymInt i) : kind(kAt), at(i) {}
  Index(Slice s) : kind(kSlice), slice(std::move(s)) {}
  Index(None_t) : kind(kNone) {}
  Index(Ellipsis_t) : kind(kEllipsis) {}
  Index(Tensor t) : kind(kTensor), tensor(std::move(t)) {}
  enum Kind { kAt, kSlice, kNone, kEllipsis, kTensor } kind;
  SymInt at{0};
  Slice slice;
  Tensor tensor;
};

// A tensor on the right of an operator, with the place where it stands: operators take no further arguments.
struct TensorOperand {
  const Tensor& tensor;
  std::source_location where;
  TensorOperand(const Tensor& t, std::source_location w = std::source_location::current()) : tensor(t), where(w) {}
};

#define TESSERA_BINARY(op)                                 \
  Tensor operator op(const Tensor&, const TensorOperand&); \
  Tensor operator op(const Tensor&, Scalar);               \
  Tensor operator op(Scalar, const Tensor&);
// Both sides alike, so that the reversed form that C++20 looks at is not another candidate.
#define TESSERA_EQUALITY(op)                                      \
  Tensor operator op(const TensorOperand&, const TensorOperand&); \
  Tensor operator op(const Tensor&, Scalar);                      \
  Tensor operator op(Scalar, const Tensor&);
TESSERA_BINARY(+)
TESSERA_BINARY(-)
TESSERA_BINARY(*)
TESSERA_BINARY(/)
TESSERA_BINARY(%)
TESSERA_EQUALITY(==)
TESSERA_EQUALITY(!=)
TESSERA_BINARY(<)
TESSERA_BINARY(<=)
TESSERA_BINARY(>)
TESSERA_BINARY(>=)
TESSERA_BINARY(&)
TESSERA_BINARY(|)
TESSERA_BINARY(^)
#undef TESSERA_BINARY
#undef TESSERA_EQUALITY
Tensor operator~(const Tensor&);

}  // namespace tessera
