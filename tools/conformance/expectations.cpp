// SPDX-License-Identifier: Apache-2.0
#include "expectations.hpp"

#include <fstream>

#include "run.hpp"

namespace tessera::conformance {

Expectations read_expectations(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw e::Error(TSR_USER, "TSR-U008", path + " cannot be read", "name a file of expected failures");
  Expectations out;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == line.npos || line[begin] == '#') continue;
    const std::string where = path + ":" + std::to_string(number);
    const size_t colon = line.rfind(": ");
    if (colon == line.npos || line.find_first_not_of(" \t", colon + 2) == line.npos)
      throw e::Error(TSR_USER, "TSR-U004", where + ": found '" + line + "', expected CHECK: REASON",
                     "every expected failure has a reason");
    out.push_back({line.substr(begin, colon - begin), line.substr(colon + 2), where});
  }
  return out;
}

const Expectation* expectation_of(const Expectations& all, const std::string& check) {
  for (const Expectation& x : all)
    if (matches(check, x.pattern)) return &x;
  return nullptr;
}

}  // namespace tessera::conformance
