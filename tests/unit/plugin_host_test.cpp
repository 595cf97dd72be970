// SPDX-License-Identifier: Apache-2.0
// Broken plugins and damaged manifests against their golden messages (tests/golden/plugins), and what loading promises.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "config/document.hpp"
#include "config/paths.hpp"
#include "context/context.hpp"
#include "golden.hpp"
#include "host_support.hpp"
#include "log/log.hpp"
#include "pattern.hpp"
#include "plugin/manifest.hpp"
#include "plugin/sha256.hpp"

namespace plugin_host_test {

namespace fs = std::filesystem;
using namespace tessera::core;
using tessera::test::bare_host;
using tessera::test::check_golden;
using tessera::test::replace_all;
using tessera::test::replaced;

namespace {

std::string broken_dir() { return fs::absolute(tessera::test::build_dir() + "/tests/broken").lexically_normal().string(); }

struct Outcome {
  std::string text;  // the error as printed, or "loaded: ids"
  tsr_family family = TSR_USER;
  std::string code;
};

std::string normalised(std::string text, const std::string& dir) {
  text = replace_all(std::move(text), fs::canonical(dir).string(), "DIR");
  text = replace_all(std::move(text), dir, "DIR");
  text = replace_all(std::move(text), default_plugin_dir(), "PLUGINS");
  text = replaced(text, "sha256:[0-9a-f]{64}", "sha256:<hash>");
  text = replaced(text, "(, this host with )'[a-z]*'", "$1'<sanitizer>'");
  return replace_all(std::move(text), host_platform(), "<platform>");
}

Outcome try_load(const std::string& dir, const std::string& config, const std::vector<std::string>& overrides = {}) {
  std::vector<const char*> sets;
  for (const std::string& s : overrides) sets.push_back(s.c_str());
  const char* dirs[] = {dir.c_str()};
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = config.c_str();
  options.overrides = sets.data();
  options.num_overrides = sets.size();
  options.plugin_dirs = dirs;
  options.num_plugin_dirs = 1;
  Outcome out;
  try {
    const auto context = Context::create(&options, bare_host());
    for (const LoadedPlugin* p : context->plugins().plugins()) out.text += (out.text.empty() ? "loaded: " : ", ") + p->id;
    if (out.text.empty()) out.text = "loaded: nothing";
  } catch (const Error& e) {
    out = {normalised(e.what(), dir) + "\n", e.family(), e.code()};
  }
  return out;
}

std::string load_line(const std::string& id) { return "[plugins]\nload = [\"" + id + "\"]\n"; }

// A directory of its own with copies of what a test damages.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "tessera-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    dir_ = fs::canonical(pattern).string();
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
  const std::string& dir() const { return dir_; }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  // The manifest of acme.broken.NAME after `edit`, beside a link to its library.
  void manifest(const std::string& name, const std::function<std::string(std::string)>& edit,
                const std::string& as = "") const {
    const std::string id = "acme.broken." + name;
    write((as.empty() ? id : as) + ".toml", edit(read_text_file(broken_dir() + "/" + id + ".toml")));
    std::error_code there;
    fs::create_symlink(broken_dir() + "/" + id + ".so", dir_ + "/" + id + ".so", there);
  }

 private:
  std::string dir_;
};

std::function<std::string(std::string)> replacing(const std::string& pattern, const std::string& with) {
  return [=](const std::string& text) {
    const std::string out = replaced(text, pattern, with);
    REQUIRE(out != text);
    return out;
  };
}

}  // namespace

TEST_CASE("a sound plugin and one with a shorter, older description load") {
  CHECK(try_load(broken_dir(), load_line("acme.broken.good")).text == "loaded: acme.broken.good");
  CHECK(try_load(broken_dir(), load_line("acme.broken.short_desc")).text == "loaded: acme.broken.short_desc");
}

