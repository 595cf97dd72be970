// SPDX-License-Identifier: Apache-2.0
// A BERT sentence encoder (Reimers and Gurevych 2019: the mean of the last hidden states, of length 1) as an ONNX file whose
// weights stay where they are: the initializers are external data in the .safetensors file beside it.
#pragma once

#include <string>

namespace sentences {

struct Encoder {
  std::string onnx;  // path of the file
  int64_t hidden = 0, layers = 0, heads = 0, vocabulary = 0, positions = 0, parameters = 0;
};

// Reads config.json and model.safetensors in `folder` and writes encoder.onnx there: inputs input_ids and attention_mask, i64
// [batch, length]; output embedding, f32 [batch, hidden]. Throws Error.
Encoder write_encoder(const std::string& folder);

}  // namespace sentences
