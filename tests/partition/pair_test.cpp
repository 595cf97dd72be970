// SPDX-License-Identifier: Apache-2.0
// Pairs of a forward and a backward half: the bits of one program, what is kept between them, and when it goes.
#include "compile/pair.hpp"
#include "compile/partition.hpp"
#include "steps.hpp"

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test::training;
using Catch::Contains;

namespace {

// The backward half of the last layer's output as a pair, and as one program that gets the cotangent as an argument.
std::string pair_of(const std::string& text, bool pair) {
  std::string out = text;
  const auto put = [&](const std::string& from, const std::string& to) {
    const size_t at = out.find(from);
    REQUIRE(at != std::string::npos);
    out.replace(at, from.size(), to);
  };
  const size_t loss = out.find("  %e = sub ");
  const size_t end = out.find(", %t\n", loss);
  const std::string last = out.substr(loss + 11, end - loss - 11);
  const size_t grad = out.find(" = grad %loss");
  const size_t results = out.rfind("\n", grad) + 1;
  out.erase(loss, results - loss);
  if (pair) out.insert(loss, "  %ct = tangent " + last + "\n");
  put(" = grad %loss", " = grad " + last + ", %" + (pair ? "ct" : "t"));
  put("\n  return %loss", " {outputs = 1, seeded = true}\n  return " + last);
  return out;
}

struct PairRun {
  std::vector<TensorRef> gradients;
  int64_t peak = 0;  // by the device's own count; the caller lets go of the results before it runs the backward half
};

PairRun run(const std::string& text, const std::string& config) {
  const auto c = context(config);
  auto graph = parse_graph(c->ops(), pair_of(text, true), "pair.tsr");
  const std::vector<TensorRef> inputs = test::random_inputs(*graph, {}, 5);
  const CompileOptions options = api::compile_options(c, c->config(), nullptr);
  const std::shared_ptr<const Executable> forward =
      compile_cached(std::move(graph), {*c, c->config(), c->pipeline(c->config()), options});
  std::vector<tsr_tensor_handle*> given, made(forward->num_outputs(), nullptr);
  for (const TensorRef& t : inputs) given.push_back(t.get());
  Device& cpu = device(kCpu);
  const int64_t held = cpu.in_use();
  cpu.peak(true);
  forward->run(given, made);
  PairRun out;
  {
    SavedValues saved(forward, given, made);
    for (tsr_tensor_handle* t : made) tensor_release(t);
    std::vector<tsr_tensor_handle*> gradients(saved.num_gradients(), nullptr);
    tsr_tensor_handle* const cotangent = inputs[1].get();
    saved.run({&cotangent, 1}, gradients);
    for (tsr_tensor_handle* t : gradients) out.gradients.emplace_back(t);
  }
  out.peak = cpu.peak(false) - held;
  return out;
}

}  // namespace

TEST_CASE("a pair gives the bits of one program, keeps what its partitioner says, and lets go of it once") {
  const std::string text = mlp(4, 64, 96);
  for (const char* name : kPartitioners) {
    INFO(name);
    const auto c = context(named(name));
    const Trained whole = step(pair_of(text, false), c);
    auto graph = parse_graph(c->ops(), pair_of(text, true), "pair.tsr");
    const std::vector<TensorRef> inputs = test::random_inputs(*graph, {}, 5);
    const CompileOptions options = api::compile_options(c, c->config(), nullptr);
    const std::shared_ptr<const Executable> forward =
        compile_cached(std::move(graph), {*c, c->config(), c->pipeline(c->config()), options});
    REQUIRE(forward->backward);
    CHECK(forward->backward->num_results == 1);
    CHECK(forward->backward->num_cotangents == 1);
    int64_t held = 0;
    for (int round = 0; round < 3; ++round) {
      std::vector<tsr_tensor_handle*> given, made(forward->num_outputs(), nullptr);
      for (const TensorRef& t : inputs) given.push_back(t.get());
      forward->run(given, made);
      SavedValues saved(forward, given, made);
      std::vector<TensorRef> outputs;
      for (tsr_tensor_handle* t : made) outputs.emplace_back(t);
      const TensorRef y = TensorRef::share(outputs[0].get());
      outputs.clear();
      std::vector<tsr_tensor_handle*> gradients(saved.num_gradients(), nullptr);
      tsr_tensor_handle* const cotangent = inputs[1].get();
      const auto code_of = [&](std::span<tsr_tensor_handle* const> cotangents) {
        try {
          saved.run(cotangents, gradients);
          return std::string();
        } catch (const Error& e) {
          return e.code();
        }
      };
      CHECK(code_of({}) == "TSR-A021");
      CHECK(code_of({&cotangent, 1}).empty());
      CHECK(code_of({&cotangent, 1}) == "TSR-A020");
      CHECK(test::first_difference(y->desc, whole.outputs[0]->desc, true).empty());
      REQUIRE(gradients.size() + 1 == whole.outputs.size());
      for (size_t i = 0; i < gradients.size(); ++i) {
        const TensorRef g(gradients[i]);
        CHECK(test::first_difference(g->desc, whole.outputs[i + 1]->desc, true).empty());
      }
      const int64_t now = device(kCpu).in_use();
      if (round == 2) CHECK(now == held);
      held = now;
    }
    if (std::string_view(name) == "recompute_all") CHECK(forward->backward->kept.empty());
    if (std::string_view(name) == "save_all") CHECK(forward->backward->kept.size() >= 4);
  }
}

