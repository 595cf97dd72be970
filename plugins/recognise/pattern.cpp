// SPDX-License-Identifier: Apache-2.0
#include "pattern.hpp"

#include <cctype>
#include <cmath>
#include <functional>
#include <stdexcept>

#include <tessera/dtypes.hpp>

namespace tessera::passes {

struct Pattern::Part {
  enum Kind { Any, Number, Scalar, Op, Either } kind = Any;
  std::string name;  // Any, Scalar: the name; Op: the op
  std::string bind;  // Op, Either: the name that the value takes; may be empty
  double value = 0;
  std::vector<Part> parts;
};

namespace {

// Explicit bits of the mantissa, and the exponent of the least normal number.
struct Format {
  int mantissa, least;
};
Format format_of(uint32_t dtype) {
  switch (dtype) {
    case TSR_F64: return {52, -1022};
    case TSR_F32: return {23, -126};
    case TSR_F16: return {10, -14};
    case TSR_BF16: return {7, -126};
    default: return {0, 0};  // too narrow for any tolerance
  }
}

// Whether the number `x` of a program is the number `want` of a rule as `dtype` holds it. One that the dtype holds exactly must
// be that; another may be off by one unit in the last place, for exporters round it in one way or another.
bool is_number(double x, double want, uint32_t dtype) {
  char bytes[16];
  store_from(dtype, bytes, 0, want);
  const double held = load_as<double>(dtype, bytes, 0);
  if (x == held) return std::signbit(x) == std::signbit(held);
  const Format f = format_of(dtype);
  const bool short_number =
      static_cast<double>(static_cast<float>(want)) == want;  // 0.5, 3; not the root of 2, which f64 rounds too
  if (short_number || f.mantissa == 0 || !std::isfinite(x)) return false;
  return std::abs(x - held) <= std::ldexp(1.0, std::max(std::ilogb(held), f.least) - f.mantissa);
}

bool splat(sdk::Value v, double* out) {
  const sdk::Node n = v.def();
  if (!n || !n.is("constant")) return false;
  const tsr_tensor& t = n.attr("value").as_tensor();
  int64_t count = 1;
  for (uint32_t i = 0; i < t.rank; ++i) count *= t.sizes[i];
  if (count < 1 || count > 64 || !is_float(t.dtype)) return false;
  *out = load_as<double>(t.dtype, t.data, 0);
  for (int64_t i = 1; i < count; ++i)
    if (load_as<double>(t.dtype, t.data, i) != *out) return false;
  return true;
}

}  // namespace

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}
  template <class Part>
  Part whole() {
    Part p = part<Part>();
    skip();
    if (at_ != text_.size()) fault();
    return p;
  }

 private:
  [[noreturn]] void fault() const {
    throw std::logic_error("a faulty pattern at " + std::to_string(at_) + ": " + std::string(text_));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string word() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    if (begin == at_) fault();
    return std::string(text_.substr(begin, at_ - begin));
  }
  template <class Part>
  Part part() {
    Part p;
    if (take('#')) {
      p.kind = Part::Scalar;
      p.name = word();
      return p;
    }
    if (take('[')) {
      p.kind = Part::Either;
      do p.parts.push_back(part<Part>());
      while (take('|'));
      if (!take(']')) fault();
      return p;
    }
    const std::string w = word();
    if (std::isdigit(static_cast<unsigned char>(w[0]))) {
      p.kind = Part::Number;
      p.value = std::stod(w);
    } else if (take('=')) {
      p = part<Part>();
      p.bind = w;
    } else if (take('(')) {
      p.kind = Part::Op;
      p.name = w;
      do p.parts.push_back(part<Part>());
      while (take(','));
      if (!take(')')) fault();
    } else {
      p.name = w;
    }
    return p;
  }
  std::string_view text_;
  size_t at_ = 0;
};

namespace {

// Matches with backtracking: `next` says whether the rest of the pattern matches too.
template <class Part>
class Matcher {
 public:
  using Next = std::function<bool()>;
  Matcher(sdk::Graph g, Found* found, uint32_t marks) : g_(g), found_(found), marks_(marks) {}

  bool match(const Part& p, sdk::Value v, const Next& next) {
    switch (p.kind) {
      case Part::Any: return bind(p.name, v, next);
      case Part::Number: {
        double x = 0;
        return splat(v, &x) && is_number(x, p.value, v.type().dtype()) && next();
      }
      case Part::Scalar: {
        double x = 0;
        if (!splat(v, &x)) return false;
        const auto [at, fresh] = found_->numbers.try_emplace(p.name, x);
        if (at->second == x && next()) return true;
        if (fresh) found_->numbers.erase(p.name);
        return false;
      }
      case Part::Either:
        for (const Part& q : p.parts)
          if (match(q, v, [&] { return bind(p.bind, v, next); })) return true;
        return false;
      case Part::Op: {
        const sdk::Node n = v.def();
        if (!n || n.op() != p.name || n.num_results() != 1) return false;
        // What is computed again in the backward half makes no op of its own together with what is not.
        if ((n.marks() ^ marks_) & TSR_MARK_RECOMPUTED) return false;
        for (uint32_t i = 0; i < n.num_operands(); ++i)
          if (n.has_operand(i) != (i < p.parts.size())) return false;
        if (n.num_operands() < p.parts.size()) return false;
        return bind(p.bind, v, [&] {
          if (operands(p, n, 0, false, next)) return true;
          return p.parts.size() == 2 && g_.has_trait(n.raw().op, "commutative") && operands(p, n, 0, true, next);
        });
      }
    }
    return false;
  }

 private:
  bool operands(const Part& p, sdk::Node n, uint32_t i, bool swapped, const Next& next) {
    if (i == p.parts.size()) return next();
    return match(p.parts[i], n.operand(swapped ? 1 - i : i), [&, i] { return operands(p, n, i + 1, swapped, next); });
  }
  bool bind(const std::string& name, sdk::Value v, const Next& next) {
    if (name.empty()) return next();
    const auto [at, fresh] = found_->values.try_emplace(name, v);
    if (at->second == v && next()) return true;
    if (fresh) found_->values.erase(name);
    return false;
  }
  sdk::Graph g_;
  Found* found_;
  uint32_t marks_;  // of the root
};

}  // namespace

Pattern::Pattern(std::string_view text) : part_(std::make_unique<Part>(PatternParser(text).whole<Part>())) {
  if (part_->kind != Part::Op) throw std::logic_error("a pattern without an op: " + std::string(text));
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
const std::string& Pattern::root() const { return part_->name; }
bool Pattern::match(sdk::Graph g, sdk::Value v, Found* found) const {
  return v.def() && Matcher<Part>(g, found, v.def().marks()).match(*part_, v, [] { return true; });
}

}  // namespace tessera::passes
