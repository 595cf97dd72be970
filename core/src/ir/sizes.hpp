// SPDX-License-Identifier: Apache-2.0
// Symbolic sizes: interned, simplified, overflow-checked i64 expressions over symbols, with range analysis.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

struct Range {
  int64_t min, max;  // inclusive; INT64_MIN / INT64_MAX stand for unbounded
};

struct Assumption {  // a relation that a guard has established; `divisible`: a mod b == 0
  tsr_relation relation;
  tsr_dim a, b;
  std::string why;
  std::string where = {};  // the op that caused it and its source line: "model.cpp:12 in add"; empty: unknown
};

class SizeNames;

// One per graph. Equal expressions are equal handles. Not thread-safe.
class Sizes {
 public:
  Sizes() = default;
  Sizes(const Sizes&) = default;
  Sizes& operator=(const Sizes&) = delete;

  // Throws TSR-S002 when the name is taken.
  tsr_dim symbol(std::string name, int64_t min, int64_t max, bool unbacked, int64_t hint = -1);
  // A new symbol named prefix0, prefix1, ...
  tsr_dim fresh(std::string_view prefix, int64_t min, int64_t max, bool unbacked, int64_t hint = -1);
  // The value that the symbol has in the call at hand becomes its hint; from now on it is known before the program runs.
  void observe(uint32_t symbol, int64_t value);
  tsr_dim find(std::string_view name) const;  // -1 when there is none (a symbol is never -1)

  // Simplified: constants fold, sums and products are normalised (linear terms collected in symbol order), x floordiv 1, (a*k)
  // floordiv k, (a*k) mod k, nested floordiv by numbers, min/max as far as ranges decide them. Never by assumptions: the form
  // of an expression must not depend on when it was made, or a printed graph, which states them first, would not read back as
  // it was, and inferring a type again would give another. Whoever may use assumptions asks compare(). Throws TSR-S001 on
  // overflow, TSR-S003 on division by zero, TSR-S005 for a sum of too many terms.
  tsr_dim make(tsr_dim_op op, tsr_dim a, tsr_dim b);
  tsr_dim add(tsr_dim a, tsr_dim b) { return make(TSR_DIM_ADD, a, b); }
  tsr_dim sub(tsr_dim a, tsr_dim b) { return make(TSR_DIM_SUB, a, b); }
  tsr_dim mul(tsr_dim a, tsr_dim b) { return make(TSR_DIM_MUL, a, b); }
  tsr_dim floordiv(tsr_dim a, tsr_dim b) { return make(TSR_DIM_FLOORDIV, a, b); }
  tsr_dim product(std::span<const tsr_dim> dims);

  // While one lives, compare() goes by ranges alone.
  class WithoutAssumptions {
   public:
    explicit WithoutAssumptions(Sizes& s) : sizes_(s), before_(s.use_assumptions_) { s.use_assumptions_ = false; }
    ~WithoutAssumptions() { sizes_.use_assumptions_ = before_; }
    WithoutAssumptions(const WithoutAssumptions&) = delete;

   private:
    Sizes& sizes_;
    bool before_;
  };

  // What has been added since can be taken back: handles, symbols and assumptions made after the checkpoint are forgotten.
  struct Checkpoint {
    size_t symbols, exprs, assumptions, made;
  };
  Checkpoint checkpoint() const { return {symbols_.size(), exprs_.size(), assumptions_.size(), made_.size()}; }
  void restore(const Checkpoint& before);

  Range range(tsr_dim d) const;
  // For every value of the symbols that ranges and assumptions allow. Never throws: what overflows is unknown.
  tsr_truth compare(tsr_relation r, tsr_dim a, tsr_dim b) const;
  // Records the relation unless it is provable. Throws TSR-S004 when it is provably false.
  void require(tsr_relation r, tsr_dim a, tsr_dim b, std::string why);
  const std::vector<Assumption>& assumptions() const { return assumptions_; }
  // Says where the assumptions from number `first` on came from, unless that is known.
  void place_assumptions(size_t first, const std::string& where);

