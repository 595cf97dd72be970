// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"
#include "table.hpp"

namespace tessera::opset {
namespace {

struct Scan {
  explicit Scan(GradBuild& b) : axis(b.integer("axis")), exclusive(b.flag("exclusive")), reverse(b.flag("reverse")) {}
  Var run(const char* op, const Var& x, bool excl, bool rev) const {
    return x.call(op, {sdk::attr_int("axis", axis), sdk::attr_bool("exclusive", excl), sdk::attr_bool("reverse", rev)});
  }
  int64_t axis;
  bool exclusive, reverse;
};

void cumsum(GradBuild& b) {
  const Scan s(b);
  b.set(0, s.run("cumsum", b.grad(), s.exclusive, !s.reverse));
}

// dx_i = sum over the outputs y_k that contain x_i of g_k y_k / x_i. Division fails only at zeros: behind the first zero every
// y is 0 whatever x_i is, so dx is 0; at the first zero, y / x is the running product with that zero taken for 1.
void cumprod(GradBuild& b) {
  const Scan s(b);
  const Var x = b.operand(0), g = b.grad();
  const Var zero = x == 0;
  const Var seen = s.run("cumsum", zero.to(TSR_I64), false, s.reverse);
  const Var first = both(zero, seen == 1);
  const Var without_first = s.run("cumprod", select(first, 1, x), s.exclusive, s.reverse);
  const auto gather_later = [&](const Var& y) { return s.run("cumsum", g * y.conj(), s.exclusive, !s.reverse); };
  const Var before = gather_later(b.result()) / select(zero, 1, x).conj();
  b.set(0, select(seen == 0, before, select(first, gather_later(without_first), 0)));
}

}  // namespace

void add_grad_scan(Table& t) {
  t.grad("cumsum", cumsum);
  t.grad("cumprod", cumprod);
}

}  // namespace tessera::opset
