// SPDX-License-Identifier: Apache-2.0
#include "dnn.hpp"

#include <dlfcn.h>

#include "libraries.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr const char* kDnnSonames[] = {"libcudnn.so.9"};
constexpr const char* kDnnPackages[] = {"cudnn"};

}  // namespace

std::shared_ptr<Dnn> Dnn::open(const std::string& wanted, std::string* why) {
  const Library library = open_library({kDnnSonames, kDnnPackages}, wanted);
  if (!library.handle) {
    std::string tried;
    for (const std::string& path : library.tried) tried += (tried.empty() ? "" : ", ") + path;
    *why = "cuDNN was not found (tried " + tried + ")";
    return nullptr;
  }
  auto dnn = std::make_shared<Dnn>();
  dnn->path_ = library.path;
  std::string missing;
#define TESSERA_DNN_LOAD(name, result, parameters)                                 \
  dnn->name = reinterpret_cast<decltype(dnn->name)>(dlsym(library.handle, #name)); \
  if (!dnn->name) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  TESSERA_DNN_FUNCTIONS(TESSERA_DNN_LOAD)
#undef TESSERA_DNN_LOAD
  if (!missing.empty()) {
    *why = "cuDNN of " + library.path + " lacks " + missing;
    return nullptr;
  }
  return dnn;
}

std::string Dnn::locate(const std::string& wanted) { return locate_library({kDnnSonames, kDnnPackages}, wanted); }

std::string Dnn::version_text() const {
  const size_t v = cudnnGetVersion();  // 91400: 9.14.0
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

void Dnn::check(int status, const char* call, const std::string& what) const {
  if (status == 0) return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  const char* text = cudnnGetErrorString(status);
  throw t::Error(TSR_ENVIRONMENT, "TSR-R031",
                 std::string("cuDNN: ") + call + ": " + (text ? text : "error") + " (" + std::to_string(status) + ")" +
                     (*detail ? std::string(", ") + detail : "") + ", for " + what,
                 "[cuda] cudnn = \"off\" computes without it");
}

Dnn::Handle& Dnn::handle(Gpu& gpu) {
  const Gpu::Scope scope(gpu);
  std::lock_guard lock(mutex_);
  Handle& h = handles_[&gpu];
  if (!h.handle) check(cudnnCreate(&h.handle), "cudnnCreate", "a device");
  return h;
}

const std::shared_ptr<Dnn>& LazyDnn::get() {
  std::call_once(opened_, [&] {
    if (wanted_ == "off")
      why_ = "[cuda] cudnn = \"off\"";
    else
      dnn_ = Dnn::open(wanted_, &why_);
  });
  return dnn_;
}

}  // namespace tessera::cuda
