// SPDX-License-Identifier: Apache-2.0
// Whole models on an NVIDIA GPU: time of a call on the device and of the host, compile times, and the distance from another
// config's results.
// usage: bench-cuda-models [--reference CONFIG] [--profile] [--first] --config CONFIG... FOLDER...
// FOLDER: model.onnx and in.npz, as models.py writes them. CONFIG: FILE or FILE:MODE. --reference: runs the model there too, on
// the host, and prints the relative error of each output in the 2-norm. --profile: runs one call between cuProfilerStart and
// cuProfilerStop, and times nothing.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>

#include "npz/elements.hpp"
#include "npz/npz.hpp"
#include "tessera/embed.hpp"
#include "timing.hpp"

namespace {

namespace e = tessera::embed;
namespace npz = tessera::npz;
using tessera::bench::Driver;
using tessera::bench::now;

struct Options {
  std::vector<std::string> configs, folders;
  std::string reference;
  bool profile = false, first = false;
};

e::Context context_of(const std::string& config) {
  e::ContextOptions o;
  const size_t colon = config.find(':');
  o.config_path = config.substr(0, colon);
  if (colon != config.npos) o.overrides = {"mode=\"" + config.substr(colon + 1) + "\""};
  return e::Context(o);
}

std::vector<e::Tensor> read_inputs(const e::Model& model, const std::string& path) {
  std::vector<e::Tensor> out;
  const std::vector<npz::Array> arrays = npz::read(path);
  for (const std::string& name : e::input_names(model.inputs())) {
    const auto at = std::find_if(arrays.begin(), arrays.end(), [&](const npz::Array& a) { return a.name == name; });
    if (at == arrays.end()) throw std::runtime_error(path + " has no array '" + name + "'");
    const uint32_t dtype = at->descr == "<i8" ? TSR_I64 : TSR_F32;
    const std::vector<std::byte> bytes = npz::to_elements(*at, dtype, path);
    out.push_back(e::Tensor::create(dtype, at->shape));
    std::memcpy(out.back().data(), bytes.data(), bytes.size());
  }
  return out;
}

double element(const e::Tensor& t, int64_t i) {
  if (t.dtype() == TSR_F32) return static_cast<double>(static_cast<const float*>(t.data())[i]);
  if (t.dtype() != TSR_BF16) throw std::runtime_error("outputs are f32 or bf16");
  const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(t.data())[i]) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return static_cast<double>(x);
}
// NaN where anything is.
double relative_error(const e::Tensor& got, const e::Tensor& want) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double a = element(got, i), b = element(want, i);
    difference += (a - b) * (a - b), size += b * b;
  }
  return std::sqrt(difference / size);
}

void measure(const Options& o, const std::string& folder, const std::string& config, Driver& driver, tsr_device gpu,
             const std::vector<e::Tensor>& wanted) {
  const std::string name = folder.substr(folder.find_last_of('/') + 1) + " " + config.substr(config.find_last_of('/') + 1);
  const e::Context context = context_of(config);
  double begin = now();
  const e::Model model(context, folder + "/model.onnx");
  const double loaded = now();
  std::vector<e::Tensor> inputs;  // the model follows them to their device
  for (const e::Tensor& t : read_inputs(model, folder + "/in.npz")) inputs.push_back(t.copy_to(gpu));
  const double first = now();
  const std::vector<e::Tensor> outputs = model(inputs);
  e::synchronize(gpu);
  std::printf("%s: load %.0f ms, first call %.0f ms, compiling included\n", name.c_str(), (loaded - begin) * 1e3,
              (now() - first) * 1e3);
  std::fflush(stdout);
  for (size_t i = 0; i < wanted.size(); ++i)
    std::printf("%s: output %zu: relative error %.2e\n", name.c_str(), i,
                relative_error(outputs[i].copy_to(e::device("cpu")), wanted[i]));
  if (o.first) return;
  if (o.profile) {
    for (int i = 0; i < 2; ++i) (void)model(inputs);
    e::synchronize(gpu);
    if (driver.profiler_start) driver.profiler_start();
    (void)model(inputs);
    e::synchronize(gpu);
    if (driver.profiler_stop) driver.profiler_stop();
    return;
  }
  const auto once = [&](int) { (void)model(inputs); };
  const double device = driver.seconds(once, 30, 4);
  std::vector<double> host;
  for (int i = 0; i < 30; ++i) {
    e::synchronize(gpu);
    begin = now();
    once(0);
    host.push_back(now() - begin);
  }
  std::sort(host.begin(), host.end());
  std::printf("%s: %.3f ms a call, host %.3f ms, A/A %.3f\n", name.c_str(), device * 1e3, host[host.size() / 2] * 1e3,
              driver.seconds(once, 30, 4) / device);
  std::fflush(stdout);
}

int run(const Options& o) {
  if (o.configs.empty()) throw std::runtime_error("no --config");
  const tsr_device gpu = [&] {
    const e::Context any = context_of(o.configs[0]);
    const tsr_device d = e::device("cuda:0");
    (void)e::Tensor::create(TSR_F32, std::vector<int64_t>{16}).copy_to(d);  // makes the device's context current here
    return d;
  }();
  Driver driver;
  driver.open_stream();
  tsr_stream_handle* stream = nullptr;
  e::check(e::api().stream_wrap(gpu, driver.stream, &stream));
  e::check(e::api().set_current_stream(gpu, stream, nullptr));
  int failed = 0;
  for (const std::string& folder : o.folders) {
    std::vector<e::Tensor> wanted;
    if (!o.reference.empty()) {
      const double begin = now();
      const e::Context context = context_of(o.reference);
      const e::Model model(context, folder + "/model.onnx");
      wanted = model(read_inputs(model, folder + "/in.npz"));
      std::printf("%s: %s took %.1f s\n", folder.c_str(), o.reference.c_str(), now() - begin);
    }
    for (const std::string& config : o.configs) {
      try {
        measure(o, folder, config, driver, gpu, wanted);
      } catch (const std::exception& error) {
        std::printf("%s %s FAILED: %s\n", folder.c_str(), config.c_str(), error.what());
        failed = 1;
      }
    }
  }
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--config" && i + 1 < argc)
      o.configs.emplace_back(argv[++i]);
    else if (a == "--reference" && i + 1 < argc)
      o.reference = argv[++i];
    else if (a == "--profile")
      o.profile = true;
    else if (a == "--first")
      o.first = true;
    else
      o.folders.push_back(a);
  }
  try {
    return run(o);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench-cuda-models: %s\n", error.what());
    return 1;
  }
}
