// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "places.hpp"

namespace tessera::test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::string golden_path(const std::string& path) { return source_dir() + "/tests/" + path; }

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) FAIL("cannot read " << path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> golden_files(const std::string& folder, const std::string& extension) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path(folder)))
    if (entry.path().extension() == extension) files.push_back(folder + "/" + entry.path().filename().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::string text_difference(const std::string& expected, const std::string& actual) {
  const auto a = lines_of(expected), b = lines_of(actual);
  // Longest common subsequence; golden files are small.
  std::vector<std::vector<uint32_t>> common(a.size() + 1, std::vector<uint32_t>(b.size() + 1, 0));
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::vector<std::string> out;
  std::vector<bool> near;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool same = i < a.size() && j < b.size() && a[i] == b[j];
    if (same)
      out.push_back(" " + a[i++]), ++j;
    else if (j == b.size() || (i < a.size() && common[i + 1][j] >= common[i][j + 1]))
      out.push_back("-" + a[i++]);
    else
      out.push_back("+" + b[j++]);
  }
  std::string text;
  size_t shown = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    bool show = false;
    for (size_t k = i > 3 ? i - 3 : 0; k < std::min(out.size(), i + 4); ++k) show |= out[k][0] != ' ';
    if (!show) continue;
    if (shown != i) text += "...\n";
    shown = i + 1;
    text += out[i] + "\n";
  }
  if (text.empty() && expected != actual) text = "(they differ in line ends only)\n";
  return text;
}

void check_golden(const std::string& path, const std::string& actual) {
  const std::string file = golden_path(path);
  const char* bless = std::getenv("TESSERA_BLESS");
  const bool exists = std::filesystem::exists(file);
  const std::string expected = exists ? read_file(file) : "";
  if (exists && expected == actual) {
    SUCCEED();
    return;
  }
  const std::string difference = text_difference(expected, actual);
  if (bless && *bless && std::string(bless) != "0") {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream out(file, std::ios::binary);
    out << actual;
    if (!out.flush()) FAIL("cannot write " << file);
    std::printf("blessed %s\n%s", path.c_str(), difference.c_str());
    return;
  }
  FAIL_CHECK((exists ? "" : "there is no ") << path << (exists ? " differs" : "") << " (TESSERA_BLESS=1 rewrites it)\n"
                                            << difference);
}

}  // namespace tessera::test
