// SPDX-License-Identifier: Apache-2.0
// The micro-kernels of integer products on every instruction set that this machine has, whichever the backend would choose:
// exact sums at the ends of the ranges, where sums of 16 bits would saturate.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "integer/tables.hpp"
#include "jit/isa.hpp"

using namespace cpu;

namespace {

std::vector<const IntegerIsa*> tables() {
  std::vector<const IntegerIsa*> out = {&integer_baseline()};
  if (native_isa().level >= 1) out.push_back(&integer_avx2());
  if (native_isa().level >= 2) out.push_back(&integer_avx512());
  if (native_isa().level >= 2 && __builtin_cpu_supports("avx512vnni")) out.push_back(&integer_avx512_vnni());
  return out;
}

// Elements of one side as the kernels multiply them.
int value(uint8_t byte, Elements e, bool quads, bool signed_side) {
  if (!quads) return e.is_signed ? static_cast<int8_t>(byte) : byte;
  const uint8_t b = e.flip ? byte ^ 0x80 : byte;
  return signed_side ? static_cast<int8_t>(b) : b;
}

}  // namespace

TEST_CASE("integer micro-kernels give exact sums") {
  std::mt19937_64 random(11);
  for (const IntegerIsa* isa : tables()) {
    const bool quads = isa->per == 4;
    for (int height = 1; height <= isa->mr; ++height)
      for (const int k : {1, 3, 4, 7, 64, 130})
        for (const int kind : {0, 1, 2, 3}) {
          INFO(isa->name << ", " << height << " rows, K " << k << ", kind " << kind);
          const bool unsigned_left = (kind & 1) != 0;
          const Elements left{(random() & 1) != 0, (random() & 1) != 0}, right{(random() & 1) != 0, (random() & 1) != 0};
          std::vector<uint8_t> a(static_cast<size_t>(height * k)), b(static_cast<size_t>(isa->nr * k));
          // Random bytes, or the largest magnitudes of either sign.
          const auto draw = [&](std::vector<uint8_t>& v) {
            constexpr uint8_t kEnds[] = {0, 127, 128, 255};
            for (uint8_t& x : v) x = kind < 2 ? static_cast<uint8_t>(random()) : kEnds[random() % 4];
          };
          draw(a), draw(b);
          const int words = (k + isa->per - 1) / isa->per;
          std::vector<uint32_t> pa(static_cast<size_t>(words * height)), pb(static_cast<size_t>(words * isa->nr) + 1024);
          std::vector<int64_t> at_a, at_b;
          for (int i = 0; i < height; ++i) at_a.push_back(i * k);
          for (int j = 0; j < isa->nr; ++j) at_b.push_back(j);
          isa->pack({a.data(), at_a.data(), height, height, k, 1, left, pa.data()});
          isa->pack({b.data(), at_b.data(), isa->nr, isa->nr, k, isa->nr, right, pb.data()});
          std::vector<int32_t> sums(static_cast<size_t>(height * isa->nr)), of_rows(static_cast<size_t>(height));
          (unsigned_left ? isa->unsigned_left : isa->unsigned_right)[height](words, pa.data(), pb.data(), sums.data());
          isa->add_up(pa.data(), words, height, !unsigned_left, of_rows.data());
          bool right_sums = true, right_rows = true;
          for (int i = 0; i < height; ++i) {
            int row = 0;
            for (int j = 0; j < isa->nr; ++j) {
              int want = 0;
              for (int x = 0; x < k; ++x)
                want += value(a[static_cast<size_t>(i * k + x)], left, quads, !unsigned_left) *
                        value(b[static_cast<size_t>(x * isa->nr + j)], right, quads, unsigned_left);
              right_sums &= sums[static_cast<size_t>(i * isa->nr + j)] == want;
            }
            for (int x = 0; x < k; ++x) row += value(a[static_cast<size_t>(i * k + x)], left, quads, !unsigned_left);
            right_rows &= of_rows[static_cast<size_t>(i)] == row;
          }
          CHECK(right_sums);
          CHECK(right_rows);
        }
  }
}
