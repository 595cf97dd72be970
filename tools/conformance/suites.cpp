// SPDX-License-Identifier: Apache-2.0
#include "suites.hpp"

#include <algorithm>

#include "subject.hpp"

namespace tessera::conformance {

Checks all_checks(Subject& subject, bool loaded) {
  Checks all;
  add_static_checks(subject, all);
  add_handshake_checks(subject, all);
  if (loaded) {
    add_contract_checks(subject, all);
    add_device_checks(subject, all);
    add_kind_checks(subject, all);
    add_op_checks(subject, all);
  }
  std::erase_if(
      all, [&](const Check& c) { return c.level > subject.settings().level || (!loaded && c.level > 0 && c.name != kLoads); });
  // Checks of a lower level first: what they find explains the rest. Stable, so that every process has the same order.
  std::stable_sort(all.begin(), all.end(), [](const Check& a, const Check& b) { return a.level < b.level; });
  return all;
}

}  // namespace tessera::conformance
