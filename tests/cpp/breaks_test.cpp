// SPDX-License-Identifier: Apache-2.0
// Functions with graph breaks: what they compute, what runs again, what is compiled.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

TEST_CASE("a branch on a tensor takes both ways, and host code runs once for each") {
  int runs = 0;
  auto f = compile([&](const Tensor& x) {
    ++runs;
    const Tensor y = x * 2;
    if (y.sum() > 0) return y + 1;
    return y - 1;
  });
  const Tensor up = tensor({1.f, 2.f}), down = tensor({-1.f, -2.f});
  CHECK(values(f(up)) == std::vector<float>{3, 5});
  CHECK(runs == 1);
  CHECK(values(f(up)) == std::vector<float>{3, 5});
  CHECK(runs == 1);
  CHECK(values(f(down)) == std::vector<float>{-3, -5});
  CHECK(runs == 2);
  CHECK(values(f(tensor({-5.f, 1.f}))) == std::vector<float>{-11, 1});
  CHECK(values(f(tensor({5.f, 1.f}))) == std::vector<float>{11, 3});
  CHECK(runs == 2);
}

TEST_CASE("a number that is read is part of the path") {
  int runs = 0;
  auto f = compile([&](const Tensor& x) {
    ++runs;
    const int n = x.sum().item<int>();
    Tensor y = x;
    for (int i = 0; i < n; ++i) y = y + x;
    return y;
  });
  for (int repeat = 0; repeat < 3; ++repeat) {
    CHECK(values(f(tensor({1.f, 1.f}))) == std::vector<float>{3, 3});
    CHECK(values(f(tensor({2.f, 1.f}))) == std::vector<float>{8, 4});
    CHECK(values(f(tensor({0.f, 0.f}))) == std::vector<float>{0, 0});
    CHECK(values(f(tensor({3.f, 0.f}))) == std::vector<float>{12, 0});
  }
  CHECK(runs == 3);
}

TEST_CASE("a loop that data ends") {
  int runs = 0;
  auto f = compile([&](const Tensor& start) {
    ++runs;
    Tensor x = start;
    int steps = 0;
    while (x.sum() < 100) {
      x = x * 2;
      ++steps;
    }
    return x + steps;
  });
  CHECK(values(f(tensor({1.f, 1.f}))) == std::vector<float>{64 + 6, 64 + 6});
  CHECK(values(f(tensor({40.f, 20.f}))) == std::vector<float>{81, 41});
  CHECK(values(f(tensor({100.f, 20.f}))) == std::vector<float>{100, 20});
  const int before = runs;
  CHECK(values(f(tensor({1.f, 1.f}))) == std::vector<float>{70, 70});
  CHECK(values(f(tensor({50.f, 20.f}))) == std::vector<float>{101, 41});
  CHECK(values(f(tensor({101.f, 20.f}))) == std::vector<float>{101, 20});
  CHECK(runs == before);
}

TEST_CASE("an explicit break, and results from before it") {
  int runs = 0;
  auto f = compile([&](const Tensor& x, const Tensor& z) {
    ++runs;
    const Tensor a = x + 1;
    graph_break("here");
    const Tensor b = a * z;
    graph_break();
    return std::vector<Tensor>{x, a, b, b + a, z};
  });
  for (int i = 1; i < 4; ++i) {
    const Tensor x = full({2}, i), z = full({2}, 10 * i);
    const std::vector<Tensor> out = f(x, z);
    REQUIRE(out.size() == 5);
    const float v = static_cast<float>(i);
    CHECK(values(out[0]) == std::vector<float>(2, v));
    CHECK(values(out[1]) == std::vector<float>(2, v + 1));
    CHECK(values(out[2]) == std::vector<float>(2, (v + 1) * 10 * v));
    CHECK(values(out[3]) == std::vector<float>(2, (v + 1) * 10 * v + v + 1));
    CHECK(values(out[4]) == std::vector<float>(2, 10 * v));
  }
  CHECK(runs == 1);
}

