// SPDX-License-Identifier: Apache-2.0
// The cache over the disk store: what it keeps, what it refuses, who may share a folder.
#include "cache/cache.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "log/log.hpp"
#include "plugin/sha256.hpp"
#include "support.hpp"
#include "support/error.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

struct Warnings {
  std::string text;
  LogSink before = set_log_sink([this](std::string_view lines) { text += lines; });
  ~Warnings() { set_log_sink(std::move(before)); }
  bool has(const std::string& what) const { return text.find(what) != std::string::npos; }
};

const std::string kKey = sha256_hex("a"), kOther = sha256_hex("b");

std::string key_file(const TemporaryFolder& folder, const std::string& key = std::string(32, 'k')) {
  const std::string path = folder.path + "/key";
  write_bytes(path, key);
  chmod(path.c_str(), 0600);
  return path;
}

}  // namespace

TEST_CASE("what is put is got, by another context too") {
  const TemporaryFolder folder;
  {
    const auto context = make_context(folder.path + "/new/folder");
    Cache& cache = *context->cache();
    CHECK_FALSE(cache.get(CacheKind::kGraph, kKey));
    cache.put(CacheKind::kGraph, kKey, "payload");
    cache.put(CacheKind::kGraph, kKey, "newer");
    CHECK(cache.get(CacheKind::kGraph, kKey) == "newer");
  }
  const auto context = make_context(folder.path + "/new/folder");
  CHECK(context->cache()->get(CacheKind::kGraph, kKey) == "newer");
  REQUIRE(context->cache()->list().size() == 1);
  CHECK(context->cache()->list()[0].key == kKey);
  // No other user has anything to do with it.
  struct stat s {};
  REQUIRE(stat((folder.path + "/new/folder").c_str(), &s) == 0);
  CHECK((s.st_mode & 0077) == 0);
}

TEST_CASE("without a folder, or switched off, there is no cache") {
  const TemporaryFolder folder;
  unsetenv("TESSERA_CACHE_DIR");
  CHECK(make_context("")->cache() == nullptr);
  CHECK(make_context(folder.path, {}, "[cache]\ngraphs = false\nprofiles = false\n")->cache() == nullptr);
  setenv("TESSERA_GRAPH_CACHE", "0", 1);
  const auto off = make_context(folder.path);
  CHECK_FALSE(off->cache()->keeps(CacheKind::kGraph));
  CHECK(off->cache()->keeps(CacheKind::kProfile));
  off->cache()->put(CacheKind::kGraph, kKey, "x");
  CHECK(off->cache()->list().empty());
  unsetenv("TESSERA_GRAPH_CACHE");
  // The environment names the folder before the config does.
  const TemporaryFolder named;
  setenv("TESSERA_CACHE_DIR", named.path.c_str(), 1);
  CHECK(make_context(folder.path)->cache()->location() == named.path);
  unsetenv("TESSERA_CACHE_DIR");
}

TEST_CASE("damaged and foreign entries are refused with a warning, removed, and made again") {
  const TemporaryFolder folder;
  const auto context = make_context(folder.path);
  Cache& cache = *context->cache();
  cache.put(CacheKind::kGraph, kKey, "payload");
  const std::string file = entry_files(folder.path, kKey).at(0), whole = read_bytes(file);
  chmod(file.c_str(), 0600);

  const auto refused = [&](const std::string& bytes, const std::string& why) {
    write_bytes(file, bytes);
    Warnings warnings;
    CHECK_FALSE(make_context(folder.path)->cache()->get(CacheKind::kGraph, kKey));
    INFO(warnings.text);
    CHECK(warnings.has("tessera: warning: entry " + kKey.substr(0, 16) + " of the cache in '" + folder.path +
                       "' is refused and made again: " + why));
    CHECK(entry_files(folder.path, kKey).empty());
  };
  refused("", "it is no entry of a cache");
  refused(whole.substr(0, whole.size() - 1), "it holds 6 bytes, its header says 7");
  std::string changed = whole;
  changed.back() = 'X';
  refused(changed, "its bytes do not have the hash that it states");
  refused(encode_entry(CacheKind::kGraph, kOther, "payload", {}), "it stands under another key than its own");
  refused(encode_entry(CacheKind::kProfile, kKey, "payload", {}), "it is a profile, expected a graph");
  cache.put(CacheKind::kGraph, kKey, "again");
  CHECK(cache.get(CacheKind::kGraph, kKey) == "again");
}

