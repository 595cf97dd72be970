// SPDX-License-Identifier: Apache-2.0
#include "dynamic.hpp"

#include <algorithm>

namespace tessera::onnx {

V dynamic_range(Build& b, const V& n, tsr_dim hint) {
  if (const auto known = b.ints(n)) return b.range((*known)[0]);
  const V length = b.reshape(b.cast(n, TSR_I64), {1});
  const V ones = dynamic_broadcast(b, b.scalar(1, TSR_I64), length, hint == -1 ? Dims{} : Dims{hint});
  return ones.call("cumsum", {sdk::attr_int("axis", 0), sdk::attr_bool("exclusive", true)});
}

V element(Build& b, const V& vector, int64_t i) {
  if (vector.rank() == 0) return b.cast(vector, TSR_I64);
  return b.cast(b.squeeze(b.slice(vector, 0, i, i + 1), {0}), TSR_I64);
}

V dynamic_broadcast(Build& b, const V& x, const V& shape, const Dims& hint) {
  const Dims none;
  const bool use = static_cast<int64_t>(hint.size()) == shape.size(0);
  return b.op("dynamic_broadcast_to", {x, b.cast(shape, TSR_I64)},
              {sdk::attr_int("rank", shape.size(0)), sdk::attr_dims("hint", use ? hint : none)});
}

V dynamic_reshape(Build& b, const V& x, const V& shape, const Dims& hint) {
  const Dims none;
  const bool use = static_cast<int64_t>(hint.size()) == shape.size(0);
  return b.op("dynamic_reshape", {x, b.cast(shape, TSR_I64)},
              {sdk::attr_int("rank", shape.size(0)), sdk::attr_dims("hint", use ? hint : none)});
}

namespace {
Dims bounded(Dims d) {
  for (tsr_dim& v : d)
    if (Build::is_number(v)) v = std::clamp(v, -kBeyond, kBeyond);
  return d;
}
// The least numbers of 64 bits look like sizes that are expressions: brought up while they are numbers.
Dims bounded(std::span<const int64_t> numbers) {
  Dims d;
  for (const int64_t v : numbers) d.push_back(std::clamp(v, -kBeyond, kBeyond));
  return d;
}
}  // namespace

std::optional<Dims> bounds(Op& op, size_t i) {
  const V v = op.in(i);
  if (const auto known = op.b.ints(v)) return bounded(*known);
  const HostTensor* t = v.dtype() == TSR_I64 && v.rank() == 1 ? op.b.literal(v, 4096) : nullptr;
  if (!t || t->elements() > 4096) return std::nullopt;
  Ints numbers(static_cast<size_t>(t->elements()));
  for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = load_as<int64_t>(t->dtype, t->data, static_cast<int64_t>(k));
  return bounded(std::span<const int64_t>(numbers));
}

Dims bounds(Op& op, std::string_view attribute) {
  const AttributeProto* a = op.find(attribute);
  return bounded(std::span<const int64_t>(a && a->type == AttributeProto::Ints ? a->ints : op.ints(attribute)));
}

int64_t vector_length(const Op& op, size_t i) {
  const V v = op.in(i);
  if (v.rank() != 1 || !Build::is_number(v.size(0))) op.need(i);
  op.expect(v.size(0) <= 4096, "input " + std::to_string(i) + " has " + std::to_string(v.size(0)) + " elements; at most 4096");
  return v.size(0);
}

}  // namespace tessera::onnx
