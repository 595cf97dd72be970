// SPDX-License-Identifier: Apache-2.0
// Budgets of whole training steps: kept by the device's own count of blocks, planned as they turn out, and refused where
// nothing fits.
#include "compile/driver.hpp"
#include "compile/partition.hpp"
#include "compile/trials.hpp"
#include "share.hpp"
#include "steps.hpp"

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test::training;
using Catch::Contains;

namespace {

// The number behind the last `before` of a log.
double number_after(const std::string& log, const char* before) {
  const size_t at = log.rfind(before);
  REQUIRE(at != std::string::npos);
  return std::stod(log.substr(at + std::strlen(before)));
}

}  // namespace

TEST_CASE("a smaller budget is kept, by the device's own count of blocks") {
  const std::string text = transformer(4, 2, 32, 64, 4);
  const Trained all = step(text, context(named("save_all")));
  int64_t last = all.peak + (1 << 16);
  double last_cost = 0;
  for (const double part : {1.0, 0.85, 0.7}) {
    const auto bytes = static_cast<int64_t>(part * static_cast<double>(all.peak));
    INFO("budget of " << bytes << " of " << all.peak);
    const Trained s = step(text, context(named("budget", "budget_bytes = " + std::to_string(bytes) + "\n")));
    INFO(s.plan);
    check_same_bits(all, s);
    CHECK(s.peak <= bytes + kRounding);
    CHECK(s.peak <= last);
    last = s.peak;
    const size_t at = s.plan.find("again in ");
    REQUIRE(at != std::string::npos);
    const double cost = std::stod(s.plan.substr(at + 9));
    CHECK(cost >= last_cost);
    last_cost = cost;
  }
  CHECK(last_cost > 0);
}

TEST_CASE("eleven budgets of six models: kept, planned within two percent, never dearer for more memory, and the same bits") {
  // What the last line of the log says: "peak 9.6 MiB", and a tenth of its unit.
  struct Planned {
    double bytes, unit;
  };
  const auto planned_peak = [](const std::string& log) {
    const size_t at = log.rfind("peak ") + 5;
    const char unit = log[log.find(' ', at) + 1];
    const double bytes = unit == 'M' ? 1 << 20 : unit == 'K' ? 1 << 10 : 1;
    return Planned{std::stod(log.substr(at)) * bytes, bytes / 10};
  };
  size_t met = 0;
  const bool whole = test::share_of(2) == 2;
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), cnn(3, 2, 8, 24), skips(3, 64, 96),
                                  gated(3, 64, 64), recurrent(6, 64, 96)}) {
    const Trained all = step(text, context(named("save_all")));
    double last_cost = 0;
    bool possible = true;
    for (int k = 0; k <= 10; k += whole ? 1 : 5) {
      const auto bytes = static_cast<int64_t>((1 - 0.05 * k) * static_cast<double>(all.peak));
      INFO(text.substr(0, 12) << ": budget of " << bytes << " of " << all.peak);
      const std::string config = named("budget", "budget_bytes = " + std::to_string(bytes) + "\n");
      if (!possible) {
        std::string code;
        (void)error_of(text, config, &code);
        CHECK(code == "TSR-A010");
        continue;
      }
      try {
        const Trained s = step(text, context(config));
        INFO(s.plan);
        check_same_bits(all, s);
        CHECK(s.peak <= bytes + kRounding);
        const Planned planned = planned_peak(s.plan);
        const auto found = static_cast<double>(s.peak);
        CHECK(std::abs(planned.bytes - found) <= 0.02 * found + planned.unit / 2 + kRounding);
        const double cost = std::stod(s.plan.substr(s.plan.rfind("again in ") + 9));
        CHECK(cost >= last_cost);
        last_cost = cost;
        ++met;
      } catch (const Error& e) {
        REQUIRE(std::string(e.code()) == "TSR-A010");
        possible = false;
      }
    }
  }
  CHECK(met >= (whole ? 24 : 8));
}

TEST_CASE("no plan of a policy beats the bound that a budget of its peak prints") {
  // Parts of a step, in percent, as the last line of the log has them.
  size_t compared = 0, dearer = 0;
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), gated(3, 64, 64)})
    for (const char* ops : {"\"gelu\"", "\"linear\"", "\"gelu\", \"linear\", \"dropout\"", "\"layer_norm\", \"silu\"",
                            "\"mul\", \"add\", \"layer_norm\"", "\"linear\", \"add\", \"dropout\", \"silu\", \"layer_norm\""}) {
      const Trained policy = step(text, context(named("policy", "[remat]\nrecompute = [" + std::string(ops) + "]\n")));
      const std::string bytes = std::to_string(policy.peak + kRounding);
      INFO(text.substr(0, 12) << " computes " << ops << " again, at a peak of " << bytes);
      try {
        const Trained budget = step(text, context(named("budget", "budget_bytes = " + bytes + "\n")));
        INFO(policy.plan << budget.plan);
        const double cost = number_after(policy.plan, " ms ("), chosen = number_after(budget.plan, "; before fusion ");
        CHECK(cost + 0.011 >= chosen - number_after(budget.plan, " of a step, at most "));
        ++compared;
        dearer += cost > chosen;
      } catch (const Error& e) {
        REQUIRE(std::string(e.code()) == "TSR-A010");
      }
    }
  CHECK(compared >= 9);
  CHECK(dearer >= 3);
}

