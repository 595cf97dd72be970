// SPDX-License-Identifier: Apache-2.0
#include "ir/printer.hpp"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/graph.hpp"
#include "ir/lexer.hpp"
#include "ir/records.hpp"
#include "tessera/embed.h"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

static_assert(kPrintLocations == TSR_PRINT_LOCATIONS && kPrintAuthors == TSR_PRINT_AUTHORS);
constexpr size_t kWidth = 120;         // a header beyond this is broken into lines
constexpr int64_t kListElements = 64;  // constants up to here are printed element by element

void append_int(std::string& out, int64_t v) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, v).ptr);
}

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

void append_dim(std::string& out, const Sizes* sizes, tsr_dim d) {
  if (!TSR_DIM_IS_EXPR(d)) append_int(out, d);
  else if (sizes) out += sizes->print(d);
  else out += '?';
}

template <class F>
void append_list(std::string& out, uint32_t n, F&& element) {
  for (uint32_t i = 0; i < n; ++i) {
    if (i) out += ", ";
    element(i);
  }
}

// ----------------------------------------------------------------------------------------------------- dense constants

int64_t element_count(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.sizes[i];
  return n;
}

// Has the element exactly one value in the text form: not a NaN with a payload, not a bool other than 0 and 1?
bool has_plain_text(const tsr_tensor& t, int64_t index) {
  switch (dtype_info(t.dtype).cls) {
    case DtypeClass::Float: {
      if (!std::isnan(load_as<double>(t.dtype, t.data, index))) return true;
      unsigned char canonical[16] = {};
      store_from(t.dtype, canonical, 0, std::numeric_limits<double>::quiet_NaN());
      const auto size = static_cast<size_t>(dtype_bits(t.dtype) / 8);  // no packed dtype has a NaN
      return std::memcmp(canonical, static_cast<const char*>(t.data) + static_cast<size_t>(index) * size, size) == 0;
    }
    case DtypeClass::Complex: {
      tsr_tensor parts = t;
      parts.dtype = t.dtype == TSR_C64 ? TSR_F32 : TSR_F64;
      return has_plain_text(parts, 2 * index) && has_plain_text(parts, 2 * index + 1);
    }
    case DtypeClass::Bool: return static_cast<const unsigned char*>(t.data)[index] <= 1;
    default: return true;
  }
}

void append_element(std::string& out, const tsr_tensor& t, int64_t i) {
  switch (dtype_info(t.dtype).cls) {
    case DtypeClass::Float:
      if (t.dtype == TSR_F64) append_real(out, load_as<double>(t.dtype, t.data, i));
      else append_real(out, load_as<float>(t.dtype, t.data, i));
      break;
    case DtypeClass::Complex: {
      tsr_tensor parts = t;
      parts.dtype = t.dtype == TSR_C64 ? TSR_F32 : TSR_F64;
      out += '(';
      append_element(out, parts, 2 * i);
      out += ", ";
      append_element(out, parts, 2 * i + 1);
      out += ')';
      break;
    }
    case DtypeClass::Bool: out += load_as<bool>(t.dtype, t.data, i) ? "true" : "false"; break;
    case DtypeClass::Uint: out += std::to_string(load_as<uint64_t>(t.dtype, t.data, i)); break;
    default: append_int(out, load_as<int64_t>(t.dtype, t.data, i)); break;
  }
}

bool same_elements(const tsr_tensor& t, int64_t n) {
  const auto* bytes = static_cast<const char*>(t.data);
  if (!is_packed(t.dtype)) {
    const auto size = static_cast<size_t>(dtype_bits(t.dtype) / 8);
    return std::memcmp(bytes, bytes + size, static_cast<size_t>(n - 1) * size) == 0;
  }
  const uint32_t bits = dtype_bits(t.dtype) == 2 ? TSR_U2 : TSR_U4;
  for (int64_t i = 1; i < n; ++i)
    if (load_as<uint32_t>(bits, bytes, i) != load_as<uint32_t>(bits, bytes, 0)) return false;
  return true;
}

