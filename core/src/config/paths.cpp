// SPDX-License-Identifier: Apache-2.0
#include "config/paths.hpp"

#include <dlfcn.h>

#include <filesystem>

namespace tessera::core {
namespace {

namespace fs = std::filesystem;

fs::path module_dir() {
  static const fs::path dir = [] {
    Dl_info info{};
    std::error_code error;
    if (dladdr(reinterpret_cast<const void*>(&module_dir), &info) == 0 || !info.dli_fname) return fs::current_path(error);
    // dli_fname is argv[0] for code that is linked into the program itself.
    fs::path file = fs::path(info.dli_fname).has_parent_path() ? fs::path(info.dli_fname) : fs::path("/proc/self/exe");
    const fs::path real = fs::canonical(file, error);
    return (error ? file : real).parent_path();
  }();
  return dir;
}

}  // namespace

std::string default_plugin_dir() {
  std::error_code error;
  const fs::path beside = module_dir() / "tessera" / "plugins";  // whatever the distribution calls its library directory
  if (fs::is_directory(beside, error)) return beside.string();
  return (module_dir().parent_path() / "lib" / "tessera" / "plugins").string();
}

std::string default_config_dir() { return (module_dir().parent_path() / "share" / "tessera" / "configs").string(); }

std::string resolve_config_path(const std::string& given) {
  std::error_code error;
  if (given.find('/') != std::string::npos || fs::exists(given, error)) return given;
  for (const std::string& name : {given, given + ".toml"}) {
    const fs::path installed = fs::path(default_config_dir()) / name;
    if (fs::is_regular_file(installed, error)) return installed.string();
  }
  return given;
}

}  // namespace tessera::core