TEST_CASE("an entry that is a link or a folder is not followed") {
  const TemporaryFolder folder;
  const auto context = make_context(folder.path);
  Cache& cache = *context->cache();
  cache.put(CacheKind::kGraph, kKey, "payload");
  const std::string file = entry_files(folder.path, kKey).at(0);
  std::filesystem::rename(file, folder.path + "/elsewhere");
  std::filesystem::create_symlink(folder.path + "/elsewhere", file);
  Warnings warnings;
  CHECK_FALSE(cache.get(CacheKind::kGraph, kKey));
  CHECK(warnings.has("cannot be read"));
}

TEST_CASE("a folder that others can write is refused, unless entries are signed") {
  const TemporaryFolder folder, keys;
  const std::string path = folder.path + "/shared";
  std::filesystem::create_directory(path);
  chmod(path.c_str(), 0777);
  {
    Warnings warnings;
    CHECK(make_context(path)->cache() == nullptr);
    CHECK(warnings.has("nothing is cached: another user could write to '" + path + "', and cached entries are code"));
  }
  const std::string config = "[cache]\nkey_file = \"" + key_file(keys) + "\"\n";
  {
    const auto context = make_context(path, {}, config);
    REQUIRE(context->cache());
    context->cache()->put(CacheKind::kGraph, kKey, "payload");
    CHECK(context->cache()->get(CacheKind::kGraph, kKey) == "payload");
  }
  // Somebody else's entry, unsigned or signed with a key of theirs.
  const std::string file = entry_files(path, kKey).at(0);
  for (const std::string& theirs : {std::string(), std::string(32, 'z')}) {
    write_bytes(file, encode_entry(CacheKind::kGraph, kKey, "evil", theirs));
    Warnings warnings;
    CHECK_FALSE(make_context(path, {}, config)->cache()->get(CacheKind::kGraph, kKey));
    CHECK(warnings.has("is refused"));
  }
}

TEST_CASE("a folder below one that others can write is refused too, a sticky one is fine") {
  const TemporaryFolder folder;
  const std::string open = folder.path + "/open", inner = open + "/inner";
  std::filesystem::create_directories(inner);
  chmod(inner.c_str(), 0700);
  chmod(open.c_str(), 0777);
  {
    Warnings warnings;
    CHECK(make_context(inner)->cache() == nullptr);
    CHECK(warnings.has(open + " can be written by other users"));
  }
  chmod(open.c_str(), 01777);
  CHECK(make_context(inner)->cache() != nullptr);
}

TEST_CASE("keys that others can read, or that are short, are a mistake") {
  const TemporaryFolder folder, keys;
  const std::string path = key_file(keys), config = "[cache]\nkey_file = \"" + path + "\"\n";
  chmod(path.c_str(), 0644);
  CHECK_THROWS_WITH(make_context(folder.path, {}, config),
                    Catch::Contains("TSR-K003") && Catch::Contains("can be read or written by other users"));
  key_file(keys, "short");
  CHECK_THROWS_WITH(make_context(folder.path, {}, config), Catch::Contains("holds 5 bytes; expected 32 to 4096"));
  std::filesystem::remove(path);
  CHECK_THROWS_WITH(make_context(folder.path, {}, config), Catch::Contains("No such file"));
}

