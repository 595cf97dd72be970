// SPDX-License-Identifier: Apache-2.0
// A model file as a callable: what of a call's arguments its import depends on is guarded, everything else may vary as the file
// says.
#include <fcntl.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "typed_values.hpp"

using namespace tessera::onnx_test;

namespace {

// Read by the library when it first looks: recompiles print why.
const int kLogs = setenv("TESSERA_LOGS", "recompiles", 1);

size_t entries_of(const e::Model& m) { return nlohmann::json::parse(m.describe())["entries"].size(); }
std::vector<std::string> guards_of(const e::Model& m, size_t entry) {
  return nlohmann::json::parse(m.describe())["entries"][entry]["guards"];
}
bool has(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

// What is written to stderr while it lives.
class Stderr {
 public:
  explicit Stderr(const fs::path& file) : file_(file), before_(dup(2)) {
    const int fd = open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    dup2(fd, 2);
    close(fd);
  }
  ~Stderr() { (void)text(); }
  std::string text() {
    if (before_ >= 0) {
      dup2(before_, 2);
      close(std::exchange(before_, -1));
    }
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  fs::path file_;
  int before_;
};

e::Model open_model(const Folder& folder, const std::string& bytes) {
  folder.write("m.onnx", bytes);
  return {context(), (folder / "m.onnx").string()};
}

// x[n, 3] with new dimensions where `axes`, an input, says.
std::string unsqueeze() {
  return model(graph({{node("Unsqueeze", {"x", "axes"}, {"y"})},
                      {},
                      {value_info("x", kFloat, {"n", 3}), value_info("axes", kInt64, {"k"})},
                      {value_info("y", kFloat, {"p", "q", "r"})}}))
      .bytes();
}

e::Tensor zeros(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return tensor_of(TSR_F32, sizes, std::vector<float>(static_cast<size_t>(n), 0));
}

}  // namespace

TEST_CASE("a model is compiled for the values of inputs that its shapes are computed from, and again for others") {
  (void)kLogs;
  const Folder folder;
  const e::Model f = open_model(folder, unsqueeze());
  const tsr_tables& t = f.inputs();
  REQUIRE(TSR_AT(tsr_region, t.regions, t.region_stride, 0)->num_inputs == 2);
  CHECK(sizes_of(f(std::vector{zeros({2, 3}), ints({0})})[0]) == std::vector<int64_t>{1, 2, 3});
  CHECK(entries_of(f) == 1);
  CHECK(has(guards_of(f, 0), "axes == [0]"));
  CHECK(sizes_of(f(std::vector{zeros({7, 3}), ints({0})})[0]) == std::vector<int64_t>{1, 7, 3});  // n is a symbol
  CHECK(entries_of(f) == 1);
  std::string said;
  {
    Stderr log(folder / "stderr");
    CHECK(sizes_of(f(std::vector{zeros({2, 3}), ints({2})})[0]) == std::vector<int64_t>{2, 3, 1});
    CHECK(sizes_of(f(std::vector{zeros({2, 3}), ints({0, 3})})[0]) == std::vector<int64_t>{1, 2, 3, 1});
    said = folder.without(log.text());
  }
  CHECK(entries_of(f) == 3);
  CHECK_THAT(said, Catch::Contains("Recompiling function m in m.onnx\n") && Catch::Contains("- 0/0: axes == [0]\n") &&
                       Catch::Contains("- 0/1: axes == [2]\n"));
  for (int i = 0; i < 3; ++i) {
    CHECK(sizes_of(f(std::vector{zeros({4, 3}), ints({0})})[0]) == std::vector<int64_t>{1, 4, 3});
    CHECK(sizes_of(f(std::vector{zeros({4, 3}), ints({2})})[0]) == std::vector<int64_t>{4, 3, 1});
  }
  CHECK(entries_of(f) == 3);
  e::api().callable_reset(f.handle());
  CHECK(entries_of(f) == 0);
  CHECK(sizes_of(f(std::vector{zeros({2, 3}), ints({2})})[0]) == std::vector<int64_t>{2, 3, 1});
}

TEST_CASE("a call that does not fit the file's types is an error and makes no entry") {
  const Folder folder;
  const e::Model f = open_model(folder, unsqueeze());
  const e::Tensor x = zeros({2, 3}), axes = ints({0});
  for (const bool compiled : {false, true}) {
    if (compiled) (void)f(std::vector{x, axes});
    CHECK_THROWS_WITH(f(std::vector{zeros({2, 4}), axes}), Catch::Contains("TSR-T023") && Catch::Contains("'x'"));
    CHECK_THROWS_WITH(f(std::vector{zeros({2}), axes}), Catch::Contains("TSR-T022"));
    CHECK_THROWS_WITH(f(std::vector{tensor_of<int64_t>(TSR_I64, {1, 3}, {1, 2, 3}), axes}), Catch::Contains("TSR-T021"));
    CHECK_THROWS_WITH(f(std::vector{x}), Catch::Contains("TSR-T020") && Catch::Contains("x, axes"));
    CHECK_THROWS_WITH(f(std::vector{x, floats({0})}), Catch::Contains("axes"));
    CHECK_THROWS_WITH(f(std::vector{x, ints({7})}), Catch::Contains("axis 7"));
    CHECK(entries_of(f) == (compiled ? 1 : 0));
  }
}

TEST_CASE("sizes that decide between branches of other ranks are guarded, and no others") {
  const Folder folder;
  // What exporters make of squeeze(-1): one branch drops the last dimension if its size is 1.
  const Msg yes = graph({{node("Squeeze", {"x", "last"}, {"t"})}, {}, {}, {value_info("t", kFloat, {"n"})}}),
            no = graph({{node("Identity", {"x"}, {"f"})}, {}, {}, {value_info("f", kFloat, {"n", "m"})}});
  const std::string bytes =
      model(graph({{node("Shape", {"x"}, {"s"}), node("Gather", {"s", "last"}, {"d"}), node("Equal", {"d", "one"}, {"c"}),
                    node("If", {"c"}, {"y"}, {attribute("then_branch", yes), attribute("else_branch", no)}),
                    node("Neg", {"y"}, {"z"})},
                   {tensor("last", kInt64, {1}, raw<int64_t>({-1})), tensor("one", kInt64, {1}, raw<int64_t>({1}))},
                   {value_info("x", kFloat, {"n", "m"})},
                   {value_info("z", kFloat, {})}}))
          .bytes();
  const e::Model f = open_model(folder, bytes);
  CHECK(sizes_of(f(std::vector{zeros({5, 1})})[0]) == std::vector<int64_t>{5});
  CHECK(sizes_of(f(std::vector{zeros({7, 1})})[0]) == std::vector<int64_t>{7});
  CHECK(entries_of(f) == 1);
  CHECK(sizes_of(f(std::vector{zeros({5, 4})})[0]) == std::vector<int64_t>{5, 4});
  CHECK(entries_of(f) == 2);
  CHECK(sizes_of(f(std::vector{zeros({2, 1})})[0]) == std::vector<int64_t>{2});
  for (const int64_t m : {2, 3, 5, 9}) CHECK(sizes_of(f(std::vector{zeros({2, m})})[0]) == std::vector<int64_t>{2, m});
  CHECK(entries_of(f) == 2);  // m is a symbol still, guarded by what the branch asks of it
  CHECK(has(guards_of(f, 1), "x.size(1) != 1"));
  // Without a call nothing says which branch it is.
  CHECK_THROWS_WITH(load(folder, bytes), Catch::Contains("TSR-X012") && Catch::Contains("depends on the sizes m1"));
}

TEST_CASE("random conditions on sizes make one entry per branch") {
  const Folder folder;
  std::mt19937 random(22);
  struct Term {
    const char* text;
    std::function<int64_t(int64_t, int64_t)> value;
  };
  const Term terms[] = {{"n", [](int64_t n, int64_t) { return n; }},
                        {"m", [](int64_t, int64_t m) { return m; }},
                        {"sum", [](int64_t n, int64_t m) { return n + m; }},
                        {"half", [](int64_t n, int64_t) { return n / 2; }},
                        {"product", [](int64_t n, int64_t m) { return n * m; }},
                        {"one", [](int64_t, int64_t) { return 1; }},
                        {"four", [](int64_t, int64_t) { return 4; }}};
  const std::pair<const char*, std::function<bool(int64_t, int64_t)>> relations[] = {
      {"Equal", std::equal_to<int64_t>()},
      {"Less", std::less<int64_t>()},
      {"LessOrEqual", std::less_equal<int64_t>()},
      {"Greater", std::greater<int64_t>()},
      {"GreaterOrEqual", std::greater_equal<int64_t>()}};
  // One branch flattens x[n, m], the other leaves it.
  const Msg yes = graph({{node("Reshape", {"x", "flat"}, {"t"})}, {}, {}, {value_info("t", kFloat, {"p"})}}),
            no = graph({{node("Identity", {"x"}, {"f"})}, {}, {}, {value_info("f", kFloat, {"n", "m"})}});
  for (int i = 0; i < 60; ++i) {
    const Term &a = terms[random() % 5], &b = terms[random() % 7];
    const auto& [name, holds] = relations[random() % 5];
    const bool negated = random() % 2 == 0;
    INFO(a.text << " " << name << " " << b.text << (negated ? ", negated" : ""));
    const e::Model f = open_model(
        folder, model(graph({{node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"n"}),
                              node("Gather", {"s", "one"}, {"m"}), node("Add", {"n", "m"}, {"sum"}),
                              node("Div", {"n", "two"}, {"half"}), node("Mul", {"n", "m"}, {"product"}),
                              node(name, {a.text, b.text}, {"r"}), node(negated ? "Not" : "Identity", {"r"}, {"c"}),
                              node("If", {"c"}, {"z"}, {attribute("then_branch", yes), attribute("else_branch", no)})},
                             {tensor("flat", kInt64, {1}, raw<int64_t>({-1})), tensor("zero", kInt64, {}, raw<int64_t>({0})),
                              tensor("one", kInt64, {}, raw<int64_t>({1})), tensor("two", kInt64, {}, raw<int64_t>({2})),
                              tensor("four", kInt64, {}, raw<int64_t>({4}))},
                             {value_info("x", kFloat, {"n", "m"})},
                             {value_info("z", kFloat, {})}}))
                    .bytes());
    for (int call = 0; call < 8; ++call) {
      const int64_t n = random() % 6, m = random() % 6;
      const bool flat = holds(a.value(n, m), b.value(n, m)) != negated;
      CHECK(sizes_of(f(std::vector{zeros({n, m})})[0]) == (flat ? std::vector<int64_t>{n * m} : std::vector<int64_t>{n, m}));
    }
    CHECK(entries_of(f) <= 2);
  }
}

