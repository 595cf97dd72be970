// SPDX-License-Identifier: Apache-2.0
// Op records: reading them, attributes, decompositions and gradients from text, and the messages (tests/golden/ir/records).
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "golden.hpp"
#include "ir/body.hpp"
#include "ir/graph.hpp"
#include "ir/parser.hpp"
#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "ir/records_parser.hpp"
#include "ir/verifier.hpp"
#include "support/error.hpp"
#include "test_opset.hpp"

namespace records_test {

using namespace tessera::core;
using tessera::test::test_ops;

namespace {

std::string code_of(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const Error& e) {
    return e.code();
  }
}

tsr_opset opset(const char* prefix, const tsr_record_file& file, const tsr_op_impl* impls = nullptr, size_t num_impls = 0) {
  tsr_opset set{};
  set.struct_size = sizeof set;
  set.prefix = prefix;
  set.files = &file;
  set.num_files = 1;
  set.file_stride = sizeof file;
  set.impls = impls;
  set.num_impls = num_impls;
  set.impl_stride = sizeof(tsr_op_impl);
  return set;
}

std::string add(OpRegistry& registry, const char* prefix, const char* text, const tsr_op_impl* impls = nullptr, size_t n = 0) {
  const tsr_record_file file{"r.tops", text};
  const tsr_opset set = opset(prefix, file, impls, n);
  return code_of([&] { registry.add(set, "acme.opset"); });
}

tsr_error* no_compute(void*, const tsr_call*, const tsr_tensor*, uint32_t, const tsr_tensor*, uint32_t) { return nullptr; }

// Replaces the one node of the graph by its decomposition and gives the text.
std::string decomposed(const std::string& text) {
  const auto g = parse_graph(test_ops(), text, "t.tsr");
  g->begin("test");
  const tsr_id n = g->region(0).first;
  const std::vector<tsr_id> out = build_decomposition(*g, n);
  for (size_t i = 0; i < out.size(); ++i) g->replace_uses(g->node(n).results[i], out[i]);
  g->erase_node(n);
  g->commit();
  verify(*g);
  return print_graph(*g);
}

}  // namespace

TEST_CASE("a record keeps what it says") {
  const auto records = parse_records(R"(
    // comment
    op f(%x: T[*B, K], %w?: real(T)[4], %more...: $out[?])
      {axis: int = -1, out: dtype = invalid, mode: str = "a" in ["a", "b"], shape: dims,
       eps: float = 1e-05}
      -> (%y: T[*B, K], %i: i64[$shape])
      where T: {float, c64}
      traits: composite pure
      doc: "One
            sentence." "And more."
      numerics: "f32."
      decompose { %i = full 0 {shape = $shape}  return %x, %i }
  )",
                                     "r.tops", "acme", "acme.opset");
  REQUIRE(records.size() == 1);
  const OpRecord& r = *records[0];
  CHECK(r.name == "acme.f");
  CHECK(r.plugin == "acme.opset");
  CHECK(r.file == "r.tops");
  CHECK(r.line == 3);
  CHECK(r.doc == "One sentence. And more.");
  CHECK(r.numerics == "f32.");
  CHECK(r.has(kComposite));
  CHECK(r.trait_text == "composite pure");
  CHECK(r.can_decompose());
  CHECK(r.signature ==
        "op f(%x: T[*B, K], %w?: real(T)[4], %more...: $out[?]) {axis: int = -1, out: dtype = invalid, mode: str = "
        "\"a\" in [\"a\", \"b\"], "
        "shape: dims, eps: float = 1e-05} -> (%y: T[*B, K], %i: i64[$shape]) where T: {float, c64}");
  REQUIRE(r.operands.size() == 3);
  CHECK(r.operands[1].optional);
  CHECK(r.operands[2].variadic);
  CHECK(r.operands[1].shape[0].number == 4);
  REQUIRE(r.attrs.size() == 5);
  CHECK(r.attrs[0].name == "axis");  // sorted
  CHECK(r.attr("eps")->fallback.f == 1e-5);
  CHECK(r.attr("out")->fallback.i == TSR_DTYPE_INVALID);
  CHECK(r.attr("shape")->required);
  CHECK(r.attr("mode")->choices.size() == 2);
  CHECK(r.attr("nothing") == nullptr);
  const uint64_t mask = r.dtype_sets.at("T");
  CHECK((mask >> TSR_F8E8M0 & 1) == 1);
  CHECK((mask >> TSR_C64 & 1) == 1);
  CHECK((mask >> TSR_C128 & 1) == 0);
  CHECK((mask >> TSR_I32 & 1) == 0);
}

