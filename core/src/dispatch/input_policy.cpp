// SPDX-License-Identifier: Apache-2.0
#include "dispatch/input_policy.hpp"

#include "config/config.hpp"
#include "support/error.hpp"

namespace tessera::core {

GuardPolicy GuardPolicy::of(const Config& config, int32_t dynamic) {
  GuardPolicy p;
  const std::string& mode = config.get_string("guards.dynamic");
  p.dynamic = dynamic == 0 ? kFalse : dynamic == 1 ? kTrue : mode == "true" ? kTrue : mode == "false" ? kFalse : kAuto;
  p.automatic = config.get_bool("guards.automatic_dynamic");
  p.automatic_unbacked = config.get_string("guards.automatic_dynamic_as") == "unbacked";
  p.assume_static = config.get_bool("guards.assume_static_by_default");
  p.duck_shaping = config.get_bool("guards.duck_shaping");
  p.specialize_zero = config.get_bool("guards.specialize_zero");
  p.specialize_one = config.get_bool("guards.specialize_one");
  p.specialize_float = config.get_bool("guards.specialize_float");
  p.specialize_int = config.get_bool("guards.specialize_int");
  p.static_parameters = config.get_bool("guards.force_parameter_static_shapes");
  return p;
}

void refuse_specialised(const std::string& path, uint32_t dim, const std::string& value, const std::string& why) {
  throw user_error("TSR-D001",
                   "dimension " + std::to_string(dim) + " of '" + path +
                       "' is marked dynamic, but the function needs it to be " + value + (why.empty() ? "" : ": " + why),
                   "change the function so that it works for every size, or take the mark away");
}

namespace {

// The least value of a size that is a symbol: which of 0 and 1 it may take.
int64_t least_size(const GuardPolicy& p) { return p.specialize_one ? 2 : p.specialize_zero ? 1 : 0; }
// Whether 0 or 1 stays a number. (A symbol for 0 alone cannot be had: with 1 specialised, symbols start at 2.)
bool special(const GuardPolicy& p, int64_t size) { return (size == 0 && p.specialize_zero) || (size == 1 && p.specialize_one); }

DimPolicy dim_policy(const GuardPolicy& p, const DynamicProfile::Source* seen, const std::string& path, const tsr_arg& arg,
                     uint32_t d, bool specialised, bool backed) {
  const int64_t size = arg.tensor->desc.sizes[d];
  DimPolicy out;
  if (const DimMark* mark = mark_of(arg.tensor->marks, d)) {
    if (mark->mark == TSR_MARK_STATIC) return out;
    if (size < mark->min || size > mark->max)
      throw user_error("TSR-D002",
                       "dimension " + std::to_string(d) + " of '" + path + "' is " + std::to_string(size) +
                           ", and marked to lie in " + std::to_string(mark->min) + ".." + std::to_string(mark->max),
                       "mark the range of all sizes that come");
    out.marked = true;
    out.max = mark->max;
    if (mark->mark == TSR_MARK_UNBACKED) {
      out.kind = DimPolicy::kUnbacked;
      out.min = mark->min;
      return out;
    }
    if (special(p, size)) refuse_specialised(path, d, std::to_string(size), "sizes 0 and 1 are always numbers");
    out.kind = DimPolicy::kSymbol;
    out.min = std::max(mark->min, size < 2 ? 0 : least_size(p));
    if (size == 0) out.min = 0;
    return out;
  }
  if (specialised || special(p, size) || p.dynamic == GuardPolicy::kFalse) return out;
  if (p.static_parameters && arg.role == TSR_INPUT_PARAM) return out;
  const bool automatic = p.dynamic == GuardPolicy::kAuto && p.automatic && seen && seen->size_is_dynamic(d);
  if (p.dynamic == GuardPolicy::kAuto && p.assume_static && !automatic) return out;
  out.kind = automatic && p.automatic_unbacked && !backed ? DimPolicy::kUnbacked : DimPolicy::kSymbol;
  out.min = size == 0 ? 0 : least_size(p);
  return out;
}

}  // namespace

ArgPolicy input_policy(const GuardPolicy& p, const DynamicProfile& profile, const std::string& path, const tsr_arg& arg,
                       uint32_t index, const Specialised& specialised) {
  ArgPolicy out;
  const DynamicProfile::Source* seen = profile.find(path);
  const bool automatic = p.dynamic == GuardPolicy::kAuto && p.automatic && seen;
  switch (arg.kind) {
    case TSR_ARG_TENSOR: {
      const tsr_tensor& t = arg.tensor->desc;
      for (uint32_t d = 0; d < t.rank; ++d)
        out.dims.push_back(dim_policy(p, seen, path, arg, d, specialised.contains(index, d), specialised.backed));
      out.any_strides = !(t.flags & TSR_TENSOR_CONTIGUOUS) && automatic && !specialised.all &&
                        (seen->strides.state == DynamicProfile::kDynamic || seen->rank_state == DynamicProfile::kDynamic);
      break;
    }
    case TSR_ARG_SYM_FLOAT: {
      if (specialised.contains(index, kScalarDim)) break;
      const bool changed = automatic && seen->scalar.state == DynamicProfile::kDynamic;
      if (!p.specialize_float || changed || p.dynamic == GuardPolicy::kTrue) out.scalar = ArgPolicy::kSymbolic;
      break;
    }
    case TSR_ARG_SYM_INT: {
      // A symbolic integer is a size: it is not negative, and 0 and 1 are numbers as those of sizes are.
      if (specialised.contains(index, kScalarDim) || p.specialize_int || arg.i < 0 || special(p, arg.i)) break;
      const bool changed = automatic && seen->scalar.state == DynamicProfile::kDynamic;
      if (changed || p.dynamic == GuardPolicy::kTrue || (p.dynamic == GuardPolicy::kAuto && !p.assume_static))
        out.scalar = ArgPolicy::kSymbolic;
      out.min = arg.i == 0 ? 0 : least_size(p);
      break;
    }
    default: break;
  }
  return out;
}

}  // namespace tessera::core
