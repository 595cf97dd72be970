// SPDX-License-Identifier: Apache-2.0
#include "dispatch/advice.hpp"

namespace tessera::core {

size_t distance(const std::vector<GuardText>& failed) {
  return failed.size() + (!failed.empty() && failed.front().kind == GuardText::kStructure ? 1000 : 0);
}

std::string advice_for(const GuardPolicy& policy, const Guards& guards, const GuardText& g, const tsr_arg* args) {
  if (guards.expected.empty()) return "";
  const Expected& x = guards.expected[g.leaf < guards.expected.size() ? g.leaf : 0];
  const std::string path = "'" + x.path + "'", dim = std::to_string(g.dim);
  const auto see = [](std::string text, const char* section) { return text + " (docs/recompiles.md, \"" + section + "\")"; };
  // The leaf that a client adds behind all others where arguments may be one object.
  if (x.path == "aliasing" && g.leaf + 1 == guards.expected.size())
    return see("pass a clone() for one of two arguments that are one object", "One object as two arguments");
  switch (g.kind) {
    case GuardText::kStructure:
      return see("give " + path + " the same structure at every call, or compile one function per structure",
                 "Another structure");
    case GuardText::kGlobal: return see("call it in one gradient mode only", "Another gradient mode");
    case GuardText::kValue:
      switch (x.kind) {
        case TSR_ARG_FLOAT:
          return see("lift the constant: take " + path + " as SymFloat, or as a 0-d tensor", "Another number");
        case TSR_ARG_INT: return see("take " + path + " as SymInt, or as a 0-d tensor", "Another number");
        case TSR_ARG_SYM_FLOAT:
        case TSR_ARG_SYM_INT:
          if (policy.dynamic == GuardPolicy::kFalse || (x.kind == TSR_ARG_SYM_INT && policy.specialize_int))
            return see("compile with dynamic = auto: " + path + " becomes a symbol once it has changed", "Another number");
          if (x.kind == TSR_ARG_SYM_INT && (x.i < 2 || args[g.leaf].i < 2))
            return see("integers below 2 are numbers: shift the range of " + path + ", or pass a 0-d tensor", "Another number");
          if (!x.source.empty())
            return see("keep " + path + " symbolic at " + x.source + ", where its value is used", "Another number");
          return see("guards.specialize_float = false makes " + path + " an input from the start", "Another number");
        default: return see("compile one function per value of " + path, "Another choice");
      }
    case GuardText::kDevice:
      return see("move " + path + " to one device before the call", "Another dtype, device or gradient flag");
    case GuardText::kDtype:
      return see("convert " + path + " to one dtype before the call", "Another dtype, device or gradient flag");
    case GuardText::kGrad:
      return see("pass " + path + " with one requires_grad flag", "Another dtype, device or gradient flag");
    case GuardText::kRank: return see("reshape " + path + " to one rank before the call", "Another rank");
    case GuardText::kLayout: return see("pass " + path + " as contiguous()", "Another layout");
    case GuardText::kMark: return see("mark " + path + " the same way at every call", "Another size");
    case GuardText::kSize: {
      const int64_t expected = x.sizes[g.dim], actual = args[g.leaf].tensor->desc.sizes[g.dim];
      if (!g.source.empty())
        return see("keep dimension " + dim + " of " + path + " symbolic at " + g.source + ", where its value is used",
                   "Another size");
      const auto special = [&](int64_t s) { return (s == 0 && policy.specialize_zero) || (s == 1 && policy.specialize_one); };
      if (special(actual) || (special(expected) && x.symbols[g.dim] < 0))
        return see("sizes 0 and 1 are compiled for themselves: pad dimension " + dim + " of " + path +
                       ", or set guards.specialize_one = false (specialize_zero)",
                   "Sizes 0 and 1");
      if (policy.dynamic == GuardPolicy::kFalse)
        return see("mark dimension " + dim + " of " + path + " dynamic, or compile with dynamic = auto", "Another size");
      if (x.role == TSR_INPUT_PARAM && policy.static_parameters)
        return see("parameters have fixed shapes: mark dimension " + dim + " of " + path + " dynamic", "Another size");
      return see("mark dimension " + dim + " of " + path + " dynamic", "Another size");
    }
    case GuardText::kBound:
      if (g.dim == SymbolicGuards::kNumber)
        return see("integers below 2 are numbers: shift the range of " + path + ", or pass a 0-d tensor", "Another number");
      return see(
          "pad dimension " + dim + " of " + path + " (the pass 'bucket': bucket.buckets), or widen the range of its mark",
          "Sizes 0 and 1");
    case GuardText::kEqual:
      return see("mark dimension " + dim + " of " + path + " dynamic, or set guards.duck_shaping = false", "Equal sizes");
    case GuardText::kRelation:
      if (g.source.starts_with("bucket "))
        return see("a size of another bucket: fewer or wider bucket.buckets make fewer entries", "Buckets");
      return see(g.source.empty() ? "pad the sizes so that it holds (the pass 'bucket': bucket.buckets)"
                                  : "make " + g.source +
                                        " work for all sizes, or pad them so that it holds (the pass 'bucket': bucket.buckets)",
                 "A relation among sizes");
  }
  return "";
}

}  // namespace tessera::core
