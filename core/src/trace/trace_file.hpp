// SPDX-License-Identifier: Apache-2.0
// The file that lines of a trace go to. Internal to trace/.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace tessera::core {

class TraceFile {
 public:
  ~TraceFile() { close(); }
  // "" or why not.
  std::string open(const std::string& dir, pid_t pid);
  void close();
  // One line with its newline, whole: an interrupted write goes on, a failed one returns errno. 0: written.
  int write(std::string_view line) const;
  bool is_open() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

// Which calls led here: "solve(int) (prog+0x1a2b)", the innermost first, without the frames of this library. JSON array.
std::string host_stack_json();

}  // namespace tessera::core