TEST_CASE("a branch that a call does not take need not fit it") {
  const Folder folder;
  // rate 8: -x[n, 4]; else its product with a matrix of three rows, which no x of four columns has.
  const Msg yes = graph({{node("Neg", {"x"}, {"t"})}, {}, {}, {value_info("t", kFloat, {"n", 4})}}),
            no = graph({{node("MatMul", {"x", "w"}, {"f"})}, {}, {}, {value_info("f", kFloat, {"n", 4})}});
  const e::Model f = open_model(
      folder, model(graph({{node("Equal", {"rate", "eight"}, {"c"}),
                            node("If", {"c"}, {"y"}, {attribute("then_branch", yes), attribute("else_branch", no)})},
                           {tensor("eight", kInt64, {}, raw<int64_t>({8})), tensor("w", kFloat, {3, 4}, std::string(48, 0))},
                           {value_info("x", kFloat, {"n", 4}), value_info("rate", kInt64, {})},
                           {value_info("y", kFloat, {"n", 4})}}))
                  .bytes());
  CHECK(values_of<float>(f(std::vector{tensor_of<float>(TSR_F32, {1, 4}, {1, 2, 3, 4}), scalar(8)})[0]) ==
        std::vector<float>{-1, -2, -3, -4});
  CHECK_THROWS_WITH(f(std::vector{zeros({1, 4}), scalar(16)}), Catch::Contains("MatMul"));
}

