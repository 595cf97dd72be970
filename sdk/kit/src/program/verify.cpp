// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/program/verify.hpp"

#include <algorithm>

#include "../inst_types.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

// How far a value differs between threads.
enum Varies : uint8_t { kNowhere, kByWave, kByLane };

class ProgramVerifier {
 public:
  ProgramVerifier(Program& p, const GpuDescription& d)
      : p_(p),
        d_(d),
        seen_(p.statements.size(), 0),
        visible_(p.statements.size(), 0),
        varies_(p.statements.size(), kNowhere),
        bound_(p.axis_names.size(), 0),
        open_(p.axis_names.size(), 0),
        binds_(p.axis_names.size(), Bind::Serial),
        axis_varies_(p.axis_names.size(), kNowhere),
        written_(p.buffers.size(), 0) {}

  void run() {
    if (p_.axis_names.size() != p_.pool.num_axes() || p_.symbols.size() != p_.pool.num_symbols())
      fail(kNone, "P7", "axes and symbols are numbered as in the pool");
    need(p_.wave == d_.wave, kNone, "P6", "a wave of " + std::to_string(d_.wave) + " lanes, as the device has");
    buffers();
    for (launch_ = 0; launch_ < p_.launches.size(); ++launch_) {
      std::vector<uint8_t> before = written_;
      written_before_ = std::move(before);
      nest(p_.launches[launch_]);
    }
    for (uint32_t i = 0; i < seen_.size(); ++i) need(seen_[i] != 0, i, "P1", "every statement stands in a body");
  }

 private:
  [[noreturn]] void fail(uint32_t id, const char* check, const std::string& expected) const {
    std::string where = "program @" + p_.name;
    if (id != kNone) {
      const Statement& x = p_.statements[id];
      static constexpr const char* kinds[] = {"",     "shuffle",  "barrier",   "mma",  "mma_group", "mma_wait",
                                              "copy", "copy_end", "copy_wait", "loop", "if"};
      where += ", launch " + std::to_string(launch_) + ", statement " + std::to_string(id) + " (" +
               (x.kind == StatementKind::Inst ? op_name(x.inst.op)
                : x.kind == StatementKind::Loop && x.axis < p_.axis_names.size()
                    ? std::string(bind_name(x.bind)) + " " + p_.axis_names[x.axis]
                    : kinds[static_cast<int>(x.kind)]) +
               ")";
    }
    throw sdk::Error(TSR_BUG, "TSR-K024", where + ": " + expected + " (" + check + ")");
  }
  void need(bool holds, uint32_t id, const char* check, const std::string& expected) const {
    if (!holds) fail(id, check, expected);
  }

  void buffers() {
    std::vector<int64_t> registers(p_.launches.size(), 0);
    for (const ProgramBuffer& b : p_.buffers) {
      need(b.type != Type::None && b.align >= type_bytes(b.type), kNone, "P9", "'" + b.name + "' is aligned to its elements");
      std::vector<uint32_t> used;
      p_.pool.collect(b.extent, AtomKind::Axis, used);
      p_.pool.collect(b.extent, AtomKind::Value, used);
      need(used.empty(), kNone, "P9", "the size of '" + b.name + "' depends on symbols alone");
      if (b.memory < Memory::Shared) continue;
      const auto n = p_.pool.as_number(b.extent);
      need(n && *n > 0 && *n <= (1 << 20), kNone, "P9", "'" + b.name + "' has a number of elements");
      need(b.launch < p_.launches.size(), kNone, "P9", "'" + b.name + "' belongs to a launch");
      // Registers of 32 bits; the emitter's compiler finds more uses for them.
      if (b.memory == Memory::Register) registers[b.launch] += (*n * type_bytes(b.type) + 3) / 4;
    }
    for (size_t l = 0; l < p_.launches.size(); ++l) {
      need(registers[l] <= d_.max_registers, kNone, "P9",
           "at most " + std::to_string(d_.max_registers) + " registers a thread, not " + std::to_string(registers[l]));
      int64_t shared = 0;
      const std::vector<int64_t> at = shared_offsets(p_, l);
      for (size_t i = 0; i < at.size(); ++i)
        if (at[i] >= 0)
          shared = std::max(shared, at[i] + *p_.pool.as_number(p_.buffers[i].extent) * type_bytes(p_.buffers[i].type));
      need(shared <= d_.shared_bytes, kNone, "P9",
           "at most " + std::to_string(d_.shared_bytes) + " bytes of shared memory, not " + std::to_string(shared));
    }
  }

