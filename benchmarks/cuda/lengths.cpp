// SPDX-License-Identifier: Apache-2.0
// Calls of random lengths under device graphs: results against the same program step by step, device memory, and times against
// a graph of one length. `--part calls` prints its progress to stderr too, between the lines of TESSERA_LOGS=cudagraphs.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <tessera/embed.hpp>

#include "model.hpp"

namespace {

using tessera::Tensor;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using Forward = tessera::Compiled<Tensor(llama::Llama&, const Tensor&)>;

struct Options {
  llama::Config model;
  std::string config = "configs/cuda.toml", device = "cuda", part = "calls", dtype = "bf16";
  int64_t longest = 512, calls = 1000, settled = 100, lengths = 20, repeats = 30, threaded = 50;
};

const tsr_api& api() { return *tsr_get_api(TSR_ABI_MAJOR); }

void wait(tsr_device device) { tessera::embed::check(api().synchronize(device, nullptr)); }

// Bytes of the device that are free, as the driver says; -1: there is no driver.
int64_t free_bytes() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* const f = driver ? dlsym(driver, "cuMemGetInfo_v2") : nullptr;
  size_t free = 0, total = 0;
  if (!f || reinterpret_cast<int (*)(size_t*, size_t*)>(f)(&free, &total) != 0) return -1;
  return static_cast<int64_t>(free);
}

class Bench {
 public:
  Bench(const Options& o, const tessera::Context& context)
      : o_(o),
        context_(context),
        device_(o.model.device.id()),
        model_(o.model),
        graphs_(forward("reduce-overhead", tessera::Dynamic::yes)),
        steps_(forward("default", tessera::Dynamic::yes)) {
    model_.initialise(1);
    tessera::Generator g(2);
    ids_ = tessera::randint(0, o.model.vocabulary, {1, o.longest}, tessera::i64, &g);
    wait(device_);
  }

  // Every result against the steps' bits, which depend on the length alone and are computed when the graphs' memory has been
  // measured.
  Json calls() {
    std::mt19937 random(3);
    int64_t wrong = 0, settled_free = -1;
    std::map<int64_t, std::vector<float>> first;  // by length
    for (int64_t i = 0; i < o_.calls; ++i) {
      if (i == o_.settled) {
        wait(device_);
        settled_free = free_bytes();
        std::fprintf(stderr, "lengths: settled\n");
      }
      const int64_t n = length(random);
      std::vector<float> got = values(graphs_(model_, ids(n)));
      const auto [at, fresh] = first.try_emplace(n);
      if (fresh)
        at->second = std::move(got);
      else
        wrong += got != at->second;
    }
    wait(device_);
    const int64_t end_free = free_bytes();
    std::fprintf(stderr, "lengths: end of one thread\n");
    for (const auto& [n, got] : first) wrong += got != values(steps_(model_, ids(n)));
    std::atomic<int64_t> threads_wrong{0};
    std::string thrown[2];
    const auto work = [&](unsigned seed) {
      try {
        const tessera::ContextScope context(context_);
        const tessera::embed::Stream stream(device_);
        const tessera::embed::StreamScope scope(stream);
        std::mt19937 mine(seed);
        for (int64_t i = 0; i < o_.threaded; ++i) threads_wrong += !same(length(mine));
      } catch (const std::exception& e) {
        thrown[seed % 2] = e.what();
      }
    };
    std::thread one(work, 4u), two(work, 5u);
    one.join();
    two.join();
    return {{"calls", o_.calls},
            {"wrong", wrong},
            {"new_bytes_after_settled", settled_free < 0 ? -1 : settled_free - end_free},
            {"threads_wrong", threads_wrong.load()},
            {"threads_thrown", thrown[0] + thrown[1]}};
  }

  // Each length with a graph that serves all, and with one of its own. Calls of a row are queued behind each other.
  Json times() {
    std::mt19937 random(6);
    for (int i = 0; i < 60; ++i) (void)graphs_(model_, ids(length(random)));
    Json rows = Json::array();
    std::vector<double> ratios;
    for (int64_t i = 0; i < o_.lengths; ++i) {
      const int64_t n = length(random);
      Forward own = forward("reduce-overhead", tessera::Dynamic::no);
      const Tensor x = ids(n);
      std::vector<double> all, one;
      for (int round = 0; round < 3; ++round) {  // in turns
        all.push_back(microseconds(graphs_, x));
        one.push_back(microseconds(own, x));
      }
      std::sort(all.begin(), all.end());
      std::sort(one.begin(), one.end());
      ratios.push_back(all[1] / one[1]);
      rows.push_back({{"length", n}, {"all_us", all[1]}, {"own_us", one[1]}, {"ratio", ratios.back()}});
    }
    std::sort(ratios.begin(), ratios.end());
    std::vector<Tensor> many;
    for (int i = 0; i < 100; ++i) many.push_back(ids(length(random)));
    wait(device_);
    const auto start = Clock::now();
    for (const Tensor& x : many) (void)graphs_(model_, x);
    wait(device_);
    const double changing = std::chrono::duration<double>(Clock::now() - start).count() / 100;
    const auto steps_start = Clock::now();
    for (const Tensor& x : many) (void)steps_(model_, x);
    wait(device_);
    const double changing_steps = std::chrono::duration<double>(Clock::now() - steps_start).count() / 100;
    return {{"median_ratio", ratios[ratios.size() / 2]},
            {"changing_us", changing * 1e6},
            {"changing_step_by_step_us", changing_steps * 1e6},
            {"rows", rows}};
  }

