// SPDX-License-Identifier: Apache-2.0
// A GPT over the bytes of a text: pre-norm blocks, learned positions, tanh gelu, output weights tied to the embedding.
#pragma once

#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

namespace train_gpt {

using tessera::SymInt;
using tessera::Tensor;
namespace F = tessera::F;
namespace nn = tessera::nn;

struct Config {
  int64_t layers = 4, heads = 4, width = 128, vocabulary = 256, context = 128;
};

// Keys and values of the tokens so far, of each layer: [batch, heads, length, width / heads].
struct Cache {
  std::vector<Tensor> keys, values;
};
TESSERA_FIELDS(Cache, keys, values)

struct Attention : nn::Module<Attention> {
  int64_t heads;
  nn::Linear qkv, projection;
  explicit Attention(const Config& c) : heads(c.heads), qkv(c.width, 3 * c.width), projection(c.width, c.width) {
    add("c_attn", qkv);
    add("c_proj", projection);
  }
  // x is [batch, length, width]. Without a past every token sees those before it; with one x is a single token, which sees all.
  // The keys and values that were looked at go to `key` and `value`, where these are given.
  Tensor attend(const Tensor& x, Tensor* key, Tensor* value) {
    const SymInt batch = x.size(0), length = x.size(1);
    const int64_t width = x.size(2);
    const Tensor joined = qkv(x);
    const auto part = [&](int64_t i) {
      return joined.narrow(2, i * width, width).view({batch, length, heads, width / heads}).transpose(1, 2);
    };
    const Tensor q = part(0);
    Tensor k = part(1), v = part(2);
    const bool past = key && key->defined();
    if (past) {
      k = tessera::cat({*key, k}, 2);
      v = tessera::cat({*value, v}, 2);
    }
    if (key) {
      *key = k;
      *value = v;
    }
    const Tensor y = F::scaled_dot_product_attention(q, k, v, {}, /*causal=*/!past);
    return projection(y.transpose(1, 2).reshape({batch, length, width}));
  }
  Tensor forward(const Tensor& x) { return attend(x, nullptr, nullptr); }
};

struct Block : nn::Module<Block> {
  nn::LayerNorm norm1, norm2;
  Attention attention;
  nn::Linear up, down;
  explicit Block(const Config& c)
      : norm1(c.width), norm2(c.width), attention(c), up(c.width, 4 * c.width), down(4 * c.width, c.width) {
    add("ln_1", norm1);
    add("attn", attention);
    add("ln_2", norm2);
    add("mlp.c_fc", up);
    add("mlp.c_proj", down);
  }
  Tensor forward(const Tensor& x) { return behind(x, nullptr, nullptr); }
  Tensor behind(const Tensor& x, Tensor* key, Tensor* value) {
    const Tensor h = x + attention.attend(norm1(x), key, value);
    return h + down(F::gelu(up(norm2(h)), "tanh"));
  }
};

struct Gpt : nn::Module<Gpt> {
  Config config;
  nn::Embedding tokens, positions;
  nn::ModuleList<Block> blocks;
  nn::LayerNorm norm;
  explicit Gpt(const Config& c) : config(c), tokens(c.vocabulary, c.width), positions(c.context, c.width), norm(c.width) {
    for (int64_t i = 0; i < c.layers; ++i) blocks.emplace(c);
    add("wte", tokens);
    add("wpe", positions);
    add("h", blocks);
    add("ln_f", norm);
  }
  // As Radford et al. 2019 initialise: normal with deviation 0.02, residual projections scaled down by the depth, biases zero.
  void initialise(uint64_t seed);

  // ids i64 [batch, length] -> hidden states [batch, length, width]
  Tensor forward(const Tensor& ids) {
    Tensor x = tokens(ids) + positions(tessera::arange(ids.size(1)));
    for (Block& block : blocks) x = block(x);
    return norm(x);
  }
  // The mean of -log p(target) over all places.
  Tensor loss(const Tensor& ids, const Tensor& targets) {
    const Tensor hidden = (*this)(ids).reshape({-1, config.width});
    return F::cross_entropy(F::linear(hidden, tokens.weight), targets.reshape({-1}));
  }
  // The logits of what follows the text ids [1, length], and the cache for the tokens after it.
  std::pair<Tensor, Cache> read(const Tensor& ids) {
    Cache cache;
    cache.keys.resize(blocks.size());
    cache.values.resize(blocks.size());
    Tensor x = tokens(ids) + positions(tessera::arange(ids.size(1)));
    for (size_t i = 0; i < blocks.size(); ++i) x = blocks[i].behind(x, &cache.keys[i], &cache.values[i]);
    x = norm(x.narrow(1, ids.size(1) - 1, 1)).reshape({1, config.width});
    return {F::linear(x, tokens.weight), cache};
  }
  // The same for one more token [1, 1], behind what the cache holds.
  std::pair<Tensor, Cache> decode(const Tensor& id, const Cache& past) {
    Cache cache = past;
    const SymInt at = past.keys[0].size(2);
    Tensor x = tokens(id) + positions(tessera::arange(at, at + 1, 1));
    for (size_t i = 0; i < blocks.size(); ++i) x = blocks[i].behind(x, &cache.keys[i], &cache.values[i]);
    return {F::linear(norm(x).reshape({1, config.width}), tokens.weight), cache};
  }
};

}  // namespace train_gpt
