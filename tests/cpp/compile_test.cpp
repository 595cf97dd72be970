// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

struct Scale : nn::Module<Scale> {
  Tensor weight = ones({3});
  int calls = 0;
  Scale() { add("weight", weight); }
  Tensor forward(const Tensor& x) {
    ++calls;
    return x * weight;
  }
};
}  // namespace

TEST_CASE("the first call captures, later calls only dispatch") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) {
    ++traced;
    CHECK(is_compiling());
    return x * 2 + 1;
  });
  CHECK(f(ones({3})).to_vector<float>() == std::vector<float>(3, 3.0f));
  CHECK(f(full({3}, 4)).to_vector<float>() == std::vector<float>(3, 9.0f));
  CHECK(traced == 1);
  CHECK(entries(f.describe()) == 1);
  CHECK_FALSE(is_compiling());
}

TEST_CASE("a change of size, dtype, rank or strides compiles again, and old entries still hit") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x + 1; }, {.dynamic = Dynamic::no});
  f(ones({3}));
  f(ones({4}));
  CHECK(traced == 2);
  f(ones({3}, f64));
  CHECK(traced == 3);
  f(ones({3, 1}));
  CHECK(traced == 4);
  const Tensor wide = ones({4, 8}).clone();
  f(wide.clone());
  const int before = traced;
  float blob[32] = {};
  const Tensor strided = from_blob(blob, {4, 8}, f32, {1, 4});
  CHECK(f(strided).to_vector<float>() == std::vector<float>(32, 1.0f));
  CHECK(traced == before + 1);
  f(ones({3}));
  f(ones({4}));
  CHECK(traced == before + 1);
}

TEST_CASE("scalars, bools and strings are guarded by value") {
  int traced = 0;
  auto f = compile([&](const Tensor& x, int64_t n, bool negate, const std::string& how) {
    ++traced;
    Tensor y = x * n;
    if (negate) y = -y;
    return how == "square" ? y.square() : y;
  });
  const Tensor x = tensor({1.f, 2.f});
  CHECK(f(x, 3, false, "plain").to_vector<float>() == std::vector<float>{3, 6});
  CHECK(f(x, 3, true, "plain").to_vector<float>() == std::vector<float>{-3, -6});
  CHECK(f(x, 3, true, "square").to_vector<float>() == std::vector<float>{9, 36});
  CHECK(f(x, 2, true, "square").to_vector<float>() == std::vector<float>{4, 16});
  CHECK(f(x, 3, false, "plain").to_vector<float>() == std::vector<float>{3, 6});
  CHECK(traced == 4);
}

TEST_CASE("dynamic sizes share one graph") {
  int traced = 0;
  auto f = compile([&](const Tensor& x) { return ++traced, x.reshape({x.size(0) * x.size(1)}).cumsum(0); },
                   {.dynamic = Dynamic::yes});
  CHECK(f(ones({2, 3})).to_vector<float>().back() == 6);
  CHECK(f(ones({5, 4})).to_vector<float>().back() == 20);
  CHECK(f(ones({7, 9})).to_vector<float>().back() == 63);
  CHECK(traced == 1);
}

TEST_CASE("what the function captures is baked in") {
  Tensor c = tensor({1.f, 2.f});
  auto f = compile([&](const Tensor& x) { return x + c; });
  CHECK(f(zeros({2})).to_vector<float>() == std::vector<float>{1, 2});
  c = tensor({5.f, 5.f});
  CHECK(f(zeros({2})).to_vector<float>() == std::vector<float>{1, 2});
  f.reset();
  CHECK(f(zeros({2})).to_vector<float>() == std::vector<float>{5, 5});
}

TEST_CASE("a module is compiled in place and its weights are inputs") {
  Scale m;
  compile(m, {.args = {"x"}});
  CHECK(m(full({3}, 2)).to_vector<float>() == std::vector<float>(3, 2.0f));
  m.weight = full({3}, 10);
  CHECK(m(full({3}, 2)).to_vector<float>() == std::vector<float>(3, 20.0f));
  CHECK(m.calls == 1);
  CHECK(m.state_dict().count("weight") == 1);
  m.eval();
  m(ones({3}));
  CHECK(m.calls == 2);  // training is a guard
}

TEST_CASE("disable calls the function itself") {
  int called = 0;
  auto f = compile([&](const Tensor& x) { return ++called, x + 1; }, {.disable = true});
  f(ones({2}));
  f(ones({2}));
  CHECK(called == 2);
}

