// SPDX-License-Identifier: Apache-2.0
// Tensors that a compiled function replaces: their new values lie where the old ones did, unless somebody else holds those.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

struct Net : nn::Module<Net> {
  nn::Linear fc1{64, 96}, fc2{96, 8};
  Net() {
    add("fc1", fc1);
    add("fc2", fc2);
    Generator g(3);
    for (const auto& [name, p] : named_parameters()) *p = randn(p->shape(), f32, &g) * 0.1;
  }
  Tensor forward(const Tensor& x) { return fc2(F::gelu(fc1(x))); }
};

struct Batch {
  Tensor x, y;
  Batch() {
    Generator g(5);
    x = randn({32, 64}, f32, &g);
    y = x.argmax(1) % 8;
  }
};

template <class O>
auto training_step(const std::string& mode) {
  return compile(
      [](Net& m, O& o, const Tensor& x, const Tensor& y) {
        const Tensor loss = F::cross_entropy(m(x), y);
        o.step(m, grad(loss, m));
        return loss;
      },
      {.mode = mode, .name = "step", .args = {"model", "optimizer", "x", "y"}});
}

std::vector<void*> places(nn::ModuleBase& m) {
  std::vector<void*> out;
  for (const nn::ModuleBase::Leaf& l : m.leaves())
    if (l.tensor->dim() > 0) out.push_back(l.tensor->raw_data());
  return out;
}

bool same_bits(const Tensor& a, const Tensor& b) { return a.to_vector<double>() == b.to_vector<double>(); }

const tsr_api& api() { return *tsr_get_api(TSR_ABI_MAJOR); }

}  // namespace

TEST_CASE("parameters and the optimiser's state are updated in their own memory") {
  const std::string mode = GENERATE("default", "eager");
  INFO(mode);
  const Batch b;
  Net model, apart;
  optim::AdamW optimizer(model, {.lr = 1e-2}), optimizer_apart(apart, {.lr = 1e-2});
  auto step = training_step<optim::AdamW>(mode);
  step(model, optimizer, b.x, b.y);
  const std::vector<void*> weights = places(model), state = places(optimizer);
  api().memory_peak(0, 1);
  const int64_t before = api().memory_in_use(0);
  for (int i = 0; i < 3; ++i) step(model, optimizer, b.x, b.y);
  if (mode == "eager") {  // a fused update gives up only what its kernel says it may
    CHECK(places(model) == weights);
    CHECK(places(optimizer) == state);
  }
  CHECK(api().memory_in_use(0) == before);
  CHECK(entries(step.describe()) == 1);
  // The same steps where every old tensor is held by somebody: each step takes new memory, and the bits are the same.
  std::vector<Tensor> held;
  const auto hold = [&] {
    for (nn::ModuleBase* m : {static_cast<nn::ModuleBase*>(&apart), static_cast<nn::ModuleBase*>(&optimizer_apart)})
      for (const nn::ModuleBase::Leaf& l : m->leaves()) held.push_back(*l.tensor);
  };
  std::vector<std::vector<double>> values_held;
  for (int i = 0; i < 4; ++i) {
    hold();
    for (size_t k = values_held.size(); k < held.size(); ++k) values_held.push_back(held[k].to_vector<double>());
    step(apart, optimizer_apart, b.x, b.y);
  }
  for (size_t k = 0; k < held.size(); ++k) CHECK(held[k].to_vector<double>() == values_held[k]);
  const auto now = model.named_parameters(), now_apart = apart.named_parameters();
  for (size_t i = 0; i < now.size(); ++i) CHECK(same_bits(*now[i].second, *now_apart[i].second));
}

TEST_CASE("what others hold keeps its value") {
  auto twice = compile([](Tensor& a) { a = a * 2.0; }, {.mode = "eager"});
  Tensor x = ones({300});
  void* const place = x.raw_data();
  twice(x);
  CHECK(x.raw_data() == place);
  const Tensor copy = x, part = x.narrow(0, 10, 5);
  twice(x);
  CHECK(x.raw_data() != place);
  CHECK(copy[0].item<float>() == 2);
  CHECK(part[0].item<float>() == 2);
  CHECK(x[0].item<float>() == 4);
  std::vector<float> mine(64, 1);  // memory of the caller
  Tensor y = from_blob(mine.data(), {64}, f32);
  twice(y);
  CHECK(mine[0] == 1);
  CHECK(y[63].item<float>() == 2);
}

