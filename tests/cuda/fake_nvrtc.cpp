// SPDX-License-Identifier: Apache-2.0
// NVRTC's half of the fake: CUDA text becomes text for fibers by another prelude, and the system's compiler compiles it.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <sstream>

#include "fake_image.hpp"
#include "tessera/kit/gpu/emit.hpp"

namespace fake {

namespace {

namespace fs = std::filesystem;

// CUDA's words, for text that is not the kit's.
constexpr const char* kWords =
    "#define __device__\n#define __forceinline__ inline\n#define __global__\n#define __launch_bounds__(n)\n"
    "struct number_in_x { u32 x; };\n#define blockIdx (number_in_x{block_number()})\n#define threadIdx "
    "(number_in_x{thread_number()})\n";

std::string read_all(const fs::path& p) {
  std::ifstream in(p, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Folder {
  fs::path path;
  Folder() {
    char name[] = "/tmp/tessera_fake_cuda_XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Parameters separated by commas outside of brackets; each is 8 bytes but for structs, whose size the compiled text tells.
std::vector<std::string> parameters(const std::string& list) {
  std::vector<std::string> out;
  std::string one;
  for (const char c : list) {
    if (c == ',') {
      out.push_back(one);
      one.clear();
    } else {
      one += c;
    }
  }
  if (one.find_first_not_of(" \n") != one.npos) out.push_back(one);
  return out;
}

}  // namespace

std::string compile(const std::string& text, std::string& log) {
  const std::string cuda = tessera::kit::cuda_dialect().prelude, sim = tessera::kit::sim_dialect().prelude;
  const bool ours = text.starts_with(cuda);
  std::string out = sim + (ours ? "" : kWords) + (ours ? text.substr(cuda.size()) : text) + "\n";
  static const std::regex kernel(
      R"((?:KERNEL\(\d+\) void|extern "C" __global__ void __launch_bounds__\(\d+\)) (\w+)\(([^)]*)\) \{)");
  static const std::regex shared(R"(SHARED\((\w+), \w+, (\d+), (\d+)\))");
  std::string header;
  std::vector<std::pair<size_t, std::string>> kernels;  // where, name
  for (std::sregex_iterator i(out.begin(), out.end(), kernel), end; i != end; ++i) {
    const size_t begin = static_cast<size_t>(i->position());
    const size_t stop = std::min({out.find("\nextern \"C\"", begin + 1), out.find("\nKERNEL(", begin + 1), out.size()});
    // The largest that any element type can make of it.
    int64_t bytes = 0;
    const std::string body = out.substr(begin, stop - begin);
    for (std::sregex_iterator s(body.begin(), body.end(), shared); s != end; ++s)
      bytes = std::max<int64_t>(bytes, std::stoll((*s)[3]) + 8 * std::stoll((*s)[2]));
    header += "kernel " + (*i)[1].str() + " " + std::to_string(bytes);
    for (const std::string& p : parameters((*i)[2])) header += p.find("Shape") != p.npos ? " 304" : " 8";
    header += "\n";
    kernels.emplace_back(begin, (*i)[1]);
  }
  for (const auto& [at, name] : kernels)
    out += "extern \"C\" void " + name + "_thunk(void* const* a) { call(" + name + ", a); }\n";
  const Folder folder;
  std::ofstream(folder.path / "kernels.cpp") << out;
  const std::string command = std::string(FAKE_CUDA_COMPILER) +
                              " -std=c++20 -w -O1 -fPIC -shared -ffp-contract=off -fno-math-errno -o " +
                              (folder.path / "kernels.so").string() + " " + (folder.path / "kernels.cpp").string() +
                              " -lm 2> " + (folder.path / "log").string();
  if (std::system(command.c_str()) != 0) {
    log = read_all(folder.path / "log");
    return {};
  }
  const std::string object = read_all(folder.path / "kernels.so");
  char length[32];
  std::snprintf(length, sizeof length, "object %016zx\n", object.size());
  return "fake cubin\n" + header + length + object;
}

bool load(const void* image, void** library, std::vector<Entry>* entries) {
  const char* p = static_cast<const char*>(image);
  if (std::strncmp(p, "fake cubin\n", 11) != 0) return false;
  p += 11;
  while (std::strncmp(p, "kernel ", 7) == 0) {
    const char* end = std::strchr(p, '\n');
    std::istringstream line(std::string(p + 7, end));
    Entry e;
    line >> e.name >> e.shared_bytes;
    for (uint32_t n; line >> n;) e.sizes.push_back(n);
    entries->push_back(e);
    p = end + 1;
  }
  const size_t bytes = std::strtoull(p + 7, nullptr, 16);
  p = std::strchr(p, '\n') + 1;
  const Folder folder;
  std::ofstream(folder.path / "kernels.so", std::ios::binary).write(p, static_cast<std::streamsize>(bytes));
  *library = dlopen((folder.path / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  return *library != nullptr;
}

}  // namespace fake

namespace {

struct Program {
  std::string text, log, image;
};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) int

EXPORT nvrtcVersion(int* major, int* minor) {
  const char* text = std::getenv("FAKE_CUDA");
  const char* at = text ? std::strstr(text, "nvrtc=") : nullptr;
  *major = at ? std::atoi(at + 6) : 13;
  *minor = 0;
  return 0;
}
EXPORT nvrtcGetNumSupportedArchs(int* count) {
  *count = 3;
  return 0;
}
EXPORT nvrtcGetSupportedArchs(int* out) {
  out[0] = 75, out[1] = 80, out[2] = 90;
  return 0;
}
EXPORT nvrtcCreateProgram(void** out, const char* text, const char*, int, const char* const*, const char* const*) {
  *out = new Program{text, "", ""};
  return 0;
}
EXPORT nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
EXPORT nvrtcCompileProgram(void* program, int count, const char* const* options) {
  auto& p = *static_cast<Program*>(program);
  bool contracts = true;
  for (int i = 0; i < count; ++i) contracts = contracts && std::strcmp(options[i], "--fmad=false") != 0;
  if (contracts) return p.log = "fake NVRTC: --fmad=false is missing", 6;
  p.image = fake::compile(p.text, p.log);
  return p.image.empty() ? 6 : 0;
}
EXPORT nvrtcGetProgramLogSize(void* program, size_t* bytes) {
  *bytes = static_cast<Program*>(program)->log.size() + 1;
  return 0;
}
EXPORT nvrtcGetProgramLog(void* program, char* out) {
  std::memcpy(out, static_cast<Program*>(program)->log.c_str(), static_cast<Program*>(program)->log.size() + 1);
  return 0;
}
EXPORT nvrtcGetCUBINSize(void* program, size_t* bytes) {
  *bytes = static_cast<Program*>(program)->image.size();
  return 0;
}
EXPORT nvrtcGetCUBIN(void* program, char* out) {
  std::memcpy(out, static_cast<Program*>(program)->image.data(), static_cast<Program*>(program)->image.size());
  return 0;
}
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }
