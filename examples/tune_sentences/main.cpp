// SPDX-License-Identifier: Apache-2.0
// Fine-tunes a sentence encoder on pairs of sentences that mean the same: each sentence is to be nearer to its partner than to
// the other sentences of the batch (van den Oord et al. 2018). The result is a folder that examples/sentences reads.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <boost/program_options.hpp>

#include <tessera/data.hpp>
#include <tessera/tessera.hpp>

#include "error.hpp"
#include "model.hpp"
#include "wordpiece.hpp"

namespace tune_sentences {
namespace {

namespace optim = tessera::optim;

struct Options {
  std::string model, pairs, out;
  int64_t batch = 16, length = 64, epochs = 1;
  double lr = 2e-5, scale = 20;
  uint64_t seed = 0;
};

[[noreturn]] void wrong(const std::string& message, const std::string& hint) {
  throw tessera::UserError("TSR-X004", message, hint);
}

// Ids of the sentences of many pairs, padded to `length`: ids and mask i64 [pairs, 2, length].
tessera::data::Rows read_pairs(const Options& o, const sentences::WordPiece& words) {
  std::ifstream in(o.pairs);
  if (!in) wrong("cannot read '" + o.pairs + "'", "give a text file with two sentences per line, a tab between them");
  std::vector<int64_t> ids, mask;
  int64_t pairs = 0, number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const size_t tab = line.find('\t');
    if (tab == line.npos || line.find('\t', tab + 1) != line.npos)
      wrong(o.pairs + ":" + std::to_string(number) + ": expected two sentences with one tab between them",
            "see examples/tune_sentences/pairs.tsv");
    for (const std::string& sentence : {line.substr(0, tab), line.substr(tab + 1)}) {
      std::vector<int64_t> s = words.encode(sentence, static_cast<size_t>(o.length));
      for (size_t i = 0; i < static_cast<size_t>(o.length); ++i) {
        ids.push_back(i < s.size() ? s[i] : words.pad());
        mask.push_back(i < s.size());
      }
    }
    ++pairs;
  }
  if (pairs < o.batch)
    wrong(o.pairs + " has " + std::to_string(pairs) + " pairs, fewer than a batch of " + std::to_string(o.batch),
          "give a smaller --batch");
  return tessera::data::Rows({tessera::tensor(ids, {pairs, 2, o.length}), tessera::tensor(mask, {pairs, 2, o.length})});
}

// The loss of a batch, and the share of sentences whose partner is the nearest one.
std::pair<Tensor, Tensor> judge(Encoder& encoder, const Tensor& ids, const Tensor& mask, double scale) {
  const SymInt n = ids.size(0), length = ids.size(2);
  const Tensor both = encoder(ids.reshape({n * 2, length}), mask.reshape({n * 2, length})).reshape({n, 2, -1});
  const Tensor scores = both.select(1, 0).matmul(both.select(1, 1).t()) * scale;
  const Tensor partner = tessera::arange(n);
  const Tensor loss = (F::cross_entropy(scores, partner) + F::cross_entropy(scores.t(), partner)) * 0.5;
  return {loss, (scores.argmax(1) == partner).to(tessera::f32).mean()};
}

int run(const Options& o) {
  const Config config = read_config(o.model);
  Options limited = o;
  limited.length = std::min(o.length, config.positions);
  const sentences::WordPiece words(o.model + "/vocab.txt");
  if (static_cast<int64_t>(words.size()) > config.vocabulary)
    wrong(o.model + "/vocab.txt has " + std::to_string(words.size()) + " entries, config.json says " +
              std::to_string(config.vocabulary),
          "give the files of one model");
  const tessera::data::Rows pairs = read_pairs(limited, words);
  Encoder encoder(config);
  load(encoder, o.model);
  tessera::data::Loader loader(pairs, {.batch = o.batch, .seed = o.seed});
  optim::AdamW optimizer(encoder, {.lr = o.lr, .weight_decay = 0.01});
  auto step = tessera::compile(
      [scale = o.scale](Encoder& e, optim::AdamW& opt, const Tensor& ids, const Tensor& mask) {
        const auto judged = judge(e, ids, mask, scale);
        std::vector<Tensor> gradients = tessera::grad(judged.first, e);
        optim::clip_grad_norm(gradients, 1.0);
        opt.step(e, gradients);
        return judged;
      },
      {.dynamic = tessera::Dynamic::no, .name = "tune_step"});
  const int64_t per_epoch = loader.batches_per_epoch(), total = per_epoch * o.epochs;
  std::fprintf(stderr, "%.1f M parameters, %lld pairs, %lld steps\n", static_cast<double>(encoder.num_parameters()) / 1e6,
               static_cast<long long>(pairs.size()), static_cast<long long>(total));
  double first = 0, last = 0;
  for (int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    double loss = 0, nearest = 0;
    for (int64_t i = 0; i < per_epoch; ++i) {
      optimizer.set_lr(optim::warmup_linear(epoch * per_epoch + i, total / 10, total, o.lr));
      const std::vector<Tensor> b = loader.next();
      const auto judged = step(encoder, optimizer, b[0], b[1]);
      loss += judged.first.item<double>() / static_cast<double>(per_epoch);
      nearest += judged.second.item<double>() / static_cast<double>(per_epoch);
    }
    if (epoch == 0) first = loss;
    last = loss;
    std::printf("epoch %lld: loss %.4f, the partner is nearest for %.1f %% of the sentences\n",
                static_cast<long long>(epoch + 1), loss, 100 * nearest);
  }
  std::filesystem::create_directories(o.out);
  for (const char* file : {"/config.json", "/vocab.txt"})
    if (!std::filesystem::equivalent(o.model, o.out))
      std::filesystem::copy_file(o.model + file, o.out + file, std::filesystem::copy_options::overwrite_existing);
  tessera::save_safetensors(o.out + "/model.safetensors", encoder.state_dict());
  std::printf("loss %.4f -> %.4f; the tuned encoder: %s\n", first, last, o.out.c_str());
  return 0;
}

}  // namespace
}  // namespace tune_sentences

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  tune_sentences::Options o;
  po::options_description d(
      "Fine-tunes a sentence encoder on pairs of sentences that mean the same.\n\n"
      "  tune_sentences --model \"$(examples/sentences/fetch.sh)\" --pairs examples/tune_sentences/pairs.tsv --out tuned\n"
      "  sentences --model tuned --text examples/sentences/sample.txt\n\nOptions");
  d.add_options()("help,h", "show this text")("model", po::value(&o.model),
                                              "folder with config.json, model.safetensors and vocab.txt")(
      "pairs", po::value(&o.pairs), "text file: two sentences per line, a tab between them")("out", po::value(&o.out),
                                                                                             "folder of the tuned encoder")(
      "batch", po::value(&o.batch)->default_value(o.batch),
      "pairs per step; the others of a batch are what a sentence is told from")(
      "length", po::value(&o.length)->default_value(o.length), "longer sentences are cut to so many tokens")(
      "epochs", po::value(&o.epochs)->default_value(o.epochs), "times through the pairs")(
      "lr", po::value(&o.lr)->default_value(o.lr), "learning rate")("scale", po::value(&o.scale)->default_value(o.scale),
                                                                    "of the cosines before the softmax")(
      "seed", po::value(&o.seed)->default_value(o.seed), "of the order");
  try {
    po::variables_map vm;
    po::store(po::parse_command_line(argc, argv, d), vm);
    po::notify(vm);
    if (vm.count("help")) {
      std::cout << d << "\n";
      return 0;
    }
    if (o.model.empty() || o.pairs.empty() || o.out.empty())
      tune_sentences::wrong("--model, --pairs and --out are needed", "see --help");
    if (o.batch < 2 || o.length < 3 || o.epochs < 1 || !(o.scale > 0))
      tune_sentences::wrong("--batch takes 2 or more, --length 3 or more, --epochs 1 or more, --scale a number above 0",
                            "see --help");
    return tune_sentences::run(o);
  } catch (const po::error& e) {
    std::fprintf(stderr, "error[TSR-X005] %s\n  hint: see tune_sentences --help\n", e.what());
    return 2;
  } catch (const sentences::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (const tessera::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return dynamic_cast<const tessera::UserError*>(&e) ? 2 : dynamic_cast<const tessera::EnvironmentError*>(&e) ? 3 : 70;
  } catch (const std::filesystem::filesystem_error& e) {
    std::fprintf(stderr, "error[TSR-F053] %s\n", e.what());
    return 3;
  }
}
