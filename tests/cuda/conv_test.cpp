// SPDX-License-Identifier: Apache-2.0
// Convolutions and products with what follows them, through the libraries, against the reference.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "support.hpp"

using namespace tessera::test;

namespace {

std::string on_device(std::string text) {
  for (size_t at = 0; (at = text.find(']', at)) < text.find(") {"); at += 8) text.insert(at + 1, "@cuda:0");
  return text;
}
size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

const e::Context& with_channels_last() {
  static const e::Context c = make_context(hardware() ? "" : kFakeOptions, "\"cuda\", \"reference\"",
                                           "\"tessera.backend.cuda\"", "\n[fuse]\nchannels_last = true\n");
  return c;
}

// A constant of small whole numbers, as text.
std::string dense(const std::vector<int64_t>& shape) {
  std::string out = "dense<f32[";
  int64_t count = 1;
  for (size_t d = 0; d < shape.size(); ++d) out += (d ? ", " : "") + std::to_string(shape[d]), count *= shape[d];
  out += "]: [";
  for (int64_t i = 0; i < count; ++i) out += (i ? ", " : "") + std::to_string(i * 37 % 19 - 9);
  return out + "]>";
}

// In the 2-norm: what follows a product or a convolution is rounded once with it, where the reference rounds in between.
double distance(const e::Tensor& a, const e::Tensor& b) {
  const e::Tensor x = a.copy_to(0), y = b.copy_to(0);
  double d = 0, n = 0;
  for (int64_t i = 0; i < y.elements(); ++i) {
    const double p = static_cast<const float*>(x.data())[i], q = static_cast<const float*>(y.data())[i];
    d += (p - q) * (p - q), n += q * q;
  }
  return std::sqrt(d / n);  // NaN where anything is
}

// Runs on the device and on the reference; gives the device's plan.
std::string same(const e::Context& c, const std::string& text, const std::vector<std::vector<int64_t>>& sizes, double bound) {
  INFO(text);
  const e::Executable device = compile(c, on_device(text)), reference = compile(host(), text);
  std::vector<e::Tensor> in, want;
  for (size_t i = 0; i < sizes.size(); ++i) {
    want.push_back(numbers(sizes[i], 3 + i));
    in.push_back(want.back().copy_to(gpu()));
  }
  const std::vector<e::Tensor> a = device.run(in), b = reference.run(want);
  INFO(device.plan());
  for (size_t i = 0; i < a.size(); ++i) CHECK(distance(a[i], b[i]) < bound);
  return device.plan();
}

const char* const kBlock =
    R"(graph @g(%x: f32[2, 8, 9, 7], %w1: f32[16, 8, 3, 3], %b1: f32[16], %w2: f32[8, 16, 1, 1], %b2: f32[8], %w3: f32[8, 8, 3, 3]) {
    %xh = cast %x {dtype = TYPE}
    %w1h = cast %w1 {dtype = TYPE}
    %b1h = cast %b1 {dtype = TYPE}
    %w2h = cast %w2 {dtype = TYPE}
    %b2h = cast %b2 {dtype = TYPE}
    %w3h = cast %w3 {dtype = TYPE}
    %c1 = conv %xh, %w1h, %b1h {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}
    %r1 = relu %c1
    %c2 = conv %r1, %w2h, %b2h {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}
    %s = add %c2, %xh
    %r2 = relu %s
    %c3 = conv %r2, %w3h, _ {strides = [2, 2], pad_low = [1, 0], pad_high = [1, 2], dilations = [1, 1]}
    %y = cast %c3 {dtype = f32}
    return %y
  })";
std::string block(const std::string& type) {
  std::string text = kBlock;
  for (size_t at = 0; (at = text.find("TYPE", at)) != std::string::npos;) text.replace(at, 4, type);
  return text;
}
const std::vector<std::vector<int64_t>> kBlockSizes = {{2, 8, 9, 7}, {16, 8, 3, 3}, {16}, {8, 16, 1, 1}, {8}, {8, 8, 3, 3}};

}  // namespace

