// SPDX-License-Identifier: Apache-2.0
// Schedules that are measured on the device (coordinate_descent_tuning): no bit changes, what was decided holds for later
// processes, and a record that makes no sense does no harm.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>

#include "support.hpp"
#include "tuning_records.hpp"

namespace tessera::test {
namespace {

namespace fs = std::filesystem;

const std::string kSoftmax = R"(graph @g(%x: f32[96, 640]@cuda:0, %b: f32[640]@cuda:0) {
    %a = add %x, %b
    %s = softmax %a {axis = -1}
    %y = mul %s, %a
    return %y
  })";
const std::string kTuned = "coordinate_descent_tuning = true\nmax_autotune_seconds = 300.0\n";

struct Folder {
  Folder() {
    static int number = 0;
    path = fs::temp_directory_path() / ("tessera_cuda_tuning_" + std::to_string(getpid()) + "_" + std::to_string(number++));
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

struct Compiled {
  e::Executable executable;
  std::string log;  // what was measured, and the text of kernels
};
Compiled compiled(const fs::path& cache, const std::string& text, const std::string& options) {
  const Folder debug;
  e::ContextOptions o;
  o.config_text = options +
                  "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", \"tessera.pass.fuse\", "
                  "\"tessera.backend.reference\", \"tessera.backend.cuda\"]\n[pipeline]\npasses = [\"fuse\"]\n"
                  "[backends]\norder = [\"cuda\", \"reference\"]\n[trace]\nenabled = true\ndebug_dir = \"" +
                  debug.path.string() + "\"\n[cuda]\ncache_directory = \"" + cache.string() + "\"\n" +
                  (hardware() ? "" : kFakeOptions);
  o.plugin_dirs = {plugin_directory()};
  const e::Context c(o);
  e::Executable x = compile(c, text);
  std::string log;
  for (const auto& f : fs::recursive_directory_iterator(debug.path))
    if (f.is_regular_file()) log += std::string(std::istreambuf_iterator<char>(std::ifstream(f.path()).rdbuf()), {});
  return {std::move(x), std::move(log)};
}

// Replaces the choice of the only record.
void replace_choice(const fs::path& cache, const std::string& choice) {
  REQUIRE(tuning_records(cache).size() == 1);
  TuningRecord r = read_record(tuning_records(cache)[0]);
  r.choice = choice;
  write_record(tuning_records(cache)[0], r);
}

int times(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("schedules that are measured change no bit, and hold for later processes") {
  const Folder plain, first, second;
  const std::vector<e::Tensor> in = {numbers({96, 640}, 1).copy_to(gpu()), numbers({640}, 2).copy_to(gpu())};
  const Compiled predicted = compiled(plain.path, kSoftmax, "");
  const e::Tensor want = predicted.executable.run(in)[0];
  CHECK(tuning_records(plain.path).empty());
  const Compiled tuned = compiled(first.path, kSoftmax, kTuned);
  INFO(tuned.log);
  CHECK(same_bits(tuned.executable.run(in)[0], want));
  CHECK(tuning_records(first.path).size() == 1);
  CHECK(times(tuned.log, "cuda: the schedule of fused_add_softmax_mul") == 1);
  CHECK(times(tuned.log, " us") > 3);  // candidates
  CHECK(tuned.log.find("which is a bug") == std::string::npos);

  // A folder that another process left: obeyed, and nothing is measured again.
  fs::copy(first.path, second.path, fs::copy_options::recursive);
  replace_choice(second.path, "choice rows threads 64 rows 4 vector 4 unroll 1 tile 32 persistent 0");
  const Compiled later = compiled(second.path, kSoftmax, kTuned);
  CHECK(later.log.find("the schedule of") == std::string::npos);
  CHECK(later.log.find("// cuda: rows threads 64 rows 4 vector 4 unroll 1 tile 32 persistent 0") != std::string::npos);
  CHECK(same_bits(later.executable.run(in)[0], want));
}

TEST_CASE("a record of a schedule that makes no sense leaves the model's") {
  const Folder first;
  const std::vector<e::Tensor> in = {numbers({96, 640}, 1).copy_to(gpu()), numbers({640}, 2).copy_to(gpu())};
  const e::Tensor want = compiled(first.path, kSoftmax, kTuned).executable.run(in)[0];
  for (const char* choice : {"choice nonsense", "choice rows threads 2048 rows 1 vector 4 unroll 1 tile 32 persistent 0",
                             "choice product threads 256 rows 8 vector 8 unroll 8 tile 128 persistent 0"}) {
    INFO(choice);
    const Folder other;
    fs::copy(first.path, other.path, fs::copy_options::recursive);
    replace_choice(other.path, choice);
    const Compiled x = compiled(other.path, kSoftmax, kTuned);
    CHECK(x.log.find(std::string("// cuda: ") + (choice + 7)) == std::string::npos);
    CHECK(same_bits(x.executable.run(in)[0], want));
  }
}

TEST_CASE("sizes that are symbols are measured at their hints, and without time nothing is") {
  const std::string text = R"(graph @g(%x: f32[s0, s1]@cuda:0) symbols { s0: 2..; s1: 2.. } {
    %a = gelu %x
    %s = softmax %a {axis = -1}
    return %s
  })";
  const Folder folder, none;
  const Compiled tuned = compiled(folder.path, text, kTuned);
  CHECK_FALSE(tuning_records(folder.path).empty());
  const Compiled predicted = compiled(none.path, text, "coordinate_descent_tuning = true\nmax_autotune_seconds = 0.0\n");
  CHECK(tuning_records(none.path).empty());
  CHECK(predicted.log.find("the budget of max_autotune_seconds is spent") != std::string::npos);
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{2, 3}, std::vector<int64_t>{70, 200}}) {
    const std::vector<e::Tensor> in = {numbers(sizes, 5).copy_to(gpu())};
    CHECK(same_bits(tuned.executable.run(in)[0], predicted.executable.run(in)[0]));
  }
}

