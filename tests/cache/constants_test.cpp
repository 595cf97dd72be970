// SPDX-License-Identifier: Apache-2.0
// Large constants: recognised by the file that they lie in, kept by content, mapped in the form that kernels read, and never
// stale.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "api/api.hpp"
#include "cache/cache.hpp"
#include "cache/constant_digests.hpp"
#include "cache/digest.hpp"
#include "graph_cache/cached.hpp"
#include "ir/dense.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "log/log.hpp"
#include "memory/tensor.hpp"
#include "plugin/sha256.hpp"
#include "run/executable.hpp"
#include "support.hpp"

using namespace tessera::core;
using namespace tessera::test;

namespace {

constexpr int64_t kSide = 192;  // a matrix of 144 KiB
constexpr size_t kBytes = kSide * kSide * sizeof(float);

// As one would read it anew: each opening is what a process sees.
class WeightFile {
 public:
  explicit WeightFile(std::string path) : path_(std::move(path)) {}
  void write(float first) const {  // in place: the same inode and size
    const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    std::vector<float> values(kSide * kSide);
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 7) - static_cast<float>(i % 5);
    REQUIRE(pwrite(fd, values.data(), kBytes, 0) == static_cast<ssize_t>(kBytes));
    close(fd);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Mapping {
  explicit Mapping(const std::string& path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    REQUIRE(fd >= 0);
    data = mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, fd, 0);
    REQUIRE(data != MAP_FAILED);
  }
  ~Mapping() {
    munmap(data, kBytes);
    close(fd);
  }
  Mapping(const Mapping&) = delete;
  int fd;
  void* data = nullptr;
};

class OneConstant final : public NamedConstants {
 public:
  explicit OneConstant(const void* data) : data_(data) {}
  bool print(std::string&, const tsr_tensor&) const override { return false; }
  const void* find(uint64_t, uint32_t, int64_t bytes) const override {
    return static_cast<size_t>(bytes) == kBytes ? data_ : nullptr;
  }

 private:
  const void* data_;
};

std::shared_ptr<Context> context_in(const std::string& folder, const std::string& backend,
                                    const std::vector<std::string>& overrides = {"cache.settle_seconds=2"}) {
  std::vector<std::string> load = {"tessera.opset.standard", "tessera.frontend.text", "tessera.pass.constant_fold",
                                   "tessera.backend.eager"};
  if (backend != "eager") load.push_back("tessera.backend." + backend);
  std::string order = backend == "eager" ? "\"eager\"" : "\"" + backend + "\", \"eager\"";
  return make_context(folder, load, "[pipeline]\npasses = [\"constant_fold\"]\n[backends]\norder = [" + order + "]\n",
                      overrides);
}

// y = x . w + (w + w): the second term is folded.
const char* const kFolds = R"(graph @net(%x: f32[192, 192] arg) -> (f32[192, 192])
{
  %w = constant {value = dense<f32[192, 192]: ref 0>}
  %p = dot_general %x, %w {lhs_contract = [1], rhs_contract = [0]} : f32[192, 192]
  %s = add %w, %w
  %y = add %p, %s
  return %y
})";

struct Result {
  bool hit = false;
  std::vector<float> y;
  int64_t made = 0, mapped = 0;  // bytes of forms
  std::string log;
};

// One process's worth: opens the file, compiles, runs on fixed numbers, and lets the cache be written. `context` keeps what it
// maps.
Result run(const std::shared_ptr<Context>& context, const WeightFile& file, bool named = true) {
  const auto mapping = std::make_shared<Mapping>(file.path());
  const OneConstant constants(mapping->data);
  ReadLimits limits;
  limits.constants = &constants;
  auto graph = parse_graph(context->ops(), kFolds, "net.tsr", limits);
  graph->keep(mapping);
  if (named) graph->sources().add(mapping->data, kBytes, mapping->fd, 0);
  Result out;
  const LogSink before = set_log_sink([&](std::string_view lines) { out.log += lines; });
  configure_logs("passes");
  const CompileOptions options = api::compile_options(context, context->config(), nullptr);
  const auto passes = context->pipeline(context->config());
  const auto executable = compile_cached(std::move(graph), {*context, context->config(), passes, options});
  configure_logs("");
  set_log_sink(before);
  out.hit = out.log.find("comes from the cache") != std::string::npos;
  const int64_t sizes[] = {kSide, kSide};
  const TensorRef x(tensor_create(TSR_F32, sizes, 0));
  for (int64_t i = 0; i < kSide * kSide; ++i)
    static_cast<float*>(x->desc.data)[i] = static_cast<float>(i % 11) - static_cast<float>(i % 3);
  tsr_tensor_handle* in[] = {x.get()};
  tsr_tensor_handle* y = nullptr;
  executable->run(in, {&y, 1});
  const TensorRef owner(y);
  out.y.assign(static_cast<float*>(y->desc.data), static_cast<float*>(y->desc.data) + kSide * kSide);
  out.made = executable->plan().form_bytes;
  out.mapped = executable->plan().mapped_bytes;
  if (context->cache()) context->cache()->flush();
  return out;
}

