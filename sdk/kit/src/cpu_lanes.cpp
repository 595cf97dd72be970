// SPDX-License-Identifier: Apache-2.0
// Loops whose innermost axis runs along the lanes.
#include "cpu_writer.hpp"

namespace tessera::kit {

void KernelWriter::body_of(const Loop& l, const Lanes& lanes) {
  for (const Item& i : l.body)
    if (k_.insts[i.id].op != Op::Reduce) inst(i.id, lanes);
}

void KernelWriter::store_loop(const Loop& l) {
  const std::string axis = k_.axis_names[s_.lane_axis], n = extent(s_.lane_axis);
  for (size_t i = 0; i + 1 < l.axes.size(); ++i)
    open("for (i64 " + k_.axis_names[l.axes[i]] + " = 0; " + k_.axis_names[l.axes[i]] + " < " + extent(l.axes[i]) + "; ++" +
         k_.axis_names[l.axes[i]] + ") {");
  line("i64 " + axis + " = 0;");
  const bool whole = whole_rows_ || divides(k_.pool.extent(s_.lane_axis), s_.width);
  lane_range(axis, n, whole, [&](const Lanes& lanes) { body_of(l, lanes); });
  for (size_t i = 0; i + 1 < l.axes.size(); ++i) close();
}

std::string KernelWriter::rows_are_whole() {
  if (!s_.lanes_in_loop || s_.width == 1 || s_.split) return {};
  std::vector<Expr> lengths;
  for (const Loop& l : k_.loops) {
    if (l.axes.size() != 1) return {};
    const Expr n = points(l);
    if (k_.pool.as_number(n)) return {};
    if (std::find(lengths.begin(), lengths.end(), n) == lengths.end()) lengths.push_back(n);
  }
  std::string all;
  for (const Expr n : lengths)
    all += (all.empty() ? "" : " && ") + expr(n) + " >= " + std::to_string(kOrder.long_from) + " && " + expr(n) +
           " <= " + std::to_string(kOrder.chunk) + " && (" + expr(n) + ") % " +
           std::to_string(std::max<int64_t>(s_.width, kOrder.long_lanes)) + " == 0";
  return all;
}

void KernelWriter::row_chunk(const Loop& l, const std::string& c0, const std::string& c1, int group, bool whole) {
  const std::vector<uint32_t> rs = reductions(l);
  const int w = std::min(s_.width, group), copies = group / w;
  const std::string axis = k_.axis_names[s_.lane_axis];
  const auto acc = [&](uint32_t r, int c) { return "a" + std::to_string(r) + "_" + std::to_string(c); };
  for (const uint32_t r : rs) {
    const Inst& x = k_.insts[r];
    for (int c = 0; c < copies; ++c) line(type(reduced_type(x), w) + " " + acc(r, c) + " = " + identity(x, w) + ";");
  }
  line("i64 " + axis + " = " + c0 + ";");
  open("for (; " + axis + " + " + std::to_string(group) + " <= " + c1 + ";) {");
  for (int c = 0; c < copies; ++c) {
    open("{");
    body_of(l, {w, ""});
    for (const uint32_t r : rs)
      line(acc(r, c) + " = " + combiner(k_.insts[r], w) + "(" + acc(r, c) + ", " + taken(k_.insts[r], w) + ");");
    close();
    line(axis + " += " + std::to_string(w) + ";");
  }
  close();
  if (!whole) {
    open("if (" + axis + " < " + c1 + ") {");
    for (const uint32_t r : rs) {
      std::string list;
      for (int c = 0; c < copies; ++c) list += (c ? ", " : "") + acc(r, c);
      line(type(reduced_type(k_.insts[r]), w) + " b" + std::to_string(r) + "[" + std::to_string(copies) + "] = {" + list +
           "};");
    }
    open("for (int c = 0; " + axis + " < " + c1 + "; ++c, " + axis + " += " + std::to_string(w) + ") {");
    line("const i64 m = min(" + std::to_string(w) + ", " + c1 + " - " + axis + ");");
    std::string iota;
    for (int j = 0; j < w; ++j) iota += (j ? ", " : "") + std::to_string(j);
    const std::string mask = type(Type::Bool, w);
    if (w > 1) line("const " + mask + " alive = " + mask + "{" + iota + "} < (int)m;");
    body_of(l, {w, "m"});
    for (const uint32_t r : rs) {
      const std::string b = "b" + std::to_string(r) + "[c]";
      const std::string combined = combiner(k_.insts[r], w) + "(" + b + ", " + taken(k_.insts[r], w) + ")";
      Inst sel;
      sel.op = Op::Select;
      sel.type = reduced_type(k_.insts[r]);
      const std::string args[] = {"alive", combined, b};
      line(b + " = " + (w > 1 ? d_.instruction(sel, Type::Bool, w, args, -1, m_.needs_) : combined) + ";");
    }
    close();
    for (const uint32_t r : rs)
      for (int c = 0; c < copies; ++c) line(acc(r, c) + " = b" + std::to_string(r) + "[" + std::to_string(c) + "];");
    close();
  }
  for (const uint32_t r : rs) {
    const Inst& x = k_.insts[r];
    for (int h = copies / 2; h > 0; h /= 2)
      for (int c = 0; c < h; ++c) line(acc(r, c) + " = " + combiner(x, w) + "(" + acc(r, c) + ", " + acc(r, c + h) + ");");
    line("s" + std::to_string(r) + " = " + (w > 1 ? folder(x, w) + "(" + acc(r, 0) + ")" : acc(r, 0)) + ";");
  }
}

void KernelWriter::declare_results(const std::vector<uint32_t>& rs) {
  for (const uint32_t r : rs) line(type(reduced_type(k_.insts[r]), 1) + " s" + std::to_string(r) + ";");
}

void KernelWriter::row_by_length(const Loop& l, const std::string& c0, const std::string& c1,
                                 const std::optional<int64_t>& total, bool chunks_are_long) {
  if (total) {
    const int group = static_cast<int>(*total >= kOrder.long_from ? kOrder.long_lanes : kOrder.short_lanes);
    return row_chunk(l, c0, c1, group, *total % group == 0);
  }
  if (chunks_are_long) return row_chunk(l, c0, c1, static_cast<int>(kOrder.long_lanes), false);
  open("if (" + expr(points(l)) + " >= 128) {");
  row_chunk(l, c0, c1, static_cast<int>(kOrder.long_lanes), false);
  close("} else {");
  ++indent_;
  row_chunk(l, c0, c1, static_cast<int>(kOrder.short_lanes), false);
  close();
}

void KernelWriter::row_loop(const Loop& l) {
  const std::vector<uint32_t> rs = reductions(l);
  const auto total = k_.pool.as_number(points(l));
  const std::string n = expr(points(l));
  if (whole_rows_ || (total && *total <= kOrder.chunk)) {
    declare_results(rs);
    open("{");
    if (whole_rows_)
      row_chunk(l, "0", n, static_cast<int>(kOrder.long_lanes), true);
    else
      row_by_length(l, "0", n, total, false);
    close();
  } else {
    declare_results(rs);
    for (const uint32_t r : rs) line(type(reduced_type(k_.insts[r]), 1) + " f" + std::to_string(r) + "[8];");
    line("i64 chunks = 0;");
    open("for (i64 c0 = 0; c0 < " + n + " || c0 == 0; c0 += 4096, ++chunks) {");
    line("const i64 c1 = min(c0 + 4096, " + n + ");");
    row_by_length(l, "c0", "c1", total, false);
    line("if (c1 == " + n + " && chunks == 0) continue;");  // the only one, which stays in a register
    for (const uint32_t r : rs) {
      const std::string f = "f" + std::to_string(r) + "[chunks & 7]", s = "s" + std::to_string(r);
      line(f + " = chunks < 8 ? " + s + " : " + combiner(k_.insts[r], 1) + "(" + f + ", " + s + ");");
    }
    close();
    fold_chunks(rs);
  }
  for (const uint32_t r : rs) line("const " + type(k_.insts[r].type, 1) + " " + name(r) + " = s" + std::to_string(r) + ";");
}

void KernelWriter::fold_chunks(const std::vector<uint32_t>& rs) {
  open("if (chunks > 1) {");
  for (const uint32_t r : rs) {
    const std::string f = "f" + std::to_string(r);
    line("for (i64 j = chunks; j < 8; ++j) " + f + "[j] = " + identity(k_.insts[r], 1) + ";");
    line("for (int w = 4; w > 0; w /= 2)");
    line("  for (int j = 0; j < w; ++j) " + f + "[j] = " + combiner(k_.insts[r], 1) + "(" + f + "[j], " + f + "[j + w]);");
  }
  for (const uint32_t r : rs) line("s" + std::to_string(r) + " = f" + std::to_string(r) + "[0];");
  close();
}

}  // namespace tessera::kit
