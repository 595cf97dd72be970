// SPDX-License-Identifier: Apache-2.0
// What the importer makes of models, right and wrong, through the embedding API.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "golden.hpp"
#include "run_model.hpp"

using namespace tessera::onnx_test;
namespace e = tessera::embed;
namespace fs = std::filesystem;

namespace {

std::string refused(const Folder& folder, const std::string& bytes) {
  try {
    (void)load(folder, bytes);
    return "accepted\n";
  } catch (const e::Error& error) {
    CHECK(error.family() == TSR_USER);
    return folder.without(error.what()) + "\n";
  }
}

Msg relu() {
  return model(graph({{node("Relu", {"x"}, {"y"})}, {}, {value_info("x", kFloat, {2, 3})}, {value_info("y", kFloat, {2, 3})}}));
}
std::string with_nodes(std::vector<Msg> nodes, std::vector<Msg> initializers = {}, int64_t opset = 17) {
  return model(graph({std::move(nodes),
                      std::move(initializers),
                      {value_info("x", kFloat, {2, 3})},
                      {value_info("y", kFloat, {2, 3})}}),
               opset)
      .bytes();
}

}  // namespace

TEST_CASE("a model that is wrong is refused with a code, the place, and what to do") {
  const Folder folder;
  std::string text;
  const auto add = [&](const char* what, const std::string& bytes) {
    text += std::string("# ") + what + "\n" + refused(folder, bytes);
  };
  const std::string good = relu().bytes();
  const auto add_weight = node("Add", {"x", "w"}, {"y"});

  add("no model", "hello, world");
  add("an empty file", "");
  add("a truncated file", good.substr(0, good.size() - 7));
  add("a model without a graph", Msg().i(1, 8).bytes());
  add("no opset",
      Msg()
          .i(1, 8)
          .m(7, graph({{node("Relu", {"x"}, {"y"})}, {}, {value_info("x", kFloat, {2})}, {value_info("y", kFloat, {2})}}))
          .bytes());
  add("an opset from the future", with_nodes({node("Relu", {"x"}, {"y"})}, {}, 99));
  add("no outputs", model(graph({{node("Relu", {"x"}, {"y"})}, {}, {value_info("x", kFloat, {2})}, {}})).bytes());
  add("an unknown operator", with_nodes({node("Relux", {"x"}, {"y"})}));
  add("an operator of another domain", with_nodes({node("Frobnicate", {"x"}, {"y"}, {}, "com.acme")}));
  add("a missing initializer", with_nodes({add_weight}));
  add("a cycle", with_nodes({node("Add", {"x", "b"}, {"a"}), node("Relu", {"a"}, {"b"}), node("Relu", {"b"}, {"y"})}));
  add("a value defined twice", with_nodes({node("Relu", {"x"}, {"y"}), node("Exp", {"x"}, {"y"})}));
  add("an output that nothing defines", with_nodes({node("Relu", {"x"}, {"z"})}));
  add("too little data", with_nodes({add_weight}, {tensor("w", kFloat, {3}, raw<float>({1, 2}))}));
  add("10 GB in a short file", with_nodes({add_weight}, {tensor("w", kFloat, {2500000000}, "")}));
  add("10 GB of typed data", with_nodes({add_weight}, {Msg().i(1, 2500000000).i(2, kFloat).s(8, "w").s(4, raw<float>({1}))}));
  add("a negative size", with_nodes({add_weight}, {tensor("w", kFloat, {-3}, "")}));
  add("sizes that overflow", with_nodes({add_weight}, {tensor("w", kFloat, {int64_t{1} << 40, int64_t{1} << 40}, "")}));
  add("an element type that does not exist", with_nodes({add_weight}, {tensor("w", 77, {3}, "")}));
  add("strings", with_nodes({add_weight}, {tensor("w", kString, {3}, "")}));
  add("an input without a shape", model(graph({{node("Relu", {"x"}, {"y"})},
                                               {},
                                               {Msg().s(1, "x").m(2, Msg().m(1, Msg().i(1, kFloat)))},
                                               {value_info("y", kFloat, {2})}}))
                                      .bytes());
  add("an input that is a sequence",
      model(
          graph({{node("Relu", {"x"}, {"y"})}, {}, {Msg().s(1, "x").m(2, Msg().m(4, Msg()))}, {value_info("y", kFloat, {2})}}))
          .bytes());
  add("shapes that do not fit", with_nodes({add_weight}, {tensor("w", kFloat, {4}, raw<float>({1, 2, 3, 4}))}));
  add("types that do not fit", with_nodes({add_weight}, {tensor("w", kInt64, {3}, raw<int64_t>({1, 2, 3}))}));
  add("an attribute of another type",
      with_nodes({node("Softmax", {"x"}, {"y"}, {attribute("axis", std::vector<int64_t>{1})})}));
  add("an axis out of range", with_nodes({node("Softmax", {"x"}, {"y"}, {attribute("axis", 5)})}));
  add("a missing input", with_nodes({node("Add", {"x"}, {"y"})}));
  add("a missing attribute", with_nodes({node("Concat", {"x", "x"}, {"y"})}));
  add("a form that is not translated",
      with_nodes({node("Det", {"w"}, {"d"}), add_weight}, {tensor("w", kFloat, {4, 4}, std::string(64, 0))}));
  add("axes that are data", model(graph({{node("Unsqueeze", {"x", "a"}, {"y"})},
                                         {},
                                         {value_info("x", kFloat, {2, 3}), value_info("a", kInt64, {1})},
                                         {value_info("y", kFloat, {"p", "q", "r"})}}))
                                .bytes());
  const auto function = [](const char* calls) {
    return Msg()
        .s(1, "F")
        .s(4, "a")
        .s(5, "b")
        .m(7, node(calls, {"a"}, {"b"}, {}, "f"))
        .m(9, Msg().s(1, "f").i(2, 1))
        .s(10, "f");
  };
  const Msg calls =
      graph({{node("F", {"x"}, {"y"}, {}, "f")}, {}, {value_info("x", kFloat, {2})}, {value_info("y", kFloat, {2})}});
  add("a function that calls itself", Msg(model(calls)).m(25, function("F")).bytes());
  Msg deep = graph({{}, {}, {}, {}});
  for (int i = 0; i < 70; ++i) deep = graph({{node("If", {"c"}, {"z"}, {attribute("then_branch", deep)})}, {}, {}, {}});
  add("graphs nested too deep", model(deep).bytes());
  tessera::test::check_golden("golden/onnx/refused.expected", text);
}