std::vector<float> expected(const WeightFile& file) { return run(context_in("", "eager"), file).y; }

std::vector<std::string> blobs_in(const std::string& folder) {
  std::vector<std::string> out;
  for (const std::string& path : entry_files(folder))
    if (read_bytes(path).size() > kBlobOffset && read_bytes(path)[12] == static_cast<char>(CacheKind::kBlob))
      out.push_back(path);
  return out;
}

// Longer than cache.settle_seconds, so that a file can be recognised.
void let_settle() { std::this_thread::sleep_for(std::chrono::milliseconds(3100)); }

// Not every file system says reliably when a file was written.
bool recognises_files(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool yes = !SourceFile::open(fd)->identity(0).empty();
  close(fd);
  return yes;
}

#ifdef TEST_WITH_CPU
const char* const kBackend = "cpu";
constexpr bool kHasForms = true;
#else
const char* const kBackend = "eager";
constexpr bool kHasForms = false;
#endif

}  // namespace

TEST_CASE("a digest does not depend on who computes it, and on every byte") {
  std::string bytes((size_t{5} << 19) + 3, 'x');
  const std::string digest = content_digest(bytes, true);
  CHECK(digest == content_digest(bytes, false));
  for (const size_t at : {size_t{0}, size_t{1} << 20, bytes.size() - 1}) {
    bytes[at] ^= 1;
    CHECK(content_digest(bytes, true) != digest);
    bytes[at] ^= 1;
  }
  bytes.push_back('x');
  CHECK(content_digest(bytes, true) != digest);
}

TEST_CASE("digests of many constants are those of each") {
  std::mt19937_64 random(5);
  std::vector<std::string> constants;
  for (const size_t size : {0, 1, 63, 64, 65, 1000, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, 7 << 19}) {
    std::string bytes(size, ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    constants.push_back(std::move(bytes));
  }
  const std::vector<std::string_view> views(constants.begin(), constants.end());
  for (const bool parallel : {false, true}) {
    const std::vector<std::string> digests = content_digests(views, parallel);
    REQUIRE(digests.size() == views.size());
    for (size_t i = 0; i < views.size(); ++i) CHECK(digests[i] == content_digest(views[i], false));
  }
}

TEST_CASE("the second process maps what the first one made") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  file.write(1);
  let_settle();
  const Result cold = run(context_in(folder.path, kBackend), file);
  INFO(cold.log);
  CHECK_FALSE(cold.hit);
  CHECK(cold.mapped == 0);
  CHECK((cold.made > 0) == kHasForms);
  // The folded sum, and the form of w.
  CHECK(blobs_in(folder.path).size() == (kHasForms ? 2 : 1));
  const Result warm = run(context_in(folder.path, kBackend), file);
  INFO(warm.log);
  CHECK(warm.hit);
  CHECK(warm.made == 0);
  CHECK(warm.mapped == cold.made);
  CHECK(warm.y == cold.y);
  CHECK(cold.y == expected(file));
  // Nothing was added: the second process knew the file, and that the blobs are sound.
  const size_t files = entry_files(folder.path).size();
  CHECK(run(context_in(folder.path, kBackend), file).hit);
  CHECK(entry_files(folder.path).size() == files);
  // The same bytes elsewhere are the same constant; so are those of nobody knows where.
  const WeightFile copy(models.path + "/copy");
  copy.write(1);
  let_settle();
  CHECK(run(context_in(folder.path, kBackend), copy).hit);
  CHECK(run(context_in(folder.path, kBackend), file, /*named=*/false).hit);
}

TEST_CASE("a file that was written over is another constant, whatever its times say") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  file.write(1);
  let_settle();
  struct stat before {};
  REQUIRE(stat(file.path().c_str(), &before) == 0);
  const Result first = run(context_in(folder.path, kBackend), file);
  REQUIRE(run(context_in(folder.path, kBackend), file).hit);
  file.write(2);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  REQUIRE(utimensat(AT_FDCWD, file.path().c_str(), times, 0) == 0);  // as a copy that keeps times would leave it
  struct stat after {};
  REQUIRE(stat(file.path().c_str(), &after) == 0);
  REQUIRE(after.st_ino == before.st_ino);
  REQUIRE(after.st_size == before.st_size);
  REQUIRE(after.st_mtim.tv_nsec == before.st_mtim.tv_nsec);
  const Result second = run(context_in(folder.path, kBackend), file);
  CHECK_FALSE(second.hit);
  CHECK(second.y != first.y);
  CHECK(second.y == expected(file));
  let_settle();
  CHECK(run(context_in(folder.path, kBackend), file).y == second.y);
  // And back: by its content it is the first again.
  file.write(1);
  let_settle();
  const Result third = run(context_in(folder.path, kBackend), file);
  CHECK(third.hit);
  CHECK(third.y == first.y);
}

