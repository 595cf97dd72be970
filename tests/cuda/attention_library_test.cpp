// SPDX-License-Identifier: Apache-2.0
// Attention and its gradient through cuDNN, against the reference: shapes, operands that are read where they lie, what goes to
// the kit's kernels instead, caches and device graphs.
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "graphs_support.hpp"

using namespace tessera::test;

namespace {

std::string shape(const std::vector<int64_t>& sizes) {
  std::string out = "f32[";
  for (size_t i = 0; i < sizes.size(); ++i) out += (i ? ", " : "") + std::to_string(sizes[i]);
  return out + "]";
}
std::string on_device(std::string text) {
  for (size_t at = 0; (at = text.find(']', at)) < text.find(") {"); at += 8) text.insert(at + 1, "@cuda:0");
  return text;
}
bool holds(const std::string& plan, const std::string& part) { return plan.find(part) != std::string::npos; }

// ||a - b|| / ||b||: of gradients, whose elements are sums that cancel out in part.
double distance(const e::Tensor& a, const e::Tensor& b) {
  const e::Tensor x = a.copy_to(0), y = b.copy_to(0);
  double apart = 0, length = 0;
  for (int64_t i = 0; i < x.elements(); ++i) {
    const double p = static_cast<const float*>(x.data())[i], q = static_cast<const float*>(y.data())[i];
    apart += (p - q) * (p - q);
    length += q * q;
  }
  return x.elements() == y.elements() ? std::sqrt(apart / length) : 1e30;
}

// Runs a text on the device and by the reference and gives the device's plan.
std::string same(const e::Context& c, const std::string& text, const std::vector<std::vector<int64_t>>& sizes, double most) {
  INFO(text);
  const e::Executable device = compile(c, on_device(text)), reference = compile(host(), text);
  INFO(device.plan());
  std::vector<e::Tensor> in, want;
  for (size_t i = 0; i < sizes.size(); ++i) {
    want.push_back(numbers(sizes[i], 40 + i));
    in.push_back(want.back().copy_to(gpu()));
  }
  const std::vector<e::Tensor> got = device.run(in), expected = reference.run(want);
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("result " << i);
    CHECK(distance(got[i], expected[i]) < most);
  }
  return device.plan();
}

struct Shape {
  std::string type = "bf16";
  int64_t batch = 2, heads = 4, key_heads = 2, queries = 20, keys = 130, depth = 32, width = 32;
  bool causal = true;
  std::vector<int64_t> q() const { return {batch, heads, queries, depth}; }
  std::vector<int64_t> k() const { return {batch, key_heads, keys, depth}; }
  std::vector<int64_t> v() const { return {batch, key_heads, keys, width}; }
  std::vector<int64_t> y() const { return {batch, heads, queries, width}; }
  std::vector<std::vector<int64_t>> all() const {
    return {q(), k(), v(), y(), y()};
  }  // and y for the gradient: its own would bring its rounding along
  std::string attributes() const { return std::string(" {causal = ") + (causal ? "true" : "false") + ", scale = 0.3}\n"; }
  std::string head() const {
    std::string out = "graph @g(%q: " + shape(q()) + ", %k: " + shape(k()) + ", %v: " + shape(v()) + ", %dy: " + shape(y()) +
                      ", %p: " + shape(y()) + ") {\n";
    for (const char* name : {"q", "k", "v", "dy", "p"})
      out += std::string("  %") + name + "t = cast %" + name + " {dtype = " + type + "}\n";
    return out;
  }
};
const Shape kShapes[] = {{},
                         {"f16", 1, 3, 3, 5, 133, 16, 8, false},
                         {"bf16", 2, 4, 1, 17, 129, 64, 64, true},
                         {"f16", 1, 2, 2, 1, 140, 40, 16, false}};

std::string gradient_of(const Shape& s) {
  return s.head() + "  %y, %lse = attention_lse %qt, %kt, %vt, _" + s.attributes() +
         "  %a, %b, %c = attention_y_backward %dyt, %qt, %kt, %vt, _, %lse, %pt" + s.attributes() +
         "  %yw = cast %y {dtype = f32}\n  %aw = cast %a {dtype = f32}\n  %bw = cast %b {dtype = f32}\n"
         "  %cw = cast %c {dtype = f32}\n  return %yw, %lse, %aw, %bw, %cw\n}\n";
}
std::string forward_of(const Shape& s) {
  return s.head() + "  %y = attention %qt, %kt, %vt, _" + s.attributes() + "  %o = cast %y {dtype = f32}\n  return %o\n}\n";
}

