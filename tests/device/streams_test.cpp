// SPDX-License-Identifier: Apache-2.0
// Programs on devices: streams of the caller and of threads, faults, allocators, and what must be refused.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <thread>

#include "memory/stream.hpp"
#include "support.hpp"

namespace streams_test {

using namespace tessera::test;

namespace {

const char* const kMlp = R"(graph @mlp(%x: f32[16, 32], %w: f32[32, 64]@sim:0 param "w", %b: f32[64]@sim:0 param "b",
    %v: f32[64, 8]@sim:0 param "v") -> (f32[16, 8]) {
  %xd = to_device %x {device = "sim:0"}
  %h = matmul %xd, %w
  %hb = add %h, %b
  %a = relu %hb
  %y = matmul %a, %v
  %out = to_device %y {device = "cpu"}
  return %out
})";

struct Mlp {
  e::Executable device = compile(sim(), kMlp), reference = compile(host(), on_host(kMlp));
  std::vector<e::Tensor> weights = {numbers({32, 64}, 1), numbers({64}, 2), numbers({64, 8}, 3)}, on_device;
  Mlp() {
    for (const e::Tensor& w : weights) on_device.push_back(w.copy_to(e::device("sim:0")));
  }
  e::Tensor run(const e::Tensor& x) const {
    return device.run(std::vector<e::Tensor>{x, on_device[0], on_device[1], on_device[2]})[0];
  }
  e::Tensor expected(const e::Tensor& x) const {
    return reference.run(std::vector<e::Tensor>{x, weights[0], weights[1], weights[2]})[0];
  }
};

}  // namespace

TEST_CASE("an MLP gives the reference's bits on two streams and two threads") {
  const Mlp mlp;
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t seed) {
    const e::Stream first(e::device("sim:0")), second(e::device("sim:0"));
    for (uint64_t i = 0; i < 20; ++i) {
      const e::StreamScope scope(i % 2 ? first : second);
      const e::Tensor x = numbers({16, 32}, seed * 100 + i);
      if (!same_bits(mlp.run(x), mlp.expected(x))) ++wrong;
    }
  };
  std::thread one(work, 1), two(work, 2);
  one.join();
  two.join();
  CHECK(wrong == 0);
}

TEST_CASE("a graph that names no device runs where the config's first backend does") {
  const char* text = R"(graph @g(%x: f32[4, 6]) -> (f32[6, 4]) {
    %c = constant {value = dense<f32[6]: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>}
    %a = mul %x, %c
    %b = transpose %a {perm = [1, 0]}
    %y = exp %b
    return %y
  })";
  const e::Tensor x = numbers({4, 6}, 5);
  const e::Executable device = compile(sim(), text);
  CHECK(device.plan().find("sim.reference.mul") != std::string::npos);
  CHECK(same_bits(device.run(std::vector<e::Tensor>{x})[0], compile(host(), text).run(std::vector<e::Tensor>{x})[0]));
}

TEST_CASE("tensors that live on a device cross nothing") {
  const e::Executable p = compile(sim(), R"(graph @g(%x: f32[8, 8]@sim:1, %y: f32[8, 8]@sim:1) -> (f32[8, 8]@sim:1) {
    %c = constant {value = dense<f32[8]: splat 2.0>}
    %r = reshape %c {shape = [8, 1]}
    %a = matmul %x, %y
    %b = mul %a, %r
    return %b
  })");
  CHECK(p.plan().find("copy ") == std::string::npos);
  const e::Tensor x = numbers({8, 8}, 1).copy_to(e::device("sim:1"));
  const e::Tensor y = p.run(std::vector<e::Tensor>{x, x})[0];
  CHECK(y.desc().device == e::device("sim:1"));
}

TEST_CASE("the host waits for a copy that only the caller reads once everything else is queued") {
  const char* text = R"(graph @g(%x: f32[8]@sim:0) -> (f32[8], f32[8]@sim:0) {
    %a = exp %x
    %h = to_device %a {device = "cpu"}
    %b = neg %a
    %y = tanh %b
    return %h, %y
  })";
  const e::Executable p = compile(sim(), text);
  const std::string plan = p.plan();
  REQUIRE(plan.find("copy ") != std::string::npos);
  CHECK(plan.find("sim.reference.tanh") < plan.find("copy "));
  const e::Tensor x = numbers({8}, 7);
  const auto out = p.run(std::vector<e::Tensor>{x.copy_to(e::device("sim:0"))});
  const auto want = compile(host(), on_host(text)).run(std::vector<e::Tensor>{x});
  CHECK(same_bits(out[0], want[0]));
  CHECK(same_bits(out[1], want[1]));
}

