// SPDX-License-Identifier: Apache-2.0
// Models with symbolic sizes against the same models with numbers in their place: slices, reshapes and broadcasts at sizes that
// no compile has seen, sizes of 0 and 1 among them.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <random>

#include "model_builder.hpp"
#include "tessera/embed.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;
namespace fs = std::filesystem;

namespace {

const e::Context& context(const std::string& config) {
  static std::vector<std::pair<std::string, std::unique_ptr<e::Context>>> all;
  for (const auto& [name, c] : all)
    if (name == config) return *c;
  e::ContextOptions o;
  o.config_path = config;
  if (const char* build = std::getenv("TESSERA_BUILD_DIR")) o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
  all.emplace_back(config, std::make_unique<e::Context>(o));
  return *all.back().second;
}

e::Executable compile(const std::string& config, const Msg& m) {
  static const fs::path path = fs::temp_directory_path() / ("tessera_symbolic_" + std::to_string(getpid()) + ".onnx");
  std::ofstream(path, std::ios::binary) << m.bytes();
  e::Graph g = context(config).load(path.string());
  fs::remove(path);
  return context(config).compile_model(std::move(g));
}

// Inputs x and y of rank 2, output z.
struct Model {
  std::vector<Msg> nodes, initializers;
  int next = 0;

  std::string ints(std::vector<int64_t> v) {
    const std::string name = "c" + std::to_string(next++);
    std::string raw(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(int64_t));
    initializers.push_back(tensor(name.c_str(), kInt64, {static_cast<int64_t>(v.size())}, raw));
    return name;
  }
  std::string fresh() { return "v" + std::to_string(next++); }
  std::string slice(const std::string& x, int64_t start, int64_t end, int64_t axis, int64_t step) {
    const std::string s = ints({start}), t = ints({end}), a = ints({axis}), d = ints({step}), out = fresh();
    nodes.push_back(node("Slice", {x.c_str(), s.c_str(), t.c_str(), a.c_str(), d.c_str()}, {out.c_str()}));
    return out;
  }
  std::string reshape(const std::string& x, std::vector<int64_t> to) {
    const std::string shape = ints(std::move(to)), out = fresh();
    nodes.push_back(node("Reshape", {x.c_str(), shape.c_str()}, {out.c_str()}));
    return out;
  }
  std::string concat(const std::string& x, const std::string& y, int64_t axis) {
    const std::string out = fresh();
    nodes.push_back(node("Concat", {x.c_str(), y.c_str()}, {out.c_str()}, {attribute("axis", axis)}));
    return out;
  }
  std::string transpose(const std::string& x) {
    const std::string out = fresh();
    nodes.push_back(node("Transpose", {x.c_str()}, {out.c_str()}, {attribute("perm", std::vector<int64_t>{1, 0})}));
    return out;
  }
  std::string binary(const char* op, const std::string& x, const std::string& y) {
    const std::string out = fresh();
    nodes.push_back(node(op, {x.c_str(), y.c_str()}, {out.c_str()}));
    return out;
  }
  std::string where(const std::string& x, const std::string& y) {
    const std::string less = binary("Less", x, y), out = fresh();
    nodes.push_back(node("Where", {less.c_str(), x.c_str(), y.c_str()}, {out.c_str()}));
    return out;
  }
  std::string expand(const std::string& x, const std::string& like) {
    const std::string shape = fresh(), out = fresh();
    nodes.push_back(node("Shape", {like.c_str()}, {shape.c_str()}));
    nodes.push_back(node("Expand", {x.c_str(), shape.c_str()}, {out.c_str()}));
    return out;
  }

  // x[n, m] as [1, 1, n, m].
  std::string unsqueeze(const std::string& x) {
    const std::string axes = ints({0, 1}), out = fresh();
    nodes.push_back(node("Unsqueeze", {x.c_str(), axes.c_str()}, {out.c_str()}));
    return out;
  }

