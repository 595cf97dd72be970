// SPDX-License-Identifier: Apache-2.0
#include "ir/printer.hpp"

#include <bit>
#include <charconv>
#include <cmath>

#include "ir/dense.hpp"
#include "ir/equality.hpp"
#include "ir/graph.hpp"
#include "ir/lexer.hpp"
#include "ir/mark_names.hpp"
#include "ir/records.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/embed.h"

namespace tessera::core {
namespace {

template <class T>
void append_real(std::string& out, T v) {
  if (std::isnan(v)) {
    out += "nan";
    return;
  }
  if (std::isinf(v)) {
    out += v < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[40];
  const std::string_view text(buffer, static_cast<size_t>(std::to_chars(buffer, buffer + sizeof buffer, v).ptr - buffer));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

}  // namespace

void append_int(std::string& out, int64_t v) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
}

void append_float(std::string& out, float v) { append_real(out, v); }

void append_float(std::string& out, double v) {
  if (std::isnan(v) && std::bit_cast<uint64_t>(v) != 0x7ff8000000000000) {
    char buffer[24];
    out += "nan(0x";
    out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, std::bit_cast<uint64_t>(v), 16).ptr);
    out += ')';
    return;
  }
  append_real(out, v);
}

namespace {

static_assert(kPrintLocations == TSR_PRINT_LOCATIONS && kPrintAuthors == TSR_PRINT_AUTHORS && kPrintParams == TSR_PRINT_PARAMS);
constexpr size_t kWidth = 120;  // a header beyond this is broken into lines

void append_dim(std::string& out, const Sizes* sizes, tsr_dim d, const SizeNames* names = nullptr) {
  if (!TSR_DIM_IS_EXPR(d))
    append_int(out, d);
  else if (names)
    sizes->print_to(out, d, *names);
  else if (sizes)
    out += sizes->print(d);
  else
    out += '?';
}

template <class F>
void append_list(std::string& out, uint32_t n, F&& element) {
  for (uint32_t i = 0; i < n; ++i) {
    if (i) out += ", ";
    element(i);
  }
}

void append_type(std::string& out, const Sizes* sizes, const tsr_type& t, const SizeNames* names);
void append_attr(std::string& out, const Sizes* sizes, const tsr_attr& a, uint32_t flags, const NamedConstants* constants,
                 const SizeNames* names);

// -------------------------------------------------------------------------------------------------------------- graphs

class Printer {
 public:
  Printer(const Graph& g, uint32_t flags, const NamedConstants* constants = nullptr)
      : g_(g), flags_(flags), constants_(constants), sizes_(g.sizes()) {
    if (!(flags & kPrintParams)) return;
    for (const tsr_id n : nodes_of(g, 0))
      if (is_param(g.node(n))) params_.push_back(g.node(n).results[0]);
  }

  std::string text;

  void graph() {
    whole_ = true;
    name_sizes();
    header();
    text += "{\n";
    body(0, 1);
    text += "}\n";
  }

  void node(tsr_id id, unsigned depth) {
    const tsr_node& n = g_.node(id);
    const OpRecord* record = g_.ops().find(n.op);
    append_list(text, n.num_results, [&](uint32_t i) { value(n.results[i]); });
    if (n.num_results) text += " = ";
    text += n.op;
    // Optional operands left out at the end come back by the record's count.
    uint32_t operands = n.num_operands;
    while (record && operands > 0 && n.operands[operands - 1] == TSR_NONE && operands <= record->operands.size() &&
           record->operands[operands - 1].optional)
      --operands;
    if (operands) text += ' ';
    append_list(text, operands, [&](uint32_t i) {
      if (n.operands[i] == TSR_NONE)
        text += '_';
      else
        value(n.operands[i]);
    });
    attributes(n, record);
    if (n.num_results) text += " : ";
    append_list(text, n.num_results, [&](uint32_t i) { type(*g_.value(n.results[i]).type); });
    for (uint32_t i = 0; i < n.num_regions; ++i) {
      const tsr_region& r = g_.region(n.regions[i]);
      newline(depth + 1);
      text += "region(";
      append_list(text, r.num_inputs, [&](uint32_t k) { typed_value(r.inputs[k]); });
      text += ") {\n";
      body(n.regions[i], depth + 2);
      indent(depth + 1);
      text += '}';
    }
    if (n.marks) {
      text += " mark(";
      bool any = false;
      for (const MarkName& m : kMarkNames) {
        if (!(n.marks & m.mark)) continue;
        text += any ? ", " : "";
        text += m.name;
        any = true;
      }
      text += ')';
    }
    if (n.loc.file && (flags_ & kPrintLocations)) {
      text += " loc(";
      append_quoted(text, n.loc.file);
      if (n.loc.line || n.loc.column) {
        text += ':';
        append_int(text, n.loc.line);
      }
      if (n.loc.column) {
        text += ':';
        append_int(text, n.loc.column);
      }
      text += ')';
    }
    if ((flags_ & kPrintAuthors) && n.author) {
      text += "  // ";
      text += n.author;
    }
  }

