// SPDX-License-Identifier: Apache-2.0
#include "ir/parser.hpp"

#include <algorithm>

#include "ir/broadcast.hpp"
#include "ir/graph.hpp"
#include "ir/infer.hpp"
#include "ir/mark_names.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "support/text.hpp"

namespace tessera::core {
namespace {

struct Memory {                                // a base, so that it is there before the Reader that allocates from it
  std::pmr::monotonic_buffer_resource header;  // types that are compared at the end
  char initial[4096];
  std::pmr::monotonic_buffer_resource node{initial, sizeof initial};  // of one node of the body, nested regions included
};

constexpr const char* kDeclared = "write the types that the body returns, or leave the part from '->' out";

class GraphParser : Memory, public Reader {
 public:
  GraphParser(Graph& g, std::string_view text, std::string_view file, const ReadLimits& limits)
      : Reader(text, file, header, &g.sizes(), limits), g_(g) {}

  // Reads one graph from `start`, returns where it ends.
  Mark run(const Mark& start) {
    reset(start);
    expect_word("graph");
    g_.rename(name(expect(Tok::kAt, "the graph's name: @name")));
    declarations_ahead();
    inputs();
    const Token arrow = peek();
    const bool typed = accept("->");
    const std::vector<tsr_type> outputs = typed ? results() : std::vector<tsr_type>{};
    if (accept_word("symbols")) skip_braces();  // read ahead
    if (accept_word("sizes")) skip_braces();
    if (accept_word("assume")) assumptions();
    expect("{");
    set_memory(Memory::node);
    body(0);
    check_outputs(arrow, typed, outputs);
    name_outputs();
    return mark();
  }

 private:
  // A message about whatever `build` does, with the place of `t`.
  template <class F>
  auto placed(const Token& t, F&& build) -> decltype(build()) {
    try {
      return build();
    } catch (const Error& e) {
      source().fail_at(t.offset, e);
    }
  }

  // -------------------------------------------------------------------------------------------------------- header
  // Types use symbols before the header declares their ranges, and simplification rests on ranges: declare them first.
  void declarations_ahead() {
    const Mark start = mark();
    auto skip_parentheses = [&] {
      if (!at("(")) return;
      uint32_t depth = 0;
      do {
        if (peek().kind == Tok::kEnd) return;
        if (at("(")) ++depth;
        if (at(")")) --depth;
        next();
      } while (depth > 0);
    };
    skip_parentheses();
    if (accept("->")) skip_parentheses();
    if (accept_word("symbols")) symbols();
    if (accept_word("sizes")) definitions();
    reset(start);
  }

  void skip_braces() {
    expect("{");
    while (!at("}")) {
      if (peek().kind == Tok::kEnd) unexpected("'}'");
      next();
    }
    next();
  }

  void symbols() {
    expect("{");
    while (!at("}")) {
      const Token t = expect(Tok::kIdent, "a symbol: name: lo..hi");
      if (!is_identifier(t.text)) unexpected(t, "a symbol: letters, digits and _ only");
      expect(":");
      const Token range = peek();
      const int64_t lo = integer();
      expect("..");
      const int64_t hi = at("-") || peek().kind == Tok::kInt ? integer() : INT64_MAX;
      if (lo > hi)
        source().fail("TSR-I012", range.offset,
                      "found the range " + std::to_string(lo) + ".." + std::to_string(hi) + ", which is empty");
      const int64_t hint = accept_word("hint") ? integer() : -1;
      const bool unbacked = accept_word("unbacked");
      placed(t, [&] { return g_.sizes().symbol(std::string(t.text), lo, hi, unbacked, hint); });
      if (!accept(";") && !at("}")) unexpected("';' or '}'");
    }
    expect("}");
  }

  // Names for sizes that the rest of the text uses.
  void definitions() {
    expect("{");
    while (!at("}")) {
      const Token t = expect(Tok::kIdent, "a name for a size: name = size");
      if (!is_identifier(t.text)) unexpected(t, "a name for a size: letters, digits and _ only");
      const std::string defined(t.text);
      if (g_.sizes().find(defined) != -1)
        source().fail("TSR-I012", t.offset, "found '" + defined + "', which is a symbol", "use another name");
      expect("=");
      define(defined, dim());
      if (!accept(";") && !at("}")) unexpected("';' or '}'");
    }
    expect("}");
  }

