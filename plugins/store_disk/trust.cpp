// SPDX-License-Identifier: Apache-2.0
#include "trust.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace tessera::store {

namespace {

std::string fault(const struct stat& s, const std::string& name, bool sticky_is_fine) {
  if (s.st_uid != geteuid() && s.st_uid != 0) return name + " belongs to user " + std::to_string(s.st_uid);
  const bool others_write = (s.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  // In a sticky folder (/tmp) others can add names, but neither rename nor remove those of this user.
  if (others_write && !(sticky_is_fine && (s.st_mode & S_ISVTX) != 0)) return name + " can be written by other users";
  return {};
}

}  // namespace

std::string why_not_exclusive(const std::string& folder) {
  char real[PATH_MAX];
  if (!realpath(folder.c_str(), real)) return folder + ": " + std::strerror(errno);
  std::string path = real;
  for (bool itself = true;; itself = false) {
    struct stat s {};
    if (stat(path.c_str(), &s) != 0) return path + ": " + std::strerror(errno);
    if (std::string why = fault(s, path, !itself); !why.empty()) return why;
    if (path == "/") return {};
    const size_t slash = path.find_last_of('/');
    path.resize(slash == 0 ? 1 : slash);
  }
}

}  // namespace tessera::store
