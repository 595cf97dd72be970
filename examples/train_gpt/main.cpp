// SPDX-License-Identifier: Apache-2.0
// Trains a GPT on a text file, byte by byte, and writes text with it. A training step, optimiser included, is one compiled
// program. A run that was killed goes on from its last checkpoint, to the same bits.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <tessera/data.hpp>
#include <tessera/tessera.hpp>

#include "model.hpp"
#include "show.hpp"

namespace train_gpt {
namespace {

namespace data = tessera::data;
namespace optim = tessera::optim;
using tessera::Checkpoint;

struct Options {
  std::string text, out = "train_gpt.run", prompt = "\n", config, device = "cpu";
  Config model;
  int64_t batch = 16, steps = 500, warmup = 50, save_every = 100, sample = 400;
  double lr = 1e-3, weight_decay = 0.1, clip = 1, temperature = 0.8;
  uint64_t seed = 0;
  bool resume = false;
};

[[noreturn]] void wrong(const std::string& message, const std::string& hint) {
  throw tessera::UserError("TSR-X004", message, hint);
}

// What a run is, as far as going on with it must not change it.
std::string describe(const Options& o, int64_t bytes) {
  return nlohmann::ordered_json{{"layers", o.model.layers},
                                {"heads", o.model.heads},
                                {"width", o.model.width},
                                {"context", o.model.context},
                                {"batch", o.batch},
                                {"steps", o.steps},
                                {"warmup", o.warmup},
                                {"lr", o.lr},
                                {"weight_decay", o.weight_decay},
                                {"clip", o.clip},
                                {"seed", o.seed},
                                {"bytes", bytes}}
      .dump();
}

// Draws from softmax(logits / temperature); temperature 0 takes the most likely token.
int64_t draw(const Tensor& logits, double temperature, uint64_t& state) {
  const std::vector<float> values = logits.to_vector<float>();
  const auto top = std::max_element(values.begin(), values.end());
  if (temperature == 0) return top - values.begin();
  std::vector<double> p;
  double sum = 0;
  for (const float v : values) sum += p.emplace_back(std::exp((v - *top) / temperature));
  uint64_t z = state += 0x9e3779b97f4a7c15;  // SplitMix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  double left = sum * static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  for (size_t i = 0; i < p.size(); ++i)
    if ((left -= p[i]) < 0) return static_cast<int64_t>(i);
  return top - values.begin();
}

// Writes text behind a prompt. The compiled step takes a cache of any length, so that it is compiled once.
std::string write_text(Gpt& model, const Options& o) {
  // The length may come to equal another size, the number of heads say, and is no other program for that.
  const std::vector<std::string> options = {"guards.duck_shaping=false"};
  auto read = tessera::compile([](Gpt& m, const Tensor& ids) { return m.read(ids); },
                               {.dynamic = tessera::Dynamic::yes, .options = options, .name = "read"});
  auto decode = tessera::compile([](Gpt& m, const Tensor& id, const Cache& cache) { return m.decode(id, cache); },
                                 {.dynamic = tessera::Dynamic::yes, .options = options, .name = "decode"});
  const tessera::Device device(o.device.c_str());
  uint64_t state = o.seed;
  std::vector<int64_t> all;
  for (const char c : o.prompt) all.push_back(static_cast<unsigned char>(c));
  Cache cache;
  Tensor logits;
  for (int64_t i = 0; i < o.sample; ++i) {
    const auto length = static_cast<int64_t>(all.size());
    if (i == 0 || static_cast<int64_t>(cache.keys[0].size(2)) == o.model.context) {
      // Positions are learned up to the context's end: past it the last half of it is read anew. Two tokens are the least,
      // since a length of 1 would be another program.
      const int64_t kept = std::max<int64_t>(2, std::min(length, o.model.context / 2));
      std::vector<int64_t> last(all.end() - std::min(length, kept), all.end());
      while (static_cast<int64_t>(last.size()) < kept) last.insert(last.begin(), '\n');
      std::tie(logits, cache) = read(model, tessera::tensor(last, {1, -1}).to(device));
      // As the steps leave it: in dense memory, which compiled code is guarded on.
      for (std::vector<Tensor>* list : {&cache.keys, &cache.values})
        for (Tensor& t : *list) t = t.contiguous();
    } else {
      std::tie(logits, cache) = decode(model, tessera::tensor(std::vector<int64_t>{all.back()}, {1, 1}).to(device), cache);
    }
    all.push_back(draw(logits, o.temperature, state));
  }
  const auto programs = [](const std::string& description) { return nlohmann::json::parse(description).at("entries").size(); };
  std::fprintf(stderr, "wrote %lld bytes with %zu compiled program for the prompt and %zu for the steps\n",
               static_cast<long long>(o.sample), programs(read.describe()), programs(decode.describe()));
  std::string out;
  for (const int64_t b : all) out += static_cast<char>(b);
  return out;
}

int run(const Options& o) {
  // A device other than the host brings its own configuration, where none is given.
  const std::string kind = o.device.substr(0, o.device.find(':')),
                    config = !o.config.empty() || kind == "cpu" ? o.config : TESSERA_CONFIG_DIR "/" + kind + ".toml";
  const std::optional<tessera::Context> context = config.empty() ? std::nullopt : std::optional(tessera::Context(config));
  std::optional<tessera::ContextScope> scope;
  if (context) scope.emplace(*context);

  const data::TextWindows text(o.text, o.model.context);
  data::Loader loader(text, {.batch = o.batch, .seed = o.seed});
  Gpt model(o.model);
  model.initialise(o.seed);
  const tessera::Device device(o.device.c_str());
  model.to(device);
  optim::AdamW optimizer(model, {.lr = o.lr, .beta2 = 0.95, .weight_decay = o.weight_decay});
  std::vector<float> losses;
  const std::string description = describe(o, static_cast<int64_t>(text.bytes().size()));
  std::filesystem::create_directories(o.out);
  const std::string checkpoint = o.out + "/last.safetensors";
  if (std::filesystem::exists(checkpoint)) {
    if (!o.resume)
      wrong("'" + checkpoint + "' is there from another run", "go on with it by --resume, or give another folder with --out");
    const Checkpoint c = Checkpoint::load(checkpoint);
    if (c.text("run") != description)
      wrong("'" + checkpoint + "' is of another run\n  found     " + c.text("run") + "\n  expected  " + description,
            "give the options that the run began with");
    c.get("model", model);
    c.get("optimizer", optimizer);
    losses = c.tensor("losses").to_vector<float>();
    loader.seek(c.tensor("loader"));
  }
  const auto done = static_cast<int64_t>(losses.size());
  std::fprintf(stderr, "%.2f M parameters, %zu bytes of text, %lld windows of %lld; %s at step %lld\n",
               static_cast<double>(model.num_parameters()) / 1e6, text.bytes().size(), static_cast<long long>(text.size()),
               static_cast<long long>(o.model.context), done == 0 ? "beginning" : "going on", static_cast<long long>(done));
  const auto save = [&] {
    Checkpoint c;
    c.put("model", model);
    c.put("optimizer", optimizer);
    c.tensors["losses"] = tessera::tensor(losses);
    c.tensors["loader"] = loader.position();
    c.metadata["run"] = description;
    c.save(checkpoint);
    const std::string curve = loss_curve(losses);
    tessera::write_file(o.out + "/loss.svg", std::as_bytes(std::span(curve)));
  };

  auto step = tessera::compile(
      [clip = o.clip](Gpt& m, optim::AdamW& opt, const Tensor& ids, const Tensor& targets) {
        const Tensor loss = m.loss(ids, targets);
        std::vector<Tensor> gradients = tessera::grad(loss, m);
        optim::clip_grad_norm(gradients, clip);
        opt.step(m, gradients);
        return loss;
      },
      {.dynamic = tessera::Dynamic::no, .name = "train_step", .args = {"model", "optimizer", "ids", "targets"}});
  Progress progress(done, o.steps, o.batch * o.model.context);
  for (int64_t i = done; i < o.steps; ++i) {
    const double lr = optim::warmup_cosine(i, o.warmup, o.steps, o.lr, 0.1 * o.lr);
    optimizer.set_lr(lr);
    const std::vector<Tensor> b = loader.next();
    losses.push_back(step(model, optimizer, b[0].to(device), b[1].to(device)).item<float>());
    if (!std::isfinite(losses.back()))
      wrong("the loss of step " + std::to_string(i) + " is " + std::to_string(losses.back()),
            "lower --lr; the checkpoint before it is good");
    progress.step(i + 1, losses.back(), lr);
    if ((i + 1) % o.save_every == 0 || i + 1 == o.steps) save();
  }
  progress.end();
  std::fprintf(stderr, "checkpoint and loss curve: %s, %s/loss.svg\n", checkpoint.c_str(), o.out.c_str());
  if (o.sample > 0) std::printf("%s\n", write_text(model, o).c_str());
  return 0;
}

void expect(bool holds, const char* what) {
  if (!holds) wrong(std::string("expected ") + what, "see --help");
}

}  // namespace
}  // namespace train_gpt

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  train_gpt::Options o;
  po::options_description d(
      "Trains a GPT on a text file, byte by byte, and writes text with it.\n\n"
      "  train_gpt --text book.txt\n"
      "  train_gpt --text book.txt --resume        # a run that was killed goes on, to the same bits\n\nOptions");
  d.add_options()("help,h", "show this text")("text", po::value(&o.text), "the text file")(
      "out", po::value(&o.out)->default_value(o.out), "folder of the checkpoint and the loss curve")(
      "resume", po::bool_switch(&o.resume), "go on with the run in that folder")(
      "layers", po::value(&o.model.layers)->default_value(o.model.layers), "transformer layers")(
      "heads", po::value(&o.model.heads)->default_value(o.model.heads), "attention heads; they divide the width")(
      "width", po::value(&o.model.width)->default_value(o.model.width), "of the hidden states")(
      "context", po::value(&o.model.context)->default_value(o.model.context), "bytes that the model sees")(
      "batch", po::value(&o.batch)->default_value(o.batch), "windows of text per step")(
      "steps", po::value(&o.steps)->default_value(o.steps), "of training")("lr", po::value(&o.lr)->default_value(o.lr),
                                                                           "learning rate after the warmup")(
      "warmup", po::value(&o.warmup)->default_value(o.warmup), "steps until the rate is reached")(
      "weight-decay", po::value(&o.weight_decay)->default_value(o.weight_decay), "of AdamW")(
      "clip", po::value(&o.clip)->default_value(o.clip), "norm of the gradient at most")(
      "seed", po::value(&o.seed)->default_value(o.seed), "of weights, order of the text and writing")(
      "save-every", po::value(&o.save_every)->default_value(o.save_every), "steps between checkpoints")(
      "sample", po::value(&o.sample)->default_value(o.sample), "bytes to write at the end")(
      "prompt", po::value(&o.prompt)->default_value(o.prompt, "a line's end"), "what they follow")(
      "temperature", po::value(&o.temperature)->default_value(o.temperature), "of the writing; 0 takes the likeliest byte")(
      "device", po::value(&o.device)->default_value(o.device), "cpu, cuda, cuda:1, sim:0")(
      "config", po::value(&o.config),
      "configuration (default: that of the device; for cpu TESSERA_CONFIG, else configs/default.toml)");
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
    using train_gpt::expect;
    expect(!o.text.empty(), "a text: train_gpt --text FILE");
    expect(o.model.layers >= 1 && o.model.layers <= 1000, "--layers 1 to 1000");
    expect(o.model.heads >= 1 && o.model.width >= 1 && o.model.width % o.model.heads == 0, "--heads that divide --width");
    expect(o.model.context >= 4, "--context 4 or more");
    expect(o.batch >= 1 && o.steps >= 1 && o.save_every >= 1, "--batch, --steps and --save-every 1 or more");
    expect(o.warmup >= 0 && o.sample >= 0 && o.temperature >= 0, "--warmup, --sample and --temperature 0 or more");
    expect(!o.prompt.empty(), "a --prompt that is not empty");
    return train_gpt::run(o);
  } catch (const po::error& e) {
    std::fprintf(stderr, "error[TSR-X005] %s\n  hint: see train_gpt --help\n", e.what());
    return 2;
  } catch (const tessera::UserError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return dynamic_cast<const tessera::EnvironmentError*>(&e) ? 3 : 70;
  } catch (const std::filesystem::filesystem_error& e) {
    std::fprintf(stderr, "error[TSR-F053] %s\n", e.what());
    return 3;
  }
}
