// SPDX-License-Identifier: Apache-2.0
#include "op_run.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "check.hpp"
#include "guarded.hpp"
#include "special.hpp"
#include "tensors.hpp"
#include "tessera/dtypes.hpp"
#include "tolerance.hpp"

namespace tessera::conformance {
namespace {

using Json = nlohmann::ordered_json;

bool steps_run_on(const Json& steps, const std::string& backend) {
  for (const Json& step : steps) {
    if (step.at("kind") == "kernel" && step.at("backend") == backend) return true;
    if (step.contains("regions"))
      for (const Json& region : step.at("regions"))
        if (region.contains("steps") && steps_run_on(region.at("steps"), backend)) return true;
  }
  return false;
}

bool has_layouts(const Case& c) {
  return std::any_of(c.operands.begin(), c.operands.end(),
                     [](const Operand& o) { return !o.omitted && !is_packed(o.dtype) && !o.sizes.empty(); });
}

bool wants_distinct(const Case& c) {
  return std::any_of(c.operands.begin(), c.operands.end(), [](const Operand& o) { return o.distinct; });
}

std::vector<std::vector<char>> values_of(const Case& c, bool special) {
  std::vector<std::vector<char>> out;
  int64_t inner = 1;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    if (c.operands[i].omitted) continue;
    out.push_back(special ? special_values(c, i, inner, c.operands[i].sizes[0]) : make_values(c, i));
    if (special) inner *= special_count(c, i);
  }
  return out;
}

std::vector<const Operand*> present(const Case& c) {
  std::vector<const Operand*> out;
  for (const Operand& o : c.operands)
    if (!o.omitted) out.push_back(&o);
  return out;
}

std::vector<e::Tensor> arranged(const Case& c, const std::vector<std::vector<char>>& values, Layout layout, bool absolute) {
  std::vector<e::Tensor> out;
  const std::vector<const Operand*> operands = present(c);
  for (size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = *operands[i];
    const Layout own = layout == Layout::Repeated && !o.exact.empty() ? Layout::Dense : layout;
    out.push_back(arrange(o.dtype, o.sizes, absolute ? absolute_values(o, values[i]) : values[i], own));
  }
  return out;
}

// The results of one run in memory that begins as `fill`, between margins that must stay.
struct GuardedRun {
  std::vector<GuardedMemory> memory;
  std::vector<tsr_tensor> results;
  std::vector<std::vector<int64_t>> sizes, strides;
};

GuardedRun run_guarded(const e::Executable& tested, const Case& c, const std::vector<std::vector<char>>& values,
                       size_t num_results, uint8_t fill) {
  std::vector<GuardedMemory> operands;
  std::vector<tsr_tensor> in;
  const std::vector<const Operand*> present_operands = present(c);
  for (size_t i = 0; i < present_operands.size(); ++i) {
    const Operand& o = *present_operands[i];
    int64_t n = 1;
    for (const int64_t s : o.sizes) n *= s;
    const auto bytes = static_cast<size_t>(storage_bytes(o.dtype, n));
    operands.emplace_back(bytes);
    if (bytes) std::memcpy(operands.back().data(), values[i].data(), bytes);
    operands.back().make_read_only();
    tsr_tensor t{};
    t.data = operands.back().data();
    t.dtype = o.dtype;
    t.rank = static_cast<uint32_t>(o.sizes.size());
    t.sizes = o.sizes.data();
    in.push_back(t);
  }
  GuardedRun run;
  run.results.resize(num_results);
  run.sizes.resize(num_results);
  run.strides.resize(num_results);
  run.memory.reserve(num_results);
  std::vector<size_t> memory_of(num_results, 0);
  tested.run_raw(in, num_results, [&](size_t index, const tsr_tensor& described, size_t bytes) -> void* {
    run.sizes[index].assign(described.sizes, described.sizes + described.rank);
    run.strides[index].assign(described.strides, described.strides + described.rank);
    memory_of[index] = run.memory.size();
    run.memory.emplace_back(bytes, fill);
    tsr_tensor& t = run.results[index];
    t = described;
    t.data = run.memory.back().data();
    return t.data;
  });
  for (size_t i = 0; i < num_results; ++i) {
    run.results[i].sizes = run.sizes[i].data();
    run.results[i].strides = run.strides[i].data();
    if (!run.memory.empty() && !run.memory[memory_of[i]].margins_intact())
      throw Failed("result " + std::to_string(i) + ": bytes before or behind the result were written");
  }
  return run;
}

int64_t elements_of(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t.rank; ++d) n *= t.sizes[d];
  return n;
}