TEST_CASE("whole tensors can be read") {
  int runs = 0;
  auto f = compile([&](const Tensor& x) {
    ++runs;
    const std::vector<float> v = (x + 1).to_vector<float>();
    float most = v[0];
    for (const float e : v) most = std::max(most, e);
    return x * most;
  });
  CHECK(values(f(tensor({1.f, 3.f}))) == std::vector<float>{4, 12});
  CHECK(values(f(tensor({1.f, 3.f}))) == std::vector<float>{4, 12});
  CHECK(runs == 1);
  CHECK(values(f(tensor({2.f, 0.f}))) == std::vector<float>{6, 0});
  CHECK(runs == 2);
  // Too many to compare: host code runs each time, and is right each time.
  const Tensor large = ones({2000});
  CHECK(f(large).to_vector<float>()[0] == 2);
  CHECK(f(large).to_vector<float>()[0] == 2);
  CHECK(f(large * 3).to_vector<float>()[0] == 12);
  CHECK(runs == 5);
}

TEST_CASE("a disabled function runs at every call") {
  int inside = 0, runs = 0;
  auto log = disable([&](const Tensor& x, int64_t k) {
    ++inside;
    CHECK_FALSE(is_compiling());
    return std::pair<Tensor, int64_t>(x * k, x.sum().item<int64_t>());
  });
  auto f = compile([&](const Tensor& x) {
    ++runs;
    auto [y, total] = log(x + 1, 3);
    return y + total;
  });
  CHECK(values(f(tensor({1.f, 1.f}))) == std::vector<float>{10, 10});
  CHECK(values(f(tensor({1.f, 1.f}))) == std::vector<float>{10, 10});
  CHECK(values(f(tensor({0.f, 2.f}))) == std::vector<float>{7, 13});
  CHECK(runs == 1);
  CHECK(inside == 3);
  CHECK(values(f(tensor({2.f, 2.f}))) == std::vector<float>{15, 15});
  CHECK(runs == 2);
  CHECK(inside == 4);
}

TEST_CASE("fullgraph and error_on_graph_break name the break and the way out") {
  auto f = compile([](const Tensor& x) { return x.sum() > 0 ? x : -x; }, {.fullgraph = true});
  CHECK_THROWS_WITH(f(ones({2})), Catch::Contains("TSR-G010") && Catch::Contains("cond("));
  auto g = compile([](const Tensor& x) {
    const Tensor y = x + 1;
    const ErrorOnGraphBreak strict;
    return y.sum().item<float>() > 0 ? y : -y;
  });
  CHECK_THROWS_WITH(g(ones({2})), Catch::Contains("TSR-G001") && Catch::Contains("breaks_test.cpp"));
  auto h = compile([](const Tensor& x) {
    return cond(
        x.sum() > 0, [](const std::vector<Tensor>& a) { return std::vector<Tensor>{a[0].sum() > 0 ? a[0] : -a[0]}; },
        [](const std::vector<Tensor>& a) { return a; }, {x})[0];
  });
  CHECK_THROWS_WITH(h(ones({2})), Catch::Contains("TSR-G020"));
}

TEST_CASE("a throw after a break leaves everything usable") {
  int runs = 0;
  auto f = compile([&](const Tensor& x) {
    ++runs;
    const Tensor y = x + 1;
    if (y.sum() > 100) throw std::runtime_error("mine");
    return y;
  });
  CHECK_THROWS_WITH(f(full({2}, 100)), "mine");
  CHECK_THROWS_WITH(f(full({2}, 100)), "mine");
  CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
  CHECK_THROWS_WITH(f(full({2}, 100)), "mine");
  CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
  CHECK(runs == 4);
}

