// SPDX-License-Identifier: Apache-2.0
// Index expressions of the kernel IR: i64 polynomials over loop axes, symbolic sizes and integer values, with floordiv, mod,
// min and max.
//
// Expressions are interned in a pool, in one normal form, so equal expressions have equal ids: a sum of terms, each an integer
// times a product of atoms. Sizes and axes are never negative. The simplifier knows that an axis runs below its extent; that is
// what turns floordiv(i * n + j, n) into i, and with it a reshape into plain strides.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::kit {

using Expr = uint32_t;  // an expression of one pool; kZero and kOne are the same in every pool
inline constexpr Expr kZero = 0, kOne = 1;

enum class AtomKind : uint8_t { Axis, Symbol, Value, FloorDiv, Mod, Min, Max };

struct Atom {
  AtomKind kind;
  uint32_t id = 0;    // Axis, Symbol, Value: which
  Expr a = 0, b = 0;  // FloorDiv, Mod, Min, Max: operands
  auto operator<=>(const Atom&) const = default;
};

struct Term {
  int64_t coefficient;
  std::vector<uint32_t> atoms;  // sorted; the same atom twice is its square; empty: a number
  bool operator==(const Term&) const = default;
};

// Values for evaluate(); a missing entry is an error of the caller.
struct IndexEnv {
  std::span<const int64_t> axes, symbols;
  const std::function<int64_t(uint32_t)>* value = nullptr;
};

class IndexPool {
 public:
  IndexPool();

  // ---- leaves
  Expr number(int64_t n);
  Expr axis(uint32_t a) { return atom({AtomKind::Axis, a, 0, 0}); }
  Expr symbol(uint32_t s) { return atom({AtomKind::Symbol, s, 0, 0}); }
  Expr value(uint32_t v) { return atom({AtomKind::Value, v, 0, 0}); }
  // What the simplifier may rely on. New axes and symbols are numbered from 0 on.
  uint32_t add_axis(Expr extent);
  uint32_t add_symbol(int64_t min);
  Expr extent(uint32_t axis) const { return extents_[axis]; }
  size_t num_axes() const { return extents_.size(); }
  size_t num_symbols() const { return minima_.size(); }

  // ---- operations; overflow of a coefficient throws TSR-K021. Divisors are positive; what is divided by 0
  // (the extent of an axis without points) is 0, here and where it is evaluated.
  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr floordiv(Expr a, Expr b);
  Expr mod(Expr a, Expr b);
  Expr min(Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr product(std::span<const Expr> factors);

  // ---- questions
  const std::vector<Term>& terms(Expr e) const { return polys_[e]; }
  const Atom& atom_at(uint32_t a) const { return atoms_[a]; }
  std::optional<int64_t> as_number(Expr e) const;
  std::optional<uint32_t> as_axis(Expr e) const;
  // Proven for every value in range; false is "unknown".
  bool nonnegative(Expr e);
  bool less(Expr a, Expr b) { return nonnegative(sub(sub(b, a), kOne)); }
  // a / b when that is exact for certain.
  std::optional<Expr> divide_exactly(Expr a, Expr b);
  // e = coefficient * axis + rest, with neither mentioning the axis; nullopt when e is not affine in it.
  struct Affine {
    Expr coefficient, rest;
  };
  std::optional<Affine> affine(Expr e, uint32_t axis);
  bool uses(Expr e, AtomKind kind, uint32_t id) const;
  void collect(Expr e, AtomKind kind, std::vector<uint32_t>& ids) const;  // appended, each once

  // ---- rewriting and values
  // Replaces axes, symbols and values; nullopt keeps the atom.
  Expr substitute(Expr e, const std::function<std::optional<Expr>(const Atom&)>& with);
  int64_t evaluate(Expr e, const IndexEnv& env) const;
  // Row-major number of a position, and the position of a number.
  Expr linear(std::span<const Expr> position, std::span<const Expr> shape);
  std::vector<Expr> position(Expr linear, std::span<const Expr> shape);

  // C-like text; `name` gives the text of a leaf, `call` the spelling of "floordiv", "mod", "min", "max".
  std::string text(Expr e, const std::function<std::string(const Atom&)>& name,
                   const std::function<std::string(const char*)>& call = {}) const;

 private:
  // Numbers by keys that are themselves numbers other than 0. Keys are never removed.
  class Table {
   public:
    // Where the number of `key` stands, or is to be put: kNothing until then.
    uint32_t& at(uint64_t key);
    static constexpr uint32_t kNothing = 0xffffffffu;

   private:
    std::vector<std::pair<uint64_t, uint32_t>> slots_;
    size_t used_ = 0;
  };
  enum class Question : uint8_t { Add, Sub, Mul, FloorDiv, Mod, Nonnegative, Low, High };
  // What was answered before, of expressions, axes and symbols that do not change.
  uint32_t& answer(Question q, Expr a, Expr b = kZero) {
    return answers_.at((uint64_t{static_cast<uint8_t>(q)} + 1) << 60 | uint64_t{a} << 30 | b);
  }

  Expr atom(const Atom& a);
  uint32_t atom_id(const Atom& a);
  Expr intern(std::vector<Term> terms);
  Expr quotient(Expr a, Expr b);
  Expr remainder(Expr a, Expr b);
  std::optional<std::pair<Expr, Expr>> split_below(Expr e, Expr b);
  bool is_nonnegative(Expr e);
  std::optional<Expr> bound(Expr e, bool upper);
  std::optional<Expr> find_bound(Expr e, bool upper);
  std::optional<Expr> atom_bound(const Atom& a, bool upper);

  std::vector<std::vector<Term>> polys_;
  std::vector<std::pair<uint64_t, Expr>> interned_;  // hash of the terms and the expression; open addressing, a power of two
  Table answers_;
  std::vector<Atom> atoms_;
  std::map<Atom, uint32_t> atom_ids_;
  std::vector<Expr> extents_;
  std::vector<int64_t> minima_;
};

}  // namespace tessera::kit