TEST_CASE("external data lies in the model's folder") {
  const Folder folder;
  std::string text;
  fs::create_directory(folder / "model");
  folder.write("secret.bin", std::string(12, 1));
  folder.write("model/w.bin", raw<float>({9, 1, 2, 3}));
  fs::create_symlink("../secret.bin", folder / "model/link.bin");
  const auto external = [&](const char* what, std::initializer_list<std::pair<const char*, const char*>> entries) {
    Msg t;
    t.i(1, 3).i(2, kFloat).s(8, "w").i(14, 1);
    for (const auto& [key, value] : entries) t.m(13, Msg().s(1, key).s(2, value));
    folder.write("model/m.onnx", with_nodes({node("Add", {"x", "w"}, {"y"})}, {t}));
    text += std::string("# ") + what + "\n";
    try {
      text += context().load((folder / "model/m.onnx").string()).print();
    } catch (const e::Error& error) {
      CHECK(error.family() == TSR_USER);
      text += folder.without(error.what()) + "\n";
    }
  };
  external("beside it", {{"location", "w.bin"}, {"offset", "4"}, {"length", "12"}});
  external("without a length", {{"location", "w.bin"}, {"offset", "4"}});
  external("out of it", {{"location", "../secret.bin"}});
  external("by an absolute path", {{"location", "/etc/passwd"}});
  external("through a link", {{"location", "link.bin"}});
  external("missing", {{"location", "v.bin"}});
  external("beyond its end", {{"location", "w.bin"}, {"offset", "8"}, {"length", "12"}});
  external("of another length", {{"location", "w.bin"}, {"length", "16"}});
  external("at no number", {{"location", "w.bin"}, {"offset", "-4"}});
  external("without a location", {{"offset", "4"}});
  tessera::test::check_golden("golden/onnx/external_data.expected", text);
}