 private:
  void indent(unsigned depth) { text.append(2 * depth, ' '); }
  void newline(unsigned depth) {
    text += '\n';
    indent(depth);
  }
  void value(tsr_id v) { append_name(text, '%', g_.value(v).name); }
  void typed_value(tsr_id v) {
    value(v);
    text += ": ";
    type(*g_.value(v).type);
  }
  // A node that is printed alone has no header that could define names.
  const SizeNames* names() const { return whole_ ? &sizes_ : nullptr; }
  void type(const tsr_type& t) { append_type(text, &g_.sizes(), t, names()); }

  void attributes(const tsr_node& n, const OpRecord* record) {
    bool any = false;
    for (uint32_t i = 0; i < n.num_attrs; ++i) {
      const tsr_attr& a = n.attrs[i];
      const AttrDecl* decl = record ? record->attr(a.name) : nullptr;
      if (decl && !decl->required && same_attr(a, decl->fallback)) continue;
      text += any ? ", " : " {";
      any = true;
      text += a.name;
      text += " = ";
      append_attr(text, &g_.sizes(), a, flags_, constants_, names());
    }
    if (any) text += '}';
  }

  static bool is_param(const tsr_node& n) {
    if (std::string_view(n.op) != "constant" || n.num_attrs == 0 || n.attrs[0].kind != TSR_ATTR_TENSOR) return false;
    int64_t elements = 1;
    for (uint32_t d = 0; d < n.attrs[0].tensor->rank; ++d) elements *= n.attrs[0].tensor->sizes[d];
    return elements > TSR_PRINT_PARAMS_ABOVE;
  }

  void body(tsr_id region, unsigned depth) {
    for (tsr_id n : nodes_of(g_, region)) {
      if (region == 0 && !params_.empty() && is_param(g_.node(n))) continue;
      indent(depth);
      node(n, depth);
      text += '\n';
    }
    const tsr_region& r = g_.region(region);
    indent(depth);
    text += "return";
    if (r.num_outputs) text += ' ';
    append_list(text, r.num_outputs, [&](uint32_t i) { value(r.outputs[i]); });
    text += '\n';
  }

  // Input number `i` of the text: the graph's own, then the constants that are printed as such.
  void input(uint32_t i) {
    const tsr_region& r = g_.region(0);
    if (i < r.num_inputs) return input_of(r.inputs[i]);
    typed_value(params_[i - r.num_inputs]);
    text += " param";
  }
  void input_of(tsr_id id) {
    const tsr_value& v = g_.value(id);
    typed_value(id);
    if (v.input_kind == TSR_INPUT_PARAM) text += " param";
    if (v.input_kind == TSR_INPUT_STATE) text += " state";
    if (v.input_kind == TSR_INPUT_ARG && (v.key || v.donated)) text += " arg";
    if (v.key) {
      text += ' ';
      append_quoted(text, v.key);
    }
    if (v.writeback != TSR_NONE) {
      text += " -> ";
      append_int(text, v.writeback);
    }
    if (v.donated) text += " donated";
  }

