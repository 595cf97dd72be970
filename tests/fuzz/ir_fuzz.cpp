// SPDX-License-Identifier: Apache-2.0
// Any text either gives a graph that verifies and reads back equal, or a coded error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../support/test_opset.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"

using namespace tessera::core;

namespace {

[[noreturn]] void fault(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ReadLimits limits;
  limits.splat_bytes = 1 << 20;
  const OpRegistry& ops = tessera::test::test_ops();
  std::string text;
  try {
    const auto g = parse_graph(ops, {reinterpret_cast<const char*>(data), size}, "fuzz.tsr", limits);
    text = print_graph(*g);
    // A state may lack its output in text; everything else that is read is sound.
    try {
      verify(*g);
    } catch (const Error& e) {
      if (e.code() != "TSR-I113" && e.code() != "TSR-I115") fault(e.what(), text);
    }
    try {
      const auto back = parse_graph(ops, text, "back.tsr", limits);
      if (const std::string d = difference(*g, *back); !d.empty()) fault(d.c_str(), text);
    } catch (const Error& e) {
      fault(e.what(), text);
    }
  } catch (const Error& e) {
    if (e.family() != TSR_USER) fault(e.what(), text);
  }
  return 0;
}