  void assumptions() {
    static constexpr std::pair<const char*, tsr_relation> kRelations[] = {{"==", TSR_EQ}, {"!=", TSR_NE}, {"<", TSR_LT},
                                                                          {"<=", TSR_LE}, {">", TSR_GT},  {">=", TSR_GE}};
    uint32_t count = 0;
    expect("{");
    while (!at("}")) {
      const Token t = peek();
      if (++count > limits().assumptions)
        source().fail("TSR-I002", t.offset, "found more than " + std::to_string(limits().assumptions) + " assumptions");
      const tsr_dim a = dim();
      tsr_dim b = 0;
      tsr_relation relation = TSR_DIVISIBLE;
      if (peek().kind == Tok::kValue || at("%")) {  // "s0 %8" reads as a value's name
        if (at("%")) {
          next();
        } else {
          Mark m = mark();
          m.position = m.token.offset + 1;
          reset(m);
          next();
        }
        b = dim_operand();
        expect("==");
        if (integer() != 0) source().fail("TSR-I012", t.offset, "found a remainder that is not 0, expected: a % b == 0");
        if (b == 0) source().fail("TSR-I012", t.offset, "found a division by zero");
      } else {
        bool found = false;
        for (const auto& [text, r] : kRelations)
          if (!found && accept(text)) {
            relation = r;
            found = true;
          }
        if (!found) unexpected("a relation: == != < <= > >= or % number == 0");
        b = dim();
      }
      std::string why;
      if (peek().kind == Tok::kString) why = unescape(next());
      if (g_.sizes().compare(relation, a, b) == TSR_FALSE)
        source().fail("TSR-I012", t.offset, "found an assumption that holds for no value of its symbols",
                      "the ranges of the symbols, or an assumption before it, exclude it");
      placed(t, [&] { g_.sizes().require(relation, a, b, why); });
      if (!accept(";") && !at("}")) unexpected("';' or '}'");
    }
    expect("}");
  }

  // What follows '%': a number, a symbol or a parenthesis.
  tsr_dim dim_operand() {
    if (accept("(")) {
      const tsr_dim d = dim();
      expect(")");
      return d;
    }
    return dim();
  }

  void inputs() {
    expect("(");
    if (!at(")")) do {
        const Token t = expect(Tok::kValue, "an input: %name: type");
        const std::string input_name = fresh_name(t);
        expect(":");
        const tsr_type type = this->type();
        const Token kind_token = peek();
        tsr_input_kind kind = TSR_INPUT_ARG;
        if (accept_word("param"))
          kind = TSR_INPUT_PARAM;
        else if (accept_word("state"))
          kind = TSR_INPUT_STATE;
        else
          accept_word("arg");
        std::string key;
        const bool has_key = peek().kind == Tok::kString;
        if (has_key) key = unescape(next());
        uint32_t writeback = TSR_NONE;
        if (at("->")) {
          if (kind != TSR_INPUT_STATE) unexpected("',' or ')': only a state is written back");
          next();
          const Token number = peek();
          const int64_t j = integer();
          if (j < 0 || j >= TSR_NONE) unexpected(number, "the number of an output");
          writeback = static_cast<uint32_t>(j);
          writebacks_.push_back({number, writeback, type, input_name});
        }
        const bool donated = at_word("donated");
        if (donated && kind == TSR_INPUT_PARAM) unexpected("',' or ')': a param cannot be donated");
        if (donated) next();
        const tsr_id v =
            placed(kind_token, [&] { return g_.create_input(input_name, type, kind, has_key ? key.c_str() : nullptr); });
        if (writeback != TSR_NONE || donated) g_.set_state(v, writeback, donated);
      } while (accept(","));
    if (!at(")")) unexpected("',' or ')'");
    next();
  }

  // (f32[4], "name": f32[]): a name where an output is called otherwise than the value that is returned for it.
  std::vector<tsr_type> results() {
    std::vector<tsr_type> types;
    expect("(");
    if (!at(")")) do {
        std::string& name = output_names_.emplace_back();
        if (const Token t = peek(); t.kind == Tok::kString) {
          name = unescape(next());
          if (name.empty()) unexpected(t, "a name that is not empty");
          if (std::count(output_names_.begin(), output_names_.end(), name) > 1)
            source().fail("TSR-I005", t.offset,
                          "found " + describe(t) + " as the name of a second output, expected another name for each");
          expect(":");
        }
        types.push_back(type());
      } while (accept(","));
    if (!at(")")) unexpected("',' or ')'");
    next();
    return types;
  }

