// SPDX-License-Identifier: Apache-2.0
#include "disk_store.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <tessera/plugin.hpp>
#include <vector>

#include "trust.hpp"

namespace tessera::store {

namespace {

using sdk::Error;

constexpr int64_t kLeftoverSeconds = 3600;
constexpr int64_t kRecencySeconds = 60;

[[noreturn]] void fail(const std::string& what, const std::string& path) {
  const int code = errno;
  throw Error(TSR_ENVIRONMENT, "TSR-K010", "cannot " + what + " '" + path + "': " + std::strerror(code));
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  int get() const { return fd_; }
  void reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  // Errors of delayed writes appear here.
  int close() {
    const int r = ::close(fd_);
    fd_ = -1;
    return r;
  }

 private:
  int fd_;
};

// An entry that nobody has read yet was used when it was written.
int64_t used(const struct stat& s) { return static_cast<int64_t>(std::max(s.st_atime, s.st_mtime)); }

void make_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail("make the folder", path);
}

// Missing parents too, each for this user alone.
void make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST && access(part.c_str(), F_OK) != 0) fail("make the folder", part);
  }
  make_folder(path);
}

void sync_folder(const std::string& path) {
  const File folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) fsync(folder.get());
}

bool is_key(const std::string& s) {
  return s.size() == 64 &&
         std::all_of(s.begin(), s.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  DIR* dir = opendir(folder.c_str());
  if (!dir) return out;
  while (const dirent* e = readdir(dir))
    if (e->d_name[0] != '.') out.emplace_back(e->d_name);
  closedir(dir);
  return out;
}

}  // namespace

