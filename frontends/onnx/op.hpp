// SPDX-License-Identifier: Apache-2.0
// One ONNX operator being translated, and the table of translations. A translation reads its inputs and attributes here, builds
// with `b` and sets its outputs. Versions: `version` is that of the operator set that the model (or function) imports.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "build.hpp"
#include "errors.hpp"
#include "model.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::onnx {

class Importer;

class Op {
 public:
  Op(Importer& importer, Build& build, const NodeProto& node, int64_t version, std::vector<V> inputs,
     std::vector<const AttributeProto*> attributes, std::string place)
      : b(build),
        node(node),
        version(version),
        importer(importer),
        inputs_(std::move(inputs)),
        outputs_(node.outputs.size()),
        attributes_(std::move(attributes)),
        place_(std::move(place)) {}

  Build& b;
  const NodeProto& node;
  const int64_t version;
  Importer& importer;

  // ---- inputs and outputs
  [[nodiscard]] size_t num_inputs() const { return inputs_.size(); }
  [[nodiscard]] bool has(size_t i) const { return i < inputs_.size() && inputs_[i]; }
  [[nodiscard]] V in(size_t i = 0) const;  // throws kNode when it is omitted
  [[nodiscard]] V opt(size_t i) const { return has(i) ? inputs_[i] : V(); }
  [[nodiscard]] std::span<const V> inputs() const { return inputs_; }
  [[nodiscard]] size_t num_outputs() const { return outputs_.size(); }
  [[nodiscard]] bool wants(size_t i) const { return i < node.outputs.size() && !node.outputs[i].empty(); }
  void out(const V& v, size_t i = 0) {
    if (i < outputs_.size()) outputs_[i] = v;
  }
  [[nodiscard]] const std::vector<V>& outputs() const { return outputs_; }
  // What the model says of an output's shape: -1 where a size is not said; nothing when the rank is not.
  [[nodiscard]] std::optional<Dims> declared(size_t i = 0) const;
  [[nodiscard]] tsr_dim declared_size(int64_t axis, size_t i = 0) const;  // -1: not said
  [[nodiscard]] tsr_dtype declared_dtype(size_t i = 0) const;             // TSR_DTYPE_INVALID: not said

  // ---- attributes; throw kNode when the type is another
  [[nodiscard]] const AttributeProto* find(std::string_view name) const;
  [[nodiscard]] bool has_attr(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] int64_t i(std::string_view name, std::optional<int64_t> fallback = {}) const;
  [[nodiscard]] bool flag(std::string_view name, bool fallback = false) const { return i(name, fallback ? 1 : 0) != 0; }
  [[nodiscard]] double f(std::string_view name, std::optional<double> fallback = {}) const;
  [[nodiscard]] std::string_view s(std::string_view name, std::optional<std::string_view> fallback = {}) const;
  [[nodiscard]] Ints ints(std::string_view name, std::optional<Ints> fallback = {}) const;
  // Of magnitudes below 2^31, so that what is computed with them stays in 64 bits; throw kNode otherwise.
  [[nodiscard]] int64_t small(std::string_view name, std::optional<int64_t> fallback = {}) const;
  [[nodiscard]] Ints small_ints(std::string_view name, std::optional<Ints> fallback = {}) const;
  [[nodiscard]] std::vector<double> reals(std::string_view name, std::optional<std::vector<double>> fallback = {}) const;
  [[nodiscard]] std::vector<std::string_view> strings(std::string_view name) const;
  [[nodiscard]] V tensor(std::string_view name) const;  // an initializer of its own
  [[nodiscard]] const GraphProto& graph(std::string_view name) const;

  // ---- values that shapes depend on
  [[nodiscard]] Dims sizes(size_t i) const;    // elements of input i, sizes that may be symbolic; throws kData
  [[nodiscard]] Ints numbers(size_t i) const;  // likewise, numbers
  [[nodiscard]] tsr_dim size(size_t i) const;  // of one element
  [[nodiscard]] int64_t number(size_t i) const;
  [[nodiscard]] std::vector<double> reals(size_t i) const;
  // Asks for what the value of input i is computed from, inputs of the graph or their sizes: should the import fail now, one
  // that is made for a call is done again with that known. Gives it in words; empty: it is computed from data that no caller
  // can name.
  std::string ask_for(size_t i) const;
  [[noreturn]] void need(size_t i) const;  // kData: the value of input i, which has been asked for
  void need_number(tsr_dim size) const;    // likewise for a size, where what follows fails unless it is a number

  // ---- helpers that many translations share
  [[nodiscard]] int64_t axis(int64_t axis, int64_t rank) const;  // normal form; throws kNode out of range
  [[nodiscard]] Ints axes(Ints axes, int64_t rank) const;
  [[nodiscard]] int64_t axis_attr(std::string_view name, int64_t fallback, int64_t rank) const {
    return axis(i(name, fallback), rank);
  }

  [[nodiscard]] const std::string& place() const { return place_; }  // "model.onnx: node 3 'conv' (Conv, opset 11)"
  [[noreturn]] void fail(const char* code, const std::string& message, const std::string& hint = {}) const;
  [[noreturn]] void unsupported(const std::string& why, const std::string& hint = {}) const { fail(kUnsupported, why, hint); }
  void expect(bool holds, const std::string& message) const {
    if (!holds) fail(kNode, message);
  }

 private:
  const AttributeProto* typed(std::string_view name, int type, const char* what) const;
  std::vector<V> inputs_;
  std::vector<V> outputs_;
  std::vector<const AttributeProto*> attributes_;
  std::string place_;
};

struct Record {
  const char* domain;  // "": ai.onnx
  const char* name;
  void (*translate)(Op&);
};

// One function per family of operators, in ops/NAME.cpp.
using Family = std::span<const Record> (*)();
std::span<const Record> activation_records();
std::span<const Record> attention_records();
std::span<const Record> control_records();
std::span<const Record> conv_records();
std::span<const Record> elementwise_records();
std::span<const Record> index_records();
std::span<const Record> linalg_records();
std::span<const Record> loss_records();
std::span<const Record> microsoft_records();
std::span<const Record> microsoft_attention_records();
std::span<const Record> microsoft_quantized_records();
std::span<const Record> ml_records();
std::span<const Record> norm_records();
std::span<const Record> pool_records();
std::span<const Record> quantize_records();
std::span<const Record> random_records();
std::span<const Record> recurrent_records();
std::span<const Record> reduce_records();
std::span<const Record> resize_records();
std::span<const Record> sequence_records();
std::span<const Record> shape_records();
std::span<const Record> signal_records();
std::span<const Record> text_records();
std::span<const Record> training_records();
std::span<const Record> vision_records();
std::span<const Family> families();  // all of them

// The newest version of ai.onnx that the translations were written against.
inline constexpr int64_t kNewestOpset = 28;

// The translation of an operator; null: there is none.
const Record* find_record(std::string_view domain, std::string_view name);
std::string nearest_operator(std::string_view domain, std::string_view name);  // for "did you mean"; may be empty

// Shape arithmetic on known sizes: sets the outputs and returns true when the operator is one of those and knows enough.
bool translate_known(Op& op);

}  // namespace tessera::onnx
