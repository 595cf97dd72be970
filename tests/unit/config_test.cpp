// SPDX-License-Identifier: Apache-2.0
// Config files: layering, provenance, and the exact text of every complaint (tests/golden/config).
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "config/config.hpp"
#include "config/document.hpp"
#include "config/keys.hpp"
#include "config/layers.hpp"
#include "golden.hpp"
#include "host_support.hpp"
#include "pattern.hpp"
#include "plugin/manifest.hpp"

namespace config_test {

using namespace tessera::core;
using tessera::test::check_golden;
namespace fs = std::filesystem;

namespace {

// Manifests as the plugin host would have found them; nothing is loaded.
std::vector<Manifest> some_plugins() {
  const auto make = [](const std::string& id, std::vector<std::string> provides) {
    Manifest m;
    m.id = id;
    m.provides = std::move(provides);
    return m;
  };
  std::vector<Manifest> out = {
      make("tessera.opset.standard", {"opset:standard"}),
      make("tessera.pass.canonicalize", {"pass:canonicalize"}),
      make("tessera.pass.cse", {"pass:cse"}),
      make("tessera.pass.dce", {"pass:dce"}),
      make("tessera.pass.fuse", {"pass:fuse"}),
      make("tessera.backend.cpu", {"backend:cpu"}),
      make("tessera.backend.eager", {"backend:eager"}),
      make("acme.partitioner.knapsack", {"partitioner:knapsack"}),
  };
  OptionDecl size;
  size.name = "max_size";
  size.fallback = Value::of_int(32);
  size.min = 1;
  size.max = 1024;
  size.help = "Largest group.";
  size.also = "max_group";
  out[4].options.push_back(size);
  OptionDecl least = size;  // one name for options of two plugins
  least.name = "limit";
  least.fallback = Value::of_int(8);
  least.max = 100;
  out[2].options.push_back(least);
  OptionDecl isa;
  isa.name = "isa";
  isa.type = OptionType::kString;
  isa.fallback = Value::of_string("native");
  isa.choices = {"native", "avx2", "avx512"};
  isa.help = "Instruction set.";
  out[5].options.push_back(isa);
  OptionDecl caches;  // told of a key of Tessera's own
  caches.name = "no_files";
  caches.type = OptionType::kBool;
  caches.fallback = Value::of_bool(false);
  caches.also = "force_disable_caches";
  caches.help = "No files.";
  out[5].options.push_back(caches);
  OptionDecl tune = caches;
  tune.name = "search";
  tune.also = "max_autotune";
  out[3].options.push_back(tune);
  return out;
}

constexpr const char* kGood = R"(name = "mine"
numerics = "relaxed"

[plugins]
load = ["tessera.opset.standard", { id = "tessera.backend.npu", optional = true }, "tessera.backend.eager"]
path = ["extra"]

[pipeline]
passes = ["canonicalize", "cse", { name = "fuse", max_size = 64 }, "dce", "fuse"]
verify = "each"

[backends]
order = ["cpu", "npu", "eager"]

[partitioner]
name = "knapsack"
budget = 0.5

[guards]
recompile_limit = 4
dynamic = true

[cpu]
isa = "avx2"

[fuse]
max_size = 16
)";

struct Bound {
  Config config;
  Faults faults;
};

Bound bind(const std::string& text, std::vector<std::string> overrides = {},
           std::vector<std::string> missing = {"tessera.backend.npu"}) {
  Bound out;
  out.config = Config::parse({"configs/mine.toml", text, std::move(overrides)}, out.faults);
  const std::vector<Manifest> manifests = some_plugins();
  std::vector<const Manifest*> pointers;
  for (const Manifest& m : manifests) pointers.push_back(&m);
  out.config.bind(pointers, missing, out.faults);
  return out;
}

std::string complaint(const std::string& text, std::vector<std::string> overrides = {}) {
  const Bound b = bind(text, std::move(overrides));
  return b.faults.empty() ? "no fault" : std::string(b.faults.to_error().what()) + "\n";
}

}  // namespace