TEST_CASE("a constant crosses once, whoever reads it") {
  const auto text = [](const char* op) {
    return std::string(
               "graph @g(%x: f32[1024]@sim:0) -> (f32[1024]@sim:0) {\n  %c = constant {value = dense<f32[1024]: splat "
               "3.25>}\n  %a = ") +
           op + " %x, %c\n  return %a\n}";
  };
  const tsr_device d = e::device("sim:0");
  const int64_t before = e::api().memory_in_use(d);
  {
    const e::Executable a = compile(sim(), text("add"));
    const int64_t one = e::api().memory_in_use(d);
    CHECK(one - before == 4096);
    const e::Executable b = compile(sim(), text("mul"));
    CHECK(e::api().memory_in_use(d) == one);
  }
  CHECK(e::api().memory_in_use(d) == before);
}

TEST_CASE("control flow keeps its tensors on the device") {
  const std::string text = R"(graph @g(%x: f32[4]@sim:0, %n: i32[]@sim:0) -> (f32[4]@sim:0, f32[3, 4]@sim:0) {
    %last, %count = while_loop %x, %n {carried = 2} : f32[4]@sim:0, i32[]@sim:0
      region(%a: f32[4]@sim:0, %i: i32[]@sim:0) {
        %zero = constant {value = dense<i32[]: 0>}
        %go = gt %i, %zero
        return %go
      }
      region(%a1: f32[4]@sim:0, %i1: i32[]@sim:0) {
        %one = constant {value = dense<i32[]: 1>}
        %next = sub %i1, %one
        %b = add %a1, %a1
        return %b, %next
      }
    %s = stack %last, %x, %last {axis = 0}
    %end, %all = scan %last, %s {carried = 1, scanned = 1, length = 3} : f32[4]@sim:0, f32[3, 4]@sim:0
      region(%c: f32[4]@sim:0, %row: f32[4]@sim:0) {
        %d = add %c, %row
        return %d, %d
      }
    return %end, %all
  })";
  const e::Executable device = compile(sim(), text), reference = compile(host(), on_host(text));
  const tsr_device d = e::device("sim:0");
  for (int n : {0, 1, 5}) {
    const e::Tensor x = numbers({4}, 3), count = e::Tensor::create(TSR_I32, {});
    *static_cast<int32_t*>(count.data()) = n;
    const auto out = device.run(std::vector<e::Tensor>{x.copy_to(d), count.copy_to(d)});
    const auto want = reference.run(std::vector<e::Tensor>{x, count});
    CHECK(same_bits(out[0], want[0]));
    CHECK(same_bits(out[1], want[1]));
  }
}

TEST_CASE("sizes that depend on data are computed on the device") {
  const std::string text = R"(graph @g(%x: f32[40]@sim:0) -> (f32[u0]@sim:0) symbols { u0: 0.. unbacked } {
    %m = tanh %x
    %zero = constant {value = dense<f32[]: 0.0>}
    %p = gt %m, %zero
    %y = masked_select %x, %p : f32[u0]@sim:0
    %z = neg %y
    return %z
  })";
  const e::Executable device = compile(sim(), text), reference = compile(host(), on_host(text));
  for (uint64_t seed = 1; seed < 5; ++seed) {
    const e::Tensor x = numbers({40}, seed);
    CHECK(same_bits(device.run(std::vector<e::Tensor>{x.copy_to(e::device("sim:0"))})[0],
                    reference.run(std::vector<e::Tensor>{x})[0]));
  }
}

TEST_CASE("strided tensors are made dense on their device") {
  const tsr_device d = e::device("sim:0");
  const e::Tensor x = numbers({5, 7}, 9), on_device = x.copy_to(d);
  tsr_tensor_handle* h = nullptr;
  const int64_t sizes[] = {7, 5}, strides[] = {1, 7};
  e::check(e::api().tensor_view(on_device.handle(), 0, 2, sizes, strides, &h));
  const e::Tensor turned = e::Tensor::adopt(h), back = turned.copy_to(d).copy_to(0);
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t j = 0; j < 5; ++j)
      CHECK(static_cast<float*>(back.data())[i * 5 + j] == static_cast<float*>(x.data())[j * 7 + i]);
}