  void check_outputs(const Token& arrow, bool typed, const std::vector<tsr_type>& declared) {
    const tsr_region& r = g_.region(0);
    if (typed && declared.size() != r.num_outputs)
      source().fail(
          "TSR-I010", arrow.offset,
          "found " + counted(declared.size(), "result type") + ", but the body returns " + counted(r.num_outputs, "value"),
          kDeclared);
    for (uint32_t i = 0; typed && i < r.num_outputs; ++i) {
      const tsr_value& v = g_.value(r.outputs[i]);
      if (!agree(*v.type, declared[i]) || !same_layout(*v.type, declared[i]))
        source().fail("TSR-I010", arrow.offset,
                      "found the type " + print_type(g_, declared[i]) + " for result " + std::to_string(i) +
                          ", but the body returns %" + v.name + " of type " + print_type(g_, *v.type),
                      kDeclared);
    }
    for (const Writeback& w : writebacks_) {
      if (w.output >= r.num_outputs)
        source().fail("TSR-I010", w.token.offset,
                      "found output " + std::to_string(w.output) + ", but the graph has " + counted(r.num_outputs, "output"),
                      "outputs are counted from 0");
      const tsr_type& have = *g_.value(r.outputs[w.output]).type;
      if (!agree(have, w.type))
        source().fail("TSR-I010", w.token.offset,
                      "state %" + w.name + " of type " + print_type(g_, w.type) + " is written back with output " +
                          std::to_string(w.output) + " of type " + print_type(g_, have));
    }
  }

  void name_outputs() {
    std::vector<const char*> names;
    for (const std::string& s : output_names_) names.push_back(s.empty() ? nullptr : s.c_str());
    if (std::any_of(names.begin(), names.end(), [](const char* s) { return s != nullptr; })) g_.set_output_names(names);
  }

  bool agree(const tsr_type& a, const tsr_type& b) const {
    if (a.dtype != b.dtype || a.rank != b.rank) return false;
    for (uint32_t i = 0; i < a.rank; ++i)
      if (a.sizes[i] != b.sizes[i] && g_.sizes().compare(TSR_EQ, a.sizes[i], b.sizes[i]) != TSR_TRUE) return false;
    return true;
  }
  static bool same_layout(const tsr_type& a, const tsr_type& b) {
    if (a.device != b.device || (a.rank > 0 && !a.strides != !b.strides)) return false;
    for (uint32_t i = 0; a.strides && i < a.rank; ++i)
      if (a.strides[i] != b.strides[i]) return false;
    return true;
  }

  // ---------------------------------------------------------------------------------------------------------- body
  void body(tsr_id region) {
    while (!at_word("return")) {
      if (at("}") || peek().kind == Tok::kEnd) unexpected("a node or 'return'");
      node(region);
      if (region == 0) Memory::node.release();  // the graph has its copy
    }
    next();
    std::vector<tsr_id> outputs;
    if (peek().kind == Tok::kValue) do
        outputs.push_back(use(expect(Tok::kValue, "%value"), region));
      while (accept(","));
    if (!at("}")) unexpected(outputs.empty() ? "%value or '}'" : "',' or '}'");
    next();
    g_.set_outputs(region, outputs);
  }

  std::string fresh_name(const Token& t) {
    std::string s = name(t);
    if (s.empty()) unexpected(t, "a name that is not empty");
    if (g_.find_value(s) != TSR_NONE)
      source().fail("TSR-I005", t.offset,
                    "found a second definition of " + describe(t) + ", expected a name that is unique in the graph",
                    "nested regions share one space of names");
    return s;
  }

  tsr_id use(const Token& t, tsr_id region) {
    const tsr_id v = t.quoted ? g_.find_value(name(t)) : g_.find_value(t.text);
    if (v == TSR_NONE)
      source().fail("TSR-I004", t.offset, "found " + describe(t) + ", which is not defined before its use",
                    "define it above, or add it to the inputs");
    if (g_.value(v).region != region)
      source().fail("TSR-I004", t.offset, "found " + describe(t) + ", which belongs to another region",
                    "regions are isolated: pass it as an operand of the region's node");
    return v;
  }