TEST_CASE("what one branch assumes about sizes does not keep calls from taking the other") {
  const Folder folder;
  // A reflection by 3 wants more than 3 elements.
  const Msg yes = graph({{node("Pad", {"x", "pads"}, {"t"}, {text_attribute("mode", "reflect")})},
                         {},
                         {},
                         {value_info("t", kFloat, {"p"})}}),
            no = graph({{node("Neg", {"x"}, {"f"})}, {}, {}, {value_info("f", kFloat, {"n"})}});
  const e::Model f =
      open_model(folder, model(graph({{node("If", {"c"}, {"y"}, {attribute("then_branch", yes), attribute("else_branch", no)})},
                                      {tensor("pads", kInt64, {2}, raw<int64_t>({3, 0}))},
                                      {value_info("x", kFloat, {"n"}), value_info("c", kBool, {})},
                                      {value_info("y", kFloat, {"m"})}}))
                             .bytes());
  const auto flag = [](bool v) { return tensor_of<uint8_t>(TSR_BOOL, {}, {static_cast<uint8_t>(v)}); };
  const e::Tensor five = floats({1, 2, 3, 4, 5}), two = floats({1, 2});
  CHECK(values_of<float>(f(std::vector{five, flag(true)})[0]) == std::vector<float>{4, 3, 2, 1, 2, 3, 4, 5});
  CHECK(values_of<float>(f(std::vector{five, flag(false)})[0]) == std::vector<float>{-1, -2, -3, -4, -5});
  CHECK(entries_of(f) == 1);
  CHECK(values_of<float>(f(std::vector{two, flag(false)})[0]) == std::vector<float>{-1, -2});
  CHECK(entries_of(f) == 2);
  CHECK(values_of<float>(f(std::vector{floats({7}), flag(false)})[0]) == std::vector<float>{-7});
  CHECK(entries_of(f) == 2);
  CHECK_THROWS_WITH(f(std::vector{two, flag(true)}), Catch::Contains("reflect"));
  CHECK(entries_of(f) == 2);
}

