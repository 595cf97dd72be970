// SPDX-License-Identifier: Apache-2.0
// Which form a kernel has, and the numbers of its schedule: by an analytic model of the device, or by a search around it.
#include <algorithm>
#include <charconv>
#include <set>

#include "build.hpp"
#include "rows.hpp"
#include "tessera/kit/program/verify.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

constexpr int kMostThreads = 1024;
constexpr int64_t kChosenShared = 48 << 10;  // of a block, at most, by the model: more leaves a unit too few blocks
constexpr int64_t kRegistersAside = 24;      // of a thread, for what is computed between those that hold its elements

// Bytes on their way that keep the memory of one unit busy (Little's law): its share of the bandwidth times a latency of about
// 1.25 microseconds under load.
int64_t bytes_in_flight(const GpuDescription& d) { return static_cast<int64_t>(1.25e-6 * d.bandwidth / d.units) + 1; }

int64_t widest(const Kernel& k) {
  int64_t bytes = 1;
  for (const Buffer& b : k.buffers) bytes = std::max<int64_t>(bytes, type_bytes(b.type));
  return bytes;
}
int64_t narrowest(const Kernel& k) {
  int64_t bytes = 8;
  for (const Buffer& b : k.buffers)
    if (k.pool.as_number(b.extent) != 1) bytes = std::min<int64_t>(bytes, type_bytes(b.type));
  return bytes;
}
// Elements of `axes`; nothing where a symbol says how many.
std::optional<int64_t> points(Kernel& k, const std::vector<uint32_t>& axes) {
  Expr n = kOne;
  for (const uint32_t a : axes) n = k.pool.mul(n, k.pool.extent(a));
  return k.pool.as_number(n);
}
int64_t multiple_of(Kernel& k, Expr e, const SimtAssume& a) {
  Program p;  // for its divisibility alone
  for (size_t i = 0; i < k.symbols.size(); ++i)
    p.add_symbol(k.symbols[i].name, k.symbols[i].min, i < a.multiples.size() ? a.multiples[i] : 1);
  p.pool = k.pool;
  int64_t n = 64;
  while (n > 1 && !p.divisible(e, n)) n /= 2;
  return n;
}

bool reads_transposed(Kernel& k, const std::vector<AxisGroup>& groups) {
  for (size_t g = 0; g + 1 < groups.size(); ++g)
    for (const Inst& x : k.insts) {
      if (!contiguous_load(k, x, groups[g].inner)) continue;
      const auto a = k.pool.affine(x.index, groups.back().inner);
      if (a && a->coefficient != kZero && a->coefficient != kOne) return true;
    }
  return false;
}

bool is_product(const Kernel& k) {
  return std::any_of(k.insts.begin(), k.insts.end(),
                     [](const Inst& x) { return x.op == Op::Reduce && static_cast<ReduceKind>(x.id) == ReduceKind::Dot; });
}
// Reductions over a few points that do not lie side by side, as the windows of a pool.
bool of_one_thread(Kernel& k) {
  if (k.loops[0].across) return false;
  constexpr int64_t kFew = 64;
  const auto n = points(k, k.loops[0].axes);
  if (!n || *n > kFew) return false;
  for (const Inst& x : k.insts)
    if (contiguous_load(k, x, k.loops[0].axes.back())) return false;
  return true;
}

// A reduction along rows that do not lie side by side in memory, where what it reads of neighbouring rows does, and those are
// enough for the lanes of a wave.
bool reads_columns(Kernel& k) {
  constexpr int64_t kFew = 32;
  if (k.loops.size() != 1 || k.loops[0].across) return false;
  const std::vector<AxisGroup> columns = collapse(k, k.parallel);
  if (columns.empty() || k.pool.as_number(columns.back().extent).value_or(kFew) < kFew) return false;
  bool found = false;
  for (const Item& item : k.loops[0].body) {
    const Inst& x = k.insts[item.id];
    if (item.is_loop || (x.op == Op::Reduce && !plain_reduction(k, item.id))) return false;
    if (contiguous_load(k, x, k.loops[0].axes.back())) return false;
    found = found || contiguous_load(k, x, columns.back().inner);
  }
  return found;
}

