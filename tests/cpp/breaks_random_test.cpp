// SPDX-License-Identifier: Apache-2.0
// Random programs with control flow on data: compiled, with all the graph breaks that takes, they compute what they compute op
// by op.
#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include <tessera/tessera.hpp>

using namespace tessera;

namespace {

constexpr int kRegisters = 4;

struct Statement {
  enum Kind { kAdd, kSub, kMul, kMax, kNeg, kIf, kWhile, kSwitch, kRead, kBreak, kCall, kDisabled, kCount } kind;
  int a, b, to, number;
  std::vector<Statement> body, other;
};

using Random = std::mt19937;
int pick(Random& r, int n) { return static_cast<int>(r() % static_cast<unsigned>(n)); }

std::vector<Statement> random_program(Random& r, int depth) {
  std::vector<Statement> out;
  const int n = 1 + pick(r, depth > 1 ? 4 : 3);
  for (int i = 0; i < n; ++i) {
    Statement s{static_cast<Statement::Kind>(pick(r, depth > 0 ? Statement::kCount : Statement::kIf)),
                pick(r, kRegisters),
                pick(r, kRegisters),
                pick(r, kRegisters),
                pick(r, 9) - 4,
                {},
                {}};
    if (s.kind == Statement::kIf || s.kind == Statement::kWhile || s.kind == Statement::kSwitch || s.kind == Statement::kCall) {
      s.body = random_program(r, depth - 1);
      s.other = random_program(r, depth - 1);
    }
    out.push_back(std::move(s));
  }
  return out;
}

// Integers that stay small, so that every result is exact.
Tensor small(const Tensor& x) { return x.clamp(-40, 40); }

void run(const std::vector<Statement>& program, std::vector<Tensor>& x) {
  for (const Statement& s : program) {
    const auto a = static_cast<size_t>(s.a), b = static_cast<size_t>(s.b), to = static_cast<size_t>(s.to);
    switch (s.kind) {
      case Statement::kAdd: x[to] = small(x[a] + x[b]); break;
      case Statement::kSub: x[to] = small(x[a] - x[b] + s.number); break;
      case Statement::kMul: x[to] = small(x[a] * x[b]); break;
      case Statement::kMax: x[to] = maximum(x[a], x[b] + s.number); break;
      case Statement::kNeg: x[to] = -x[a]; break;
      case Statement::kIf:
        if (x[a].sum() > s.number)
          run(s.body, x);
        else
          run(s.other, x);
        break;
      case Statement::kWhile:
        for (int i = 0; i < 5 && x[a].sum() < s.number * 10; ++i) {
          run(s.body, x);
          x[a] = x[a] + 3;
        }
        break;
      case Statement::kSwitch: {
        const int way = (x[a].sum().item<int>() % 3 + 3) % 3;
        if (way == 0) run(s.body, x);
        if (way == 1) run(s.other, x);
        x[to] = x[to] + way;
        break;
      }
      case Statement::kRead: {
        const std::vector<float> v = x[a].to_vector<float>();
        x[to] = small(x[b] + (v[0] > v[1] ? v[0] : v[2]));
        break;
      }
      case Statement::kBreak: graph_break(); break;
      case Statement::kCall: {  // a function of its own, with registers of its own
        std::vector<Tensor> y(x.rbegin(), x.rend());
        run(s.body, y);
        x[to] = y[b];
        break;
      }
      default: {
        static const auto halve = disable([](const Tensor& t) { return (t / 2).floor(); });
        x[to] = halve(x[a]);
      }
    }
  }
}

std::vector<Tensor> random_inputs(Random& r) {
  std::vector<Tensor> out;
  for (int i = 0; i < kRegisters; ++i) {
    std::vector<float> v;
    for (int k = 0; k < 3; ++k) v.push_back(static_cast<float>(pick(r, 13) - 6));
    out.push_back(tensor(v));
  }

  return out;
}

std::vector<std::vector<float>> values(const std::vector<Tensor>& x) {
  std::vector<std::vector<float>> out;
  for (const Tensor& t : x) out.push_back(t.to_vector<float>());
  return out;
}

}  // namespace

TEST_CASE("random programs with breaks compute what they compute op by op") {
  Random r(4711);
  size_t breaks = 0, graphs = 0;
  for (int program = 0; program < 150; ++program) {
    const std::vector<Statement> code = random_program(r, 2);
    std::atomic<int> runs{0};
    auto f = compile(
        [&](const std::vector<Tensor>& in) {
          ++runs;
          std::vector<Tensor> x = in;
          run(code, x);
          return x;
        },
        {.options = {"guards.recompile_limit=100000", "guards.accumulated_recompile_limit=100000"}});
    std::vector<std::vector<Tensor>> inputs;
    std::vector<std::vector<std::vector<float>>> expected;
    for (int call = 0; call < 10; ++call) {
      inputs.push_back(random_inputs(r));
      std::vector<Tensor> x = inputs.back();
      run(code, x);
      expected.push_back(values(x));
    }
    INFO("program " << program);
    for (size_t i = 0; i < inputs.size(); ++i) REQUIRE(values(f(inputs[i])) == expected[i]);
    const int before = runs;
    for (size_t i = inputs.size(); i-- > 0;) REQUIRE(values(f(inputs[i])) == expected[i]);
    REQUIRE(runs == before);  // ways that have been taken need no host code
    const Explanation e = explain(f);
    breaks += e.break_count();
    graphs += e.graph_count();
  }
  CHECK(breaks > 150);
  CHECK(graphs > 300);
}

TEST_CASE("many threads take new and known ways through one function") {
  Random seed(99);
  const std::vector<Statement> code = random_program(seed, 2);
  auto f = compile(
      [&](const std::vector<Tensor>& in) {
        std::vector<Tensor> x = in;
        if (x[0].sum() > 0) x[1] = x[1] + 1;
        run(code, x);
        return x;
      },
      {.options = {"guards.recompile_limit=100000", "guards.accumulated_recompile_limit=100000"}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      Random r(t % 4);
      for (int i = 0; i < 40; ++i) {
        const std::vector<Tensor> in = random_inputs(r);
        std::vector<Tensor> x = in;
        if (x[0].sum() > 0) x[1] = x[1] + 1;
        run(code, x);
        if (values(f(in)) != values(x)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}
