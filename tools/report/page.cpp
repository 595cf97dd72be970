// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "page_files.hpp"
#include "report/report.hpp"

namespace tessera::report {

namespace {

std::string file(std::string_view name) {
  for (const tsr_record_file& f : page_files)
    if (name == f.name) return f.text;
  return {};
}

// JSON inside an HTML script element: "<" must not begin a tag, and the two line separators are no valid JavaScript everywhere.
std::string embedded(const Json& model) {
  const std::string json = model.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string make_page(const Json& model) {
  std::string scripts;
  for (const char* name : {"base.js", "text.js", "timeline.js", "memory.js", "views.js", "main.js"}) scripts += file(name);
  std::string out;
  const std::string page = file("page.html");
  std::string_view rest = page;
  // Placeholders stand once each, in this order.
  const auto put = [&](std::string_view placeholder, const std::string& text) {
    const size_t at = rest.find(placeholder);
    out += rest.substr(0, at);
    out += text;
    rest.remove_prefix(at + placeholder.size());
  };
  put("@STYLE@", file("page.css"));
  put("@DATA@", embedded(model));
  put("@SCRIPT@", scripts);
  out += rest;
  return out;
}

}  // namespace tessera::report
