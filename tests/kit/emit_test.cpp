// SPDX-License-Identifier: Apache-2.0
// Emitted C++ against the interpreter, bit for bit: every kind of loop, dtype and tail, at every vector width of this machine,
// with the work cut into pieces anywhere.
#include <catch2/catch.hpp>

#include "kit_support.hpp"
#include "tessera/kit/interpret.hpp"
#include "tessera/kit/text.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Case {
  std::string graph;
  std::vector<std::vector<int64_t>> symbols = {{}};
};

// The graphs' kernels in one module per machine level. `split_block`: all are to be split, and units to have so many columns.
// `tables`: functions from tables at all levels, not only where the cpu backend takes them.
void check(const std::vector<Case>& cases, bool wild = true, int64_t split_block = 0, bool tables = false) {
  std::vector<kit::Lowered> lowered;
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO(cases[i].graph);
    const auto g = parse(cases[i].graph);
    try {
      lowered.push_back(lower_graph(*g, "k" + std::to_string(i)));
    } catch (const kit::Unfit& u) {
      FAIL(u.why);
    }
  }
  std::mt19937_64 random(7);
  for (const Level& level : levels()) {
    kit::ModuleText module(kit::cpu_dialect());
    kit::Device device;
    device.cores = 4;
    device.vector_bytes = level.vector_bytes;
    std::vector<kit::Lowered> kernels = lowered;
    for (auto& k : kernels) {
      if (tables || level.vector_bytes >= 64) kit::use_tables(k.kernel);
      kit::Schedule schedule = kit::choose_schedule(k.kernel, device);
      if (split_block > 0) {
        REQUIRE(schedule.split);
        schedule.block = split_block;
      }
      module.add(k.kernel, schedule);
    }
    const std::string text = module.text();
    const Compiled compiled(text, level.flags);
    for (size_t i = 0; i < cases.size(); ++i)
      for (const auto& symbols : cases[i].symbols) {
        INFO(cases[i].graph << "\n" << kit::print(kernels[i].kernel) << "\nvector bytes " << level.vector_bytes);
        const Data input = make_data(kernels[i].kernel, symbols, 11 * i + 1, wild);
        Data want = input, got = input;
        const uint32_t faults = kit::interpret(kernels[i].kernel, want.pointers(), symbols);
        REQUIRE(run_compiled(compiled, kernels[i].kernel.name, got, symbols, random) == faults);
        const std::string d = difference(kernels[i].kernel, want, got);
        if (!d.empty()) FAIL("interpreter and compiled text differ at " << d << "\n" << text);
      }
  }
}

}  // namespace

TEST_CASE("pointwise kernels") {
  std::vector<Case> cases;
  for (const std::string n : {"1", "5", "16", "1000", "8192"})
    cases.push_back(
        {"graph @g(%x: f32[" + n + "], %y: f32[" + n + "]) {\n %a = mul %x, %y\n %b = add %a, %x\n return %b\n}\n"});
  cases.push_back({"graph @g(%x: f32[s0, 7], %b: f32[7]) symbols { s0: 0.. } {\n %a = add %x, %b\n return %a\n}\n",
                   {{0}, {1}, {3}, {100}}});
  cases.push_back(
      {"graph @g(%x: bf16[s0, 40], %b: bf16[40]) symbols { s0: 1.. } {\n %a = add %x, %b\n %c = gelu %a\n return %c\n}\n",
       {{1}, {13}}});
  cases.push_back({"graph @g(%x: f16[77]) {\n %a = mul %x, %x\n %c = silu %a\n return %c, %a\n}\n"});
  cases.push_back(
      {"graph @g(%x: f64[33], %y: f64[33]) {\n %a = div %x, %y\n %c = exp %a\n %d = maximum %c, %y\n return %d\n}\n"});
  cases.push_back({"graph @g(%x: f32[4, 9, 6]) {\n %a = transpose %x {perm = [2, 0, 1]}\n %c = neg %a\n return %c\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[12, 50], %y: f32[50, 12]) {\n %a = transpose %x {perm = [1, 0]}\n %c = add %a, %y\n return %c\n}\n"});
  // Whole squares, and what is left beside them.
  for (const std::string t : {"f32", "bf16", "f16", "i32"}) {
    cases.push_back(
        {"graph @g(%x: " + t + "[s1, s0], %y: " + t +
             "[s0, s1]) symbols { s0: 1..; s1: 1.. } {\n %a = transpose %x {perm = [1, 0]}\n %c = add %a, %y\n return %c\n}\n",
         {{16, 16}, {40, 33}, {130, 70}, {17, 200}, {5, 48}}});
    cases.push_back(
        {"graph @g(%x: " + t + "[s1 + 2, s0], %y: " + t +
             "[s0, s1]) symbols { s0: 1..; s1: 1.. } {\n %a = transpose %x {perm = [1, 0]}\n %p = pad %y {low = [0, 2], high = "
             "[0, 0]}\n %c = add %a, %p\n return %c\n}\n",
         {{40, 33}, {130, 70}}});
  }
  cases.push_back({"graph @g(%x: f32[], %y: f32[3]) {\n %c = sub %y, %x\n return %c\n}\n"});
  cases.push_back({"graph @g(%x: f32[], %y: f32[]) {\n %c = sub %y, %x\n return %c\n}\n"});
  check(cases);
}