SimtForm form_of(Kernel& k, const SimtOrder& o) {
  if (is_product(k)) return SimtForm::Product;
  if (!k.loops.empty() && of_one_thread(k)) return SimtForm::Generic;
  if (k.loops.empty()) return reads_transposed(k, collapse(k, k.parallel)) ? SimtForm::Transpose : SimtForm::Pointwise;
  if (few_rows(k, o) && !reads_transposed(k, collapse(k, k.parallel))) return SimtForm::Pointwise;
  return k.loops[0].across || reads_columns(k) ? SimtForm::Columns : SimtForm::Rows;
}

SimtSchedule pointwise(Kernel& k, const GpuDescription& d, const SimtAssume& a) {
  SimtSchedule s;
  const std::vector<AxisGroup> groups = collapse(k, k.parallel);
  if (groups.empty()) no_program("it has one point");
  const int64_t bytes = narrowest(k);
  s.vector = static_cast<int>(std::min<int64_t>(16 / bytes, multiple_of(k, groups.back().extent, a)));
  s.threads = 256;
  if (!k.loops.empty()) {  // all rows of a column are in flight; what they hold leaves registers for a second block on a unit
    constexpr int64_t kHeld = 256;
    int64_t held = 0;
    for (const Item& item : k.loops[0].body)
      if (!item.is_loop && contiguous_load(k, k.insts[item.id], groups.back().inner)) held += type_bytes(k.insts[item.id].type);
    held *= points(k, k.loops[0].axes).value_or(1);
    s.unroll = 1;
    while (s.vector > 1 && s.vector * held > kHeld) s.vector /= 2;
    return s;
  }
  // All threads that a unit runs together load what keeps its memory busy; two vectors at least hide the loads of one behind
  // the other.
  const int64_t together = int64_t{d.max_waves} * d.wave;
  const int64_t want = bytes_in_flight(d) / std::max<int64_t>(1, together * s.vector * bytes);
  s.unroll = want >= 2 ? 4 : 2;
  // Of a point that reads as much elsewhere, one vector has them.
  constexpr int64_t kMany = 4;
  const int64_t loads =
      std::count_if(k.insts.begin(), k.insts.end(), [&](const Inst& x) { return contiguous_load(k, x, groups.back().inner); });
  if (loads >= kMany && want < 2) s.unroll = 1;
  if (const auto n = points(k, k.parallel))  // enough blocks for every unit
    while (s.unroll > 1 && *n < int64_t{8} * d.units * s.threads * s.vector * s.unroll) s.unroll /= 2;
  return s;
}

SimtSchedule transpose(Kernel& k, const SimtAssume& a) {
  SimtSchedule s;
  s.form = SimtForm::Transpose;
  const int64_t bytes = narrowest(k);
  s.tile = 64;
  s.vector = static_cast<int>(std::min<int64_t>({16 / widest(k), multiple_of(k, collapse(k, k.parallel).back().extent, a)}));
  s.threads = bytes <= 2 ? 512 : 256;
  while (s.threads > 32 && (s.threads * s.vector > s.tile * s.tile || s.threads * (16 / bytes) > s.tile * s.tile))
    s.threads /= 2;
  return s;
}

// Bytes that the loops read of an element of each row, whichever loops they are, or of a column, for all rows.
int64_t bytes_of_a_row(Kernel& k, int64_t columns, bool of_columns = false) {
  std::set<uint32_t> read;
  for (const Loop& l : k.loops)
    for (const Item& item : l.body) {
      const Inst& x = k.insts[item.id];
      if (!item.is_loop && contiguous_load(k, x, l.axes.back()) &&
          (k.pool.as_number(k.buffers[x.id].extent) == columns) == of_columns)
        read.insert(x.id);
    }
  int64_t bytes = 0;
  for (const uint32_t buffer : read) bytes += type_bytes(k.buffers[buffer].type);
  return bytes;
}

