// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

#include "log/log.hpp"
#include "support/error.hpp"

namespace log_test {

using namespace tessera::core;

namespace {

// Captures what is written and restores sink and levels.
struct Capture {
  std::vector<std::string> chunks;
  LogSink before;
  Capture() : before(set_log_sink([this](std::string_view lines) { chunks.emplace_back(lines); })) {}
  ~Capture() {
    set_log_sink(std::move(before));
    configure_logs("");
  }
};

}  // namespace

TEST_CASE("nothing is enabled until it is asked for") {
  configure_logs("");
  for (size_t i = 0; i < kNumArtifacts; ++i) CHECK_FALSE(log_enabled(static_cast<Artifact>(i)));
}

TEST_CASE("specifications name artifacts, raise them and silence them, the last word wins") {
  configure_logs(" recompiles , +guards,fusion,-fusion, +plan, plan,,");
  CHECK(log_enabled(Artifact::kRecompiles));
  CHECK_FALSE(log_enabled(Artifact::kRecompiles, 1));
  CHECK(log_enabled(Artifact::kGuards, 1));
  CHECK_FALSE(log_enabled(Artifact::kFusion));
  CHECK(log_enabled(Artifact::kPlan));
  CHECK_FALSE(log_enabled(Artifact::kPlan, 1));
  configure_logs("output_code");  // all of the code, that of kernels too
  CHECK(log_enabled(Artifact::kOutputCode));
  CHECK(log_enabled(Artifact::kKernelCode));
  configure_logs("-kernel_code,output_code");
  CHECK_FALSE(log_enabled(Artifact::kKernelCode));
  configure_logs("kernel_code");
  CHECK_FALSE(log_enabled(Artifact::kOutputCode));
  configure_logs("all,-guards");
  CHECK(log_enabled(Artifact::kSymNode));
  CHECK_FALSE(log_enabled(Artifact::kGuards));
  configure_logs("");
}

TEST_CASE("an unknown artifact is an error with a suggestion and changes nothing") {
  configure_logs("guards");
  CHECK_THROWS_WITH(
      configure_logs("recompiles,grahp_breaks"),
      Catch::Contains("error[TSR-L001] log.artifacts: unknown artifact 'grahp_breaks'; did you mean 'graph_breaks'?") &&
          Catch::Contains("artifacts: recompiles, recompiles_verbose"));
  CHECK_THROWS_AS(configure_logs("+"), Error);
  CHECK(log_enabled(Artifact::kGuards));
  CHECK_FALSE(log_enabled(Artifact::kRecompiles));
  configure_logs("");
}

TEST_CASE("every artifact has a name of its own and a summary") {
  std::set<std::string> names;
  for (size_t i = 0; i < kNumArtifacts; ++i) {
    const auto a = static_cast<Artifact>(i);
    names.insert(artifact_name(a));
    CHECK(std::string(artifact_summary(a)).size() > 10);
    Artifact found;
    REQUIRE(find_artifact(artifact_name(a), &found));
    CHECK(found == a);
  }
  CHECK(names.size() == kNumArtifacts);
}

TEST_CASE("every line is prefixed, and a text is written as a whole") {
  Capture capture;
  configure_logs("guards");
  log_write(Artifact::kGuards, "a == 1\nb == 2\n");
  log_write(Artifact::kGuards, 1, "not verbose");
  log_write(Artifact::kFusion, "not enabled");
  log_write(Artifact::kGuards, "");
  CHECK(capture.chunks == std::vector<std::string>{"[guards] a == 1\n[guards] b == 2\n", "[guards] \n"});
}

TEST_CASE("notices appear once, warnings each time") {
  Capture capture;
  log_notice("only once in log_test");
  log_notice("only once in log_test");
  log_warning("again");
  log_warning("again");
  CHECK(capture.chunks == std::vector<std::string>{"tessera: note: only once in log_test\n", "tessera: warning: again\n",
                                                   "tessera: warning: again\n"});
}

TEST_CASE("texts from several threads are not mixed") {
  Capture capture;
  configure_logs("plan");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::string text(41, static_cast<char>('a' + t));
      text[20] = '\n';
      for (int i = 0; i < 50; ++i) log_write(Artifact::kPlan, text);
    });
  for (std::thread& t : threads) t.join();
  REQUIRE(capture.chunks.size() == 200);
  for (const std::string& chunk : capture.chunks) {
    const char c = chunk[7];
    CHECK(chunk == "[plan] " + std::string(20, c) + "\n[plan] " + std::string(20, c) + "\n");
  }
}

TEST_CASE("a capture reads what its thread says, and nobody else's") {
  Capture printed;
  configure_logs("");
  std::vector<std::string> read;
  const Artifact some[] = {Artifact::kFusion, Artifact::kPlan};
  {
    const LogCapture capture(
        [&](Artifact a, std::string_view text) { read.push_back(artifact_name(a) + (" " + std::string(text))); }, some);
    CHECK(log_enabled(Artifact::kFusion));
    CHECK_FALSE(log_enabled(Artifact::kFusion, 1));
    CHECK_FALSE(log_enabled(Artifact::kGuards));
    log_write(Artifact::kFusion, "a group\nof two");
    log_write(Artifact::kFusion, 1, "verbose");
    log_write(Artifact::kGuards, "not asked for");
    bool elsewhere = true;
    std::thread([&] {
      elsewhere = log_enabled(Artifact::kFusion);
      log_write(Artifact::kFusion, "another thread");
    }).join();
    CHECK_FALSE(elsewhere);
    {
      const LogCapture quiet;
      CHECK_FALSE(log_enabled(Artifact::kFusion));
      log_write(Artifact::kFusion, "nested");
    }
    configure_logs("plan");
    log_write(Artifact::kPlan, "both");
  }
  log_write(Artifact::kFusion, "too late");
  CHECK_FALSE(log_enabled(Artifact::kFusion));
  CHECK(read == std::vector<std::string>{"fusion a group\nof two", "plan both"});
  CHECK(printed.chunks == std::vector<std::string>{"[plan] both\n"});
}

TEST_CASE("the functions that plugins see take names and ignore what they do not know") {
  Capture capture;
  configure_logs("+schedule");
  CHECK(abi::log_enabled("schedule", 1) == 1);
  CHECK(abi::log_enabled("shedule", 0) == 0);
  CHECK(abi::log_enabled(nullptr, 0) == 0);
  CHECK(abi::log_enabled("fusion", -5) == 0);
  abi::log_write("schedule", 0, "tile 8");
  abi::log_write("nothing", 0, "x");
  abi::log_write("schedule", 0, nullptr);
  CHECK(capture.chunks == std::vector<std::string>{"[schedule] tile 8\n"});
}

}  // namespace log_test
