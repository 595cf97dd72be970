// SPDX-License-Identifier: Apache-2.0
#include "dispatch/guards.hpp"

#include <bit>

#include "dispatch/global_state.hpp"
#include "dispatch/marks.hpp"
#include "support/error.hpp"

namespace tessera::core {

void Mask::finish() {
  words = 1;
  symbolic = false;
  for (const LeafGuard& l : leaves) {
    words += 1;
    if (l.kind == TSR_ARG_SYM_INT && l.rank > 0 && !l.guarded) symbolic = true;
    if (l.kind != TSR_ARG_TENSOR || !l.guarded) continue;
    words += l.rank + (l.layout == LeafGuard::kStrides ? l.rank : 0);
    symbolic = symbolic || static_cast<uint32_t>(std::popcount(l.fixed)) != l.rank;
  }
}

bool Mask::key(const tsr_arg* args, size_t count, WordBuffer& out, uint32_t* marks) const {
  if (count != leaves.size()) return false;
  out.reserve(words);
  out.push(global_state());
  const tsr_arg* a = args;
  for (const LeafGuard& leaf : leaves) {
    const tsr_arg& arg = *a++;
    if (arg.kind != leaf.kind) return false;
    switch (leaf.kind) {
      case TSR_ARG_TENSOR: {
        if (!leaf.guarded) break;
        if (!arg.tensor) return false;  // the miss reports it
        const tsr_tensor_handle& h = *arg.tensor;
        const tsr_tensor& t = h.desc;
        if (t.rank != leaf.rank || ((t.flags & TSR_TENSOR_CONTIGUOUS) != 0) != (leaf.layout == LeafGuard::kDense)) return false;
        *marks |= h.marks;
        out.push(t.dtype | uint64_t{arg.role} << 8 | uint64_t{h.requires_grad != 0} << 16 | uint64_t{t.device} << 32);
        const uint64_t all = leaf.rank < 64 ? (uint64_t{1} << leaf.rank) - 1 : ~uint64_t{0};
        if (leaf.fixed == all) {
          for (uint32_t k = 0; k < leaf.rank; ++k) out.push(static_cast<uint64_t>(t.sizes[k]));
        } else {
          for (uint64_t rest = leaf.fixed; rest; rest &= rest - 1)
            out.push(static_cast<uint64_t>(t.sizes[std::countr_zero(rest)]));
        }
        if (leaf.layout == LeafGuard::kStrides)
          for (uint32_t k = 0; k < leaf.rank; ++k) out.push(static_cast<uint64_t>(t.strides[k]));
        break;
      }
      case TSR_ARG_SYM_FLOAT:
        if (!leaf.guarded) break;
        [[fallthrough]];
      case TSR_ARG_FLOAT: out.push(std::bit_cast<uint64_t>(arg.f)); break;
      case TSR_ARG_STRING:
      case TSR_ARG_KEYS:
        out.push_text(arg.s ? arg.s : "");
        out.reserve(words);
        break;
      case TSR_ARG_NONE: break;
      default:
        if (leaf.guarded) out.push(static_cast<uint64_t>(arg.i));
        break;
    }
  }
  return true;
}

bool SymbolicGuards::hold(const tsr_arg* args) const {
  int64_t stack[64];
  std::vector<int64_t> heap;
  int64_t* values = stack;
  const size_t n = sizes ? sizes->symbols().size() : 0;
  if (n > 64) {
    heap.resize(n);
    values = heap.data();
  }
  const auto value_at = [&](const Place& p) {
    return p.dim == kNumber ? args[p.leaf].i : args[p.leaf].tensor->desc.sizes[p.dim];
  };
  for (const Place& p : binds) values[p.symbol] = value_at(p);
  for (const Place& p : equals)
    if (values[p.symbol] != value_at(p)) return false;
  for (const Bounds& b : bounds)
    if (values[b.symbol] < b.min || values[b.symbol] > b.max) return false;
  if (relations.empty()) return true;
  try {
    for (const Assumption& r : relations)
      if (!Sizes::holds(r.relation, sizes->evaluate(r.a, {values, n}), sizes->evaluate(r.b, {values, n}))) return false;
  } catch (const Error&) {
    return false;  // a size expression overflows for these sizes: the graph was not made for them
  }
  return true;
}

bool Guards::covers_marks(const tsr_arg* args) const {
  for (size_t i = 0; i < expected.size(); ++i) {
    const Expected& e = expected[i];
    if (e.kind != TSR_ARG_TENSOR || !e.guarded || args[i].tensor->marks == 0) continue;
    for (const DimMark& m : marks_of(args[i].tensor->marks)) {
      const bool symbol = m.dim < e.symbols.size() && e.symbols[m.dim] >= 0;
      if (symbol != (m.mark != TSR_MARK_STATIC)) return false;
    }
  }
  return true;
}

}  // namespace tessera::core
