// SPDX-License-Identifier: Apache-2.0
// Partitioners on whole training steps: what is computed again has the same bits, marks and lists bind, and what is not known
// is refused.
#include "compile/partition.hpp"
#include "compile/driver.hpp"
#include "steps.hpp"

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test::training;
using Catch::Contains;

TEST_CASE("what is computed again has the same bits") {
  const std::string programs[] = {mlp(4, 64, 96), transformer(2, 2, 32, 64, 4)};
  for (const std::string& text : programs)
    for (const char* order : {"\"cpu\", \"eager\"", "\"eager\""}) {
      const Trained plain = step(text, context("", order));
      for (const char* name : kPartitioners) {
        INFO(text.substr(0, 12) << " on " << order << " under " << name);
        const Trained other = step(text, context(named(name), order));
        CHECK_THAT(other.plan, Contains(std::string(name) + " keeps "));
        check_same_bits(plain, other);
        if (std::string_view(name) == "recompute_all") CHECK_THAT(other.graph, Contains("recomputed"));
      }
    }
}

TEST_CASE("what the program marks is computed again, or kept, by every partitioner and without one") {
  const std::string text = mlp(3, 32, 64);
  std::string marked = text;
  const auto mark = [&](const std::string& node, const std::string& type, const char* marks) {
    const size_t at = marked.find(node);
    REQUIRE(at != std::string::npos);
    marked.insert(marked.find('\n', at), " : " + type + " mark(" + marks + ")");
  };
  mark("%g1 = gelu", "f32[32, 64]", "checkpoint");
  mark("%h2 = linear", "f32[32, 64]", "checkpoint");
  mark("%h0 = linear", "f32[32, 64]", "save");
  const Trained plain = step(text, context(""));
  for (const char* name : {"", "save_all", "recompute_all", "min_cut", "budget"}) {
    INFO("under '" << name << "'");
    const Trained s = step(marked, context(named(name)));
    check_same_bits(plain, s);
    CHECK_THAT(s.graph, Contains("mark(backward, recomputed, checkpoint)"));
    CHECK_THAT(s.graph, !Contains("recomputed, save"));
    CHECK_THAT(s.plan, !Contains("computes 0 nodes"));
  }
}

TEST_CASE("lists of ops bind every partitioner") {
  const std::string text = mlp(3, 32, 64);
  const Trained all = step(text, context(named("save_all")));
  const Trained gelu = step(text, context(named("policy", "[remat]\nrecompute = [\"gelu\", \"%h1\"]\n")));
  check_same_bits(all, gelu);
  CHECK(gelu.graph != all.graph);
  const Trained kept = step(text, context(named("recompute_all", "[remat]\nsave = [\"linear\"]\n")));
  check_same_bits(all, kept);
}

TEST_CASE("costs are measured once for each distinct kernel") {
  const std::string text = mlp(4, 64, 96);
  const Trained all = step(text, context(named("save_all")));
  const std::string config = named("budget", "budget_bytes = " + std::to_string(all.peak * 4 / 5) + "\n", "measured");
  const Trained first = step(text, context(config));
  check_same_bits(all, first);
  CHECK(first.peak <= all.peak * 4 / 5 + kRounding);
  CHECK_THAT(first.plan, Contains("a step takes about "));
  // Times to the digit: nothing is measured a second time, and equal layers of a deeper program cost what they cost here.
  CHECK(step(text, context(config)).plan == first.plan);
}

TEST_CASE("the plan of a compile is the one that is listed, priced the same") {
  // Heads are transposed: a copy to one who only knows the graph, and nothing once attention has said what strides it takes.
  const std::string text = transformer(2, 2, 64, 64, 4);
  const Trained all = step(text, context(named("save_all")));
  const auto c = context(named("budget", "budget_bytes = " + std::to_string(all.peak * 9 / 10) + "\n", "measured"));
  const Trained compiled = step(text, c);
  const CompileOptions options = api::compile_options(c, c->config(), nullptr);
  const PassLists passes{{}, c->pipeline(c->config()), c->joint_pipeline(c->config()), pass_options_of(c->config())};
  const std::vector<PartitionPlan> listed = partition_plans(parse_graph(c->ops(), text, "step.tsr"), passes, options);
  REQUIRE(listed.size() == 1);
  CHECK_THAT(compiled.plan, Contains(listed[0].line()));
}

TEST_CASE("bad settings of partitioners are refused") {
  const std::string text = mlp(2, 8, 8);
  const auto code_of = [&](const std::string& config) {
    std::string code;
    const std::string message = error_of(text, config, &code);
    return code;
  };
  CHECK(code_of(named("policy", "[remat]\nsave = [\"gelou\"]\n")) == "TSR-A012");
  CHECK(code_of(named("policy", "[remat]\nsave = [\"%nothing\"]\n")) == "TSR-A012");
  CHECK(code_of(named("policy", "[remat]\nsave = [\"gelu\"]\nrecompute = [\"gelu\"]\n")) == "TSR-A012");
  for (const char* name : {"save_all", "recompute_all", "min_cut", "policy"}) {
    INFO(name);
    CHECK(code_of(named(name, "budget = 0.5\n")) == "TSR-A013");
    CHECK(code_of(named(name, "budget_bytes = 1000000\n")) == "TSR-A013");
  }
  CHECK(code_of(named("knapsack")) == "TSR-C008");
  CHECK(code_of(named("budget", "", "guessed")) == "TSR-C004");
  CHECK(code_of(named("budget", "bytes = 5\n")) == "TSR-C002");
  CHECK(code_of(named("budget", "budget_bytes = 0\n")) == "TSR-A010");
  CHECK(code_of(named("budget", "budget_bytes = \"3 gigs\"\n")) == "TSR-C003");
  CHECK(code_of(named("budget", "budget_bytes = -2\n")) == "TSR-C004");
  CHECK(code_of(named("budget", "budget = -0.5\n")) == "TSR-C004");
}
