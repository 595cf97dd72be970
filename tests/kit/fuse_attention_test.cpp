// SPDX-License-Identifier: Apache-2.0
// Which graphs the pass fuse makes attention of on the cpu backend, what it takes along, and what it says of the others.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "api/api.hpp"
#include "compile/services.hpp"
#include "context/context.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "kit_support.hpp"
#include "log/log.hpp"
#include "pass/pass_manager.hpp"
#include "pass/pipeline.hpp"
#include "random_run.hpp"

#ifdef KIT_TEST_CPU

using namespace tessera;
using namespace tessera::core;
using namespace tessera::test;

namespace {

const std::shared_ptr<const Context>& cpu_context() {
  static const std::shared_ptr<const Context> c =
      random_context("\"tessera.backend.reference\", \"tessera.backend.cpu\", \"tessera.pass.fuse\"", "\"cpu\", \"reference\"",
                     "[pipeline]\npasses = [\"fuse\"]\n", {TESSERA_PLUGIN_DIR});
  return c;
}

struct Fused {
  std::string text, said;
};
Fused fuse(const std::string& text, const std::string& pipeline = "fuse") {
  const auto& context = cpu_context();
  const auto g = core::parse_graph(context->ops(), text, "case.tsr");
  const CompileOptions options = api::compile_options(context, context->config(), nullptr);
  const ServiceScope scope(options);
  PassOptions o;
  o.verify = VerifyWhen::kEach;
  o.reproducer = Reproducer::kNone;
  Fused out;
  configure_logs("+fusion,perf_hints");
  const LogSink previous = set_log_sink([&](std::string_view lines) { out.said += lines; });
  run_passes(*g, bind_pipeline(*context, pipeline), o);
  set_log_sink(previous);
  configure_logs("-all");
  out.text = print_graph(*g);
  return out;
}

// Scores %s of 2 heads, 64 queries and 128 keys; `body` makes %x of them, `tail` %y of the weights %p.
std::string graph_of(const std::string& body, const std::string& tail = "  %y = matmul %p, %v\n  return %y\n",
                     const std::string& more = "", const std::string& axis = "-1", const std::string& queries = "64") {
  return "graph @g(%q: f32[2, " + queries + ", 16], %t: f32[2, 16, 128], %v: f32[2, 128, 16]" + more +
         ") {\n  %s = matmul %q, %t\n" + body + "  %p = softmax %x {axis = " + axis + "}\n" + tail + "}\n";
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; ++at) ++n;
  return n;
}
// The nodes outside of groups.
std::string outside(const std::string& text) {
  std::string out;
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (line.find("region(") != line.npos) ++depth;
    if (depth == 0) out += line + "\n";
    if (depth > 0 && line.find_first_not_of(' ') != line.npos && line[line.find_first_not_of(' ')] == '}') --depth;
    at = end == text.npos ? text.size() : end + 1;
  }
  return out;
}

constexpr const char* kScale = "  %z = constant {value = dense<f32[]: 0.25>}\n  %x = mul %s, %z\n";

}  // namespace

TEST_CASE("graphs that become attention") {
  struct Case {
    const char* name;
    std::string text;
    int nodes;
    const char* left;  // ops outside, that begin the line after "= "
  };
  const Case cases[] = {
      {"a scale", graph_of(kScale), 4, ""},
      {"nothing", graph_of("  %x = neg %s\n"), 4, ""},
      {"a captured bias", graph_of("  %x = add %s, %b\n", "  %y = matmul %p, %v\n  return %y\n", ", %b: f32[2, 64, 128]"), 4,
       ""},
      {"positions",
       graph_of(
           "  %iq = iota {shape = [64, 1], axis = 0, dtype = i64}\n  %ik = iota {shape = [1, 128], axis = 1, dtype = i64}\n"
           "  %m = le %ik, %iq\n  %n = constant {value = dense<f32[]: -inf>}\n  %x = select %m, %s, %n\n"),
       7, ""},
      // What is small is made once, outside.
      {"slopes", graph_of("  %e = exp %c\n  %x = mul %s, %e\n", "  %y = matmul %p, %v\n  return %y\n", ", %c: f32[2, 1, 1]"), 4,
       "exp"},
      // An expensive value of all heads together would be computed once per head.
      {"a bias of all heads",
       graph_of("  %e = exp %c\n  %x = add %s, %e\n", "  %y = matmul %p, %v\n  return %y\n", ", %c: f32[64, 128]"), 4, "exp"},
      {"a bias of each head",
       graph_of("  %e = exp %c\n  %x = add %s, %e\n", "  %y = matmul %p, %v\n  return %y\n", ", %c: f32[2, 64, 128]"), 5, ""},
      {"a guard",
       graph_of(kScale,
                "  %n = is_nan %p\n  %o = constant {value = dense<f32[]: 0.0>}\n  %w = select %n, %o, %p\n"
                "  %y = matmul %w, %v\n  return %y\n"),
       6, ""},
      {"dot_general",
       "graph @g(%q: f32[64, 2, 16], %k: f32[128, 2, 16], %v: f32[128, 2, 16]) {\n"
       "  %s = dot_general %q, %k {lhs_batch = [1], rhs_batch = [1], lhs_contract = [2], rhs_contract = [2]}\n"
       "  %x = tanh %s\n  %p = softmax %x {axis = -1}\n"
       "  %y = dot_general %p, %v {lhs_batch = [0], rhs_batch = [1], lhs_contract = [2], rhs_contract = [0]}\n  return %y\n}\n",
       4, ""},
      {"a mask of attention",
       "graph @g(%q: f32[2, 64, 16], %k: f32[2, 128, 16], %v: f32[2, 128, 16], %c: f32[2, 1, 1]) {\n"
       "  %iq = iota {shape = [64, 1], axis = 0, dtype = f32}\n  %ik = iota {shape = [1, 128], axis = 1, dtype = f32}\n"
       "  %d = sub %ik, %iq\n  %m = mul %d, %c\n  %y = attention %q, %k, %v, %m {scale = 1.0}\n  return %y\n}\n",
       5, ""},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const Fused f = fuse(c.text);
    INFO(f.text << f.said);
    CHECK(f.said.find("attention of " + std::to_string(c.nodes) + " nodes, without a tensor of scores") != f.said.npos);
    CHECK(count(f.text, " fused ") == 1);
    const std::string rest = outside(f.text);
    CHECK((*c.left ? rest.find(std::string("= ") + c.left + " ") != rest.npos
                   : count(rest, "\n  %") - count(rest, "= constant") == 1));
    CHECK(fuse(c.text, "fuse{attention=false}").said.find("attention of") == std::string::npos);
  }
}