TEST_CASE("libraries that break the handshake give their golden messages") {
  struct Case {
    const char* name;
    const char* code;
    tsr_family family;
  };
  const Case cases[] = {
      {"tiny_desc", "TSR-P025", TSR_BUG},
      {"zero_desc", "TSR-P025", TSR_BUG},
      {"newer_major", "TSR-P026", TSR_USER},
      {"newer_minor", "TSR-P026", TSR_USER},
      {"old_device", "TSR-P047", TSR_USER},
      {"old_executor", "TSR-P047", TSR_USER},
      {"other_ir", "TSR-P032", TSR_USER},
      {"other_sanitizer", "TSR-P033", TSR_USER},
      {"unknown_feature", "TSR-P029", TSR_USER},
      {"wrong_id", "TSR-P028", TSR_BUG},
      {"null_query", "TSR-P024", TSR_BUG},
      {"null_create", "TSR-P027", TSR_BUG},
      {"other_factories", "TSR-P042", TSR_BUG},
      {"duplicate_factory", "TSR-P045", TSR_BUG},
      {"bad_kind", "TSR-P041", TSR_BUG},
      {"null_function", "TSR-P044", TSR_BUG},
      {"short_table", "TSR-P043", TSR_BUG},
      {"bad_stride", "TSR-P041", TSR_BUG},
      {"create_error", "TSR-P040", TSR_ENVIRONMENT},
      {"factories_error", "TSR-P041", TSR_BUG},
      {"create_throws", "TSR-P040", TSR_BUG},
      {"escaped_exception", "TSR-P046", TSR_BUG},
      {"undefined_symbol", "TSR-P022", TSR_BUG},
      {"missing_library", "TSR-P021", TSR_ENVIRONMENT},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const Outcome out = try_load(broken_dir(), load_line("acme.broken." + std::string(c.name)));
    CHECK(out.code == c.code);
    CHECK(out.family == c.family);
    check_golden("golden/plugins/" + std::string(c.name) + ".txt", out.text);
  }
}

TEST_CASE("an exception that leaves a function of a plugin is that plugin's bug") {
  LoadedPlugin plugin;
  plugin.id = "acme.backend.npu";
  plugin.vendor = "Acme";
  const Factory f{TSR_BACKEND, "npu", nullptr, nullptr, &plugin};
  const auto said = [&](const char* function, auto body) -> std::string {
    try {
      f.call(function, body);
      return "nothing";
    } catch (const Error& e) {
      return e.what();
    }
  };
  CHECK(said("compile", []() -> tsr_error* { throw std::runtime_error("no licence"); }) ==
        "error[TSR-P046] plugin 'acme.backend.npu' (Acme): an exception left compile of backend 'npu': no licence\n"
        "  hint: catch it in the plugin; the wrapper of <tessera/plugin.hpp> does");
  CHECK(said("claim", []() -> int { throw 7; }) ==
        "error[TSR-P046] plugin 'acme.backend.npu' (Acme): an exception left claim of backend 'npu': not a std::exception\n"
        "  hint: catch it in the plugin; the wrapper of <tessera/plugin.hpp> does");
  // Errors of the host's own callbacks pass through a plugin as they are, and so does what it returns.
  CHECK(said("compile", []() -> tsr_error* { throw Error(TSR_USER, "TSR-X001", "mine"); }) == "error[TSR-X001] mine");
  CHECK(said("compile", []() -> tsr_error* { return nullptr; }) == "nothing");
  CHECK(f.call("claim", [] { return 3; }) == 3);
}