TEST_CASE("a good file is read whole") {
  const Bound b = bind(kGood);
  if (!b.faults.empty()) FAIL(b.faults.to_error().what());
  const Config& c = b.config;
  CHECK(c.get_string("name") == "mine");
  CHECK(c.get_string("numerics") == "relaxed");
  CHECK(c.get_string("mode") == "default");
  CHECK(c.get_string("pipeline.verify") == "each");
  CHECK(c.get_strings("backends.order") == std::vector<std::string>{"cpu", "npu", "eager"});
  CHECK(c.get_float("partitioner.budget") == 0.5);
  CHECK(c.get_int("guards.recompile_limit") == 4);
  CHECK(c.get_int("guards.accumulated_recompile_limit") == 256);
  CHECK(c.get_string("guards.dynamic") == "true");  // a bool where a choice is spelled like one
  CHECK_FALSE(c.get_bool("guards.specialize_float"));
  REQUIRE(c.plugins().size() == 3);
  CHECK(c.plugins()[1].optional);
  REQUIRE(c.plugin_dirs().size() == 1);
  CHECK(c.plugin_dirs()[0] == (fs::current_path() / "configs" / "extra").string());
  REQUIRE(c.passes().size() == 5);
  CHECK(c.passes()[2].options.find("max_size")->i == 64);  // the entry's own
  CHECK(c.passes()[4].options.find("max_size")->i == 16);  // the section's
  CHECK(c.plugin_options("tessera.backend.cpu").find("isa")->s == "avx2");
}

TEST_CASE("every value knows where it came from") {
  const Bound b = bind(kGood, {"guards.recompile_limit=2", "cpu.isa=avx512"});
  const Config& c = b.config;
  CHECK(to_text(c.setting("numerics").origin) == "configs/mine.toml:2:1");
  CHECK(to_text(c.setting("runtime.threads").origin) == "default");
  CHECK(to_text(c.setting("guards.recompile_limit").origin) == "--set");
  CHECK(c.plugin_options("tessera.backend.cpu").find("isa")->s == "avx512");
  const auto json = nlohmann::json::parse(c.explain_json());
  CHECK(json["file"] == "configs/mine.toml");
  bool seen = false;
  for (const auto& v : json["values"])
    if (v["key"] == "partitioner.budget") {
      seen = true;
      CHECK(v["value"] == 0.5);
      CHECK(v["default"] == 1.0);
      CHECK(v["line"] == 17);
      CHECK(v["column"] == 1);
    }
  CHECK(seen);
  CHECK(json["passes"][2]["options"]["max_size"] == 64);
  CHECK(json["plugins"][1]["present"] == false);
}

TEST_CASE("overrides take TOML values and bare words, the last one wins") {
  const Bound b =
      bind(kGood, {"partitioner.budget=0.25", "partitioner.budget = 0.75", "backends.order=eager", "name=17",
                   "pipeline.passes=cse, dce", "guards.dynamic=false", "runtime.threads=3", "log.artifacts=\"plan,+guards\"",
                   "partitioner.name="
                   "\"\""});
  if (!b.faults.empty()) FAIL(b.faults.to_error().what());
  CHECK(b.config.get_float("partitioner.budget") == 0.75);
  CHECK(b.config.get_strings("backends.order") == std::vector<std::string>{"eager"});
  CHECK(b.config.get_string("name") == "17");
  CHECK(b.config.get_string("guards.dynamic") == "false");
  CHECK(b.config.get_int("runtime.threads") == 3);
  CHECK(b.config.get_string("log.artifacts") == "plan,+guards");
  CHECK(b.config.get_string("partitioner.name").empty());
  REQUIRE(b.config.passes().size() == 2);
  CHECK(b.config.passes()[1].name == "dce");
  const Bound list = bind(kGood, {"backends.order=cpu,eager", "pipeline.passes=[\"cse\", {name=\"fuse\", max_size=8}]"});
  CHECK(list.config.get_strings("backends.order") == std::vector<std::string>{"cpu", "eager"});
  CHECK(list.config.passes()[1].options.find("max_size")->i == 8);
}

