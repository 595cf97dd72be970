// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan as models have them: sizes that only the run can tell, numbers of turns that nothing bounds, random numbers
// in loops; and random loops against an interpreter of a few lines.
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>

#include "typed_values.hpp"

using namespace tessera::onnx_test;

namespace {

e::Executable compiled(const Folder& folder, const std::string& bytes) { return compile(folder, bytes); }

// The same with generated code and all passes, where this build has them.
const e::Context* generating() {
  static const std::unique_ptr<e::Context> c = []() -> std::unique_ptr<e::Context> {
    const char* build = std::getenv("TESSERA_BUILD_DIR");
    if (!build || !fs::exists(std::string(build) + "/lib/tessera/plugins/tessera.backend.cpu.so")) return nullptr;
    e::ContextOptions o;
    o.config_path = "default";
    o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
    return std::make_unique<e::Context>(o);
  }();
  return c.get();
}
std::vector<e::Tensor> run(const e::Executable& x, const std::vector<e::Tensor>& inputs) { return x.run(inputs); }

Msg int_constant(const char* name, int64_t v) { return tensor(name, kInt64, {}, raw<int64_t>({v})); }
Msg axis_zero() { return attribute("axis", 0); }

// i, c, a, ... : while a < `limit`: a -> a * 2, b -> concat(b, [i]), stacks a. M is the trip count, 2^63 - 1 unless a test says
// otherwise.
std::string growing_loop(int64_t trips) {
  const Msg body = graph(
      {{node("Mul", {"a", "two"}, {"a1"}), node("Less", {"a1", "limit"}, {"c1"}), node("Unsqueeze", {"i", "zero"}, {"i1"}),
        node("Concat", {"b", "i1"}, {"b1"}, {axis_zero()})},
       {int_constant("two", 2), tensor("zero", kInt64, {1}, raw<int64_t>({0}))},
       {value_info("i", kInt64, {}), value_info("c", kBool, {}), value_info("a", kInt64, {}), value_info("b", kInt64, {"p"})},
       {value_info("c1", kBool, {}), value_info("a1", kInt64, {}), value_info("b1", kInt64, {"q"}),
        value_info("a1", kInt64, {})}});
  return model(graph({{node("Loop", {"m", "start", "a0", "b0"}, {"a", "b", "as"}, {attribute("body", body)})},
                      {int_constant("m", trips), tensor("start", kBool, {}, std::string(1, 1))},
                      {value_info("a0", kInt64, {}), value_info("b0", kInt64, {"n"}), value_info("limit", kInt64, {})},
                      {value_info("a", kInt64, {}), value_info("b", kInt64, {"m"}), value_info("as", kInt64, {"t"})}}))
      .bytes();
}

}  // namespace

TEST_CASE(
    "a loop runs until its condition says so, whatever its trip count, and what it stacks and carries grows with its turns") {
  const Folder folder;
  for (const int64_t trips : {INT64_MAX, int64_t{1} << 40, int64_t{1000}}) {
    const e::Executable x = compiled(folder, growing_loop(trips));
    const auto out = run(x, {scalar(3), ints({7, 8}), scalar(100)});
    CHECK(values_of<int64_t>(out[0]) == std::vector<int64_t>{192});
    CHECK(values_of<int64_t>(out[1]) == std::vector<int64_t>{7, 8, 0, 1, 2, 3, 4, 5});
    CHECK(values_of<int64_t>(out[2]) == std::vector<int64_t>{6, 12, 24, 48, 96, 192});
    const auto once = run(x, {scalar(300), ints({}), scalar(100)});  // the first condition is the loop's, not the body's
    CHECK(values_of<int64_t>(once[1]) == std::vector<int64_t>{0});
    CHECK(values_of<int64_t>(once[2]) == std::vector<int64_t>{600});
  }
  const e::Executable three = compiled(folder, growing_loop(3)), none = compiled(folder, growing_loop(0));
  CHECK(values_of<int64_t>(run(three, {scalar(1), ints({}), scalar(100)})[2]) == std::vector<int64_t>{2, 4, 8});
  const auto out = run(none, {scalar(1), ints({5}), scalar(100)});
  CHECK(values_of<int64_t>(out[0]) == std::vector<int64_t>{1});
  CHECK(values_of<int64_t>(out[1]) == std::vector<int64_t>{5});
  CHECK(sizes_of(out[2]) == std::vector<int64_t>{0});
}

