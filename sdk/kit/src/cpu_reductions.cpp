// SPDX-License-Identifier: Apache-2.0
// Reductions: their running values, and loops that take one point at a time; lanes, if any, lie along a parallel axis.
#include "cpu_writer.hpp"

namespace tessera::kit {

std::string KernelWriter::identity(const Inst& x, int lanes) {
  const Type t = reduced_type(x);
  const bool fl = is_float(t);
  uint64_t bits = 0;
  switch (kind(x)) {
    case ReduceKind::Prod: bits = constant_bits(t, int64_t{1}); break;
    case ReduceKind::All: bits = 1; break;
    case ReduceKind::Max:
    case ReduceKind::MaxNumber:
      bits = fl ? constant_bits(t, -__builtin_inf()) : is_unsigned(t) ? 0 : uint64_t{1} << (type_bytes(t) * 8 - 1);
      break;
    case ReduceKind::Min:
      bits = fl ? constant_bits(t, __builtin_inf()) : (~uint64_t{0} >> (64 - type_bytes(t) * 8)) >> (is_unsigned(t) ? 0 : 1);
      break;
    default: break;
  }
  return d_.splat(t, lanes, d_.constant(t, bits), m_.needs_);
}

std::string KernelWriter::combiner(const Inst& x, int lanes) {
  const Type t = reduced_type(x);
  const ReduceKind k = kind(x);
  const std::string v = type(t, lanes);
  const std::string f = std::string(k == ReduceKind::Dot ? "sum" : reduce_name(k)) + "_" + type_name(t) +
                        (lanes == 1 ? "" : "_x" + std::to_string(lanes));
  if (!m_.combiners_.insert(f).second) return f;
  std::string body;
  const std::string args[] = {"a", "b"};
  Inst op;
  op.type = t;
  switch (k) {
    case ReduceKind::Max: body = is_float(t) ? "(a != a) ? a : ((a > b) ? a : b)" : "(a > b) ? a : b"; break;
    case ReduceKind::MaxNumber: body = "(b > a) ? b : a"; break;
    case ReduceKind::Min: body = is_float(t) ? "(a != a) ? a : ((a < b) ? a : b)" : "(a < b) ? a : b"; break;
    default:
      op.op = k == ReduceKind::Prod ? Op::Mul : k == ReduceKind::Any ? Op::Or : k == ReduceKind::All ? Op::And : Op::Add;
      body = d_.instruction(op, t, lanes, args, -1, m_.needs_);
  }
  m_.functions_ += "INLINE " + v + " " + f + "(" + v + " a, " + v + " b) { return " + body + "; }\n";
  return f;
}

std::string KernelWriter::folder(const Inst& x, int lanes) {
  const Type t = reduced_type(x);
  const std::string f = std::string("fold_") + (kind(x) == ReduceKind::Dot ? "sum" : reduce_name(kind(x))) + "_" +
                        type_name(t) + "_x" + std::to_string(lanes);
  if (!m_.combiners_.insert(f).second) return f;
  std::string body, v = "v";
  for (int w = lanes / 2; w > 1; w /= 2) {
    std::string low, high;
    for (int j = 0; j < w; ++j) low += ", " + std::to_string(j), high += ", " + std::to_string(j + w);
    const std::string next = "w" + std::to_string(w);
    const std::string part = "__builtin_shufflevector(" + v + ", " + v;
    body += "  const " + type(t, w) + " " + next + " = " + combiner(x, w) + "(" + part + low + "), " + part + high + "));\n";
    v = next;
  }
  const std::string one = t == Type::Bool ? "(" + v + "[0] != 0, " + v + "[1] != 0)" : "(" + v + "[0], " + v + "[1])";
  const std::string scalar = combiner(x, 1);
  m_.functions_ +=
      "INLINE " + type(t, 1) + " " + f + "(" + type(t, lanes) + " v) {\n" + body + "  return " + scalar + one + ";\n}\n";
  return f;
}

std::vector<uint32_t> KernelWriter::reductions(const Loop& l) const {
  std::vector<uint32_t> r;
  for (const Item& i : l.body)
    if (k_.insts[i.id].op == Op::Reduce) r.push_back(i.id);
  return r;
}

Expr KernelWriter::points(const Loop& l) {
  Expr e = kOne;
  for (const uint32_t a : l.axes) e = k_.pool.mul(e, k_.pool.extent(a));
  return e;
}

std::string KernelWriter::taken(const Inst& x, int lanes) {
  if (kind(x) != ReduceKind::Dot) return ref(x.args[0], lanes);
  return ref(x.args[0], lanes) + " * " + ref(x.args[1], lanes);
}

void KernelWriter::serial_loop(const Loop& l, const Lanes& lanes) {
  const std::vector<uint32_t> rs = reductions(l);
  const auto total = k_.pool.as_number(points(l));
  const bool chunked = !total || *total > kOrder.chunk;
  if (!rs.empty()) {
    line("i64 t = 0" + std::string(chunked ? ", chunks = 0;" : ";"));
    if (!total) line("const i64 g = " + expr(points(l)) + " >= 128 ? 32 : 8;");
  }
  const std::string g = total ? (*total >= kOrder.long_from ? "32" : "8") : "g";
  for (const uint32_t r : rs) {
    const Inst& x = k_.insts[r];
    const int n = varying_[r] ? lanes.n : 1;
    const std::string v = type(reduced_type(x), n), a = "a" + std::to_string(r);
    if (is_arg(x)) {
      line(v + " " + a + " = " + identity(x, n) + ";");
      line(type(Type::I64, n) + " i" + a + " = " + d_.splat(Type::I64, n, "(i64)-1", m_.needs_) + ";");
      continue;
    }
    line(v + " " + a + "[32];");
    line("for (int j = 0; j < 32; ++j) " + a + "[j] = " + identity(x, n) + ";");
    if (chunked) line(v + " f" + a + "[8];"), line("for (int j = 0; j < 8; ++j) f" + a + "[j] = " + identity(x, n) + ";");
  }
  const auto halves = [&](uint32_t r, const std::string& array, const std::string& from) {
    const int n = varying_[r] ? lanes.n : 1;
    line("for (i64 w = " + from + " / 2; w > 0; w /= 2)");
    line("  for (i64 j = 0; j < w; ++j) " + array + "[j] = " + combiner(k_.insts[r], n) + "(" + array + "[j], " + array +
         "[j + w]);");
  };
  const auto close_chunk = [&] {
    for (const uint32_t r : rs) {
      const Inst& x = k_.insts[r];
      if (is_arg(x)) continue;
      const int n = varying_[r] ? lanes.n : 1;
      const std::string a = "a" + std::to_string(r);
      halves(r, a, g);
      line("f" + a + "[chunks & 7] = chunks < 8 ? " + a + "[0] : " + combiner(x, n) + "(f" + a + "[chunks & 7], " + a +
           "[0]);");
      line("for (int j = 0; j < 32; ++j) " + a + "[j] = " + identity(x, n) + ";");
    }
    line("++chunks;");
  };
  for (const uint32_t a : l.axes)
    open("for (i64 " + k_.axis_names[a] + " = 0; " + k_.axis_names[a] + " < " + extent(a) + "; ++" + k_.axis_names[a] + ") {");
  for (const Item& i : l.body) {
    const Inst& x = k_.insts[i.id];
    if (x.op != Op::Reduce) {
      inst(i.id, lanes);
      continue;
    }
    const int n = varying_[i.id] ? lanes.n : 1;
    const std::string a = "a" + std::to_string(i.id);
    if (is_arg(x)) {
      take_arg(i.id, x, n);
      continue;
    }
    const std::string slot = a + "[t & (" + g + " - 1)]";
    line(slot + " = " + combiner(x, n) + "(" + slot + ", " + taken(x, n) + ");");
  }
  if (!rs.empty()) {
    if (chunked) {
      open("if ((++t & 4095) == 0) {");
      close_chunk();
      close();
    } else {
      line("++t;");
    }
  }
  for (size_t i = 0; i < l.axes.size(); ++i) close();
  if (rs.empty()) return;
  if (chunked) {
    open("if ((t & 4095) != 0 || chunks == 0) {");
    close_chunk();
    close();
  }
  for (const uint32_t r : rs) {
    const Inst& x = k_.insts[r];
    const std::string a = "a" + std::to_string(r);
    const std::string t = "const " + type(x.type, varying_[r] ? lanes.n : 1) + " " + name(r) + " = ";
    if (is_arg(x)) {
      line(t + "i" + a + ";");
    } else if (chunked) {
      open("if (chunks > 1) {");
      halves(r, "f" + a, "8");
      close();
      line(t + "f" + a + "[0];");
    } else {
      halves(r, a, g);
      line(t + a + "[0];");
    }
  }
}

void KernelWriter::take_arg(uint32_t r, const Inst& x, int n) {
  const Type t = reduced_type(x);
  const std::string a = "a" + std::to_string(r), v = ref(x.args[0], n), cmp = kind(x) == ReduceKind::ArgMax ? " > " : " < ";
  const std::string m = "m" + std::to_string(r);
  std::string better = "(" + v + cmp + a + ")";
  if (is_float(t)) better = "(" + better + " | ((" + v + " != " + v + ") & (" + a + " == " + a + ")))";
  if (n == 1) {
    line("if (ia" + std::to_string(r) + " < 0 || " + better + ") " + a + " = " + v + ", i" + a + " = t;");
    return;
  }
  const bool wide = type_bytes(t) == 8;
  const std::string i64s = type(Type::I64, n);
  line("const " + i64s + " " + m + " = (i" + a + " < 0) | " +
       (wide ? better : "__builtin_convertvector(" + better + ", " + i64s + ")") + ";");
  line(a + " = " + (wide ? m : "__builtin_convertvector(" + m + ", " + type(Type::I32, n) + ")") + " ? " + v + " : " + a + ";");
  line("i" + a + " = " + m + " ? " + d_.splat(Type::I64, n, "t", m_.needs_) + " : i" + a + ";");
}

}  // namespace tessera::kit
