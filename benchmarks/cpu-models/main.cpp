// SPDX-License-Identifier: Apache-2.0
// usage: bench-cpu-models [--json] [--seconds S] [--threads N]
//        bench-cpu-models --serve MODEL.onnx IN.npz CONFIG [--threads N]
//
// Runs every model of $TESSERA_MODELS (default build/models; `./dev bench cpu-models --peers` exports them there) under the
// configs eager and cpu, as far as they are installed. With --serve it is one side of a comparison: it compiles, then obeys
// lines on stdin, each answered by a line of JSON: `run S` (calls for S seconds, three at least), `save FILE.npz` (outputs of
// the last call), `memory`, `handover` (handover.hpp).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "handover.hpp"
#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "tessera/embed.hpp"

namespace {

namespace e = tessera::embed;
namespace npz = tessera::npz;
using Json = nlohmann::ordered_json;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The most memory that this process has had resident, in bytes.
int64_t peak_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      int64_t kib = 0;
      status >> kib;
      return kib << 10;
    }
  return 0;
}

class Model {
 public:
  Model(const std::string& model, const std::string& inputs, const std::string& config, int threads) {
    e::ContextOptions options;
    options.config_path = config;
    if (threads > 0) options.overrides.push_back("runtime.threads=" + std::to_string(threads));
    const e::Context context(options);
    const double start = now_ms();
    e::Graph graph = context.load(model);
    const double loaded = now_ms();
    executable_ = std::make_unique<e::Executable>(context.compile_model(std::move(graph)));
    const double ready = now_ms();
    const Json described = Json::parse(executable_->describe());
    const double pack = described["compile"]["pack_ms"];
    read_inputs(inputs);
    const double before = now_ms();
    last_ = executable_->run(inputs_);
    facts = {{"load_ms", loaded - start},
             {"passes_ms", described["compile"]["passes_ms"]},
             {"compile_ms", ready - loaded - pack},
             {"pack_ms", pack},
             {"first_call_ms", now_ms() - before},
             {"steps", described["steps"].size()},
             {"arena_bytes", described["memory"]["arena_bytes"]},
             {"constant_bytes", described["memory"]["constant_bytes"]},
             {"kernel_bytes", described["memory"]["kernel_bytes"]},
             {"mapped_bytes", described["memory"]["mapped_bytes"]}};
    context.cache_flush();  // calls are timed on a machine that does nothing else
  }

  // Milliseconds of each call.
  std::vector<double> run(double seconds) {
    std::vector<double> times;
    const double end = now_ms() + seconds * 1e3;
    while (times.size() < 3 || now_ms() < end) {
      last_.clear();
      const double start = now_ms();
      last_ = executable_->run(inputs_);
      times.push_back(now_ms() - start);
    }
    return times;
  }

  void save(const std::string& path) const {
    std::vector<npz::Array> arrays;
    for (size_t i = 0; i < last_.size(); ++i) {
      const e::Tensor& t = last_[i];
      arrays.push_back(
          npz::from_elements("out" + std::to_string(i), t.dtype(), {t.sizes().begin(), t.sizes().end()}, t.data()));
    }
    npz::write(path, arrays);
  }

  Json facts;

 private:
  void read_inputs(const std::string& path) {
    const std::vector<npz::Array> arrays = npz::read(path);
    const Json described = Json::parse(executable_->describe());
    for (const Json& i : described["inputs"]) {
      const auto at = std::find_if(arrays.begin(), arrays.end(), [&](const npz::Array& a) { return a.name == i["name"]; });
      if (at == arrays.end()) throw std::runtime_error(path + " has no array '" + i["name"].get<std::string>() + "'");
      const uint32_t dtype = at->descr == "<i8" ? TSR_I64 : TSR_F32;
      const std::vector<std::byte> bytes = npz::to_elements(*at, dtype, path);
      inputs_.push_back(e::Tensor::create(dtype, at->shape));
      std::memcpy(inputs_.back().data(), bytes.data(), bytes.size());
    }
  }

  std::unique_ptr<e::Executable> executable_;
  std::vector<e::Tensor> inputs_, last_;
};

int serve(const std::string& model, const std::string& inputs, const std::string& config, int threads) {
  Model m(model, inputs, config, threads);
  std::cout << m.facts.dump() << std::endl;
  for (std::string word, rest; std::cin >> word;) {
    Json answer;
    if (word == "run") {
      double seconds = 0;
      std::cin >> seconds;
      answer["ms"] = m.run(seconds);
    } else if (word == "save") {
      std::cin >> rest;
      m.save(rest);
    } else if (word == "handover") {
      answer["ns"] = tessera::bench::handover_ns();
    } else if (word == "memory") {
      answer["peak_bytes"] = peak_resident();
    } else {
      answer["error"] = "unknown command " + word;
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

int all(bool json, double seconds, int threads) {
  const char* named = std::getenv("TESSERA_MODELS");
  const std::filesystem::path folder = named ? named : "build/models";
  std::vector<std::filesystem::path> models;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (std::filesystem::exists(entry.path() / "model.onnx")) models.push_back(entry.path());
  if (models.empty()) {
    std::cerr << "no models in " << folder.string() << ": `./dev bench cpu-models --peers` exports them there\n";
    return 2;
  }
  std::sort(models.begin(), models.end());
  Json out = {{"schema", "tessera.bench.cpu-models/1"}, {"models", Json::array()}};
  for (const auto& folder_of : models) {
    for (const char* config : {"eager", "cpu"}) {
      Model m((folder_of / "model.onnx").string(), (folder_of / "in.npz").string(), config, threads);
      std::vector<double> times = m.run(seconds);
      std::sort(times.begin(), times.end());
      Json row = {{"model", folder_of.filename().string()},
                  {"config", config},
                  {"median_ms", times[times.size() / 2]},
                  {"min_ms", times.front()},
                  {"calls", times.size()}};
      row.update(m.facts);
      row["peak_bytes"] = peak_resident();
      if (!json)
        std::cout << row["model"].get<std::string>() << " " << config << ": " << row["median_ms"].get<double>()
                  << " ms, compile " << row["compile_ms"].get<double>() << " ms, pack " << row["pack_ms"].get<double>() << " ms"
                  << std::endl;
      out["models"].push_back(std::move(row));
    }
  }
  if (json) std::cout << out.dump(1) << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  double seconds = 3;
  int threads = 0;
  std::vector<std::string> served;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string a = argv[i];
      if (a == "--json")
        json = true;
      else if (a == "--seconds" && i + 1 < argc)
        seconds = std::stod(argv[++i]);
      else if (a == "--threads" && i + 1 < argc)
        threads = std::stoi(argv[++i]);
      else if (a == "--serve" && i + 3 < argc)
        served = {argv[i + 1], argv[i + 2], argv[i + 3]}, i += 3;
      else {
        std::cerr << "bench-cpu-models: unknown argument '" << a << "'; see the head of benchmarks/cpu-models/main.cpp\n";
        return 2;
      }
    }
    return served.empty() ? all(json, seconds, threads) : serve(served[0], served[1], served[2], threads);
  } catch (const std::exception& x) {
    std::cerr << "bench-cpu-models: " << x.what() << "\n";
    return 1;
  }
}