TEST_CASE("memory of a loop grows with the turns that it makes") {
  const Folder folder;
  // Stacks rows of 1024 floats until the condition ends it after the number of turns that the call says.
  const Msg body =
      graph({{node("Add", {"i", "one"}, {"next"}), node("Less", {"next", "n"}, {"c1"}), node("Identity", {"x"}, {"row"})},
             {int_constant("one", 1)},
             {value_info("i", kInt64, {}), value_info("c", kBool, {})},
             {value_info("c1", kBool, {}), value_info("row", kFloat, {1024})}});
  const e::Executable x = compiled(folder, model(graph({{node("Loop", {"m", ""}, {"rows"}, {attribute("body", body)})},
                                                        {int_constant("m", INT64_MAX)},
                                                        {value_info("x", kFloat, {1024}), value_info("n", kInt64, {})},
                                                        {value_info("rows", kFloat, {"t", 1024})}}))
                                               .bytes());
  const e::Tensor row = floats(std::vector<float>(1024, 2.5f));
  const auto peak = [&](int64_t turns) {
    const int64_t before = e::api().memory_in_use(0);
    e::api().memory_peak(0, 1);
    const auto out = run(x, {row, scalar(turns)});
    CHECK(sizes_of(out[0]) == std::vector<int64_t>{turns, 1024});
    return e::api().memory_peak(0, 0) - before;
  };
  CHECK(peak(1) < 128 << 10);
  CHECK(peak(100) < 4 * (100 << 12));
}

TEST_CASE("branches of different sizes give sizes that the run tells") {
  const Folder folder;
  // x[n] or x twice; then the sum of what it was, and its length.
  const Msg yes = graph({{node("Concat", {"x", "x"}, {"t"}, {axis_zero()})}, {}, {}, {value_info("t", kFloat, {"p"})}}),
            no = graph({{node("Identity", {"x"}, {"f"})}, {}, {}, {value_info("f", kFloat, {"n"})}});
  const e::Executable x = compiled(
      folder,
      model(graph({{node("ReduceMax", {"x"}, {"most"}, {attribute("keepdims", 0)}), node("Less", {"most", "five"}, {"c"}),
                    node("If", {"c"}, {"y"}, {attribute("then_branch", yes), attribute("else_branch", no)}),
                    node("Mul", {"y", "five"}, {"z"}), node("Shape", {"y"}, {"length"})},
                   {tensor("five", kFloat, {}, raw<float>({5}))},
                   {value_info("x", kFloat, {"n"})},
                   {value_info("z", kFloat, {"m"}), value_info("length", kInt64, {1})}}))
          .bytes());
  auto out = run(x, {floats({1, 2, 3})});
  CHECK(values_of<float>(out[0]) == std::vector<float>{5, 10, 15, 5, 10, 15});
  CHECK(values_of<int64_t>(out[1]) == std::vector<int64_t>{6});
  out = run(x, {floats({9, 2})});
  CHECK(values_of<float>(out[0]) == std::vector<float>{45, 10});
  CHECK(values_of<int64_t>(out[1]) == std::vector<int64_t>{2});

  // Sizes that are numbers: one of two, the other inside a branch that is nested in the first.
  const Msg three = graph({{node("Identity", {"w3"}, {"a"})}, {}, {}, {value_info("a", kFloat, {3})}}),
            one = graph({{node("Neg", {"w1"}, {"b"})}, {}, {}, {value_info("b", kFloat, {1})}}),
            inner = graph({{node("If", {"d"}, {"e"}, {attribute("then_branch", three), attribute("else_branch", one)})},
                           {},
                           {},
                           {value_info("e", kFloat, {"u"})}}),
            two = graph({{node("Identity", {"w2"}, {"g"})}, {}, {}, {value_info("g", kFloat, {2})}});
  const e::Executable nested = compiled(
      folder, model(graph({{node("If", {"c"}, {"y"}, {attribute("then_branch", inner), attribute("else_branch", two)})},
                           {},
                           {value_info("c", kBool, {}), value_info("d", kBool, {}), value_info("w1", kFloat, {1}),
                            value_info("w2", kFloat, {2}), value_info("w3", kFloat, {3})},
                           {value_info("y", kFloat, {"u"})}}))
                  .bytes());
  const auto flag = [](bool v) { return tensor_of<uint8_t>(TSR_BOOL, {}, {static_cast<uint8_t>(v)}); };
  const std::vector<e::Tensor> w = {floats({1}), floats({2, 3}), floats({4, 5, 6})};
  CHECK(values_of<float>(run(nested, {flag(true), flag(true), w[0], w[1], w[2]})[0]) == std::vector<float>{4, 5, 6});
  CHECK(values_of<float>(run(nested, {flag(true), flag(false), w[0], w[1], w[2]})[0]) == std::vector<float>{-1});
  CHECK(values_of<float>(run(nested, {flag(false), flag(true), w[0], w[1], w[2]})[0]) == std::vector<float>{2, 3});
}

