// SPDX-License-Identifier: Apache-2.0
// Opens libtessera_cpu_jit.so, which lies one directory above the plugins, and hands it texts.
#include <dlfcn.h>

#include <filesystem>

#include "elf_loader.hpp"
#include "tessera/plugin.hpp"
#include "toolchains.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

bool have_clang() {
#ifdef TESSERA_CPU_WITH_CLANG
  return true;
#else
  return false;
#endif
}

namespace {

const char* const kHint = "reinstall Tessera and the packages llvm-19, libclang-cpp19; or set compiler = \"system\" in [cpu]";

std::string library_path() {
  Dl_info self{};
  dladdr(reinterpret_cast<const void*>(&library_path), &self);
  std::error_code e;
  const std::filesystem::path here = std::filesystem::absolute(self.dli_fname ? self.dli_fname : "", e).parent_path();
  for (const char* place : {"..", ".", "../lib/tessera"})  // beside the plugins; tests are programs and lie elsewhere
    if (std::filesystem::exists(here / place / "libtessera_cpu_jit.so", e)) return here / place / "libtessera_cpu_jit.so";
  return here.parent_path() / "libtessera_cpu_jit.so";
}

const cpu_jit_api* open_library() {
  const std::string path = library_path();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: code made by it may still run
  const char* why = library ? nullptr : dlerror();
  if (!library)
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-J002", "the compiler inside the process cannot be loaded: " + std::string(why),
                     kHint);
  const auto entry = reinterpret_cast<cpu_jit_entry>(dlsym(library, "tessera_cpu_jit"));
  const cpu_jit_api* api = entry ? entry() : nullptr;
  if (!api || api->version != CPU_JIT_API_VERSION || std::string_view(api->llvm) != TESSERA_CPU_LLVM_VERSION)
    throw sdk::Error(TSR_ENVIRONMENT, "TSR-J002", "'" + path + "' is of another build than the cpu backend", kHint);
  return api;
}

cpu_jit_sink into(std::string& s) {
  return {&s, [](void* self, const char* bytes, size_t n) { static_cast<std::string*>(self)->assign(bytes, n); }};
}

class LinkedModule final : public Module {
 public:
  LinkedModule(const Source& s, const std::string& object) {
    std::vector<const char*> symbols;
    for (const std::string& x : s.symbols) symbols.push_back(x.c_str());
    addresses_.resize(symbols.size());
    std::string error;
    module_ = clang_api().link(object.data(), object.size(), symbols.data(), symbols.size(), addresses_.data(), into(error));
    if (!module_) fail_text(s, "it does not link: " + error);
  }
  ~LinkedModule() override { clang_api().unlink(module_); }

 private:
  cpu_jit_module* module_ = nullptr;
};

}  // namespace

const cpu_jit_api& clang_api() {
  static const cpu_jit_api* const api = open_library();  // tried again by the next caller when it throws
  return *api;
}

std::string why_no_clang() {
  if (!have_clang()) return "this build has no compiler inside the process (LLVM 19 was not found)";
  try {
    clang_api();
    return {};
  } catch (const sdk::Error& e) {
    return e.what();
  }
}

std::string clang_build(const Source& s, const Isa& isa) {
  const std::string name = s.name + ".cpp";
  cpu_jit_request r{};
  r.name = name.c_str();
  r.text = s.text.c_str();
  r.length = s.text.size();
  r.cpu = isa.llvm_cpu;
  r.features = isa.llvm.data();
  r.num_features = isa.llvm.size();
  r.vector_bits = isa.vector_bits;
  r.optimize = s.optimize;
  std::string object, messages;
  if (!clang_api().compile(&r, into(object), into(messages))) fail_text(s, messages);
  return object;
}

ModulePtr clang_load(const Source& s, const std::string& object) {
  if (ModulePtr m = load_elf(object, s.symbols)) return m;
  return std::make_shared<LinkedModule>(s, object);
}

}  // namespace cpu
