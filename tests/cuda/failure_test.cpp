// SPDX-License-Identifier: Apache-2.0
// Calls of the driver that fail, by function; a device that has failed; a process that forks.
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include "support.hpp"

using namespace tessera::test;

namespace {

const char* const kText = R"(graph @g(%x: f32[64]@cuda:0) -> (f32[64]@cuda:0) {
  %y = exp %x
  return %y
})";
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a call that fails is an error with its name, and the next call works") {
  const e::Tensor x = numbers({64}, 1).copy_to(gpu());
  const e::Executable p = compile(cuda(), kText);
  const auto run = [&] { (void)p.run(std::vector<e::Tensor>{x})[0].copy_to(0); };
  run();
  for (const char* function : {"cuLaunchKernel", "cuMemcpyDtoHAsync"}) {
    fail(function, 1);
    const std::string error = error_of(run);
    INFO(function << ": " << error);
    CHECK(has(error, "TSR-H006"));
    CHECK(has(error, "on 'cuda:0': CUDA_ERROR_FAKE (1): as the test asked"));
    CHECK(error_of(run).empty());
  }
  fail("cuMemAllocFromPoolAsync", 2);  // trims and tries again
  calls(nullptr);
  e::Tensor big = e::Tensor::create(TSR_F32, std::vector<int64_t>{1 << 20}, gpu());
  CHECK(calls("cuMemPoolTrimTo") == 1);
  fail("cuLaunchKernel", 900);
  CHECK(has(error_of(run), "TSR-H008"));
  CHECK(error_of(run).empty());
}

TEST_CASE("a product that cuBLASLt fails to run is told with its shape") {
  const e::Tensor x = numbers({4, 8}, 1).copy_to(gpu());
  const e::Executable p = compile(cuda(), R"(graph @g(%x: f32[4, 8]@cuda:0) -> (f32[4, 4]@cuda:0) {
    %y = dot_general %x, %x {lhs_contract = [1], rhs_contract = [1]}
    return %y
  })");
  fail("cublasLtMatmul", 1);
  const std::string error = error_of([&] { (void)p.run(std::vector<e::Tensor>{x}); });
  INFO(error);
  CHECK(has(error, "TSR-R031"));
  CHECK(has(error, "cublasLtMatmul: CUBLAS_STATUS_FAKE (13), for a product 4 x 4 x 8, f32"));
}

TEST_CASE("a launch makes no call of the driver but its own") {
  const e::Tensor x = numbers({64}, 1).copy_to(gpu());
  const e::Executable p = compile(cuda(), kText);
  for (int i = 0; i < 3; ++i) (void)p.run(std::vector<e::Tensor>{x});
  calls(nullptr);
  const auto y = p.run(std::vector<e::Tensor>{x});
  CHECK(calls("cuLaunchKernel") == 1);
  CHECK(calls("cuMemAllocFromPoolAsync") == 0);
  CHECK(calls("cuStreamSynchronize") == 0);
  CHECK(calls("cuModuleLoadData") == 0);
  CHECK(calls("cuCtxSetCurrent") == 0);
}

TEST_CASE("a child of a process that has used the device is refused") {
  const e::Tensor x = numbers({64}, 1).copy_to(gpu());
  const e::Executable p = compile(cuda(), kText);
  const pid_t child = fork();
  if (child == 0) {
    const std::string error = error_of([&] { (void)p.run(std::vector<e::Tensor>{x}); });
    _exit(has(error, "TSR-H005") && has(error, "spawn") ? 0 : 1);
  }
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(error_of([&] { (void)p.run(std::vector<e::Tensor>{x}); }).empty());
}

// Last: the device is gone after it.
TEST_CASE("z: an illegal address ends the device, and names what ran last") {
  const e::Tensor x = numbers({64}, 1).copy_to(gpu());
  const e::Executable p = compile(cuda(), kText);
  (void)p.run(std::vector<e::Tensor>{x});
  fail("cuStreamSynchronize", 700);
  fail("cuMemcpyDtoHAsync", 700);
  const std::string error = error_of([&] { (void)p.run(std::vector<e::Tensor>{x})[0].copy_to(0); });
  INFO(error);
  CHECK(has(error, "TSR-H007"));
  CHECK(has(error, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  CHECK(has(error, "queued last: "));
  CHECK(has(error, "k_exp"));
  const std::string again = error_of([&] { (void)p.run(std::vector<e::Tensor>{x}); });
  INFO(again);
  CHECK(has(again, "has failed earlier"));
}
