// SPDX-License-Identifier: Apache-2.0
// Steps of a plan that the embedding client runs, with a client that computes what ops would.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <functional>
#include <random>

#include "tessera/embed.hpp"

namespace client_step_test {

namespace e = tessera::embed;

namespace {

// Runs step number k by `steps[k]`, and keeps count.
struct Client {
  using Step = std::function<void(Client&, tsr_client_call&)>;
  std::vector<Step> steps;
  std::vector<int64_t> ran;
  std::vector<std::vector<uint32_t>> finished;  // as each step was told
  int given = 0, released = 0;

  void operator()(tsr_client_call& c) {
    ran.push_back(c.step);
    finished.emplace_back(c.finished, c.finished + c.num_finished);
    steps.at(static_cast<size_t>(c.step))(*this, c);
  }
  // Result `index` as dense memory of its own, `shift` bytes behind an aligned address.
  void* give(tsr_client_call& c, uint32_t index, std::vector<int64_t> sizes, uint32_t dtype = TSR_F32, size_t shift = 0) {
    struct Memory {
      Client* client;
      std::vector<int64_t> sizes;
      void* data;
    };
    size_t bytes = 64 + shift;
    for (const int64_t n : sizes) bytes *= static_cast<size_t>(std::max<int64_t>(n, 1));
    auto* m = new Memory{this, std::move(sizes), std::aligned_alloc(64, (bytes * 8 + 127) / 64 * 64)};
    ++given;
    tsr_client_result& r = c.results[index];
    r.tensor = {
        static_cast<char*>(m->data) + shift, dtype, static_cast<uint32_t>(m->sizes.size()), m->sizes.data(), nullptr, 0, 0};
    r.ctx = m;
    r.release = [](void* p) {
      auto* memory = static_cast<Memory*>(p);
      ++memory->client->released;
      std::free(memory->data);
      delete memory;
    };
    return r.tensor.data;
  }
};

int64_t count(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t k = 0; k < t.rank; ++k) n *= t.sizes[k];
  return n;
}

// Element i of a tensor of any strides, in row-major order.
float element(const tsr_tensor& t, int64_t i) {
  int64_t at = 0;
  for (uint32_t k = t.rank; k-- > 0; i /= t.sizes[k]) at += i % t.sizes[k] * t.strides[k];
  return static_cast<const float*>(t.data)[at];
}

std::vector<int64_t> shape(const tsr_tensor& t) { return {t.sizes, t.sizes + t.rank}; }

Client::Step map(std::function<float(float)> f, size_t shift = 0) {
  return [f, shift](Client& client, tsr_client_call& c) {
    auto* out = static_cast<float*>(client.give(c, 0, shape(c.inputs[0]), TSR_F32, shift));
    for (int64_t i = 0; i < count(c.inputs[0]); ++i) out[i] = f(element(c.inputs[0], i));
  };
}

struct Outputs {
  std::vector<std::vector<float>> values;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<void*> blocks;
  explicit Outputs(size_t n) : values(n), shapes(n), blocks(n) {}
  ~Outputs() {
    for (void* b : blocks) std::free(b);
  }
  void* operator()(size_t index, const tsr_tensor& d, size_t bytes) {
    shapes[index] = shape(d);
    return blocks[index] = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  }
  std::vector<float> floats(size_t index) const {
    int64_t n = 1;
    for (const int64_t s : shapes[index]) n *= s;
    const auto* f = static_cast<const float*>(blocks[index]);
    return {f, f + n};
  }
};

const e::Context& context() {
  static const e::Context c;
  return c;
}
e::Executable compile(const std::string& text) { return context().compile_model(context().parse(text, "test.tsr")); }

tsr_tensor plain(const std::vector<float>& data, const std::vector<int64_t>& sizes) {
  return {const_cast<float*>(data.data()), TSR_F32, static_cast<uint32_t>(sizes.size()), sizes.data(), nullptr, 0, 0};
}

template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const e::Error& error) {
    return error.code();
  }
  return "";
}

