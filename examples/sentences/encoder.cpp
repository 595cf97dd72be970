// SPDX-License-Identifier: Apache-2.0
#include "encoder.hpp"

#include <cmath>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "error.hpp"
#include "safetensors.hpp"

namespace sentences {
namespace {

constexpr int kFloat = 1, kInt64 = 7;  // TensorProto.DataType
constexpr int kOpset = 20;             // the first with Gelu

// A protobuf message; field numbers are those of onnx.proto.
class Message {
 public:
  Message& integer(int field, int64_t v) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(static_cast<uint64_t>(v));
    return *this;
  }
  Message& real(int field, float v) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
    return *this;
  }
  Message& bytes(int field, const std::string& v) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(v.size());
    bytes_ += v;
    return *this;
  }
  Message& message(int field, const Message& m) { return bytes(field, m.bytes_); }
  [[nodiscard]] const std::string& text() const { return bytes_; }

 private:
  void varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) bytes_ += static_cast<char>(v | 0x80);
    bytes_ += static_cast<char>(v);
  }
  std::string bytes_;
};

Message attribute(const char* name, int64_t v) { return Message().bytes(1, name).integer(3, v).integer(20, 2); }
Message attribute(const char* name, float v) { return Message().bytes(1, name).real(2, v).integer(20, 1); }
Message attribute(const char* name, const std::vector<int64_t>& v) {
  Message m;
  m.bytes(1, name);
  for (const int64_t x : v) m.integer(8, x);
  return m.integer(20, 7);
}

Message value_info(const char* name, int type, const std::vector<std::string>& dims) {
  Message shape;
  for (const std::string& d : dims) {
    const bool number = d[0] >= '0' && d[0] <= '9';
    shape.message(1, number ? Message().integer(1, std::stoll(d)) : Message().bytes(2, d));
  }
  return Message().bytes(1, name).message(2, Message().message(1, Message().integer(1, type).message(2, shape)));
}

class Writer {
 public:
  Writer(const std::string& folder, std::map<std::string, StoredTensor> weights)
      : folder_(folder), weights_(std::move(weights)) {}

  // A weight of this shape, by its name in the file. Counted once.
  std::string weight(const std::string& name, const std::vector<int64_t>& shape) {
    const auto found = weights_.find(name);
    if (found == weights_.end()) throw Error(folder_ + ": no weight '" + name + "'", "expected the weights of a BertModel");
    const StoredTensor& t = found->second;
    if (t.dtype != "F32" || t.shape != shape) {
      std::string text;
      for (const int64_t n : shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
      throw Error(folder_ + ": weight '" + name + "' is not F32 of shape [" + text + "], as config.json says");
    }
    Message m;
    for (const int64_t n : shape) m.integer(1, n);
    m.integer(2, kFloat).bytes(8, name);
    const auto entry = [&](const char* key, const std::string& value) {
      m.message(13, Message().bytes(1, key).bytes(2, value));
    };
    entry("location", "model.safetensors");
    entry("offset", std::to_string(t.offset));
    entry("length", std::to_string(t.bytes));
    m.integer(14, 1);  // EXTERNAL
    initializers_.push_back(m);
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    parameters += n;
    return name;
  }
  std::string integers(const std::string& name, const std::vector<int64_t>& values, bool scalar = false) {
    Message m;
    if (!scalar) m.integer(1, static_cast<int64_t>(values.size()));
    m.integer(2, kInt64).bytes(8, name).bytes(9, {reinterpret_cast<const char*>(values.data()), values.size() * 8});
    initializers_.push_back(m);
    return name;
  }
  std::string number(const std::string& name, float value) {
    initializers_.push_back(Message().integer(2, kFloat).bytes(8, name).bytes(9, {reinterpret_cast<const char*>(&value), 4}));
    return name;
  }
  std::string node(const char* op, const std::vector<std::string>& in, const std::vector<Message>& attributes = {},
                   const std::string& name = {}) {
    const std::string out = name.empty() ? "v" + std::to_string(nodes_.size()) : name;
    Message m;
    for (const std::string& i : in) m.bytes(1, i);
    m.bytes(2, out).bytes(4, op);
    for (const Message& a : attributes) m.message(5, a);
    nodes_.push_back(m);
    return out;
  }
  [[nodiscard]] std::string model(const std::vector<Message>& inputs, const Message& output) const {
    Message graph;
    for (const Message& n : nodes_) graph.message(1, n);
    graph.bytes(2, "sentence_encoder");
    for (const Message& t : initializers_) graph.message(5, t);
    for (const Message& i : inputs) graph.message(11, i);
    graph.message(12, output);
    return Message().integer(1, 9).bytes(2, "sentences").message(7, graph).message(8, Message().integer(2, kOpset)).text();
  }

  int64_t parameters = 0;

 private:
  std::string folder_;
  std::map<std::string, StoredTensor> weights_;
  std::vector<Message> nodes_, initializers_;
};

}  // namespace

