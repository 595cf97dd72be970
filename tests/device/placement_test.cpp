// SPDX-License-Identifier: Apache-2.0
// Graphs that name no device, on the one that the config names; times of steps, faults without delay, and limits of pools.
#include <catch2/catch.hpp>

#include "memory/device.hpp"
#include "support.hpp"

namespace placement_test {

using namespace tessera::test;
namespace core = tessera::core;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

}  // namespace

TEST_CASE("device = names where a graph runs: inputs cross at its beginning, outputs at its end, constants once") {
  const std::string text = R"(graph @g(%x: f32[4, 6], %w: f32[6]) -> (f32[6, 4], f32[4, 6]) {
    %c = constant {value = dense<f32[6]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>}
    %r = reshape %c {shape = [1, 6]}
    %a = mul %x, %r
    %b = add %a, %w
    %t = transpose %b {perm = [1, 0]}
    %y = exp %t
    %z = sub %b, %x
    return %y, %z
  })";
  const e::Executable p = compile(placed(), text);
  const tsr_tables& t = p.tables();
  size_t crossings = 0;
  for (size_t i = 0; i < t.num_nodes; ++i) {
    const tsr_node& n = *TSR_AT(tsr_node, t.nodes, t.node_stride, i);
    crossings += n.alive && n.op == std::string("to_device");
    for (uint32_t k = 0; n.alive && n.op == std::string("exp") && k < n.num_results; ++k)
      CHECK(TSR_AT(tsr_value, t.values, t.value_stride, n.results[k])->type->device == e::device("sim:1"));
  }
  CHECK(crossings == 4);
  const e::Executable want = compile(host(), text);
  const std::vector<e::Tensor> in = {numbers({4, 6}, 1), numbers({6}, 2)};
  for (int i = 0; i < 2; ++i) {
    const auto out = p.run(in), expected = want.run(in);
    CHECK(same_bits(out[0], expected[0]));
    CHECK(same_bits(out[1], expected[1]));
  }
}

TEST_CASE("a fused group that reads nothing is on the device of what it replaces") {
  const std::string text = R"(graph @g(%x: f32[s0]@sim:0) -> (f32[s0]@sim:0, f32[s0]@sim:0) symbols { s0: 1.. } {
    %i = iota {axis = 0, dtype = i64, shape = [s0]} : i64[s0]@sim:0
    %c = cast %i {dtype = f32} : f32[s0]@sim:0
    %y = neg %x : f32[s0]@sim:0
    return %c, %y
  })";
  e::ContextOptions o;
  o.config_path = "sim";
  o.plugin_dirs = {TESSERA_PLUGIN_DIR};
  const e::Context c(o);
  const e::Executable p = compile(c, text), want = compile(host(), on_host(text));
  const e::Tensor x = numbers({9}, 1);
  const auto out = p.run(std::vector<e::Tensor>{x.copy_to(e::device("sim:0"))});
  const auto expected = want.run(std::vector<e::Tensor>{x});
  for (size_t k = 0; k < 2; ++k) CHECK(same_bits(out[k], expected[k]));
}

TEST_CASE("values that loops carry stay on the device that the config names") {
  const std::string text = R"(graph @g(%x: f32[4], %n: i32[]) -> (f32[4], f32[3, 4]) {
    %start = constant {value = dense<f32[4]: splat 0.5>}
    %last, %count, %k = while_loop %x, %n, %start {carried = 3} : f32[4], i32[], f32[4]
      region(%a: f32[4], %i: i32[], %h: f32[4]) {
        %zero = constant {value = dense<i32[]: 0>}
        %go = gt %i, %zero
        return %go
      }
      region(%a1: f32[4], %i1: i32[], %h1: f32[4]) {
        %one = constant {value = dense<i32[]: 1>}
        %next = sub %i1, %one
        %b = add %a1, %h1
        return %b, %next, %a1
      }
    %s = stack %last, %x, %k {axis = 0}
    %end, %all = scan %last, %s {carried = 1, scanned = 1, length = 3} : f32[4], f32[3, 4]
      region(%c: f32[4], %row: f32[4]) {
        %d = add %c, %row
        return %d, %d
      }
    return %end, %all
  })";
  const e::Executable device = compile(placed(), text), reference = compile(host(), text);
  for (int n : {0, 1, 5}) {
    const e::Tensor x = numbers({4}, 3), count = e::Tensor::create(TSR_I32, {});
    *static_cast<int32_t*>(count.data()) = n;
    const auto out = device.run(std::vector<e::Tensor>{x, count}), want = reference.run(std::vector<e::Tensor>{x, count});
    CHECK(same_bits(out[0], want[0]));
    CHECK(same_bits(out[1], want[1]));
  }
}

