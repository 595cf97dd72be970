// SPDX-License-Identifier: Apache-2.0
#include "plan/size_program.hpp"

#include <algorithm>

#include "ir/sizes.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

int64_t apply(uint32_t op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case TSR_DIM_ADD:
      if (__builtin_add_overflow(a, b, &out)) break;
      return out;
    case TSR_DIM_SUB:
      if (__builtin_sub_overflow(a, b, &out)) break;
      return out;
    case TSR_DIM_MUL:
      if (__builtin_mul_overflow(a, b, &out)) break;
      return out;
    case TSR_DIM_FLOORDIV:
    case TSR_DIM_MOD: {
      if (b == 0) throw user_error("TSR-S003", "a size divides " + std::to_string(a) + " by zero");
      if (a == INT64_MIN && b == -1) break;
      const int64_t q = a / b, r = a % b;
      const bool fix = r != 0 && (r < 0) != (b < 0);
      return op == TSR_DIM_MOD ? (fix ? r + b : r) : (fix ? q - 1 : q);
    }
    case TSR_DIM_MIN: return std::min(a, b);
    default: return std::max(a, b);
  }
  throw user_error("TSR-S001", "a size overflows 64 bits: " + std::to_string(a) + " and " + std::to_string(b),
                   "use smaller sizes");
}

}  // namespace

SizeProgram::SizeProgram(const Sizes& sizes)
    : sizes_(&sizes), section_(sizes.symbols().size(), kUnknown), num_slots_(sizes.symbols().size()) {}

int32_t SizeProgram::slot(tsr_dim d) {
  const auto known_slot = [&](tsr_dim x, DimRef* out) {
    *out = {-1, x};
    if (!TSR_DIM_IS_EXPR(x)) return true;
    const tsr_dim_expr& e = sizes_->exprs()[TSR_DIM_EXPR_ID(x)];
    if (e.op == TSR_DIM_SYMBOL) {
      *out = {static_cast<int32_t>(e.symbol), 0};
      return true;
    }
    const auto it = slots_.find(x);
    if (it != slots_.end()) *out = {it->second, 0};
    return it != slots_.end();
  };
  DimRef found;
  if (known_slot(d, &found)) {
    if (found.slot >= 0 && static_cast<size_t>(found.slot) < num_symbols()) read_.push_back(d);
    return found.slot;
  }
  // Operands first: the order of the code.
  std::vector<tsr_dim> pending{d};
  while (!pending.empty()) {
    const tsr_dim x = pending.back();
    const tsr_dim_expr& e = sizes_->exprs()[TSR_DIM_EXPR_ID(x)];
    DimRef a, b;
    const bool left = known_slot(e.lhs, &a), right = known_slot(e.rhs, &b);
    if (!right) pending.push_back(e.rhs);
    if (!left) pending.push_back(e.lhs);
    if (!left || !right) continue;
    pending.pop_back();
    if (slots_.count(x)) continue;
    const auto target = static_cast<int32_t>(num_slots_++);
    code_.push_back({e.op, target, a, b, 0, x});
    slots_.emplace(x, target);
  }
  return slots_.at(d);
}

DimRef SizeProgram::at(tsr_dim d) const {
  if (!TSR_DIM_IS_EXPR(d)) return {-1, d};
  const tsr_dim_expr& e = sizes_->exprs()[TSR_DIM_EXPR_ID(d)];
  return {e.op == TSR_DIM_SYMBOL ? static_cast<int32_t>(e.symbol) : slots_.at(d), 0};
}

uint32_t SizeProgram::section_of(tsr_dim d) const {
  std::vector<uint32_t> symbols;
  sizes_->collect_symbols(d, symbols);
  uint32_t section = 0;
  for (const uint32_t s : symbols) section = std::max(section, section_[s]);
  return section;
}

void SizeProgram::finish() {
  const auto need = [&](tsr_dim d, uint32_t section) {
    if (section == kUnknown)
      throw user_error("TSR-R023", "size " + sizes_->print(d) + " uses a symbol that no input size or node determines",
                       "give an input a dimension of exactly that symbol");
  };
  uint32_t last = 0;
  std::vector<uint32_t> section(section_);  // by slot; the operands of an instruction stand before it
  section.resize(num_slots_);
  for (Instruction& i : code_) {
    for (const DimRef& x : {i.a, i.b})
      if (x.slot >= 0) i.section = std::max(i.section, section[static_cast<size_t>(x.slot)]);
    section[static_cast<size_t>(i.target)] = i.section;
    need(i.source, i.section);
    last = std::max(last, i.section);
  }
  for (const tsr_dim d : read_) need(d, section_of(d));
  std::stable_sort(code_.begin(), code_.end(),
                   [](const Instruction& a, const Instruction& b) { return a.section < b.section; });
  begin_.assign(last + 2, 0);
  for (const Instruction& i : code_) ++begin_[i.section + 1];
  for (size_t s = 1; s < begin_.size(); ++s) begin_[s] += begin_[s - 1];
}

void SizeProgram::evaluate(uint32_t section, int64_t* dims) const {
  if (section + 1 >= begin_.size()) return;
  for (uint32_t k = begin_[section]; k < begin_[section + 1]; ++k) {
    const Instruction& i = code_[k];
    dims[i.target] = apply(i.op, i.a.value(dims), i.b.value(dims));
  }
}

std::vector<int64_t> SizeProgram::upper_bounds() const {
  std::vector<int64_t> most(num_slots_, 0);
  const auto add = [&](tsr_dim d, int32_t slot) {
    most[static_cast<size_t>(slot)] = sizes_->range(d).max;
    return most[static_cast<size_t>(slot)] < INT64_MAX;
  };
  for (const tsr_dim d : read_)
    if (!add(d, at(d).slot)) return {};
  for (const Instruction& i : code_)
    if (!add(i.source, i.target)) return {};
  return most;
}

}  // namespace tessera::core