TEST_CASE("a size that only data knows, from outside, may be used in a branch") {
  const Folder folder;
  const Msg yes = graph({{node("Expand", {"one", "count"}, {"t"})}, {}, {}, {value_info("t", kFloat, {"p"})}}),
            no = graph({{node("Identity", {"one"}, {"f"})}, {}, {}, {value_info("f", kFloat, {1})}});
  const e::Executable x = compiled(
      folder, model(graph({{node("NonZero", {"x"}, {"where"}), node("Shape", {"where"}, {"shape"}),
                            node("Slice", {"shape", "one1", "two1"}, {"count"}),
                            node("If", {"c"}, {"y"}, {attribute("then_branch", yes), attribute("else_branch", no)})},
                           {tensor("one1", kInt64, {1}, raw<int64_t>({1})), tensor("two1", kInt64, {1}, raw<int64_t>({2})),
                            tensor("one", kFloat, {1}, raw<float>({1}))},
                           {value_info("x", kFloat, {"n"}), value_info("c", kBool, {})},
                           {value_info("y", kFloat, {"m"})}}))
                  .bytes());
  for (const bool c : {true, false})
    CHECK(values_of<float>(run(x, {floats({0, 3, 0, 4, 5}), tensor_of<uint8_t>(TSR_BOOL, {}, {static_cast<uint8_t>(c)})})[0]) ==
          std::vector<float>(c ? 3 : 1, 1.f));
}

