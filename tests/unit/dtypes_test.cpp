// SPDX-License-Identifier: Apache-2.0
// Element types against tables made by PyTorch, ml_dtypes and exact rationals (tests/golden/dtypes/make_dtypes.py).
#include "tessera/dtypes.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace dtypes_test {

using namespace tessera;

namespace {

std::vector<std::vector<std::string>> golden(const std::string& name) {
  const char* root = std::getenv("TESSERA_SOURCE_DIR");
  const std::string path = std::string(root ? root : ".") + "/tests/golden/dtypes/" + name;
  std::ifstream in(path);
  INFO(path);
  REQUIRE(in);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  REQUIRE_FALSE(rows.empty());
  return rows;
}

uint64_t hex(const std::string& s) { return std::stoull(s, nullptr, 16); }

std::vector<unsigned char> bytes(const std::string& s) {
  std::vector<unsigned char> out;
  for (size_t i = 0; i + 1 < s.size(); i += 2) out.push_back(static_cast<unsigned char>(hex(s.substr(i, 2))));
  return out;
}

std::string text(const unsigned char* p, size_t n) {
  std::string s;
  for (size_t i = 0; i < n; ++i) {
    s += "0123456789abcdef"[p[i] >> 4];
    s += "0123456789abcdef"[p[i] & 15];
  }
  return s;
}

uint32_t canonical_bits(float x) { return std::isnan(x) ? 0x7FC00000u : std::bit_cast<uint32_t>(x); }

// Little endian: an element of 16 bits or less is the low end of the word. The words are as wide as the widest element,
// or the compiler warns of the cases that are not taken.
float decode_code(uint32_t dtype, uint16_t code) {
  const uint64_t word[2] = {code, 0};
  return load_as<float>(dtype, word, 0);
}

uint32_t encode_f64(uint32_t dtype, double x, Overflow mode) {
  uint64_t word[2] = {};
  store_from(dtype, word, 0, x, mode);
  return static_cast<uint32_t>(word[0]);
}

constexpr Overflow modes[] = {Overflow::PyTorch, Overflow::Special, Overflow::Saturate};

}  // namespace

TEST_CASE("dtype table: names, sizes, classes, lookup") {
  for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d) {
    INFO(dtype_name(d));
    CHECK(dtype_from_name(dtype_name(d)) == d);
    CHECK(is_float(d) + is_signed_int(d) + is_unsigned_int(d) + is_bool(d) + is_complex(d) == 1);
    // The digits after the class letter are the width, except for bool.
    const std::string name(dtype_name(d));
    if (!is_bool(d)) CHECK(dtype_bits(d) == std::stoi(name.substr(name.find_first_of("0123456789"))));
  }
  CHECK(dtype_bits(TSR_BOOL) == 8);
  CHECK(dtype_display_name(TSR_F32) == "Float");
  CHECK(dtype_display_name(TSR_I64) == "Long");
  CHECK(dtype_display_name(TSR_I8) == "Char");
  CHECK(dtype_display_name(TSR_F8E8M0) == "Float8_e8m0fnu");
  CHECK(dtype_from_name("f33") == TSR_DTYPE_INVALID);
  CHECK(dtype_from_name("invalid") == TSR_DTYPE_INVALID);
  CHECK(dtype_info(0xFFFFFFFFu).bits == 0);
  CHECK_FALSE(is_valid_dtype(TSR_DTYPE_COUNT));
}

TEST_CASE("storage_bytes rounds packed types up and refuses overflow") {
  CHECK(storage_bytes(TSR_I2, 0) == 0);
  CHECK(storage_bytes(TSR_I2, 5) == 2);
  CHECK(storage_bytes(TSR_F4E2M1, 3) == 2);
  CHECK(storage_bytes(TSR_C128, 3) == 48);
  CHECK(storage_bytes(TSR_U2, INT64_MAX) == INT64_MAX / 4 + 1);
  CHECK(storage_bytes(TSR_F32, INT64_MAX / 4) == INT64_MAX / 4 * 4);
  CHECK(storage_bytes(TSR_F32, INT64_MAX / 4 + 1) == -1);
  CHECK(storage_bytes(TSR_F32, -1) == -1);
  CHECK(storage_bytes(TSR_DTYPE_INVALID, 1) == -1);
}

