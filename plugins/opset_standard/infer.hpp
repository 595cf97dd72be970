// SPDX-License-Identifier: Apache-2.0
// What an infer callback works with: the operands and attributes of a call, checks with uniform messages, and the results.
//
// Codes: TSR-I200 rank, I201 axis, I202 sizes that disagree, I203 no broadcast, I204 length of an attribute, I205 value of an
// attribute, I206 dtype, I207 region signature, I208 empty or negative size, I209 element count, I210 number of operands.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dims.hpp"
#include "tessera/plugin.hpp"

namespace tessera::opset {

class Infer {
 public:
  Infer(const tsr_call& call, tsr_type* results, uint32_t capacity)
      : dims(call.graph), call_(&call), results_(results), capacity_(capacity) {}

  const Dims dims;

  const tsr_call& call() const { return *call_; }
  std::string_view op() const { return call_->op; }
  uint32_t num_operands() const { return call_->num_operands; }
  bool has(uint32_t i) const { return i < call_->num_operands && call_->operands[i]; }
  sdk::Type operand(uint32_t i) const { return {call_->operands[i]}; }
  std::span<const tsr_dim> sizes(uint32_t i) const { return operand(i).sizes(); }
  int64_t rank(uint32_t i) const { return operand(i).rank(); }
  tsr_dtype dtype(uint32_t i) const { return operand(i).dtype(); }
  sdk::Attr attr(std::string_view name) const { return sdk::Call{call_}.attr(name); }
  int64_t integer(std::string_view name) const { return attr(name).as_int(); }
  bool flag(std::string_view name) const { return attr(name).as_bool(); }
  std::span<const int64_t> ints(std::string_view name) const { return attr(name).as_ints(); }

  // ---- checks
  // "op 'conv', weight: found .., expected .."
  [[noreturn]] void fail(const char* code, std::string_view what, const std::string& found, const std::string& expected) const;
  void expect_rank(uint32_t i, std::string_view name, int64_t low, int64_t high) const;
  void expect_equal(std::string_view what, tsr_dim found, tsr_dim expected, const char* why) const;
  void expect_length(std::string_view name, size_t expected) const;       // of a list attribute
  void expect_all_at_least(std::string_view name, int64_t lowest) const;  // of an ints attribute
  // Normalised, or an error; `rank` counts the dimensions that the attribute may name.
  int64_t axis(std::string_view name, int64_t rank) const;
  int64_t normalize_axis(std::string_view what, int64_t axis, int64_t rank) const;
  std::vector<int64_t> axes(std::string_view name, int64_t rank) const;  // also distinct
  DimVector shape(std::string_view name) const;                          // a dims attribute, no size negative
  DimVector broadcast(std::span<const tsr_dim> a, std::span<const tsr_dim> b) const;

  // ---- results
  void result(tsr_dtype dtype, std::span<const tsr_dim> sizes);
  void result(const tsr_type& type);
  void results_on(tsr_device device);  // those that are there
  uint32_t num_results() const { return count_; }

 private:
  const tsr_call* call_;
  tsr_type* results_;
  uint32_t capacity_, count_ = 0;
};

std::string ordinal_text(std::span<const int64_t> v);  // "[1, 2]"

}  // namespace tessera::opset
