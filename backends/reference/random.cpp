// SPDX-License-Identifier: Apache-2.0
// Random ops, bit by bit as docs/random.md defines them.
#include <cmath>
#include <numbers>

#include "op.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

struct Block {
  uint32_t word[4];
};

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11).
Block philox(uint64_t key, uint64_t counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
                              static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

class Stream {
 public:
  explicit Stream(const Tensor& state)
      : key_(static_cast<uint64_t>(state.integer({0}))), counter_(static_cast<uint64_t>(state.integer({1}))) {}

  uint32_t word(int64_t i) const { return philox(key_, counter_ + static_cast<uint64_t>(i / 4)).word[i % 4]; }
  uint64_t wide(int64_t i) const { return uint64_t{word(2 * i)} << 32 | word(2 * i + 1); }  // of element i
  double uniform(int64_t i) const { return (word(i) >> 8) * 0x1p-24; }                      // exact in f32
  double uniform53(int64_t i) const { return (wide(i) >> 11) * 0x1p-53; }

  void advance(const Tensor& next, int64_t words) const {
    next.put<Int>(0, key_);
    next.put<Int>(1, counter_ + static_cast<uint64_t>(words / 4 + (words % 4 != 0)));
  }

 private:
  uint64_t key_, counter_;
};

void random_bits(const Op& op) {
  const Stream s(op.in(0));
  const Tensor y = op.out();
  const int64_t n = y.elements();
  for (int64_t i = 0; i < n; ++i) y.put<Int>(i, s.word(i));
  s.advance(op.out(1), n);
}

// v >= 0 rounded toward zero. Non-negative patterns are ordered like their values; f8e8m0 has no zero and keeps its lowest
// value.
void put_truncated(const Tensor& y, int64_t i, double v) {
  y.put<double>(i, v);
  const int bits = dtype_bits(y.dtype());
  if (bits > 16 || !(y.get<double>(i) > v)) return;
  const Tensor pattern = y.as(bits == 16 ? TSR_U16 : bits == 8 ? TSR_U8 : TSR_U4);
  if (const Int code = pattern.get<Int>(i); code > 0) pattern.put<Int>(i, code - 1);
}

void random_uniform(const Op& op) {
  const Stream s(op.in(0));
  const Tensor y = op.out();
  const int64_t n = y.elements();
  const bool wide = y.dtype() == TSR_F64;
  for (int64_t i = 0; i < n; ++i) put_truncated(y, i, wide ? s.uniform53(i) : s.uniform(i));
  s.advance(op.out(1), wide ? 2 * n : n);
}

void random_normal(const Op& op) {
  const Stream s(op.in(0));
  const Tensor y = op.out();
  const int64_t n = y.elements(), even = n + n % 2;
  const bool wide = y.dtype() == TSR_F64;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t pair = i - i % 2;
    const double u = wide ? s.uniform53(pair) + 0x1p-53 : s.uniform(pair) + 0x1p-24;  // (0, 1]
    const double angle = 2 * std::numbers::pi * (wide ? s.uniform53(pair + 1) : s.uniform(pair + 1));
    const double v = std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
    y.put<double>(i, wide ? v : static_cast<float>(v));  // narrower dtypes round the f32 value
  }
  s.advance(op.out(1), wide ? 2 * even : even);
}

void random_int(const Op& op) {
  __extension__ using Wide = unsigned __int128;
  const Stream s(op.in(0));
  const Tensor y = op.out();
  const int64_t n = y.elements(), low = op.integer("low"), high = op.integer("high");
  if (high <= low)
    op.fail("TSR-R012", "the range [" + std::to_string(low) + ", " + std::to_string(high) + ") is empty",
            "high must be greater than low");
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  for (int64_t i = 0; i < n; ++i) y.put<Int>(i, low + static_cast<Int>(static_cast<Wide>(s.wide(i)) * span >> 64));
  s.advance(op.out(1), 2 * n);
}

void dropout(const Op& op) {
  const Stream s(op.in(1));
  const Tensor x = op.in(0), y = op.out();
  const double p = op.real("p");
  double factor = 1 / (1 - p);
  if (x.dtype() != TSR_F64) factor = static_cast<float>(factor);
  for (Walk w(x.sizes()); w; w.next()) {
    const bool kept = p < 1 && s.uniform(w.position()) >= p;
    y.put<double>(w.position(), kept ? x.real(w.index()) * factor : 0);
  }
  s.advance(op.out(1), x.elements());
}

}  // namespace

std::span<const Entry> random_ops() {
  static constexpr Entry entries[] = {
      {"random_bits", random_bits},
      {"random_uniform", random_uniform},
      {"random_normal", random_normal},
      {"random_int", random_int},
      {"dropout", dropout},
  };
  return entries;
}

}  // namespace tessera::reference