TEST_CASE("decoding: every code of every format of 16 bits and less") {
  for (const auto& row : golden("decode.txt")) {
    const uint32_t dtype = dtype_from_name(row[0]);
    INFO(row[0]);
    REQUIRE(is_float(dtype));
    if (row[1] == "table") {
      REQUIRE(row.size() == 2 + (size_t{1} << dtype_bits(dtype)));
      for (uint32_t code = 0; code + 2 < row.size(); ++code) {
        INFO("code " << code);
        CHECK(canonical_bits(decode_code(dtype, static_cast<uint16_t>(code))) == hex(row[2 + code]));
      }
    } else {
      uint64_t h = 0xCBF29CE484222325u;
      for (uint32_t code = 0; code < 65536; ++code) {
        const uint32_t bits = canonical_bits(decode_code(dtype, static_cast<uint16_t>(code)));
        for (int i = 0; i < 32; i += 8) h = (h ^ ((bits >> i) & 255)) * 0x100000001B3u;
      }
      CHECK(h == hex(row[2]));
    }
  }
}

TEST_CASE("encoding from f64 rounds once, in every overflow mode") {
  for (const char* name : {"f16", "bf16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1"}) {
    const uint32_t dtype = dtype_from_name(name);
    for (const auto& row : golden(std::string("encode_") + name + ".txt")) {
      const double x = std::bit_cast<double>(hex(row[0]));
      INFO(name << " " << row[0] << " " << x);
      for (int m = 0; m < 3; ++m) CHECK(encode_f64(dtype, x, modes[m]) == hex(row[1 + m]));
      // The f32 entry points agree wherever the input is an f32.
      if (const float f = static_cast<float>(x); static_cast<double>(f) == x) {
        uint64_t word[2] = {};
        store_from(dtype, word, 0, f);
        const uint64_t code = word[0];
        CHECK(code == hex(row[1]));
        if (dtype == TSR_F8E5M2) CHECK(to_f8e5m2(f) == code);
        if (dtype == TSR_F8E4M3FN) CHECK(to_f8e4m3fn(f) == code);
        if (dtype == TSR_F8E4M3FNUZ) CHECK(to_f8e4m3fnuz(f) == code);
        if (dtype == TSR_F8E5M2FNUZ) CHECK(to_f8e5m2fnuz(f) == code);
      }
    }
  }
}

TEST_CASE("every code survives decode and encode") {
  for (const char* name : {"f16", "bf16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f4e2m1"}) {
    const uint32_t dtype = dtype_from_name(name);
    for (uint32_t code = 0; code < 1u << dtype_bits(dtype); ++code) {
      const float x = decode_code(dtype, static_cast<uint16_t>(code));
      if (std::isnan(x) || encode_f64(dtype, x, Overflow::PyTorch) == code) continue;
      FAIL_CHECK(name << " code " << code << " came back as " << encode_f64(dtype, x, Overflow::PyTorch));
    }
  }
}

