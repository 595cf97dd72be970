// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al., 2019) as its published code computes it: pre-norm blocks, learned positions, tanh gelu, output weights
// tied to the token embedding.
#pragma once

#include <tessera/tessera.hpp>

namespace gpt2 {

using tessera::Generator;
using tessera::SymInt;
using tessera::Tensor;
namespace F = tessera::F;
namespace nn = tessera::nn;

struct Config {
  int64_t layers = 12, heads = 12, width = 768, vocabulary = 50257, context = 1024;
};

struct Attention : nn::Module<Attention> {
  int64_t heads;
  nn::Linear qkv, projection;
  explicit Attention(const Config& c) : heads(c.heads), qkv(c.width, 3 * c.width), projection(c.width, c.width) {
    add("c_attn", qkv);
    add("c_proj", projection);
  }
  Tensor forward(const Tensor& x) {  // [batch, length, width]
    const SymInt batch = x.size(0), length = x.size(1);
    const int64_t width = x.size(2);
    auto split = [&](int64_t i) {  // [batch, heads, length, width / heads]
      return joined.narrow(2, i * width, width).view({batch, length, heads, width / heads}).transpose(1, 2);
    };
    joined = qkv(x);
    const Tensor y = F::scaled_dot_product_attention(split(0), split(1), split(2), {}, /*causal=*/true);
    joined = {};
    return projection(y.transpose(1, 2).reshape({batch, length, width}));
  }

 private:
  Tensor joined;
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
  Tensor forward(const Tensor& x) {
    const Tensor h = x + attention(norm1(x));
    return h + down(F::gelu(up(norm2(h)), "tanh"));
  }
};

struct Gpt2 : nn::Module<Gpt2> {
  Config config;
  nn::Embedding tokens, positions;
  nn::ModuleList<Block> blocks;
  nn::LayerNorm norm;
  explicit Gpt2(const Config& c = {}) : config(c), tokens(c.vocabulary, c.width), positions(c.context, c.width), norm(c.width) {
    for (int64_t i = 0; i < c.layers; ++i) blocks.emplace(c);
    add("wte", tokens);
    add("wpe", positions);
    add("h", blocks);
    add("ln_f", norm);
  }
  // As the paper initialises: normal with deviation 0.02, residual projections scaled by 1 / sqrt(2 * layers), biases zero.
  void initialise(uint64_t seed);
  // ids i64[batch, length] -> logits f32[batch, length, vocabulary]
  Tensor forward(const Tensor& ids) {
    Tensor x = tokens(ids) + positions(tessera::arange(ids.size(1)));
    for (Block& block : blocks) x = block(x);
    return F::linear(norm(x), tokens.weight);
  }
};

}  // namespace gpt2
