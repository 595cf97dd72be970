// SPDX-License-Identifier: Apache-2.0
// The functions that the CPU's text is written with, as text: what the compiler has no operator for on vectors. cpu_dialect.cpp
// says which of them a text needs.
#pragma once

#include <string>
#include <vector>

namespace tessera::kit {

// ", from, from + 1, .." for __builtin_shufflevector, `count` of them; from the beginning again after `period`.
std::string lanes_of(int count, int from, int period = 1 << 20);
// An expression: `f` of both halves of its operands of `lanes` lanes, joined. `before`: text of what both take besides, with a
// comma behind it.
std::string in_halves(const std::string& f, const std::string& before, const std::vector<std::string>& operands, int lanes);
// A statement for every lane j.
std::string lane_loop(int lanes, const std::string& statement);

std::string math_helper(const std::string& name, int lanes);
std::string lookup_helper(int lanes);
std::string byte_table_helper(const std::string& v, const std::string& element, int lanes);
std::string half_helper(const std::string& name, int lanes);
std::string some_helpers(const std::string& t, int lanes);
std::string transpose_helper(const std::string& v, const std::string& element, int lanes);
std::string four_rows_helper(const std::string& v, const std::string& element, int lanes, int part);
std::string joined_fours_helper(const std::string& element_name, const std::string& element, int lanes);

}  // namespace tessera::kit