TEST_CASE("an input of which the file says no rank takes that of the call") {
  const Folder folder;
  const e::Model f =
      open_model(folder, model(graph({{node("Add", {"x", "b"}, {"y"})},
                                      {},
                                      {Msg().s(1, "x").m(2, Msg().m(1, Msg().i(1, kFloat))), value_info("b", kFloat, {})},
                                      {value_info("y", kFloat, {})}}))
                             .bytes());
  const e::Tensor b = tensor_of<float>(TSR_F32, {}, {1});
  CHECK(values_of<float>(f(std::vector{floats({1, 2}), b})[0]) == std::vector<float>{2, 3});
  CHECK(values_of<float>(f(std::vector{floats({1, 2, 3}), b})[0]) == std::vector<float>{2, 3, 4});
  CHECK(entries_of(f) == 1);
  CHECK(sizes_of(f(std::vector{zeros({2, 5}), b})[0]) == std::vector<int64_t>{2, 5});
  CHECK(entries_of(f) == 2);
}

TEST_CASE("a model whose file says everything is one entry for every size, and writes its states back") {
  const Folder folder;
  folder.write("m.tsr", R"(graph @count(%x: f32[s0], %n: f32[] state "n" -> 1) -> (f32[s0], f32[]) {
    %one = constant {value = dense<f32[]: 1.0>}
    %m = add %n, %one
    %y = mul %x, %m
    return %y, %m
  })");
  const e::Model f(context(), (folder / "m.tsr").string());
  const e::Tensor n = tensor_of<float>(TSR_F32, {}, {0});
  for (int call = 1; call <= 3; ++call) {
    const auto out = f(std::vector{floats(std::vector<float>(static_cast<size_t>(call), 1)), n});
    CHECK(values_of<float>(out[0]) == std::vector<float>(static_cast<size_t>(call), static_cast<float>(call)));
    CHECK(values_of<float>(n) == std::vector<float>{static_cast<float>(call)});
  }
  CHECK(entries_of(f) == 1);
}

TEST_CASE("Squeeze without axes gives the rank that each call's sizes ask for") {
  const Folder folder;
  const std::string bytes =
      model(graph({{node("Squeeze", {"x"}, {"y"})}, {}, {value_info("x", kFloat, {"n", 1, 3})}, {value_info("y", kFloat, {})}}))
          .bytes();
  for (const bool one_first : {false, true}) {
    const e::Model f = open_model(folder, bytes);
    if (one_first) CHECK(sizes_of(f(std::vector{zeros({1, 1, 3})})[0]) == std::vector<int64_t>{3});
    CHECK(sizes_of(f(std::vector{zeros({2, 1, 3})})[0]) == std::vector<int64_t>{2, 3});
    for (int i = 0; i < 2; ++i) {
      CHECK(sizes_of(f(std::vector{zeros({1, 1, 3})})[0]) == std::vector<int64_t>{3});
      CHECK(sizes_of(f(std::vector{zeros({7, 1, 3})})[0]) == std::vector<int64_t>{7, 3});
      CHECK(sizes_of(f(std::vector{zeros({0, 1, 3})})[0]) == std::vector<int64_t>{0, 3});
    }
    CHECK(entries_of(f) == 2);
  }
  const std::pair<std::string, e::Tensor> one{"x", zeros({1, 1, 3})};
  const auto loaded = context().load_for((folder / "m.onnx").string(), std::vector{one});
  REQUIRE(loaded.graph);
  CHECK(loaded.report ==
        R"({"fixed":[{"input":"x","value":false,"sizes":[1,null,null]}],"missing":[],"open":false,"assumed":[]})");
}

