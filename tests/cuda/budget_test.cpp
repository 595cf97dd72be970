// SPDX-License-Identifier: Apache-2.0
// Memory of training steps on the device: workspaces of libraries count where they are used, kernels write over operands that
// nobody needs any more, and a model as large as a GPU is planned, and its blocks are counted, without its bytes.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>

#include "support.hpp"

using namespace tessera::test;

namespace {

int64_t number_behind(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  REQUIRE(at != std::string::npos);
  return std::stoll(text.substr(at + key.size()));
}

}  // namespace

TEST_CASE("kernels that compute element by element, and scatters, write over what nobody else reads") {
  // 1 MiB each: zeros, what is scattered into them, and the sum with %g take one place.
  const std::string text = R"(graph @g(%g: f32[1024, 256]@cuda:0, %r: i64[40, 1]@cuda:0, %u: f32[40, 256]@cuda:0) {
    %c = constant {value = dense<f32[]: 0.0>}
    %z = mul %g, %c
    %s = scatter_nd %z, %r, %u {reduction = "add"}
    %n = sin %s
    %y = add %g, %n
    return %y
  })";
  const e::Context c = make_context(hardware() ? "" : kFakeOptions);
  const e::Executable device = compile(c, text);
  INFO(device.plan());
  CHECK(number_behind(device.describe(), "\"output_bytes\":") == 1 << 20);
  CHECK(number_behind(device.describe(), "\"arena_bytes\":") < 1 << 20);
  std::string on_host = text;
  for (size_t at = 0; (at = on_host.find("@cuda:0")) != std::string::npos;) on_host.erase(at, 7);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 40; ++i) rows.push_back(i * 37 % 11 * 90);  // most of them several times
  const e::Tensor g = numbers({1024, 256}, 1), u = numbers({40, 256}, 2);
  e::Tensor r = e::Tensor::create(TSR_I64, std::vector<int64_t>{40, 1});
  std::memcpy(r.data(), rows.data(), rows.size() * sizeof(int64_t));
  const std::vector<e::Tensor> in = {g, r, u}, there = {g.copy_to(gpu()), r.copy_to(gpu()), u.copy_to(gpu())};
  const std::vector<e::Tensor> want = compile(host(), on_host).run(in);
  for (int round = 0; round < 2; ++round) {
    const std::vector<e::Tensor> got = device.run(there);
    CHECK(difference(got[0], want[0]) < 1e-5);
  }
}

TEST_CASE("workspaces of a library count where they are used, and a budget is kept with them") {
  if (hardware()) return;
  setenv("FAKE_CUDA_CUDNN", "workspace:3", 1);  // MiB, of gradients of attention
  std::string text = "graph @step(%w: f32[1, 2, 64, 32]@cuda:0, %k: f32[1, 2, 160, 32]@cuda:0) {\n";
  text += "  %s0 = sin %w\n";
  for (int i = 0; i < 12; ++i)
    text += "  %m" + std::to_string(i) + " = mul %s" + std::to_string(i) + ", %w\n  %s" + std::to_string(i + 1) + " = sin %m" +
            std::to_string(i) + "\n";
  text +=
      "  %qt = cast %s12 {dtype = bf16}\n  %kt = cast %k {dtype = bf16}\n  %y, %lse = attention_lse %qt, %kt, %kt, _\n"
      "  %yw = cast %y {dtype = f32}\n  %e = exp %yw\n  %loss = reduce_sum %e {axes = [0, 1, 2, 3]}\n"
      "  %dw = grad %loss, %w\n  return %loss, %dw\n}";
  const auto with = [&](const std::string& partitioner) {
    const e::Context c =
        make_context(kFakeOptions, "\"cuda\", \"reference\"", "\"tessera.backend.cuda\", \"tessera.partitioner.remat\"",
                     "[partitioner]\ncosts = \"predicted\"\n" + partitioner);
    return compile(c, text);
  };
  const auto peak_of = [](const e::Executable& x) { return number_behind(x.describe(), "\"peak_bytes\":"); };
  const e::Executable all = with("name = \"save_all\"\n");
  INFO(all.plan());
  const int64_t most = peak_of(all);
  CHECK(all.plan().find("cuda.cudnn.attention_y_backward") != std::string::npos);
  CHECK(most > 3 << 20);
  CHECK(most < 4 << 20);  // once, and not on top of what has gone by then
  const std::vector<e::Tensor> in = {numbers({1, 2, 64, 32}, 3).copy_to(gpu()), numbers({1, 2, 160, 32}, 4).copy_to(gpu())};
  const std::vector<e::Tensor> want = all.run(in);
  size_t met = 0;
  for (int64_t less = 0; less < 160 << 10; less += 32 << 10) {
    try {
      const e::Executable some = with("name = \"budget\"\nbudget_bytes = " + std::to_string(most - less) + "\n");
      INFO(most - less << "\n" << some.plan());
      CHECK(peak_of(some) <= most - less);
      const std::vector<e::Tensor> got = some.run(in);
      CHECK(difference(got[1], want[1]) == 0);
      ++met;
    } catch (const e::Error& error) {
      CHECK(error.code() == "TSR-A010");
    }
  }
  CHECK(met >= 3);
  unsetenv("FAKE_CUDA_CUDNN");
}