// Where bits differ; "" where they do not. Of packed elements only whole bytes count.
std::string bits_differ(const tsr_tensor& a, const tsr_tensor& b) {
  const int64_t n = elements_of(a),
                bytes = is_packed(a.dtype) ? n * static_cast<int64_t>(dtype_bits(a.dtype)) / 8 : storage_bytes(a.dtype, n);
  const auto *x = static_cast<const unsigned char*>(a.data), *y = static_cast<const unsigned char*>(b.data);
  for (int64_t i = 0; i < bytes; ++i)
    if (x[i] != y[i]) {
      const int64_t element = i * 8 / static_cast<int64_t>(dtype_bits(a.dtype));
      return "element " + std::to_string(element) + " is " + print_element(a, element) + " in one run and " +
             print_element(b, element) + " in another" + (x[i] == 0xA5 && y[i] == 0x5A ? ": it is never written" : "");
    }
  return "";
}

class CaseRun {
 public:
  CaseRun(Subject& s, const Case& c, const OpRun& how)
      : s_(s),
        c_(c),
        how_(how),
        text_(c.text()),
        values_(values_of(c, how.special)),
        table_(s.backend_table(how.backend, &self_)) {}

  void run() {
    const std::string expected = judge_code();
    std::unique_ptr<e::Executable> tested;
    try {
      tested = std::make_unique<e::Executable>(compile(s_.order_of(how_.backend)));
    } catch (const e::Error& x) {
      if (!expected.empty() && x.code() == expected) return;
      throw Failed("it does not compile: " + std::string(x.what()) + "\n" + text_);
    }
    if (!runs_on(*tested, how_.backend)) {
      refuse();
      throw Skipped("not claimed");
    }
    if (!expected.empty()) return expect_error(*tested, expected);
    const bool computes = !(table_.capabilities & TSR_CAP_NO_COMPUTE);
    const bool host = std::string_view(table_.device) == "cpu";
    if (host) run_in_guarded_memory(*tested, computes);
    for (const Layout layout : layouts) {
      if (layout == Layout::Dense && host) continue;
      if (layout != Layout::Dense && (!how_.all_layouts || how_.special || !has_layouts(c_))) break;
      if (layout == Layout::Repeated && wants_distinct(c_)) continue;
      const std::vector<e::Tensor> in = arranged(c_, values_, layout, false);
      std::vector<tsr_tensor> got;
      std::vector<e::Tensor> results = tested->run(in);
      for (e::Tensor& t : results) {
        t = t.copy_to(0);  // dense, on the host
        got.push_back(t.desc());
      }
      compare_with_judge(got, layout, computes);
    }
  }

 private:
  e::Executable compile(const std::string& order) const {
    const e::Context& c = s_.context(order);
    return c.compile(c.parse(text_, "case"));
  }

  // The code of the error that the judge gives for this case; "": it computes results.
  std::string judge_code() {
    try {
      judge_ = std::make_unique<e::Executable>(compile("\"" + std::string(s_.judge()) + "\""));
      want_ = judge_->run(arranged(c_, values_, Layout::Dense, false));
      return "";
    } catch (const e::Error& x) {
      return x.code();
    }
  }

  void expect_error(const e::Executable& tested, const std::string& expected) const {
    try {
      (void)tested.run(arranged(c_, values_, Layout::Dense, false));
      e::synchronize(tested_device());
    } catch (const e::Error& x) {
      if (x.code() == expected) return;
      throw Failed("it ends with " + x.code() + ", expected " + expected + ": " + x.what() + "\n" + text_);
    }
    throw Failed("it gives a result, expected the error " + expected + "\n" + text_);
  }
  tsr_device tested_device() const { return e::device(table_.device); }