TEST_CASE("f16: the fast conversions equal the generic ones, at compile time and at run time") {
  std::mt19937 rng(1);
  for (uint32_t i = 0; i < 400'000; ++i) {
    // Half of them inside or near f16's range.
    uint32_t bits = static_cast<uint32_t>(rng());
    if (i & 1) bits = (bits & 0x807FFFFFu) | (96 + (bits >> 23) % 52) << 23;
    const float x = std::bit_cast<float>(bits);
    if (float_to_half(x) != detail::encode<format_f16>(x, Overflow::PyTorch)) FAIL("float_to_half, bits " << bits);
  }
  for (uint32_t code = 0; code < 65536; ++code) {
    const float x = half_to_float(static_cast<uint16_t>(code));
    if (std::isnan(x)) {
      // Quiet, same sign, same payload.
      const uint32_t want = (code & 0x8000u) << 16 | 0x7FC00000u | (code & 0x3FFu) << 13;
      if (std::bit_cast<uint32_t>(x) != want) FAIL("NaN " << code);
      if (float_to_half(x) != (code | 0x200u)) FAIL("NaN back " << code);
    } else if (std::bit_cast<uint32_t>(x) != std::bit_cast<uint32_t>(detail::decode<format_f16>(code))) {
      FAIL("half_to_float " << code);
    }
  }
  // The branches without F16C, whatever this file was compiled for.
  STATIC_REQUIRE(half_to_float(0x0001) == 0x1p-24f);
  STATIC_REQUIRE(half_to_float(0x03FF) == 0x1.ff8p-15f);
  STATIC_REQUIRE(half_to_float(0xFBFF) == -65504.0f);
  STATIC_REQUIRE(std::bit_cast<uint32_t>(half_to_float(0x7D01)) == 0x7FE02000u);
  STATIC_REQUIRE(float_to_half(65519.996f) == 0x7BFF);
  STATIC_REQUIRE(float_to_half(65520.0f) == 0x7C00);
  STATIC_REQUIRE(float_to_half(-0x1p-25f) == 0x8000);
  STATIC_REQUIRE(float_to_half(0x1.000002p-25f) == 0x0001);
  STATIC_REQUIRE(float_to_half(2049.0f) == 0x6800);
  STATIC_REQUIRE(float_to_half(std::bit_cast<float>(0xFF812345u)) == 0xFE09);
  STATIC_REQUIRE(float_to_bf16(std::bit_cast<float>(0xFFFFFFFFu)) == 0x7FC0);
  STATIC_REQUIRE(float_to_bf16(0x1.fefffep127f) == 0x7F7F);
  STATIC_REQUIRE(float_to_bf16(0x1.ffp127f) == 0x7F80);
  STATIC_REQUIRE(float_to_bf16(std::bit_cast<float>(0x00008001u)) == 0x0001);  // subnormals round too
}

TEST_CASE("f64 to narrow floats has no double rounding") {
  const double x = 1.0 + 0x1p-11 + 0x1p-40;  // f32 drops the last term and leaves a tie for f16
  CHECK(encode_f64(TSR_F16, x, Overflow::PyTorch) == 0x3C01);
  const double y = 1.0 + 0x1p-8 + 0x1p-45;
  CHECK(encode_f64(TSR_BF16, y, Overflow::PyTorch) == 0x3F81);
  // i64 -> bf16: 2^62 + 2^54 is a tie, one more is not; f64 alone cannot hold the difference.
  uint16_t code = 0;
  store_from(TSR_BF16, &code, 0, (int64_t{1} << 62) + (int64_t{1} << 54) + 1);
  CHECK(code == 0x5E81);
  store_from(TSR_BF16, &code, 0, -(int64_t{1} << 62) - (int64_t{1} << 54));
  CHECK(code == 0xDE80);
  float f = 0;
  store_from(TSR_F32, &f, 0, (int64_t{1} << 62) + (int64_t{1} << 38) + 1);
  CHECK(f == 0x1.000002p62f);
}

TEST_CASE("casts equal PyTorch's") {
  size_t count = 0;
  for (const auto& row : golden("casts.txt")) {
    const uint32_t from = dtype_from_name(row[0]), to = dtype_from_name(row[1]);
    REQUIRE((is_valid_dtype(from) && is_valid_dtype(to)));
    for (size_t i = 2; i < row.size(); ++i, ++count) {
      const size_t colon = row[i].find(':');
      INFO(row[0] << " -> " << row[1] << " " << row[i]);
      const auto src = bytes(row[i].substr(0, colon));
      const auto want = bytes(row[i].substr(colon + 1));
      alignas(16) unsigned char got[32] = {};
      cast_element(to, got, 0, from, src.data(), 0);
      CHECK(text(got, want.size()) == text(want.data(), want.size()));
      CHECK(got[want.size()] == 0);
    }
  }
  CHECK(count > 3000);
}

