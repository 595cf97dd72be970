// SPDX-License-Identifier: Apache-2.0
// Two configs on one model. Numerics and memory come first, one config at a time; then both are compiled again, each in a
// process of its own, for times in blocks A B B A.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>

#include "accuracy.hpp"
#include "arm.hpp"
#include "compare_page.hpp"
#include "describe.hpp"
#include "divergence.hpp"
#include "environment.hpp"
#include "inputs.hpp"
#include "json.hpp"
#include "measure.hpp"
#include "outputs.hpp"
#include "session.hpp"
#include "text.hpp"

namespace tessera::command {
namespace {

struct Side {
  std::string config;
  std::optional<Signature> signature;
  std::vector<embed::Tensor> outputs;  // of one call, on the host
  std::vector<OutputError> errors;     // against the reference; empty: not compared
  std::vector<double> times;           // ms per call
  double compile_ms = 0, pack_ms = 0, first_call_ms = 0;
  int64_t peak_bytes = 0;         // of a call, with the inputs and the constants
  std::vector<double> explained;  // of each output: the error that rounding explains
  Json kernels;                   // how many run on which backend
  Json left;                      // those that a backend earlier in the order refused, and why
  Json guard_ms;                  // null: cannot be told, or not measured
  Json arm, steps;                // what the process that was timed said of itself; its steps with their times
};

Session open_with(ContextArguments context, const std::string& config, const std::string& model, InputArguments& arguments,
                  Progress& progress) {
  context.config = config;
  return open_session(context, model, progress, &arguments);
}

void check_same_model(const Signature& a, const Signature& b, const std::string& config) {
  const auto same = [](const std::vector<ValueInfo>& x, const std::vector<ValueInfo>& y) {
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [](const ValueInfo& v, const ValueInfo& w) {
             return v.name == w.name && v.dtype == w.dtype && v.sizes.size() == w.sizes.size();
           });
  };
  if (!same(a.inputs, b.inputs) || a.outputs.size() != b.outputs.size())
    throw usage_error("TSR-U006", config + ": its frontend reads another signature from the model",
                      "load the same frontend in both configs");
}

// Compiles, makes the inputs when nobody has yet, and calls once. The session ends here: executables share arenas, so that
// memory can only be told apart while no other one is alive.
Side call_once(const ContextArguments& context, const std::string& config, const std::string& model, InputArguments& arguments,
               std::optional<Inputs>& inputs, int64_t& input_use, const Signature* like, Progress& progress) {
  Side side;
  side.config = config;
  const std::vector<tsr_device> host = {0};
  const int64_t empty = memory_in_use(host);
  const Session session = open_with(context, config, model, arguments, progress);
  const std::vector<tsr_device> devices = devices_of(session.executable);
  side.signature = session.signature;
  if (like) check_same_model(*like, session.signature, config);
  side.compile_ms = session.compile_ms;
  side.pack_ms = session.pack_ms;
  session.context.cache_flush();  // what is timed should have the machine for itself
  int64_t shared = input_use;     // in use already when this side began
  if (!inputs) {
    progress.phase("preparing inputs");
    const int64_t before = memory_in_use(devices);
    inputs = make_inputs(session.signature, arguments);
    input_use = memory_in_use(devices) - before;
    shared = 0;
  }
  progress.phase("running with " + config);
  const std::vector<embed::Tensor> in = fresh(session.signature, *inputs);
  memory_peak(devices, true);
  const double start = now_ms();
  side.outputs = session.executable.run(in);
  side.first_call_ms = now_ms() - start;
  side.peak_bytes = memory_peak(devices, false) - empty + shared;
  side.outputs = on_host(std::move(side.outputs));
  side.explained = session.explained;
  const Json description = Json::parse(session.executable.describe());
  side.kernels = kernels_by_backend(description);
  side.left = left_to_others(description);
  return side;
}

constexpr double kTooNoisy = 0.05;  // a noise floor above this tells nothing

struct Timing {
  double seconds = 2;
  int64_t blocks = 0, warmup = 2;
};

void measure(Side& a, Arm& arm_a, Side& b, Arm& arm_b, const Timing& timing, bool steps, Progress& progress) {
  progress.phase("warming up A");
  a.arm = arm_a.open();
  progress.phase("warming up B");
  b.arm = arm_b.open();
  const auto na = a.arm.at("calls").get<int64_t>(), nb = b.arm.at("calls").get<int64_t>();
  progress.phase("measuring");
  const double limit = now_ms() + timing.seconds * 1e3;
  constexpr size_t kLeastBlocks = 5;
  const auto blocks = [&] { return a.times.size() / 2; };
  while (timing.blocks > 0 ? blocks() < static_cast<size_t>(timing.blocks) : now_ms() < limit || blocks() < kLeastBlocks) {
    a.times.push_back(arm_a.calls(na));
    b.times.push_back(arm_b.calls(nb));
    b.times.push_back(arm_b.calls(nb));
    a.times.push_back(arm_a.calls(na));
    if (timing.blocks > 0) progress.part(blocks(), static_cast<size_t>(timing.blocks));
  }
  progress.phase("measuring guards");
  a.guard_ms = arm_a.guards();
  b.guard_ms = arm_b.guards();
  if (!steps) return;
  progress.phase("measuring steps");
  a.steps = arm_a.steps();
  b.steps = arm_b.steps();
}

OutputError worst(const std::vector<OutputError>& errors) {
  OutputError w;
  for (const OutputError& e : errors) {
    w.max_abs = std::max(w.max_abs, e.max_abs);
    w.max_rel = std::max(w.max_rel, e.max_rel);
    w.rel_l2 = std::max(w.rel_l2, e.rel_l2);
    w.nonfinite += e.nonfinite;
    w.shapes_agree &= e.shapes_agree;
    w.bits_equal &= e.bits_equal;
  }
  return w;
}

// B is wrong where an output's error is more than twice that of A, and more than its ops and its type explain: it is their
// errors that are judged, not how far one is from the other.
bool wrong(const Side& a, const Side& b) {
  for (size_t i = 0; i < b.errors.size(); ++i) {
    const OutputError &ea = a.errors[i], &eb = b.errors[i];
    if (!eb.shapes_agree || eb.nonfinite > ea.nonfinite) return true;
    if (eb.rel_l2 > std::max(2 * ea.rel_l2, a.explained[i])) return true;
  }
  return false;
}

Json error_json(const OutputError& e) {
  return {{"max_abs", json_number(e.max_abs)}, {"max_rel", json_number(e.max_rel)}, {"rel_l2", json_number(e.rel_l2)},
          {"nonfinite", e.nonfinite},          {"shapes_agree", e.shapes_agree},    {"bits_equal", e.bits_equal}};
}

Json side_json(const Side& s) {
  Json out = {
      {"config", s.config},         {"compile_ms", s.compile_ms}, {"pack_ms", s.pack_ms}, {"first_call_ms", s.first_call_ms},
      {"peak_bytes", s.peak_bytes}, {"error", nullptr},           {"outputs", nullptr},   {"time", nullptr},
      {"kernels", s.kernels},       {"left_to_others", s.left},   {"phases", nullptr},    {"steps", s.steps}};
  if (!s.arm.is_null())
    out["phases"] = {{"cold_compile_ms", s.arm.at("cold_compile_ms")},
                     {"cached_compile_ms", s.arm.at("compile_ms")},
                     {"first_call_ms", s.arm.at("first_call_ms")},
                     {"steady_ms", quantile(s.times, 0.5)},
                     {"guard_ms", s.guard_ms},
                     {"predicted_bytes", s.arm.at("predicted_bytes")}};
  if (!s.errors.empty()) out["error"] = error_json(worst(s.errors));
  if (!s.errors.empty()) {
    out["outputs"] = Json::array();
    for (size_t i = 0; i < s.errors.size(); ++i) {
      Json e = {{"name", s.signature->outputs[i].name}};
      e.update(error_json(s.errors[i]));
      e["explained"] = s.explained[i];
      out["outputs"].push_back(std::move(e));
    }
  }
  if (!s.times.empty())
    out["time"] = {{"median_ms", quantile(s.times, 0.5)},
                   {"p10_ms", quantile(s.times, 0.1)},
                   {"p90_ms", quantile(s.times, 0.9)},
                   {"p99_ms", quantile(s.times, 0.99)},
                   {"samples", s.times.size()}};
  return out;
}

std::string error_text(const OutputError& e) {
  if (!e.shapes_agree) return "other shape";
  if (e.bits_equal) return "0 (bits equal)";
  return number_text(e.max_abs) + (e.nonfinite ? ", " + std::to_string(e.nonfinite) + " not finite alike" : "");
}

std::string table_text(const Side& a, const Side& b, const std::string& reference) {
  Table table("lrr", {"", "A: " + a.config, "B: " + b.config});
  const auto row = [&](const std::string& name, auto&& cell) { table.row({name, cell(a), cell(b)}); };
  if (!reference.empty()) {
    row("max abs error", [](const Side& s) { return error_text(worst(s.errors)); });
    row("max rel error", [](const Side& s) { return number_text(worst(s.errors).max_rel); });
    row("rel L2 error", [](const Side& s) { return number_text(worst(s.errors).rel_l2); });
  }
  if (!a.times.empty()) {
    row("median call", [](const Side& s) { return ms_text(quantile(s.times, 0.5)); });
    row("p10 .. p90", [](const Side& s) { return ms_text(quantile(s.times, 0.1)) + " .. " + ms_text(quantile(s.times, 0.9)); });
    row("p99", [](const Side& s) { return ms_text(quantile(s.times, 0.99)); });
  }
  row("first call", [](const Side& s) { return ms_text(s.first_call_ms); });
  if (!a.arm.is_null())
    row("guards of a call", [](const Side& s) { return s.guard_ms.is_null() ? "-" : ms_text(s.guard_ms.get<double>()); });
  row("peak memory", [](const Side& s) { return bytes_text(static_cast<double>(s.peak_bytes)); });
  if (!a.arm.is_null()) {
    row("predicted memory", [](const Side& s) { return bytes_text(s.arm.at("predicted_bytes").get<double>()); });
    row("compile, cold", [](const Side& s) { return ms_text(s.arm.at("cold_compile_ms").get<double>()); });
    row("compile, cached", [](const Side& s) { return ms_text(s.arm.at("compile_ms").get<double>()); });
  } else {
    row("compile", [](const Side& s) { return ms_text(s.compile_ms); });
  }
  row("pack constants", [](const Side& s) { return ms_text(s.pack_ms); });
  row("kernels", [](const Side& s) {
    std::string out;
    for (const auto& [backend, count] : s.kernels.items())
      out += (out.empty() ? "" : ", ") + std::to_string(count.get<int64_t>()) + " " + backend;
    return out.empty() ? "none" : out;
  });
  return table.text();
}

// Which kernels a backend of the config did not take, and why.
std::string left_text(const std::string& name, const Json& left) {
  constexpr size_t kMostRows = 6;
  std::string out;
  for (size_t i = 0; i < std::min(kMostRows, left.size()); ++i) {
    std::string ops;
    for (const auto& [op, count] : left[i]["ops"].items())
      ops += (ops.empty() ? "" : ", ") + (count == 1 ? "" : std::to_string(count.get<int64_t>()) + " ") + op;
    out += "  " + ops + " on " + left[i]["backend"].get<std::string>() + " (" + left[i]["refusals"].get<std::string>() + ")\n";
  }
  if (left.size() > kMostRows) out += "  and for " + std::to_string(left.size() - kMostRows) + " more reasons; --json has all\n";
  return out.empty() ? out : "\nKernels of " + name + " that were left to another backend:\n" + out;
}

// The time of a side's steps by the backend that runs them.
std::string shares_text(const Json& description) {
  std::map<std::string, double> shares;
  double all = 0;
  for (const Json& step : description.value("steps", Json::array()))
    if (step.value("measured_ms", Json()).is_number()) {
      const Json backend = step.value("backend", Json());
      const std::string kind = step.value("kind", "");
      const double ms = step["measured_ms"].get<double>();
      shares[backend.is_string() ? backend.get<std::string>() : kind] += ms;
      all += ms;
    }
  std::string out;
  for (const auto& [name, ms] : shares)
    out += (out.empty() ? "by backend: " : ", ") + name + " " + ms_text(ms) + " (" +
           number_text(all > 0 ? std::round(1000 * ms / all) / 10 : 0) + " %)";
  return out.empty() ? "" : out + "\n";
}

// The judge that computes in f64 from the inputs to the outputs: the reference, behind the pass widen.
ContextArguments in_f64(const ContextArguments& like) {
  ContextArguments out = like;
  std::string ids;
  const Json loaded = Json::parse(embed::Context(like.options()).loaded());
  for (const Json& p : loaded.at("plugins"))
    if (p.value("id", "") != "tessera.pass.widen") ids += "\"" + p.value("id", "") + "\", ";
  out.overrides.push_back("plugins.load=[" + ids + "\"tessera.pass.widen\"]");
  out.overrides.emplace_back("pipeline.passes=[\"widen\"]");
  return out;
}

// The reference for a model on devices that its config does not load: the plugins of `like`, which do, with the reference as
// the only backend. It runs on the host, and nodes on a device go there and back.
ContextArguments reference_on_devices(const ContextArguments& like) {
  const Json loaded = Json::parse(embed::Context(like.options()).loaded());
  std::string ids = "\"tessera.backend.reference\"";
  for (const Json& p : loaded.at("plugins"))
    if (p.value("id", "") != "tessera.backend.reference") ids += ", \"" + p.value("id", "") + "\"";
  ContextArguments out = like;
  for (const std::string& set : {"plugins.load=[" + ids + "]", std::string("backends.order=[\"reference\"]"),
                                 std::string("pipeline.passes=[]"), std::string("executor.name=\"\"")})
    out.overrides.push_back(set);
  return out;
}

}  // namespace

