// SPDX-License-Identifier: Apache-2.0
// What a caller may get wrong about devices, streams and memory: the exact texts (tests/golden/devices), nothing left behind on
// the device, and other runs that go on. A device that is lost has a test of its own (lost_test.cpp); a plugin for an older ABI
// is among tests/golden/plugins.
#include <catch2/catch.hpp>
#include <functional>

#include "golden.hpp"
#include "memory/buffer.hpp"
#include "support.hpp"

namespace bad_input_test {

using namespace tessera::test;
namespace core = tessera::core;

namespace {

// Message and hint of what `f` throws, the code in front.
std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const e::Error& error) {
    return error.code() + ": " + error.message() + "\n  hint: " + error.hint() + "\n";
  }
  return "nothing was thrown\n";
}

// Bytes that sim counts as allocated, once everything is done and no block waits in a pool.
int64_t used(const char* name) {
  (void)sim();
  core::Device& d = core::device(e::device(name));
  core::trim_pool(d);
  e::synchronize(d.id());
  void* self = nullptr;
  const tsr_device_table* const t = d.table(&self);
  tsr_device_info info{};
  info.struct_size = sizeof info;
  REQUIRE(t->info(self, d.index(), &info) == nullptr);
  return info.total_bytes - info.free_bytes;
}

const char* const kProgram = R"(graph @g(%x: f32[64]@sim:0) -> (f32[64]@sim:0) {
    %a = exp %x
    %b = neg %a
    %c = add %b, %x
    return %c
  })";

// A program that runs before a fault, beside it and behind it.
class Others {
 public:
  void go_on() const { CHECK(same_bits(run(), want_)); }

 private:
  e::Tensor run() const { return program_.run(std::vector<e::Tensor>{x_.copy_to(e::device("sim:0"))})[0]; }
  e::Executable program_ = compile(sim(), kProgram);
  e::Tensor x_ = numbers({64}, 8);
  e::Tensor want_ = compile(host(), on_host(kProgram)).run(std::vector<e::Tensor>{x_})[0];
};

// Texts of one test case, in the order of what was wrong.
class Refusals {
 public:
  explicit Refusals(std::string name) : name_(std::move(name)) {}

  // Calls `f`, which is refused, between runs of another program, and looks for what it has left on the devices.
  void add(const std::string& what, const std::function<void()>& f) {
    INFO(what);
    const Others others;
    others.go_on();
    const int64_t zero = used("sim:0"), one = used("sim:1"), live = e::api().memory_in_use(e::device("sim:0"));
    const std::string text = text_of(f);
    for (int i = 0; i < 2; ++i) {
      others.go_on();
      CHECK(text_of(f) == text);
    }
    CHECK(used("sim:0") == zero);
    CHECK(used("sim:1") == one);
    CHECK(e::api().memory_in_use(e::device("sim:0")) == live);
    texts_ += what + "\n" + text;
  }
  void check() const { check_golden("golden/devices/" + name_ + ".txt", texts_); }

 private:
  std::string name_, texts_;
};

struct Options {
  std::vector<tsr_stream_handle*> streams;
  tsr_run_options table{};
  explicit Options(std::vector<tsr_stream_handle*> s, const tsr_allocator* allocator = nullptr) : streams(std::move(s)) {
    table.struct_size = sizeof table;
    table.streams = streams.data();
    table.num_streams = streams.size();
    table.allocator = allocator;
  }
};

}  // namespace

TEST_CASE("two devices in one op") {
  Refusals refusals("two_devices");
  refusals.add("two simulated devices", [] {
    compile(sim(), R"(graph @g(%x: f32[4]@sim:0, %y: f32[4]@sim:1) -> (f32[4]@sim:0) {
          %a = add %x, %y
          return %a
        })");
  });
  refusals.add("a device and the host", [] {
    compile(sim(), R"(graph @g(%x: f32[4]@sim:0, %y: f32[4]) -> (f32[4]@sim:0) {
          %a = add %x, %y
          return %a
        })");
  });
  refusals.check();
}

TEST_CASE("a tensor of another device than the graph's") {
  Refusals refusals("tensors");
  const e::Executable p = compile(sim(), kProgram);
  const e::Tensor x = numbers({64}, 1), elsewhere = x.copy_to(e::device("sim:1"));
  refusals.add("a tensor of the host", [&] { (void)p.run(std::vector<e::Tensor>{x}); });
  refusals.add("a tensor of another device", [&] { (void)p.run(std::vector<e::Tensor>{elsewhere}); });
  refusals.check();
}