e::Context with(const std::string& options, const std::string& more = "") {
  const std::string fake =
      options.find("cudnn") == std::string::npos ? kFakeOptions : kFakeOptions.substr(0, kFakeOptions.find("cudnn"));
  return make_context((hardware() ? "" : fake) + options, "\"cuda\", \"reference\"", "\"tessera.backend.cuda\"", more);
}

}  // namespace

TEST_CASE("cuDNN computes attention and its gradient, with grouped heads of keys, causal or not") {
  for (const Shape& s : kShapes) {
    CHECK(holds(same(cuda(), forward_of(s), s.all(), 1e-2), "cuda.cudnn.attention "));
    const std::string plan = same(cuda(), gradient_of(s), s.all(), 1e-2);
    CHECK(holds(plan, "cuda.cudnn.attention_lse "));
    CHECK(holds(plan, "cuda.cudnn.attention_y_backward "));
  }
}

TEST_CASE("what grad makes of attention goes to the library, and to the kit where the logarithms have a gradient") {
  const std::string text = R"(graph @g(%q: f32[2, 20, 16], %k: f32[2, 20, 16], %v: f32[2, 20, 16]) {
    %qt = cast %q {dtype = bf16}
    %kt = cast %k {dtype = bf16}
    %vt = cast %v {dtype = bf16}
    %y, %lse = attention_lse %qt, %kt, %vt, _
    %w = cast %y {dtype = f32}
    %w2 = mul %w, %w
    %s = reduce_sum %w2 {axes = [0, 1, 2]}
    MORE
    %dq, %dk, %dv = grad %t, %q, %k, %v
    return %dq, %dk, %dv
  })";
  const std::vector<std::vector<int64_t>> sizes(3, {2, 20, 16});
  std::string one = text, two = text;
  one.replace(one.find("MORE"), 4, "%t = neg %s");
  two.replace(two.find("MORE"), 4, "%l = reduce_sum %lse {axes = [0, 1]}\n    %t = add %s, %l");
  CHECK(holds(same(cuda(), one, sizes, 1e-2), "cuda.cudnn.attention_y_backward "));
  CHECK(holds(same(cuda(), two, sizes, 1e-2), "cuda.attention_backward"));
}

TEST_CASE("forward writes its heads last for training too, and backward reads what it wrote there") {
  const Shape s{"bf16", 2, 4, 2, 150, 150, 64, 64, true};
  const std::string text = s.head() + "  %y, %lse = attention_lse %qt, %kt, %vt, _" + s.attributes() +
                           "  %last = transpose %y {perm = [0, 2, 1, 3]}\n  %again = transpose %last {perm = [0, 2, 1, 3]}\n" +
                           "  %a, %b, %c = attention_y_backward %dyt, %qt, %kt, %vt, _, %lse, %again" + s.attributes() +
                           "  %aw = cast %a {dtype = f32}\n  %bw = cast %b {dtype = f32}\n"
                           "  %cw = cast %c {dtype = f32}\n  return %lse, %aw, %bw, %cw\n}\n";
  const std::string plan = same(with("", "[fuse]\nthrough_views = true\n"), text, s.all(), 2e-2);
  INFO(plan);
  CHECK(holds(plan, "cuda.cudnn.attention_lse "));
  CHECK(holds(plan, "cuda.cudnn.attention_y_backward "));
  CHECK(plan.find("fused_transpose") == std::string::npos);
  CHECK(plan.find("copy") == std::string::npos);
}

TEST_CASE("the library reads heads where they lie in a tensor of queries, keys and values, and writes them last") {
  // One of an odd stride is read from a copy of its own.
  for (const int64_t pad : {0, 3}) {
    const std::string text = attention_of_projection(140, pad,
                                                     "  %last = transpose %y {perm = [0, 2, 1, 3]}\n"
                                                     "  %flat = reshape %last {shape = [2, 140, 64]}\n"
                                                     "  %o = cast %flat {dtype = f32}\n  return %o\n");
    const std::string plan = same(with("", "\n[fuse]\nthrough_views = true\n"), text, {{2, 140, 3 * 64 + pad}}, 1e-2);
    INFO(plan);
    CHECK(holds(plan, "cuda.cudnn.attention"));
    CHECK_FALSE(holds(plan, "copy "));
  }
}