TEST_CASE("functions from tables") {
  // One lane, 2 (beside f64), 4, 8, 16 and 32 of them; tails.
  std::vector<Case> cases;
  for (const std::string n : {"1", "3", "45", "160"})
    cases.push_back({"graph @g(%x: f32[" + n + "]) {\n %a = gelu %x\n return %a\n}\n"});
  cases.push_back({"graph @g(%x: bf16[77], %y: bf16[77]) {\n %s = add %x, %y\n %a = gelu %s\n return %a\n}\n"});
  cases.push_back(
      {"graph @g(%x: f64[45]) {\n %n = cast %x {dtype = f32}\n %a = gelu %n\n %w = cast %a {dtype = f64}\n return "
       "%w\n}\n"});
  cases.push_back({"graph @g(%x: f32[40, 33]) {\n %a = transpose %x {perm = [1, 0]}\n %c = gelu %a\n return %c\n}\n"});
  const auto g = parse(cases[0].graph);
  kit::Lowered one = lower_graph(*g, "k");
  kit::use_tables(one.kernel);
  REQUIRE(kit::print(one.kernel).find("call gelu_tables_f32") != std::string::npos);
  check(cases, true, 0, true);
}

TEST_CASE("transposed blocks that are double-buffered") {
  // Rows of 4 KiB and of 8; one block and many; vectors in pairs, where much is computed; in the middle of a tensor.
  const std::string turn = " %a = transpose %x {perm = [1, 0]}\n";
  const std::vector<Case> cases{
      {"graph @g(%x: f32[128, 1024]) {\n" + turn + " %c = neg %a\n return %c\n}\n"},
      {"graph @g(%x: f32[128, 1024], %y: f32[1024, 128]) {\n" + turn + " %b = exp %a\n %c = add %b, %y\n return %c\n}\n"},
      {"graph @g(%x: i32[256, 2048], %y: i32[2048, 256]) {\n" + turn + " %c = add %a, %y\n return %c\n}\n"},
      {"graph @g(%x: i32[128, 1024], %y: f64[1024, 128]) {\n" + turn +
       " %b = cast %a {dtype = f64}\n %c = add %b, %y\n return %c\n}\n"},
      {"graph @g(%x: f32[3, 128, 1024], %y: f32[3, 1024, 128]) {\n %a = transpose %x {perm = [0, 2, 1]}\n"
       " %c = mul %a, %y\n return %c, %a\n}\n"},
      {"graph @g(%x: f32[128, 1024], %y: f32[1024, 128], %b: f32[128]) {\n" + turn +
       " %c = mul %a, %y\n %d = tanh %c\n %e = add %d, %b\n %f = maximum %e, %a\n %g = sub %f, %y\n %l = lt %g, %b\n"
       " return %g, %l\n}\n"},
      {"graph @g(%x: bf16[128, 1024], %y: bf16[1024, 128]) {\n" + turn + " %c = add %a, %y\n return %c\n}\n"},
      {"graph @g(%x: f16[256, 1024], %y: f16[1024, 256]) {\n" + turn + " %b = mul %a, %y\n %c = gelu %b\n return %c, %a\n}\n"},
      {"graph @g(%x: i16[2, 128, 2048], %y: i16[2, 2048, 128]) {\n %a = transpose %x {perm = [0, 2, 1]}\n"
       " %c = sub %a, %y\n return %c\n}\n"},
      {"graph @g(%x: f32[130, 1024], %y: f32[96, 128]) {\n"
       " %s = slice %x {starts = [1, 40], limits = [129, 136], strides = [1, 1]}\n"
       " %a = transpose %s {perm = [1, 0]}\n %c = add %a, %y\n return %c\n}\n"},
  };
  for (const Case& c : cases) {
    INFO(c.graph);
    kit::Lowered lowered = lower_graph(*parse(c.graph), "k");
    kit::Device device;
    for (const int bytes : {32, 64}) {
      device.vector_bytes = bytes;
      REQUIRE(kit::choose_schedule(lowered.kernel, device).double_buffers);
    }
    device.vector_bytes = 16;
    REQUIRE_FALSE(kit::choose_schedule(lowered.kernel, device).double_buffers);
    device.vector_bytes = 64, device.l3_bytes = 64 << 10;  // beyond the caches
    REQUIRE_FALSE(kit::choose_schedule(lowered.kernel, device).double_buffers);
  }
  check(cases);
}

