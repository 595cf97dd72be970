// SPDX-License-Identifier: Apache-2.0
// Every elementwise op on the values that formulas forget (tools/conformance/special.hpp).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "conformance/cases.hpp"
#include "conformance/special.hpp"
#include "conformance/tolerance.hpp"
#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

// One case for each elementwise op, its attributes and the dtypes of its operands.
std::vector<Case> cases() {
  std::set<std::string> elementwise;
  const nlohmann::json ops = nlohmann::json::parse(context().ops());
  for (const auto& op : ops["ops"])
    for (const auto& trait : op["traits"])
      if (trait == "elementwise") elementwise.insert(op["name"].get<std::string>());
  return special_cases(read_cases(std::string(std::getenv("TESSERA_SOURCE_DIR")) + "/sdk/conformance/cases"), elementwise);
}

std::string run(const Case& c, const std::string& backend) {
  try {
    std::vector<e::Tensor> in, absolute;
    int64_t inner = 1;
    for (size_t i = 0; i < c.operands.size(); ++i) {
      const Operand& o = c.operands[i];
      if (o.omitted) continue;
      const std::vector<char> values = special_values(c, i, inner, o.sizes[0]);
      in.push_back(arrange(o.dtype, o.sizes, values, Layout::Dense));
      absolute.push_back(arrange(o.dtype, o.sizes, absolute_values(o, values), Layout::Dense));
      inner *= special_count(c, i);
    }
    const e::Executable reference = compile(c.text(), "reference");
    const e::Tensor got = compile(c.text(), backend).run(in)[0], want = reference.run(in)[0];
    const Tolerance* row = tolerance_of(c.op, want.dtype());
    std::string what;
    if (row && row->scale == Scale::Absolute) {
      const e::Tensor magnitude = reference.run(absolute)[0];
      what = compare(got.desc(), want.desc(), &magnitude.desc(), row, 1);
    } else {
      what = compare(got.desc(), want.desc(), nullptr, row, 1);
    }
    if (what.empty()) what = zeros_differ(got.desc(), want.desc());
    if (what.empty()) return "";
    // The operands of the element that the message names.
    std::string operands;
    if (const size_t at = what.find("element "); at != std::string::npos) {
      const int64_t element = std::atoll(what.c_str() + at + 8);
      for (const e::Tensor& t : in) operands += " " + print_element(t.desc(), element);
    }
    return c.where + " on " + backend + ", operands" + operands + ": " + what.substr(0, what.find('\n')) + "\n" + c.text();
  } catch (const std::exception& error) {
    return c.where + " on " + backend + ": " + error.what() + "\n" + c.text();
  }
}

void check(const std::string& backend, bool f32_only) {
  size_t ran = 0, failed = 0;
  std::string log;
  for (const Case& c : cases()) {
    if (f32_only && c.dtype != TSR_F32) continue;
    ++ran;
    const std::string what = run(c, backend);
    if (!what.empty() && ++failed <= 60) log += what;
  }
  INFO(failed << " of " << ran << " cases failed; the first 60:\n" << log);
  CHECK(ran >= (f32_only ? 60 : 400));
  CHECK(failed == 0);
}

}  // namespace

TEST_CASE("eager agrees with the reference on special values") { check("eager", false); }
TEST_CASE("the cpu backend agrees with the reference on special values") {
  const std::vector<std::string> backends = cpu_backends();
  for (const std::string& backend : backends) check(backend, backend != backends.back());
}

}  // namespace tessera::differential