  // Value of `d` given one value per symbol (in table order). Throws on overflow or division by zero.
  int64_t evaluate(tsr_dim d, std::span<const int64_t> symbol_values) const;
  // The same for planning ahead, with sizes that no call has: never throws. What has no value in 64 bits becomes the nearest
  // number that has one, and a division by zero 0.
  int64_t estimate(tsr_dim d, std::span<const int64_t> symbol_values) const;
  static bool holds(tsr_relation r, int64_t a, int64_t b);
  // Solves `d` == `value` for a symbol that it mentions; all others have values. kNone: no integer does it; kMany: several may,
  // or what stands around the symbol cannot be undone. Throws as evaluate().
  enum class Solution { kFound, kNone, kMany };
  Solution solve(tsr_dim d, uint32_t symbol, int64_t value, std::span<const int64_t> symbol_values, int64_t* solution) const;
  bool is_unbacked(tsr_dim d) const;                                  // mentions an unbacked symbol
  void collect_symbols(tsr_dim d, std::vector<uint32_t>& out) const;  // appends each once, in order of first appearance

  // For reading: "s0 * 2 + 1". Of a size with very many operators the inner ones are left out: "min(..., s0)".
  std::string print(tsr_dim d) const;
  std::string print(tsr_dim d, std::span<const std::string> names) const;  // with other names for the symbols, in table order
  // The whole size, which reads back. Parts that have a name in `names` are printed as that; the parts of `d` itself if
  // `define`.
  void print_to(std::string& out, tsr_dim d, const SizeNames& names, bool define = false) const;
  const std::vector<tsr_symbol>& symbols() const { return symbols_; }
  const std::vector<tsr_dim_expr>& exprs() const { return exprs_; }
  // Rebuilds an expression of `other` here, with `map` giving the replacement of each of its symbols.
  tsr_dim import(const Sizes& other, tsr_dim d, const std::function<tsr_dim(uint32_t symbol)>& map);

 private:
  friend struct GraphTestAccess;  // negative tests of the verifier
  friend class SizeNames;
  static constexpr uint32_t kLargeText = 16;  // operators of a subexpression from which on its text is not repeated

  // What is known of an expression from its operands, computed once: expressions share their parts, and to walk them as trees
  // takes time that is exponential in their depth.
  struct Properties {
    Range range{INT64_MIN, INT64_MAX};
    uint32_t symbols = 0;         // index into symbol_sets_
    uint32_t height = 0;          // of the tree
    uint32_t tree_operators = 0;  // at most UINT32_MAX
    uint32_t terms = 1;           // of a sum; of everything else 1
    bool atom = false;            // a symbol, floordiv, mod, min or max, or a sum of very many terms: see polynomial()
    uint32_t operators = 0;       // as tree_operators, but a part that is_large() counts as one
  };
  int64_t fold(tsr_dim d, std::span<const int64_t> values, int64_t (*combine)(uint32_t, int64_t, int64_t)) const;
  Properties properties_of(const tsr_dim_expr& e);
  Range range_of(const tsr_dim_expr& e) const;
  // An atom whose text is so long that a graph's text states it once, under a name.
  bool is_large(tsr_dim d) const;
  uint32_t intern_set(std::vector<uint32_t> sorted);
  uint32_t union_of(uint32_t a, uint32_t b);
  const std::vector<uint32_t>& symbols_of(tsr_dim d) const;  // ascending

