// SPDX-License-Identifier: Apache-2.0
#include "libraries.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <system_error>

namespace tessera::cuda {

namespace {

namespace fs = std::filesystem;

std::string path_of(void* handle, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name) return map->l_name;
  return fallback;
}

std::vector<std::string> split(const char* list) {
  std::vector<std::string> out;
  std::istringstream in(list ? list : "");
  for (std::string item; std::getline(in, item, ':');)
    if (!item.empty()) out.push_back(item);
  return out;
}

// Folders that hold Python packages: those of libraries in this process, of the environment's variables and of the python3 on
// PATH.
std::vector<std::string> package_folders() {
  std::vector<std::string> out;
  std::set<std::string> seen;
  const auto add = [&](const fs::path& p) {
    std::error_code ignored;
    if (fs::is_directory(p / "nvidia", ignored) && seen.insert(p.string()).second) out.push_back(p.string());
  };
  const auto add_prefix = [&](const fs::path& prefix) {
    std::error_code ignored;
    for (const char* lib : {"lib", "lib64", "local/lib"})
      for (const auto& entry : fs::directory_iterator(prefix / lib, ignored))
        if (entry.path().filename().string().starts_with("python3")) {
          add(entry.path() / "site-packages");
          add(entry.path() / "dist-packages");
        }
  };
  std::vector<std::string> loaded;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* ctx) -> int {
        if (object->dlpi_name && *object->dlpi_name) static_cast<std::vector<std::string>*>(ctx)->push_back(object->dlpi_name);
        return 0;
      },
      &loaded);
  for (const std::string& name : loaded)
    for (const char* folder : {"/site-packages/", "/dist-packages/"})
      if (const size_t at = name.find(folder); at != std::string::npos)
        add(name.substr(0, at + std::string(folder).size() - 1));
  for (const std::string& item : split(std::getenv("PYTHONPATH"))) add(item);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = std::getenv(variable)) add_prefix(prefix);
  for (const std::string& folder : split(std::getenv("PATH"))) {
    const fs::path python = fs::path(folder) / "python3";
    std::error_code ignored;
    if (!fs::exists(python, ignored)) continue;
    add_prefix(fs::path(folder).parent_path());
    add_prefix(fs::canonical(python, ignored).parent_path().parent_path());
    break;
  }
  if (const char* home = std::getenv("HOME")) add_prefix(fs::path(home) / ".local");
  return out;
}

}  // namespace

namespace {

// Where a library may lie, best first: files that are there, then names that the dynamic linker may know.
std::vector<std::string> candidates(const LibraryNames& names, const std::string& wanted) {
  std::vector<std::string> out;
  const auto add_folder = [&](const fs::path& folder) {
    std::error_code ignored;
    for (const char* soname : names.sonames)
      if (fs::exists(folder / soname, ignored)) out.push_back((folder / soname).string());
  };
  if (!wanted.empty()) {  // whoever names a place wants that one, and no other
    std::error_code ignored;
    if (fs::is_directory(wanted, ignored))
      add_folder(wanted);
    else
      out.push_back(wanted);
    return out;
  }
  for (const std::string& folder : package_folders())
    for (const char* package : names.packages) add_folder(fs::path(folder) / "nvidia" / package / "lib");
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable)) add_folder(fs::path(home) / "lib64");
  add_folder("/usr/local/cuda/lib64");
  for (const char* soname : names.sonames) out.emplace_back(soname);
  return out;
}

// One that the process has loaded already.
void* loaded_library(const LibraryNames& names) {
  for (const char* soname : names.sonames)
    if (void* handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return handle;
  return nullptr;
}

}  // namespace

Library open_library(const LibraryNames& names, const std::string& wanted) {
  Library out;
  if (wanted.empty()) out.handle = loaded_library(names);
  if (out.handle) {
    out.path = path_of(out.handle, names.sonames[0]);
    return out;
  }
  for (const std::string& path : candidates(names, wanted)) {
    out.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (out.handle) {
      out.path = path_of(out.handle, path);
      return out;
    }
    out.tried.push_back(path);
  }
  if (out.tried.empty()) out.tried.push_back(wanted);
  return out;
}

std::string locate_library(const LibraryNames& names, const std::string& wanted) {
  if (void* handle = wanted.empty() ? loaded_library(names) : nullptr) return path_of(handle, names.sonames[0]);
  const std::vector<std::string> all = candidates(names, wanted);
  return all.empty() ? std::string() : all[0];
}

// exit() calls destructors of the main thread's own objects before all others.
struct BackgroundWork::AtThreadEnd {
  BackgroundWork* work = nullptr;
  ~AtThreadEnd() {
    if (work) work->wait();
  }
};

BackgroundWork::~BackgroundWork() { wait(); }

void BackgroundWork::wait() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) return;
  if (process_ == getpid())
    thread_.join();
  else
    thread_.detach();  // of the process that this one was forked from
}

void BackgroundWork::start(void (*work)(const std::string& argument), const std::string& argument) {
  thread_local AtThreadEnd waits;
  waits.work = this;
  std::call_once(once_, [&] {
    const std::lock_guard lock(mutex_);
    process_ = getpid();
    try {
      thread_ = std::thread(work, argument);
    } catch (const std::system_error&) {  // no thread is to be had: whoever needs the result makes it
    }
  });
}

}  // namespace tessera::cuda
