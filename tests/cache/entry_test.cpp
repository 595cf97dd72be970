// SPDX-License-Identifier: Apache-2.0
// The bytes of entries, and their signatures.
#include "cache/entry.hpp"

#include <catch2/catch.hpp>

#include "cache/cache.hpp"
#include "cache/hmac.hpp"
#include "plugin/sha256.hpp"

using namespace tessera::core;

namespace {
const std::string kAllA(64, 'a');
std::string why(const std::string& bytes, const std::string& signing_key = {}) {
  EntryView e{};
  return decode_entry(bytes, signing_key, &e);
}
}  // namespace

// RFC 4231, sections 4.2, 4.3, 4.4, 4.7 and 4.8.
TEST_CASE("SHA-256 of lengths around its blocks") {  // by coreutils' sha256sum
  const std::pair<size_t, const char*> known[] = {
      {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
      {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
      {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
      {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
      {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
      {119, "31eba51c313a5c08226adf18d4a359cfdfd8d2e816b13f4af952f7ea6584dcfb"},
      {120, "2f3d335432c70b580af0e8e1b3674a7c020d683aa5f73aaaedfdc55af904c21c"},
      {1000, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3"},
  };
  for (const auto& [length, hash] : known) CHECK(sha256_hex(std::string(length, 'a')) == hash);
}

TEST_CASE("HMAC-SHA256 gives the values of RFC 4231") {
  CHECK(hmac_sha256_hex(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac_sha256_hex("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac_sha256_hex(std::string(20, '\xaa'), std::string(50, '\xdd')) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac_sha256_hex(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(hmac_sha256_hex(
            std::string(131, '\xaa'),
            "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
            "hashed before being used by the HMAC algorithm.") ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("an entry reads back") {
  for (const std::string& payload : {std::string(), std::string("x"), std::string(100000, '\0')})
    for (const std::string& signing_key : {std::string(), std::string(32, 'k')}) {
      const std::string bytes = encode_entry(CacheKind::kProfile, kAllA, payload, signing_key);
      EntryView e{};
      REQUIRE(decode_entry(bytes, signing_key, &e).empty());
      CHECK(e.kind == CacheKind::kProfile);
      CHECK(e.key == kAllA);
      CHECK(e.payload == payload);
      CHECK(e.is_signed == !signing_key.empty());
      CHECK(entry_length(bytes) == bytes.size());
    }
}

TEST_CASE("an entry that lost or gained bytes is refused") {
  const std::string bytes = encode_entry(CacheKind::kGraph, kAllA, "payload", {});
  for (size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(why(bytes.substr(0, n)).empty());
  CHECK(why(bytes + "x") == "it holds 8 bytes, its header says 7");
}

TEST_CASE("a changed byte never passes for the same entry") {
  const std::string secret(32, 's');
  const std::string plain = encode_entry(CacheKind::kGraph, kAllA, "payload", {});
  const std::string signed_bytes = encode_entry(CacheKind::kGraph, kAllA, "payload", secret);
  for (size_t i = 0; i < plain.size(); ++i)
    for (const int bit : {1, 128}) {
      std::string changed = plain;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      EntryView e{};
      // Key, kind and the mark "not signed" are not under the hash: whoever asked compares the first two.
      if (decode_entry(changed, {}, &e).empty()) CHECK((e.key != kAllA || e.kind != CacheKind::kGraph || e.is_signed));
      std::string forged = signed_bytes;
      forged[i] = static_cast<char>(forged[i] ^ bit);
      CHECK_FALSE(why(forged, secret).empty());
    }
}

TEST_CASE("with a key, only its signature counts") {
  const std::string secret(32, 's'), other(32, 't');
  CHECK(why(encode_entry(CacheKind::kGraph, kAllA, "p", {}), secret) ==
        "it is not signed, and cache.key_file asks for signatures");
  CHECK(why(encode_entry(CacheKind::kGraph, kAllA, "p", other), secret) ==
        "its signature is not that of the key in cache.key_file");
  CHECK(why(encode_entry(CacheKind::kGraph, kAllA, "p", secret), secret).empty());
  // Whoever has no key trusts the folder alone.
  CHECK(why(encode_entry(CacheKind::kGraph, kAllA, "p", secret)).empty());
}

TEST_CASE("keys are 64 hex digits") {
  CHECK(is_cache_key(sha256_hex("x")));
  for (const char* bad : {"", "abc", "../../../../../../../../../../../../../../../../../etc/passwd12"})
    CHECK_FALSE(is_cache_key(bad));
  CHECK_FALSE(is_cache_key(std::string(64, 'A')));
}

TEST_CASE("sections read back, and nothing reads past their end") {
  SectionWriter w;
  w.add(1, "one");
  w.add(7, "");
  w.add(1, std::string(1000, 'x'));
  const std::string bytes = w.take();
  std::vector<Section> s;
  REQUIRE(read_sections(bytes, &s));
  REQUIRE(s.size() == 3);
  CHECK(s[0].bytes == "one");
  CHECK(s[1].tag == 7);
  CHECK(s[2].bytes.size() == 1000);
  int read = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    std::vector<Section> cut;
    read += read_sections(std::string_view(bytes).substr(0, n), &cut);
  }
  CHECK(read == 3);  // nothing, after the first, after the second
}

TEST_CASE("a bundle is refused when a byte of it is wrong") {
  std::string bundle =
      "TSRBUNDLE1\n" + encode_entry(CacheKind::kGraph, kAllA, "one", {}) + encode_entry(CacheKind::kGraph, kAllA, "two", {});
  bundle += sha256_hex(bundle);
  std::vector<std::string> found;
  const auto each = [&](std::string_view e) { found.emplace_back(e); };
  REQUIRE(read_bundle(bundle, each).empty());
  CHECK(found.size() == 2);
  for (size_t i = 0; i < bundle.size(); i += 7) {
    std::string changed = bundle;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    CHECK_FALSE(read_bundle(changed, [](std::string_view) {}).empty());
    CHECK_FALSE(read_bundle(bundle.substr(0, i), [](std::string_view) {}).empty());
  }
  // Its hash is right, what it holds is not.
  std::string odd = "TSRBUNDLE1\nsomething else";
  odd += sha256_hex(odd);
  CHECK(read_bundle(odd, each) == "it holds something that is no entry");
}