TEST_CASE("random numbers in a loop differ from turn to turn, and repeat from run to run") {
  const Folder folder;
  const auto body = [](Msg draw, bool counted) {  // i, c -> c, r
    std::vector<Msg> nodes = {std::move(draw)};
    nodes.push_back(counted ? node("Identity", {"c"}, {"c1"}) : node("Less", {"i", "last"}, {"c1"}));
    return graph({nodes,
                  {int_constant("last", 5)},
                  {value_info("i", kInt64, {}), value_info("c", kBool, {})},
                  {value_info("c1", kBool, {}), value_info("r", kFloat, {4})}});
  };
  const std::vector<int64_t> four = {4};
  Msg seeded = node("RandomNormal", {}, {"r"}, {attribute("shape", four)});
  seeded.m(5, Msg().s(1, "seed").f(2, 3.5f).i(20, 1));
  const Msg draws[] = {
      node("RandomUniform", {}, {"r"}, {attribute("shape", four)}),
      seeded,
      node("RandomNormalLike", {"x"}, {"r"}),
      node("Bernoulli", {"halves"}, {"r"}),
  };
  for (const Msg& draw : draws)
    for (const bool counted : {true, false}) {
      const e::Executable x =
          compiled(folder, model(graph({{node("Loop", {"m", ""}, {"rows"}, {attribute("body", body(draw, counted))})},
                                        {int_constant("m", counted ? 6 : 1000)},
                                        {value_info("x", kFloat, {4}), value_info("halves", kFloat, {4})},
                                        {value_info("rows", kFloat, {"t", 4})}}))
                               .bytes());
      const std::vector<e::Tensor> in = {floats({0, 0, 0, 0}), floats({.5f, .5f, .5f, .5f})};
      const auto first = run(x, in), again = run(x, in);
      REQUIRE(sizes_of(first[0]) == std::vector<int64_t>{6, 4});
      const std::vector<float> rows = values_of<float>(first[0]);
      CHECK(values_of<float>(again[0]) == rows);
      int equal = 0;
      for (int i = 0; i < 6; ++i)
        for (int k = 0; k < i; ++k) equal += std::equal(&rows[4 * i], &rows[4 * i] + 4, &rows[4 * k]);
      CHECK(equal <= (&draw == &draws[3] ? 6 : 0));  // of 15 pairs of four coin tosses one in sixteen is equal
    }
}

TEST_CASE("random numbers differ among the turns of nested loops, scans, and calls of one function") {
  const Folder folder;
  const std::vector<int64_t> two = {2};
  // Loop of 3 { Loop of 2 { r } -> [2, 2] } -> [3, 2, 2]
  const Msg inner = graph({{node("Identity", {"c"}, {"c1"}), node("RandomUniform", {}, {"r"}, {attribute("shape", two)})},
                           {},
                           {value_info("i", kInt64, {}), value_info("c", kBool, {})},
                           {value_info("c1", kBool, {}), value_info("r", kFloat, {2})}});
  const Msg outer = graph({{node("Identity", {"c"}, {"d"}), node("Loop", {"two", ""}, {"s"}, {attribute("body", inner)})},
                           {},
                           {value_info("i", kInt64, {}), value_info("c", kBool, {})},
                           {value_info("d", kBool, {}), value_info("s", kFloat, {2, 2})}});
  const auto different = [](const e::Tensor& t, size_t count) {
    std::vector<float> v = values_of<float>(t);
    REQUIRE(v.size() == count);
    std::sort(v.begin(), v.end());
    return std::adjacent_find(v.begin(), v.end()) == v.end();
  };
  const e::Executable nested = compiled(
      folder, model(graph({{node("Loop", {"three", ""}, {"y"}, {attribute("body", outer)}), node("Add", {"y", "x"}, {"z"})},
                           {int_constant("two", 2), int_constant("three", 3)},
                           {value_info("x", kFloat, {})},
                           {value_info("y", kFloat, {3, 2, 2})}}))
                  .bytes());
  CHECK(different(run(nested, {tensor_of<float>(TSR_F32, {}, {0})})[0], 12));

  const Msg step = graph({{node("RandomUniform", {}, {"r"}, {attribute("shape", two)}), node("Add", {"r", "v"}, {"s"})},
                          {},
                          {value_info("v", kFloat, {})},
                          {value_info("s", kFloat, {2})}});
  const e::Executable scan =
      compiled(folder, model(graph({{node("Scan", {"x"}, {"y"}, {attribute("body", step), attribute("num_scan_inputs", 1)})},
                                    {},
                                    {value_info("x", kFloat, {"n"})},
                                    {value_info("y", kFloat, {"n", 2})}}))
                           .bytes());
  CHECK(different(run(scan, {floats({0, 0, 0, 0})})[0], 8));

  const Msg function = Msg()
                           .s(1, "Draw")
                           .s(4, "a")
                           .s(5, "b")
                           .m(7, node("RandomUniformLike", {"a"}, {"b"}))
                           .m(9, Msg().s(1, "").i(2, 17))
                           .s(10, "f");
  const e::Executable calls =
      compiled(folder, Msg(model(graph({{node("Draw", {"x"}, {"p"}, {}, "f"), node("Draw", {"x"}, {"q"}, {}, "f"),
                                         node("Concat", {"p", "q"}, {"y"}, {axis_zero()})},
                                        {},
                                        {value_info("x", kFloat, {3})},
                                        {value_info("y", kFloat, {6})}}))
                               .m(8, Msg().s(1, "f").i(2, 1)))
                           .m(25, function)
                           .bytes());
  CHECK(different(run(calls, {floats({0, 0, 0})})[0], 6));
}

