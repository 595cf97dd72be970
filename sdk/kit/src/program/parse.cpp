// SPDX-License-Identifier: Apache-2.0
#include "../text_parser.hpp"
#include "tessera/kit/program/program.hpp"

namespace tessera::kit {
namespace {

class ProgramParser : private TextParser {
 public:
  explicit ProgramParser(std::string_view text) : TextParser(text, "program text", "TSR-K026", p_.pool) {}

  Program run() {
    expect("program");
    p_.name = name('@');
    expect("(");
    const size_t start = at_;
    scan_symbols();
    at_ = start;
    while (!accept(")")) {
      if (!p_.buffers.empty()) expect(",");
      global();
    }
    if (accept("symbols")) {
      expect("(");
      do {
        word();
        expect(">=");
        integer();
        if (accept("multiple")) integer();
      } while (accept(","));
      expect(")");
    }
    expect("wave");
    p_.wave = static_cast<int>(number_between(1, 1024, "a number of lanes between 1 and 1024"));
    expect("{");
    while (accept("workspace")) declare(Memory::Workspace);
    while (accept("require")) {
      const Expr e = expr();
      expect("<=");
      p_.require.push_back({e, integer()});
    }
    while (accept("launch")) {
      expect("{");
      p_.launches.emplace_back();
      for (;;) {
        if (accept("shared"))
          declare(Memory::Shared);
        else if (accept("register"))
          declare(Memory::Register);
        else
          break;
      }
      std::vector<uint32_t> statements = body(0);
      p_.launches.back() = std::move(statements);
    }
    expect("}");
    skip();
    if (at_ != s_.size()) fail("the end of the text");
    return std::move(p_);
  }

 private:
  int64_t number_between(int64_t low, int64_t high, const char* expected) {
    skip();
    const size_t before = at_;
    const int64_t n = integer();
    if (n >= low && n <= high) return n;
    at_ = before;
    fail(expected);
  }
  void scan_symbols() {
    const size_t open = s_.find('{', at_);
    const size_t at = s_.substr(0, open).find("symbols(", at_);
    if (at == s_.npos) return;
    at_ = at + 8;
    do {
      const std::string symbol = word();
      expect(">=");
      const int64_t min = integer();
      const int64_t multiple = accept("multiple") ? number_between(1, int64_t{1} << 32, "a positive number") : 1;
      if (!symbols_.try_emplace(symbol, p_.add_symbol(symbol, min, multiple)).second) fail("a symbol of another name");
    } while (accept(","));
  }
  ProgramBuffer typed() {
    ProgramBuffer b;
    b.type = type();
    expect("[");
    b.extent = expr();
    expect("]");
    return b;
  }
  void add(ProgramBuffer b) {
    // Shared memory and registers of different launches may have one name.
    if (!buffers_.insert_or_assign(b.name, static_cast<uint32_t>(p_.buffers.size())).second) {
      for (const ProgramBuffer& other : p_.buffers)
        if (other.name == b.name && (other.memory <= Memory::Workspace || other.launch == b.launch))
          fail("a buffer of another name");
    }
    p_.buffers.push_back(std::move(b));
  }
  void global() {
    const std::string buffer = name('%');
    expect(":");
    const Access access = accept("inout") ? Access::InOut : accept("in") ? Access::In : (expect("out"), Access::Out);
    ProgramBuffer b = typed();
    b.name = buffer;
    b.access = access;
    if (accept("align")) b.align = number_between(1, 4096, "an alignment in bytes");
    add(std::move(b));
  }
  void declare(Memory memory) {
    const std::string buffer = name('%');
    expect(":");
    ProgramBuffer b = typed();
    b.name = buffer;
    b.memory = memory;
    b.access = Access::InOut;
    b.launch = memory >= Memory::Shared ? static_cast<uint32_t>(p_.launches.size() - 1) : 0;
    if (memory == Memory::Shared && accept("align")) b.align = number_between(1, 4096, "an alignment in bytes");
    add(std::move(b));
  }

