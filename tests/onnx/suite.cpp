// SPDX-License-Identifier: Apache-2.0
// Runs the cases of the ONNX backend test suite (generate_suite.py) in one process:
//
//   onnx_suite DIR [--config NAME] [--filter REGEX] [--list FILE] [--json OUT] [--verbose]
//
// DIR holds KIND/CASE/model.onnx with test_data_set_N/{input,output}_K.pb. A case passes, fails, is unsupported (with the
// importer's reason), or is no tensor program (strings, sequences, optionals, maps). Cases whose shapes depend on the value of
// an input pass "fixed": that input was made a constant, as the importer's message asks. --list: a file of the cases that do
// not pass, one `KIND/CASE reason` per line; the exit status is 1 unless they are exactly those.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "compare.hpp"
#include "model.hpp"
#include "pattern.hpp"
#include "tensors.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/embed.hpp"
#include "wire.hpp"

namespace tessera::onnx_suite {
namespace {

namespace e = embed;
namespace fs = std::filesystem;

struct Result {
  std::string kind, name, status, reason;  // pass, fail, unsupported, no-tensor
  std::vector<std::string> fixed;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool is_tensor(const onnx::ValueInfoProto& v) {
  return v.type.kind == onnx::TypeProto::Tensor && onnx::dtype_of(v.type.element) != TSR_DTYPE_INVALID;
}

// A tensor of a .pb file. Decoding needs no graph: raw data, or the typed fields of small tensors.
e::Tensor read_pb(const fs::path& path) {
  const std::string bytes = read_file(path);
  const onnx::TensorProto t = onnx::read_tensor(bytes);
  const tsr_dtype dtype = onnx::dtype_of(t.type);
  if (dtype == TSR_DTYPE_INVALID) throw std::runtime_error(path.string() + ": element type " + onnx::type_name(t.type));
  e::Tensor out = e::Tensor::create(dtype, t.dims);
  const auto size = static_cast<size_t>(storage_bytes(dtype, out.elements()));
  if (t.has_raw) {
    if (t.raw.size() != size) throw std::runtime_error(path.string() + ": " + std::to_string(t.raw.size()) + " bytes of data");
    if (size) std::memcpy(out.data(), t.raw.data(), size);
    return out;
  }
  size_t at = 0;
  const size_t width = is_packed(dtype) ? 1 : static_cast<size_t>(dtype_bits(dtype)) / 8;
  const auto put = [&](const auto& v, size_t bytes_each) {
    if (at + bytes_each <= size) std::memcpy(static_cast<char*>(out.data()) + at, &v, bytes_each);
    at += bytes_each;
  };
  for (onnx::Fields f(t.message); f.next();) switch (f.number()) {
      case 4: onnx::each_fixed<float>(f, [&](float v) { put(v, 4); }); break;
      case 10: onnx::each_fixed<double>(f, [&](double v) { put(v, 8); }); break;
      case 5:
      case 7:
      case 11: onnx::each_varint(f, [&](uint64_t v) { put(v, width); }); break;
      default: break;
    }
  if (at != size) throw std::runtime_error(path.string() + ": " + std::to_string(at) + " bytes of data");
  return out;
}

std::vector<e::Tensor> read_all(const fs::path& dir, const std::string& stem) {
  std::vector<e::Tensor> out;
  for (size_t i = 0;; ++i) {
    const fs::path p = dir / (stem + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(p)) return out;
    out.push_back(read_pb(p));
  }
}

bool is_unsupported(const std::string& code) {
  return code == "TSR-X008" || code == "TSR-X010" || code == "TSR-X011" || code == "TSR-X012";
}

class Runner {
 public:
  explicit Runner(const e::ContextOptions& options) : context_(options) {}

  Result run(const fs::path& dir, const std::string& kind) {
    Result r{kind, dir.filename().string(), "fail", {}, {}};
    try {
      one(dir, r);
    } catch (const e::Error& error) {
      r.status = is_unsupported(error.code()) ? "unsupported" : "fail";
      r.reason = error.code() + " " + error.message();
      if (const size_t at = r.reason.find(dir.string() + "/"); at != r.reason.npos) r.reason.erase(at, dir.string().size() + 1);
    } catch (const std::exception& error) {
      r.reason = error.what();
    } catch (const onnx::Malformed& m) {
      r.reason = m.what;
    }
    return r;
  }

 private:
  void one(const fs::path& dir, Result& r) {
    const std::string bytes = read_file(dir / "model.onnx");
    const onnx::ModelProto model = onnx::read_model(bytes);
    for (const auto* list : {&model.graph.inputs, &model.graph.outputs})
      for (const onnx::ValueInfoProto& v : *list)
        if (!is_tensor(v)) {
          r.status = "no-tensor";
          r.reason = "'" + std::string(v.name) + "' is " +
                     (v.type.kind == onnx::TypeProto::Tensor ? "a tensor of " + onnx::type_name(v.type.element)
                                                             : onnx::kind_name(v.type.kind));
          return;
        }
    double rtol = 1e-3, atol = 1e-7;
    if (const fs::path data = dir / "data.json"; fs::exists(data)) {
      const auto j = nlohmann::json::parse(read_file(data));
      rtol = j.value("rtol", rtol);
      atol = j.value("atol", atol);
    }
    std::vector<fs::path> sets;
    for (const auto& d : fs::directory_iterator(dir))
      if (d.is_directory() && d.path().filename().string().starts_with("test_data_set")) sets.push_back(d.path());
    std::sort(sets.begin(), sets.end());
    if (sets.empty()) throw std::runtime_error("no data");
    for (const fs::path& set : sets) data_set(dir, set, model, rtol, atol, r);
    r.status = "pass";
  }

