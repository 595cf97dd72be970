// SPDX-License-Identifier: Apache-2.0
// Every op of the standard set on the eager backend against the reference, over dtypes, shapes and memory layouts.
//
// One test per file of cases (sdk/conformance/cases/*.cases); TESSERA_CASE=conv runs the lines of one op only. TESSERA_REPORT=1
// prints the largest error found per op and dtype, as a part of what the table allows.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "conformance/cases.hpp"
#include "conformance/tolerance.hpp"
#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

std::string directory() { return std::string(std::getenv("TESSERA_SOURCE_DIR")) + "/sdk/conformance/cases"; }
const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = read_cases(directory());
  return cases;
}

std::vector<e::Tensor> inputs(const Case& c, Layout layout, bool absolute) {
  std::vector<e::Tensor> out;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const Operand& o = c.operands[i];
    if (o.omitted) continue;
    std::vector<char> values = make_values(c, i);
    if (absolute) values = absolute_values(o, values);
    // Values that are listed stay as they are.
    const Layout own = layout == Layout::Repeated && !o.exact.empty() ? Layout::Dense : layout;
    out.push_back(arrange(o.dtype, o.sizes, values, own));
  }
  return out;
}

// Layouts that differ for these operands: packed and 0-d ones have one only.
bool has_layouts(const Case& c) {
  for (const Operand& o : c.operands)
    if (!o.omitted && !is_packed(o.dtype) && !o.sizes.empty()) return true;
  return false;
}

bool distinct(const Case& c) {
  return std::any_of(c.operands.begin(), c.operands.end(), [](const Operand& o) { return o.distinct; });
}

// How many cases ran as text of a GPU on sim, or as programs; which did not, by dtype and op, with TESSERA_REPORT=1.
struct TextShare {
  size_t text = 0, all = 0, of_kernel_types = 0;      // the last: cases of dtypes that kernels have
  std::map<std::string, std::set<std::string>> rest;  // dtypes: ops

  // A case is text when no kernel of its plan is the reference's or the host's.
  void count(const Case& c, const e::Executable& run) {
    std::istringstream plan(run.plan());
    bool is_text = true;
    for (std::string step; std::getline(plan, step);) {
      const bool runs = step.find(" kernel ") != step.npos && step.find(" op ") == step.npos;
      const bool on_sim = step.find(" sim.") != step.npos && step.find(" sim.reference.") == step.npos;
      is_text = is_text && (!runs || on_sim || step.find(" programs.interpreted ") != step.npos);
    }
    ++all;
    text += is_text;
    of_kernel_types += std::all_of(c.operands.begin(), c.operands.end(), [](const Operand& o) {
      return o.omitted || !(is_packed(o.dtype) || is_complex(o.dtype) || (is_float(o.dtype) && dtype_bits(o.dtype) < 16));
    });
    if (is_text) return;
    std::string types;
    for (const Operand& o : c.operands)
      if (const std::string name(dtype_name(o.dtype)); !o.omitted && types.find(name) == types.npos)
        types += (types.empty() ? "" : "+") + name;
    rest[types].insert(c.op);
  }
  void print(const std::string& name) const {
    std::printf("%s: %zu of %zu cases run on the device; %zu have dtypes that kernels have\n", name.c_str(), text, all,
                of_kernel_types);
    if (!std::getenv("TESSERA_REPORT")) return;
    for (const auto& [types, ops] : rest) {
      std::printf("  not of %s:", types.c_str());
      for (const std::string& op : ops) std::printf(" %s", op.c_str());
      std::printf("\n");
    }
  }
};

// "" or what went wrong.
std::string run_case(const Case& c, const std::string& backend, std::map<std::string, double>& report, TextShare* share) {
  std::string failures;
  const auto note = [&](Layout l, const std::string& what) {
    if (failures.empty()) failures = c.where + " on " + backend + ": " + layout_name(l) + " inputs: " + what + "\n" + c.text();
  };
  try {
    const e::Executable tested = compile(c.text(), backend), reference = compile(c.text(), "reference");
    if (share) share->count(c, tested);
    for (const Layout layout : layouts) {
      if (layout != Layout::Dense && !has_layouts(c)) break;
      if (layout == Layout::Repeated && distinct(c)) continue;
      const std::vector<e::Tensor> in = inputs(c, layout, false);
      const std::vector<e::Tensor> got = tested.run(in), want = reference.run(in);
      std::vector<e::Tensor> magnitude;
      for (size_t r = 0; r < want.size(); ++r) {
        const uint32_t dtype = want[r].dtype();
        const Tolerance* row = tolerance_of(c.op, dtype);
        if (row && row->scale == Scale::Absolute && magnitude.empty()) magnitude = reference.run(inputs(c, layout, true));
        const double items = items_of(c.op, in.empty() ? 1 : in[0].elements(), want[r].elements());
        double worst = 0;
        const std::string what =
            compare(got[r].desc(), want[r].desc(), magnitude.empty() ? nullptr : &magnitude[r].desc(), row, items, 1, &worst);
        if (!what.empty()) note(layout, "result " + std::to_string(r) + ": " + what);
        double& entry = report[c.op + " " + std::string(dtype_name(dtype))];
        entry = std::max(entry, worst);
      }
    }
  } catch (const std::exception& error) {
    note(Layout::Dense, error.what());
  }
  return failures;
}

