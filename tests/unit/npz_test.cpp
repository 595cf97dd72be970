// SPDX-License-Identifier: Apache-2.0
// .npz and .npy files: golden ones made by numpy (tests/golden/npz/make_npz.py), round trips, and damage of every kind.
#include "npz/npz.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "npz/elements.hpp"
#include "tessera/abi.h"

namespace npz_test {

namespace fs = std::filesystem;
using namespace tessera;
using npz::Array;

namespace {

std::string golden(const std::string& name) {
  const char* root = std::getenv("TESSERA_SOURCE_DIR");
  return std::string(root ? root : ".") + "/tests/golden/npz/" + name;
}

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<Array> read_text(const std::string& bytes) {
  return npz::read_bytes(std::as_bytes(std::span(bytes.data(), bytes.size())), "in.npz");
}

// The error that reading gives: "CODE what".
std::string refusal(const std::string& bytes) {
  try {
    (void)read_text(bytes);
  } catch (const npz::Error& e) {
    CHECK_FALSE(e.hint().empty());
    return e.code() + " " + e.what();
  }
  return "accepted";
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}

template <class T>
std::vector<T> values_of(const Array& a) {
  std::vector<T> out(a.data.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), a.data.data(), a.data.size());
  return out;
}

const Array& named(const std::vector<Array>& arrays, const std::string& name) {
  for (const Array& a : arrays)
    if (a.name == name) return a;
  FAIL("no array " << name);
  std::abort();
}

bool same(const Array& a, const Array& b) {
  return a.name == b.name && a.descr == b.descr && a.shape == b.shape && a.data == b.data;
}

struct TemporaryDirectory {
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "npz_test_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~TemporaryDirectory() { fs::remove_all(path); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path / name).string(); }
  fs::path path;
};

void put(std::string& bytes, size_t at, uint64_t value, int n) {
  for (int i = 0; i < n; ++i) bytes.at(at + static_cast<size_t>(i)) = static_cast<char>(value >> (8 * i));
}

// A version 1.0 .npy with this header text and this many zero bytes of data.
std::string npy(const std::string& header, size_t data) {
  std::string s("\x93NUMPY\x01\x00", 8);
  s += static_cast<char>(header.size() & 255);
  s += static_cast<char>(header.size() >> 8);
  return s + header + std::string(data, '\0');
}

// The archive of one stored array x = u1[4], and where its parts are.
struct Small {
  TemporaryDirectory dir;
  std::string bytes;
  size_t entry = 0, end = 0;
  Small() {
    const Array x{"x", "|u1", {4}, bytes_of<uint8_t>({1, 2, 3, 4})};
    npz::write(dir / "x.npz", std::span(&x, 1));
    bytes = slurp(dir / "x.npz");
    entry = bytes.rfind("PK\x01\x02");
    end = bytes.rfind("PK\x05\x06");
    REQUIRE(read_text(bytes).size() == 1);
  }
};

}  // namespace

