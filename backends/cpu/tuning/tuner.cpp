// SPDX-License-Identifier: Apache-2.0
#include "tuning/tuner.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "conv.hpp"
#include "conv_shape.hpp"
#include "finish.hpp"
#include "library/onednn.hpp"
#include "product.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;
namespace kit = tessera::kit;

namespace {

constexpr double kWorthIt = 0.97;  // of the time that is predicted to be the least; closer is noise
constexpr size_t kMostCandidates = 32;
constexpr double kShortest = 3e-6;  // seconds; what is shorter is as long as the clock takes
const char *const kPredicted = "predicted", *const kPlain = "plain", *const kStrassen = "strassen";
const char* const kBusy =
    "its time is another in every round, so the machine does something else as well; try again when it does not";

sdk::Node anchor(const sdk::Node& n) { return n.is("fused") ? anchor_of(n) : n; }

std::string text_of(const sdk::Compile& c, const sdk::Type& t) {
  std::string out(tessera::dtype_name(t.dtype()));
  out += "[";
  for (size_t i = 0; i < t.sizes().size(); ++i)
    out += (i ? "," : "") + std::to_string(c.hint(t.sizes()[i])) + (TSR_DIM_IS_EXPR(t.sizes()[i]) ? "?" : "");
  return out + "]";
}

// Everything that the time of a product or a convolution depends on.
std::string problem_of(const sdk::Compile& c, int most_winograd, bool strassen) {
  const sdk::Node n = c.node(), at = anchor(n);
  std::string out(at.op());
  const char* why = nullptr;
  if (const std::optional<Finish> finish = at == n ? std::nullopt : Finish::of(n, at, &why)) out += finish->name();
  if (c.relaxed()) out += " relaxed";
  for (uint32_t i = 0; i < n.num_operands(); ++i) {
    out += " ";
    if (!n.has_operand(i)) {
      out += "_";
      continue;
    }
    const sdk::Value v = n.operand(i);
    out += text_of(c, v.type()) + (v.def() && v.def().is("constant") ? "c" : "");
  }
  out += " -> " + text_of(c, n.result().type());
  if (at.is("conv")) {
    const ConvAttributes a(at);
    out += " groups " + std::to_string(a.groups) + " winograd " + std::to_string(most_winograd);
    for (int i = 0; i < 2; ++i)
      out += " " + std::to_string(a.stride[i]) + "/" + std::to_string(a.low[i]) + "/" + std::to_string(a.high[i]) + "/" +
             std::to_string(a.dilation[i]);
  } else {
    const ProductAxes axes = claim_product(at).axes;
    const auto add = [&](const char* name, const auto& list, auto&& text) {
      out += std::string(" ") + name;
      for (const auto& x : list) out += " " + text(x);
    };
    const auto pair = [](const std::pair<int, int>& p) { return std::to_string(p.first) + ":" + std::to_string(p.second); };
    const auto one = [](int x) { return std::to_string(x); };
    if (!strassen) out += " plain";
    add("batch", axes.batch, pair), add("k", axes.k, pair), add("m", axes.m, one), add("n", axes.n, one);
  }
  return out;
}

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  return std::isfinite(seconds) ? text : "-";
}

// What a candidate does not survive is no reason to fail: it is not taken.
template <class F>
auto tried(const char* what, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const sdk::Error& e) {
    sdk::log("autotuning", std::string("cpu: ") + what + " is left out: " + e.what());
  } catch (const kit::Unfit& u) {
    sdk::log("autotuning", std::string("cpu: ") + what + " is left out: " + u.why);
  }
  return {};
}

}  // namespace

Tuner::Tuner(Compiler::Options compiler, std::string directory, const Isa& isa, const kit::Device& device, int most_winograd,
             bool strassen)
    : options_(std::move(compiler)),
      choices_(std::move(directory), isa),
      isa_(isa),
      device_(device),
      most_winograd_(most_winograd),
      strassen_(strassen) {
  options_.cache_directory.clear();  // what loses is not worth keeping
}

bool Tuner::has_ways(const sdk::Node& node) {
  const sdk::Node at = anchor(node);
  return at && (is_product(at.op()) || at.is("conv"));
}

// It takes the best that the processor has, whatever [cpu] isa says.
bool Tuner::has_onednn() const { return have_onednn() && &isa_ == &native_isa(); }

bool Tuner::asked(const sdk::Compile& c, uint32_t what) {
  constexpr tsr_id kBody = 0;
  return (c.tune() & what) != 0 && c.node().raw().parent == kBody;
}

std::vector<std::string> Tuner::ways(const sdk::Compile& c) const {
  std::vector<std::string> out;
  if (c.unfrozen()) return out;  // all of them have weights in a form of their own
  if (anchor(c.node()).is("conv"))
    for (const ConvWay w : conv_ways(c, isa_, most_winograd_)) out.emplace_back(to_text(w));
  if (strassen_ && is_product(anchor(c.node()).op()) && can_strassen(c)) out.insert(out.end(), {kPlain, kStrassen});
  if (has_onednn()) out.emplace_back("onednn");
  return out;
}