TEST_CASE("damaged manifests are refused before the library is opened, with their golden messages") {
  struct Case {
    const char* name;
    const char* code;
    std::function<std::string(std::string)> edit;
  };
  const Case cases[] = {
      {"bad_hash", "TSR-P010", replacing("hash = \"sha256:......", "hash = \"sha256:000000")},
      {"malformed_hash", "TSR-P003", replacing("hash = \"sha256:[0-9a-f]*", "hash = \"md5:1234")},
      {"wrong_platform", "TSR-P005", replacing("platform = \"[^\"]*\"", "platform = \"plan9-mips\"")},
      {"newer_abi", "TSR-P006", replacing("abi_major = \\d+", "abi_major = 7")},
      {"ir_too_new", "TSR-P007", replacing("ir_min = \\d+\nir_max = \\d+", "ir_min = 8\nir_max = 9")},
      {"manifest_sanitizer", "TSR-P008", replacing("sanitizer = \"[^\"]*\"", "sanitizer = \"memory\"")},
      {"no_library", "TSR-P009", replacing("library = \"[^\"]*\"", "library = \"acme.broken.gone.so\"")},
      {"library_elsewhere", "TSR-P003", replacing("library = \"", "library = \"../../etc/")},
      {"malformed_toml", "TSR-P002", replacing("version = \"1.0.0\"", "version = \"1.0.0")},
      {"missing_keys", "TSR-P003", replacing("(vendor|platform|ir_max) = [^\n]*\n", "")},
      {"wrong_types", "TSR-P003", replacing("(version|stability|provides) = [^\n]*\n", "$1 = 3\n")},
      {"unknown_key", "TSR-P003", replacing("provides = ", "provide = []\nprovides = ")},
      {"bad_provides", "TSR-P003",
       replacing("provides = [^\n]*", "provides = [\"pas:good\", \"pass:\", \"pass:a\", \"pass:a\"]")},
      {"negative_version", "TSR-P003", replacing("abi_minor = \\d+", "abi_minor = -1")},
      {"bad_default", "TSR-P012", replacing("default = 1\n", "default = 12\n")},
      {"bad_choice", "TSR-P012", replacing("default = \"round\"", "default = \"triangle\"")},
      {"bad_options", "TSR-P012", replacing("min = 0\nmax = 11", "min = 12\nmax = 11\nunit = \"s\"")},
      {"bad_option_type", "TSR-P012", replacing("type = \"int\"", "type = \"integer\"")},
      {"option_twice", "TSR-P012", replacing("name = \"shape\"", "name = \"level\"")},
      {"needs_another", "TSR-P011", replacing("needs = \\[\\]", "needs = [\"acme.opset.extra\"]")},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const Scratch scratch;
    scratch.manifest("good", c.edit);
    const Outcome out = try_load(scratch.dir(), load_line("acme.broken.good"));
    CHECK(out.code == c.code);
    check_golden("golden/plugins/" + std::string(c.name) + ".txt", out.text);
  }
}

TEST_CASE("files that are no plugin libraries") {
  const Scratch scratch;
  const auto pointing_at = [&](const std::string& file) {
    const std::string hash = sha256_file(scratch.dir() + "/" + file);
    return [=](std::string text) {
      text = replaced(text, "library = \"[^\"]*\"", "library = \"" + file + "\"");
      return replaced(text, "sha256:[0-9a-f]+", "sha256:" + hash);
    };
  };
  SECTION("a text file") {
    scratch.write("text.so", "this is not an ELF file\n");
    scratch.manifest("good", pointing_at("text.so"));
    check_golden("golden/plugins/not_elf.txt", try_load(scratch.dir(), load_line("acme.broken.good")).text);
  }
  SECTION("the first bytes of a library") {
    const std::string whole = read_text_file(broken_dir() + "/acme.broken.good.so");
    scratch.write("stump.so", whole.substr(0, 40));
    scratch.manifest("good", pointing_at("stump.so"));
    check_golden("golden/plugins/truncated.txt", try_load(scratch.dir(), load_line("acme.broken.good")).text);
  }
  SECTION("a library without the exported symbol") {
    fs::copy_file(broken_dir() + "/acme_not_a_plugin.so", scratch.dir() + "/acme_not_a_plugin.so");
    scratch.manifest("good", pointing_at("acme_not_a_plugin.so"));
    check_golden("golden/plugins/no_export.txt", try_load(scratch.dir(), load_line("acme.broken.good")).text);
  }
}