TEST_CASE("transposed blocks are double-buffered where a launch's sizes let them") {
  // Rows and their length: whole blocks, rows that are none or not a multiple of 4 KiB apart, and more than the caches hold.
  const std::vector<std::vector<int64_t>> sizes{{128, 1024}, {256, 2048}, {96, 1024},  {128, 1000},
                                                {128, 1056}, {128, 0},    {2048, 4096}};
  const std::string head = "graph @g(%x: f32[s1, s0], %y: f32[s0, s1]) symbols { s0: 0..; s1: 0.. } {\n";
  const std::vector<Case> cases{
      {head + " %a = transpose %x {perm = [1, 0]}\n %c = add %a, %y\n return %c\n}\n", sizes},
      {head + " %a = transpose %x {perm = [1, 0]}\n %b = tanh %a\n %c = mul %b, %y\n %d = exp %c\n return %d, %a\n}\n",
       {sizes.begin(), sizes.end() - 1}},
      {"graph @g(%x: bf16[s1, s0], %y: bf16[s0, s1]) symbols { s0: 0..; s1: 0.. } {\n"
       " %a = transpose %x {perm = [1, 0]}\n %c = add %a, %y\n return %c\n}\n",
       {{128, 1024}, {128, 512}, {256, 3072}, {64, 1024}}},
      {"graph @g(%x: f32[s0, 128, 1024], %y: f32[s0, 1024, 128]) symbols { s0: 0.. } {\n"
       " %a = transpose %x {perm = [0, 2, 1]}\n %c = sub %a, %y\n return %c\n}\n",
       {{0}, {1}, {3}}},
  };
  kit::Device device;
  for (const Case& c : cases) {
    INFO(c.graph);
    kit::Lowered lowered = lower_graph(*parse(c.graph), "k");
    for (const int bytes : {32, 64}) {
      device.vector_bytes = bytes;
      const kit::Schedule schedule = kit::choose_schedule(lowered.kernel, device);
      REQUIRE_FALSE(schedule.double_buffers);
      REQUIRE(schedule.double_buffer_bytes == device.l3_bytes);
    }
    device.vector_bytes = 16;
    REQUIRE(kit::choose_schedule(lowered.kernel, device).double_buffer_bytes == 0);
  }
  // The launch's plan says which way it went: units of 32 x 128 points, or of 128 x 64.
  const Level level = levels().back();
  if (level.vector_bytes >= 32) {
    device.vector_bytes = level.vector_bytes;
    kit::Lowered lowered = lower_graph(*parse(cases[0].graph), "k");
    kit::ModuleText module(kit::cpu_dialect());
    module.add(lowered.kernel, kit::choose_schedule(lowered.kernel, device));
    const Compiled compiled(module.text(), level.flags);
    const auto plan = reinterpret_cast<void (*)(const int64_t*, int64_t*)>(compiled.symbol("k_plan"));
    const std::vector<int64_t> units{32, 128, 16, 16, 18, 0, 1024};
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t out[8] = {};
      plan(sizes[i].data(), out);
      CHECK(out[1] == units[i]);
    }
  }
  check(cases);
}