TEST_CASE("a mode ranks just below the layer that chose it") {
  SECTION("chosen by the file: the file's own keys win") {
    const Bound b =
        bind("mode = \"eager\"\n[backends]\norder = [\"cpu\", \"eager\"]\nuse = \"all\"\n[pipeline]\npasses = [\"cse\"]\n");
    CHECK(b.config.get_string("backends.use") == "all");
    CHECK(b.config.passes().size() == 1);
  }
  SECTION("chosen by the file, which says nothing else") {
    const Bound b = bind("mode = \"eager\"\n[backends]\norder = [\"cpu\", \"eager\"]\n");
    CHECK(b.config.get_string("backends.use") == "fallback");
    CHECK(to_text(b.config.setting("backends.use").origin) == "mode 'eager'");
  }
  SECTION("chosen by an override: it wins over the file, and other overrides over it") {
    CHECK(bind(kGood, {"mode=eager"}).config.passes().empty());
    const Bound b = bind(kGood, {"pipeline.passes=dce", "mode=eager"});
    REQUIRE(b.config.passes().size() == 1);
    CHECK(b.config.get_string("backends.use") == "fallback");
  }
  SECTION("an override's mode replaces the file's") {
    const Bound b = bind("mode = \"eager\"\n[backends]\norder = [\"cpu\", \"eager\"]\n", {"mode=default"});
    CHECK(b.config.get_string("backends.use") == "all");
  }
  SECTION("lite skips passes that the pipeline may or may not have") {
    const Bound b = bind(kGood, {"mode=lite"});
    CHECK(b.faults.empty());
    REQUIRE(b.config.passes().size() == 2);
    CHECK(b.config.passes()[0].name == "canonicalize");
  }
  SECTION("every mode binds") {
    for (const ModeDecl& m : known_modes()) {
      INFO(m.name);
      CHECK(complaint(kGood, {"mode=" + m.name}) == "no fault");
    }
    CHECK(nlohmann::json::parse(modes_json())["modes"].size() == known_modes().size());
  }
}

TEST_CASE("a callable's mode and options derive a config") {
  const Config base = bind(kGood).config;
  const std::vector<std::string> options = {"guards.recompile_limit=3", "fuse.max_size=128"};
  const Config derived = base.derive("aot_eager", options);
  CHECK(derived.get_int("guards.recompile_limit") == 3);
  CHECK(derived.get_string("backends.use") == "fallback");
  CHECK(derived.passes()[4].options.find("max_size")->i == 128);
  CHECK(base.get_int("guards.recompile_limit") == 4);
  CHECK(to_text(derived.setting("guards.recompile_limit").origin) == "compile");
  const std::vector<std::string> fixed = {"plugins.load=[]", "runtime.threads=2", "cpu.isa=avx2", "guards.dynamc=auto", "x"};
  try {
    base.derive("fast", fixed);
    FAIL("expected an error");
  } catch (const Error& e) {
    check_golden("golden/config/derive.txt", std::string(e.what()) + "\n");
  }
}

TEST_CASE("a name at root level sets the options that have it") {
  const auto option = [](const Config& c, const char* id, const char* name) { return *c.plugin_options(id).find(name); };
  const auto sizes = [&](const Config& c) {
    return std::pair{option(c, "tessera.pass.fuse", "max_size").i, option(c, "tessera.pass.cse", "limit").i};
  };
  using Sizes = std::pair<int64_t, int64_t>;
  const std::string file = "max_group = 5\n[backends]\norder = [\"eager\"]\n";
  CHECK(sizes(bind("").config) == Sizes{32, 8});
  CHECK(sizes(config_test::bind(file).config) == Sizes{5, 5});
  // In one layer an option's own key is more specific, wherever it stands.
  CHECK(sizes(config_test::bind(file + "[fuse]\nmax_size = 6\n").config) == Sizes{6, 5});
  CHECK(sizes(bind("", {"fuse.max_size=6", "max_group=7"}).config) == Sizes{6, 7});
  CHECK(sizes(bind("", {"max_group=4", "max_group=7"}).config) == Sizes{7, 7});
  // A later layer wins over it.
  CHECK(sizes(config_test::bind(file + "[fuse]\nmax_size = 6\n", {"max_group=7"}).config) == Sizes{7, 7});
  const Config base = bind("", {"fuse.max_size=6", "max_group=7"}).config;
  const std::vector<std::string> given = {"max_group=9"};
  const Config derived = base.derive({}, given);
  CHECK(sizes(derived) == Sizes{9, 9});
  CHECK(sizes(derived.derive("aot_eager", {})) == Sizes{9, 9});
  // It says where its value came from.
  const auto origin = [](const Config& c, const std::string& key) {
    const auto json = nlohmann::json::parse(c.explain_json());
    for (const auto& v : json["values"])
      if (v["key"] == key) return v["origin"].get<std::string>();
    return std::string("no such row");
  };
  CHECK(origin(derived, "fuse.max_size") == "compile max_group");
  CHECK(origin(base, "fuse.max_size") == "--set");
  CHECK(origin(base, "cse.limit") == "--set max_group");
  CHECK(origin(config_test::bind(file).config, "cse.limit") == "configs/mine.toml:1:1");
  const auto json = nlohmann::json::parse(base.options_json());
  std::set<std::string> named;
  for (const auto& k : json["keys"])
    if (k["also"] == "max_group") named.insert(k["key"]);
  CHECK(named == std::set<std::string>{"fuse.max_size", "cse.limit"});
}