  tsr_dim intern(tsr_dim_op op, uint32_t symbol, tsr_dim a, tsr_dim b);
  tsr_truth decide(tsr_relation r, tsr_dim a, tsr_dim b) const;
  // A polynomial over atoms (symbols, floordiv, mod, min, max): the normal form of sums and products.
  using Monomial = std::vector<tsr_dim>;  // atoms in canonical order, repeated for powers; empty: the constant
  struct MonomialLess {
    const Sizes* sizes;
    bool operator()(const Monomial& a, const Monomial& b) const;
  };
  using Polynomial = std::map<Monomial, int64_t, MonomialLess>;
  Polynomial polynomial(tsr_dim d) const;
  void accumulate(Polynomial& p, const Monomial& m, int64_t coefficient, bool subtract = false) const;  // p += coefficient * m
  Polynomial times(const Polynomial& a, const Polynomial& b) const;
  tsr_truth divisible(const Polynomial& a, tsr_dim b) const;
  Polynomial difference(tsr_dim a, tsr_dim b) const;
  tsr_dim build(const Polynomial&);
  bool divide(const Polynomial& a, tsr_dim b, Polynomial& quotient) const;  // exact division by a number or a monomial
  bool atom_less(tsr_dim a, tsr_dim b) const;
  tsr_dim simplified(tsr_dim_op op, tsr_dim a, tsr_dim b);
  tsr_dim nested_quotient(const Polynomial& p, int64_t b);
  tsr_dim extremum(tsr_dim_op op, tsr_dim a, tsr_dim b);
  tsr_dim without_dominated(tsr_dim_op op, tsr_dim a, tsr_dim b);
  // p with `branch` in place of the term coefficient * atom.
  Polynomial branch_of(const Polynomial& p, tsr_dim atom, int64_t coefficient, tsr_dim branch) const;
  // Whether ranges prove p >= bound (p <= bound), looking into the operands of min and max. False: unknown. May throw TSR-S001.
  bool at_least(const Polynomial& p, int64_t bound) const;
  bool at_most(const Polynomial& p, int64_t bound) const;
  bool bounded(const Polynomial& p, int64_t bound, bool below, int& budget) const;
  Range range_of(const Polynomial& p) const;

  std::vector<tsr_symbol> symbols_;
  std::vector<tsr_dim_expr> exprs_;
  // p == constant + sign * t, where the sum t of its other terms begins with a positive coefficient; `key` stands for t, "" for
  // no terms.
  struct Terms {
    std::string key;
    int64_t sign = 1, constant = 0;
  };
  Terms terms_of(const Polynomial& p) const;
  Terms terms_of(const Assumption& s) const;  // without a key when nothing follows from its terms
  // What assumptions say of a sum of terms. However many there are, a comparison looks at the last state.
  struct TermFacts {
    std::vector<Range> states;                       // after each assumption on it
    std::unordered_map<int64_t, uint32_t> excluded;  // numbers that it is not, with how many assumptions say so
  };
  void learn(const Assumption& s);
  void forget(const Assumption& s);  // the last one that was learnt

  std::vector<Assumption> assumptions_;
  std::unordered_map<std::string, TermFacts> by_terms_;  // by Terms::key
  std::vector<uint32_t> divisible_;                      // the assumptions of that relation, ascending
  bool use_assumptions_ = true;
  std::unordered_map<std::string, tsr_dim> by_name_;
  struct Key {
    uint32_t op, symbol;
    tsr_dim a, b;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const;
  };
  std::unordered_map<Key, tsr_dim, KeyHash> interned_;
  std::unordered_map<Key, tsr_dim, KeyHash> results_;   // of make()
  std::vector<Key> made_;                               // the keys of results_, oldest first
  std::vector<Properties> properties_;                  // of exprs_
  std::vector<std::vector<uint32_t>> symbol_sets_{{}};  // ascending; number 0 is empty
  std::map<std::vector<uint32_t>, uint32_t> set_ids_;
  std::vector<std::shared_ptr<const std::string>> strings_;  // immutable, so copies share them
};

// Names for the large parts of a graph's sizes: its text states each part once, so that it grows with the expressions and not
// with the trees that they stand for.
class SizeNames {
 public:
  explicit SizeNames(const Sizes& sizes) : sizes_(sizes) {}
  void add(tsr_dim d);  // names the large parts of `d`, inner ones first
  const std::vector<tsr_dim>& defined() const { return defined_; }
  const std::string* find(tsr_dim d) const;

 private:
  const Sizes& sizes_;
  std::vector<tsr_dim> defined_;
  std::unordered_map<tsr_dim, std::string> names_;
  std::unordered_set<tsr_dim> seen_;
  size_t next_ = 0;
};

}  // namespace tessera::core
