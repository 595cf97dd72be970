// SPDX-License-Identifier: Apache-2.0
// Ranges of NVTX around launches: names of kernels and nodes, as a profiler sees them.
#include <catch2/catch.hpp>

#include "support.hpp"

using namespace tessera::test;

namespace {

const char* const kText = R"(graph @g(%x: f32[4, 16]@cuda:0, %w: f32[16, 8]@cuda:0) -> (f32[4, 8]@cuda:0) {
  %a = matmul %x, %w
  %probabilities = softmax %a {axis = -1}
  return %probabilities
})";

std::string ranges_of(const e::Context& c) {
  const e::Executable p = compile(c, kText);
  const std::vector<e::Tensor> in = {numbers({4, 16}, 1).copy_to(gpu()), numbers({16, 8}, 2).copy_to(gpu())};
  hook<fake_cuda_ranges_t>("fake_cuda_ranges")(1);
  const e::Tensor y = p.run(in)[0];
  CHECK(same_bits(y, compile(cuda(), kText).run(in)[0]));
  return hook<fake_cuda_ranges_t>("fake_cuda_ranges")(0);
}

}  // namespace

TEST_CASE("a profiler sees a range around each launch, with the kernel's name and the node's") {
  if (hardware()) return;
  const std::string library = "nvtx = \"" FAKE_CUDA_LIBRARY "\"\n";
  const std::string ranges = ranges_of(make_context(kFakeOptions + library));
  INFO(ranges);
  CHECK(ranges.find("(cuda.cublaslt.dot_general: dot_general %") != std::string::npos);
  CHECK(ranges.find("(cuda.softmax: softmax %probabilities)") != std::string::npos);
}

TEST_CASE("without a profiler, or where it is forbidden, nothing is marked, and a missing library harms nobody") {
  if (hardware()) return;
  for (const char* how : {"", "nvtx = \"off\"\n", "nvtx = \"/nowhere\"\n"})
    CHECK(ranges_of(make_context(kFakeOptions + how)) == "");
}
