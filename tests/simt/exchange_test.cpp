// SPDX-License-Identifier: Apache-2.0
// Programs for devices without shuffles: values travel through shared memory, and give the same bits.
#include <catch2/catch.hpp>

#include "share.hpp"
#include "simt_support.hpp"
#include "tessera/kit/program/interpret.hpp"
#include "tessera/kit/program/verify.hpp"
#include "tessera/plugin.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

kit::GpuDescription without_shuffles(const char* architecture) {
  kit::GpuDescription d = kit::gpu_description(architecture);
  d.shuffles = d.mma = false;
  return d;
}

}  // namespace

TEST_CASE("lanes exchange values through shared memory on devices without shuffles") {
  const kit::SimtOrder order;
  size_t exchanged = 0;
  for (const SimtCase& c : simt_cases()) {
    SimtKernel k = lower_case(c);
    const Data input = case_data(k, c, 11, true);
    Data want = input;
    const uint32_t faults = judge(k, c, order, want);
    for (const char* device : {"sim32", "sim64"}) {
      const kit::GpuDescription d = without_shuffles(device);
      size_t number = 0;
      for (const kit::SimtSchedule& s : reachable(k, c, d, order, share_of(3))) {
        INFO(c.name << ", " << device << ": " << kit::to_text(s));
        kit::Program p = make(k, c, s, d, order);
        for (const kit::Statement& x : p.statements)
          CHECK((x.kind != kit::StatementKind::Shuffle &&
                 (x.kind != kit::StatementKind::Barrier || x.scope == kit::BarrierScope::Block)));
        for (const kit::ProgramBuffer& b : p.buffers) exchanged += b.name.starts_with("exchange_");
        // The interpreter finds races: a barrier too few is an error.
        Data got = input;
        REQUIRE(kit::interpret(p, got.pointers(), c.symbols, ++number) == faults);
        CHECK(case_difference(k, want, got) == "");
      }
    }
  }
  CHECK(exchanged > 20);
}

TEST_CASE("each shuffle is a store, a barrier and a load") {
  // Two shuffles of one type use the halves of the buffer by turns; behind a loop that has some of its own stands one more
  // barrier.
  kit::Program p = kit::parse_program(R"(program @meet(%x: in f32[64], %y: out f32[64]) wave 32 {
  launch {
    block t < 64 {
      %1 = load %x[t] : f32
      %2 = shuffle xor 5 %1 : f32
      %3 = shuffle from 3 of 8 %2 : f32
      barrier warp
      serial i < 2 {
        %4 = load %x[t] : f32
        %5 = shuffle xor 1 %4 : f32
        store %y[t], %5
      }
      %6 = shuffle xor 16 %3 : f32
      store %y[t], %6
    }
  }
}
)");
  kit::Program before = p;
  std::vector<float> x(64), want(64), got(64);
  for (size_t i = 0; i < 64; ++i) x[i] = static_cast<float>(i * i);
  const auto run = [&](kit::Program& q, std::vector<float>& y) {
    void* buffers[] = {x.data(), y.data()};
    kit::interpret(q, buffers, {}, 1);
  };
  run(before, want);
  kit::GpuDescription d = without_shuffles("sim32");
  kit::without_shuffles(p);
  kit::verify(p, d);
  run(p, got);
  CHECK(want == got);
  CHECK(kit::print(p) == R"(program @meet(%x: in f32[64], %y: out f32[64]) wave 32 {
  launch {
    shared %exchange_f32: f32[128]
    block t < 64 {
      %0 = load %x[t] : f32
      store %exchange_f32[t], %0
      barrier block
      %1 = load %exchange_f32[t + 5 - 2 * mod(mod(t, 32), 2) - 8 * mod(floordiv(mod(t, 32), 4), 2)] : f32
      store %exchange_f32[t + 64], %1
      barrier block
      %2 = load %exchange_f32[t + 67 - mod(mod(t, 32), 8)] : f32
      barrier block
      serial i < 2 {
        %3 = load %x[t] : f32
        barrier block
        store %exchange_f32[t], %3
        barrier block
        %4 = load %exchange_f32[t + 1 - 2 * mod(mod(t, 32), 2)] : f32
        store %y[t], %4
      }
      barrier block
      store %exchange_f32[t], %2
      barrier block
      %5 = load %exchange_f32[t + 16 - 32 * floordiv(mod(t, 32), 16)] : f32
      store %y[t], %5
    }
  }
}
)");
}
