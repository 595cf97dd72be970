// SPDX-License-Identifier: Apache-2.0
#include "named_sizes.hpp"

#include <algorithm>
#include <tuple>

namespace tessera::kit {

bool NamedSizes::of_sizes(Expr e) const {
  std::vector<uint32_t> others;
  pool_->collect(e, AtomKind::Axis, others);
  pool_->collect(e, AtomKind::Value, others);
  return others.empty();
}

void NamedSizes::collect(Expr e) {
  for (const Term& t : pool_->terms(e))
    for (const uint32_t id : t.atoms) {
      const Atom a = pool_->atom_at(id);
      if (a.kind <= AtomKind::Value || all_.contains(a)) continue;
      collect(a.a);
      collect(a.b);
      if (!of_sizes(a.a) || !of_sizes(a.b)) continue;
      const bool inner = nest(a.a), outer = nest(a.b);
      all_[a].nests = inner || outer;
    }
}

bool NamedSizes::nest(Expr e) {
  bool any = false;
  for (const Term& t : pool_->terms(e))
    for (const uint32_t id : t.atoms)
      if (const auto at = all_.find(pool_->atom_at(id)); at != all_.end()) at->second.nests = any = true;
  return any;
}

std::string NamedSizes::text(const Atom& atom, const ExprSpelling& operands, const ExprSpelling& itself) const {
  std::string a = expr_text(*pool_, atom.a, operands), b = expr_text(*pool_, atom.b, operands);
  if (atom.kind >= AtomKind::Min && b < a) std::swap(a, b);
  return itself.call(atom, a, b);
}

void NamedSizes::give_names(const std::string& prefix, const ExprSpelling& spelling) {
  for (auto& [atom, named] : all_) {
    if (!named.nests) continue;
    named.text = text(atom, spelling, spelling);
    in_order_.push_back(&atom);
  }
  // What one is made of has a shorter text than it.
  std::sort(in_order_.begin(), in_order_.end(), [&](const Atom* x, const Atom* y) {
    const std::string &a = all_.at(*x).text, &b = all_.at(*y).text;
    return std::tuple(a.size(), a) < std::tuple(b.size(), b);
  });
  for (size_t i = 0; i < in_order_.size(); ++i) all_.at(*in_order_[i]).name = prefix + std::to_string(i);
}

const std::string* NamedSizes::name(const Atom& atom) {
  const auto at = all_.find(atom);
  if (at == all_.end() || at->second.name.empty()) return nullptr;
  at->second.used = true;
  return &at->second.name;
}

std::string NamedSizes::declarations(const std::string& type, const ExprSpelling& named, const ExprSpelling& written_out) {
  std::string out;
  for (size_t i = in_order_.size(); i-- > 0;) {  // the last may ask for those before it
    const Atom& atom = *in_order_[i];
    const Named& x = all_.at(atom);
    if (!x.used) continue;
    std::string value = text(atom, named, written_out);
    // A loop without steps may divide by zero, and this stands in front of it.
    const bool divides = atom.kind == AtomKind::FloorDiv || atom.kind == AtomKind::Mod;
    if (divides && !pool_->less(kZero, atom.b)) value = "(" + expr_text(*pool_, atom.b, named) + ") == 0 ? 0 : " + value;
    out.insert(0, "  const " + type + " " + x.name + " = " + value + ";\n");
  }
  return out;
}

}  // namespace tessera::kit
