// SPDX-License-Identifier: Apache-2.0
// Small text functions: suggestions, numbers, units, files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::command {

// "; did you mean 'x'?" when a candidate is near (edit distance at most a third of the word, at least 2), else "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
std::string join(const std::vector<std::string>& items, const char* separator = ", ");
std::string printable(std::string_view text);  // control characters as \xNN
std::string quote(std::string_view text);      // "'text'", printable
// The name of an input or output for people to read: in double quotes, as text IR writes strings, where it has quotes, control
// characters or blanks around it.
std::string name_text(std::string_view name);
std::vector<std::string> split(std::string_view text, char separator);  // pieces without surrounding blanks
std::string indent(std::string_view text, size_t spaces);               // every line; no final newline

std::optional<int64_t> parse_int(std::string_view text);    // the whole of it, decimal
std::optional<double> parse_number(std::string_view text);  // the whole of it, finite

// "NAME=VALUE" of an option, at the last '='. Throws TSR-U004 naming the option.
std::pair<std::string, std::string> name_and_value(const std::string& option, const std::string& text, const char* expected);

std::string bytes_text(double bytes);  // "12.5 MiB"
std::string ms_text(double ms);        // "1.25 ms", "310 us", "2.4 s"
std::string number_text(double v);     // four significant digits
std::string float_text(double v);      // shortest text that reads back, as text IR writes floats: "1.0", "1e-05", "inf"
std::string float_text(float v);

std::string read_file(const std::string& path);                   // "-": stdin. Throws TSR-U008
void write_file(const std::string& path, std::string_view text);  // Throws TSR-U008

}  // namespace tessera::command