  // The loops bound to the device, outermost.
  void nest(const std::vector<uint32_t>& top) {
    const std::vector<uint32_t>* body = &top;
    std::vector<uint32_t> entered;
    Bind last = Bind::Grid;
    bool lanes = false, warps = false, blocks = false;
    int64_t threads = 1;
    for (;;) {
      const bool launch = body->size() == 1 && (*body)[0] < p_.statements.size() &&
                          p_.statements[(*body)[0]].kind == StatementKind::Loop && is_launch(p_.statements[(*body)[0]].bind);
      if (!launch) break;
      const uint32_t id = (*body)[0];
      const Statement& x = p_.statements[id];
      need(!seen_[id]++, id, "P1", "a statement stands once in a body");
      need(x.bind >= last && !lanes && !(x.bind == Bind::Warp && (warps || blocks)) && !(x.bind == Bind::Lane && blocks), id,
           "P5", "grid, cluster, then block, or warp and lane");
      last = x.bind;
      lanes = x.bind == Bind::Lane, warps = warps || x.bind == Bind::Warp, blocks = blocks || x.bind == Bind::Block;
      axis(id, x);
      if (x.bind > Bind::Grid) {
        const auto n = p_.pool.as_number(p_.pool.extent(x.axis));
        need(n && *n > 0 && *n <= d_.max_threads, id, "P6", "a number of points that the device can run");
        if (x.bind > Bind::Cluster) threads *= *n;
        need(threads <= d_.max_threads, id, "P6", "at most " + std::to_string(d_.max_threads) + " threads a block");
        need(x.bind != Bind::Lane || *n == d_.wave, id, "P6", "as many lanes as the wave has: " + std::to_string(d_.wave));
      } else {
        std::vector<uint32_t> used;
        p_.pool.collect(p_.pool.extent(x.axis), AtomKind::Axis, used);
        p_.pool.collect(p_.pool.extent(x.axis), AtomKind::Value, used);
        need(used.empty(), id, "P6", "the number of blocks depends on symbols alone");
      }
      entered.push_back(x.axis);
      body = &x.body;
    }
    need(lanes == warps, kNone, "P5", "warp and lane loops come together");
    need(lanes || blocks, kNone, "P5", "a launch has loops bound to threads");
    this->body(*body);
    for (const uint32_t a : entered) open_[a] = 0;
  }

  void axis(uint32_t id, const Statement& x) {
    need(x.axis < p_.axis_names.size() && !bound_[x.axis], id, "P7", "an axis belongs to one loop");
    expr(id, p_.pool.extent(x.axis));
    bound_[x.axis] = open_[x.axis] = 1;
    binds_[x.axis] = x.bind;
    axis_varies_[x.axis] = x.bind == Bind::Warp ? kByWave : x.bind == Bind::Lane || x.bind == Bind::Block ? kByLane : kNowhere;
  }

  Varies expr(uint32_t id, Expr e) {
    Varies v = kNowhere;
    std::vector<uint32_t> used;
    p_.pool.collect(e, AtomKind::Axis, used);
    for (const uint32_t a : used) {
      need(a < open_.size() && open_[a], id, "P4", "an index mentions axes of loops around it");
      v = std::max(v, axis_varies_[a]);
    }
    used.clear();
    p_.pool.collect(e, AtomKind::Symbol, used);
    for (const uint32_t s : used) need(s < p_.symbols.size(), id, "P4", "an index mentions known symbols");
    used.clear();
    p_.pool.collect(e, AtomKind::Value, used);
    for (const uint32_t s : used) {
      need(s < visible_.size() && visible_[s], id, "P4", "an index mentions values that are defined");
      const Type t = p_.statements[s].inst.type;
      need(t == Type::I32 || t == Type::I64 || t == Type::U32 || t == Type::U64, id, "P4",
           "an index mentions integers of 32 or 64 bits");
      v = std::max(v, varies_[s]);
    }
    return v;
  }

