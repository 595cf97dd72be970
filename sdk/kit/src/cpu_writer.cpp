// SPDX-License-Identifier: Apache-2.0
// What is known before any text is written, and one range function of a kernel.
#include "cpu_writer.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

std::string KernelWriter::run() {
  check();
  if (s_.double_buffers) s_.width = copy_width();
  classify();
  find_kept();
  find_repeats();
  find_halves();
  find_streamed();
  head_ = "// " + k_.name + ": ";
  for (const Buffer& b : k_.buffers) head_ += b.name + (&b == &k_.buffers.back() ? "\n" : ", ");
  out_ = head_;
  range(k_.name, s_.split ? Phase::Partial : Phase::Whole);
  if (s_.split) range(k_.name + "_join", Phase::Join);
  plan();
  return std::move(out_);
}

void KernelWriter::check() {
  for (const Inst& x : k_.insts)
    if (x.op == Op::Second || (x.op == Op::Reduce && (x.id == static_cast<uint32_t>(ReduceKind::Welford) ||
                                                      x.id == static_cast<uint32_t>(ReduceKind::OnlineSoftmax))))
      throw sdk::Error(TSR_BUG, "TSR-K040",
                       "kernel @" + k_.name + ": " +
                           reduce_name(static_cast<ReduceKind>(x.op == Op::Second ? k_.insts[x.args[0]].id : x.id)) +
                           " reductions are not emitted for the CPU",
                       "use max, sum and a second loop");
  for (const Loop& l : k_.loops)
    for (const Item& i : l.body)
      if (i.is_loop) throw sdk::Error(TSR_BUG, "TSR-K040", "kernel @" + k_.name + ": nested loops are not emitted for the CPU");
}

void KernelWriter::classify() {
  after_loop_.assign(k_.insts.size(), 0);
  for (uint32_t i = 0; i < k_.insts.size(); ++i) {
    const Inst& x = k_.insts[i];
    bool after = x.op == Op::Reduce;
    for (const uint32_t a : x.args) after = after || (a != kNone && after_loop_[a]);
    std::vector<uint32_t> values;
    if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) k_.pool.collect(x.index, AtomKind::Value, values);
    for (const uint32_t v : values) after = after || after_loop_[v];
    after_loop_[i] = after;
  }
  if (s_.lane_axis == kNone || s_.width == 1) return;
  for (uint32_t i = 0; i < k_.insts.size(); ++i) {
    const Inst& x = k_.insts[i];
    bool v = false;
    for (const uint32_t a : x.args) v = v || (a != kNone && varying_[a]);
    if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) v = v || index_varies(x.index);
    if (x.op == Op::Reduce && s_.lanes_in_loop) v = false;  // after its loop it is one value
    varying_[i] = v;
  }
}

void KernelWriter::find_kept() {
  in_tile_.assign(k_.insts.size(), 0);
  by_pointer_.assign(k_.insts.size(), 0);
  kept_.assign(k_.buffers.size(), 0);
  last_store_.assign(k_.buffers.size(), kNone);
  for (const Loop& l : k_.loops)
    for (const Item& i : l.body)
      if (!i.is_loop && k_.insts[i.id].op == Op::Store) last_store_[k_.insts[i.id].id] = i.id;
  if (!s_.lanes_in_loop || s_.width == 1 || s_.split || k_.loops.empty() || k_.loops[0].axes.size() != 1) return;
  const auto n = k_.pool.as_number(points(k_.loops[0]));
  if (n && *n > kRow) return;
  int64_t bytes = 0;
  for (uint32_t b = 0; b < k_.buffers.size(); ++b) {
    if (k_.buffers[b].access != Access::Out) continue;
    bool loaded = false, fits = true;
    for (const Inst& x : k_.insts) {
      if ((x.op != Op::Load && x.op != Op::Store) || x.id != b) continue;
      loaded = loaded || x.op == Op::Load;
      fits = fits && contiguous(x) && x.args[x.op == Op::Load ? 0 : 1] == kNone && last_store_[b] != kNone &&
             x.index == k_.insts[last_store_[b]].index;
    }
    bytes += kRow * type_bytes(k_.buffers[b].type);
    if (loaded && fits && bytes <= kRowBytes) kept_[b] = 1;
  }
}

