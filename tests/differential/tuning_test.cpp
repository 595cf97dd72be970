// SPDX-License-Identifier: Apache-2.0
// Choices that are measured: whatever is decided, results stay; what was decided holds, also for whoever comes later. No test
// here knows a time.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "cpu_models.hpp"
#include "tuning_records.hpp"
#ifdef TESSERA_TEST_KIT
#include "tessera/kit/object_cache.hpp"
#endif

namespace tessera::differential {

namespace {

namespace fs = std::filesystem;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "tessera-tuning-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path = name;
  }
  ~Folder() {
    std::error_code e;
    fs::remove_all(path, e);
  }
  Folder(const Folder&) = delete;
};

e::Context tuning_context(const std::string& isa, const fs::path& cache, const std::string& keys,
                          const std::string& sections = {}) {
  e::ContextOptions o;
  o.config_text = keys +
                  "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.backend.eager\", "
                  "\"tessera.backend.cpu\", \"tessera.pass.fuse\"]\n[backends]\norder = [\"cpu\", \"eager\"]\n"
                  "[pipeline]\npasses = [\"fuse\"]\n[cpu]\nisa = \"" +
                  isa + "\"\nwinograd = \"2x2\"\ncache_directory = \"" + cache.string() + "\"\n" + sections;
  if (const char* build = std::getenv("TESSERA_BUILD_DIR")) o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
  return e::Context(o);
}

e::Executable compile_in(const e::Context& c, const std::string& text) { return c.compile(c.parse(text, "case"), "cpu,eager"); }

// Every way but blocks of 4 x 4 is exact where sums are, as those of the linear, which are of whole numbers.
std::string network() {
  std::vector<float> whole = values({40, 24}, 4);
  for (float& v : whole) v = std::round(v * 4);
  const std::string w1 = literal("f32", {32, 16, 3, 3}, values({32, 16, 3, 3}, 2)),
                    w2 = literal("f32", {24, 32, 1, 1}, values({24, 32, 1, 1}, 3)), w3 = literal("f32", {40, 24}, whole);
  return "graph @g(%x: f32[2, 16, 15, 16], %r: f32[2, 32, 15, 16]) {\n  %w1 = " + w1 + "\n  %w2 = " + w2 + "\n  %w3 = " + w3 +
         "\n  %a = conv %x, %w1, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n"
         "  %b = add %a, %r\n  %c = relu %b\n"
         "  %d = conv %c, %w2, _ {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n"
         "  %e = reduce_max %d {axes = [2, 3]}\n  %w = round %e\n  %f = linear %w, %w3, _\n  %s = softmax %f {axis = -1}\n  "
         "return %d, %f, "
         "%s\n}\n";
}

std::vector<e::Tensor> inputs() {
  std::vector<e::Tensor> out;
  uint64_t seed = 1;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 16, 15, 16}, std::vector<int64_t>{2, 32, 15, 16}}) {
    const std::vector<float> v = values(sizes, seed++);
    std::vector<char> bytes(v.size() * 4);
    std::memcpy(bytes.data(), v.data(), bytes.size());
    out.push_back(arrange(TSR_F32, sizes, bytes, Layout::Dense));
  }
  return out;
}

const std::string kTuned = "mode = \"max-autotune-no-cudagraphs\"\nmax_autotune_seconds = 300.0\n",
                  kRecorded =
                      "mode = \"max-autotune-no-cudagraphs\"\nmax_autotune_seconds = 0.0\n";  // nothing is measured any more

// What the records of the network's products and convolutions name.
const std::string kWeights = "f32[32,16,3,3]c", kPointwise = "f32[24,32,1,1]c", kLinear = "f32[40,24]c";

// The plan, without how long it took to make.
std::string plan_of(const e::Executable& x) {
  const std::string all = x.describe();
  return all.substr(0, all.find("\"compile\":"));
}

std::string with_debug_folder(const fs::path& folder) {
  return "[trace]\nenabled = true\ndebug_dir = \"" + folder.string() + "\"\n";
}

// The least and the best instruction set: each of a dozen candidates is measured for a while.
std::vector<std::string> ends() {
  std::vector<std::string> all = cpu_backends();
  if (all.size() > 2) all.erase(all.begin() + 1, all.end() - 1);
  return all;
}

void check_same(const std::vector<e::Tensor>& got, const std::vector<e::Tensor>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) CHECK(different(TSR_F32, got[i], want[i]) == 0);
}

}  // namespace

TEST_CASE("what is measured changes no result, and holds for later processes") {
  for (const std::string& backend : ends()) {
    INFO(backend);
    const std::string isa = backend.substr(4);
    const Folder first, second, plain;
    const std::vector<e::Tensor> in = inputs();
    const e::Executable predicted = compile_in(tuning_context(isa, plain.path, ""), network());
    const std::vector<e::Tensor> want = predicted.run(in);
    CHECK(test::tuning_records(plain.path).empty());

    const fs::path debug = first.path / "debug";
    const e::Executable tuned = compile_in(tuning_context(isa, first.path, kTuned, with_debug_folder(debug)), network());
    check_same(tuned.run(in), want);
    CHECK(fs::file_size(debug / "g_0" / "autotuning.log") > 0);
    if (test::tuning_records(first.path).empty()) WARN("nothing was decided: something else was running");

    // Records that another process left: the same kernels, and nothing is decided again.
    fs::copy(first.path, second.path, fs::copy_options::recursive);
    std::map<fs::path, fs::file_time_type> before;
    for (const fs::path& p : test::tuning_records(second.path)) before[p] = fs::last_write_time(p);
    const e::Executable later = compile_in(tuning_context(isa, second.path, kRecorded), network());
    CHECK(plan_of(later) == plan_of(tuned));
    check_same(later.run(in), want);
    for (const auto& [path, time] : before) CHECK(fs::last_write_time(path) == time);
  }
}

