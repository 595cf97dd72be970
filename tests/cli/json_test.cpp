// SPDX-License-Identifier: Apache-2.0
// With --json, stdout is exactly one JSON document of the documented schema (docs/json.md), whatever the command says on
// stderr.
#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

struct Result {
  std::string text;
  int status;
};

// In the directory of the fixtures; stderr is discarded.
Result tessera(const std::string& arguments) {
  const std::string files = environment("TESSERA_SOURCE_DIR") + "/tests/cli/files";
  const std::string line =
      "cd '" + files + "' && '" + environment("TESSERA_BUILD_DIR") + "/bin/tessera' " + arguments + " 2>/dev/null";
  FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe);
  Result r;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) r.text.append(buffer.data(), n);
  const int status = pclose(pipe);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return r;
}

Json document(const std::string& arguments, const char* schema, int status = 0) {
  INFO("tessera " << arguments);
  const Result r = tessera(arguments + " --json");
  INFO(r.text);
  CHECK(r.status == status);
  Json d;
  REQUIRE_NOTHROW(d = Json::parse(r.text));  // refuses anything after the document
  CHECK(d.value("schema", "") == schema);
  return d;
}

void check_positive(const Json& d, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    INFO(key << " of " << d.dump());
    REQUIRE(d.contains(key));
    REQUIRE(d[key].is_number());
    CHECK(d[key].get<double>() >= 0);
  }
}

TEST_CASE("run --json") {
  const Json d = document(
      "run mlp.tsr --config test.toml --range x=1:1 --range w=2:2 --range n=3:3 --dim s0=2 --print --memory", "tessera.run/1");
  CHECK(d["dims"] == Json{{"s0", 2}});
  REQUIRE(d["inputs"].size() == 3);
  CHECK(d["inputs"][1] ==
        Json::parse(
            R"({"name": "w", "key": "fc.weight", "kind": "param", "dtype": "f32", "shape": [4, 2], "source": "random"})"));
  REQUIRE(d["outputs"].size() == 2);
  CHECK(d["outputs"][0]["value"] == "dense<f32[2, 2]: [8.0, 8.0, 8.0, 8.0]>");
  CHECK(d["outputs"][1]["value"] == "dense<i64[]: 4>");
  check_positive(d, {"load_ms", "compile_ms", "pack_ms", "run_ms", "peak_bytes"});
  CHECK(d["peak_bytes"].get<int64_t>() >= 4 * (2 * 4 + 4 * 2 + 2 * 2));  // inputs and outputs at least
  REQUIRE(d["executable"]["steps"].size() >= 2);
  for (const char* key : {"index", "kind", "op", "results", "operands", "backend", "kernel", "bytes", "workspace_bytes", "loc"})
    CHECK(d["executable"]["steps"][0].contains(key));
  CHECK(d["executable"]["steps"][0]["loc"] == "mlp.cpp:12:3");
}

TEST_CASE("bench --json") {
  const Json d = document("bench mlp.tsr --config test.toml --threads 2 --iters 20 --warmup 1", "tessera.bench/1");
  check_positive(d, {"median_ms", "p10_ms", "p99_ms", "compile_ms", "pack_ms", "first_call_ms", "peak_bytes"});
  CHECK(d["iterations"] == 20);
  CHECK(d["threads"] == 2);
  CHECK(d["p10_ms"] <= d["median_ms"]);
  CHECK(d["median_ms"] <= d["p99_ms"]);
  CHECK_FALSE(d.contains("executable"));
}

TEST_CASE("bench --steps --json") {
  const Json d = document("bench mlp.tsr --config test.toml --threads 1 --iters 5 --steps", "tessera.bench/1");
  CHECK(d["threads"] == 1);
  CHECK(d["executable"]["threads"] == 1);
  int kernels = 0;
  for (const Json& step : d["executable"]["steps"])
    if (step["kind"] == "kernel") {
      ++kernels;
      REQUIRE(step["measured_ms"].is_number());
      CHECK(step["measured_ms"] > 0);
      CHECK(step["measured_runs"] == 5);  // without the first call and those of warm-up
    }
  CHECK(kernels > 1);
}