TEST_CASE("random shapes squeezed without axes lose every dimension of 1") {
  const Folder folder;
  std::mt19937 random(6);
  for (int i = 0; i < 40; ++i) {
    Msg shape;
    std::vector<int64_t> declared;  // -1: symbolic
    for (size_t rank = 1 + random() % 4; declared.size() < rank;) {
      declared.push_back(random() % 2 == 0 ? -1 : static_cast<int64_t>(random() % 3));
      shape.m(1, declared.back() < 0 ? Msg().s(2, std::string(1, static_cast<char>('a' + declared.size())))
                                     : Msg().i(1, declared.back()));
    }
    const Msg x = Msg().s(1, "x").m(2, Msg().m(1, Msg().i(1, kFloat).m(2, shape)));
    const e::Model f =
        open_model(folder, model(graph({{node("Squeeze", {"x"}, {"y"})}, {}, {x}, {value_info("y", kFloat, {})}})).bytes());
    for (int call = 0; call < 5; ++call) {
      std::vector<int64_t> sizes, want;
      for (size_t d = 0; d < declared.size(); ++d) {
        sizes.push_back(declared[d] < 0 ? static_cast<int64_t>(random() % 4) : declared[d]);
        if (sizes.back() != 1) want.push_back(sizes.back());
      }
      CHECK(sizes_of(f(std::vector{zeros(sizes)})[0]) == want);
    }
  }
}

TEST_CASE("a size is broadcast against an expression of it where the call makes one of them 1") {
  const Folder folder;
  // x + x[::2]: of sizes n and (n + 1) / 2, which fit each other where n is 1 or 2.
  const std::string bytes =
      model(graph({{node("Slice", {"x", "zero", "end", "zero", "two"}, {"h"}), node("Add", {"x", "h"}, {"y"})},
                   {tensor("zero", kInt64, {1}, raw<int64_t>({0})), tensor("two", kInt64, {1}, raw<int64_t>({2})),
                    tensor("end", kInt64, {1}, raw<int64_t>({1000}))},
                   {value_info("x", kFloat, {"n"})},
                   {value_info("y", kFloat, {"n"})}}))
          .bytes();
  for (const bool one_first : {false, true}) {
    const e::Model f = open_model(folder, bytes);
    if (one_first) CHECK(values_of<float>(f(std::vector{floats({3})})[0]) == std::vector<float>{6});
    for (int i = 0; i < 2; ++i) {
      CHECK(values_of<float>(f(std::vector{floats({3, 5})})[0]) == std::vector<float>{6, 8});
      CHECK(values_of<float>(f(std::vector{floats({4})})[0]) == std::vector<float>{8});
      CHECK_THROWS_WITH(f(std::vector{floats({3, 5, 7})}), Catch::Contains("TSR-T026"));
    }
    CHECK(entries_of(f) == 2);
  }
}

TEST_CASE("a size that has too few elements for the parts of a Split is refused by its call") {
  const Folder folder;
  for (const bool symbolic : {true, false}) {
    const auto split = [&](int64_t n) {
      const e::Model f = open_model(
          folder, model(graph({{node("Split", {"x"}, {"a", "b", "c"}, {attribute("num_outputs", 3)})},
                               {},
                               {symbolic ? value_info("x", kFloat, {"n"}) : value_info("x", kFloat, {n})},
                               {value_info("a", kFloat, {}), value_info("b", kFloat, {}), value_info("c", kFloat, {})}}),
                        18)
                      .bytes());
      std::vector<int64_t> out;
      for (const e::Tensor& t : f(std::vector{zeros({n})})) out.push_back(t.elements());
      return out;
    };
    CHECK(split(7) == std::vector<int64_t>{3, 3, 1});
    CHECK(split(2) == std::vector<int64_t>{1, 1, 0});
    CHECK(split(0) == std::vector<int64_t>{0, 0, 0});
    CHECK_THROWS_WITH(split(1), symbolic ? Catch::Contains("TSR-T026") && Catch::Contains("Split")
                                         : Catch::Contains("TSR-X009") && Catch::Contains("3 parts of 1"));
  }
}

