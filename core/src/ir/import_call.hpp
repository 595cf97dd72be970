// SPDX-License-Identifier: Apache-2.0
// What is fixed of the call that a model is imported for, and what the import found out that it has to know.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class ImportCall {
 public:
  // Sizes as tsr_graph_api.bound_type gives them: a number; or `kOpen` for a size that stays a symbol; or open_with() its value
  // in the call, by which the import may decide what depends on it, under an assumption.
  static constexpr tsr_dim kOpen = -1;
  static tsr_dim open_with(int64_t value) { return -2 - value; }

  struct Fixed {  // of one input
    std::string name;
    const tsr_tensor* value = nullptr;  // borrowed; null: its value is not fixed
    bool has_rank = false;              // `sizes` say what is known of the sizes
    std::vector<tsr_dim> sizes;
    tsr_type type{};
    bool asked = false;  // the frontend has asked for it
  };

  Fixed& fix(std::string_view name) {
    for (Fixed& f : fixed_)
      if (f.name == name) return f;
    fixed_.emplace_back().name = name;
    return fixed_.back();
  }
  const std::deque<Fixed>& fixed() const { return fixed_; }

  const tsr_tensor* value_of(std::string_view name) {
    Fixed* const f = find(name);
    return f ? f->value : nullptr;
  }
  const tsr_type* type_of(std::string_view name) {
    Fixed* const f = find(name);
    if (!f || !f->has_rank) return nullptr;
    f->type.rank = static_cast<uint32_t>(f->sizes.size());
    f->type.sizes = f->sizes.data();
    return &f->type;
  }

  std::set<std::pair<std::string, uint32_t>> needed_inputs;  // name, TSR_NEED_*
  std::vector<uint32_t> needed_symbols;                      // of the graph that the import has filled

 private:
  Fixed* find(std::string_view name) {
    for (Fixed& f : fixed_)
      if (f.name == name) {
        f.asked = true;
        return &f;
      }
    return nullptr;
  }
  std::deque<Fixed> fixed_;
};

}  // namespace tessera::core