std::string step(int number, const std::string& sizes, const std::string& op = "client_step") {
  const auto ranks = std::to_string(sizes.empty() ? 0 : 1 + std::count(sizes.begin(), sizes.end(), ','));
  return op + " %x {step = " + std::to_string(number) + ", name = \"s\", dtypes = [\"f32\"], ranks = [" + ranks +
         "], sizes = [" + sizes + "]}";
}

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("steps of the client run where they stand, between kernels, in one plan") {
  const e::Executable run = compile(R"(graph @g(%x: f32[3]) -> (f32[3], f32[3]) {
    %a = add %x, %x
    %b, %n = client_step %a, %x {step = 0, name = "two", dtypes = ["f32", "f32"], ranks = [1, 1], sizes = [3, 3]}
    %c = exp %b
    %d = client_step %c {step = 1, name = "log", dtypes = ["f32"], ranks = [1], sizes = [3]}
    %e = add %d, %n
    return %e, %n
  })");
  const std::string plan = run.plan();
  CHECK(plan.find("two") != std::string::npos);
  CHECK(plan.find("log") != std::string::npos);
  Client client;
  client.steps = {[](Client& me, tsr_client_call& c) {
                    REQUIRE(c.num_inputs == 2);
                    REQUIRE(c.num_results == 2);
                    CHECK(std::string(c.name) == "two");
                    auto* b = static_cast<float*>(me.give(c, 0, {3}));
                    auto* n = static_cast<float*>(me.give(c, 1, {3}));
                    for (int i = 0; i < 3; ++i) b[i] = element(c.inputs[0], i) * 0.5f, n[i] = -element(c.inputs[1], i);
                  },
                  map([](float v) { return std::log(v); })};
  const Floats x = {1, 2, 3};
  const std::vector<int64_t> three = {3};
  for (int turn = 0; turn < 3; ++turn) {
    Outputs out(2);
    const tsr_tensor in = plain(x, three);
    client.ran.clear();
    run.run_raw({&in, 1}, 2, out, client);
    CHECK(client.ran == std::vector<int64_t>{0, 1});
    for (size_t i = 0; i < 3; ++i) {
      CHECK(out.floats(0)[i] == Approx(0).margin(1e-6));
      CHECK(out.floats(1)[i] == -x[i]);
    }
  }
  CHECK(client.given == 9);
  CHECK(client.released == 9);
}

TEST_CASE("a step that only computes goes when nobody reads it; one with effects runs once, in order") {
  const e::Executable run =
      compile("graph @g(%x: f32[2]) -> (f32[2]) {\n%a = " + step(0, "2") + "\n%b = " + step(1, "2", "client_effect") +
              "\n%c = " + step(2, "2", "client_effect") + "\n%d = " + step(2, "2", "client_effect") + "\n%e = " + step(3, "2") +
              "\n%f = " + step(3, "2") + "\n%g = add %e, %f\nreturn %g\n}");
  Client client;
  client.steps.assign(4, map([](float v) { return v + 1; }));
  const Floats x = {1, 2};
  const std::vector<int64_t> two = {2};
  const tsr_tensor in = plain(x, two);
  Outputs out(1);
  run.run_raw({&in, 1}, 1, out, client);
  CHECK(out.floats(0) == Floats{4, 6});
  CHECK(std::vector<int64_t>(client.ran.begin(), client.ran.begin() + 3) == std::vector<int64_t>{1, 2, 2});
  CHECK(std::count(client.ran.begin(), client.ran.end(), 0) == 0);
}

