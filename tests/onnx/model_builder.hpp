// SPDX-License-Identifier: Apache-2.0
// Writes small ONNX models byte by byte, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace tessera::onnx_test {

// A protobuf message.
class Msg {
 public:
  Msg& i(int field, int64_t v) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(static_cast<uint64_t>(v));
    return *this;
  }
  Msg& f(int field, float v) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&v), 4);
    return *this;
  }
  Msg& s(int field, const std::string& v) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(v.size());
    bytes_ += v;
    return *this;
  }
  Msg& m(int field, const Msg& v) { return s(field, v.bytes_); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) bytes_ += static_cast<char>(v | 0x80);
    bytes_ += static_cast<char>(v);
  }
  std::string bytes_;
};

using Names = std::initializer_list<const char*>;

inline Msg attribute(const char* name, int64_t v) { return Msg().s(1, name).i(3, v).i(20, 2); }
inline Msg attribute(const char* name, const std::vector<int64_t>& v) {
  Msg a;
  a.s(1, name);
  for (const int64_t x : v) a.i(8, x);
  return a.i(20, 7);
}
inline Msg text_attribute(const char* name, const char* v) { return Msg().s(1, name).s(4, v).i(20, 3); }
inline Msg attribute(const char* name, const std::vector<float>& v) {
  Msg a;
  a.s(1, name);
  for (const float x : v) a.f(7, x);
  return a.i(20, 6);
}
inline Msg attribute(const char* name, const Msg& graph) { return Msg().s(1, name).m(6, graph).i(20, 5); }

inline Msg node(const char* op, Names in, Names out, std::initializer_list<Msg> attributes = {}, const char* domain = "") {
  Msg n;
  for (const char* x : in) n.s(1, x);
  for (const char* x : out) n.s(2, x);
  n.s(4, op);
  for (const Msg& a : attributes) n.m(5, a);
  if (*domain) n.s(7, domain);
  return n;
}

// Sizes: a number, or a name.
struct Size {
  Size(int64_t v) : value(v) {}     // NOLINT(google-explicit-constructor)
  Size(const char* n) : name(n) {}  // NOLINT(google-explicit-constructor)
  int64_t value = 0;
  std::string name;
};
inline Msg value_info(const char* name, int type, std::initializer_list<Size> sizes) {
  Msg shape;
  for (const Size& s : sizes) shape.m(1, s.name.empty() ? Msg().i(1, s.value) : Msg().s(2, s.name));
  return Msg().s(1, name).m(2, Msg().m(1, Msg().i(1, type).m(2, shape)));
}

template <class T>
std::string raw(std::initializer_list<T> v) {
  return {reinterpret_cast<const char*>(v.begin()), v.size() * sizeof(T)};
}
inline Msg tensor(const char* name, int type, std::initializer_list<int64_t> dims, const std::string& data) {
  Msg t;
  for (const int64_t d : dims) t.i(1, d);
  return t.i(2, type).s(8, name).s(9, data);
}

struct GraphParts {
  std::vector<Msg> nodes, initializers, inputs, outputs;
};
inline Msg graph(const GraphParts& p, const char* name = "g") {
  Msg g;
  for (const Msg& n : p.nodes) g.m(1, n);
  g.s(2, name);
  for (const Msg& t : p.initializers) g.m(5, t);
  for (const Msg& v : p.inputs) g.m(11, v);
  for (const Msg& v : p.outputs) g.m(12, v);
  return g;
}
inline Msg model(const Msg& graph, int64_t opset = 17) { return Msg().i(1, 8).m(7, graph).m(8, Msg().i(2, opset)); }

inline constexpr int kFloat = 1, kInt64 = 7, kString = 8, kBool = 9;

}  // namespace tessera::onnx_test
