// SPDX-License-Identifier: Apache-2.0
#include "compare_page.hpp"

namespace tessera::command {
namespace {

std::string html_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

}  // namespace

std::string compare_page(const std::string& model, const std::string& table, const std::string& difference,
                         const std::string& verdict, const std::string& divergence) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Comparison on " + html_text(model) +
      "</title>\n<style>\nbody{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 "
      "1rem;color:#1a1a1a;"
      "background:#fff}\npre{overflow-x:auto}\n@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}}\n"
      "</style></head><body>\n<h1>Comparison on " +
      html_text(model) + "</h1>\n<pre>" + html_text(table) + "</pre>\n";
  if (!verdict.empty()) out += "<p>B against A: <strong>" + html_text(verdict) + "</strong></p>\n";
  out += "<p>Outputs of B against those of A: " + html_text(difference) + "</p>\n";
  if (!divergence.empty()) out += "<pre>" + html_text(divergence) + "</pre>\n";
  return out + "</body></html>\n";
}

}  // namespace tessera::command