  void body(const std::vector<uint32_t>& list) {
    for (const uint32_t id : list) {
      need(id < p_.statements.size() && !seen_[id]++, id < p_.statements.size() ? id : kNone, "P1",
           "a statement stands once in a body");
      statement(id);
    }
    for (const uint32_t id : list) visible_[id] = 0;
  }

  void statement(uint32_t id) {
    const Statement& x = p_.statements[id];
    for (const uint32_t a : x.inst.args)
      if (a != kNone) need(a < visible_.size() && visible_[a], id, "P2", "operands are defined before and in scope");
    const auto operand = [&](size_t a) { return p_.statements[x.inst.args[a]].inst.type; };
    switch (x.kind) {
      case StatementKind::Loop: return loop(id, x);
      case StatementKind::If: {
        need(x.inst.args[0] != kNone && operand(0) == Type::Bool, id, "P3", "a bool condition");
        const Varies outer = control_;
        control_ = std::max(control_, varies_[x.inst.args[0]]);
        body(x.body);
        control_ = outer;
        return;
      }
      case StatementKind::Barrier:
        need(control_ < (x.scope == BarrierScope::Block ? kByWave : kByLane), id, "P13",
             "no `if` or loop around a barrier that depends on the thread");
        return;
      case StatementKind::Shuffle:
        need(x.inst.args[0] != kNone && x.inst.args[1] == kNone && operand(0) == x.inst.type && type_bytes(x.inst.type) >= 4,
             id, "P3", "one operand of 4 or 8 bytes, which has the type of the result");
        need(control_ < kByLane, id, "P14", "no `if` or loop around a shuffle that depends on the lane");
        if (x.exchange == Exchange::Xor)
          need(x.lane > 0 && x.lane < p_.wave, id, "P14", "bits of a lane's number");
        else
          need(x.lanes > 0 && x.lanes <= p_.wave && (x.lanes & (x.lanes - 1)) == 0 && x.lane >= 0 && x.lane < x.lanes, id,
               "P14", "a lane of a group whose size is a power of two");
        define(id, kByLane);
        return;
      case StatementKind::Mma: return mma(id, x);
      case StatementKind::MmaGroup: return mma_group(id, x);
      case StatementKind::MmaWait: return sums_of_group(id, x);
      case StatementKind::Copy: return copy(id, x);
      case StatementKind::CopyEnd: return;
      case StatementKind::CopyWait: return need(x.count >= 0 && x.count <= 64, id, "P18", "0 to 64 batches that may go on");
      case StatementKind::Inst: inst(id, x.inst);
    }
  }