bool KernelWriter::in_row(uint32_t id) const {
  const Inst& x = k_.insts[id];
  return kept_[x.id] && (x.op == Op::Load || last_store_[x.id] != id);
}

void KernelWriter::find_streamed() {
  streamed_.assign(k_.insts.size(), 0);
  if (s_.lane_axis == kNone || s_.width == 1 || (parallel_lanes() && !k_.loops.empty())) return;
  for (uint32_t id = 0; id < k_.insts.size(); ++id) {
    const Inst& x = k_.insts[id];
    if (x.op != Op::Store || k_.buffers[x.id].access != Access::Out || x.args[1] != kNone || !contiguous(x)) continue;
    const bool loaded =
        std::any_of(k_.insts.begin(), k_.insts.end(), [&](const Inst& y) { return y.op == Op::Load && y.id == x.id; });
    streamed_[id] = !loaded || (kept_[x.id] && last_store_[x.id] == id);
  }
  // Only what stays in the caches is double-buffered.
  streams_ = !s_.double_buffers && std::any_of(streamed_.begin(), streamed_.end(), [](uint8_t x) { return x != 0; });
}

bool KernelWriter::index_varies(Expr e) const {
  if (k_.pool.uses(e, AtomKind::Axis, s_.lane_axis)) return true;
  std::vector<uint32_t> values;
  k_.pool.collect(e, AtomKind::Value, values);
  return std::any_of(values.begin(), values.end(), [&](uint32_t v) { return varying_[v] != 0; });
}

void KernelWriter::symbols(const std::string& from) {
  for (uint32_t i = 0; i < k_.symbols.size(); ++i)
    line("const i64 " + symbol_name(i) + " = " + from + "[" + std::to_string(i) + "]; (void)" + symbol_name(i) + ";");
}

std::string KernelWriter::easy_sizes() { return s_.double_buffer_bytes ? sizes_double_buffer() : rows_are_whole(); }

void KernelWriter::with_easy_sizes(const std::function<void()>& text) {
  const Schedule s = s_;
  const bool streams = streams_;
  if (s_.double_buffer_bytes) {
    s_ = double_buffered(s);
    s_.width = copy_width();
    streams_ = false;
  } else {
    whole_rows_ = true;
  }
  text();
  s_ = s;
  streams_ = streams;
  whole_rows_ = false;
  said_ = kNone;
}

void KernelWriter::range(const std::string& function, Phase phase) {
  const std::string easy = phase == Phase::Whole ? easy_sizes() : "",
                    arguments = "(const tsr_kernel_args* a, i64 begin, i64 end) {";
  // A function of its own: registers are handed out per function, and the other way takes many.
  if (!easy.empty())
    with_easy_sizes([&] {
      open("static __attribute__((noinline)) void " + function + "_easy" + arguments);
      symbols("a->dims");
      range_body(phase);
      close();
    });
  open("extern \"C\" void " + function + arguments);
  symbols("a->dims");
  if (!easy.empty()) line("if (" + easy + ") return " + function + "_easy(a, begin, end);");
  range_body(phase);
  close();
}

void KernelWriter::range_body(Phase phase) {
  for (size_t i = 0; i < k_.buffers.size(); ++i) {
    const Buffer& b = k_.buffers[i];
    const std::string t = std::string(b.access == Access::In ? "const " : "") + d_.memory_type(b.type) + "*";
    line(t + " const b_" + b.name + " = (" + t + ")a->buffers[" + std::to_string(i) + "]; (void)b_" + b.name + ";");
  }
  bool faults = false;
  for (const Inst& x : k_.insts) faults = faults || x.op == Op::Check;
  if (faults) line("unsigned faults = 0;");
  if (streams_) line("const i64 stream = a->stream;");
  row_memory();
  units(phase);
  if (streams_) line(d_.stream_fence("stream", m_.needs_) + ";");
  if (faults) line("if (faults) __atomic_fetch_or(a->faults, faults, __ATOMIC_RELAXED);");
}

void ModuleText::add(Kernel& k, const Schedule& s) { kernels_ += KernelWriter(*this, k, s).run(); }

std::string ModuleText::text() const { return dialect_.prelude(needs_) + functions_ + kernels_; }

}  // namespace tessera::kit
