// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "plugin/manifest.hpp"
#include "plugin/plugin_host.hpp"
#include "plugin/sha256.hpp"

namespace manifest_test {

using namespace tessera::core;

namespace {

std::string manifest(const std::string& extra = "", const std::string& plugin_extra = "") {
  return "[plugin]\nid = \"acme.pass.x\"\nversion = \"1.2.3\"\nvendor = \"Acme \\\"and\\\" sons\"\nstability = "
         "\"stable\"\n"
         "library = \"acme.pass.x.so\"\nhash = \"sha256:" +
         std::string(64, 'a') + "\"\nplatform = \"" + host_platform() +
         "\"\nabi_major = 0\nabi_minor = 1\nir_min = 1\nir_max = 1\nsanitizer = \"\"\nprovides = [\"pass:x\", "
         "\"backend:x\"]\n" +
         plugin_extra + extra;
}

}  // namespace

// NIST's examples for SHA-256 (one block, empty, two blocks) and the million 'a's of FIPS 180-2.
TEST_CASE("sha256 of the published examples") {
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256_hex(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (size_t n : {0, 1, 55, 56, 63, 64, 65, 127, 128, 1000, 4096}) {  // two messages beside each other
    const std::string a(n, 'a'), b(n, 'b'), longer(n + 1, 'b');
    CHECK(sha256_hex_of_both(a, b) == std::pair(sha256_hex(a), sha256_hex(b)));
    CHECK(sha256_hex_of_both(a, longer) == std::pair(sha256_hex(a), sha256_hex(longer)));
  }
  CHECK_THROWS_WITH(sha256_file("/nonexistent/file"), Catch::Contains("TSR-C005") && Catch::Contains("No such file"));
}

TEST_CASE("a manifest is read whole") {
  const Manifest m = parse_manifest(manifest("[[options]]\nname = \"isa\"\ntype = \"string\"\ndefault = \"native\"\nchoices = "
                                             "[\"native\", \"avx2\"]\nhelp = \"Instruction set.\"\n"
                                             "[[options]]\nname = \"scale\"\ntype = \"float\"\ndefault = 2\nmin = 0.5\n"
                                             "[[options]]\nname = \"flags\"\ntype = \"strings\"\ndefault = [\"a\"]\n",
                                             "needs = [\"acme.opset.y\"]\n"),
                                    "dir/acme.pass.x.toml");
  CHECK(m.faults.empty());
  CHECK(m.id == "acme.pass.x");
  CHECK(m.vendor == "Acme \"and\" sons");
  CHECK(m.library_path == "dir/acme.pass.x.so");
  CHECK(m.provides == std::vector<std::string>{"pass:x", "backend:x"});
  CHECK(m.needs == std::vector<std::string>{"acme.opset.y"});
  CHECK(m.place("version") == "dir/acme.pass.x.toml:3");
  REQUIRE(m.options.size() == 3);
  CHECK(m.options[0].choices.size() == 2);
  CHECK(range_text(m.options[0]) == "one of native, avx2");
  CHECK(m.options[1].fallback == Value::of_float(2));  // an int default of a float option is promoted
  CHECK(range_text(m.options[1]) == ">= 0.5");
  CHECK(m.options[2].fallback == Value::of_strings({"a"}));
}

TEST_CASE("an option may have a name at root level of a config") {
  const auto option = [](const std::string& lines) {
    return parse_manifest(manifest("[[options]]\nname = \"x\"\n" + lines), "m.toml");
  };
  const std::string flag = "type = \"bool\"\ndefault = false\n";
  const Manifest good = option(flag + "also = \"go_fast\"\n");
  REQUIRE(good.faults.empty());
  CHECK(good.options[0].also == "go_fast");
  CHECK(option(flag).options[0].also.empty());
  const auto fault = [&](const std::string& lines) {
    const Manifest m = option(lines);
    return m.faults.empty() ? std::string() : m.faults.to_error().what();
  };
  for (const char* name : {"3", "\"Go\"", "\"a.b\"", "\"\"", "\"guards\""}) {
    INFO(name);
    CHECK_THAT(fault(flag + "also = " + name + "\n"), Catch::Contains("error[TSR-P012] m.toml:19: option 'x': also is"));
  }
  // A key of Tessera's own may be asked for by what it is.
  CHECK(fault(flag + "also = \"force_disable_caches\"\n") == "");
  CHECK_THAT(fault(flag + "also = \"freezing\"\n"),
             Catch::Contains("a key of Tessera's own that is a bool and by default true; this is a bool, by default false"));
  CHECK_THAT(fault(flag + "also = \"numerics\"\n"), Catch::Contains("TSR-P012"));
}

TEST_CASE("a manifest of a newer SDK may hold keys that this host does not know") {
  std::string text = manifest("", "licence = \"MIT\"\n");
  CHECK(parse_manifest(text, "m.toml").faults.size() == 1);
  const size_t at = text.find("abi_minor = 1");
  text.replace(at, 13, "abi_minor = 9");
  CHECK(parse_manifest(text, "m.toml").faults.empty());
}

TEST_CASE("every fault of a manifest is found at once") {
  const Manifest m = parse_manifest(
      "[plugin]\nid = \"Acme\"\nversion = 1\nlibrary = \"a/b.so\"\nhash = \"x\"\nprovides = "
      "\"pass:x\"\n[[options]]\nname = \"9lives\"\n",
      "m.toml");
  CHECK(m.faults.size() >= 10);
  CHECK(m.id == "m");  // the file's name stands in for an id that cannot be used
}

TEST_CASE("text that is not TOML or not a manifest gives a fault, never an exception") {
  for (const char* text : {"", "[plugin", "plugin = 3", "[[plugin]]", "options = 1", "[plugin]\noptions = []", "\xff\xfe",
                           "a = 1979-05-27", "[plugin]\nid = []"}) {
    INFO(text);
    CHECK_FALSE(parse_manifest(text, "m.toml").faults.empty());
  }
}

TEST_CASE("kinds have names") {
  for (uint32_t k = TSR_OPSET; k <= TSR_STORE; ++k) CHECK(kind_from_name(kind_name(k)) == k);
  CHECK(kind_from_name("?") == 0);
  CHECK(kind_from_name("") == 0);
}

}  // namespace manifest_test