  void mma(uint32_t id, const Statement& x) {
    need(d_.mma && d_.wave == 32, id, "P16", "a device that has matrix instructions, and 32 lanes a wave");
    need(control_ < kByLane, id, "P16", "no `if` or loop around a matrix instruction that depends on the lane");
    need(x.inst.type == Type::BF16 || x.inst.type == Type::F16, id, "P16", "factors of bf16 or f16");
    for (size_t i = 0; i < x.fragments.size(); ++i) {
      const Fragment& f = x.fragments[i];
      need(f.buffer < p_.buffers.size() && p_.buffers[f.buffer].memory == Memory::Register &&
               p_.buffers[f.buffer].launch == launch_,
           id, "P16", "registers of this launch");
      const ProgramBuffer& b = p_.buffers[f.buffer];
      need(b.type == (i == 0 ? Type::F32 : x.inst.type), id, "P16", "sums of f32, and factors of the instruction's type");
      expr(id, f.at);
      register_index(id, b, f.at);
      const Expr last = p_.pool.add(f.at, p_.pool.number(kMmaElements[i] - 1));
      need(p_.pool.less(last, b.extent), id, "P10", "a share certainly inside '" + b.name + "'");
      need(p_.divisible(f.at, kMmaElements[i]), id, "P16", "a share that begins at a multiple of its size");
    }
  }
  void sums_of_group(uint32_t id, const Statement& x) {
    need(d_.mma_group && d_.wave == 32, id, "P17", "a device that has matrix instructions of four waves of 32 lanes");
    need(control_ < kByWave, id, "P17", "no `if` or loop around a matrix instruction of four waves that depends on the thread");
    const int64_t n = x.group.columns;
    need(n >= 8 && n <= 256 && n % 8 == 0, id, "P17", "8 to 256 columns, a multiple of 8");
    const Fragment& f = x.fragments[0];
    need(f.buffer < p_.buffers.size() && p_.buffers[f.buffer].memory == Memory::Register &&
             p_.buffers[f.buffer].launch == launch_ && p_.buffers[f.buffer].type == Type::F32,
         id, "P17", "sums of f32 in registers of this launch");
    expr(id, f.at);
    const ProgramBuffer& b = p_.buffers[f.buffer];
    register_index(id, b, f.at);
    need(p_.pool.less(p_.pool.add(f.at, p_.pool.number(n / 2 - 1)), b.extent), id, "P10",
         "sums certainly inside '" + b.name + "'");
  }
  void mma_group(uint32_t id, const Statement& x) {
    sums_of_group(id, x);
    need(x.inst.type == Type::BF16 || x.inst.type == Type::F16, id, "P17", "factors of bf16 or f16");
    const int64_t depth = x.group.depth;
    need(depth > 0 && depth % 16 == 0, id, "P17", "a depth that is a multiple of 16");
    for (size_t i = 0; i < 2; ++i) {
      const Fragment& f = x.fragments[i + 1];
      need(f.buffer < p_.buffers.size() && p_.buffers[f.buffer].memory == Memory::Shared &&
               p_.buffers[f.buffer].launch == launch_ && p_.buffers[f.buffer].type == x.inst.type,
           id, "P17", "factors of the instruction's type in shared memory of this launch");
      expr(id, f.at);
      const ProgramBuffer& b = p_.buffers[f.buffer];
      const int64_t lines = i == 0 ? kGroupRows : x.group.columns, pitch = x.group.pitch[i];
      const int64_t along = x.group.turned[i] ? lines : depth, parts = along / kGroupBlock,
                    part = kGroupBlock * (x.group.turned[i] ? depth : lines);
      need(along % kGroupBlock == 0, id, "P17", "a multiple of 64 elements side by side");
      need(pitch % 512 == 0 && (parts == 1 || pitch >= part), id, "P17", "parts that lie apart, at multiples of 1,024 bytes");
      need(b.align % 1024 == 0 && p_.divisible(f.at, 512), id, "P17", "an operand that begins at a multiple of 1,024 bytes");
      need(p_.pool.nonnegative(f.at) &&
               p_.pool.less(p_.pool.add(f.at, p_.pool.number((parts - 1) * pitch + part - 1)), b.extent),
           id, "P10", "an operand certainly inside '" + b.name + "'");
    }
  }
  void copy(uint32_t id, const Statement& x) {
    need(d_.copies, id, "P18", "a device that copies to shared memory on its own");
    const Fragment &to = x.fragments[0], &from = x.fragments[1];
    need(to.buffer < p_.buffers.size() && p_.buffers[to.buffer].memory == Memory::Shared &&
             p_.buffers[to.buffer].launch == launch_,
         id, "P18", "shared memory of this launch to copy to");
    need(from.buffer < p_.buffers.size() && p_.buffers[from.buffer].memory == Memory::Global &&
             p_.buffers[from.buffer].access == Access::In && !p_.buffers[from.buffer].aliased,
         id, "P18", "an input to copy from, in which no output lies");
    const ProgramBuffer &a = p_.buffers[to.buffer], &b = p_.buffers[from.buffer];
    need(a.type == b.type, id, "P18", "one type on both sides");
    need(x.inst.args[0] == kNone || p_.statements[x.inst.args[0]].inst.type == Type::Bool, id, "P3", "a bool condition");
    const int64_t bytes = x.count * type_bytes(a.type);
    need(bytes == 4 || bytes == 8 || bytes == 16, id, "P18", "4, 8 or 16 bytes");
    expr(id, to.at);
    expr(id, from.at);
    need(p_.divisible(to.at, x.count) && p_.divisible(from.at, x.count) && b.align % bytes == 0, id, "P18",
         "addresses that are multiples of the copy's size");
    const Expr last = p_.pool.number(x.count - 1);
    need(p_.pool.nonnegative(to.at) && p_.pool.less(p_.pool.add(to.at, last), a.extent), id, "P10",
         "a place certainly inside '" + a.name + "'");
    need(!p_.pool.nonnegative(p_.pool.sub(p_.pool.sub(kZero, from.at), kOne)) &&
             (b.extent == kZero || !p_.pool.nonnegative(p_.pool.sub(p_.pool.add(from.at, last), b.extent))),
         id, "P8", "an index lies inside '" + b.name + "'");
  }
  void register_index(uint32_t id, const ProgramBuffer& b, Expr index) {
    std::vector<uint32_t> used;
    p_.pool.collect(index, AtomKind::Axis, used);
    bool constant = true;
    for (const uint32_t a : used) constant = constant && (binds_[a] == Bind::Unroll || binds_[a] == Bind::Vector);
    used.clear();
    p_.pool.collect(index, AtomKind::Symbol, used);
    p_.pool.collect(index, AtomKind::Value, used);
    need(constant && used.empty(), id, "P10", "registers are indexed by unroll and vector axes and numbers alone");
    need(p_.pool.nonnegative(index) && p_.pool.less(index, b.extent), id, "P10", "an index certainly inside '" + b.name + "'");
  }

