// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <random>

#include "tessera/kit/index.hpp"

using namespace tessera::kit;

namespace {

std::string text(const IndexPool& p, Expr e) {
  return p.text(e, [](const Atom& a) { return (a.kind == AtomKind::Axis ? "i" : "n") + std::to_string(a.id); });
}

}  // namespace

TEST_CASE("row-major numbers and positions cancel") {
  IndexPool p;
  const Expr n = p.symbol(p.add_symbol(1));
  const Expr shape[] = {n, p.number(12), p.number(64)};
  const Expr i = p.axis(p.add_axis(n)), j = p.axis(p.add_axis(shape[1])), k = p.axis(p.add_axis(shape[2]));
  const Expr at[] = {i, j, k};
  const Expr linear = p.linear(at, shape);
  CHECK(text(p, linear) == "768 * i0 + 64 * i1 + i2");
  CHECK(p.position(linear, shape) == std::vector<Expr>{i, j, k});
  const Expr other[] = {p.mul(n, shape[1]), shape[2]};
  const std::vector<Expr> joined = p.position(linear, other);
  CHECK(text(p, joined[0]) == "12 * i0 + i1");
  CHECK(joined[1] == k);
  // An axis that is cut.
  const Expr flat = p.axis(p.add_axis(p.mul(n, p.number(8))));
  const Expr cut[] = {n, p.number(8)};
  const std::vector<Expr> parts = p.position(flat, cut);
  CHECK(text(p, parts[0]) == "floordiv(i3, 8)");
  CHECK(text(p, parts[1]) == "mod(i3, 8)");
}

TEST_CASE("what is less than a step that divides a divisor goes past a quotient") {
  IndexPool p;
  const Expr i = p.axis(p.add_axis(p.symbol(p.add_symbol(0)))), j = p.axis(p.add_axis(p.number(64)));
  const Expr n = p.number(512), at = p.add(p.mul(i, p.number(64)), j);
  CHECK(text(p, p.floordiv(at, n)) == "floordiv(i0, 8)");
  CHECK(text(p, p.mod(at, n)) == "i1 + mod(64 * i0, 512)");
  const Expr wide = p.axis(p.add_axis(p.number(65))), over = p.add(p.mul(i, p.number(64)), wide);  // which may carry
  CHECK(text(p, p.floordiv(over, n)) == "floordiv(64 * i0 + i2, 512)");
  CHECK(text(p, p.mod(over, p.number(100))) == "mod(64 * i0 + i2, 100)");
}

TEST_CASE("bounds follow from extents and minima") {
  IndexPool p;
  const Expr n = p.symbol(p.add_symbol(2));
  const Expr i = p.axis(p.add_axis(n));
  CHECK(p.nonnegative(p.sub(n, p.number(2))));
  CHECK_FALSE(p.nonnegative(p.sub(n, p.number(3))));
  CHECK(p.less(i, n));
  CHECK_FALSE(p.less(n, i));
  CHECK(p.mod(i, n) == i);
  CHECK(p.floordiv(i, n) == kZero);
  CHECK(p.floordiv(i, kZero) == kZero);  // the extent of an axis without points
  CHECK(p.mod(i, kZero) == kZero);
  CHECK(p.min(i, n) == i);
  CHECK(p.max(i, n) == n);
}

TEST_CASE("what an axis contributes") {
  IndexPool p;
  const Expr n = p.symbol(p.add_symbol(0));
  const uint32_t a = p.add_axis(n);
  const Expr e = p.add(p.mul(p.axis(a), n), p.number(3));
  const auto affine = p.affine(e, a);
  REQUIRE(affine);
  CHECK(affine->coefficient == n);
  CHECK(affine->rest == p.number(3));
  CHECK_FALSE(p.affine(p.floordiv(p.axis(a), p.number(2)), a));
  CHECK_FALSE(p.affine(p.mul(p.axis(a), p.axis(a)), a));
}

TEST_CASE("simplified expressions have the values of plain ones") {
  std::mt19937_64 r(3);
  for (int round = 0; round < 3000; ++round) {
    IndexPool p;
    const int64_t n = 1 + static_cast<int64_t>(r() % 6), m = 1 + static_cast<int64_t>(r() % 6);
    const Expr s = p.symbol(p.add_symbol(static_cast<int64_t>(r() % 2)));
    const Expr fixed = p.number(m);
    const uint32_t a0 = p.add_axis(s), a1 = p.add_axis(fixed);
    struct Both {
      Expr e;
      int64_t v;
    };
    const int64_t i = static_cast<int64_t>(r() % static_cast<uint64_t>(n)),
                  j = static_cast<int64_t>(r() % static_cast<uint64_t>(m));
    std::vector<Both> pool = {{p.axis(a0), i}, {p.axis(a1), j}, {s, n}, {p.number(3), 3}, {p.number(-2), -2}, {fixed, m}};
    const auto pick = [&] { return pool[r() % pool.size()]; };
    for (int step = 0; step < 8; ++step) {
      const Both x = pick(), y = pick();
      if (std::abs(x.v) > 100000 || std::abs(y.v) > 100000) continue;
      Both z{};
      const auto floor = [](int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); };
      switch (r() % 7) {
        case 0: z = {p.add(x.e, y.e), x.v + y.v}; break;
        case 1: z = {p.sub(x.e, y.e), x.v - y.v}; break;
        case 2: z = {p.mul(x.e, y.e), x.v * y.v}; break;
        case 3: z = {p.min(x.e, y.e), std::min(x.v, y.v)}; break;
        case 4: z = {p.max(x.e, y.e), std::max(x.v, y.v)}; break;
        default:
          if (y.v <= 0) continue;
          // A divisor must be positive for every value, not for this one.
          if (!p.nonnegative(p.sub(y.e, kOne))) continue;
          z = r() % 2 ? Both{p.floordiv(x.e, y.e), floor(x.v, y.v)} : Both{p.mod(x.e, y.e), x.v - floor(x.v, y.v) * y.v};
      }
      const int64_t axes[] = {i, j}, symbols[] = {n};
      IndexEnv env;
      env.axes = axes;
      env.symbols = symbols;
      INFO(text(p, x.e) << " and " << text(p, y.e) << " gave " << text(p, z.e));
      REQUIRE(p.evaluate(z.e, env) == z.v);
      pool.push_back(z);
    }
  }
}
