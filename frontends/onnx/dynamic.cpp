// SPDX-License-Identifier: Apache-2.0
#include "dynamic.hpp"

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

int64_t vector_length(const Op& op, size_t i) {
  const V v = op.in(i);
  if (v.rank() != 1 || !Build::is_number(v.size(0))) op.need(i);
  op.expect(v.size(0) <= 4096, "input " + std::to_string(i) + " has " + std::to_string(v.size(0)) + " elements; at most 4096");
  return v.size(0);
}

}  // namespace tessera::onnx
