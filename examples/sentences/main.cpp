// SPDX-License-Identifier: Apache-2.0
// Embeds the lines of a text file with a sentence encoder through two configurations, shows the nearest pairs, and compares the
// two.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <tessera/embed.hpp>

#include "encoder.hpp"
#include "error.hpp"
#include "wordpiece.hpp"

namespace sentences {
namespace {

namespace e = tessera::embed;
using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

struct Options {
  std::string model, text, expected, device = "cpu";
  std::vector<std::string> configs, plugin_dirs;
  int64_t batch = 8, length = 256, runs = 5, pairs = 5;
};

std::string kind_of(const std::string& device) { return device.substr(0, device.find(':')); }

// Progress goes to stderr, so that stdout is the result.
void say(const char* format, auto... values) {
  std::fprintf(stderr, format, values...);
  std::fflush(stderr);
}

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error("cannot read " + path, "give a text file, one sentence per line, with --text FILE");
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);)
    if (line.find_first_not_of(" \t\r") != line.npos) out.push_back(line);
  if (out.size() < 2) throw Error(path + " has fewer than two sentences", "one sentence per line");
  return out;
}

// Some sentences, padded to the longest of them.
struct Batch {
  std::vector<size_t> lines;  // which
  e::Tensor ids, mask;        // i64 [lines, longest]
};

// Of like length, so that little is padding.
std::vector<Batch> batches(const std::vector<std::string>& lines, const WordPiece& words, const Options& o) {
  std::vector<std::vector<int64_t>> ids;
  for (const std::string& s : lines) ids.push_back(words.encode(s, static_cast<size_t>(o.length)));
  std::vector<size_t> order(lines.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a].size() < ids[b].size(); });
  std::vector<Batch> out;
  for (size_t begin = 0; begin < order.size(); begin += static_cast<size_t>(o.batch)) {
    Batch b;
    b.lines.assign(order.begin() + static_cast<std::ptrdiff_t>(begin),
                   order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + static_cast<size_t>(o.batch), order.size())));
    const size_t longest = ids[b.lines.back()].size();
    const int64_t sizes[] = {static_cast<int64_t>(b.lines.size()), static_cast<int64_t>(longest)};
    b.ids = e::Tensor::create(TSR_I64, sizes);
    b.mask = e::Tensor::create(TSR_I64, sizes);
    auto* id = static_cast<int64_t*>(b.ids.data());
    auto* seen = static_cast<int64_t*>(b.mask.data());
    for (const size_t line : b.lines)
      for (size_t i = 0; i < longest; ++i) {
        *id++ = i < ids[line].size() ? ids[line][i] : words.pad();
        *seen++ = i < ids[line].size();
      }
    out.push_back(std::move(b));
  }
  return out;
}

struct Config {
  std::string name;
  std::vector<e::Executable> model;  // one
  double import_ms = 0, compile_ms = 0, first_ms = 0;
  int64_t peak_bytes = 0;
  std::vector<double> times;
  std::vector<float> embeddings;  // one row per line

  [[nodiscard]] double at(double q) const {
    std::vector<double> t = times;
    std::sort(t.begin(), t.end());
    return t[static_cast<size_t>(q * static_cast<double>(t.size() - 1) + 0.5)];
  }
};

void embed(Config& c, const std::vector<Batch>& all, size_t hidden) {
  for (const Batch& b : all) {
    const e::Tensor inputs[] = {b.ids, b.mask};
    const e::Tensor y = c.model[0].run(inputs)[0].copy_to(0);
    for (size_t i = 0; i < b.lines.size(); ++i)
      std::memcpy(&c.embeddings[b.lines[i] * hidden], static_cast<const float*>(y.data()) + i * hidden, hidden * sizeof(float));
  }
}

// Configurations of the host beside that of the device.
std::string device_of(const std::string& config, const Options& o) {
  return config.ends_with("/" + kind_of(o.device) + ".toml") ? o.device : "cpu";
}

double relative_difference(const std::vector<float>& a, const float* b, size_t n) {
  double most = 0, scale = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(a[i])) return HUGE_VAL;
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
    scale = std::max(scale, std::abs(static_cast<double>(b[i])));
  }
  return scale > 0 ? most / scale : most;
}

struct Pair {
  size_t a, b;
  double similarity;
};

