// SPDX-License-Identifier: Apache-2.0
// Golden files of passes. A file is
//
//   // pipeline: canonicalize
//   graph @add_int_zero(...) ... { ... }
//   // ----
//   graph @add_int_zero(...) ... { ... }      what the pipeline makes of it, or `// error: ...`
//   // ====
//   the next case
//
// Each case is also run before and after on the reference backend: the bits agree, but for decompositions. A graph named
// keep_.. must not change. TESSERA_BLESS=1 rewrites the second halves.
#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "golden.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "pattern.hpp"
#include "support.hpp"
#include "support/error.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

struct Case {
  std::string input;
};
struct File {
  std::string head, pipeline;
  std::vector<Case> cases;
};

File read_cases(const std::string& path) {
  File f;
  std::string text = read_file(golden_path(path));
  const std::vector<std::string> pipelines = captured(text, "^// pipeline: (.*)\n");
  REQUIRE_FALSE(pipelines.empty());
  f.pipeline = pipelines.front();
  const size_t begin = std::min(text.find("graph @"), text.size());
  f.head = text.substr(0, begin);
  text = text.substr(begin);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("// ====\n", at), text.size());
    const std::string both = text.substr(at, end - at);
    f.cases.push_back({both.substr(0, std::min(both.find("// ----\n"), both.size()))});
    at = std::min(end + 8, text.size());
  }
  return f;
}

std::unique_ptr<Graph> parse(const std::string& text, const std::string& path) {
  return parse_graph(pass_context().ops(), text, path);
}

std::string commented(const std::string& text) {
  std::string s = "// error: ";
  for (const char c : text) s += c == '\n' ? "\n//   " : std::string(1, c);
  return s + "\n";
}

void check_file(const std::string& path) {
  const File f = read_cases(path);
  std::string actual = f.head;
  for (const Case& c : f.cases) {
    const auto g = parse(c.input, path);
    const std::string name = g->tables().name, before = print_graph(*g);
    INFO(path << " @" << name);
    std::string result;
    try {
      const auto input = g->clone();
      const PassReport report = run_pipeline(*g, f.pipeline);
      verify(*g);
      result = print_graph(*g);
      if (name.rfind("keep_", 0) == 0 && result != before)
        FAIL_CHECK("@" << name << " must stay as it is, it became\n" << result);
      // Running it again changes nothing: the pass has reached what it ensures.
      const auto again = g->clone();
      const PassReport second = run_pipeline(*again, f.pipeline);
      for (const PassRun& r : second.runs) {
        INFO("second run of " << r.name << " gave\n" << print_graph(*again));
        CHECK_FALSE(r.changed);
      }
      const std::vector<int64_t> symbols = small_symbols(*input);
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const Outcome want = run_on_reference(*input, symbols, seed);
        const bool runs = input->tables().name == std::string("keep_integer_division_by_zero") || want.error.empty();
        INFO(want.error);
        CHECK(runs);
        const Outcome have = run_on_reference(*g, symbols, seed);
        // A composite may round differently than its parts (docs/ir.md, numerics 6); how much is the differential tests'
        // business.
        if (f.pipeline.find("decompose") == std::string::npos && f.pipeline.find("recognise") == std::string::npos)
          CHECK(bit_difference(want, have) == "");
        else
          CHECK(want.error == have.error);
      }
    } catch (const Error& e) {
      result = commented(e.code() + " " + e.message());
    }
    actual += (&c == &f.cases.front() ? "" : "// ====\n") + c.input + "// ----\n" + result;
  }
  check_golden(path, actual);
}

}  // namespace

TEST_CASE("golden files of every pass") {
  const auto names = pass_names();
  CHECK(names.size() >= 5);
  for (const std::string& name : names) {
    const auto files = golden_files("passes/" + name, ".tsr");
    INFO(name);
    CHECK_FALSE(files.empty());
    for (const std::string& f : files) check_file(f);
  }
}

TEST_CASE("each rule of canonicalize has a golden case that fires") {
  const std::string rules = read_file(golden_path("../plugins/canonicalize/rules.cpp"));
  const std::vector<std::string> rows = captured(rules, "\\n  \\{\"([a-z-]+)\",");
  const std::set<std::string> names(rows.begin(), rows.end());
  CHECK(names.size() > 40);
  std::set<std::string> seen;
  for (const std::string& path : golden_files("passes/canonicalize", ".tsr"))
    for (const Case& c : read_cases(path).cases) {
      const auto g = parse(c.input, path);
      std::string name = g->tables().name;
      std::replace(name.begin(), name.end(), '_', '-');
      if (!names.count(name)) continue;
      INFO("@" << name);
      CHECK(run_pipeline(*g, "canonicalize").runs[0].changed);
      seen.insert(name);
    }
  for (const std::string& n : names) {
    INFO("no graph is named after the rule " << n);
    CHECK(seen.count(n) == 1);
  }
}