 private:
  Forward forward(const char* mode, tessera::Dynamic dynamic) const {
    return tessera::compile([](llama::Llama& m, const Tensor& ids) { return m.forward(ids); },
                            {.dynamic = dynamic, .mode = mode, .name = mode});
  }
  int64_t length(std::mt19937& random) const { return std::uniform_int_distribution<int64_t>(2, o_.longest)(random); }
  Tensor ids(int64_t n) const { return ids_.narrow(1, 0, n).contiguous().to(o_.model.device); }
  static std::vector<float> values(const Tensor& t) { return t.to("cpu").contiguous().to_vector<float>(); }
  bool same(int64_t n) {
    const Tensor x = ids(n);
    const std::vector<float> got = values(graphs_(model_, x)), want = values(steps_(model_, x));
    return got == want;
  }
  double microseconds(Forward& f, const Tensor& x) {
    for (int i = 0; i < 3; ++i) (void)f(model_, x);
    wait(device_);
    const auto start = Clock::now();
    for (int64_t i = 0; i < o_.repeats; ++i) (void)f(model_, x);
    wait(device_);
    return std::chrono::duration<double>(Clock::now() - start).count() * 1e6 / static_cast<double>(o_.repeats);
  }

  const Options o_;
  const tessera::Context context_;
  const tsr_device device_;
  llama::Llama model_;
  Forward graphs_, steps_;
  Tensor ids_;
};

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  o.model.layers = 12, o.model.hidden = 768, o.model.heads = o.model.key_heads = 12, o.model.vocabulary = 32000;
  po::options_description d("Calls a transformer with random lengths under device graphs; prints one JSON object.\n\nOptions");
  d.add_options()("help,h", "show this text")("config", po::value(&o.config)->default_value(o.config), "configuration")(
      "part", po::value(&o.part)->default_value(o.part), "calls: results and memory; times: against graphs of one length")(
      "device", po::value(&o.device)->default_value(o.device), "where everything lies")(
      "layers", po::value(&o.model.layers)->default_value(o.model.layers), "transformer layers")(
      "hidden", po::value(&o.model.hidden)->default_value(o.model.hidden), "width; a block's middle is four times that")(
      "heads", po::value(&o.model.heads)->default_value(o.model.heads), "attention heads")(
      "vocabulary", po::value(&o.model.vocabulary)->default_value(o.model.vocabulary), "tokens")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "bf16 or f32")(
      "longest", po::value(&o.longest)->default_value(o.longest), "length of a text")(
      "calls", po::value(&o.calls)->default_value(o.calls), "of random lengths")(
      "settled", po::value(&o.settled)->default_value(o.settled), "calls until nothing new is made or taken")(
      "threaded", po::value(&o.threaded)->default_value(o.threaded), "calls of each of two threads")(
      "lengths", po::value(&o.lengths)->default_value(o.lengths), "that are timed")(
      "repeats", po::value(&o.repeats)->default_value(o.repeats), "calls of one timing")(
      "set", po::value<std::vector<std::string>>()->composing(), "an override of the configuration; repeat");
  try {
    po::variables_map vm;
    po::store(po::parse_command_line(argc, argv, d), vm);
    po::notify(vm);
    if (vm.count("help")) {
      std::cout << d << "\n";
      return 0;
    }
    o.model.intermediate = 4 * o.model.hidden;
    o.model.key_heads = o.model.heads;
    o.model.dtype = o.dtype == "f32" ? tessera::f32 : tessera::bf16;
    const tessera::Context context(o.config,
                                   vm.count("set") ? vm["set"].as<std::vector<std::string>>() : std::vector<std::string>());
    const tessera::ContextScope scope(context);
    o.model.device = tessera::Device(o.device.c_str());
    Bench bench(o, context);
    std::cout << (o.part == "times" ? bench.times() : bench.calls()).dump() << std::endl;
    return 0;
  } catch (const std::exception& e) {
    std::cout << Json{{"error", e.what()}}.dump() << std::endl;
    return 1;
  }
}
