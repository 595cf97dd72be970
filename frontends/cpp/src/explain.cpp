// SPDX-License-Identifier: Apache-2.0
#include "tessera/explain.hpp"

#include <nlohmann/json.hpp>

namespace tessera {

int64_t Explanation::op_count() const {
  int64_t n = 0;
  for (const Graph& g : graphs) n += g.ops;
  return n;
}

std::string Explanation::str() const {
  std::string s = std::to_string(graphs.size()) + (graphs.size() == 1 ? " graph, " : " graphs, ") +
                  std::to_string(breaks.size()) + (breaks.size() == 1 ? " graph break, " : " graph breaks, ") +
                  std::to_string(op_count()) + (op_count() == 1 ? " operation\n" : " operations\n");
  for (const Graph& g : graphs) {
    s += "graph " + g.id + ": " + g.function + " (" + g.place + "), " + std::to_string(g.ops) +
         (g.ops == 1 ? " operation\n" : " operations\n");
    for (const std::string& guard : g.guards) s += "  guard: " + guard + "\n";
  }
  for (const Break& b : breaks) {
    s += "break " + b.code + " at " + b.place + ": " + b.what + (b.detail.empty() ? "" : ": " + b.detail) +
         "\n  why: " + b.why + "\n";
    for (const std::string& fix : b.fixes) s += "  fix: " + fix + "\n";
  }
  return s;
}

namespace detail {

Explanation explanation_of(const std::string& description) {
  using Json = nlohmann::json;
  const Json d = Json::parse(description);
  Explanation out;
  const auto graph = [&](const Json& x, const Json& frame) {
    if (!x.at("id").is_string()) return;  // a segment without operations
    Explanation::Graph g;
    g.function = frame.at("name").get<std::string>();
    g.place = frame.at("loc").get<std::string>();
    g.id = x.at("id").get<std::string>();
    g.ops = x.value("ops", int64_t{0});
    for (const Json& text : x.at("guards")) g.guards.push_back(text.get<std::string>());
    out.graphs.push_back(std::move(g));
  };
  for (const Json& e : d.value("entries", Json::array()))
    if (!e.contains("breaks")) graph(e, d);  // an entry of a function with breaks is a path: its segments are listed by frame
  for (const Json& f : d.value("frames", Json::array()))
    for (const Json& segment : f.at("segments")) graph(segment, f);
  for (const Json& x : d.value("breaks", Json::array())) {
    Explanation::Break b;
    b.code = x.at("code").get<std::string>();
    b.place = x.at("loc").get<std::string>();
    b.what = x.at("what").get<std::string>();
    b.detail = x.at("detail").get<std::string>();
    b.why = x.at("why").get<std::string>();
    b.paths = x.at("paths").get<int64_t>();
    std::string fix;
    for (const char c : x.at("fix").get<std::string>() + "\n") {
      if (c != '\n') {
        fix += c;
      } else if (!fix.empty()) {
        b.fixes.push_back(std::exchange(fix, {}));
      }
    }
    out.breaks.push_back(std::move(b));
  }
  return out;
}

}  // namespace detail
}  // namespace tessera
