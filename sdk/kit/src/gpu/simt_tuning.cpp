// SPDX-License-Identifier: Apache-2.0
// Schedules that are measured on a device: from the model's on, one number at a time, for as long as it gets faster. All
// kernels of a plan take each step together, so that what they need is compiled at once. The order of reductions is the
// family's: no schedule changes a bit, and one that does is refused.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <set>

#include "simt_trial.hpp"
#include "tessera/kit/choices.hpp"
#include "written_kernel.hpp"

namespace tessera::kit {
namespace {

constexpr int kRounds = 7;              // in which each candidate is measured once
constexpr double kWorthIt = 0.98;       // what is faster by less is noise
constexpr size_t kMostCandidates = 60;  // of one kernel
const char* const kProgress = "measuring schedules";

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  return text;
}

bool asks(const sdk::Compile& c) { return (c.tune() & TSR_TUNE_SCHEDULES) != 0; }

}  // namespace

// The search for one kernel.
struct SimtBackend::Tuning {
  const sdk::Compile* request = nullptr;
  std::string problem;
  SimtSchedule start;
  WrittenKernel best;
  double least = 0;  // seconds; 0: nothing was measured
  std::vector<SimtSchedule> tried;
  std::string report;
  bool open = true;
  std::string why;  // not empty: it cannot be measured
};

// The text under the model's schedule says all about the kernel but the sizes of symbols.
std::string SimtBackend::problem_of(const sdk::Compile& c, const WrittenKernel& d) {
  const GpuDescription& gpu = target_->description(index_of(c.p->device));
  std::string out = "tessera " + std::string(device()) + " schedule 1\nunits " + std::to_string(gpu.units) + " l2 " +
                    std::to_string(gpu.l2_bytes) + " bandwidth " + std::to_string(static_cast<int64_t>(gpu.bandwidth)) + "\n" +
                    d.key + "sizes";
  for (const tsr_dim s : d.symbol_dims) out += " " + std::to_string(c.hint(s));
  return out;
}

SimtBackend::WrittenKernel SimtBackend::write_tuned(const sdk::Compile& c) {
  if (!asks(c)) return write(c);
  WrittenKernel predicted = write(c, {}, /*log=*/false);
  if (!predicted.schedule) return write(c);
  const std::optional<std::string> record = choices_->find(problem_of(c, predicted));
  const std::optional<SimtSchedule> chosen = record ? parse_simt_schedule(*record) : std::nullopt;
  return chosen ? write(c, [&](const ScheduleSpace&) { return *chosen; }) : write(c);
}

void SimtBackend::tune(std::span<const sdk::Compile> requests, const MeasuringBudget& budget) {
  if (!target_->timed_device() || std::none_of(requests.begin(), requests.end(), asks)) return;
  std::map<uint32_t, std::vector<Tuning>> by_index;
  std::set<std::string> problems;
  for (const sdk::Compile& c : requests) {
    if (!asks(c) || !generates(c.graph(), c.node())) continue;
    WrittenKernel d = write(c, {}, /*log=*/false);
    if (!d.schedule) continue;
    std::string problem = problem_of(c, d);
    if (choices_->find(problem) || !problems.insert(problem).second) continue;
    const SimtSchedule start = *d.schedule;
    Tuning t;
    t.request = &c, t.problem = std::move(problem), t.start = start, t.best = std::move(d);
    by_index[index_of(c.p->device)].push_back(std::move(t));
  }
  for (auto& [index, all] : by_index) {
    for (size_t open = all.size(); open > 0 && !budget.spent();) {
      sdk::progress(kProgress, all.size() - open, all.size());
      improve(all, index, budget);
      open = static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const Tuning& t) { return t.open; }));
    }
    sdk::progress(kProgress, all.size(), all.size());
    for (const Tuning& t : all) {
      const std::string who = std::string(device()) + ": the schedule of " + t.best.name;
      if (!t.why.empty()) {
        sdk::log("autotuning", who + " is predicted: " + t.why);
      } else if (t.least == 0) {
        sdk::log("autotuning", who + " is predicted: the budget of max_autotune_seconds is spent");
      } else {
        const std::string chosen = choices_->keep(t.problem, to_text(*t.best.schedule));
        sdk::log("autotuning", who + (*t.best.schedule == t.start ? " stays as predicted: " : ": ") + chosen + " " +
                                   microseconds(t.least) + " of" + t.report);
      }
    }
  }
}

