// SPDX-License-Identifier: Apache-2.0
// Attention whose scores are modified, as one kernel of the cpu backend, beside the same graph node by node on the reference.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cpu_models.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

using Json = nlohmann::json;

struct Sizes {
  int64_t batch, heads, queries, keys, depth, values;
};
// Fewer queries than a panel, and a panel and some more; keys in one block and in several; lengths that no vector divides.
constexpr Sizes kSizes[] = {{1, 2, 8, 16, 8, 8}, {2, 3, 37, 50, 16, 5}, {1, 2, 70, 1301, 8, 17}, {3, 1, 129, 512, 24, 40}};

struct Input {
  std::string type;           // of sizes B, H, Q, K, R = Q + K - 1 and numbers
  int64_t low = 0, high = 0;  // of integers
};

struct Program {
  const char* name;
  std::vector<Input> inputs;  // %c0, %c1, ..
  const char* body;           // from %s to %x
  // How far a score may be from that of the reference, which computes functions in f64: in units of 2^-24. All other ops round
  // alike.
  double apart = 0;
};

constexpr const char* kPositions =
    "  %iq = iota {shape = [Q, 1], axis = 0, dtype = i64}\n  %ik = iota {shape = [1, K], axis = 1, dtype = i64}\n";
constexpr const char* kHidden = "  %inf = constant {value = dense<f32[]: -inf>}\n";

std::vector<Program> programs() {
  return {
      // tanh of at most 2, a unit off, times 2: 4 units of 2^-24 beside 1, and their rounding.
      {"softcap", {{"f32[]"}}, "  %a = div %s, %c0\n  %t = tanh %a\n  %x = mul %t, %c0\n", 4 * 2},
      {"ALiBi",
       {{"f32[H, 1, 1]"}},
       "P  %d = sub %ik, %iq\n  %f = cast %d {dtype = f32}\n  %b = mul %f, %c0\n  %x = add %s, %b\n"},
      {"relative bias",
       {{"f32[R, H]"}},
       "P  %d = sub %ik, %iq\n  %o = constant {value = dense<i64[]: Q1>}\n  %i = add %d, %o\n  %g = gather %c0, %i {axis = 0}\n"
       "  %b = transpose %g {perm = [2, 0, 1]}\n  %x = add %s, %b\n"},
      {"causal window",
       {{"i64[]", 5, 6}},
       "PN  %d = sub %iq, %ik\n  %z = constant {value = dense<i64[]: 0>}\n  %m0 = ge %d, %z\n  %m1 = le %d, %c0\n"
       "  %m = logical_and %m0, %m1\n  %x = select %m, %s, %inf\n"},
      {"documents",
       {{"i64[B, Q]", 0, 2}, {"i64[B, K]", 0, 2}},
       "N  %u = reshape %c0 {shape = [B, 1, Q, 1]}\n  %w = reshape %c1 {shape = [B, 1, 1, K]}\n  %m = eq %u, %w\n"
       "  %x = select %m, %s, %inf\n"},
      {"a bias of all, and a cap",
       {{"f32[B, H, Q, K]"}, {"f32[H, 1, 1]"}},
       "  %a = add %s, %c0\n  %t = tanh %a\n  %x = mul %t, %c1\n",
       2},
      {"a bias that lies with its keys first", {{"f32[K, Q]"}}, "  %t = transpose %c0 {perm = [1, 0]}\n  %x = add %s, %t\n"},
      {"heads by batch and back",
       {{"f32[B, 1, 1, K]"}},
       "  %r = reshape %s {shape = [BH, Q, K]}\n  %z = constant {value = dense<f32[]: 0.5>}\n  %h = mul %r, %z\n"
       "  %w1 = reshape %h {shape = [B, H, Q, K]}\n  %x = add %w1, %c0\n"},
      {"nothing but a scale", {}, "  %z = constant {value = dense<f32[]: 0.25>}\n  %x = mul %s, %z\n"},
      {"nothing", {}, "  %x = add %s, %s\n"},
  };
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
}
std::string sized(std::string text, const Sizes& s) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  replace(text, "Q1", number(s.queries - 1));
  replace(text, "BH", number(s.batch * s.heads));
  for (const auto& [name, n] : {std::pair<const char*, int64_t>{"B", s.batch},
                                {"H", s.heads},
                                {"Q", s.queries},
                                {"K", s.keys},
                                {"R", s.queries + s.keys - 1}})
    for (const char* before : {"[", " "})
      for (const char* after : {"]", ","}) replace(text, std::string(before) + name + after, before + number(n) + after);
  return text;
}