  void node(tsr_id region) {
    const Token first = peek();
    NodeSpec spec;
    std::vector<Token> results;
    if (peek().kind == Tok::kValue) {
      do results.push_back(expect(Tok::kValue, "a result: %name"));
      while (accept(","));
      expect("=");
    }
    const Token op = expect(Tok::kIdent, results.empty() ? "a node or 'return'" : "an op");
    const OpRecord& record = *placed(op, [&] { return &g_.ops().get(op.text); });
    spec.op = record.name;

    // Nodes have no separator: operands begin on the op's line.
    if (peek().line == op.line && (peek().kind == Tok::kValue || at_word("_"))) do {
        if (accept_word("_"))
          spec.operands.push_back(TSR_NONE);
        else
          spec.operands.push_back(use(expect(Tok::kValue, "%value or _"), region));
      } while (accept(","));
    while (spec.operands.size() < record.operands.size() && record.operands[spec.operands.size()].optional)
      spec.operands.push_back(TSR_NONE);

    if (accept("{")) {
      if (!at("}")) do
          attribute(record, spec);
        while (accept(","));
      if (!at("}")) unexpected("',' or '}'");
      next();
    }
    std::vector<const tsr_type*> stored;
    const Token colon = peek();
    const bool typed = accept(":");
    if (typed) do
        spec.result_types.push_back(type());
      while (accept(","));
    while (at_word("region")) spec.regions.push_back(nested());
    if (at_word("mark") && following() == '(') marks(spec);
    if (at_word("loc") && following() == '(') location(spec);

    const std::vector<tsr_attr> attrs = placed(op, [&] { return complete_attrs(record, spec.attrs); });
    if (!typed)
      if (const auto other = placed(op, [&] { return widened(g_, record, spec, region, TSR_NONE); }))
        spec.operands = other->operands;
    const CallView view(g_, record, spec.operands, attrs, spec.regions);
    if (typed) {
      for (const tsr_type& t : spec.result_types) stored.push_back(&t);
      if (results.size() != stored.size())
        source().fail("TSR-I009", colon.offset,
                      "found " + counted(stored.size(), "type") + " for " + counted(results.size(), "result"));
      placed(op, [&] { check_result_types(g_, record, view.call(), stored, Prove::kAssume); });
    } else {
      spec.result_types = placed(op, [&] { return infer(g_, record, view.call()); });
      if (results.size() != spec.result_types.size())
        source().fail("TSR-I009", first.offset,
                      "found " + counted(results.size(), "name") + " for the " + counted(spec.result_types.size(), "result") +
                          " of " + record.name,
                      record.signature);
    }
    spec.typed = true;
    for (const Token& t : results) {
      spec.result_names.push_back(fresh_name(t));
      for (size_t i = 0; i + 1 < spec.result_names.size() && results.size() < 64; ++i)
        if (spec.result_names[i] == spec.result_names.back()) duplicate(t);
    }
    const tsr_id id = placed(op, [&] { return g_.create_node(spec, region); });
    if (results.size() >= 64)  // the graph makes names unique; a changed one was a duplicate
      for (size_t i = 0; i < results.size(); ++i)
        if (spec.result_names[i] != g_.value(g_.node(id).results[i]).name) duplicate(results[i]);
  }

  [[noreturn]] void duplicate(const Token& t) const {
    source().fail("TSR-I005", t.offset,
                  "found a second definition of " + describe(t) + ", expected a name that is unique in the graph");
  }

  void attribute(const OpRecord& record, NodeSpec& spec) {
    const Token t = expect(Tok::kIdent, "an attribute: name = value");
    const AttrDecl* decl = record.attr(t.text);
    if (!decl) {
      std::vector<std::string> known;
      std::string list;
      for (const AttrDecl& a : record.attrs) {
        known.push_back(a.name);
        list += (list.empty() ? "" : ", ") + a.name;
      }
      source().fail(
          "TSR-I020", t.offset,
          "found " + describe(t) + ", which is no attribute of " + record.name + did_you_mean(t.text.substr(0, 80), known),
          "its attributes: " + (list.empty() ? "none" : list));
    }
    for (const tsr_attr& a : spec.attrs)
      if (a.name == decl->name.c_str())
        source().fail("TSR-I021", t.offset, "found a second value for the attribute '" + decl->name + "'");
    expect("=");
    const Token value = peek();
    tsr_attr a = attr(decl->kind);
    a.name = decl->name.c_str();
    if (!decl->choices.empty() && std::find(decl->choices.begin(), decl->choices.end(), a.s) == decl->choices.end()) {
      std::string list;
      for (const std::string& c : decl->choices) list += (list.empty() ? "\"" : ", \"") + c + "\"";
      source().fail("TSR-I024", value.offset,
                    "found " + describe(value) + ", expected one of: " + list +
                        did_you_mean(std::string(a.s).substr(0, 80), decl->choices));
    }
    spec.attrs.push_back(a);
  }