TEST_CASE("a key of Tessera's own that plugins ask for reaches them, also from a mode") {
  const auto option = [](const Config& c, const char* id, const char* name) { return c.plugin_options(id).find(name)->b; };
  const Config on = bind("force_disable_caches = true\n").config;
  CHECK(on.get_bool("force_disable_caches"));
  CHECK(option(on, "tessera.backend.cpu", "no_files"));
  CHECK_FALSE(option(bind("").config, "tessera.backend.cpu", "no_files"));
  CHECK_FALSE(bind("", {"cpu.no_files=true"}).config.get_bool("force_disable_caches"));
  CHECK(option(bind("mode = \"max-autotune\"\n").config, "tessera.pass.dce", "search"));
  CHECK(option(bind("", {"mode=max-autotune"}).config, "tessera.pass.dce", "search"));
  CHECK(option(bind("[dce]\nsearch = false\n", {"mode=max-autotune"}).config, "tessera.pass.dce", "search"));
  CHECK_FALSE(option(bind("mode = \"max-autotune\"\nmax_autotune = false\n").config, "tessera.pass.dce", "search"));
  CHECK_FALSE(option(bind("mode = \"max-autotune\"\n[dce]\nsearch = false\n").config, "tessera.pass.dce", "search"));
  // What a backend got when it was created stays.
  const std::vector<std::string> given = {"force_disable_caches=true"};
  CHECK_THROWS_WITH(bind("").config.derive({}, given), Catch::Contains("TSR-C012"));
  const std::vector<std::string> free = {"max_autotune=true", "deterministic=true", "freezing=false", "fallback_random=true"};
  CHECK(option(bind("").config.derive({}, free), "tessera.pass.dce", "search"));
}

TEST_CASE("a name at root level of a backend's option is fixed as the option is") {
  std::vector<Manifest> manifests = some_plugins();
  manifests[5].options[0].also = "instruction_set";
  std::vector<const Manifest*> pointers;
  for (const Manifest& m : manifests) pointers.push_back(&m);
  Faults faults;
  Config config = Config::parse({"c.toml", "instruction_set = \"avx2\"\n", {}}, faults);
  config.bind(pointers, {}, faults);
  REQUIRE(faults.empty());
  CHECK(config.plugin_options("tessera.backend.cpu").find("isa")->s == "avx2");
  const std::vector<std::string> given = {"instruction_set=avx512"};
  CHECK_THROWS_WITH(config.derive({}, given),
                    Catch::Contains("error[TSR-C012] compile instruction_set=avx512: 'instruction_set' is fixed"));
}

TEST_CASE("TESSERA_FORCE_DISABLE_CACHES wins over everything that a config says") {
  struct Variable {
    explicit Variable(const char* value) { setenv("TESSERA_FORCE_DISABLE_CACHES", value, 1); }
    ~Variable() { unsetenv("TESSERA_FORCE_DISABLE_CACHES"); }
  };
  const std::string file = "force_disable_caches = false\n[cpu]\nno_files = false\n";
  for (const char* off : {"", "0"}) {
    const Variable variable(off);
    CHECK_FALSE(config_test::bind(file).config.get_bool("force_disable_caches"));
  }
  const Variable variable("1");
  const Config c = config_test::bind(file, {"force_disable_caches=false", "cpu.no_files=false"}).config;
  CHECK(c.get_bool("force_disable_caches"));
  CHECK(c.plugin_options("tessera.backend.cpu").find("no_files")->b);
  CHECK(to_text(c.setting("force_disable_caches").origin) == "TESSERA_FORCE_DISABLE_CACHES");
}

TEST_CASE("complaints about names at root level") {
  // Of a plugin that is installed and not loaded; of one that is reported already; of nobody.
  const std::vector<Manifest> manifests = some_plugins();
  const std::vector<const Manifest*> loaded = {&manifests[1]};
  const auto text = [&](std::vector<std::string> overrides, std::vector<std::string> missing) {
    Faults faults;
    Config config = Config::parse({"c.toml", "max_group = 3\n", std::move(overrides)}, faults);
    config.bind(loaded, missing, faults, manifests);
    return faults.empty() ? std::string("no fault\n") : std::string(faults.to_error().what()) + "\n";
  };
  check_golden("golden/config/names.txt",
               text({"max_grop=4"}, {}) + "\n" + text({}, {"tessera.pass.cse", "tessera.pass.fuse"}) + "\n" +
                   complaint("max_group = \"many\"\n", {"max_group=200", "max_grop=4", "max_autotune=3"}));
}

