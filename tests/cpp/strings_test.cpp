// SPDX-License-Identifier: Apache-2.0
// Strings among the arguments of compiled functions count with all of their bytes; those that go on as C strings are refused
// with a zero byte.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

#include "support.hpp"
#include "tessera/embed.hpp"

using namespace tessera;
using namespace std::string_literals;

namespace {

int64_t weight(const std::string& s) { return static_cast<int64_t>(std::hash<std::string>()(s) % 1000) + 1; }

// Few characters, so that strings share beginnings, and those that separate and escape.
std::string random_string(std::mt19937_64& random) {
  std::string s;
  for (uint64_t n = random() % 5; n > 0; --n) s += "\0\n\\na"[random() % 5];
  return s;
}

CompileOptions many_entries(std::string name) {
  CompileOptions o;
  o.name = std::move(name);
  o.options = {"guards.recompile_limit=10000", "guards.accumulated_recompile_limit=10000"};
  return o;
}

template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  } catch (const embed::Error& e) {
    return e.code();
  }
  return "none";
}

}  // namespace

TEST_CASE("a string with a zero byte is another one than its beginning") {
  const auto f = compile([](const Tensor& x, const std::string& mode) { return mode.size() == 5 ? x * 2 : x * 3; });
  const Tensor x = ones({2});
  CHECK(values(f(x, "sum\0x"s)) == std::vector<float>{2, 2});
  CHECK(values(f(x, "sum"s)) == std::vector<float>{3, 3});
  CHECK(values(f(x, "sum\0y"s)) == std::vector<float>{2, 2});
  CHECK(entries(f.describe()) == 3);
}

TEST_CASE("random strings: one entry for each") {
  const auto f = compile(
      [](const Tensor& x, const std::string& s, const std::vector<std::string>& more) {
        Tensor y = x * weight(s);
        for (const std::string& m : more) y = y + weight(m);
        return y;
      },
      many_entries("strings"));
  std::mt19937_64 random(5);
  std::set<std::vector<std::string>> seen;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::string> all{random_string(random)};
    for (uint64_t n = random() % 3; n > 0; --n) all.push_back(random_string(random));
    seen.insert(all);
    int64_t expected = weight(all[0]);
    for (size_t k = 1; k < all.size(); ++k) expected += weight(all[k]);
    REQUIRE(values(f(ones({2}), all[0], {all.begin() + 1, all.end()}))[0] == static_cast<float>(expected));
  }
  CHECK(entries(f.describe()) == seen.size());
}

TEST_CASE("random keys of maps: one entry for each set of them") {
  const auto f = compile(
      [](const std::map<std::string, Tensor>& m, const Tensor& x) {
        Tensor y = x;
        for (const auto& [key, t] : m) y = y + t * weight(key);
        return y;
      },
      many_entries("maps"));
  std::mt19937_64 random(6);
  std::set<std::vector<std::string>> seen;
  for (int i = 0; i < 300; ++i) {
    std::map<std::string, Tensor> m;
    for (uint64_t n = random() % 4; n > 0; --n) m.emplace(random_string(random), ones({2}));
    std::vector<std::string> keys;
    int64_t expected = 1;
    for (const auto& [key, t] : m) {
      keys.push_back(key);
      expected += weight(key);
    }
    seen.insert(keys);
    REQUIRE(values(f(m, ones({2})))[0] == static_cast<float>(expected));
  }
  CHECK(entries(f.describe()) == seen.size());
}

TEST_CASE("guarded strings, and strings that a disabled function returns, count with all of their bytes too") {
  std::string mode = "sum\0x"s, returned = mode;
  const auto ask = disable([&](const Tensor&) { return returned; });
  const auto f = compile([&](const Tensor& x) {
    const Tensor y = guarded(mode, "mode").size() == 5 ? x * 2 : x * 3;
    return ask(y).size() == 5 ? y + 1 : y + 2;
  });
  const Tensor x = ones({2});
  CHECK(values(f(x))[0] == 3);
  mode = "sum";
  CHECK(values(f(x))[0] == 4);
  returned = "sum";
  CHECK(values(f(x))[0] == 5);
  mode = "sum\0x"s;
  CHECK(values(f(x))[0] == 4);
}

