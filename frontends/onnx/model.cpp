// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include "wire.hpp"

namespace tessera::onnx {
namespace {

constexpr int kDeepestGraph = 64;  // nested graphs and types

void read(TensorProto& t, std::string_view bytes) {
  t.message = bytes;
  for (Fields f(bytes); f.next();) switch (f.number()) {
      case 1: each_varint(f, [&](uint64_t v) { t.dims.push_back(static_cast<int64_t>(v)); }); break;
      case 2: t.type = static_cast<DataType>(static_cast<int32_t>(f.integer())); break;
      case 8: t.name = f.bytes(); break;
      case 9:
        t.raw = f.bytes();
        t.has_raw = true;
        break;
      case 13: {
        std::pair<std::string_view, std::string_view> entry;
        for (Fields e(f.bytes()); e.next();)
          if (e.number() == 1)
            entry.first = e.bytes();
          else if (e.number() == 2)
            entry.second = e.bytes();
        t.external_data.push_back(entry);
        break;
      }
      case 14: t.external = f.integer() == 1; break;
      default: break;
    }
}

void read(SparseTensorProto& t, std::string_view bytes) {
  for (Fields f(bytes); f.next();) switch (f.number()) {
      case 1: read(t.values, f.bytes()); break;
      case 2: read(t.indices, f.bytes()); break;
      case 3: each_varint(f, [&](uint64_t v) { t.dims.push_back(static_cast<int64_t>(v)); }); break;
      default: break;
    }
}

void read_shape(TypeProto& t, std::string_view bytes) {
  t.has_shape = true;
  for (Fields f(bytes); f.next();) {
    if (f.number() != 1) continue;
    TypeProto::Dim dim;
    for (Fields d(f.bytes()); d.next();) {
      if (d.number() == 1) dim.value = d.integer();
      if (d.number() == 2) dim.param = d.bytes();
    }
    t.dims.push_back(dim);
  }
}

void read(TypeProto& t, std::string_view bytes) {
  for (Fields f(bytes); f.next();) switch (f.number()) {
      case 1:
      case 8:
        t.kind = f.number() == 1 ? TypeProto::Tensor : TypeProto::SparseTensor;
        for (Fields e(f.bytes()); e.next();) {
          if (e.number() == 1) t.element = static_cast<DataType>(static_cast<int32_t>(e.integer()));
          if (e.number() == 2) read_shape(t, e.bytes());
        }
        break;
      case 4: t.kind = TypeProto::Sequence; break;
      case 5: t.kind = TypeProto::Map; break;
      case 7: t.kind = TypeProto::Opaque; break;
      case 9: t.kind = TypeProto::Optional; break;
      default: break;
    }
}

ValueInfoProto read_value_info(std::string_view bytes) {
  ValueInfoProto v;
  for (Fields f(bytes); f.next();) {
    if (f.number() == 1) v.name = f.bytes();
    if (f.number() == 2) read(v.type, f.bytes());
  }
  return v;
}

void read(GraphProto& g, std::string_view bytes, int depth);

// What a file that does not name the type must mean.
int implied_type(const AttributeProto& a, uint32_t last_field) {
  switch (last_field) {
    case 2: return AttributeProto::Float;
    case 3: return AttributeProto::Int;
    case 4: return AttributeProto::String;
    case 5: return AttributeProto::Tensor;
    case 6: return AttributeProto::Graph;
    case 7: return AttributeProto::Floats;
    case 8: return AttributeProto::Ints;
    case 9: return AttributeProto::Strings;
    default: return a.type;
  }
}

AttributeProto read_attribute(std::string_view bytes, int depth) {
  AttributeProto a;
  uint32_t last = 0;
  for (Fields f(bytes); f.next();) {
    if (f.number() >= 2 && f.number() <= 9) last = f.number();
    switch (f.number()) {
      case 1: a.name = f.bytes(); break;
      case 2: a.f = f.single(); break;
      case 3: a.i = f.integer(); break;
      case 4: a.s = f.bytes(); break;
      case 5:
        if (!a.t) a.t = std::make_unique<TensorProto>();
        read(*a.t, f.bytes());
        break;
      case 6:
        if (!a.g) a.g = std::make_unique<GraphProto>();
        read(*a.g, f.bytes(), depth + 1);
        break;
      case 7: each_fixed<float>(f, [&](float v) { a.floats.push_back(v); }); break;
      case 8: each_varint(f, [&](uint64_t v) { a.ints.push_back(static_cast<int64_t>(v)); }); break;
      case 9: a.strings.push_back(f.bytes()); break;
      case 10: ++a.tensors; break;
      case 11: ++a.graphs; break;
      case 20: a.type = static_cast<int>(f.integer()); break;
      case 21: a.reference = f.bytes(); break;
      case 22:
        if (!a.sparse) a.sparse = std::make_unique<SparseTensorProto>();
        read(*a.sparse, f.bytes());
        break;
      default: break;
    }
  }
  if (a.type == AttributeProto::Undefined) a.type = implied_type(a, last);
  return a;
}

NodeProto read_node(std::string_view bytes, int depth) {
  NodeProto n;
  for (Fields f(bytes); f.next();) switch (f.number()) {
      case 1: n.inputs.push_back(f.bytes()); break;
      case 2: n.outputs.push_back(f.bytes()); break;
      case 3: n.name = f.bytes(); break;
      case 4: n.op_type = f.bytes(); break;
      case 5: n.attributes.push_back(read_attribute(f.bytes(), depth)); break;
      case 7: n.domain = f.bytes(); break;
      case 8: n.overload = f.bytes(); break;
      default: break;
    }
  return n;
}

void read(GraphProto& g, std::string_view bytes, int depth) {
  if (depth > kDeepestGraph) throw Malformed{bytes.data(), "graphs nested more than 64 deep"};
  for (Fields f(bytes); f.next();) switch (f.number()) {
      case 1: g.nodes.push_back(read_node(f.bytes(), depth)); break;
      case 2: g.name = f.bytes(); break;
      case 5: read(g.initializers.emplace_back(), f.bytes()); break;
      case 11: g.inputs.push_back(read_value_info(f.bytes())); break;
      case 12: g.outputs.push_back(read_value_info(f.bytes())); break;
      case 13: g.value_infos.push_back(read_value_info(f.bytes())); break;
      case 15: read(g.sparse_initializers.emplace_back(), f.bytes()); break;
      default: break;
    }
}

void read_opset(OpsetImports& opsets, std::string_view bytes) {
  std::pair<std::string_view, int64_t> import{"", 0};
  for (Fields f(bytes); f.next();) {
    if (f.number() == 1) import.first = f.bytes();
    if (f.number() == 2) import.second = f.integer();
  }
  opsets.push_back(import);
}

FunctionProto read_function(std::string_view bytes) {
  FunctionProto fn;
  for (Fields f(bytes); f.next();) switch (f.number()) {
      case 1: fn.name = f.bytes(); break;
      case 4: fn.inputs.push_back(f.bytes()); break;
      case 5: fn.outputs.push_back(f.bytes()); break;
      case 7: fn.nodes.push_back(read_node(f.bytes(), 0)); break;
      case 9: read_opset(fn.opsets, f.bytes()); break;
      case 10: fn.domain = f.bytes(); break;
      case 11: fn.defaults.push_back(read_attribute(f.bytes(), 0)); break;
      case 13: fn.overload = f.bytes(); break;
      default: break;
    }
  return fn;
}

}  // namespace

const char* kind_name(TypeProto::Kind kind) {
  switch (kind) {
    case TypeProto::None: return "no type";
    case TypeProto::Tensor: return "a tensor";
    case TypeProto::Sequence: return "a sequence";
    case TypeProto::Map: return "a map";
    case TypeProto::Optional: return "an optional";
    case TypeProto::SparseTensor: return "a sparse tensor";
    case TypeProto::Opaque: return "an opaque type";
  }
  return "?";
}

ModelProto read_model(std::string_view bytes) {
  ModelProto m;
  for (Fields f(bytes); f.next();) switch (f.number()) {
      case 1: m.ir_version = f.integer(); break;
      case 2: m.producer = f.bytes(); break;
      case 7:  // a message field that stands twice is merged
        read(m.graph, f.bytes(), 0);
        m.has_graph = true;
        break;
      case 8: read_opset(m.opsets, f.bytes()); break;
      case 25: m.functions.push_back(read_function(f.bytes())); break;
      default: break;
    }
  return m;
}

TensorProto read_tensor(std::string_view bytes) {
  TensorProto t;
  read(t, bytes);
  return t;
}

}  // namespace tessera::onnx
