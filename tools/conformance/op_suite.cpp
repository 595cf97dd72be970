// SPDX-License-Identifier: Apache-2.0
// L2 and L3: every op, in every dtype that its record allows, against the judge. L2 runs one case per op and dtype on dense
// operands; L3 more of them, in every memory layout, and the values that formulas forget.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "cases.hpp"
#include "draw.hpp"
#include "op_run.hpp"
#include "special.hpp"
#include "subject.hpp"
#include "suites.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::conformance {
namespace {

struct OpCases {
  std::vector<Case> plain, special;
};

// Cases of the files, then those drawn from records that no file names.
OpCases collect(Subject& s) {
  OpCases out;
  if (!s.settings().cases.empty()) out.plain = read_cases(s.settings().cases);
  const e::Context& context = s.context("\"" + std::string(s.judge()) + "\"");
  std::set<std::string> named, elementwise, known;
  for (const Case& c : out.plain) named.insert(c.op);
  for (const OpRecord& r : read_op_records(context.ops())) {
    known.insert(r.name);
    if (r.has_trait("elementwise")) elementwise.insert(r.name);
    if (named.contains(r.name)) continue;
    for (Case& c : draw_cases(r, 8, [&](const std::string& text) {
           try {
             (void)context.parse(text, "case");
             return true;
           } catch (const e::Error&) {
             return false;
           }
         }))
      out.plain.push_back(std::move(c));
  }
  std::erase_if(out.plain, [&](const Case& c) { return !known.contains(c.op); });
  out.special = special_cases(out.plain, elementwise);
  return out;
}

std::string name_of(const Case& c, const char* suite) {
  std::string name = std::string(suite) + "/" + c.op;
  for (const Operand& o : c.operands) {
    name += o.omitted ? " _" : " " + std::string(dtype_name(o.dtype)) + "[";
    for (size_t d = 0; !o.omitted && d < o.sizes.size(); ++d) name += (d ? "," : "") + std::to_string(o.sizes[d]);
    if (!o.omitted) name += "]";
  }
  return name + (c.attributes.empty() ? "" : " " + c.attributes);
}

// What makes a case worth running beside the first one of its op and dtype: an operand without elements, one of a single
// element along some dimension, operands of different shapes, and the last case, which is the largest in most files.
std::set<size_t> choice(const std::vector<const Case*>& cases) {
  std::set<size_t> out = {0, cases.size() / 2, cases.size() - 1};
  const auto first = [&](auto&& has) {
    for (size_t i = 0; i < cases.size(); ++i)
      if (has(*cases[i])) {
        out.insert(i);
        return;
      }
  };
  const auto any_size = [](const Case& c, int64_t size) {
    return std::any_of(c.operands.begin(), c.operands.end(), [&](const Operand& o) {
      return !o.omitted && std::find(o.sizes.begin(), o.sizes.end(), size) != o.sizes.end();
    });
  };
  first([&](const Case& c) { return any_size(c, 0); });
  first([&](const Case& c) { return any_size(c, 1); });
  first([](const Case& c) {
    const Operand* before = nullptr;
    for (const Operand& o : c.operands) {
      if (!o.omitted && before && before->sizes != o.sizes) return true;
      if (!o.omitted) before = &o;
    }
    return false;
  });
  return out;
}

}  // namespace

void add_op_checks(Subject& s, Checks& out) {
  const std::vector<std::string> backends = s.manifest().names("backend");
  if (backends.empty() || s.settings().level < 2) return;
  const OpCases cases = collect(s);
  std::map<std::string, size_t> names;
  std::map<std::string, std::vector<const Case*>> groups;
  for (const Case& c : cases.plain) groups[c.op + " " + std::to_string(c.dtype)].push_back(&c);
  std::map<const Case*, int> levels;  // of the cases that run
  for (const auto& [key, group] : groups) {
    const std::set<size_t> some = choice(group);
    for (size_t i = 0; i < group.size(); ++i)
      if (s.settings().all || some.contains(i)) levels[group[i]] = i == 0 ? 2 : 3;
  }
  for (const std::string& backend : backends) {
    names.clear();
    const std::string of = backends.size() > 1 ? " on " + backend : "";
    size_t number = 0;
    const auto add = [&](const Case& c, const char* suite, int level, const char* about, OpRun how) {
      // A sample takes every so many-th case of all, so that a change of one op's cases moves few others.
      if (number++ % static_cast<size_t>(s.settings().sample)) return;
      std::string name = name_of(c, suite) + of;
      if (const size_t times = names[name]++) name += " #" + std::to_string(times + 1);
      how.backend = backend;
      out.push_back({level, std::move(name), about,
                     [c = std::make_shared<const Case>(c), how](Subject& subject) { run_case(subject, *c, how); }});
    };
    for (const Case& c : cases.plain) {
      const auto level = levels.find(&c);
      if (level == levels.end()) continue;
      OpRun how;
      how.all_layouts = s.settings().level >= 3;
      add(c, "ops", level->second, "Results are within the documented bounds of the judge's, whatever the operands' layout.",
          how);
    }
    for (const Case& c : cases.special) {
      OpRun how;
      how.special = true;
      add(c, "special", 3, "Zeros of both signs, infinities, NaN, subnormal and largest numbers give the judge's results.",
          how);
    }
  }
}

}  // namespace tessera::conformance
