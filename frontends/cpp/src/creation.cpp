// SPDX-License-Identifier: Apache-2.0
// Tensors from nothing, from host values, and from random numbers.
#include <cstring>

#include "attrs.hpp"
#include "sym.hpp"
#include "tessera/compile.hpp"
#include "tessera/dtypes.hpp"
#include "trace.hpp"

namespace tessera {

using namespace detail;

namespace {

std::vector<int64_t> numbers(const Shape& s) { return {s.begin(), s.end()}; }

Tensor make(const std::vector<int64_t>& sizes, DType d, const Device& device = {}) {
  tsr_tensor_handle* h = nullptr;
  check(api().tensor_create(static_cast<uint32_t>(d), static_cast<uint32_t>(sizes.size()), sizes.data(), device.id(), &h));
  return Tensor::adopt(h);
}

void store(const Tensor& t, int64_t i, Scalar v) {
  const uint32_t d = static_cast<uint32_t>(t.dtype());
  void* p = t.handle()->desc.data;
  if (v.kind() == Scalar::kComplex)
    store_from(d, p, i, v.as_complex());
  else if (v.kind() == Scalar::kFloat)
    store_from(d, p, i, v.as_double());
  else
    store_from(d, p, i, v.as_int());
}

template <class T>
Tensor copy_in(const std::vector<T>& values, std::vector<int64_t> shape, DType d) {
  int64_t known = 1, inferred = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && inferred < 0)
      inferred = static_cast<int64_t>(i);
    else
      known *= shape[i];
  }
  const int64_t n = static_cast<int64_t>(values.size());
  if (inferred >= 0 && known > 0) shape[static_cast<size_t>(inferred)] = n / known;
  int64_t count = 1;
  for (int64_t s : shape) count *= s;
  if (count != n)
    fail("TSR-F022", "tensor(): " + std::to_string(n) + " values do not fit a shape of " + std::to_string(count) + " elements");
  Tensor t = make(shape, d);
  for (int64_t i = 0; i < n; ++i) store(t, i, Scalar(static_cast<T>(values[static_cast<size_t>(i)])));
  return t;
}

}  // namespace

Tensor empty(Shape shape, DType d, const Device& device) { return make(numbers(shape), d, device); }

Tensor scalar(Scalar value, DType d) {
  if (value.sym())
    if (Tensor t = traced_value(*value.sym(), value.where()); t.defined()) return t.to(d);
  Tensor t = make({}, d);
  store(t, 0, value);
  return t;
}
Tensor full(Shape shape, Scalar value, DType d) {
  const Dims dims(shape);
  return run_op1("full", {scalar(value, d)}, {dims.attr("shape")});
}
Tensor zeros(Shape shape, DType d) { return full(std::move(shape), 0, d); }
Tensor ones(Shape shape, DType d) { return full(std::move(shape), 1, d); }
namespace {
// While a function is traced only the number crosses to the tensor's device, once, and is spread there.
Tensor full_like(const Tensor& t, int value) {
  const Device device = t.device();
  if (device == Device() || !is_compiling()) return full(t.shape(), value, t.dtype()).to(device);
  const Shape shape = t.shape();
  const Dims dims(shape);
  const Tensor there = run_op1("to_device", {scalar(value, t.dtype())}, {string_attr("device", device.name().c_str())});
  return run_op1("full", {there}, {dims.attr("shape")});
}
}  // namespace
Tensor zeros_like(const Tensor& t) { return full_like(t, 0); }
Tensor ones_like(const Tensor& t) { return full_like(t, 1); }
Tensor arange(SymInt stop, DType d) { return arange(0, stop, 1, d); }
Tensor arange(SymInt start, SymInt stop, int64_t step, DType d) {
  if (step == 0) fail("TSR-F023", "arange: step 0");
  const SymInt n = step > 0 ? (stop - start + (step - 1)) / step : (start - stop + (-step - 1)) / -step;
  const Dims dims(Shape{n});
  Tensor t = run_op1("iota", {}, {dims.attr("shape"), int_attr("axis", 0), dtype_attr("dtype", d)});
  if (step != 1) t = t * scalar(step, d);
  if (start.is_symbolic()) return t + run_op1("dim_value", {}, {dim_attr("value", start)}).to(d);
  return start.raw() == 0 ? t : t + scalar(start.raw(), d);
}
Tensor eye(int64_t n, DType d) {
  const Tensor i = arange(n);
  return (i.unsqueeze(1) == i.unsqueeze(0)).to(d);
}

