// SPDX-License-Identifier: Apache-2.0
// The conformance kit on backends that are deliberately wrong: each fault is found, by the check that the table names, and a
// backend without a fault conforms.
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using Json = nlohmann::json;

struct Outcome {
  int status = -1;
  Json document;
};

// How long a check may take: what leaks is run many times, which a sanitizer makes slow.
std::string patience() {
  const char* const sanitizer = std::getenv("TESSERA_SANITIZE");
  return sanitizer && *sanitizer ? "20" : "2";
}
std::string build() { return std::getenv("TESSERA_BUILD_DIR"); }

Outcome run(const std::string& arguments, const std::string& environment = {}, const std::string& plugin = "backend.faulty") {
  // A sanitizer that catches SIGSEGV would turn the signal that ends a worker into an exit status.
  const std::string uncaught = "ASAN_OPTIONS=\"$ASAN_OPTIONS:handle_segv=0\" TSAN_OPTIONS=\"$TSAN_OPTIONS:handle_segv=0\" ";
  const std::string command = uncaught + environment + " " + build() + "/bin/tessera plugin test " + build() +
                              "/tests/conformance/acme." + plugin + ".so --plugin-dir " + build() +
                              "/lib/tessera/plugins --json " + arguments + " 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string text;
  char buffer[65536];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  Outcome out;
  const int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  INFO(command << "\n" << text.substr(0, 4000));
  REQUIRE(!text.empty());
  out.document = Json::parse(text);
  return out;
}

// Whether a check failed whose name begins with `prefix`, and says `text`.
bool found_by(const Json& document, const std::string& prefix, const std::string& text) {
  for (const Json& c : document.at("checks"))
    if (c.at("status") == "failed" && c.at("name").get<std::string>().starts_with(prefix) &&
        c.at("text").get<std::string>().find(text) != std::string::npos)
      return true;
  return false;
}
// Its checks that did not pass, as text.
std::string failures_of(const Json& document) {
  std::string out;
  for (const Json& c : document.at("checks"))
    if (c.at("status") == "failed") out += c.at("name").get<std::string>() + ": " + c.at("text").get<std::string>() + "\n";
  return out;
}

size_t count(const Json& document, const std::string& status) {
  size_t n = 0;
  for (const Json& c : document.at("checks")) n += c.at("status") == status;
  return n;
}

struct Fault {
  const char* name;   // of the option, or of FAULTY_QUERY with a '?' in front
  const char* check;  // whose name begins so
  const char* text;   // a part of what it says
};
const Fault faults[] = {
    {"wrong_ulp", "ops/add f32", "must be equal"},
    {"saturates", "special/add i32", "must be equal"},
    {"loses_signs_of_zeros", "special/neg f32", "a zero with the wrong sign"},
    {"drops_nan", "special/maximum f32", "elements differ"},
    {"ignores_strides", "ops/add f32", "transposed operands"},
    {"leaves_the_tail", "ops/neg f32", "elements differ"},
    {"writes_beyond", "ops/add f32", ""},
    {"writes_before", "ops/add f32", "bytes before or behind the result were written"},
    {"reads_beyond", "ops/add f32", "signal 11"},
    {"writes_operands", "ops/add f32", "signal 11"},
    {"crashes", "ops/mul f32", "it ends its process with signal 11"},
    {"hangs", "ops/mul f32", "it hangs: no result after 2"},
    {"ends_the_process", "ops/mul f32", "it ends its process with exit status 0"},
    {"leaks_run", "contract/leaks", "every run leaves about"},
    {"leaks_compile", "contract/leaks", "every compile leaves about"},
    {"keeps_files_open", "contract/leaks", "files that it opened stay open"},
    {"shares_state", "contract/threads", "with four threads at once"},
    {"varies", "ops/add f32", ""},
    {"sums_by_threads", "contract/deterministic", "one thread gives other bits than many"},
    {"fails_on_empty", "ops/relu f32[0]", "ACME-1"},
    {"throws_anything", "ops/add f32", "TSR-P900"},
    {"throws_through_the_boundary", "ops/add f32", "out of here"},
    {"refuses_without_reason", "contract/claims", "it refuses without a reason"},
    {"changes_its_mind", "contract/claims", "two answers"},
    {"claims_too_much", "ops/add f64", "it does not compile"},
    {"invents_capabilities", "contract/table", "bits that this version does not define"},
    {"create_fails_second", "handshake/instances", "create failed"},
    {"crashes_when_destroyed", "handshake/", "signal 6"},
    {"crashes_at_exit", "handshake/ends", "signal 6"},
    {"?reads_every_table", "handshake/hosts", "signal 11"},
    {"?describes_anew", "handshake/description", "two descriptions"},
};

}  // namespace

