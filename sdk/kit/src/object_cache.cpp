// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/object_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace tessera::kit {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'S', 'R', 'O', 'B', 'J', '0', '1'};
constexpr uint64_t kMaxObject = uint64_t{1} << 28;

struct Header {
  char magic[8];
  uint64_t key_bytes, object_bytes, checksum;
};

// FNV-1a (Fowler, Noll, Vo). It only spreads file names and finds damage: equality of keys is decided by their text.
uint64_t fnv1a(std::string_view bytes, uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}
constexpr uint64_t kBasis = 0xcbf29ce484222325u;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool read_all(int fd, void* to, size_t n) {
  char* p = static_cast<char*>(to);
  while (n > 0) {
    const ssize_t got = read(fd, p, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, size_t n) {
  const char* p = static_cast<const char*>(from);
  while (n > 0) {
    const ssize_t put = write(fd, p, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    p += put;
    n -= static_cast<size_t>(put);
  }
  return true;
}

}  // namespace

std::string ObjectCache::path_of(std::string_view key) const {
  char name[48];
  std::snprintf(name, sizeof name, "/%016llx%016llx.o", static_cast<unsigned long long>(fnv1a(key, kBasis)),
                static_cast<unsigned long long>(fnv1a(key, kBasis ^ 0x9e3779b97f4a7c15u)));
  return directory_ + name;
}

std::optional<std::string> ObjectCache::get(std::string_view key) const {
  if (!enabled()) return {};
  const Descriptor file(open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return {};
  struct stat st {};
  Header h;
  // The bytes become code of this process: only files that nobody but this user could write are read.
  if (fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {};
  if (!read_all(file.get(), &h, sizeof h) || std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.key_bytes != key.size() ||
      h.object_bytes == 0 || h.object_bytes > kMaxObject ||
      static_cast<uint64_t>(st.st_size) != sizeof h + h.key_bytes + h.object_bytes)
    return {};
  std::string stored(key.size(), '\0'), object(h.object_bytes, '\0');
  if (!read_all(file.get(), stored.data(), stored.size()) || stored != key) return {};
  if (!read_all(file.get(), object.data(), object.size()) || fnv1a(object, kBasis) != h.checksum) return {};
  return object;
}

std::string ObjectCache::put(std::string_view key, std::string_view object) const {
  if (!enabled()) return {};
  std::error_code e;
  if (!fs::is_directory(directory_, e)) {
    fs::create_directories(fs::path(directory_).parent_path(), e);
    if (mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST)
      return "cannot create '" + directory_ + "': " + std::strerror(errno);
  }
  static std::atomic<unsigned> counter{0};
  const std::string path = path_of(key), beside = path + "." + std::to_string(getpid()) + "." + std::to_string(counter++);
  {
    const Descriptor file(open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return "cannot write '" + beside + "': " + std::strerror(errno);
    Header h{};
    std::memcpy(h.magic, kMagic, sizeof kMagic);
    h.key_bytes = key.size();
    h.object_bytes = object.size();
    h.checksum = fnv1a(object, kBasis);
    if (!write_all(file.get(), &h, sizeof h) || !write_all(file.get(), key.data(), key.size()) ||
        !write_all(file.get(), object.data(), object.size())) {
      const std::string why = "cannot write '" + beside + "': " + std::strerror(errno);
      unlink(beside.c_str());
      return why;
    }
  }
  if (rename(beside.c_str(), path.c_str()) != 0) {
    const std::string why = "cannot write '" + path + "': " + std::strerror(errno);
    unlink(beside.c_str());
    return why;
  }
  return {};
}

std::string default_cache_directory(std::string_view name) {
  const auto from = [name](const char* variable, const char* tail) {
    const char* value = std::getenv(variable);
    return value && *value == '/' ? std::string(value) + tail + std::string(name) : std::string();
  };
  for (const auto& [variable, tail] : {std::pair{"TESSERA_CACHE_DIR", "/"}, std::pair{"XDG_CACHE_HOME", "/tessera/"},
                                       std::pair{"HOME", "/.cache/tessera/"}})
    if (std::string d = from(variable, tail); !d.empty()) return d;
  return {};
}

}  // namespace tessera::kit
