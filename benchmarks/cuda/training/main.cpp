// SPDX-License-Identifier: Apache-2.0
// One row of the table of Llama's training step: bf16, loss forward and backward without an optimiser, in one configuration.
// run.py runs it for each row, and PyTorch beside it.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <tessera/embed.h>

#include "model.hpp"

namespace {

using tessera::Tensor;
using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

struct Options {
  llama::Config model;
  std::string config = "configs/cuda.toml", device = "cuda", mode, form = "pair", dtype = "bf16", name = "default";
  std::vector<std::string> sets;
  int64_t batch = 4, length = 1024, passes = 16, repeats = 3, rows = 1024;
  bool profile = false;
};

const tsr_api& api() { return *tsr_get_api(TSR_ABI_MAJOR); }

void wait(tsr_device device) {
  if (device == 0) return;
  if (tsr_error* e = api().synchronize(device, nullptr)) {
    const std::string text = api().host->core->error_message(e);
    api().error_free(e);
    throw std::runtime_error(text);
  }
}

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        device_(o.model.device.id()),
        model_(o.model),
        step_(tessera::compile(
            [rows = o.rows](llama::Llama& m, const Tensor& ids, const Tensor& targets) {
              const Tensor loss = m.loss(ids, targets, rows);
              std::vector<Tensor> out = tessera::grad(loss, m);
              out.insert(out.begin(), loss);
              return out;
            },
            options("step"))),
        loss_(tessera::compile(
            [rows = o.rows](llama::Llama& m, const Tensor& ids, const Tensor& targets) { return m.loss(ids, targets, rows); },
            options("loss"))) {
    model_.initialise(1);
    tessera::Generator g(2);
    const Tensor tokens = tessera::randint(0, o.model.vocabulary, {o.batch, o.length + 1}, tessera::i64, &g);
    ids_ = tokens.narrow(1, 0, o.length).contiguous().to(o.model.device);
    targets_ = tokens.narrow(1, 1, o.length).contiguous().to(o.model.device);
    if (pair()) model_.requires_grad_();
    wait(device_);
    resident_ = api().memory_in_use(device_);
  }

  // Loss and gradients once; what lies between the halves is measured where `kept` is given.
  void pass(int64_t* kept) {
    if (!pair()) {
      gradients_.clear();
      gradients_ = step_(model_, ids_, targets_);
      last_ = gradients_[0];
      return;
    }
    model_.zero_grad();
    last_ = loss_(model_, ids_, targets_);
    if (kept) {
      wait(device_);
      *kept = api().memory_in_use(device_) - resident_;
    }
    last_.backward();
    last_ = last_.detach();
  }

  // One pass between the driver's marks, for `ncu --profile-from-start off`.
  void profile() {
    for (int i = 0; i < 3; ++i) pass(nullptr);
    wait(device_);
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    const auto mark = [&](const char* name) {
      void* f = driver ? dlsym(driver, name) : nullptr;
      if (!f) throw std::runtime_error(std::string("no ") + name);
      reinterpret_cast<int (*)()>(f)();
    };
    mark("cuProfilerStart");
    pass(nullptr);
    wait(device_);
    mark("cuProfilerStop");
  }

  nlohmann::ordered_json run() {
    nlohmann::ordered_json row{{"name", o_.name}};
    auto start = Clock::now();
    pass(nullptr);
    wait(device_);
    row["first_step_s"] = seconds_since(start);
    row["loss"] = last_.item<double>();
    pass(nullptr);
    gradients_.clear();
    model_.zero_grad();
    last_ = Tensor();
    wait(device_);
    api().memory_peak(device_, 1);
    int64_t kept = -1;
    pass(&kept);
    wait(device_);
    row["activations_bytes"] = kept;
    row["peak_bytes"] = api().memory_peak(device_, 0) - resident_;
    row["resident_bytes"] = resident_;
    std::vector<double> times;
    for (int64_t r = 0; r < o_.repeats; ++r) {
      start = Clock::now();
      for (int64_t i = 0; i < o_.passes; ++i) pass(nullptr);
      wait(device_);
      times.push_back(seconds_since(start));
    }
    std::sort(times.begin(), times.end());
    row["passes_s"] = times[times.size() / 2];
    row["spread"] = times.back() / times.front() - 1;
    const double flops = 3 * model_.forward_flops(o_.batch, o_.length) * static_cast<double>(o_.passes);
    row["tflops"] = flops / times[times.size() / 2] / 1e12;
    return row;
  }