TEST_CASE("masks, few keys, symbolic sizes and other types are left to the kit") {
  const Shape s;
  std::string masked = forward_of(s);
  masked.replace(masked.find("graph @g("), 9, "graph @g(%m: f32[20, 130], ");
  masked.replace(masked.find("%vt, _"), 6, "%vt, %mt");
  masked.insert(masked.find("  %y ="), "  %mt = cast %m {dtype = bf16}\n");
  std::vector<std::vector<int64_t>> sizes = s.all();
  sizes.insert(sizes.begin(), {20, 130});
  CHECK_FALSE(holds(same(cuda(), masked, sizes, 1e-2), "cudnn"));
  std::string open = forward_of(s);
  for (size_t at = 0; (at = open.find("20, 32]", at)) != std::string::npos;) open.replace(at, 2, "s0");
  CHECK_FALSE(holds(same(cuda(), open, s.all(), 1e-2), "cudnn"));
  Shape few = s;  // keys: a launch of the library takes longer
  few.keys = 20;
  CHECK_FALSE(holds(same(cuda(), forward_of(few), few.all(), 1e-2), "cudnn"));
  CHECK(holds(same(cuda(), gradient_of(few), few.all(), 1e-2), "cuda.cudnn.attention_y_backward "));
  Shape wide = s;
  wide.type = "f32";
  CHECK_FALSE(holds(same(cuda(), forward_of(wide), wide.all(), 1e-4), "cudnn"));
}

TEST_CASE("without the library, and where it refuses, the kit computes attention") {
  const Shape s;
  const e::Context none = with("cudnn = \"off\"\n");
  CHECK(holds(same(none, forward_of(s), s.all(), 1e-2), "cuda.attention"));
  const std::string plan = same(none, gradient_of(s), s.all(), 1e-2);
  CHECK(holds(plan, "cuda.attention_backward"));
  CHECK_FALSE(holds(plan, "cudnn"));
  if (hardware()) return;
  setenv("FAKE_CUDA_CUDNN", "refuse", 1);
  Shape other;  // what the library said of a problem is kept
  other.queries = 21;
  const std::string refused = same(cuda(), gradient_of(other), other.all(), 1e-2);
  unsetenv("FAKE_CUDA_CUDNN");
  CHECK_FALSE(holds(refused, "cudnn"));
}

TEST_CASE("sums in any order are taken on request only, and then nothing promises equal bits") {
  const Shape s;
  const e::Context any = with("any_order = true\n");
  CHECK(holds(same(any, gradient_of(s), s.all(), 1e-2), "cuda.cudnn.attention_y_backward "));
  e::ContextOptions strict;
  strict.config_text =
      "deterministic = true\n[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.text\", "
      "\"tessera.backend.cuda\"]\n[backends]\norder = [\"cuda\"]\n[cuda]\n" +
      (hardware() ? "" : kFakeOptions);
  strict.plugin_dirs = {plugin_directory()};
  CHECK(error_of([&] { (void)compile(e::Context(strict), on_device(gradient_of(s))); }) == "");
  strict.config_text += "any_order = true\n";
  CHECK(error_of([&] { (void)compile(e::Context(strict), on_device(gradient_of(s))); }).starts_with("TSR-R027"));
}

TEST_CASE("a device graph holds the library's attention, and its inputs may move") {
  const Place place("cuda", "min_steps = 1\n");
  const Shape s;
  const std::string text = on_device(gradient_of(s));
  const e::Executable graph = compile(*place.graphs, text), steps = compile(*place.steps, text);
  CHECK(holds(graph.plan(), "cuda.cudnn.attention_y_backward "));
  for (uint64_t run = 0; run < 3; ++run) {
    std::vector<e::Tensor> in;
    for (size_t i = 0; i < s.all().size(); ++i) in.push_back(place.on(numbers(s.all()[i], 10 * run + i)));
    const std::vector<e::Tensor> got = graph.run(in), want = steps.run(in);
    for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], want[i]));
  }
}

TEST_CASE("plans of attention come out of the cache, and nobody asks the library's heuristic again") {
  if (hardware()) return;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tessera_attention_" + std::to_string(getpid()));
  Shape s;
  s.queries = 22;
  const auto plan = [&](const std::string& path) {
    const e::Context c = make_context(kFakeOptions, "\"cuda\", \"reference\"",
                                      "\"tessera.backend.cuda\", \"tessera.store.disk\"", "[disk]\npath = \"" + path + "\"\n");
    return same(c, gradient_of(s), s.all(), 1e-2);
  };
  CHECK(holds(plan(folder.string()), "cuda.cudnn.attention_y_backward "));
  setenv("FAKE_CUDA_CUDNN", "engineless", 1);
  CHECK(holds(plan(folder.string()), "cuda.cudnn.attention_y_backward "));
  CHECK_FALSE(holds(plan((folder / "other").string()), "cudnn"));
  unsetenv("FAKE_CUDA_CUDNN");
  std::filesystem::remove_all(folder);
}
