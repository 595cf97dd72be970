// SPDX-License-Identifier: Apache-2.0
// Schedules of the SIMT family against the judge of its reduction order, through the interpreter of programs, at both sizes of
// a wave.
#include <catch2/catch.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <thread>

#include "share.hpp"
#include "simt_support.hpp"
#include "tessera/kit/program/interpret.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/plugin.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

std::vector<std::pair<std::string, kit::SimtOrder>> orders() {
  kit::SimtOrder plain, running, turns;
  running.by_halves = false;
  running.steps = 8;
  running.run = 32;
  running.interleaved_runs = false;
  turns.interleaved = true;
  return {{"plain", plain}, {"running", running}, {"turns", turns}};
}

}  // namespace

namespace {

// One kernel on one device under one order: all of its schedules.
struct Job {
  std::string order_name, device;
  kit::SimtOrder order;
  const SimtCase* c;
  SimtKernel k;
  // Schedules by turns: numbers of every kind, of which most make a whole row NaN, and numbers that stay tame.
  struct Given {
    const Data *input, *want;
    uint32_t faults;
  } given[2];
  std::map<kit::SimtForm, size_t> ran = {};
  std::string failure = {};
};

void run(Job& j) {
  const kit::GpuDescription& d = kit::gpu_description(j.device);
  size_t number = 0;
  for (const kit::SimtSchedule& s : reachable(j.k, *j.c, d, j.order, share_of(j.order_name == "plain" ? 20 : 3))) {
    ++number;
    j.ran[s.form] += j.order_name == "plain";
    kit::Program p = make(j.k, *j.c, s, d, j.order);
    const std::string text = kit::print(p);
    const auto failed = [&](const std::string& what) {
      j.failure = j.c->name + ", " + j.device + ", order " + j.order_name + ": " + kit::to_text(s) + "\n" + what + "\n" +
                  kit::print(j.k.rows.kernel) + text;
    };
    // The text form is the program.
    kit::Program again = kit::parse_program(text);
    if (kit::print(again) != text) return failed("the text reads back as\n" + kit::print(again) + "\nnot as it was");
    const Job::Given& g = j.given[number / 2 % 2];  // of both, the program and its text
    Data got = *g.input;
    try {
      const uint32_t raised = kit::interpret(number % 2 ? again : p, got.pointers(), j.c->symbols, number);
      if (raised != g.faults) return failed("it raised " + std::to_string(raised) + ", the judge " + std::to_string(g.faults));
    } catch (const sdk::Error& e) {
      return failed(e.what());
    }
    if (const std::string difference = case_difference(j.k, *g.want, got); !difference.empty()) return failed(difference);
  }
}

}  // namespace

TEST_CASE("every schedule that a search reaches gives the family's bits") {
  const char* only = std::getenv("SIMT_CASE");
  const std::vector<SimtCase> cases = simt_cases();
  std::deque<Data> data;
  std::vector<Job> jobs;
  for (const auto& [order_name, order] : orders())
    for (const SimtCase& c : cases) {
      if (only && c.name != only) continue;
      if (order.interleaved && c.name.ends_with("unknown")) continue;  // that order needs to know the length of rows
      // Windows are computed by the form of last resort, which knows the family's own order alone.
      if (order_name != "plain" && c.name == "pool") continue;
      const SimtKernel k = lower_case(c);
      const auto given = [&](bool wild) {
        const Data& input = data.emplace_back(case_data(k, c, 17, wild));
        Data& want = data.emplace_back(input);
        return Job::Given{&input, &want, judge(k, c, order, want)};
      };
      const Job::Given wild = given(true), tame = given(false);
      for (const char* device : {"sim32", "sim64"}) jobs.push_back({order_name, device, order, &c, k, {wild, tame}});
    }
  // Jobs share nothing that changes, and run beside each other; Catch hears of them afterwards.
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < jobs.size();) {
      try {
        run(jobs[i]);
      } catch (const std::exception& e) {
        jobs[i].failure = jobs[i].c->name + ", " + jobs[i].device + ": " + e.what();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  std::map<kit::SimtForm, size_t> ran;
  for (const Job& j : jobs) {
    if (!j.failure.empty()) FAIL(j.failure);
    for (const auto& [form, count] : j.ran) ran[form] += count;
  }
  if (only) return;
  std::printf("schedules through the interpreter:");
  for (const auto& [form, count] : ran) std::printf(" %s %zu", kit::form_name(form), count);
  std::printf("\n");
  for (const auto& [form, count] : ran) {
    INFO(kit::form_name(form));
    CHECK(count >=
          share_of(form == kit::SimtForm::Generic ? 4 : 20));  // the form of last resort chooses threads and little else
  }
}

TEST_CASE("schedules read back as they were") {
  const kit::SimtSchedule s{kit::SimtForm::Rows, 128, 2, 8, 1, 32, true};
  CHECK(kit::to_text(s) == "rows threads 128 rows 2 vector 8 unroll 1 tile 32 persistent 1");
  CHECK(kit::parse_simt_schedule(kit::to_text(s)) == s);
  for (const char* text : {"", "rows", "rows threads 128", "rows threads -1 rows 2 vector 8 unroll 1 tile 32 persistent 1",
                           "rows threads 128 rows 2 vector 8 unroll 1 tile 32 persistent 2",
                           "rows threads 128 rows 2 vector 8 unroll 1 tile 32 persistent 1 more"})
    CHECK(!kit::parse_simt_schedule(text));
}
