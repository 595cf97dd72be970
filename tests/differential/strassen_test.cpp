// SPDX-License-Identifier: Apache-2.0
// Products with constant weights by Strassen's algorithm: exact where sums are, with whatever follows them and however their
// operands lie, and as the plain product where an operand is not finite.
#include <cmath>

#include "cpu_models.hpp"

namespace tessera::differential {

TEST_CASE("products by Strassen's algorithm are exact where sums are") {
  const Model models[] = {
      {"linear", "", {70, 264}, {272, 264}, {272}},
      {"linear", "", {2, 3, 33, 257}, {300, 257}, {}},  // an odd depth, a last panel of few columns
      {"matmul", "", {131, 520}, {520, 260}, {}},       // two blocks of rows, of different heights
      {"matmul", "", {4, 16, 1000}, {1000, 256}, {}},   // sums in two pieces
  };
  for (const Model& m : models) check(m, "f32", TSR_F32, ".strassen");
}

TEST_CASE("what follows a product by Strassen's algorithm rounds as it does alone") {
  const std::vector<int64_t> x = {66, 260}, w = {260, 264}, y = {66, 264};
  const std::string text =
      "graph @g(%x: " + type("f32", x) + ", %r: " + type("f32", y) + ") {\n  %w = " + literal("f32", w, values(w, 2)) +
      "\n  %b = " + literal("f32", {264}, values({264}, 3)) +
      "\n  %p = matmul %x, %w\n  %q = add %p, %b\n  %s = add %q, %r\n  %y = gelu %s {approximate = \"none\"}\n"
      "  return %y\n}\n";
  const auto tensor = [](const std::vector<int64_t>& sizes, uint64_t seed) {
    const std::vector<float> v = values(sizes, seed);
    std::vector<char> bytes(v.size() * 4);
    std::memcpy(bytes.data(), v.data(), bytes.size());
    return arrange(TSR_F32, sizes, bytes, Layout::Dense);
  };
  const std::vector<e::Tensor> in = {tensor(x, 1), tensor(y, 4)};
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    const std::string isa = backend.substr(backend.find(':'));
    const e::Executable fused = compile(text, "cpu+fuse" + isa), plain = compile(text, "cpu+fuse+plain" + isa);
    CHECK(fused.describe().find(".add.add.gelu.strassen") != std::string::npos);
    CHECK(plain.describe().find(".add.add.gelu.packed") != std::string::npos);
    CHECK(different(TSR_F32, fused.run(in)[0], plain.run(in)[0]) == 0);
  }
}

TEST_CASE("NaN and infinity in an operand of Strassen's algorithm stay in their rows") {
  const Model m = {"linear", "", {66, 256}, {256, 256}, {}};
  std::vector<float> v = values(m.x, 1);
  v[3 * 256 + 5] = std::nanf("");
  v[40 * 256 + 200] = -INFINITY;
  std::vector<char> bytes(v.size() * 4);
  std::memcpy(bytes.data(), v.data(), bytes.size());
  const std::vector<e::Tensor> in = {arrange(TSR_F32, m.x, bytes, Layout::Dense)};
  const std::string text = text_of(m, "f32");
  const e::Tensor want = compile(text, "reference").run(in)[0];
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    CHECK(different(TSR_F32, compile(text, backend).run(in)[0], want) == 0);
  }
}

TEST_CASE("small products, and weights that select, are multiplied plainly") {
  const auto kernels = [](const Model& m) { return compile(text_of(m, "f32"), cpu_backends()[0]).describe(); };
  if (cpu_backends().empty()) return;
  for (const Model& m : {Model{"linear", "", {63, 256}, {256, 256}, {}}, Model{"linear", "", {64, 255}, {256, 255}, {}},
                         Model{"linear", "", {64, 256}, {255, 256}, {}}})
    CHECK(kernels(m).find(".strassen") == std::string::npos);
  CHECK(kernels({"linear", "", {64, 256}, {256, 256}, {}}).find(".strassen") != std::string::npos);
  std::vector<float> identity(256 * 256, 0.0f);
  for (size_t i = 0; i < 256; ++i) identity[257 * i] = 1;
  const std::string text = "graph @g(%x: f32[64, 256]) {\n  %w = " + literal("f32", {256, 256}, identity) +
                           "\n  %y = linear %x, %w, _\n  return %y\n}\n";
  CHECK(compile(text, cpu_backends()[0]).describe().find(".strassen") == std::string::npos);
}

}  // namespace tessera::differential
