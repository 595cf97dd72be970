// SPDX-License-Identifier: Apache-2.0
// The text of every class compiles to machine code from descriptions of devices, without a spill in the schedule that the model
// chooses: CUDA by NVRTC to four architectures, HIP by clang at both sizes of a wave. Where a compiler is missing, one line
// says so.
#include <dlfcn.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "simt_support.hpp"
#include "tessera/kit/gpu/emit.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Nvrtc {
  using Program = void*;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*destroy)(Program*) = nullptr;

  bool open() {
    std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    for (const char* folder : {"/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/"})
      for (const char* n : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) names.push_back(std::string(folder) + n);
    void* library = nullptr;
    for (const std::string& n : names)
      if (!library) library = dlopen(n.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const auto find = [&](auto& f, const char* name) {
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library, name));
    };
    find(create, "nvrtcCreateProgram"), find(compile, "nvrtcCompileProgram"), find(log_size, "nvrtcGetProgramLogSize");
    find(log, "nvrtcGetProgramLog"), find(destroy, "nvrtcDestroyProgram");
    return create && compile && log_size && log && destroy;
  }
  // Empty, or why not; `log` is the assembler's report.
  bool run(const std::string& text, const std::string& arch, std::string& report) const {
    Program p = nullptr;
    if (create(&p, text.c_str(), "kernels.cu", 0, nullptr, nullptr) != 0) return false;
    const std::string option = "--gpu-architecture=" + arch;
    const char* options[] = {option.c_str(), "--fmad=false", "--std=c++17", "--ptxas-options=-v", "-diag-suppress=177"};
    const int result = compile(p, 5, options);
    size_t n = 0;
    log_size(p, &n);
    report.assign(n, ' ');
    log(p, report.data());
    destroy(&p);
    return result == 0;
  }
};

}  // namespace

TEST_CASE("CUDA text compiles for described devices") {
  Nvrtc nvrtc;
  if (!nvrtc.open()) {
    WARN("left out: there is no NVRTC; install the CUDA toolkit, 12.0 or newer");
    return;
  }
  const kit::SimtOrder order;
  for (const char* arch : {"sm_80", "sm_89", "sm_90a", "sm_120"}) {
    const kit::GpuDescription& d = kit::gpu_description(arch);
    kit::GpuModuleText text(kit::cuda_dialect());
    for (const SimtCase& c : simt_cases()) {
      SimtKernel k = lower_case(c);
      kit::Program p = make(k, c, choose(k, c, d, order), d, order);
      text.add(p);
    }
    std::string report;
    const bool compiled = nvrtc.run(text.text(), arch, report);
    INFO(arch << "\n" << report.substr(0, 4000));
    REQUIRE(compiled);
    const std::regex spill("([1-9][0-9]*) bytes spill stores");
    std::smatch found;
    const bool spills = std::regex_search(report, found, spill);
    INFO((spills ? found.prefix().str().substr(found.prefix().str().rfind("Compiling")) : ""));
    CHECK(!spills);
    const std::regex registers("Used ([0-9]+) registers");
    int most = 0, kernels = 0;
    for (std::sregex_iterator i(report.begin(), report.end(), registers), end; i != end; ++i, ++kernels)
      most = std::max(most, std::stoi((*i)[1]));
    std::printf("%s: %d kernels, at most %d registers\n", arch, kernels, most);
    CHECK(kernels >= 20);
    CHECK(most <= d.max_registers);
  }
}

TEST_CASE("HIP text compiles for described devices") {
  if (std::system("clang -print-targets 2>/dev/null | grep -q amdgcn") != 0) {
    WARN("left out: there is no clang with AMD's targets; apt-get install clang");
    return;
  }
  const kit::SimtOrder order;
  // Descriptions, and targets of the same size of a wave that clang 14 knows.
  for (const auto& [arch, target] : {std::pair<const char*, const char*>{"gfx90a", "gfx90a"}, {"gfx1100", "gfx1030"}}) {
    const kit::GpuDescription& d = kit::gpu_description(arch);
    kit::GpuModuleText text(kit::hip_dialect());
    for (const SimtCase& c : simt_cases()) {
      SimtKernel k = lower_case(c);
      kit::Program p = make(k, c, choose(k, c, d, order), d, order);
      text.add(p);
    }
    char folder[] = "/tmp/tessera_hip_XXXXXX";
    REQUIRE(mkdtemp(folder));
    const std::string base = std::string(folder) + "/kernels";
    std::ofstream(base + ".hip") << text.text();
    const std::string command = std::string("clang -x hip --cuda-device-only -nogpuinc -nogpulib --offload-arch=") + target +
                                " -O2 -ffp-contract=off -std=c++17 -S -o " + base + ".s " + base + ".hip 2> " + base + ".log";
    const bool compiled = std::system(command.c_str()) == 0;
    std::ifstream log(compiled ? base + ".s" : base + ".log");
    const std::string out((std::istreambuf_iterator<char>(log)), {});
    std::filesystem::remove_all(folder);
    INFO(command << "\n" << (compiled ? "" : out.substr(0, 4000)));
    REQUIRE(compiled);
    CHECK(!std::regex_search(out, std::regex("[sv]gpr_spill_count: [1-9]")));
    CHECK(std::regex_search(out, std::regex("wavefront_size: " + std::to_string(d.wave))));
    CHECK(out.find("global_load_dwordx4") != out.npos);
  }
}
