// SPDX-License-Identifier: Apache-2.0
// The table of graph breaks and the page that is made from it.
#include <catch2/catch.hpp>
#include <string>

#include "capture/breaks.hpp"
#include "golden.hpp"

using namespace tessera::core;

TEST_CASE("every graph break says what, why and how to avoid it") {
  uint32_t last = 0;
  for (const BreakReason& r : break_reasons()) {
    INFO(break_code_text(r.code));
    REQUIRE((r.code > last || r.code == 0));
    last = r.code;
    for (const char* text : {r.title, r.what, r.why, r.fixes}) REQUIRE(std::string(text).size() > 10);
    REQUIRE(std::string(r.title).back() != '.');
    REQUIRE(std::string(r.what).back() == '.');
    REQUIRE(std::string(r.why).back() == '.');
    REQUIRE(&break_reason(r.code) == &r);
  }
  REQUIRE(break_reason(999).code == 0);
  REQUIRE(break_code_text(7) == "TSR-G007");
}

TEST_CASE("docs/graph_breaks.md holds the table") {
  const std::string marker = "<!-- From here on made from core/src/capture/breaks.cpp: ./dev bless -->\n";
  const std::string page = tessera::test::read_file(tessera::test::golden_path("../docs/graph_breaks.md"));
  const size_t at = page.find(marker);
  REQUIRE(at != std::string::npos);
  tessera::test::check_golden("../docs/graph_breaks.md", page.substr(0, at + marker.size()) + break_table_markdown());
}