TEST_CASE("a block of convolutions goes to the libraries with its channels last, bias, residual and relu included") {
  for (const char* type : {"bf16", "f16", "f32"}) {
    const std::string plan = same(with_channels_last(), block(type), kBlockSizes, std::string(type) == "f32" ? 1e-6 : 6e-3);
    INFO(plan);
    if (hardware() && std::string(type) == "f32") continue;  // the library may have no engine that keeps all bits
    CHECK(plan.find("cuda.cudnn.conv.bias.relu") != std::string::npos);
    CHECK(plan.find("cuda.cublaslt.conv.bias.residual.relu") != std::string::npos);
    CHECK(count(plan, "cuda.cudnn.conv ") == 1);
  }
}

TEST_CASE("without a pass that turns the layouts, and without the library, convolutions give the same") {
  const std::string plan = same(cuda(), block("bf16"), kBlockSizes, 6e-3);
  CHECK(plan.find("cuda.cudnn.conv.bias.relu") != std::string::npos);
  const e::Context none =
      make_context((hardware() ? "" : kFakeOptions.substr(0, kFakeOptions.find("cudnn"))) + "cudnn = \"off\"\n",
                   "\"cuda\", \"reference\"", "\"tessera.backend.cuda\"", "\n[fuse]\nchannels_last = true\n");
  const std::string own = same(none, block("bf16"), kBlockSizes, 6e-3);
  CHECK(own.find("cudnn") == std::string::npos);
  CHECK(own.find("cublaslt.conv") == std::string::npos);
}

TEST_CASE("a convolution that the library refuses is computed by a kernel of the kit") {
  if (hardware()) return;
  setenv("FAKE_CUDA_CUDNN", "refuse", 1);
  // Sizes of its own: what the library said of others is kept.
  std::string text = block("bf16");
  for (size_t at = 0; (at = text.find("9, 7", at)) != std::string::npos;) text.replace(at, 4, "8, 6");
  std::vector<std::vector<int64_t>> sizes = kBlockSizes;
  sizes[0] = {2, 8, 8, 6};
  const std::string plan = same(with_channels_last(), text, sizes, 6e-3);
  unsetenv("FAKE_CUDA_CUDNN");
  CHECK(plan.find("cudnn") == std::string::npos);
}

TEST_CASE("groups, dilation and a result that several read stay right with the channels last") {
  same(with_channels_last(), R"(graph @g(%x: f32[1, 8, 10, 10], %w: f32[8, 4, 3, 3], %v: f32[4, 8, 1, 1], %b: f32[1, 8, 1, 1]) {
    %c = conv %x, %w, _ {strides = [1, 1], pad_low = [2, 2], pad_high = [2, 2], dilations = [2, 2], groups = 2}
    %s = add %c, %b
    %d = conv %s, %v, _ {strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}
    %m, %i = max_pool %s {kernel = [2, 2], strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}
    %f = conv %m, %v, _ {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}
    %y = mul %d, %f
    return %y, %s
  })",
       {{1, 8, 10, 10}, {8, 4, 3, 3}, {4, 8, 1, 1}, {1, 8, 1, 1}}, 1e-6);
}

TEST_CASE("a product takes its bias and activation along") {
  const std::string text = R"(graph @g(%x: f32[3, 5, 16], %w: f32[24, 16], %b: f32[24], %r: f32[3, 5, 24]) {
    %xt = cast %x {dtype = TYPE}
    %wt = cast %w {dtype = TYPE}
    %bt = cast %b {dtype = TYPE}
    %rt = cast %r {dtype = TYPE}
    %l = linear %xt, %wt, %bt
    %a = add %l, %rt
    %g = relu %a
    %l2 = linear %xt, %wt, _
    %h = gelu %l2 {approximate = "tanh"}
    %s = add %g, %h
    %y = cast %s {dtype = f32}
    return %y
  })";
  for (const char* type : {"bf16", "f32"}) {
    std::string t = text;
    for (size_t at = 0; (at = t.find("TYPE", at)) != std::string::npos;) t.replace(at, 4, type);
    const std::string plan =
        same(cuda(), t, {{3, 5, 16}, {24, 16}, {24}, {3, 5, 24}}, std::string(type) == "f32" ? 1e-6 : 6e-3);
    INFO(plan);
    CHECK(plan.find("cuda.cublaslt.dot_general.bias.residual.relu") != std::string::npos);
    CHECK(plan.find("cuda.cublaslt.dot_general.gelu") != std::string::npos);
  }
}

