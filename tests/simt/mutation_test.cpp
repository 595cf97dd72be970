// SPDX-License-Identifier: Apache-2.0
// Is what judges programs strict enough? Each mutant is a program of the suite with one barrier, one condition or one predicate
// removed, or with two axes of one index exchanged. The verifier refuses it, or the interpreter complains, or a result differs;
// else it survived. A condition that holds for every thread at the sizes of the run, and an index that is the same for every
// thread after the exchange, cannot change a result there: those are no mutants.
//
// What survives stands in survivors.txt with the reason, and how many of them there are at most; another survivor is a failure.
//
//   SIMT_MUTANTS=all simt_tests "mutants of programs are found"      every mutant, not one of twelve; lists what survived
//   SIMT_MUTANTS=2/8 simt_tests "mutants of programs are found"      of every eighth case from the third on
#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "places.hpp"
#include "share.hpp"
#include "simt_support.hpp"
#include "tessera/kit/program/interpret.hpp"
#include "tessera/kit/program/verify.hpp"
#include "tessera/plugin.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Mutant {
  std::string kind, what;
  kit::Program program;
  // What makes this no mutant: a value that is true everywhere, or two indices that are equal everywhere.
  uint32_t condition = kit::kNone;
  kit::Expr before = kit::kZero, after = kit::kZero;
  uint32_t at = kit::kNone;  // the statement that was changed
};

std::vector<uint32_t>* body_of(kit::Program& p, uint32_t id) {
  for (auto& l : p.launches)
    if (std::find(l.begin(), l.end(), id) != l.end()) return &l;
  for (kit::Statement& s : p.statements)
    if (std::find(s.body.begin(), s.body.end(), id) != s.body.end()) return &s.body;
  return nullptr;
}

void replace(kit::Program& p, uint32_t id, const std::vector<uint32_t>& by) {
  std::vector<uint32_t>& body = *body_of(p, id);
  const auto at = std::find(body.begin(), body.end(), id);
  body.insert(body.erase(at), by.begin(), by.end());
}

// The loop that makes one access of several elements out of the statement; kNone: none does.
uint32_t vector_around(const kit::Program& p, uint32_t id) {
  for (uint32_t i = 0; i < p.statements.size(); ++i) {
    const kit::Statement& s = p.statements[i];
    if (s.kind == kit::StatementKind::Loop && s.bind == kit::Bind::Vector &&
        std::find(s.body.begin(), s.body.end(), id) != s.body.end())
      return i;
  }
  return kit::kNone;
}

// What nothing stands in any more must not be counted as missing.
kit::Program compacted(const kit::Program& p) { return kit::parse_program(kit::print(p)); }

std::vector<Mutant> mutants_of(const kit::Program& p) {
  std::vector<Mutant> out;
  for (uint32_t id = 0; id < p.statements.size(); ++id) {
    const kit::Statement& s = p.statements[id];
    const auto mutant = [&](const char* kind, const std::string& what) -> kit::Program& {
      out.push_back({kind, what + " in statement " + std::to_string(id), p});
      out.back().at = id;
      return out.back().program;
    };
    if (s.kind == kit::StatementKind::Barrier) replace(mutant("barrier", "no barrier"), id, {});
    if (s.kind == kit::StatementKind::MmaWait) replace(mutant("wait", "no wait for a matrix instruction"), id, {});
    if (s.kind == kit::StatementKind::CopyWait) replace(mutant("wait", "no wait for copies"), id, {});
    if (s.kind == kit::StatementKind::CopyWait) ++mutant("wait", "a wait for one batch less").statements[id].count;
    if (s.kind == kit::StatementKind::Copy) replace(mutant("copy", "no copy"), id, {});
    if (s.kind == kit::StatementKind::If) {
      replace(mutant("condition", "no condition"), id, s.body);
      out.back().condition = s.inst.args[0];
    }
    if (s.kind != kit::StatementKind::Inst || (s.inst.op != kit::Op::Load && s.inst.op != kit::Op::Store)) continue;
    if (s.inst.op == kit::Op::Load && s.inst.args[0] != kit::kNone) {
      mutant("predicate", "no predicate").statements[id].inst.args = {kit::kNone, kit::kNone, kit::kNone};
      out.back().condition = s.inst.args[0];
    }
    std::vector<uint32_t> axes;
    p.pool.collect(s.inst.index, kit::AtomKind::Axis, axes);
    for (size_t a = 0; a + 1 < axes.size(); ++a) {
      kit::Program& m = mutant("index", "axes " + p.axis_names[axes[a]] + " and " + p.axis_names[axes[a + 1]] + " exchanged");
      m.statements[id].inst.index = m.pool.substitute(s.inst.index, [&](const kit::Atom& x) -> std::optional<kit::Expr> {
        if (x.kind != kit::AtomKind::Axis || (x.id != axes[a] && x.id != axes[a + 1])) return std::nullopt;
        return m.pool.axis(x.id == axes[a] ? axes[a + 1] : axes[a]);
      });
      out.back().before = s.inst.index, out.back().after = m.statements[id].inst.index;
      if (out.back().before == out.back().after) out.pop_back();
    }
  }
  return out;
}

