// SPDX-License-Identifier: Apache-2.0
// A device that is gone in the middle of everything: every run that needs it ends in the error that says so, runs on the other
// device go on with their bits, and nothing stays allocated. Each point of time has a process of its own, because a device is
// lost for good.
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cstdio>
#include <random>
#include <thread>

#include "memory/buffer.hpp"
#include "support.hpp"

namespace lost_test {

using namespace tessera::test;
namespace core = tessera::core;

namespace {

const char* const kZero = R"(graph @zero(%x: f32[64]@sim:0) -> (f32[64]@sim:0) {
    %a = tanh %x
    %b = neg %a
    return %b
  })";
const char* const kOne = R"(graph @one(%x: f32[64]@sim:1) -> (f32[64]@sim:1) {
    %a = tanh %x
    %b = neg %a
    return %b
  })";
const char* const kBoth =
    R"(graph @both(%x: f32[64]@sim:0, %s: f32[64]@sim:1 state "s" -> 1) -> (f32[64]@sim:0, f32[64]@sim:1) {
    %a = tanh %x
    %b = to_device %a {device = "sim:1"}
    %c = add %b, %s
    %d = to_device %c {device = "sim:0"}
    %e = neg %d
    return %e, %c
  })";

struct Faults {
  std::string first;
  int other_errors = 0, wrong = 0, lost = 0;
  template <class F>
  void during(F&& f) {
    try {
      f();
    } catch (const e::Error& error) {
      if (error.code() != "TSR-R047" || error.message().find("'sim:1' is gone") == std::string::npos || error.hint().empty()) {
        ++other_errors;
        if (first.empty()) first = error.code() + ": " + error.message();
      }
      ++lost;
    }
  }
};

int64_t used(const char* name) {
  core::Device& d = core::device(e::device(name));
  core::trim_pool(d);
  (void)code_of([&] { e::synchronize(d.id()); });
  void* self = nullptr;
  const tsr_device_table* const t = d.table(&self);
  tsr_device_info info{};
  info.struct_size = sizeof info;
  if (t->info(self, d.index(), &info) != nullptr) return -1;
  return info.total_bytes - info.free_bytes;
}

// One process, in which sim:1 is gone after so many pieces of work.
std::string lose_after(int pieces, const char* executor) {
  const e::Context c = make_context("\"sim\", \"reference\"", std::string("[executor]\nname = \"") + executor +
                                                                  "\"\n[sim]\nlose_after = " + std::to_string(pieces) + "\n");
  const std::string reference = on_host(kOne);
  Faults faults[2];
  bool late[2] = {};
  {
    const e::Executable zero = compile(c, kZero), one = compile(c, kOne), both = compile(c, kBoth);
    const e::Executable want = compile(host(), on_host(kZero)), want_both = compile(host(), on_host(kBoth));
    const auto work = [&](uint64_t thread) {
      Faults& f = faults[thread];
      const e::Stream stream(e::device("sim:0"));
      const e::StreamScope scope(stream);
      for (uint64_t i = 0; i < 8; ++i) {
        const e::Tensor x = numbers({64}, thread * 100 + i), s = numbers({64}, thread * 100 + i + 50);
        const auto expected = want.run(std::vector<e::Tensor>{x});
        f.during([&] {
          const e::Tensor y = one.run(std::vector<e::Tensor>{x.copy_to(e::device("sim:1"))})[0];
          if (!same_bits(y, expected[0])) ++f.wrong;
        });
        f.during([&] {
          const e::Tensor state = s.copy_to(e::device("sim:1"));
          const auto y = both.run(std::vector<e::Tensor>{x.copy_to(e::device("sim:0")), state});
          const auto both_expected = want_both.run(std::vector<e::Tensor>{x, s.copy_to(0)});
          if (!same_bits(y[0], both_expected[0])) ++f.wrong;
        });
        // The other device: never anything but its bits, once a fault of work that needed both has been raised on its stream.
        (void)code_of([&] { stream.synchronize(); });
        try {
          const e::Tensor y = zero.run(std::vector<e::Tensor>{x.copy_to(e::device("sim:0"))})[0];
          if (!same_bits(y, expected[0])) ++f.wrong;
        } catch (const e::Error& error) {
          ++f.other_errors;
          f.first = "on sim:0: " + error.code() + ": " + error.message();
        }
      }
      try {
        (void)one.run(std::vector<e::Tensor>{numbers({64}, 1).copy_to(e::device("sim:1"))});
        e::synchronize(e::device("sim:1"));
      } catch (const e::Error& error) {
        late[thread] = error.code() == "TSR-R047";
      }
    };
    std::thread threads[] = {std::thread(work, 0), std::thread(work, 1)};
    for (std::thread& t : threads) t.join();
  }
  for (const Faults& f : faults)
    if (f.other_errors || f.wrong)
      return std::to_string(f.wrong) + " wrong results, " + std::to_string(f.other_errors) + " other errors: " + f.first;
  if (!late[0] || !late[1]) return "the device is still there";
  for (const char* d : {"sim:0", "sim:1"})
    if (used(d) != 0 || e::api().memory_in_use(e::device(d)) != 0)
      return std::to_string(used(d)) + " bytes stay allocated on " + d + ", " +
             std::to_string(e::api().memory_in_use(e::device(d))) + " in use";
  return "";
}

}  // namespace

TEST_CASE("a device that is gone ends the runs that need it and no others") {
  for (const char* executor : {"", "graphs"})
    for (int pieces = 0; pieces < 40; ++pieces) {
      int pipes[2];
      REQUIRE(pipe(pipes) == 0);
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        std::string wrong;
        try {
          wrong = lose_after(pieces, executor);
        } catch (const std::exception& error) {
          wrong = std::string("thrown: ") + error.what();
        }
        const ssize_t written = write(pipes[1], wrong.data(), wrong.size());
        std::exit(wrong.empty() && written == 0 ? 0 : 1);
      }
      close(pipes[1]);
      std::string said(4096, '\0');
      const ssize_t n = read(pipes[0], said.data(), said.size());
      close(pipes[0]);
      said.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      INFO("lost after " << pieces << " pieces of work, executor '" << executor << "': " << said);
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 0);
    }
}

}  // namespace lost_test
