// SPDX-License-Identifier: Apache-2.0
// The rules of torch.result_type, as (a, b) -> c.
#include <catch2/catch.hpp>

#include <tessera/tessera.hpp>

using namespace tessera;

TEST_CASE("tensors of different types promote as in PyTorch") {
  struct Row {
    DType a, b, sum;
  };
  for (const Row& r :
       {Row{i32, i64, i64}, Row{u8, i8, i16}, Row{i64, f32, f32}, Row{f16, f32, f32}, Row{f16, bf16, f32}, Row{boolean, i8, i8},
        Row{f32, f64, f64}, Row{f32, c64, c64}, Row{f64, c64, c128}, Row{boolean, f16, f16}}) {
    CAPTURE(name(r.a), name(r.b));
    CHECK((ones({2}, r.a) + ones({2}, r.b)).dtype() == r.sum);
    CHECK((ones({2}, r.b) + ones({2}, r.a)).dtype() == r.sum);
  }
}

TEST_CASE("a 0-d tensor and a scalar are weaker than a tensor with dimensions") {
  CHECK((ones({2}, f32) + scalar(1.0, f64)).dtype() == f32);
  CHECK((ones({2}, i32) + scalar(1, i64)).dtype() == i32);
  CHECK((ones({2}, i32) + scalar(1.0, f64)).dtype() == f64);
  CHECK((ones({2}, f16) + 2.5).dtype() == f16);
  CHECK((ones({2}, i32) + 2.5).dtype() == f32);
  CHECK((ones({2}, i8) + 1).dtype() == i8);
  CHECK((ones({2}, boolean) + 1).dtype() == i64);
}

TEST_CASE("division, functions and reductions of integers") {
  CHECK((ones({2}, i32) / ones({2}, i32)).dtype() == f32);
  CHECK((arange(3) / 2).to_vector<double>() == std::vector<double>{0, 0.5, 1});
  CHECK(ones({2}, i64).exp().dtype() == f32);
  CHECK(ones({2}, i8).sum().dtype() == i64);
  CHECK(ones({2}, boolean).sum().item<int64_t>() == 2);
  CHECK(ones({2}, i16).floor().dtype() == i16);
  CHECK((ones({2}, f32) == ones({2}, i64)).dtype() == boolean);
}

TEST_CASE("types without a common type are refused") {
  CHECK_THROWS_AS(ones({2}, DType::f8e5m2) + ones({2}, f32), UserError);
  CHECK_THROWS_AS(matmul(ones({2, 2}), ones({2, 2}, f64)), UserError);
}