TEST_CASE("plans that are lowered side by side are those that are lowered one after the other") {
  // Where a log prints what backends say, one is lowered at a time.
  const auto plans_of = [](const std::string& text, const char* logs, const std::string& more) {
    const auto c = context(named("budget", more));
    const PassLists passes{{}, c->pipeline(c->config()), c->joint_pipeline(c->config()), {}};
    CompileOptions options = api::compile_options(c, c->config(), nullptr);
    options.threads = 3;
    configure_logs(logs);
    CHECK(trials_at_once(options, Stage::kPlan) == (*logs == '-' ? 3 : 1));
    std::vector<PartitionPlan> plans = partition_plans(parse_graph(c->ops(), text, "step.tsr"), passes, options);
    configure_logs("-all");
    std::string lines;
    for (const PartitionPlan& p : plans) {
      lines += p.line();
      for (const std::string& name : p.recomputed) lines += " " + name;
      lines += "\n";
    }
    return lines;
  };
  // Listed, the last with a budget; of a large graph every ninth plan is looked at.
  for (const std::string& text : {transformer(3, 2, 48, 64, 4), cnn(3, 2, 8, 24), skips(3, 64, 96)}) {
    INFO(text.substr(0, 12));
    CHECK(plans_of(text, "autotuning", "") == plans_of(text, "-all", ""));
  }
  const std::string large = transformer(16, 1, 16, 32, 2);
  for (const char* budget : {"budget = 0.6\n", "budget = 0.3\n", "budget_bytes = 600000\n", "budget_bytes = 1\n"}) {
    INFO(budget);
    CHECK(plans_of(large, "autotuning", budget) == plans_of(large, "-all", budget));
  }
}

TEST_CASE("of the plans of a small graph that fit a budget, the one with the fastest step is taken") {
  const auto plans_of = [](const std::string& text, const std::string& config) {
    const auto c = context(config);
    const PassLists passes{{}, c->pipeline(c->config()), c->joint_pipeline(c->config()), {}};
    return partition_plans(parse_graph(c->ops(), text, "step.tsr"), passes, api::compile_options(c, c->config(), nullptr));
  };
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), cnn(3, 2, 8, 24), gated(3, 64, 64)}) {
    INFO(text.substr(0, 12));
    const std::vector<PartitionPlan> front = plans_of(text, named("budget"));
    REQUIRE(front.size() >= 4);
    CHECK(front[0].recomputed.empty());
    for (size_t i = 1; i < front.size(); ++i) {
      CHECK(front[i].peak_bytes < front[i - 1].peak_bytes);
      CHECK(front[i].recompute_seconds >= front[i - 1].recompute_seconds);
      CHECK(front[i].recompute_seconds == std::max(0.0, front[i].predicted_seconds - front[0].predicted_seconds));
      if (i > 1) CHECK(front[i].predicted_seconds >= front[i - 1].predicted_seconds);
    }
    // Each budget asked for is a front of its own, so four or five of the plans stand for all.
    for (size_t i = 1; i < front.size(); i += 1 + front.size() / 4) {
      const std::string bytes = "budget_bytes = " + std::to_string(front[i].peak_bytes) + "\n";
      CHECK(plans_of(text, named("budget", bytes)).at(0).recomputed == front[i].recomputed);
    }
  }
}

TEST_CASE("a plan holds up to sizes that keep to its budget, and twice its hint has a plan that does") {
  const auto with_rows = [](std::string text, const std::string& rows, int hint) {
    for (size_t at = 0; (at = text.find("f32[64, ", at)) != std::string::npos;) text.replace(at, 7, "f32[" + rows + ",");
    if (rows == "s0") text.insert(text.find("\n{\n"), " symbols { s0: 2..4096 hint " + std::to_string(hint) + " }");
    return text;
  };
  const auto compiled = [](const std::string& text, const std::string& config) {
    const auto c = context(config);
    const CompileOptions options = api::compile_options(c, c->config(), nullptr);
    return compile_cached(parse_graph(c->ops(), text, "step.tsr"), {*c, c->config(), c->pipeline(c->config()), options});
  };
  const auto run = [](const Executable& e, int64_t rows, std::vector<TensorRef>* outputs) {
    const std::vector<TensorRef> inputs = test::random_inputs(e.graph(), {rows}, 5);
    Device& cpu = device(kCpu);
    const int64_t held = cpu.in_use();
    cpu.peak(true);
    test::Outcome o = test::run(e, inputs);
    REQUIRE(o.error.empty());
    if (outputs) *outputs = std::move(o.outputs);
    return cpu.peak(false) - held;
  };
  for (const std::string& text : {mlp(6, 64, 96), gated(4, 64, 80), skips(4, 64, 96)}) {
    const auto all = compiled(with_rows(text, "s0", 64), named("save_all"));
    std::vector<TensorRef> expected, outputs;
    const int64_t budget = run(*all, 128, &expected) * 4 / 5;
    const std::string config = named("budget", "budget_bytes = " + std::to_string(budget) + "\n");
    INFO(text.substr(0, 12) << ": budget of " << budget);
    const auto small = compiled(with_rows(text, "s0", 64), config);
    int64_t limit = -1;
    for (const Assumption& a : small->graph().sizes().assumptions())
      if (a.relation == TSR_LE && !TSR_DIM_IS_EXPR(a.b)) limit = a.b;
    CHECK(limit >= 64);
    CHECK(limit < 128);
    CHECK(run(*small, limit, nullptr) <= budget + kRounding);
    CHECK(small->plan().facts.relations.size() == 1);
    const auto large = compiled(with_rows(text, "s0", 128), config);
    CHECK(run(*large, 128, &outputs) <= budget + kRounding);
    REQUIRE(outputs.size() == expected.size());
    for (size_t i = 0; i < outputs.size(); ++i)
      CHECK(test::first_difference(outputs[i]->desc, expected[i]->desc, true).empty());
  }
}