  void header() {
    const tsr_region& r = g_.region(0);
    text += "graph ";
    append_name(text, '@', g_.tables().name);
    const size_t open = text.size();
    text += '(';
    const uint32_t inputs = r.num_inputs + static_cast<uint32_t>(params_.size());
    append_list(text, inputs, [&](uint32_t i) { input(i); });
    text += ") -> ";
    results(r);
    if (text.size() > kWidth) {
      text.resize(open);
      text += '(';
      for (uint32_t i = 0; i < inputs; ++i) {
        newline(2);
        input(i);
        if (i + 1 < inputs) text += ',';
      }
      text += ')';
      newline(2);
      text += "-> ";
      results(r);
    }
    bool extra = symbols();
    extra = definitions() || extra;
    extra = assumptions() || extra;
    text += extra ? '\n' : ' ';
  }

  void results(const tsr_region& r) {
    text += '(';
    append_list(text, r.num_outputs, [&](uint32_t i) {
      const tsr_value& v = g_.value(r.outputs[i]);
      if (const std::string_view name = g_.output_name(i); name != v.name) {  // one that is called as its value says so already
        append_quoted(text, name);
        text += ": ";
      }
      type(*v.type);
    });
    text += ')';
  }

  bool symbols() {
    const auto& symbols = g_.sizes().symbols();
    if (symbols.empty()) return false;
    text += "\n  symbols { ";
    for (const tsr_symbol& s : symbols) {
      if (&s != &symbols.front()) text += "; ";
      text += s.name;
      text += ": ";
      append_int(text, s.min);
      text += "..";
      if (s.max != INT64_MAX) append_int(text, s.max);
      if (s.hint != -1 && !(flags_ & kPrintWithoutHints)) {
        text += " hint ";
        append_int(text, s.hint);
      }
      if (s.unbacked) text += " unbacked";
    }
    text += " }";
    return true;
  }

  // In the order in which the text shows the sizes, so that names do not depend on how the graph came about.
  void name_sizes() {
    const auto each = [&](const tsr_dim* dims, uint32_t n) {
      for (uint32_t i = 0; dims && i < n; ++i) sizes_.add(dims[i]);
    };
    const auto typed = [&](tsr_id v) {
      const tsr_type& t = *g_.value(v).type;
      each(t.sizes, t.rank);
      each(t.strides, t.rank);
    };
    for (const Assumption& a : g_.sizes().assumptions()) {
      sizes_.add(a.a);
      sizes_.add(a.b);
    }
    const auto walk = [&](auto&& self, tsr_id region) -> void {
      const tsr_region& r = g_.region(region);
      for (uint32_t i = 0; i < r.num_inputs; ++i) typed(r.inputs[i]);
      for (const tsr_id id : nodes_of(g_, region)) {
        const tsr_node& n = g_.node(id);
        for (uint32_t i = 0; i < n.num_attrs; ++i) {
          if (n.attrs[i].kind == TSR_ATTR_DIM) sizes_.add(n.attrs[i].i);
          if (n.attrs[i].kind == TSR_ATTR_DIMS) each(n.attrs[i].ints, n.attrs[i].count);
        }
        for (uint32_t i = 0; i < n.num_results; ++i) typed(n.results[i]);
        for (uint32_t i = 0; i < n.num_regions; ++i) self(self, n.regions[i]);
      }
    };
    walk(walk, 0);
  }

  bool definitions() {
    if (sizes_.defined().empty()) return false;
    text += "\n  sizes {";
    for (size_t i = 0; i < sizes_.defined().size(); ++i) {
      const tsr_dim d = sizes_.defined()[i];
      if (i) text += ';';
      newline(2);
      text += *sizes_.find(d);
      text += " = ";
      g_.sizes().print_to(text, d, sizes_, true);
    }
    text += " }";
    return true;
  }

  bool assumptions() {
    static constexpr const char* kRelation[] = {" == ", " != ", " < ", " <= ", " > ", " >= "};
    const auto& assumed = g_.sizes().assumptions();
    if (assumed.empty()) return false;
    text += "\n  assume { ";
    for (size_t i = 0; i < assumed.size(); ++i) {
      const Assumption& a = assumed[i];
      if (i) text += "; ";
      append_dim(text, &g_.sizes(), a.a, names());
      text += a.relation == TSR_DIVISIBLE ? " % " : kRelation[a.relation];
      const bool parentheses = a.relation == TSR_DIVISIBLE && TSR_DIM_IS_EXPR(a.b);
      if (parentheses) text += '(';
      append_dim(text, &g_.sizes(), a.b, names());
      if (parentheses) text += ')';
      if (a.relation == TSR_DIVISIBLE) text += " == 0";
      if (!a.why.empty()) {
        text += ' ';
        append_quoted(text, a.why);
      }
    }
    text += " }";
    return true;
  }

