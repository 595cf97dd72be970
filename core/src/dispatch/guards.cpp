// SPDX-License-Identifier: Apache-2.0
#include "dispatch/guards.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "dispatch/global_state.hpp"
#include "dispatch/marks.hpp"
#include "dispatch/plain_call.hpp"
#include "dispatch/type_ids.hpp"
#include "memory/copy.hpp"
#include "memory/device.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

void Mask::finish() {
  words_ = 1;
  num_types_ = 0;
  symbolic = false;
  readers_.clear();
  for (const LeafGuard& l : leaves) {
    Reader r{Reader::kNothing, l.rank, l.kind | uint64_t{l.role} << 32, l.fixed, l.layout == LeafGuard::kStrides};
    words_ += 1;
    const bool all_fixed = static_cast<uint32_t>(std::popcount(l.fixed)) == l.rank;
    switch (l.kind) {
      case TSR_ARG_TENSOR:
        if (!l.guarded) break;
        if (l.by_value) {
          r.how = Reader::kElements;
          words_ += l.rank + 1;
          break;
        }
        if (all_fixed && l.layout != LeafGuard::kNotDense) {
          r.how = Reader::kType;
          ++num_types_;
          break;
        }
        r.how = Reader::kTensor;
        words_ += l.rank + (l.layout == LeafGuard::kStrides ? l.rank : 0);
        symbolic = symbolic || l.layout == LeafGuard::kNotDense || !all_fixed;
        break;
      case TSR_ARG_SYM_FLOAT:
      case TSR_ARG_FLOAT:
        if (l.guarded) r.how = Reader::kFloat;
        break;
      case TSR_ARG_STRING:
      case TSR_ARG_KEYS:
        if (l.guarded) r.how = Reader::kText;
        break;
      case TSR_ARG_NONE: break;
      default:
        if (l.guarded) r.how = Reader::kInteger;
        if (l.kind == TSR_ARG_SYM_INT && l.rank > 0 && !l.guarded) symbolic = true;
        break;
    }
    readers_.push_back(r);
  }
  find_plain();
}

void Mask::find_plain() {
  PlainLeaves p;
  p.count = static_cast<uint32_t>(readers_.size());
  for (size_t i = 0; i < readers_.size(); ++i) {
    const Reader& r = readers_[i];
    const auto kind = static_cast<uint32_t>(r.kind_and_role);
    const auto at = static_cast<uint32_t>(i * sizeof(tsr_arg));
    switch (r.how) {
      case Reader::kType: p.typed.push_back({r.kind_and_role, at, 0}); break;
      case Reader::kInteger: p.values.push_back({kind, at, static_cast<uint32_t>(at + offsetof(tsr_arg, i)), 0}); break;
      case Reader::kFloat: p.values.push_back({kind, at, static_cast<uint32_t>(at + offsetof(tsr_arg, f)), 0}); break;
      case Reader::kNothing: p.unread.push_back({kind, at}); break;
      case Reader::kTensor:
      case Reader::kElements:
      case Reader::kText: plain_ = {}; return;
    }
  }
  p.fit =
      !symbolic && !p.typed.empty() && p.typed.size() <= PlainLeaves::kMaxTyped && p.values.size() <= PlainLeaves::kMaxValues;
  for (size_t i = 0; p.fit && i < p.typed.size(); ++i) p.typed[i].factor = plain_hash::kFactors[i];
  for (size_t i = 0; p.fit && i < p.values.size(); ++i) p.values[i].factor = plain_hash::kFactors[plain_hash::kFirstValue + i];
  plain_ = p.fit ? std::move(p) : PlainLeaves();
}

uint64_t Mask::hash(const uint64_t* key, size_t words) const {
  return plain_.fit ? plain_hash::of_key(key, plain_.typed.size(), plain_.values.size()) : hash_words(key, words);
}

namespace {

// Whether it requires a gradient, in bit `at`; adds its marks.
inline uint64_t state_word(const tsr_tensor_handle& h, unsigned at, uint32_t& marks) {
  const uint64_t state = two_fields(h, offsetof(tsr_tensor_handle, requires_grad));
  if (state == 0) [[likely]]
    return 0;
  marks |= static_cast<uint32_t>(state >> 32);
  return static_cast<uint64_t>(h.requires_grad != 0) << at;
}

// dtype, device, requires_grad, rank and flags: each is a small number in bits of its own.
inline uint64_t type_word(const tsr_tensor_handle& h, uint32_t& marks) {
  return two_fields(h.desc, offsetof(tsr_tensor, dtype)) | two_fields(h.desc, offsetof(tsr_tensor, device)) << 8 |
         state_word(h, 16, marks);
}

}  // namespace

