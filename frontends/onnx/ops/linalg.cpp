// SPDX-License-Identifier: Apache-2.0
// Matrix products and contractions.
#include <algorithm>
#include <cctype>
#include <map>

#include "products.hpp"

namespace tessera::onnx {
V gemm_of(Op& op, bool unidirectional) {
  Build& b = op.b;
  V a = op.in(0), c = op.in(1);
  const double alpha = op.f("alpha", 1.0), beta = op.f("beta", 1.0);
  if (op.flag("transA")) a = b.transpose(a, {1, 0});
  V y;
  if (op.flag("transB") && alpha == 1.0 && beta == 1.0 && op.has(2) && op.in(2).rank() == 1 && op.in(2).size(0) == c.size(0))
    return b.op("linear", {a, c, op.in(2)});  // as PyTorch's Linear is exported: it stays whole
  y = op.flag("transB") ? b.op("linear", {a, c, V()}) : b.matmul(a, c);
  if (alpha != 1.0) y = is_int(y.dtype()) ? b.cast(b.cast(y, TSR_F64) * alpha, y.dtype()) : y * alpha;
  if (op.has(2) && beta != 0.0) {
    V bias = op.in(2);
    if (!unidirectional && bias.rank() < 2 && !op.flag("broadcast"))
      op.expect(bias.rank() == 2, "input C broadcasts without attribute 'broadcast'");
    if (beta != 1.0) bias = is_int(bias.dtype()) ? b.cast(b.cast(bias, TSR_F64) * beta, bias.dtype()) : bias * beta;
    y = y + bias;
  }
  return y;
}

namespace {

void matmul(Op& op) { op.out(op.b.matmul(op.in(0), op.in(1))); }

void gemm(Op& op) { op.out(gemm_of(op, op.version >= 7)); }

// One operand of an einsum with a name per dimension.
struct Term {
  V value;
  std::string labels;
};

class Einsum {
 public:
  explicit Einsum(Op& op) : op_(op), b_(op.b) {}

  V run() {
    std::string equation(op_.s("equation"));
    equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
    const size_t arrow = equation.find("->");
    std::string inputs = equation.substr(0, arrow), output = arrow == equation.npos ? "" : equation.substr(arrow + 2);
    std::vector<Term> terms;
    std::map<char, int> uses;  // as the equation is written: a name that stands twice in one operand is used twice
    for (size_t i = 0, at = 0; i < op_.num_inputs(); ++i) {
      const size_t comma = std::min(inputs.find(',', at), inputs.size());
      op_.expect(at <= inputs.size(), "the equation names fewer operands than there are");
      const std::string names = labels(inputs.substr(at, comma - at), op_.in(i).rank());
      for (const char c : names) ++uses[c];
      terms.push_back(diagonal({op_.in(i), names}));
      at = comma + 1;
    }
    op_.expect(std::count(inputs.begin(), inputs.end(), ',') + 1 == static_cast<int64_t>(terms.size()),
               "the equation names more operands than there are");
    if (arrow == equation.npos) {  // ellipsis, then the names that stand once, in alphabetical order
      for (int64_t c = ellipsis_; c > 0; --c) output += static_cast<char>(c);
      for (const auto& [c, n] : uses)
        if (n == 1 && c > 32) output += c;
    } else {
      output = labels(output, -1);
    }
    for (const char c : output)
      op_.expect(std::count(output.begin(), output.end(), c) == 1, "the result names a dimension twice");
    Term all = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) {
      std::string later = output;
      for (size_t k = i + 1; k < terms.size(); ++k) later += terms[k].labels;
      all = contract(all, terms[i], later);
    }
    all = reduce(all, output);
    Ints perm;
    for (const char c : output) {
      const size_t at = all.labels.find(c);
      op_.expect(at != all.labels.npos, "the result names a dimension that no operand has");
      perm.push_back(static_cast<int64_t>(at));
    }
    return b_.transpose(all.value, perm);
  }

 private:
  // Dimensions of the ellipsis are named 1, 2 ... from the right.
  std::string labels(const std::string& text, int64_t rank) {
    const size_t dots = text.find("...");
    std::string out;
    int64_t covered = 0;
    if (dots != text.npos) covered = rank < 0 ? ellipsis_ : rank - static_cast<int64_t>(text.size() - 3);
    op_.expect(covered >= 0 && covered < 32, "the equation does not fit the ranks of its operands");
    if (rank >= 0) ellipsis_ = std::max<int64_t>(ellipsis_, covered);
    for (size_t i = 0; i < text.size(); ++i) {
      if (i == dots) {
        for (int64_t k = covered; k > 0; --k) out += static_cast<char>(k);
        i += 2;
        continue;
      }
      op_.expect(std::isalpha(static_cast<unsigned char>(text[i])) != 0, "the equation holds a character that is no letter");
      out += text[i];
    }
    op_.expect(rank < 0 || static_cast<int64_t>(out.size()) == rank, "the equation does not fit the ranks of its operands");
    return out;
  }