TEST_CASE("sizes that only a step can tell become those of what follows") {
  const e::Executable run = compile(R"(graph @g(%x: f32[s0]) -> (f32[], f32[u0, 2]) symbols { s0: 0..; u0: 0.. unbacked } {
    %y = neg %x
    %v, %w = client_step %y {step = 0, name = "keep", dtypes = ["f32", "f32"], ranks = [1, 2], sizes = [-1, -1, 2]} : f32[u0], f32[u0, 2]
    %e = exp %w
    %s = reduce_sum %v {axes = [0], keepdims = false}
    return %s, %e
  })");
  const auto keep = [](int64_t kept, int64_t also) {
    return [=](Client& me, tsr_client_call& c) {
      CHECK(c.expected[0].sizes[0] == -1);
      CHECK(c.expected[1].sizes[1] == 2);
      auto* v = static_cast<float*>(me.give(c, 0, {kept}));
      auto* w = static_cast<float*>(me.give(c, 1, {also, 2}));
      for (int64_t i = 0; i < kept; ++i) v[i] = element(c.inputs[0], i);
      for (int64_t i = 0; i < 2 * also; ++i) w[i] = 0;
    };
  };
  for (const int64_t n : {4, 2, 7}) {
    Floats x(static_cast<size_t>(n), 1.5f);
    const std::vector<int64_t> sizes = {n};
    const tsr_tensor in = plain(x, sizes);
    Client client;
    client.steps = {keep(n - 1, n - 1)};
    Outputs out(2);
    run.run_raw({&in, 1}, 2, out, client);
    CHECK(out.shapes[1] == std::vector<int64_t>{n - 1, 2});
    CHECK(out.floats(0) == Floats{-1.5f * static_cast<float>(n - 1)});
    CHECK(out.floats(1) == Floats(static_cast<size_t>(2 * n - 2), 1.0f));
    client.steps = {keep(n - 1, n)};
    CHECK(code_of([&] {
            Outputs more(2);
            run.run_raw({&in, 1}, 2, more, client);
          }) == "TSR-R021");
    CHECK(client.given == client.released);
  }
}

TEST_CASE("what a client gives is used in place, or copied where a kernel could not read it") {
  const e::Executable run =
      compile("graph @g(%x: f32[4]) -> (f32[4]) {\n%a = " + step(0, "4") + "\n%b = mul %a, %a\nreturn %b\n}");
  const Floats x = {1, 2, 3, 4};
  const std::vector<int64_t> four = {4};
  const tsr_tensor in = plain(x, four);
  for (const size_t shift : {0, 4, 32}) {
    Client client;
    client.steps = {map([](float v) { return v + 1; }, shift)};
    Outputs out(1);
    run.run_raw({&in, 1}, 1, out, client);
    CHECK(out.floats(0) == Floats{4, 9, 16, 25});
    CHECK(client.released == 1);
  }
  Client client;
  client.steps = {[](Client& me, tsr_client_call& c) {  // every second of eight
    auto* wide = static_cast<float*>(me.give(c, 0, {8}));
    for (int i = 0; i < 8; ++i) wide[i] = static_cast<float>(i);
    static const int64_t size = 4, stride = 2;
    c.results[0].tensor.sizes = &size;
    c.results[0].tensor.strides = &stride;
  }};
  Outputs out(1);
  run.run_raw({&in, 1}, 1, out, client);
  CHECK(out.floats(0) == Floats{0, 4, 16, 36});
}

TEST_CASE("operands arrive dense, whatever views they are") {
  const e::Executable run = compile(R"(graph @g(%x: f32[2, 3], %y: f32[3, 2]) -> (f32[3, 2]) {
    %a = mul %x, %x
    %t = transpose %a {perm = [1, 0]}
    %b = client_step %t, %y {step = 0, name = "add", dtypes = ["f32"], ranks = [2], sizes = [3, 2]}
    return %b
  })");
  Client client;
  client.steps = {[](Client& me, tsr_client_call& c) {
    for (int k = 0; k < 2; ++k) {
      CHECK(c.inputs[k].strides[0] == 2);
      CHECK(c.inputs[k].strides[1] == 1);
    }
    auto* out = static_cast<float*>(me.give(c, 0, {3, 2}));
    for (int i = 0; i < 6; ++i)
      out[i] = static_cast<const float*>(c.inputs[0].data)[i] + static_cast<const float*>(c.inputs[1].data)[i];
  }};
  const Floats x = {1, 2, 3, 4, 5, 6}, y = {10, 20, 30, 40, 50, 60};  // y lies column-major
  const std::vector<int64_t> wide = {2, 3}, tall = {3, 2}, strides = {1, 3};
  const tsr_tensor in[] = {plain(x, wide), {const_cast<float*>(y.data()), TSR_F32, 2, tall.data(), strides.data(), 0, 0}};
  Outputs out(1);
  run.run_raw(in, 1, out, client);
  CHECK(out.floats(0) == Floats{11, 56, 24, 75, 39, 96});
}

