// SPDX-License-Identifier: Apache-2.0
// The calls that dispatch is made to be fast for: of every argument that is guarded everything is fixed, and none is a text.
// What a hit needs of the arguments is read in one pass over them: the key, its hash, and the addresses of the data.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "dispatch/global_state.hpp"
#include "dispatch/type_ids.hpp"
#include "memory/tensor.hpp"
#include "run/fast_call.hpp"
#include "tessera/embed.h"

namespace tessera::core {

// Two adjacent 32-bit fields of a struct as one word.
template <class T>
inline uint64_t two_fields(const T& object, size_t offset) {
  uint64_t out;
  std::memcpy(&out, reinterpret_cast<const char*>(&object) + offset, sizeof out);
  return out;
}
static_assert(std::endian::native == std::endian::little);
static_assert(offsetof(tsr_tensor, rank) == offsetof(tsr_tensor, dtype) + 4);
static_assert(offsetof(tsr_tensor, flags) == offsetof(tsr_tensor, device) + 4);
static_assert(offsetof(tsr_arg, role) == offsetof(tsr_arg, kind) + 4);
static_assert(offsetof(tsr_tensor_handle, marks) == offsetof(tsr_tensor_handle, requires_grad) + 4);

// The leaves of a mask that fits, by how they are read. Positions are bytes from the first argument.
struct PlainLeaves {
  struct Typed {  // a tensor that stands in the key by the number of its type
    uint64_t kind_and_role;
    uint64_t at;
    uint64_t factor;  // of the hash
  };
  struct Value {  // a number: one word of the key
    uint32_t kind, at, word_at;
    uint64_t factor;
  };
  struct Unread {  // of which the kind alone counts
    uint32_t kind, at;
  };
  static constexpr size_t kMaxTyped = 128, kMaxValues = 64;  // what is wider takes the general way
  bool fit = false;
  uint32_t count = 0;  // of all
  std::vector<Typed> typed;
  std::vector<Value> values;
  std::vector<Unread> unread;
};

// The hash of such a key: each number times an odd word of its own, modulo 2^64 (multilinear hashing: Lemire and Kaser,
// "Strongly universal string hashing is fast", 2014). Its upper half is the good one; it is folded onto the lower, which
// selects a slot.
namespace plain_hash {
inline constexpr size_t kFirstValue = PlainLeaves::kMaxTyped, kState = kFirstValue + PlainLeaves::kMaxValues;
constexpr std::array<uint64_t, kState + 1> make_factors() {  // splitmix64
  std::array<uint64_t, kState + 1> out{};
  uint64_t state = 0x7465737365726121u;
  for (uint64_t& f : out) {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    f = (z ^ (z >> 31)) | 1;
  }
  return out;
}
inline constexpr std::array<uint64_t, kState + 1> kFactors = make_factors();
constexpr uint64_t of_state(uint64_t state) { return (state + 1) * kFactors[kState]; }
constexpr uint64_t of_type(uint32_t type, uint64_t factor) { return type * factor; }
constexpr uint64_t of_value(uint64_t word, uint64_t factor) {
  return (word ^ (word >> 32)) * factor;
}  // floats differ in their upper half
constexpr uint64_t finish(uint64_t sum) { return sum ^ (sum >> 32); }
// Of a key as Mask::key makes it: the state, the numbers of types, two to a word, then the values.
inline uint64_t of_key(const uint64_t* words, size_t typed, size_t values) {
  uint64_t sum = of_state(*words++);
  for (size_t i = 0; i < typed; ++i) sum += of_type(static_cast<uint32_t>(words[i / 2] >> (i % 2 * 32)), kFactors[i]);
  words += (typed + 1) / 2;
  for (size_t i = 0; i < values; ++i) sum += of_value(words[i], kFactors[kFirstValue + i]);
  return finish(sum);
}
}  // namespace plain_hash

// On the stack of a call; deliberately not initialised.
struct PlainMemory {
  uint64_t key[PlainLeaves::kMaxTyped / 2 + PlainLeaves::kMaxValues];
  void* bases[FastCall::kFewBases];  // those of the typed leaves come after the first
  PlainMemory() {}                   // NOLINT: see above
};

// In registers, where the compiler can.
struct PlainCall {
  uint64_t hash = 0;
  uint64_t state = 0;       // of the thread
  uintptr_t unaligned = 0;  // 1 when some tensor's data is not as aligned as buffers are
  size_t words = 0;         // of the key, after the state

  // False: an argument is of another kind or has marks, or is of a type that nothing was compiled for.
  [[gnu::always_inline]] bool read(const PlainLeaves& leaves, const tsr_arg* args, PlainMemory& memory) noexcept {
    const char* const first = reinterpret_cast<const char*>(args);
    uint64_t* word = memory.key + (leaves.typed.size() + 1) / 2;
    word[-1] = 0;  // the upper half of the last one, when their number is odd
    state = global_state();
    uint64_t sum = plain_hash::of_state(state);
    uintptr_t addresses = 0;
    char* type_at = reinterpret_cast<char*>(memory.key);
    void** base = memory.bases;
    for (const PlainLeaves::Typed& leaf : leaves.typed) {
      const tsr_arg& arg = *reinterpret_cast<const tsr_arg*>(first + leaf.at);
      tsr_tensor_handle* const h = arg.tensor;
      if (two_fields(arg, offsetof(tsr_arg, kind)) != leaf.kind_and_role || !h) [[unlikely]]
        return false;
      const uint32_t type = known_type_of(h);
      if (type == 0) [[unlikely]]
        return false;
      uint32_t half = type << 1;
      if (const uint64_t state_of = two_fields(*h, offsetof(tsr_tensor_handle, requires_grad)); state_of != 0) [[unlikely]] {
        if (state_of >> 32 != 0) return false;
        half |= 1;
      }
      std::memcpy(type_at, &half, sizeof half);
      type_at += sizeof half;
      sum += plain_hash::of_type(half, leaf.factor);
      void* const data = h->desc.data;
      *++base = data;
      addresses |= reinterpret_cast<uintptr_t>(data);
    }
    for (const PlainLeaves::Value& v : leaves.values) {
      if (reinterpret_cast<const tsr_arg*>(first + v.at)->kind != v.kind) return false;
      std::memcpy(word, first + v.word_at, sizeof *word);
      sum += plain_hash::of_value(*word++, v.factor);
    }
    for (const PlainLeaves::Unread& u : leaves.unread) {
      const tsr_arg& arg = *reinterpret_cast<const tsr_arg*>(first + u.at);
      if (arg.kind != u.kind || (u.kind == TSR_ARG_TENSOR && !arg.tensor)) return false;
    }
    words = static_cast<size_t>(word - memory.key);
    hash = plain_hash::finish(sum);
    unaligned = (addresses & (kAlignment - 1)) != 0;
    return true;
  }
};

}  // namespace tessera::core
