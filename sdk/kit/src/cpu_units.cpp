// SPDX-License-Identifier: Apache-2.0
// Units of work: what one of them computes, and how many there are.
#include "cpu_writer.hpp"

namespace tessera::kit {

std::vector<uint32_t> KernelWriter::outer_axes() const {
  std::vector<uint32_t> o;
  for (const uint32_t a : k_.parallel)
    if ((a != s_.lane_axis || s_.width == 1) && a != s_.tile_axis) o.push_back(a);
  return o;
}

std::string KernelWriter::product(const std::vector<uint32_t>& axes) {
  Expr e = kOne;
  for (const uint32_t a : axes) e = k_.pool.mul(e, k_.pool.extent(a));
  return expr(e);
}

void KernelWriter::units(Phase phase) {
  const std::vector<uint32_t> outer = outer_axes();
  const bool lanes = parallel_lanes();
  if (phase != Phase::Whole) {
    line("const i64 n_chunks = " + chunk_count(k_.loops[0]) + ", rows = " + product(outer) + ";");
  }
  const bool tiled = s_.tile_axis != kNone;
  if (lanes && outer.empty() && !tiled && !by_rows()) {  // units are neighbours: one run
    const std::string axis = k_.axis_names[s_.lane_axis];
    line("i64 " + axis + " = begin * " + std::to_string(s_.block) + ";");
    line("const i64 stop = min(" + extent(s_.lane_axis) + ", end * " + std::to_string(s_.block) + ");");
    return columns(axis, "stop", phase);
  }
  if (s_.double_buffers) first_copy();
  open("for (i64 unit = begin; unit < end; ++unit) {");
  place_of_unit(phase);
  if (lanes) {
    columns(k_.axis_names[s_.lane_axis], "stop", phase);
  } else {
    rows(phase);
  }
  close();
}

void KernelWriter::place_of_unit(Phase phase) {
  const std::vector<uint32_t> outer = outer_axes();
  const bool lanes = parallel_lanes(), tiled = s_.tile_axis != kNone;
  std::string rest = "unit";
  const auto take = [&](const std::string& what, const std::string& n, bool last) {
    if (last) return line("const i64 " + what + " = " + rest + ";");
    line("const i64 " + what + " = " + rest + " % (" + n + "), " + what + "_rest = " + rest + " / (" + n + ");");
    rest = what + "_rest";
  };
  const std::string block = std::to_string(s_.block);
  const auto n_lane = lanes ? k_.pool.as_number(k_.pool.extent(s_.lane_axis)) : std::nullopt;
  const bool one_block = n_lane && *n_lane <= s_.block;
  if (phase == Phase::Partial) take("chunk", "n_chunks", false);
  if (lanes && !one_block)
    take("block", "(" + extent(s_.lane_axis) + " + " + std::to_string(s_.block - 1) + ") / " + block, false);
  if (phase != Phase::Whole) line("const i64 row = " + rest + ";");
  if (tiled) take("tile", tile_count(), false);
  for (size_t i = outer.size(); i-- > 0;) take(k_.axis_names[outer[i]], extent(outer[i]), i == 0);
  if (outer.empty()) line("(void)" + rest + ";");
  if (tiled) {
    const std::string n = std::to_string(s_.tile_points);
    line("const i64 tile_begin = tile * " + n + ", tile_end = min(" + extent(s_.tile_axis) + ", tile_begin + " + n + ");");
  }
  if (!lanes) return;
  const std::string axis = k_.axis_names[s_.lane_axis];
  line("i64 " + axis + " = " + (one_block ? "0" : "block * " + block) + ";");
  line("const i64 stop = " +
       (one_block ? extent(s_.lane_axis) : "min(" + extent(s_.lane_axis) + ", " + axis + " + " + block + ")") + ";");
}

void KernelWriter::rows(Phase phase) {
  row_pointers();
  for (const Item& i : k_.body) {
    if (!i.is_loop) {
      if (phase != Phase::Partial || k_.insts[i.id].op != Op::Store) {
        // After the loop a partial phase has nothing left to do.
        if (phase == Phase::Partial && depends_on_loop(i.id)) continue;
        inst(i.id, {});
      }
      continue;
    }
    const Loop& l = k_.loops[i.id];
    if (phase == Phase::Partial) return open("{"), partial_loop(l), close();
    const std::vector<uint32_t> rs = reductions(l);
    for (const uint32_t r : rs) line(type(k_.insts[r].type, 1) + " r" + std::to_string(r) + ";");
    const bool either = reads_repeats(l) && !whole_rows_ && !k_.pool.as_number(points(l));
    open(either ? "if (" + expr(points(l)) + " <= " + std::to_string(kRow) + ") {" : "{");
    row(l, phase);
    if (either) {
      close("} else {");
      ++indent_;
      recompute_ = true;
      row(l, phase);
      recompute_ = false;
    }
    close();
    for (const uint32_t r : rs) line("const " + type(k_.insts[r].type, 1) + " " + name(r) + " = r" + std::to_string(r) + ";");
  }
}

void KernelWriter::row(const Loop& l, Phase phase) {
  const std::vector<uint32_t> rs = reductions(l);
  const bool vector =
      s_.lanes_in_loop && s_.width > 1 && std::none_of(rs.begin(), rs.end(), [&](uint32_t r) { return is_arg(k_.insts[r]); });
  if (phase == Phase::Join) {
    join_loop(l);
  } else if (vector && rs.empty()) {
    store_loop(l);
  } else if (vector && l.axes.size() == 1) {
    row_loop(l);
  } else {
    const std::vector<uint8_t> before = varying_;
    std::fill(varying_.begin(), varying_.end(), 0);
    serial_loop(l, {});
    varying_ = before;
  }
  for (const uint32_t r : rs) line("r" + std::to_string(r) + " = " + name(r) + ";");
}

void KernelWriter::plan() {
  open("extern \"C\" void " + k_.name + "_plan(const i64* dims, i64* plan) {");
  symbols("dims");
  const std::vector<uint32_t> outer = outer_axes();
  const bool lanes = parallel_lanes();
  line("const i64 rows = " + product(outer) + ";");
  // Points of a unit: of its lanes and of every loop.
  Expr inner =
      k_.loops.empty() ? kOne : k_.pool.mul(points(k_.loops[0]), k_.pool.number(static_cast<int64_t>(k_.loops.size())));
  std::string grain_points = expr(inner);
  if (s_.split) {
    line("const i64 n_chunks = " + chunk_count(k_.loops[0]) + ";");
    const std::string blocks =
        !lanes ? "1"
               : "((" + extent(s_.lane_axis) + " + " + std::to_string(s_.block - 1) + ") / " + std::to_string(s_.block) + ")";
    line("plan[0] = 8 * rows * n_chunks * " + std::to_string(reductions(k_.loops[0]).size()) +
         (lanes ? " * " + extent(s_.lane_axis) : "") + ";");
    line("plan[1] = rows * n_chunks * " + blocks + ";");
    line("plan[2] = " + std::to_string(lanes ? 1 : kGrainPoints / kOrder.chunk) + ";");
    line("plan[3] = rows * " + blocks + ";");
    line("plan[4] = " + std::string(lanes ? "1" : "64") + ";");
  } else {
    line("plan[0] = 0;");
    const auto whole = [&] {
      if (lanes) {
        const std::string n = extent(s_.lane_axis), b = std::to_string(s_.block);
        const std::string tiles = s_.tile_axis == kNone ? "" : " * (" + tile_count() + ")";
        if (s_.tile_axis != kNone) grain_points = std::to_string(s_.tile_points);
        line("plan[1] = rows * ((" + n + " + " + std::to_string(s_.block - 1) + ") / " + b + ")" + tiles + ";");
        line("plan[2] = max(1, " + std::to_string(kGrainPoints) + " / max(1, min(" + n + ", " + b + ") * (" + grain_points +
             ")));");
      } else {
        line("plan[1] = rows;");
        line("plan[2] = max(1, " + std::to_string(kGrainPoints) + " / max(1, " + grain_points + "));");
      }
    };
    if (s_.double_buffer_bytes) {
      open("if (" + sizes_double_buffer() + ") {");
      with_easy_sizes(whole);
      close("} else {");
      ++indent_;
      whole();
      close();
    } else {
      whole();
    }
    line("plan[3] = 0;");
    line("plan[4] = 1;");
  }
  close();
}

}  // namespace tessera::kit