// Guards: "" for softmax alone, "is_nan", "eq".
std::string text_of(const Program& p, const Sizes& s, const std::string& guard = "") {
  const std::vector<int64_t> q = {s.batch, s.heads, s.queries, s.depth}, k = {s.batch, s.heads, s.keys, s.depth},
                             v = {s.batch, s.heads, s.keys, s.values};
  std::string text = "graph @g(%q: " + type("f32", q) + ", %k: " + type("f32", k) + ", %v: " + type("f32", v);
  for (size_t i = 0; i < p.inputs.size(); ++i) text += ", %c" + std::to_string(i) + ": " + sized(p.inputs[i].type, s);
  std::string body = p.body;
  if (body[0] == 'P') body = kPositions + body.substr(1);
  if (const size_t at = body.find("N "); at != body.npos) body = kHidden + body.erase(at, 1);
  text += ") {\n  %kt = transpose %k {perm = [0, 1, 3, 2]}\n  %s = matmul %q, %kt\n" + sized(body, s) +
          "  %p = softmax %x {axis = -1}\n";
  if (guard == "is_nan")
    text += "  %n = is_nan %p\n  %zero = constant {value = dense<f32[]: 0.0>}\n  %p1 = select %n, %zero, %p\n";
  else if (guard == "eq")
    text +=
        "  %top = reduce_max %x {axes = [3], keepdims = true}\n  %low = constant {value = dense<f32[]: -inf>}\n"
        "  %n = eq %top, %low\n  %zero = constant {value = dense<f32[]: 0.0>}\n  %p1 = select %n, %zero, %p\n";
  return text + "  %y = matmul " + (guard.empty() ? "%p" : "%p1") + ", %v\n  return %y\n}\n";
}

std::vector<e::Tensor> inputs_of(const e::Executable& x, const Program& p, Layout layout, uint64_t seed = 1) {
  std::vector<e::Tensor> out;
  const tsr_tables& t = x.tables();
  const tsr_region* region = TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  std::mt19937_64 random(seed);
  for (uint32_t i = 0; i < region->num_inputs; ++i) {
    const tsr_type& type = *TSR_AT(tsr_value, t.values, t.value_stride, region->inputs[i])->type;
    const std::vector<int64_t> sizes(type.sizes, type.sizes + type.rank);
    int64_t n = 1;
    for (const int64_t d : sizes) n *= d;
    const bool whole = type.dtype == TSR_I64;
    std::vector<char> bytes(static_cast<size_t>(n) * dtype_bits(type.dtype) / 8);
    for (int64_t j = 0; j < n; ++j) {
      const Input in = i >= 3 ? p.inputs[i - 3] : Input{};
      const double number =
          whole ? static_cast<double>(in.low + static_cast<int64_t>(random() % static_cast<uint64_t>(in.high - in.low)))
          : type.rank == 0 ? 2.0
                           : static_cast<double>(static_cast<int64_t>(random() % 129) - 64) / 64;
      store_from(type.dtype, bytes.data(), j, number);
    }
    out.push_back(arrange(type.dtype, sizes, bytes, layout));
  }
  return out;
}

void near(const e::Tensor& got, const e::Tensor& want, double bound) {
  REQUIRE(got.elements() == want.elements());
  const uint32_t dtype = want.dtype();
  // Both round once to a half: neighbours at most.
  const double part = dtype == TSR_BF16 ? 0x1p-7 : dtype == TSR_F16 ? 0x1p-10 : 0;
  double worst = 0;
  int64_t nan = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double g = load_as<double>(dtype, got.data(), i), w = load_as<double>(dtype, want.data(), i);
    if (std::isnan(g) != std::isnan(w)) ++nan;
    if (!std::isnan(w)) worst = std::max(worst, std::abs(g - w) - part * std::abs(w));
  }
  CHECK(nan == 0);
  CHECK(worst <= bound);
}

