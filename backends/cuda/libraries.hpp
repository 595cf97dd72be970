// SPDX-License-Identifier: Apache-2.0
// Finds NVIDIA's libraries at run time: where an option says, in the process, in Python packages, in a toolkit, at the system's
// places.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tessera::cuda {

struct Library {
  void* handle = nullptr;  // null: not found
  std::string path;        // of the file that was opened
  std::vector<std::string> tried;
};

struct LibraryNames {
  std::span<const char* const> sonames;   // newest first: "libnvrtc.so.13", "libnvrtc.so.12"
  std::span<const char* const> packages;  // folders below nvidia/ of PyPI's packages: "cu13", "cuda_nvrtc"
};

// `wanted`: the value of an option, a file or a folder; "": none. Nothing is ever closed again.
Library open_library(const LibraryNames& names, const std::string& wanted);

// What open_library would try first, without opening it; empty: nothing.
std::string locate_library(const LibraryNames& names, const std::string& wanted);

// Work on a thread of its own, beside what the program does until it needs the result. The end of a thread that asked for it
// waits, and so does the process's where that is the main thread: before anything that a library which is being opened has
// registered for the end, which would otherwise run while the library begins.
class BackgroundWork {
 public:
  BackgroundWork() = default;
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  // The first call starts `work`, which must not throw. Thread-safe.
  void start(void (*work)(const std::string& argument), const std::string& argument);

 private:
  struct AtThreadEnd;
  void wait();

  std::once_flag once_;
  std::mutex mutex_;
  std::thread thread_;
  int process_ = 0;
};

}  // namespace tessera::cuda