TEST_CASE("a replaced tensor that is read afterwards is read as it was") {
  auto old = compile([](Tensor& a) {
    const Tensor was = a;
    a = a + 1.0;
    return was * a;
  });
  auto given = compile([](Tensor& a) {
    const Tensor was = a;
    a = a + 1.0;
    return was;
  });
  auto swapped = compile([](Tensor& a, Tensor& b) { std::swap(a, b); });
  auto rows = compile([](Tensor& a) { a = a.flip({0}) + a; });
  Tensor x = full({128}, 3), y = full({128}, 3), z = full({128}, 5);
  CHECK(old(x)[0].item<float>() == 12);
  CHECK(x[0].item<float>() == 4);
  const Tensor was = given(y);
  CHECK(was[0].item<float>() == 3);
  CHECK(y[0].item<float>() == 4);
  swapped(y, z);
  CHECK(y[0].item<float>() == 5);
  CHECK(z[0].item<float>() == 4);
  Tensor r = arange(128, f32);
  rows(r);
  for (const float v : values(r)) CHECK(v == 127);
}

TEST_CASE("one tensor in two places of a call") {
  auto f = compile([](Tensor& a, const Tensor& b) { a = a + b; });
  Tensor x = full({256}, 1), y = full({256}, 10);
  f(x, y);
  f(x, x);
  CHECK(x[255].item<float>() == 22);
  struct Pair : nn::Module<Pair> {
    Tensor w = full({256}, 1);
    Pair() { add("w", w); }
  } m;
  auto g = compile([](Pair& p, const Tensor& t) { p.w = p.w + t.sum(); });
  g(m, y);
  g(m, m.w);
  CHECK(m.w[0].item<float>() == 2561 * 257);
}

TEST_CASE("sizes that vary, other types and graph breaks take new memory and give the same values") {
  auto grow = compile([](Tensor& a) { a = cat({a, a}, 0); });
  Tensor x = ones({4});
  for (int i = 0; i < 4; ++i) grow(x);
  CHECK(x.sizes() == std::vector<int64_t>{64});
  auto add = compile([](Tensor& a) { a = a + 1.0; }, {.dynamic = Dynamic::yes});
  for (const int64_t n : {5, 9, 12}) {
    Tensor t = ones({n});
    add(t);
    CHECK(t[n - 1].item<float>() == 2);
  }
  auto narrower = compile([](Tensor& a) { a = a.to(f64); });
  narrower(x);
  CHECK(x.dtype() == f64);
  auto breaks = compile([](Tensor& a) {
    a = a + 1.0;
    if (a.sum().item<float>() > 0) a = a * 3.0;
    return a - 1.0;
  });
  Tensor b = ones({32});
  for (int i = 0; i < 3; ++i) {
    const Tensor kept = b;
    const float was = kept[0].item<float>();
    CHECK(breaks(b)[0].item<float>() == (was + 1) * 3 - 1);
    CHECK(kept[0].item<float>() == was);
  }
}

TEST_CASE("a run that ends at a NaN leaves every tensor as it was") {
  auto f = compile(
      [](Tensor& a, const Tensor& b) {
        a = a + 1.0;
        return b.log().sum();
      },
      {.mode = "eager", .options = {"runtime.check_nan=true"}});
  Tensor x = ones({64});
  f(x, ones({64}));
  CHECK(x[0].item<float>() == 2);
  CHECK_THROWS_WITH(f(x, full({64}, -1)), Catch::Contains("TSR-R051"));
  CHECK(x[0].item<float>() == 2);
}

TEST_CASE("an error behind a write in place names what is lost") {
  auto f = compile(
      [](Tensor& a, const Tensor& table, const Tensor& rows) {
        a = a + 1.0;
        return table.index_select(0, rows).sum();
      },
      {.mode = "eager", .name = "f", .args = {"a", "table", "rows"}});
  Tensor x = ones({64});
  const Tensor table = ones({8, 64});
  f(x, table, tensor(std::vector<int64_t>{7}, {1}));
  CHECK_THROWS_WITH(f(x, table, tensor(std::vector<int64_t>{8}, {1})),
                    Catch::Contains("by then the call has written over the donated state 'a'") &&
                        Catch::Contains("go on from the last checkpoint"));
}
