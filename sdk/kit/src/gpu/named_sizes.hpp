// SPDX-License-Identifier: Apache-2.0
// Quotients, remainders, minima and maxima of sizes alone that are made of each other, of one launch: its kernel computes each
// of them once, where it begins, under a name. Written out where they stand, a schedule's number of steps is pages of text. One
// by itself stays where it stands: named, it would take a register for the whole kernel.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../program/expr_text.hpp"

namespace tessera::kit {

class NamedSizes {
 public:
  explicit NamedSizes(IndexPool& pool) : pool_(&pool) {}

  // Takes those in `e`, and those that they are made of.
  void collect(Expr e);
  // Gives names that begin with `prefix`, in an order that depends on their texts alone. `spelling` writes them out.
  void give_names(const std::string& prefix, const ExprSpelling& spelling);
  // Null: it has none. A name that was asked for is declared.
  const std::string* name(const Atom& atom);
  // One line for each that was asked for. `named` asks for the names of what they are made of, `written_out` for none.
  std::string declarations(const std::string& type, const ExprSpelling& named, const ExprSpelling& written_out);

 private:
  struct Named {
    std::string text;  // written out
    std::string name;
    bool nests = false, used = false;
  };
  bool of_sizes(Expr e) const;
  bool nest(Expr e);  // says so of those in `e`; false: there is none
  std::string text(const Atom& atom, const ExprSpelling& operands, const ExprSpelling& itself) const;

  IndexPool* pool_;
  std::map<Atom, Named> all_;
  std::vector<const Atom*> in_order_;
};

}  // namespace tessera::kit