TEST_CASE("attention writes its heads where the next product reads them, and reads the keys as an exporter writes them") {
  const std::string text =
      R"(graph @g(%x: f32[2, 70, 4, 32], %k: f32[2, 70, 4, 32], %v: f32[2, 70, 4, 32], %m: f32[2, 1, 1, 70]) {
    %xh = cast %x {dtype = bf16}
    %kh = cast %k {dtype = bf16}
    %vh = cast %v {dtype = bf16}
    %mh = cast %m {dtype = bf16}
    %q = transpose %xh {perm = [0, 2, 1, 3]}
    %kk = transpose %kh {perm = [0, 2, 1, 3]}
    %vv = transpose %vh {perm = [0, 2, 1, 3]}
    %a = attention %q, %kk, %vv, %mh
    %t = transpose %a {perm = [0, 2, 1, 3]}
    %r = reshape %t {shape = [140, 128]}
    %y = cast %r {dtype = f32}
    return %y
  })";
  const e::Context c = make_context(hardware() ? "" : kFakeOptions, "\"cuda\", \"reference\"", "\"tessera.backend.cuda\"",
                                    "\n[fuse]\nthrough_views = true\n");
  const std::string plan = same(c, text, {{2, 70, 4, 32}, {2, 70, 4, 32}, {2, 70, 4, 32}, {2, 1, 1, 70}}, 6e-3);
  INFO(plan);
  CHECK(plan.find("cuda.fused_attention_transpose") != std::string::npos);
  CHECK(plan.find("copy ") == std::string::npos);
}

TEST_CASE("an activation comes along through a reshape, and columns are filled up to whole vectors") {
  const std::string text = "graph @g(%x: f32[3, 4, 2]) {\n  %wf = constant {value = " + dense({2, 1027}) + R"(}
    %w = cast %wf {dtype = bf16}
    %xh = cast %x {dtype = bf16}
    %f = reshape %xh {shape = [12, 2]}
    %d = dot_general %f, %w {lhs_contract = [1], rhs_contract = [0]}
    %s = reshape %d {shape = [3, 4, 1027]}
    %g = gelu %s {approximate = "tanh"}
    %y = cast %g {dtype = f32}
    return %y
  })";
  for (const char* options : {"through_views = true\n", "column_multiple = 8\n"}) {
    const e::Context c = make_context(hardware() ? "" : kFakeOptions, "\"cuda\", \"reference\"", "\"tessera.backend.cuda\"",
                                      std::string("\n[fuse]\n") + options);
    const std::string plan = same(c, text, {{3, 4, 2}}, 6e-3);
    INFO(plan);
    if (std::string(options).starts_with("through")) CHECK(plan.find("cuda.cublaslt.dot_general.gelu") != std::string::npos);
  }
}

TEST_CASE("convolutions of images are written in words that fill vectors") {
  const std::string stem =
      "graph @g(%x: f32[2, 3, 20, 18], %b: f32[8]) {\n  %w = constant {value = " + dense({8, 3, 7, 7}) + R"(}
    %c = conv %x, %w, %b {strides = [2, 2], pad_low = [3, 2], pad_high = [3, 3], dilations = [1, 1]}
    %r = relu %c
    %m, %i = max_pool %r {kernel = [3, 3], strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}
    %y = mean %m {axes = [2, 3]}
    return %y, %m
  })";
  same(with_channels_last(), stem, {{2, 3, 20, 18}, {8}}, 1e-6);
  const std::string patches = R"(graph @g(%x: f32[2, 3, 8, 12], %w: f32[16, 3, 4, 4], %b: f32[16]) {
    %c = conv %x, %w, %b {strides = [4, 4], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}
    return %c
  })";
  const std::string plan = same(with_channels_last(), patches, {{2, 3, 8, 12}, {16, 3, 4, 4}, {16}}, 1e-6);
  CHECK(plan.find("cuda.cublaslt.dot_general") != std::string::npos);
}
