// SPDX-License-Identifier: Apache-2.0
// A model of Llama-3.2-1B's shape with random weights: writes tokens with a cache of keys and values, or trains on a text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <tessera/data.hpp>

#include "model.hpp"

namespace llama {
namespace {

namespace optim = tessera::optim;
using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

struct Options {
  Config model;
  std::string config, device = "cpu", dtype, train, prompt = "The meaning of life is";
  int64_t tokens = 32, steps = 10, batch = 1, length = 128, rows = 256;
  double lr = 1e-4, clip = 1;
  uint64_t seed = 0;
};

[[noreturn]] void wrong(const std::string& message, const std::string& hint) {
  throw tessera::UserError("TSR-X004", message, hint);
}

// A cuda or a sim device brings its own configuration, where none is given.
std::string config_of(const Options& o) {
  if (!o.config.empty()) return o.config;
  const std::string kind = o.device.substr(0, o.device.find(':'));
  return kind == "cpu" ? std::string() : std::string(TESSERA_CONFIG_DIR "/") + kind + ".toml";
}

// Greedy, one token a step. The step takes a cache of any length, so that it is compiled once.
void generate(Llama& model, const Options& o) {
  const std::vector<std::string> options = {"guards.duck_shaping=false"};
  auto read = tessera::compile([](Llama& m, const Tensor& ids) { return m.read(ids); },
                               {.dynamic = tessera::Dynamic::yes, .options = options, .name = "read"});
  auto decode = tessera::compile([](Llama& m, const Tensor& id, const Cache& cache) { return m.decode(id, cache); },
                                 {.dynamic = tessera::Dynamic::yes, .options = options, .name = "decode"});
  std::vector<int64_t> ids;  // random weights know no tokenizer: bytes are tokens, too
  for (const char c : o.prompt) ids.push_back(static_cast<unsigned char>(c) % o.model.vocabulary);
  const auto start = Clock::now();
  double first = 0;
  Cache cache;
  Tensor logits;
  for (int64_t i = 0; i < o.tokens; ++i) {
    if (i == 0) {
      std::tie(logits, cache) = read(model, tessera::tensor(ids, {1, -1}).to(o.model.device));
      // As the steps leave it: in dense memory, which compiled code is guarded on.
      for (std::vector<Tensor>* list : {&cache.keys, &cache.values})
        for (Tensor& t : *list) t = t.contiguous();
    } else {
      const std::vector<int64_t> last{ids.back()};
      std::tie(logits, cache) = decode(model, tessera::tensor(last, {1, 1}).to(o.model.device), cache);
    }
    const std::vector<float> values = logits.to_vector<float>();
    ids.push_back(std::max_element(values.begin(), values.end()) - values.begin());
    if (i == 1) first = seconds_since(start);  // both programs are compiled
  }
  const auto programs = [](const std::string& description) { return nlohmann::json::parse(description).at("entries").size(); };
  std::fprintf(stderr,
               "%zu and %zu compiled programs for the prompt and the steps; two tokens took %.2f s, the others %.2f ms each\n",
               programs(read.describe()), programs(decode.describe()), first,
               (seconds_since(start) - first) * 1e3 / static_cast<double>(std::max<int64_t>(1, o.tokens - 2)));
  std::printf("tokens:");
  for (size_t i = o.prompt.size(); i < ids.size(); ++i) std::printf(" %lld", static_cast<long long>(ids[i]));
  std::printf("\n");
}

void train(Llama& model, const Options& o) {
  const tessera::data::TextWindows text(o.train, o.length);
  tessera::data::Loader loader(text, {.batch = o.batch, .seed = o.seed});
  optim::AdamW optimizer(model, {.lr = o.lr, .beta2 = 0.95, .weight_decay = 0.1});
  auto step = tessera::compile(
      [clip = o.clip, rows = o.rows](Llama& m, optim::AdamW& opt, const Tensor& ids, const Tensor& targets) {
        const Tensor loss = m.loss(ids, targets, rows);
        std::vector<Tensor> gradients = tessera::grad(loss, m);
        optim::clip_grad_norm(gradients, clip);
        opt.step(m, gradients);
        return loss;
      },
      {.dynamic = tessera::Dynamic::no, .name = "train_step", .args = {"model", "optimizer", "ids", "targets"}});
  for (int64_t i = 0; i < o.steps; ++i) {
    const auto start = Clock::now();
    const std::vector<Tensor> b = loader.next();
    const float loss = step(model, optimizer, b[0].to(o.model.device), b[1].to(o.model.device)).item<float>();
    std::printf("step %lld: loss %.4f, %.3f s\n", static_cast<long long>(i + 1), static_cast<double>(loss),
                seconds_since(start));
    if (!std::isfinite(loss)) wrong("the loss is no number", "lower --lr");
  }
}

int run(Options& o) {
  const std::string path = config_of(o);
  const std::optional<tessera::Context> context = path.empty() ? std::nullopt : std::optional(tessera::Context(path));
  std::optional<tessera::ContextScope> scope;
  if (context) scope.emplace(*context);
  o.model.device = Device(o.device.c_str());
  const auto start = Clock::now();
  Llama model(o.model);
  model.initialise(o.seed);
  std::fprintf(stderr, "%.1f M parameters of %s on %s in %.1f s\n", static_cast<double>(model.num_parameters()) / 1e6,
               std::string(tessera::name(o.model.dtype)).c_str(), o.model.device.name().c_str(), seconds_since(start));
  if (o.train.empty())
    generate(model, o);
  else
    train(model, o);
  return 0;
}

void expect(bool holds, const char* what) {
  if (!holds) wrong(std::string("expected ") + what, "see --help");
}

}  // namespace
}  // namespace llama

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  llama::Options o;
  llama::Config& m = o.model;
  bool untied = false;
  po::options_description d(
      "A model of Llama-3.2-1B's shape with random weights: writes tokens, or trains on the bytes of a text.\n\n"
      "  llama --device cuda --tokens 64\n"
      "  llama --layers 2 --hidden 256 --train README.md\n\nOptions");
  d.add_options()("help,h", "show this text")("device", po::value(&o.device)->default_value(o.device),
                                              "cpu, cuda, cuda:1, sim:0")(
      "config", po::value(&o.config),
      "configuration (default: that of the device; TESSERA_CONFIG or configs/default.toml for cpu)")(
      "layers", po::value(&m.layers)->default_value(m.layers), "transformer layers")(
      "hidden", po::value(&m.hidden)->default_value(m.hidden), "width of the hidden states")(
      "intermediate", po::value(&m.intermediate)->default_value(0, "4 * hidden"), "width between the products of a block")(
      "heads", po::value(&m.heads)->default_value(m.heads), "attention heads; they divide the width")(
      "key-heads", po::value(&m.key_heads)->default_value(m.key_heads), "heads of keys and values; they divide the heads")(
      "vocabulary", po::value(&m.vocabulary)->default_value(m.vocabulary), "tokens")(
      "untied", po::bool_switch(&untied), "an output layer of its own")("dtype", po::value(&o.dtype)->default_value("bf16"),
                                                                        "of parameters and activations: bf16, f16 or f32")(
      "seed", po::value(&o.seed)->default_value(o.seed), "of weights and batches")(
      "tokens", po::value(&o.tokens)->default_value(o.tokens), "to write")(
      "prompt", po::value(&o.prompt)->default_value(o.prompt), "what they follow")("train", po::value(&o.train),
                                                                                   "text file to train on, instead of writing")(
      "steps", po::value(&o.steps)->default_value(o.steps), "of training")("batch", po::value(&o.batch)->default_value(o.batch),
                                                                           "texts per step")(
      "length", po::value(&o.length)->default_value(o.length), "tokens of a text")(
      "rows", po::value(&o.rows)->default_value(o.rows), "tokens whose logits are held at a time; 0: all")(
      "lr", po::value(&o.lr)->default_value(o.lr), "learning rate")("clip", po::value(&o.clip)->default_value(o.clip),
                                                                    "norm of the gradient at most");
  try {
    po::variables_map vm;
    po::store(po::parse_command_line(argc, argv, d), vm);
    po::notify(vm);
    if (vm.count("help")) {
      std::cout << d << "\n";
      return 0;
    }
    using llama::expect;
    m.tied = !untied;
    if (m.intermediate == 0) m.intermediate = 4 * m.hidden;
    expect(o.dtype == "bf16" || o.dtype == "f16" || o.dtype == "f32", "--dtype bf16, f16 or f32");
    m.dtype = o.dtype == "bf16" ? tessera::bf16 : o.dtype == "f16" ? tessera::f16 : tessera::f32;
    expect(m.layers >= 1 && m.layers <= 1000 && m.intermediate >= 1, "--layers 1 to 1000, --intermediate 1 or more");
    expect(m.heads >= 1 && m.hidden >= 1 && m.hidden % m.heads == 0 && m.head() % 2 == 0,
           "--heads that divide --hidden evenly");
    expect(m.key_heads >= 1 && m.heads % m.key_heads == 0, "--key-heads that divide --heads");
    expect(m.vocabulary >= 256, "--vocabulary 256 or more");
    expect(o.tokens >= 1 && o.steps >= 1 && o.batch >= 1 && o.length >= 2,
           "--tokens, --steps and --batch 1 or more, --length 2");
    expect(o.rows >= 0 && o.lr > 0 && o.clip > 0, "--rows 0 or more, --lr and --clip above 0");
    expect(o.prompt.size() >= 2, "a --prompt of two bytes or more");
    return llama::run(o);
  } catch (const po::error& e) {
    std::fprintf(stderr, "error[TSR-X005] %s\n  hint: see llama --help\n", e.what());
    return 2;
  } catch (const tessera::UserError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return dynamic_cast<const tessera::EnvironmentError*>(&e) ? 3 : 70;
  }
}
