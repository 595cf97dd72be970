// SPDX-License-Identifier: Apache-2.0
// Symbolic sizes: the normal form against brute-force evaluation, ranges, comparison, overflow, text, checkpoints.
#include "ir/sizes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace sizes_test {

using namespace tessera::core;

namespace {

std::string code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "none";
}

// An expression as it was written, before Sizes has seen it.
struct Raw {
  tsr_dim_op op = TSR_DIM_SYMBOL;
  int64_t number = 0;  // of a leaf
  int symbol = -1;
  std::unique_ptr<Raw> a, b;
};

struct Case {
  std::unique_ptr<Raw> raw;
  std::mt19937_64& random;

  int64_t below(int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }

  std::unique_ptr<Raw> draw(int depth) {
    auto r = std::make_unique<Raw>();
    if (depth == 0 || below(6) == 0) {
      if (below(3) == 0)
        r->number = below(21) - 8;
      else
        r->symbol = static_cast<int>(below(4));
      return r;
    }
    r->op = static_cast<tsr_dim_op>(1 + below(7));
    r->a = draw(depth - 1);
    r->b = draw(depth - 1);
    return r;
  }
};

// nullopt: divides by zero somewhere.
std::optional<int64_t> evaluate(const Raw& r, const std::vector<int64_t>& values) {
  if (!r.a) return r.symbol < 0 ? r.number : values[static_cast<size_t>(r.symbol)];
  const auto a = evaluate(*r.a, values), b = evaluate(*r.b, values);
  if (!a || !b) return {};
  const auto floor_div = [](int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0); };
  switch (r.op) {
    case TSR_DIM_ADD: return *a + *b;
    case TSR_DIM_SUB: return *a - *b;
    case TSR_DIM_MUL: return *a * *b;
    case TSR_DIM_FLOORDIV: return *b == 0 ? std::nullopt : std::optional(floor_div(*a, *b));
    case TSR_DIM_MOD: return *b == 0 ? std::nullopt : std::optional(*a - *b * floor_div(*a, *b));
    case TSR_DIM_MIN: return std::min(*a, *b);
    default: return std::max(*a, *b);
  }
}

tsr_dim build(Sizes& s, const Raw& r, const std::vector<tsr_dim>& symbols) {
  if (!r.a) return r.symbol < 0 ? r.number : symbols[static_cast<size_t>(r.symbol)];
  const tsr_dim a = build(s, *r.a, symbols), b = build(s, *r.b, symbols);
  return s.make(r.op, a, b);
}

std::string text(const Raw& r) {
  if (!r.a) return r.symbol < 0 ? std::to_string(r.number) : "s" + std::to_string(r.symbol);
  static const char* const kName[] = {"", "add", "sub", "mul", "floordiv", "mod", "min", "max"};
  return std::string(kName[r.op]) + "(" + text(*r.a) + ", " + text(*r.b) + ")";
}

struct Four {  // s0: 0.., s1: 1..8, s2: 2..2, s3: -5..5
  Sizes sizes;
  std::vector<tsr_dim> symbols;
  const std::vector<std::pair<int64_t, int64_t>> ranges{{0, INT64_MAX}, {1, 8}, {2, 2}, {-5, 5}};
  Four() {
    for (size_t i = 0; i < ranges.size(); ++i)
      symbols.push_back(sizes.symbol("s" + std::to_string(i), ranges[i].first, ranges[i].second, false));
  }
  std::vector<int64_t> values(std::mt19937_64& random) const {
    std::vector<int64_t> v;
    for (const auto& [min, max] : ranges)
      v.push_back(min + static_cast<int64_t>(random() % static_cast<uint64_t>(std::min<int64_t>(max - min, 40) + 1)));
    return v;
  }
};

}  // namespace

