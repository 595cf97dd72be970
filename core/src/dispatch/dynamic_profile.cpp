// SPDX-License-Identifier: Apache-2.0
#include "dispatch/dynamic_profile.hpp"

#include <bit>

namespace tessera::core {

void DynamicProfile::Number::merge(const Number& o) {
  if (o.state == kUnset || state == kDynamic) return;
  if (state == kUnset)
    *this = o;
  else if (o.state == kDynamic || o.value != value)
    *this = {kDynamic, 0};
}

void DynamicProfile::Strides::merge(const Strides& o) {
  if (o.state == kUnset || state == kDynamic) return;
  if (state == kUnset)
    *this = o;
  else if (o.state == kDynamic || o.values != values)
    *this = {kDynamic, {}};
}

void DynamicProfile::Source::merge(const Source& o) {
  scalar.merge(o.scalar);
  if (o.rank_state == kUnset) return;
  if (rank_state == kUnset) {
    rank_state = o.rank_state;
    rank = o.rank;
    sizes = o.sizes;
    strides = o.strides;
    return;
  }
  if (rank_state == kDynamic) return;
  if (o.rank_state == kDynamic || o.rank != rank) {  // there is no telling which size became which
    rank_state = kDynamic;
    rank = 0;
    sizes.clear();
    strides = {};
    return;
  }
  for (size_t d = 0; d < sizes.size() && d < o.sizes.size(); ++d) sizes[d].merge(o.sizes[d]);
  strides.merge(o.strides);
}

DynamicProfile::Source DynamicProfile::of(const tsr_arg& arg) {
  Source s;
  switch (arg.kind) {
    case TSR_ARG_SYM_INT: s.scalar = {kValue, arg.i}; break;
    case TSR_ARG_SYM_FLOAT: s.scalar = {kValue, std::bit_cast<int64_t>(arg.f)}; break;
    case TSR_ARG_TENSOR: {
      const tsr_tensor& t = arg.tensor->desc;
      s.rank_state = kValue;
      s.rank = t.rank;
      for (uint32_t d = 0; d < t.rank; ++d) s.sizes.push_back({kValue, t.sizes[d]});
      s.strides.state = kValue;
      if (!(t.flags & TSR_TENSOR_CONTIGUOUS)) s.strides.values.assign(t.strides, t.strides + t.rank);
      break;
    }
    default: break;
  }
  return s;
}

}  // namespace tessera::core