// ------------------------------------------------------------------------------------------------------- random loops

namespace {

// A loop over a vector that grows or shrinks, a sum, and a stacked value; what one turn does is drawn. The interpreter below is
// the judge.
struct RandomLoop {
  int64_t trips;  // negative: none is given
  bool starts;    // the first condition
  int64_t limit;  // goes on while sum < limit (of loops with a condition)
  bool conditional;
  enum Change { kKeep, kAppend, kDrop, kDouble, kBranch } change;
  bool stacks_length;  // else the sum
  bool nested;         // a loop of two turns adds to the sum
  int64_t step;        // added to the sum per turn

  struct Result {
    int64_t sum;
    std::vector<int64_t> v, stacked;
  };
  Result interpret(int64_t sum, std::vector<int64_t> v) const {
    Result r{sum, std::move(v), {}};
    bool go = starts;
    for (int64_t i = 0; go && (trips < 0 || i < trips); ++i) {
      const bool even = r.sum % 2 == 0;
      const Change now = change != kBranch ? change : even ? kAppend : kKeep;
      if (now == kAppend) r.v.push_back(i);
      if (now == kDrop && !r.v.empty()) r.v.erase(r.v.begin());
      if (now == kDouble) r.v.insert(r.v.end(), r.v.begin(), r.v.end());
      r.sum += step + (nested ? 2 * i : 0);
      r.stacked.push_back(stacks_length ? static_cast<int64_t>(r.v.size()) : r.sum);
      go = !conditional || r.sum < limit;
    }
    return r;
  }