TEST_CASE("memory of a step goes with its last reader, and the client learns which inputs are done with") {
  const e::Executable run = compile(R"(graph @g(%x: f32[2], %y: f32[2], %z: f32[2]) -> (f32[2], f32[2]) {
    %m = mul %x, %x
    %a = client_step %m {step = 0, name = "a", dtypes = ["f32"], ranks = [1], sizes = [2]}
    %n = mul %a, %y
    %b = client_step %n {step = 1, name = "b", dtypes = ["f32"], ranks = [1], sizes = [2]}
    %o = mul %b, %b
    %c = client_step %o {step = 2, name = "c", dtypes = ["f32"], ranks = [1], sizes = [2]}
    %r = add %c, %c
    return %r, %z
  })");
  Client client;
  client.steps.assign(3, map([](float v) { return v; }));
  std::vector<int> before;
  for (Client::Step& s : client.steps)
    s = [&before, inner = s](Client& me, tsr_client_call& c) {
      before.push_back(me.released);
      inner(me, c);
    };
  const Floats x = {1, 2}, y = {3, 4}, z = {5, 6};
  const std::vector<int64_t> two = {2};
  const tsr_tensor in[] = {plain(x, two), plain(y, two), plain(z, two)};
  Outputs out(2);
  run.run_raw(in, 2, out, client);
  CHECK(out.floats(0) == Floats{18, 512});
  CHECK(out.floats(1) == z);
  CHECK(before == std::vector<int>{0, 1, 2});
  CHECK(client.released == 3);
  CHECK(client.finished == std::vector<std::vector<uint32_t>>{{0}, {0, 1}, {0, 1}});
}

TEST_CASE("errors of steps are the client's own; wrong results and a missing client are named") {
  const e::Executable run = compile("graph @g(%x: f32[2]) -> (f32[2]) {\n%a = " + step(0, "2") + "\n%b = exp %a\nreturn %b\n}");
  const Floats x = {1, 2};
  const std::vector<int64_t> two = {2};
  const tsr_tensor in = plain(x, two);
  Client client;
  const auto with = [&](Client::Step s) {
    client.steps = {std::move(s)};
    return code_of([&] {
      Outputs out(1);
      run.run_raw({&in, 1}, 1, out, client);
    });
  };
  CHECK(with([](Client&, tsr_client_call&) { throw e::Error(TSR_USER, "TSR-X125", "mine"); }) == "TSR-X125");
  CHECK(with([](Client& me, tsr_client_call& c) { me.give(c, 0, {2}), throw e::Error(TSR_USER, "TSR-X126", "mine"); }) ==
        "TSR-X126");
  CHECK(with([](Client& me, tsr_client_call& c) { me.give(c, 0, {3}); }) == "TSR-R029");
  CHECK(with([](Client& me, tsr_client_call& c) { me.give(c, 0, {2, 1}); }) == "TSR-R029");
  CHECK(with([](Client& me, tsr_client_call& c) { me.give(c, 0, {2}, TSR_F64); }) == "TSR-R029");
  CHECK(with([](Client& me, tsr_client_call& c) { me.give(c, 0, {2}), c.results[0].tensor.device = e::device("null:0"); }) ==
        "TSR-R029");
  CHECK(with([](Client&, tsr_client_call&) {}) == "TSR-R029");
  CHECK(with(map([](float v) { return v; })).empty());
  CHECK(client.given == client.released);
  Outputs out(1);
  CHECK(code_of([&] { run.run_raw({&in, 1}, 1, out); }) == "TSR-R028");
  CHECK(code_of([&] { (void)run.run(std::vector<e::Tensor>{e::Tensor::create(TSR_F32, two)}); }) == "TSR-R028");
  const auto text = [](const std::string& attributes) {
    return code_of([&] { (void)compile("graph @g(%x: f32[2]) { %a = client_step %x {" + attributes + "}  return %a }"); });
  };
  CHECK(text("step = -1, name = \"s\", dtypes = [\"f32\"], ranks = [0], sizes = []") == "TSR-I205");
  CHECK(text("step = 0, name = \"s\", dtypes = [\"f33\"], ranks = [0], sizes = []") == "TSR-I205");
  CHECK(text("step = 0, name = \"s\", dtypes = [\"f32\"], ranks = [1], sizes = []") == "TSR-I204");
  CHECK(text("step = 0, name = \"s\", dtypes = [\"f32\"], ranks = [], sizes = []") == "TSR-I204");
  CHECK(text("step = 0, name = \"s\", dtypes = [\"f32\"], ranks = [1], sizes = [-3]") == "TSR-I205");
}

