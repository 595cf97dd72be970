// SPDX-License-Identifier: Apache-2.0
#include "plugin/library.hpp"

#define BOOST_DLL_USE_STD_FS
#include <dlfcn.h>

#include <boost/dll/shared_library.hpp>
#include <filesystem>
#include <map>
#include <mutex>

namespace tessera::core {
namespace {

struct Opened {
  boost::dll::shared_library library;
  std::string hash;
};

struct Registry {
  std::mutex mutex;
  std::map<std::string, Opened> libraries;  // by canonical path
};

// Never destroyed, so that no library is closed at exit either.
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

OpenProblem classify(const std::string& reason, const std::string& path) {
  if (reason.find("undefined symbol") != std::string::npos) return OpenProblem::kUndefinedSymbol;
  // "libfoo.so.1: cannot open shared object file: No such file or directory" names the file that is missing.
  if (reason.find("cannot open shared object file") != std::string::npos && !reason.starts_with(path))
    return OpenProblem::kMissingDependency;
  return OpenProblem::kNotALibrary;
}

}  // namespace

OpenResult open_library(const std::string& path, const std::string& hash) {
  OpenResult out;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  const std::string key = error ? path : real.string();
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto at = r.libraries.find(key);
  if (at == r.libraries.end()) {
    boost::dll::shared_library library;
    boost::dll::fs::error_code failed;
    library.load(key, failed, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
    if (failed) {
      // Boost reports "Bad file descriptor" for every failure; the reason is still with the dynamic linker.
      const char* reason = dlerror();
      out.reason = reason ? reason : failed.message();
      out.problem = classify(out.reason, key);
      return out;
    }
    at = r.libraries.emplace(key, Opened{std::move(library), hash}).first;
  }
  if (at->second.hash != hash) {
    out.problem = OpenProblem::kReplaced;
    out.reason = "the file has changed since this process opened it";
    return out;
  }
  if (!at->second.library.has("tsr_plugin_query")) {
    out.problem = OpenProblem::kNoEntryPoint;
    out.reason = "it exports no symbol 'tsr_plugin_query'";
    return out;
  }
  out.query = &at->second.library.get<const tsr_plugin_desc*(const tsr_host_info*)>("tsr_plugin_query");
  return out;
}

}  // namespace tessera::core