TEST_CASE("modules and mutable arguments across breaks") {
  struct Counter : nn::Module<Counter> {
    Tensor weight = full({2}, 3), seen = zeros({});
    int runs = 0;
    Counter() {
      add("weight", weight);
      add_buffer("seen", seen);
    }
    Tensor forward(const Tensor& x) {
      ++runs;
      seen = seen + 1;
      Tensor y = x * weight;
      if (y.sum() > 10) y = y - weight;
      seen = seen + 1;
      return y;
    }
  } m;
  compile(m, {.args = {"x"}});
  CHECK(values(m(ones({2}))) == std::vector<float>{3, 3});
  CHECK(values(m(full({2}, 2))) == std::vector<float>{3, 3});
  CHECK(values(m(full({2}, 2))) == std::vector<float>{3, 3});
  CHECK(m.seen.item<float>() == 6);
  CHECK(m.runs == 2);
  m.weight = full({2}, 7);
  CHECK(values(m(full({2}, 2))) == std::vector<float>{7, 7});
  CHECK(m.runs == 2);

  auto f = compile([](Tensor& state, const Tensor& x) {
    state = state + x;
    graph_break();
    state = state * 2;
    return state + 1;
  });
  Tensor state = ones({2});
  CHECK(values(f(state, ones({2}))) == std::vector<float>{5, 5});
  CHECK(values(state) == std::vector<float>{4, 4});
  CHECK(values(f(state, ones({2}))) == std::vector<float>{11, 11});
  CHECK(values(state) == std::vector<float>{10, 10});
}

TEST_CASE("sizes across breaks: dynamic ones stay symbols") {
  int runs = 0;
  auto f = compile(
      [&](const Tensor& x) {
        ++runs;
        const SymInt n = x.size(0);
        const Tensor y = x + 1;
        graph_break();
        return y.reshape({n * x.size(1)}) + zeros({n * 3});
      },
      {.dynamic = Dynamic::yes});
  CHECK(f(ones({4, 3})).numel() == 12);
  CHECK(f(ones({5, 3})).numel() == 15);
  CHECK(f(ones({7, 3})).to_vector<float>()[20] == 2);
  CHECK(runs == 1);
  auto g = compile(
      [&](const Tensor& x) {
        ++runs;
        const Tensor y = x + 1;
        graph_break();
        return x.size(0) == 4 ? y * 2 : y;
      },
      {.dynamic = Dynamic::yes});
  runs = 0;
  for (int i = 0; i < 2; ++i) {
    CHECK(values(g(ones({4}))) == std::vector<float>(4, 4));
    CHECK(values(g(ones({5}))) == std::vector<float>(5, 2));
    CHECK(values(g(ones({6}))) == std::vector<float>(6, 2));
  }
  CHECK(runs == 2);
}

TEST_CASE("sizes that data decides can be read") {
  int runs = 0;
  auto f = compile([&](const Tensor& x) {
    ++runs;
    const Tensor picked = x.masked_select(x > 0);
    const int64_t n = picked.size(0);
    return n > 2 ? picked.sum() : picked.sum() * 100;
  });
  CHECK(f(tensor({1.f, -2.f, 3.f, 4.f})).item<float>() == 8);
  CHECK(f(tensor({1.f, -2.f, 3.f, -4.f})).item<float>() == 400);
  CHECK(f(tensor({1.f, -2.f, 3.f, -5.f})).item<float>() == 400);
  CHECK(f(tensor({1.f, 2.f, 3.f, -5.f})).item<float>() == 6);
  CHECK(runs == 2);
}

TEST_CASE("a compiled function called in another breaks the outer one; recursion works") {
  auto inner = compile([](const Tensor& x) { return x.sum() > 0 ? x * 2 : x * 3; });
  auto outer = compile([&](const Tensor& x) { return inner(x - 1) + inner(x + 1); });
  for (int i = 0; i < 2; ++i) {
    CHECK(values(outer(tensor({5.f}))) == std::vector<float>{20});
    CHECK(values(outer(tensor({0.5f}))) == std::vector<float>{1.5});
    CHECK(values(outer(tensor({-5.f}))) == std::vector<float>{-30});
  }
  std::function<Tensor(const Tensor&)> rec;
  rec = [&](const Tensor& n) -> Tensor { return n.item<int64_t>() <= 1 ? n : n * rec(n - 1); };
  auto factorial = compile([&](const Tensor& n) { return rec(n); });
  for (int i = 0; i < 2; ++i) {
    CHECK(factorial(scalar(5, i64)).item<int64_t>() == 120);
    CHECK(factorial(scalar(3, i64)).item<int64_t>() == 6);
    CHECK(factorial(scalar(7, i64)).item<int64_t>() == 5040);
  }
}