// Scores but for `apart` are equal: products of small fractions are exact, and so are their sums. A weight then is off by the
// part by which exp is, and by `apart`; the sums of weights and of values, which are at most 1, by a rounding per key at most.
double bound_of(const Program& p, const Sizes& s) { return (2 * static_cast<double>(s.keys) + 16 + 2 * p.apart) * 0x1p-24; }

std::string fused(const std::string& backend, const char* more = "") {
  return "cpu+fuse" + std::string(more) + backend.substr(3);
}

}  // namespace

TEST_CASE("modified scores stay in the attention kernel, on every instruction set") {
  for (const Program& p : programs())
    for (const Sizes& s : kSizes) {
      const std::string text = text_of(p, s);
      INFO(p.name << "\n" << text);
      const e::Executable reference = compile(text, "reference");
      for (const std::string& backend : cpu_backends()) {
        INFO(backend);
        const e::Executable x = compile(text, fused(backend));
        CHECK(x.describe().find("\"cpu.attention_") != std::string::npos);
        for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced}) {
          if (s.keys > 1000 && layout != Layout::Dense) continue;  // the reference takes long
          INFO(layout_name(layout));
          const std::vector<e::Tensor> in = inputs_of(reference, p, layout);
          near(x.run(in)[0], reference.run(in)[0], bound_of(p, s));
        }
      }
    }
}

TEST_CASE("modified scores give the same bits on any number of threads") {
  for (const Program& p : programs()) {
    const Sizes s{2, 3, 200, 600, 64, 64};
    const std::string text = text_of(p, s);
    INFO(p.name);
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const e::Executable one = compile(text, fused(backend, "+threads1")), three = compile(text, fused(backend, "+threads3"));
      const std::vector<e::Tensor> in = inputs_of(one, p, Layout::Dense);
      const e::Tensor a = one.run(in)[0], b = three.run(in)[0];
      CHECK(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.elements()) * 4) == 0);
    }
  }
}

TEST_CASE("queries that see no key give what the graph says") {
  // Queries of document 0 see nothing.
  const Program p{"documents", {{"i64[B, Q]", 0, 3}, {"i64[B, K]", 1, 3}}, programs()[4].body};
  for (const Sizes& s : {Sizes{2, 3, 37, 50, 16, 5}, Sizes{1, 2, 40, 1301, 8, 17}})
    for (const std::string guard : {"", "is_nan", "eq"}) {
      const std::string text = text_of(p, s, guard);
      INFO(text);
      const e::Executable reference = compile(text, "reference");
      std::vector<e::Tensor> in = inputs_of(reference, p, Layout::Dense);
      // One query's scores are NaN as well: is_nan hides that, eq does not.
      store_from(TSR_F32, const_cast<void*>(in[0].data()), 3, std::numeric_limits<float>::quiet_NaN());
      store_from(TSR_I64, const_cast<void*>(in[3].data()), 0, 1.0);
      const e::Tensor want = reference.run(in)[0];
      int64_t nan = 0, zero = 0;
      for (int64_t i = 0; i < want.elements(); ++i) {
        nan += std::isnan(load_as<float>(TSR_F32, want.data(), i));
        zero += load_as<float>(TSR_F32, want.data(), i) == 0;
      }
      CHECK((nan > 0) == (guard != "is_nan"));
      CHECK((zero > s.values) == !guard.empty());
      for (const std::string& backend : cpu_backends()) {
        INFO(backend);
        const e::Executable x = compile(text, fused(backend));
        CHECK(x.describe().find("\"cpu.attention_") != std::string::npos);
        near(x.run(in)[0], want, bound_of(p, s));
      }
    }
}