TEST_CASE("what a file holds is believed only when it has been left alone") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  file.write(1);
  if (!recognises_files(file.path())) return;
  const int fd = open(file.path().c_str(), O_RDWR | O_CLOEXEC);
  CHECK(SourceFile::open(fd)->identity(2).empty());  // written just now: a further write might leave the same time
  let_settle();
  const auto source = SourceFile::open(fd);
  const std::string identity = source->identity(2);
  CHECK_FALSE(identity.empty());
  CHECK(source->identity(3600).empty());
  CHECK(source->unchanged());
  CHECK(SourceFile::open(fd)->identity(2) == identity);
  const float other = 5;
  REQUIRE(pwrite(fd, &other, sizeof other, 0) == sizeof other);
  CHECK(source->identity(2).empty());
  CHECK_FALSE(source->unchanged());
  let_settle();
  CHECK(source->identity(2).empty());
  CHECK(SourceFile::open(fd)->identity(2) != identity);
  close(fd);
}

TEST_CASE("a file that changes while its graph is compiled leaves nothing behind") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  const auto context = context_in(folder.path, kBackend);
  file.write(1);  // last, for a moment ago must not be two seconds ago, however slow the machine is
  const Result first = run(context, file);
  CHECK_FALSE(first.hit);
  CHECK(first.log.find("is not cached: a file that holds constants of it has just changed") != std::string::npos);
  CHECK(entry_files(folder.path).empty());
}

TEST_CASE("damaged, foreign and missing blobs are made again") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  file.write(1);
  let_settle();
  const Result first = run(context_in(folder.path, kBackend), file);
  const std::vector<std::string> blobs = blobs_in(folder.path);
  REQUIRE_FALSE(blobs.empty());
  for (const std::string& path : blobs) {
    const std::string whole = read_bytes(path);
    std::string flipped = whole, header = whole, between = whole;
    flipped.back() ^= 1;
    header[20] ^= 1;
    between[kBlobOffset - 1] ^= 1;
    const auto damaged = [&](const std::string& bytes, const char* what) {
      INFO(what);
      chmod(path.c_str(), 0600);
      write_bytes(path, bytes);
      const Result again = run(context_in(folder.path, kBackend), file);
      CHECK(again.log.find("is refused and made again") != std::string::npos);
      CHECK(again.y == first.y);
      CHECK(read_bytes(path) == whole);
      const Result after = run(context_in(folder.path, kBackend), file);
      CHECK(after.hit);
      CHECK(after.y == first.y);
    };
    damaged(flipped, "a byte of the memory");
    damaged(header, "a byte of the header");
    damaged(between, "a byte between them");
    damaged(whole.substr(0, whole.size() - 4096), "cut short");
    damaged("", "empty");
    unlink(path.c_str());
    const Result again = run(context_in(folder.path, kBackend), file);
    CHECK(again.y == first.y);
    CHECK(read_bytes(path) == whole);
  }
}

TEST_CASE("verify reads everything and removes what is damaged") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  file.write(1);
  let_settle();
  const Result first = run(context_in(folder.path, kBackend), file);
  const std::string path = blobs_in(folder.path).at(0);
  const auto context = context_in(folder.path, kBackend);
  CHECK(context->cache()->verify().refused == 0);
  std::string bytes = read_bytes(path);
  bytes[bytes.size() / 2] ^= 1;
  write_bytes(path, bytes);
  const Cache::Transfer t = context->cache()->verify();
  CHECK(t.refused == 1);
  CHECK(t.entries + 1 == entry_files(folder.path).size() + 1);
  CHECK(run(context_in(folder.path, kBackend), file).y == first.y);
}