TEST_CASE("a call that no graph of the model takes is refused in the words of the general one") {
  const Folder folder;
  // A reflection by 3 wants more than 3 elements; two inputs of one size have to agree.
  const e::Model f = open_model(
      folder,
      model(graph({{node("Pad", {"x", "pads"}, {"t"}, {text_attribute("mode", "reflect")}), node("Add", {"t", "z"}, {"y"})},
                   {tensor("pads", kInt64, {2}, raw<int64_t>({3, 0}))},
                   {value_info("x", kFloat, {"n"}), value_info("w", kFloat, {"n"}), value_info("z", kFloat, {1})},
                   {value_info("y", kFloat, {"m"})}}))
          .bytes());
  const e::Tensor five = zeros({5}), two = zeros({2}), one = zeros({1});
  for (const bool compiled : {false, true}) {
    if (compiled) CHECK(sizes_of(f(std::vector{five, five, one})[0]) == std::vector<int64_t>{8});
    CHECK_THROWS_WITH(f(std::vector{two, two, one}), Catch::Contains("TSR-T026") && Catch::Contains("'x'"));
    CHECK_THROWS_WITH(f(std::vector{five, two, one}), Catch::Contains("TSR-T023") && Catch::Contains("'w'"));
    CHECK(entries_of(f) == (compiled ? 1 : 0));
  }
}

TEST_CASE("an import for a call says what it has fixed, or what it lacks") {
  const Folder folder;
  folder.write("m.onnx", unsqueeze());
  const std::string path = (folder / "m.onnx").string();
  const std::pair<std::string, e::Tensor> x{"x", zeros({2, 3})}, axes{"axes", ints({1})};
  const auto fixed = context().load_for(path, std::vector{x, axes});
  REQUIRE(fixed.graph);
  CHECK(fixed.report == R"({"fixed":[{"input":"axes","value":true,"sizes":null}],"missing":[],"open":false,"assumed":[]})");
  for (const bool typed : {false, true}) {
    std::vector<std::pair<std::string, e::Tensor>> types;
    if (typed) types.push_back(axes);
    const auto lacking = context().load_for(path, std::vector{x}, types);
    CHECK_FALSE(lacking.graph);
    REQUIRE(lacking.inputs);
    CHECK_THAT(lacking.inputs->print(), Catch::Contains("%x: f32[n0, 3]") && Catch::Contains("%axes: i64[k1]"));
    CHECK(lacking.report == R"({"fixed":[],"missing":[{"input":"axes","what":"value"}],"open":false,"assumed":[]})");
  }
}

TEST_CASE("random calls from many threads get what their own values ask for") {
  const Folder folder;
  const e::Model f = open_model(folder, unsqueeze());
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(4);
  for (size_t k = 0; k < wrong.size(); ++k)
    threads.emplace_back([&, k] {
      std::mt19937 random(static_cast<unsigned>(k));
      try {
        for (int i = 0; i < 40; ++i) {
          const int64_t n = 1 + random() % 4, axis = random() % 3;
          std::vector<int64_t> want = {n, 3};
          want.insert(want.begin() + axis, 1);
          const e::Tensor x = e::Tensor::create(TSR_F32, std::vector<int64_t>{n, 3}),
                          a = e::Tensor::create(TSR_I64, std::vector<int64_t>{1});
          std::fill_n(static_cast<float*>(x.data()), 3 * n, 1.f);
          *static_cast<int64_t*>(a.data()) = axis;
          if (sizes_of(f(std::vector{x, a})[0]) != want) wrong[k] = "wrong sizes";
        }
      } catch (const std::exception& error) {
        wrong[k] = error.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& w : wrong) CHECK(w.empty());
  CHECK(entries_of(f) == 3);
}
