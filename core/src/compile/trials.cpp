// SPDX-License-Identifier: Apache-2.0
#include "compile/trials.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "compile/driver.hpp"
#include "compile/partition.hpp"
#include "compile/recompute.hpp"
#include "ir/graph.hpp"
#include "log/log.hpp"
#include "memory/parallel.hpp"
#include "plan/plan.hpp"
#include "run/executable.hpp"
#include "support/interrupt.hpp"
#include "support/jobs.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

// What passes and backends say of the graph at hand, in texts that belong together. How long a stage has taken is one line.
constexpr Artifact kTexts[] = {Artifact::kPasses,     Artifact::kFusion,     Artifact::kPerfHints,  Artifact::kSchedule,
                               Artifact::kKernelCode, Artifact::kOutputCode, Artifact::kAutotuning, Artifact::kSymNode};

// One plan on its way: what a thread of its own leaves to the one that waits for it.
struct Lowering {
  Trial trial;
  std::vector<Compilation> programs;
  Estimate price;
  std::exception_ptr error;

  void run(const CompileOptions& given, Stage last) noexcept {
    try {
      recompute(*trial.graph, trial.again);
      CompileOptions options = given;
      options.partition = nullptr;
      std::vector<std::unique_ptr<Graph>> graphs;
      if (given.partition && given.partition->split)
        graphs = given.partition->split(std::move(trial.graph), options);
      else
        graphs.push_back(std::move(trial.graph));
      for (std::unique_ptr<Graph>& g : graphs) programs.push_back(lower(std::move(g), options, last));
      if (!given.measure_costs) find_price();
    } catch (...) {
      error = std::current_exception();
    }
  }

  // Its programs run one after the other.
  void find_price() {
    for (Compilation& c : programs) {
      const Estimate e = core::price(c);
      price.peak_bytes = std::max(price.peak_bytes, e.peak_bytes);
      price.seconds += e.seconds;
    }
    programs.clear();
  }
};

}  // namespace

size_t trials_at_once(const CompileOptions& options, Stage last) {
  const bool heard = std::any_of(std::begin(kTexts), std::end(kTexts), [](Artifact a) { return log_enabled(a); });
  const bool measures = last == Stage::kKernels && options.tune != 0;
  if (heard || measures || trace_enabled()) return 1;
  return static_cast<size_t>(std::max(1, options.threads > 0 ? options.threads : num_threads()));
}

std::vector<Estimate> estimate_trials(size_t count, const std::function<Trial(size_t)>& make, const CompileOptions& options,
                                      Stage last) {
  const size_t at_once = trials_at_once(options, last);
  std::vector<Estimate> out;
  while (out.size() < count) {
    end_if_interrupted();
    std::vector<Lowering> some(std::min(at_once, count - out.size()));
    for (size_t i = 0; i < some.size(); ++i) some[i].trial = make(out.size() + i);
    if (some.size() == 1) {
      some[0].run(options, last);
    } else {
      Jobs jobs(some.size());
      for (Lowering& l : some) jobs.add([&l, &options, last] { l.run(options, last); });
    }
    for (Lowering& l : some) {
      if (l.error) std::rethrow_exception(l.error);
      if (options.measure_costs) l.find_price();
      out.push_back(l.price);
    }
  }
  return out;
}

}  // namespace tessera::core