// `part`: every so many-th case; all of them with TESSERA_ALL_CASES in the environment.
void run_file(const std::string& file, const std::string& backend = "eager", size_t part = 1, TextShare* share = nullptr) {
  if (std::getenv("TESSERA_ALL_CASES")) part = 1;
  const char* only = std::getenv("TESSERA_CASE");
  std::map<std::string, double> report;
  size_t ran = 0, failed = 0, seen = 0;
  std::string log;
  for (const Case& c : all_cases()) {
    if (!c.where.starts_with(file + ".cases:") || (only && c.op != only)) continue;
    if (seen++ % part) continue;
    ++ran;
    if (const std::string what = run_case(c, backend, report, share); !what.empty()) {
      ++failed;
      if (failed <= 20) log += what;
    }
  }
  if (std::getenv("TESSERA_REPORT"))
    for (const auto& [name, worst] : report) std::printf("%-32s %.3f\n", name.c_str(), worst);
  INFO(failed << " of " << ran << " cases failed; the first 20:\n" << log);
  if (!only) CHECK(ran > 0);
  CHECK(failed == 0);
}

}  // namespace

TEST_CASE("elementwise ops agree with the reference") { run_file("elementwise"); }
TEST_CASE("data movement agrees with the reference") { run_file("shape"); }
TEST_CASE("indexing, selection and sorting agree with the reference") { run_file("index"); }
TEST_CASE("reductions and scans agree with the reference") { run_file("reduce"); }
TEST_CASE("contractions, convolution and pooling agree with the reference") { run_file("linalg"); }
TEST_CASE("composites agree with the reference") { run_file("nn"); }
TEST_CASE("random ops give the reference's bits") { run_file("random"); }

#ifdef TESSERA_TEST_SIM
// All cases of one file: TESSERA_FILE=index TESSERA_REPORT=1 differential_tests "text for GPUs of one file".
TEST_CASE("text for GPUs of one file", "[.]") {
  TextShare share;
  const char* file = std::getenv("TESSERA_FILE");
  run_file(file ? file : "linalg", "sim:32", 1, &share);
  share.print(file ? file : "linalg");
}
#endif

TEST_CASE("every op agrees with the reference where the cpu backend goes first") {
  const std::vector<std::string> backends = cpu_backends();
  if (backends.empty()) return;
  // Every kernel is compiled: that takes some ten milliseconds.
  for (const char* file : {"elementwise", "shape", "index", "reduce", "nn", "random"}) run_file(file, backends.back(), 5);
  run_file("linalg", backends.back());
}

#ifdef TESSERA_TEST_SIM
TEST_CASE("text for GPUs agrees with the reference at both sizes of a wave") {
  TextShare share;
  for (const char* file : {"shape", "index", "reduce", "linalg", "nn", "elementwise", "random"}) {
    run_file(file, "sim:32", 13, &share);
    run_file(file, "sim:64", 17, &share);
  }
  share.print("sim");
}
#endif

#ifdef TESSERA_TEST_PROGRAMS
TEST_CASE("programs for GPUs agree with the reference at both sizes of a wave") {
  TextShare share;
  for (const char* file : {"shape", "index", "reduce", "linalg", "nn", "elementwise", "random"}) {
    run_file(file, "programs:32", 23, &share);
    run_file(file, "programs:64", 29, &share);
  }
  share.print("programs");
}
// PROGRAMS_TEXT=FOLDER writes the text for CUDA of each of them (tests/random_simt/program_backend.cpp).
TEST_CASE("programs of every case agree with the reference", "[.]") {
  TextShare share;
  for (const char* file : {"shape", "index", "reduce", "linalg", "nn", "elementwise", "random"})
    run_file(file, "programs:32", 1, &share);
  share.print("programs");
}
#endif

// On a machine with a GPU: TESSERA_TEST_CUDA says every how many-th case runs.
TEST_CASE("cuda agrees with the reference", "[.cuda]") {
  const char* part = std::getenv("TESSERA_TEST_CUDA");
  for (const char* file : {"shape", "index", "reduce", "linalg", "nn", "elementwise", "random"}) SECTION(file) {
      run_file(file, "cuda", part ? std::strtoull(part, nullptr, 10) : 1);
    }
}

TEST_CASE("every instruction set of the cpu backend agrees with the reference") {
  for (const std::string& backend : cpu_backends())
    for (const char* file : {"elementwise", "reduce", "linalg", "nn"})
      run_file(file, backend, file == std::string("linalg") ? 1 : file == std::string("nn") ? 7 : 41);
}

