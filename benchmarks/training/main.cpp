// SPDX-License-Identifier: Apache-2.0
// Times training steps of a GPT: loss, gradients, clipping and AdamW as one compiled program. peers.py gives it weights and
// batches, and drives it step by step beside PyTorch (--serve).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <tessera/data.hpp>
#include <tessera/tessera.hpp>

#include "model.hpp"

namespace {

using tessera::Tensor;
namespace optim = tessera::optim;
using Clock = std::chrono::steady_clock;

struct Options {
  train_gpt::Config model{6, 6, 384, 256, 256};
  int64_t batch = 4, steps = 20;
  double lr = 1e-4, weight_decay = 0.1, clip = 1;  // the rate: as peers.py
  std::string weights, batches, config;
  bool json = false, serve = false;
};

class Trainer {
 public:
  explicit Trainer(const Options& o)
      : o_(o), model_(o.model), optimizer_(model_, {.lr = o.lr, .beta2 = 0.95, .weight_decay = o.weight_decay}) {
    if (o.weights.empty())
      model_.initialise(0);
    else
      model_.load_state_dict(tessera::load_safetensors(o.weights).tensors);
    if (o.batches.empty()) {
      tessera::Generator g(1);
      const int64_t n = 8;
      const Tensor all = tessera::randint(0, o.model.vocabulary, {n, o.batch, o.model.context + 1}, tessera::i64, &g);
      for (int64_t i = 0; i < n; ++i) add_batch(all.select(0, i));
    } else {
      const auto rows = tessera::data::Rows::from_npz(o.batches, {"tokens"});
      for (int64_t i = 0; i < rows.size(); ++i) add_batch(rows.batch(std::vector<int64_t>{i}).at(0).select(0, 0));
    }
  }
  // The loss of the next step. Reading it waits for the step.
  double step() {
    const auto& [ids, targets] = batches_[next_++ % batches_.size()];
    return step_(model_, optimizer_, ids, targets).item<double>();
  }

 private:
  void add_batch(const Tensor& tokens) {
    batches_.emplace_back(tokens.narrow(1, 0, o_.model.context).contiguous(),
                          tokens.narrow(1, 1, o_.model.context).contiguous());
  }
  const Options& o_;
  train_gpt::Gpt model_;
  optim::AdamW optimizer_;
  std::vector<std::pair<Tensor, Tensor>> batches_;
  size_t next_ = 0;
  tessera::Compiled<Tensor(train_gpt::Gpt&, optim::AdamW&, const Tensor&, const Tensor&)> step_ = tessera::compile(
      [clip = o_.clip](train_gpt::Gpt& m, optim::AdamW& opt, const Tensor& ids, const Tensor& targets) {
        const Tensor loss = m.loss(ids, targets);
        std::vector<Tensor> gradients = tessera::grad(loss, m);
        optim::clip_grad_norm(gradients, clip);
        opt.step(m, gradients);
        return loss;
      },
      {.dynamic = tessera::Dynamic::no, .name = "train_step"});
};

struct Timed {
  std::vector<double> losses, seconds;
};
Timed run(Trainer& trainer, int64_t steps) {
  Timed out;
  for (int64_t i = 0; i < steps; ++i) {
    const auto start = Clock::now();
    out.losses.push_back(trainer.step());
    out.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return out;
}

int measure(const Options& o) {
  Trainer trainer(o);
  if (o.serve) {
    for (int64_t steps = 0; std::cin >> steps;) {
      const Timed t = run(trainer, steps);
      std::cout << nlohmann::json{{"losses", t.losses}, {"seconds", t.seconds}}.dump() << std::endl;
    }
    return 0;
  }
  const Timed first = run(trainer, 1), t = run(trainer, std::max<int64_t>(1, o.steps));
  std::vector<double> sorted = t.seconds;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2], tokens = static_cast<double>(o.batch * o.model.context);
  if (o.json)
    std::printf("%s\n", nlohmann::ordered_json{{"schema", "tessera.bench.training/1"},
                                               {"layers", o.model.layers},
                                               {"width", o.model.width},
                                               {"context", o.model.context},
                                               {"batch", o.batch},
                                               {"first_step_s", first.seconds[0]},
                                               {"step_s", median},
                                               {"tokens_per_s", tokens / median}}
                            .dump(2)
                            .c_str());
  else
    std::printf("first step %8.2f s\nstep       %8.4f s\ntokens/s   %8.0f\n", first.seconds[0], median, tokens / median);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  po::options_description d("Times training steps of a GPT on one configuration.\n\n  bench-training --steps 20\n\nOptions");
  d.add_options()("help,h", "show this text")("layers", po::value(&o.model.layers)->default_value(o.model.layers), "layers")(
      "heads", po::value(&o.model.heads)->default_value(o.model.heads), "attention heads")(
      "width", po::value(&o.model.width)->default_value(o.model.width), "of the hidden states")(
      "context", po::value(&o.model.context)->default_value(o.model.context), "tokens of one text")(
      "batch", po::value(&o.batch)->default_value(o.batch), "texts per step")(
      "steps", po::value(&o.steps)->default_value(o.steps), "to time, after the first")(
      "weights", po::value(&o.weights), "safetensors file of the first weights")(
      "batches", po::value(&o.batches), "npz file: tokens, i64 [n, batch, context + 1]")(
      "config", po::value(&o.config), "configuration (default: TESSERA_CONFIG, else configs/default.toml)")(
      "json", po::bool_switch(&o.json), "print one JSON document")(
      "serve", po::bool_switch(&o.serve), "read numbers of steps, answer with losses and seconds as JSON");
  try {
    po::variables_map vm;
    po::store(po::parse_command_line(argc, argv, d), vm);
    po::notify(vm);
    if (vm.count("help")) {
      std::cout << d << "\n";
      return 0;
    }
    if (o.config.empty()) return measure(o);
    const tessera::Context context(o.config);
    const tessera::ContextScope scope(context);
    return measure(o);
  } catch (const po::error& e) {
    std::fprintf(stderr, "error: %s\n  hint: see bench-training --help\n", e.what());
    return 2;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return dynamic_cast<const tessera::UserError*>(&e) ? 2 : 70;
  }
}