TEST_CASE("the normal form has the value of the expression as written") {
  std::mt19937_64 random(1);
  size_t compared = 0, simplified = 0;
  for (int round = 0; round < 6000; ++round) {
    Case c{nullptr, random};
    c.raw = c.draw(1 + static_cast<int>(random() % 4));
    Four four;
    tsr_dim d = 0;
    try {
      d = build(four.sizes, *c.raw, four.symbols);
    } catch (const Error& e) {
      // Only a divisor that is the number 0 may be refused when the expression is made; then it is 0 for all values.
      INFO(text(*c.raw) << ": " << e.what());
      REQUIRE(e.code() == "TSR-S003");
      for (int k = 0; k < 20; ++k) REQUIRE(!evaluate(*c.raw, four.values(random)));
      continue;
    }
    simplified += !TSR_DIM_IS_EXPR(d);
    const Range range = four.sizes.range(d);
    for (int k = 0; k < 30; ++k) {
      const std::vector<int64_t> values = four.values(random);
      const std::optional<int64_t> want = evaluate(*c.raw, values);
      if (!want) continue;
      int64_t have = 0;
      INFO(text(*c.raw) << " as " << four.sizes.print(d) << " at " << values[0] << " " << values[1] << " " << values[2] << " "
                        << values[3]);
      REQUIRE_NOTHROW(have = four.sizes.evaluate(d, values));
      if (have != *want) REQUIRE(have == *want);
      if (have < range.min || have > range.max)
        FAIL("the range " << range.min << ".." << range.max << " does not hold " << have);
      ++compared;
    }
  }
  CHECK(compared > 100000);
  CHECK(simplified > 100);
}

TEST_CASE("comparison agrees with every pair of values") {
  std::mt19937_64 random(2);
  size_t decided = 0;
  for (int round = 0; round < 4000; ++round) {
    Case a{nullptr, random}, b{nullptr, random};
    a.raw = a.draw(static_cast<int>(random() % 3));
    b.raw = b.draw(static_cast<int>(random() % 3));
    Four four;
    // Half of the time an assumption that holds for all the values compared below.
    const bool assume = random() % 2 == 0;
    if (assume) {
      four.sizes.require(TSR_DIVISIBLE, four.symbols[0], 4, "test");
      four.sizes.require(TSR_LE, four.symbols[0], four.sizes.mul(four.symbols[1], 4), "test");
    }
    tsr_dim x = 0, y = 0;
    try {
      x = build(four.sizes, *a.raw, four.symbols);
      y = build(four.sizes, *b.raw, four.symbols);
    } catch (const Error&) {
      continue;
    }
    tsr_truth truth[TSR_DIVISIBLE + 1];
    for (int r = 0; r <= TSR_DIVISIBLE; ++r) {
      truth[r] = four.sizes.compare(static_cast<tsr_relation>(r), x, y);
      decided += truth[r] != TSR_UNKNOWN;
    }
    for (int k = 0; k < 30; ++k) {
      std::vector<int64_t> values = four.values(random);
      if (assume) values[0] = std::min(values[0] / 4, values[1]) * 4;
      int64_t vx = 0, vy = 0;
      try {
        vx = four.sizes.evaluate(x, values);
        vy = four.sizes.evaluate(y, values);
      } catch (const Error&) {
        continue;
      }
      for (int r = 0; r <= TSR_DIVISIBLE; ++r) {
        if (truth[r] == TSR_UNKNOWN) continue;
        INFO(four.sizes.print(x) << " and " << four.sizes.print(y) << ", relation " << r << " at " << values[0] << " "
                                 << values[1] << " " << values[3]);
        if (r == TSR_DIVISIBLE && vy == 0) continue;  // x mod y has no value there
        if (Sizes::holds(static_cast<tsr_relation>(r), vx, vy) != (truth[r] == TSR_TRUE)) FAIL("compare says " << truth[r]);
      }
    }
  }
  CHECK(decided > 4000);
}

TEST_CASE("equal expressions are equal handles") {
  Sizes s;
  const tsr_dim a = s.symbol("a", 0, INT64_MAX, false), b = s.symbol("b", 1, INT64_MAX, false);
  const auto mod = [&](tsr_dim x, tsr_dim y) { return s.make(TSR_DIM_MOD, x, y); };
  CHECK(s.add(a, b) == s.add(b, a));
  CHECK(s.sub(s.add(a, b), b) == a);
  CHECK(s.mul(s.add(a, b), s.sub(a, b)) == s.sub(s.mul(a, a), s.mul(b, b)));
  CHECK(s.add(s.mul(a, 2), s.mul(a, 3)) == s.mul(5, a));
  CHECK(s.floordiv(s.mul(a, 8), 8) == a);
  CHECK(s.floordiv(s.mul(s.mul(a, b), 6), s.mul(b, 3)) == s.mul(a, 2));
  CHECK(s.floordiv(s.add(s.mul(a, 4), 3), 4) == a);
  CHECK(s.floordiv(s.add(s.mul(a, 4), b), 4) == s.add(a, s.floordiv(b, 4)));
  CHECK(mod(s.mul(a, 8), 4) == 0);
  CHECK(mod(s.add(s.mul(a, 8), 3), 4) == 3);
  CHECK(mod(s.sub(a, 1), 4) == mod(s.add(a, 3), 4));
  CHECK(mod(mod(a, 4), 4) == mod(a, 4));
  CHECK(s.make(TSR_DIM_MIN, s.add(a, 1), a) == a);
  CHECK(s.make(TSR_DIM_MAX, a, s.sub(a, 3)) == a);
  CHECK(s.make(TSR_DIM_MIN, a, 0) == 0);
  CHECK(s.make(TSR_DIM_MIN, a, b) == s.make(TSR_DIM_MIN, b, a));
  CHECK(s.floordiv(a, 1) == a);
  CHECK(s.product({}) == 1);
}

