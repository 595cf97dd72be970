// SPDX-License-Identifier: Apache-2.0
// The form of last resort computes every kernel with the family's bits, also those that no other form takes.
#include <catch2/catch.hpp>

#include "share.hpp"
#include "simt_support.hpp"
#include "tessera/kit/program/interpret.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/plugin.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE("one thread for each point gives the family's bits") {
  const kit::SimtOrder order;
  std::vector<SimtCase> cases = simt_cases();
  cases.push_back({"arg",
                   "graph @g(%x: f32[s0, 37]) symbols { s0: 1.. } {\n %a = argmax %x {axis = 1}\n %b = reduce_max %x {axes = "
                   "[1]}\n return %a, %b\n}\n",
                   "",
                   {3}});
  cases.push_back({"arg_across", "graph @g(%x: i32[1100, 3]) {\n %a = argmin %x {axis = 0}\n return %a\n}\n", "", {}});
  cases.push_back({"arg_unknown",
                   "graph @g(%x: f16[2, s0]) symbols { s0: 1.. } {\n %a = argmax %x {axis = 1}\n return %a\n}\n",
                   "",
                   {1300}});
  cases.push_back(
      {"chunks_of_chunks", "graph @g(%x: f32[1, 263000]) {\n %a = reduce_sum %x {axes = [1]}\n return %a\n}\n", "", {}});
  cases.push_back({"pool_mean",
                   "graph @g(%x: bf16[2, 3, 6, 7]) {\n %a = avg_pool %x {kernel = [3, 2], strides = [2, 2], pad_low = [1, 0], "
                   "pad_high = [0, 1], dilations = [1, 2], ceil_mode = true}\n return %a\n}\n",
                   "",
                   {}});
  cases.push_back({"convolution_transposed",
                   "graph @g(%x: f32[2, 4, s0], %w: f32[4, 3, 3]) symbols { s0: 1.. } {\n %a = conv_transpose %x, %w, _ "
                   "{strides = [2], pad_low = [1], pad_high = [0], output_pad = [1], dilations = [2], groups = 2}\n return "
                   "%a\n}\n",
                   "",
                   {5}});
  cases.push_back({"reads_elsewhere",
                   "graph @g(%x: f32[5, 6], %i: i64[]) {\n %t = tril %x {diagonal = 1}\n %p = pad %t {low = [1, 2], high = "
                   "[0, 1], mode = \"reflect\"}\n %s = dynamic_slice %p, %i, %i {sizes = [3, 4]}\n return %s\n}\n",
                   "",
                   {}});
  const size_t part = cases.size() / share_of(cases.size());
  for (size_t i = 0; i < cases.size(); i += part) {
    const SimtCase& c = cases[i];
    SimtKernel k = lower_case(c);
    const Data input = case_data(k, c, 7, true);
    Data want = input;
    const uint32_t faults = judge(k, c, order, want);
    if (k.pair) continue;  // two kernels
    for (const char* device : {"sim32", "sim64"}) {
      INFO(c.name << ", " << device);
      const kit::GpuDescription& d = kit::gpu_description(device);
      kit::Program p = kit::make_program(k.rows.kernel, kit::generic_schedule(d), d, order, {c.multiples});
      Data got = input;
      CHECK(kit::interpret(p, got.pointers(), c.symbols, 3) == faults);
      const std::string difference = case_difference(k, want, got);
      if (!difference.empty()) FAIL(difference << "\n" << kit::print(k.rows.kernel) << kit::print(p));
    }
  }
}

TEST_CASE("kernels that no form of their own fits fall back to it") {
  const kit::GpuDescription& d = kit::gpu_description("sim32");
  SimtKernel arg = lower_case({"arg", "graph @g(%x: f32[8, 37]) {\n %a = argmax %x {axis = 1}\n return %a\n}\n", "", {}});
  CHECK(kit::choose_simt(arg.rows.kernel, d).form == kit::SimtForm::Generic);
  SimtKernel point = lower_case({"point", "graph @g(%x: f32[]) {\n %a = exp %x\n return %a\n}\n", "", {}});
  CHECK(kit::choose_simt(point.rows.kernel, d).form == kit::SimtForm::Generic);
  SimtKernel narrow =
      lower_case({"narrow", "graph @g(%x: f32[3, 64], %y: f32[64, 64]) {\n %a = matmul %x, %y\n return %a\n}\n", "", {}});
  CHECK(kit::choose_simt(narrow.rows.kernel, d).form == kit::SimtForm::Generic);
}
