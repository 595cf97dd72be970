// SPDX-License-Identifier: Apache-2.0
// A host with nothing but what a backend needs: errors, threads and a one-node graph. It loads the plugin's library as the real
// host does and runs single ops, so that kernels are tested without the rest of the compiler.
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tessera/abi.h"
#include "tessera/dtypes.hpp"

namespace fake {

// A tensor in host memory. `strides` in elements; `data` may be larger than the sizes need (strided views).
struct Tensor {
  uint32_t dtype = TSR_F32;
  std::vector<int64_t> sizes, strides;
  std::vector<char> data;
  int64_t offset = 0;

  Tensor() = default;
  Tensor(uint32_t dtype, std::vector<int64_t> sizes);  // dense, zeroed
  template <class T>
  Tensor(uint32_t dtype, std::vector<int64_t> sizes, std::initializer_list<T> values) : Tensor(dtype, std::move(sizes)) {
    int64_t i = 0;
    for (T v : values) tessera::store_from(dtype, data.data(), i++, v);
  }
  int64_t elements() const;
  int64_t position(int64_t flat) const;  // row-major index -> element offset
  double at(int64_t flat) const { return tessera::load_as<double>(dtype, data.data(), position(flat)); }
  int64_t int_at(int64_t flat) const { return tessera::load_as<int64_t>(dtype, data.data(), position(flat)); }
  template <class T>
  void set(int64_t flat, T v) {
    tessera::store_from(dtype, data.data(), position(flat), v);
  }
};

// As `t`, but laid out with gaps, permuted or reversed: the same values through other strides.
Tensor strided(const Tensor& t, int variant);
Tensor random(uint32_t dtype, std::vector<int64_t> sizes, uint64_t seed, double lo = -2, double hi = 2);

struct Attr {
  enum Kind { Int, Float, Bool, Text, Ints, Dims, Dtype, Dim, TensorValue } kind;
  std::string name;
  int64_t i = 0;
  double f = 0;
  std::string s;
  std::vector<int64_t> ints;
  Tensor tensor;
};
inline Attr integer(std::string n, int64_t v) { return {Attr::Int, std::move(n), v, 0, {}, {}, {}}; }
inline Attr number(std::string n, double v) { return {Attr::Float, std::move(n), 0, v, {}, {}, {}}; }
inline Attr flag(std::string n, bool v) { return {Attr::Bool, std::move(n), v, 0, {}, {}, {}}; }
inline Attr text(std::string n, std::string v) { return {Attr::Text, std::move(n), 0, 0, std::move(v), {}, {}}; }
inline Attr ints(std::string n, std::vector<int64_t> v) { return {Attr::Ints, std::move(n), 0, 0, {}, std::move(v), {}}; }
inline Attr dims(std::string n, std::vector<int64_t> v) { return {Attr::Dims, std::move(n), 0, 0, {}, std::move(v), {}}; }
inline Attr dtype(std::string n, uint32_t v) { return {Attr::Dtype, std::move(n), v, 0, {}, {}, {}}; }

struct Error {
  std::string code, message, hint;
};

// A result type; a size of -1 is unbacked: the kernel's `sizes` gives it.
struct ResultType {
  uint32_t dtype;
  std::vector<int64_t> sizes;
};

class Backend {
 public:
  explicit Backend(const std::string& isa = "auto");
  ~Backend();
  // Throws Error. A null operand is omitted.
  std::vector<Tensor> run(const std::string& op, std::vector<const Tensor*> operands, std::vector<Attr> attrs,
                          std::vector<ResultType> results);
  Tensor run1(const std::string& op, std::vector<const Tensor*> operands, std::vector<Attr> attrs, ResultType result) {
    return run(op, std::move(operands), std::move(attrs), {std::move(result)})[0];
  }
  // Seconds per launch, best of `repeats`.
  double time(const std::string& op, std::vector<const Tensor*> operands, std::vector<Attr> attrs,
              std::vector<ResultType> results, int repeats);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

void set_threads(int n);  // 1: serial

}  // namespace fake
