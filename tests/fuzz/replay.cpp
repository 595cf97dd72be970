// SPDX-License-Identifier: Apache-2.0
// Stands in for libFuzzer in builds without it: runs a target over files and folders of files, once each. So the targets
// compile with every build, and what was found once is tried again by every run of the tests.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace fs = std::filesystem;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Targets with a mutator of their own call it; nothing is mutated here.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerMutate(uint8_t*, size_t size, size_t) { return size; }

namespace {

size_t replay(const fs::path& path) {
  if (fs::is_directory(path)) {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) count += replay(entry.path());
    return count;
  }
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  if (!in && !in.eof()) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return 0;
  }
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);  // the last line names the input that ended the process
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  size_t count = 0;
  for (int i = 1; i < argc; ++i) count += replay(argv[i]);
  std::printf("%zu inputs\n", count);
  return count == 0;  // a run over nothing says nothing
}