TEST_CASE("a damaged file gives an error or a graph, never a crash") {
  const Folder folder;
  const Msg branch = graph({{node("Relu", {"x"}, {"b"})}, {}, {}, {value_info("b", kFloat, {2, 3})}});
  const std::string good =
      Msg(model(graph({{node("Gemm", {"x", "w", "c"}, {"h"}, {attribute("transB", 1)}), node("Shape", {"h"}, {"s"}),
                        node("Reshape", {"h", "s"}, {"r"}),
                        node("If", {"k"}, {"i"}, {attribute("then_branch", branch), attribute("else_branch", branch)}),
                        node("Add", {"r", "i"}, {"y"})},
                       {tensor("w", kFloat, {3, 3}, std::string(36, 1)), tensor("c", kFloat, {3}, std::string(12, 1)),
                        tensor("k", kBool, {}, std::string(1, 1))},
                       {value_info("x", kFloat, {"n", 3})},
                       {value_info("y", kFloat, {"n", 3})}},
                      "good")))
          .bytes();
  (void)load(folder, good);
  const auto survives = [&](const std::string& bytes) {
    try {
      (void)load(folder, bytes);
    } catch (const e::Error& error) {
      INFO(error.what());
      CHECK(error.family() == TSR_USER);
    }
  };
  for (size_t n = 0; n < good.size(); ++n) survives(good.substr(0, n));
  for (size_t i = 0; i < good.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      survives(bad);
    }
}

TEST_CASE("shape arithmetic is computed on symbolic sizes and leaves no nodes") {
  const Folder folder;
  // x[batch, length, 12] to heads [batch, 4, length, 3], as exporters write it.
  const std::string bytes =
      model(
          graph({{node("Shape", {"x"}, {"shape"}), node("Gather", {"shape", "zero"}, {"b"}),
                  node("Gather", {"shape", "one"}, {"l"}), node("Unsqueeze", {"b", "axis"}, {"b1"}),
                  node("Unsqueeze", {"l", "axis"}, {"l1"}),
                  node("Concat", {"b1", "l1", "rest"}, {"to"}, {attribute("axis", 0)}), node("Reshape", {"x", "to"}, {"heads"}),
                  node("Transpose", {"heads"}, {"y"}, {attribute("perm", std::vector<int64_t>{0, 2, 1, 3})})},
                 {tensor("zero", kInt64, {}, raw<int64_t>({0})), tensor("one", kInt64, {}, raw<int64_t>({1})),
                  tensor("axis", kInt64, {1}, raw<int64_t>({0})), tensor("rest", kInt64, {2}, raw<int64_t>({4, -1}))},
                 {value_info("x", kFloat, {"batch", "length", 12})},
                 {value_info("y", kFloat, {"batch", 4, "length", 3})}}))
          .bytes();
  tessera::test::check_golden("golden/onnx/shape_arithmetic.expected", load(folder, bytes).print());
}

