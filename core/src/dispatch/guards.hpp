// SPDX-License-Identifier: Apache-2.0
// Guards of one compiled call: which facts about the arguments it relies on, as a key that is hashed and compared, and as text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/plain_call.hpp"
#include "dispatch/words.hpp"
#include "ir/sizes.hpp"
#include "tessera/embed.h"

namespace tessera::core {

// A guard in words, and the source line that caused it where that is known: "c == 0.5", "model.cpp:12".
struct GuardText {
  enum Kind : uint8_t {
    kStructure,
    kGlobal,
    kValue,
    kDevice,
    kDtype,
    kGrad,
    kRank,
    kSize,
    kLayout,
    kMark,
    kBound,
    kEqual,
    kRelation
  };
  std::string text, source;
  Kind kind = kValue;
  uint32_t leaf = 0, dim = 0;  // of those about one argument
  std::string full() const;    // the text padded to 55 columns, then "  # " and the source
};

std::vector<std::string> full_texts(const std::vector<GuardText>& guards);

// What is fixed about one leaf of the flattened arguments.
struct LeafGuard {
  enum Layout : uint8_t { kDense, kStrides, kNotDense };  // row-major; the strides are part of the key; any others
  uint32_t kind = 0;                                      // tsr_arg_kind
  bool guarded = false;  // the graph relies on it: of tensors their type, of others their value
  Layout layout = kDense;
  bool by_value = false;  // of a guarded tensor: all of its type and its elements are part of the key
  uint32_t role = 0;      // of a guarded tensor
  uint32_t rank = 0;
  uint64_t fixed = 0;  // bit i: the size at index i is part of the key; else it is a symbol
  bool operator==(const LeafGuard&) const = default;
};

// The text of a string, or of the keys of a map: all of its bytes, zero bytes too.
inline std::string_view arg_text(const tsr_arg& a) {
  return a.s && a.i > 0 ? std::string_view(a.s, static_cast<size_t>(a.i)) : std::string_view();
}
// Whether it ends where its client says. One that does not has no text: of a client that gives no length, say.
inline bool is_text(const tsr_arg& a) { return a.s ? a.i >= 0 && a.s[a.i] == '\0' : a.i == 0; }
// Throws TSR-E002 for a null tensor, TSR-E016 for a text without its length. `path_of(i)` names argument i.
void check_arguments(const tsr_arg* args, size_t count, const std::string& function,
                     const std::function<std::string(size_t)>& path_of);

// The mask of a group of entries: entries with equal masks differ in numbers only, so one probe finds the right one.
struct Mask {
  std::vector<LeafGuard> leaves;
  bool symbolic = false;  // some size or number is a symbol
  void finish();          // after the last change to leaves
  bool operator==(const Mask& o) const { return leaves == o.leaves && symbolic == o.symbolic; }
  // Appends the words of these arguments and of the thread's global state, and the union of their marks. False: they cannot
  // match whatever the numbers are (count, kinds, ranks).
  bool key(const tsr_arg* args, size_t count, WordBuffer& out, uint32_t* marks) const;
  uint64_t hash(const uint64_t* key, size_t words) const;
  const PlainLeaves& plain() const { return plain_; }
  // Before the key of what is to be found later: tensors of which everything is fixed stand in keys by the number of their
  // type.
  void number_types(const tsr_arg* args, size_t count) const;

 private:
  // How the words of a leaf are read.
  struct Reader {
    enum How : uint32_t { kNothing, kType, kTensor, kElements, kInteger, kFloat, kText } how;
    uint32_t rank;
    uint64_t kind_and_role;  // as they stand in tsr_arg; the role counts for tensors
    uint64_t fixed;
    bool strides;  // are part of the key
  };
  std::vector<Reader> readers_;
  PlainLeaves plain_;
  void find_plain();
  size_t words_ = 0;  // of a key at most, texts not counted
  size_t num_types_ = 0;
};

// The arguments at capture, kept to explain why a later call does not match.
struct Expected {
  std::string path;  // "x", "state['h'][0]"
  uint32_t kind = 0;
  bool guarded = true;
  int64_t i = 0;
  double f = 0;
  std::string s;
  std::string source;  // of the guard on a number
  uint32_t dtype = 0, requires_grad = 0, role = 0;
  tsr_device device = 0;
  std::vector<int64_t> sizes, strides;
  std::string elements;  // the bytes of a tensor that is guarded by value, dense
  LeafGuard::Layout layout = LeafGuard::kDense;
  std::vector<int32_t> symbols;            // by dimension: the symbol, or -1 for a fixed size
  static constexpr int32_t kDerived = -2;  // or this: behind a graph break, a size that follows from others
  std::vector<std::string> dim_sources;    // by dimension: why a symbol ended up fixed; empty: no such dimension
};

// Relations among sizes that are symbols.
struct SymbolicGuards {
  static constexpr uint32_t kNumber = 0xffffffffu;  // in place of a dimension: the leaf is the number itself
  static constexpr uint32_t kStride = 0x80000000u;  // added to one: its stride
  struct Place {
    uint32_t leaf, dim, symbol;
  };
  static bool is_size(uint32_t dim) { return dim < kStride; }
  static int64_t value_at(const tsr_arg* args, uint32_t leaf, uint32_t dim);
  std::vector<Place> binds, equals;  // the first place of each symbol gives it its value
  // Behind graph breaks: sizes that are expressions, some of which give a symbol its value.
  struct Derived {
    uint32_t leaf, dim;
    tsr_dim size;
    int64_t solves;  // the symbol, or -1
  };
  std::vector<Derived> derived;  // after `binds`, and in an order in which each can be worked out
  struct Bounds {
    uint32_t symbol;
    int64_t min, max;
    uint32_t leaf, dim;
  };
  std::vector<Bounds> bounds;
  const Sizes* sizes = nullptr;  // of the executable's graph
  std::vector<Assumption> relations;
  // Relations about sizes that are marked unbacked at `places`. The mark forbids guards: where the tensors of a call carry it
  // there too, the plan reports what does not hold; without it, it is a miss.
  struct Asserted {
    Assumption relation;
    std::vector<Place> places;
  };
  std::vector<Asserted> asserted;
  // The value of every symbol that has one. False: some expression has no solution. Throws as Sizes::evaluate().
  bool values(const tsr_arg* args, std::span<int64_t> out) const;
  bool hold(const tsr_arg* args) const;

 private:
  bool relations_hold(const tsr_arg* args, std::span<const int64_t> values) const;
};

// Everything that an entry relies on.
struct Guards {
  Mask mask;
  uint64_t global = 0;  // global_state()
  std::vector<Expected> expected;
  SymbolicGuards symbolic;
  // Whether this entry treats every marked dimension of these arguments as its mark asks.
  bool covers_marks(const tsr_arg* args) const;
  bool value_holds(size_t leaf, const tsr_arg& arg) const;  // of a leaf of this kind that is guarded by its value
  // Why these arguments do not match, in the words of docs/recompiles.md: every guard that fails, structure, plain values,
  // tensors, relations. `all` false: at most the first. Empty: everything matches.
  std::vector<GuardText> mismatches(const tsr_arg* args, size_t count, bool all) const;
  // Every guard: "c == 0.5", "tensor 'x': f32[3], cpu".
  std::vector<GuardText> texts() const;
};

// The bytes of a tensor's elements, dense, wherever it lies.
std::string elements_of(tsr_tensor_handle* tensor);

// The guard on a leaf's value: "c == 0.5", "axes == [0, 2]".
std::string value_text(const Expected& e);

}  // namespace tessera::core
