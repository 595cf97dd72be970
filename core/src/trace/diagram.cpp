// SPDX-License-Identifier: Apache-2.0
// The language: https://graphviz.org/doc/info/lang.html; escapes in labels: https://graphviz.org/docs/attr-types/escString/.
#include "trace/diagram.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "ir/dense.hpp"
#include "ir/graph.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "support/text.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

constexpr size_t kLineLimit = 56, kTooltipLimit = 600;  // bytes

// Light enough for black text on them, in the order in which backends appear.
constexpr std::array kColours = {"#cfe2f3", "#d9ead3", "#fff2cc", "#d9d2e9", "#fce5cd", "#d0e0e3", "#ead1dc", "#f4cccc"};

// Bytes that are not UTF-8 become U+FFFD: Graphviz refuses a file that has others.
std::string as_utf8(std::string_view text) {
  using nlohmann::json;
  return json::parse(json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

// One line of a label, without the quotes around it. A label knows backslash sequences and HTML entities: neither is meant by a
// name.
std::string escaped(std::string_view text, size_t limit = kLineLimit) {
  std::string out;
  std::string line = as_utf8(text);
  if (line.size() > limit) {
    size_t end = limit;
    while (end > 0 && (line[end] & 0xc0) == 0x80) --end;
    line.replace(end, line.npos, "...");
  }
  for (const char c : line) {
    if (c == '&')
      out += "&amp;";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return out;
}

class Diagram {
 public:
  Diagram(const Graph& g, const std::vector<Placement>& placements) : g_(g), placements_(placements) {}

  std::string text() {
    body();
    std::string out = "digraph \"" + escaped(g_.tables().name) + "\" {\n";
    out += "  graph [label=\"" + title() + "\", labelloc=t, rankdir=TB, nodesep=0.15, ranksep=0.25, ";
    out += "fontname=\"Helvetica\", fontsize=10, tooltip=\" \"];\n";
    out += "  node [shape=box, style=\"rounded,filled\", fillcolor=white, color=gray40, fontname=\"Helvetica\", fontsize=8, ";
    out += "margin=\"0.06,0.03\", width=0, height=0];\n";
    out += "  edge [color=gray40, arrowsize=0.5, fontname=\"Helvetica\", fontsize=7, fontcolor=gray40];\n";
    return out + legend() + nodes_ + edges_ + "}\n";
  }

 private:
  // ------------------------------------------------------------------------------------------------------------- texts
  // What a fused group gives is called as outside of it, and as the step table calls it.
  std::string name_of(tsr_id v) const {
    for (;;) {
      const tsr_region& r = g_.region(g_.value(v).region);
      const tsr_id* output = std::find(r.outputs, r.outputs + r.num_outputs, v);
      if (output == r.outputs + r.num_outputs || r.parent_node == TSR_NONE || !is_fused(r.parent_node)) break;
      v = g_.node(r.parent_node).results[output - r.outputs];
    }
    std::string s;
    append_name(s, '%', g_.value(v).name);
    return s;
  }
  std::string type_of(tsr_id v) const { return print_type(g_, *g_.value(v).type); }
  std::string name_and_type(tsr_id v) const { return escaped(name_of(v)) + ": " + escaped(type_of(v)); }

  // The node as text, without its regions.
  std::string tooltip(tsr_id n) const {
    const std::string text = print_node(g_, n, kPrintLocations | kPrintElideConstants);
    return "tooltip=\"" + escaped(std::string_view(text).substr(0, text.find('\n')), kTooltipLimit) + "\"";
  }

  std::string bytes_of(tsr_id v) const {  // "": not a number
    const tsr_type& t = *g_.value(v).type;
    double bytes = dtype_info(t.dtype).bits / 8.0;
    for (uint32_t k = 0; k < t.rank; ++k) {
      if (TSR_DIM_IS_EXPR(t.sizes[k])) return {};
      bytes *= static_cast<double>(t.sizes[k]);
    }
    return bytes_text(std::ceil(bytes));
  }

  std::string title() const {
    return escaped("@" + std::string(g_.tables().name)) + ": " + std::to_string(g_.num_live_nodes()) + " nodes, " +
           std::to_string(groups_) + (groups_ == 1 ? " fused group" : " fused groups");
  }

  Placement placement(tsr_id n) const { return n < placements_.size() ? placements_[n] : Placement{}; }

  const char* colour(std::string_view backend) {
    if (backend.empty() || backend == "view") return "white";
    const auto at = std::find(backends_.begin(), backends_.end(), backend);
    const auto index = static_cast<size_t>(at - backends_.begin());
    if (at == backends_.end()) backends_.emplace_back(backend);
    return kColours[index % kColours.size()];
  }

  // ------------------------------------------------------------------------------------------------------------ values
  bool is_fused(tsr_id n) const { return std::string_view(g_.node(n).op) == "fused"; }

  // Seen through the borders of fused groups: the value that a group takes or gives.
  tsr_id origin(tsr_id v) const {
    for (;;) {
      const tsr_value& x = g_.value(v);
      if (x.def_node != TSR_NONE && is_fused(x.def_node)) {
        v = g_.region(g_.node(x.def_node).regions[0]).outputs[x.def_index];
        continue;
      }
      const tsr_id owner = x.def_node == TSR_NONE ? g_.region(x.region).parent_node : TSR_NONE;
      if (owner == TSR_NONE || !is_fused(owner)) return v;
      v = g_.node(owner).operands[x.def_index];
    }
  }

  // A constant that is one number is written where it is used: "mul(_, 0.5)". "": it is no such constant.
  std::string number(tsr_id v) const {
    const tsr_id n = g_.value(v).def_node;
    if (n == TSR_NONE || !g_.record_of(n).has(kConstant)) return {};
    const tsr_attr* value = g_.attr(n, "value");
    if (!value || value->kind != TSR_ATTR_TENSOR) return {};
    int64_t elements = 1;
    for (uint32_t k = 0; k < value->tensor->rank; ++k) elements *= value->tensor->sizes[k];
    if (elements != 1 && !is_splat(*value->tensor)) return {};
    std::string text;  // dense<f32[]: 0.5>, dense<f32[1]: [0.5]>, dense<f32[4]: splat 0.5>
    append_dense(text, *value->tensor, kPrintElideConstants);
    const size_t from = text.find_last_of(" [") + 1, to = text.find_first_of("]>", from);
    return text.substr(from, to - from);
  }
  bool is_number(tsr_id v) const {
    if (number(v).empty()) return false;
    const auto uses = g_.uses(v);  // an output has to come from somewhere
    return std::none_of(uses.begin(), uses.end(), [](const tsr_use& u) { return u.node == TSR_NONE; });
  }

  // The node of the diagram that gives a value; "": a number.
  std::string source(tsr_id value) const {
    const tsr_id v = origin(value), n = g_.value(v).def_node;
    if (n == TSR_NONE) return "v" + std::to_string(v);
    if (is_number(v)) return {};
    return (g_.node(n).num_regions > 0 ? "x" : "n") + std::to_string(n);
  }

  void edge(tsr_id value, const std::string& to) {
    const std::string from = source(value);
    if (from.empty() || !drawn_.emplace(from, to).second) return;
    const tsr_id v = origin(value);
    const std::string bytes = bytes_of(v);
    edges_ += "  " + from + " -> " + to + " [";
    // What stays inside of a kernel is no traffic.
    if (!bytes.empty() && !(within_ != TSR_NONE && g_.value(v).region == within_)) edges_ += "label=\"" + bytes + "\", ";
    edges_ += "tooltip=\"" + name_and_type(v) + (bytes.empty() ? "" : ", " + bytes) + "\"];\n";
  }

  // ------------------------------------------------------------------------------------------------------------- nodes
  void line(int depth, const std::string& text) { nodes_ += std::string(2 * static_cast<size_t>(depth), ' ') + text + "\n"; }

  // `kind` as the legend calls it; `label` is escaped.
  void shape(int depth, const std::string& id, const char* kind, const std::string& label) {
    kinds_.insert(kind);
    line(depth, id + " [" + look(kind) + ", label=\"" + label + "\"];");
  }
  static std::string look(std::string_view kind) {
    if (kind == "argument") return "shape=ellipse, style=filled";
    if (kind == "parameter") return "shape=cylinder, style=filled";
    if (kind == "state") return "shape=box3d, style=filled";
    if (kind == "constant") return "shape=note, style=filled, fillcolor=\"#f7f7f7\"";
    if (kind == "output") return "shape=ellipse, style=filled, peripheries=2";
    if (kind == "region input") return "shape=ellipse, style=\"filled,dotted\"";
    if (kind == "control flow") return "shape=hexagon, style=filled, fillcolor=\"#f7f7f7\"";
    return "style=\"rounded,dashed\"";  // a view
  }

  void body() {
    const tsr_region& r = g_.region(0);
    for (uint32_t i = 0; i < r.num_inputs; ++i) {
      const tsr_value& v = g_.value(r.inputs[i]);
      std::string label = name_and_type(r.inputs[i]);
      if (v.key) label += "\\n" + escaped(v.key);
      if (v.writeback != TSR_NONE) label += "\\nwritten back from output " + std::to_string(v.writeback);
      const char* kind = v.input_kind == TSR_INPUT_PARAM ? "parameter" : v.input_kind == TSR_INPUT_STATE ? "state" : "argument";
      shape(1, "v" + std::to_string(r.inputs[i]), kind, label);
    }
    for (const tsr_id n : nodes_of(g_, 0)) node(n, 1);
    for (uint32_t j = 0; j < r.num_outputs; ++j) {
      const std::string id = "o" + std::to_string(j);
      const std::string name = g_.output_name(j);
      const bool own = name != g_.value(r.outputs[j]).name;  // not that of the value
      shape(1, id, "output",
            "output " + std::to_string(j) + (own ? " " + escaped(name) : "") + "\\n" + name_and_type(r.outputs[j]));
      edge(r.outputs[j], id);
    }
  }

  void node(tsr_id n, int depth) {
    if (is_fused(n)) return fused(n, depth);
    if (g_.node(n).num_regions > 0) return control(n, depth);
    if (g_.record_of(n).has(kConstant)) {
      const tsr_id v = g_.node(n).results[0];
      if (!is_number(v)) shape(depth, "n" + std::to_string(n), "constant", name_and_type(v));
      return;
    }
    computes(n, depth);
  }

  void computes(tsr_id n, int depth) {
    const Placement at = placement(n);
    std::string label = escaped(call(n));
    for (uint32_t i = 0; i < g_.node(n).num_results; ++i) label += "\\n" + name_and_type(g_.node(n).results[i]);
    if (!at.kernel.empty()) label += "\\n" + escaped(at.kernel);
    std::string attributes = "label=\"" + label + "\", " + tooltip(n);
    if (at.backend == "view") {
      kinds_.insert("view");
      attributes += ", " + look("view");
    } else if (!at.backend.empty()) {
      attributes += std::string(", fillcolor=\"") + colour(at.backend) + "\"";
    }
    const std::string id = "n" + std::to_string(n);
    line(depth, id + " [" + attributes + "];");
    operands(n, id);
  }

  std::string call(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    std::string arguments;
    bool numbers = false;
    for (uint32_t i = 0; i < x.num_operands; ++i) {
      const tsr_id v = x.operands[i] == TSR_NONE ? TSR_NONE : origin(x.operands[i]);
      const std::string value = v == TSR_NONE || !is_number(v) ? std::string() : number(v);
      numbers = numbers || !value.empty();
      arguments += (i ? ", " : "") + (value.empty() ? "_" : value);
    }
    return x.op + (numbers ? "(" + arguments + ")" : std::string());
  }

  void operands(tsr_id n, const std::string& id) {
    for (uint32_t i = 0; i < g_.node(n).num_operands; ++i)
      if (g_.node(n).operands[i] != TSR_NONE) edge(g_.node(n).operands[i], id);
  }

  void open(int depth, tsr_id n, uint32_t index, const std::string& label, const std::string& style) {
    line(depth, "subgraph cluster_" + std::to_string(n) + "_" + std::to_string(index) + " {");
    line(depth + 1, "graph [label=\"" + label + "\", labeljust=l, fontsize=8, color=gray60, " + style + "];");
  }

  void fused(tsr_id n, int depth) {
    const Placement at = placement(n);
    const tsr_attr* attr = g_.attr(n, "backend");
    const std::string backend = !at.backend.empty() ? std::string(at.backend) : attr && attr->s ? attr->s : "";
    ++groups_;
    open(depth, n, 0, "fused: " + escaped(at.kernel.empty() ? backend : at.kernel),
         std::string("style=\"rounded,filled\", fillcolor=\"") + colour(backend) + "\"");
    const tsr_id region = g_.node(n).regions[0], around = std::exchange(within_, region);
    for (const tsr_id k : nodes_of(g_, region)) node(k, depth + 1);
    within_ = around;
    line(depth, "}");
  }

  // Between the node that takes the operands and the one that gives the results lie the regions.
  void control(tsr_id n, int depth) {
    const tsr_node& x = g_.node(n);
    const std::string enter = "n" + std::to_string(n), leave = "x" + std::to_string(n);
    open(depth, n, 0, "", "style=\"rounded\", " + tooltip(n));
    shape(depth + 1, enter, "control flow", escaped(call(n)));
    operands(n, enter);
    const tsr_id around = std::exchange(within_, TSR_NONE);
    for (uint32_t i = 0; i < x.num_regions; ++i) {
      const tsr_region& r = g_.region(x.regions[i]);
      open(depth + 1, n, i + 1, x.num_regions > 1 ? "region " + std::to_string(i) : "region", "style=\"rounded,dashed\"");
      for (uint32_t k = 0; k < r.num_inputs; ++k) {
        const std::string id = "v" + std::to_string(r.inputs[k]);
        shape(depth + 2, id, "region input", name_and_type(r.inputs[k]));
        edges_ += "  " + enter + " -> " + id + " [style=dotted];\n";
      }
      for (const tsr_id k : nodes_of(g_, x.regions[i])) node(k, depth + 2);
      line(depth + 1, "}");
      for (uint32_t j = 0; j < r.num_outputs; ++j) edge(r.outputs[j], leave);
    }
    std::string label = "end of " + escaped(x.op);
    for (uint32_t i = 0; i < x.num_results; ++i) label += "\\n" + name_and_type(x.results[i]);
    shape(depth + 1, leave, "control flow", label);
    within_ = around;
    line(depth, "}");
  }

  std::string legend() const {
    std::string out =
        "  subgraph cluster_legend {\n    graph [label=\"legend\", labeljust=l, fontsize=8, color=gray60, "
        "style=\"rounded\"];\n";
    size_t number = 0;
    const auto entry = [&](const std::string& attributes, const std::string& label) {
      const std::string id = "legend_" + std::to_string(number);
      out += "    " + id + " [" + attributes + ", label=\"" + label + "\"];\n";
      if (number++ > 0)
        out += "    legend_" + std::to_string(number - 2) + " -> " + id + " [style=invis];\n";  // one below the other
    };
    for (size_t i = 0; i < backends_.size(); ++i)
      entry(std::string("fillcolor=\"") + kColours[i % kColours.size()] + "\"", "runs on " + escaped(backends_[i]));
    for (const char* kind : {"view", "argument", "parameter", "state", "constant", "output", "region input", "control flow"})
      if (kinds_.count(kind)) entry(look(kind), kind);
    return out + "  }\n";
  }

  const Graph& g_;
  const std::vector<Placement>& placements_;
  std::string nodes_, edges_;
  std::vector<std::string> backends_;
  std::set<std::string, std::less<>> kinds_;
  std::set<std::pair<std::string, std::string>> drawn_;  // edges
  tsr_id within_ = TSR_NONE;                             // the region of the fused group whose nodes are written
  size_t groups_ = 0;
};

}  // namespace

std::string graph_diagram(const Graph& graph, const std::vector<Placement>& placements) {
  return Diagram(graph, placements).text();
}

}  // namespace tessera::core
