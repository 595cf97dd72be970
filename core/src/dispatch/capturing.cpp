// SPDX-License-Identifier: Apache-2.0
#include "dispatch/capturing.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "dispatch/frame.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {
thread_local std::vector<const Callable*> t_capturing;
constexpr std::ptrdiff_t kMaxNested = 32;
}  // namespace

Capturing::Capturing(const Callable& callable, const Frame& frame) {
  if (std::count(t_capturing.begin(), t_capturing.end(), &callable) >= kMaxNested)
    throw user_error("TSR-D013",
                     "the capture of '" + frame.name() + "' (" + frame.place() + ") calls '" + frame.name() + "' again, " +
                         std::to_string(kMaxNested) +
                         " times over: host code that runs between its compiled parts calls the function itself, and no call "
                         "comes to an end",
                     "give the recursion an end, or call the function that is not compiled from host code");
  t_capturing.push_back(&callable);
}

Capturing::~Capturing() { t_capturing.pop_back(); }

}  // namespace tessera::core