TEST_CASE("numpy's files: stored, deflated, with data descriptors, with a zip64 directory") {
  for (const char* file : {"stored.npz", "deflated.npz", "piped.npz", "zip64.npz"}) {
    INFO(file);
    const auto arrays = npz::read(golden(file));
    REQUIRE(arrays.size() == 11);
    CHECK(arrays[0].name == "x");
    CHECK(arrays[0].descr == "<f4");
    CHECK(arrays[0].shape == std::vector<int64_t>{2, 3});
    CHECK(values_of<float>(arrays[0]) == std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f});

    CHECK(values_of<double>(named(arrays, "layer/0/weight")) ==
          std::vector<double>{1.5, -2.0, std::numeric_limits<double>::infinity()});
    const Array& scalar = named(arrays, "scalar");
    CHECK(scalar.shape.empty());
    CHECK(values_of<double>(scalar) == std::vector<double>{42.5});

    const Array& fortran = named(arrays, "fortran");
    CHECK(fortran.shape == std::vector<int64_t>{2, 3, 4});
    std::vector<int64_t> ramp(24);
    std::iota(ramp.begin(), ramp.end(), 0);
    CHECK(values_of<int64_t>(fortran) == ramp);

    CHECK(named(arrays, "big").descr == "<i4");
    CHECK(values_of<int32_t>(named(arrays, "big")) == std::vector<int32_t>{1, -2, 70000});
    CHECK(named(arrays, "big_complex").descr == "<c16");
    CHECK(values_of<double>(named(arrays, "big_complex")) == std::vector<double>{1, 2, 0, -3.5});
    CHECK(named(arrays, "flags").descr == "|b1");
    CHECK(values_of<uint8_t>(named(arrays, "flags")) == std::vector<uint8_t>{1, 0, 1});
    CHECK(named(arrays, "empty").shape == std::vector<int64_t>{0, 3});
    CHECK(named(arrays, "empty").data.empty());
    CHECK(named(arrays, "raw1").descr == "|V1");
    CHECK(values_of<uint8_t>(named(arrays, "raw1")) == std::vector<uint8_t>{1, 2, 255});
    CHECK(named(arrays, "raw2").descr == "|V2");
    CHECK(values_of<uint16_t>(named(arrays, "raw2")) == std::vector<uint16_t>{0x3F80, 0xC000});
    CHECK(values_of<uint8_t>(named(arrays,
                                   "gr\xC3\xB6\xC3\x9F"
                                   "e")) == std::vector<uint8_t>{7});
  }
}

TEST_CASE("single .npy files of all header versions") {
  for (const char* file : {"v1.npy", "v2.npy", "v3.npy"}) {
    const auto arrays = npz::read(golden(file));
    REQUIRE(arrays.size() == 1);
    CHECK(arrays[0].name == std::string(file, 2));
    CHECK(arrays[0].descr == "<i2");
    CHECK(values_of<int16_t>(arrays[0]) == std::vector<int16_t>{0, 1, 2, 3, 4});
  }
}

TEST_CASE("what is written equals numpy.savez byte for byte") {
  const TemporaryDirectory dir;
  const std::string before = slurp(golden("plain.npz"));
  npz::write(dir / "out.npz", npz::read(golden("plain.npz")));
  CHECK((slurp(dir / "out.npz") == before));
  const auto one = npz::read(golden("v1.npy"));
  npz::write(dir / "out.npy", one);
  CHECK((slurp(dir / "out.npy") == slurp(golden("v1.npy"))));
}

TEST_CASE("round trips, stored and deflated") {
  const TemporaryDirectory dir;
  std::vector<uint32_t> noise(300'000);
  uint32_t state = 1;
  for (uint32_t& v : noise) v = state = state * 1664525u + 1013904223u;
  std::vector<Array> arrays = {{"noise", "<u4", {300, 1000}, bytes_of(noise)},
                               {"zeros", "<f8", {1'000'000}, std::vector<std::byte>(8'000'000)},
                               {"a/b.c", "|i1", {}, bytes_of<int8_t>({-3})},
                               {"none", "<c8", {3, 0, 2}, {}}};
  for (const bool compress : {false, true}) {
    npz::write(dir / "t.npz", arrays, compress);
    const auto back = npz::read(dir / "t.npz");
    REQUIRE(back.size() == arrays.size());
    for (size_t i = 0; i < back.size(); ++i) CHECK(same(back[i], arrays[i]));
    CHECK((fs::file_size(dir / "t.npz") < 1'500'000) == compress);
  }
  npz::write(dir / "nothing.npz", {});
  CHECK(npz::read(dir / "nothing.npz").empty());
  // Only the files named remain.
  CHECK(std::distance(fs::directory_iterator(dir.path), {}) == 2);
}

TEST_CASE("more members than a plain directory can count") {
  const TemporaryDirectory dir;
  std::vector<Array> arrays(65'537);
  for (size_t i = 0; i < arrays.size(); ++i) arrays[i] = {std::to_string(i), "|u1", {}, {std::byte(i & 255)}};
  npz::write(dir / "many.npz", arrays);
  const auto back = npz::read(dir / "many.npz");
  REQUIRE(back.size() == arrays.size());
  CHECK(same(back[65'536], arrays[65'536]));
}

TEST_CASE("every single damaged byte is refused or harmless, every truncation is refused") {
  for (const char* file : {"stored.npz", "deflated.npz", "zip64.npz"}) {
    const std::string good = slurp(golden(file));
    const auto want = read_text(good);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 0x41);
      try {
        // Dates, versions and attributes do not matter. Everything else is there twice or under a CRC.
        const auto got = read_text(bad);
        REQUIRE(got.size() == want.size());
        for (size_t k = 0; k < got.size(); ++k)
          if (!same(got[k], want[k])) FAIL(file << ": byte " << i << " changed array " << want[k].name);
      } catch (const npz::Error& e) {
        if (e.hint().empty()) FAIL("no hint for " << e.what());
      }
    }
    for (size_t n = 0; n < good.size(); ++n)
      if (refusal(good.substr(0, n)) == "accepted") FAIL(file << " cut to " << n << " bytes");
  }
}