TEST_CASE("nested graphs become regions that are given what they use") {
  const Folder folder;
  const Msg yes = graph({{node("Add", {"x", "w"}, {"t"})}, {}, {}, {value_info("t", kFloat, {3})}}),
            no = graph({{node("Neg", {"x"}, {"f"})}, {}, {}, {value_info("f", kFloat, {3})}});
  const std::string branches =
      model(graph({{node("If", {"c"}, {"y"}, {attribute("then_branch", yes), attribute("else_branch", no)})},
                   {tensor("w", kFloat, {3}, raw<float>({1, 2, 3}))},
                   {value_info("c", kBool, {}), value_info("x", kFloat, {3})},
                   {value_info("y", kFloat, {3})}}))
          .bytes();
  tessera::test::check_golden("golden/onnx/if.expected", load(folder, branches).print());
  const Msg body = graph({{node("Identity", {"c"}, {"c1"}), node("Add", {"a", "x"}, {"a1"})},
                          {},
                          {value_info("i", kInt64, {}), value_info("c", kBool, {}), value_info("a", kFloat, {3})},
                          {value_info("c1", kBool, {}), value_info("a1", kFloat, {3})}});
  const std::string loop = model(graph({{node("Loop", {"n", "", "x"}, {"y"}, {attribute("body", body)})},
                                        {tensor("n", kInt64, {}, raw<int64_t>({5}))},
                                        {value_info("x", kFloat, {3})},
                                        {value_info("y", kFloat, {3})}}))
                               .bytes();
  tessera::test::check_golden("golden/onnx/loop.expected", load(folder, loop).print());
}

TEST_CASE("an input whose value is fixed becomes a constant") {
  const Folder folder;
  folder.write("m.onnx", model(graph({{node("ReduceSum", {"x", "axes"}, {"y"})},
                                      {},
                                      {value_info("x", kFloat, {2, 3}), value_info("axes", kInt64, {1})},
                                      {value_info("y", kFloat, {1, 3})}}))
                             .bytes());
  const int64_t one[] = {1};
  const e::Tensor axes = e::Tensor::create(TSR_I64, one);
  *static_cast<int64_t*>(axes.data()) = 0;
  const std::pair<std::string, e::Tensor> bound[] = {{"axes", axes}};
  tessera::test::check_golden("golden/onnx/fixed.expected", context().load((folder / "m.onnx").string(), bound).print());
  const std::pair<std::string, e::Tensor> wrong[] = {{"axes", axes}, {"axis", axes}};
  CHECK_THROWS_WITH(context().load((folder / "m.onnx").string(), wrong),
                    Catch::Contains("TSR-E013") && Catch::Contains("no input 'axis'"));
}

TEST_CASE("weights stay in the mapped file where they lie aligned") {
  const Folder folder;
  // 16 MiB of external data at offset 0 is page-aligned: importing it touches none of it.
  const int64_t n = 4 << 20;
  fs::create_directory(folder / "big");
  std::ofstream(folder / "big/w.bin", std::ios::binary) << std::string(static_cast<size_t>(n) * 4, 0);
  Msg t;
  t.i(1, n).i(2, kFloat).s(8, "w").i(14, 1).m(13, Msg().s(1, "location").s(2, "w.bin"));
  folder.write(
      "big/m.onnx",
      model(graph({{node("Add", {"x", "w"}, {"y"})}, {t}, {value_info("x", kFloat, {n})}, {value_info("y", kFloat, {n})}}))
          .bytes());
  const auto anonymous = [] {  // kB of memory that is no mapped file
    std::ifstream in("/proc/self/status");
    for (std::string word; in >> word;)
      if (word == "RssAnon:") {
        int64_t kb = 0;
        in >> kb;
        return kb;
      }
    return int64_t{-1};
  };
  (void)context();
  const int64_t before = anonymous();
  const e::Graph g = context().load((folder / "big/m.onnx").string());
  CHECK(anonymous() - before < 4096);
}