  // Alone, without a backend behind it: what it does not take is refused with a code and its own reason.
  void refuse() const {
    try {
      (void)compile(s_.order_of(how_.backend, false));
    } catch (const e::Error& x) {
      if (x.code() != "TSR-R020")
        throw Failed("alone it refuses with " + x.code() + ", expected TSR-R020: " + x.what() + "\n" + text_);
      if (x.message().find("refused without a reason") != std::string::npos)
        throw Failed("it refuses without a reason\n  hint: no(\"...\") says what would have been taken\n" + text_);
    }
  }

  void run_in_guarded_memory(const e::Executable& tested, bool computes) {
    const GuardedRun a = run_guarded(tested, c_, values_, want_.size(), 0xA5);
    compare_with_judge(a.results, Layout::Dense, computes);
    if (!computes) return;
    const GuardedRun b = run_guarded(tested, c_, values_, want_.size(), 0x5A);
    for (size_t i = 0; i < want_.size(); ++i) {
      const std::string what = bits_differ(a.results[i], b.results[i]);
      if (what.find("never written") != std::string::npos || (!what.empty() && (table_.capabilities & TSR_CAP_DETERMINISTIC)))
        throw Failed("result " + std::to_string(i) + ": " + what + "\n" + text_);
    }
    if (!(table_.capabilities & TSR_CAP_DETERMINISTIC)) compare_with_judge(b.results, Layout::Dense, true);
  }

  void compare_with_judge(const std::vector<tsr_tensor>& got, Layout layout, bool computes) {
    const std::vector<e::Tensor> in = arranged(c_, values_, layout, false);
    const std::vector<e::Tensor> want = layout == Layout::Dense ? want_ : judge_->run(in);
    std::vector<e::Tensor> magnitude;
    for (size_t r = 0; r < want.size(); ++r) {
      const std::string where = "result " + std::to_string(r) + ", " + layout_name(layout) + " operands: ";
      const tsr_tensor& expected = want[r].desc();
      if (!computes) {
        // Sizes that depend on data are not known to a backend that computes none.
        if (got[r].dtype != expected.dtype || got[r].rank != expected.rank)
          throw Failed(where + "found " + type_text(got[r]) + ", expected " + type_text(expected) + "\n" + text_);
        continue;
      }
      const Tolerance* row = tolerance_of(c_.op, expected.dtype);
      if (row && row->scale == Scale::Absolute && magnitude.empty())
        magnitude = judge_->run(arranged(c_, values_, layout, true));
      const double items = items_of(c_.op, in.empty() ? 1 : in[0].elements(), want[r].elements());
      std::string what = compare(got[r], expected, magnitude.empty() ? nullptr : &magnitude[r].desc(), row, items);
      if (what.empty() && how_.special) what = zeros_differ(got[r], expected);
      if (!what.empty()) throw Failed(where + what + operands_at(what, in) + "\n" + text_);
    }
  }

  // Of an elementwise op: the operands of the element that a message names.
  std::string operands_at(const std::string& what, const std::vector<e::Tensor>& in) const {
    const size_t at = what.find("element ");
    if (!how_.special || at == what.npos) return "";
    std::string out;
    for (const e::Tensor& t : in) out += " " + print_element(t.desc(), std::atoll(what.c_str() + at + 8));
    return "\n  operands" + out;
  }

  Subject& s_;
  const Case& c_;
  const OpRun& how_;
  std::string text_;
  std::vector<std::vector<char>> values_;
  void* self_ = nullptr;
  const tsr_backend& table_;
  std::unique_ptr<e::Executable> judge_;
  std::vector<e::Tensor> want_;
};

}  // namespace

bool runs_on(const e::Executable& executable, const std::string& backend) {
  return steps_run_on(Json::parse(executable.describe()).at("steps"), backend);
}

size_t fused_groups(const e::Executable& executable, const std::string& backend) {
  const Json plan = Json::parse(executable.describe());
  return static_cast<size_t>(std::count_if(plan.at("steps").begin(), plan.at("steps").end(), [&](const Json& step) {
    return step.at("op") == "fused" && step.at("backend") == backend;
  }));
}

std::vector<e::Tensor> dense_operands(const Case& c) { return arranged(c, values_of(c, false), Layout::Dense, false); }

void run_case(Subject& s, const Case& c, const OpRun& how) { CaseRun(s, c, how).run(); }

}  // namespace tessera::conformance