TEST_CASE("every fault is found by the check that the table names") {
  for (const Fault& f : faults) {
    const std::string name = f.name, check = f.check;
    // What is asked for is the check itself: a run over everything per fault would be minutes.
    const std::string filter = check.substr(0, check.find(' ')) + (check.find('/') + 1 == check.size() ? "*"
                                                                   : check.find(' ') == check.npos     ? ""
                                                                                                       : " *");
    const std::string of = name[0] == '?' ? "" : "--set 'faulty.fault=\"" + name + "\"' ";
    const Outcome o = run(of + "--timeout " + patience() + " --filter '" + filter + "'",
                          name[0] == '?' ? "FAULTY_QUERY=" + name.substr(1) : "");
    INFO(name << "\n" << failures_of(o.document));
    CHECK(o.status == 1);
    CHECK(found_by(o.document, check, f.text));
  }
}

TEST_CASE("every fault of a device is found by the check that the table names") {
  const Fault of_device[] = {
      {"ignores_alignment", "device/allocation", "gave an address that is not"},
      {"gives_null_when_full", "device/out_of_memory", "succeeds"},
      {"has_a_code_of_its_own", "device/out_of_memory", "expected TSR-R001"},
      {"copies_late", "device/synchrony", "must have read its source, or written its destination"},
      {"copies_words", "device/synchrony", "come back changed"},
      {"copies_blocks", "device/addresses", "touches what lies before it"},
      {"fills_words", "device/addresses", "fill touches what lies behind it"},
      {"fails_without_record", "device/events", "the event has not been recorded"},
      {"never_done", "device/events", "event_query says that an event has not passed"},
      {"counts_backwards", "device/events", "event_elapsed"},
      {"forgets_what_it_reserved", "device/reserved", "what lay there before more was committed"},
  };
  for (const Fault& f : of_device) {
    const Outcome o =
        run("--set 'broken.fault=\"" + std::string(f.name) + "\"' --timeout 5 --filter " + f.check, "", "device.broken");
    INFO(f.name << "\n" << failures_of(o.document));
    CHECK(o.status == 1);
    CHECK(found_by(o.document, f.check, f.text));
  }
  const Outcome sound = run("--level L4", "", "device.broken");
  INFO(failures_of(sound.document));
  CHECK(sound.status == 0);
}

TEST_CASE("a backend without a fault conforms") {
  const Outcome o = run("");
  INFO(failures_of(o.document));
  CHECK(o.status == 0);
  CHECK(o.document.at("conforms") == true);
  CHECK(count(o.document, "failed") == 0);
  CHECK(count(o.document, "not run") == 0);
  CHECK(count(o.document, "passed") > 60);
}

TEST_CASE("after a crash the run goes on, and a group that always crashes is given up") {
  const Outcome o = run("--set 'faulty.fault=\"crashes\"' --filter 'ops/*' --jobs 1");
  CHECK(o.status == 1);
  size_t failed = 0;  // other ops fail that are made of mul
  for (const Json& c : o.document.at("checks"))
    failed += c.at("status") == "failed" && c.at("name").get<std::string>().starts_with("ops/mul ");
  CHECK(failed == 3);
  CHECK(count(o.document, "not run") > 0);
  CHECK(!found_by(o.document, "ops/add", ""));
  size_t passed = 0;
  for (const Json& c : o.document.at("checks"))
    passed += c.at("status") == "passed" && c.at("name").get<std::string>().starts_with("ops/reduce_sum");
  CHECK(passed > 0);  // reduce_sum comes behind mul
}