TEST_CASE("classes of dtypes hold what the IR page says") {
  auto count = [](const char* cls) {
    const auto r = parse_records("op f(%x: T[*S]) -> (T[*S]) where T: " + std::string(cls), "r.tops", "", "p");
    return std::popcount(r[0]->dtype_sets.at("T"));
  };
  CHECK(count("any") == TSR_DTYPE_COUNT - 1);
  CHECK(count("float") == 10);
  CHECK(count("sint") == 6);
  CHECK(count("uint") == 6);
  CHECK(count("int") == 12);
  CHECK(count("real") == 22);
  CHECK(count("complex") == 2);
  CHECK(count("number") == 24);
  CHECK(count("bool") == 1);
  CHECK(count("index") == 2);
  CHECK(count("{index, i8, float}") == 13);
}

TEST_CASE("the registry finds ops, suggests, and refuses what contradicts itself") {
  CHECK(test_ops().find("add") == &test_ops().get("add"));
  CHECK(test_ops().find("nothing") == nullptr);
  CHECK_THROWS_WITH(test_ops().get("ad"), Catch::Contains("TSR-O001") && Catch::Contains("did you mean 'add'?"));
  const auto all = test_ops().all();
  CHECK(std::is_sorted(all.begin(), all.end(), [](auto* a, auto* b) { return a->name < b->name; }));

  OpRegistry r;
  CHECK(add(r, "", "op f(%x: T[*S]) -> (T[*S]) where T: any") == "");
  CHECK(add(r, "", "op f(%x: T[*S]) -> (T[*S]) where T: any") == "TSR-O003");
  CHECK(add(r, "acme", "op f(%x: T[*S]) -> (T[*S]) where T: any op f(%x: T[*S]) -> (T[*S]) where T: any") == "TSR-O003");
  CHECK(r.find("acme.f") == nullptr);  // all or nothing
  CHECK(add(r, "acme", "op f(%x: T[*S]) -> (T[*S]) where T: any") == "TSR-O005");
  CHECK(add(r, "acme", "op f(%x: T[*S]) -> (T[*S]) where T: any decompose { return %x }") == "");
  CHECK(r.find("acme.f") != nullptr);

  tsr_op_impl impl{};
  impl.op = "g";
  CHECK(add(r, "acme", "op h(%x: T[*S]) -> (T[*S]) where T: any decompose { return %x }", &impl, 1) == "TSR-O004");
  CHECK(add(r, "acme", "op g(%x: T[*S]) -> (T[*S]) where T: any", &impl, 1) == "TSR-O005");
  impl.compute = no_compute;
  CHECK(add(r, "acme", "op g(%x: T[*S]) -> (T[?]) where T: any", &impl, 1) == "TSR-O005");  // nobody infers
  CHECK(add(r, "acme", "op g(%x: T[*S]) -> (T[*S]) where T: any", &impl, 1) == "");
  CHECK(r.get("acme.g").impl == &impl);
  impl.op = "k";
  impl.decompose = [](void*, tsr_graph*, tsr_id, tsr_id*) -> tsr_error* { return nullptr; };
  CHECK(add(r, "acme", "op k(%x: T[*S]) -> (T[*S]) where T: any decompose { return %x }", &impl, 1) == "TSR-O006");
}

