// SPDX-License-Identifier: Apache-2.0
// Runs GPT-2 small over the bytes of a text file through two configurations and compares them.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <tessera/embed.h>

#include "model.hpp"

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

struct Options {
  std::string text, device = "cpu";
  std::vector<std::string> configs;
  int64_t tokens = 128, layers = 12, runs = 5;
  uint64_t seed = 0;
  bool json = false;
};

// Progress goes to stderr, so that stdout is the result.
void say(const char* format, auto... values) {
  std::fprintf(stderr, format, values...);
  std::fflush(stderr);
}

std::vector<int64_t> read_bytes(const Options& o) {
  std::ifstream in(o.text, std::ios::binary);
  if (!in) throw tessera::UserError("TSR-X001", "cannot read '" + o.text + "'", "give a text file with --text FILE");
  const std::string s((std::istreambuf_iterator<char>(in)), {});
  if (s.empty()) throw tessera::UserError("TSR-X002", "'" + o.text + "' is empty", "give a text file with --text FILE");
  std::vector<int64_t> ids;
  for (size_t i = 0; i < s.size() && ids.size() < static_cast<size_t>(o.tokens); ++i)
    ids.push_back(static_cast<unsigned char>(s[i]));
  return ids;
}

struct Result {
  std::string config;
  double first_ms = 0;
  std::vector<double> times;
  int64_t peak_bytes = 0;
  tessera::Tensor logits;

  double at(double q) const {
    std::vector<double> t = times;
    std::sort(t.begin(), t.end());
    return t[static_cast<size_t>(q * static_cast<double>(t.size() - 1) + 0.5)];
  }
};

// The mean of -log p(next byte): what a language model is judged by. Seeded weights know nothing: expect about log(50257) =
// 10.8.
double loss(const tessera::Tensor& logits, const std::vector<int64_t>& ids) {
  const int64_t n = static_cast<int64_t>(ids.size());
  const tessera::Tensor rows = logits.select(0, 0).narrow(0, 0, n - 1);
  return tessera::F::cross_entropy(rows, tessera::tensor(std::vector<int64_t>(ids.begin() + 1, ids.end()))).item<double>();
}

double relative_error(const tessera::Tensor& a, const tessera::Tensor& b) {
  const double scale = b.abs().max().item<double>();
  return (a - b).abs().max().item<double>() / (scale > 0 ? scale : 1);
}