  std::string bytes() const {
    const auto one = [](const char* name, int64_t v) { return tensor(name, kInt64, {1}, raw<int64_t>({v})); };
    const auto branch = [](std::vector<Msg> nodes, const char* out) {
      return graph({std::move(nodes), {}, {}, {value_info(out, kInt64, {"b"})}});
    };
    std::vector<Msg> nodes = {node("Unsqueeze", {"i", "zero1"}, {"i1"})};
    switch (change) {
      case kKeep: nodes.push_back(node("Identity", {"v"}, {"w"})); break;
      case kAppend: nodes.push_back(node("Concat", {"v", "i1"}, {"w"}, {axis_zero()})); break;
      case kDrop: nodes.push_back(node("Slice", {"v", "one1", "most1"}, {"w"})); break;
      case kDouble: nodes.push_back(node("Concat", {"v", "v"}, {"w"}, {axis_zero()})); break;
      case kBranch:
        nodes.push_back(node("Mod", {"s", "two"}, {"odd"}));
        nodes.push_back(node("Equal", {"odd", "zero"}, {"even"}));
        nodes.push_back(
            node("If", {"even"}, {"w"},
                 {attribute("then_branch", branch({node("Concat", {"v", "i1"}, {"longer"}, {axis_zero()})}, "longer")),
                  attribute("else_branch", branch({node("Identity", {"v"}, {"same"})}, "same"))}));
        break;
    }
    nodes.push_back(node("Add", {"s", "step"}, {"s1"}));
    if (nested) {
      const Msg inner = graph({{node("Identity", {"d"}, {"d1"}), node("Add", {"t", "i"}, {"t1"})},
                               {},
                               {value_info("k", kInt64, {}), value_info("d", kBool, {}), value_info("t", kInt64, {})},
                               {value_info("d1", kBool, {}), value_info("t1", kInt64, {})}});
      nodes.push_back(node("Loop", {"two", "", "s1"}, {"s2"}, {attribute("body", inner)}));
    } else {
      nodes.push_back(node("Identity", {"s1"}, {"s2"}));
    }
    if (stacks_length) {
      nodes.push_back(node("Size", {"w"}, {"stack"}));
    } else {
      nodes.push_back(node("Identity", {"s2"}, {"stack"}));
    }
    nodes.push_back(conditional ? node("Less", {"s2", "limit"}, {"c1"}) : node("Identity", {"c"}, {"c1"}));
    const Msg body = graph(
        {nodes,
         {int_constant("zero", 0), int_constant("two", 2), one("zero1", 0), one("one1", 1), one("most1", INT64_MAX),
          int_constant("step", step), int_constant("limit", limit)},
         {value_info("i", kInt64, {}), value_info("c", kBool, {}), value_info("s", kInt64, {}), value_info("v", kInt64, {"p"})},
         {value_info("c1", kBool, {}), value_info("s2", kInt64, {}), value_info("w", kInt64, {"q"}),
          value_info("stack", kInt64, {})}});
    return model(
               graph({{node("Loop", {trips < 0 ? "" : "m", "go", "s0", "v0"}, {"s", "v", "ts"}, {attribute("body", body)})},
                      {int_constant("m", std::max<int64_t>(trips, 0)), tensor("go", kBool, {}, std::string(1, starts ? 1 : 0))},
                      {value_info("s0", kInt64, {}), value_info("v0", kInt64, {"n"})},
                      {value_info("s", kInt64, {}), value_info("v", kInt64, {"m"}), value_info("ts", kInt64, {"t"})}}))
        .bytes();
  }
};

}  // namespace

TEST_CASE("random loops do what an interpreter of them does") {
  const Folder folder;
  std::mt19937_64 random(20261125);
  const auto draw = [&](int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(random() % static_cast<uint64_t>(hi - lo + 1));
  };
  for (int round = 0; round < 150; ++round) {
    RandomLoop loop{};
    loop.conditional = draw(0, 2) > 0;
    loop.trips = loop.conditional ? (draw(0, 2) == 0 ? -1 : draw(0, 1) ? INT64_MAX : draw(0, 5)) : draw(0, 5);
    loop.starts = draw(0, 5) > 0;
    loop.limit = draw(-5, 30);
    loop.change = static_cast<RandomLoop::Change>(draw(0, 4));
    loop.stacks_length = draw(0, 1) == 1;
    loop.nested = draw(0, 2) == 0;
    loop.step = draw(3, 9);
    const e::Executable x = compiled(folder, loop.bytes());
    std::optional<e::Executable> generated;
    if (round < 6 && generating()) generated = generating()->compile_model(generating()->load((folder / "m.onnx").string()));
    for (int call = 0; call < 3; ++call) {
      std::vector<int64_t> v(static_cast<size_t>(draw(0, 3)));
      for (int64_t& e : v) e = draw(-9, 9);
      const int64_t sum = draw(-9, 9);
      INFO("round " << round << ", call " << call << ", change " << loop.change << ", trips " << loop.trips);
      const RandomLoop::Result want = loop.interpret(sum, v);
      for (const e::Executable* each : {&x, static_cast<const e::Executable*>(generated ? &*generated : nullptr)}) {
        if (!each) continue;
        const auto got = run(*each, {scalar(sum), ints(v)});
        REQUIRE(values_of<int64_t>(got[0]) == std::vector<int64_t>{want.sum});
        REQUIRE(values_of<int64_t>(got[1]) == want.v);
        REQUIRE(values_of<int64_t>(got[2]) == want.stacked);
      }
    }
  }
}