  int64_t opset = 18;
  // `sizes`: n, m, p, q; none: by name.
  Msg build(const std::string& z, const std::vector<int64_t>& sizes) const {
    const auto info = [&](const char* name, size_t at, const char* a, const char* b) {
      return sizes.empty() ? value_info(name, kFloat, {a, b}) : value_info(name, kFloat, {sizes[at], sizes[at + 1]});
    };
    std::vector<Msg> all = nodes;
    all.push_back(node("Identity", {z.c_str()}, {"z"}));
    return model(graph({std::move(all), initializers, {info("x", 0, "n", "m"), info("y", 2, "p", "q")}, {Msg().s(1, "z")}}),
                 opset);
  }
};

std::vector<e::Tensor> inputs(const std::vector<int64_t>& sizes) {
  std::vector<e::Tensor> in;
  for (size_t k = 0; k < 2; ++k) {
    in.push_back(e::Tensor::create(TSR_F32, std::vector<int64_t>{sizes[2 * k], sizes[2 * k + 1]}));
    for (int64_t i = 0; i < in[k].elements(); ++i)
      static_cast<float*>(in[k].data())[i] = static_cast<float>((i * 7 + static_cast<int64_t>(k) * 3) % 31 - 12);
  }
  return in;
}

std::string text(const e::Tensor& t) {
  std::string s = "[";
  for (const int64_t n : t.sizes()) s += std::to_string(n) + " ";
  s += "]";
  for (int64_t i = 0; i < t.elements(); ++i) s += " " + std::to_string(static_cast<float*>(t.data())[i]);
  return s;
}

// What the model with these numbers for its sizes gives; null: it is refused.
std::optional<std::string> expected(const Model& m, const std::string& z, const std::vector<int64_t>& sizes) {
  try {
    return text(compile("eager", m.build(z, sizes)).run(inputs(sizes))[0]);
  } catch (const e::Error& error) {
    if (error.family() == TSR_BUG) FAIL(error.what());
    return std::nullopt;
  }
}

std::vector<const char*> configs() {
  std::vector<const char*> out = {"eager"};
#ifdef TESSERA_WITH_CPU
  out.push_back("default");
#endif
  return out;
}

// At every `sizes`, one executable per config.
size_t agree(const Model& m, const std::string& z, const std::vector<std::vector<int64_t>>& sizes) {
  size_t compared = 0;
  for (const char* config : configs()) {
    INFO(config);
    const e::Executable symbolic = compile(config, m.build(z, {}));
    for (const std::vector<int64_t>& s : sizes) {
      const std::optional<std::string> want = expected(m, z, s);
      if (!want) continue;
      INFO("n = " << s[0] << ", m = " << s[1] << ", p = " << s[2] << ", q = " << s[3]);
      std::string have;
      try {
        have = text(symbolic.run(inputs(s))[0]);
      } catch (const e::Error& error) {
        FAIL(error.what());
      }
      if (have != *want) CHECK(have == *want);
      ++compared;
    }
  }
  return compared;
}

}  // namespace

TEST_CASE("a slice that is a view for some sizes only is right for all") {
  Model m;
  const std::string z = m.slice("x", INT64_MAX, INT64_MIN + 1, 0, -2);
  CHECK(agree(m, z, {{5, 1, 1, 1}, {2, 3, 1, 1}, {1, 1, 1, 1}, {0, 2, 1, 1}}) >= 4);
}

TEST_CASE("a reshape divides by a size that is zero only for sizes that no call has") {
  Model m;
  const std::string z = m.reshape(m.slice("x", 1, -1, 0, 1), {0, -1});
  CHECK(agree(m, z, {{5, 3, 1, 1}, {3, 1, 1, 1}}) >= 2);
}