TEST_CASE("text reads back as the same size") {
  std::mt19937_64 random(3);
  std::set<std::string> forms;
  for (int round = 0; round < 1500; ++round) {
    Case c{nullptr, random};
    c.raw = c.draw(1 + static_cast<int>(random() % 3));
    Four four;
    tsr_dim d = 0;
    try {
      d = build(four.sizes, *c.raw, four.symbols);
    } catch (const Error&) {
      continue;
    }
    const std::string printed = four.sizes.print(d);
    forms.insert(printed);
    // In a constraint, where any value may stand: `printed` == 7 is kept unless it is decided at once.
    const std::string header = "graph @g()\n  symbols { s0: 0..; s1: 1..8; s2: 2..2; s3: -5..5 }\n";
    const std::string graph = header + "{\n  %0 = dim_value {value = " + printed + "} : i64[]\n  return %0\n}\n";
    INFO(text(*c.raw) << " as " << printed);
    std::unique_ptr<Graph> g;
    REQUIRE_NOTHROW(g = parse_graph(tessera::test::test_ops(), graph, "t.tsr"));
    const tsr_dim back = g->attr(g->region(0).first, "value")->i;
    REQUIRE(g->sizes().print(back) == printed);
    for (int k = 0; k < 5; ++k) {
      const std::vector<int64_t> values = four.values(random);
      std::optional<int64_t> want;
      try {
        want = four.sizes.evaluate(d, values);
      } catch (const Error&) {}
      if (want) REQUIRE(g->sizes().evaluate(back, values) == *want);
    }
  }
  CHECK(forms.size() > 500);
}

TEST_CASE("printing follows precedence") {
  Sizes s;
  const tsr_dim a = s.symbol("a", 0, INT64_MAX, false), b = s.symbol("b", 0, INT64_MAX, false);
  CHECK(s.print(-3) == "-3");
  CHECK(s.print(s.add(s.mul(a, 2), 1)) == "a * 2 + 1");
  CHECK(s.print(s.sub(1, s.mul(a, 2))) == "a * -2 + 1");
  CHECK(s.print(s.sub(s.mul(a, b), s.mul(b, 3))) == "a * b - b * 3");
  CHECK(s.print(s.sub(a, b)) == "a - b");
  CHECK(s.print(s.sub(a, 4)) == "a - 4");
  CHECK(s.print(s.make(TSR_DIM_MIN, s.floordiv(s.add(a, 1), 2), s.mul(b, s.make(TSR_DIM_MOD, a, 3)))) ==
        "min(floordiv(a + 1, 2), b * mod(a, 3))");
}

TEST_CASE("an estimate has a number for every size") {
  Sizes s;
  const tsr_dim a = s.symbol("a", 0, INT64_MAX, false);
  const auto estimate = [&](tsr_dim d, int64_t value) { return s.estimate(d, std::vector<int64_t>{value}); };
  CHECK(estimate(s.add(s.floordiv(7, a), 1), 0) == 1);
  CHECK(estimate(s.make(TSR_DIM_MOD, 7, a), 0) == 0);
  CHECK(estimate(s.mul(a, a), INT64_MAX / 2) == INT64_MAX);
  CHECK(estimate(s.sub(0, s.mul(a, a)), INT64_MAX / 2) == INT64_MIN + (int64_t{1} << 32));
  CHECK(estimate(s.add(s.floordiv(s.add(a, 5), 2), a), 4) == 8);
}