TEST_CASE("algorithms that are measured hold for later processes, and those who compile hear of it") {
  const std::string text = R"(graph @g(%x: f32[48, 96]@cuda:0, %w: f32[96, 80]@cuda:0, %v: f32[96, 72]@cuda:0) {
    %y = matmul %x, %w
    %z = matmul %x, %v
    return %y, %z
  })";
  const std::string measured = "max_autotune = true\nmax_autotune_seconds = 300.0\n";
  const Folder first, second, none;
  const std::vector<e::Tensor> in = {numbers({48, 96}, 1).copy_to(gpu()), numbers({96, 80}, 2).copy_to(gpu()),
                                     numbers({96, 72}, 3).copy_to(gpu())};
  const std::vector<e::Tensor> want =
      compiled(none.path, text, "max_autotune = true\nmax_autotune_seconds = 0.0\n").executable.run(in);
  CHECK(tuning_records(none.path).empty());
  std::vector<std::string> heard;
  {
    const e::ProgressScope listening([&](std::string_view what, uint64_t done, uint64_t total) {
      heard.push_back(std::string(what) + " " + std::to_string(done) + " of " + std::to_string(total));
    });
    const Compiled tuned = compiled(first.path, text, measured);
    INFO(tuned.log);
    CHECK(times(tuned.log, "us of each algorithm") == 2);
    const std::vector<e::Tensor> got = tuned.executable.run(in);
    for (size_t i = 0; i < want.size(); ++i) CHECK(difference(got[i], want[i]) < 1e-4);
  }
  CHECK(heard ==
        std::vector<std::string>{"measuring algorithms 0 of 2", "measuring algorithms 1 of 2", "measuring algorithms 2 of 2"});
  CHECK(tuning_records(first.path).size() == 2);

  fs::copy(first.path, second.path, fs::copy_options::recursive);
  const Compiled later = compiled(second.path, text, measured);
  INFO(later.log);
  CHECK(times(later.log, "us of each algorithm") == 0);
  CHECK(times(later.log, "the algorithm that was measured before") >= 2);
  CHECK(heard.size() == 3);  // nobody listens any more
  const std::vector<e::Tensor> got = later.executable.run(in);
  for (size_t i = 0; i < want.size(); ++i) CHECK(difference(got[i], want[i]) < 1e-4);
}

TEST_CASE("the backward pass of a norm is measured as one kernel") {
  const std::string text =
      R"(graph @g(%x: f32[64, 256]@cuda:0, %g: f32[64, 256]@cuda:0, %m: f32[64, 1]@cuda:0, %r: f32[64, 1]@cuda:0,
      %w: f32[256]@cuda:0) {
    %c = sub %x, %m
    %h = mul %c, %r
    %p = mul %g, %w
    %q = mul %p, %h
    %s = reduce_sum %q {axes = [1], keepdims = true}
    %t = mul %h, %s
    %u = sub %p, %t
    %d = mul %u, %r
    %v = mul %g, %h
    %dw = reduce_sum %v {axes = [0], keepdims = false}
    return %d, %dw
  })";
  const Folder plain, folder;
  const std::vector<e::Tensor> in = {numbers({64, 256}, 1).copy_to(gpu()), numbers({64, 256}, 2).copy_to(gpu()),
                                     numbers({64, 1}, 3).copy_to(gpu()), numbers({64, 1}, 4).copy_to(gpu()),
                                     numbers({256}, 5).copy_to(gpu())};
  const std::vector<e::Tensor> want = compiled(plain.path, text, "").executable.run(in);
  const Compiled tuned = compiled(folder.path, text, kTuned);
  INFO(tuned.log);
  CHECK(tuned.log.find("norm_backward threads") != std::string::npos);
  const std::vector<e::Tensor> got = tuned.executable.run(in);
  for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
}

}  // namespace tessera::test
