// SPDX-License-Identifier: Apache-2.0
// Schedules of the SIMT family against the judge of its reduction order, through the interpreter of programs, at both sizes of a wave.
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>

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

TEST_CASE("every schedule that a search reaches gives the family's bits") {
  const char* only = std::getenv("SIMT_CASE");
  std::map<kit::SimtForm, size_t> ran;
  for (const auto& [order_name, order] : orders())
    for (const SimtCase& c : simt_cases()) {
      if (only && c.name != only) continue;
      SimtKernel k = lower_case(c);
      if (order.interleaved && c.name.ends_with("unknown")) continue;  // that order needs to know the length of rows
      const Data input = case_data(k, c, 17, true);
      Data want = input;
      const uint32_t faults = judge(k, c, order, want);
      for (const char* device : {"sim32", "sim64"}) {
        const kit::GpuDescription& d = kit::gpu_description(device);
        size_t number = 0;
        for (const kit::SimtSchedule& s : reachable(k, c, d, order, order_name == "plain" ? 20 : 3)) {
          ++number;
          ran[s.form] += order_name == "plain";
          INFO(c.name << ", " << device << ", order " << order_name << ": " << kit::to_text(s));
          kit::Program p = make(k, c, s, d, order);
          // The text form is the program.
          const std::string text = kit::print(p);
          kit::Program again = kit::parse_program(text);
          if (kit::print(again) != text) FAIL("the text reads back as\n" << kit::print(again) << "\nnot as it was\n" << text);
          Data got = input;
          try {
            const uint32_t raised = kit::interpret(number % 2 ? again : p, got.pointers(), c.symbols, number);
            REQUIRE(raised == faults);
          } catch (const sdk::Error& e) {
            FAIL(e.what() << "\n" << kit::print(k.rows.kernel) << text);
          }
          const std::string difference = case_difference(k, want, got);
          if (!difference.empty()) FAIL(difference << "\n" << kit::print(k.rows.kernel) << text);
        }
      }
    }
  if (only) return;
  std::printf("schedules through the interpreter:");
  for (const auto& [form, count] : ran) std::printf(" %s %zu", kit::form_name(form), count);
  std::printf("\n");
  for (const auto& [form, count] : ran) {
    INFO(kit::form_name(form));
    // The backward pass of a norm has few: registers bound the rows in flight, and chunks the threads. Products on matrix
    // instructions have six, of two tiles and three depths, where the device has the instructions.
    CHECK(count >= (form == kit::SimtForm::NormBackward || form == kit::SimtForm::Matrix ? 10 : 20));
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
