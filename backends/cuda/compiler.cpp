// SPDX-License-Identifier: Apache-2.0
#include "compiler.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "libraries.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr const char* kSonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
constexpr const char* kPackages[] = {"cu13", "cuda_nvrtc"};

}  // namespace

// As nvrtc.h declares them; results are nvrtcResult.
struct Compiler::Api {
  int (*version)(int* major, int* minor) = nullptr;
  int (*num_architectures)(int* count) = nullptr;
  int (*architectures)(int* out) = nullptr;
  int (*create)(Program* out, const char* text, const char* name, int num_headers, const char* const* headers,
                const char* const* names) = nullptr;
  int (*destroy)(Program* program) = nullptr;
  int (*compile)(Program program, int num_options, const char* const* options) = nullptr;
  int (*log_size)(Program program, size_t* bytes) = nullptr;
  int (*log)(Program program, char* out) = nullptr;
  int (*cubin_size)(Program program, size_t* bytes) = nullptr;
  int (*cubin)(Program program, char* out) = nullptr;
  const char* (*error_string)(int result) = nullptr;
};

Compiler::Compiler(const std::string& wanted) : api_(std::make_shared<Api>()) {
  const Library library = open_library({kSonames, kPackages}, wanted);
  const char* const hint =
      "pip install nvidia-cuda-nvrtc (or nvidia-cuda-nvrtc-cu12), or install a CUDA toolkit, or name the library "
      "in [cuda] nvrtc";
  if (!library.handle) {
    std::string tried;
    for (const std::string& path : library.tried) tried += (tried.empty() ? "" : ", ") + path;
    throw t::Error(TSR_ENVIRONMENT, "TSR-H004", "NVRTC, which compiles CUDA kernels, was not found; tried: " + tried, hint);
  }
  path_ = library.path;
  bool all = true;
  const auto find = [&](auto& f, const char* name) {
    f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library.handle, name));
    all = all && f;
  };
  find(api_->version, "nvrtcVersion"), find(api_->num_architectures, "nvrtcGetNumSupportedArchs");
  find(api_->architectures, "nvrtcGetSupportedArchs"), find(api_->create, "nvrtcCreateProgram");
  find(api_->destroy, "nvrtcDestroyProgram"), find(api_->compile, "nvrtcCompileProgram");
  find(api_->log_size, "nvrtcGetProgramLogSize"), find(api_->log, "nvrtcGetProgramLog");
  find(api_->cubin_size, "nvrtcGetCUBINSize"), find(api_->cubin, "nvrtcGetCUBIN");
  find(api_->error_string, "nvrtcGetErrorString");
  int major = 0, minor = 0, count = 0;
  if (!all || api_->version(&major, &minor) != 0 || major < 12)
    throw t::Error(TSR_ENVIRONMENT, "TSR-H004", "NVRTC of " + path_ + " is too old: expected version 12 or newer", hint);
  version_ = major * 1000 + minor * 10;
  if (api_->num_architectures(&count) == 0 && count > 0) {
    architectures_.resize(static_cast<size_t>(count));
    api_->architectures(architectures_.data());
  }
}

std::string Compiler::version_text() const {
  return std::to_string(version_ / 1000) + "." + std::to_string(version_ % 1000 / 10);
}

std::shared_ptr<const std::string> Compiler::kept(const std::string& text, const std::string& architecture) {
  std::shared_ptr<Slot> slot;
  {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Slot>& kept = kept_[architecture + "\n" + text];
    if (!kept) kept = std::make_shared<Slot>();
    slot = kept;
  }
  std::lock_guard lock(slot->mutex);
  if (!slot->cubin) slot->cubin = std::make_shared<const std::string>(compile(text, architecture));
  return slot->cubin;
}

std::string Compiler::compile(const std::string& text, const std::string& architecture) {
  const int number = std::atoi(architecture.c_str() + std::min<size_t>(3, architecture.size()));
  if (!architectures_.empty() && std::find(architectures_.begin(), architectures_.end(), number) == architectures_.end()) {
    std::string known;
    for (const int a : architectures_) known += (known.empty() ? "sm_" : ", sm_") + std::to_string(a);
    throw t::Error(
        TSR_ENVIRONMENT, "TSR-H009",
        "NVRTC " + version_text() + " (" + path_ + ") does not know the architecture " + architecture + "; it knows " + known,
        "install an NVRTC that does (pip install --upgrade nvidia-cuda-nvrtc)");
  }
  struct Holder {
    const Api& api;
    Program program = nullptr;
    ~Holder() {
      if (program) api.destroy(&program);
    }
  } p{*api_};
  const auto need = [&](int result, const char* call) {
    if (result != 0)
      throw t::Error(TSR_ENVIRONMENT, "TSR-H006", std::string(call) + ": " + api_->error_string(result) + " (" + path_ + ")");
  };
  need(api_->create(&p.program, text.c_str(), "tessera.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::string arch = "--gpu-architecture=" + architecture;
  // Contraction would round a product and a sum of two ops once. Threads of the compiler are the host's to give out.
  const char* const options[] = {arch.c_str(),          "--std=c++17", "--fmad=false", "--device-as-default-execution-space",
                                 "--no-source-include", "-w"};
  const int result = api_->compile(p.program, static_cast<int>(std::size(options)), options);
  if (result != 0) {
    size_t bytes = 0;
    std::string log;
    if (api_->log_size(p.program, &bytes) == 0 && bytes > 1) {
      log.resize(bytes - 1);
      api_->log(p.program, log.data());
    }
    throw t::Error(TSR_BUG, "TSR-B046",
                   "NVRTC " + version_text() + " does not compile a kernel for " + architecture + ": " +
                       (log.empty() ? api_->error_string(result) : log.substr(0, 2000)),
                   "TESSERA_LOGS=kernel_code prints the text; report it");
  }
  size_t bytes = 0;
  need(api_->cubin_size(p.program, &bytes), "nvrtcGetCUBINSize");
  std::string out(bytes, '\0');
  need(api_->cubin(p.program, out.data()), "nvrtcGetCUBIN");
  return out;
}

// ------------------------------------------------------------------------------------------------------------ modules

namespace {

struct Modules {
  std::mutex mutex;
  std::map<std::pair<Gpu*, std::string>, CUmodule> loaded;  // by content
  static Modules& get() {
    static auto* m = new Modules;  // never destroyed, as modules
    return *m;
  }
};

}  // namespace

Function load_function(Gpu& gpu, const std::shared_ptr<const std::string>& cubin, const std::string& entry) {
  const Gpu::Scope scope(gpu);
  const Driver& d = gpu.driver();
  Modules& modules = Modules::get();
  std::lock_guard lock(modules.mutex);
  CUmodule& module = modules.loaded[{&gpu, *cubin}];
  if (!module) gpu.check(d.cuModuleLoadData(&module, cubin->data()), "cuModuleLoadData");
  Function f;
  f.gpu = &gpu;
  gpu.check(d.cuModuleGetFunction(&f.handle, module, entry.c_str()), "cuModuleGetFunction");
  Gpu::keep_name(f.handle, entry);
  // A launch may give all shared memory that the function does not take itself; without this it may give 48 KiB.
  int taken = 0;
  gpu.check(d.cuFuncGetAttribute(&taken, kFuncStaticShared, f.handle), "cuFuncGetAttribute");
  const int rest = gpu.attribute(kSharedPerBlockOptin) - taken;
  if (rest > 0) gpu.check(d.cuFuncSetAttribute(f.handle, kFuncMaxDynamicShared, rest), "cuFuncSetAttribute");
  return f;
}

}  // namespace tessera::cuda
