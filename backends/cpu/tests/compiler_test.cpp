// SPDX-License-Identifier: Apache-2.0
// From text to code, without a compiler of tensor programs around it.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "bare_host.hpp"
#include "jit/compiler.hpp"
#include "jit/elf_loader.hpp"
#include "jit/toolchains.hpp"
#include "tessera/plugin.hpp"

namespace {

namespace fs = std::filesystem;
namespace sdk = tessera::sdk;
using namespace cpu;

const bool host_is_set = (bare::set_host(), true);

class Directory {
 public:
  Directory() {
    char path[] = "/tmp/tessera-compiler-test-XXXXXX";
    REQUIRE(mkdtemp(path));
    path_ = path;
  }
  ~Directory() { fs::remove_all(path_); }
  std::string cache() const { return path_ + "/made/on/demand"; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<Toolchain> toolchains() {
  std::vector<Toolchain> out = {Toolchain::kSystem};
  if (have_clang()) out.push_back(Toolchain::kClang);
  return out;
}

Compiler::Options with(Toolchain t, const std::string& cache = {}, const Isa* isa = &native_isa()) {
  Compiler::Options o;
  o.toolchain = t;
  o.isa = isa;
  o.cache_directory = cache;
  return o;
}

Source constant(const std::string& name, int value) {
  return {name, "extern \"C\" int f() { return " + std::to_string(value) + "; }\n", {"f"}};
}

int call(const ModulePtr& m, size_t symbol = 0) { return m->function<int()>(symbol)(); }

std::string only_file(const std::string& directory) {
  std::string found;
  for (const auto& e : fs::directory_iterator(directory)) {
    REQUIRE(found.empty());
    found = e.path();
  }
  REQUIRE(!found.empty());
  return found;
}

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

sdk::Error error_of(Compiler& c, const Source& s) {
  try {
    c.compile(s);
  } catch (const sdk::Error& e) {
    return e;
  }
  FAIL("nothing was thrown");
  return {TSR_BUG, "", ""};
}

// A kernel with everything that generated text uses: explicit vectors of any width, helpers, a constant table, calls of libm
// and memcpy.
const char* const kKernel = R"(
#if defined(__AVX512F__)
#define W 16
#elif defined(__AVX2__)
#define W 8
#else
#define W 4
#endif
typedef float vec __attribute__((vector_size(4 * W)));
struct args { const float* x; float* y; };
static const float kTable[4] = {0.5f, 0.25f, 2.0f, 3.0f};
template <class T> static inline __attribute__((always_inline)) T poly(T x) { return (x * kTable[0] + kTable[1]) * x + kTable[2]; }
extern "C" float expf(float);
extern "C" void kernel(const args* a, long begin, long end) {
  long i = begin;
  for (; i + W <= end; i += W) {
    vec x;
    __builtin_memcpy(&x, a->x + i, sizeof x);
    vec y = poly(x);
    __builtin_memcpy(a->y + i, &y, sizeof y);
  }
  for (; i < end; ++i) a->y[i] = poly(a->x[i]);
}
extern "C" float scalar(float x) { return expf(x); }
)";

}  // namespace

TEST_CASE("text becomes code, on every instruction set and by both toolchains, with the same bits") {
  std::vector<float> x(1003), want(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i) * 0.37f - 180.0f;
    want[i] = (x[i] * 0.5f + 0.25f) * x[i] + 2.0f;
  }
  for (const Toolchain t : toolchains())
    for (const Isa& isa : all_isas()) {
      if (!can_run(isa)) continue;
      INFO(isa.name);
      for (const int optimize : {1, 2}) {
        Compiler c(with(t, {}, &isa));
        const ModulePtr m = c.compile(Source{"kernel", kKernel, {"scalar", "kernel"}, optimize});
        CHECK(m->function<float(float)>(0)(1.0f) == std::exp(1.0f));
        struct {
          const float* x;
          float* y;
        } args;
        std::vector<float> y(x.size(), -1.0f);
        args = {x.data(), y.data()};
        m->function<void(const void*, long, long)>(1)(&args, 0, 500);
        m->function<void(const void*, long, long)>(1)(&args, 500, static_cast<long>(x.size()));
        CHECK(std::memcmp(y.data(), want.data(), y.size() * sizeof(float)) == 0);
      }
    }
}