  const Graph& g_;
  uint32_t flags_;
  const NamedConstants* constants_;
  SizeNames sizes_;
  bool whole_ = false;
  std::vector<tsr_id> params_;  // results of constants that are printed as inputs
};

}  // namespace

void append_name(std::string& out, char sigil, std::string_view name) {
  out += sigil;
  if (is_plain_name(name))
    out += name;
  else
    append_quoted(out, name);
}

namespace {

void append_type(std::string& out, const Sizes* sizes, const tsr_type& t, const SizeNames* names) {
  out += dtype_name(t.dtype);
  out += '[';
  append_list(out, t.rank, [&](uint32_t i) { append_dim(out, sizes, t.sizes[i], names); });
  if (t.strides && t.rank > 0) {
    out += "; ";
    append_list(out, t.rank, [&](uint32_t i) { append_dim(out, sizes, t.strides[i], names); });
  }
  out += ']';
  if (t.device != 0) {
    const std::string_view device = host_core().device_name(t.device);
    const size_t colon = device.find(':');
    const bool plain =
        is_plain_name(device.substr(0, colon)) &&
        (colon == std::string_view::npos ||
         (colon + 1 < device.size() && device.find_first_not_of("0123456789", colon + 1) == std::string_view::npos));
    out += '@';
    if (plain)
      out += device;
    else
      append_quoted(out, device);
  }
}

void append_attr(std::string& out, const Sizes* sizes, const tsr_attr& a, uint32_t flags, const NamedConstants* constants,
                 const SizeNames* names) {
  switch (a.kind) {
    case TSR_ATTR_INT: append_int(out, a.i); break;
    case TSR_ATTR_FLOAT: append_float(out, a.f); break;
    case TSR_ATTR_BOOL: out += a.i ? "true" : "false"; break;
    case TSR_ATTR_STRING: append_quoted(out, a.s); break;
    case TSR_ATTR_DTYPE: out += dtype_name(static_cast<uint32_t>(a.i)); break;
    case TSR_ATTR_DIM: append_dim(out, sizes, a.i, names); break;
    case TSR_ATTR_TENSOR: append_dense(out, *a.tensor, flags, constants); break;
    default:
      out += '[';
      append_list(out, a.count, [&](uint32_t i) {
        if (a.kind == TSR_ATTR_INTS)
          append_int(out, a.ints[i]);
        else if (a.kind == TSR_ATTR_DIMS)
          append_dim(out, sizes, a.ints[i], names);
        else if (a.kind == TSR_ATTR_FLOATS)
          append_float(out, a.floats[i]);
        else
          append_quoted(out, a.strings[i]);
      });
      out += ']';
  }
}

}  // namespace

void append_type(std::string& out, const Sizes* sizes, const tsr_type& t) { append_type(out, sizes, t, nullptr); }

void append_attr(std::string& out, const Sizes* sizes, const tsr_attr& a, uint32_t flags, const NamedConstants* names) {
  append_attr(out, sizes, a, flags, names, nullptr);
}

std::string print_type(const Sizes* sizes, const tsr_type& type) {
  std::string out;
  append_type(out, sizes, type);
  return out;
}
std::string print_type(const Graph& g, const tsr_type& type) { return print_type(&g.sizes(), type); }

std::string print_attr_value(const Graph& g, const tsr_attr& attr) {
  std::string out;
  append_attr(out, &g.sizes(), attr);
  return out;
}

std::string print_graph(const Graph& g, uint32_t flags, const NamedConstants* names) {
  Printer p(g, flags, names);
  p.graph();
  return std::move(p.text);
}

std::string print_node(const Graph& g, tsr_id node, uint32_t flags) {
  Printer p(g, flags);
  p.node(node, 0);
  return std::move(p.text);
}

}  // namespace tessera::core