TEST_CASE("a budget that is met anyway changes nothing") {
  const std::string text = mlp(4, 64, 96);
  const Trained all = step(text, context(named("save_all")));
  const Trained roomy = step(text, context(named("budget", "budget_bytes = \"1 GiB\"\n")));
  CHECK(roomy.graph == all.graph);
  CHECK_THAT(roomy.plan, Contains("computes 0 nodes again"));
}

TEST_CASE("a budget that cannot be met names the smallest that can") {
  const std::string text = mlp(4, 64, 96);
  std::string code;
  const std::string message = error_of(text, named("budget", "budget_bytes = 1000\n"), &code);
  CHECK(code == "TSR-A010");
  const size_t at = message.find("finds is ");
  REQUIRE(at != std::string::npos);
  const int64_t smallest = std::stoll(message.substr(at + 9));
  const Trained s = step(text, context(named("budget", "budget_bytes = " + std::to_string(smallest) + "\n")));
  CHECK(s.peak <= smallest + kRounding);
  (void)error_of(text, named("budget", "budget_bytes = " + std::to_string(smallest - 1) + "\n"), &code);
  CHECK(code == "TSR-A010");
}

TEST_CASE("a share is one of what saving all keeps, is never refused, and costs no more for more") {
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), gated(4, 64, 64)}) {
    const Trained all = step(text, context(named("save_all")));
    double last_cost = 1e9;
    for (const char* share : {"0.0", "0.1", "0.3", "0.5", "0.7", "0.9", "0.99", "1.0"}) {
      INFO(text.substr(0, 12) << " with " << share);
      const Trained s = step(text, context(named("budget", std::string("budget = ") + share + "\n")));
      INFO(all.plan << s.plan);
      check_same_bits(all, s);
      const double cost = number_after(s.plan, "again in ");
      CHECK(cost <= last_cost);
      last_cost = cost;
    }
    const Trained half = step(text, context(named("budget", "budget = 0.6\n")));
    INFO(all.plan << half.plan);
    const auto kept = [&](const std::string& log) {  // "keeps 12 values, 190.5 KiB,": KiB, and a tenth of the unit
      const bool mega = log.find(" MiB, and", log.rfind(" values, ")) != std::string::npos;
      return std::pair(number_after(log, " values, ") * (mega ? 1024 : 1), mega ? 102.4 : 0.1);
    };
    CHECK(kept(half.plan).first <= 0.6 * (kept(all.plan).first + kept(all.plan).second));
  }
}

TEST_CASE("a share of what is kept binds that alone, and computes no more again than one of the peak") {
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), gated(4, 64, 64)}) {
    const Trained all = step(text, context(named("save_all")));
    double last = 1e18;
    for (const char* share : {"1.0", "0.7", "0.4", "0.0"}) {
      INFO(text.substr(0, 12) << " with " << share);
      const std::string budget = named("budget", std::string("budget = ") + share + "\n");
      const Trained peak = step(text, context(budget)), kept = step(text, context(budget + "[remat]\nshare_of = \"kept\"\n"));
      INFO(all.plan << peak.plan << kept.plan);
      check_same_bits(all, kept);
      CHECK_THAT(kept.plan, !Contains("; peak "));  // no plan was lowered
      const auto bytes = [&](const std::string& log) {
        return number_after(log, " values, ") * (log.find(" MiB, and", log.rfind(" values, ")) != std::string::npos ? 1024 : 1);
      };
      if (share != std::string("0.0")) {
        CHECK(number_after(kept.plan, "again in ") <= number_after(peak.plan, "again in "));
        CHECK(bytes(kept.plan) <= std::stod(share) * bytes(all.plan) * 1.01 + 0.1);
      } else {  // nothing keeps to it: as little as there can be, which the smallest peak need not be
        CHECK(bytes(kept.plan) <= bytes(peak.plan) * 1.01 + 0.1);
      }
      CHECK(bytes(kept.plan) <= last);
      last = bytes(kept.plan);
    }
  }
}