// Does the change make a difference to some thread of a run? A load in front of the statement says so: it is out of bounds
// where there is a difference, which ends the run at the first.
bool differs(const kit::Program& original, const Mutant& m, Data data, const std::vector<int64_t>& symbols) {
  kit::Program p = m.condition == kit::kNone ? m.program : original;
  std::vector<uint32_t> added;
  const auto add = [&](kit::Op op, kit::Type t, uint32_t a, uint32_t b, kit::Expr index) {
    kit::Statement s;
    s.inst.op = op, s.inst.type = t, s.inst.args = {a, b, kit::kNone}, s.inst.index = index;
    if (op == kit::Op::Load) s.inst.id = 0;
    p.statements.push_back(s);
    added.push_back(static_cast<uint32_t>(p.statements.size() - 1));
    return added.back();
  };
  // Nothing may stand beside an access of several elements: the check stands in front of it, for the first and the last.
  // Indices are affine in the axis of such an access, or the verifier refuses them.
  const uint32_t vector = vector_around(p, m.at), place = vector == kit::kNone ? m.at : vector;
  const auto equal = [&](std::optional<kit::Expr> element) {
    const auto at = [&](kit::Expr e) {
      const auto put = [&](const kit::Atom& x) -> std::optional<kit::Expr> {
        if (!element || x.kind != kit::AtomKind::Axis || x.id != p.statements[vector].axis) return std::nullopt;
        return *element;
      };
      return add(kit::Op::Index, kit::Type::I64, kit::kNone, kit::kNone, p.pool.substitute(e, put));
    };
    const uint32_t before = at(m.before), after = at(m.after);
    return add(kit::Op::Eq, kit::Type::Bool, before, after, kit::kZero);
  };
  uint32_t condition = m.condition;
  if (condition == kit::kNone) {
    condition = vector == kit::kNone ? equal(std::nullopt) : equal(kit::kZero);
    if (vector != kit::kNone) {
      const kit::Expr last = p.pool.sub(p.pool.extent(p.statements[vector].axis), kit::kOne);
      condition = add(kit::Op::And, kit::Type::Bool, condition, equal(last), kit::kZero);
    }
    if (const uint32_t predicate = p.statements[m.at].inst.args[0];
        p.statements[m.at].inst.op == kit::Op::Load && predicate != kit::kNone) {  // what is not read may lie anywhere
      const uint32_t unread = add(kit::Op::Not, kit::Type::Bool, predicate, kit::kNone, kit::kZero);
      condition = add(kit::Op::Or, kit::Type::Bool, condition, unread, kit::kZero);
    }
    p.statements[m.at].inst.index = m.before;
  }
  const uint32_t unequal = add(kit::Op::Not, kit::Type::Bool, condition, kit::kNone, kit::kZero);
  const uint32_t zero = add(kit::Op::Const, p.buffers[0].type, kit::kNone, kit::kNone, kit::kZero);
  add(kit::Op::Load, p.buffers[0].type, unequal, zero, p.pool.number(-1));  // of the first buffer
  added.push_back(place);
  replace(p, place, added);
  try {
    kit::interpret(p, data.pointers(), symbols, 1);
    return false;
  } catch (const sdk::Error&) {
    return true;
  }
}

struct Judged {
  Data input, want;
  uint32_t faults;
};

// Two sets of values, each in an order of threads of its own.
bool found(const Mutant& m, const SimtKernel& k, const SimtCase& c, const kit::GpuDescription& d,
           const std::vector<Judged>& judged) {
  try {
    kit::Program p = compacted(m.program);
    kit::verify(p, d);
    for (size_t i = 0; i < judged.size(); ++i) {
      Data got = judged[i].input;
      if (kit::interpret(p, got.pointers(), c.symbols, i + 1) != judged[i].faults) return true;
      if (!case_difference(k, judged[i].want, got).empty()) return true;
    }
    return false;
  } catch (const sdk::Error&) {
    return true;
  }
}