TEST_CASE("sizes of two names broadcast when one of them is 1 at run time") {
  const std::vector<std::vector<int64_t>> sizes = {{3, 2, 1, 2}, {1, 2, 3, 1}, {3, 1, 3, 4}, {1, 1, 1, 1},
                                                   {2, 5, 2, 5}, {0, 2, 1, 1}, {0, 1, 0, 0}};
  const std::vector<std::function<std::string(Model&)>> ops = {
      [](Model& m) { return m.binary("Add", "x", "y"); },
      [](Model& m) { return m.binary("Pow", m.binary("Mul", "x", "y"), "y"); },
      [](Model& m) { return m.where("x", "y"); },
      [](Model& m) { return m.expand("x", "y"); },
      [](Model& m) { return m.binary("Sub", m.binary("Max", m.binary("Add", "x", "y"), "x"), "y"); },
      [](Model& m) {
        return m.binary("Add", m.reshape("x", {-1, 1, 1}), "y");
      },
      [](Model& m) {
        return m.reshape(m.binary("MatMul", m.reshape("x", {0, -1, 1}), m.reshape("y", {0, 1, -1})), {-1});
      },
  };
  for (size_t k = 0; k < ops.size(); ++k) {
    INFO("op " << k);
    Model m;
    const std::string z = ops[k](m);
    CHECK(agree(m, z, sizes) >= 4 * configs().size());
  }
}

TEST_CASE("a mask of attention has sizes of 1 at run time") {
  const std::vector<std::vector<int64_t>> sizes = {{3, 2, 3, 3}, {3, 2, 1, 3}, {3, 2, 3, 1}, {3, 2, 1, 1},
                                                   {1, 4, 1, 1}, {5, 3, 1, 5}, {5, 3, 5, 5}};
  const std::vector<std::function<std::string(Model&)>> forms = {
      [](Model& m) {
        m.opset = 23;
        const std::string x = m.unsqueeze("x"), out = m.fresh();
        m.nodes.push_back(node("Attention", {x.c_str(), x.c_str(), x.c_str(), "y"}, {out.c_str()}));
        return out;
      },
      [](Model& m) {
        const std::string weights = m.fresh();
        const std::string scores = m.binary("Add", m.binary("MatMul", "x", m.transpose("x")), "y");
        m.nodes.push_back(node("Softmax", {scores.c_str()}, {weights.c_str()}, {attribute("axis", int64_t{-1})}));
        return m.binary("MatMul", weights, "x");
      },
  };
  const fs::path path = fs::temp_directory_path() / ("tessera_symbolic_mask_" + std::to_string(getpid()) + ".onnx");
  for (const char* config : configs())
    for (size_t k = 0; k < forms.size(); ++k) {
      Model m;
      const std::string z = forms[k](m);
      std::ofstream(path, std::ios::binary) << m.build(z, {}).bytes();
      const e::Model f(context(config), path.string());
      for (const std::vector<int64_t>& s : sizes) {
        INFO(config << ", form " << k << ": n = " << s[0] << ", m = " << s[1] << ", p = " << s[2] << ", q = " << s[3]);
        const e::Tensor want = compile("eager", m.build(z, s)).run(inputs(s))[0], have = f(inputs(s))[0];
        REQUIRE(std::equal(have.sizes().begin(), have.sizes().end(), want.sizes().begin(), want.sizes().end()));
        // Backends add up products in orders of their own.
        for (int64_t i = 0; i < want.elements(); ++i)
          CHECK(static_cast<const float*>(have.data())[i] == Approx(static_cast<const float*>(want.data())[i]).epsilon(1e-5));
      }
    }
  fs::remove(path);
}

TEST_CASE("sizes that do not broadcast are refused by the call") {
  Model m;
  const std::string z = m.binary("Add", "x", "y");
  const e::Executable symbolic = compile("eager", m.build(z, {}));
  for (const std::vector<int64_t>& s : {std::vector<int64_t>{2, 1, 3, 1}, {0, 1, 5, 1}, {4, 4, 4, 3}}) try {
      (void)symbolic.run(inputs(s));
      FAIL("accepted");
    } catch (const e::Error& error) {
      CHECK(error.code() == "TSR-T026");
    }
}