 private:
  bool pair() const { return o_.form == "pair"; }
  tessera::CompileOptions options(const char* name) const {
    return {.dynamic = tessera::Dynamic::no, .mode = o_.mode, .name = name};
  }

  const Options o_;
  const tsr_device device_;
  llama::Llama model_;
  tessera::Compiled<std::vector<Tensor>(llama::Llama&, const Tensor&, const Tensor&)> step_;
  tessera::Compiled<Tensor(llama::Llama&, const Tensor&, const Tensor&)> loss_;
  Tensor ids_, targets_, last_;
  std::vector<Tensor> gradients_;
  int64_t resident_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description d("Times Llama's loss and gradients in one configuration; prints one JSON object.\n\nOptions");
  d.add_options()("help,h", "show this text")("config", po::value(&o.config)->default_value(o.config), "configuration")(
      "set", po::value(&o.sets)->composing(), "an override of the configuration; repeat")(
      "mode", po::value(&o.mode), "of the compile: reduce-overhead, max-autotune, ..")(
      "name", po::value(&o.name)->default_value(o.name), "of the row")(
      "form", po::value(&o.form)->default_value(o.form), "pair: a forward and a backward program; step: one program")(
      "device", po::value(&o.device)->default_value(o.device), "where everything lies")(
      "layers", po::value(&o.model.layers)->default_value(o.model.layers), "transformer layers")(
      "hidden", po::value(&o.model.hidden)->default_value(o.model.hidden), "width; a block's middle is four times that")(
      "heads", po::value(&o.model.heads)->default_value(o.model.heads), "attention heads")(
      "key-heads", po::value(&o.model.key_heads)->default_value(o.model.key_heads), "heads of keys and values")(
      "vocabulary", po::value(&o.model.vocabulary)->default_value(o.model.vocabulary), "tokens")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "bf16 or f32")(
      "batch", po::value(&o.batch)->default_value(o.batch), "texts")("length", po::value(&o.length)->default_value(o.length),
                                                                     "tokens of a text")(
      "rows", po::value(&o.rows)->default_value(o.rows), "tokens whose logits are held at a time; 0: all")(
      "passes", po::value(&o.passes)->default_value(o.passes), "forward and backward, timed together")(
      "repeats", po::value(&o.repeats)->default_value(o.repeats), "of the timing; the median counts")(
      "profile", po::bool_switch(&o.profile), "run one pass between the driver's marks instead of timing");
  try {
    po::variables_map vm;
    po::store(po::parse_command_line(argc, argv, d), vm);
    po::notify(vm);
    if (vm.count("help")) {
      std::cout << d << "\n";
      return 0;
    }
    o.model.intermediate = 4 * o.model.hidden;
    o.model.dtype = o.dtype == "f32" ? tessera::f32 : tessera::bf16;
    const tessera::Context context(o.config, o.sets);
    const tessera::ContextScope scope(context);
    o.model.device = tessera::Device(o.device.c_str());
    Bench bench(o);
    if (o.profile)
      bench.profile();
    else
      std::cout << bench.run().dump() << std::endl;
    return 0;
  } catch (const std::exception& e) {
    std::cout << nlohmann::ordered_json{{"name", o.name}, {"error", e.what()}}.dump() << std::endl;
    return 1;
  }
}