TEST_CASE("every elementwise op on every dtype it takes") {
  std::vector<Case> cases;
  const auto unary = [&](const std::string& op, const std::vector<std::string>& dtypes) {
    for (const auto& t : dtypes) cases.push_back({"graph @g(%x: " + t + "[45]) {\n %a = " + op + " %x\n return %a\n}\n"});
  };
  const auto binary = [&](const std::string& op, const std::vector<std::string>& dtypes) {
    for (const auto& t : dtypes)
      cases.push_back({"graph @g(%x: " + t + "[45], %y: " + t + "[45]) {\n %a = " + op + " %x, %y\n return %a\n}\n"});
  };
  for (const char* op :
       {"exp",      "tanh",      "gelu",        "log", "erf",  "sigmoid", "silu",   "sqrt",      "rsqrt",      "floor", "ceil",
        "round",    "trunc",     "abs",         "neg", "sign", "relu",    "sin",    "cos",       "log1p",      "expm1", "exp2",
        "softplus", "hardswish", "hardsigmoid", "elu", "selu", "mish",    "is_nan", "is_finite", "reciprocal", "atan",  "cbrt"})
    unary(op, {"f32", "f64"});
  for (const char* op : {"gelu", "neg", "relu", "sqrt", "is_inf"}) unary(op, {"bf16", "f16"});
  for (const char* op : {"abs", "neg", "sign", "bitwise_not", "popcount", "relu"}) unary(op, {"i8", "i32", "i64", "u16"});
  unary("logical_not", {"bool"});
  for (const std::string t : {"f32", "f64"})
    cases.push_back({"graph @g(%x: " + t + "[45]) {\n %c = constant {value = dense<" + t +
                     "[]: -2.5>}\n %n = neg %c\n %a = add %x, %n\n return %a\n}\n"});
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "fmod", "remainder",
                         "floor_div", "copysign", "eq", "lt", "ge", "hypot"})
    binary(op, {"f32", "f64", "bf16"});
  for (const char* op : {"add", "sub", "mul", "div", "floor_div", "remainder", "fmod", "maximum", "minimum", "bitwise_and",
                         "bitwise_xor", "shift_left", "shift_right", "ne", "le", "gt"})
    binary(op, {"i8", "u16", "i32", "u64"});
  for (const char* op : {"logical_and", "logical_xor", "eq", "lt", "maximum"}) binary(op, {"bool"});
  for (const char* t : {"f32", "bf16", "i8", "i64", "bool", "f64"})
    cases.push_back({std::string("graph @g(%c: bool[45], %x: ") + t + "[45], %y: " + t +
                     "[]) {\n %a = select %c, %x, %y\n return %a\n}\n"});
  check(cases);
}

TEST_CASE("casts") {
  std::vector<Case> cases;
  const std::vector<std::string> types = {"f32", "f64", "bf16", "f16", "i8",  "i16", "i32",
                                          "i64", "u8",  "u16",  "u32", "u64", "bool"};
  for (const auto& from : types)
    for (const auto& to : types) {
      const bool narrow = to == "bf16" || to == "f16";
      if (narrow && (from == "f64" || from == "i32" || from == "u32" || from == "i64" || from == "u64")) continue;
      cases.push_back({"graph @g(%x: " + from + "[37]) {\n %a = cast %x {dtype = " + to + "}\n return %a\n}\n"});
    }
  check(cases);
}

