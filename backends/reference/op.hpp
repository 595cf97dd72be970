// SPDX-License-Identifier: Apache-2.0
// One application of an op, as the functions of this backend see it, and the table entry that such a function has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor.hpp"
#include "tessera/plugin.hpp"

namespace tessera::reference {

// What a compiled node keeps: attributes by value (the graph may be gone at launch), sizes as numbers or slots.
struct Spec {
  struct Attribute {
    std::string name, text;
    int64_t i = 0;
    double f = 0;
    std::vector<int64_t> ints;
    std::vector<double> floats;
    std::vector<sdk::LaunchDim> dims;  // of dim (one) and dims
    std::vector<char> bytes;           // of tensor: dense
    std::vector<int64_t> sizes;
  };
  struct TypeOf {
    uint32_t dtype = 0;  // 0: omitted operand
    std::vector<sdk::LaunchDim> sizes;
  };
  std::string op;
  std::vector<Attribute> attributes;
  std::vector<TypeOf> operands, results;
  std::vector<uint32_t> symbol_axis;  // per unbacked symbol of result 0: its first axis of that size
};

class Op {
 public:
  // Tensors are borrowed. Unknown (null) data is allowed where only shapes are asked for.
  Op(const Spec& spec, const tsr_tensor* in, uint32_t num_in, const tsr_tensor* out, uint32_t num_out, void* workspace,
     const int64_t* dims)
      : spec_(spec), in_(in), out_(out), num_in_(num_in), num_out_(num_out), workspace_(workspace), dims_(dims) {}

  const std::string& name() const { return spec_.op; }
  const Spec& spec() const { return spec_; }
  uint32_t num_inputs() const { return num_in_; }
  uint32_t num_outputs() const { return num_out_; }
  bool has(uint32_t i) const { return i < num_in_ && !(in_[i].flags & TSR_TENSOR_ABSENT); }
  Tensor in(uint32_t i) const { return has(i) ? Tensor(in_[i]) : Tensor(); }
  Tensor out(uint32_t i = 0) const { return Tensor(out_[i]); }

  int64_t integer(const char* attr) const { return find(attr).i; }
  double real(const char* attr) const { return find(attr).f; }
  bool flag(const char* attr) const { return find(attr).i != 0; }
  std::string_view text(const char* attr) const { return find(attr).text; }
  Index ints(const char* attr) const;
  Index dims(const char* attr) const;  // also of a single dim: one entry
  Tensor tensor(const char* attr) const;
  // Axes may be negative: they count from the end of `rank`.
  int64_t axis(const char* attr, uint32_t rank) const { return normal(integer(attr), rank); }
  Index axes(const char* attr, uint32_t rank) const;
  static int64_t normal(int64_t axis, int64_t rank) { return axis < 0 ? axis + rank : axis; }

  template <class T>
  T* workspace() const {
    return static_cast<T*>(workspace_);
  }

  // An index that data gave: TSR-R011 when it is not in [0, size).
  int64_t checked(Int index, int64_t size, int64_t axis) const;
  [[noreturn]] void fail(const char* code, const std::string& message, const char* hint) const;

 private:
  const Spec::Attribute& find(const char* attr) const;

  const Spec& spec_;
  const tsr_tensor *in_, *out_;
  uint32_t num_in_, num_out_;
  void* workspace_;
  const int64_t* dims_;
};

struct Entry {  // one op
  const char* op;
  void (*run)(const Op&);
  // Bytes of workspace; sees shapes only. NULL: none.
  int64_t (*workspace)(const Op&) = nullptr;
  // Data-dependent result sizes, in order of first appearance. NULL: there are none.
  void (*sizes)(const Op&, std::span<int64_t>) = nullptr;
};

// The tables at the end of each family's file.
std::span<const Entry> elementwise_ops();
std::span<const Entry> special_ops();
std::span<const Entry> cast_ops();
std::span<const Entry> shape_ops();
std::span<const Entry> index_ops();
std::span<const Entry> sort_ops();
std::span<const Entry> reduce_ops();
std::span<const Entry> contraction_ops();
std::span<const Entry> convolution_ops();
std::span<const Entry> pool_ops();
std::span<const Entry> activation_ops();
std::span<const Entry> normalization_ops();
std::span<const Entry> network_ops();
std::span<const Entry> resample_ops();
std::span<const Entry> random_ops();

const Entry* find_entry(std::string_view op);

// Calls f.template operator()<T>() with the type that elements of `dtype` are computed in: double, Int or Complex.
template <class F>
void with_domain(uint32_t dtype, F&& f);

enum class Domain { Real, Integer, Complex };
Domain domain(uint32_t dtype);

template <class F>
void with_domain(uint32_t dtype, F&& f) {
  switch (domain(dtype)) {
    case Domain::Real: return f.template operator()<double>();
    case Domain::Integer: return f.template operator()<Int>();
    case Domain::Complex: return f.template operator()<Complex>();
  }
}

}  // namespace tessera::reference
