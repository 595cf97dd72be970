// SPDX-License-Identifier: Apache-2.0
// Guards in words. The texts are documented in docs/recompiles.md, and golden.
#include <bit>
#include <charconv>
#include <cmath>
#include <functional>

#include "dispatch/global_state.hpp"
#include "dispatch/guards.hpp"
#include "dispatch/import_model.hpp"
#include "dispatch/marks.hpp"
#include "memory/device.hpp"
#include "memory/tensor.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

std::string quoted(const std::string& s) {
  std::string out = "'";
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else if (u < 0x20 || u == 0x7f) {  // a zero byte would end the text for whoever reads it
      constexpr char kHex[] = "0123456789abcdef";
      (out += "\\x") += {kHex[u >> 4], kHex[u & 15]};
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string keys_text(const std::string& joined) {
  std::string out = "[";
  size_t at = 0;
  while (!joined.empty() && at <= joined.size()) {
    const size_t end = std::min(joined.find('\n', at), joined.size());
    std::string key;
    for (size_t i = at; i < end; ++i) {
      const bool escape = joined[i] == '\\' && i + 1 < end;  // as TSR_ARG_KEYS has them
      key += !escape ? joined[i] : joined[i + 1] == 'n' ? '\n' : joined[i + 1];
      i += escape;
    }
    out += (out.size() > 1 ? ", " : "") + quoted(key);
    at = end + 1;
  }
  return out + "]";
}

std::string float_text(double x) {  // as Python prints it
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buf[64];
  const auto end = std::to_chars(buf, buf + sizeof buf, x).ptr;
  std::string s(buf, end);
  if (s.find_first_of(".en") == std::string::npos) s += ".0";
  return s;
}

const char* kind_text(uint32_t kind) {
  switch (kind) {
    case TSR_ARG_TENSOR: return "tensor";
    case TSR_ARG_SYM_INT:
    case TSR_ARG_INT: return "int";
    case TSR_ARG_SYM_FLOAT:
    case TSR_ARG_FLOAT: return "float";
    case TSR_ARG_BOOL: return "bool";
    case TSR_ARG_STRING: return "str";
    case TSR_ARG_ENUM: return "enum";
    case TSR_ARG_NONE: return "None";
    default: return "container";
  }
}

// "[0, 2]"; of many elements only their number.
std::string elements_text(const Expected& e) {
  const std::vector<int64_t> strides(e.sizes.size(), 1);
  return value_text(tsr_tensor{const_cast<char*>(e.elements.data()), e.dtype, static_cast<uint32_t>(e.sizes.size()),
                               e.sizes.data(), strides.data(), kCpu, TSR_TENSOR_CONTIGUOUS});
}

bool value_equal(const Expected& e, const tsr_arg& a) {
  switch (e.kind) {
    case TSR_ARG_TENSOR: {
      const tsr_tensor& t = a.tensor->desc;
      return t.dtype == e.dtype && t.rank == e.sizes.size() && std::equal(t.sizes, t.sizes + t.rank, e.sizes.begin()) &&
             elements_of(a.tensor) == e.elements;
    }
    case TSR_ARG_SYM_FLOAT:
    case TSR_ARG_FLOAT: return std::bit_cast<uint64_t>(e.f) == std::bit_cast<uint64_t>(a.f);
    case TSR_ARG_STRING:
    case TSR_ARG_KEYS: return e.s == arg_text(a);
    case TSR_ARG_NONE: return true;
    default: return e.i == a.i;
  }
}

std::string device_name(tsr_device id) {
  const Device* d = find_device(id);
  return d ? d->name() : "?";
}

// "x.size(0)", or "n" for a number.
std::string place_text(const std::vector<Expected>& expected, uint32_t leaf, uint32_t dim) {
  const std::string& path = expected[leaf].path;
  if (dim == SymbolicGuards::kNumber) return path;
  return SymbolicGuards::is_size(dim) ? path + ".size(" + std::to_string(dim) + ")"
                                      : path + ".stride(" + std::to_string(dim - SymbolicGuards::kStride) + ")";
}

void tensor_mismatches(const Expected& e, const tsr_arg& a, uint32_t leaf, std::vector<GuardText>& out) {
  const tsr_tensor& t = a.tensor->desc;
  const std::string head = "tensor '" + e.path + "' ";
  const auto number = [](int64_t x) { return std::to_string(x); };
  const auto say = [&](GuardText::Kind kind, std::string text, uint32_t dim = 0, std::string source = {}) {
    out.push_back({head + text, std::move(source), kind, leaf, dim});
  };
  const Device *want = find_device(e.device), *have = find_device(t.device);
  if (want && have && want->kind() != have->kind())
    say(GuardText::kDevice, "device mismatch. expected " + device_name(e.device) + ", actual " + device_name(t.device));
  if (t.dtype != e.dtype)
    say(GuardText::kDtype, "dtype mismatch. expected " + std::string(dtype_display_name(e.dtype)) + ", actual " +
                               std::string(dtype_display_name(t.dtype)));
  if (want && have && want->kind() == have->kind() && want->index() != have->index())
    say(GuardText::kDevice, "device index mismatch. expected " + number(want->index()) + ", actual " + number(have->index()));
  if ((a.tensor->requires_grad != 0) != (e.requires_grad != 0))
    say(GuardText::kGrad, e.requires_grad ? "requires_grad mismatch. expected requires_grad=1"
                                          : "requires_grad mismatch. expected requires_grad=0");
  if (t.rank != e.sizes.size()) {
    say(GuardText::kRank,
        "rank mismatch. expected " + number(static_cast<int64_t>(e.sizes.size())) + ", actual " + number(t.rank));
    return;
  }
  for (uint32_t k = 0; k < t.rank; ++k)
    if (e.symbols[k] == -1 && t.sizes[k] != e.sizes[k])
      say(GuardText::kSize,
          "size mismatch at index " + number(k) + ". expected " + number(e.sizes[k]) + ", actual " + number(t.sizes[k]), k,
          e.dim_sources[k]);
  const bool dense = t.flags & TSR_TENSOR_CONTIGUOUS;
  if (e.layout == LeafGuard::kNotDense) {
    if (dense) say(GuardText::kLayout, "layout mismatch. expected one that is not row-major");
    return;
  }
  if (dense && e.layout == LeafGuard::kDense) return;
  std::vector<int64_t> strides = e.strides;
  if (e.layout == LeafGuard::kDense)
    dense_strides({t.sizes, t.rank}, strides.data());  // of the sizes at hand: they may be symbols
  for (uint32_t k = 0; k < t.rank; ++k)
    if (t.strides[k] != strides[k])
      say(GuardText::kLayout,
          "stride mismatch at index " + number(k) + ". expected " + number(strides[k]) + ", actual " + number(t.strides[k]), k);
  for (const DimMark& m : marks_of(a.tensor->marks)) {
    const bool symbol = e.symbols[m.dim] >= 0;
    if (symbol != (m.mark != TSR_MARK_STATIC))
      say(GuardText::kMark,
          "mark mismatch at index " + number(m.dim) + ". expected " + (symbol ? "dynamic" : "static") + ", actual " +
              (symbol                        ? "static"
               : m.mark == TSR_MARK_UNBACKED ? "unbacked"
                                             : "dynamic"),
          m.dim);
  }
}

// Where each symbol's value comes from: its name in guards.
std::vector<std::string> symbol_names(const std::vector<Expected>& expected, const SymbolicGuards& g) {
  std::vector<std::string> names;
  if (!g.sizes) return names;
  for (const tsr_symbol& s : g.sizes->symbols()) names.emplace_back(s.name);
  for (const auto& p : g.binds) names[p.symbol] = place_text(expected, p.leaf, p.dim);
  return names;
}

GuardText relation_text(const SymbolicGuards& g, const std::vector<std::string>& names, const Assumption& r) {
  static const char* const kText[] = {" == ", " != ", " < ", " <= ", " > ", " >= "};
  const std::string a = g.sizes->print(r.a, names), b = g.sizes->print(r.b, names);
  return {r.relation == TSR_DIVISIBLE ? a + " % " + b + " == 0" : a + kText[r.relation] + b, r.where.empty() ? r.why : r.where};
}

void symbolic_mismatches(const std::vector<Expected>& expected, const SymbolicGuards& g, const tsr_arg* args,
                         std::vector<GuardText>& out) {
  if (!g.sizes) return;
  const std::vector<std::string> names = symbol_names(expected, g);
  const auto value_at = [&](uint32_t leaf, uint32_t dim) { return SymbolicGuards::value_at(args, leaf, dim); };
  std::vector<int64_t> values(g.sizes->symbols().size(), 0);
  bool solved = true;
  try {
    solved = g.values(args, values);
  } catch (const Error&) {
    solved = false;
  }
  if (!solved) {
    for (const auto& d : g.derived)
      out.push_back(
          {place_text(expected, d.leaf, d.dim) + " == " + g.sizes->print(d.size, names), {}, GuardText::kEqual, d.leaf, d.dim});
    return;
  }
  for (const auto& b : g.bounds) {
    const int64_t v = values[b.symbol];
    if (v >= b.min && v <= b.max) continue;
    const std::string bound = v < b.min ? ">= " + std::to_string(b.min) : "<= " + std::to_string(b.max);
    if (!SymbolicGuards::is_size(b.dim))
      out.push_back({place_text(expected, b.leaf, b.dim) + " " + bound, {}, GuardText::kBound, b.leaf, b.dim});
    else
      out.push_back({"tensor '" + expected[b.leaf].path + "' size mismatch at index " + std::to_string(b.dim) + ". expected " +
                         bound + ", actual " + std::to_string(v),
                     {},
                     GuardText::kBound,
                     b.leaf,
                     b.dim});
  }
  for (const auto& p : g.equals)
    if (value_at(p.leaf, p.dim) != values[p.symbol])
      out.push_back({place_text(expected, p.leaf, p.dim) + " == " + names[p.symbol], "equal at capture", GuardText::kEqual,
                     p.leaf, p.dim});
  const auto relation = [&](const Assumption& r) {
    bool holds = false;
    try {
      holds = Sizes::holds(r.relation, g.sizes->evaluate(r.a, values), g.sizes->evaluate(r.b, values));
    } catch (const Error&) {}
    if (!holds) out.push_back(relation_text(g, names, r));
  };
  for (const Assumption& r : g.relations) relation(r);
  for (const auto& a : g.asserted) relation(a.relation);
}

}  // namespace

std::string GuardText::full() const {
  if (source.empty()) return text;
  std::string s = text;
  if (s.size() < 55) s.resize(55, ' ');
  return s + "  # " + source;
}

std::vector<std::string> full_texts(const std::vector<GuardText>& guards) {
  std::vector<std::string> out;
  for (const GuardText& g : guards) out.push_back(g.full());
  return out;
}

std::string value_text(const Expected& e) {
  switch (e.kind) {
    case TSR_ARG_INT:
    case TSR_ARG_SYM_INT:
    case TSR_ARG_ENUM: return e.path + " == " + std::to_string(e.i);
    case TSR_ARG_BOOL: return e.path + " == " + (e.i ? "True" : "False");
    case TSR_ARG_FLOAT:
    case TSR_ARG_SYM_FLOAT: return e.path + " == " + float_text(e.f);
    case TSR_ARG_STRING: return e.path + " == " + quoted(e.s);
    case TSR_ARG_LENGTH: return "len(" + e.path + ") == " + std::to_string(e.i);
    case TSR_ARG_TENSOR: return e.path + " == " + elements_text(e);
    case TSR_ARG_KEYS: return "list(" + e.path + ".keys()) == " + keys_text(e.s);
    default: return e.path + " is None";
  }
}

bool Guards::value_holds(size_t leaf, const tsr_arg& arg) const { return value_equal(expected[leaf], arg); }

std::vector<GuardText> Guards::mismatches(const tsr_arg* args, size_t count, bool all) const {
  std::vector<GuardText> out;
  const auto done = [&] { return !all && !out.empty(); };
  // Leaves only correspond up to the first difference in structure.
  const size_t common = std::min(count, expected.size());
  for (size_t i = 0; i < common; ++i) {
    const Expected& e = expected[i];
    const bool structure = e.kind == TSR_ARG_LENGTH || e.kind == TSR_ARG_KEYS;
    if (e.kind == args[i].kind && !(structure && !value_equal(e, args[i]))) continue;
    if (e.kind == args[i].kind || e.kind == TSR_ARG_NONE)
      out.push_back({value_text(e), {}, GuardText::kStructure, static_cast<uint32_t>(i)});
    else
      out.push_back({"type(" + e.path + ") is " + kind_text(e.kind) + ", actual " + kind_text(args[i].kind),
                     {},
                     GuardText::kStructure,
                     static_cast<uint32_t>(i)});
    return out;
  }
  if (count != expected.size()) {
    out.push_back(
        {"number of arguments mismatch. expected " + std::to_string(expected.size()) + ", actual " + std::to_string(count),
         {},
         GuardText::kStructure});
    return out;
  }
  if (const uint64_t now = global_state(); now != global)
    out.push_back({std::string("GLOBAL_STATE changed: ") + global_state_text(global, now), {}, GuardText::kGlobal});
  for (size_t i = 0; i < count && !done(); ++i)
    if ((expected[i].kind != TSR_ARG_TENSOR || mask.leaves[i].by_value) && expected[i].guarded &&
        !value_equal(expected[i], args[i]))
      out.push_back({value_text(expected[i]), expected[i].source, GuardText::kValue, static_cast<uint32_t>(i)});
  bool ranks = true;
  for (size_t i = 0; i < count && !done(); ++i)
    if (expected[i].kind == TSR_ARG_TENSOR && expected[i].guarded && !mask.leaves[i].by_value) {
      tensor_mismatches(expected[i], args[i], static_cast<uint32_t>(i), out);
      ranks = ranks && args[i].tensor->desc.rank == expected[i].sizes.size();
    }
  if (!done() && ranks) symbolic_mismatches(expected, symbolic, args, out);
  if (!all && out.size() > 1) out.resize(1);
  return out;
}

std::vector<GuardText> Guards::texts() const {
  std::vector<GuardText> out;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Expected& e = expected[i];
    if (!e.guarded) continue;
    if (e.kind != TSR_ARG_TENSOR || mask.leaves[i].by_value) {
      out.push_back({value_text(e), e.source});
      continue;
    }
    std::string s = "tensor '" + e.path + "': " + std::string(dtype_name(e.dtype)) + "[";
    for (size_t k = 0; k < e.sizes.size(); ++k)
      s += (k ? ", " : "") + (e.symbols[k] == -1 ? std::to_string(e.sizes[k])
                              : e.symbols[k] == Expected::kDerived
                                  ? "_"
                                  : std::string(symbolic.sizes->symbols()[static_cast<size_t>(e.symbols[k])].name));
    s += "]";
    if (e.layout == LeafGuard::kStrides) {
      s += ", strides [";
      for (size_t k = 0; k < e.strides.size(); ++k) s += (k ? ", " : "") + std::to_string(e.strides[k]);
      s += "]";
    } else if (e.layout == LeafGuard::kNotDense) {
      s += ", not row-major";
    }
    s += ", " + device_name(e.device);
    if (e.requires_grad) s += ", requires_grad=1";
    out.push_back({std::move(s), {}});
    for (size_t k = 0; k < e.sizes.size(); ++k)
      if (e.symbols[k] == -1 && !e.dim_sources[k].empty())
        out.push_back({e.path + ".size(" + std::to_string(k) + ") == " + std::to_string(e.sizes[k]), e.dim_sources[k]});
  }
  const std::vector<std::string> names = symbol_names(expected, symbolic);
  for (const auto& b : symbolic.bounds)
    out.push_back({std::to_string(b.min) + " <= " + place_text(expected, b.leaf, b.dim) +
                       (b.max == INT64_MAX ? "" : " <= " + std::to_string(b.max)),
                   {}});
  for (const auto& p : symbolic.equals)
    out.push_back({place_text(expected, p.leaf, p.dim) + " == " + names[p.symbol], "equal at capture"});
  for (const Assumption& r : symbolic.relations) out.push_back(relation_text(symbolic, names, r));
  return out;
}

}  // namespace tessera::core
