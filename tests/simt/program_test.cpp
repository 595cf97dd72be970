// SPDX-License-Identifier: Apache-2.0
// Programs as data: the text form, each rule of the verifier, and what the interpreter finds.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "simt_support.hpp"
#include "tessera/kit/program/interpret.hpp"
#include "tessera/kit/program/verify.hpp"
#include "tessera/plugin.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

const char* const kReverse =
    R"(program @reverse(%x: in f32[64 * s0], %y: out f32[64 * s0]) symbols(s0 >= 1 multiple 2) wave 32 {
  require s0 <= 1000
  launch {
    shared %s: f32[64]
    register %r: f32[4]
    grid b0 < s0 {
      warp w0 < 2 {
        lane l0 < 32 {
          %0 = load %x[32 * w0 + 64 * b0 + l0] : f32
          store %s[32 * w0 + l0], %0
          barrier block
          %1 = load %s[63 - 32 * w0 - l0] : f32
          store %y[32 * w0 + 64 * b0 + l0], %1
        }
      }
    }
  }
}
)";

// A wave multiplies [16, 16] by [16, 8], from row-major memory.
const char* const kProduct =
    R"(program @product(%x: in bf16[256], %y: in bf16[128], %z: out f32[128]) wave 32 {
  launch {
    register %sums: f32[4]
    register %a: bf16[8]
    register %b: bf16[4]
    warp w0 < 1 {
      lane l0 < 32 {
        unroll i0 < 4 {
          %0 = const 1 : f32
          store %sums[i0], %0
        }
        unroll i1 < 8 {
          %1 = load %x[16 * floordiv(l0, 4) + 128 * mod(floordiv(i1, 2), 2)
            + 2 * mod(l0, 4) + 8 * floordiv(i1, 4) + mod(i1, 2)] : bf16
          store %a[i1], %1
        }
        unroll i2 < 4 {
          %2 = load %y[floordiv(l0, 4) + 16 * mod(l0, 4) + 64 * floordiv(i2, 2) + 8 * mod(i2, 2)] : bf16
          store %b[i2], %2
        }
        mma bf16 %sums[0], %a[0], %b[0]
        unroll i3 < 4 {
          %3 = load %sums[i3] : f32
          store %z[8 * floordiv(l0, 4) + 64 * floordiv(i3, 2) + 2 * mod(l0, 4) + mod(i3, 2)], %3
        }
      }
    }
  }
}
)";

// Four waves multiply [64, 128] by [128, 8] in two steps, from row-major memory: left lies turned, right does not.
const char* const kGroup =
    R"(program @group(%x: in bf16[8192], %y: in bf16[1024], %z: out f32[512]) wave 32 {
  launch {
    shared %left: bf16[8192] align 1024
    shared %right: bf16[1024] align 1024
    register %sums: f32[4]
    warp w0 < 4 {
      lane l0 < 32 {
        unroll i0 < 4 {
          %0 = const 1 : f32
          store %sums[i0], %0
        }
        serial k0 < 2 {
          unroll i1 < 32 {
            %1 = load %x[256 * i1 + 128 * floordiv(w0, 2) + 64 * k0 + 32 * mod(w0, 2) + l0] : bf16
            store %left[4096 * k0 + 2048 * mod(w0, 2) + 64 * l0 + mod(2 * i1 + floordiv(w0, 2), 8)
              + 32 * mod(floordiv(i1, 16) + floordiv(l0, 4), 2) + 16 * mod(floordiv(i1, 8) + floordiv(l0, 2), 2)
              + 8 * mod(floordiv(i1, 4) + l0, 2)], %1
          }
          unroll i3 < 4 {
            %2 = load %y[256 * i3 + 128 * floordiv(w0, 2) + 64 * k0 + 32 * mod(w0, 2) + l0] : bf16
            store %right[512 * k0 + 128 * i3 + 64 * floordiv(w0, 2) + mod(l0, 8)
              + 32 * mod(mod(w0, 2) + floordiv(i3, 2), 2) + 16 * mod(floordiv(l0, 16) + i3, 2)
              + 8 * mod(floordiv(l0, 8) + floordiv(w0, 2), 2)], %2
          }
          mma_wait %sums[0] columns 8
          barrier block
          mma_group bf16 %sums[0], %left[4096 * k0] pitch 4096 turned, %right[512 * k0] pitch 512, columns 8 depth 64
        }
        mma_wait %sums[0] columns 8
        unroll i2 < 4 {
          %3 = load %sums[i2] : f32
          store %z[128 * w0 + 8 * floordiv(l0, 4) + 64 * floordiv(i2, 2) + 2 * mod(l0, 4) + mod(i2, 2)], %3
        }
      }
    }
  }
}
)";

