// SPDX-License-Identifier: Apache-2.0
// The eager and the reference backend against golden values that PyTorch and numpy made (tests/golden/ops/make_ops.py).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "conformance/tolerance.hpp"
#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

struct Golden {
  std::string name, op, text;
};

// The graphs of one file; each begins with a line "graph @NAME(".
std::vector<Golden> read_graphs(const std::string& path) {
  std::ifstream in(path);
  std::vector<Golden> out;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("graph @")) out.push_back({line.substr(7, line.find('(') - 7), "", ""});
    if (out.empty()) continue;
    if (line.starts_with("  %r") && out.back().op.empty()) {
      std::istringstream words(line.substr(line.find('=') + 1));
      words >> out.back().op;
    }
    out.back().text += line + "\n";
  }
  return out;
}

std::vector<char> as_chars(const std::vector<std::byte>& bytes) {
  std::vector<char> out(bytes.size());
  std::transform(bytes.begin(), bytes.end(), out.begin(), [](std::byte b) { return static_cast<char>(b); });
  return out;
}

uint32_t input_dtype(const e::Executable& x, size_t input) {
  const tsr_tables& t = x.tables();
  const tsr_region& body = *TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  return TSR_AT(tsr_value, t.values, t.value_stride, body.inputs[input])->type->dtype;
}

std::string run_golden(const Golden& g, const std::string& backend, const std::map<std::string, const npz::Array*>& arrays,
                       const std::string& file) {
  try {
    const e::Executable program = compile(g.text, backend);
    std::vector<e::Tensor> in, absolute;
    // Omitted operands have no array: input k is the k-th that exists.
    for (size_t k = 0; in.size() < 16 && k < 16; ++k) {
      const auto a = arrays.find(g.name + "/in" + std::to_string(k));
      if (a == arrays.end()) continue;
      const uint32_t dtype = input_dtype(program, in.size());
      const std::vector<char> values = as_chars(npz::to_elements(*a->second, dtype, file));
      in.push_back(arrange(dtype, a->second->shape, values, Layout::Dense));
      std::vector<char> magnitudes = values;
      const int64_t n = in.back().elements();
      for (int64_t i = 0; i < n; ++i) {
        if (is_float(dtype)) store_from(dtype, magnitudes.data(), i, std::fabs(load_as<double>(dtype, values.data(), i)));
        if (is_complex(dtype)) {
          const auto z = load_as<ComplexValue<double>>(dtype, values.data(), i);
          store_from(dtype, magnitudes.data(), i, ComplexValue<double>{std::hypot(z.re, z.im), 0});
        }
      }
      absolute.push_back(arrange(dtype, a->second->shape, magnitudes, Layout::Dense));
    }
    const std::vector<e::Tensor> got = program.run(in);
    std::vector<e::Tensor> magnitude;
    std::string out;
    for (size_t r = 0; r < got.size(); ++r) {
      const auto a = arrays.find(g.name + "/out" + std::to_string(r));
      if (a == arrays.end()) return "the archive has no " + g.name + "/out" + std::to_string(r);
      const uint32_t dtype = got[r].dtype();
      const e::Tensor want =
          arrange(dtype, a->second->shape, as_chars(npz::to_elements(*a->second, dtype, file)), Layout::Dense);
      const Tolerance* row = golden_tolerance_of(g.op, dtype);
      if (row && row->scale == Scale::Absolute && magnitude.empty()) magnitude = compile(g.text, "reference").run(absolute);
      const double items = items_of(g.op, in.empty() ? 1 : in[0].elements(), want.elements());
      // Twice the row: the expectation, computed by another library and rounded through f32, has an error of its own.
      const std::string what =
          compare(got[r].desc(), want.desc(), magnitude.empty() ? nullptr : &magnitude[r].desc(), row, items, 2);
      if (!what.empty()) out += "result " + std::to_string(r) + ": " + what + "\n";
    }
    return out;
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::set<std::string>& golden_ops() {
  static std::set<std::string> ops;
  return ops;
}

void run_family(const std::string& family) {
  const std::string base = std::string(std::getenv("TESSERA_SOURCE_DIR")) + "/tests/golden/ops/" + family;
  const std::vector<npz::Array> archive = npz::read(base + ".npz");
  std::map<std::string, const npz::Array*> arrays;
  for (const npz::Array& a : archive) arrays[a.name] = &a;
  const char* only = std::getenv("TESSERA_CASE");
  size_t ran = 0, failed = 0;
  std::string log;
  for (const Golden& g : read_graphs(base + ".tsr")) {
    golden_ops().insert(g.op);
    if (only && g.op != only) continue;
    for (const std::string backend : {"reference", "eager"}) {
      ++ran;
      const std::string what = run_golden(g, backend, arrays, base + ".npz");
      if (what.empty()) continue;
      ++failed;
      if (failed <= 20) log += g.name + " on " + backend + ": " + what + "\n" + g.text;
    }
  }
  INFO(failed << " of " << ran << " runs failed; the first 20:\n" << log);
  if (!only) CHECK(ran > 0);
  CHECK(failed == 0);
}

}  // namespace

TEST_CASE("golden values: elementwise") { run_family("elementwise"); }
TEST_CASE("golden values: comparison and selection") { run_family("compare"); }
TEST_CASE("golden values: casts") { run_family("cast"); }
TEST_CASE("golden values: data movement") { run_family("shape"); }
TEST_CASE("golden values: indexing") { run_family("index"); }
TEST_CASE("golden values: selection and sorting") { run_family("order"); }
TEST_CASE("golden values: reductions and scans") { run_family("reduce"); }
TEST_CASE("golden values: contractions and convolution") { run_family("contraction"); }
TEST_CASE("golden values: neural networks") { run_family("nn"); }
TEST_CASE("golden values: random numbers") { run_family("random"); }

}  // namespace tessera::differential
