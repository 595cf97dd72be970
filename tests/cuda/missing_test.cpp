// SPDX-License-Identifier: Apache-2.0
// What a machine may lack: each is told by name, and optional = true makes it a notice.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "support.hpp"

using namespace tessera::test;

namespace {

std::string error_with(const char* environment, const std::string& options) {
  setenv("FAKE_CUDA", environment, 1);
  return error_of([&] { (void)make_context(options); });
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

// One case: a driver that was opened once stays open for the process.
TEST_CASE("what is missing is told") {
  std::string error = error_with("", "driver = \"/nowhere/libcuda.so.1\"\n");
  INFO(error);
  CHECK(has(error, "TSR-H001"));
  CHECK(has(error, "no CUDA driver: '/nowhere/libcuda.so.1' cannot be opened"));

  error = error_with("", "driver = \"libm.so.6\"\n");
  INFO(error);
  CHECK(has(error, "TSR-H003"));
  CHECK(has(error, "it lacks cuInit"));

  error = error_with("version=11080", kFakeOptions);
  INFO(error);
  CHECK(has(error, "TSR-H003"));
  CHECK(has(error, "is of CUDA 11.8, expected 12.0 or newer"));

  error = error_with("devices=0", kFakeOptions);
  INFO(error);
  CHECK(has(error, "TSR-H002"));
  CHECK(has(error, "CUDA_VISIBLE_DEVICES"));

  error = error_with("init=3", kFakeOptions);
  INFO(error);
  CHECK(has(error, "TSR-H001"));
  CHECK(has(error, "does not start: CUDA_ERROR_NOT_INITIALIZED (3)"));

  {
    // Optional: a notice, and the next backend runs.
    const e::Context c = make_context("driver = \"/nowhere/libcuda.so.1\"\n", "\"cuda\", \"reference\"",
                                      "{ id = \"tessera.backend.cuda\", optional = true }");
    const e::Executable p = compile(c, "graph @g(%x: f32[3]) -> (f32[3]) {\n  %y = neg %x\n  return %y\n}");
    CHECK(static_cast<const float*>(p.run(std::vector<e::Tensor>{numbers({3}, 1)})[0].data())[0] ==
          -static_cast<const float*>(numbers({3}, 1).data())[0]);
  }

  // From here on the driver is open.
  error = error_with("", "driver = \"" FAKE_CUDA_LIBRARY "\"\nnvrtc = \"/nowhere\"\n");
  INFO(error);
  CHECK(has(error, "TSR-H004"));
  CHECK(has(error, "tried: /nowhere"));

  error = error_with("nvrtc=11", kFakeOptions);
  INFO(error);
  CHECK(has(error, "TSR-H004"));
  CHECK(has(error, "too old"));
}
