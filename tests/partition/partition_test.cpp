// SPDX-License-Identifier: Apache-2.0
// Partitioners on whole training steps: what is computed again has the same bits, budgets are kept by the device's own count of
// blocks, and what cannot be kept or is not known is refused.
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/api.hpp"
#include "graph_cache/cached.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "log/log.hpp"
#include "memory/device.hpp"
#include "memory/tensor.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "plugin/plugin_host.hpp"
#include "random_run.hpp"
#include "run/executable.hpp"
#include "run/saved_values.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

using namespace tessera;
using namespace tessera::core;
using Catch::Contains;

namespace {

std::shared_ptr<const Context> context(const std::string& more, const std::string& order = "\"cpu\", \"eager\"") {
  const std::string config =
      "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.backend.cpu\", \"tessera.backend.eager\", "
      "\"tessera.pass.fuse\", "
      "\"tessera.pass.canonicalize\", \"tessera.pass.cse\", \"tessera.pass.dce\", \"tessera.partitioner.remat\"]\n"
      "[backends]\norder = [" +
      order +
      "]\n"
      "[pipeline]\npasses = [\"canonicalize\", \"cse\", \"dce\", \"fuse\"]\njoint = [\"canonicalize\", \"cse\", \"dce\"]\n" +
      more;
  const char* dir = TESSERA_PLUGIN_DIR;
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = config.c_str();
  options.plugin_dirs = &dir;
  options.num_plugin_dirs = 1;
  return Context::create(&options, api::host());
}

// Predicted costs are the same on every machine; what is measured has a test of its own.
std::string named(const std::string& name, const std::string& more = "", const std::string& costs = "predicted") {
  return "[partitioner]\nname = \"" + name + "\"\ncosts = \"" + costs + "\"\n" + more;
}

struct Trained {
  std::vector<TensorRef> outputs;
  int64_t peak = 0;  // by the device's own count, of the run alone
  std::string plan;  // the partitioner's line
  std::string graph;
};

Trained step(const std::string& text, const std::shared_ptr<const Context>& c) {
  Trained out;
  auto graph = parse_graph(c->ops(), text, "step.tsr");
  const std::vector<TensorRef> inputs = test::random_inputs(*graph, {}, 5);
  LogSink before = set_log_sink([&](std::string_view lines) { out.plan += lines; });
  configure_logs("partition");
  const CompileOptions options = api::compile_options(c, c->config(), nullptr);
  std::unique_ptr<Executable> e;
  try {
    e = compile_cached(std::move(graph), {*c, c->config(), c->pipeline(c->config()), options});
  } catch (...) {
    configure_logs("-all");
    set_log_sink(std::move(before));
    throw;
  }
  configure_logs("-all");
  set_log_sink(std::move(before));
  out.graph = print_graph(e->graph());
  Device& cpu = device(kCpu);
  const int64_t held = cpu.in_use();
  cpu.peak(true);
  test::Outcome o = test::run(*e, inputs);
  REQUIRE(o.error.empty());
  out.peak = cpu.peak(false) - held;
  out.outputs = std::move(o.outputs);
  return out;
}

void check_same_bits(const Trained& a, const Trained& b) {
  REQUIRE(a.outputs.size() == b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    INFO("output " << i);
    CHECK(test::first_difference(a.outputs[i]->desc, b.outputs[i]->desc, true).empty());
  }
}

std::string grads(const std::vector<std::string>& parameters) {
  std::string results, operands;
  for (const std::string& p : parameters) {
    results += (results.empty() ? "%d" : ", %d") + p;
    operands += ", %" + p;
  }
  return "  " + results + " = grad %loss" + operands + "\n  return %loss, " + results + "\n}\n";
}

std::string mlp(int layers, int rows, int width) {
  const std::string x = "f32[" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  const std::string w = "f32[" + std::to_string(width) + ", " + std::to_string(width) + "]";
  std::string head = "graph @mlp(%x: " + x + ", %t: " + x + ", %s0: u64[2]",
              body = "{\n  %c = constant {value = dense<f32[]: 0.05>}\n  %y0 = mul %x, %c\n";
  std::vector<std::string> parameters;
  for (int i = 0; i < layers; ++i) {
    const std::string k = std::to_string(i), next = std::to_string(i + 1);
    head += ", %w" + k + ": " + w + " param";
    parameters.push_back("w" + k);
    body += "  %v" + k + " = mul %w" + k + ", %c\n  %h" + k + " = linear %y" + k + ", %v" + k + "\n  %g" + k + " = gelu %h" +
            k + "\n  %y" + next + ", %s" + next + " = dropout %g" + k + ", %s" + k + " {p = 0.25}\n";
  }
  const std::string last = "%y" + std::to_string(layers);
  body += "  %e = sub " + last + ", %t\n  %q = mul %e, %e\n  %loss = reduce_sum %q {axes = [0, 1]}\n";
  return head + ")\n" + body + grads(parameters);
}

std::string transformer(int blocks, int batch, int length, int width, int heads) {
  const auto n = [](int i) { return std::to_string(i); };
  const std::string x = "f32[" + n(batch) + ", " + n(length) + ", " + n(width) + "]";
  const std::string split = " {shape = [" + n(batch) + ", " + n(length) + ", " + n(heads) + ", " + n(width / heads) + "]}\n";
  const std::string join = " {shape = [" + n(batch) + ", " + n(length) + ", " + n(width) + "]}\n";
  std::string head = "graph @gpt(%x: " + x + ", %t: " + x + ", %s0: u64[2]";
  std::string body = "{\n  %c = constant {value = dense<f32[]: 0.03>}\n  %y0 = mul %x, %c\n";
  std::vector<std::string> parameters;
  const auto weight = [&](const std::string& name, int out, int in) {
    head += ", %" + name + ": f32[" + n(out) + ", " + n(in) + "] param";
    parameters.push_back(name);
    body += "  %" + name + "s = mul %" + name + ", %c\n";
    return "%" + name + "s";
  };
  const auto norm = [&](const std::string& name) {
    head += ", %" + name + "w: f32[" + n(width) + "] param, %" + name + "b: f32[" + n(width) + "] param";
    parameters.push_back(name + "w");
    parameters.push_back(name + "b");
    return ", %" + name + "w, %" + name + "b\n";
  };
  for (int i = 0; i < blocks; ++i) {
    const std::string k = n(i) + "_";
    body += "  %n" + k + " = layer_norm %y" + n(i) + norm("na" + k);
    for (const std::string p : {"q", "k", "v"}) {
      const std::string w = weight("w" + p + k, width, width);
      body += "  %" + p + "l" + k + " = linear %n" + k + ", " + w + "\n  %" + p + "r" + k + " = reshape %" + p + "l" + k +
              split + "  %" + p + k + " = transpose %" + p + "r" + k + " {perm = [0, 2, 1, 3]}\n";
    }
    body += "  %a" + k + " = attention %q" + k + ", %k" + k + ", %v" + k + " {causal = true}\n  %at" + k + " = transpose %a" +
            k + " {perm = [0, 2, 1, 3]}\n  %ar" + k + " = reshape %at" + k + join;
    const std::string wo = weight("wo" + k, width, width);
    body += "  %o" + k + " = linear %ar" + k + ", " + wo + "\n  %od" + k + ", %sa" + k + " = dropout %o" + k + ", %s" + n(i) +
            " {p = 0.1}\n  %m" + k + " = add %y" + n(i) + ", %od" + k + "\n  %mn" + k + " = layer_norm %m" + k + norm("nb" + k);
    const std::string w1 = weight("wa" + k, 4 * width, width);
    body += "  %u" + k + " = linear %mn" + k + ", " + w1 + "\n  %ug" + k + " = gelu %u" + k + "\n";
    const std::string w2 = weight("wb" + k, width, 4 * width);
    body += "  %d" + k + " = linear %ug" + k + ", " + w2 + "\n  %dd" + k + ", %s" + n(i + 1) + " = dropout %d" + k + ", %sa" +
            k + " {p = 0.1}\n  %y" + n(i + 1) + " = add %m" + k + ", %dd" + k + "\n";
  }
  body += "  %e = sub %y" + n(blocks) + ", %t\n  %sq = mul %e, %e\n  %loss = reduce_sum %sq {axes = [0, 1, 2]}\n";
  return head + ")\n" + body + grads(parameters);
}

// Convolutions of two widths with sums around them.
std::string cnn(int blocks, int batch, int channels, int size) {
  const auto n = [](int i) { return std::to_string(i); };
  const std::string x = "f32[" + n(batch) + ", " + n(channels) + ", " + n(size) + ", " + n(size) + "]";
  const std::string conv = ", _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n";
  std::string head = "graph @cnn(%x: " + x + ", %t: " + x,
              body = "{\n  %c = constant {value = dense<f32[]: 0.05>}\n  %y0 = mul %x, %c\n";
  std::vector<std::string> parameters;
  const auto weight = [&](const std::string& name, int out, int in) {
    head += ", %" + name + ": f32[" + n(out) + ", " + n(in) + ", 3, 3] param";
    parameters.push_back(name);
    body += "  %" + name + "s = mul %" + name + ", %c\n";
    return "%" + name + "s";
  };
  for (int i = 0; i < blocks; ++i) {
    const std::string k = n(i), a = weight("a" + k, 2 * channels, channels), b = weight("b" + k, channels, 2 * channels);
    body += "  %h" + k + " = conv %y" + k + ", " + a + conv + "  %s" + k + " = silu %h" + k + "\n  %d" + k + " = conv %s" + k +
            ", " + b + conv + "  %y" + n(i + 1) + " = add %y" + k + ", %d" + k + "\n";
  }
  body += "  %e = sub %y" + n(blocks) + ", %t\n  %q = mul %e, %e\n  %loss = reduce_sum %q {axes = [0, 1, 2, 3]}\n";
  return head + ")\n" + body + grads(parameters);
}

// Layers whose results are read again by their counterparts at the other end: no separators in between.
std::string skips(int depth, int rows, int width) {
  const auto n = [](int i) { return std::to_string(i); };
  const std::string x = "f32[" + n(rows) + ", " + n(width) + "]", w = "f32[" + n(width) + ", " + n(width) + "] param";
  std::string head = "graph @skips(%x: " + x + ", %t: " + x;
  std::string body = "{\n  %c = constant {value = dense<f32[]: 0.05>}\n  %y0 = mul %x, %c\n";
  std::vector<std::string> parameters;
  for (int i = 0; i < 2 * depth; ++i) {
    const std::string k = n(i);
    head += ", %w" + k + ": " + w;
    parameters.push_back("w" + k);
    body += "  %v" + k + " = mul %w" + k + ", %c\n  %h" + k + " = linear %y" + k + ", %v" + k + "\n";
    if (i < depth)
      body += "  %y" + n(i + 1) + " = silu %h" + k + "\n";
    else
      body += "  %g" + k + " = gelu %h" + k + "\n  %y" + n(i + 1) + " = add %g" + k + ", %y" + n(2 * depth - i - 1) + "\n";
  }
  body += "  %e = sub %y" + n(2 * depth) + ", %t\n  %q = mul %e, %e\n  %loss = reduce_sum %q {axes = [0, 1]}\n";
  return head + ")\n" + body + grads(parameters);
}

// Blocks of a norm and a gated product of two branches, around a residual.
std::string gated(int blocks, int rows, int width) {
  const auto n = [](int i) { return std::to_string(i); };
  const std::string x = "f32[" + n(rows) + ", " + n(width) + "]";
  std::string head = "graph @gated(%x: " + x + ", %t: " + x;
  std::string body = "{\n  %c = constant {value = dense<f32[]: 0.05>}\n  %y0 = mul %x, %c\n";
  std::vector<std::string> parameters;
  const auto weight = [&](const std::string& name, int out, int in) {
    head += ", %" + name + ": f32[" + n(out) + ", " + n(in) + "] param";
    parameters.push_back(name);
    body += "  %" + name + "s = mul %" + name + ", %c\n";
    return "%" + name + "s";
  };
  for (int i = 0; i < blocks; ++i) {
    const std::string k = n(i);
    head += ", %nw" + k + ": f32[" + n(width) + "] param, %nb" + k + ": f32[" + n(width) + "] param";
    parameters.push_back("nw" + k);
    parameters.push_back("nb" + k);
    body += "  %n" + k + " = layer_norm %y" + k + ", %nw" + k + ", %nb" + k + "\n";
    const std::string a = weight("a" + k, 2 * width, width), b = weight("b" + k, 2 * width, width),
                      o = weight("o" + k, width, 2 * width);
    body += "  %p" + k + " = linear %n" + k + ", " + a + "\n  %r" + k + " = linear %n" + k + ", " + b + "\n  %s" + k +
            " = silu %p" + k + "\n  %m" + k + " = mul %s" + k + ", %r" + k + "\n  %d" + k + " = linear %m" + k + ", " + o +
            "\n  %y" + n(i + 1) + " = add %y" + k + ", %d" + k + "\n";
  }
  body += "  %e = sub %y" + n(blocks) + ", %t\n  %q = mul %e, %e\n  %loss = reduce_sum %q {axes = [0, 1]}\n";
  return head + ")\n" + body + grads(parameters);
}

// Turns of one cell, whose weights all of them read.
std::string recurrent(int turns, int rows, int width) {
  const auto n = [](int i) { return std::to_string(i); };
  const std::string x = "f32[" + n(rows) + ", " + n(width) + "]", w = "f32[" + n(width) + ", " + n(width) + "] param";
  std::string body =
      "{\n  %c = constant {value = dense<f32[]: 0.05>}\n  %y0 = mul %x, %c\n  %us = mul %u, %c\n  %vs = mul %v, %c\n";
  for (int i = 0; i < turns; ++i) {
    const std::string k = n(i);
    body += "  %p" + k + " = linear %x, %us\n  %r" + k + " = linear %y" + k + ", %vs\n  %s" + k + " = add %p" + k + ", %r" + k +
            "\n  %y" + n(i + 1) + " = tanh %s" + k + "\n";
  }
  body += "  %e = sub %y" + n(turns) + ", %t\n  %q = mul %e, %e\n  %loss = reduce_sum %q {axes = [0, 1]}\n";
  return "graph @recurrent(%x: " + x + ", %t: " + x + ", %u: " + w + ", %v: " + w + ")\n" + body + grads({"u", "v"});
}

constexpr int64_t kRounding = 4096;  // of blocks

const char* const kPartitioners[] = {"save_all", "recompute_all", "min_cut", "budget"};

std::string error_of(const std::string& text, const std::string& config, std::string* code) {
  try {
    (void)step(text, context(config));
  } catch (const Error& e) {
    *code = e.code();
    return e.message();
  }
  *code = "";
  return "";
}

}  // namespace

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
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), cnn(3, 2, 8, 24), skips(3, 64, 96),
                                  gated(3, 64, 64), recurrent(6, 64, 96)}) {
    const Trained all = step(text, context(named("save_all")));
    double last_cost = 0;
    bool possible = true;
    for (int k = 0; k <= 10; ++k) {
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
  CHECK(met >= 24);
}

TEST_CASE("no plan of a policy beats the bound that a budget of its peak prints") {
  // Parts of a step, in percent, as the last line of the log has them.
  const auto part = [](const std::string& log, const char* before) {
    const size_t at = log.rfind(before);
    REQUIRE(at != std::string::npos);
    return std::stod(log.substr(at + std::strlen(before)));
  };
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
        const double cost = part(policy.plan, " ms ("), chosen = part(budget.plan, " ms (");
        CHECK(cost + 0.011 >= chosen - part(budget.plan, "; at most "));
        ++compared;
        dearer += cost > chosen;
      } catch (const Error& e) {
        REQUIRE(std::string(e.code()) == "TSR-A010");
      }
    }
  CHECK(compared >= 9);
  CHECK(dearer >= 3);
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
  struct Run {
    std::vector<TensorRef> gradients;
    int64_t peak = 0;  // by the device's own count; the caller lets go of the results before it runs the backward half
  };
  const auto run = [](const std::string& text, const std::string& config) {
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
    Run out;
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
  };
  size_t met = 0;
  for (const std::string& text : {mlp(5, 64, 96), transformer(2, 2, 32, 64, 4), cnn(3, 2, 8, 24), skips(3, 64, 96),
                                  gated(3, 64, 64), recurrent(6, 64, 96)}) {
    const Run all = run(text, named("save_all"));
    for (int k = 0; k <= 10; ++k) {
      const auto bytes = static_cast<int64_t>((1 - 0.04 * k) * static_cast<double>(all.peak));
      INFO(text.substr(0, 12) << ": budget of " << bytes << " of " << all.peak);
      try {
        const Run s = run(text, named("budget", "budget_bytes = " + std::to_string(bytes) + "\n"));
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

TEST_CASE("a share is one of what saving all keeps, is never refused, and costs no more for more") {
  const auto part = [](const std::string& log, const char* before) {
    const size_t at = log.rfind(before);
    REQUIRE(at != std::string::npos);
    return std::stod(log.substr(at + std::strlen(before)));
  };
  for (const std::string& text : {mlp(6, 64, 96), transformer(3, 2, 48, 64, 4), gated(4, 64, 64)}) {
    const Trained all = step(text, context(named("save_all")));
    double last_cost = 1e9;
    for (const char* share : {"0.0", "0.1", "0.3", "0.5", "0.7", "0.9", "0.99", "1.0"}) {
      INFO(text.substr(0, 12) << " with " << share);
      const Trained s = step(text, context(named("budget", std::string("budget = ") + share + "\n")));
      INFO(all.plan << s.plan);
      check_same_bits(all, s);
      const double cost = part(s.plan, "again in ");
      CHECK(cost <= last_cost);
      last_cost = cost;
    }
    const Trained half = step(text, context(named("budget", "budget = 0.6\n")));
    INFO(all.plan << half.plan);
    const auto kept = [&](const std::string& log) {  // "keeps 12 values, 190.5 KiB,": KiB, and a tenth of the unit
      const bool mega = log.find(" MiB, and", log.rfind(" values, ")) != std::string::npos;
      return std::pair(part(log, " values, ") * (mega ? 1024 : 1), mega ? 102.4 : 0.1);
    };
    CHECK(kept(half.plan).first <= 0.6 * (kept(all.plan).first + kept(all.plan).second));
  }
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
