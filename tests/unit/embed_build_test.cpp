// SPDX-License-Identifier: Apache-2.0
// Graphs made by calls, and runs on the caller's memory: the embedding API as a client in another language uses it.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <random>

#include "run/run_state.hpp"
#include "tessera/embed.hpp"

namespace embed_build_test {

namespace e = tessera::embed;

namespace {

const tsr_graph_api& graphs() { return *e::api().host->graph; }

struct Type {
  std::vector<tsr_dim> sizes;
  tsr_type type{};
  explicit Type(std::vector<tsr_dim> s, uint32_t dtype = TSR_F32) : sizes(std::move(s)) {
    type.dtype = dtype;
    type.rank = static_cast<uint32_t>(sizes.size());
    type.sizes = sizes.data();
  }
};

tsr_id input(tsr_graph* g, const char* name, std::vector<tsr_dim> sizes) {
  const Type t(std::move(sizes));
  tsr_id v = TSR_NONE;
  e::check(graphs().input_create(g, name, &t.type, TSR_INPUT_ARG, nullptr, &v));
  return v;
}

tsr_id node(tsr_graph* g, const char* op, std::vector<tsr_id> operands, std::vector<tsr_attr> attrs = {}) {
  tsr_node_desc d{};
  d.struct_size = sizeof d;
  d.op = op;
  d.operands = operands.data();
  d.num_operands = static_cast<uint32_t>(operands.size());
  d.attrs = attrs.data();
  d.num_attrs = static_cast<uint32_t>(attrs.size());
  tsr_id n = TSR_NONE;
  e::check(graphs().node_create(g, &d, 0, TSR_NONE, &n));
  const tsr_tables& t = *graphs().tables(g);
  return TSR_AT(tsr_node, t.nodes, t.node_stride, n)->results[0];
}

void outputs(tsr_graph* g, std::vector<tsr_id> values) {
  e::check(graphs().region_set_outputs(g, 0, values.data(), static_cast<uint32_t>(values.size())));
}

tsr_dim symbol(tsr_graph* g, const char* name, int64_t min, int64_t max, int64_t hint = -1) {
  tsr_dim d = 0;
  e::check(e::api().graph_symbol(g, name, min, max, hint, &d));
  return d;
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

struct Block {  // the caller's memory for outputs
  std::vector<void*> taken;
  std::vector<std::vector<int64_t>> shapes;
  explicit Block(size_t n) : taken(n, nullptr), shapes(n) {}
  ~Block() {
    for (void* p : taken) std::free(p);
  }
  void* operator()(size_t index, const tsr_tensor& d, size_t bytes) {
    shapes[index].assign(d.sizes, d.sizes + d.rank);
    REQUIRE(taken[index] == nullptr);
    return taken[index] = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  }
  const float* floats(size_t i) const { return static_cast<const float*>(taken[i]); }
};

tsr_tensor plain(void* data, const std::vector<int64_t>& sizes, const int64_t* strides = nullptr) {
  return {data, TSR_F32, static_cast<uint32_t>(sizes.size()), sizes.data(), strides, 0, 0};
}

}  // namespace

TEST_CASE("a graph is made by calls, with symbols, and prints as text would") {
  const e::Context context;
  const e::Graph g = context.build("made", [](tsr_graph* graph) {
    const tsr_dim s = symbol(graph, "s0", 2, 64, 5);
    const tsr_id x = input(graph, "x", {s, 4}), y = input(graph, "y", {4});
    outputs(graph, {node(graph, "add", {x, y}), x});
  });
  REQUIRE(g.print() == context.parse(g.print(), "made.tsr").print());
  REQUIRE(g.print().find("symbols { s0: 2..64 hint 5 }") != std::string::npos);
}

TEST_CASE("mistakes while a graph is made are coded, and leave nothing behind") {
  const e::Context context;
  const auto build = [&](auto&& f) { return code_of([&] { (void)context.build("made", f); }); };
  REQUIRE(build([](tsr_graph* g) { node(g, "no_such_op", {}); }) == "TSR-O001");
  REQUIRE(build([](tsr_graph* g) { node(g, "relu", {41}); }) == "TSR-B001");
  REQUIRE(build([](tsr_graph* g) {
            outputs(g, {node(g, "add", {input(g, "x", {2}), input(g, "y", {3})})});
          }).substr(0, 5) == "TSR-I");
  REQUIRE(build([](tsr_graph* g) { symbol(g, "s0", 4, 3); }) == "TSR-S006");
  REQUIRE(build([](tsr_graph* g) { symbol(g, "s 0", 1, 3); }) == "TSR-S006");
  REQUIRE(build([](tsr_graph* g) { symbol(g, "s", 1, 3), symbol(g, "s", 1, 3); }) == "TSR-S002");
  REQUIRE(build([](tsr_graph*) { throw e::Error(TSR_USER, "TSR-X123", "mine"); }) == "TSR-X123");
  REQUIRE(build([](tsr_graph*) { throw std::runtime_error("mine"); }) == "TSR-E017");
  REQUIRE(code_of([&] { e::check(e::api().graph_build(context.handle(), "g", nullptr, nullptr, nullptr)); }) == "TSR-E002");
}

TEST_CASE("run_raw reads strided memory of the caller and writes to memory that it gives") {
  const e::Context context;
  const e::Executable run = context.compile_model(context.build("made", [](tsr_graph* g) {
    const tsr_dim s = symbol(g, "s0", 0, 64);
    const tsr_id x = input(g, "x", {s, 3}), y = input(g, "y", {3});
    outputs(g, {node(g, "mul", {x, y}), x, node(g, "exp", {y})});
  }));
  std::mt19937 random(7);
  for (const int64_t n : {1, 5, 5, 64, 0, 2}) {
    std::vector<float> x(static_cast<size_t>(3 * n) + 1), y = {2, 3, 4};
    for (float& v : x) v = static_cast<float>(random() % 100);
    const std::vector<int64_t> sizes = {n, 3}, strides = {1, n}, row = {3};  // x lies column-major
    const tsr_tensor inputs[] = {plain(x.data(), sizes, strides.data()), plain(y.data(), row)};
    Block block(3);
    run.run_raw(inputs, 3, block);
    REQUIRE(block.shapes[0] == sizes);
    REQUIRE(block.shapes[1] == sizes);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < 3; ++k) {
        const float v = x[static_cast<size_t>(i + k * n)];
        REQUIRE(block.floats(0)[i * 3 + k] == v * y[static_cast<size_t>(k)]);
        REQUIRE(block.floats(1)[i * 3 + k] == v);
      }
    REQUIRE(block.floats(2)[0] == Approx(std::exp(2.0f)));
  }
}

TEST_CASE("run_raw computes the same of any memory that an input may lie in") {
  const e::Context context;
  std::mt19937 random(3);
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{4, 6}, {1, 5}, {7, 1}, {2, 3, 4}, {}, {0, 3}, {1, 1}}) {
    const e::Executable run = context.compile_model(context.build("made", [&](tsr_graph* g) {
      const std::vector<tsr_dim> sizes(shape.begin(), shape.end());
      const tsr_id x = input(g, "x", sizes), y = input(g, "y", sizes), z = node(g, "mul", {x, y});
      outputs(g, {node(g, "add", {node(g, "exp", {z}), x}), z});
    }));
    int64_t elements = 1;
    for (const int64_t n : shape) elements *= n;
    const size_t n = static_cast<size_t>(elements);
    std::vector<float> values[2], first[2];
    for (std::vector<float>& v : values)
      for (size_t i = 0; i < n; ++i) v.push_back(static_cast<float>(random() % 64) / 16);
    for (const size_t shift : {0, 1, 16})            // in elements, behind an aligned address
      for (const bool column_major : {false, true})  // of the first
        for (const bool with_strides : {false, true}) {
          if (column_major && !with_strides) continue;
          auto* memory = static_cast<float*>(std::aligned_alloc(64, (n + 32) * 4 / 64 * 64 + 64));
          std::vector<int64_t> strides(shape.size()), rows(shape.size());
          int64_t stride = 1;
          for (size_t k = shape.size(); k-- > 0; stride *= shape[k]) rows[k] = shape[k] == 1 ? 99 : stride;
          stride = 1;
          for (size_t k = 0; k < shape.size(); stride *= shape[k], ++k) strides[k] = stride;
          for (int64_t i = 0; i < elements; ++i) {
            int64_t at = i, rest = i;
            if (column_major) {
              at = 0;
              for (size_t k = shape.size(); k-- > 0; rest /= shape[k]) at += rest % shape[k] * strides[k];
            }
            memory[shift + static_cast<size_t>(at)] = values[0][static_cast<size_t>(i)];
          }
          const tsr_tensor inputs[] = {plain(memory + shift, shape,
                                             column_major   ? strides.data()
                                             : with_strides ? rows.data()
                                                            : nullptr),
                                       plain(values[1].data(), shape)};
          Block block(2);
          run.run_raw(inputs, 2, block);
          for (size_t j = 0; j < 2; ++j) {
            CHECK(block.shapes[j] == shape);
            const std::vector<float> found(block.floats(j), block.floats(j) + n);
            if (first[j].empty()) first[j] = found;
            CHECK(found == first[j]);
          }
          for (size_t i = 0; i < n; ++i) CHECK(block.floats(1)[i] == values[0][i] * values[1][i]);
          std::free(memory);
        }
  }
}

