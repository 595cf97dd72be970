// SPDX-License-Identifier: Apache-2.0
#include "dispatch/guards.hpp"

#include <bit>
#include <charconv>
#include <cmath>

#include "ir/printer.hpp"
#include "runtime/device.hpp"
#include "runtime/tensor.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

void Mask::finish() {
  words = 0;
  symbolic = false;
  for (const LeafGuard& l : leaves) {
    words += 1;
    if (l.kind != TSR_ARG_TENSOR || !l.guarded) continue;
    words += l.rank + (l.dense ? 0 : l.rank);
    symbolic = symbolic || static_cast<uint32_t>(std::popcount(l.fixed)) != l.rank;
  }
}

bool Mask::key(const tsr_arg* args, size_t count, WordBuffer& out) const {
  if (count != leaves.size()) return false;
  out.reserve(words);
  const tsr_arg* a = args;
  for (const LeafGuard& leaf : leaves) {
    const tsr_arg& arg = *a++;
    if (arg.kind != leaf.kind) return false;
    switch (leaf.kind) {
      case TSR_ARG_TENSOR: {
        if (!leaf.guarded) break;
        if (!arg.tensor) return false;  // the miss reports it
        const tsr_tensor_handle& h = *arg.tensor;
        const tsr_tensor& t = h.desc;
        if (t.rank != leaf.rank || ((t.flags & TSR_TENSOR_CONTIGUOUS) != 0) != leaf.dense) return false;
        out.push(t.dtype | uint64_t{arg.role} << 8 | uint64_t{h.requires_grad != 0} << 16 | uint64_t{t.device} << 32);
        const uint64_t all = leaf.rank < 64 ? (uint64_t{1} << leaf.rank) - 1 : ~uint64_t{0};
        if (leaf.fixed == all) {
          for (uint32_t k = 0; k < leaf.rank; ++k) out.push(static_cast<uint64_t>(t.sizes[k]));
        } else {
          for (uint64_t rest = leaf.fixed; rest; rest &= rest - 1)
            out.push(static_cast<uint64_t>(t.sizes[std::countr_zero(rest)]));
        }
        if (!leaf.dense)
          for (uint32_t k = 0; k < leaf.rank; ++k) out.push(static_cast<uint64_t>(t.strides[k]));
        break;
      }
      case TSR_ARG_FLOAT: out.push(std::bit_cast<uint64_t>(arg.f)); break;
      case TSR_ARG_STRING:
      case TSR_ARG_KEYS:
        out.push_text(arg.s ? arg.s : "");
        out.reserve(words);
        break;
      case TSR_ARG_NONE: break;
      default: out.push(static_cast<uint64_t>(arg.i)); break;
    }
  }
  return true;
}

bool SymbolicGuards::hold(const tsr_arg* args) const {
  int64_t stack[64];
  std::vector<int64_t> heap;
  int64_t* values = stack;
  const size_t n = sizes ? sizes->symbols().size() : 0;
  if (n > 64) {
    heap.resize(n);
    values = heap.data();
  }
  const auto size_at = [&](const Place& p) { return args[p.leaf].tensor->desc.sizes[p.dim]; };
  for (const Place& p : binds) values[p.symbol] = size_at(p);
  for (const Place& p : equals)
    if (values[p.symbol] != size_at(p)) return false;
  for (const Bounds& b : bounds)
    if (values[b.symbol] < b.min || values[b.symbol] > b.max) return false;
  if (relations.empty()) return true;
  try {
    for (const Assumption& r : relations)
      if (!Sizes::holds(r.relation, sizes->evaluate(r.a, {values, n}), sizes->evaluate(r.b, {values, n}))) return false;
  } catch (const Error&) {
    return false;  // a size expression overflows for these sizes: the graph was not made for them
  }
  return true;
}

// ------------------------------------------------------------------------------------------------------------------ texts

