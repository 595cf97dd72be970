// SPDX-License-Identifier: Apache-2.0
// `tessera plugin test`: the conformance kit on one plugin.
#include "plugin_test.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>

#include "conformance/report.hpp"
#include "conformance/run.hpp"
#include "conformance/worker.hpp"
#include "json.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

namespace fs = std::filesystem;
namespace c = tessera::conformance;

// The case files, beside the command as everything of the SDK is.
std::string case_directory() {
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  const fs::path dir = binary.parent_path().parent_path() / "share" / "tessera" / "conformance" / "cases";
  if (error || !fs::is_directory(dir, error))
    throw Error(TSR_ENVIRONMENT, "TSR-E011", "the cases of the conformance kit are not where they belong: " + dir.string(),
                "install Tessera again: cmake --install BUILD --prefix DIR");
  return dir.string();
}

Json document(const c::Run& run, const c::Manifest& plugin, int level) {
  Json checks = Json::array();
  for (const c::Result& r : run.results)
    checks.push_back(
        {{"name", r.name}, {"level", r.level}, {"status", c::word(r.status)}, {"ms", json_number(r.ms)}, {"text", r.text}});
  return {{"plugin", plugin.id},
          {"version", plugin.version},
          {"level", level},
          {"conforms", run.good()},
          {"missing_hardware", run.missing_hardware},
          {"seconds", json_number(run.seconds)},
          {"checks", std::move(checks)}};
}

// What was skipped and why, one line per reason.
std::string reasons(const c::Run& run, c::Status status) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const c::Result& r : run.results) {
    if (r.status != status || r.text == "not claimed") continue;  // those are counted by ops
    std::vector<std::string>& groups = by_reason[r.text.substr(0, r.text.find('\n'))];
    if (const std::string g = c::group_of(r.name); groups.empty() || groups.back() != g) groups.push_back(g);
  }
  std::string out;
  for (const auto& [reason, groups] : by_reason) {
    out += "  " + reason + ": ";
    for (size_t i = 0; i < groups.size() && i < 4; ++i) out += (i ? ", " : "") + groups[i];
    out += groups.size() > 4 ? ", and " + std::to_string(groups.size() - 4) + " more\n" : "\n";
  }
  return out;
}

// Which ops ran, whether rightly or not, of all that the checks know.
std::string coverage(const c::Run& run) {
  std::map<std::string, bool> ops;  // by name: one of its checks ran
  for (const c::Result& r : run.results)
    if (r.name.starts_with("ops/")) {
      bool& ran = ops[c::group_of(r.name).substr(4)];
      ran = ran || (r.status != c::Status::kSkipped && r.status != c::Status::kNotRun);
    }
  std::vector<std::string> taken;
  for (const auto& [op, ran] : ops)
    if (ran) taken.push_back(op);
  if (ops.empty()) return "";
  std::string out = "takes " + std::to_string(taken.size()) + " of " + std::to_string(ops.size()) + " ops";
  if (taken.size() <= 12 && !taken.empty()) out += ": " + join(taken);
  return out + "\n";
}

void print_bad(const c::Result& r) {
  std::cout << styled(Style::kRed, c::word(r.status)) << "  L" << r.level << " " << styled(Style::kBold, r.name) << "\n"
            << indent(r.text, 4) << "\n    rule: " << r.about << "\n";
}

}  // namespace

void PluginTest::add_to(Options& options) {
  options.value("level", "L0..L4", &level,
                "test: how far it goes; L0 files, L1 handshake, L2 contract, L3 semantics, L4 stress (default L3).");
  options.value("filter", "PATTERN", &filter, "test: only checks whose name matches; * stands for any characters.");
  options.value("expect", "FILE", &expect, "test: checks that are expected to fail, one a line: CHECK: REASON.");
  options.value("junit", "FILE", &junit, "test: writes the results as JUnit XML.");
  options.value("html", "FILE", &html, "test: writes the results as one HTML page.");
  options.list("load", "ID", &load, "test: a plugin that is loaded beside the one under test; may be repeated.");
  options.list("model", "FILE", &models, "test: a file that the frontend under test is to import; may be repeated.");
  options.flag("all-cases", &all, "test: every case of every op; without it some per op and dtype.");
  options.integer("sample", "N", &sample, 1, 1000000, "test: every N-th of these cases only (default 1).");
  options.number("timeout", "SECONDS", &timeout, 0.1, 86400,
                 "test: what one check may take before it counts as hanging (default 60).");
  options.integer("jobs", "N", &jobs, 1, 256, "test: checks that run at the same time (default 2).");
  options.flag("list-checks", &list, "test: prints the names of the checks and what each is about, and runs none.");
  options.flag("progress", &progress, "test: says on stderr, in plain lines, what takes more than a second.");
}