TEST_CASE("complaints") {
  check_golden("golden/config/unknown_key.txt", complaint("[plugins]\nload = []\n\n\n\n[backend]\n  order = [\"eager\"]\n"));
  check_golden(
      "golden/config/several.txt",
      complaint("nam = \"x\"\nmode = \"fast\"\nnumerics = 3\n[pipeline]\nverify = \"sometimes\"\npasses = [\"cse\", 3, {nme "
                "= \"fuse\"}, "
                "{name = \"fuse\", max_size = 0, size = 1}, \"csee\", {name = \"fuse\", max_size = {}}]\nskip = [\"fus\"]\n"
                "[plugins]\nload = [\"a.b\", \"a.b\", {id = 3}, {optional = true}, {id = \"c.d\", optinal = true}, 7, \"\"]\n"
                "[backends]\norder = [\"cpu\", \"cpu\", \"gpu\"]\n[partitioner]\nname = \"knapsac\"\nbudget = 1.5\n"
                "[runtime]\nthreads = -1\narena_max_bytes = \"1G\"\n[guards]\nspecialize_float = \"yes\"\nlimit = "
                "1979-05-27\n"
                "[cpu]\nisa = \"avx\"\nlevel = 3\n[gpu]\n[executor]\nname = \"graphs\"\n"));
  check_golden("golden/config/sections.txt", complaint("pipeline = 3\n[[backends]]\norder = []\n[name]\nx = 1\n"));
  check_golden("golden/config/overrides.txt",
               complaint("", {"partitioner.budget", "=3", "a b=3", "name=", "backends.order=[\"eager\"", "name=1\nmode=2",
                              "backend.order=eager", "partitioner.budget=2", "cpu.isa=sse", "cpu.threads=2", "verify=each",
                              "guards.dynamic=maybe"}));
  check_golden("golden/config/syntax.txt", complaint("name = \"x\"\n[pipeline\npasses = []\n"));
  check_golden("golden/config/zero_byte.txt", complaint("name = \"x\"\n[cpu]\nisa = \"avx2\\u0000x\"\n") +
                                                  complaint("", {"cpu.isa=\"avx2\\u0000\"", "\"a\\u0000\"=3"}));
  check_golden("golden/config/bad_header.txt", complaint("name = \"x\"\n\n[#pipeline]\n[backends]\n"));
  check_golden("golden/config/not_ascii.txt", complaint("name = \"sm\xc3\xb6rg\xc3\xa5s\"\n\xc3\xa5r = 3\n"));
  check_golden("golden/config/duplicate_key.txt", complaint("name = \"x\"\nname = \"y\"\n"));
}

TEST_CASE("sections that two plugins claim, or that are Tessera's own") {
  std::vector<Manifest> manifests = some_plugins();
  Manifest other = manifests[5];
  other.id = "acme.backend.cpu";
  other.provides = {"backend:acme"};
  Manifest taken = manifests[5];
  taken.id = "acme.backend.runtime";
  taken.provides = {"backend:r"};
  const std::vector<const Manifest*> pointers = {&manifests[5], &other, &taken};
  Faults faults;
  Config config = Config::parse({"c.toml", "", {}}, faults);
  config.bind(pointers, {}, faults);
  check_golden("golden/config/clash.txt", std::string(faults.to_error().what()) + "\n");
}

TEST_CASE("an optional fallback that is not there is an error, not a silent change of results") {
  const std::string text =
      "[plugins]\nload = [{id = \"x.backend.npu\", optional = true}]\n[backends]\norder = [\"cpu\", \"npu\"]\n";
  const Bound b = bind(text, {}, {"x.backend.npu"});
  REQUIRE(b.faults.size() == 1);
  CHECK_THAT(b.faults.to_error().what(), Catch::Contains("error[TSR-C008] configs/mine.toml:4:1: the fallback backend 'npu'"));
}