TEST_CASE("the body of a loop is compiled once, whatever the number of turns") {
  auto f = compile([](const Tensor& start, int64_t step) {
    Tensor x = start;
    while (x.sum() < 100) x = x + step;
    return x;
  });
  f(ones({2}), 3);
  const size_t first = explain(f).graph_count();
  f(zeros({2}), 3);
  f(full({2}, -50), 3);
  CHECK(explain(f).graph_count() == first);
}

TEST_CASE("only the part that depends on a change is compiled again") {
  int runs = 0;
  auto f = compile(
      [&](const Tensor& x, int64_t c) {
        ++runs;
        const Tensor y = (x + 1).relu();
        graph_break();
        return y * c;
      },
      {.dynamic = Dynamic::no, .name = "fn", .args = {"x", "c"}});
  for (int c = 1; c <= 3; ++c) CHECK(values(f(ones({2}), c)) == std::vector<float>(2, 2.0f * static_cast<float>(c)));
  const Explanation e = explain(f);
  size_t heads = 0, tails = 0;
  for (const Explanation::Graph& g : e.graphs) (g.function == "fn" ? heads : tails) += 1;
  CHECK(heads == 1);
  CHECK(tails == 3);
  CHECK(runs == 3);
  for (int c = 1; c <= 3; ++c) f(ones({2}), c);
  CHECK(runs == 3);
}

TEST_CASE("past the limit of a continuation it still computes the right thing") {
  auto f = compile(
      [](const Tensor& x) {
        const float v = x.sum().item<float>();
        return x * v;
      },
      {.options = {"guards.recompile_limit=3"}});
  for (int repeat = 0; repeat < 2; ++repeat)
    for (int i = 1; i <= 6; ++i) CHECK(values(f(full({2}, i))) == std::vector<float>(2, static_cast<float>(2 * i * i)));
}

TEST_CASE("limits and error_on_recompile hold for continuations") {
  const auto body = [](const Tensor& x, int64_t c) {
    const Tensor y = x + 1;
    graph_break();
    return y.sum() > 0 ? y * c : y - c;
  };
  const auto f = compile(body, {.options = {"guards.error_on_recompile=true"}, .args = {"x", "c"}});
  CHECK(values(f(ones({2}), 3)) == std::vector<float>{6, 6});
  CHECK(values(f(full({2}, -4), 3)) == std::vector<float>{-6, -6});  // the other way for the first time is no recompile
  for (int i = 0; i < 2; ++i)
    CHECK_THROWS_WITH(f(ones({2}), 5),
                      Catch::Contains("TSR-D011") && Catch::Contains("'tessera_resume_in_fn_at_") && Catch::Contains("c == 3"));
  CHECK(values(f(ones({2}), 3)) == std::vector<float>{6, 6});

  const auto g =
      compile(body, {.options = {"guards.recompile_limit=1", "guards.fail_on_recompile_limit_hit=true"}, .args = {"x", "c"}});
  CHECK(values(g(ones({2}), 3)) == std::vector<float>{6, 6});
  CHECK_THROWS_WITH(g(ones({2}), 5), Catch::Contains("TSR-D012") && Catch::Contains("'tessera_resume_in_fn_at_"));
  CHECK(values(g(ones({2}), 3)) == std::vector<float>{6, 6});
}