TEST_CASE("ranges") {
  Sizes s;
  const tsr_dim a = s.symbol("a", 2, 10, false), b = s.symbol("b", 0, INT64_MAX, false), n = s.symbol("n", -3, 4, false);
  const auto range = [&](tsr_dim d) { return std::pair(s.range(d).min, s.range(d).max); };
  using P = std::pair<int64_t, int64_t>;
  CHECK(range(7) == P(7, 7));
  CHECK(range(s.add(a, 5)) == P(7, 15));
  CHECK(range(s.mul(a, -2)) == P(-20, -4));
  CHECK(range(s.mul(a, n)) == P(-30, 40));
  CHECK(range(s.add(a, b)) == P(2, INT64_MAX));
  CHECK(range(s.sub(a, b)) == P(INT64_MIN, 10));
  CHECK(range(s.floordiv(b, a)) == P(0, INT64_MAX));
  CHECK(range(s.floordiv(n, a)) == P(-2, 2));
  CHECK(range(s.make(TSR_DIM_MOD, b, a)) == P(0, 9));
  CHECK(range(s.make(TSR_DIM_MOD, a, 100)) == P(2, 10));  // it is a itself
  CHECK(range(s.make(TSR_DIM_MIN, a, b)) == P(0, 10));
  CHECK(range(s.make(TSR_DIM_MAX, a, b)) == P(2, INT64_MAX));
  // Ends that leave 64 bits saturate.
  CHECK(range(s.mul(s.mul(a, INT64_MAX / 16), a)).second == INT64_MAX);
}

TEST_CASE("assumptions decide what follows from them") {
  Sizes s;
  const tsr_dim a = s.symbol("a", 0, INT64_MAX, false), b = s.symbol("b", 0, INT64_MAX, false);
  CHECK(s.compare(TSR_LE, a, b) == TSR_UNKNOWN);
  s.require(TSR_LE, a, b, "a fits b");
  CHECK(s.compare(TSR_LE, a, b) == TSR_TRUE);
  CHECK(s.compare(TSR_LE, a, s.add(b, 3)) == TSR_TRUE);
  CHECK(s.compare(TSR_GT, a, b) == TSR_FALSE);
  CHECK(s.compare(TSR_LT, a, b) == TSR_UNKNOWN);
  CHECK(s.compare(TSR_LT, a, s.add(b, 1)) == TSR_TRUE);
  s.require(TSR_NE, a, b, "they differ");
  CHECK(s.compare(TSR_EQ, b, a) == TSR_FALSE);
  s.require(TSR_DIVISIBLE, a, 8, "vector width");
  CHECK(s.compare(TSR_DIVISIBLE, a, 4) == TSR_TRUE);
  CHECK(s.compare(TSR_DIVISIBLE, s.add(a, 16), 8) == TSR_TRUE);
  CHECK(s.compare(TSR_DIVISIBLE, a, 16) == TSR_UNKNOWN);
  CHECK(s.compare(TSR_DIVISIBLE, s.add(s.mul(b, 4), 2), 4) == TSR_FALSE);
  CHECK(s.print(s.make(TSR_DIM_MOD, s.add(a, 24), 8)) == "mod(a, 8)");  // the form never depends on assumptions
  CHECK(s.print(s.make(TSR_DIM_MIN, a, b)) == "min(a, b)");

  // Provable ones are not recorded, false ones are refused with both sides and the reason.
  const size_t recorded = s.assumptions().size();
  s.require(TSR_LE, a, s.add(b, 1), "implied");
  CHECK(s.assumptions().size() == recorded);
  try {
    s.require(TSR_GT, a, b, "the slice is too long");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.code() == "TSR-S004");
    CHECK(e.message() == "the slice is too long: a > b does not hold");
  }
  const Sizes::WithoutAssumptions scope(s);
  CHECK(s.compare(TSR_LE, a, b) == TSR_UNKNOWN);
  CHECK(s.compare(TSR_DIVISIBLE, a, 8) == TSR_UNKNOWN);
}

