// SPDX-License-Identifier: Apache-2.0
// Exceptions that leave a plugin, against the rules of the boundary.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "support/error.hpp"

namespace tessera::core {

// In a catch block: what has been thrown, as text.
inline std::string what_was_thrown() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "not a std::exception";
  }
}

// In a catch block: the error that blames it. `where`: "the plugin's name: an exception left FUNCTION of WHAT".
inline Error escaped_exception(const std::string& where) {
  return {TSR_BUG, "TSR-P046", where + ": " + what_was_thrown(),
          "catch it in the plugin; the wrapper of <tessera/plugin.hpp> does"};
}

// f(), which calls into a plugin. What leaves it is the error of the place that `where`() names; errors of the host's own
// callbacks pass.
template <class F, class W>
auto contained(F&& f, const W& where) {
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw escaped_exception(where());
  }
}

}  // namespace tessera::core