int compare(const Command& command, const std::vector<std::string>& args) {
  Options options(command);
  ContextArguments context;
  std::vector<std::string> set_a, set_b;
  std::string html;
  bool same_bits = false, bisect = false, gate = false, steps = false, f64 = false;
  InputArguments input;
  Timing timing;
  std::string config_a, config_b, model, reference = "reference";
  double max_abs = 0, max_rel = 0;
  bool no_reference = false, no_time = false, progress_lines = false;
  options.positional("A.toml", &config_a);
  options.positional("B.toml", &config_b);
  options.positional("MODEL", &model);
  context.add_to(options, false);
  input.add_to(options);
  options.list("set-a", "KEY=VALUE", &set_a, "Override a key of A alone.");
  options.list("set-b", "KEY=VALUE", &set_b, "Override a key of B alone.");
  options.flag("same-bits", &same_bits, "Exit with status 1 unless the outputs of B are those of A, bit for bit.");
  options.flag("bisect", &bisect, "Where they are not: say from which pass of B on, and at which value first.");
  options.flag(
      "gate", &gate,
      "Exit with status 1 when B is wrong (an error over twice that of A and over what its ops and dtype explain), 4 when it "
      "is slower, 5 when the times do not tell.");
  options.flag("steps", &steps, "Print where the time of each goes: the mean of every step, the slowest first.");
  options.value("html", "FILE", &html, "Writes the comparison as one HTML page.");
  options.value("reference", "FILE", &reference, "The config that judges numerics (default: reference).");
  options.flag("f64", &f64, "Let the judge compute in f64 from the inputs to the outputs, whatever the model's dtypes are.");
  options.flag("no-reference", &no_reference, "Leave numerics out.");
  options.flag("no-time", &no_time, "Leave timing out.");
  options.number("seconds", "S", &timing.seconds, 0.001, 1e6, "Time for the timed calls (default 2).");
  options.integer("blocks", "N", &timing.blocks, 5, 100000000, "Blocks of calls A B B A, instead of --seconds.");
  options.integer("warmup", "N", &timing.warmup, 0, 1000000000, "Calls of each before they are timed (default 2).");
  options.number("max-abs", "X", &max_abs, 0, 1e300,
                 "Exit with status 1 when an error of B exceeds X (and, if given, --max-rel).");
  options.number("max-rel", "X", &max_rel, 0, 1e300,
                 "Exit with status 1 when a relative error of B exceeds X (and, if given, --max-abs).");
  options.flag("progress", &progress_lines, "Say on stderr, in plain lines, what takes more than a second.");
  if (!options.parse(args)) return kOk;
  const bool limited = options.given("max-abs") || options.given("max-rel");
  if (no_reference && f64) throw usage_error("TSR-U003", "--f64 is about the reference that --no-reference leaves out");
  if (no_reference && limited)
    throw usage_error("TSR-U003", "--max-abs and --max-rel need the reference that --no-reference leaves out");
  if (gate && (no_reference || no_time))
    throw usage_error("TSR-U003", "--gate judges numerics and times, of which --no-reference and --no-time leave one out");

  ContextArguments context_a = context, context_b = context;
  context_a.config = config_a;
  context_b.config = config_b;
  context_a.overrides.insert(context_a.overrides.end(), set_a.begin(), set_a.end());
  context_b.overrides.insert(context_b.overrides.end(), set_b.begin(), set_b.end());
  // Before there are threads here.
  std::optional<Arm> arm_a, arm_b;
  if (!no_time) {
    arm_a.emplace(ArmPlan{"A", context_a, model, input, timing.warmup});
    arm_b.emplace(ArmPlan{"B", context_b, model, input, timing.warmup});
  }

  Progress progress(progress_lines);
  std::optional<Inputs> inputs;
  int64_t input_use = 0;
  const auto once = [&](const ContextArguments& with, const std::string& config, const Signature* like) {
    return call_once(with, config, model, input, inputs, input_use, like, progress);
  };
  Side a = once(context_a, config_a, nullptr);
  Side b = once(context_b, config_b, &*a.signature);
  std::vector<OutputError> between;  // B against A
  for (size_t i = 0; i < a.outputs.size(); ++i) between.push_back(compare_outputs(b.outputs[i].desc(), a.outputs[i].desc()));
  const bool bits = std::all_of(between.begin(), between.end(), [](const OutputError& e) { return e.bits_equal; });
  std::optional<Divergence> divergence;
  if (bisect && !bits) divergence = find_divergence(context_a, context_b, model, input, *inputs, a.outputs, progress);
  if (!no_reference) {
    const Side r = [&] {
      try {
        ContextArguments judge = context;
        judge.config = reference;
        return once(f64 ? in_f64(judge) : judge, reference, &*a.signature);
      } catch (const Error& e) {
        if (e.code() != "TSR-R002" || reference != "reference") throw;  // the model names a device that it does not load
        const ContextArguments judge = reference_on_devices(context_a);
        return once(f64 ? in_f64(judge) : judge, config_a, &*a.signature);
      }
    }();
    progress.phase("comparing outputs");
    for (Side* s : {&a, &b})
      for (size_t i = 0; i < r.outputs.size(); ++i)
        s->errors.push_back(compare_outputs(s->outputs[i].desc(), r.outputs[i].desc()));
  }
  a.outputs.clear();
  b.outputs.clear();
  std::optional<Verdict> verdict;
  std::optional<int64_t> threads;  // of the timings
  if (!no_time) {
    measure(a, *arm_a, b, *arm_b, timing, steps, progress);
    threads = a.arm.at("threads").get<int64_t>();
    verdict = judge(a.times, b.times);
  }
  progress.finish();

  bool held = !same_bits || bits;
  if (limited) {
    const OutputError e = worst(b.errors);
    const bool abs_ok = options.given("max-abs") && e.max_abs <= max_abs,
               rel_ok = options.given("max-rel") && e.max_rel <= max_rel;
    // Near zero only the absolute error means something, far from it only the relative one: either limit may hold.
    held = held && e.shapes_agree && e.nonfinite == 0 && (abs_ok || rel_ok);
  }
  const Json environment = environment_record();
  const bool is_wrong = gate && wrong(a, b);
  const std::string table =
      table_text(a, b, no_reference ? "" : reference) + left_text("A", a.left) + left_text("B", b.left);
  if (options.json()) {
    Json document = {{"model", model},
                     {"environment", environment},
                     {"reference", no_reference ? Json() : Json(reference)},
                     {"f64", f64},
                     {"threads", threads ? Json(*threads) : Json()},
                     {"a", side_json(a)},
                     {"b", side_json(b)},
                     {"difference", error_json(worst(between))},
                     {"divergence", nullptr},
                     {"speed", nullptr}};
    if (verdict)
      document["speed"] = {{"speedup", verdict->speedup},
                           {"low", verdict->low},
                           {"high", verdict->high},
                           {"noise", verdict->noise},
                           {"verdict", to_string(*verdict)}};
    if (divergence)
      document["divergence"] = {{"found", divergence->found}, {"pass", divergence->pass}, {"value", divergence->value}};
    if (limited || same_bits || gate) document["check"] = held && !is_wrong;
    print_json("tessera.compare/1", document);
  } else {
    std::cout << table;
    if (verdict) {
      const Style style = verdict->word == Verdict::kFaster   ? Style::kGreen
                          : verdict->word == Verdict::kSlower ? Style::kRed
                                                              : Style::kYellow;
      std::cout << "\nB against A: " << styled(style, to_string(*verdict)) << ", " << number_text(verdict->speedup)
                << " times the speed (95 % interval " << number_text(verdict->low) << " .. " << number_text(verdict->high)
                << ", noise floor " << number_text(verdict->noise * 100) << " %, " << a.times.size() / 2
                << " blocks A B B A)\n";
    }
    if (!no_reference)
      std::cout << "Errors are against " << reference << (f64 ? " in f64 throughout" : "")
                << ", the largest over all outputs.\n";
    std::cout << "Outputs of B against those of A: "
              << (bits ? "bits equal" : "they differ by at most " + error_text(worst(between))) << "\n";
    if (divergence) std::cout << divergence->text() << "\n";
    for (const Side* side : {&a, &b})
      if (!side->steps.is_null())
        std::cout << "\nSteps of " << side->config << ":\n" << steps_text(side->steps.dump()) << shares_text(side->steps);
    if (verdict) std::cout << environment_text(environment) << "\n";
  }
  if (!html.empty())
    write_file(html, compare_page(model, table, bits ? "bits equal" : error_text(worst(between)),
                                  verdict ? to_string(*verdict) : "", divergence ? divergence->text() : ""));
  if (!held && same_bits && !bits)
    std::cerr << styled(Style::kRed, "error", 2) << "[TSR-U010] the outputs of " << config_b << " are not those of " << config_a
              << ", bit for bit\n";
  else if (!held)
    std::cerr << styled(Style::kRed, "error", 2) << "[TSR-U010] the errors of " << config_b << " against " << reference
              << " exceed the limit\n";
  else if (is_wrong)
    std::cerr << styled(Style::kRed, "error", 2) << "[TSR-U010] the errors of " << config_b << " against " << reference
              << " are more than twice those of " << config_a << ", and more than its ops and dtypes explain\n";
  if (!held || is_wrong) return kCheckFailed;
  if (!gate || verdict->word == Verdict::kFaster) return kOk;
  // No difference that could be told is what most changes should come to; a floor too high to tell is something else.
  return verdict->word == Verdict::kSlower ? kSlower : verdict->noise > kTooNoisy ? kInconclusive : kOk;
}

}  // namespace tessera::command