  Term diagonal(Term t) {
    for (size_t i = 0; i < t.labels.size(); ++i) {
      const size_t again = t.labels.find(t.labels[i], i + 1);
      if (again == t.labels.npos) continue;
      const char c = t.labels[i];
      t.value = t.value.call(
          "diagonal", {sdk::attr_int("axis1", static_cast<int64_t>(i)), sdk::attr_int("axis2", static_cast<int64_t>(again))});
      t.labels.erase(again, 1);
      t.labels.erase(i, 1);
      t.labels += c;
      i = static_cast<size_t>(-1);
    }
    return t;
  }

  // Sums over what nothing later names.
  Term reduce(Term t, const std::string& later) {
    Ints axes;
    std::string left;
    for (size_t i = 0; i < t.labels.size(); ++i)
      if (later.find(t.labels[i]) == later.npos)
        axes.push_back(static_cast<int64_t>(i));
      else
        left += t.labels[i];
    if (!axes.empty()) t.value = b_.sum(t.value, axes);
    return {t.value, left};
  }

  Term contract(Term x, Term y, const std::string& later) {
    x = reduce(x, later + y.labels);
    y = reduce(y, later + x.labels);
    Ints xb, yb, xc, yc;
    std::string batch, xf, yf;
    for (size_t i = 0; i < x.labels.size(); ++i) {
      const char c = x.labels[i];
      const size_t other = y.labels.find(c);
      if (other == y.labels.npos) {
        xf += c;
        continue;
      }
      const auto a = static_cast<int64_t>(i), o = static_cast<int64_t>(other);
      if (x.value.size(a) != y.value.size(o) && (x.value.size(a) == 1 || y.value.size(o) == 1)) return broadcast(x, y, later);
      if (later.find(c) == later.npos) {
        xc.push_back(a);
        yc.push_back(o);
      } else {
        xb.push_back(a);
        yb.push_back(o);
        batch += c;
      }
    }
    for (const char c : y.labels)
      if (x.labels.find(c) == x.labels.npos) yf += c;
    return {b_.dot(x.value, y.value, xc, yc, xb, yb), batch + xf + yf};
  }

  // A shared dimension of size 1 on one side: multiplied with broadcasting, then summed.
  Term broadcast(const Term& x, const Term& y, const std::string& later) {
    std::string all = x.labels;
    for (const char c : y.labels)
      if (all.find(c) == all.npos) all += c;
    const auto align = [&](const Term& t) {
      Ints perm, missing;
      for (size_t i = 0; i < all.size(); ++i)
        if (const size_t at = t.labels.find(all[i]); at != t.labels.npos)
          perm.push_back(static_cast<int64_t>(at));
        else
          missing.push_back(static_cast<int64_t>(i));
      return b_.expand(b_.transpose(t.value, perm), missing);
    };
    return reduce({align(x) * align(y), all}, later);
  }

  Op& op_;
  Build& b_;
  int64_t ellipsis_ = 0;
};

void einsum(Op& op) { op.out(Einsum(op).run()); }

// The determinant by elimination without pivots would divide by zero: matrices up to 3 by 3 are expanded.
void det(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  op.expect(x.rank() >= 2, "the input is no matrix");
  const tsr_dim n = x.size(-1);
  if (!Build::is_number(n) || n > 3 || n < 1 || x.size(-2) != n)
    op.unsupported("the determinant of a matrix that is larger than 3 by 3", "there is no factorisation among the ops");
  const auto at = [&](int64_t i, int64_t j) {
    return b.squeeze(b.slice(b.slice(x, -2, i, i + 1), -1, j, j + 1), {x.rank() - 2, x.rank() - 1});
  };
  if (n == 1) return op.out(at(0, 0));
  if (n == 2) return op.out(at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0));
  const auto minor = [&](int64_t i, int64_t j) { return at(1, i) * at(2, j) - at(1, j) * at(2, i); };
  op.out(at(0, 0) * minor(1, 2) - at(0, 1) * minor(0, 2) + at(0, 2) * minor(0, 1));
}

}  // namespace

std::span<const Record> linalg_records() {
  static constexpr Record records[] = {
      {"", "MatMul", matmul},
      {"", "Gemm", gemm},
      {"", "Einsum", einsum},
      {"", "Det", det},
  };
  return records;
}

}  // namespace tessera::onnx