TEST_CASE("compare --json") {
  const Json d = document("compare test.toml reference mlp.tsr --blocks 5", "tessera.compare/1");
  for (const char* side : {"a", "b"}) {
    INFO(d[side].dump());
    check_positive(d[side], {"compile_ms", "pack_ms", "first_call_ms", "peak_bytes"});
    check_positive(d[side]["time"], {"median_ms", "p10_ms", "p90_ms"});
    CHECK(d[side]["time"]["samples"] == 10);
    CHECK(d[side]["error"]["max_abs"] == 0.0);
    CHECK(d[side]["error"]["bits_equal"] == true);
    CHECK(d[side]["outputs"].size() == 2);
  }
  CHECK(d["a"]["peak_bytes"] == d["b"]["peak_bytes"]);
  check_positive(d["speed"], {"speedup", "noise"});
  const std::string verdict = d["speed"]["verdict"];
  CHECK((verdict == "faster" || verdict == "slower" || verdict == "inconclusive"));
}

TEST_CASE("opt --json") {
  const Json d = document("opt mlp.tsr --config test.toml --passes cse,dce --timing", "tessera.opt/1");
  CHECK(d["text"].get<std::string>().starts_with("graph @mlp("));
  REQUIRE(d["report"]["passes"].size() == 2);
  CHECK(d["report"]["passes"][1]["pass"] == "dce");
  check_positive(d["report"]["passes"][0], {"ms", "verify_ms", "nodes_before", "nodes_after"});
}

TEST_CASE("config and plugin --json") {
  CHECK(document("config explain test.toml", "tessera.config_explain/1")["passes"].size() == 3);
  CHECK(document("config options", "tessera.config_options/1")["keys"].size() > 20);
  CHECK(document("config modes", "tessera.config_modes/1")["modes"].size() >= 7);
  CHECK(document("plugin list --config test.toml", "tessera.plugin_list/1")["plugins"].size() == 6);
  CHECK(document("plugin list --all --config test.toml", "tessera.plugin_list/1")["plugins"].size() > 6);
  const std::string library = environment("TESSERA_BUILD_DIR") + "/lib/tessera/plugins/tessera.pass.cse.so";
  const Json check = document("plugin check " + library, "tessera.plugin_check/1");
  CHECK(check["ok"] == true);
  CHECK(check["factories"] == Json::parse(R"([{"kind": "pass", "name": "cse"}])"));
  CHECK(check["devices"] == Json::array());
  const std::string null = environment("TESSERA_BUILD_DIR") + "/lib/tessera/plugins/tessera.backend.null.so";
  CHECK(document("plugin check " + null, "tessera.plugin_check/1")["devices"][0]["name"] == "null:0");
  const Json missing = document("plugin check nothing.so", "tessera.plugin_check/1", 2);
  CHECK(missing["ok"] == false);
  CHECK(missing["faults"][0]["code"] == "TSR-P001");
}

TEST_CASE("ops --json and --markdown") {
  const Json all = document("ops --config test.toml", "tessera.ops/1")["ops"];
  CHECK(all.size() >= 90);
  const Json one = document("ops add --config test.toml", "tessera.ops/1")["ops"];
  REQUIRE(one.size() == 1);
  CHECK(one[0]["doc"] == "Sum.");
  const Json composites = document("ops --composite --config test.toml", "tessera.ops/1")["ops"];
  CHECK_FALSE(composites.empty());
  for (const Json& op : composites) {
    bool composite = false;
    for (const Json& t : op["traits"]) composite |= t == "composite";
    CHECK(composite);
  }
  const std::string page = tessera("ops --markdown --config test.toml").text;
  for (const Json& op : all) CHECK(page.find("### `" + op["name"].get<std::string>() + "`") != page.npos);
}

TEST_CASE("version --json") {
  const Json d = document("version", "tessera.version/1");
  CHECK(d["ir"].is_number());
  CHECK_FALSE(d["version"].get<std::string>().empty());
}

TEST_CASE("errors under --json") {
  for (const char* arguments : {"run missing.tsr", "frobnicate", "run add.tsr --nonsense", "run", "config explain nowhere.toml",
                                "ops no_such_op", "compare a.toml b.toml add.tsr", "new op 7", "bench add.tsr --iters x"}) {
    const Json d = document(arguments, "tessera.error/1", 2);
    CHECK(d["family"] == "user");
    CHECK(d["exit_status"] == 2);
    CHECK(d["code"].get<std::string>().starts_with("TSR-"));
    CHECK_FALSE(d["message"].get<std::string>().empty());
  }
}

TEST_CASE("a failed write is no success") {
  if (!fs::exists("/dev/full")) return;
  const std::string line = "'" + environment("TESSERA_BUILD_DIR") + "/bin/tessera' version --json > /dev/full 2>/dev/null";
  const int status = std::system(line.c_str());
  CHECK(WEXITSTATUS(status) == 3);
}

}  // namespace