TEST_CASE("run_raw refuses what run refuses, and memory that is missing or not aligned") {
  const e::Context context;
  const e::Executable run =
      context.compile_model(context.build("made", [](tsr_graph* g) { outputs(g, {node(g, "exp", {input(g, "x", {3})})}); }));
  float x[4] = {1, 2, 3, 4};
  const std::vector<int64_t> three = {3}, four = {4}, square = {3, 1};
  Block block(1);
  const auto with = [&](const tsr_tensor& t) { return code_of([&] { run.run_raw({&t, 1}, 1, block); }); };
  REQUIRE(with(plain(x, four)) == "TSR-T023");
  REQUIRE(with(plain(x, square)) == "TSR-T022");
  REQUIRE(with(plain(nullptr, three)) == "TSR-T005");
  tsr_tensor t = plain(x, three);
  t.dtype = TSR_I32;
  REQUIRE(with(t) == "TSR-T021");
  t = plain(x, three);
  REQUIRE(code_of([&] { run.run_raw({&t, 0}, 1, block); }) == "TSR-T020");
  REQUIRE(code_of([&] { run.run_raw({&t, 1}, 2, block); }) == "TSR-T020");
  REQUIRE(code_of([&] {
            run.run_raw({&t, 1}, 1, [](size_t, const tsr_tensor&, size_t) -> void* { return nullptr; });
          }) == "TSR-T028");
  alignas(64) char memory[128];
  REQUIRE(code_of([&] {
            run.run_raw({&t, 1}, 1, [&](size_t, const tsr_tensor&, size_t) -> void* { return memory + 4; });
          }) == "TSR-T028");
  REQUIRE(code_of([&] {
            run.run_raw({&t, 1}, 1,
                        [](size_t, const tsr_tensor&, size_t) -> void* { throw e::Error(TSR_USER, "TSR-X124", "mine"); });
          }) == "TSR-X124");
  REQUIRE(with(t).empty());
}

}  // namespace embed_build_test
