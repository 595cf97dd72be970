// SPDX-License-Identifier: Apache-2.0
// What a graph takes and gives, copied out of its tables so that it outlives the graph, and sizes for one call.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"

namespace tessera::command {

struct ValueInfo {
  std::string name;                // inputs: in the graph, without '%'; outputs: outside of it
  std::string key;                 // what an input is called outside of the graph, when that is not its name; may be empty
  uint32_t kind = TSR_INPUT_NONE;  // tsr_input_kind; outputs: none
  uint32_t dtype = 0;
  bool donated = false;  // a call may reuse its memory
  tsr_device device = 0;
  std::vector<tsr_dim> sizes;
  std::vector<tsr_dim> strides;  // empty: dense
  [[nodiscard]] const std::string& label() const { return key.empty() ? name : key; }
};

struct SymbolInfo {
  std::string name;
  int64_t min, max, hint;
  bool unbacked;
};

class Signature {
 public:
  explicit Signature(const tsr_tables& tables);

  std::string graph;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<SymbolInfo> symbols;

  // The input called so outside of the graph, or else in it; null: none. An arg wins over a param or state whose key is the
  // same.
  [[nodiscard]] const ValueInfo* find(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> labels() const;              // of the inputs, keys where they have one, in order
  [[nodiscard]] std::string type_text(const ValueInfo& value) const;  // "f32[s0, 4]"
  // The value of a size for these symbols; nothing when it overflows or divides by zero.
  [[nodiscard]] std::optional<int64_t> value_of(tsr_dim d, const std::vector<int64_t>& values) const;
  // The same of a size that a tensor has. Throws TSR-U006 naming `what` when it overflows, divides by zero or is negative.
  [[nodiscard]] int64_t evaluate(tsr_dim d, const std::vector<int64_t>& values, const std::string& what) const;
  [[nodiscard]] std::vector<int64_t> evaluate(const std::vector<tsr_dim>& dims, const std::vector<int64_t>& values,
                                              const std::string& what) const;

  // A value per symbol: what the shapes of given inputs say (`shapes`: by index of the input), then `given` ("s0" -> 8), then
  // the symbol's hint, then 8 within its range. Throws TSR-U005..6: an unknown symbol, one out of range, two that disagree.
  [[nodiscard]] std::vector<int64_t> bind(const std::map<size_t, std::vector<int64_t>>& shapes,
                                          const std::map<std::string, int64_t>& given) const;

 private:
  [[nodiscard]] std::string dim_text(tsr_dim d) const;
  std::vector<tsr_dim_expr> exprs_;
};

}  // namespace tessera::command