SimtSchedule rows(Kernel& k, const GpuDescription& d, const SimtOrder& o) {
  SimtSchedule s;
  s.form = SimtForm::Rows;
  s.vector = SimtOrder::kVector;
  const auto n = points(k, k.loops[0].axes);
  const int64_t chunks = !n ? 4 : o.interleaved ? 8 : std::max<int64_t>(1, (*n + o.chunk() - 1) / o.chunk());
  // Elements of a thread: 32 hide the loads of a row; with several loops they stay in registers, and more of them leave less
  // room for waves.
  const int64_t elements = n ? *n : 4096;
  int64_t groups = 1;
  while (groups * 2 <= chunks && groups * 2 * SimtOrder::kThreads <= kMostThreads &&
         elements > groups * SimtOrder::kThreads * 32)
    groups *= 2;
  s.threads = static_cast<int>(groups * SimtOrder::kThreads);
  s.rows = 1;
  while (s.threads * s.rows < std::max(128, d.wave)) s.rows *= 2;
  if (n && k.loops.size() > 1) {
    const int64_t per_thread = (elements + s.threads - 1) / s.threads;
    s.persistent = per_thread * 3 / 2 + kRegistersAside <= d.max_registers * 2 / 3 && per_thread <= d.registers / s.threads / 2;
    const int64_t bytes = bytes_of_a_row(k, elements);
    // A thread that holds much of several tensors leaves room for few blocks: it loads the next row while it computes one,
    // where there are rows enough for all units.
    constexpr int64_t kManyBytes = 256;
    const bool in_turn = s.persistent && points(k, k.parallel).value_or(0) >= int64_t{32} * d.units;
    if (in_turn && bytes > widest(k) && per_thread * bytes >= kManyBytes && s.threads * s.rows <= 128) s.unroll = 4;
    // Weight and bias in f32 are as much to read as the row itself, from a cache: it takes its time while the next row comes.
    const int64_t of_all = bytes_of_a_row(k, elements, true);
    if (in_turn && s.unroll == 1 && per_thread * (bytes + of_all) > kManyBytes && of_all > bytes && s.threads * s.rows <= 256) {
      s.unroll = 4;
      if (s.rows == 1 && s.threads <= 128 && s.threads * 2 <= chunks * SimtOrder::kThreads) s.threads *= 2;
    }
    // Rows that no registers hold are in shared memory: two blocks of a unit, of which one loads while the other computes,
    // where most of a row fits into half of it.
    if (!s.persistent && s.threads == kWholeUnit && elements * bytes * 3 <= shared_share(d, s.threads / 2) * 4) s.threads /= 2;
  }
  return s;
}

SimtSchedule columns(Kernel& k, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a) {
  SimtSchedule s;
  s.form = SimtForm::Columns;
  s.threads = 0;  // a group for each run of a block of rows
  const std::vector<AxisGroup> groups = collapse(k, k.parallel);
  s.vector = groups.size() == 1 ? static_cast<int>(std::min<int64_t>(16 / widest(k), multiple_of(k, groups[0].extent, a))) : 1;
  if (narrowest(k) == 2 && groups.size() == 1)
    s.vector = static_cast<int>(std::min<int64_t>(8, multiple_of(k, groups[0].extent, a)));
  s.unroll = 8;
  if (k.loops[0].across) {
    if (groups.size() != 1) return s;
    // What several rows in flight hold of all that is read must leave registers for a second block on a unit.
    constexpr int64_t kHeld = 256;
    int64_t bytes = 0;  // of a point
    for (const Item& item : k.loops[0].body)
      if (!item.is_loop && contiguous_load(k, k.insts[item.id], groups[0].inner)) bytes += type_bytes(k.insts[item.id].type);
    while (s.unroll > 2 && s.unroll * s.vector * bytes > kHeld) s.unroll /= 2;
    return s;
  }
  // Chunks are fixed: fewer columns of a block where it takes them to give every unit two blocks.
  const auto n = points(k, k.parallel), rows = points(k, k.loops[0].axes);
  if (n && rows)
    while (s.vector > 1 && *n / (32 * s.vector) * ((*rows + o.chunk() - 1) / o.chunk()) < int64_t{2} * d.units) s.vector /= 2;
  return s;
}