TEST_CASE("attributes are completed, sorted and checked") {
  const OpRecord& r = test_ops().get("annotate");
  tsr_tensor t{};
  float one = 1;
  t.data = &one;
  t.dtype = TSR_F32;
  tsr_attr tensor{};
  tensor.name = "t";
  tensor.kind = TSR_ATTR_TENSOR;
  tensor.tensor = &t;
  const auto complete = [&](tsr_attr a) {
    const tsr_attr given[] = {tensor, a};
    return complete_attrs(r, given);
  };
  auto attr = [](const char* name, uint32_t kind) {
    tsr_attr a{};
    a.name = name;
    a.kind = kind;
    return a;
  };
  tsr_attr i = attr("i", TSR_ATTR_INT);
  i.i = 9;
  const auto full = complete(i);
  REQUIRE(full.size() == r.attrs.size());
  for (size_t k = 0; k < full.size(); ++k) CHECK(full[k].name == r.attrs[k].name);
  CHECK(full[5].i == 9);
  CHECK(std::string(full[5].name) == "i");

  tsr_attr n = attr("n", TSR_ATTR_INT);  // a plain number is a size
  n.i = 5;
  CHECK(complete(n)[7].kind == TSR_ATTR_DIM);
  CHECK(complete(attr("fs", TSR_ATTR_INTS))[4].kind == TSR_ATTR_FLOATS);  // an empty list is a list of anything

  CHECK(code_of([&] { complete(attr("nope", TSR_ATTR_INT)); }) == "TSR-I020");
  CHECK(code_of([&] { complete(tensor); }) == "TSR-I021");
  CHECK(code_of([&] { complete_attrs(r, {}); }) == "TSR-I022");
  CHECK(code_of([&] { complete(attr("i", TSR_ATTR_FLOAT)); }) == "TSR-I023");
  tsr_attr s = attr("choice", TSR_ATTR_STRING);
  s.s = "c";
  CHECK(code_of([&] { complete(s); }) == "TSR-I024");
  tsr_attr b = attr("b", TSR_ATTR_BOOL);
  b.i = 2;
  CHECK(code_of([&] { complete(b); }) == "TSR-I025");
  CHECK(code_of([&] { complete(attr("d", TSR_ATTR_DTYPE)); }) == "TSR-I025");  // invalid is not its default
  tsr_attr d = attr("d", TSR_ATTR_DTYPE);
  d.i = int64_t{TSR_F32} + (int64_t{1} << 32);
  CHECK(code_of([&] { complete(d); }) == "TSR-I025");
  tsr_attr is = attr("is", TSR_ATTR_INTS);
  is.count = 2;
  CHECK(code_of([&] { complete(is); }) == "TSR-I025");
  i.i = TSR_DIM_OF_EXPR(0);
  CHECK(code_of([&] { complete(i); }) == "TSR-I025");
  t.data = nullptr;
  CHECK(code_of([&] { complete(n); }) == "TSR-I025");
}

TEST_CASE("decompositions are built from text") {
  CHECK(decomposed("graph @g(%x: bf16[s0, 4]) { %y = softmax %x {axis = 0} return %y }") ==
        "graph @g(%x: bf16[s0, 4]) -> (bf16[s0, 4])\n"
        "  symbols { s0: 0.. }\n"
        "{\n"
        "  %c = cast %x {dtype = f32} : f32[s0, 4]\n"
        "  %m = reduce_max %c {axes = [0], keepdims = true} : f32[1, 4]\n"
        "  %s = sub %c, %m : f32[s0, 4]\n"
        "  %e = exp %s : f32[s0, 4]\n"
        "  %d = reduce_sum %e {axes = [0], keepdims = true} : f32[1, 4]\n"
        "  %q = div %e, %d : f32[s0, 4]\n"
        "  %y_1 = cast %q {dtype = bf16} : bf16[s0, 4]\n"
        "  return %y_1\n"
        "}\n");
  // Literals take the dtype beside them, equal ones are shared, sizes become values.
  CHECK(decomposed("graph @g(%x: f64[3, s0]) { %a, %b = mean_last %x {bias = 0.5} return %a, %b }") ==
        "graph @g(%x: f64[3, s0]) -> (f64[3], i64[])\n"
        "  symbols { s0: 0.. }\n"
        "{\n"
        "  %sum = reduce_sum %x {axes = [1]} : f64[3]\n"
        "  %0 = dim_value {value = s0} : i64[]\n"
        "  %1 = cast %0 {dtype = f64} : f64[]\n"
        "  %m = div %sum, %1 : f64[3]\n"
        "  %2 = constant {value = dense<f64[]: 0.5>} : f64[]\n"
        "  %b_1 = add %m, %2 : f64[3]\n"
        "  %half = mul %b_1, %2 : f64[3]\n"
        "  %y = add %half, %half : f64[3]\n"
        "  %n = dim_value {value = s0} : i64[]\n"
        "  return %y, %n\n"
        "}\n");
  CHECK(decomposed("graph @g(%x: i8[2, 3]) { %y = zeros_like %x return %y }") ==
        "graph @g(%x: i8[2, 3]) -> (i8[2, 3]) {\n"
        "  %0 = constant {value = dense<i8[]: 0>} : i8[]\n"
        "  %y_1 = full %0 {shape = [2, 3]} : i8[2, 3]\n"
        "  return %y_1\n"
        "}\n");
  CHECK_THROWS_WITH(decomposed("graph @g(%x: i8[2]) { %y = neg %x return %y }"),
                    Catch::Contains("TSR-O008") && Catch::Contains("'test.opset'"));
}