std::unique_ptr<sdk::Kernel> Tuner::make_way(const sdk::Compile& c, const std::string& way) const {
  const sdk::Node at = anchor(c.node());
  const bool conv = at.is("conv");
  if (way == kPredicted)
    return conv ? make_conv(c, isa_, most_winograd_)
                : make_product(c, isa_, strassen_ ? ProductWay::kPredicted : ProductWay::kPlain);
  if (way == "onednn" && has_onednn())
    return conv ? make_onednn_conv(c, at) : make_onednn_product(c, at, claim_product(at).axes);
  if (!conv) {
    if (way == kPlain || (way == kStrassen && strassen_))
      return make_product(c, isa_, way == kPlain ? ProductWay::kPlain : ProductWay::kStrassen);
    return nullptr;
  }
  for (const ConvWay w : conv_ways(c, isa_, most_winograd_))
    if (way == to_text(w)) return make_conv(c, isa_, most_winograd_, w);
  return nullptr;
}

void Tuner::choose_ways(std::span<const sdk::Compile* const> requests, const Budget& budget) {
  std::set<std::string> seen;
  bool told = false;
  size_t done = 0;
  for (const sdk::Compile* c : requests) {
    sdk::progress("measuring algorithms", done++, requests.size());
    if (ways(*c).empty()) continue;
    try {
      const std::string problem = problem_of(*c, most_winograd_, strassen_);
      if (!seen.insert(problem).second || choices_.find(problem)) continue;
      if (!std::exchange(told, true)) sdk::log("autotuning", "cpu: what is decided here holds for\n" + choices_.holds_for());
      if (budget.spent()) {
        sdk::log("autotuning", "cpu: the budget of max_autotune_seconds is spent; predicted: " + problem);
        continue;
      }
      Trial trial(*c);
      std::vector<std::unique_ptr<sdk::Kernel>> kernels;
      std::vector<std::string> names = {kPredicted};
      kernels.push_back(make_way(trial.compile(), kPredicted));
      trial.seconds(*kernels[0]);
      const std::string want = trial.outputs();
      for (const std::string& way : ways(*c)) {
        std::unique_ptr<sdk::Kernel> k = tried(way.c_str(), [&] { return make_way(trial.compile(), way); });
        if (!k || k->name() == kernels[0]->name()) continue;
        const bool ran = tried(way.c_str(), [&] {
          trial.seconds(*k);
          return true;
        });
        if (!ran) continue;
        // Whatever its time: a way that computes something else is a mistake, and no choice.
        if (!trial.like_outputs(want)) {
          sdk::log("autotuning", "cpu: " + way + " is left out: its results are not those of the predicted way");
          continue;
        }
        names.push_back(way);
        kernels.push_back(std::move(k));
      }
      if (kernels.size() == 1) {
        choices_.keep(problem, kPredicted);
        continue;
      }
      const std::optional<std::vector<double>> measured = measure(trial, kernels, budget);
      if (!measured) throw Unmeasurable{kBusy};
      const std::vector<double>& times = *measured;
      size_t best = 0;
      for (size_t i = 1; i < times.size(); ++i)
        if (times[i] < kWorthIt * times[0] && times[i] < (best ? times[best] : times[0])) best = i;
      const std::string chosen = choices_.keep(problem, names[best]);
      std::string line = "cpu: " + problem + "\n ";
      for (size_t i = 0; i < names.size(); ++i)
        line += " " + names[i] + " " + microseconds(times[i]) + (i + 1 < names.size() ? "," : "");
      sdk::log("autotuning", line + ": " + chosen);
    } catch (const Unmeasurable& u) {
      sdk::log("autotuning", "cpu: " + std::string(c->node().op()) + " is predicted: " + u.why);
    } catch (const sdk::Error& e) {
      sdk::log("autotuning", "cpu: " + std::string(c->node().op()) + " is predicted: " + e.what());
    }
  }
  if (done > 0) sdk::progress("measuring algorithms", done, done);
}

std::unique_ptr<sdk::Kernel> Tuner::make(const sdk::Compile& c) const {
  // One kernel alone: each keeps weights in a form of its own.
  if (asked(c, TSR_TUNE_ALGORITHMS) && !c.unfrozen())
    if (const std::optional<std::string> way = choices_.find(problem_of(c, most_winograd_, strassen_)))
      if (std::unique_ptr<sdk::Kernel> chosen = make_way(c, *way)) return chosen;
  return make_way(c, kPredicted);
}

// ----------------------------------------------------------------------------------------------------------- schedules

namespace {

// The text under the model's schedule says all about the kernel but the sizes of symbols.
std::string schedule_problem(const sdk::Compile& c, const WrittenKernel& d) {
  std::string out = "schedule of " + d.source.text + "sizes";
  for (const tsr_dim s : d.lowered.symbol_dims) out += " " + std::to_string(c.hint(s));
  return out;
}

}  // namespace