// Bytes as the text form sees them: the unused bits of a packed tensor's last byte are zero.
unsigned char byte_of(const tsr_tensor& t, int64_t n, int64_t bytes, int64_t i) {
  unsigned byte = static_cast<const unsigned char*>(t.data)[i];
  if (i == bytes - 1 && is_packed(t.dtype)) {
    const int bits = dtype_bits(t.dtype);
    if (const int64_t used = n % (8 / bits); used != 0) byte &= (1u << used * bits) - 1;
  }
  return static_cast<unsigned char>(byte);
}

void append_dense(std::string& out, const tsr_tensor& t, uint32_t flags) {
  static constexpr char kHex[] = "0123456789abcdef";
  const int64_t n = element_count(t);
  out += "dense<";
  tsr_type type{};
  type.dtype = t.dtype;
  type.rank = t.rank;
  type.sizes = t.sizes;
  append_type(out, nullptr, type);
  out += ": ";
  if (n > 1 && same_elements(t, n) && has_plain_text(t, 0)) {
    out += "splat ";
    append_element(out, t, 0);
    out += '>';
    return;
  }
  bool list = n <= kListElements;
  for (int64_t i = 0; list && i < n; ++i) list = has_plain_text(t, i);
  if (list) {
    if (t.rank > 0) out += '[';
    for (int64_t i = 0; i < n; ++i) {
      if (i) out += ", ";
      append_element(out, t, i);
    }
    if (t.rank > 0) out += ']';
  } else if (n > kListElements && (flags & kPrintElideConstants)) {
    out += "elided";
  } else {
    const int64_t bytes = storage_bytes(t.dtype, n);
    out += "hex \"";
    const size_t at = out.size();
    out.resize(at + 2 * static_cast<size_t>(bytes));
    for (int64_t i = 0; i < bytes; ++i) {
      const unsigned char byte = byte_of(t, n, bytes, i);
      out[at + static_cast<size_t>(2 * i)] = kHex[byte >> 4];
      out[at + static_cast<size_t>(2 * i + 1)] = kHex[byte & 15];
    }
    out += '"';
  }
  out += '>';
}

// -------------------------------------------------------------------------------------------------------------- graphs

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// Equality of attribute values; `same_dim` compares sizes.
template <class F>
bool same_attr(const tsr_attr& a, const tsr_attr& b, F&& same_dim) {
  if (a.kind != b.kind || a.count != b.count) return false;
  switch (a.kind) {
    case TSR_ATTR_FLOAT: return same_bits(a.f, b.f);
    case TSR_ATTR_STRING: return std::strcmp(a.s, b.s) == 0;
    case TSR_ATTR_DIM: return same_dim(a.i, b.i);
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (a.kind == TSR_ATTR_INTS ? a.ints[i] != b.ints[i] : !same_dim(a.ints[i], b.ints[i])) return false;
      return true;
    case TSR_ATTR_FLOATS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (!same_bits(a.floats[i], b.floats[i])) return false;
      return true;
    case TSR_ATTR_STRINGS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (std::strcmp(a.strings[i], b.strings[i]) != 0) return false;
      return true;
    case TSR_ATTR_TENSOR: {
      const tsr_tensor &x = *a.tensor, &y = *b.tensor;
      if (x.dtype != y.dtype || x.rank != y.rank) return false;
      for (uint32_t i = 0; i < x.rank; ++i)
        if (x.sizes[i] != y.sizes[i]) return false;
      const int64_t n = element_count(x), bytes = storage_bytes(x.dtype, n);
      if (bytes <= 0) return true;
      return std::memcmp(x.data, y.data, static_cast<size_t>(bytes - 1)) == 0 &&
             byte_of(x, n, bytes, bytes - 1) == byte_of(y, n, bytes, bytes - 1);
    }
    default: return a.i == b.i;
  }
}