  void loop(uint32_t id, const Statement& x) {
    need(!is_launch(x.bind), id, "P5", "loops bound to the device stand outside of all others");
    axis(id, x);
    const Expr extent = p_.pool.extent(x.axis);
    const auto n = p_.pool.as_number(extent);
    if (x.bind != Bind::Serial) need(n && *n >= 0 && *n <= 4096, id, "P7", "a number of points, 4096 at most");
    if (x.bind == Bind::Vector) vector(id, x, n.value_or(0));
    const Varies outer = control_;
    control_ = std::max(control_, expr(id, extent));
    body(x.body);
    control_ = outer;
    open_[x.axis] = 0;
  }

  void vector(uint32_t id, const Statement& x, int64_t n) {
    const char* const rule = "one load and the store of its value";
    need(x.body.size() == 2 && x.body[0] < p_.statements.size() && x.body[1] < p_.statements.size(), id, "P11", rule);
    const Inst &load = p_.statements[x.body[0]].inst, &store = p_.statements[x.body[1]].inst;
    need(p_.statements[x.body[0]].kind == StatementKind::Inst && p_.statements[x.body[1]].kind == StatementKind::Inst &&
             load.op == Op::Load && store.op == Op::Store && store.args[0] == x.body[0] && load.args[0] == kNone &&
             store.args[1] == kNone,
         id, "P11", rule);
    need(n > 1 && (n & (n - 1)) == 0 && n * type_bytes(load.type) <= 16 && n * type_bytes(load.type) >= 2, id, "P11",
         "a power of two of elements, of 2 to 16 bytes");
    int registers = 0;
    for (const Inst* i : {&load, &store}) {
      need(i->id < p_.buffers.size(), id, "P11", "a buffer");
      const ProgramBuffer& b = p_.buffers[i->id];
      const auto a = p_.pool.affine(i->index, x.axis);
      need(a && a->coefficient == kOne, id, "P11", "elements side by side in '" + b.name + "'");
      registers += b.memory == Memory::Register;
      need(p_.divisible(a->rest, n) && (b.memory != Memory::Global || b.align % (n * type_bytes(b.type)) == 0), id, "P11",
           "an address in '" + b.name + "' that is a multiple of the access's size");
    }
    need(registers == 1, id, "P11", "registers on one side, memory on the other");
  }