// Four waves sum the elements of 1,024 pairs, two steps of which are on their way while a third is added.
const char* const kCopies =
    R"(program @copies(%x: in f32[2048], %z: out f32[128]) wave 32 {
  launch {
    shared %steps: f32[1536]
    register %sum: f32[1]
    warp w0 < 4 {
      lane l0 < 32 {
        %0 = const 0 : f32
        store %sum[0], %0
        copy 4 %steps[128 * w0 + 4 * l0], %x[128 * w0 + 4 * l0]
        copy_end
        serial k0 < 4 {
          %1 = index k0 : i64
          %2 = const 3 : i64
          %3 = lt %1, %2 : bool
          copy 4 %steps[512 * mod(k0 + 1, 3) + 128 * w0 + 4 * l0], %x[512 * k0 + 128 * w0 + 4 * l0 + 512] if %3
          copy_end
          copy_wait 1
          barrier block
          unroll i0 < 4 {
            %4 = load %sum[0] : f32
            %5 = load %steps[512 * mod(k0, 3) + 128 * i0 + 4 * l0 + w0] : f32
            %6 = add %4, %5 : f32
            store %sum[0], %6
          }
        }
        copy_wait 0
        %7 = load %sum[0] : f32
        store %z[32 * w0 + l0], %7
      }
    }
  }
}
)";

