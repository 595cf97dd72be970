// SPDX-License-Identifier: Apache-2.0
// Recompiles as errors, and what they say.
#include <catch2/catch.hpp>

#include <tessera/tessera.hpp>

using namespace tessera;
using Catch::Contains;

TEST_CASE("limits and recompiles can be errors") {
  const auto fn = [](const Tensor& x) { return x + 1; };
  auto f = compile(fn, {.dynamic = Dynamic::no,
                        .options = {"guards.recompile_limit=1", "guards.fail_on_recompile_limit_hit=true"},
                        .args = {"x"}});
  f(ones({1}));
  CHECK_THROWS_WITH(f(ones({2})),
                    Contains("TSR-D012") && Contains("/0: tensor 'x' size mismatch at index 0. expected 1, actual 2"));
  CHECK(f(ones({1})).to_vector<float>() == std::vector<float>{2});
  auto g = compile(fn, {.options = {"guards.error_on_recompile=true"}});
  g(ones({3}));
  CHECK_THROWS_WITH(g(ones({4})), Contains("TSR-D011") && Contains("expected 3, actual 4"));
  CHECK(g(ones({3})).numel() == 3);
}