// Rows of which blocks must share each one, if every unit is to have work.
bool splits(Kernel& k, const GpuDescription& d) {
  constexpr int64_t kLong = 32768;
  if (k.loops.size() != 1) return false;
  const auto rows = points(k, k.parallel), n = points(k, k.loops[0].axes);
  return rows && n && *rows * 2 <= d.units && *n >= kLong;
}
SimtSchedule split() {
  SimtSchedule s;
  s.form = SimtForm::Split;
  s.vector = SimtOrder::kVector;
  s.unroll = 2;
  return s;
}

Type factors_of(const Kernel& k) {
  Type type = Type::None;
  for (uint32_t i = 0; i < k.insts.size(); ++i)
    if (k.insts[i].op == Op::Reduce && static_cast<ReduceKind>(k.insts[i].id) == ReduceKind::Dot) type = matrix_factors(k, i);
  return type;
}

SimtSchedule group(int columns, bool copies) {
  SimtSchedule s;
  s.form = SimtForm::Group;
  s.tile = columns == 64 ? 64 : 128, s.rows = columns / 8, s.unroll = 64, s.threads = s.tile * 2;
  s.vector = copies ? 3 : 1;
  return s;
}

SimtSchedule product(Kernel& k, const GpuDescription& d) {
  SimtSchedule s;
  s.form = SimtForm::Product;
  const ProductSize n = product_size(k);
  constexpr int64_t kSmall = 16;
  // A tile that is mostly beyond the ends computes more than threads of their own do.
  for (const auto& side : {n.rows, n.columns, n.depth})
    if (side && *side < kSmall) return generic_schedule(d);
  if (d.mma && factors_of(k) != Type::None) {
    s.form = SimtForm::Matrix;
    const auto tiles = [&](int64_t high, int64_t wide) {
      const int64_t rows = n.rows.value_or(4096), columns = n.columns.value_or(4096);
      return n.batch.value_or(1) * ((rows + high - 1) / high) * ((columns + wide - 1) / wide);
    };
    if (d.mma_group) return group(tiles(128, 128) * 4 >= d.units * 3 ? 128 : 64, d.copies);
    s.tile = tiles(128, 128) >= d.units ? 128 : 64;
    s.rows = s.tile / 2, s.unroll = 32, s.threads = s.tile / s.rows * (s.tile / 32) * 32;
    return s;
  }
  // The largest tile of which every unit gets one; a larger one loads less for each product.
  s.tile = 128, s.rows = 8, s.vector = 8, s.unroll = 8;
  const auto blocks = [&](int64_t tile) {
    const int64_t rows = n.rows.value_or(4096), columns = n.columns.value_or(4096);
    return n.batch.value_or(1) * ((rows + tile - 1) / tile) * ((columns + tile - 1) / tile);
  };
  if (blocks(128) < d.units) s.tile = 64, s.rows = 4, s.vector = 4, s.unroll = 16;
  if (blocks(64) < d.units && d.wave <= 32) s.tile = 32, s.rows = 2, s.vector = 2;
  bool wide = false;
  for (const Inst& x : k.insts) wide = wide || x.type == Type::F64 || x.type == Type::I64 || x.type == Type::U64;
  if (wide && s.tile == 128) s.tile = 64, s.rows = 4, s.vector = 4;
  s.threads = s.tile / s.rows * (s.tile / s.vector);
  return s;
}

}  // namespace

const char* form_name(SimtForm f) {
  static constexpr const char* names[kNumSimtForms] = {"pointwise", "transpose", "rows",   "columns", "norm_backward",
                                                       "generic",   "product",   "matrix", "group",   "split"};
  return names[static_cast<int>(f)];
}

std::string to_text(const SimtSchedule& s) {
  return std::string(form_name(s.form)) + " threads " + std::to_string(s.threads) + " rows " + std::to_string(s.rows) +
         " vector " + std::to_string(s.vector) + " unroll " + std::to_string(s.unroll) + " tile " + std::to_string(s.tile) +
         " persistent " + std::to_string(s.persistent ? 1 : 0);
}