TEST_CASE("eleven budgets of pairs of six models: kept by both halves together, with the same bits") {
  size_t met = 0;
  for (const std::string& text : {mlp(5, 64, 96), transformer(2, 2, 32, 64, 4), cnn(3, 2, 8, 24), skips(3, 64, 96),
                                  gated(3, 64, 64), recurrent(6, 64, 96)}) {
    const PairRun all = run(text, named("save_all"));
    for (int k = 0; k <= 10; ++k) {
      const auto bytes = static_cast<int64_t>((1 - 0.04 * k) * static_cast<double>(all.peak));
      INFO(text.substr(0, 12) << ": budget of " << bytes << " of " << all.peak);
      try {
        const PairRun s = run(text, named("budget", "budget_bytes = " + std::to_string(bytes) + "\n"));
        CHECK(s.peak <= bytes + kRounding);
        REQUIRE(s.gradients.size() == all.gradients.size());
        for (size_t i = 0; i < s.gradients.size(); ++i)
          CHECK(test::first_difference(s.gradients[i]->desc, all.gradients[i]->desc, true).empty());
        ++met;
      } catch (const Error& e) {
        REQUIRE(std::string(e.code()) == "TSR-A010");
        CHECK_THAT(e.message(), Contains("smallest peak"));
        CHECK(k > 0);
      }
    }
  }
  CHECK(met >= 18);
}

TEST_CASE("plans of a pair have the peaks of its halves") {
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), gated(4, 64, 64)}) {
    INFO(text.substr(0, 12));
    const auto peak_planned = [&](const std::string& config, bool pair) {
      const auto c = context(config);
      auto graph = parse_graph(c->ops(), pair_of(text, pair), "pair.tsr");
      const PassLists passes{{}, c->pipeline(c->config()), c->joint_pipeline(c->config()), {}};
      const CompileOptions options = api::compile_options(c, c->config(), nullptr);
      const auto plans = (pair ? partition_plans_of_pair : partition_plans)(std::move(graph), passes, options);
      REQUIRE(plans.size() == 1);
      return plans[0].peak_bytes;
    };
    const int64_t of_all = peak_planned(named("save_all"), true);
    const std::string bounded = named("budget", "budget_bytes = " + std::to_string(of_all * 9 / 10) + "\n");
    for (const std::string& config : {named("save_all"), bounded}) {
      const int64_t planned = peak_planned(config, true), found = run(text, config).peak;
      CHECK(found <= planned + kRounding);
      CHECK(static_cast<double>(planned) <= 1.02 * static_cast<double>(found) + kRounding);
    }
    CHECK(of_all < peak_planned(named("save_all"), false));  // one program holds gradients and what is computed at once
  }
}

TEST_CASE("what is kept goes while the backward half runs, gradients come, and the plan knows") {
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), gated(4, 64, 64)}) {
    INFO(text.substr(0, 12));
    const auto c = context(named("save_all"));
    auto graph = parse_graph(c->ops(), pair_of(text, true), "pair.tsr");
    const std::vector<TensorRef> inputs = test::random_inputs(*graph, {}, 5);
    const CompileOptions options = api::compile_options(c, c->config(), nullptr);
    const std::shared_ptr<const Executable> forward =
        compile_cached(std::move(graph), {*c, c->config(), c->pipeline(c->config()), options});
    const Executable& back = *forward->backward->executable;
    const SectionLayout& layout = *back.plan().primary;
    CHECK(back.plan().takes_turns);
    std::vector<tsr_tensor_handle*> given, made(forward->num_outputs(), nullptr);
    for (const TensorRef& t : inputs) given.push_back(t.get());
    forward->run(given, made);
    SavedValues saved(forward, given, made);
    for (tsr_tensor_handle* t : made) tensor_release(t);
    int64_t kept = 0;
    for (uint32_t i = 0; i < back.plan().inputs.size(); ++i)
      if (back.plan().inputs[i].given_up) {
        int64_t elements = 1;
        for (const tsr_dim d : back.plan().inputs[i].sizes) elements *= d;
        kept += storage_bytes(back.plan().inputs[i].dtype, elements);
      }
    Device& cpu = device(kCpu);
    const int64_t before = cpu.in_use() - kept;
    cpu.peak(true);
    std::vector<tsr_tensor_handle*> gradients(saved.num_gradients(), nullptr);
    tsr_tensor_handle* const cotangent = inputs[1].get();
    saved.run({&cotangent, 1}, gradients);
    const int64_t found = cpu.peak(false) - before;
    for (tsr_tensor_handle* t : gradients) tensor_release(t);
    const int64_t arena = layout.arena_bytes.empty() ? 0 : layout.arena_bytes[0];
    CHECK(layout.peak_bytes < kept + layout.output_bytes + arena);
    // Arenas of the host come from a shelf, where one may be larger; blocks are counted in whole cache lines.
    CHECK(found >= layout.peak_bytes - arena);
    CHECK(found <= layout.peak_bytes + kRounding);
  }
}