TEST_CASE("every op has cases") {
  std::set<std::string> with_cases;
  for (const Case& c : all_cases()) with_cases.insert(c.op);
  std::set<std::string> ops;
  const nlohmann::json list = nlohmann::json::parse(context().ops());
  for (const auto& op : list["ops"]) {
    const std::string name = op["name"];
    ops.insert(name);
    bool elsewhere = false;  // regions are run by the host, whichever backend computes what is inside; gradients: grad_test.cpp
    for (const auto& trait : op["traits"]) elsewhere = elsewhere || trait == "control" || trait == "autograd";
    INFO("op " << name << " has no line in sdk/conformance/cases/*.cases");
    if (!elsewhere) CHECK(with_cases.count(name) == 1);
  }
  CHECK(ops.size() >= 90);
  for (const std::string& name : with_cases) {
    INFO("cases name the op " << name << ", which no op set defines");
    CHECK(ops.count(name) == 1);
  }
}

namespace {

std::string code_of(const std::string& text, const std::string& backend, const std::vector<e::Tensor>& in) {
  try {
    const auto results = compile(text, backend).run(in);
    return "no error, " + std::to_string(results.size()) + " results";
  } catch (const e::Error& error) {
    return error.code();
  }
}
e::Tensor integers(uint32_t dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& values) {
  std::vector<char> bytes(static_cast<size_t>(storage_bytes(dtype, static_cast<int64_t>(values.size()))));
  for (size_t i = 0; i < values.size(); ++i) store_from(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  return arrange(dtype, sizes, bytes, Layout::Dense);
}

}  // namespace

TEST_CASE("run-time errors have the same code on every backend") {
  const auto x = integers(TSR_I32, {3, 2}, {1, 2, 3, 4, 5, 6});
  std::vector<std::string> backends = {"eager", "reference"};
  if (const auto cpu = cpu_backends(); !cpu.empty()) backends.push_back(cpu.back());
  for (const std::string& backend : backends) {
    INFO(backend);
    for (const std::string op : {"div", "floor_div", "remainder", "fmod"}) {
      INFO(op);
      CHECK(code_of("graph @g(%a: i32[3, 2], %b: i32[2]) { %r = " + op + " %a, %b return %r }", backend,
                    {x, integers(TSR_I32, {2}, {1, 0})}) == "TSR-R010");
    }
    const struct {
      const char *op, *types;
      std::vector<int64_t> sizes, bad;
    } indexed[] = {
        {"gather %a, %i {axis = 0}", "i64[2]", {2}, {0, 3}},
        {"gather %a, %i {axis = 1}", "i64[1]", {1}, {-1}},
        {"embedding %a, %i", "i64[1]", {1}, {3}},
        {"take_along_axis %a, %i {axis = 0}", "i64[1, 2]", {1, 2}, {0, 3}},
        {"gather_nd %a, %i", "i64[1, 2]", {1, 2}, {0, 2}},
        {"scatter %a, %i, %a {axis = 0}", "i64[3, 2]", {3, 2}, {0, 1, 2, 0, 3, 1}},
        {"scatter_nd %a, %i, %a", "i64[3, 1]", {3, 1}, {0, -1, 2}},
    };
    for (const auto& c : indexed) {
      INFO(c.op);
      CHECK(code_of("graph @g(%a: i32[3, 2], %i: " + std::string(c.types) + ") { %r = " + c.op + " return %r }", backend,
                    {x, integers(TSR_I64, c.sizes, c.bad)}) == "TSR-R011");
    }
    CHECK(code_of("graph @g(%x: f32[2, 3], %t: i64[2]) { %r = cross_entropy %x, %t return %r }", backend,
                  {arrange(TSR_F32, {2, 3}, std::vector<char>(24), Layout::Dense), integers(TSR_I64, {2}, {0, 3})}) ==
          "TSR-R011");
    CHECK(code_of("graph @g(%a: i32[3, 2], %s: i64[2]) { %r = dynamic_reshape %a, %s {rank = 2} return %r }", backend,
                  {x, integers(TSR_I64, {2}, {4, 2})}) == "TSR-R012");
    CHECK(code_of("graph @g(%a: i32[3, 2], %s: i64[2]) { %r = dynamic_broadcast_to %a, %s {rank = 2} return %r }", backend,
                  {x, integers(TSR_I64, {2}, {4, 2})}) == "TSR-R012");
    for (const std::string op :
         {"%r = argmax %x {axis = 2}", "%r = argmin %x {axis = 2}",
          "%r = pad %x {low = [0, 0, 1], high = [0, 0, 1], mode = \"edge\"}",
          "%r = pad %x {low = [0, 0, 1], high = [0, 0, 1], mode = \"wrap\"}", "%r = interpolate %x {output = [2]}",
          "%r = adaptive_avg_pool %x {output = [2]}", "%r, %i = adaptive_max_pool %x {output = [2]}"}) {
      // Refused when the sizes are known at compile time, or else when the op runs.
      INFO(op);
      const e::Tensor empty = arrange(TSR_F32, {1, 2, 0}, {}, Layout::Dense);
      const std::string known = code_of("graph @g(%x: f32[1, 2, 0]) { " + op + " return %r }", backend, {empty});
      const std::string symbolic = code_of("graph @g(%x: f32[1, 2, s0]) { " + op + " return %r }", backend, {empty});
      CHECK(known.starts_with("TSR-"));
      CHECK(symbolic.starts_with("TSR-"));
    }
  }
}

}  // namespace tessera::differential
