// SPDX-License-Identifier: Apache-2.0
// Llama 3 (Grattafiori et al. 2024): RMS norms, rotary positions, grouped queries, SwiGLU. Parameters have the names of the
// published files, and start empty.
#pragma once

#include <utility>
#include <vector>

#include <tessera/tessera.hpp>

namespace llama {

using tessera::Device;
using tessera::DType;
using tessera::SymInt;
using tessera::Tensor;
namespace F = tessera::F;
namespace nn = tessera::nn;

struct Config {  // that of Llama-3.2-1B
  int64_t layers = 16, hidden = 2048, intermediate = 8192, heads = 32, key_heads = 8, vocabulary = 128256;
  double rope_theta = 500000, norm_eps = 1e-5;
  // Frequencies are stretched for contexts longer than the first training's, as the model's `llama3` rule says; factor 1: not.
  double rope_factor = 32, rope_low = 1, rope_high = 4, rope_context = 8192;
  bool tied = true;  // the output layer has the weights of the embedding
  DType dtype = tessera::bf16;
  Device device;
  int64_t head() const { return hidden / heads; }
};

// Keys and values of the tokens so far, of each layer: [batch, key heads, length, head].
struct Cache {
  std::vector<Tensor> keys, values;
};
TESSERA_FIELDS(Cache, keys, values)

// Cosines and sines of the positions of one call, [length, 1, head]: computed once for all layers.
struct Rotary {
  Tensor cosine, sine;
  // x is [batch, length, heads, head]. The pair of element i is element i + head / 2, or i - head / 2.
  Tensor operator()(const Tensor& x) const {
    const SymInt batch = x.size(0), length = x.size(1);
    const int64_t heads = x.size(2), head = x.size(3);
    const Tensor other = x.reshape({batch, length, heads, 2, head / 2}).flip({3}).reshape({batch, length, heads, head});
    return x * cosine + other * sine;  // the sine of the first half is negated
  }
};

struct Linear : nn::Module<Linear> {
  Tensor weight;
  Linear(int64_t in, int64_t out, const Config& c) : weight(tessera::empty({out, in}, c.dtype, c.device)) {
    add("weight", weight);
  }
  Tensor forward(const Tensor& x) { return F::linear(x, weight); }
};

struct Norm : nn::Module<Norm> {
  Tensor weight;
  double eps;
  explicit Norm(const Config& c) : weight(tessera::empty({c.hidden}, c.dtype, c.device)), eps(c.norm_eps) {
    add("weight", weight);
  }
  Tensor forward(const Tensor& x) { return F::rms_norm(x, {x.size(-1)}, weight, eps); }
};

struct Attention : nn::Module<Attention> {
  int64_t heads, key_heads, head;
  Linear query, key, value, output;
  explicit Attention(const Config& c)
      : heads(c.heads),
        key_heads(c.key_heads),
        head(c.head()),
        query(c.hidden, c.heads * c.head(), c),
        key(c.hidden, c.key_heads * c.head(), c),
        value(c.hidden, c.key_heads * c.head(), c),
        output(c.heads * c.head(), c.hidden, c) {
    add("q_proj", query);
    add("k_proj", key);
    add("v_proj", value);
    add("o_proj", output);
  }
  // x is [batch, length, hidden]. Without a past every token sees those before it; with one x is a single token that sees all.
  // The keys and values that were looked at go to `keys` and `values`, where these are given.
  Tensor attend(const Tensor& x, const Rotary& rotary, Tensor* keys, Tensor* values) {
    const SymInt batch = x.size(0), length = x.size(1);
    const Tensor q = rotary(query(x).view({batch, length, heads, head})).transpose(1, 2);
    Tensor k = rotary(key(x).view({batch, length, key_heads, head})).transpose(1, 2);
    Tensor v = value(x).view({batch, length, key_heads, head}).transpose(1, 2);
    const bool past = keys && keys->defined();
    if (past) {
      k = tessera::cat({*keys, k}, 2);
      v = tessera::cat({*values, v}, 2);
    }
    if (keys) {
      *keys = k;
      *values = v;
    }
    const Tensor y = F::scaled_dot_product_attention(q, k, v, {}, /*causal=*/!past);
    return output(y.transpose(1, 2).reshape({batch, length, heads * head}));
  }
};

struct Mlp : nn::Module<Mlp> {
  Linear gate, up, down;
  explicit Mlp(const Config& c)
      : gate(c.hidden, c.intermediate, c), up(c.hidden, c.intermediate, c), down(c.intermediate, c.hidden, c) {
    add("gate_proj", gate);
    add("up_proj", up);
    add("down_proj", down);
  }
  Tensor forward(const Tensor& x) { return down(F::silu(gate(x)) * up(x)); }
};

struct Block : nn::Module<Block> {
  Norm before_attention, before_mlp;
  Attention attention;
  Mlp mlp;
  explicit Block(const Config& c) : before_attention(c), before_mlp(c), attention(c), mlp(c) {
    add("self_attn", attention);
    add("mlp", mlp);
    add("input_layernorm", before_attention);
    add("post_attention_layernorm", before_mlp);
  }
  Tensor forward(const Tensor& x, const Rotary& rotary) { return behind(x, rotary, nullptr, nullptr); }
  Tensor behind(const Tensor& x, const Rotary& rotary, Tensor* keys, Tensor* values) {
    const Tensor h = x + attention.attend(before_attention(x), rotary, keys, values);
    return h + mlp(before_mlp(h));
  }
};

struct Llama : nn::Module<Llama> {
  Config config;
  Tensor tokens, head;  // [vocabulary, hidden]; head is undefined where it is tied
  nn::ModuleList<Block> blocks;
  Norm norm;
  Tensor frequencies;  // f32[head / 2], a buffer: radians per position
  explicit Llama(const Config& c);
  // Random weights, normal with deviation 0.02, norms 1: drawn where the parameters lie, by a compiled program.
  void initialise(uint64_t seed);
  // Floating-point operations of the products of one forward pass over `batch` texts of `length` tokens, attention's included.
  double forward_flops(int64_t batch, int64_t length) const;

  Tensor output_weight() const { return config.tied ? tokens : head; }
  // Hidden states [batch, length, hidden] of tokens i64 [batch, length] behind the last norm.
  Tensor forward(const Tensor& ids) { return run(ids, 0, nullptr); }
  // The mean of -log p(target). `rows` tokens at a time, so that the logits of all of them are never held; 0: all at once.
  Tensor loss(const Tensor& ids, const Tensor& targets, int64_t rows);
  // The logits [1, vocabulary] of what follows the text ids [1, length], and the cache for the tokens after it.
  std::pair<Tensor, Cache> read(const Tensor& ids);
  // The same for one more token [1, 1], behind what the cache holds.
  std::pair<Tensor, Cache> decode(const Tensor& id, const Cache& past);

 private:
  Rotary rotary(const SymInt& first, const SymInt& length) const;
  Tensor run(const Tensor& ids, const SymInt& first, Cache* cache);
};

}  // namespace llama