TEST_CASE("a read-only folder serves and is left alone") {
  if (geteuid() != 0) return;  // needs a second user
  const TemporaryFolder folder;
  make_context(folder.path)->cache()->put(CacheKind::kGraph, kKey, "payload");
  // As a package would install it: everybody reads, only root writes.
  for (const auto& e : std::filesystem::recursive_directory_iterator(folder.path))
    chmod(e.path().c_str(), e.is_directory() ? 0755 : 0644);
  chmod(folder.path.c_str(), 0755);
  const pid_t child = fork();
  if (child == 0) {
    int failed = setuid(65534) != 0;
    // A build tree in root's home is closed to that user.
    if (access((std::string(getenv("TESSERA_BUILD_DIR") ? getenv("TESSERA_BUILD_DIR") : ".") + "/lib/tessera/plugins").c_str(),
               R_OK | X_OK) != 0)
      _exit(0);
    const auto context = make_context(folder.path);
    failed += !context->cache() || context->cache()->get(CacheKind::kGraph, kKey) != "payload";
    if (context->cache()) context->cache()->put(CacheKind::kGraph, kOther, "more");
    failed += !context->cache() || context->cache()->list().size() != 1;
    _exit(failed);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("past the limit the least recently used go") {
  const TemporaryFolder folder;
  const auto context = make_context(folder.path, {}, {}, {"disk.max_bytes=10000"});
  Cache& cache = *context->cache();
  const std::string payload(1000, 'x');
  for (int i = 0; i < 8; ++i) {  // 9728 bytes with their headers
    cache.put(CacheKind::kGraph, sha256_hex("old" + std::to_string(i)), payload);
    // Time passes: entry 0 is the oldest, but for the one that is used below.
    const utimbuf when{1000000 + i, 1000000 + i};
    REQUIRE(utime(entry_files(folder.path, sha256_hex("old" + std::to_string(i))).at(0).c_str(), &when) == 0);
  }
  REQUIRE(cache.get(CacheKind::kGraph, sha256_hex("old0")));
  cache.put(CacheKind::kGraph, kKey, payload);
  CHECK(cache.get(CacheKind::kGraph, kKey));
  CHECK(cache.get(CacheKind::kGraph, sha256_hex("old0")));
  CHECK_FALSE(cache.get(CacheKind::kGraph, sha256_hex("old1")));
  CHECK(cache.get(CacheKind::kGraph, sha256_hex("old7")));
  uint64_t total = 0;
  for (const Cache::Item& i : cache.list()) total += i.bytes;
  CHECK(total <= 10000);
  // By hand, down to nothing.
  CHECK(cache.prune(0).size() > 0);
  CHECK(cache.list().empty());
}

TEST_CASE("a bundle carries a cache to another machine") {
  const TemporaryFolder from, to;
  const auto source = make_context(from.path);
  for (int i = 0; i < 5; ++i)
    source->cache()->put(CacheKind::kGraph, sha256_hex(std::to_string(i)), "payload " + std::to_string(i));
  const std::string file = to.path + "/bundle";
  CHECK(source->cache()->export_bundle(file).entries == 5);
  const auto target = make_context(to.path + "/cache");
  CHECK(target->cache()->import_bundle(file).entries == 5);
  CHECK(target->cache()->get(CacheKind::kGraph, sha256_hex("3")) == "payload 3");
  std::string damaged = read_bytes(file);
  damaged[100] = static_cast<char>(damaged[100] ^ 1);
  write_bytes(file, damaged);
  CHECK_THROWS_WITH(target->cache()->import_bundle(file),
                    Catch::Contains("TSR-K001") && Catch::Contains("damaged or cut short"));
}

TEST_CASE("many threads share a cache") {
  const TemporaryFolder folder;
  const auto context = make_context(folder.path, {}, {}, {"disk.max_bytes=200000"});
  Cache& cache = *context->cache();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = sha256_hex(std::to_string((t * 7 + i) % 20));
        if (const auto found = cache.get(CacheKind::kGraph, key); found && !found->starts_with(key)) ++wrong;
        cache.put(CacheKind::kGraph, key, key + std::string(static_cast<size_t>(i * 37 % 5000), 'x'));
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}
