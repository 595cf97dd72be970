// SPDX-License-Identifier: Apache-2.0
// A BERT sentence encoder (Reimers and Gurevych 2019) whose tensors have the names of its published files, so that their
// weights are its state.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <tessera/tessera.hpp>

namespace tune_sentences {

using tessera::SymInt;
using tessera::Tensor;
namespace F = tessera::F;
namespace nn = tessera::nn;

struct Config {
  int64_t hidden = 0, inner = 0, layers = 0, heads = 0, vocabulary = 0, positions = 0, types = 2;
  double epsilon = 1e-12;
};
Config read_config(const std::string& folder);  // config.json

struct SelfAttention : nn::Module<SelfAttention> {
  int64_t heads;
  nn::Linear query, key, value, dense;
  nn::LayerNorm norm;
  explicit SelfAttention(const Config& c)
      : heads(c.heads),
        query(c.hidden, c.hidden),
        key(c.hidden, c.hidden),
        value(c.hidden, c.hidden),
        dense(c.hidden, c.hidden),
        norm(c.hidden, c.epsilon) {
    add("self.query", query);
    add("self.key", key);
    add("self.value", value);
    add("output.dense", dense);
    add("output.LayerNorm", norm);
  }
  // mask: bool [batch, 1, 1, length], true where there is a token
  Tensor forward(const Tensor& x, const Tensor& mask) {
    const SymInt batch = x.size(0), length = x.size(1);
    const int64_t width = x.size(2);
    const auto split = [&](const Tensor& t) { return t.view({batch, length, heads, width / heads}).transpose(1, 2); };
    const Tensor y = F::scaled_dot_product_attention(split(query(x)), split(key(x)), split(value(x)), mask);
    return norm(dense(y.transpose(1, 2).reshape({batch, length, width})) + x);
  }
};

struct Layer : nn::Module<Layer> {
  SelfAttention attention;
  nn::Linear up, down;
  nn::LayerNorm norm;
  explicit Layer(const Config& c) : attention(c), up(c.hidden, c.inner), down(c.inner, c.hidden), norm(c.hidden, c.epsilon) {
    add("attention", attention);
    add("intermediate.dense", up);
    add("output.dense", down);
    add("output.LayerNorm", norm);
  }
  Tensor forward(const Tensor& x, const Tensor& mask) {
    const Tensor h = attention(x, mask);
    return norm(down(F::gelu(up(h))) + h);
  }
};

struct Encoder : nn::Module<Encoder> {
  nn::Embedding words, positions, types;
  nn::LayerNorm norm;
  nn::ModuleList<Layer> layers;
  explicit Encoder(const Config& c)
      : words(c.vocabulary, c.hidden), positions(c.positions, c.hidden), types(c.types, c.hidden), norm(c.hidden, c.epsilon) {
    for (int64_t i = 0; i < c.layers; ++i) layers.emplace(c);
    add("embeddings.word_embeddings", words);
    add("embeddings.position_embeddings", positions);
    add("embeddings.token_type_embeddings", types);
    add("embeddings.LayerNorm", norm);
    add("encoder.layer", layers);
  }
  // ids and mask i64 [batch, length] -> embeddings [batch, hidden] of length 1: the mean over the tokens
  Tensor forward(const Tensor& ids, const Tensor& mask) {
    Tensor x = norm(words(ids) + types.weight.select(0, 0) + positions(tessera::arange(ids.size(1))));
    const Tensor seen = (mask != 0).unsqueeze(1).unsqueeze(1);
    for (Layer& layer : layers) x = layer(x, seen);
    const Tensor weight = mask.to(tessera::f32).unsqueeze(2);
    const Tensor mean = (x * weight).sum({1}) / weight.sum({1});
    return mean / mean.norm(2, {1}, true).clamp(1e-12);
  }
};

// The weights of model.safetensors in `folder`. Tensors of the file that the encoder does not have (a pooler) are left out; one
// that it has and the file lacks is the error TSR-F040.
void load(Encoder& encoder, const std::string& folder);

}  // namespace tune_sentences
