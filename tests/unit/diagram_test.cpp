// SPDX-License-Identifier: Apache-2.0
// Diagrams as text against golden files, and what becomes of them with and without Graphviz.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fake_backend.hpp"
#include "golden.hpp"
#include "ir/parser.hpp"
#include "trace/diagram.hpp"

namespace diagram_test {

using namespace tessera::core;
using namespace tessera::test;

namespace {

struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / "tessera-diagram-XXXXXX").string();
  Folder() { REQUIRE(mkdtemp(path.data())); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::vector<std::string> files() const {
    std::vector<std::string> out;
    for (const auto& e : std::filesystem::directory_iterator(path)) out.push_back(e.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
};

// PATH while it lives.
struct Path {
  std::string before = std::getenv("PATH");
  explicit Path(const std::string& path) { setenv("PATH", path.c_str(), 1); }
  ~Path() { setenv("PATH", before.c_str(), 1); }
};

// A `dot` that does this, in a folder of its own; $3 is the picture, $4 the text.
struct FakeDot {
  Folder folder;
  Path path;
  explicit FakeDot(const std::string& script) : path(folder.path + ":/usr/bin:/bin") {
    const std::string file = folder.path + "/dot";
    std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
    chmod(file.c_str(), 0755);
  }
};

std::vector<Placement> invented(const Graph& g) {
  std::vector<Placement> out(g.num_nodes());
  for (tsr_id n = 0; n < g.num_nodes(); ++n) {
    const std::string_view op = g.node(n).op;
    const tsr_id owner = g.region(g.node(n).parent).parent_node;
    if (owner != TSR_NONE && std::string_view(g.node(owner).op) == "fused") continue;
    if (op == "transpose")
      out[n].backend = "view";
    else if (op == "softmax")
      out[n] = {"eager", "eager.softmax"};
    else if (op == "fused")
      out[n] = {"cpu", "cpu.kernel"};
    else if (op != "constant" && g.node(n).num_regions == 0)
      out[n] = {"cpu", "cpu.kernel"};
  }
  return out;
}

std::string drawn(const std::string& file, bool placed = true) {
  const auto g = parse_graph(standard_ops(), read_file(golden_path(file)), file);
  return graph_diagram(*g, placed ? invented(*g) : std::vector<Placement>());
}

}  // namespace

TEST_CASE("diagrams are as the golden files have them") {
  for (const std::string& file : golden_files("golden/diagram", ".tsr")) {
    INFO(file);
    check_golden(file.substr(0, file.size() - 4) + ".dot", drawn(file));
  }
}

TEST_CASE("Graphviz, where it is installed, takes every diagram") {
  if (std::system("dot -V > /dev/null 2>&1") != 0) return;
  const Folder folder;
  for (const std::string& file : golden_files("golden/diagram", ".tsr")) {
    INFO(file);
    std::ofstream(folder.path + "/g.dot") << drawn(file);
    CHECK(draw_diagram(folder.path + "/g.dot", folder.path + "/g.svg") == "");
    const std::string svg = read_file(folder.path + "/g.svg");
    CHECK(svg.find("</svg>") != svg.npos);
    if (file.ends_with("names.tsr")) {  // as they are, but for what XML wants
      CHECK(svg.find("@a &quot;b&quot; &lt;c&gt; &amp;amp; \\N: ") != svg.npos);
      CHECK(svg.find("größe {|}") != svg.npos);
    }
  }
}

TEST_CASE("a group that is not placed yet is named after its backend, and a node has no colour") {
  const std::string text = drawn("golden/diagram/groups.tsr", false);
  CHECK(text.find("label=\"fused: cpu\"") != text.npos);
  CHECK(text.find("softmax\\n%z: f32[s0, 4]\"") != text.npos);
  CHECK(text.find("runs on cpu") != text.npos);
  CHECK(text.find("runs on eager") == text.npos);
}

TEST_CASE("bytes that are no UTF-8 do not get into a diagram") {
  Graph g(standard_ops(),
          "a\xff"
          "b");
  const tsr_dim two = 2;
  const tsr_id x = g.create_input("x\xc3", g.make_type(TSR_F32, {&two, 1}));
  g.set_outputs(0, {&x, 1});
  g.commit();
  const std::string text = graph_diagram(g, {});
  CHECK(text.find('\xff') == text.npos);
  CHECK(text.find("@a\xef\xbf\xbd"
                  "b: 0 nodes") != text.npos);
}

TEST_CASE("without Graphviz there is a reason instead of a picture") {
  const Folder folder, empty;
  const std::string dot = folder.path + "/g.dot", svg = folder.path + "/g.svg";
  std::ofstream(dot) << "digraph {}";
  {
    const Path path(empty.path);
    CHECK(draw_diagram(dot, svg) == "'dot' is not installed (apt-get install graphviz)");
  }
  {
    const FakeDot fake("test \"$1 $2\" = '-Tsvg -o' && cp \"$4\" \"$3\"");
    CHECK(draw_diagram(dot, svg) == "");
    CHECK(read_file(svg) == "digraph {}");
    std::filesystem::remove(svg);
  }
  {
    const FakeDot fake("echo half > \"$3\"; exit 3");
    CHECK(draw_diagram(dot, svg) == "'dot' fails with status 3");
  }
  {
    const FakeDot fake("echo half > \"$3\"; exec sleep 600");
    CHECK(draw_diagram(dot, svg, 0.2) == "'dot' takes more than 0.2 s");
  }
  CHECK(folder.files() == std::vector<std::string>{"g.dot"});
}

}  // namespace diagram_test