TEST_CASE("float to integer truncates, saturates and maps NaN to 0") {
  const double inf = std::numeric_limits<double>::infinity();
  const auto cast = [](uint32_t dtype, double x) {
    uint64_t raw[2] = {};
    store_from(dtype, raw, 0, x);
    return raw[0];
  };
  for (uint32_t d = TSR_I2; d <= TSR_U64; ++d) {
    INFO(dtype_name(d));
    const int bits = dtype_bits(d);
    const uint64_t ones = ~uint64_t{0} >> (64 - bits);
    const uint64_t max = is_signed_int(d) ? ones >> 1 : ones, min = is_signed_int(d) ? max + 1 : 0;
    CHECK(cast(d, NAN) == 0);
    CHECK(cast(d, inf) == max);
    CHECK(cast(d, -inf) == min);
    CHECK(cast(d, 1e30) == max);
    CHECK(cast(d, -1e30) == min);
    CHECK(cast(d, std::ldexp(1.0, is_signed_int(d) ? bits - 1 : bits)) == max);
    CHECK(cast(d, -0.99) == 0);
    CHECK(cast(d, 1.99) == 1);
    CHECK(cast(d, -1.5) == (is_signed_int(d) ? ones : 0));
  }
  const float big = 1e20f, nan = NAN;
  CHECK(load_as<int64_t>(TSR_F32, &big, 0) == INT64_MAX);
  CHECK(load_as<uint64_t>(TSR_F32, &big, 0) == UINT64_MAX);
  CHECK(load_as<int64_t>(TSR_F32, &nan, 0) == 0);
  CHECK(load_as<bool>(TSR_F32, &nan, 0));
}

TEST_CASE("packed types: low bits first, neighbours untouched") {
  for (uint32_t d : {TSR_I2, TSR_U2, TSR_I4, TSR_U4, TSR_F4E2M1}) {
    INFO(dtype_name(d));
    const int bits = dtype_bits(d), per_byte = 8 / bits;
    alignas(16) unsigned char data[32] = {0xA5, 0xA5, 0xA5};
    for (int i = 0; i < 2 * per_byte; ++i) {
      unsigned char expected[3];
      std::memcpy(expected, data, 3);
      const unsigned code = static_cast<unsigned>(i * 5 + 1) & ((1u << bits) - 1);
      const unsigned char source[16] = {static_cast<unsigned char>(code)};
      if (d == TSR_F4E2M1)
        store_from(d, data, i, f4e2m1_to_float(source[0]));
      else
        store_from(d, data, i, static_cast<int64_t>(code) + 16);  // wraps
      const int shift = i % per_byte * bits;
      expected[i / per_byte] =
          static_cast<unsigned char>((expected[i / per_byte] & ~(((1u << bits) - 1) << shift)) | (code << shift));
      CHECK(text(data, 3) == text(expected, 3));
      CHECK(load_as<double>(d, data, i) == load_as<double>(d, source, 0));
    }
  }
  const unsigned char all[1] = {0xE4};  // elements 0 1 2 3
  CHECK(load_as<int64_t>(TSR_I2, all, 1) == 1);
  CHECK(load_as<int64_t>(TSR_I2, all, 2) == -2);
  CHECK(load_as<int64_t>(TSR_I2, all, 3) == -1);
  CHECK(load_as<uint64_t>(TSR_U2, all, 3) == 3);
  CHECK(load_as<int64_t>(TSR_I4, all, 1) == -2);
}

TEST_CASE("complex elements, std::complex included") {
  float c[4] = {};
  store_from(TSR_C64, c, 1, std::complex<double>(1.5, -2.0));
  CHECK((c[2] == 1.5f && c[3] == -2.0f));
  CHECK(load_as<std::complex<float>>(TSR_C64, c, 1) == std::complex<float>(1.5f, -2.0f));
  CHECK(load_as<double>(TSR_C64, c, 1) == 1.5);
  CHECK(load_as<int64_t>(TSR_C64, c, 1) == 1);
  const int32_t minus = -7;
  CHECK(load_as<std::complex<double>>(TSR_I32, &minus, 0) == std::complex<double>(-7, 0));
  unsigned char flag = 9;
  store_from(TSR_BOOL, &flag, 0, std::complex<double>(0, 1e-300));
  CHECK(flag == 1);
  flag = 8;
  CHECK(load_as<int64_t>(TSR_BOOL, &flag, 0) == 1);
}

