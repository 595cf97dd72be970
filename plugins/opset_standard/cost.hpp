// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "dims.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace tessera::opset {

// Arithmetic and memory traffic of one application, once per call: what cost models multiply with a machine's rates.
// Symbolic sizes count at their hint.
class CostQuery {
 public:
  explicit CostQuery(const tsr_call& call) : dims(call.graph), call_(&call) {}

  const Dims dims;
  double flops = 0, bytes_read = 0, bytes_written = 0;

  std::string_view op() const { return call_->op; }
  uint32_t num_operands() const { return call_->num_operands; }
  bool has(uint32_t i) const { return i < call_->num_operands && call_->operands[i]; }
  sdk::Type operand(uint32_t i) const { return {call_->operands[i]}; }
  std::span<const tsr_attr> attrs() const { return {call_->attrs, call_->num_attrs}; }
  sdk::Attr find(std::string_view name) const { return {sdk::find_attr(call_->attrs, call_->num_attrs, name)}; }
  sdk::Attr attr(std::string_view name) const { return sdk::Call{call_}.attr(name); }
  double size(uint32_t operand, int64_t axis) const { return dims.estimate(this->operand(operand).size(axis)); }
  double elements(std::span<const tsr_dim> sizes) const {
    double n = 1;
    for (tsr_dim d : sizes) n *= dims.estimate(d);
    return n;
  }
  double elements(uint32_t i) const { return elements(operand(i).sizes()); }
  static double bytes(tsr_dtype dtype, double elements) { return elements * dtype_bits(dtype) / 8; }
  void read_operands() {
    for (uint32_t i = 0; i < num_operands(); ++i)
      if (has(i)) bytes_read += bytes(operand(i).dtype(), elements(i));
  }
  void write(tsr_dtype dtype, double elements) { bytes_written += bytes(dtype, elements); }

 private:
  const tsr_call* call_;
};

}  // namespace tessera::opset