TEST_CASE("asking for a key wrongly is a bug, not a user's mistake") {
  const Config c = bind(kGood).config;
  CHECK_THROWS_WITH(c.get_int("guards.nothing"), Catch::Contains("TSR-B040"));
  CHECK_THROWS_WITH(c.get_int("name"), Catch::Contains("TSR-B040"));
}

TEST_CASE("the table of keys is consistent") {
  for (const KeyDecl& k : known_keys()) {
    INFO(k.name);
    Value fallback = k.fallback;
    CHECK(check_value(k, &fallback).empty());
    CHECK(k.help.size() > 10);
    CHECK(find_key(k.name) == &k);
  }
  for (const ModeDecl& m : known_modes())
    for (const auto& [key, value] : m.overlay) {
      INFO(m.name << " sets " << key);
      const KeyDecl* k = find_key(key);
      CHECK((key == kPipelinePasses || (k && !k->fixed)));
      Value v = value;
      if (k) CHECK(check_value(*k, &v).empty());
    }
  const auto json = nlohmann::json::parse(bind(kGood).config.options_json());
  CHECK(json["keys"].size() == all_key_names().size() + 5);  // options of some_plugins()
}

TEST_CASE("every key is described in docs/config.md") {
  const std::string page = read_text_file(tessera::test::source_dir() + "/docs/config.md");
  for (const std::string& key : all_key_names()) {
    INFO(key);
    CHECK(page.find("`" + key + "`") != std::string::npos);
  }
  for (const ModeDecl& m : known_modes()) {
    INFO(m.name);
    CHECK(page.find("`" + m.name + "`") != std::string::npos);
  }
}

TEST_CASE("every code of config, plugins and logs has one row in docs/errors.md") {
  const std::string root = tessera::test::source_dir();
  const std::string page = read_text_file(root + "/docs/errors.md");
  std::set<std::string> codes;
  for (const char* dir : {"config", "plugin", "context", "log", "pass"})
    for (const auto& file : fs::directory_iterator(root + "/core/src/" + dir)) {
      const std::vector<std::string> named =
          tessera::test::captured(read_text_file(file.path().string()), "\"(TSR-[CPL][0-9]{3})\"");
      codes.insert(named.begin(), named.end());
    }
  CHECK(codes.size() > 40);
  for (const std::string& c : codes) {
    INFO(c);
    const size_t row = page.find("| `" + c + "` |");
    CHECK(row != std::string::npos);
    CHECK(page.find("| `" + c + "` |", row + 1) == std::string::npos);
  }
}

TEST_CASE("values print as TOML that reads back") {
  for (const Value& v : {Value::of_int(INT64_MIN), Value::of_int(INT64_MAX), Value::of_float(0.1), Value::of_float(1e300),
                         Value::of_float(3), Value::of_float(-std::numeric_limits<double>::infinity()), Value::of_bool(true),
                         Value::of_string("a\"b\\c\n\t\x01\xc3\xa9"), Value::of_strings({}), Value::of_strings({"a", "b,c"})}) {
    INFO(to_text(v));
    Value back;
    REQUIRE(to_value(parse_override_value(to_text(v), "test"), &back));
    CHECK(back == v);
  }
}

TEST_CASE("files that cannot be read") {
  CHECK_THROWS_WITH(read_text_file("/nonexistent/config.toml"), Catch::Contains("TSR-C005") && Catch::Contains("No such file"));
  CHECK_THROWS_WITH(read_text_file("/"), Catch::Contains("TSR-C005") && Catch::Contains("directory"));
}

TEST_CASE("hostile nesting is refused, not followed") {
  const std::string deep = "a = " + std::string(100000, '[') + std::string(100000, ']');
  CHECK_THROWS_AS(parse_toml(deep, "deep.toml"), Error);
  const std::string tables = "a = " + [] {
    std::string s;
    for (int i = 0; i < 100000; ++i) s += "{a=";
    return s;
  }();
  CHECK_THROWS_AS(parse_toml(tables, "deep.toml"), Error);
}

TEST_CASE("the shipped configs parse, and every list is what it claims") {
  for (const char* name : {"default", "eager", "reference", "null", "cpu"}) {
    INFO(name);
    const std::string path = tessera::test::source_dir() + "/configs/" + name + ".toml";
    Faults faults;
    const Config c = Config::parse({path, read_text_file(path), {}}, faults);
    CHECK(faults.empty());
    CHECK(c.get_string("name") == name);
    CHECK_FALSE(c.plugins().empty());
    CHECK_FALSE(c.get_strings("backends.order").empty());
  }
}

}  // namespace config_test
