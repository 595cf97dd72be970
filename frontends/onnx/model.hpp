// SPDX-License-Identifier: Apache-2.0
// ModelProto and what it holds, as plain structs whose strings and tensor data are views of the file's bytes (onnx.proto of
// onnx 1.23, IR version 14: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). Reading costs time and memory by the
// number of nodes and names, never by the size of the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::onnx {

// TensorProto.DataType
enum class DataType : int32_t {
  Undefined = 0,
  Float = 1,
  Uint8 = 2,
  Int8 = 3,
  Uint16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  Uint32 = 12,
  Uint64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  Bfloat16 = 16,
  Float8e4m3fn = 17,
  Float8e4m3fnuz = 18,
  Float8e5m2 = 19,
  Float8e5m2fnuz = 20,
  Uint4 = 21,
  Int4 = 22,
  Float4e2m1 = 23,
  Float8e8m0 = 24,
  Uint2 = 25,
  Int2 = 26,
  Float6e2m3 = 27,
  Float6e3m2 = 28
};

struct TensorProto {
  std::string_view message;  // the whole, for typed data, which is decoded when it is asked for
  std::string_view name;
  std::vector<int64_t> dims;
  DataType type = DataType::Undefined;
  std::string_view raw;
  bool has_raw = false, external = false;
  std::vector<std::pair<std::string_view, std::string_view>> external_data;
};

struct SparseTensorProto {
  TensorProto values, indices;
  std::vector<int64_t> dims;
};

struct GraphProto;

struct TypeProto {
  enum Kind { None, Tensor, Sequence, Map, Optional, SparseTensor, Opaque } kind = None;
  DataType element = DataType::Undefined;  // of Tensor and SparseTensor
  bool has_shape = false;
  struct Dim {
    std::optional<int64_t> value;
    std::string_view param;
  };
  std::vector<Dim> dims;
};
const char* kind_name(TypeProto::Kind kind);

struct ValueInfoProto {
  std::string_view name;
  TypeProto type;
};

struct AttributeProto {
  enum Type {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    SparseTensor = 11,
    SparseTensors = 12,
    Type_ = 13,
    Types = 14
  };
  std::string_view name, reference;  // reference: the attribute of the function that is called
  int type = Undefined;              // files before IR version 2 do not say: then by what is there
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::unique_ptr<TensorProto> t;
  std::unique_ptr<GraphProto> g;
  std::unique_ptr<SparseTensorProto> sparse;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
  size_t tensors = 0, graphs = 0;  // how many; no operator that is translated has them
};

struct NodeProto {
  std::vector<std::string_view> inputs, outputs;  // "": omitted
  std::string_view name, op_type, domain, overload;
  std::vector<AttributeProto> attributes;
};

struct GraphProto {
  std::string_view name;
  std::vector<NodeProto> nodes;
  std::vector<TensorProto> initializers;
  std::vector<SparseTensorProto> sparse_initializers;
  std::vector<ValueInfoProto> inputs, outputs, value_infos;
};

using OpsetImports = std::vector<std::pair<std::string_view, int64_t>>;  // domain, version

struct FunctionProto {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<AttributeProto> defaults;
  std::vector<NodeProto> nodes;
  OpsetImports opsets;
};

struct ModelProto {
  int64_t ir_version = 0;
  std::string_view producer;
  OpsetImports opsets;
  bool has_graph = false;
  GraphProto graph;
  std::vector<FunctionProto> functions;
};

// All throw Malformed. Views refer to `bytes`.
ModelProto read_model(std::string_view bytes);
TensorProto read_tensor(std::string_view bytes);  // a TensorProto on its own: the .pb files of test data

}  // namespace tessera::onnx
