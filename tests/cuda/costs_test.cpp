// SPDX-License-Identifier: Apache-2.0
// What min_cut sets against each other on a device: times of kernels and the price of a kept byte are those of one machine.
#include <catch2/catch.hpp>

#include "support.hpp"

using namespace tessera::test;

namespace {

// A joint graph whose backward half reads %a.
std::string step(int64_t rows, int64_t columns) {
  const std::string type = "f32[" + std::to_string(rows) + ", " + std::to_string(columns) + "]@cuda:0";
  return "graph @step(%x: " + type + ", %w: " + type + ") -> (f32[]@cuda:0, " + type + ") {\n" +
         "  %h = mul %x, %w\n"
         "  %a = exp %h\n"
         "  %l = reduce_sum %a {axes = [0, 1]}\n"
         "  %d = grad %l, %w\n"
         "  return %l, %d\n}";
}

std::string plan(const std::string& costs, const std::string& text, const std::string& partitioner = "min_cut") {
  const e::Context c =
      make_context(kFakeOptions, "\"cuda\", \"reference\"", "\"tessera.backend.cuda\", \"tessera.partitioner.remat\"",
                   "[partitioner]\nname = \"" + partitioner + "\"\ncosts = \"" + costs + "\"\n");
  return c.memory_plans(c.parse(text, "test"));
}

}  // namespace

TEST_CASE("predicted costs and kept bytes are those of the described device") {
  if (hardware()) return;  // the fake describes 3.35 TB/s
  // 64 KiB: 40 ns to keep, half a microsecond to compute again. Of a CPU's memory they would be 6.6 us and 1.9.
  const std::string small = plan("predicted", step(64, 256));
  INFO(small);
  CHECK(small.find("\"recomputed\":[]") != std::string::npos);
  CHECK(small.find("\"saved_bytes\":65536") != std::string::npos);
  // 64 MiB: 40 us to keep, 13 us to compute again.
  const std::string large = plan("predicted", step(4096, 4096));
  INFO(large);
  CHECK(large.find("\"recomputed\":[\"") != std::string::npos);
  CHECK(large.find("\"saved_bytes\":0") != std::string::npos);
}

TEST_CASE("measured kernels have operands of any size, and are not computed again for a price of another machine") {
  if (hardware()) return;
  const std::string measured = plan("measured", step(520, 520));  // more than is written by the host
  INFO(measured);
  CHECK(measured.find("\"recomputed\":[]") != std::string::npos);
}

TEST_CASE("a copy on a device takes that device's time, and a view none") {
  if (hardware()) return;
  // The last output is a view until it is copied into memory of its own: 64 MiB read and written, 40 us, and 6.7 ms on a host.
  const std::string text = plan("predicted", R"(graph @step(%x: f32[4096, 4096]@cuda:0, %w: f32[4096, 4096]@cuda:0)
      -> (f32[]@cuda:0, f32[4096, 4096]@cuda:0, f32[4096, 4096]@cuda:0) {
    %h = mul %x, %w
    %a = exp %h
    %l = reduce_sum %a {axes = [0, 1]}
    %d = grad %l, %w
    %p = dot_general %x, %w {lhs_contract = [1], rhs_contract = [0]}
    %t = transpose %p {perm = [1, 0]}
    return %l, %d, %t
  })", "budget");
  INFO(text);
  const size_t at = text.find("\"predicted_ms\":");
  REQUIRE(at != std::string::npos);
  const double ms = std::stod(text.substr(at + 15));
  CHECK(ms > 2);  // the product alone
  CHECK(ms < 4);
}