TEST_CASE("duplicates and absences") {
  SECTION("two manifests of one id in a directory") {
    const Scratch scratch;
    const auto same = [](std::string text) { return text; };
    scratch.manifest("good", same);
    scratch.manifest("good", same, "copy-of-good");
    check_golden("golden/plugins/duplicate_id.txt", try_load(scratch.dir(), load_line("acme.broken.good")).text);
  }
  SECTION("two plugins with the same factory") {
    const Scratch scratch;
    scratch.manifest("good", [](std::string text) { return text; });
    scratch.manifest("short_desc", replacing("pass:short_desc", "pass:good"));
    check_golden("golden/plugins/same_factory.txt",
                 try_load(scratch.dir(), "[plugins]\nload = [\"acme.broken.good\", \"acme.broken.short_desc\"]\n").text);
  }
  SECTION("a plugin that is not there") {
    check_golden("golden/plugins/not_found.txt", try_load(broken_dir(), load_line("acme.broken.goood")).text);
  }
  SECTION("an earlier directory wins over a later one") {
    const Scratch scratch;
    scratch.manifest("good", replacing("version = \"1.0.0\"", "version = \"2.0.0\""));
    const std::vector<std::string> dirs = {scratch.dir(), broken_dir(), scratch.dir() + "/none"};
    const std::vector<Manifest> found = find_manifests(dirs);
    const auto good = std::find_if(found.begin(), found.end(), [](const Manifest& m) { return m.id == "acme.broken.good"; });
    REQUIRE(good != found.end());
    CHECK(good->version == "2.0.0");
    CHECK(good->faults.empty());
  }
}

TEST_CASE("all faults of the config and of all plugins come in one message") {
  const Scratch scratch;
  scratch.manifest("good", replacing("platform = \"[^\"]*\"", "platform = \"plan9-mips\""));
  scratch.manifest("short_desc", replacing("default = 1\n", "default = 12\n"));
  const Outcome out = try_load(scratch.dir(),
                               "[plugins]\nload = [\"acme.broken.good\", \"acme.broken.short_desc\", \"acme.broken.nothing\"]\n"
                               "[pipeline]\nverfy = \"each\"\npasses = [\"good\", \"missing\"]\n");
  check_golden("golden/plugins/several.txt", out.text);
}

TEST_CASE("faults of several libraries come in one message, and the sound ones are destroyed again") {
  const Outcome out = try_load(
      broken_dir(), "[plugins]\nload = [\"acme.broken.good\", \"acme.broken.null_query\", \"acme.broken.newer_major\"]\n");
  CHECK(out.text.find("TSR-P024") != std::string::npos);
  CHECK(out.text.find("TSR-P026") != std::string::npos);
  CHECK(out.family == TSR_BUG);
}

TEST_CASE("an optional plugin that is absent, or lacks a library of the system, is left out with one line") {
  std::string said;
  LogSink before = set_log_sink([&](std::string_view lines) { said += lines; });
  const Outcome absent = try_load(broken_dir(),
                                  "[plugins]\nload = [\"acme.broken.good\", { id = \"acme.backend.npu\", optional = true }]\n"
                                  "[npu]\nspeed = 3\n[pipeline]\npasses = [\"good\", \"npu\"]\n");
  const Outcome lacking = try_load(broken_dir(),
                                   "[plugins]\nload = [{ id = \"acme.broken.missing_library\", optional = true }]\n"
                                   "[pipeline]\npasses = [\"missing_library\"]\n");
  set_log_sink(std::move(before));
  CHECK(absent.text == "loaded: acme.broken.good");
  CHECK(lacking.text == "loaded: nothing");
  CHECK(said ==
        "tessera: note: optional plugin 'acme.backend.npu' is not installed; going on without it\n"
        "tessera: note: optional plugin 'acme.broken.missing_library' is left out: libacme_absent.so.9: cannot open "
        "shared object file: "
        "No such file or directory\n");
}