TEST_CASE("overflow and division by zero are errors, never numbers") {
  Sizes s;
  const tsr_dim a = s.symbol("a", 0, INT64_MAX, false);
  constexpr int64_t big = INT64_MAX;
  CHECK(code_of([&] { s.add(big, 1); }) == "TSR-S001");
  CHECK(code_of([&] { s.sub(-big + (int64_t{1} << 33), int64_t{1} << 33); }) == "TSR-S001");
  CHECK(code_of([&] { s.mul(big, 2); }) == "TSR-S001");
  CHECK(code_of([&] { s.mul(s.mul(a, big), 2); }) == "TSR-S001");
  CHECK(code_of([&] { s.add(s.add(a, big), 1); }) == "TSR-S001");
  CHECK(code_of([&] { s.product(std::vector<tsr_dim>{int64_t{1} << 32, int64_t{1} << 31}); }) == "TSR-S001");
  // Numbers that would read as handles.
  CHECK(code_of([&] { s.sub(INT64_MIN + (int64_t{1} << 32), 1); }) == "TSR-S001");
  CHECK(s.sub(INT64_MIN + (int64_t{1} << 32), -1) == INT64_MIN + (int64_t{1} << 32) + 1);
  CHECK(code_of([&] { s.floordiv(a, 0); }) == "TSR-S003");
  CHECK(code_of([&] { s.floordiv(4, 0); }) == "TSR-S003");
  CHECK(code_of([&] { s.make(TSR_DIM_MOD, a, 0); }) == "TSR-S003");
  CHECK(code_of([&] { s.make(static_cast<tsr_dim_op>(9), 1, 2); }) == "TSR-B004");
  CHECK(s.compare(TSR_EQ, s.mul(a, big), s.mul(a, -big / 2)) == TSR_UNKNOWN);  // the difference overflows

  const tsr_dim square = s.mul(a, a), half = s.floordiv(7, 2);
  CHECK(half == 3);
  CHECK(code_of([&] { s.evaluate(square, std::vector<int64_t>{int64_t{1} << 32}); }) == "TSR-S001");
  const tsr_dim quotient = s.floordiv(100, a);
  CHECK(code_of([&] { s.evaluate(quotient, std::vector<int64_t>{0}); }) == "TSR-S003");
  CHECK(s.floordiv(INT64_MIN + (int64_t{1} << 32), -1) == INT64_MAX - (int64_t{1} << 32) + 1);
}

TEST_CASE("a product of long sums is refused instead of being multiplied out") {
  Sizes s;
  tsr_dim a = 0, b = 0;
  for (int i = 0; i < 30; ++i) {
    a = s.add(a, s.fresh("x", 0, 100, false));
    b = s.add(b, s.fresh("y", 0, 100, false));
  }
  CHECK(code_of([&] { s.mul(a, b); }) == "TSR-S005");
}

TEST_CASE("what shares its parts takes time and text by its parts, not by the tree that it stands for") {
  Sizes s;
  const tsr_dim n = s.symbol("n", 0, INT64_MAX, false), m = s.symbol("m", 1, 7, false);
  tsr_dim x = n;
  int64_t want = 1000;
  for (int64_t i = 0; i < 300; ++i) {  // a tree of 3^300 leaves
    x = s.make(TSR_DIM_MAX, s.sub(s.make(TSR_DIM_MOD, s.add(x, i), 997), s.make(TSR_DIM_FLOORDIV, x, s.add(m, 1))), 3);
    want = std::max<int64_t>((want + i) % 997 - want / 5, 3);
  }
  const std::vector<int64_t> values = {1000, 4};
  CHECK(s.evaluate(x, values) == want);
  CHECK(s.range(x).min == 3);
  CHECK(s.compare(TSR_GE, x, 3) == TSR_TRUE);
  CHECK_FALSE(s.is_unbacked(x));
  std::vector<uint32_t> used;
  s.collect_symbols(x, used);
  CHECK(used == std::vector<uint32_t>{0, 1});
  CHECK(s.print(x).size() < 2000);
  int64_t solution = 0;
  CHECK(s.solve(s.add(x, s.fresh("k", 0, 9, false)), 2, want + 5, std::vector<int64_t>{1000, 4, 0}, &solution) ==
        Sizes::Solution::kFound);
  CHECK(solution == 5);
  Sizes other;
  const tsr_dim p = other.symbol("p", 0, INT64_MAX, false), q = other.symbol("q", 1, 7, false);
  const tsr_dim copy = other.import(s, x, [&](uint32_t symbol) { return symbol == 0 ? p : q; });
  CHECK(other.evaluate(copy, values) == want);
}

