// SPDX-License-Identifier: Apache-2.0
// A small op set for white-box tests of the IR: every feature of records, no plugin needed.
#pragma once

#include "ir/records.hpp"

namespace tessera::test {

// Made on first use; lives as long as the process.
const core::OpRegistry& test_ops();

}  // namespace tessera::test