  tsr_id nested() {
    const Token t = next();
    if (++depth_ > limits().region_depth)
      source().fail("TSR-I002", t.offset,
                    "found regions nested deeper than " + std::to_string(limits().region_depth) + " levels");
    std::vector<tsr_type> types;
    std::vector<std::string> names;
    expect("(");
    if (!at(")")) do {
        const Token input = expect(Tok::kValue, "a region's input: %name: type");
        names.push_back(fresh_name(input));
        expect(":");
        types.push_back(type());
        inputs_.push_back(input);
      } while (accept(","));
    if (!at(")")) unexpected("',' or ')'");
    next();
    const tsr_id region = g_.create_region(types, names);
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] != g_.value(g_.region(region).inputs[i]).name) duplicate(inputs_[i]);
    inputs_.clear();
    expect("{");
    body(region);
    --depth_;
    return region;
  }

  void marks(NodeSpec& spec) {
    next();
    expect("(");
    do {
      const Token t = expect(Tok::kIdent, "a mark");
      const auto m = std::find_if(kMarkNames.begin(), kMarkNames.end(), [&](const MarkName& x) { return t.text == x.name; });
      if (m == kMarkNames.end()) {
        std::vector<std::string> known;
        for (const MarkName& x : kMarkNames) known.emplace_back(x.name);
        source().fail("TSR-I040", t.offset,
                      "found " + describe(t) + ", expected a mark: " + listed(known, "none") +
                          did_you_mean(std::string(t.text.substr(0, 80)), known));
      }
      spec.marks |= m->mark;
    } while (accept(","));
    expect(")");
  }

  void location(NodeSpec& spec) {
    next();
    expect("(");
    spec.loc.file = string();
    auto number = [&] {
      const Token t = peek();
      const int64_t v = integer();
      if (v < 0 || v > UINT32_MAX) unexpected(t, "a line or column that fits 32 bits");
      return static_cast<uint32_t>(v);
    };
    if (accept(":")) {
      spec.loc.line = number();
      if (accept(":")) spec.loc.column = number();
    }
    expect(")");
  }

  struct Writeback {
    Token token;
    uint32_t output;
    tsr_type type;
    std::string name;
  };

  Graph& g_;
  std::vector<Writeback> writebacks_;
  std::vector<std::string> output_names_;  // "": called as its value
  std::vector<Token> inputs_;
  uint32_t depth_ = 0;
};

}  // namespace

// One parser per graph, all over the same text: messages count lines from its start.
static std::vector<std::unique_ptr<Graph>> parse_all(const OpRegistry& ops, Graph* first, std::string_view text,
                                                     std::string_view file, const ReadLimits& limits) {
  std::vector<std::unique_ptr<Graph>> graphs;
  ReadLimits left = limits;
  Lexer start(text, file);
  Lexer::Mark at = start.mark();
  if (at.token.kind == Tok::kEnd) start.unexpected("a graph: graph @name(..) -> (..) { .. }");
  for (bool main = true; at.token.kind != Tok::kEnd; main = false) {
    Graph* g = main ? first : nullptr;
    if (!g) {
      graphs.push_back(std::make_unique<Graph>(ops, ""));
      g = graphs.back().get();
      g->commit();
      g->begin("text");
    }
    GraphParser parser(*g, text, file, left);
    at = parser.run(at);
    left.splat_bytes -= parser.splat_bytes();
    if (g != first) g->commit();
  }
  return graphs;
}

std::vector<std::unique_ptr<Graph>> parse_module(const OpRegistry& ops, std::string_view text, std::string_view file,
                                                 const ReadLimits& limits) {
  return parse_all(ops, nullptr, text, file, limits);
}

std::unique_ptr<Graph> parse_graph(const OpRegistry& ops, std::string_view text, std::string_view file,
                                   const ReadLimits& limits) {
  return std::move(parse_all(ops, nullptr, text, file, limits).front());
}

void parse_into(Graph& graph, std::string_view text, std::string_view file, const ReadLimits& limits) {
  if (graph.num_live_nodes() > 0 || graph.region(0).num_inputs > 0)
    throw bug("TSR-B005", "text is parsed into graph '" + std::string(graph.tables().name) + "', which is not empty");
  parse_all(graph.ops(), &graph, text, file, limits);
}

}  // namespace tessera::core