int PluginTest::run(const Options& options, const ContextArguments& context, const std::string& path,
                    const std::vector<std::string>& args) {
  if (level.size() == 1) level = "L" + level;
  if (level.size() != 2 || level[0] != 'L' || level[1] < '0' || level[1] > '4')
    throw usage_error("TSR-U004", "--level: found " + quote(level) + ", expected L0, L1, L2, L3 or L4");
  c::Settings settings;
  settings.plugin = path;
  settings.overrides = context.overrides;
  settings.plugin_dirs = context.plugin_dirs;
  settings.load = load;
  settings.models = models;
  settings.level = level[1] - '0';
  settings.cases = settings.level >= 2 ? case_directory() : "";
  settings.all = all;
  settings.sample = sample;
  if (const char* answers = std::getenv(c::kWorkerVariable)) {
    const int descriptor = std::atoi(answers);
    unsetenv(c::kWorkerVariable);  // it is not for what the plugin may start
    c::Subject subject(settings);
    return c::serve_worker(subject, descriptor);
  }

  const c::Subject subject(settings);  // the plugin must be there; nothing of it is loaded in this process
  Progress shown(progress);
  c::RunOptions run_options;
  run_options.command_line = {"tessera", "plugin"};
  run_options.command_line.insert(run_options.command_line.end(), args.begin(), args.end());
  run_options.filter = filter;
  run_options.timeout = timeout;
  run_options.jobs = jobs;
  run_options.sampled = settings.sample > 1;
  if (!expect.empty()) run_options.expectations = c::read_expectations(expect);
  if (list) {
    for (const c::Check& check : c::list_checks(run_options))
      if (filter.empty() || c::matches(check.name, filter))
        std::cout << "L" << check.level << " " << check.name << "\n    " << check.about << "\n";
    return kOk;
  }
  size_t bad = 0;
  constexpr size_t kMostShown = 20;
  run_options.progress = [&](size_t done, size_t total, const std::string& name) {
    if (!name.empty()) shown.phase("testing " + c::group_of(name));
    shown.part(done, total);
  };
  run_options.each = [&](const c::Result& r) {
    if (!r.bad() || options.json() || ++bad > kMostShown) return;
    shown.finish();
    print_bad(r);
  };
  const c::Run run = c::run_checks(run_options);
  shown.finish();
  const c::Manifest& plugin = subject.manifest();
  if (!junit.empty()) write_file(junit, c::junit_xml(run, plugin));
  if (!html.empty()) write_file(html, c::html_page(run, plugin, settings.level));
  if (options.json()) {
    print_json("tessera.plugin_test/1", document(run, plugin, settings.level));
  } else {
    if (bad > kMostShown) std::cout << "... and " << bad - kMostShown << " more (--json, --junit and --html have all)\n";
    if (run.missing_hardware) {
      for (const c::Result& r : run.results)
        if (r.name == "handshake/loads") std::cerr << r.text << "\n";
      std::cout << plugin.id << " " << plugin.version << ": this machine lacks what it needs\n";
      return kEnvironmentFault;
    }
    if (const std::string skipped = reasons(run, c::Status::kSkipped); !skipped.empty())
      std::cout << "skipped, since\n" << skipped;
    if (const std::string expected = reasons(run, c::Status::kExpected); !expected.empty())
      std::cout << "failed as expected\n" << expected;
    if (const std::string rest = reasons(run, c::Status::kNotRun); !rest.empty()) std::cout << "not run\n" << rest;
    std::cout << coverage(run);
    std::cout << plugin.id << " " << plugin.version << " at " << level << ": ";
    const c::Status all_words[] = {c::Status::kPassed,   c::Status::kFailed,  c::Status::kUnexpectedPass,
                                   c::Status::kExpected, c::Status::kSkipped, c::Status::kNotRun};
    std::string counts;
    for (const c::Status s : all_words)
      if (const size_t n = run.count(s)) counts += (counts.empty() ? "" : ", ") + std::to_string(n) + " " + c::word(s);
    std::cout << counts << " in " << number_text(run.seconds)
              << " s: " << (run.good() ? styled(Style::kGreen, "conforms") : styled(Style::kRed, "does not conform")) << "\n";
  }
  if (run.missing_hardware) return kEnvironmentFault;
  return run.good() ? kOk : kCheckFailed;
}

}  // namespace tessera::command