TEST_CASE("a program with steps of the client computes what it computes without") {
  std::mt19937 random(11);
  const std::vector<std::pair<std::string, std::function<float(float)>>> maps = {
      {"neg", [](float v) { return -v; }},
      {"abs", [](float v) { return std::abs(v); }},
      {"relu", [](float v) { return v > 0 ? v : 0; }},
      {"floor", [](float v) { return std::floor(v); }}};
  for (int turn = 0; turn < 60; ++turn) {
    std::string mixed = "graph @g(%v0: f32[s0, 3], %v1: f32[3]) -> (f32[s0, 3], f32[s0, 3]) {\n", whole = mixed;
    Client client;
    int last = 2;
    const auto both = [&](const std::string& line) { mixed += line, whole += line; };
    both("%v2 = add %v0, %v1\n");
    for (int k = 0; k < 8; ++k) {
      const auto& [op, f] = maps[random() % maps.size()];
      const std::string operand = "%v" + std::to_string(random() % 3 ? last : 2);
      const std::string result = "%v" + std::to_string(++last) + " = ";
      whole += result + op + " " + operand + "\n";
      if (random() % 2) {
        mixed += result + op + " " + operand + "\n";
      } else {
        const char* kind = random() % 2 ? "client_step " : "client_effect ";
        mixed += result + kind + operand + " {step = " + std::to_string(client.steps.size()) + ", name = \"" + op +
                 "\", dtypes = [\"f32\"], ranks = [2], sizes = [s0, 3]}\n";
        client.steps.push_back(map(f, random() % 2 ? 0 : 4));
      }
      const std::string sum = "%v" + std::to_string(last + 1) + " = add %v" + std::to_string(last) + ", %v2\n";
      ++last;
      both(sum);
    }
    both("return %v" + std::to_string(last) + ", %v" + std::to_string(last - 2) + "\n}");
    INFO(mixed);
    const e::Executable a = compile(mixed), b = compile(whole);
    for (const int64_t n : {1, 4, 9}) {
      Floats x(static_cast<size_t>(3 * n)), y = {0.5f, -1.25f, 2.0f};
      for (float& v : x) v = static_cast<float>(static_cast<int>(random() % 64) - 32) / 8;
      const std::vector<int64_t> sizes = {n, 3}, row = {3};
      const tsr_tensor in[] = {plain(x, sizes), plain(y, row)};
      Outputs found(2), expected(2);
      a.run_raw(in, 2, found, client);
      b.run_raw(in, 2, expected);
      CHECK(found.floats(0) == expected.floats(0));
      CHECK(found.floats(1) == expected.floats(1));
    }
    CHECK(client.given == client.released);
  }
}

}  // namespace client_step_test