bool contains(const std::string& what, const std::string& part) {
  INFO(what);
  return what.find(part) != what.npos;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string parse_failure(const std::string& text) {
  try {
    kit::parse_program(text);
  } catch (const sdk::Error& e) {
    return e.code + " " + e.what();
  }
  return "";
}

std::string verify_failure(kit::Program p, const char* device = "sim32") {
  try {
    kit::verify(p, kit::gpu_description(device));
  } catch (const sdk::Error& e) {
    REQUIRE(e.code == "TSR-K024");
    return e.what();
  }
  return "";
}
std::string verify_failure(const std::string& from, const std::string& to) {
  return verify_failure(kit::parse_program(replaced(kReverse, from, to)));
}

std::string run_failure(const std::string& text, int64_t blocks = 2) {
  kit::Program p = kit::parse_program(text);
  kit::verify(p, kit::gpu_description("sim32"));
  std::vector<float> x(static_cast<size_t>(64 * blocks), 1.0f), y = x;
  void* const pointers[] = {x.data(), y.data()};
  try {
    kit::interpret(p, pointers, std::vector<int64_t>{blocks}, 3);
  } catch (const sdk::Error& e) {
    return e.code + " " + e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a program's text reads back as it was") {
  kit::Program p = kit::parse_program(kReverse);
  kit::verify(p, kit::gpu_description("sim32"));
  CHECK(kit::print(p) == kReverse);
  CHECK(kit::launch_shape(p, 0).threads == 64);
  CHECK(kit::launch_shape(p, 0).shared_bytes == 256);
}

TEST_CASE("what is no program is said with its place") {
  CHECK(parse_failure("program @p() {") == "TSR-K026 program text:1:14: expected 'wave', found '{'");
  CHECK(parse_failure("program @p() wave 0 {}") ==
        "TSR-K026 program text:1:19: expected a number of lanes between 1 and 1024, found '0 {}'");
  CHECK(parse_failure(replaced(kReverse, "barrier block", "barrier grid")) ==
        "TSR-K026 program text:11:19: expected 'block', found 'grid'");
  CHECK(parse_failure(replaced(kReverse, "grid b0", "grid s0")) ==
        "TSR-K026 program text:6:12: expected an axis of another name than the symbol 's0', found ' < s0 {'");
  CHECK(parse_failure(replaced(kReverse, "%1 = load", "%1 = shuffle on")) ==
        "TSR-K026 program text:12:24: expected 'from', found 'on %s[63 - 32 * '");
  // Any prefix is an error, never a crash.
  const std::string text = kReverse;
  for (size_t n = 0; n + 2 < text.size(); ++n) CHECK(parse_failure(text.substr(0, n)).starts_with("TSR-K026"));
}

TEST_CASE("every rule of the verifier is checked") {
  CHECK(verify_failure("", "") == "");
  const auto broken = [](auto change) {
    kit::Program p = kit::parse_program(kReverse);
    change(p);
    return verify_failure(std::move(p));
  };
  CHECK(contains(broken([](kit::Program& p) { p.statements.emplace_back(); }), "every statement stands in a body (P1)"));
  CHECK(contains(broken([](kit::Program& p) { p.statements[2].body.push_back(p.statements[2].body[0]); }),
                 "stands once in a body (P1)"));
  CHECK(contains(broken([](kit::Program& p) { std::swap(p.statements[2].body[0], p.statements[2].body[1]); }),
                 "defined before and in scope (P2)"));
  CHECK(contains(verify_failure("%1 = load %s[63 - 32 * w0 - l0] : f32",
                                "%1 = load %s[63 - 32 * w0 - l0] : f32\n %5 = const 1 : i32\n %6 = add %5, %1 : i32"),
                 "arithmetic on one compute type (P3)"));
  CHECK(contains(verify_failure("%1 = load %s[63 - 32 * w0 - l0] : f32", "%1 = const 1 : i32"),
                 "has the type of the buffer (P3)"));
  CHECK(contains(broken([](kit::Program& p) { p.statements[3].inst.index = p.pool.axis(p.add_axis("q", p.pool.number(2))); }),
                 "an index mentions axes of loops around it (P4)"));
  CHECK(contains(verify_failure("store %s[32 * w0 + l0], %0", "store %s[32 * w0 + l0], %0\n block t < 2 {\n }"), "(P5)"));
  CHECK(contains(verify_failure("lane l0 < 32 {", "serial l0 < 32 {"), "warp and lane loops come together (P5)"));
  CHECK(contains(verify_failure("lane l0 < 32 {", "lane l0 < 16 {"), "as many lanes as the wave has: 32 (P6)"));
  CHECK(contains(verify_failure("warp w0 < 2 {", "warp w0 < 64 {"), "at most 1024 threads a block (P6)"));
  CHECK(contains(verify_failure(kit::parse_program(kReverse), "sim64"), "a wave of 64 lanes, as the device has (P6)"));
  CHECK(contains(verify_failure("store %s[32 * w0 + l0], %0", "store %s[32 * w0 + l0], %0\n unroll i < s0 {\n }"),
                 "a number of points, 4096 at most (P7)"));
  CHECK(contains(broken([](kit::Program& p) { p.statements[1].axis = p.statements[0].axis; }),
                 "an axis belongs to one loop (P7)"));
  CHECK(contains(verify_failure("%s[63 - 32 * w0 - l0]", "%s[64 + l0]"), "an index lies inside 's' (P8)"));
  CHECK(contains(verify_failure("shared %s: f32[64]", "shared %s: f32[64 * s0]"), "'s' has a number of elements (P9)"));
  CHECK(contains(verify_failure("shared %s: f32[64]", "shared %s: f32[64000]"), "bytes of shared memory, not 256000 (P9)"));
  CHECK(
      contains(verify_failure("register %r: f32[4]", "register %r: f32[400]"), "at most 255 registers a thread, not 400 (P9)"));
  CHECK(contains(verify_failure("store %s[32 * w0 + l0], %0", "store %r[l0], %0"),
                 "registers are indexed by unroll and vector axes and numbers alone (P10)"));
  CHECK(contains(verify_failure("store %s[32 * w0 + l0], %0", "unroll i < 4 {\n store %r[i + 1], %0\n }"),
                 "an index certainly inside 'r' (P10)"));
  const auto vector = [&](const std::string& body) {
    return verify_failure("store %s[32 * w0 + l0], %0", "store %s[32 * w0 + l0], %0\n" + body);
  };
  CHECK(vector("vector v < 4 {\n %5 = load %x[64 * b0 + v] : f32\n store %r[v], %5\n }") == "");
  CHECK(contains(vector("vector v < 4 {\n %5 = load %x[64 * b0 + v + 1] : f32\n store %r[v], %5\n }"),
                 "a multiple of the access's size (P11)"));
  CHECK(contains(vector("vector v < 4 {\n %5 = load %x[64 * b0 + 2 * v] : f32\n store %r[v], %5\n }"),
                 "elements side by side in 'x' (P11)"));
  CHECK(contains(vector("vector v < 3 {\n %5 = load %x[64 * b0 + v] : f32\n store %r[v], %5\n }"),
                 "a power of two of elements, of 2 to 16 bytes (P11)"));
  CHECK(contains(vector("vector v < 4 {\n %5 = load %x[64 * b0 + v] : f32\n %6 = neg %5 : f32\n store %r[v], %6\n }"),
                 "one load and the store of its value (P11)"));
  CHECK(contains(vector("vector v < 4 {\n %5 = load %x[64 * b0 + v] : f32\n store %s[v], %5\n }"),
                 "registers on one side, memory on the other (P11)"));
  CHECK(contains(verify_failure("store %s[32 * w0 + l0], %0", "store %x[l0], %0"), "an output is stored (P12)"));
  CHECK(contains(verify_failure("load %x[", "load %y["), "an input is loaded, or what was stored before (P12)"));
  const std::string lane = "%5 = index l0 : i64\n %6 = const 3 : i64\n %7 = lt %5, %6 : bool\n if %7 {\n ";
  CHECK(contains(verify_failure("barrier block", lane + "barrier block\n }"),
                 "around a barrier that depends on the thread (P13)"));
  CHECK(contains(verify_failure("barrier block", "serial i < 4 * w0 {\n barrier block\n }"),
                 "around a barrier that depends on the thread (P13)"));
  CHECK(verify_failure("barrier block", "serial i < 4 * b0 {\n barrier block\n }") == "");
  CHECK(contains(verify_failure("barrier block", lane + "%8 = shuffle xor 1 %0 : f32\n }"),
                 "around a shuffle that depends on the lane (P14)"));
  CHECK(contains(verify_failure("barrier block", "%8 = shuffle xor 32 %0 : f32"), "bits of a lane's number (P14)"));
  CHECK(contains(verify_failure("barrier block", "%8 = shuffle from 8 of 8 %0 : f32"),
                 "a lane of a group whose size is a power of two (P14)"));
  CHECK(contains(verify_failure("barrier block", lane + "}\n check %7, 9"), "a known fault (P15)"));
  const auto product = [](const std::string& from, const std::string& to, const char* device = "sim32") {
    return verify_failure(kit::parse_program(replaced(kProduct, from, to)), device);
  };
  const std::string mma = "mma bf16 %sums[0], %a[0], %b[0]";
  CHECK(product("", "") == "");
  CHECK(contains(product("wave 32 {\n  launch {", "wave 64 {\n  launch {", "sim64"), "(P6)"));
  CHECK(contains(product(mma, "%8 = index l0 : i64\n %9 = const 3 : i64\n %7 = lt %8, %9 : bool\n if %7 {\n " + mma + "\n }"),
                 "around a matrix instruction that depends on the lane (P16)"));
  CHECK(contains(product("mma bf16", "mma f32"), "factors of bf16 or f16 (P16)"));
  CHECK(contains(product(mma, "mma bf16 %sums[0], %x[0], %b[0]"), "registers of this launch (P16)"));
  CHECK(contains(product(mma, "mma bf16 %sums[0], %sums[0], %b[0]"), "and factors of the instruction's type (P16)"));
  CHECK(contains(verify_failure(kit::parse_program(
                     replaced(replaced(kProduct, "%a: bf16[8]", "%a: bf16[24]"), mma, "mma bf16 %sums[0], %a[4], %b[0]"))),
                 "a share that begins at a multiple of its size (P16)"));
  kit::GpuDescription none = kit::gpu_description("sim32");
  none.mma = false;
  kit::Program p = kit::parse_program(kProduct);
  CHECK_THROWS_AS(kit::verify(p, none), sdk::Error);
}

TEST_CASE("a matrix instruction multiplies the shares of a wave") {
  kit::Program p = kit::parse_program(kProduct);
  const std::string text = kit::print(p);
  CHECK(text.find("mma bf16 %sums[0], %a[0], %b[0]") != text.npos);
  CHECK(kit::print(kit::parse_program(text)) == text);
  kit::verify(p, kit::gpu_description("sim32"));
  // Small integers: every order of the sum gives them exactly.
  const auto bf16 = [](int x) { return static_cast<uint16_t>(kit::constant_bits(kit::Type::BF16, static_cast<double>(x))); };
  std::vector<uint16_t> x(256), y(128);
  std::vector<float> z(128);
  std::mt19937 r(5);
  for (uint16_t& e : x) e = bf16(static_cast<int>(r() % 9) - 4);
  for (uint16_t& e : y) e = bf16(static_cast<int>(r() % 9) - 4);
  void* const pointers[] = {x.data(), y.data(), z.data()};
  kit::interpret(p, pointers, {}, 1);
  const auto value = [](uint16_t bits) { return kit::constant_float(kit::Type::BF16, bits); };
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j) {
      double sum = 1;
      for (size_t k = 0; k < 16; ++k) sum += value(x[16 * i + k]) * value(y[8 * k + j]);
      CHECK(static_cast<double>(z[8 * i + j]) == sum);
    }
}

TEST_CASE("a matrix instruction of four waves multiplies what lies in shared memory") {
  const auto bf16 = [](int x) { return static_cast<uint16_t>(kit::constant_bits(kit::Type::BF16, static_cast<double>(x))); };
  std::vector<uint16_t> x(8192), y(1024);
  std::vector<float> z(512);
  std::mt19937 r(7);
  for (uint16_t& e : x) e = bf16(static_cast<int>(r() % 9) - 4);
  for (uint16_t& e : y) e = bf16(static_cast<int>(r() % 9) - 4);
  const auto failure = [&](const std::string& text) -> std::string {
    kit::Program p = kit::parse_program(text);
    kit::verify(p, kit::gpu_description("sim32"));
    void* const pointers[] = {x.data(), y.data(), z.data()};
    try {
      kit::interpret(p, pointers, {}, 1);
    } catch (const sdk::Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string text = kit::print(kit::parse_program(kGroup));
  CHECK(kit::print(kit::parse_program(text)) == text);
  REQUIRE(failure(kGroup) == "");
  const auto value = [](uint16_t bits) { return kit::constant_float(kit::Type::BF16, bits); };
  for (size_t i = 0; i < 64; ++i)
    for (size_t j = 0; j < 8; ++j) {
      double sum = 1;
      for (size_t k = 0; k < 128; ++k) sum += value(x[128 * i + k]) * value(y[128 * j + k]);
      CHECK(static_cast<double>(z[8 * i + j]) == sum);
    }

  const std::string wait = "mma_wait %sums[0] columns 8\n", last = wait + "        unroll i2";
  CHECK(contains(failure(replaced(kGroup, last, "unroll i2")), "is touched while a matrix instruction adds to it"));
  CHECK(contains(failure(replaced(kGroup, "barrier block", "")), "no barrier stands between"));
  // One piece of shared memory for both steps: the second is written while the first is read.
  CHECK(contains(failure(replaced(replaced(replaced(kGroup, "store %right[512 * k0", "store %right[0 * k0"),
                                           "%right[512 * k0] p", "%right[0] p"),
                                  wait, "")),
                 "no barrier stands between"));
  CHECK(contains(failure(replaced(replaced(replaced(kGroup, "store %right[512 * k0", "barrier block\n store %right[0 * k0"),
                                           "%right[512 * k0] p", "%right[0] p"),
                                  wait, "")),
                 "was written while a matrix instruction read it"));
  CHECK(contains(failure(replaced(replaced(kGroup, "bf16[1024] align", "bf16[4096] align"), "%right[512 * k0] p",
                                  "%right[512 * k0 + 512 * w0] p")),
                 "names another part of 'right' than its group"));

  const auto refused = [&](const std::string& from, const std::string& to) {
    return verify_failure(kit::parse_program(replaced(kGroup, from, to)));
  };
  CHECK(verify_failure(kit::parse_program(kGroup)) == "");
  CHECK(contains(verify_failure(kit::parse_program(kGroup), "sm_80"), "matrix instructions of four waves of 32 lanes (P17)"));
  CHECK(contains(refused("mma_group bf16", "mma_group f32"), "factors of bf16 or f16 (P17)"));
  CHECK(contains(refused("depth 64", "depth 24"), "a depth that is a multiple of 16 (P17)"));
  CHECK(contains(refused("pitch 512, columns 8", "pitch 512, columns 12"), "8 to 256 columns, a multiple of 8 (P17)"));
  CHECK(contains(refused("depth 64", "depth 32"), "a multiple of 64 elements side by side (P17)"));
  CHECK(contains(refused("pitch 4096 turned", "pitch 4100 turned"), "parts that lie apart, at multiples of 1,024 bytes (P17)"));
  CHECK(contains(refused("%left[4096 * k0] pitch 4096 turned, %right[512 * k0] pitch 512, columns 8 depth 64",
                         "%left[0] pitch 4096 turned, %right[0] pitch 0, columns 8 depth 128"),
                 "parts that lie apart, at multiples of 1,024 bytes (P17)"));
  CHECK(contains(refused("%left[4096 * k0] p", "%left[4080 * k0] p"), "begins at a multiple of 1,024 bytes (P17)"));
  CHECK(contains(refused("bf16[8192] align 1024", "bf16[8192]"), "begins at a multiple of 1,024 bytes (P17)"));
  CHECK(contains(refused("%left[4096 * k0] p", "%left[4608 * k0] p"), "certainly inside 'left' (P10)"));
  CHECK(
      contains(refused("mma_group bf16 %sums[0], %left", "mma_group bf16 %sums[0], %right"), "certainly inside 'right' (P10)"));
  CHECK(contains(refused("mma_group bf16 %sums[0], %left[4096 * k0]", "mma_group bf16 %sums[0], %x[0]"), "in shared memory"));
  CHECK(contains(refused("%sums[0], %left", "%left[0], %left"), "sums of f32 in registers of this launch (P17)"));
  CHECK(contains(refused("barrier block",
                         "barrier block\n %5 = index w0 : i64\n %6 = const 3 : i64\n %7 = lt %5, %6 : bool\n if "
                         "%7 {\n mma_wait %sums[0] columns 8\n }"),
                 "that depends on the thread (P17)"));
}

TEST_CASE("copies to shared memory go on until a thread waits for them") {
  std::vector<float> x(2048), z(128);
  std::mt19937 r(7);
  for (float& e : x) e = static_cast<float>(static_cast<int>(r() % 9) - 4);
  const auto failure = [&](const std::string& text) -> std::string {
    kit::Program p = kit::parse_program(text);
    kit::verify(p, kit::gpu_description("sim32"));
    void* const pointers[] = {x.data(), z.data()};
    try {
      kit::interpret(p, pointers, {}, 1);
    } catch (const sdk::Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string text = kit::print(kit::parse_program(kCopies));
  CHECK(kit::print(kit::parse_program(text)) == text);
  REQUIRE(failure(kCopies) == "");
  for (size_t w = 0; w < 4; ++w)
    for (size_t l = 0; l < 32; ++l) {
      float sum = 0;
      for (size_t i = 0; i < 16; ++i) sum += x[128 * i + 4 * l + w];
      CHECK(z[32 * w + l] == sum);
    }
  CHECK(contains(failure(replaced(kCopies, "copy_wait 1\n", "")), "is touched while a copy to it is on its way"));
  CHECK(contains(failure(replaced(kCopies, "copy_wait 1", "copy_wait 2")), "is touched while a copy to it is on its way"));
  CHECK(contains(failure(replaced(kCopies, "copy_end\n          copy_wait", "copy_wait")), "while a copy to it is on its way"));
  CHECK(contains(failure(replaced(kCopies, "barrier block", "")), "no barrier stands between"));
  // What is added while it is overwritten: a place less than it takes.
  CHECK(contains(failure(replaced(replaced(kCopies, "mod(k0 + 1, 3)", "mod(k0 + 1, 2)"), "mod(k0, 3)", "mod(k0, 2)")),
                 "no barrier stands between"));
  CHECK(contains(failure(replaced(kCopies, "copy_wait 0", "")), "before its copies to shared memory have arrived"));
  CHECK(contains(failure(replaced(kCopies, "512 * k0 + 128 * w0 + 4 * l0 + 512]", "512 * k0 + 128 * w0 + 4 * l0 + 516]")),
                 "elements from 2048 on of 'x' are outside its 2048"));

  const auto refused = [&](const std::string& from, const std::string& to) {
    return verify_failure(kit::parse_program(replaced(kCopies, from, to)));
  };
  CHECK(verify_failure(kit::parse_program(kCopies)) == "");
  CHECK(contains(verify_failure(kit::parse_program(replaced(kCopies, "wave 32", "wave 32")), "gfx1100"),
                 "a device that copies to shared memory on its own (P18)"));
  CHECK(contains(refused("copy 4 %steps[128", "copy 4 %z[128"), "shared memory of this launch to copy to (P18)"));
  CHECK(contains(refused("], %x[128 * w0", "], %z[128 * w0"), "an input to copy from, in which no output lies (P18)"));
  CHECK(contains(refused("%x: in f32", "%x: in i32"), "one type on both sides (P18)"));
  CHECK(contains(refused("copy 4 %steps[128", "copy 3 %steps[128"), "4, 8 or 16 bytes (P18)"));
  CHECK(contains(refused("copy 4 %steps[128 * w0 + 4", "copy 4 %steps[128 * w0 + 3"), "multiples of the copy's size (P18)"));
  CHECK(contains(refused("], %x[128 * w0 + 4", "], %x[128 * w0 + 3"), "multiples of the copy's size (P18)"));
  CHECK(contains(refused("mod(k0 + 1, 3)", "mod(k0 + 1, 4)"), "a place certainly inside 'steps' (P10)"));
  CHECK(contains(refused("], %x[128 * w0 + 4 * l0]", "], %x[128 * w0 + 4 * l0 + 2048]"), "an index lies inside 'x' (P8)"));
  CHECK(contains(refused(" if %3", " if %2"), "a bool condition (P3)"));
  CHECK(contains(refused("copy_wait 1", "copy_wait 99"), "0 to 64 batches that may go on (P18)"));
}

TEST_CASE("descriptions with numbers that cannot be are refused") {
  const kit::GpuDescription good = kit::gpu_description("sm_90a");
  CHECK(kit::why_absurd(good) == "");
  for (const kit::GpuDescription& d : kit::gpu_descriptions()) CHECK(kit::why_absurd(d) == "");
  const auto with = [&](auto change) {
    kit::GpuDescription d = good;
    change(d);
    return kit::why_absurd(d);
  };
  CHECK(with([](auto& d) { d.wave = 48; }) == "a wave has 32 or 64 lanes");
  CHECK(with([](auto& d) { d.units = 0; }) == "there are between 1 and 65,536 units");
  CHECK(with([](auto& d) { d.max_threads = 1000; }) == "a block has whole waves of threads");
  CHECK(with([](auto& d) { d.registers = -1; }) == "threads have registers");
  CHECK(with([](auto& d) { d.shared_bytes = int64_t{1} << 60; }) == "blocks have shared memory");
  CHECK(with([](auto& d) { d.bandwidth = 0; }) == "memory has a bandwidth");
  CHECK_THROWS_AS(kit::gpu_description("sm_1"), sdk::Error);
  SimtKernel k = lower_case(simt_cases()[0]);
  kit::GpuDescription absurd = good;
  absurd.wave = 7;
  CHECK_THROWS_AS(kit::choose_simt(k.rows.kernel, absurd), sdk::Error);
}

TEST_CASE("the interpreter finds what is wrong with threads and memory") {
  CHECK(run_failure(kReverse) == "");
  CHECK(run_failure(replaced(kReverse, "          barrier block\n", "")).find("no barrier stands between") !=
        std::string::npos);
  CHECK(run_failure(replaced(kReverse, "store %s[32 * w0 + l0], %0", "store %s[32 * w0 + floordiv(l0, 2)], %0"))
            .find("no barrier stands between") != std::string::npos);
  const std::string unwritten = run_failure(replaced(kReverse, "          store %s[32 * w0 + l0], %0\n", ""));
  CHECK(unwritten.starts_with("TSR-K031 program @reverse, launch 0, statement 5 (load), block "));
  CHECK(unwritten.ends_with("of 's' is read before it is written"));
  CHECK(run_failure(replaced(kReverse, "%1 = load %s[63 - 32 * w0 - l0] : f32", "%1 = load %r[2] : f32"))
            .ends_with("element 2 of 'r' is read before it is written"));
  CHECK(run_failure(replaced(kReverse, "load %x[", "load %x[64 + ")).find("of 'x' is outside its 128 elements") !=
        std::string::npos);
  CHECK(run_failure(replaced(kReverse, "store %y[32 * w0 + 64 * b0", "store %y[32 * w0 + 0 * b0"))
            .find("no barrier stands between") != std::string::npos);
  CHECK(run_failure(kReverse, 1001) == "TSR-K032 program @reverse is right for sizes of at most 1000, not 1001");
  // A condition that the verifier cannot tell apart from one that is the same for all lanes.
  const std::string data =
      replaced(kReverse, "          barrier block\n",
               "          barrier block\n          %5 = load %x[64 * b0 + w0] : f32\n          %6 = lt %5, %5 : bool\n"
               "          if %6 {\n            barrier warp\n          }\n");
  CHECK(run_failure(data) == "");
}

TEST_CASE("text that was damaged is refused or is another program, and never more than that") {
  std::mt19937_64 r(11);
  std::vector<std::string> texts = {kReverse};
  for (const SimtCase& c : simt_cases()) {
    if (c.name != "softmax" && c.name != "column_max" && c.name != "turn") continue;
    SimtKernel k = lower_case(c);
    const kit::GpuDescription& d = kit::gpu_description("sim32");
    texts.push_back(kit::print(make(k, c, choose(k, c, d, {}), d, {})));
  }
  size_t read = 0, verified = 0;
  for (int n = 0; n < 2500; ++n) {
    std::string text = texts[r() % texts.size()];
    for (uint64_t edits = 1 + r() % 3; edits > 0; --edits) {
      const size_t at = r() % text.size(), length = std::min<size_t>(1 + r() % 12, text.size() - at);
      static constexpr std::string_view letters = "0123456789%{}[]()<,:*-+ abfilrsuvw@\n";
      switch (r() % 4) {
        case 0: text[at] = letters[r() % letters.size()]; break;
        case 1: text.erase(at, length); break;
        case 2: text.insert(at, text.substr(r() % text.size(), length)); break;
        default: text.insert(at, std::to_string(r() % 3 == 0 ? r() : r() % 100));
      }
    }
    INFO(text);
    try {
      kit::Program p = kit::parse_program(text);
      ++read;
      kit::verify(p, kit::gpu_description("sim32"));
      ++verified;
      CHECK(kit::print(kit::parse_program(kit::print(p))) == kit::print(p));
    } catch (const sdk::Error& e) {
      const std::string codes = "TSR-K021 TSR-K022 TSR-K026 TSR-K024";
      if (codes.find(e.code) == codes.npos) FAIL(e.code << " " << e.what());
    }
  }
  CHECK(read > 100);
  CHECK(verified > 20);
}

// One barrier or condition less, or an index of shared memory moved: found by an error or by other bits.
TEST_CASE("programs with one statement less are found out") {
  const kit::SimtOrder order;
  size_t mutants = 0;
  std::vector<std::string> missed;
  for (const SimtCase& c : simt_cases()) {
    if (c.name.starts_with("rms_backward") || c.name == "column_sum") continue;  // they take seconds each
    if (c.name == "pool") continue;  // one thread a point: it has neither barriers nor shared memory
    // Its last launch has threads for 512 chunks and finds two: what the others have is the identity.
    if (c.name == "turned_unknown") continue;
    SimtKernel k = lower_case(c);
    const kit::GpuDescription& d = kit::gpu_description("sim32");
    const kit::Program whole = make(k, c, choose(k, c, d, order), d, order);
    const Data input = case_data(k, c, 29, false);
    Data want = input;
    judge(k, c, order, want);
    std::vector<std::pair<uint32_t, kit::Program>> changed;
    for (uint32_t id = 0; id < whole.statements.size(); ++id) {
      const kit::Statement& x = whole.statements[id];
      kit::Program p = whole;
      if (x.kind == kit::StatementKind::Barrier || x.kind == kit::StatementKind::If) {
        for (auto* list : {&p.launches[0]}) std::erase(*list, id);
        for (kit::Statement& s : p.statements)
          if (const auto at = std::find(s.body.begin(), s.body.end(), id); at != s.body.end()) {
            const std::vector<uint32_t> inner = x.body;
            s.body.insert(s.body.erase(at), inner.begin(), inner.end());
          }
      } else if (x.kind == kit::StatementKind::Inst && (x.inst.op == kit::Op::Load || x.inst.op == kit::Op::Store) &&
                 p.buffers[x.inst.id].memory == kit::Memory::Shared && !p.buffers[x.inst.id].name.starts_with("max")) {
        // (A maximum does not notice that one of its values is missing, as long as it is not the greatest.)
        p.statements[id].inst.index = p.pool.add(x.inst.index, kit::kOne);
      } else {
        continue;
      }
      changed.emplace_back(id, std::move(p));
    }
    for (auto& [id, p] : changed) {
      ++mutants;
      Data got = input;
      try {
        kit::interpret(p, got.pointers(), c.symbols, 5);
        if (case_difference(k, want, got).empty()) missed.push_back(c.name + ", statement " + std::to_string(id));
      } catch (const sdk::Error& e) {
        if (e.code != "TSR-K031") missed.push_back(c.name + ": " + e.what());
      }
    }
  }
  // What is left changes no result: neighbours of chunks and runs that have no elements (both are the identity), a load whose
  // value is masked later, and a factor beyond the contracted dimension, where the other factor is 0.
  std::string list;
  for (const std::string& m : missed) list += m + "\n";
  INFO(list << missed.size() << " of " << mutants);
  CHECK(mutants > 100);
  CHECK(missed.size() <= 12);
}

TEST_CASE("a program that was written for 32 lanes is refused where a wave has 64") {
  CHECK(verify_failure(kit::parse_program(kReverse), "sim64") ==
        "program @reverse: a wave of 64 lanes, as the device has (P6)");
  CHECK(verify_failure(kit::parse_program(replaced(kReverse, "wave 32", "wave 64")), "sim64") ==
        "program @reverse, launch 0, statement 2 (lane l0): as many lanes as the wave has: 64 (P6)");
}
