// SPDX-License-Identifier: Apache-2.0
// How the time of importing a model, and of printing its graph, grows with the length of a chain of shape operations on a
// symbolic size. Medians of processor time of the one thread that works, over runs that take turns.
//
//   bench-import [--json] [--runs N] [--lengths A,B,..]
//
// {"schema": "tessera.bench.import/1", "runs": n, "chains": {"slice": {"seconds": {"250": s, ..}, "text_bytes": {"250": b, ..},
//  "ratio": s of the longest / s of half of it, or null}, ..}}
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model_builder.hpp"
#include "tessera/embed.hpp"

using namespace tessera::onnx_test;
namespace embed = tessera::embed;

namespace {

Msg numbers(const char* name, const std::vector<int64_t>& v) {
  const std::string raw(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(int64_t));
  return tensor(name, kInt64, {static_cast<int64_t>(v.size())}, raw);
}

// One link of a chain: nodes that make `y` of `x`; `p` and `q` are names of its own.
using Link = std::vector<Msg> (*)(const char* x, const char* y, const char* p, const char* q);

std::vector<Msg> slice(const char* x, const char* y, const char*, const char*) {  // x[1:-1]
  return {node("Slice", {x, "one", "minus_one"}, {y})};
}
std::vector<Msg> split(const char* x, const char* y, const char* p, const char*) {  // the first half
  return {node("Split", {x}, {y, p}, {attribute("axis", 0), attribute("num_outputs", 2)})};
}
std::vector<Msg> slices(const char* x, const char* y, const char* p, const char* q) {  // x[1:-1] before x[-5:-1]
  return {node("Slice", {x, "one", "minus_one"}, {p}), node("Slice", {x, "minus_five", "minus_one"}, {q}),
          node("Concat", {p, q}, {y}, {attribute("axis", 0)})};
}
std::vector<Msg> half(const char* x, const char* y, const char* p, const char* q) {  // x[:shape(x) / 2] before x
  const std::string n = std::string(p) + "_half";
  return {node("Shape", {x}, {p}), node("Div", {p, "two"}, {n.c_str()}), node("Slice", {x, "zero", n.c_str()}, {q}),
          node("Concat", {q, x}, {y}, {attribute("axis", 0)})};
}

std::vector<Msg> pool(const char* x, const char* y, const char* p,
                      const char* q) {  // a window that has to fit: an assumption each
  return {node("Unsqueeze", {x, "axes"}, {p}),
          node("MaxPool", {p}, {q},
               {attribute("kernel_shape", std::vector<int64_t>{3}), attribute("pads", std::vector<int64_t>{1, 0})}),
          node("Squeeze", {q, "axes"}, {y})};
}

const std::vector<std::pair<const char*, Link>> kChains = {
    {"slice", slice}, {"split", split}, {"slices", slices}, {"half", half}, {"pool", pool}};

std::string chain(Link link, size_t length) {
  std::vector<Msg> nodes;
  std::string x = "x";
  for (size_t i = 0; i < length; ++i) {
    const std::string n = std::to_string(i), y = "y" + n, p = "p" + n, q = "q" + n;
    for (Msg& m : link(x.c_str(), y.c_str(), p.c_str(), q.c_str())) nodes.push_back(std::move(m));
    x = y;
  }
  return model(graph({std::move(nodes),
                      {numbers("zero", {0}), numbers("one", {1}), numbers("two", {2}), numbers("minus_one", {-1}),
                       numbers("minus_five", {-5}), numbers("axes", {0, 1})},
                      {value_info("x", kFloat, {"n"})},
                      {Msg().s(1, x)}}),
               18)
      .bytes();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int run(bool json, size_t runs, const std::vector<size_t>& lengths) {
  embed::ContextOptions options;
  options.config_path = "eager";
  const embed::Context context(options);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("bench_import_" + std::to_string(getpid()) + ".onnx");
  std::map<std::pair<size_t, size_t>, std::vector<double>> seconds;
  std::map<std::pair<size_t, size_t>, size_t> bytes;
  for (size_t k = 0; k <= runs; ++k)
    for (size_t c = 0; c < kChains.size(); ++c)
      for (const size_t n : lengths) {
        std::ofstream(path, std::ios::binary) << chain(kChains[c].second, n);
        const double start = processor_seconds();
        bytes[{c, n}] = context.load(path.string()).print().size();
        if (k > 0) seconds[{c, n}].push_back(processor_seconds() - start);  // the first warms caches and the allocator
      }
  std::filesystem::remove(path);

  nlohmann::json chains = nlohmann::json::object();
  for (size_t c = 0; c < kChains.size(); ++c) {
    nlohmann::json& out = chains[kChains[c].first];
    for (const size_t n : lengths) {
      out["seconds"][std::to_string(n)] = median(seconds[{c, n}]);
      out["text_bytes"][std::to_string(n)] = bytes[{c, n}];
    }
    const size_t longest = *std::max_element(lengths.begin(), lengths.end());
    const auto shorter = seconds.find({c, longest / 2});
    out["ratio"] =
        shorter == seconds.end() ? nlohmann::json() : nlohmann::json(median(seconds[{c, longest}]) / median(shorter->second));
  }
  if (json) {
    std::printf("%s\n",
                nlohmann::json{{"schema", "tessera.bench.import/1"}, {"runs", runs}, {"chains", chains}}.dump(2).c_str());
    return 0;
  }
  for (size_t c = 0; c < kChains.size(); ++c) {
    std::printf("%-7s", kChains[c].first);
    for (const size_t n : lengths)
      std::printf("  %5zu: %8.2f ms, %7.1f kB", n, 1e3 * median(seconds[{c, n}]), static_cast<double>(bytes[{c, n}]) / 1e3);
    const nlohmann::json& ratio = chains[kChains[c].first]["ratio"];
    if (!ratio.is_null()) std::printf("  twice the length: %.2f times the time", ratio.get<double>());
    std::printf("\n");
  }
  return 0;
}

int usage(const char* found) {
  std::fprintf(stderr, "bench-import: found '%s', expected [--json] [--runs N] [--lengths A,B,..]\n", found);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  size_t runs = 5;
  std::vector<size_t> lengths = {250, 500, 1000};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (a == "--json") {
      json = true;
    } else if (a == "--runs" && std::atol(value) > 0) {
      runs = static_cast<size_t>(std::atol(argv[++i]));
    } else if (a == "--lengths" && *value) {
      lengths.clear();
      for (char* p = argv[++i]; *p; p += *p == ',') {
        const long n = std::strtol(p, &p, 10);
        if (n < 1 || (*p && *p != ',')) return usage(value);
        lengths.push_back(static_cast<size_t>(n));
      }
    } else {
      return usage(argv[i]);
    }
  }
  try {
    return run(json, runs, lengths);
  } catch (const embed::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.family() == TSR_USER ? 2 : e.family() == TSR_ENVIRONMENT ? 3 : 70;
  }
}
