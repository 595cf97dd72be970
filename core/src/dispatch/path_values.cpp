// SPDX-License-Identifier: Apache-2.0
#include "dispatch/path_values.hpp"

#include <bit>
#include <cstdlib>

#include "capture/breaks.hpp"
#include "dispatch/marks.hpp"

namespace tessera::core {

// What the client writes of a guarded variable: i, f, b or s, and the value. Anything else is taken as it is.
Expected guarded_fact(const tsr_break& b, const Seen& seen) {
  std::string text;
  if (seen.key.size() > 1) text.assign(reinterpret_cast<const char*>(seen.key.data() + 1), seen.key[0]);
  Expected x;
  x.path = b.detail ? b.detail : "";
  const char kind = text.empty() ? 's' : text[0];
  x.s = text.empty() ? text : text.substr(1);
  x.kind = kind == 'i' ? TSR_ARG_INT : kind == 'f' ? TSR_ARG_FLOAT : kind == 'b' ? TSR_ARG_BOOL : TSR_ARG_STRING;
  if (kind == 'i' || kind == 'b') x.i = std::strtoll(x.s.c_str(), nullptr, 10);
  if (kind == 'f') x.f = std::strtod(x.s.c_str(), nullptr);
  return x;
}

Expected read_fact(const tsr_break& b, const Seen& seen) {
  Expected x;
  x.path = "value read at " + place_text(b.loc);
  x.kind = b.read_kind == TSR_READ_BOOL ? TSR_ARG_BOOL : b.read_kind == TSR_READ_INT ? TSR_ARG_INT : TSR_ARG_FLOAT;
  x.i = seen.i;
  x.f = seen.f;
  return x;
}

bool same_value(const Expected& a, const Expected& b) {
  return a.kind == b.kind && a.i == b.i && std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f) && a.s == b.s;
}

ArgPolicy policy_of(const tsr_arg& a, bool any_strides) {
  ArgPolicy p;
  if (a.kind != TSR_ARG_TENSOR) return p;
  p.any_strides = any_strides;
  p.dims.resize(a.tensor->desc.rank);
  for (const DimMark& m : marks_of(a.tensor->marks))
    if (m.dim < p.dims.size()) p.dims[m.dim].marked = m.mark != TSR_MARK_STATIC;
  return p;
}

}  // namespace tessera::core