std::optional<SimtSchedule> parse_simt_schedule(std::string_view text) {
  SimtSchedule s;
  const auto word = [&] {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view w = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return w;
  };
  bool ok = false;
  const std::string_view form = word();
  for (int f = 0; f < kNumSimtForms; ++f)
    if (form == form_name(static_cast<SimtForm>(f))) s.form = static_cast<SimtForm>(f), ok = true;
  int persistent = 0;
  for (const auto& [name, value] : {std::pair<std::string_view, int*>{"threads", &s.threads},
                                    {"rows", &s.rows},
                                    {"vector", &s.vector},
                                    {"unroll", &s.unroll},
                                    {"tile", &s.tile},
                                    {"persistent", &persistent}}) {
    ok = ok && word() == name;
    const std::string_view number = word();
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *value);
    ok = ok && error == std::errc() && end == number.data() + number.size() && *value >= 0 && *value <= 65536;
  }
  s.persistent = persistent == 1;
  if (!ok || !text.empty() || persistent > 1) return std::nullopt;
  return s;
}

SimtSchedule generic_schedule(const GpuDescription& device) {
  SimtSchedule s;
  s.form = SimtForm::Generic;
  s.threads = std::max(128, device.wave);
  return s;
}

SimtSchedule choose_simt(Kernel& k, const GpuDescription& device, const SimtOrder& order, const SimtAssume& assume) {
  SimtSchedule s = generic_schedule(device);
  try {
    switch (form_of(k, order)) {
      case SimtForm::Transpose: s = transpose(k, assume); break;
      case SimtForm::Rows: s = splits(k, device) ? split() : rows(k, device, order); break;
      case SimtForm::Columns: s = columns(k, device, order, assume); break;
      case SimtForm::Product: s = product(k, device); break;
      case SimtForm::Generic: break;
      default: s = pointwise(k, device, assume);
    }
  } catch (const sdk::Error& e) {
    if (e.code != "TSR-K041") throw;
  }
  // What does not fit falls back to less: first fewer registers, then a tile less.
  for (;;) {
    try {
      Program p = make_program(k, s, device, order, assume);
      // Rows in shared memory, and tiles that fill a unit's by themselves.
      const bool keeps = (s.form == SimtForm::Rows && s.threads * s.rows * 2 >= kWholeUnit) || s.form == SimtForm::Group;
      for (size_t l = 0; l < p.launches.size() && !keeps; ++l)
        if (launch_shape(p, l).shared_bytes > kChosenShared) no_program("more shared memory than a block should have");
      return s;
    } catch (const sdk::Error& e) {
      if (e.code != "TSR-K041") throw;
      if (s.form == SimtForm::Rows && s.unroll > 1)
        s.unroll = 1;
      else if (s.form == SimtForm::Group && s.vector > 1)
        s.vector = s.vector > 3 ? 3 : s.vector - 1;
      else if (s.form == SimtForm::Group && s.rows > 8)
        s = group(s.rows * 4, device.copies);
      else if (s.form == SimtForm::Group && s.unroll > 16)
        s.unroll /= 2;
      else if (s.persistent)
        s.persistent = false;
      else if (s.form == SimtForm::Rows && s.rows > 1 && s.threads >= device.wave)
        s.rows = 1;
      else if (s.form == SimtForm::Split)
        s = rows(k, device, order);
      else if (s.form == SimtForm::Columns && !k.loops[0].across && s.vector == 1)
        s = rows(k, device, order);
      else if (s.form == SimtForm::Transpose)
        s = pointwise(k, device, assume);
      else if (s.form == SimtForm::Pointwise && s.vector == 1 && !k.loops.empty())
        s = columns(k, device, order, assume);
      else if (s.vector > 1 && s.form != SimtForm::Rows && s.form != SimtForm::Generic && s.form != SimtForm::Product &&
               s.form != SimtForm::Matrix && s.form != SimtForm::Group)
        s.vector /= 2;
      else if (s.form != SimtForm::Generic)
        s = generic_schedule(device);
      else
        throw;
    }
  }
}