DiskStore::DiskStore(std::string path, uint64_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

DiskStore::Info DiskStore::info() {
  Info out;
  if (path_.empty()) return out;
  struct stat s {};
  if (stat(path_.c_str(), &s) != 0) {
    make_folders(path_);
  } else if (!S_ISDIR(s.st_mode)) {
    throw Error(TSR_USER, "TSR-K011", "'" + path_ + "' is not a folder", "name a folder in TESSERA_CACHE_DIR or disk.path");
  }
  if (access(path_.c_str(), R_OK | X_OK) != 0) fail("read", path_);
  out.writable = access(path_.c_str(), W_OK | X_OK) == 0;
  if (out.writable) {
    make_folder(root());
    make_folder(root() + "/new");
    out.writable = access((root() + "/new").c_str(), W_OK | X_OK) == 0;
  }
  // What is inside decides too: the folder may be this user's and "1" somebody else's.
  out.why = why_not_exclusive(access(root().c_str(), F_OK) == 0 ? root() : path_);
  out.exclusive = out.why.empty();
  return out;
}

std::string DiskStore::file_of(const std::string& key) const {
  if (!is_key(key)) throw Error(TSR_BUG, "TSR-K012", "'" + key + "' is no key: expected 64 lower-case hex digits");
  return root() + "/" + key.substr(0, 2) + "/" + key;
}

namespace {

// False: there is none.
bool open_entry(const std::string& path, File& file, struct stat* s) {
  file.reset(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return false;
    fail("open", path);
  }
  if (fstat(file.get(), s) != 0) fail("look at", path);
  if (!S_ISREG(s->st_mode)) throw Error(TSR_ENVIRONMENT, "TSR-K010", "'" + path + "' is not a file");
  return true;
}

// A read-only folder cannot remember; its owner prunes it.
void note_use(const File& file, const struct stat& s) {
  if (time(nullptr) - used(s) <= kRecencySeconds) return;
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  futimens(file.get(), times);
}

}  // namespace

bool DiskStore::get(const std::string& key, const std::function<void*(size_t)>& alloc) {
  const std::string path = file_of(key);
  File file(-1);
  struct stat s {};
  if (!open_entry(path, file, &s)) return false;
  auto* to = static_cast<char*>(alloc(static_cast<size_t>(s.st_size)));
  if (!to && s.st_size > 0)
    throw Error(TSR_ENVIRONMENT, "TSR-R001", "out of memory for an entry of " + std::to_string(s.st_size) + " bytes");
  for (off_t at = 0; at < s.st_size;) {
    const ssize_t n = pread(file.get(), to + at, static_cast<size_t>(s.st_size - at), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path);
    if (n == 0) throw Error(TSR_ENVIRONMENT, "TSR-K010", "'" + path + "' became shorter while it was read");
    at += n;
  }
  note_use(file, s);
  return true;
}

bool DiskStore::map(const std::string& key, Mapping* out) {
  const std::string path = file_of(key);
  File file(-1);
  struct stat s {};
  if (!open_entry(path, file, &s)) return false;
  out->length = static_cast<size_t>(s.st_size);
  if (out->length > 0) {
    void* p = mmap(nullptr, out->length, PROT_READ, MAP_SHARED, file.get(), 0);
    if (p == MAP_FAILED) fail("map", path);
    out->bytes = p;
  }
  out->identity[0] = s.st_dev;
  out->identity[1] = s.st_ino;
  out->identity[2] = static_cast<uint64_t>(s.st_size);
  out->identity[3] = static_cast<uint64_t>(s.st_mtim.tv_sec) * 1000000000u + static_cast<uint64_t>(s.st_mtim.tv_nsec);
  note_use(file, s);
  return true;
}

void DiskStore::unmap(const void* bytes, size_t length) {
  if (length > 0) munmap(const_cast<void*>(bytes), length);
}

void DiskStore::put(const std::string& key, std::span<const tsr_part> parts) {
  const std::string path = file_of(key), folder = path.substr(0, path.size() - key.size() - 1);
  size_t length = 0;
  for (const tsr_part& p : parts) length += p.length;
  if (max_bytes_ > 0 && length > max_bytes_) return;  // it would push out everything else, and then itself
  make_room(length);
  make_folder(folder);
  const std::string unfinished =
      root() + "/new/" + std::to_string(getpid()) + "-" + std::to_string(time(nullptr)) + "-" + std::to_string(next_++);
  try {
    File file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) fail("make", unfinished);
    for (const tsr_part& part : parts) {
      const auto* from = static_cast<const char*>(part.bytes);
      for (size_t left = part.length; left > 0;) {
        const ssize_t n = ::write(file.get(), from, left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("write", unfinished);
        from += n;
        left -= static_cast<size_t>(n);
      }
    }
    // The bytes must be on the disk before the name is, or a loss of power could leave an empty entry under it.
    if (fsync(file.get()) != 0) fail("write", unfinished);
    if (file.close() != 0) fail("write", unfinished);
    if (rename(unfinished.c_str(), path.c_str()) != 0) fail("make", path);
  } catch (...) {
    unlink(unfinished.c_str());
    throw;
  }
  sync_folder(folder);
}

void DiskStore::remove(const std::string& key) {
  const std::string path = file_of(key);
  if (unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) fail("remove", path);
}

void DiskStore::list(const std::function<void(const std::string&, uint64_t, int64_t)>& each) {
  for (const std::string& part : names_in(root())) {
    if (part.size() != 2) continue;
    for (const std::string& key : names_in(root() + "/" + part)) {
      struct stat s {};
      if (!is_key(key) || lstat((root() + "/" + part + "/" + key).c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;
      each(key, static_cast<uint64_t>(s.st_size), used(s));
    }
  }
}

// Removes the least recently used entries down to nine tenths of the limit, so that this does not happen at every put.
void DiskStore::make_room(uint64_t added) {
  const std::lock_guard lock(mutex_);
  const auto limit = static_cast<int64_t>(std::min<uint64_t>(max_bytes_, INT64_MAX));
  if (estimate_ >= 0) estimate_ += static_cast<int64_t>(added);
  if (estimate_ >= 0 && (limit == 0 || estimate_ <= limit)) return;
  for (const std::string& name : names_in(root() + "/new")) {
    const std::string path = root() + "/new/" + name;
    struct stat s {};
    if (lstat(path.c_str(), &s) == 0 && time(nullptr) - s.st_mtime > kLeftoverSeconds) unlink(path.c_str());
  }
  struct Item {
    int64_t used;
    uint64_t bytes;
    std::string key;
  };
  std::vector<Item> items;
  int64_t total = static_cast<int64_t>(added);
  list([&](const std::string& key, uint64_t bytes, int64_t used) {
    items.push_back({used, bytes, key});
    total += static_cast<int64_t>(bytes);
  });
  if (limit > 0 && total > limit) {
    std::sort(items.begin(), items.end(),
              [](const Item& a, const Item& b) { return a.used != b.used ? a.used < b.used : a.key < b.key; });
    for (const Item& i : items) {
      if (total <= limit / 10 * 9) break;
      remove(i.key);
      total -= static_cast<int64_t>(i.bytes);
    }
  }
  estimate_ = total;
}

}  // namespace tessera::store
