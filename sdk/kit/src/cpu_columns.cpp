// SPDX-License-Identifier: Apache-2.0
// Lanes along a parallel axis: columns side by side.
#include "cpu_writer.hpp"

namespace tessera::kit {

std::string KernelWriter::tile_count() {
  const std::string n = std::to_string(s_.tile_points), less = std::to_string(s_.tile_points - 1);
  return "(" + extent(s_.tile_axis) + " + " + less + ") / " + n;
}

void KernelWriter::columns(const std::string& axis, const std::string& stop, Phase phase) {
  if (by_rows()) return columns_by_rows(axis, stop, phase);
  const bool tiled = s_.tile_axis != kNone;
  const auto equal_for_all = [&] {
    for (const Item& i : k_.body)
      if (!i.is_loop && !varying_[i.id] && !after_loop_[i.id] && k_.insts[i.id].op != Op::Store) inst(i.id, {});
  };
  const auto items = [&](const Lanes& lanes) {
    for (const Item& i : k_.body) {
      if (i.is_loop) {
        const Loop& l = k_.loops[i.id];
        const auto rs = reductions(l);
        // Results are seen after the loop; its other names are not.
        for (const uint32_t r : rs) line(type(k_.insts[r].type, varying_[r] ? lanes.n : 1) + " r" + std::to_string(r) + ";");
        open("{");
        serial_loop(l, lanes);
        for (const uint32_t r : rs) line("r" + std::to_string(r) + " = " + name(r) + ";");
        close();
        for (const uint32_t r : rs)
          line("const " + type(k_.insts[r].type, varying_[r] ? lanes.n : 1) + " " + name(r) + " = r" + std::to_string(r) + ";");
      } else if (varying_[i.id] || after_loop_[i.id] || k_.insts[i.id].op == Op::Store) {
        inst(i.id, lanes);
      }
    }
  };
  if (!tiled) equal_for_all();
  const bool whole = divides(k_.pool.extent(s_.lane_axis), s_.width);
  if (!tiled) return lane_range(axis, stop, whole, items);
  const std::string t = k_.axis_names[s_.tile_axis];
  const auto tile = [&](const std::string& from, const Lanes& lanes) {
    open("for (i64 " + t + " = " + from + "; " + t + " < tile_end; ++" + t + ") {");
    equal_for_all();
    items(lanes);
    close();
  };
  const std::vector<uint32_t> transposed = transposed_loads();
  if (transposed.empty()) return lane_range(axis, stop, whole, [&](const Lanes& lanes) { tile("tile_begin", lanes); });
  if (s_.double_buffers)
    return columns_from_copy(axis, stop, transposed.front(), [&] {
      equal_for_all();
      items({s_.width, ""});
    });
  // Whole squares in the order of what is written, then what is left beside them. Where lines come from memory, as many as
  // share a pair of lines that is transposed follow each other, since pairs are fetched together; from a cache they come fast
  // enough twice.
  const std::string w = std::to_string(s_.width);
  int bytes = 4;
  for (const uint32_t id : transposed) bytes = std::min(bytes, static_cast<int>(type_bytes(k_.insts[id].type)));
  const int together = std::max(s_.width, 128 / bytes);
  const std::string group = together == s_.width || !streams_ ? w : "(stream ? " + std::to_string(together) + " : " + w + ")";
  line("const i64 " + axis + "_begin = " + axis + ", " + t + "_end = tile_begin + (tile_end - tile_begin) / " + w + " * " + w +
       ";");
  open("for (i64 " + t + "_1 = tile_begin; " + t + "_1 < " + t + "_end; " + t + "_1 += " + group + ") {");
  open("for (" + axis + " = " + axis + "_begin; " + axis + " + " + w + " <= " + stop + "; " + axis + " += " + w + ") {");
  open("for (i64 " + t + "_0 = " + t + "_1; " + t + "_0 < min(" + t + "_1 + " + group + ", " + t + "_end); " + t +
       "_0 += " + w + ") {");
  transposed_tile(transposed, [&] {
    equal_for_all();
    items({s_.width, ""});
  });
  close();
  close();
  close();
  line(axis + " = " + axis + "_begin;");
  lane_range(axis, stop, whole, [&](const Lanes& lanes) { tile(lanes.count.empty() ? t + "_end" : "tile_begin", lanes); });
}

void KernelWriter::transposed_tile(const std::vector<uint32_t>& transposed, const std::function<void()>& row) {
  const std::string t = k_.axis_names[s_.tile_axis], w = std::to_string(s_.width);
  const auto memory = [&](Type type, const std::string& name) {
    line("alignas(64) " + d_.memory_type(type) + " " + name + "[" + w + " * " + w + "];");
  };
  for (const uint32_t id : transposed) {
    const Inst& x = k_.insts[id];
    const std::string name = "tile" + std::to_string(id), step = expr(k_.pool.affine(x.index, s_.lane_axis)->coefficient);
    memory(x.type, name);
    open("{");
    line("const i64 " + t + " = " + t + "_0;");
    line(d_.transpose(x.type, s_.width, pointer(id), step, name, m_.needs_) + ";");
    prefetch("for (i64 j = 0; j < " + w + "; ++j) ", pointer(id) + " + (" + w + " + j) * (" + step + ")");
    close();
    in_tile_[id] = 1;
  }
  std::vector<uint32_t> stores;
  for (const Item& i : k_.body)
    if (!i.is_loop && waits_in_square(i.id)) stores.push_back(i.id);
  for (const uint32_t id : stores) memory(k_.buffers[k_.insts[id].id].type, "result" + std::to_string(id)), in_tile_[id] = 1;
  std::vector<uint32_t> loads;
  for (const Item& i : k_.body)
    if (!i.is_loop && !in_tile_[i.id] && k_.insts[i.id].op == Op::Load && knows_place(i.id) && contiguous(k_.insts[i.id]))
      loads.push_back(i.id);
  each_row(loads, [&] {
    for (const uint32_t id : loads) prefetch("", pointer(id) + " + " + w);
    row();
  });
  for (const uint32_t id : transposed) in_tile_[id] = 0;
  for (const uint32_t id : stores) in_tile_[id] = 0;
  if (stores.empty()) return;
  each_row(stores, [&] {
    for (const uint32_t id : stores) {
      const Inst& x = k_.insts[id];
      const Type type = k_.buffers[x.id].type;
      const std::string from = d_.load(type, s_.width, in_tile(id), "", m_.needs_);
      line(d_.stream(type, s_.width, pointer(id), from, stream_flag(x.id), m_.needs_) + ";");
    }
  });
}

void KernelWriter::each_row(const std::vector<uint32_t>& walking, const std::function<void()>& row) {
  const std::string t = k_.axis_names[s_.tile_axis], w = std::to_string(s_.width);
  if (k_.insts.size() > kFewInsts) {
    open("for (i64 " + t + " = " + t + "_0; " + t + " < " + t + "_0 + " + w + "; ++" + t + ") {");
    row();
    return close();
  }
  std::vector<std::pair<std::string, std::string>> pointers;  // and their steps
  for (const uint32_t id : walking) {
    const auto step = k_.pool.affine(k_.insts[id].index, s_.tile_axis);
    if (!step || k_.pool.as_number(step->coefficient)) continue;
    const Buffer& b = k_.buffers[k_.insts[id].id];
    pointers.emplace_back("at" + std::to_string(id), expr(step->coefficient));
    line(std::string(b.access == Access::In ? "const " : "") + d_.memory_type(b.type) + "* " + pointers.back().first + ";");
    line("{ const i64 " + t + " = " + t + "_0; " + pointers.back().first + " = " + pointer(id) + "; }");
    by_pointer_[id] = 1;
  }
  for (int i = 0; i < s_.width; ++i) {
    open("{");
    line("const i64 " + t + " = " + t + "_0 + " + std::to_string(i) + ";");
    row();
    if (i + 1 < s_.width)
      for (const auto& [at, step] : pointers) line(d_.advance(at, step));
    close();
  }
  for (const uint32_t id : walking) by_pointer_[id] = 0;
}

bool KernelWriter::knows_place(uint32_t id) const {
  std::vector<uint32_t> values;
  k_.pool.collect(k_.insts[id].index, AtomKind::Value, values);
  return values.empty();
}

bool KernelWriter::waits_in_square(uint32_t id) const {
  const Inst& x = k_.insts[id];
  return x.op == Op::Store && streamed_[id] && k_.buffers[x.id].type != Type::Bool && knows_place(id);
}

std::string KernelWriter::in_tile(uint32_t id) const {
  if (s_.double_buffers) return in_copy(id);
  const std::string axis = k_.axis_names[s_.tile_axis];
  return (k_.insts[id].op == Op::Load ? "tile" : "result") + std::to_string(id) + " + (" + axis + " - " + axis + "_0) * " +
         std::to_string(s_.width);
}

void KernelWriter::prefetch(const std::string& loop, const std::string& address) {
  if (const std::string ask = d_.prefetch(address); !ask.empty()) line(loop + ask + ";");
}

std::vector<uint32_t> KernelWriter::transposed_loads() {
  std::vector<uint32_t> out;
  for (const Item& i : k_.body) {
    if (i.is_loop) continue;
    const Inst& x = k_.insts[i.id];
    if (x.op != Op::Load || x.args[0] != kNone || x.type == Type::Bool || type_bytes(x.type) > 4 || s_.width < 4) continue;
    const auto along = k_.pool.affine(x.index, s_.tile_axis), lanes = k_.pool.affine(x.index, s_.lane_axis);
    if (knows_place(i.id) && along && along->coefficient == kOne && lanes && lanes->coefficient != kZero &&
        lanes->coefficient != kOne)
      out.push_back(i.id);
  }
  return out;
}

bool KernelWriter::by_rows() const {
  if (!s_.row_by_row || k_.loops.size() != 1) return false;
  const std::vector<uint32_t> rs = reductions(k_.loops[0]);
  return !rs.empty() && std::all_of(rs.begin(), rs.end(), [&](uint32_t r) { return varying_[r] && !is_arg(k_.insts[r]); });
}

void KernelWriter::next_row(const Loop& l) {
  for (const Item& i : l.body) {
    if (i.is_loop || k_.insts[i.id].op != Op::Load || !knows_place(i.id) || !contiguous(k_.insts[i.id])) continue;
    const auto row = k_.pool.affine(k_.insts[i.id].index, l.axes[0]);
    if (!row || row->coefficient == kZero) continue;
    prefetch("", pointer(i.id) + " + (" + expr(row->coefficient) + ")");
  }
}

void KernelWriter::columns_by_rows(const std::string& axis, const std::string& stop, Phase phase) {
  const Loop& l = k_.loops[0];
  const std::vector<uint32_t> rs = reductions(l);
  const auto total = k_.pool.as_number(points(l));
  const bool chunked = phase == Phase::Whole && (!total || *total > kOrder.chunk),
             whole = divides(k_.pool.extent(s_.lane_axis), s_.width);
  const std::string vectors = std::to_string(s_.block / s_.width), w = std::to_string(s_.width);
  const std::string g = total ? (*total >= kOrder.long_from ? "32" : "8") : "g";
  const auto items = [&](const Lanes& lanes, bool after) {
    for (const Item& i : k_.body) {
      if (i.is_loop) continue;
      const bool store = k_.insts[i.id].op == Op::Store, late = after_loop_[i.id] || store;
      if (late ? after : varying_[i.id] != 0) inst(i.id, lanes);
    }
  };
  const auto each_vector = [&](const auto& body) {
    open("{");
    line("i64 " + axis + " = first, c = 0;");
    open("for (; " + axis + " + " + w + " <= " + stop + "; " + axis + " += " + w + ", ++c) {");
    body(Lanes{s_.width, ""});
    close();
    if (!whole) {
      open("if (" + axis + " < " + stop + ") {");
      line("const i64 m = " + stop + " - " + axis + ";");
      body(Lanes{s_.width, "m"});
      close();
    }
    close();
  };
  const auto halves = [&](uint32_t r, const std::string& array, const std::string& from) {
    line("for (i64 h = " + from + " / 2; h > 0; h /= 2)");
    line("  for (i64 j = 0; j < h; ++j) " + array + "[j][c] = " + combiner(k_.insts[r], s_.width) + "(" + array + "[j][c], " +
         array + "[j + h][c]);");
  };
  line("const i64 first = " + axis + ";");
  for (const Item& i : k_.body)
    if (!i.is_loop && !varying_[i.id] && !after_loop_[i.id] && k_.insts[i.id].op != Op::Store) inst(i.id, {});
  if (phase == Phase::Join)
    return each_vector([&](const Lanes& lanes) {
      for (uint32_t i = 0; i < rs.size(); ++i) {
        const Inst& x = k_.insts[rs[i]];
        const std::string f = "f" + std::to_string(rs[i]), t = type(reduced_type(x), s_.width), combine = combiner(x, s_.width);
        line(t + " " + f + "[8];");
        line("for (i64 j = 0; j < 8; ++j) " + f + "[j] = " + identity(x, s_.width) + ";");
        open("for (i64 q = 0; q < n_chunks; ++q) {");
        line("const " + t +
             " s = " + d_.load(reduced_type(x), s_.width, partial_row(i, x, "q") + " + " + axis, lanes.count, m_.needs_) + ";");
        line(f + "[q & 7] = q < 8 ? s : " + combine + "(" + f + "[q & 7], s);");
        close();
        line("for (i64 h = 4; h > 0 && n_chunks > 1; h /= 2)");
        line("  for (i64 j = 0; j < h; ++j) " + f + "[j] = " + combine + "(" + f + "[j], " + f + "[j + h]);");
        line("const " + type(x.type, s_.width) + " " + name(rs[i]) + " = " + f + "[0];");
      }
      items(lanes, true);
    });
  line("i64 t = 0" + std::string(chunked ? ", chunks = 0;" : ";"));
  if (!total) line("const i64 g = " + expr(points(l)) + " >= 128 ? 32 : 8;");
  for (const uint32_t r : rs) {
    const std::string v = type(reduced_type(k_.insts[r]), s_.width), a = "a" + std::to_string(r);
    line(v + " " + a + "[" + (total ? g : "32") + "][" + vectors + "];");
    line("for (i64 j = 0; j < " + g + "; ++j)");
    line("  for (i64 c = 0; c < " + vectors + "; ++c) " + a + "[j][c] = " + identity(k_.insts[r], s_.width) + ";");
    if (!chunked) continue;
    line(v + " f" + a + "[8][" + vectors + "];");
  }
  // The running values begin anew if `more` points come.
  const auto close_chunk = [&](const std::string& more) {
    open("for (i64 c = 0; c < " + vectors + "; ++c) {");
    for (const uint32_t r : rs) {
      const std::string a = "a" + std::to_string(r), f = "f" + a + "[chunks & 7][c]";
      halves(r, a, g);
      line(f + " = chunks < 8 ? " + a + "[0][c] : " + combiner(k_.insts[r], s_.width) + "(" + f + ", " + a + "[0][c]);");
      line("for (i64 j = 0; j < " + g + " && " + more + "; ++j) " + a + "[j][c] = " + identity(k_.insts[r], s_.width) + ";");
    }
    close();
    line("++chunks;");
  };
  // One point of the loop into the running value at `slot`.
  const auto point = [&](const Lanes& lanes, const auto& slot) {
    items(lanes, false);
    for (const Item& i : l.body) {
      const Inst& x = k_.insts[i.id];
      if (x.op != Op::Reduce)
        inst(i.id, lanes);
      else
        line(slot(i.id) + " = " + combiner(x, s_.width) + "(" + slot(i.id) + ", " + taken(x, s_.width) + ");");
    }
  };
  const auto array = [](uint32_t r, const std::string& row) { return "a" + std::to_string(r) + "[" + row + "][c]"; };
  const auto put = [&] {
    each_vector([&](const Lanes& lanes) { point(lanes, [&](uint32_t r) { return array(r, "t & (" + g + " - 1)"); }); });
  };
  if (l.axes.size() == 1) {
    // Four points at a time that meet the same running values, which are so read and written a fourth as often.
    const std::string n = extent(l.axes[0]);
    const bool few = l.body.size() <= kFewInsts;
    if (phase == Phase::Partial) {
      line("const i64 c1 = min(" + n + ", chunk * 4096 + 4096);");
      line("i64 c0 = chunk * 4096;");
    } else if (chunked) {
      open("for (i64 c0 = 0; c0 < " + n + " || chunks == 0;) {");
      line("const i64 c1 = min(" + n + ", c0 + 4096);");
    } else {
      line("const i64 c1 = " + n + ";");
      line("i64 c0 = 0;");
    }
    open("for (; c0 + 4 * " + g + " <= c1; c0 += 4 * " + g + ") {");
    open("for (i64 j = 0; j < " + g + "; ++j) {");
    each_vector([&](const Lanes& lanes) {
      for (const uint32_t r : rs)
        line(type(reduced_type(k_.insts[r]), s_.width) + " s" + std::to_string(r) + " = " + array(r, "j") + ";");
      const auto one = [&](const std::string& u) {
        line("const i64 " + k_.axis_names[l.axes[0]] + " = c0 + j + " + u + " * " + g + ";");
        next_row(l);
        point(lanes, [](uint32_t r) { return "s" + std::to_string(r); });
      };
      if (few) {
        for (int u = 0; u < 4; ++u) open("{"), one(std::to_string(u)), close();
      } else {
        open("for (i64 u = 0; u < 4; ++u) {");
        one("u");
        close();
      }
      for (const uint32_t r : rs) line(array(r, "j") + " = s" + std::to_string(r) + ";");
    });
    close();
    close();
    open("for (t = 0; c0 < c1; ++c0, ++t) {");
    line("const i64 " + k_.axis_names[l.axes[0]] + " = c0;");
    put();
    close();
    if (chunked) {
      close_chunk("c0 < " + n);
      close();
    }
  } else {
    for (const uint32_t a : l.axes) {
      const std::string n = k_.axis_names[a];
      open("for (i64 " + n + " = 0; " + n + " < " + extent(a) + "; ++" + n + ") {");
    }
    put();
    line("++t;");
    if (chunked) {
      open("if ((t & 4095) == 0) {");
      close_chunk("true");
      close();
    }
    for (size_t i = 0; i < l.axes.size(); ++i) close();
    if (chunked) {
      open("if ((t & 4095) != 0 || chunks == 0) {");
      close_chunk("false");
      close();
    }
  }
  if (phase == Phase::Partial)
    return each_vector([&](const Lanes& lanes) {
      for (uint32_t i = 0; i < rs.size(); ++i) {
        const std::string a = "a" + std::to_string(rs[i]);
        const Inst& x = k_.insts[rs[i]];
        halves(rs[i], a, g);
        line(d_.store(reduced_type(x), s_.width, partial_row(i, x, "chunk") + " + " + axis, a + "[0][c]", lanes.count,
                      m_.needs_) +
             ";");
      }
    });
  each_vector([&](const Lanes& lanes) {
    for (const uint32_t r : rs) {
      const std::string a = "a" + std::to_string(r);
      if (chunked) {
        open("if (chunks > 1) {");
        line("for (i64 j = chunks; j < 8; ++j) f" + a + "[j][c] = " + identity(k_.insts[r], s_.width) + ";");
        halves(r, "f" + a, "8");
        close();
      } else {
        halves(r, a, g);
      }
      line("const " + type(k_.insts[r].type, s_.width) + " " + name(r) + " = " + (chunked ? "f" : "") + a + "[0][c];");
    }
    items(lanes, true);
  });
}

}  // namespace tessera::kit
