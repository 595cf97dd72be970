// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

namespace tessera::core {

std::string TraceFile::open(const std::string& dir, pid_t pid) {
  close();
  std::error_code code;
  std::filesystem::create_directories(dir, code);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  // Process numbers come again, so the time is part of the name; two traces of one process in one second differ by the last
  // part.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    char name[96];
    std::snprintf(name, sizeof name, "tessera-%lld-%lld-%03d.jsonl", static_cast<long long>(now.tv_sec),
                  static_cast<long long>(pid), attempt);
    path_ = (std::filesystem::path(dir) / name).string();
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ >= 0) return {};
    if (errno != EEXIST) break;
  }
  const std::string why = std::strerror(errno);
  path_.clear();
  return why;
}

void TraceFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  path_.clear();
}

int TraceFile::write(std::string_view line) const {
  while (!line.empty()) {
    const ssize_t n = ::write(fd_, line.data(), line.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    line.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace tessera::core