TEST_CASE("two layers share a cheap mask, and each computes it; an expensive one is computed once") {
  for (const auto& [op, groups_hold_it] : {std::pair<const char*, bool>{"abs", true}, {"exp", false}}) {
    const std::string text =
        std::string("graph @g(%q: f32[64, 16], %t: f32[16, 128], %v: f32[128, 16], %c: f32[64, 128]) {\n  %e = ") + op +
        " %c\n  %s = matmul %q, %t\n  %x = add %s, %e\n  %p = softmax %x {axis = -1}\n  %h = matmul %p, %v\n"
        "  %s1 = matmul %h, %t\n  %x1 = add %s1, %e\n  %p1 = softmax %x1 {axis = -1}\n  %y = matmul %p1, %v\n"
        "  return %y\n}\n";
    const Fused f = fuse(text);
    INFO(f.text << f.said);
    CHECK(count(f.said, "without a tensor of scores") == 2);
    CHECK((outside(f.text).find(std::string("= ") + op) == std::string::npos) == groups_hold_it);
  }
}

TEST_CASE("what the program of the scores takes along may be read by the product before it, too") {
  const Fused f = fuse(
      "graph @g(%v: f32[2, 64, 64]) {\n  %one = constant {value = dense<f32[]: 0.5>}\n"
      "  %w = full %one {shape = [2, 64, 64]}\n  %s = matmul %w, %w\n  %x = add %s, %w\n  %p = softmax %x {axis = -1}\n"
      "  %y = matmul %p, %v\n  return %y\n}\n");
  CHECK(f.said.find("attention of") != std::string::npos);
  CHECK(count(f.text, "= full") == 2);  // once in the group, once for its product
  CHECK(count(outside(f.text), "= full") == 1);
  CHECK(count(outside(f.text), "softmax") == 0);
}

TEST_CASE("graphs that stay in parts, and why") {
  struct Case {
    std::string text;
    const char* why;
  };
  const Case cases[] = {
      {graph_of(kScale, "  %y = matmul %p, %v\n  return %y, %s\n"), "the scores %s = matmul are read elsewhere too"},
      {graph_of(kScale, "  %y = matmul %p, %v\n  return %y, %p\n"), "its weights are read elsewhere too"},
      {graph_of(kScale, "  %w = mul %p, %p\n  %y = matmul %w, %v\n  return %y\n"),
       "%w = mul stands between softmax and the product"},
      {graph_of("  %m = reduce_max %s {axes = [2], keepdims = true}\n  %x = sub %s, %m\n"),
       "the scores %s = matmul are read elsewhere too"},
      {graph_of(kScale, "  %y = matmul %p, %v\n  return %y\n", "", "1"), "softmax is not over the last dimension"},
      {graph_of(kScale, "  %y = matmul %p, %v\n  return %y\n", "", "-1", "4"),
       "cpu's attention has queries in its lanes, and these are few"},
      {graph_of("  %f = flip %s {axes = [2]}\n  %x = add %s, %f\n"),
       "it reads another point of the window's tensor than it computes"},
  };
  for (const Case& c : cases) {
    const Fused f = fuse(c.text);
    INFO(f.text << f.said);
    CHECK(f.said.find(c.why) != f.said.npos);
    CHECK(f.said.find("without a tensor of scores") == f.said.npos);
  }
}

#endif
