// SPDX-License-Identifier: Apache-2.0
// Several programs as one launch, as the updates of many small parameters: what such kernels cost is their launches. Each
// program has some of the blocks; which one a block belongs to follows from its number.
#include <algorithm>
#include <map>

#include "build.hpp"

namespace tessera::kit {
namespace {

class PartsWriter {
 public:
  PartsWriter(std::vector<ProgramPart> parts, const std::string& name, const std::vector<ProgramSymbol>& symbols,
              const GpuDescription& d)
      : b_(name, d), parts_(std::move(parts)) {
    for (const ProgramSymbol& s : symbols) b_.p.add_symbol(s.name, s.min, s.multiple);
    for (const ProgramPart& part : parts_) {
      if (part.program.launches.size() != 1 || !part.program.require.empty()) no_program("a part that is no single launch");
      nests_.push_back(nest_of(part.program));
    }
  }

  Program run() {
    IndexPool& p = b_.pool();
    std::vector<Expr> first = {kZero};
    int64_t threads = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      declare_globals(i);
      LaunchShape shape = launch_shape(parts_[i].program, 0);
      if (threads != 0 && shape.threads != threads) no_program("parts of other numbers of threads");
      threads = shape.threads;
      first.push_back(p.add(first.back(), expr(i, shape.blocks)));
    }
    b_.begin_launch();
    const Expr block = b_.begin(Bind::Grid, "b", first.back()), thread = b_.begin(Bind::Block, "t", p.number(threads));
    for (size_t i = 0; i < parts_.size(); ++i) {
      const uint32_t behind = i == 0 ? kNone : b_.binary(Op::Ge, b_.index(block), b_.index(first[i])),
                     before = i + 1 == parts_.size() ? kNone : b_.binary(Op::Lt, b_.index(block), b_.index(first[i + 1]));
      const bool opened = b_.begin_if(b_.both(behind, before));
      place(i, nests_[i].grid, p.sub(block, first[i]));
      place(i, nests_[i].threads, thread);
      declare_registers(i);
      body(i, *nests_[i].body);
      b_.end_if(opened);
    }
    b_.end();
    b_.end();
    b_.end_launch();
    return std::move(b_.p);
  }

 private:
  struct Nest {
    std::vector<uint32_t> grid, threads;  // axes
    const std::vector<uint32_t>* body;
    std::vector<Expr> axes;         // of the part's, in the whole
    std::vector<uint32_t> buffers;  // by number of the part's
    std::vector<uint32_t> values;   // by statement
  };

  static Nest nest_of(const Program& p) {
    Nest n;
    n.body = &p.launches[0];
    while (n.body->size() == 1) {
      const Statement& x = p.statements[(*n.body)[0]];
      if (x.kind != StatementKind::Loop || !is_launch(x.bind)) break;
      if (x.bind != Bind::Grid && x.bind != Bind::Block) no_program("a part whose threads work together");
      (x.bind == Bind::Grid ? n.grid : n.threads).push_back(x.axis);
      n.body = &x.body;
    }
    n.axes.resize(p.axis_names.size(), kZero);
    n.buffers.resize(p.buffers.size(), kNone);
    n.values.resize(p.statements.size(), kNone);
    return n;
  }

  Expr expr(size_t i, Expr e) {
    return moved(parts_[i].program.pool, e, b_.pool(), [&](const Atom& a) {
      if (a.kind == AtomKind::Symbol) return b_.pool().symbol(parts_[i].symbols[a.id]);
      return a.kind == AtomKind::Value ? b_.pool().value(nests_[i].values[a.id]) : nests_[i].axes[a.id];
    });
  }
  // The axes of a nest from one number, the last axis the fastest.
  void place(size_t i, const std::vector<uint32_t>& axes, Expr number) {
    if (axes.size() == 1) {
      nests_[i].axes[axes[0]] = number;
      return;
    }
    std::vector<Expr> extents;
    for (const uint32_t a : axes) extents.push_back(expr(i, parts_[i].program.pool.extent(a)));
    const std::vector<Expr> at = b_.pool().position(number, extents);
    for (size_t k = 0; k < axes.size(); ++k) nests_[i].axes[axes[k]] = at[k];
  }

  void declare_globals(size_t i) {
    const std::vector<ProgramBuffer>& from = parts_[i].program.buffers;
    for (size_t k = 0; k < from.size(); ++k) {
      if (from[k].memory == Memory::Workspace || from[k].memory == Memory::Shared) no_program("a part with memory of its own");
      if (from[k].memory == Memory::Global)
        nests_[i].buffers[k] = b_.buffer(from[k].name, Memory::Global, from[k].type, expr(i, from[k].extent), from[k].access);
    }
  }
  // A thread works on one part, so parts share registers.
  void declare_registers(size_t i) {
    const std::vector<ProgramBuffer>& from = parts_[i].program.buffers;
    std::map<std::pair<Type, Expr>, size_t> used;
    for (size_t k = 0; k < from.size(); ++k) {
      if (from[k].memory != Memory::Register) continue;
      const std::pair<Type, Expr> key{from[k].type, expr(i, from[k].extent)};
      std::vector<uint32_t>& same = registers_[key];
      const size_t n = used[key]++;
      if (n == same.size()) same.push_back(b_.buffer(from[k].name, Memory::Register, key.first, key.second));
      nests_[i].buffers[k] = same[n];
    }
  }

  void body(size_t i, const std::vector<uint32_t>& list) {
    const Program& p = parts_[i].program;
    Nest& n = nests_[i];
    for (const uint32_t id : list) {
      const Statement& x = p.statements[id];
      switch (x.kind) {
        case StatementKind::Loop: {
          const std::string& name = p.axis_names[x.axis];
          n.axes[x.axis] = b_.begin(x.bind, name.substr(0, 1).c_str(), expr(i, p.pool.extent(x.axis)));
          body(i, x.body);
          b_.end();
          break;
        }
        case StatementKind::If: {
          const bool opened = b_.begin_if(n.values[x.inst.args[0]]);
          body(i, x.body);
          b_.end_if(opened);
          break;
        }
        case StatementKind::Inst: n.values[id] = b_.inst(instruction(i, x.inst)); break;
        default: no_program("a part whose threads work together");
      }
    }
  }
  Inst instruction(size_t i, Inst x) {
    for (uint32_t& a : x.args)
      if (a != kNone) a = nests_[i].values[a];
    if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) x.index = expr(i, x.index);
    if (x.op == Op::Load || x.op == Op::Store) x.id = nests_[i].buffers[x.id];
    if (x.origin != kNone) {
      b_.p.origins.push_back(parts_[i].program.origins[x.origin]);
      x.origin = static_cast<uint32_t>(b_.p.origins.size() - 1);
    }
    return x;
  }

  ProgramBuilder b_;
  std::vector<ProgramPart> parts_;
  std::vector<Nest> nests_;
  std::map<std::pair<Type, Expr>, std::vector<uint32_t>> registers_;
};

}  // namespace

Program side_by_side(std::vector<ProgramPart> parts, const std::string& name, const std::vector<ProgramSymbol>& symbols,
                     const GpuDescription& d) {
  Program p = PartsWriter(std::move(parts), name, symbols, d).run();
  check_program(p, d);
  return p;
}

}  // namespace tessera::kit
