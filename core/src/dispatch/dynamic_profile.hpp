// SPDX-License-Identifier: Apache-2.0
// Automatic dynamic shapes: what earlier calls have shown to vary. For each source (the path of an argument) and independently
// for each size, the tuple of strides and each scalar, a value of the lattice unset < value < dynamic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/embed.h"

namespace tessera::core {

class DynamicProfile {
 public:
  enum State : uint8_t { kUnset, kValue, kDynamic };
  struct Number {
    State state = kUnset;
    int64_t value = 0;  // kValue; of a float its bits
    void merge(int64_t v) { merge(Number{kValue, v}); }
    void merge(const Number& o);  // the least upper bound
    bool operator==(const Number&) const = default;
  };
  struct Strides {  // as one: kValue with no numbers stands for row-major, whose strides follow from the sizes
    State state = kUnset;
    std::vector<int64_t> values;
    void merge(const Strides& o);
    bool operator==(const Strides&) const = default;
  };
  struct Source {
    State rank_state = kUnset;  // kDynamic: tensors of several ranks came; then every size is dynamic
    uint32_t rank = 0;
    std::vector<Number> sizes;
    Strides strides;
    Number scalar;
    void merge(const Source& o);
    bool operator==(const Source&) const = default;
    bool size_is_dynamic(size_t dim) const {
      return rank_state == kDynamic || (dim < sizes.size() && sizes[dim].state == kDynamic);
    }
  };

  // What this argument says about its source.
  static Source of(const tsr_arg& arg);
  void see(const std::string& path, const tsr_arg& arg) { sources_[path].merge(of(arg)); }
  const Source* find(const std::string& path) const {
    const auto at = sources_.find(path);
    return at == sources_.end() ? nullptr : &at->second;
  }
  // For a profile that outlives the process.
  const std::map<std::string, Source>& sources() const { return sources_; }
  void merge(const std::string& path, const Source& s) { sources_[path].merge(s); }
  void clear() { sources_.clear(); }

 private:
  std::map<std::string, Source> sources_;
};

}  // namespace tessera::core
