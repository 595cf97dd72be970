// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <cmath>
#include <numbers>

namespace llama {

namespace {

// Su et al. 2021. Llama 3.1 divides low frequencies by a factor, keeps high ones, and goes from one to the other smoothly.
std::vector<float> rotary_frequencies(const Config& c) {
  std::vector<float> out;
  for (int64_t i = 0; i < c.head() / 2; ++i) {
    double f = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head()));
    if (c.rope_factor != 1) {
      const double turns = c.rope_context * f / (2 * std::numbers::pi);  // within the first training's context
      if (turns < c.rope_low) {
        f /= c.rope_factor;
      } else if (turns < c.rope_high) {
        const double share = (turns - c.rope_low) / (c.rope_high - c.rope_low);
        f = (1 - share) * f / c.rope_factor + share * f;
      }
    }
    out.push_back(static_cast<float>(f));
  }
  return out;
}

}  // namespace

Llama::Llama(const Config& c)
    : config(c),
      tokens(tessera::empty({c.vocabulary, c.hidden}, c.dtype, c.device)),
      norm(c),
      frequencies(tessera::tensor(rotary_frequencies(c)).to(c.device)) {
  for (int64_t i = 0; i < c.layers; ++i) blocks.emplace(c);
  add("model.embed_tokens.weight", tokens);
  add("model.layers", blocks);
  add("model.norm", norm);
  if (!c.tied) {
    head = tessera::empty({c.vocabulary, c.hidden}, c.dtype, c.device);
    add("lm_head.weight", head);
  }
  add_buffer("frequencies", frequencies);
}

void Llama::initialise(uint64_t seed) {
  tessera::Generator generator(seed, config.device);
  auto draw = tessera::compile(
      [](Llama& m, tessera::Generator& g) {
        for (auto& [name, t] : m.named_parameters()) {
          if (t->dim() == 1)
            *t = tessera::ones_like(*t);
          else
            *t = (tessera::randn(t->shape(), tessera::f32, &g) * 0.02).to(t->dtype());
        }
      },
      {.dynamic = tessera::Dynamic::no, .name = "initialise", .args = {"model", "generator"}});
  draw(*this, generator);
}

double Llama::forward_flops(int64_t batch, int64_t length) const {
  const Config& c = config;
  const auto d = [](int64_t x) { return static_cast<double>(x); };
  const double kv = d(c.key_heads * c.head()), h = d(c.hidden), rows = d(batch * length);
  const double layer = 2 * rows * (2 * h * h + 2 * h * kv + 3 * h * d(c.intermediate));
  const double attention = 2 * d(batch) * d(length) * d(length) * h;  // two products over half of the scores each
  return d(c.layers) * (layer + attention) + 2 * rows * h * d(c.vocabulary);
}

Rotary Llama::rotary(const SymInt& first, const SymInt& length) const {
  const Tensor position = tessera::arange(first, first + length, 1).to(tessera::f32);
  const Tensor angle = position.unsqueeze(1) * frequencies.unsqueeze(0);  // [length, head / 2]
  const Tensor sine = angle.sin(), cosine = angle.cos();
  return {tessera::cat({cosine, cosine}, 1).unsqueeze(1).to(config.dtype),
          tessera::cat({-sine, sine}, 1).unsqueeze(1).to(config.dtype)};
}

Tensor Llama::run(const Tensor& ids, const SymInt& first, Cache* cache) {
  const Rotary positions = rotary(first, ids.size(1));
  Tensor x = F::embedding(ids, tokens);
  for (size_t i = 0; i < blocks.size(); ++i)
    x = blocks[i].behind(x, positions, cache ? &cache->keys[i] : nullptr, cache ? &cache->values[i] : nullptr);
  return norm(x);
}

Tensor Llama::loss(const Tensor& ids, const Tensor& targets, int64_t rows) {
  const Tensor x = forward(ids).reshape({-1, config.hidden}), expected = targets.reshape({-1});
  if (rows > 0) return F::linear_cross_entropy(x, output_weight(), expected, {.rows = rows});
  return F::cross_entropy(F::linear(x, output_weight()), expected);
}

std::pair<Tensor, Cache> Llama::read(const Tensor& ids) {
  Cache cache;
  cache.keys.resize(blocks.size());
  cache.values.resize(blocks.size());
  const Tensor x = run(ids, 0, &cache);
  return {F::linear(x.narrow(1, ids.size(1) - 1, 1).reshape({1, config.hidden}), output_weight()), cache};
}

std::pair<Tensor, Cache> Llama::decode(const Tensor& id, const Cache& past) {
  Cache cache = past;
  const Tensor x = run(id, past.keys[0].size(2), &cache);
  return {F::linear(x.reshape({1, config.hidden}), output_weight()), cache};
}

}  // namespace llama