TEST_CASE("explain says which graphs there are and why") {
  const Explanation e = explain(compile(
                                    [](const Tensor& x) {
                                      const Tensor y = x * 2;
                                      if (y.sum() > 0) return y + 1;
                                      return y - 1;
                                    },
                                    {.name = "fn", .args = {"x"}}),
                                ones({2}));
  CHECK(e.graph_count() == 2);
  REQUIRE(e.break_count() == 1);
  CHECK(e.breaks[0].code == "TSR-G010");
  CHECK(e.breaks[0].place.find("breaks_test.cpp:") != std::string::npos);
  CHECK(e.op_count() == 4);
  CHECK(e.graphs[1].function.substr(0, 24) == "tessera_resume_in_fn_at_");
  CHECK(e.str().find("A branch on a tensor") != std::string::npos);
  CHECK(explain(compile([](const Tensor& x) { return x + 1; }), ones({2})).break_count() == 0);
}

TEST_CASE("host_call and allow_in_graph do not break the graph") {
  std::vector<float> seen;
  int runs = 0;
  const auto twice = allow_in_graph([](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0] * 2}; },
                                    [](const std::vector<Tensor>& in) {
                                      return std::vector<TensorType>{{in[0].dtype(), in[0].shape()}};
                                    });
  auto f = compile(
      [&](const Tensor& x) {
        ++runs;
        const Tensor y = x + 1;
        host_call([&seen](const std::vector<Tensor>& in) { seen.push_back(in[0].to_vector<float>()[0]); }, {y});
        return twice({y})[0] + 1;
      },
      {.fullgraph = true});
  CHECK(values(f(ones({2}))) == std::vector<float>{5, 5});
  CHECK(values(f(full({2}, 2))) == std::vector<float>{7, 7});
  CHECK(seen == std::vector<float>{2, 3});
  CHECK(runs == 1);
  auto g = compile([&](const Tensor& x) {
    host_call([](const std::vector<Tensor>&) { throw std::runtime_error("mine"); }, {x});
    return x + 1;
  });
  CHECK_THROWS_WITH(g(ones({2})), "mine");
}

TEST_CASE("marked captures are guarded") {
  int64_t scale = 2;
  std::string mode = "plain";
  int runs = 0;
  auto f = compile(
      [&](const Tensor& x) {
        ++runs;
        const int64_t k = guarded(scale, "scale");
        return guarded(mode, "mode") == "plain" ? x * k : -(x * k);
      },
      {.fullgraph = true});
  CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
  CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
  CHECK(runs == 1);
  scale = 5;
  CHECK(values(f(ones({2}))) == std::vector<float>{5, 5});
  mode = "negated";
  CHECK(values(f(ones({2}))) == std::vector<float>{-5, -5});
  CHECK(runs == 3);
  scale = 2;
  mode = "plain";
  CHECK(values(f(ones({2}))) == std::vector<float>{2, 2});
  CHECK(runs == 3);
}

TEST_CASE("symbolic numbers across breaks") {
  int runs = 0;
  auto f = compile([&](const Tensor& x, SymFloat c, SymInt n) {
    ++runs;
    const Tensor y = x * c;
    graph_break();
    return (y + c).sum() * n;
  });
  CHECK(f(ones({4}), 0.5, 2).item<float>() == 8);
  CHECK(f(ones({4}), 0.25, 2).item<float>() == 4);
  CHECK(runs == 1);
  CHECK(f(ones({4}), 0.5, 3).item<float>() == 12);
  CHECK(f(ones({4}), 0.5, 7).item<float>() == 28);
  CHECK(f(ones({4}), 1.5, 9).item<float>() == 108);
  auto g = compile([&](const Tensor& x, SymFloat c) {
    graph_break();
    return c > 1.0 ? x * 2 : x;
  });
  for (int i = 0; i < 2; ++i) {
    CHECK(values(g(ones({1}), 0.5)) == std::vector<float>{1});
    CHECK(values(g(ones({1}), 1.5)) == std::vector<float>{2});
    CHECK(values(g(ones({1}), 2.5)) == std::vector<float>{2});
  }
}