namespace {

std::string quoted(const std::string& s) {
  std::string out = "'";
  for (const char c : s) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

std::string keys_text(const std::string& joined) {
  std::string out = "[";
  size_t at = 0;
  while (at < joined.size()) {
    const size_t end = std::min(joined.find('\n', at), joined.size());
    out += (out.size() > 1 ? ", " : "") + quoted(joined.substr(at, end - at));
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
    case TSR_ARG_INT: return "int";
    case TSR_ARG_FLOAT: return "float";
    case TSR_ARG_BOOL: return "bool";
    case TSR_ARG_STRING: return "str";
    case TSR_ARG_ENUM: return "enum";
    case TSR_ARG_NONE: return "None";
    default: return "container";
  }
}

// The guard on a leaf that is no tensor.
std::string value_text(const Expected& e) {
  switch (e.kind) {
    case TSR_ARG_INT:
    case TSR_ARG_ENUM: return e.path + " == " + std::to_string(e.i);
    case TSR_ARG_BOOL: return e.path + " == " + (e.i ? "True" : "False");
    case TSR_ARG_FLOAT: return e.path + " == " + float_text(e.f);
    case TSR_ARG_STRING: return e.path + " == " + quoted(e.s);
    case TSR_ARG_LENGTH: return "len(" + e.path + ") == " + std::to_string(e.i);
    case TSR_ARG_KEYS: return "list(" + e.path + ".keys()) == " + keys_text(e.s);
    default: return e.path + " is None";
  }
}

bool value_equal(const Expected& e, const tsr_arg& a) {
  switch (e.kind) {
    case TSR_ARG_FLOAT: return std::bit_cast<uint64_t>(e.f) == std::bit_cast<uint64_t>(a.f);
    case TSR_ARG_STRING:
    case TSR_ARG_KEYS: return e.s == (a.s ? a.s : "");
    case TSR_ARG_NONE: return true;
    default: return e.i == a.i;
  }
}

std::string device_name(tsr_device id) {
  const Device* d = find_device(id);
  return d ? d->name() : "?";
}

void tensor_mismatches(const Expected& e, const tsr_arg& a, std::vector<std::string>& out) {
  const tsr_tensor& t = a.tensor->desc;
  const std::string head = "tensor '" + e.path + "' ";
  const auto number = [](int64_t x) { return std::to_string(x); };
  const Device *want = find_device(e.device), *have = find_device(t.device);
  if (want && have && want->kind() != have->kind())
    out.push_back(head + "device mismatch. expected " + device_name(e.device) + ", actual " + device_name(t.device));
  if (t.dtype != e.dtype)
    out.push_back(head + "dtype mismatch. expected " + std::string(dtype_display_name(e.dtype)) + ", actual " +
                  std::string(dtype_display_name(t.dtype)));
  if (want && have && want->kind() == have->kind() && want->index() != have->index())
    out.push_back(head + "device index mismatch. expected " + number(want->index()) + ", actual " + number(have->index()));
  if ((a.tensor->requires_grad != 0) != (e.requires_grad != 0))
    out.push_back(head + "requires_grad mismatch. expected requires_grad=" + (e.requires_grad ? "1" : "0"));
  if (t.rank != e.sizes.size()) {
    out.push_back(head + "rank mismatch. expected " + number(static_cast<int64_t>(e.sizes.size())) + ", actual " +
                  number(t.rank));
    return;
  }
  for (uint32_t k = 0; k < t.rank; ++k)
    if (e.symbols[k] < 0 && t.sizes[k] != e.sizes[k])
      out.push_back(head + "size mismatch at index " + number(k) + ". expected " + number(e.sizes[k]) + ", actual " +
                    number(t.sizes[k]));
  const bool dense = t.flags & TSR_TENSOR_CONTIGUOUS;
  if (dense && e.dense) return;
  std::vector<int64_t> strides = e.strides;
  if (e.dense) dense_strides({t.sizes, t.rank}, strides.data());  // of the sizes at hand: they may be symbols
  for (uint32_t k = 0; k < t.rank; ++k)
    if (t.strides[k] != strides[k]) {
      out.push_back(head + "stride mismatch at index " + number(k) + ". expected " + number(strides[k]) + ", actual " +
                    number(t.strides[k]));
    }
}

std::string size_text(const std::vector<Expected>& expected, uint32_t leaf, uint32_t dim) {
  return expected[leaf].path + ".size(" + std::to_string(dim) + ")";
}

std::string relation_text(const Sizes& sizes, const Assumption& r) {
  static const char* const kText[] = {" == ", " != ", " < ", " <= ", " > ", " >= "};
  if (r.relation == TSR_DIVISIBLE) return sizes.print(r.a) + " % " + sizes.print(r.b) + " == 0";
  return sizes.print(r.a) + kText[r.relation] + sizes.print(r.b);
}

void symbolic_mismatches(const std::vector<Expected>& expected, const SymbolicGuards& g, const tsr_arg* args,
                         std::vector<std::string>& out) {
  if (!g.sizes) return;
  std::vector<int64_t> values(g.sizes->symbols().size(), 0);
  for (const auto& p : g.binds) values[p.symbol] = args[p.leaf].tensor->desc.sizes[p.dim];
  const auto first = [&](uint32_t symbol) {
    for (const auto& p : g.binds)
      if (p.symbol == symbol) return size_text(expected, p.leaf, p.dim);
    return std::string("?");
  };
  for (const auto& b : g.bounds) {
    if (values[b.symbol] < b.min)
      out.push_back("tensor '" + expected[b.leaf].path + "' size mismatch at index " + std::to_string(b.dim) +
                    ". expected >= " + std::to_string(b.min) + ", actual " + std::to_string(values[b.symbol]));
    if (values[b.symbol] > b.max)
      out.push_back("tensor '" + expected[b.leaf].path + "' size mismatch at index " + std::to_string(b.dim) +
                    ". expected <= " + std::to_string(b.max) + ", actual " + std::to_string(values[b.symbol]));
  }
  for (const auto& p : g.equals)
    if (args[p.leaf].tensor->desc.sizes[p.dim] != values[p.symbol])
      out.push_back(size_text(expected, p.leaf, p.dim) + " == " + first(p.symbol));
  for (const Assumption& r : g.relations) {
    bool holds = false;
    try {
      holds = Sizes::holds(r.relation, g.sizes->evaluate(r.a, values), g.sizes->evaluate(r.b, values));
    } catch (const Error&) {}
    if (!holds) out.push_back(relation_text(*g.sizes, r) + (r.why.empty() ? "" : "  # " + r.why));
  }
}

}  // namespace

std::vector<std::string> mismatches(const std::vector<Expected>& expected, const SymbolicGuards& symbolic, const tsr_arg* args,
                                    size_t count, bool all) {
  std::vector<std::string> out;
  const auto done = [&] { return !all && !out.empty(); };
  // Leaves only correspond up to the first difference in structure.
  const size_t common = std::min(count, expected.size());
  for (size_t i = 0; i < common; ++i) {
    const Expected& e = expected[i];
    const bool structure = e.kind == TSR_ARG_LENGTH || e.kind == TSR_ARG_KEYS;
    if (e.kind == args[i].kind && !(structure && !value_equal(e, args[i]))) continue;
    if (e.kind == args[i].kind || e.kind == TSR_ARG_NONE)
      out.push_back(value_text(e));
    else
      out.push_back("type(" + e.path + ") is " + kind_text(e.kind) + ", actual " + kind_text(args[i].kind));
    return out;
  }
  if (count != expected.size()) {
    out.push_back("number of arguments mismatch. expected " + std::to_string(expected.size()) + ", actual " +
                  std::to_string(count));
    return out;
  }
  for (size_t i = 0; i < count && !done(); ++i)
    if (expected[i].kind != TSR_ARG_TENSOR && !value_equal(expected[i], args[i])) out.push_back(value_text(expected[i]));
  bool ranks = true;
  for (size_t i = 0; i < count && !done(); ++i)
    if (expected[i].kind == TSR_ARG_TENSOR && expected[i].guarded) {
      tensor_mismatches(expected[i], args[i], out);
      ranks = ranks && args[i].tensor->desc.rank == expected[i].sizes.size();
    }
  if (!done() && ranks) symbolic_mismatches(expected, symbolic, args, out);
  if (!all && out.size() > 1) out.resize(1);
  return out;
}

std::vector<std::string> guard_texts(const std::vector<Expected>& expected, const SymbolicGuards& symbolic) {
  std::vector<std::string> out;
  for (const Expected& e : expected) {
    if (e.kind != TSR_ARG_TENSOR) {
      out.push_back(value_text(e));
      continue;
    }
    if (!e.guarded) continue;
    std::string s = "tensor '" + e.path + "': " + std::string(dtype_name(e.dtype)) + "[";
    for (size_t k = 0; k < e.sizes.size(); ++k)
      s +=
          (k ? ", " : "") + (e.symbols[k] < 0 ? std::to_string(e.sizes[k])
                                              : std::string(symbolic.sizes->symbols()[static_cast<size_t>(e.symbols[k])].name));
    s += "]";
    if (!e.dense) {
      s += ", strides [";
      for (size_t k = 0; k < e.strides.size(); ++k) s += (k ? ", " : "") + std::to_string(e.strides[k]);
      s += "]";
    }
    s += ", " + device_name(e.device);
    if (e.requires_grad) s += ", requires_grad=1";
    out.push_back(std::move(s));
  }
  for (const auto& b : symbolic.bounds)
    out.push_back(std::to_string(b.min) + " <= " + size_text(expected, b.leaf, b.dim) +
                  (b.max == INT64_MAX ? "" : " <= " + std::to_string(b.max)));
  for (const auto& p : symbolic.equals)
    for (const auto& q : symbolic.binds)
      if (q.symbol == p.symbol) out.push_back(size_text(expected, p.leaf, p.dim) + " == " + size_text(expected, q.leaf, q.dim));
  for (const Assumption& r : symbolic.relations) out.push_back(relation_text(*symbolic.sizes, r));
  return out;
}

}  // namespace tessera::core