class Printer {
 public:
  Printer(const Graph& g, uint32_t flags) : g_(g), flags_(flags) {}

  std::string text;

  void graph() {
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
      if (n.operands[i] == TSR_NONE) text += '_';
      else value(n.operands[i]);
    });
    attributes(n, record);
    if (n.num_results) text += " : ";
    append_list(text, n.num_results, [&](uint32_t i) { append_type(text, &g_.sizes(), *g_.value(n.results[i]).type); });
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
    append_type(text, &g_.sizes(), *g_.value(v).type);
  }

  void attributes(const tsr_node& n, const OpRecord* record) {
    bool any = false;
    for (uint32_t i = 0; i < n.num_attrs; ++i) {
      const tsr_attr& a = n.attrs[i];
      const AttrDecl* decl = record ? record->attr(a.name) : nullptr;
      if (decl && !decl->required && same_attr(a, decl->fallback, [](tsr_dim x, tsr_dim y) { return x == y; })) continue;
      text += any ? ", " : " {";
      any = true;
      text += a.name;
      text += " = ";
      append_attr(text, &g_.sizes(), a, flags_);
    }
    if (any) text += '}';
  }

  void body(tsr_id region, unsigned depth) {
    for (tsr_id n : nodes_of(g_, region)) {
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

  void input(tsr_id id) {
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
    append_list(text, r.num_inputs, [&](uint32_t i) { input(r.inputs[i]); });
    text += ") -> ";
    results(r);
    if (text.size() > kWidth) {
      text.resize(open);
      text += '(';
      for (uint32_t i = 0; i < r.num_inputs; ++i) {
        newline(2);
        input(r.inputs[i]);
        if (i + 1 < r.num_inputs) text += ',';
      }
      text += ')';
      newline(2);
      text += "-> ";
      results(r);
    }
    bool extra = symbols();
    extra = assumptions() || extra;
    text += extra ? '\n' : ' ';
  }

  void results(const tsr_region& r) {
    text += '(';
    append_list(text, r.num_outputs, [&](uint32_t i) { append_type(text, &g_.sizes(), *g_.value(r.outputs[i]).type); });
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
      if (s.hint != -1) {
        text += " hint ";
        append_int(text, s.hint);
      }
      if (s.unbacked) text += " unbacked";
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
      append_dim(text, &g_.sizes(), a.a);
      text += a.relation == TSR_DIVISIBLE ? " % " : kRelation[a.relation];
      const bool parentheses = a.relation == TSR_DIVISIBLE && TSR_DIM_IS_EXPR(a.b);
      if (parentheses) text += '(';
      append_dim(text, &g_.sizes(), a.b);
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
};

// ------------------------------------------------------------------------------------------------------------ equality

class Comparison {
 public:
  Comparison(const Graph& a, const Graph& b) : a_(a), b_(b), values_(a.num_values(), TSR_NONE) {}

  std::string run() {
    if (std::string_view(a_.tables().name) != b_.tables().name) return "the graphs' names";
    const auto &sa = a_.sizes().symbols(), &sb = b_.sizes().symbols();
    if (sa.size() != sb.size()) return "the number of symbols";
    for (size_t i = 0; i < sa.size(); ++i)
      if (std::strcmp(sa[i].name, sb[i].name) != 0 || sa[i].min != sb[i].min || sa[i].max != sb[i].max ||
          sa[i].hint != sb[i].hint || sa[i].unbacked != sb[i].unbacked)
        return "symbol " + std::string(sa[i].name);
    canonical_dims();
    const auto &xa = a_.sizes().assumptions(), &xb = b_.sizes().assumptions();
    if (xa.size() != xb.size()) return "the number of assumptions";
    for (size_t i = 0; i < xa.size(); ++i)
      if (xa[i].relation != xb[i].relation || !dim(xa[i].a, xb[i].a) || !dim(xa[i].b, xb[i].b) || xa[i].why != xb[i].why)
        return "assumption " + std::to_string(i);
    region(0, 0);
    return found_;
  }

 private:
  // Equal expressions of the two graphs get equal numbers: ids ascend from operands to users, so one sweep each does.
  void canonical_dims() {
    std::unordered_map<std::string, uint32_t> known;
    auto number = [&](const Sizes& s, std::vector<uint32_t>& out) {
      for (const tsr_dim_expr& e : s.exprs()) {
        auto side = [&](tsr_dim d) { return TSR_DIM_IS_EXPR(d) ? TSR_DIM_OF_EXPR(out[TSR_DIM_EXPR_ID(d)]) : d; };
        const int64_t key[] = {e.op, e.symbol, side(e.lhs), side(e.rhs)};
        out.push_back(known.try_emplace(std::string(reinterpret_cast<const char*>(key), sizeof key),
                                        static_cast<uint32_t>(known.size())).first->second);
      }
    };
    number(a_.sizes(), dims_a_);
    number(b_.sizes(), dims_b_);
  }

  bool dim(tsr_dim x, tsr_dim y) const {
    if (!TSR_DIM_IS_EXPR(x) || !TSR_DIM_IS_EXPR(y)) return x == y;
    return dims_a_[TSR_DIM_EXPR_ID(x)] == dims_b_[TSR_DIM_EXPR_ID(y)];
  }
  bool type(const tsr_type& x, const tsr_type& y) const {
    if (x.dtype != y.dtype || x.rank != y.rank || x.device != y.device) return false;
    if (x.rank > 0 && (x.strides == nullptr) != (y.strides == nullptr)) return false;
    for (uint32_t i = 0; i < x.rank; ++i)
      if (!dim(x.sizes[i], y.sizes[i]) || (x.strides && !dim(x.strides[i], y.strides[i]))) return false;
    return true;
  }
  static bool text(const char* x, const char* y) { return x == y || (x && y && std::strcmp(x, y) == 0); }

  bool fail(std::string what) {
    if (found_.empty()) found_ = std::move(what);
    return false;
  }

  bool define(tsr_id x, tsr_id y) {
    const tsr_value &v = a_.value(x), &w = b_.value(y);
    values_[x] = y;
    if (!text(v.name, w.name)) return fail("the names %" + std::string(v.name) + " and %" + w.name);
    if (!type(*v.type, *w.type)) return fail("the type of %" + std::string(v.name));
    if (v.input_kind != w.input_kind || v.writeback != w.writeback || v.donated != w.donated || !text(v.key, w.key))
      return fail("the input %" + std::string(v.name));
    return true;
  }
  bool use(tsr_id x, tsr_id y) const { return x == TSR_NONE || y == TSR_NONE ? x == y : values_[x] == y; }

  bool region(tsr_id ra, tsr_id rb) {
    const tsr_region &x = a_.region(ra), &y = b_.region(rb);
    if (x.num_inputs != y.num_inputs) return fail("the number of inputs");
    for (uint32_t i = 0; i < x.num_inputs; ++i)
      if (!define(x.inputs[i], y.inputs[i])) return false;
    tsr_id n = x.first, m = y.first;
    for (; n != TSR_NONE && m != TSR_NONE; n = a_.node(n).next, m = b_.node(m).next)
      if (!node(n, m)) return false;
    if (n != m) return fail("the number of nodes");
    if (x.num_outputs != y.num_outputs) return fail("the number of outputs");
    for (uint32_t i = 0; i < x.num_outputs; ++i)
      if (!use(x.outputs[i], y.outputs[i])) return fail("output " + std::to_string(i));
    return true;
  }

  bool node(tsr_id na, tsr_id nb) {
    const tsr_node &x = a_.node(na), &y = b_.node(nb);
    const std::string where = a_.describe(na);
    if (!text(x.op, y.op)) return fail("the op of " + where);
    if (x.num_operands != y.num_operands || x.num_results != y.num_results || x.num_regions != y.num_regions ||
        x.num_attrs != y.num_attrs)
      return fail("the operands, results, attributes or regions of " + where);
    for (uint32_t i = 0; i < x.num_operands; ++i)
      if (!use(x.operands[i], y.operands[i])) return fail("operand " + std::to_string(i) + " of " + where);
    for (uint32_t i = 0; i < x.num_attrs; ++i)
      if (!text(x.attrs[i].name, y.attrs[i].name) ||
          !same_attr(x.attrs[i], y.attrs[i], [this](tsr_dim p, tsr_dim q) { return dim(p, q); }))
        return fail("attribute " + std::string(x.attrs[i].name) + " of " + where);
    if (!text(x.loc.file, y.loc.file) || x.loc.line != y.loc.line || x.loc.column != y.loc.column)
      return fail("the location of " + where);
    for (uint32_t i = 0; i < x.num_regions; ++i)
      if (!region(x.regions[i], y.regions[i])) return false;
    for (uint32_t i = 0; i < x.num_results; ++i)
      if (!define(x.results[i], y.results[i])) return false;
    return true;
  }

  const Graph &a_, &b_;
  std::vector<tsr_id> values_;
  std::vector<uint32_t> dims_a_, dims_b_;
  std::string found_;
};

}  // namespace

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

void append_name(std::string& out, char sigil, std::string_view name) {
  out += sigil;
  if (is_plain_name(name)) out += name;
  else append_quoted(out, name);
}

void append_type(std::string& out, const Sizes* sizes, const tsr_type& t) {
  out += dtype_name(t.dtype);
  out += '[';
  append_list(out, t.rank, [&](uint32_t i) { append_dim(out, sizes, t.sizes[i]); });
  if (t.strides && t.rank > 0) {
    out += "; ";
    append_list(out, t.rank, [&](uint32_t i) { append_dim(out, sizes, t.strides[i]); });
  }
  out += ']';
  if (t.device != 0) {
    const std::string_view device = host_core().device_name(t.device);
    const size_t colon = device.find(':');
    const bool plain = is_plain_name(device.substr(0, colon)) &&
                       (colon == std::string_view::npos ||
                        (colon + 1 < device.size() && device.find_first_not_of("0123456789", colon + 1) == std::string_view::npos));
    out += '@';
    if (plain) out += device;
    else append_quoted(out, device);
  }
}

void append_attr(std::string& out, const Sizes* sizes, const tsr_attr& a, uint32_t flags) {
  switch (a.kind) {
    case TSR_ATTR_INT: append_int(out, a.i); break;
    case TSR_ATTR_FLOAT: append_float(out, a.f); break;
    case TSR_ATTR_BOOL: out += a.i ? "true" : "false"; break;
    case TSR_ATTR_STRING: append_quoted(out, a.s); break;
    case TSR_ATTR_DTYPE: out += dtype_name(static_cast<uint32_t>(a.i)); break;
    case TSR_ATTR_DIM: append_dim(out, sizes, a.i); break;
    case TSR_ATTR_TENSOR: append_dense(out, *a.tensor, flags); break;
    default:
      out += '[';
      append_list(out, a.count, [&](uint32_t i) {
        if (a.kind == TSR_ATTR_INTS) append_int(out, a.ints[i]);
        else if (a.kind == TSR_ATTR_DIMS) append_dim(out, sizes, a.ints[i]);
        else if (a.kind == TSR_ATTR_FLOATS) append_float(out, a.floats[i]);
        else append_quoted(out, a.strings[i]);
      });
      out += ']';
  }
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

std::string print_graph(const Graph& g, uint32_t flags) {
  Printer p(g, flags);
  p.graph();
  return std::move(p.text);
}

std::string print_node(const Graph& g, tsr_id node, uint32_t flags) {
  Printer p(g, flags);
  p.node(node, 0);
  return std::move(p.text);
}

std::string difference(const Graph& a, const Graph& b) { return Comparison(a, b).run(); }
bool equal(const Graph& a, const Graph& b) { return difference(a, b).empty(); }

}  // namespace tessera::core