TEST_CASE(
    "random models that broadcast a size against an expression of it are compiled for the calls that make one of them 1") {
  std::mt19937_64 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const fs::path path = fs::temp_directory_path() / ("tessera_symbolic_call_" + std::to_string(getpid()) + ".onnx");
  size_t compared = 0, refused = 0;
  for (int round = 0; round < 60; ++round) {
    Model m;
    static constexpr int64_t kBounds[] = {0, 1, 2, 3, -1, -2, -3, INT64_MAX};
    std::string z = "x";
    for (int64_t k = 1 + below(2); k > 0; --k) z = m.slice(z, kBounds[below(8)], kBounds[below(8)], below(2), 1 + below(2));
    if (below(3) == 0) z = m.concat(z, z, below(2));
    static constexpr const char* kOps[] = {"Add", "Mul", "Max"};
    z = below(4) == 0 ? m.where(z, "x") : m.binary(kOps[below(3)], z, "x");
    if (below(2) == 0) z = m.binary("Add", z, "y");
    const char* const config = configs()[static_cast<size_t>(round) % configs().size()];
    std::ofstream(path, std::ios::binary) << m.build(z, {}).bytes();
    const e::Model f(context(config), path.string());
    for (int k = 0; k < 8; ++k) {
      std::vector<int64_t> s = {1 + below(4), 1 + below(4)};
      s.insert(s.end(), {below(2) == 0 ? 1 : s[0], below(2) == 0 ? 1 : s[1]});
      INFO("round " << round << " on " << config << ": n = " << s[0] << ", m = " << s[1] << ", p = " << s[2]
                    << ", q = " << s[3]);
      const std::optional<std::string> want = expected(m, z, s);
      try {
        const std::string have = text(f(inputs(s))[0]);
        if (!want || have != *want) CHECK(have == want.value_or("refused"));
        ++compared;
      } catch (const e::Error& error) {
        if (want || error.family() != TSR_USER) FAIL(error.what());
        ++refused;
      }
    }
  }
  fs::remove(path);
  CHECK(compared > 100);
  CHECK(refused > 100);
}

TEST_CASE("random models of slices, reshapes and broadcasts do at every size what they do at that size alone") {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  size_t compared = 0;
  for (int round = 0; round < 40; ++round) {
    Model m;
    const auto step = [&](const std::string& v) {
      static constexpr int64_t kBounds[] = {0, 1, 2, 3, -1, -2, -4, 7, INT64_MAX, INT64_MIN + 1};
      static constexpr int64_t kSteps[] = {1, 1, 1, 2, 3, -1, -2};
      switch (below(5)) {
        case 0: return m.concat(v, v, below(2));
        case 1: return m.transpose(v);
        case 2: return m.reshape(v, {-1, 1});
        default: return m.slice(v, kBounds[below(10)], kBounds[below(10)], below(2), kSteps[below(7)]);
      }
    };
    std::string x = "x", y = "y";
    for (int64_t k = below(3); k > 0; --k) x = step(x);
    for (int64_t k = below(2); k > 0; --k) y = step(y);
    static constexpr const char* kOps[] = {"Add", "Mul", "Max"};
    std::string z = below(4) == 0 ? m.where(x, y) : m.binary(kOps[below(3)], x, y);
    for (int64_t k = below(4); k > 0; --k) z = step(z);
    std::vector<std::vector<int64_t>> sizes;
    static constexpr int64_t kSizes[] = {0, 1, 1, 2, 3, 4, 5, 8};
    for (int k = 0; k < 12; ++k) {
      std::vector<int64_t> s;
      for (int i = 0; i < 4; ++i) s.push_back(kSizes[below(8)]);
      if (below(2) == 0) s[2] = 1, s[3] = 1;
      sizes.push_back(std::move(s));
    }
    INFO("round " << round);
    compared += agree(m, z, sizes);
  }
  CHECK(compared > 200);
}