int run(const Options& o) {
  using tessera::Tensor;
  const tsr_api& api = *tsr_get_api(TSR_ABI_MAJOR);
  const std::vector<int64_t> ids = read_bytes(o);

  auto start = Clock::now();
  say("GPT-2 small: %lld layers, seeding weights ... ", static_cast<long long>(o.layers));
  gpt2::Config config;
  config.layers = o.layers;
  gpt2::Gpt2 model(config);
  model.initialise(o.seed);
  say("%.0f M parameters in %.1f s\n", static_cast<double>(model.num_parameters()) / 1e6, ms_since(start) / 1e3);

  std::vector<Result> results;
  std::vector<tessera::Context> contexts;
  using Fn = tessera::Compiled<Tensor(gpt2::Gpt2&, const Tensor&)>;
  std::vector<Fn> compiled;
  for (const std::string& path : o.configs) contexts.emplace_back(path);  // one of them brings the device
  const tessera::Device device(o.device.c_str());
  model.to(device);
  const Tensor input = tessera::tensor(ids, {1, -1}).to(device);
  const tsr_device counted = device.id();  // of which memory is counted
  for (size_t at = 0; at < o.configs.size(); ++at) {
    const std::string& path = o.configs[at];
    compiled.push_back(tessera::compile([](gpt2::Gpt2& m, const Tensor& x) { return m.forward(x); },
                                        {.name = "gpt2", .args = {"self", "ids"}, .context = contexts[at]}));
    Result r;
    r.config = path;
    say("%s: capture, compile and first run ... ", path.c_str());
    api.memory_peak(counted, 1);
    const int64_t resident = api.memory_in_use(counted);
    start = Clock::now();
    r.logits = compiled.back()(model, input).to(tessera::Device());  // reading it waits for it
    r.first_ms = ms_since(start);
    r.peak_bytes = api.memory_peak(counted, 0) - resident;
    say("%.0f ms\n", r.first_ms);
    results.push_back(std::move(r));
  }
  // Interleaved, so that whatever else the machine does hits both.
  say("timing %lld runs of each ", static_cast<long long>(o.runs));
  for (int64_t i = 0; i < o.runs; ++i) {
    for (size_t k = 0; k < compiled.size(); ++k) {
      start = Clock::now();
      results[k].logits = compiled[k](model, input).to(tessera::Device());
      results[k].times.push_back(ms_since(start));
    }
    say(".");
  }
  say("\n\n");

  const Result& base = results[0];
  if (o.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Result& r : results)
      rows.push_back({{"config", r.config},
                      {"first_call_ms", r.first_ms},
                      {"median_ms", r.at(0.5)},
                      {"p10_ms", r.at(0.1)},
                      {"p90_ms", r.at(0.9)},
                      {"peak_bytes", r.peak_bytes},
                      {"relative_difference", relative_error(r.logits, base.logits)},
                      {"loss", loss(r.logits, ids)}});
    std::printf("%s\n", nlohmann::ordered_json{{"schema", "tessera.gpt2/1"},
                                               {"tokens", ids.size()},
                                               {"layers", o.layers},
                                               {"parameters", model.num_parameters()},
                                               {"configs", rows}}
                            .dump(2)
                            .c_str());
    return 0;
  }
  size_t width = 8;
  for (const Result& r : results) width = std::max(width, r.config.size());
  const int w = static_cast<int>(width);
  std::printf("GPT-2 small over the first %zu bytes of %s\n\n", ids.size(), o.text.c_str());
  std::printf("%-*s %12s %12s %18s %10s %10s %14s %8s\n", w, "config", "first call", "median", "p10 .. p90", "tokens/s",
              "peak MB", "difference", "loss");
  for (const Result& r : results)
    std::printf("%-*s %9.0f ms %9.1f ms %7.1f .. %7.1f %10.0f %10.1f %14.2e %8.3f\n", w, r.config.c_str(), r.first_ms,
                r.at(0.5), r.at(0.1), r.at(0.9), static_cast<double>(ids.size()) / r.at(0.5) * 1e3,
                static_cast<double>(r.peak_bytes) / 1e6, relative_error(r.logits, base.logits), loss(r.logits, ids));
  std::printf(
      "\ndifference: max|a - b| / max|b| of the logits against the first config. peak MB: memory beyond the weights.\n"
      "The weights are seeded, not trained: a loss near log(%lld) = %.2f is what to expect.\n",
      static_cast<long long>(config.vocabulary), std::log(static_cast<double>(config.vocabulary)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description d(
      "Runs GPT-2 small over the bytes of a text file through two configurations and compares them.\n\n"
      "  gpt2 --text examples/gpt2/sample.txt\n  gpt2 --text README.md --config configs/eager.toml --tokens 256\n\nOptions");
  d.add_options()("help,h", "show this text")("text", po::value(&o.text), "text file; its bytes are the token ids")(
      "config", po::value(&o.configs)->composing(),
      "configuration to run; repeat to compare (default: configs/eager.toml configs/default.toml)")(
      "device", po::value(&o.device)->default_value(o.device),
      "where model and text lie: cpu, cuda, sim:0; the configurations "
      "are then those of that device")("tokens", po::value(&o.tokens)->default_value(128), "bytes of the text to use, 2..1024")(
      "layers", po::value(&o.layers)->default_value(12), "transformer layers")("runs", po::value(&o.runs)->default_value(5),
                                                                               "timed runs of each configuration")(
      "seed", po::value(&o.seed)->default_value(0), "seed of the weights")("json", po::bool_switch(&o.json),
                                                                           "print one JSON document");
  try {
    po::positional_options_description positional;
    positional.add("text", 1);
    po::variables_map vm;
    po::store(po::command_line_parser(argc, argv).options(d).positional(positional).run(), vm);
    po::notify(vm);
    if (vm.count("help")) {
      std::cout << d << "\n";
      return 0;
    }
    if (o.text.empty()) throw tessera::UserError("TSR-X003", "no text given", "gpt2 --text FILE");
    if (o.tokens < 2 || o.tokens > 1024 || o.layers < 1 || o.layers > 96 || o.runs < 1)
      throw tessera::UserError("TSR-X004", "--tokens takes 2..1024, --layers 1..96, --runs 1 or more", "see --help");
    const std::string kind = o.device.substr(0, o.device.find(':'));
    if (o.configs.empty() && kind == "cpu") o.configs = {TESSERA_CONFIG_DIR "/eager.toml", TESSERA_CONFIG_DIR "/default.toml"};
    if (o.configs.empty()) o.configs = {TESSERA_CONFIG_DIR "/" + kind + ".toml"};
    return run(o);
  } catch (const po::error& e) {
    std::fprintf(stderr, "error[TSR-X005] %s\n  hint: see gpt2 --help\n", e.what());
    return 2;
  } catch (const tessera::UserError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return dynamic_cast<const tessera::EnvironmentError*>(&e) ? 3 : 70;
  }
}