void check_program(Program& p, const GpuDescription& device) {
  if (!device.shuffles) without_shuffles(p);
  try {
    verify(p, device);
  } catch (const sdk::Error& e) {
    // More registers or shared memory than there are is a schedule that does not fit; everything else is a bug.
    if (std::string_view(e.what()).ends_with("(P9)")) no_program(e.what());
    throw;
  }
}

Program make_program(Kernel& k, const SimtSchedule& s, const GpuDescription& device, const SimtOrder& order,
                     const SimtAssume& assume) {
  if (const std::string why = why_absurd(device); !why.empty())
    throw sdk::Error(TSR_USER, "TSR-K051", "the description of '" + device.architecture + "' cannot be: " + why);
  if (s.threads < 0 || s.threads > device.max_threads || s.rows < 1 ||
      s.rows * std::max(1, s.threads) > device.max_threads * 32 || s.vector < 1 || s.vector > 16 || s.unroll < 1 ||
      s.unroll > 64 || s.tile < 8 || s.tile > 128)
    no_program("numbers of a schedule that the device does not run");
  if (s.form != SimtForm::Columns && (s.threads < device.wave && s.threads * s.rows % device.wave != 0))
    no_program("threads that are no whole waves");
  Program p;
  switch (s.form) {
    case SimtForm::Pointwise:
    case SimtForm::Transpose:
      p = s.form == SimtForm::Pointwise ? pointwise_program(k, s, device, order, assume)
                                        : transpose_program(k, s, device, assume);
      break;
    case SimtForm::Rows:
      if (s.threads * s.rows > device.max_threads || s.threads < SimtOrder::kThreads)
        no_program("a block of that many threads");
      p = rows_program(k, s, device, order, assume);
      break;
    case SimtForm::Columns: p = columns_program(k, s, device, order, assume); break;
    case SimtForm::Product: p = product_program(k, s, device, assume); break;
    case SimtForm::Matrix: p = matrix_program(k, s, device, assume); break;
    case SimtForm::Group: p = group_program(k, s, device, assume); break;
    case SimtForm::Split: p = split_program(k, s, device, order, assume); break;
    case SimtForm::Generic: p = generic_program(k, s, device, order, assume); break;
    case SimtForm::NormBackward: no_program("it is one kernel, the backward pass of a norm is two");
  }
  check_program(p, device);
  return p;
}

