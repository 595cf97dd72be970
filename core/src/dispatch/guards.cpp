// SPDX-License-Identifier: Apache-2.0
#include "dispatch/guards.hpp"

#include <algorithm>
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
    symbolic = symbolic || l.layout == LeafGuard::kNotDense || static_cast<uint32_t>(std::popcount(l.fixed)) != l.rank;
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

int64_t SymbolicGuards::value_at(const tsr_arg* args, uint32_t leaf, uint32_t dim) {
  const tsr_arg& a = args[leaf];
  if (dim == kNumber) return a.i;
  return is_size(dim) ? a.tensor->desc.sizes[dim] : a.tensor->desc.strides[dim - kStride];
}

bool SymbolicGuards::values(const tsr_arg* args, std::span<int64_t> out) const {
  for (const Place& p : binds) out[p.symbol] = value_at(args, p.leaf, p.dim);
  for (const Derived& d : derived) {
    const int64_t size = value_at(args, d.leaf, d.dim);
    if (d.solves >= 0) {
      const auto symbol = static_cast<uint32_t>(d.solves);
      if (sizes->solve(d.size, symbol, size, out, &out[symbol]) != Sizes::Solution::kFound) return false;
    } else if (sizes->evaluate(d.size, out) != size) {
      return false;
    }
  }
  return true;
}

bool SymbolicGuards::hold(const tsr_arg* args) const {
  int64_t stack[64];
  std::vector<int64_t> heap;
  int64_t* known = stack;
  const size_t n = sizes ? sizes->symbols().size() : 0;
  if (n > 64) {
    heap.resize(n);
    known = heap.data();
  }
  const bool simple = derived.empty() && relations.empty() && asserted.empty();
  try {
    if (!values(args, {known, n})) return false;
    for (const Place& p : equals)
      if (known[p.symbol] != value_at(args, p.leaf, p.dim)) return false;
    for (const Bounds& b : bounds)
      if (known[b.symbol] < b.min || known[b.symbol] > b.max) return false;
    return simple || relations_hold(args, {known, n});
  } catch (const Error&) {
    return false;  // a size expression overflows for these sizes: the graph was not made for them
  }
}

bool SymbolicGuards::relations_hold(const tsr_arg* args, std::span<const int64_t> known) const {
  const auto holds = [&](const Assumption& r) {
    return Sizes::holds(r.relation, sizes->evaluate(r.a, known), sizes->evaluate(r.b, known));
  };
  const auto marked = [&](const Place& p) {
    const DimMark* mark = mark_of(args[p.leaf].tensor->marks, p.dim);
    return mark && mark->mark == TSR_MARK_UNBACKED;
  };
  return std::all_of(relations.begin(), relations.end(), holds) &&
         std::all_of(asserted.begin(), asserted.end(), [&](const Asserted& a) {
           return holds(a.relation) || std::any_of(a.places.begin(), a.places.end(), marked);
         });
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