TEST_CASE("integers wrap on load and store") {
  const int8_t minus = -1;
  CHECK(load_as<uint64_t>(TSR_I8, &minus, 0) == UINT64_MAX);
  const uint64_t big = UINT64_MAX - 1;
  CHECK(load_as<int64_t>(TSR_U64, &big, 0) == -2);
  uint16_t out = 0;
  cast_element(TSR_U16, &out, 0, TSR_I8, &minus, 0);
  CHECK(out == 0xFFFF);
}

TEST_CASE("promotion equals PyTorch's") {
  const auto at = [](size_t column) { return static_cast<uint32_t>(column - 2 + 1); };
  const std::string_view spelled_invalid = "invalid";
  std::map<std::string, int> seen;
  for (const auto& row : golden("promotion.txt")) {
    const uint32_t a = dtype_from_name(row[1]);
    REQUIRE(is_valid_dtype(a));
    ++seen[row[0]];
    for (size_t i = 2; i < row.size(); ++i) {
      tsr_dtype got = TSR_DTYPE_INVALID;
      ResultType r;
      if (row[0] == "promote") {
        got = promote(a, at(i));
      } else if (row[0] == "zerodim") {
        r.add_tensor(at(i), 0);
        r.add_tensor(a, 1);
        got = r.get();
      } else if (row[0] == "scalar") {
        got = promote_scalar(a, static_cast<ScalarKind>(i - 2));
      } else if (row[0] == "zeroscalar") {
        r.add_tensor(a, 0);
        r.add_scalar(static_cast<ScalarKind>(i - 2));
        got = r.get();
      } else {
        REQUIRE(row[0] == "sum");
        if (!is_float(a))
          got = accumulate_dtype(a);  // torch.sum keeps a float's dtype but accumulates wider
        else
          got = static_cast<tsr_dtype>(a);
      }
      INFO(row[0] << " " << row[1] << " column " << i);
      CHECK(std::string(got == TSR_DTYPE_INVALID ? spelled_invalid : dtype_name(got)) == row[i]);
    }
  }
  CHECK(seen == std::map<std::string, int>{{"promote", 25}, {"scalar", 25}, {"sum", 13}, {"zerodim", 25}, {"zeroscalar", 25}});
  for (uint32_t a = 0; a <= TSR_DTYPE_COUNT; ++a)
    for (uint32_t b = 0; b <= TSR_DTYPE_COUNT; ++b) CHECK(promote(a, b) == promote(b, a));
}

TEST_CASE("result types of several operands, and the derived dtypes") {
  ResultType r;
  CHECK(r.get() == TSR_DTYPE_INVALID);
  r.add_tensor(TSR_F16, 2);
  r.add_tensor(TSR_F64, 0);
  r.add_scalar(ScalarKind::Int);
  CHECK(r.get() == TSR_F16);
  r.add_tensor(TSR_BF16, 1);
  CHECK(r.get() == TSR_F32);
  r.add_tensor(TSR_F8E5M2, 1);
  CHECK(r.get() == TSR_DTYPE_INVALID);
  r.add_tensor(TSR_F32, 1);  // a failure stays
  CHECK(r.get() == TSR_DTYPE_INVALID);

  for (uint32_t d : {TSR_F16, TSR_BF16, TSR_F8E4M3FN, TSR_F8E8M0, TSR_F4E2M1, TSR_F32}) CHECK(accumulate_dtype(d) == TSR_F32);
  CHECK(accumulate_dtype(TSR_F64) == TSR_F64);
  CHECK(accumulate_dtype(TSR_C64) == TSR_C64);
  CHECK(accumulate_dtype(TSR_I4) == TSR_I64);
  CHECK(accumulate_dtype(TSR_DTYPE_INVALID) == TSR_DTYPE_INVALID);
  CHECK(to_complex_dtype(TSR_F64) == TSR_C128);
  CHECK(to_complex_dtype(TSR_F8E5M2) == TSR_DTYPE_INVALID);
  CHECK(to_real_dtype(TSR_C128) == TSR_F64);
  CHECK(to_real_dtype(TSR_BF16) == TSR_BF16);
  CHECK(to_float_dtype(TSR_U2) == TSR_F32);
  CHECK(to_float_dtype(TSR_F16) == TSR_F16);
}

}  // namespace dtypes_test
