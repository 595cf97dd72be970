// SPDX-License-Identifier: Apache-2.0
// Any text either gives op records or a coded error that is the author's, never ours.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ir/records_parser.hpp"
#include "support/error.hpp"

using namespace tessera::core;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto records = parse_records({reinterpret_cast<const char*>(data), size}, "fuzz.tops", "acme", "acme.opset");
    for (const auto& r : records)
      if (r->name.empty() || r->signature.empty()) std::abort();
  } catch (const Error& e) {
    if (std::string_view(e.code()).substr(0, 5) != "TSR-O" || e.family() != TSR_USER) std::abort();
  }
  return 0;
}