TEST_CASE("a description shows strings that are no UTF-8 as well as it can") {
  const auto f = compile([](const Tensor& x, const std::string& s) { return x * weight(s); });
  CHECK(values(f(ones({2}), "\xff\xfe"))[0] == static_cast<float>(weight("\xff\xfe")));
  CHECK(f.describe().find("arg1 == '") != std::string::npos);
}

TEST_CASE("a path names a key with control characters in one line") {
  const auto f = compile([](const std::map<std::string, Tensor>& m) {
    Tensor y;
    for (const auto& [key, t] : m) y = y.defined() ? y + t : t + 1;
    return y;
  });
  f({{"a\0b\n"s, ones({2})}});
  CHECK(f.describe().find("['a\\\\x00b\\\\x0a']") != std::string::npos);
}

TEST_CASE("texts that go on as C strings are refused with a zero byte inside") {
  const std::string bad = "cpu\0x"s;
  const auto id = [](const Tensor& x) { return x + 1; };
  const auto refused = [&](const std::function<void()>& f) { CHECK(code_of(f) == "TSR-E015"); };
  refused([&] { Context c(bad); });
  refused([&] { Context::from_text(bad); });
  refused([&] { Context c("eager", {"name="s + bad}); });
  for (std::string CompileOptions::*text : {&CompileOptions::name, &CompileOptions::backend, &CompileOptions::mode})
    refused([&] {
      CompileOptions o;
      o.*text = bad;
      compile(id, o);
    });
  refused([&] {
    CompileOptions o;
    o.options = {"numerics=relaxed\0x"s};
    compile(id, o);
  });
  const Tensor x = ones({2, 2});
  refused([&] { F::gelu(x, "none\0x"s); });
  refused([&] { F::mse_loss(x, x, "mean\0x"s); });
  refused([&] { op("gelu", {x}, {{"approximate", "none\0x"s}}); });
  refused([&] {
    compile([](const Tensor& t) {
      graph_break("why\0"s);
      return t + 1;
    })(x);
  });

  refused([&] { embed::device("cpu\0:0"s); });
  refused([&] { embed::Context({bad, {}, {}, {}}); });
  refused([&] { embed::Context({{}, bad, {}, {}}); });
  refused([&] { embed::Context({"eager", {}, {"name="s + bad}, {}}); });
  refused([&] { embed::Context({"eager", {}, {}, {bad}}); });
  const embed::Context c({"eager", {}, {}, {}});
  const std::string text = "graph @g(%x: f32[2]) { %y = neg %x return %y }";
  refused([&] { (void)c.load(bad); });
  refused([&] {
    const std::pair<std::string, embed::Tensor> bound[] = {{"x\0"s, embed::Tensor::create(TSR_F32, std::vector<int64_t>{2})}};
    (void)c.load("m.onnx", bound);
  });
  refused([&] { (void)c.load_for(bad, {}); });
  refused([&] {
    const std::pair<std::string, embed::Tensor> given[] = {{bad, embed::Tensor::create(TSR_F32, std::vector<int64_t>{2})}};
    (void)c.load_for("m.onnx", given);
  });
  refused([&] { embed::Model(c, bad); });
  refused([&] { (void)c.build(bad, [](tsr_graph*) {}); });
  refused([&] { (void)c.parse(text, bad); });
  refused([&] {
    embed::Graph g = c.parse(text, "text");
    c.run_passes(g, bad);
  });
  refused([&] { (void)c.compile(c.parse(text, "text"), bad); });
  refused([&] { c.compile(c.parse(text, "text")).write_diagram(bad); });
  refused([&] { c.cache_export(bad); });
  refused([&] { c.cache_import(bad); });
  CHECK(code_of([&] { (void)c.parse(text + "\0"s, "text"); }) == "TSR-I001");
  CHECK(code_of([&] { embed::Context({{}, "name = \"x\\u0000\"", {}, {}}); }) == "TSR-C013");
}
