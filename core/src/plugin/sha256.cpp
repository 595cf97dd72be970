// SPDX-License-Identifier: Apache-2.0
#include "plugin/sha256.hpp"

#include <sys/stat.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <tuple>

#include "support/error.hpp"

namespace tessera::core {
namespace {

// FIPS 180-4, section 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<uint32_t, 8>;

// Sanitizers leave these out: with their checks, the hashes of a build's own plugins, which are large then, take a minute.
#define TSR_UNSANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

TSR_UNSANITIZED inline uint32_t rotr(uint32_t x, unsigned by) { return x >> by | x << (32 - by); }

TSR_UNSANITIZED void compress_plain(State& state, const unsigned char* p, size_t blocks) {  // section 6.2.2
  const uint32_t* const round = kRound.data();
  for (; blocks > 0; --blocks, p += 64) {
    uint32_t w[64];
    for (size_t t = 0; t < 16; ++t)
      w[t] = static_cast<uint32_t>(p[4 * t]) << 24 | static_cast<uint32_t>(p[4 * t + 1]) << 16 |
             static_cast<uint32_t>(p[4 * t + 2]) << 8 | p[4 * t + 3];
    for (size_t t = 16; t < 64; ++t) {
      const uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t t = 0; t < 64; ++t) {
      const uint32_t s1 = rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25);
      const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round[t] + w[t];
      const uint32_t s0 = rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22);
      const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    const State sum = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += sum[i];
  }
}

#if defined(__x86_64__)
// The same on the SHA extensions (Intel SDM, SHA256RNDS2): four rounds a step, the state held as (ABEF, CDGH). Hashing every
// plugin's library stands in front of each start, and takes a tenth of the plain loop's time here. Each round waits for the one
// before it, so two messages beside each other take little more than the time of one.
template <int kMessages>
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha_ni(State* const* states, const unsigned char* const* from,
                                                                 size_t blocks) {
  const auto load = [](const void* at) __attribute__((target("sse2"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  };
  const unsigned char* p[kMessages];
  __m128i abef[kMessages], cdgh[kMessages];
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  for (int m = 0; m < kMessages; ++m) {
    p[m] = from[m];
    const __m128i cdab = _mm_shuffle_epi32(load(states[m]->data()), 0xb1),
                  efgh = _mm_shuffle_epi32(load(states[m]->data() + 4), 0x1b);
    abef[m] = _mm_alignr_epi8(cdab, efgh, 8), cdgh[m] = _mm_blend_epi16(efgh, cdab, 0xf0);
  }
  for (; blocks > 0; --blocks) {
    __m128i abef_before[kMessages], cdgh_before[kMessages], w[kMessages][4];
    for (int m = 0; m < kMessages; ++m) abef_before[m] = abef[m], cdgh_before[m] = cdgh[m];
#pragma GCC unroll 16
    for (int step = 0; step < 16; ++step) {
#pragma GCC unroll 2
      for (int m = 0; m < kMessages; ++m) {
        __m128i& next = w[m][step % 4];
        if (step < 4) {
          next = _mm_shuffle_epi8(load(p[m] + 16 * step), big_endian);
        } else {
          const __m128i last = w[m][(step + 3) % 4], before = w[m][(step + 2) % 4];
          const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(next, w[m][(step + 1) % 4]), _mm_alignr_epi8(last, before, 4));
          next = _mm_sha256msg2_epu32(sum, last);
        }
        const __m128i words = _mm_add_epi32(next, load(&kRound[static_cast<size_t>(4 * step)]));
        cdgh[m] = _mm_sha256rnds2_epu32(cdgh[m], abef[m], words);
        abef[m] = _mm_sha256rnds2_epu32(abef[m], cdgh[m], _mm_shuffle_epi32(words, 0x0e));
      }
    }
    for (int m = 0; m < kMessages; ++m) {
      abef[m] = _mm_add_epi32(abef[m], abef_before[m]);
      cdgh[m] = _mm_add_epi32(cdgh[m], cdgh_before[m]);
      p[m] += 64;
    }
  }
  for (int m = 0; m < kMessages; ++m) {
    const __m128i feba = _mm_shuffle_epi32(abef[m], 0x1b), dchg = _mm_shuffle_epi32(cdgh[m], 0xb1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(states[m]->data()), _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(states[m]->data() + 4), _mm_alignr_epi8(dchg, feba, 8));
  }
}

bool has_sha_ni() {
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0 && __builtin_cpu_supports("sse4.1");
}
#endif

void compress(State& state, const unsigned char* p, size_t blocks) {
#if defined(__x86_64__)
  static const bool fast = has_sha_ni();
  State* const states[] = {&state};
  if (fast) return compress_sha_ni<1>(states, &p, blocks);
#endif
  compress_plain(state, p, blocks);
}

void compress_both(State& a, State& b, const unsigned char* p, const unsigned char* q, size_t blocks) {
#if defined(__x86_64__)
  static const bool fast = has_sha_ni();
  State* const states[] = {&a, &b};
  const unsigned char* const from[] = {p, q};
  if (fast) return compress_sha_ni<2>(states, from, blocks);
#endif
  compress_plain(a, p, blocks);
  compress_plain(b, q, blocks);
}

class Sha256 {
 public:
  // Of two messages of the same length that have just begun.
  static void update_both(Sha256& a, Sha256& b, std::string_view x, std::string_view y) {
    const auto* p = reinterpret_cast<const unsigned char*>(x.data());
    const auto* q = reinterpret_cast<const unsigned char*>(y.data());
    const size_t whole = x.size() / 64 * 64;
    compress_both(a.state_, b.state_, p, q, whole / 64);
    a.length_ = b.length_ = whole;
    a.update(p + whole, x.size() - whole);
    b.update(q + whole, y.size() - whole);
  }

  void update(const void* data, size_t n) {
    const auto* p = static_cast<const unsigned char*>(data);
    length_ += n;
    if (used_ > 0) {
      const size_t take = std::min(n, block_.size() - used_);
      std::memcpy(block_.data() + used_, p, take);
      used_ += take;
      p += take;
      n -= take;
      if (used_ < block_.size()) return;
      compress(state_, block_.data(), 1);
      used_ = 0;
    }
    compress(state_, p, n / 64);
    p += n / 64 * 64;
    used_ = n % 64;
    if (used_ > 0) std::memcpy(block_.data(), p, used_);
  }

  std::string hex() {
    const uint64_t bits = length_ * 8;
    const unsigned char one = 0x80, zero = 0;
    update(&one, 1);
    while (used_ != 56) update(&zero, 1);
    unsigned char tail[8];
    for (int i = 0; i < 8; ++i) tail[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
    update(tail, 8);
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (const uint32_t word : state_)
      for (int shift = 28; shift >= 0; shift -= 4) out += digits[(word >> shift) & 15];
    return out;
  }

 private:
  // Section 5.3.3: the square roots of the first eight primes.
  State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  size_t used_ = 0;
  uint64_t length_ = 0;
};

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

std::pair<std::string, std::string> sha256_hex_of_both(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return {sha256_hex(a), sha256_hex(b)};
  Sha256 x, y;
  Sha256::update_both(x, y, a, b);
  return {x.hex(), y.hex()};
}

std::string sha256_file(const std::string& path) {
  using Key = std::tuple<std::string, int64_t, int64_t, int64_t, uint64_t>;
  static std::mutex mutex;
  static std::map<Key, std::string> known;
  const auto fail = [&] {
    return environment_error("TSR-C005", path + ": cannot read the file: " + std::generic_category().message(errno),
                             "check the path and its permissions");
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  struct stat info {};
  if (!file || fstat(fileno(file.get()), &info) != 0) throw fail();
  const Key key(path, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ino);
  {
    const std::lock_guard lock(mutex);
    if (const auto at = known.find(key); at != known.end()) return at->second;
  }
  Sha256 hash;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    errno = 0;
    const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get());
    if (std::ferror(file.get())) throw fail();
    if (n == 0) break;
    hash.update(buffer.data(), n);
  }
  std::string out = hash.hex();
  const std::lock_guard lock(mutex);
  known.emplace(key, out);
  return out;
}

}  // namespace tessera::core