std::vector<Pair> nearest(const std::vector<float>& rows, size_t lines, size_t hidden) {
  std::vector<Pair> out;
  for (size_t a = 0; a < lines; ++a)
    for (size_t b = a + 1; b < lines; ++b) {
      double dot = 0;  // they have length 1: the cosine
      for (size_t i = 0; i < hidden; ++i) dot += static_cast<double>(rows[a * hidden + i]) * rows[b * hidden + i];
      out.push_back({a, b, dot});
    }
  std::stable_sort(out.begin(), out.end(), [](const Pair& x, const Pair& y) { return x.similarity > y.similarity; });
  return out;
}

// f32 rows for the first lines of the text, made by expected.py; empty without a file.
std::vector<float> read_expected(const Options& o, size_t hidden, size_t lines) {
  if (o.expected.empty()) return {};
  std::ifstream in(o.expected, std::ios::binary);
  if (!in) throw Error("cannot read " + o.expected);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  if (out.empty() || bytes.size() % (hidden * sizeof(float)) != 0 || out.size() / hidden > lines)
    throw Error(o.expected + " does not hold rows of " + std::to_string(hidden) + " numbers for lines of the text");
  return out;
}

int run(const Options& o) {
  const std::vector<std::string> lines = read_lines(o.text);
  const WordPiece words(o.model + "/vocab.txt");
  const Encoder encoder = write_encoder(o.model);
  const auto hidden = static_cast<size_t>(encoder.hidden);
  const std::vector<float> expected = read_expected(o, hidden, lines.size());
  Options limited = o;
  limited.length = std::min(o.length, encoder.positions);
  const std::vector<Batch> all = batches(lines, words, limited);
  int64_t tokens = 0;
  for (const Batch& b : all)
    for (int64_t i = 0; i < b.mask.elements(); ++i) tokens += static_cast<const int64_t*>(b.mask.data())[i];
  say("sentence encoder: %lld layers of %lld, %.1f M parameters; %zu sentences, %lld tokens\n",
      static_cast<long long>(encoder.layers), static_cast<long long>(encoder.hidden),
      static_cast<double>(encoder.parameters) / 1e6, lines.size(), static_cast<long long>(tokens));

  std::vector<Config> configs;
  for (const std::string& path : o.configs) {
    Config c;
    c.name = path;
    e::ContextOptions options;
    options.config_path = path;
    options.plugin_dirs = o.plugin_dirs;
    if (device_of(path, o) != "cpu") options.overrides = {"device=\"" + o.device + "\""};
    const e::Context context(options);
    say("%s: import ... ", path.c_str());
    auto start = Clock::now();
    e::Graph graph = context.load(encoder.onnx);
    c.import_ms = ms_since(start);
    say("compile ... ");
    start = Clock::now();
    c.model.push_back(context.compile_model(std::move(graph)));
    c.compile_ms = ms_since(start);
    context.cache_flush();  // a cache that is being filled would be timed with what follows
    say("first run ... ");
    c.embeddings.resize(lines.size() * hidden);
    const tsr_device device = e::device(device_of(path, o));
    e::api().memory_peak(device, 1);
    const int64_t before = e::api().memory_in_use(device);
    start = Clock::now();
    embed(c, all, hidden);
    c.first_ms = ms_since(start);
    c.peak_bytes = e::api().memory_peak(device, 0) - before;
    say("%.0f ms\n", c.first_ms);
    configs.push_back(std::move(c));
  }
  // Interleaved, so that whatever else the machine does hits all.
  say("timing %lld runs of each ", static_cast<long long>(o.runs));
  for (int64_t i = 0; i < o.runs; ++i) {
    for (Config& c : configs) {
      const auto start = Clock::now();
      embed(c, all, hidden);
      c.times.push_back(ms_since(start));
    }
    say(".");
  }
  say("\n\n");

  std::printf("The nearest of %zu sentences in %s, by cosine\n\n", lines.size(), o.text.c_str());
  const std::vector<Pair> near = nearest(configs.back().embeddings, lines.size(), hidden);
  for (size_t i = 0; i < near.size() && i < static_cast<size_t>(o.pairs); ++i)
    std::printf("%.3f  %s\n       %s\n", near[i].similarity, lines[near[i].a].c_str(), lines[near[i].b].c_str());

  size_t width = 8;
  for (const Config& c : configs) width = std::max(width, c.name.size());
  const int w = static_cast<int>(width);
  std::printf("\n%-*s %9s %10s %10s %10s %18s %12s %9s %11s %11s\n", w, "config", "import", "compile", "first run", "median",
              "p10 .. p90", "sentences/s", "peak MB", "difference", "to PyTorch");
  for (const Config& c : configs) {
    const double difference = relative_difference(c.embeddings, configs[0].embeddings.data(), c.embeddings.size());
    std::printf("%-*s %6.0f ms %7.0f ms %7.0f ms %7.1f ms %7.1f .. %7.1f %12.0f %9.1f %11.2e", w, c.name.c_str(), c.import_ms,
                c.compile_ms, c.first_ms, c.at(0.5), c.at(0.1), c.at(0.9), static_cast<double>(lines.size()) / c.at(0.5) * 1e3,
                static_cast<double>(c.peak_bytes) / 1e6, difference);
    if (expected.empty())
      std::printf(" %11s\n", "-");
    else
      std::printf(" %11.2e\n", relative_difference(c.embeddings, expected.data(), expected.size()));
  }
  std::printf(
      "\nA run embeds all sentences in batches of %lld. difference: max|a - b| / max|b| of the embeddings against the first "
      "config; to PyTorch: "
      "the\nsame against PyTorch's for the first %zu sentences. peak MB: memory beyond the weights, which stay in their "
      "file.\ncompile: with packing of the weights; generated code is kept on disk, so the next process has it "
      "(docs/caches.md).\n",
      static_cast<long long>(o.batch), expected.size() / hidden);
  return 0;
}

}  // namespace
}  // namespace sentences

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  sentences::Options o;
  po::options_description d(
      "Embeds the lines of a text file with a sentence encoder through two configurations, shows the nearest pairs and "
      "compares the two.\n\n"
      "  sentences --model \"$(examples/sentences/fetch.sh)\" --text examples/sentences/sample.txt\n\nOptions");
  d.add_options()("help,h", "show this text")(
      "model", po::value(&o.model), "folder with config.json, model.safetensors and vocab.txt; encoder.onnx is written there")(
      "text", po::value(&o.text), "text file, one sentence per line")(
      "config", po::value(&o.configs)->composing(),
      "configuration to run; repeat to compare (default: eager.toml and default.toml)")(
      "device", po::value(&o.device)->default_value(o.device), "cuda, cuda:1, sim: its configuration beside eager.toml")(
      "plugin-dir", po::value(&o.plugin_dirs)->composing(), "search here for plugins first")(
      "expected", po::value(&o.expected), "PyTorch's embeddings of the first lines: raw f32, made by expected.py")(
      "batch", po::value(&o.batch)->default_value(8), "sentences at a time")("length", po::value(&o.length)->default_value(256),
                                                                             "longer sentences are cut to so many tokens")(
      "runs", po::value(&o.runs)->default_value(5), "timed runs of each configuration")(
      "pairs", po::value(&o.pairs)->default_value(5), "how many of the nearest pairs to show");
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
    if (o.model.empty() || o.text.empty()) throw sentences::Error("--model and --text are needed", "see --help");
    if (o.batch < 1 || o.batch > 4096 || o.length < 3 || o.runs < 1 || o.pairs < 0)
      throw sentences::Error("--batch takes 1..4096, --length 3 or more, --runs 1 or more, --pairs 0 or more", "see --help");
    const std::string kind = sentences::kind_of(o.device);
    if (o.configs.empty())
      o.configs = {TESSERA_CONFIG_DIR "/eager.toml", TESSERA_CONFIG_DIR "/" + (kind == "cpu" ? "default" : kind) + ".toml"};
    return sentences::run(o);
  } catch (const po::error& x) {
    std::fprintf(stderr, "error: %s\n  hint: see sentences --help\n", x.what());
    return 2;
  } catch (const sentences::Error& x) {
    std::fprintf(stderr, "%s\n", x.what());
    return 2;
  } catch (const tessera::embed::Error& x) {
    std::fprintf(stderr, "%s\n", x.what());
    return x.family() == TSR_USER ? 2 : x.family() == TSR_ENVIRONMENT ? 3 : 70;
  }
}