TEST_CASE("a sum of many terms is taken apart again") {
  Sizes s;
  std::vector<int64_t> values;
  tsr_dim sum = 0, again = 0;
  int64_t want = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    sum = s.add(sum, s.mul(s.fresh("x", 0, 100, false), i + 1));
    values.push_back(i % 7);
    want += (i % 7) * (i + 1);
  }
  for (uint32_t i = 0; i < 1000; ++i) again = s.add(again, s.mul(s.find("x" + std::to_string(i)), i + 1));
  CHECK(s.evaluate(sum, values) == want);
  CHECK(again == sum);
  CHECK(s.range(sum).max == 100 * 500500);
}

TEST_CASE("min, max and floordiv are simplified as far as their operands are ordered") {
  Sizes s;
  const tsr_dim n = s.symbol("n", 0, INT64_MAX, false), k = s.symbol("k", 0, INT64_MAX, false);
  const auto min = [&](tsr_dim a, tsr_dim b) { return s.make(TSR_DIM_MIN, a, b); };
  const auto max = [&](tsr_dim a, tsr_dim b) { return s.make(TSR_DIM_MAX, a, b); };
  CHECK(min(max(s.sub(n, 1), 0), n) == max(s.sub(n, 1), 0));
  CHECK(max(s.sub(max(s.sub(n, 2), 0), 3), 0) == max(s.sub(n, 5), 0));
  CHECK(min(min(n, k), n) == min(n, k));
  CHECK(min(n, s.floordiv(n, 2)) == s.floordiv(n, 2));
  CHECK(max(s.floordiv(s.add(n, 3), 4), s.floordiv(n, 4)) == s.floordiv(s.add(n, 3), 4));
  CHECK(s.floordiv(s.floordiv(s.add(n, 1), 2), 3) == s.floordiv(s.add(n, 1), 6));
  CHECK(s.floordiv(s.add(s.floordiv(s.sub(n, 1), 2), 1), 2) == s.floordiv(s.add(n, 1), 4));
  CHECK(s.compare(TSR_LE, s.make(TSR_DIM_MIN, n, k), k) == TSR_TRUE);
  CHECK(s.compare(TSR_LE, max(s.sub(n, 5), 0), max(s.sub(n, 1), 0)) == TSR_TRUE);
  CHECK(s.compare(TSR_EQ, max(n, k), n) == TSR_UNKNOWN);
}

TEST_CASE("symbols") {
  Sizes s;
  const tsr_dim a = s.symbol("s0", 1, 8, false, 4), u = s.fresh("u", 0, INT64_MAX, true);
  CHECK(s.print(u) == "u1");
  CHECK(s.fresh("s", 0, 1, false) != a);
  CHECK(code_of([&] { s.symbol("s0", 0, 1, false); }) == "TSR-S002");
  CHECK(s.find("s0") == a);
  CHECK(s.find("nobody") == -1);
  CHECK(s.is_unbacked(s.add(a, u)));
  CHECK_FALSE(s.is_unbacked(s.mul(a, 3)));
  std::vector<uint32_t> used;
  s.collect_symbols(s.add(s.mul(u, 2), s.mul(a, u)), used);
  CHECK(used == std::vector<uint32_t>{0, 1});

  // Copies are independent; handles keep their meaning.
  Sizes copy(s);
  copy.symbol("later", 0, 1, false);
  CHECK(s.find("later") == -1);
  CHECK(copy.print(copy.add(a, 1)) == "s0 + 1");

  Sizes other;
  const tsr_dim x = other.symbol("x", 0, 10, false);
  const tsr_dim imported =
      other.import(s, s.add(s.mul(a, 2), u), [&](uint32_t symbol) { return symbol == 0 ? x : tsr_dim{5}; });
  CHECK(other.print(imported) == "x * 2 + 5");
}

TEST_CASE("sums and products are solved for one symbol") {
  Sizes s;
  const tsr_dim a = s.symbol("s0", 0, INT64_MAX, false), b = s.symbol("s1", 0, INT64_MAX, false);
  const std::vector<int64_t> values = {0, 10};
  int64_t x = -1;
  using Solution = Sizes::Solution;
  CHECK(s.solve(s.add(s.mul(a, 3), 1), 0, 13, values, &x) == Solution::kFound);
  CHECK(x == 4);
  CHECK(s.solve(s.mul(a, 3), 0, 13, values, &x) == Solution::kNone);
  CHECK(s.solve(s.add(a, b), 0, 13, values, &x) == Solution::kFound);
  CHECK(x == 3);
  CHECK(s.solve(s.sub(b, a), 0, 7, values, &x) == Solution::kFound);
  CHECK(x == 3);
  CHECK(s.solve(s.make(TSR_DIM_FLOORDIV, a, 2), 0, 3, values, &x) == Solution::kMany);
  CHECK(s.solve(s.add(s.mul(a, b), a), 0, 22, values, &x) == Solution::kMany);  // on both sides
}