TEST_CASE("clang's objects are loaded without LLVM, and damaged ones never end the process") {
  if (!have_clang()) return;
  const Source s{"kernel", kKernel, {"scalar", "kernel"}};
  const std::string object = clang_build(s, native_isa());
  const ModulePtr m = load_elf(object, s.symbols);
  REQUIRE(m);  // else every start would load LLVM
  CHECK(m->function<float(float)>(0)(2.0f) == std::exp(2.0f));
  std::vector<float> x(37, 3.0f), y(37);
  struct {
    const float* x;
    float* y;
  } args{x.data(), y.data()};
  m->function<void(const void*, long, long)>(1)(&args, 0, 37);
  CHECK(y == std::vector<float>(37, (3.0f * 0.5f + 0.25f) * 3.0f + 2.0f));
  CHECK_FALSE(load_elf(object, {"kernel", "missing"}));
  // What it has no answer for is left to ORC.
  Source data = constant("k", 0);
  data.text = "static int n; extern \"C\" int f() { return n++; }\n";
  CHECK_FALSE(load_elf(clang_build(data, native_isa()), data.symbols));
  Compiler c(with(Toolchain::kClang));
  const ModulePtr counter = c.compile(data);
  CHECK(call(counter) == 0);
  CHECK(call(counter) == 1);
  for (size_t n = 0; n < object.size(); n += 7) load_elf(object.substr(0, n), s.symbols);
  unsigned seed = 11;
  for (int i = 0; i < 20000; ++i) {
    std::string bad = object;
    for (int k = 0; k <= i % 3; ++k) {
      seed = seed * 1664525 + 1013904223;
      // Half of them in the headers of the file and of sections, which say where everything is.
      const size_t at = (seed >> 8) % bad.size();
      bad[i % 2 ? at : at % 64] = static_cast<char>(seed >> 24);
    }
    load_elf(bad, s.symbols);
  }
}

TEST_CASE("several sources at once: equal texts share a module") {
  for (const Toolchain t : toolchains()) {
    Compiler c(with(t));
    std::vector<Source> sources;
    for (int i = 0; i < 6; ++i) sources.push_back(constant("k" + std::to_string(i), i % 4));
    const std::vector<ModulePtr> m = c.compile(sources);
    for (int i = 0; i < 6; ++i) CHECK(call(m[static_cast<size_t>(i)]) == i % 4);
    CHECK(m[0] == m[4]);
    CHECK(m[0] != m[1]);
    CHECK(c.stats().compiled == 4);
    CHECK(c.stats().from_memory == 2);
    CHECK(c.compile(constant("again", 3)) == m[3]);
    CHECK(c.compile(std::span<const Source>()).empty());
  }
}

