// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "command.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

constexpr std::string_view kMark = "//|";

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    out.push_back(std::move(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  while (!out.empty() && out.back().empty()) out.pop_back();
  return out;
}

void bless(const std::string& path, const std::vector<std::string>& file, const std::vector<std::string>& actual) {
  std::string text;
  for (const std::string& line : file)
    if (!line.starts_with(kMark)) text += line + "\n";
  for (const std::string& line : actual) text += (line.empty() ? std::string(kMark) : std::string(kMark) + " " + line) + "\n";
  write_file(path, text);
  std::fprintf(stderr, "tessera: rewrote the expectation in %s\n", path.c_str());
}

}  // namespace

int check_expectation(const std::string& path, std::string_view actual_text) {
  const std::vector<std::string> file = lines_of(read_file(path)), actual = lines_of(actual_text);
  std::vector<std::string> expected;
  for (const std::string& line : file)
    if (line.starts_with(kMark)) expected.push_back(line.size() > kMark.size() ? line.substr(kMark.size() + 1) : "");
  if (const char* wanted = std::getenv("TESSERA_BLESS"); wanted && std::strcmp(wanted, "1") == 0) {
    if (expected != actual) bless(path, file, actual);
    return kOk;
  }
  if (expected == actual) return kOk;
  const char* hint = "if the new output is right, rewrite the expectation: TESSERA_BLESS=1 with the same command";
  if (expected.empty()) {
    std::fprintf(stderr, "%s[TSR-U010] %s: no expectation in the file: no line begins with '//| '\n  hint: %s\n",
                 styled(Style::kRed, "error", 2).c_str(), path.c_str(), hint);
    return kCheckFailed;
  }
  size_t at = 0;
  while (at < expected.size() && at < actual.size() && expected[at] == actual[at]) ++at;
  std::fprintf(stderr, "%s[TSR-U010] %s: the output differs from the expectation in its line %zu\n",
               styled(Style::kRed, "error", 2).c_str(), path.c_str(), at + 1);
  const auto show = [&](const char* what, Style style, const std::vector<std::string>& lines) {
    std::fprintf(stderr, "  %s:\n", what);
    for (size_t i = at; i < std::min(at + 5, lines.size()); ++i)
      std::fprintf(stderr, "    %s\n", styled(style, lines[i], 2).c_str());
    if (at >= lines.size()) std::fprintf(stderr, "    (the end)\n");
  };
  show("expected", Style::kGreen, expected);
  show("found", Style::kRed, actual);
  std::fprintf(stderr, "  hint: %s\n", hint);
  return kCheckFailed;
}

}  // namespace tessera::command