TEST_CASE("errors name code, file, member, offset and what was expected") {
  Small s;
  const size_t local_data = s.bytes.find("\x93NUMPY");
  SECTION("not an archive") {
    CHECK(refusal("") == "TSR-N002 in.npz: byte 0: the file is empty; expected an .npz or .npy file");
    CHECK(refusal("hello") ==
          "TSR-N002 in.npz: byte 0: it begins neither as an .npz (PK\\x03\\x04) nor as an .npy (\\x93NUMPY) file");
  }
  SECTION("CRC") {
    s.bytes[local_data + 128] ^= 1;
    CHECK(refusal(s.bytes).substr(0, 53) == "TSR-N005 in.npz: member 'x.npy': byte 132: CRC-32 is ");
  }
  SECTION("sizes beyond the file") {
    put(s.bytes, s.entry + 20, 10'000'000'000 & 0xFFFFFFFF, 4);
    put(s.bytes, s.entry + 24, 10'000'000'000 & 0xFFFFFFFF, 4);
    CHECK(refusal(s.bytes) ==
          "TSR-N003 in.npz: member 'x.npy': byte 0: the member claims 1410065408 bytes, more than the file has for it");
  }
  SECTION("a deflated member that cannot be so large") {
    put(s.bytes, s.entry + 10, 8, 2);
    put(s.bytes, s.entry + 24, 4'000'000'000, 4);
    CHECK(refusal(s.bytes) == "TSR-N003 in.npz: member 'x.npy': byte " + std::to_string(s.entry + 24) +
                                  ": 132 deflated bytes cannot become 4000000000");
  }
  SECTION("encryption") {
    s.bytes[s.entry + 8] ^= 1;
    CHECK(refusal(s.bytes) == "TSR-N004 in.npz: member 'x.npy': byte " + std::to_string(s.entry + 8) + ": an encrypted member");
  }
  SECTION("another compression") {
    put(s.bytes, s.entry + 10, 14, 2);
    CHECK(refusal(s.bytes) == "TSR-N004 in.npz: member 'x.npy': byte " + std::to_string(s.entry + 10) +
                                  ": compression method 14; expected 0 (stored) or 8 (deflated)");
  }
  SECTION("more entries than bytes") {
    put(s.bytes, s.end + 8, 60000, 2);
    put(s.bytes, s.end + 10, 60000, 2);
    CHECK(refusal(s.bytes) ==
          "TSR-N003 in.npz: byte " + std::to_string(s.end) + ": 60000 entries are claimed in a directory of 51 bytes");
  }
  SECTION("bytes in front of the archive") { CHECK(refusal("PK\x03\x04" + s.bytes).substr(0, 8) == "TSR-N003"); }
  SECTION("another name in the member's own header") {
    s.bytes[30] = 'y';
    CHECK(refusal(s.bytes) ==
          "TSR-N003 in.npz: member 'x.npy': byte 0: the member's own header names 'y.npy' and method 0; expected what the "
          "directory says");
  }
  SECTION("no .npy") {
    s.bytes[30 + 4] = 'z';
    s.bytes[s.entry + 46 + 4] = 'z';
    CHECK(refusal(s.bytes) == "TSR-N009 in.npz: member 'x.npz': byte 0: expected a member named NAME.npy");
  }
}

TEST_CASE("members may not overlap or repeat") {
  const TemporaryDirectory dir;
  const std::vector<Array> two = {{"x", "|u1", {1}, bytes_of<uint8_t>({1})}, {"y", "|u1", {1}, bytes_of<uint8_t>({2})}};
  npz::write(dir / "two.npz", two);
  std::string good = slurp(dir / "two.npz");
  const size_t first = good.find("PK\x01\x02"), second = good.rfind("PK\x01\x02"), local = good.rfind("PK\x03\x04");

  std::string bad = good;  // the second entry becomes a copy of the first
  bad.replace(second, 51, good.substr(first, 51));
  CHECK(refusal(bad) == "TSR-N003 in.npz: member 'x.npy': byte 0: the member overlaps 'x.npy'");

  bad = good;  // two members of one name
  bad[local + 30] = 'x';
  bad[second + 46] = 'x';
  CHECK(refusal(bad) == "TSR-N009 in.npz: member 'x.npy': byte " + std::to_string(local) + ": the name occurs twice");
}

TEST_CASE("npy headers: what is refused, and why") {
  const auto header = [](const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  };
  const auto with = [&](const std::string& descr, const std::string& shape, size_t data = 0) {
    return refusal(npy(header(descr, "False", shape), data));
  };
  CHECK(with("'<f4'", "(2, 3)", 24) == "accepted");
  CHECK(with("'<f4'", "(2,3,)", 24) == "accepted");
  CHECK(with("\"<f4\"", "(2L, 3L)", 24) == "accepted");
  CHECK(with("'<f4'", "()", 4) == "accepted");
  CHECK(with("'<f1'", "(3,)", 3) == "accepted");

  CHECK(with("'<f4'", "(2, 3)", 20) ==
        "TSR-N008 in.npz: byte 70: found 20 bytes of data, expected 24 for shape (2, 3) of '<f4'");
  CHECK(with("'<f4'", "(2, 3)", 25) ==
        "TSR-N008 in.npz: byte 70: found 25 bytes of data, expected 24 for shape (2, 3) of '<f4'");
  CHECK(with("'<f4'", "(2500000000,)", 4) ==
        "TSR-N008 in.npz: byte 77: found 4 bytes of data, expected 10000000000 for shape (2500000000,) of '<f4'");
  CHECK(with("'<f4'", "(9223372036854775807,)") ==
        "TSR-N008 in.npz: byte 10: shape (9223372036854775807,) of '<f4' exceeds 63 bits of bytes");
  CHECK(with("'<f4'", "(0, 4294967296, 4294967296)") ==
        "TSR-N008 in.npz: byte 10: shape (0, 4294967296, 4294967296) of '<f4' exceeds 63 bits of bytes");
  CHECK(with("'<f4'", "(9223372036854775808,)") == "TSR-N008 in.npz: byte 61: a size in the shape does not fit 63 bits");
  CHECK(with("'<f4'", "(-1,)") == "TSR-N008 in.npz: byte 61: negative size in the shape");
  CHECK(with("'<f4'", "(3)", 12) == "TSR-N006 in.npz: byte 62: found a number in parentheses, expected a tuple for the shape");
  CHECK(with("'<f4'", "(1 2)") == "TSR-N006 in.npz: byte 63: found '2' in the shape, expected ',' or ')'");
  CHECK(with("'<f4'", "(x,)") == "TSR-N006 in.npz: byte 61: found 'x' in the shape, expected a size");
  std::string deep = "(";
  for (int i = 0; i < 65; ++i) deep += "1,";
  CHECK(with("'<f4'", deep + ")", 4).substr(0, 8) == "TSR-N008");

  for (const char* bad :
       {"'|O'", "'<U2'", "'|S4'", "'<M8[s]'", "'<f16'", "'<c32'", "'|V4'", "'>V2'", "'<i3'", "'|f4'", "'f4'", "''", "'<f04'"}) {
    INFO(bad);
    CHECK(with(bad, "(1,)", 4).substr(0, 8) == "TSR-N007");
  }
  CHECK(with("[('a', '<f4')]", "(1,)", 4) == "TSR-N007 in.npz: byte 20: a structured element type; expected a number type");

  CHECK(refusal(npy("{'descr': '<f4', 'shape': (1,)}", 4)) == "TSR-N006 in.npz: byte 41: the header has no 'fortran_order'");
  CHECK(refusal(npy("{'descr': '<f4', 'descr': '<f4'}", 4)) == "TSR-N006 in.npz: byte 27: key 'descr' twice in the header");
  CHECK(refusal(npy("{'what': 1}", 4)) ==
        "TSR-N006 in.npz: byte 11: unknown key 'what' in the header; expected descr, fortran_order and shape");
  CHECK(refusal(npy("{'descr': '<f4", 0)) == "TSR-N006 in.npz: byte 20: unterminated string in the header");
  CHECK(refusal(npy("{", 0)) == "TSR-N006 in.npz: byte 11: found the end in the header, expected a string");
  CHECK(refusal(npy("", 0)) == "TSR-N006 in.npz: byte 10: found the end in the header, expected '{'");
  CHECK(refusal(npy(header("'<f4'", "1", "()"), 4)) ==
        "TSR-N006 in.npz: byte 44: found '1' in the header, expected True or False");
  CHECK(refusal(npy(header("'<f4'", "False", "()") + "x", 4)) ==
        "TSR-N006 in.npz: byte 66: text after the header's closing brace");
  CHECK(refusal(std::string("\x93NUMPY\x04\x00\x00\x00", 10)) ==
        "TSR-N006 in.npz: byte 6: .npy version 4.0; expected 1.0, 2.0 or 3.0");
  CHECK(refusal(std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12)) ==
        "TSR-N006 in.npz: byte 8: a header of 4294967295 bytes; expected at most 0");

  for (const auto& [file, code] :
       {std::pair{"object.npy", "TSR-N007"}, {"structured.npy", "TSR-N007"}, {"text.npy", "TSR-N007"}}) {
    INFO(file);
    CHECK(refusal(slurp(golden(file))).substr(0, 8) == code);
  }
}

TEST_CASE("stored bools are normalised") {
  std::string bytes = npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", 3);
  bytes[bytes.size() - 2] = 7;
  CHECK(values_of<uint8_t>(read_text(bytes)[0]) == std::vector<uint8_t>{0, 1, 0});
}

TEST_CASE("files that cannot be read or written") {
  const TemporaryDirectory dir;
  const auto code = [](auto&& fn) -> std::string {
    try {
      fn();
    } catch (const npz::Error& e) {
      return e.code() + " " + e.what();
    }
    return "accepted";
  };
  const Array x{"x", "<f4", {2}, bytes_of<float>({1, 2})};
  const auto one = [](const Array& a) { return std::span(&a, 1); };
  CHECK(code([&] { (void)npz::read(dir / "absent.npz"); }) ==
        "TSR-N001 " + (dir / "absent.npz") + ": byte 0: cannot open: No such file or directory");
  CHECK(code([&] { (void)npz::read(dir.path.string()); }) == "TSR-N001 " + dir.path.string() + ": byte 0: not a regular file");
  CHECK(code([&] { npz::write(dir / "no/such/x.npz", one(x)); }).substr(0, 8) == "TSR-N001");
  if (fs::exists("/dev/full")) {
    CHECK(code([&] { npz::write("/dev/full", one(x)); }) ==
          "TSR-N001 /dev/full: byte 0: cannot write: No space left on device");
  }

  Array bad = x;
  bad.shape = {3};
  CHECK(code([&] { npz::write(dir / "x.npz", one(bad)); }) ==
        "TSR-N008 " + (dir / "x.npz") + ": member 'x': byte 0: the array has 8 bytes, expected 12 for shape (3,) of '<f4'");
  bad = x;
  bad.descr = ">f4";
  CHECK(code([&] { npz::write(dir / "x.npz", one(bad)); }).substr(0, 8) == "TSR-N007");
  bad = x;
  bad.name = "";
  CHECK(code([&] { npz::write(dir / "x.npz", one(bad)); }).substr(0, 8) == "TSR-N009");
  CHECK(code([&] { npz::write(dir / "x.npz", std::vector{x, x}); }).substr(0, 8) == "TSR-N009");
  CHECK(code([&] { npz::write(dir / "x.npy", std::vector{x, x}); }).substr(0, 8) == "TSR-N009");
  CHECK(fs::is_empty(dir.path));  // nothing half-written

  // A link stays a link, its target is replaced as a whole.
  npz::write(dir / "real.npz", one(x));
  fs::create_symlink("real.npz", dir / "link.npz");
  bad = x;
  bad.name = "y";
  npz::write(dir / "link.npz", one(bad));
  CHECK(fs::is_symlink(dir / "link.npz"));
  CHECK(npz::read(dir / "real.npz")[0].name == "y");
}

TEST_CASE("dtypes that numpy lacks travel as raw, unpacked bytes") {
  CHECK(npz::descr_of(TSR_F32) == "<f4");
  CHECK(npz::descr_of(TSR_BF16) == "|V2");
  CHECK(npz::descr_of(TSR_F8E8M0) == "|V1");
  CHECK(npz::descr_of(TSR_BOOL) == "|b1");
  CHECK(npz::descr_of(TSR_C128) == "<c16");
  CHECK(npz::descr_of(TSR_I8) == "|i1");
  CHECK(npz::descr_of(TSR_DTYPE_INVALID).empty());
  for (uint32_t d = 1; d < TSR_DTYPE_COUNT; ++d) CHECK(npz::item_size(npz::descr_of(d)) > 0);

  const uint8_t packed[] = {0xE1, 0x07};  // i4: 1 -2 7
  const Array a = npz::from_elements("w", TSR_I4, {3}, packed);
  CHECK(a.descr == "|V1");
  CHECK(values_of<int8_t>(a) == std::vector<int8_t>{1, -2, 7});
  CHECK(npz::to_elements(a, TSR_I4, "f") == bytes_of<uint8_t>({0xE1, 0x07}));
  // Codes as well as values; numpy's own int8 by value only.
  CHECK(npz::to_elements({"w", "|V1", {2}, bytes_of<uint8_t>({0x0E, 0xFE})}, TSR_I4, "f") == bytes_of<uint8_t>({0xEE}));
  CHECK(npz::to_elements({"w", "|i1", {2}, bytes_of<int8_t>({-2, 1})}, TSR_I2, "f") == bytes_of<uint8_t>({0x06}));
  CHECK_THROWS_WITH(npz::to_elements({"w", "|i1", {1}, bytes_of<int8_t>({3})}, TSR_I2, "f"),
                    "f: member 'w': byte 0: element 0 is byte 3, which is no i2");
  CHECK_THROWS_WITH(npz::to_elements({"w", "|V1", {2}, bytes_of<uint8_t>({1, 16})}, TSR_F4E2M1, "f"),
                    "f: member 'w': byte 1: element 1 is byte 16, which is no f4e2m1");
  CHECK_THROWS_WITH(npz::to_elements({"w", "<f4", {1}, bytes_of<float>({1})}, TSR_I32, "f"),
                    "f: member 'w': byte 0: element type '<f4', expected '<i4' for i32");
  CHECK_THROWS_AS(npz::to_elements({"w", "|V2", {1}, bytes_of<uint16_t>({1})}, TSR_F32, "f"), npz::Error);
  CHECK(npz::to_elements({"w", "|V2", {1}, bytes_of<uint16_t>({0x3C00})}, TSR_F16, "f") == bytes_of<uint16_t>({0x3C00}));
  const uint16_t bf = 0x3F80;
  CHECK(npz::from_elements("b", TSR_BF16, {}, &bf).descr == "|V2");
}

}  // namespace npz_test
