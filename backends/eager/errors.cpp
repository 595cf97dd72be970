// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

namespace eager {

void fail(const char* code, const std::string& message, const std::string& hint) {
  throw sdk::Error(code[4] == 'B' ? TSR_BUG : TSR_USER, code, message, hint);
}
void fail_index(const std::string& op, int64_t index, int64_t size, int64_t axis) {
  fail("TSR-R011",
       "op '" + op + "': index " + std::to_string(index) + " is out of range for dimension " + std::to_string(axis) +
           " of size " + std::to_string(size),
       size > 0 ? "expected 0 <= index < " + std::to_string(size) + "; negative indices are not wrapped"
                : "the dimension is empty");
}
void fail_division(const std::string& op) {
  fail("TSR-R010", "op '" + op + "': integer division by zero", "the divisor must not contain 0");
}

}  // namespace eager