TEST_CASE("a fault of a kernel is the error of its step, raised when the stream is waited for") {
  const e::Executable p = compile(sim(), R"(graph @look(%x: f32[4]@sim:0, %i: i64[2]@sim:0) -> (f32[2]@sim:0) {
    %y = gather %x, %i {axis = 0}
    %z = neg %y
    return %z
  })");
  const tsr_device d = e::device("sim:0");
  const e::Stream stream(d);
  const e::StreamScope scope(stream);
  e::Tensor index = e::Tensor::create(TSR_I64, std::vector<int64_t>{2});
  static_cast<int64_t*>(index.data())[0] = 1;
  static_cast<int64_t*>(index.data())[1] = 9;
  const e::Tensor x = numbers({4}, 1).copy_to(d);
  const auto run = [&] { return p.run(std::vector<e::Tensor>{x, index.copy_to(d)}); };
  {
    const auto out = run();
    try {
      stream.synchronize();
      FAIL("no error");
    } catch (const e::Error& error) {
      CHECK(error.code() == "TSR-R011");
      CHECK(error.message().find("gather") != std::string::npos);
      CHECK(error.message().find("sim:0") != std::string::npos);
    }
    stream.synchronize();  // said once
  }
  {
    const auto out = run();
    CHECK(code_of([&] { (void)out[0].copy_to(0); }) == "TSR-R011");
    CHECK(code_of([&] { (void)out[0].copy_to(0); }) == "");
  }
  {
    const auto out = run();
    CHECK(code_of([&] { e::synchronize(d); }) == "TSR-R011");
  }
}

TEST_CASE("a state that is not donated keeps its value when a kernel of the call fails") {
  const e::Executable p = compile(sim(), R"(graph @g(%s: f32[2]@sim:0 state "s" -> 0, %i: i64[2]@sim:0) -> (f32[2]@sim:0) {
    %y = gather %s, %i {axis = 0}
    %z = neg %y
    return %z
  })");
  const tsr_device d = e::device("sim:0");
  const e::Tensor state = numbers({2}, 4), s = state.copy_to(d);
  e::Tensor index = e::Tensor::create(TSR_I64, std::vector<int64_t>{2});
  static_cast<int64_t*>(index.data())[0] = 0;
  static_cast<int64_t*>(index.data())[1] = 7;
  CHECK(code_of([&] { (void)p.run(std::vector<e::Tensor>{s, index.copy_to(d)}); }) == "TSR-R011");
  CHECK(same_bits(s, state));
  static_cast<int64_t*>(index.data())[1] = 1;
  (void)p.run(std::vector<e::Tensor>{s, index.copy_to(d)});
  CHECK(!same_bits(s, state));
}

TEST_CASE("a fault in a call with a donated state says that its value is lost") {
  const e::Executable p =
      compile(sim(), R"(graph @g(%s: f32[2]@sim:0 state "s" -> 0 donated, %t: f32[2]@sim:0 state "t" -> 1 donated,
      %i: i64[2]@sim:0) -> (f32[2]@sim:0, f32[2]@sim:0) {
    %y = gather %s, %i {axis = 0}
    %z = neg %t
    return %y, %z
  })");
  const tsr_device d = e::device("sim:0");
  e::Tensor index = e::Tensor::create(TSR_I64, std::vector<int64_t>{2});
  static_cast<int64_t*>(index.data())[0] = 0;
  static_cast<int64_t*>(index.data())[1] = 7;
  try {
    (void)p.run(std::vector<e::Tensor>{numbers({2}, 4).copy_to(d), numbers({2}, 5).copy_to(d), index.copy_to(d)});
    e::synchronize(d);
    FAIL("no error");
  } catch (const e::Error& error) {
    CHECK(error.code() == "TSR-R011");
    CHECK(error.message() ==
          "an index is out of range in %y = gather, on device 'sim:0'; the donated states 's', 't' of the call are lost");
  }
}