// How many mutants of a case and a change may survive, by "CASE; CHANGE", from lines "CASE; CHANGE; MOST; WHY".
std::map<std::string, size_t> known_survivors() {
  std::ifstream in(source_dir() + "/tests/simt/survivors.txt");
  REQUIRE(in);
  std::map<std::string, size_t> out;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t change = line.find("; "), most = line.find("; ", change + 2), why = line.find("; ", most + 2);
    INFO(line);
    REQUIRE((change != std::string::npos && most != std::string::npos && why != std::string::npos));
    out[line.substr(0, most)] = std::stoul(line.substr(most + 2, why - most - 2));
  }
  return out;
}

// The first line in which two programs are not alike, of both.
std::string changed_line(const kit::Program& a, const kit::Program& b) {
  std::istringstream one(kit::print(a)), other(kit::print(b));
  std::string x, y;
  while (std::getline(one, x)) {
    if (!std::getline(other, y)) y.clear();
    if (x != y) break;
  }
  const auto trimmed = [](const std::string& s) { return s.substr(std::min(s.size(), s.find_first_not_of(' '))); };
  return trimmed(x) + "  ->  " + trimmed(y);
}

}  // namespace

TEST_CASE("mutants of programs are found") {
  const char* const asked = std::getenv("SIMT_MUTANTS");
  const bool all = asked != nullptr;
  unsigned first = 0, step = 1;
  if (all && std::strcmp(asked, "all") != 0)
    REQUIRE((std::sscanf(asked, "%u/%u", &first, &step) == 2 && step > 0 && first < step));
  const size_t part = all ? 1 : 1200 / share_of(100);
  const kit::SimtOrder order;
  size_t number = 0, ran = 0, missed = 0;
  std::map<std::string, std::pair<size_t, size_t>> kinds;  // mutants, found
  std::map<std::string, size_t> survived;                  // by "CASE; CHANGE"
  std::string survivors;
  std::vector<SimtCase> cases = simt_cases();
  for (SimtCase& c : cases)
    if (c.name == "product_fused") c.symbols = {150};  // three steps, or no wait is for anything
  for (size_t i = first; i < cases.size(); i += step)
    for (const char* device : {"sim32", "sim64"}) {
      const SimtCase& c = cases[i];
      if (all) std::fprintf(stderr, "%s, %s\n", c.name.c_str(), device);
      const kit::GpuDescription& d = kit::gpu_description(device);
      SimtKernel k = lower_case(c);
      std::vector<Judged> judged;
      for (const uint64_t seed : {5, 6}) {
        const Data input = case_data(k, c, seed, false);
        Data want = input;
        const uint32_t faults = judge(k, c, order, want);
        judged.push_back({input, want, faults});
      }
      std::vector<kit::SimtSchedule> schedules = reachable(k, c, d, order, all ? 4 : 1);
      for (const kit::SimtSchedule& s : schedules) {
        const kit::Program p = make(k, c, s, d, order);
        for (const Mutant& m : mutants_of(p)) {
          if (number++ % part) continue;
          const auto on = [&](const Judged& j) { return differs(p, m, j.input, c.symbols); };
          if (m.kind != "barrier" && m.kind != "wait" && m.kind != "copy" && std::none_of(judged.begin(), judged.end(), on))
            continue;
          ++ran;
          ++kinds[m.kind].first;
          if (found(m, k, c, d, judged)) {
            ++kinds[m.kind].second;
            continue;
          }
          ++missed;
          ++survived[c.name + "; " + m.what.substr(0, m.what.find(" in statement "))];
          survivors += "  " + c.name + ", " + device + ", " + kit::to_text(s) + ": " + m.what + ": " +
                       changed_line(p, compacted(m.program)) + "\n";
        }
      }
    }
  std::printf("%zu mutants, %zu found\n", ran, ran - missed);
  for (const auto& [kind, n] : kinds) std::printf("  %s: %zu of %zu\n", kind.c_str(), n.second, n.first);
  if (all) std::printf("survivors:\n%s", survivors.c_str());
  INFO(survivors);
  CHECK((ran >= share_of(100) || step > 1));
  CHECK((static_cast<double>(ran - missed) >= 0.95 * static_cast<double>(ran) || step > 1));
  const std::map<std::string, size_t> known = known_survivors();
  for (const auto& [change, n] : survived) {
    INFO(change << ": " << n << " survived");
    const auto at = known.find(change);
    CHECK((at != known.end() && n <= at->second));
  }
}