TEST_CASE("values of hidden keys count where they are not finite, and 0 times infinity is NaN") {
  const Program p = programs()[3];  // a causal window
  const Sizes s{1, 2, 40, 1301, 8, 17};
  const std::string text = text_of(p, s);
  const e::Executable reference = compile(text, "reference");
  std::vector<e::Tensor> in = inputs_of(reference, p, Layout::Dense);
  // Of the last key, which no query sees, and of one in a block of which some do.
  store_from(TSR_F32, const_cast<void*>(in[2].data()), 17 * 1300 + 2, std::numeric_limits<float>::infinity());
  store_from(TSR_F32, const_cast<void*>(in[2].data()), 17 * (1301 + 100) + 5, std::numeric_limits<float>::quiet_NaN());
  const e::Tensor want = reference.run(in)[0];
  int64_t nan = 0;
  for (int64_t i = 0; i < want.elements(); ++i) nan += std::isnan(load_as<float>(TSR_F32, want.data(), i));
  CHECK(nan == 2 * s.queries);
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    near(compile(text, fused(backend)).run(in)[0], want, bound_of(p, s));
  }
}

TEST_CASE("what masks of attention are made of stays in its kernel") {
  struct Mask {
    const char* name;
    std::vector<Input> inputs;
    const char* body;  // to %m
    const char* attributes;
  };
  const Mask masks[] = {
      {"ALiBi", {{"f32[H, 1, 1]"}}, "P  %d = sub %ik, %iq\n  %f = cast %d {dtype = f32}\n  %m = mul %f, %c0\n", ""},
      {"window", {{"i64[]", 5, 6}}, "P  %d = sub %iq, %ik\n  %a = abs %d\n  %m = le %a, %c0\n", "{causal = true}"},
      {"documents and a bias",
       {{"i64[B, Q]", 0, 2}, {"i64[B, K]", 0, 2}, {"f32[Q, K]"}},
       "N  %u = reshape %c0 {shape = [B, 1, Q, 1]}\n  %w = reshape %c1 {shape = [B, 1, 1, K]}\n  %e = eq %u, %w\n"
       "  %m = select %e, %c2, %inf\n",
       "{scale = 0.5}"},
  };
  for (const Mask& m : masks)
    for (const Sizes& s : kSizes)
      for (const std::string dtype : {"f32", "bf16", "f16"}) {
        if (dtype != "f32" && s.keys > 1000) continue;  // the reference takes long
        const Program p{m.name, m.inputs, m.body};
        std::string text = text_of(p, s);
        const size_t end = text.find("  %p = softmax"), scores = text.find("  %kt ");
        text = text.substr(0, end) + "  %y = attention %q, %k, %v, %m " + m.attributes + "\n  return %y\n}\n";
        text.erase(scores, text.find('\n', text.find("  %s = ")) + 1 - scores);
        replace(text, "f32", dtype);
        INFO(text);
        const e::Executable reference = compile(text, "reference");
        const std::vector<e::Tensor> in = inputs_of(reference, p, Layout::Dense);
        const e::Tensor want = reference.run(in)[0];
        for (const std::string& backend : cpu_backends()) {
          INFO(backend);
          const e::Executable x = compile(text, fused(backend));
          CHECK(x.describe().find("\"cpu.attention_") != std::string::npos);
          near(x.run(in)[0], want, bound_of(p, s));
        }
      }
}