TEST_CASE("a device that is not there") {
  Refusals refusals("absent");
  refusals.add("a tensor", [] { (void)e::Tensor::create(TSR_F32, std::vector<int64_t>{4}, e::device("sim:7")); });
  refusals.add("a graph's input",
               [] { compile(sim(), "graph @g(%x: f32[4]@sim:7) -> (f32[4]@sim:7) {\n  %a = exp %x\n  return %a\n}"); });
  refusals.add("to_device", [] {
    compile(sim(), "graph @g(%x: f32[4]) -> (f32[4]@gpu:0) {\n  %a = to_device %x {device = \"gpu:0\"}\n  return %a\n}");
  });
  const e::Context elsewhere = make_context("\"sim\", \"reference\"", "", "device = \"sim:7\"\n");
  refusals.add("the config's device",
               [&] { compile(elsewhere, "graph @g(%x: f32[4]) -> (f32[4]) {\n  %a = exp %x\n  return %a\n}"); });
  refusals.add("a stream", [] { (void)e::Stream(e::device("sim:7")); });
  refusals.check();
}

TEST_CASE("a stream of another device") {
  Refusals refusals("streams");
  const e::Executable p = compile(sim(), kProgram);
  const e::Tensor x = numbers({64}, 1).copy_to(e::device("sim:0"));
  const e::Stream zero(e::device("sim:0")), other(e::device("sim:0")), one(e::device("sim:1"));
  const auto run = [&](std::vector<tsr_stream_handle*> streams) {
    const Options options(std::move(streams));
    (void)p.run(std::vector<e::Tensor>{x}, &options.table);
  };
  refusals.add("of another device", [&] { run({one.handle()}); });
  refusals.add("two of one device", [&] { run({zero.handle(), other.handle()}); });
  refusals.add("as the current one",
               [&] { e::check(e::api().set_current_stream(e::device("sim:1"), zero.handle(), nullptr)); });
  refusals.add("to be waited for", [&] { e::check(e::api().synchronize(e::device("sim:1"), zero.handle())); });
  refusals.add("of the host", [] { (void)e::Stream(e::device("cpu")); });
  refusals.check();
}

TEST_CASE("an allocator of the caller's that fails") {
  const e::Executable p = compile(sim(), kProgram);
  const e::Tensor x = numbers({64}, 1).copy_to(e::device("sim:0"));
  const e::Stream stream(e::device("sim:0"));
  struct Failing {
    Allocator blocks;
    int left = 0;  // that it gives before it fails
    enum { kError, kNull, kMisaligned } how = kError;
    tsr_allocator table = blocks.table;
    std::vector<char> host = std::vector<char>(1024);
    Failing() {
      table.ctx = this;
      table.alloc = [](void* ctx, tsr_device d, size_t bytes, tsr_stream_handle* s, void** out) -> tsr_error* {
        auto& self = *static_cast<Failing*>(ctx);
        if (self.left-- > 0) return self.blocks.table.alloc(&self.blocks, d, bytes, s, out);
        if (self.how == kError)
          return e::api().host->core->error_create(TSR_ENVIRONMENT, "TSR-R001", "nothing is left", "free some");
        *out = nullptr;
        if (self.how == kNull) return nullptr;
        tsr_error* const error = self.blocks.table.alloc(&self.blocks, d, bytes + 8, s, out);
        if (!error) *out = static_cast<char*>(*out) + 8;
        return error;
      };
      table.free = [](void* ctx, tsr_device d, void* q, size_t bytes, tsr_stream_handle* s) {
        auto& self = *static_cast<Failing*>(ctx);
        if (reinterpret_cast<uintptr_t>(q) % 64 == 8) q = static_cast<char*>(q) - 8, bytes += 8;
        self.blocks.table.free(&self.blocks, d, q, bytes, s);
      };
    }
  } allocator;
  const Options options({stream.handle()}, &allocator.table);
  Refusals refusals("allocator");
  for (const int given : {0, 1}) {  // the result; then what lies between
    const std::string at = given == 0 ? "for the result: " : "for what lies between: ";
    const auto run = [&](auto how) {
      allocator.left = given;
      allocator.how = how;
      (void)p.run(std::vector<e::Tensor>{x}, &options.table);
    };
    refusals.add(at + "an error", [&] { run(Failing::kError); });
    refusals.add(at + "nothing", [&] { run(Failing::kNull); });
    refusals.add(at + "memory that is not aligned", [&] { run(Failing::kMisaligned); });
    CHECK(allocator.blocks.live.empty());
  }
  refusals.check();
}

TEST_CASE("an executor that fails half-way") {
  const e::Context failing =
      make_context("\"sim\", \"reference\"", "[executor]\nname = \"graphs\"\n[graphs]\nfail_after = 0\n");
  // Each of these programs fails once: each has a layout of its own.
  const e::Tensor x = numbers({64}, 1).copy_to(e::device("sim:0"));
  Refusals refusals("executor");
  refusals.add("half-way", [&] {
    const e::Executable p = compile(failing, R"(graph @late(%x: f32[64]@sim:0) -> (f32[64]@sim:0, f32[64]@sim:0) {
          %a = tanh %x
          %b = sigmoid %a
          return %a, %b
        })");
    (void)p.run(std::vector<e::Tensor>{x});
  });
  refusals.check();
}

}  // namespace bad_input_test