TEST_CASE("what random assumptions decide holds for every value that keeps them, and goes with them") {
  std::mt19937 random(31);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  constexpr int64_t kMost = 9;
  size_t decided = 0;
  for (int round = 0; round < 200; ++round) {
    Sizes s;
    const tsr_dim symbols[] = {s.symbol("a", 0, kMost, false), s.symbol("b", 0, kMost, false)};
    struct Fact {
      tsr_relation relation;
      tsr_dim a, b;
    };
    // Few sums of terms, so that many assumptions are on the same one, with both signs.
    const auto draw = [&]() -> Fact {
      const int64_t k = below(3) - 1, l = below(3) - 1;
      tsr_dim d = s.add(s.mul(symbols[0], k), s.mul(symbols[1], l));
      d = s.add(d, below(9) - 4);
      static constexpr tsr_relation kRelations[] = {TSR_EQ, TSR_NE, TSR_LT, TSR_LE, TSR_GT, TSR_GE};
      return {kRelations[below(6)], d, below(5) - 2};
    };
    const auto holds = [&](const Fact& f, int64_t a, int64_t b) {
      const int64_t values[] = {a, b};
      return Sizes::holds(f.relation, s.evaluate(f.a, values), s.evaluate(f.b, values));
    };
    std::vector<Fact> kept;
    std::vector<std::pair<Sizes::Checkpoint, size_t>> checkpoints;
    for (int step = 0; step < 12; ++step) {
      switch (below(4)) {
        case 0: checkpoints.emplace_back(s.checkpoint(), kept.size()); break;
        case 1:
          if (!checkpoints.empty()) {
            s.restore(checkpoints.back().first);
            kept.resize(checkpoints.back().second);
            checkpoints.pop_back();
          }
          break;
        default: {
          const Fact f = draw();
          if (s.compare(f.relation, f.a, f.b) == TSR_FALSE) break;
          s.require(f.relation, f.a, f.b, "random");
          kept.push_back(f);
        }
      }
      const Fact asked = draw();
      const tsr_truth truth = s.compare(asked.relation, asked.a, asked.b);
      if (truth == TSR_UNKNOWN) continue;
      ++decided;
      for (int64_t a = 0; a <= kMost; ++a)
        for (int64_t b = 0; b <= kMost; ++b) {
          if (!std::all_of(kept.begin(), kept.end(), [&](const Fact& f) { return holds(f, a, b); })) continue;
          if (holds(asked, a, b) != (truth == TSR_TRUE)) FAIL("a = " << a << ", b = " << b << ", round " << round);
        }
    }
    bool possible = false;  // assumptions of several sums may exclude each other
    for (int64_t a = 0; a <= kMost; ++a)
      for (int64_t b = 0; b <= kMost; ++b)
        possible = possible || std::all_of(kept.begin(), kept.end(), [&](const Fact& f) { return holds(f, a, b); });
    for (const Fact& f : kept)
      if (possible) CHECK(s.compare(f.relation, f.a, f.b) == TSR_TRUE);
  }
  CHECK(decided > 500);
}

TEST_CASE("a checkpoint takes back handles, symbols and assumptions") {
  Sizes s;
  const tsr_dim a = s.symbol("a", 0, 100, false);
  const tsr_dim kept = s.add(a, 1);
  s.require(TSR_GE, a, 4, "kept");
  const auto before = s.checkpoint();
  const tsr_dim b = s.symbol("b", 0, 100, false);
  const tsr_dim sum = s.mul(s.add(a, b), 3);
  s.require(TSR_LE, b, a, "gone");
  s.restore(before);
  CHECK(s.symbols().size() == 1);
  CHECK(s.find("b") == -1);
  CHECK(s.assumptions().size() == 1);
  CHECK(s.add(a, 1) == kept);
  // The handle is given out again, for something else.
  const tsr_dim c = s.symbol("c", 0, 100, false);
  CHECK(c == b);
  CHECK(s.print(s.mul(s.add(a, c), 3)) == "a * 3 + c * 3");
  CHECK(s.print(sum) == "a * 3 + c * 3");
  CHECK(s.symbol("b", 0, 1, false) != c);
}

}  // namespace sizes_test