TEST_CASE("rows") {
  std::vector<Case> cases;
  for (const std::string n : {"1", "7", "32", "100", "128", "200", "4096", "5000", "20000"})
    cases.push_back({"graph @g(%x: f32[3, " + n +
                     "]) {\n %a = reduce_sum %x {axes = [1]}\n %b = reduce_max %x {axes = [1]}\n return %a, %b\n}\n"});
  for (const std::string t : {"f32", "bf16", "f64", "f16"})
    cases.push_back({"graph @g(%x: " + t + "[s0, s1]) symbols { s0: 0..; s1: 0.. } {\n %a = softmax %x\n return %a\n}\n",
                     {{2, 1},
                      {3, 50},
                      {3, 96},
                      {2, 127},
                      {2, 128},
                      {2, 160},
                      {1, 4096},
                      {1, 4097},
                      {1, 4128},
                      {2, 8192},
                      {1, 36870},
                      {0, 5},
                      {2, 0}}});
  cases.push_back(
      {"graph @g(%x: f32[s0, 96], %w: f32[96], %b: f32[96]) symbols { s0: 1.. } {\n %a = layer_norm %x, %w, %b\n return "
       "%a\n}\n",
       {{5}}});
  cases.push_back(
      {"graph @g(%x: bf16[4, 200], %r: bf16[4, 200], %w: bf16[200]) {\n %h = add %x, %r\n %a = rms_norm %h, %w\n return %h, "
       "%a\n}\n"});
  cases.push_back({"graph @g(%x: f32[4, 200]) {\n %a = log_softmax %x\n return %a\n}\n"});
  cases.push_back(
      {"graph @g(%x: i32[4, 77]) {\n %a = reduce_sum %x {axes = [1]}\n %b = reduce_prod %x {axes = [1]}\n %c = argmax %x {axis "
       "= 1}\n return %a, %b, %c\n}\n"});
  cases.push_back({"graph @g(%x: f32[4, 77]) {\n %a = argmin %x {axis = 1}\n %b = argmax %x {axis = 0}\n return %a\n}\n"});
  cases.push_back(
      {"graph @g(%x: bool[4, 77]) {\n %a = reduce_any %x {axes = [1]}\n %b = reduce_all %x {axes = [1], keepdims = true}\n "
       "return %a, %b\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[4, 300]) {\n %m = mean %x {axes = [1], keepdims = true}\n %v = variance %x {axes = [1]}\n return %m, "
       "%v\n}\n"});
  cases.push_back(
      {"graph @g(%x: i8[4, 300]) {\n %m = reduce_max %x {axes = [1], keepdims = true}\n %v = reduce_sum %x {axes = [1]}\n "
       "return %m, %v\n}\n"});
  check(cases);
}

TEST_CASE("rows that compute a function again in a later loop") {
  std::vector<Case> cases;
  for (const std::string n : {"1", "7", "100", "128", "200", "4096", "4100"})
    for (const std::string t : {"bf16", "f16"})
      cases.push_back({"graph @g(%x: " + t + "[3, " + n + "]) {\n %a = softmax %x\n return %a\n}\n"});
  // Two functions and three loops; what the last one returns has another type than its row.
  for (const std::string n : {"50", "s0"})
    cases.push_back({"graph @g(%x: bf16[3, " + n + "]) " + (n == "s0" ? "symbols { s0: 0.. } " : "") +
                         "{\n %c = cast %x {dtype = f32}\n %t = tanh %c\n %e = exp %c\n %y = add %t, %e\n"
                         " %m = mean %y {axes = [1], keepdims = true}\n %d = sub %y, %m\n %q = mul %d, %d\n"
                         " %v = reduce_sum %q {axes = [1], keepdims = true}\n %s = add %d, %v\n %r = cast %s {dtype = bf16}\n "
                         "return %r\n}\n",
                     n == "s0" ? std::vector<std::vector<int64_t>>{{0}, {9}, {130}, {4096}, {4099}}
                               : std::vector<std::vector<int64_t>>{{}}});
  // The same function, but not of the same value.
  cases.push_back(
      {"graph @g(%x: bf16[3, 70], %y: bf16[3, 70]) {\n %c = cast %x {dtype = f32}\n %k = cast %y {dtype = f32}\n %e = exp %c\n"
       " %m = reduce_sum %e {axes = [1], keepdims = true}\n %f = exp %k\n %n = neg %c\n %h = exp %n\n %d = div %f, %m\n %s = "
       "add %d, %h\n"
       " %r = cast %s {dtype = bf16}\n return %r\n}\n"});
  // Where the function is applied to what a gather finds.
  cases.push_back(
      {"graph @g(%x: bf16[40], %i: i64[3, 64]) {\n %g = gather %x, %i {axis = 0}\n %a = softmax %g\n return %a\n}\n"});
  check(cases);
}

