// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <algorithm>

#include "../program/expr_text.hpp"

namespace tessera::kit {
namespace {

constexpr int64_t kMostChunks = SimtOrder::kRow;  // whose results one more step of 32 threads reduces

int64_t round_up_to_power(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

}  // namespace

RowWriter::RowWriter(ProgramBuilder& b, Kernel& k, const SimtOrder& o, const Config& c) : b_(b), k_(k), o_(o), config_(c) {
  if (k.loops.empty()) no_program("it reduces nothing");
  const std::vector<uint32_t>& axes = k.loops[0].axes;
  for (const Loop& l : k.loops)
    if (l.axes != axes || l.across) no_program("its loops differ, or reduce across rows");
  for (uint32_t i = 0; i < k.insts.size(); ++i)
    if (k.insts[i].op == Op::Second || (k.insts[i].op == Op::Reduce && !plain_reduction(k, i)))
      no_program(std::string("a reduction of kind ") + reduce_name(static_cast<ReduceKind>(k.insts[i].id)));
  row_groups_ = collapse(k, k.parallel);
  column_groups_ = collapse(k, axes);
  KernelCopy copy(b, k, {});
  rows_ = columns_ = kOne;
  for (const AxisGroup& g : row_groups_) rows_ = b.pool().mul(rows_, copy.index(g.extent));
  for (const AxisGroup& g : column_groups_) columns_ = b.pool().mul(columns_, copy.index(g.extent));
  const bool one = column_groups_.size() == 1;
  while (width_ > 1 && !(one && b.p.divisible(columns_, width_))) width_ /= 2;

  groups_ = c.threads / SimtOrder::kThreads;
  const auto n = b.pool().as_number(columns_);
  if (o.interleaved) {
    if (!n) no_program("an interleaved order of a row whose length is not known");
    chunks_ = b.pool().number(8);
    steps_ = (*n + 8 * SimtOrder::kRow - 1) / (8 * SimtOrder::kRow);
  } else {
    chunks_ = n ? b.pool().number(std::max<int64_t>(1, (*n + o.chunk() - 1) / o.chunk())) : b_.ceil_div(columns_, o.chunk());
    steps_ = o.steps;
    if (n && *n <= o.chunk()) steps_ = std::max<int64_t>(1, (*n + SimtOrder::kRow - 1) / SimtOrder::kRow);
  }
  chunks_known_ = n.has_value();
  num_chunks_ = chunks_known_ ? *b.pool().as_number(chunks_) : kMostChunks;
  if (num_chunks_ > kMostChunks) no_program("rows of more than " + std::to_string(kMostChunks * o.chunk()) + " elements");
  // A wave may have more groups than the row has chunks; those beyond find no elements.
  if (groups_ > (o.interleaved ? 8 : std::max<int64_t>(round_up_to_power(num_chunks_), b.p.wave / SimtOrder::kThreads)))
    no_program("more threads than a row has chunks for");
  chunks_per_group_ = chunks_known_ ? (num_chunks_ + groups_ - 1) / groups_ : 1;
  if (!chunks_known_ && !o.interleaved) b.p.require.push_back({columns_, kMostChunks * o.chunk()});
  if (c.persistent && !chunks_known_) no_program("a row of unknown length does not stay in registers");
  if (vectors() > 64) no_program("too many vectors for a thread");
  analyse();
}

// ---- analysis

std::vector<uint32_t> RowWriter::axes_of(const std::vector<AxisGroup>& groups) {
  std::vector<uint32_t> out;
  for (const AxisGroup& g : groups) {
    out.push_back(g.inner);
    out.insert(out.end(), g.outer.begin(), g.outer.end());
  }
  return out;
}

std::string RowWriter::key_of(Kernel& k, const Inst& x, uint32_t column_axis, const std::vector<uint32_t>& row_axes) {
  if (!contiguous_load(k, x, column_axis)) return {};
  ExprSpelling s;
  s.name = [&](const Atom& a) {
    if (a.kind == AtomKind::Axis) {
      const auto row = std::find(row_axes.begin(), row_axes.end(), a.id);
      if (row != row_axes.end()) return "row" + std::to_string(row - row_axes.begin());
      return a.id == column_axis ? "column" : "other" + std::to_string(a.id);
    }
    return a.kind == AtomKind::Symbol ? k.symbols[a.id].name : std::string("value");
  };
  s.call = [](const Atom& x, const std::string& a, const std::string& b) {
    return std::to_string(static_cast<int>(x.kind)) + "(" + a + ", " + b + ")";
  };
  return expr_text(k.pool, x.index, s);
}

std::string RowWriter::load_key(const Inst& x) {
  if (column_groups_.size() != 1) return {};
  const std::string at = key_of(k_, x, column_groups_[0].inner, axes_of(row_groups_));
  return at.empty() ? at : std::to_string(x.id) + "[" + at + "]";
}

// What an instruction of a loop computes, whichever loop it stands in.
std::string RowWriter::structure(uint32_t id) {
  const Inst& x = k_.insts[id];
  if (loop_of_[id] < 0 || x.op == Op::Reduce) return "%" + std::to_string(id);
  std::string s = std::string(op_name(x.op)) + ":" + type_name(x.type) + ":" + std::to_string(x.bits) + ":" +
                  std::to_string(x.id) + ":" + std::to_string(x.index) + "(";
  for (const uint32_t a : x.args)
    if (a != kNone) s += structure(a) + ",";
  std::vector<uint32_t> values;
  k_.pool.collect(x.index, AtomKind::Value, values);
  for (const uint32_t v : values) s += structure(v) + ";";
  return s + ")";
}

void RowWriter::analyse() {
  loop_of_.assign(k_.insts.size(), -1);
  for (size_t l = 0; l < k_.loops.size(); ++l)
    for (const Item& i : k_.loops[l].body) {
      if (i.is_loop) no_program("loops inside each other");
      loop_of_[i.id] = static_cast<int>(l);
    }
  if (!config_.persistent) return;
  std::map<std::string, std::set<int>> calls;
  for (uint32_t i = 0; i < k_.insts.size(); ++i)
    if (k_.insts[i].op == Op::Call && loop_of_[i] >= 0) calls[structure(i)].insert(loop_of_[i]);
  int names = 0;
  std::map<std::string, std::string> names_of;
  for (uint32_t i = 0; i < k_.insts.size(); ++i) {
    const Inst& x = k_.insts[i];
    if (x.op == Op::Call && loop_of_[i] >= 0 && calls[structure(i)].size() > 1) {
      std::string& name = names_of[structure(i)];
      if (name.empty()) name = "kept" + std::to_string(names++);
      kept_[i] = name;
    }
    if (x.op != Op::Store || loop_of_[i] < 0 || x.args[1] != kNone) continue;
    // A value that waits in an output's memory for a later loop waits in registers instead.
    for (uint32_t j = 0; j < k_.insts.size(); ++j) {
      const Inst& y = k_.insts[j];
      if (loop_of_[j] <= loop_of_[i] || y.id != x.id || y.index != x.index) continue;
      if (y.op == Op::Load && y.args[0] == kNone) {
        std::string& name = names_of["stored" + std::to_string(i)];
        if (name.empty()) name = "kept" + std::to_string(names++);
        keeps_[i] = kept_[j] = name;
      }
      if (y.op == Op::Store && y.args[1] == kNone) dropped_.insert(i);
    }
  }
}

bool RowWriter::waits_in_memory() const {
  return !config_.persistent && std::any_of(k_.insts.begin(), k_.insts.end(), [&](const Inst& x) {
    return x.op == Op::Load && k_.buffers[x.id].access != Access::In;
  });
}

std::vector<uint32_t> RowWriter::loads_of(const Loop& l) {
  std::vector<uint32_t> found;
  std::set<std::string> seen;
  for (const Item& i : l.body) {
    const std::string key = load_key(k_.insts[i.id]);
    if (!key.empty() && seen.insert(key).second) found.push_back(i.id);
  }
  return found;
}

// Is a load of a later loop better made where its elements are used, a few at a time? What is the same for all rows, as a
// weight, is in a cache by then, and the registers that would hold it are worth more waves.
bool RowWriter::streams(uint32_t id, size_t loop) {
  const std::string key = load_key(k_.insts[id]);
  if (loop == 0 || key.find("row") != key.npos) return false;
  size_t loops = 0;
  for (const Loop& l : k_.loops)
    loops += std::any_of(l.body.begin(), l.body.end(), [&](const Item& i) { return load_key(k_.insts[i.id]) == key; });
  return loops == 1;
}

// ---- places

RowWriter::Slot RowWriter::slot(const std::vector<uint32_t>& buffers, int) { return {KernelCopy(b_, k_, buffers)}; }

void RowWriter::set_row(Slot& s, Expr row, uint32_t stores) {
  s.row = row;
  s.stores = stores;
  std::vector<Expr> extents;
  for (const AxisGroup& g : row_groups_) extents.push_back(s.copy.index(g.extent));
  const std::vector<Expr> at = row_groups_.size() == 1 ? std::vector<Expr>{row} : b_.pool().position(row, extents);
  for (size_t g = 0; g < row_groups_.size(); ++g) {
    s.copy.set_axis(row_groups_[g].inner, at[g]);
    for (const uint32_t outer : row_groups_[g].outer) s.copy.set_axis(outer, kZero);
  }
}

void RowWriter::set_columns(Slot& s, Expr column) {
  std::vector<Expr> extents;
  for (const AxisGroup& g : column_groups_) extents.push_back(s.copy.index(g.extent));
  const std::vector<Expr> at = column_groups_.size() == 1 ? std::vector<Expr>{column} : b_.pool().position(column, extents);
  for (size_t g = 0; g < column_groups_.size(); ++g) {
    s.copy.set_axis(column_groups_[g].inner, at[g]);
    for (const uint32_t outer : column_groups_[g].outer) s.copy.set_axis(outer, kZero);
  }
}

// Chunk i of the thread's group, row `step` of it.
Expr RowWriter::first_column(Expr i, Expr step) {
  IndexPool& p = b_.pool();
  const Expr chunk = p.add(b_.scaled(i, groups_), group_);
  const Expr row = o_.interleaved ? p.add(b_.scaled(step, 8), chunk) : p.add(b_.scaled(chunk, o_.steps), step);
  return p.add(b_.scaled(row, SimtOrder::kRow), b_.scaled(lane_, SimtOrder::kVector));
}

void RowWriter::each_vector(const std::function<void(Expr vector, Expr column)>& f) {
  const Expr i = b_.begin_unless_one(Bind::Unroll, "i", b_.pool().number(chunks_per_group_));
  const Expr s = b_.begin_unless_one(Bind::Unroll, "s", b_.pool().number(steps_));
  f(b_.pool().add(b_.scaled(i, steps_), s), first_column(i, s));
  b_.end_unless_one();
  b_.end_unless_one();
}

// ---- loads

void RowWriter::loads(Slot& s, const std::vector<uint32_t>& needed, Expr i, bool all) {
  std::vector<uint32_t> fresh;
  for (const uint32_t id : needed)
    if (const std::string key = load_key(k_.insts[id]); !s.loaded.count(key)) {
      if (all) s.loaded.insert(key);
      if (!s.held.count(key))
        s.held[key] = b_.buffer(k_.buffers[k_.insts[id].id].name + "_v", Memory::Register, k_.insts[id].type,
                                b_.pool().number((all ? vectors() : steps_) * SimtOrder::kVector));
      fresh.push_back(id);
    }
  if (fresh.empty()) return;
  const auto vector = [&](Expr number, Expr column) {
    const Expr h = b_.begin_unless_one(Bind::Unroll, "h", b_.pool().number(SimtOrder::kVector / width_));
    const Expr first = b_.pool().add(column, b_.scaled(h, width_));
    const bool opened = b_.begin_if(inside(first));
    set_columns(s, first);
    for (const uint32_t id : fresh) {
      const Inst& x = k_.insts[id];
      const std::string key = load_key(x);
      const Expr to = b_.pool().add(b_.scaled(number, SimtOrder::kVector), b_.scaled(h, width_));
      const auto cached = all ? cached_.end() : cached_.find(key);
      if (cached != cached_.end()) {
        load_cached(s, x, cached->second, i, number, h, to);
        continue;
      }
      b_.load_elements(s.copy.buffer(x.id), s.copy.index(x.index), s.held[key], to, width_);
    }
    b_.end_if(opened);
    b_.end_unless_one();
  };
  if (all) return each_vector(vector);
  const Expr step = b_.begin_unless_one(Bind::Unroll, "s", b_.pool().number(steps_));
  vector(step, first_column(i, step));
  b_.end_unless_one();
  for (const uint32_t id : fresh)
    if (const auto cached = cached_.find(load_key(k_.insts[id])); cached != cached_.end()) cached->second.filled = true;
}

// Part `h` of vector `step` of chunk i of the thread's group.
void RowWriter::load_cached(Slot& s, const Inst& x, const Cached& cached, Expr i, Expr step, Expr h, Expr to) {
  IndexPool& p = b_.pool();
  const uint32_t registers = s.held[load_key(x)];
  const Expr thread = p.add(b_.scaled(p.add(b_.scaled(row_in_block_, groups_), group_), SimtOrder::kThreads), lane_);
  const int64_t threads = int64_t{config_.threads} * config_.rows;
  const Expr vector = p.add(b_.scaled(p.add(b_.scaled(i, steps_), step), threads), thread);
  const Expr at = p.add(b_.scaled(vector, SimtOrder::kVector), b_.scaled(h, width_));
  const bool whole = cached_chunks_ == chunks_per_group_;
  const auto inside = [&](Op op) {
    return b_.begin_if(whole ? kNone : b_.binary(op, b_.index(i), b_.index(p.number(cached_chunks_))));
  };
  const auto from_memory = [&] { b_.load_elements(s.copy.buffer(x.id), s.copy.index(x.index), registers, to, width_); };
  if (!cached.filled) {
    from_memory();
    const bool keeps = inside(Op::Lt);
    b_.store_elements(cached.buffer, at, registers, to, width_);
    b_.end_if(keeps);
    return;
  }
  const bool kept = inside(Op::Lt);
  b_.load_elements(cached.buffer, at, registers, to, width_);
  b_.end_if(kept);
  if (whole) return;
  const bool beyond = inside(Op::Ge);
  from_memory();
  b_.end_if(beyond);
}

// Groups write one result for each chunk that they go through, also for those beyond the end.
int64_t RowWriter::chunk_results() const {
  return chunks_known_ ? groups_ * chunks_per_group_ : round_up_to_power(kMostChunks + groups_);
}

void RowWriter::keep_in_shared(const GpuDescription& d) {
  if (config_.persistent || !chunks_known_ || chunks_per_group_ < 2 || !shares()) return;
  std::map<std::string, std::pair<uint32_t, int>> readers;  // by key: a load, and how many loops read it
  int64_t results = 0;
  for (const Loop& l : k_.loops) {
    for (const uint32_t id : loads_of(l))
      if (const std::string key = load_key(k_.insts[id]); key.find("row") != std::string::npos)
        ++readers.try_emplace(key, id, 0).first->second.second;
    for (const Item& item : l.body)
      if (k_.insts[item.id].op == Op::Reduce)
        results += (config_.rows * chunk_results() * type_bytes(reducer_of(k_, item.id).type) + 15) / 16 * 16;
  }
  std::erase_if(readers, [](const auto& r) { return r.second.second < 2; });
  const int64_t elements = int64_t{config_.threads} * config_.rows * steps_ * SimtOrder::kVector;  // of a chunk of each group
  int64_t bytes = 0;
  for (const auto& [key, reader] : readers) bytes += elements * type_bytes(k_.insts[reader.first].type);
  if (bytes == 0) return;
  cached_chunks_ = std::min(chunks_per_group_, (shared_share(d, config_.threads * config_.rows) - results) / bytes);
  if (cached_chunks_ < 1) return;
  for (const auto& [key, reader] : readers) {
    const Inst& x = k_.insts[reader.first];
    cached_[key] = {
        b_.buffer(k_.buffers[x.id].name + "_row", Memory::Shared, x.type, b_.pool().number(cached_chunks_ * elements))};
  }
}

void RowWriter::load(Slot& s, bool of_row, Loops which) {
  std::vector<uint32_t> needed;
  std::set<std::string> seen;
  for (size_t l = 0; l < (which == Loops::First ? 1 : k_.loops.size()); ++l)
    for (const uint32_t id : loads_of(k_.loops[l])) {
      const std::string key = load_key(k_.insts[id]);
      if ((key.find("row") != std::string::npos) == of_row && seen.insert(key).second && (l > 0 || which != Loops::Later))
        needed.push_back(id);
    }
  for (const uint32_t id : needed)  // into the registers that were there before, if there were
    if (of_row) s.loaded.erase(load_key(k_.insts[id]));
  loads(s, needed, kZero, true);
}

// ---- loops

uint32_t RowWriter::eval(Slot& s, uint32_t id, Expr vector, Expr step, Expr element) {
  if (s.copy.value(id) != kNone) return s.copy.value(id);
  const Inst& x = k_.insts[id];
  const auto place = [&](Expr v) { return b_.pool().add(b_.scaled(v, SimtOrder::kVector), element); };
  const Expr at = place(vector);
  const auto kept = kept_.find(id);
  if (kept != kept_.end() && s.held.count(kept->second)) {
    // An earlier loop computed it.
    const uint32_t v = b_.load(s.held[kept->second], at);
    s.copy.set_value(id, v);
    return v;
  }
  if (const std::string key = load_key(x); !key.empty() && s.held.count(key)) {
    const uint32_t v = b_.load(s.held[key], s.loaded.count(key) ? at : place(step));
    s.copy.set_value(id, v);
    return v;
  }
  for (const uint32_t a : x.args)
    if (a != kNone) eval(s, a, vector, step, element);
  std::vector<uint32_t> values;
  k_.pool.collect(x.index, AtomKind::Value, values);
  for (const uint32_t v : values) eval(s, v, vector, step, element);
  return s.copy.copy(id);
}

void RowWriter::loop_body(Slot& s, const Loop& l, std::vector<Partial>& partials, Expr i) {
  IndexPool& p = b_.pool();
  const bool all = config_.persistent;
  std::vector<uint32_t> streamed;  // what no registers hold for the whole row
  for (const uint32_t id : loads_of(l))
    if (!s.loaded.count(load_key(k_.insts[id]))) streamed.push_back(id);
  loads(s, streamed, i, false);
  const int64_t running = o_.by_halves ? 1 : SimtOrder::kVector;
  for (const Partial& r : partials)
    for (int64_t j = 0; j < running; ++j) b_.store(r.running, p.number(j), b_.identity(r.reducer));
  // Outputs of a vector.
  std::vector<std::pair<uint32_t, uint32_t>> outputs;  // store, registers
  const uint32_t column = column_groups_.back().inner;
  for (const Item& item : l.body) {
    const Inst& x = k_.insts[item.id];
    if (x.op != Op::Store || dropped_.count(item.id) || width_ == 1 || x.args[1] != kNone) continue;
    const auto a = k_.pool.affine(x.index, column);
    if (!a || a->coefficient != kOne) continue;
    const std::string key = "store" + std::to_string(item.id);
    if (!s.held.count(key))
      s.held[key] =
          b_.buffer(k_.buffers[x.id].name + "_v", Memory::Register, k_.buffers[x.id].type, p.number(SimtOrder::kVector));
    outputs.emplace_back(item.id, s.held[key]);
  }
  std::set<std::string> fresh;  // kept values that this loop computes
  for (const Item& item : l.body) {
    const auto kept = kept_.find(item.id);
    const auto keeps = keeps_.find(item.id);
    const std::string name = kept != kept_.end() ? kept->second : keeps != keeps_.end() ? keeps->second : "";
    if (!name.empty() && !s.held.count(name)) fresh.insert(name);
  }
  std::map<std::string, uint32_t> made;
  for (const std::string& name : fresh) {
    Type t = Type::None;
    for (const auto& [id, n] : kept_)
      if (n == name) t = k_.insts[id].type;
    made[name] = b_.buffer(name, Memory::Register, t, p.number(vectors() * SimtOrder::kVector));
  }

  const Expr step = b_.begin_unless_one(Bind::Unroll, "s", p.number(steps_));
  const Expr first = first_column(i, step), vector = all ? p.add(b_.scaled(i, steps_), step) : step;
  const Expr h = b_.begin_unless_one(Bind::Unroll, "h", p.number(SimtOrder::kVector / width_));
  const Expr part = p.add(first, b_.scaled(h, width_));
  const uint32_t condition = inside(part);
  if (condition != kNone)
    for (const Partial& r : partials) {
      const Expr j = b_.begin_unless_one(Bind::Unroll, "j", p.number(width_));
      b_.store(r.value, p.add(b_.scaled(h, width_), j), b_.identity(r.reducer));
      b_.end_unless_one();
    }
  const bool opened = b_.begin_if(condition);
  const Expr j = b_.begin_unless_one(Bind::Unroll, "j", p.number(width_));
  const Expr element = p.add(b_.scaled(h, width_), j);
  set_columns(s, p.add(part, j));
  for (const Item& item : l.body) s.copy.forget(item.id);
  for (const Item& item : l.body) {
    const Inst& x = k_.insts[item.id];
    if (x.op != Op::Store && x.op != Op::Check && x.op != Op::Reduce) continue;
    for (const uint32_t a : x.args)
      if (a != kNone) eval(s, a, vector, step, element);
    if (x.op == Op::Reduce) {
      const auto r = std::find_if(partials.begin(), partials.end(), [&](const Partial& q) { return q.inst == item.id; });
      b_.store(r->value, element, s.copy.value(x.args[0]));
      continue;
    }
    if (x.op == Op::Check) {
      s.copy.copy(item.id);
      continue;
    }
    if (const auto keeps = keeps_.find(item.id); keeps != keeps_.end() && made.count(keeps->second))
      b_.store(made[keeps->second], p.add(b_.scaled(vector, SimtOrder::kVector), element), s.copy.value(x.args[0]));
    if (dropped_.count(item.id)) continue;
    const auto o = std::find_if(outputs.begin(), outputs.end(), [&](const auto& y) { return y.first == item.id; });
    if (o != outputs.end()) {
      b_.store(o->second, element, s.copy.value(x.args[0]));
      continue;
    }
    const bool guarded = b_.begin_if(s.stores);
    s.copy.copy(item.id);
    b_.end_if(guarded);
  }
  std::set<std::string> stored;  // one of several calls of one structure is enough
  for (const Item& item : l.body) {
    const auto kept = kept_.find(item.id);
    if (kept != kept_.end() && made.count(kept->second) && k_.insts[item.id].op == Op::Call && s.copy.value(item.id) != kNone &&
        stored.insert(kept->second).second)
      b_.store(made[kept->second], p.add(b_.scaled(vector, SimtOrder::kVector), element), s.copy.value(item.id));
  }
  for (const Item& item : l.body)
    if (k_.insts[item.id].op != Op::Reduce) s.copy.forget(item.id);
  b_.end_unless_one();
  set_columns(s, part);
  if (!outputs.empty()) {
    const bool guarded = b_.begin_if(s.stores);
    for (const auto& [id, registers] : outputs) {
      const Inst& x = k_.insts[id];
      b_.store_elements(s.copy.buffer(x.id), s.copy.index(x.index), registers, b_.scaled(h, width_), width_);
    }
    b_.end_if(guarded);
  }
  b_.end_if(opened);
  b_.end_unless_one();
  for (const Partial& r : partials) {
    if (o_.by_halves) {
      const uint32_t v = b_.combine_halves(r.reducer, r.value, kZero, SimtOrder::kVector);
      b_.store(r.running, kZero, b_.combine(r.reducer, b_.load(r.running, kZero), v));
    } else {
      const Expr lane = b_.begin(Bind::Unroll, "j", p.number(SimtOrder::kVector));
      b_.store(r.running, lane, b_.combine(r.reducer, b_.load(r.running, lane), b_.load(r.value, lane)));
      b_.end();
    }
  }
  b_.end_unless_one();
  s.held.insert(made.begin(), made.end());

  // The chunk is complete.
  for (const Partial& r : partials) {
    const uint32_t v =
        b_.combine_lanes(r.reducer, b_.combine_halves(r.reducer, r.running, kZero, running), SimtOrder::kThreads);
    if (!shares()) {
      b_.store(r.results, i, v);
      continue;
    }
    const bool first_lane = b_.begin_if(b_.binary(Op::Eq, b_.index(lane_), b_.index(kZero)));
    b_.store(r.results, p.add(shared_base_, p.add(b_.scaled(i, groups_), group_)), v);
    b_.end_if(first_lane);
  }
}

void RowWriter::loop(std::vector<Slot*>& slots, const Loop& l, size_t number, Expr half, int64_t halves) {
  IndexPool& p = b_.pool();
  std::vector<std::vector<Partial>> partials(slots.size());
  if (config_.persistent)
    for (Slot* s : slots) {
      std::vector<uint32_t> whole;
      for (const uint32_t id : loads_of(l))
        if (!streams(id, number)) whole.push_back(id);
      loads(*s, whole, kZero, true);
    }
  const int64_t entries = chunk_results();
  for (size_t q = 0; q < slots.size(); ++q)
    for (const Item& item : l.body)
      if (k_.insts[item.id].op == Op::Reduce) {
        Partial r{item.id, reducer_of(k_, item.id), 0, 0, 0};
        const std::string name = std::string(reduce_name(r.reducer.kind)) + std::to_string(item.id) + "_" + std::to_string(q);
        const auto named = [&](const char* what, Memory m, int64_t n) {
          uint32_t& buffer = slots[q]->held.try_emplace(what + name, kNone).first->second;
          if (buffer == kNone)
            buffer = b_.buffer(std::string(reduce_name(r.reducer.kind)) + "_" + what, m, r.reducer.type, p.number(n));
          return buffer;
        };
        r.value = named("value", Memory::Register, SimtOrder::kVector);
        r.running = named("run", Memory::Register, o_.by_halves ? 1 : SimtOrder::kVector);
        r.results = shares() ? named("chunks", Memory::Shared, halves * config_.rows * entries)
                             : named("chunks", Memory::Register, chunks_per_group_);
        partials[q].push_back(r);
      }
  shared_base_ = b_.scaled(p.add(b_.scaled(half, config_.rows), row_in_block_), entries);
  for (size_t q = 0; q < slots.size(); ++q) {
    const Expr most = chunks_known_ ? p.number(chunks_per_group_) : b_.ceil_div(chunks_, groups_);
    const Expr i = b_.begin_unless_one(config_.persistent || !shares() ? Bind::Unroll : Bind::Serial, "i", most);
    loop_body(*slots[q], l, partials[q], i);
    b_.end_unless_one();
  }
  if (shares() && !partials[0].empty()) b_.barrier(BarrierScope::Block);
  for (size_t q = 0; q < slots.size(); ++q)
    for (const Partial& r : partials[q]) slots[q]->copy.set_value(r.inst, finish(r));
}

uint32_t RowWriter::finish(const Partial& r) {
  IndexPool& p = b_.pool();
  const auto n = chunks_known_ ? num_chunks_ : kMostChunks;
  const auto padded = [&](std::vector<uint32_t> v) {
    const auto size = static_cast<size_t>(round_up_to_power(static_cast<int64_t>(v.size())));
    while (v.size() < size) v.push_back(b_.identity(r.reducer));
    return b_.combine_halves(r.reducer, std::move(v));
  };
  if (!shares() || (chunks_known_ && n <= SimtOrder::kVector)) {
    const Expr base = shares() ? shared_base_ : kZero;
    std::vector<uint32_t> threads;
    for (int64_t t = 0; t * SimtOrder::kVector < n; ++t) {
      std::vector<uint32_t> v;
      for (int64_t j = t * SimtOrder::kVector; j < std::min(n, (t + 1) * SimtOrder::kVector); ++j)
        v.push_back(b_.load(r.results, p.add(base, p.number(j))));
      threads.push_back(padded(std::move(v)));
    }
    return padded(std::move(threads));
  }
  // Each lane takes the vector of results that the family's order gives it.
  std::vector<uint32_t> v;
  const uint32_t nothing = b_.identity(r.reducer);
  for (int64_t j = 0; j < SimtOrder::kVector; ++j) {
    const Expr at = p.add(b_.scaled(lane_, SimtOrder::kVector), p.number(j));
    const uint32_t exists = b_.below(at, chunks_);
    v.push_back(exists == kNone ? b_.load(r.results, p.add(shared_base_, at))
                                : b_.load_or(r.results, p.add(shared_base_, at), exists, nothing));
  }
  return b_.combine_lanes(r.reducer, b_.combine_halves(r.reducer, std::move(v)), SimtOrder::kThreads);
}

void RowWriter::run(std::vector<Slot*> slots, Expr half, int64_t halves) {
  size_t number = 0;
  for (const Item& item : k_.body) {
    if (item.is_loop) {
      loop(slots, k_.loops[item.id], number++, half, halves);
      continue;
    }
    const Inst& x = k_.insts[item.id];
    if (x.op == Op::Store && config_.unstored.count(x.id)) continue;
    for (Slot* s : slots) {
      if (x.op == Op::Store || x.op == Op::Check) {
        const bool first = b_.begin_if(
            b_.both(b_.binary(Op::Eq, b_.index(b_.pool().add(b_.scaled(group_, SimtOrder::kThreads), lane_)), b_.index(kZero)),
                    s->stores));
        s->copy.copy(item.id);
        b_.end_if(first);
      } else {
        s->copy.copy(item.id);
      }
    }
  }
}

Program rows_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a) {
  ProgramBuilder b(k.name, d);
  const std::vector<uint32_t> buffers = declare_buffers(b, k, a);
  if (s.threads % SimtOrder::kThreads != 0 || s.threads * s.rows % d.wave != 0) no_program("threads that are no whole waves");
  RowWriter w(b, k, o, {s.threads, s.rows, s.persistent});
  IndexPool& p = b.pool();
  b.begin_launch();
  if (s.unroll > 1 && (!s.persistent || s.unroll % 2 != 0)) no_program("several rows in turn that do not stay in registers");
  const Expr block = b.begin(Bind::Grid, "b", b.ceil_div(w.rows(), int64_t{s.rows} * s.unroll));
  const Expr warp = b.begin(Bind::Warp, "w", p.number(s.threads * s.rows / d.wave)),
             lane = b.begin(Bind::Lane, "l", p.number(d.wave));
  const Expr group = p.add(b.scaled(warp, d.wave / SimtOrder::kThreads), p.floordiv(lane, p.number(SimtOrder::kThreads)));
  const Expr groups = p.number(s.threads / SimtOrder::kThreads);
  const Expr row_in_block = p.floordiv(group, groups);
  w.place_threads(p.mod(group, groups), p.mod(lane, p.number(SimtOrder::kThreads)), row_in_block);
  // Threads beyond the last row compute it again, and store nothing: all lanes come to every shuffle.
  const auto place = [&](RowWriter::Slot& slot, Expr turn) {
    const Expr row = p.add(b.scaled(p.add(b.scaled(block, s.unroll), turn), s.rows), row_in_block);
    const uint32_t stores = b.below(row, w.rows());
    // A value that waits in an output's memory is the row's own, which a second copy of the row cannot share.
    if (stores != kNone && w.waits_in_memory()) no_program("rows beyond the last one, and values that wait in memory");
    w.set_row(slot, stores == kNone ? row : p.min(row, p.sub(w.rows(), kOne)), stores);
  };
  // A block that has the registers of half a unit may have half of its shared memory too.
  if (s.unroll == 1 && s.threads * s.rows * 2 >= kWholeUnit) w.keep_in_shared(d);
  std::vector<RowWriter::Slot> slots;
  for (int q = 0; q < std::min(s.unroll, 2); ++q) slots.push_back(w.slot(buffers, q));
  place(slots[0], kZero);
  if (s.unroll == 1) {
    w.run({&slots[0]});
  } else {
    w.load(slots[0], /*of_row=*/false);
    slots[1].held = slots[0].held, slots[1].loaded = slots[0].loaded;
    if (s.unroll == 2) {  // both beside each other
      place(slots[1], kOne);
      for (RowWriter::Slot& slot : slots) w.load(slot, /*of_row=*/true);
      w.run({&slots[0], &slots[1]});
    } else {  // one is computed while the next one is loaded; results of chunks lie in two halves of shared memory by turns
      w.load(slots[0], true);
      const Expr step = b.begin(Bind::Serial, "i", p.number(s.unroll / 2));
      const Expr even = b.scaled(step, 2), odd = p.add(even, kOne), next = p.add(even, p.number(2));
      place(slots[1], odd);
      w.load(slots[1], true);
      place(slots[0], even);
      w.run({&slots[0]}, kZero, 2);
      const bool more = b.begin_if(b.below(next, p.number(s.unroll)));
      place(slots[0], next);
      w.load(slots[0], true);
      b.end_if(more);
      place(slots[1], odd);
      w.run({&slots[1]}, kOne, 2);
      b.end();
    }
  }
  b.end();
  b.end();
  b.end();
  b.end_launch();
  return std::move(b.p);
}

}  // namespace tessera::kit