TEST_CASE("a state of the host is written back behind a run on the device") {
  const std::string text = R"(graph @g(%s: f32[4] state "s" -> 0, %x: f32[4]) -> (f32[4]) {
    %a = add %s, %x
    return %a
  })";
  const e::Executable p = compile(placed(), text);
  const e::Tensor s = numbers({4}, 1), x = numbers({4}, 2);
  std::vector<float> want(4);
  for (size_t i = 0; i < 4; ++i) want[i] = static_cast<float*>(s.data())[i] + 2 * static_cast<float*>(x.data())[i];
  for (int i = 0; i < 2; ++i) (void)p.run(std::vector<e::Tensor>{s, x});
  CHECK(std::memcmp(s.data(), want.data(), 16) == 0);
}

TEST_CASE("a device that is not there is named, with what there is") {
  const std::string text = "graph @g(%x: f32[4]) -> (f32[4]) {\n %a = neg %x\n return %a\n}";
  for (const auto& [name, code] : {std::pair("sim:7", "TSR-R002"), {"gpu:0", "TSR-R002"}, {"no device", "TSR-T030"}}) {
    const e::Context c = make_context("\"sim\", \"reference\"", "", "device = \"" + std::string(name) + "\"\n");
    CHECK(code_of([&] { compile(c, text); }) == code);
  }
  try {
    compile(make_context("\"sim\", \"reference\"", "", "device = \"sim:7\"\n"), text);
  } catch (const e::Error& error) {
    CHECK(error.message().find("device 'sim:7' is not available") != std::string::npos);
    CHECK(error.hint().find("'sim:0', 'sim:1'") != std::string::npos);
  }
}

TEST_CASE("runtime.sync_faults throws a fault from the run that found it") {
  const e::Context c = make_context("\"sim\", \"reference\"", "[runtime]\nsync_faults = true\n");
  const e::Executable p = compile(c, R"(graph @look(%x: f32[4]@sim:0, %i: i64[2]@sim:0) -> (f32[2]@sim:0) {
    %y = gather %x, %i {axis = 0}
    %z = neg %y
    return %z
  })");
  const tsr_device d = e::device("sim:0");
  e::Tensor index = e::Tensor::create(TSR_I64, std::vector<int64_t>{2});
  static_cast<int64_t*>(index.data())[0] = 1;
  static_cast<int64_t*>(index.data())[1] = 9;
  const e::Tensor x = numbers({4}, 1).copy_to(d), wild = index.copy_to(d);
  CHECK(code_of([&] { (void)p.run(std::vector<e::Tensor>{x, wild}); }) == "TSR-R011");
  e::synchronize(d);
  static_cast<int64_t*>(index.data())[1] = 3;
  (void)p.run(std::vector<e::Tensor>{x, index.copy_to(d)});
  e::synchronize(d);
}

TEST_CASE("steps on a device are timed by its events") {
  const e::Context c = make_context("\"sim\", \"reference\"", "[runtime]\nmeasure_steps = true\n");
  const e::Executable p = compile(c, R"(graph @g(%x: f32[512, 512]@sim:0) -> (f32[512, 512]@sim:0) {
    %a = exp %x
    %b = matmul %a, %x
    return %b
  })");
  const e::Tensor x = numbers({512, 512}, 1).copy_to(e::device("sim:0"));
  for (int i = 0; i < 2; ++i) (void)p.run(std::vector<e::Tensor>{x});
  const std::string text = p.describe();
  CHECK(count(text, "\"measured_ms\":") >= 2);
  CHECK(count(text, "\"measured_ms\":null") == 0);
}

TEST_CASE("runtime.pool_limits: what a device's pool keeps of free memory") {
  core::Device& d = core::device(e::device("sim:1"));
  (void)sim();
  const auto free_bytes = [&] {
    void* self = nullptr;
    tsr_device_info info{};
    info.struct_size = sizeof info;
    const tsr_device_table* t = d.table(&self);
    e::synchronize(d.id());
    CHECK(t->info(self, 1, &info) == nullptr);
    return info.free_bytes;
  };
  const auto use = [&] { (void)e::Tensor::create(TSR_F32, std::vector<int64_t>{1 << 20}, d.id()); };
  const auto limit = [](const char* bytes) {
    make_context("\"sim\", \"reference\"", "[runtime]\npool_limits = [\"sim:1=" + std::string(bytes) + "\"]\n");
  };
  limit("0");
  const int64_t before = free_bytes();
  use();
  CHECK(free_bytes() == before);
  limit("536870912");
  use();
  CHECK(free_bytes() < before);
  for (const char* wrong : {"", "many", "-1", "1x"}) CHECK(code_of([&] { limit(wrong); }) == "TSR-C004");
}

}  // namespace placement_test
