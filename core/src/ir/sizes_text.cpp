// SPDX-License-Identifier: Apache-2.0
// The text of sizes.
#include <charconv>

#include "ir/sizes.hpp"

namespace tessera::core {

namespace {

constexpr uint32_t kReadable = 100;  // operators of a size that is printed whole for a reader

enum Precedence { kSum = 1, kProduct = 2, kAtom = 3 };

// Prints one size. `Symbol` gives the name of a symbol; `Part` may print a subexpression in a shorter way and says
// whether it did.
template <class Symbol, class Part>
struct SizePrinter {
  const std::vector<tsr_dim_expr>& exprs;
  const Symbol& symbol;
  const Part& part;
  std::string& out;

  void number(int64_t n) {
    char buffer[24];
    out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, n).ptr);
  }

  void print(tsr_dim d, Precedence at) {
    if (!TSR_DIM_IS_EXPR(d)) return number(d);
    const tsr_dim_expr& e = exprs[TSR_DIM_EXPR_ID(d)];
    if (part(d, out)) return;
    switch (e.op) {
      case TSR_DIM_SYMBOL: out += symbol(e.symbol); return;
      case TSR_DIM_ADD:
      case TSR_DIM_SUB:
        if (at > kSum) out += '(';
        print(e.lhs, kSum);
        summand(e);
        if (at > kSum) out += ')';
        return;
      case TSR_DIM_MUL:
        if (at > kProduct) out += '(';
        print(e.lhs, kProduct);
        out += " * ";
        print(e.rhs, kAtom);
        if (at > kProduct) out += ')';
        return;
      default: {
        static const char* const kName[] = {"", "", "", "", "floordiv(", "mod(", "min(", "max("};
        out += kName[e.op];
        print(e.lhs, kSum);
        out += ", ";
        print(e.rhs, kSum);
        out += ')';
      }
    }
  }

  // The right side of a sum: a + b * -2 reads better as a - b * 2.
  void summand(const tsr_dim_expr& sum) {
    const tsr_dim d = sum.rhs;
    if (sum.op == TSR_DIM_ADD && !TSR_DIM_IS_EXPR(d) && d < 0) {
      out += " - ";
      return number(-d);
    }
    if (sum.op == TSR_DIM_ADD && TSR_DIM_IS_EXPR(d)) {
      const tsr_dim_expr& e = exprs[TSR_DIM_EXPR_ID(d)];
      if (e.op == TSR_DIM_MUL && !TSR_DIM_IS_EXPR(e.rhs) && e.rhs < 0) {
        out += " - ";
        print(e.lhs, kProduct);
        if (e.rhs == -1) return;
        out += " * ";
        return number(-e.rhs);
      }
    }
    out += sum.op == TSR_DIM_ADD ? " + " : " - ";
    print(d, kProduct);
  }
};

template <class Symbol, class Part>
void print_size(const std::vector<tsr_dim_expr>& exprs, tsr_dim d, const Symbol& symbol, const Part& part, std::string& out) {
  SizePrinter<Symbol, Part>{exprs, symbol, part, out}.print(d, kSum);
}

}  // namespace

std::string Sizes::print(tsr_dim d) const {
  std::vector<std::string> names;
  for (const uint32_t s : symbols_of(d)) {
    names.resize(s + 1);
    names[s] = symbols_[s].name;
  }
  return print(d, names);
}

std::string Sizes::print(tsr_dim d, std::span<const std::string> names) const {
  std::string out;
  const bool whole = !TSR_DIM_IS_EXPR(d) || properties_[TSR_DIM_EXPR_ID(d)].tree_operators <= kReadable;
  const auto part = [&](tsr_dim x, std::string& text) {
    if (whole || x == d || !is_large(x)) return false;
    text += "...";
    return true;
  };
  print_size(
      exprs_, d, [&](uint32_t s) -> const std::string& { return names[s]; }, part, out);
  return out;
}

void Sizes::print_to(std::string& out, tsr_dim d, const SizeNames& names, bool define) const {
  const auto part = [&](tsr_dim x, std::string& text) {
    const std::string* name = define && x == d ? nullptr : names.find(x);
    if (name) text += *name;
    return name != nullptr;
  };
  print_size(
      exprs_, d, [&](uint32_t s) { return symbols_[s].name; }, part, out);
}

const std::string* SizeNames::find(tsr_dim d) const {
  const auto it = names_.find(d);
  return it == names_.end() ? nullptr : &it->second;
}

void SizeNames::add(tsr_dim d) {
  // Nothing large inside: the usual case.
  if (!TSR_DIM_IS_EXPR(d) || sizes_.properties_[TSR_DIM_EXPR_ID(d)].tree_operators <= Sizes::kLargeText) return;
  std::vector<std::pair<tsr_dim, bool>> pending{{d, false}};  // second: its operands are done
  while (!pending.empty()) {
    const auto [x, done] = pending.back();
    if (done) {
      pending.pop_back();
      if (!sizes_.is_large(x)) continue;
      std::string name;
      do {
        name = "e" + std::to_string(next_++);
      } while (sizes_.find(name) != -1);
      names_.emplace(x, std::move(name));
      defined_.push_back(x);
      continue;
    }
    if (!TSR_DIM_IS_EXPR(x) || sizes_.properties_[TSR_DIM_EXPR_ID(x)].tree_operators <= Sizes::kLargeText ||
        !seen_.insert(x).second) {
      pending.pop_back();
      continue;
    }
    pending.back().second = true;
    const tsr_dim_expr& e = sizes_.exprs_[TSR_DIM_EXPR_ID(x)];
    pending.push_back({e.rhs, false});
    pending.push_back({e.lhs, false});
  }
}

}  // namespace tessera::core