#ifdef TESSERA_TEST_KIT
TEST_CASE("a recorded way is taken, and one that makes no sense is not") {
  const std::vector<std::string> backends = cpu_backends();
  if (backends.empty()) return;
  const std::string isa = backends.back().substr(4);
  const Folder first;
  const std::vector<e::Tensor> in = inputs();
  const fs::path debug = first.path / "debug";
  const e::Executable undecided = compile_in(tuning_context(isa, first.path, kRecorded, with_debug_folder(debug)), network());
  const std::vector<e::Tensor> want = undecided.run(in);
  // Without time to measure, what would have been decided is named, and what stands in front of it in a record.
  const std::string heading = "cpu: what is decided here holds for", last = " threads ",
                    before = "cpu: the budget of max_autotune_seconds is spent; predicted: ";
  std::string head;
  std::vector<std::string> problems;
  std::ifstream log(debug / "g_0" / "autotuning.log");
  for (std::string line; std::getline(log, line);) {
    if (const size_t at = line.find(before); at != std::string::npos) {
      problems.push_back(head + line.substr(at + before.size()));
    } else if (line == heading) {
      while (std::getline(log, line)) {
        head += line + "\n";
        if (line.find(last) != std::string::npos) break;
      }
    }
  }
  REQUIRE_FALSE(head.empty());
  const auto with_choice = [&](const std::string& choice, const std::string& weights = kWeights) {
    const Folder other;
    int recorded = 0;
    for (const std::string& problem : problems) {
      if (problem.find(weights) == std::string::npos) continue;
      REQUIRE(kit::ObjectCache((other.path / "tuned").string()).put(problem, choice).empty());
      ++recorded;
    }
    REQUIRE(recorded == 1);
    const e::Executable x = compile_in(tuning_context(isa, other.path, kRecorded), network());
    check_same(x.run(in), want);
    return plan_of(x);
  };
  const auto kernel_bytes = [](const std::string& plan) {
    const std::string key = "\"kernel_bytes\":";
    return std::stoll(plan.substr(plan.find(key) + key.size()));
  };
  const std::string rows = with_choice("choice rows"), filtered = with_choice("choice winograd2");
  CHECK(rows.find("cpu.conv.add.relu.rows.packed.") != std::string::npos);
  CHECK(kernel_bytes(rows) < kernel_bytes(filtered));  // weights in the form of one way, not of those that lost too
  CHECK(filtered.find("cpu.conv.add.relu.winograd2.packed.") != std::string::npos);
  CHECK(with_choice("choice columns").find("cpu.conv.add.relu.packed.") != std::string::npos);
#ifdef TESSERA_TEST_ONEDNN
  CHECK(with_choice("choice onednn", kPointwise).find("cpu.conv.onednn") != std::string::npos);
  CHECK(with_choice("choice onednn", kLinear).find("cpu.linear.onednn") != std::string::npos);
#endif
  // Forbidden by [cpu] winograd, unknown, and no record: what is predicted.
  const std::string predicted = with_choice("choice predicted");
  for (const char* text : {"choice winograd4", "choice nonsense", "choice "}) CHECK(with_choice(text) == predicted);
}
#endif

TEST_CASE("without time nothing is measured") {
  const std::vector<std::string> backends = cpu_backends();
  if (backends.empty()) return;
  const std::string isa = backends.back().substr(4);
  const Folder plain, none;
  const e::Executable predicted = compile_in(tuning_context(isa, plain.path, ""), network());
  const e::Executable x = compile_in(tuning_context(isa, none.path, kRecorded), network());
  CHECK(plan_of(x) == plan_of(predicted));
  CHECK(test::tuning_records(none.path).empty());
}

TEST_CASE("sizes that are symbols are measured at their hints") {
  for (const std::string& backend : ends()) {
    INFO(backend);
    const Folder folder, plain;
    const std::string text =
        "graph @g(%x: f32[s0, s1]) symbols { s0: 2..; s1: 2.. } {\n  %a = gelu %x\n  %b = softmax %a {axis = -1}\n"
        "  %t = transpose %b {perm = [1, 0]}\n  %c = add %t, %t\n  return %c\n}\n";
    const e::Executable tuned = compile_in(tuning_context(backend.substr(4), folder.path, kTuned), text);
    const e::Executable predicted = compile_in(tuning_context(backend.substr(4), plain.path, ""), text);
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 3}, std::vector<int64_t>{70, 200}}) {
      const std::vector<float> v = values(sizes, 5);
      std::vector<char> bytes(v.size() * 4);
      std::memcpy(bytes.data(), v.data(), bytes.size());
      const std::vector<e::Tensor> in = {arrange(TSR_F32, sizes, bytes, Layout::Dense)};
      const e::Tensor got = tuned.run(in)[0], want = predicted.run(in)[0];
      CHECK(std::memcmp(got.data(), want.data(), static_cast<size_t>(want.elements()) * 4) == 0);
    }
  }
}

}  // namespace tessera::differential