bool Mask::key(const tsr_arg* args, size_t count, WordBuffer& out, uint32_t* marks) const {
  if (count != readers_.size()) return false;
  out.reserve(words_);
  uint64_t* w = out.end();
  *w++ = global_state();
  // Numbers of types come next, two to a word; then what else there is.
  char* types = reinterpret_cast<char*>(w);
  w += (num_types_ + 1) / 2;
  if (num_types_ % 2 != 0) w[-1] = 0;
  uint32_t all_marks = 0;
  size_t text_words = 0;
  const auto push_text = [&](std::string_view text) {
    out.set_end(w);
    const std::ptrdiff_t type_bytes = types - reinterpret_cast<const char*>(out.data());
    text_words -= out.size();
    out.push_text(text);
    text_words += out.size();
    out.reserve(words_ + text_words - out.size());
    w = out.end();  // the words may have moved
    types = reinterpret_cast<char*>(w - out.size()) + type_bytes;
  };
  const tsr_arg* a = args;
  for (const Reader& r : readers_) {
    const tsr_arg& arg = *a++;
    if (r.how == Reader::kType) [[likely]] {
      if (two_fields(arg, offsetof(tsr_arg, kind)) != r.kind_and_role || !arg.tensor)
        return false;  // a null tensor: the miss reports it
      const uint32_t type = known_type_of(arg.tensor);
      if (type == 0) [[unlikely]]
        return false;  // nothing was compiled for it
      const uint32_t word = type << 1 | static_cast<uint32_t>(state_word(*arg.tensor, 0, all_marks));
      std::memcpy(types, &word, sizeof word);
      types += sizeof word;
      continue;
    }
    if (arg.kind != static_cast<uint32_t>(r.kind_and_role)) return false;
    switch (r.how) {
      case Reader::kType: break;
      case Reader::kTensor: {
        if (two_fields(arg, offsetof(tsr_arg, kind)) != r.kind_and_role || !arg.tensor) return false;
        const tsr_tensor& t = arg.tensor->desc;
        if (t.rank != r.rank) return false;
        *w++ = type_word(*arg.tensor, all_marks);
        for (uint64_t rest = r.fixed; rest; rest &= rest - 1) *w++ = static_cast<uint64_t>(t.sizes[std::countr_zero(rest)]);
        if (r.strides)
          for (uint32_t k = 0; k < r.rank; ++k) *w++ = static_cast<uint64_t>(t.strides[k]);
        break;
      }
      case Reader::kInteger: *w++ = static_cast<uint64_t>(arg.i); break;
      case Reader::kFloat: *w++ = std::bit_cast<uint64_t>(arg.f); break;
      case Reader::kElements: {
        if (two_fields(arg, offsetof(tsr_arg, kind)) != r.kind_and_role || !arg.tensor) return false;
        const tsr_tensor& t = arg.tensor->desc;
        if (t.rank != r.rank) return false;
        *w++ = t.dtype;
        for (uint32_t k = 0; k < t.rank; ++k) *w++ = static_cast<uint64_t>(t.sizes[k]);
        if (t.device == 0 && (t.flags & TSR_TENSOR_CONTIGUOUS))
          push_text(
              {static_cast<const char*>(t.data), static_cast<size_t>(storage_bytes(t.dtype, num_elements({t.sizes, t.rank})))});
        else
          push_text(elements_of(arg.tensor));
        break;
      }
      case Reader::kText:
        if (!is_text(arg)) return false;  // the miss reports it
        push_text(arg_text(arg));
        break;
      case Reader::kNothing:
        if (arg.kind == TSR_ARG_TENSOR && !arg.tensor) return false;
        break;
    }
  }
  out.set_end(w);
  *marks = all_marks;
  return true;
}

void check_arguments(const tsr_arg* args, size_t count, const std::string& function,
                     const std::function<std::string(size_t)>& path_of) {
  for (size_t i = 0; i < count; ++i) {
    const tsr_arg& a = args[i];
    if (a.kind == TSR_ARG_TENSOR && !a.tensor)
      throw user_error("TSR-E002", "argument " + path_of(i) + " of '" + function + "' is a null tensor");
    if ((a.kind == TSR_ARG_STRING || a.kind == TSR_ARG_KEYS) && !is_text(a))
      throw user_error("TSR-E016",
                       "argument " + path_of(i) + " of '" + function + "': found a text that does not end after the " +
                           std::to_string(a.i) + " bytes that tsr_arg.i says",
                       "set i to the number of bytes of s, and s[i] to 0 (embed.h)");
  }
}

void Mask::number_types(const tsr_arg* args, size_t count) const {
  for (size_t i = 0; i < count && i < readers_.size(); ++i)
    if (readers_[i].how == Reader::kType && args[i].kind == TSR_ARG_TENSOR && args[i].tensor)
      give_type_number(args[i].tensor->desc);
}

std::string elements_of(tsr_tensor_handle* tensor) {
  const tsr_tensor& t = tensor->desc;
  // Behind the work that writes it, on whatever stream.
  if (t.device != kCpu) return elements_of(TensorRef(tensor_copy(*Tensor::from(tensor), kCpu)).get());
  const int64_t count = num_elements({t.sizes, t.rank});
  std::string bytes(static_cast<size_t>(storage_bytes(t.dtype, count)), '\0');
  if (bytes.empty()) return bytes;
  std::vector<int64_t> strides(t.rank);
  dense_strides({t.sizes, t.rank}, strides.data());
  copy_tensor({bytes.data(), t.dtype, t.rank, t.sizes, strides.data(), kCpu, TSR_TENSOR_CONTIGUOUS}, t);
  return bytes;
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
    if (e.kind != TSR_ARG_TENSOR || !e.guarded || mask.leaves[i].by_value || args[i].tensor->marks == 0) continue;
    for (const DimMark& m : marks_of(args[i].tensor->marks)) {
      const bool symbol = m.dim < e.symbols.size() && e.symbols[m.dim] >= 0;
      if (symbol != (m.mark != TSR_MARK_STATIC)) return false;
    }
  }
  return true;
}

}  // namespace tessera::core