TEST_CASE("a decomposition that does not fit its record is the plugin's bug") {
  auto build = [](const char* body) {
    OpRegistry r;
    const std::string text =
        "op neg(%x: T[*S]) -> (T[*S]) where T: number\n"
        "op constant() {value: tensor} -> (?[?]) traits: constant\n"
        "op f(%x: T[*S], %y?: T[*S]) {a: int = 2} -> (T[*S]) where T: number decompose " +
        std::string(body);
    const tsr_record_file file{"r.tops", text.c_str()};
    r.add(opset("", file), "acme.opset");
    const auto g = parse_graph(r, "graph @g(%x: i8[4]) { %y = f %x return %y }", "t.tsr");
    g->begin("test");
    build_decomposition(*g, g->region(0).first);
  };
  auto message = [&](const char* body) {
    try {
      build(body);
    } catch (const Error& e) {
      CHECK(e.family() == TSR_BUG);
      return e.code() + " " + e.message();
    }
    return std::string();
  };
  CHECK(message("{ %z = neg %x return %z }") == "");
  CHECK(message("{ return %y }").find("no replacement for result 0") != std::string::npos);
  CHECK(message("{ %z = neg %y return %z }").find("r.tops:3: decompose of %y = f: neg: operand 'x' is left out") !=
        std::string::npos);
  CHECK(message("{ %z = nge %x return %z }").find("did you mean 'neg'?") != std::string::npos);
  CHECK(message("{ %z = neg 0.5 return %z }").find("does not fit the dtype i8") != std::string::npos);
  CHECK(message("{ %z = neg 1 return %z }").find("has the type i8[], expected i8[4]") != std::string::npos);
  CHECK(message("{ %z = neg %x {k = 1} return %z }").find("has no attribute 'k'") != std::string::npos);
  CHECK(message("{ %z = f %x {a = size(%x, 1)} return %z }").find("there are 1 dimensions") != std::string::npos);
  CHECK(message("{ %z = f %x {a = \"s\"} return %z }").find("an integer or a size is needed") != std::string::npos);
}

TEST_CASE("gradients are built from text") {
  const auto g = parse_graph(test_ops(),
                             "graph @g(%a: f32[4], %b: f32[4], %d: f32[4]) { %y = mul %a, %b %e = exp %y return %e }", "t.tsr");
  g->begin("grad");
  const tsr_id d = g->find_value("d"), mul = g->region(0).first, exp = g->node(mul).next;
  const tsr_id none[] = {TSR_NONE};
  CHECK(build_grad(*g, exp, none) == std::vector<tsr_id>{TSR_NONE});  // zero stays zero
  const auto de = build_grad(*g, exp, std::span(&d, 1));
  REQUIRE(de.size() == 1);
  const auto dm = build_grad(*g, mul, de);
  REQUIRE(dm.size() == 2);
  g->set_outputs(0, dm);
  g->commit();
  verify(*g);
  CHECK(print_graph(*g) ==
        "graph @g(%a: f32[4], %b: f32[4], %d: f32[4]) -> (f32[4], f32[4]) {\n"
        "  %y = mul %a, %b : f32[4]\n"
        "  %e = exp %y : f32[4]\n"
        "  %g = mul %d, %e : f32[4]\n"
        "  %da = mul %g, %b : f32[4]\n"
        "  %db = mul %g, %a : f32[4]\n"
        "  return %da, %db\n"
        "}\n");
  g->begin("grad");
  const tsr_id sum[] = {d};
  CHECK_THROWS_WITH(build_grad(*parse_graph(test_ops(), "graph @g(%d: f32[4]) { %y = add %d, %d return %y }", "t"), 0, sum),
                    Catch::Contains("TSR-O008"));
}

TEST_CASE("messages of the record reader are golden") {
  for (const std::string& file : tessera::test::golden_files("golden/ir/records", ".tops")) {
    const std::string name = file.substr(file.rfind('/') + 1);
    std::string out = "no error\n";
    try {
      parse_records(tessera::test::read_file(tessera::test::golden_path(file)), name, "", "acme.opset");
    } catch (const Error& e) {
      out = std::string(e.what()) + "\n";
    }
    tessera::test::check_golden(file.substr(0, file.size() - 5) + ".expected", out);
  }
}

TEST_CASE("the records of the standard set are read") {
  size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(tessera::test::golden_path("../plugins/opset_standard/records"))) {
    if (entry.path().extension() != ".tops") continue;
    const std::string text = tessera::test::read_file(entry.path().string());
    const auto records = parse_records(text, entry.path().filename().string(), "", "tessera.opset.standard");
    for (const auto& r : records) {
      INFO(r->name);
      CHECK(!r->doc.empty());
    }
    count += records.size();
  }
  CHECK(count >= 90);
}

}  // namespace records_test