TEST_CASE("errors inside the function reach the caller as they were thrown") {
  auto f = compile([](const Tensor& x) -> Tensor {
    if (x.dim() == 1) throw std::runtime_error("mine");
    return x + ones({7});
  });
  CHECK_THROWS_WITH(f(ones({2})), "mine");
  CHECK_THROWS_AS(f(ones({2, 2})), UserError);
  auto g = compile([](const Tensor& x) { return x.sum().item<float>() > 0 ? x : -x; }, {.fullgraph = true});
  CHECK_THROWS_WITH(g(ones({2})), Catch::Contains("TSR-G001"));
  CHECK(f(ones({2, 7})).numel() == 14);  // the callable is still usable
}

TEST_CASE("a tensor that escapes its trace is refused") {
  Tensor escaped;
  auto f = compile([&](const Tensor& x) { return escaped = x + 1; });
  f(ones({2}));
  CHECK_THROWS_WITH(escaped.sizes(), Catch::Contains("TSR-F001"));
}

TEST_CASE("backend and config can be chosen per function") {
  const Context reference(std::string(std::getenv("TESSERA_SOURCE_DIR") ? std::getenv("TESSERA_SOURCE_DIR") : ".") +
                          "/configs/reference.toml");
  auto f = compile([](const Tensor& x) { return x.exp(); }, {.backend = "reference", .context = reference});
  CHECK(f(zeros({2})).to_vector<float>() == std::vector<float>{1, 1});
  CHECK_THROWS_WITH(compile([](const Tensor& x) { return x; }, {.backend = "refrence", .context = reference})(ones({1})),
                    Catch::Contains("TSR-P030") && Catch::Contains("reference"));
}

TEST_CASE("options may have the names that users of torch.compile know") {
  const auto context = [](const std::string& more) {
    return Context::from_text(
        "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.cpp\", \"tessera.backend.eager\"" + more +
        "]\n[backends]\norder = [\"eager\"]\n");
  };
  const Context with = context(", \"tessera.pass.fuse\", \"tessera.pass.constant_fold\""), without = context("");
  const auto call = [](const Context& c, std::vector<std::string> options, const char* mode = "default") {
    const ContextScope scope(c);
    auto f = compile([](const Tensor& x) { return x * 2 + 1; }, {.mode = mode, .options = std::move(options), .context = c});
    return f(ones({2})).to_vector<float>();
  };
  const std::vector<float> three = {3, 3};
  CHECK(call(with,
             {"epilogue_fusion=false", "max_fusion_size=8", "max_autotune=true", "coordinate_descent_tuning=true",
              "freezing=false", "fallback_random=true", "deterministic=true"},
             "max-autotune-no-cudagraphs") == three);
  // They are the options of the pass: its range, and its absence, count.
  CHECK_THROWS_WITH(call(with, {"max_fusion_size=0"}), Catch::Contains("TSR-C004") && Catch::Contains("1..4096"));
  CHECK_THROWS_WITH(call(with, {"epilogue_fusio=false"}),
                    Catch::Contains("TSR-C002") && Catch::Contains("did you mean 'epilogue_fusion'?"));
  CHECK_THROWS_WITH(
      call(without, {"epilogue_fusion=false"}),
      Catch::Contains("TSR-C002") && Catch::Contains("it is option 'fuse.epilogue_fusion' of plugin 'tessera.pass.fuse'"));
  CHECK(call(without, {"freezing=false"}) == three);  // a key of Tessera's own, with nobody to tell
  CHECK_THROWS_WITH(call(with, {"force_disable_caches=true"}), Catch::Contains("TSR-C012"));
  CHECK_THROWS_WITH(call(with, {"shape_padding=true"}), Catch::Contains("TSR-C002"));
}

TEST_CASE("random numbers in a compiled function advance their generator") {
  auto f = compile([](Generator& g) { return rand({4}, f32, &g); });
  Generator g(1), h(1);
  const auto a = f(g).to_vector<float>(), b = f(g).to_vector<float>();
  CHECK(a != b);
  CHECK(a == rand({4}, f32, &h).to_vector<float>());
  CHECK(b == rand({4}, f32, &h).to_vector<float>());
  auto bad = compile([](const Tensor& x) { return x + rand({2}); });
  CHECK_THROWS_WITH(bad(ones({2})), Catch::Contains("TSR-F025"));
}

TEST_CASE("a compiled function called inside another is traced into it") {
  int inner_traced = 0;
  auto inner = compile([&](const Tensor& x) { return ++inner_traced, x * 3; });
  auto outer = compile([&](const Tensor& x) { return inner(x) + 1; });
  CHECK(outer(ones({2})).to_vector<float>() == std::vector<float>{4, 4});
  CHECK(outer(ones({2})).to_vector<float>() == std::vector<float>{4, 4});
  CHECK(inner_traced == 1);
}