TEST_CASE("chains that round to 16 bits between operations") {
  std::vector<Case> cases;
  for (const std::string t : {"bf16", "f16"}) {
    const std::string head = "graph @g(%x: " + t + "[333], %y: " + t + "[333]";
    cases.push_back(
        {head +
         ") {\n %a = mul %x, %y\n %b = add %a, %x\n %c = div %b, %y\n %d = sqrt %c\n %e = sub %d, %a\n return %e, %b\n}\n"});
    cases.push_back(
        {head + ") {\n %a = div %x, %y\n %b = sub %a, %a\n %c = copysign %y, %b\n %d = mul %c, %y\n return %d\n}\n"});
    // NaN of f32 may have any bits.
    cases.push_back({head + ", %z: f32[333]) {\n %h = cast %z {dtype = " + t +
                     "}\n %a = mul %h, %x\n %b = add %a, %y\n %c = cast %z {dtype = " + t +
                     "}\n %d = maximum %b, %c\n return %d\n}\n"});
  }
  check(cases);
}

TEST_CASE("columns and whole tensors") {
  std::vector<Case> cases;
  for (const std::string n : {"1", "7", "100", "128", "200", "5000"})
    for (const std::string c : {"1", "16", "100"})
      cases.push_back({"graph @g(%x: f32[" + n + ", " + c + "]) {\n %a = reduce_sum %x {axes = [0]}\n return %a\n}\n"});
  for (const std::string t : {"f32", "bf16", "f64", "i64", "u8"})
    cases.push_back(
        {"graph @g(%x: " + t + "[s0, s1]) symbols { s0: 0..; s1: 0.. } {\n %a = reduce_sum %x {axes = [0]}\n return %a\n}\n",
         {{1, 1}, {50, 3}, {127, 130}, {4096, 33}, {4100, 70}, {8192, 20}, {36870, 17}, {0, 5}}});
  cases.push_back({"graph @g(%x: f32[60, 33]) {\n %a = softmax %x {axis = 0}\n return %a\n}\n"});
  cases.push_back({"graph @g(%x: f32[60, 33]) {\n %a = argmax %x {axis = 0}\n return %a\n}\n"});
  for (const std::string n : {"10", "4096", "40000", "100001"})
    cases.push_back({"graph @g(%x: f32[" + n +
                     "]) {\n %a = reduce_sum %x {axes = [0]}\n %m = reduce_max %x {axes = [0]}\n return %a, %m\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[s0]) symbols { s0: 0.. } {\n %q = mul %x, %x\n %a = reduce_sum %q {axes = [0]}\n %r = sqrt %a\n "
       "return %r\n}\n",
       {{0}, {100}, {127}, {5000}, {70000}}});
  cases.push_back({"graph @g(%x: f32[6, 5, 7, 11]) {\n %a = reduce_sum %x {axes = [0, 2, 3]}\n return %a\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[s0, 5, s1]) symbols { s0: 1..; s1: 1.. } {\n %a = reduce_sum %x {axes = [0, 2]}\n return %a\n}\n",
       {{2, 3}, {16, 256}, {17, 256}, {32, 256}, {33, 1100}}});
  cases.push_back(
      {"graph @g(%x: f32[s0, s1, 40]) symbols { s0: 1..; s1: 1.. } {\n %a = reduce_sum %x {axes = [0, 1]}\n return %a\n}\n",
       {{2, 3}, {16, 256}, {17, 256}, {32, 256}, {33, 1100}}});
  cases.push_back({"graph @g(%x: f32[6, 5, 256]) {\n %a = reduce_sum %x {axes = [0, 2]}\n return %a\n}\n"});
  check(cases);
}