TEST_CASE("callers on several threads") {
  for (const Toolchain t : toolchains()) {
    Compiler c(with(t));
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k)
      threads.emplace_back([&, k] {
        for (int i = 0; i < 5; ++i)
          if (call(c.compile(constant("k", (i + k) % 5))) != (i + k) % 5) ++wrong;
      });
    for (std::thread& x : threads) x.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("a released module leaves, and its text compiles again") {
  for (const Toolchain t : toolchains()) {
    Compiler c(with(t));
    for (int i = 0; i < 3; ++i) CHECK(call(c.compile(constant("k", 7))) == 7);
    CHECK(c.stats().compiled == 3);
  }
}

TEST_CASE("objects are found on disk by another compiler") {
  for (const Toolchain t : toolchains()) {
    Directory d;
    const Source s = constant("k", 41);
    {
      Compiler c(with(t, d.cache()));
      CHECK(call(c.compile(s)) == 41);
      CHECK(c.stats().compiled == 1);
    }
    const std::string file = only_file(d.cache()), good = read(file);
    struct stat st {};
    REQUIRE(stat(d.cache().c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0700);

    const auto again = [&](int64_t compiled, int64_t from_disk) {
      Compiler c(with(t, d.cache()));
      CHECK(call(c.compile(s)) == 41);
      CHECK(c.stats().compiled == compiled);
      CHECK(c.stats().from_disk == from_disk);
    };
    again(0, 1);

    // A bit of the object, a cut, another key under the same name, a file that others may write: none is taken, all are
    // replaced.
    const auto damage = [&](const std::string& bytes) {
      std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
      again(1, 0);
      again(0, 1);
      CHECK(read(file) == good);
    };
    std::string bad = good;
    bad[bad.size() / 2 + 100] = static_cast<char>(bad[bad.size() / 2 + 100] ^ 4);
    damage(bad);
    damage(good.substr(0, good.size() - 1));
    damage("");
    bad = good;
    bad[40] = static_cast<char>(bad[40] ^ 1);
    damage(bad);
    REQUIRE(chmod(file.c_str(), 0622) == 0);
    again(1, 0);

    // Other options are other objects.
    Compiler other(with(t, d.cache(), &all_isas()[0]));
    CHECK(call(other.compile(s)) == 41);
    CHECK(other.stats().from_disk == (native_isa().level == 0 ? 1 : 0));
  }
}

TEST_CASE("texts of different symbols are compiled together, and found one by one") {
  for (const Toolchain t : toolchains()) {
    Directory d;
    std::vector<Source> sources;
    for (int i = 0; i < 5; ++i) {
      const std::string name = "f" + std::to_string(i);
      // Helpers of the same name are no trouble.
      sources.push_back({name,
                         "#define INLINE static inline\nstruct pair { int a, b; };\nINLINE int helper() { return " +
                             std::to_string(i) + "; }\nextern \"C\" int " + name +
                             "() { return helper(); }\nextern \"C\" int " + name +
                             "_twice(const pair*) { return 2 * helper(); }\n",
                         {name, name + "_twice"}});
    }
    const auto right = [&](const ModulePtr& m, int i) { return call(m) == i && call(m, 1) == 2 * i; };
    {
      Compiler c(with(t, d.cache()));
      const std::vector<ModulePtr> m = c.compile(sources);
      for (int i = 0; i < 5; ++i) CHECK(right(m[static_cast<size_t>(i)], i));
      CHECK(c.stats().compiled == 5);
    }
    {
      Compiler c(with(t, d.cache()));
      CHECK(right(c.compile(sources[3]), 3));
      std::reverse(sources.begin(), sources.end());
      const std::vector<ModulePtr> m = c.compile(sources);
      for (int i = 0; i < 5; ++i) CHECK(right(m[static_cast<size_t>(i)], 4 - i));
      std::reverse(sources.begin(), sources.end());
      CHECK(c.stats().compiled == 0);
      CHECK(c.stats().from_disk >= 5);
    }
    // A file says where a kernel is; what it names may be gone.
    uintmax_t largest = 0;
    for (const auto& e : fs::directory_iterator(d.cache())) largest = std::max(largest, e.file_size());
    for (const auto& e : fs::directory_iterator(d.cache()))
      if (e.file_size() > largest / 2) fs::remove(e);
    Compiler c(with(t, d.cache()));
    const std::vector<ModulePtr> m = c.compile(sources);
    for (int i = 0; i < 5; ++i) CHECK(right(m[static_cast<size_t>(i)], i));
    CHECK(c.stats().compiled > 0);
  }
}

TEST_CASE("a cache that cannot be written only costs time") {
  for (const Toolchain t : toolchains()) {
    Directory d;
    std::ofstream(d.path() + "/file") << "x";
    Compiler c(with(t, d.path() + "/file"));
    CHECK(call(c.compile(constant("k", 5))) == 5);
    CHECK(c.stats().compiled == 1);
  }
}

TEST_CASE("a text that does not compile is a bug with its place") {
  for (const Toolchain t : toolchains()) {
    Compiler c(with(t));
    const sdk::Error e = error_of(c, {"broken", "extern \"C\" int f() {\n  return missing_name;\n}\n", {"f"}});
    CHECK(e.family == TSR_BUG);
    CHECK(e.code == "TSR-J001");
    CHECK_THAT(e.what(), Catch::Matchers::Contains("kernel 'broken' does not compile"));
    CHECK_THAT(e.what(), Catch::Matchers::Contains("broken.cpp:2:10: error:"));
    CHECK_THAT(e.what(), Catch::Matchers::Contains("missing_name"));
    CHECK(error_of(c, {"other", "extern \"C\" int f() { return 1; }\n", {"g"}}).code == "TSR-J001");
    CHECK(
        error_of(
            c, {"unresolved",
                "extern \"C\" int no_such_function_anywhere(); extern \"C\" int f() { return no_such_function_anywhere(); }\n",
                {"f"}})
            .code == "TSR-J001");
    CHECK(call(c.compile(constant("k", 1))) == 1);
  }
}

TEST_CASE("no header is in reach of the compiler inside the process") {
  if (!have_clang()) return;
  Compiler c(with(Toolchain::kClang));
  CHECK_THAT(error_of(c, {"includes", "#include <math.h>\n", {}}).what(), Catch::Matchers::Contains("file not found"));
}

TEST_CASE("a system compiler that is not there is the environment's fault") {
  Compiler::Options o = with(Toolchain::kSystem);
  o.system_compiler = "no-such-compiler";
  Compiler c(o);
  const sdk::Error e = error_of(c, constant("k", 1));
  CHECK(e.family == TSR_ENVIRONMENT);
  CHECK(e.code == "TSR-J003");
}

TEST_CASE("one OpenMP runtime at most") {
  if (!have_clang()) return;
  Compiler c(with(Toolchain::kClang));
  CHECK(call(c.compile(constant("k", 1))) == 1);
  CHECK_THAT(read("/proc/self/maps"), !Catch::Matchers::Contains("libomp"));
}

TEST_CASE("instruction sets hold the lesser ones") {
  int level = 0;
  for (const Isa& i : all_isas()) {
    CHECK(i.level == level++);
    CHECK(find_isa(i.name) == &i);
  }
  CHECK(find_isa("avx1024") == nullptr);
  CHECK(can_run(all_isas()[0]));
}