TEST_CASE("an optional plugin whose machine lacks what it needs is left out with one line, and so is what needs it") {
  std::string said;
  LogSink before = set_log_sink([&](std::string_view lines) { said += lines; });
  const Outcome lacking =
      try_load(broken_dir(),
               "[plugins]\nload = [\"acme.broken.good\", { id = \"acme.broken.create_error\", optional = true }]\n"
               "[pipeline]\npasses = [\"create_error\", \"good\"]\n");
  const Scratch scratch;
  scratch.manifest("create_error", [](const std::string& text) { return text; });
  scratch.manifest("good", replacing("needs = \\[\\]", "needs = [\"acme.broken.create_error\"]"));
  const char* both =
      "[plugins]\nload = [{ id = \"acme.broken.create_error\", optional = true }, { id = \"acme.broken.good\", optional = true "
      "}]\n";
  const Outcome needed = try_load(scratch.dir(), both);
  const Outcome required =
      try_load(scratch.dir(), replace_all(both, "{ id = \"acme.broken.good\", optional = true }", "\"acme.broken.good\""));
  set_log_sink(std::move(before));
  CHECK(lacking.text == "loaded: acme.broken.good");
  CHECK(needed.text == "loaded: nothing");
  CHECK(required.code == "TSR-P011");
  CHECK(
      said ==
      "tessera: note: optional plugin 'acme.broken.create_error' is left out: [ACME-17] no licence server at localhost:27000\n"
      "tessera: note: optional plugin 'acme.broken.good' is left out: it needs 'acme.broken.create_error'\n");
}

TEST_CASE("a setting of the partitioner that does nothing is noticed") {
  std::string said;
  LogSink before = set_log_sink([&](std::string_view lines) { said += lines; });
  CHECK(try_load(broken_dir(), load_line("acme.broken.good")).text == "loaded: acme.broken.good");
  CHECK(said.empty());
  CHECK(try_load(broken_dir(), load_line("acme.broken.good"), {"partitioner.budget=0.5"}).text == "loaded: acme.broken.good");
  CHECK(try_load(broken_dir(), load_line("acme.broken.good") + "[partitioner]\nbudget_bytes = 1000\n").text ==
        "loaded: acme.broken.good");
  set_log_sink(std::move(before));
  CHECK(said ==
        "tessera: note: --set: 'partitioner.budget' has no effect: 'partitioner.name' names no partitioner\n"
        "tessera: note: <text>:4:1: 'partitioner.budget_bytes' has no effect: 'partitioner.name' names no partitioner\n");
}

TEST_CASE("an optional plugin that is broken is still an error") {
  CHECK(try_load(broken_dir(), "[plugins]\nload = [{ id = \"acme.broken.null_query\", optional = true }]\n").code ==
        "TSR-P024");
}

TEST_CASE("options of sections and of pipeline entries are checked against the manifest before loading") {
  const Outcome out = try_load(broken_dir(),
                               "[plugins]\nload = [\"acme.broken.good\"]\n"
                               "[good]\nlevel = 12\nlevle = 3\nshape = \"triangle\"\ntags = [1]\nratio = nan\n"
                               "[pipeline]\npasses = [{ name = \"good\", level = \"much\", size = 2 }]\n",
                               {"good.ratio=2", "good.shape=squar"});
  check_golden("golden/plugins/options.txt", out.text);
}

