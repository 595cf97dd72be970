// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cstdio>
#include <map>
#include <vector>

#include "check.hpp"

namespace tessera::conformance {
namespace {

// For XML and HTML. Control characters, which XML has no way to say, become question marks.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

std::string seconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", ms / 1e3);
  return text;
}

std::string suite_of(const std::string& name) { return name.substr(0, name.find('/')); }
std::string rest_of(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == name.npos ? name : name.substr(slash + 1);
}

const char* css_class(const Result& r) {
  switch (r.status) {
    case Status::kPassed: return "pass";
    case Status::kFailed:
    case Status::kUnexpectedPass: return "fail";
    case Status::kExpected: return "expected";
    default: return "skip";
  }
}

}  // namespace

std::string junit_xml(const Run& run, const Manifest& plugin) {
  std::map<std::string, std::vector<const Result*>> suites;
  for (const Result& r : run.results) suites["L" + std::to_string(r.level) + "." + suite_of(r.name)].push_back(&r);
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"" + escaped(plugin.id) + "\" tests=\"" +
                    std::to_string(run.results.size()) + "\" failures=\"" +
                    std::to_string(run.count(Status::kFailed) + run.count(Status::kUnexpectedPass)) + "\" time=\"" +
                    seconds(run.seconds * 1e3) + "\">\n";
  for (const auto& [name, results] : suites) {
    size_t failures = 0, skipped = 0;
    double ms = 0;
    for (const Result* r : results) {
      failures += r->bad();
      skipped += r->status == Status::kSkipped || r->status == Status::kNotRun || r->status == Status::kExpected;
      ms += r->ms;
    }
    out += "  <testsuite name=\"" + escaped(name) + "\" tests=\"" + std::to_string(results.size()) + "\" failures=\"" +
           std::to_string(failures) + "\" skipped=\"" + std::to_string(skipped) + "\" time=\"" + seconds(ms) + "\">\n";
    for (const Result* r : results) {
      out += "    <testcase classname=\"" + escaped(plugin.id + "." + name) + "\" name=\"" + escaped(rest_of(r->name)) +
             "\" time=\"" + seconds(r->ms) + "\"";
      const std::string first = escaped(r->text.substr(0, r->text.find('\n')));
      if (r->bad())
        out += ">\n      <failure message=\"" + first + "\">" + escaped(r->about + "\n" + r->text) +
               "</failure>\n    </testcase>\n";
      else if (r->status == Status::kPassed)
        out += "/>\n";
      else
        out += ">\n      <skipped message=\"" + first + "\"/>\n    </testcase>\n";
    }
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

std::string html_page(const Run& run, const Manifest& plugin, int level) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Conformance of " + escaped(plugin.id) +
      "</title>\n<style>\nbody{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 "
      "1rem;color:#1a1a1a;background:#fff}\n"
      "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid "
      "#ddd;vertical-align:top}\n"
      "pre{margin:.3rem 0 0;white-space:pre-wrap;font-size:13px}.pass{color:#0a6b2d}.fail{color:#b00020;font-weight:600}\n"
      ".expected{color:#8a5a00}.skip{color:#666}summary{cursor:pointer}\n"
      "@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}td,th{border-color:#333}.pass{color:#5fd38a}.fail{"
      "color:#ff7b8a}"
      ".expected{color:#e0b060}.skip{color:#999}}\n</style></head><body>\n";
  out += "<h1>Conformance of " + escaped(plugin.id) + " " + escaped(plugin.version) + "</h1>\n<p>" + escaped(plugin.vendor) +
         ", level L" + std::to_string(level) + ": <strong class=\"" +
         (run.good() ? "pass\">conforms" : "fail\">does not conform") + "</strong>, in " + seconds(run.seconds * 1e3) +
         " s.</p>\n<table><tr>";
  const Status all[] = {Status::kPassed,   Status::kFailed,  Status::kUnexpectedPass,
                        Status::kExpected, Status::kSkipped, Status::kNotRun};
  for (const Status s : all) out += std::string("<th>") + word(s) + "</th>";
  out += "</tr><tr>";
  for (const Status s : all) out += "<td>" + std::to_string(run.count(s)) + "</td>";
  out += "</tr></table>\n";

  const auto row = [](const Result& r) {
    return "<tr><td class=\"" + std::string(css_class(r)) + "\">" + word(r.status) + "</td><td>L" + std::to_string(r.level) +
           "</td><td>" + escaped(r.name) + (r.text.empty() ? "" : "<pre>" + escaped(r.text) + "</pre>") + "</td><td>" +
           escaped(r.about) + "</td></tr>\n";
  };
  std::string bad;
  for (const Result& r : run.results)
    if (r.bad()) bad += row(r);
  if (!bad.empty()) out += "<h2>What does not hold</h2>\n<table>" + bad + "</table>\n";

  std::map<std::string, std::vector<const Result*>> groups;
  for (const Result& r : run.results) groups[group_of(r.name)].push_back(&r);
  out += "<h2>All checks</h2>\n";
  for (const auto& [group, results] : groups) {
    std::map<std::string, size_t> counts;
    for (const Result* r : results) ++counts[word(r->status)];
    std::string summary;
    for (const auto& [what, count] : counts) summary += (summary.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    out += "<details><summary>" + escaped(group) + ": " + summary + "</summary><table>";
    for (const Result* r : results) out += row(*r);
    out += "</table></details>\n";
  }
  return out + "</body></html>\n";
}

}  // namespace tessera::conformance