TEST_CASE("users of one process share one mapping, other processes map the same entry") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  file.write(1);
  let_settle();
  run(context_in(folder.path, kBackend), file);
  CheckedBlobs checked;
  const auto context = context_in(folder.path, kBackend);
  const std::string path = blobs_in(folder.path).at(0), key = path.substr(path.size() - 64);
  const size_t bytes = read_bytes(path).size() - kBlobOffset;
  const auto one = context->cache()->map(key, bytes, checked), two = context->cache()->map(key, bytes, checked);
  REQUIRE(one);
  CHECK(one == two);
  CHECK(one->mapped());
  CHECK(reinterpret_cast<uintptr_t>(one->data()) % 4096 == 0);
  const pid_t child = fork();
  if (child == 0) {  // nothing parallel there: threads do not come along
    CheckedBlobs own;
    const auto theirs = make_context(folder.path)->cache()->map(key, bytes, own);
    _exit(theirs && theirs->data() != one->data() && theirs->view() == one->view() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  // One of another size is no use; it goes, and what is mapped stays.
  const std::string copy(one->view());
  CHECK(context->cache()->map(key, bytes - 1, checked) == nullptr);
  CHECK(entry_files(folder.path, key).empty());
  CHECK(one->view() == copy);
}

TEST_CASE("a folder that cannot be written serves its blobs, checked on each start") {
  if (geteuid() != 0) return;  // needs a second user
  const TemporaryFolder folder;
  const std::string key = sha256_hex("blob");
  {
    const auto context = make_context(folder.path);
    const auto blob = Blob::allocate(100000);
    std::memset(blob->fill(), 'x', blob->bytes());
    context->cache()->put_later(key, blob, std::make_shared<CheckedBlobs>());
    context->cache()->flush();
  }
  for (const auto& e : std::filesystem::recursive_directory_iterator(folder.path))
    std::filesystem::permissions(e.path(), static_cast<std::filesystem::perms>(e.is_directory() ? 0755 : 0644));
  chmod(folder.path.c_str(), 0755);
  const pid_t child = fork();
  if (child == 0) {
    const std::string plugins =
        std::string(getenv("TESSERA_BUILD_DIR") ? getenv("TESSERA_BUILD_DIR") : ".") + "/lib/tessera/plugins";
    if (setuid(65534) != 0) _exit(2);
    if (access(plugins.c_str(), R_OK | X_OK) != 0) _exit(0);  // a build tree in root's home is closed to that user
    const auto context = make_context(folder.path);
    CheckedBlobs checked;
    const auto blob = context->cache() ? context->cache()->map(key, 100000, checked) : nullptr;
    if (!blob || blob->view() != std::string(100000, 'x') || !checked.changed()) _exit(1);
    context->cache()->put_later(sha256_hex("other"), blob, std::make_shared<CheckedBlobs>());
    context->cache()->flush();
    _exit(context->cache()->list().size() == 1 ? 0 : 3);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("an entry beyond the limit is not kept, and pushes nothing out") {
  const TemporaryFolder folder, models;
  const WeightFile file(models.path + "/weights");
  file.write(1);
  let_settle();
  const std::vector<std::string> small = {"cache.settle_seconds=2", "disk.max_bytes=100000"};
  const auto context = context_in(folder.path, kBackend, small);
  context->cache()->put(CacheKind::kProfile, sha256_hex("p"), "kept");
  const Result first = run(context, file);
  CHECK(blobs_in(folder.path).empty());
  CHECK(context->cache()->get(CacheKind::kProfile, sha256_hex("p")) == "kept");
  CHECK(run(context_in(folder.path, kBackend, small), file).y == first.y);
}

TEST_CASE("blobs count towards the limit") {
  const TemporaryFolder folder;
  const auto context = make_context(folder.path, {}, {}, {"disk.max_bytes=400000"});
  Cache& cache = *context->cache();
  const auto checked = std::make_shared<CheckedBlobs>();
  for (int i = 0; i < 8; ++i) {
    const auto blob = Blob::allocate(100000);
    std::memset(blob->fill(), i, 100000);
    cache.put_later(sha256_hex(std::to_string(i)), blob, checked);
  }
  cache.flush();
  uint64_t total = 0;
  for (const Cache::Item& i : cache.list()) total += i.bytes;
  CHECK(total <= 400000);
  CHECK(total >= 200000);
}

TEST_CASE("a folder that others can write has no blobs, signed or not") {
  const TemporaryFolder folder, keys, models;
  const std::string path = folder.path + "/shared";
  mkdir(path.c_str(), 0700);
  chmod(path.c_str(), 0777);
  write_bytes(keys.path + "/key", std::string(32, 'k'));
  chmod((keys.path + "/key").c_str(), 0600);
  const WeightFile file(models.path + "/weights");
  file.write(1);
  let_settle();
  const std::vector<std::string> overrides = {"cache.settle_seconds=2", "cache.key_file=\"" + keys.path + "/key\""};
  const Result first = run(context_in(path, kBackend, overrides), file);
  CHECK(blobs_in(path).empty());
  const Result second = run(context_in(path, kBackend, overrides), file);
  CHECK(second.hit);  // the graph itself is small
  CHECK(second.mapped == 0);
  CHECK(second.y == first.y);
}