TEST_CASE("a run takes memory from the caller's allocator, and says so when there is none") {
  const std::string text = R"(graph @g(%x: f32[64]@sim:0) -> (f32[64]@sim:0) {
    %a = exp %x
    %b = neg %a
    %c = add %b, %x
    return %c
  })";
  const e::Executable p = compile(sim(), text), reference = compile(host(), on_host(text));
  const tsr_device d = e::device("sim:0");
  const e::Stream stream(d);
  Allocator allocator;
  tsr_stream_handle* const streams[] = {stream.handle()};
  tsr_run_options options{};
  options.struct_size = sizeof options;
  options.streams = streams;
  options.num_streams = 1;
  options.allocator = &allocator.table;
  const e::Tensor x = numbers({64}, 2), on_device = x.copy_to(d);
  {
    const auto out = p.run(std::vector<e::Tensor>{on_device}, &options);
    CHECK(allocator.allocated == 2);  // the output and the arena
    CHECK(allocator.live.size() == 1);
    CHECK(same_bits(out[0], reference.run(std::vector<e::Tensor>{x})[0]));
  }
  CHECK(allocator.live.empty());
  allocator.fail = true;
  try {
    (void)p.run(std::vector<e::Tensor>{on_device}, &options);
    FAIL("no error");
  } catch (const e::Error& error) {
    CHECK(error.code() == "TSR-R001");
    CHECK(error.message() == "the caller's allocator, 256 bytes on device 'sim:0': nothing is left");
  }
  CHECK(allocator.live.empty());
  CHECK(same_bits(p.run(std::vector<e::Tensor>{on_device})[0], reference.run(std::vector<e::Tensor>{x})[0]));
}

TEST_CASE("streams of other devices are refused") {
  const e::Stream zero(e::device("sim:0"));
  CHECK(code_of([&] { e::check(e::api().set_current_stream(e::device("sim:1"), zero.handle(), nullptr)); }) == "TSR-R040");
  CHECK(code_of([&] { e::check(e::api().synchronize(e::device("null:0"), zero.handle())); }) == "TSR-R040");
  CHECK(code_of([] { e::Stream(e::device("cpu")); }) == "TSR-R040");
  CHECK(code_of([] { e::Stream(e::device("absent:0")); }) == "TSR-R002");
  tsr_stream_handle* s = nullptr;
  CHECK(code_of([&] { e::check(e::api().stream_wrap(e::device("sim:0"), nullptr, &s)); }) == "TSR-R041");
}

TEST_CASE("two devices in one op are an error that names both") {
  try {
    compile(sim(), R"(graph @g(%x: f32[4]@sim:0, %y: f32[4]) -> (f32[4]@sim:0) {
      %a = add %x, %y
      return %a
    })");
    FAIL("no error");
  } catch (const e::Error& error) {
    CHECK(error.code() == "TSR-I038");
    CHECK(error.message().find("operand %y is on cpu, operand %x on sim:0") != std::string::npos);
    CHECK(error.hint().find("to_device {device = \"sim:0\"}") != std::string::npos);
  }
  CHECK(code_of([] {
          compile(sim(), "graph @g(%x: f32[4]@sim:0, %y: f32[4]@sim:1) -> (f32[4]@sim:0) {\n %a = add %x, %y\n return %a\n}");
        }) == "TSR-I038");
  CHECK(code_of([] {
          compile(sim(),
                  "graph @g(%x: f32[4]) -> (f32[4]) {\n %a = to_device %x {device = \"no device\"}\n "
                  "return %a\n}");
        }) == "TSR-T030");
  // A number of the host travels with the launch.
  const e::Executable p = compile(sim(), R"(graph @g(%x: f32[4]@sim:0, %y: f32[]) -> (f32[4]@sim:0) {
    %a = add %x, %y
    return %a
  })");
  const e::Tensor x = numbers({4}, 1), y = numbers({}, 2);
  const e::Tensor out = p.run(std::vector<e::Tensor>{x.copy_to(e::device("sim:0")), y})[0].copy_to(0);
  CHECK(static_cast<float*>(out.data())[3] == static_cast<float*>(x.data())[3] + *static_cast<float*>(y.data()));
}

TEST_CASE("memory of a device is given back") {
  const tsr_device d = e::device("sim:1");
  const int64_t before = e::api().memory_in_use(d);
  {
    const e::Executable p = compile(sim(), R"(graph @g(%x: f32[4096]@sim:1) -> (f32[4096]@sim:1) {
      %a = exp %x
      %b = neg %a
      return %b
    })");
    const e::Tensor x = numbers({4096}, 1).copy_to(d);
    for (int i = 0; i < 10; ++i) (void)p.run(std::vector<e::Tensor>{x});
    CHECK(e::api().memory_in_use(d) == before + 16384);
  }
  CHECK(e::api().memory_in_use(d) == before);
  CHECK(code_of([&] { e::Tensor::create(TSR_F32, std::vector<int64_t>{int64_t{1} << 34}, d); }) == "TSR-R001");
}

}  // namespace streams_test