Tensor tensor(const std::vector<float>& v, std::vector<int64_t> s) { return copy_in(v, std::move(s), f32); }
Tensor tensor(const std::vector<double>& v, std::vector<int64_t> s) { return copy_in(v, std::move(s), f64); }
Tensor tensor(const std::vector<int64_t>& v, std::vector<int64_t> s) { return copy_in(v, std::move(s), i64); }
Tensor tensor(const std::vector<int32_t>& v, std::vector<int64_t> s) { return copy_in(v, std::move(s), i32); }
Tensor tensor(const std::vector<bool>& v, std::vector<int64_t> s) { return copy_in(v, std::move(s), boolean); }

Tensor from_blob(void* data, std::vector<int64_t> shape, DType d, std::vector<int64_t> strides) {
  if (!strides.empty() && strides.size() != shape.size())
    fail("TSR-F024",
         "from_blob: " + std::to_string(strides.size()) + " strides for " + std::to_string(shape.size()) + " sizes");
  tsr_tensor t{};
  t.data = data;
  t.dtype = static_cast<uint32_t>(d);
  t.rank = static_cast<uint32_t>(shape.size());
  t.sizes = shape.data();
  t.strides = strides.empty() ? nullptr : strides.data();
  tsr_tensor_handle* h = nullptr;
  check(api().tensor_wrap(&t, nullptr, nullptr, &h));
  return Tensor::adopt(h);
}

// -------------------------------------------------------------------------------------------------------------- random

Generator::Generator(uint64_t seed, const Device& device) : state(make({2}, u64)) {
  auto* p = static_cast<uint64_t*>(state.handle()->desc.data);
  p[0] = seed;
  p[1] = 0;
  state = state.to(device);
}
Generator& Generator::to(const Device& device) {
  state = state.to(device);
  return *this;
}
Generator& default_generator() {
  static thread_local Generator g(0);
  return g;
}
void manual_seed(uint64_t seed) { default_generator() = Generator(seed); }

namespace {
Generator& generator(Generator* g) {
  if (g) return *g;
  if (is_compiling())
    fail("TSR-F025", "random numbers in a compiled function need a generator: the default one would be baked into the graph",
         "take `tessera::Generator& g` as an argument and pass &g");
  return default_generator();
}
Tensor draw(const char* op, Generator* g, std::span<const tsr_attr> attrs) {
  Generator& gen = generator(g);
  const Tensor in[] = {gen.state};
  std::vector<Tensor> out;
  run_op(op, in, attrs, out);
  gen.state = out[1];
  return out[0];
}
}  // namespace

Tensor rand(Shape shape, DType d, Generator* g) {
  const Dims dims(shape);
  const tsr_attr attrs[] = {dims.attr("shape"), dtype_attr("dtype", d)};
  return draw("random_uniform", g, attrs);
}
Tensor randn(Shape shape, DType d, Generator* g) {
  const Dims dims(shape);
  const tsr_attr attrs[] = {dims.attr("shape"), dtype_attr("dtype", d)};
  return draw("random_normal", g, attrs);
}
Tensor randint(int64_t low, int64_t high, Shape shape, DType d, Generator* g) {
  const Dims dims(shape);
  const tsr_attr attrs[] = {dims.attr("shape"), int_attr("low", low), int_attr("high", high), dtype_attr("dtype", d)};
  return draw("random_int", g, attrs);
}
namespace F {
Tensor dropout(const Tensor& x, double p, bool training, Generator* g) {
  if (!training || p == 0) return x;
  Generator& gen = generator(g);
  const Device home = gen.state.device();
  const Tensor in[] = {x, gen.state.to(x.device())};
  const tsr_attr attrs[] = {float_attr("p", p)};
  std::vector<Tensor> out;
  run_op("dropout", in, attrs, out);
  gen.state = out[1].to(home);
  return out[0];
}
}  // namespace F

}  // namespace tessera