std::optional<kit::Choice> Tuner::schedule_of(const sdk::Compile& c, WrittenKernel& d) const {
  if (!asked(c, TSR_TUNE_SCHEDULES)) return std::nullopt;
  const std::optional<std::string> record = choices_.find(schedule_problem(c, d));
  if (!record) return std::nullopt;
  const std::optional<kit::Choice> choice = kit::parse_choice(*record, d.lowered.kernel, d.schedule, device_);
  if (!choice || *choice == kit::choice_of(d.schedule)) return std::nullopt;
  return choice;
}

std::unique_ptr<sdk::Kernel> Tuner::generate(const sdk::Compile& c, const kit::Choice& choice) {
  WrittenKernel d = write_kernel(c.graph(), c.node(), device_, c.relaxed(), /*log=*/false, &choice);
  Compiler compiler(options_);
  ModulePtr module = compiler.compile(d.source);
  return make_generated(c, std::move(d), std::move(module), device_);
}

void Tuner::choose_schedule(const sdk::Compile& c, WrittenKernel& d, const Budget& budget) {
  const std::string problem = schedule_problem(c, d);
  if (choices_.find(problem)) return;
  const kit::Choice start = kit::choice_of(d.schedule);
  const auto around = [&](const kit::Choice& from, int coordinate) {
    return kit::neighbours(d.lowered.kernel, d.schedule, device_, from, coordinate);
  };
  bool any = false;
  for (int i = 0; i < kit::kCoordinates; ++i) any = any || !around(start, i).empty();
  if (!any) return;
  if (budget.spent()) {
    sdk::log("autotuning", "cpu: the budget of max_autotune_seconds is spent; the schedule of " + d.name + " is predicted");
    return;
  }
  try {
    Trial trial(c);
    struct Tried {
      kit::Choice choice;
      double seconds;
    };
    std::vector<Tried> all;
    kit::Choice best = start;
    std::unique_ptr<sdk::Kernel> holder = generate(trial.compile(), start);
    trial.seconds(*holder);
    const std::string want = trial.outputs();
    double least = 0;
    std::string report;
    for (int i = 0; i < 3; ++i) least = std::min(i ? least : 1, trial.seconds(*holder));
    if (least < kShortest) throw Unmeasurable{"it takes " + microseconds(least)};
    for (bool better = true; better && all.size() < kMostCandidates && !budget.spent();) {
      better = false;
      for (int coordinate = 0; coordinate < kit::kCoordinates && !budget.spent(); ++coordinate) {
        std::vector<kit::Choice> choices = {best};
        std::vector<std::unique_ptr<sdk::Kernel>> kernels;
        kernels.push_back(std::move(holder));
        for (const kit::Choice& x : around(best, coordinate)) {
          if (std::any_of(all.begin(), all.end(), [&](const Tried& t) { return t.choice == x; })) continue;
          std::unique_ptr<sdk::Kernel> k = tried("a schedule", [&] { return generate(trial.compile(), x); });
          if (!k) continue;
          trial.seconds(*k);
          if (trial.outputs() != want) {
            sdk::log("autotuning", "cpu: a schedule of " + d.name +
                                       " is left out, since it changes bits, which is a bug: " + kit::to_text(x));
            continue;
          }
          choices.push_back(x);
          kernels.push_back(std::move(k));
        }
        size_t winner = 0;
        if (kernels.size() > 1) {
          const std::optional<std::vector<double>> measured = measure(trial, kernels, budget);
          if (!measured) throw Unmeasurable{kBusy};
          const std::vector<double>& times = *measured;
          for (size_t i = 1; i < times.size(); ++i) {
            all.push_back({choices[i], times[i]});
            report += ", " + kit::to_text(choices[i]) + " " + microseconds(times[i]);
            if (times[i] < kWorthIt * times[0] && times[i] < times[winner]) winner = i;
          }
          if (report.find(kit::to_text(best)) == std::string::npos)
            report = ", " + kit::to_text(best) + " " + microseconds(times[0]) + report;
          least = times[winner];
        }
        best = choices[winner];
        holder = std::move(kernels[winner]);
        if (winner > 0) {
          better = true;
          --coordinate;  // further in the same direction
        }
      }
    }
    const std::string chosen = choices_.keep(problem, kit::to_text(best));
    sdk::log("autotuning", "cpu: schedule of " + d.name + (best == start ? " stays as predicted: " : ": ") + chosen + " " +
                               microseconds(least) + " of" + (report.empty() ? " none" : report.substr(1)));
  } catch (const Unmeasurable& u) {
    sdk::log("autotuning", "cpu: the schedule of " + d.name + " is predicted: " + u.why);
  } catch (const sdk::Error& e) {
    sdk::log("autotuning", "cpu: the schedule of " + d.name + " is predicted: " + e.what());
  }
}

}  // namespace cpu