TEST_CASE("axes of a reduction may arrive at run time") {
  const Folder folder;
  for (const bool keep : {true, false}) {
    folder.write("m.onnx", model(graph({{node("ReduceMean", {"x", "axes"}, {"y"}, {attribute("keepdims", int64_t{keep})})},
                                        {},
                                        {value_info("x", kFloat, {2, "n", 3}), value_info("axes", kInt64, {2})},
                                        {value_info("y", kFloat, {})}}),
                                 18)
                               .bytes());
    const e::Executable model = context().compile(context().load((folder / "m.onnx").string()));
    const int64_t shape[] = {2, 2, 3}, two[] = {2};
    const e::Tensor x = e::Tensor::create(TSR_F32, shape), axes = e::Tensor::create(TSR_I64, two);
    for (int i = 0; i < 12; ++i) static_cast<float*>(x.data())[i] = static_cast<float>(i);
    struct Expected {
      int64_t a, b;
      std::vector<int64_t> kept, left;
      std::vector<float> values;
    };
    for (const Expected& w : {Expected{0, -1, {1, 2, 1}, {2}, {4, 7}}, Expected{1, 2, {2, 1, 1}, {2}, {2.5, 8.5}},
                              Expected{0, 1, {1, 1, 3}, {3}, {4.5, 5.5, 6.5}}}) {
      static_cast<int64_t*>(axes.data())[0] = w.a;
      static_cast<int64_t*>(axes.data())[1] = w.b;
      const e::Tensor inputs[] = {x, axes};
      const e::Tensor y = model.run(inputs)[0].copy_to(0);
      CHECK(std::vector<int64_t>(y.sizes().begin(), y.sizes().end()) == (keep ? w.kept : w.left));
      REQUIRE(y.elements() == static_cast<int64_t>(w.values.size()));
      for (size_t i = 0; i < w.values.size(); ++i) CHECK(static_cast<const float*>(y.data())[i] == w.values[i]);
    }
  }
}

TEST_CASE("n-grams are counted with gaps, weighed and put into their columns, whatever the length of the text") {
  const Folder folder;
  const auto vectorizer = [&](const char* mode, const std::vector<int64_t>& starts) {
    folder.write(
        "m.onnx",
        model(graph({{node("TfIdfVectorizer", {"x"}, {"y"},
                           {text_attribute("mode", mode), attribute("min_gram_length", int64_t{1}),
                            attribute("max_gram_length", int64_t{2}), attribute("max_skip_count", int64_t{1}),
                            attribute("pool_int64s", std::vector<int64_t>{7, 3, 7, 3, 3, 3}), attribute("ngram_counts", starts),
                            attribute("ngram_indexes", std::vector<int64_t>{2, 0, 1, 4}),
                            attribute("weights", std::vector<float>{2, 3, 5, 7, 11})})},
                     {},
                     {value_info("x", kInt64, {"n", "length"})},
                     {value_info("y", kFloat, {"n", 5})}}))
            .bytes());
    return context().compile(context().load((folder / "m.onnx").string()));
  };
  struct Text {
    int64_t rows, length;
    std::vector<int64_t> items;
    std::vector<float> counts;
  };
  const std::vector<Text> texts = {{2, 5, {7, 3, 3, 7, 3, 3, 1, 3, 9, 9}, {3, 3, 2, 0, 2, 2, 0, 0, 0, 1}},
                                   {1, 1, {7}, {0, 0, 1, 0, 0}},
                                   {1, 2, {7, 3}, {1, 1, 1, 0, 0}}};
  const float weights[] = {2, 3, 5, 7, 11};
  for (const char* mode : {"TF", "IDF", "TFIDF"}) {
    const e::Executable m = vectorizer(mode, {0, 2});
    for (const Text& t : texts) {
      const int64_t shape[] = {t.rows, t.length};
      const e::Tensor x = e::Tensor::create(TSR_I64, shape);
      std::copy(t.items.begin(), t.items.end(), static_cast<int64_t*>(x.data()));
      const e::Tensor y = m.run(std::span(&x, 1))[0].copy_to(0);
      REQUIRE(y.elements() == static_cast<int64_t>(t.counts.size()));
      for (size_t i = 0; i < t.counts.size(); ++i) {
        const float count = std::string(mode) == "IDF" ? t.counts[i] > 0 : t.counts[i];
        CHECK(static_cast<const float*>(y.data())[i] == count * (std::string(mode) == "TF" ? 1 : weights[i % 5]));
      }
    }
  }
  CHECK_THROWS_WITH(vectorizer("TF", {0, 3}), Catch::Contains("do not divide the pool"));
}

