// SPDX-License-Identifier: Apache-2.0
// What of the arguments a capture takes as fixed and what as a symbol.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dispatch/dynamic_profile.hpp"
#include "dispatch/marks.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Config;

// The keys of [guards] that decide it; dynamic: those of the callable.
struct GuardPolicy {
  enum Dynamic : int8_t { kAuto = -1, kFalse = 0, kTrue = 1 } dynamic = kAuto;
  bool automatic = true, automatic_unbacked = false, assume_static = true;
  bool duck_shaping = true, specialize_zero = true, specialize_one = true, specialize_float = false, specialize_int = false;
  bool static_parameters = true;
  static GuardPolicy of(const Config& config, int32_t dynamic);  // `dynamic` as in tsr_callable_desc
};

struct DimPolicy {
  enum Kind : uint8_t { kFixed, kSymbol, kUnbacked } kind = kFixed;
  int64_t min = 0, max = INT64_MAX;
  bool marked = false;  // a mark asks for it: then it must not end up fixed
};

struct ArgPolicy {
  std::vector<DimPolicy> dims;                                    // of a tensor
  bool any_strides = false;                                       // of a tensor that is not row-major
  enum Scalar : uint8_t { kNumber, kSymbolic } scalar = kNumber;  // of a SYM_INT or SYM_FLOAT
  int64_t min = 0;                                                // of a symbolic integer
};

// What has turned out to need fixing during earlier attempts to capture this call.
struct Specialised {
  bool all = false;
  bool backed = false;                           // what became unbacked without being marked is a symbol like any other
  std::set<std::pair<uint32_t, uint32_t>> dims;  // argument, dimension (kScalarDim: the number)
  bool contains(uint32_t arg, uint32_t dim) const { return all || dims.count({arg, dim}) != 0; }
};
inline constexpr uint32_t kScalarDim = 0xffffffffu;

// Throws TSR-D001 for a dimension that is marked dynamic and must be a number here.
ArgPolicy input_policy(const GuardPolicy& policy, const DynamicProfile& profile, const std::string& path, const tsr_arg& arg,
                       uint32_t index, const Specialised& specialised);

// Why a dimension that was marked dynamic cannot be one.
[[noreturn]] void refuse_specialised(const std::string& path, uint32_t dim, const std::string& value, const std::string& why);

}  // namespace tessera::core