  std::vector<uint32_t> body(int depth) {
    if (depth > kMaxNesting) fail("fewer nested loops");
    std::vector<uint32_t> list;
    while (!accept("}")) {
      if (p_.statements.size() >= kMaxInsts) fail("fewer statements");
      const auto id = static_cast<uint32_t>(p_.statements.size());
      p_.statements.emplace_back();
      const Statement x = statement(depth, id);
      p_.statements[id] = x;
      list.push_back(id);
    }
    return list;
  }
  Statement statement(int depth, uint32_t id) {
    Statement x;
    if (accept("if")) {
      x.kind = StatementKind::If;
      x.inst.args[0] = value();
      expect("{");
      x.body = body(depth + 1);
      return x;
    }
    if (accept("barrier")) {
      x.kind = StatementKind::Barrier;
      x.scope = accept("warp") ? BarrierScope::Warp : (expect("block"), BarrierScope::Block);
      return x;
    }
    const auto fragment = [&](size_t i) {
      x.fragments[i].buffer = buffer_ref();
      expect("[");
      x.fragments[i].at = expr();
      expect("]");
    };
    if (accept("mma")) {
      x.kind = StatementKind::Mma;
      x.inst.type = type();
      for (size_t i = 0; i < x.fragments.size(); ++i) {
        if (i > 0) expect(",");
        fragment(i);
      }
      return x;
    }
    if (accept("mma_group")) {
      x.kind = StatementKind::MmaGroup;
      x.inst.type = type();
      fragment(0);
      for (size_t i = 0; i < 2; ++i) {
        expect(",");
        fragment(i + 1);
        expect("pitch");
        x.group.pitch[i] = integer();
        x.group.turned[i] = accept("turned");
      }
      expect(",");
      expect("columns");
      x.group.columns = integer();
      expect("depth");
      x.group.depth = integer();
      return x;
    }
    if (accept("mma_wait")) {
      x.kind = StatementKind::MmaWait;
      fragment(0);
      expect("columns");
      x.group.columns = integer();
      return x;
    }
    if (accept("copy")) {
      x.kind = StatementKind::Copy;
      x.count = integer();
      fragment(0);
      expect(",");
      fragment(1);
      if (accept("if")) x.inst.args[0] = value();
      return x;
    }
    if (accept("copy_end")) {
      x.kind = StatementKind::CopyEnd;
      return x;
    }
    if (accept("copy_wait")) {
      x.kind = StatementKind::CopyWait;
      x.count = integer();
      return x;
    }
    for (int b = 0; b < kNumBinds; ++b)
      if (accept(bind_name(static_cast<Bind>(b)))) {
        x.kind = StatementKind::Loop;
        x.bind = static_cast<Bind>(b);
        const std::string axis = word();
        if (symbols_.count(axis)) fail("an axis of another name than the symbol '" + axis + "'");
        expect("<");
        const Expr extent = expr();
        x.axis = p_.add_axis(axis, extent);
        const auto outer = axes_.find(axis);
        const uint32_t hidden = outer == axes_.end() ? kNone : outer->second;
        axes_[axis] = x.axis;
        expect("{");
        x.body = body(depth + 1);
        if (hidden != kNone)
          axes_[axis] = hidden;
        else
          axes_.erase(axis);
        return x;
      }
    if (effect(x.inst, /*predicates=*/false)) return x;
    const std::string result = name('%');
    expect("=");
    const std::string op = word();
    if (op == "shuffle") {
      x.kind = StatementKind::Shuffle;
      if (accept("xor")) {
        x.lane = integer();
      } else {
        expect("from");
        x.exchange = Exchange::From;
        x.lane = integer();
        expect("of");
        x.lanes = integer();
      }
      x.inst.args[0] = value();
      expect(":");
      x.inst.type = type();
    } else {
      x.inst = operation(op);
    }
    if (!values_.try_emplace(result, id).second) fail("a value of another name than '%" + result + "'");
    return x;
  }

  Program p_;
};

}  // namespace

Program parse_program(std::string_view text) { return ProgramParser(text).run(); }

}  // namespace tessera::kit
