// SPDX-License-Identifier: Apache-2.0
// A device that is newer than NVRTC. In a process of its own: a driver that was opened once stays open.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "support.hpp"

using namespace tessera::test;

TEST_CASE("an architecture that NVRTC does not know is told") {
  setenv("FAKE_CUDA", "sm=121", 1);
  const e::Context context = make_context(kFakeOptions, "\"cuda\"");  // nobody else takes what cuda cannot compile
  const std::string error = error_of(
      [&] { (void)compile(context, "graph @g(%x: f32[64]@cuda:0) -> (f32[64]@cuda:0) {\n  %y = exp %x\n  return %y\n}"); });
  INFO(error);
  CHECK(error.starts_with("TSR-H009"));
  CHECK(error.find("does not know the architecture sm_121; it knows sm_75, sm_80, sm_90") != std::string::npos);
}
