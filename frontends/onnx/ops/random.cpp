// SPDX-License-Identifier: Apache-2.0
#include "random.hpp"

#include <cstring>

#include "../importer.hpp"

namespace tessera::onnx {

V random_state(Op& op) {
  uint64_t key = op.importer.next_draw();
  if (op.has_attr("seed")) {
    const AttributeProto& a = *op.find("seed");
    const auto seed = a.type == AttributeProto::Int ? static_cast<float>(a.i) : static_cast<float>(op.f("seed"));
    uint32_t bits = 0;
    std::memcpy(&bits, &seed, sizeof bits);
    key = bits;
  }
  const uint64_t state[2] = {key, 0};
  auto* data = static_cast<char*>(op.importer.tensors().allocate(sizeof state));
  std::memcpy(data, state, sizeof state);
  if (const V stream = op.importer.stream()) {  // in a loop: every turn begins at a counter of its own
    const V parts[] = {op.b.constant({TSR_U64, {1}, data, sizeof key}), stream};
    return op.b.concat(parts, 0);
  }
  return op.b.constant({TSR_U64, {2}, data, sizeof state});
}

V random_uniform(Op& op, const Dims& shape, tsr_dtype dtype) {
  return op.b.ops("random_uniform", {random_state(op)}, {sdk::attr_dims("shape", shape), sdk::attr_dtype("dtype", dtype)})[0];
}
V random_normal(Op& op, const Dims& shape, tsr_dtype dtype) {
  return op.b.ops("random_normal", {random_state(op)}, {sdk::attr_dims("shape", shape), sdk::attr_dtype("dtype", dtype)})[0];
}

namespace {

tsr_dtype dtype_attr(Op& op, tsr_dtype fallback) {
  if (!op.has_attr("dtype")) return fallback;
  const tsr_dtype d = dtype_of(static_cast<DataType>(op.i("dtype")));
  if (d == TSR_DTYPE_INVALID) op.fail(kType, "random numbers of " + type_name(static_cast<DataType>(op.i("dtype"))));
  return d;
}

tsr_dtype float_or_f32(tsr_dtype d) { return is_float(d) ? d : TSR_F32; }

template <bool Like>
void uniform(Op& op) {
  const tsr_dtype dtype = dtype_attr(op, Like ? float_or_f32(op.in().dtype()) : TSR_F32);
  const double low = op.f("low", 0.0), high = op.f("high", 1.0);
  op.out(random_uniform(op, Like ? op.in().sizes() : op.ints("shape"), dtype) * (high - low) + low);
}

template <bool Like>
void normal(Op& op) {
  const tsr_dtype dtype = dtype_attr(op, Like ? float_or_f32(op.in().dtype()) : TSR_F32);
  op.out(random_normal(op, Like ? op.in().sizes() : op.ints("shape"), dtype) * op.f("scale", 1.0) + op.f("mean", 0.0));
}

void bernoulli(Op& op) {
  const V p = op.in();
  op.out(op.b.cast(random_uniform(op, p.sizes(), Build::wide(p.dtype())) < op.b.cast(p, Build::wide(p.dtype())),
                   dtype_attr(op, p.dtype())));
}

// Logits to samples: the inverse of the distribution function at uniform numbers.
void multinomial(Op& op) {
  Build& b = op.b;
  const V x = op.in();
  op.expect(x.rank() == 2, "an input of rank " + std::to_string(x.rank()));
  const V f = b.cast(x, Build::wide(x.dtype()));
  const V c = f.call("softmax", {sdk::attr_int("axis", 1)}).call("cumsum", {sdk::attr_int("axis", 1)});
  const V u =
      random_uniform(op, {x.size(0), op.small("sample_size", 1)}, f.dtype()) * b.slice(c, 1, b.sub(x.size(1), 1), x.size(1));
  op.out(b.cast(c.call("searchsorted", u, {sdk::attr_bool("right", true)}), dtype_attr(op, TSR_I32)));
}

}  // namespace

std::span<const Record> random_records() {
  static constexpr Record records[] = {
      {"", "RandomUniform", uniform<false>}, {"", "RandomUniformLike", uniform<true>},
      {"", "RandomNormal", normal<false>},   {"", "RandomNormalLike", normal<true>},
      {"", "Bernoulli", bernoulli},          {"", "Multinomial", multinomial},
  };
  return records;
}

}  // namespace tessera::onnx
