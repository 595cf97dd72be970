// SPDX-License-Identifier: Apache-2.0
// The protobuf wire format, walked in place: fields are views of the bytes, nothing is copied or allocated.
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::onnx {

struct Malformed {  // thrown: what is wrong, and where in the bytes that are walked
  const char* at;
  const char* what;
};

enum class Wire : uint32_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

// Reads the varint at *p and moves past it.
inline uint64_t read_varint(const char*& p, const char* end) {
  const char* const begin = p;
  uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (p == end) throw Malformed{begin, "a number that the data ends in"};
    const auto byte = static_cast<uint8_t>(*p++);
    value |= shift < 64 ? static_cast<uint64_t>(byte & 0x7f) << shift : 0;
    if (byte < 0x80) return value;
  }
  throw Malformed{begin, "a number of more than 10 bytes"};
}

template <class T>
T load_unaligned(const char* p) {  // little-endian hosts only, as the rest of the project
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// The fields of one message in the order they stand:  for (Fields f(bytes); f.next();) switch (f.number()) ...
class Fields {
 public:
  explicit Fields(std::string_view message) : p_(message.data()), end_(message.data() + message.size()) {}

  bool next() {
    if (p_ == end_) return false;
    const char* const begin = p_;
    const uint64_t tag = read_varint(p_, end_);
    number_ = static_cast<uint32_t>(tag >> 3);
    if (number_ == 0 || tag >> 32 != 0) throw Malformed{begin, "a field number that does not exist"};
    wire_ = static_cast<Wire>(tag & 7);
    switch (wire_) {
      case Wire::Varint: value_ = read_varint(p_, end_); return true;
      case Wire::Fixed64: take(8); return true;
      case Wire::Fixed32: take(4); return true;
      case Wire::Bytes: {
        const uint64_t length = read_varint(p_, end_);
        take(length);
        return true;
      }
    }
    throw Malformed{begin, "a wire type that does not exist"};
  }

  [[nodiscard]] uint32_t number() const { return number_; }
  [[nodiscard]] Wire wire() const { return wire_; }
  [[nodiscard]] const char* at() const { return p_; }                // behind the field
  [[nodiscard]] std::string_view payload() const { return bytes_; }  // of Bytes, Fixed32 and Fixed64
  [[nodiscard]] int64_t integer() const {
    expect(Wire::Varint, "a field whose wire type is not that of an integer");
    return static_cast<int64_t>(value_);
  }
  [[nodiscard]] float single() const {
    expect(Wire::Fixed32, "a field whose wire type is not that of a float");
    return load_unaligned<float>(bytes_.data());
  }
  [[nodiscard]] std::string_view bytes() const {
    expect(Wire::Bytes, "a field whose wire type is not that of bytes or a message");
    return bytes_;
  }

 private:
  void take(uint64_t length) {
    if (length > static_cast<uint64_t>(end_ - p_)) throw Malformed{p_, "a field that is longer than what is left"};
    bytes_ = {p_, static_cast<size_t>(length)};
    p_ += length;
  }
  void expect(Wire wanted, const char* what) const {
    if (wire_ != wanted) throw Malformed{p_, what};
  }
  const char* p_;
  const char* end_;
  uint32_t number_ = 0;
  Wire wire_ = Wire::Varint;
  uint64_t value_ = 0;
  std::string_view bytes_;
};

// A repeated scalar field, packed or not: calls f(value) for every element that this occurrence holds.
template <class F>
void each_varint(const Fields& field, F&& f) {
  if (field.wire() != Wire::Bytes) return f(static_cast<uint64_t>(field.integer()));
  const char* p = field.bytes().data();
  for (const char* const end = p + field.bytes().size(); p != end;) f(read_varint(p, end));
}
template <class T, class F>
void each_fixed(const Fields& field, F&& f) {
  constexpr Wire single = sizeof(T) == 4 ? Wire::Fixed32 : Wire::Fixed64;
  const std::string_view b = field.payload();
  if ((field.wire() != Wire::Bytes && field.wire() != single) || b.size() % sizeof(T) != 0)
    throw Malformed{field.at(), "a packed field that is not a whole number of elements"};
  for (size_t i = 0; i < b.size(); i += sizeof(T)) f(load_unaligned<T>(b.data() + i));
}

}  // namespace tessera::onnx