TEST_CASE("whether generating code pays is not a question of the budget") {
  // Under pays_after, a graph of so little work runs without generated code, unless it is a part of a training step.
  const std::string text = pair_of(mlp(1, 4, 8), true);
  const auto backends_of = [&](const std::string& name, const std::string& pays_after) {
    const auto c = context(named(name) + "[cpu]\npays_after = " + pays_after + "\n");
    const CompileOptions options = api::compile_options(c, c->config(), nullptr);
    const auto forward =
        compile_cached(parse_graph(c->ops(), text, "pair.tsr"), {*c, c->config(), c->pipeline(c->config()), options});
    std::string out;
    const Executable* const halves[] = {forward.get(), forward->backward->executable.get()};
    for (const Executable* half : halves)
      for (const auto& s : half->plan().steps)
        if (s->kind == TSR_STEP_KERNEL && s->backend)
          out += std::string(half->graph().node(s->node).op) + " on " + s->backend->name + "\n";
    return out;
  };
  for (const char* name : {"save_all", "recompute_all"}) {
    INFO(name);
    const std::string always = backends_of(name, "0");
    CHECK_THAT(always, Contains("fused on cpu"));
    CHECK(backends_of(name, "1000") == always);
  }
}

TEST_CASE("a backward half is given the sizes that nothing of what it reads has") {
  struct Case {
    const char *what, *text;
    std::vector<int64_t> x, cotangent, gradient;
  };
  const Case cases[] = {
      {"two sizes of an input",
       "graph @g(%x: f32[s0, s1]) symbols { s0: 1..; s1: 1.. } {\n %y = reshape %x {shape = [s0 * s1]}\n %t = tangent %y\n %h "
       "= "
       "add %t, %t\n %g = reshape %h {shape = [s0, s1]}\n return %y, %g\n}\n",
       {3, 4},
       {12},
       {3, 4}},
      {"one that is solved for, and the one that it takes",
       "graph @g(%x: f32[s0 * s1, s1]) symbols { s0: 1..; s1: 1.. } {\n %y = reshape %x {shape = [s0 * s1 * s1]}\n %t = "
       "tangent "
       "%y\n %h = add %t, %t\n %g = reshape %h {shape = [s0, s1, s1]}\n return %y, %g\n}\n",
       {6, 2},
       {12},
       {3, 2, 2}},
      {"one that depends on data",
       "graph @g(%x: f32[s0]) symbols { s0: 1..; u0: 0.. unbacked } {\n %n = nonzero %x : i64[u0, 1]\n %f = cast %n {dtype = "
       "f32}\n %b = broadcast_to %f {shape = [u0, s0]}\n %y = reshape %b {shape = [u0 * s0]}\n %t = tangent %y\n %h = add %t, "
       "%t\n %g = reshape %h {shape = [u0, s0]}\n return %y, %g\n}\n",
       {6},
       {24},
       {4, 6}},
  };
  for (const Case& k : cases) {
    INFO(k.what);
    const auto numbers = [](const std::vector<int64_t>& sizes, float factor) {
      TensorRef t(tensor_create(TSR_F32, sizes, kCpu));
      const int64_t n = num_elements(sizes);
      for (int64_t i = 0; i < n; ++i) static_cast<float*>(t->desc.data)[i] = factor * static_cast<float>(i % 3);
      return t;
    };
    const auto c = context(named("min_cut"));
    auto graph = parse_graph(c->ops(), k.text, "pair.tsr");
    const CompileOptions options = api::compile_options(c, c->config(), nullptr);
    const std::shared_ptr<const Executable> forward =
        compile_cached(std::move(graph), {*c, c->config(), c->pipeline(c->config()), options});
    const TensorRef x = numbers(k.x, 1), cotangent = numbers(k.cotangent, 1);
    tsr_tensor_handle *given = x.get(), *seed = cotangent.get(), *gradient = nullptr;
    std::vector<tsr_tensor_handle*> made(forward->num_outputs(), nullptr);
    forward->run({&given, 1}, made);
    SavedValues saved(forward, {&given, 1}, made);
    for (tsr_tensor_handle* t : made) tensor_release(t);
    saved.run({&seed, 1}, {&gradient, 1});
    const TensorRef found(gradient);
    CHECK(test::first_difference(found->desc, numbers(k.gradient, 2)->desc, true).empty());
  }
}