TEST_CASE("heads that share keys and values, and batches that broadcast") {
  struct Shared {
    std::vector<int64_t> q, k, v;
    const char* keys;    // from %k to %kt
    const char* values;  // from %v to %w
    bool where_they_lie;
  };
  const Shared cases[] = {
      {{2, 6, 40, 16},
       {2, 2, 50, 16},
       {2, 2, 50, 24},
       "  %k1 = expand_dims %k {axes = [2]}\n  %k2 = broadcast_to %k1 {shape = [2, 2, 3, 50, 16]}\n"
       "  %k3 = reshape %k2 {shape = [2, 6, 50, 16]}\n  %kt = transpose %k3 {perm = [0, 1, 3, 2]}\n",
       "  %v1 = reshape %v {shape = [2, 2, 1, 50, 24]}\n  %v2 = broadcast_to %v1 {shape = [2, 2, 3, 50, 24]}\n"
       "  %w = reshape %v2 {shape = [2, 6, 50, 24]}\n",
       true},
      // One head for all of them.
      {{2, 6, 40, 16},
       {2, 1, 50, 16},
       {2, 1, 50, 24},
       "  %k1 = expand_dims %k {axes = [2]}\n  %k2 = broadcast_to %k1 {shape = [2, 1, 6, 50, 16]}\n"
       "  %k3 = reshape %k2 {shape = [2, 6, 50, 16]}\n  %kt = transpose %k3 {perm = [0, 1, 3, 2]}\n",
       "  %w = neg %v\n",
       true},
      // The other order of heads: head h has keys h mod 2.
      {{2, 6, 40, 16},
       {2, 2, 50, 16},
       {2, 1, 50, 24},
       "  %k1 = expand_dims %k {axes = [1]}\n  %k2 = broadcast_to %k1 {shape = [2, 3, 2, 50, 16]}\n"
       "  %k3 = reshape %k2 {shape = [2, 6, 50, 16]}\n  %kt = transpose %k3 {perm = [0, 1, 3, 2]}\n",
       "  %w = neg %v\n",
       false},
      {{2, 6, 40, 16}, {6, 50, 16}, {2, 1, 50, 24}, "  %kt = transpose %k {perm = [0, 2, 1]}\n", "  %w = neg %v\n", true},
      {{1, 6, 40, 16}, {2, 1, 50, 16}, {1, 50, 24}, "  %kt = transpose %k {perm = [0, 1, 3, 2]}\n", "  %w = neg %v\n", true},
      {{40, 16}, {50, 16}, {50, 24}, "  %kt = transpose %k {perm = [1, 0]}\n", "  %w = neg %v\n", true},
  };
  for (const Shared& c : cases) {
    const std::string text = "graph @g(%q: " + type("f32", c.q) + ", %k: " + type("f32", c.k) + ", %v: " + type("f32", c.v) +
                             ") {\n" + c.keys + c.values +
                             "  %s = matmul %q, %kt\n  %x = tanh %s\n  %p = softmax %x {axis = -1}\n"
                             "  %y = matmul %p, %w\n  return %y\n}\n";
    INFO(text);
    const Program p{"", {}, "", 2};
    const e::Executable reference = compile(text, "reference");
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const e::Executable x = compile(text, fused(backend));
      CHECK(x.describe().find("\"cpu.attention_tanh") != std::string::npos);
      CHECK((Json::parse(x.describe()).at("steps").dump().find("broadcast_to") == std::string::npos) == c.where_they_lie);
      for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced}) {
        const std::vector<e::Tensor> in = inputs_of(reference, p, layout);
        near(x.run(in)[0], reference.run(in)[0], bound_of(p, {1, 1, 40, 50, 16, 24}));
      }
    }
  }
}

TEST_CASE("biases and masks that all items of a batch share are made in the loop over them") {
  for (const Program& p : programs()) {
    const Sizes s{2, 3, 70, 90, 16, 16};
    INFO(p.name);
    const std::string text = text_of(p, s);
    const e::Executable reference = compile(text, "reference");
    const std::vector<e::Tensor> in = inputs_of(reference, p, Layout::Dense);
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const e::Executable x = compile(text, fused(backend, "+map"));
      int kernels = 0;
      const Json plan = Json::parse(x.describe());
      REQUIRE(plan.at("steps").dump().find("\"scan\"") != std::string::npos);
      for (const Json& step : plan.at("steps")) kernels += step.at("kind") == "kernel";
      CHECK(kernels == 0);
      CHECK(plan.at("steps").dump().find("\"cpu.attention_") != std::string::npos);
      near(x.run(in)[0], reference.run(in)[0], bound_of(p, s));
    }
  }
}

TEST_CASE("memory does not grow with the scores") {
  const Program p = programs()[1];
  const Sizes s{1, 4, 1024, 1024, 16, 16};
  const int64_t scores = 4 * s.heads * s.queries * s.keys;
  for (const std::string& backend : cpu_backends()) {
    const auto arena = [&](const std::string& b) {
      return Json::parse(compile(text_of(p, s), b).describe()).at("memory").at("arena_bytes").get<int64_t>();
    };
    CHECK(arena(fused(backend, "+threads1")) < scores / 16);
    CHECK(arena(backend) >= scores);
  }
}