namespace {

// Schedules that differ in one number, a power of two or a flag; `make` says which of them make a program.
template <class Make>
std::vector<SimtSchedule> around(const SimtSchedule& s, Make make) {
  std::vector<SimtSchedule> all;
  const auto add = [&](SimtSchedule n) {
    if (n == s) return;
    try {
      make(n);
      all.push_back(n);
    } catch (const sdk::Error& e) {
      if (e.code != "TSR-K041") throw;
    }
  };
  const auto both = [&](int SimtSchedule::*number) {
    for (const bool up : {false, true}) {
      SimtSchedule n = s;
      n.*number = up ? s.*number * 2 : s.*number / 2;
      if (n.*number >= 1) add(n);
    }
  };
  if (s.form == SimtForm::Matrix || s.form == SimtForm::Group) {
    SimtSchedule other = group(64, false);
    if (s.form == SimtForm::Group) {
      other.form = SimtForm::Matrix;
      other.tile = 64, other.rows = 32, other.unroll = 32, other.threads = 128;
    }
    add(other);
  }
  if (s.form == SimtForm::Group) {
    for (int SimtSchedule::*number : {&SimtSchedule::tile, &SimtSchedule::rows, &SimtSchedule::unroll})
      for (const bool up : {false, true}) {
        SimtSchedule n = s;
        n.*number = up ? s.*number * 2 : s.*number / 2;
        n.threads = n.tile * 2;
        add(n);
      }
    for (const int steps : {1, 2, 3, 4, 5, 6}) {
      SimtSchedule n = s;
      n.vector = steps;
      add(n);
    }
    return all;
  }
  if (s.form == SimtForm::Matrix) {
    for (int SimtSchedule::*number : {&SimtSchedule::tile, &SimtSchedule::rows, &SimtSchedule::unroll})
      for (const bool up : {false, true}) {
        SimtSchedule n = s;
        n.*number = up ? s.*number * 2 : s.*number / 2;
        if (n.rows < 16 || n.rows > n.tile) continue;
        n.threads = n.tile / n.rows * (n.tile / 32) * 32;  // a wave has 32 columns
        add(n);
      }
    return all;
  }
  if (s.form == SimtForm::Product) {
    for (int SimtSchedule::*number : {&SimtSchedule::tile, &SimtSchedule::rows, &SimtSchedule::vector, &SimtSchedule::unroll})
      for (const bool up : {false, true}) {
        SimtSchedule n = s;
        n.*number = up ? s.*number * 2 : s.*number / 2;
        if (n.*number < 1 || n.rows > n.tile || n.vector > n.tile) continue;
        n.threads = n.tile / n.rows * (n.tile / n.vector);
        add(n);
      }
    return all;
  }
  if (s.form != SimtForm::Columns) both(&SimtSchedule::threads);
  if (s.form == SimtForm::Rows || s.form == SimtForm::NormBackward) both(&SimtSchedule::rows);
  if (s.form != SimtForm::Rows && s.form != SimtForm::NormBackward && s.form != SimtForm::Generic && s.form != SimtForm::Split)
    both(&SimtSchedule::vector);
  if (s.form == SimtForm::Pointwise || s.form == SimtForm::Columns || s.form == SimtForm::NormBackward ||
      s.form == SimtForm::Split)
    both(&SimtSchedule::unroll);
  if (s.form == SimtForm::Rows && s.persistent)  // 2 and more are ways of their own: one may be better where the next is not
    for (const int rows_of_thread : {1, 2, 4, 8}) {
      SimtSchedule n = s;
      n.unroll = rows_of_thread;
      add(n);
    }
  if (s.form == SimtForm::Transpose) both(&SimtSchedule::tile);
  if (s.form == SimtForm::Rows) {
    SimtSchedule n = s;
    n.persistent = !n.persistent;
    n.unroll = 1;
    add(n);
  }
  return all;
}

}  // namespace

std::vector<SimtSchedule> simt_neighbours(Kernel& k, const SimtSchedule& s, const GpuDescription& device,
                                          const SimtOrder& order, const SimtAssume& assume) {
  return around(s, [&](const SimtSchedule& n) { make_program(k, n, device, order, assume); });
}

SimtSchedule choose_norm_backward(Kernel& rows, Kernel&, const GpuDescription& device, const SimtOrder& order) {
  SimtSchedule s;
  s.form = SimtForm::NormBackward;
  s.vector = SimtOrder::kVector;
  const auto n = points(rows, rows.loops[0].axes);
  if (!n) no_program("a row of unknown length does not stay in registers");
  const int64_t chunks = order.interleaved ? 8 : std::max<int64_t>(1, (*n + order.chunk() - 1) / order.chunk());
  // Sums of the columns are in registers beside the row: 16 elements a thread leave room for two blocks more.
  int64_t groups = order.interleaved ? 8 : std::max(1, device.wave / 32);
  while (groups * 2 <= chunks && groups * 2 * SimtOrder::kThreads <= kMostThreads && *n > groups * SimtOrder::kThreads * 16)
    groups *= 2;
  s.threads = static_cast<int>(groups * SimtOrder::kThreads);
  s.unroll = *n <= groups * SimtOrder::kThreads * 16 ? 4 : 1;
  return s;
}

std::vector<SimtSchedule> norm_backward_neighbours(Kernel& rows, Kernel& columns, std::span<const uint32_t> shared,
                                                   const SimtSchedule& s, const GpuDescription& device, const SimtOrder& order,
                                                   std::span<const uint32_t> links) {
  return around(s, [&](const SimtSchedule& n) {
    if (n.threads > device.max_threads) no_program("a block of that many threads");
    make_norm_backward(rows, columns, shared, n, device, order, links);
  });
}

}  // namespace tessera::kit