TEST_CASE("columns of so many rows that chunks of them are units") {
  const std::vector<Case> cases = {
      {"graph @g(%x: f32[16500, 66]) {\n %a = reduce_sum %x {axes = [0]}\n return %a\n}\n"},  // the last chunk is cut off
      {"graph @g(%x: f32[36870, 64]) {\n %a = reduce_max %x {axes = [0]}\n %b = reduce_sum %x {axes = [0]}\n return %a, "
       "%b\n}\n"},  // ten chunks
      {"graph @g(%x: bf16[2, 16384, 67]) {\n %q = mul %x, %x\n %a = reduce_sum %q {axes = [1]}\n %r = sqrt %a\n return "
       "%r\n}\n"},
  };
  check(cases, true, 128);
  check({cases[0]}, false, 32);  // several units side by side
}

TEST_CASE("tables of bytes") {
  std::vector<Case> cases;
  for (const char* table : {"i8", "u8", "bool"})
    for (const int size : {1, 15, 16, 50, 129}) {
      const std::string t = table, n = std::to_string(size);
      cases.push_back({"graph @g(%t: " + t + "[256], %q: i8[" + n +
                       "]) {\n %w = cast %q {dtype = i64}\n %h = constant {value = dense<i64[]: 128>}\n %i = add %w, %h\n %y = "
                       "gather %t, %i {axis = 0}\n return %y\n}\n"});
      cases.push_back({"graph @g(%t: " + t + "[256], %q: u8[" + n + "], %x: f32[" + n +
                       "]) {\n %i = cast %q {dtype = i64}\n %y = gather %t, %i {axis = 0}\n %f = cast %y {dtype = f32}\n %z = "
                       "add %f, %x\n return %z\n}\n"});
    }
  check(cases);
}

TEST_CASE("views and gathers and joined tensors") {
  std::vector<Case> cases;
  cases.push_back(
      {"graph @g(%x: f32[2, 6, 4], %y: f32[12, 4]) {\n %a = reshape %x {shape = [12, 4]}\n %c = add %a, %y\n return %c\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[s0, 12, 8], %y: f32[s0, 96]) symbols { s0: 1.. } {\n %t = transpose %x {perm = [0, 2, 1]}\n %a = "
       "reshape %t {shape = [s0, 96]}\n %c = mul %a, %y\n return %c\n}\n",
       {{1}, {3}}});
  cases.push_back(
      {"graph @g(%x: f32[10, 20]) {\n %a = slice %x {starts = [1, 19], limits = [9, -1], strides = [3, -2]}\n %c = neg %a\n "
       "return %c\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[10, 20], %y: f32[3, 20]) {\n %a = neg %x\n %c = concat %a, %y {axis = 0}\n %d = exp %c\n return "
       "%d\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[10, 20], %y: f32[10, 5]) {\n %c = concat %x, %y {axis = 1}\n %d = exp %c\n return %d\n}\n"});
  cases.push_back({"graph @g(%x: f32[10, 20]) {\n %c = pad %x {low = [1, 2], high = [0, 3]}\n %d = exp %c\n return %d\n}\n"});
  cases.push_back({"graph @g(%x: f32[9, 20], %i: i64[30]) {\n %c = gather %x, %i {axis = 0}\n %d = exp %c\n return %d\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[9, 20], %i: i64[9, 1]) {\n %l = log_softmax %x {axis = 1}\n %c = take_along_axis %l, %i {axis = 1}\n "
       "%r = reshape %c {shape = [9]}\n %d = neg %r\n return %d\n}\n"});
  cases.push_back(
      {"graph @g(%x: f32[6, 6]) {\n %r = iota {shape = [6, 1], axis = 0, dtype = i64}\n %c = iota {shape = [1, 6], axis = 1, "
       "dtype = i64}\n %m = le %c, %r\n %n = cast %m {dtype = f32}\n %y = mul %x, %n\n return %y\n}\n"});
  cases.push_back({"graph @g(%x: f32[5, 9]) {\n %a = flip %x {axes = [1]}\n %c = exp %a\n return %c\n}\n"});
  check(cases);
}