  void define(uint32_t id, Varies v) {
    visible_[id] = 1;
    varies_[id] = v;
  }

  void access(uint32_t id, const Inst& x, bool store) {
    need(x.id < p_.buffers.size(), id, "P8", "loads and stores name a buffer");
    const ProgramBuffer& b = p_.buffers[x.id];
    need(b.type == (store ? p_.statements[x.args[0]].inst.type : x.type), id, "P3", "the value has the type of the buffer");
    const Varies v = expr(id, x.index);
    const bool certain = p_.pool.nonnegative(x.index) && p_.pool.less(x.index, b.extent);
    if ((store || x.args[0] == kNone) && b.extent != kZero)
      need(certain || (!p_.pool.nonnegative(p_.pool.sub(p_.pool.sub(kZero, x.index), kOne)) &&
                       !p_.pool.nonnegative(p_.pool.sub(x.index, b.extent))),
           id, "P8", "an index lies inside '" + b.name + "'");
    if (b.memory >= Memory::Shared) need(b.launch == launch_, id, "P9", "'" + b.name + "' belongs to this launch");
    if (b.memory == Memory::Register) register_index(id, b, x.index);
    if (b.memory == Memory::Global)
      need(store ? b.access != Access::In : b.access != Access::Out || written_[x.id], id, "P12",
           store ? "an output is stored" : "an input is loaded, or what was stored before");
    if (b.memory == Memory::Workspace && !store)
      need(written_before_[x.id], id, "P12", "an earlier launch stores what is loaded");
    if (store) written_[x.id] = 1;
    if (!store) define(id, b.memory <= Memory::Workspace ? v : kByLane);
  }

  void inst(uint32_t id, const Inst& x) {
    const auto operand = [&](size_t a) { return p_.statements[x.args[a]].inst.type; };
    Varies v = kNowhere;
    for (const uint32_t a : x.args)
      if (a != kNone) v = std::max(v, varies_[a]);
    switch (x.op) {
      case Op::Index: need(x.type == Type::I64, id, "P3", "an index is an i64"); return define(id, expr(id, x.index));
      case Op::Load:
        need((x.args[0] == kNone) == (x.args[1] == kNone) && x.args[2] == kNone, id, "P3",
             "a predicate comes with the value for the other case");
        if (x.args[0] != kNone)
          need(operand(0) == Type::Bool && operand(1) == x.type, id, "P3", "a bool predicate and a value of the loaded type");
        access(id, x, false);
        varies_[id] = std::max(varies_[id], v);
        return;
      case Op::Store:
        need(x.args[0] != kNone && x.args[1] == kNone, id, "P3", "a value, and no predicate: an `if` stands around it");
        return access(id, x, true);
      case Op::Check:
        need(x.args[0] != kNone && x.args[1] == kNone && operand(0) == Type::Bool, id, "P3", "a bool");
        need(x.id == kFaultDivision || x.id == kFaultIndex, id, "P15", "a known fault");
        return;
      case Op::Param:
      case Op::Reduce:
      case Op::Second: fail(id, "P3", "an instruction of one thread");
      default:
        if (const auto m = misfit(x, operand_types(x, [&](uint32_t a) { return p_.statements[a].inst.type; })))
          fail(id, m->rule == std::string("V8") ? "P15" : "P3", m->expected);
        return define(id, v);
    }
  }

  Program& p_;
  const GpuDescription& d_;
  size_t launch_ = 0;
  std::vector<uint8_t> seen_, visible_;
  std::vector<Varies> varies_;
  std::vector<uint8_t> bound_, open_;  // by axis
  std::vector<Bind> binds_;
  std::vector<Varies> axis_varies_;
  std::vector<uint8_t> written_, written_before_;  // by buffer
  Varies control_ = kNowhere;
};

}  // namespace

void verify(Program& p, const GpuDescription& device) { ProgramVerifier(p, device).run(); }

}  // namespace tessera::kit