TEST_CASE("captured tensors are inputs, sizes may be symbols, and no tensor has the size of the scores") {
  const std::string text =
      "graph @g(%q: f32[s0, 2, s1, 16], %k: f32[s0, 2, s2, 16], %v: f32[s0, 2, s2, 16], %c0: f32[2, 1, 1], %c1: i64[s1], %c2: "
      "i64[s2]) symbols { s0: 1..; s1: 8..; s2: 1.. } {\n"
      "  %kt = transpose %k {perm = [0, 1, 3, 2]}\n  %s = matmul %q, %kt\n"
      "  %u = reshape %c1 {shape = [s1, 1]}\n  %d = sub %u, %c2\n  %f = cast %d {dtype = f32}\n  %b = mul %f, %c0\n"
      "  %x = add %s, %b\n  %p = softmax %x {axis = -1}\n  %y = matmul %p, %v\n  return %y\n}\n";
  const Program p{"", {{"", 0, 0}, {"", 0, 9}, {"", 0, 9}}, ""};
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    const e::Executable x = compile(text, fused(backend)), reference = compile(text, "reference");
    const Json plan = Json::parse(x.describe());
    CHECK(plan.at("steps").dump().find("\"cpu.attention_") != std::string::npos);
    for (const Json& step : plan.at("steps")) CHECK(step.dump().find("%s") == std::string::npos);
    for (const Sizes& s : {Sizes{1, 2, 8, 1, 16, 16}, Sizes{2, 2, 50, 33, 16, 16}, Sizes{1, 2, 33, 700, 16, 16}})
      for (const uint64_t seed : {1, 2}) {
        std::vector<e::Tensor> in;
        for (const std::vector<int64_t>& sizes :
             {std::vector<int64_t>{s.batch, 2, s.queries, 16}, {s.batch, 2, s.keys, 16}, {s.batch, 2, s.keys, 16}, {2, 1, 1}}) {
          const std::vector<float> v = values(sizes, seed + in.size());
          std::vector<char> bytes(v.size() * 4);
          std::memcpy(bytes.data(), v.data(), bytes.size());
          in.push_back(arrange(TSR_F32, sizes, bytes, Layout::Dense));
        }
        for (const int64_t n : {s.queries, s.keys}) {
          std::vector<char> bytes(static_cast<size_t>(n) * 8);
          for (int64_t i = 0; i < n; ++i)
            store_from(TSR_I64, bytes.data(), i, static_cast<double>((i * 7 + static_cast<int64_t>(seed)) % 9));
          in.push_back(arrange(TSR_I64, {n}, bytes, Layout::Dense));
        }
        near(x.run(in)[0], reference.run(in)[0], bound_of(p, s));
      }
  }
}

TEST_CASE("an index out of range in what modifies the scores is an error") {
  const Sizes s{1, 2, 9, 20, 8, 8};
  const Program p{"",
                  {{"f32[R, H]"}, {"i64[]", 0, 1}},
                  "P  %d = sub %ik, %iq\n  %i = add %d, %c1\n  %g = gather %c0, %i {axis = 0}\n"
                  "  %b = transpose %g {perm = [2, 0, 1]}\n  %x = add %s, %b\n"};
  for (const std::string& backend : cpu_backends()) {
    const e::Executable x = compile(text_of(p, s), fused(backend));
    CHECK(x.describe().find("\"cpu.attention_") != std::string::npos);
    std::vector<e::Tensor> in = inputs_of(x, p, Layout::Dense);
    store_from(TSR_I64, const_cast<void*>(in[4].data()), 0, 8.0);
    CHECK_NOTHROW(x.run(in));
    store_from(TSR_I64, const_cast<void*>(in[4].data()), 0, 7.0);
    CHECK_THROWS_WITH(x.run(in), Catch::Contains("TSR-R011"));
  }
}

}  // namespace tessera::differential