  void data_set(const fs::path& dir, const fs::path& set, const onnx::ModelProto& model, double rtol, double atol, Result& r) {
    const std::vector<e::Tensor> inputs = read_all(set, "input"), outputs = read_all(set, "output");
    // Files follow the order of the graph's inputs; omitted ones have no file and no initializer either.
    std::map<std::string, e::Tensor> by_name;
    for (size_t i = 0; i < inputs.size() && i < model.graph.inputs.size(); ++i)
      by_name[std::string(model.graph.inputs[i].name)] = inputs[i];
    // As for any call: what the import has to know of the inputs is fixed.
    const std::vector<std::pair<std::string, e::Tensor>> call(by_name.begin(), by_name.end());
    e::Context::Loaded loaded = context_.load_for((dir / "model.onnx").string(), call);
    const auto report = nlohmann::json::parse(loaded.report);
    if (!loaded.graph) throw std::runtime_error("no data for input " + report["missing"][0]["input"].get<std::string>());
    for (const auto& f : report["fixed"]) r.fixed.push_back(f["input"]);
    e::Graph graph = std::move(*loaded.graph);
    std::vector<e::Tensor> arguments;
    for (const std::string& name : graph.input_names()) {
      if (!by_name.contains(name)) throw std::runtime_error("no data for input " + name);
      arguments.push_back(by_name[name]);
    }
    (void)context_.run_passes(graph);
    const e::Executable executable = context_.compile(std::move(graph));
    const auto results = executable.run(arguments);
    if (results.size() != outputs.size())
      throw std::runtime_error(std::to_string(results.size()) + " outputs, expected " + std::to_string(outputs.size()));
    const std::vector<std::string> names = executable.output_names();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto at = std::find(names.begin(), names.end(), model.graph.outputs[i].name);
      if (at == names.end()) throw std::runtime_error("no output is called '" + std::string(model.graph.outputs[i].name) + "'");
      const e::Tensor dense = results[static_cast<size_t>(at - names.begin())].copy_to(0);
      if (const std::string d = difference(dense.desc(), outputs[i].desc(), rtol, atol); !d.empty())
        throw std::runtime_error("output " + std::to_string(i) + " " + d);
    }
  }

  e::Context context_;
};

int run(int argc, char** argv) {
  std::string directory, config = "eager", filter, list, json;
  bool verbose = false;
  std::vector<std::string> plugin_dirs;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto next = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (a == "--config")
      config = next();
    else if (a == "--filter")
      filter = next();
    else if (a == "--list")
      list = next();
    else if (a == "--json")
      json = next();
    else if (a == "--plugin-dir")
      plugin_dirs.push_back(next());
    else if (a == "--verbose")
      verbose = true;
    else
      directory = a;
  }
  if (directory.empty()) {
    std::cerr << "usage: onnx_suite DIR [--config NAME] [--filter REGEX] [--list FILE] [--json OUT] [--verbose]\n";
    return 2;
  }
  e::ContextOptions options;
  options.config_path = config;
  options.plugin_dirs = plugin_dirs;
  Runner runner(options);
  std::vector<fs::path> cases;
  for (const auto& kind : fs::directory_iterator(directory))
    if (kind.is_directory())
      for (const auto& c : fs::directory_iterator(kind.path()))
        if (fs::exists(c.path() / "model.onnx") &&
            (filter.empty() || tessera::test::matches(c.path().filename().string(), filter)))
          cases.push_back(c.path());
  std::sort(cases.begin(), cases.end());
  std::vector<Result> results;
  std::map<std::string, std::map<std::string, int>> counts;
  for (const fs::path& c : cases) {
    if (verbose) std::cerr << c.string() << std::endl;
    results.push_back(runner.run(c, c.parent_path().filename().string()));
    const Result& r = results.back();
    ++counts[r.kind][r.status];
    if (!r.fixed.empty() && r.status == "pass") ++counts[r.kind]["fixed"];
  }
  for (auto& [kind, n] : counts) {
    const int tensor = n["pass"] + n["fail"] + n["unsupported"];
    std::cout << kind << ": " << n["pass"] << " of " << tensor << " tensor cases pass (" << n["fixed"]
              << " of them with fixed inputs), " << n["fail"] << " fail, " << n["unsupported"] << " unsupported; "
              << n["no-tensor"] << " are no tensor programs\n";
  }
  if (!json.empty()) {
    nlohmann::json out = nlohmann::json::array();
    for (const Result& r : results)
      out.push_back({{"kind", r.kind}, {"name", r.name}, {"status", r.status}, {"reason", r.reason}, {"fixed", r.fixed}});
    std::ofstream(json)
        << nlohmann::json{{"schema", "tessera.onnx_suite/1"}, {"config", config}, {"counts", counts}, {"cases", out}}.dump(1)
        << "\n";
  }
  int status = 0;
  std::map<std::string, std::string> expected;
  if (!list.empty()) {
    std::ifstream in(list);
    for (std::string line; std::getline(in, line);)
      if (!line.empty() && line[0] != '#') expected[line.substr(0, line.find(' '))] = line;
  }
  for (const Result& r : results) {
    const std::string key = r.kind + "/" + r.name;
    const bool listed = expected.contains(key);
    if (r.status == "fail" || r.status == "unsupported") {
      if (!listed) {
        std::cout << r.status << " " << key << ": " << r.reason << "\n";
        status = 1;
      }
    } else if (listed && r.status == "pass") {
      std::cout << "listed, but passes: " << key << "\n";
      status = 1;
    }
  }
  return status;
}

}  // namespace
}  // namespace tessera::onnx_suite

int main(int argc, char** argv) {
  try {
    return tessera::onnx_suite::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
