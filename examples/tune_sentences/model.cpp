// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

namespace tune_sentences {

Config read_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::ifstream in(path);
  if (!in)
    throw tessera::UserError("TSR-X001", "cannot read '" + path + "'",
                             "expected a folder with config.json, model.safetensors and vocab.txt");
  try {
    const auto j = nlohmann::json::parse(in);
    Config c;
    c.hidden = j.at("hidden_size").get<int64_t>();
    c.inner = j.at("intermediate_size").get<int64_t>();
    c.layers = j.at("num_hidden_layers").get<int64_t>();
    c.heads = j.at("num_attention_heads").get<int64_t>();
    c.vocabulary = j.at("vocab_size").get<int64_t>();
    c.positions = j.at("max_position_embeddings").get<int64_t>();
    c.types = j.value("type_vocab_size", int64_t{2});
    c.epsilon = j.at("layer_norm_eps").get<double>();
    if (j.at("model_type") != "bert" || j.value("hidden_act", "gelu") != "gelu" || c.heads < 1 || c.hidden < 1 ||
        c.hidden % c.heads != 0 || c.layers < 1 || c.layers > 1000 || c.types < 1)
      throw tessera::UserError("TSR-X002", path + " is not of a BERT encoder with gelu",
                               "this example tunes BERT encoders only");
    return c;
  } catch (const nlohmann::json::exception& e) {
    throw tessera::UserError("TSR-X002", path + ": " + e.what(), "expected the config.json of a BERT encoder");
  }
}

void load(Encoder& encoder, const std::string& folder) {
  auto state = tessera::load_safetensors(folder + "/model.safetensors").tensors;
  const auto known = encoder.state_dict();
  std::erase_if(state, [&](const auto& entry) { return known.count(entry.first) == 0; });
  encoder.load_state_dict(state);
}

}  // namespace tune_sentences