// One step of each search that is open.
void SimtBackend::improve(std::vector<Tuning>& all, uint32_t index, const MeasuringBudget& budget) {
  std::vector<std::vector<WrittenKernel>> candidates(all.size());  // of each search, the best so far first
  for (size_t i = 0; i < all.size(); ++i) {
    Tuning& t = all[i];
    if (!t.open) continue;
    std::vector<SimtSchedule> around;
    (void)write(
        *t.request,
        [&](const ScheduleSpace& space) {
          around = space.neighbours(*t.best.schedule);
          return space.chosen;
        },
        /*log=*/false);
    std::erase_if(around, [&](const SimtSchedule& s) { return std::find(t.tried.begin(), t.tried.end(), s) != t.tried.end(); });
    if (around.empty() || t.tried.size() > kMostCandidates) {
      t.open = false;
      if (t.tried.empty()) t.why = "it has one schedule only";
      continue;
    }
    candidates[i].push_back(t.best);
    for (const SimtSchedule& s : around)
      candidates[i].push_back(write(
          *t.request, [&](const ScheduleSpace&) { return s; }, /*log=*/false));
  }
  std::vector<WrittenKernel*> missing;
  for (std::vector<WrittenKernel>& some : candidates)
    for (WrittenKernel& d : some)
      if (!d.code) missing.push_back(&d);
  try {
    const std::vector<std::shared_ptr<SimtCode>> codes = build(missing, target_->description(index));
    for (size_t i = 0; i < codes.size(); ++i) missing[i]->code = codes[i];
  } catch (const sdk::Error& e) {  // what was found until now holds
    sdk::log("autotuning", std::string(device()) + ": candidates are left out: " + e.what());
    for (Tuning& t : all) {
      if (t.open && t.least == 0) t.why = e.what();
      t.open = false;
    }
    return;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (candidates[i].empty()) continue;
    if (budget.spent()) return;
    try {
      all[i].open = measured(all[i], std::move(candidates[i]), index);
    } catch (const Unmeasurable& u) {
      all[i].why = u.why;
      all[i].open = false;
    } catch (const sdk::Error& e) {
      all[i].why = e.what();
      all[i].open = false;
    }
  }
}

// Measures the candidates beside the first of them, which is the best so far. Whether one is better.
bool SimtBackend::measured(Tuning& t, std::vector<WrittenKernel> candidates, uint32_t index) {
  SimtTrial trial(*t.request, *target_->timed_device(), index);
  std::vector<std::unique_ptr<SimtTrial::Timed>> timed(candidates.size());
  std::string want;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i > 0) t.tried.push_back(*candidates[i].schedule);
    try {
      timed[i] = std::make_unique<SimtTrial::Timed>(trial, made(trial.compile(), candidates[i]));
    } catch (const sdk::Error& e) {
      if (i == 0) throw;
      sdk::log("autotuning", std::string(device()) + ": a schedule of " + t.best.name +
                                 " does not run: " + to_text(*candidates[i].schedule) + ": " + e.what());
      continue;
    }
    const std::string got = trial.outputs();
    if (i == 0) {
      want = got;
    } else if (got != want) {
      sdk::log("autotuning", std::string(device()) + ": a schedule of " + t.best.name +
                                 " is left out, since it changes bits, which is a bug: " + to_text(*candidates[i].schedule));
      timed[i].reset();
    }
  }
  std::vector<double> least(candidates.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < timed.size(); ++i)
      if (timed[i]) least[i] = std::min(least[i], timed[i]->seconds());
  size_t winner = 0;
  for (size_t i = 0; i < timed.size(); ++i) {
    if (!timed[i]) continue;
    if (i > 0 || t.report.empty())
      t.report += (t.report.empty() ? " " : ", ") + to_text(*candidates[i].schedule) + " " + microseconds(least[i]);
    if (i > 0 && least[i] < kWorthIt * least[0] && least[i] < least[winner]) winner = i;
  }
  t.least = least[winner];
  t.best = std::move(candidates[winner]);
  return winner > 0;
}

}  // namespace tessera::kit