Encoder write_encoder(const std::string& folder) {
  Encoder e;
  float epsilon = 0;
  int64_t inner = 0;
  {
    const std::string path = folder + "/config.json";
    std::ifstream in(path);
    if (!in) throw Error("cannot read " + path, "expected a folder with config.json, model.safetensors and vocab.txt");
    try {
      const auto j = nlohmann::json::parse(in);
      e.hidden = j.at("hidden_size").get<int64_t>();
      e.layers = j.at("num_hidden_layers").get<int64_t>();
      e.heads = j.at("num_attention_heads").get<int64_t>();
      e.vocabulary = j.at("vocab_size").get<int64_t>();
      e.positions = j.at("max_position_embeddings").get<int64_t>();
      inner = j.at("intermediate_size").get<int64_t>();
      epsilon = j.at("layer_norm_eps").get<float>();
      if (j.at("model_type") != "bert" || j.value("hidden_act", "gelu") != "gelu")
        throw Error(path + ": not a BERT model with gelu", "this example writes BERT encoders only");
    } catch (const nlohmann::json::exception& x) {
      throw Error(path + ": " + x.what());
    }
    if (e.hidden < 1 || e.layers < 1 || e.layers > 1000 || e.heads < 1 || e.hidden % e.heads != 0)
      throw Error(path + ": " + std::to_string(e.layers) + " layers of " + std::to_string(e.hidden) + " in " +
                  std::to_string(e.heads) + " heads cannot be");
  }
  const int64_t h = e.hidden;
  Writer w(folder, read_safetensors(folder + "/model.safetensors"));

  const auto axis = [](int64_t a) { return std::vector{attribute("axis", a)}; };
  const auto norm = [&](const std::string& x, const std::string& name) {
    return w.node("LayerNormalization", {x, w.weight(name + ".weight", {h}), w.weight(name + ".bias", {h})},
                  {attribute("axis", int64_t{-1}), attribute("epsilon", epsilon)});
  };
  const auto linear = [&](const std::string& x, const std::string& name, int64_t from, int64_t to) {
    return w.node("Gemm", {x, w.weight(name + ".weight", {to, from}), w.weight(name + ".bias", {to})},
                  {attribute("transB", int64_t{1})});
  };

  // Sizes, and shapes made of them.
  const std::string size = w.node("Shape", {"input_ids"});
  const std::string length = w.node("Gather", {size, w.integers("one", {1})}, axis(0));
  const std::string rows = w.integers("rows", {-1, h});
  const std::string heads = w.node("Concat", {size, w.integers("heads", {e.heads, h / e.heads})}, axis(0));
  const std::string hidden = w.node("Concat", {size, w.integers("hidden", {h})}, axis(0));

  // Embeddings. Token type 0 throughout: one sentence at a time.
  const std::string word =
      w.node("Gather", {w.weight("embeddings.word_embeddings.weight", {e.vocabulary, h}), "input_ids"}, axis(0));
  const std::string position = w.node(
      "Slice", {w.weight("embeddings.position_embeddings.weight", {e.positions, h}), w.integers("zero", {0}), length, "zero"});
  const std::string type =
      w.node("Gather", {w.weight("embeddings.token_type_embeddings.weight", {2, h}), w.integers("first", {0}, true)}, axis(0));
  std::string x = norm(w.node("Add", {w.node("Add", {word, type}), position}), "embeddings.LayerNorm");
  x = w.node("Reshape", {x, rows});

  // 0 where a token may be seen, the lowest float where it is padding.
  const std::string mask = w.node("Cast", {"attention_mask"}, {attribute("to", int64_t{kFloat})});
  const std::string hide =
      w.node("Mul", {w.node("Sub", {w.number("unit", 1), mask}), w.number("lowest", -3.4028234663852886e38f)});
  const std::string bias = w.node("Unsqueeze", {hide, w.integers("middle", {1, 2})});

  const std::string root = w.number("root", std::sqrt(static_cast<float>(h / e.heads)));
  for (int64_t i = 0; i < e.layers; ++i) {
    const std::string layer = "encoder.layer." + std::to_string(i);
    const auto split = [&](const char* name, const std::vector<int64_t>& order) {
      const std::string y = linear(x, layer + ".attention.self." + name, h, h);
      return w.node("Transpose", {w.node("Reshape", {y, heads})}, {attribute("perm", order)});
    };
    const std::string q = split("query", {0, 2, 1, 3}), k = split("key", {0, 2, 3, 1}), v = split("value", {0, 2, 1, 3});
    const std::string scores = w.node("Add", {w.node("Div", {w.node("MatMul", {q, k}), root}), bias});
    const std::string seen = w.node("MatMul", {w.node("Softmax", {scores}, axis(-1)), v});
    const std::string joined =
        w.node("Reshape", {w.node("Transpose", {seen}, {attribute("perm", std::vector<int64_t>{0, 2, 1, 3})}), rows});
    x = norm(w.node("Add", {linear(joined, layer + ".attention.output.dense", h, h), x}),
             layer + ".attention.output.LayerNorm");
    const std::string grown = w.node("Gelu", {linear(x, layer + ".intermediate.dense", h, inner)});
    x = norm(w.node("Add", {linear(grown, layer + ".output.dense", inner, h), x}), layer + ".output.LayerNorm");
  }

  // The mean over what is no padding, then of length 1.
  const std::string weight = w.node("Unsqueeze", {mask, w.integers("last", {-1})});
  const std::string sum = w.node("ReduceSum", {w.node("Mul", {w.node("Reshape", {x, hidden}), weight}), "one"},
                                 {attribute("keepdims", int64_t{0})});
  const std::string mean = w.node("Div", {sum, w.node("ReduceSum", {weight, "one"}, {attribute("keepdims", int64_t{0})})});
  const std::string norm2 = w.node("ReduceL2", {mean, "one"}, {attribute("keepdims", int64_t{1})});
  w.node("Div", {mean, w.node("Max", {norm2, w.number("tiny", 1e-12f)})}, {}, "embedding");

  e.parameters = w.parameters;
  e.onnx = folder + "/encoder.onnx";
  std::ofstream out(e.onnx, std::ios::binary);
  out << w.model(
      {value_info("input_ids", kInt64, {"batch", "length"}), value_info("attention_mask", kInt64, {"batch", "length"})},
      value_info("embedding", kFloat, {"batch", std::to_string(h)}));
  if (!out.flush()) throw Error("cannot write " + e.onnx, "the model is written beside the weights that it names");
  return e;
}

}  // namespace sentences