TEST_CASE("the seeds of the fuzz target are models that import and compile, or are refused") {
  const Folder folder;
  folder.write("w", std::string(256, '\1'));
  int seeds = 0;
  for (const auto& seed : fs::directory_iterator(std::string(TESSERA_TEST_DIR) + "/fuzz/onnx_corpus")) {
    INFO(seed.path());
    fs::copy_file(seed.path(), folder / "m.onnx", fs::copy_options::overwrite_existing);
    const auto compile = [&] { (void)context().compile(context().load((folder / "m.onnx").string())); };
    if (seed.path().filename().string().starts_with("bad_"))
      CHECK_THROWS_AS(compile(), e::Error);
    else
      CHECK_NOTHROW(compile());
    ++seeds;
  }
  CHECK(seeds > 5);
}

TEST_CASE("nodes may stand in any order in the file, in nested graphs too") {
  const Folder folder;
  // y = -(relu(x) + w), last node first; the branch reads what a node behind it defines.
  const Msg branch =
      graph({{node("Neg", {"sum"}, {"b"}), node("Add", {"r", "w"}, {"sum"})}, {}, {}, {value_info("b", kFloat, {3})}});
  const std::string shuffled =
      model(graph({{node("Identity", {"n"}, {"y"}),
                    node("If", {"yes"}, {"n"}, {attribute("then_branch", branch), attribute("else_branch", branch)}),
                    node("Relu", {"x"}, {"r"})},
                   {tensor("w", kFloat, {3}, raw<float>({1, 2, 3}))},
                   {value_info("x", kFloat, {3}), value_info("yes", kBool, {})},
                   {value_info("y", kFloat, {3})}}))
          .bytes();
  const e::Tensor in[] = {floats({3}, {-1, 0, 5}), tensor_of<uint8_t>(TSR_BOOL, {}, {1})};
  CHECK(values_of(compile(folder, shuffled).run(in)[0]) == std::vector<double>{-1, -2, -8});
  // What stands in order stays in the file's order.
  const std::string sorted = with_nodes({node("Exp", {"x"}, {"b"}), node("Neg", {"x"}, {"a"}), node("Add", {"b", "a"}, {"y"})});
  const std::string text = load(folder, sorted).print();
  CHECK(text.find("exp") < text.find("neg"));
}

TEST_CASE("a negative size of an input, or a text that is no name, is a size that is not known") {
  const Folder folder;
  const e::Executable m = compile(folder, model(graph({{node("Flatten", {"x"}, {"y"})},
                                                       {},
                                                       {value_info("x", kFloat, {-1, -1, -2, 2})},
                                                       {value_info("y", kFloat, {-1, -1})}}))
                                              .bytes());
  for (const Sizes& s : {Sizes{1, 2, 3, 2}, Sizes{3, 1, 1, 2}}) {
    const e::Tensor x = e::Tensor::create(TSR_F32, s);
    std::memset(x.data(), 0, static_cast<size_t>(x.elements()) * 4);
    CHECK(sizes_of(m.run(std::span(&x, 1))[0]) == Sizes{s[0], s[1] * s[2] * s[3]});
  }
  const e::Executable texts = compile(folder, model(graph({{node("Flatten", {"x"}, {"y"}, {attribute("axis", 2)})},
                                                           {},
                                                           {value_info("x", kFloat, {"?", "?", "-1", "-1", "None", "None"})},
                                                           {value_info("y", kFloat, {"?", "?"})}}))
                                                  .bytes());
  const e::Tensor x = floats({1, 2, 3, 1, 2, 1}, std::vector<float>(12));
  CHECK(sizes_of(texts.run(std::span(&x, 1))[0]) == Sizes{2, 6});
}
