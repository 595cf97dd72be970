// SPDX-License-Identifier: Apache-2.0
// Reads the values that the text IR and op records share: numbers, sizes, types, attributes, dense constants.
#pragma once

#include <algorithm>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/lexer.hpp"
#include "support/limits.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class NamedConstants;
class Sizes;

// What a short text may ask for. Everything else is bounded by the length of the text itself.
struct ReadLimits {
  int64_t splat_bytes = int64_t{1} << 30;  // memory of all `splat` constants of one text together
  uint32_t region_depth = 100;
  uint32_t assumptions = 1024;  // stated by one graph: proving one may have to look at the others
  uint32_t expression_depth = 100;
  uint32_t expression_operators = 1024;       // of one size
  const NamedConstants* constants = nullptr;  // null: a text has to spell all of its constants
};

class Reader : public Lexer {
 public:
  // Arrays, strings and constants that are read live in `memory`. `sizes` null: only plain numbers may stand for sizes.
  Reader(std::string_view text, std::string_view file, std::pmr::memory_resource& memory, Sizes* sizes,
         const ReadLimits& limits = {}, bool multiline_strings = false)
      : Lexer(text, file, multiline_strings), memory_(&memory), sizes_(sizes), limits_(limits) {}

  void set_memory(std::pmr::memory_resource& memory) { memory_ = &memory; }
  const ReadLimits& limits() const { return limits_; }
  int64_t splat_bytes() const { return splat_bytes_; }  // that splat constants have taken so far

  int64_t integer();  // optional minus
  double number();    // also an integer, inf, -inf, nan, nan(0x7ff8000000000001)
  tsr_dtype dtype();
  tsr_dim dim();  // a size expression; undeclared symbols come into being with the range 0..
  void define(const std::string& name, tsr_dim size) { defined_[name] = size; }  // from now on `name` stands for that size
  tsr_type type();                                                               // f32[s0, 4; 4, 1]@null:0
  tsr_attr attr(uint32_t kind);  // a value of this tsr_attr_kind; `name` stays null
  const tsr_tensor* dense();     // dense<f32[2]: [1.0, 2.0]>
  const char* string();          // a string literal, unescaped

  template <class T>
  T* allocate(size_t n) {
    return static_cast<T*>(memory_->allocate(n ? n * sizeof(T) : 1, alignof(T)));
  }
  template <class T>
  const T* copy(const std::vector<T>& v) {
    T* p = allocate<T>(v.size());
    std::copy(v.begin(), v.end(), p);
    return p;
  }
  const char* copy(std::string_view s);

 private:
  struct DimState {
    uint32_t depth = 0, operators = 0;
  };
  tsr_dim dim_sum(DimState&);
  tsr_dim dim_product(DimState&);
  tsr_dim dim_atom(DimState&);
  tsr_dim combine(tsr_dim_op op, tsr_dim a, tsr_dim b, const Token& at, DimState&);
  tsr_dim plain(const Token& t, bool negative);
  int64_t integer(const Token& t, bool negative);
  double real(const Token& t, bool negative);
  template <class F>
  uint32_t list(F&& element);

  // One element of a constant; index is its position in `data`.
  void element(uint32_t dtype, void* data, int64_t index);
  void float_element(uint32_t dtype, void* data, int64_t index);

  std::pmr::memory_resource* memory_;
  Sizes* sizes_;
  std::unordered_map<std::string, tsr_dim> defined_;
  ReadLimits limits_;
  int64_t splat_bytes_ = 0;
};

// Why no tensor can have this type, or "": dtype, rank, sizes that are negative for every value of their symbols, more
// bytes than 64 bits count, strides on a packed dtype that are not row-major. `sizes` may be null: then all are numbers.
std::string type_problem(const Sizes* sizes, const tsr_type& type);

}  // namespace tessera::core
