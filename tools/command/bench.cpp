// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>

#include "describe.hpp"
#include "inputs.hpp"
#include "json.hpp"
#include "measure.hpp"
#include "session.hpp"
#include "text.hpp"

namespace tessera::command {

int bench(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  InputArguments input;
  Budget budget;
  std::string model;
  bool progress_lines = false, steps = false;
  options.positional("MODEL", &model);
  context.add_to(options);
  input.add_to(options);
  options.integer("iters", "N", &budget.iterations, 1, 1000000000, "Timed calls (default: as many as fit into --seconds).");
  options.integer("warmup", "N", &budget.warmup, 0, 1000000000, "Calls before them that are not timed (default 3).");
  options.number("seconds", "S", &budget.seconds, 0.001, 1e6, "Time for the timed calls (default 2).");
  options.flag("steps", &steps, "Print where the time goes: the mean of every step over the timed calls, the slowest first.");
  options.flag("progress", &progress_lines, "Say on stderr, in plain lines, what takes more than a second.");
  if (!options.parse(args)) return kOk;
  if (options.given("iters") && options.given("seconds"))
    throw usage_error("TSR-U003", "--iters and --seconds are both given", "one of them says when to stop");

  if (steps) context.overrides.push_back("runtime.measure_steps=true");
  Progress progress(progress_lines);
  Session s = open_session(context, model, progress, &input);
  progress.phase("writing the cache");
  s.context.cache_flush();  // what is measured next should have the machine for itself
  progress.phase("preparing inputs");
  const Inputs inputs = make_inputs(s.signature, input);
  const std::vector<tsr_device> devices = devices_of(s.executable);
  memory_peak(devices, true);
  progress.phase("warming up");
  Caller caller(s.executable, fresh(s.signature, inputs));
  const double first = caller.call();
  const int64_t warmup = budget.warmup >= 0 ? budget.warmup : 3;
  for (int64_t i = 0; i < warmup; ++i) caller.call();

  const std::string warm = steps ? s.executable.describe() : "";

  progress.phase("measuring");
  std::vector<double> times;
  const double limit = now_ms() + budget.seconds * 1e3;
  // At least ten calls, so that percentiles mean something, but not for models that take minutes.
  constexpr size_t kLeast = 10;
  constexpr double kPatience = 5;
  while (budget.iterations > 0
             ? times.size() < static_cast<size_t>(budget.iterations)
             : now_ms() < limit || (times.size() < kLeast && now_ms() < limit + kPatience * budget.seconds * 1e3) ||
                   times.empty()) {
    times.push_back(caller.call());
    if (budget.iterations > 0) progress.part(times.size(), static_cast<size_t>(budget.iterations));
  }
  const int64_t peak = memory_peak(devices, false);
  progress.finish();

  const double median = quantile(times, 0.5), p10 = quantile(times, 0.1), p90 = quantile(times, 0.9),
               p99 = quantile(times, 0.99);
  double sum = 0;
  for (const double t : times) sum += t;
  if (options.json()) {
    Json document = {{"model", model},
                     {"config", context.config.empty() ? "default" : context.config},
                     {"threads", s.threads},
                     {"iterations", times.size()},
                     {"warmup", warmup},
                     {"median_ms", median},
                     {"p10_ms", p10},
                     {"p90_ms", p90},
                     {"p99_ms", p99},
                     {"mean_ms", sum / static_cast<double>(times.size())},
                     {"min_ms", *std::min_element(times.begin(), times.end())},
                     {"max_ms", *std::max_element(times.begin(), times.end())},
                     {"load_ms", s.load_ms},
                     {"compile_ms", s.compile_ms},
                     {"pack_ms", s.pack_ms},
                     {"first_call_ms", first},
                     {"peak_bytes", peak},
                     {"input_bytes", inputs.bytes()}};
    if (steps) document["executable"] = Json::parse(measured_since(warm, s.executable.describe()));
    print_json("tessera.bench/1", document);
    return kOk;
  }
  Table table("lr", {"", "value"});
  table.row({"median call", ms_text(median)});
  table.row({"10th percentile", ms_text(p10)});
  table.row({"99th percentile", ms_text(p99)});
  table.row({"first call", ms_text(first)});
  table.row({"compile", ms_text(s.compile_ms)});
  table.row({"pack constants", ms_text(s.pack_ms)});
  table.row({"peak memory", bytes_text(static_cast<double>(peak))});
  if (steps) std::cout << steps_text(measured_since(warm, s.executable.describe())) << "\n";
  std::cout << table.text() << "\n"
            << times.size() << " calls after " << warmup << " of warm-up, " << s.threads
            << (s.threads == 1 ? " thread\n" : " threads\n");
  return kOk;
}

}  // namespace tessera::command