TEST_CASE("lookups name what there is") {
  const char* dirs[] = {nullptr};
  const std::string dir = broken_dir();
  dirs[0] = dir.c_str();
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text =
      "[plugins]\nload = [\"acme.broken.good\", \"acme.broken.short_desc\"]\n[good]\nlevel = 4\n"
      "[pipeline]\npasses = [\"good\", { name = \"good\", level = 7, tags = [\"a\", \"b\"] }]\n";
  options.plugin_dirs = dirs;
  options.num_plugin_dirs = 1;
  const auto context = Context::create(&options, bare_host());

  SECTION("a factory's table is the host's full-size copy") {
    const Factory& good = context->pass("good");
    CHECK(good.plugin->id == "acme.broken.good");
    CHECK(good.as<tsr_pass>().struct_size == sizeof(tsr_pass));
    int changed = 7;
    good.check(good.as<tsr_pass>().run(good.self, nullptr, nullptr, &changed));
    CHECK(changed == 0);
  }
  SECTION("unknown names") {
    CHECK_THROWS_WITH(context->pass("godo"),
                      Catch::Contains("error[TSR-P030] no loaded plugin provides the pass 'godo'; did you mean 'good'?") &&
                          Catch::Contains("passes of the loaded plugins: good, short_desc"));
  }
  SECTION("the pipeline carries the options: section, then the entry's own") {
    const std::vector<BoundPass> passes = context->pipeline(context->config());
    REQUIRE(passes.size() == 2);
    CHECK(passes[0].options.find("level")->i == 4);
    CHECK(passes[1].options.find("level")->i == 7);
    const tsr_options* view = passes[1].options.view();
    REQUIRE(view->count == 4);
    const tsr_option* tags = TSR_AT(tsr_option, view->items, view->stride, 3);
    REQUIRE(tags->count == 2);
    CHECK(std::string(tags->strings[1]) == "b");
    CHECK(std::string(TSR_AT(tsr_option, view->items, view->stride, 1)->s) == "round");
  }
  SECTION("options of a textual pipeline") {
    const std::vector<std::pair<std::string, std::string>> given = {{"level", "9"}, {"shape", "square"}, {"tags", "x,y"}};
    const OptionSet set = context->pass_options("good", given, "pipeline");
    CHECK(set.find("level")->i == 9);
    CHECK(set.find("shape")->s == "square");
    CHECK(set.find("tags")->strings == std::vector<std::string>{"x", "y"});
    const std::vector<std::pair<std::string, std::string>> bad = {{"level", "99"}, {"colour", "red"}};
    CHECK_THROWS_WITH(context->pass_options("good", bad, "pipeline"), Catch::Contains("TSR-C004") &&
                                                                          Catch::Contains("found 99, expected 0..11") &&
                                                                          Catch::Contains("has no option 'colour'"));
  }
  SECTION("no backend, no frontend") {
    CHECK_THROWS_WITH(context->backends_in_order(), Catch::Contains("TSR-C011"));
    CHECK_THROWS_WITH(context->backends_named("eager"), Catch::Contains("TSR-P030"));
    CHECK_THROWS_WITH(context->frontend_for("model.xyz", "abc"), Catch::Contains("TSR-P031"));
  }
  SECTION("what is loaded, as JSON") {
    const auto json = nlohmann::json::parse(context->plugins().loaded_json());
    REQUIRE(json["plugins"].size() == 2);
    CHECK(json["plugins"][0]["vendor"] == "Acme");
    CHECK(json["plugins"][0]["factories"][0]["kind"] == "pass");
  }
}

TEST_CASE("plugin list and plugin check report faults instead of throwing them") {
  const std::string dir = broken_dir();
  const char* dirs[] = {dir.c_str()};
  tsr_context_options options{};
  options.struct_size = sizeof options;
  options.config_text = "[plugins]\nload = [\"acme.broken.good\", \"acme.broken.absent\"]\n";
  options.plugin_dirs = dirs;
  options.num_plugin_dirs = 1;
  const auto some = nlohmann::json::parse(plugin_list_json(&options, false));
  REQUIRE(some["plugins"].size() == 1);
  CHECK(some["plugins"][0]["requested"] == true);
  CHECK(some["missing"][0]["id"] == "acme.broken.absent");
  CHECK(some["faults"][0]["code"] == "TSR-P001");
  CHECK(nlohmann::json::parse(plugin_list_json(&options, true))["plugins"].size() > 20);

  const auto good = nlohmann::json::parse(plugin_check_json(dir + "/acme.broken.good.so", bare_host()));
  CHECK(good["ok"] == true);
  CHECK(good["factories"][0]["name"] == "good");
  const auto bad = nlohmann::json::parse(plugin_check_json(dir + "/acme.broken.null_function.toml", bare_host()));
  CHECK(bad["ok"] == false);
  CHECK(bad["faults"].size() == 2);
  CHECK(nlohmann::json::parse(plugin_check_json(dir + "/nothing.so", bare_host()))["faults"][0]["code"] == "TSR-P001");
  CHECK(nlohmann::json::parse(plugin_check_json(dir + "/acme_not_a_plugin.so", bare_host()))["faults"][0]["code"] ==
        "TSR-P001");
}

}  // namespace plugin_host_test
