// SPDX-License-Identifier: Apache-2.0
// Training steps of small models as text, compiled under a config and run once, for the tests of partitioners.
#pragma once

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

namespace tessera::test::training {

using namespace tessera::core;

inline std::shared_ptr<const Context> context(const std::string& more, const std::string& order = "\"cpu\", \"eager\"") {
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
inline std::string named(const std::string& name, const std::string& more = "", const std::string& costs = "predicted") {
  return "[partitioner]\nname = \"" + name + "\"\ncosts = \"" + costs + "\"\n" + more;
}

struct Trained {
  std::vector<TensorRef> outputs;
  int64_t peak = 0;  // by the device's own count, of the run alone
  std::string plan;  // the partitioner's line
  std::string graph;
};

inline Trained step(const std::string& text, const std::shared_ptr<const Context>& c) {
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

inline void check_same_bits(const Trained& a, const Trained& b) {
  REQUIRE(a.outputs.size() == b.outputs.size());
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    INFO("output " << i);
    CHECK(test::first_difference(a.outputs[i]->desc, b.outputs[i]->desc, true).empty());
  }
}

inline std::string grads(const std::vector<std::string>& parameters) {
  std::string results, operands;
  for (const std::string& p : parameters) {
    results += (results.empty() ? "%d" : ", %d") + p;
    operands += ", %" + p;
  }
  return "  " + results + " = grad %loss" + operands + "\n  return %loss, " + results + "\n}\n";
}

inline std::string mlp(int layers, int rows, int width) {
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

inline std::string transformer(int blocks, int batch, int length, int width, int heads) {
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
inline std::string cnn(int blocks, int batch, int channels, int size) {
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
inline std::string skips(int depth, int rows, int width) {
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
inline std::string gated(int blocks, int rows, int width) {
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
inline std::string recurrent(int turns, int rows, int width) {
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

inline constexpr int64_t kRounding = 4096;  // of blocks

inline constexpr const char* kPartitioners[] = {"save_all", "recompute_all", "min_cut", "budget"};

inline std::string error_of(const std::string& text, const std::string& config, std::string* code) {
  try {
    (void)step(text, context(config));
  } catch (const Error& e) {
    *code = e.code();
    return e.message();
  }
  *code = "";
  return "";
}

}  // namespace tessera::test::training
