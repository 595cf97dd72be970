// SPDX-License-Identifier: Apache-2.0
// Every wait of the runtime is needed: without it, some order of the simulated device's work gives a wrong result.
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>

#include "memory/buffer.hpp"
#include "support.hpp"

namespace waits_test {

using namespace tessera::test;
using tessera::core::Wait;

namespace {

const std::vector<int64_t> kSizes = {256};
tsr_device zero() { return e::device("sim:0"); }

const char* const kStep = R"(graph @step(%x: f32[256]@sim:0) -> (f32[256]@sim:0) {
  %a = tanh %x
  %y = neg %a
  return %y
})";

// Takes no memory but that of its result: a block that it took from another stream's pool would bring a wait along.
const char* const kShort = R"(graph @short(%x: f32[256]@sim:0) -> (f32[256]@sim:0) {
  %y = neg %x
  return %y
})";

// What the scenarios share; each begins with nothing queued and empty pools.
struct Setup {
  e::Executable step = compile(sim(), kStep), expected = compile(host(), on_host(kStep));
  e::Executable brief = compile(sim(), kShort), negated = compile(host(), on_host(kShort));
  std::optional<e::Stream> first{zero()}, second{zero()};
  uint64_t seed;
  e::Tensor x = numbers(kSizes, seed);
  explicit Setup(uint64_t s) : seed(s) {}

  e::Tensor upload(const e::Tensor& t, const char* device = "sim:0") const {
    e::Tensor out = t.copy_to(e::device(device));
    e::synchronize(e::device(device));
    return out;
  }
  static e::Tensor run(const e::Executable& p, const e::Tensor& in) { return p.run(std::vector<e::Tensor>{in})[0]; }
  e::Tensor want(const e::Tensor& in) const { return run(expected, in); }
};

using Scenario = std::function<bool(Setup&)>;  // whether something is wrong

bool input_written(Setup& s) {
  const e::Tensor x = s.upload(s.x);
  e::Tensor y;
  {
    const e::StreamScope scope(*s.first);
    y = s.run(s.brief, x);
  }
  const e::StreamScope scope(*s.second);
  return !same_bits(s.run(s.brief, y), s.x);
}

bool state_read(Setup& s) {
  const e::Executable update = compile(sim(), R"(graph @g(%s: f32[256]@sim:0 state "s" -> 0) -> (f32[256]@sim:0) {
    %y = exp %s
    return %y
  })");
  const e::Tensor state = s.upload(s.x);
  e::Tensor y;
  {
    const e::StreamScope scope(*s.first);
    y = s.run(s.brief, state);
  }
  {
    const e::StreamScope scope(*s.second);
    (void)s.run(update, state);
    s.second->synchronize();
  }
  const e::StreamScope scope(*s.first);
  return !same_bits(y, s.run(s.negated, s.x));
}

bool copy_written(Setup& s) {
  const e::Tensor x = s.upload(s.x);
  e::Tensor y;
  {
    const e::StreamScope scope(*s.first);
    y = s.run(s.step, x);
  }
  const e::StreamScope scope(*s.second);
  return !same_bits(y, s.want(s.x));
}

bool block_reused(Setup& s) {
  e::Tensor x = s.upload(s.x), y;
  {
    const e::StreamScope scope(*s.first);
    y = s.run(s.step, x);
  }
  x = {};
  {
    const e::StreamScope scope(*s.second);
    const e::Tensor other = numbers(kSizes, s.seed + 1000).copy_to(zero());
    s.second->synchronize();
  }
  const e::StreamScope scope(*s.first);
  return !same_bits(y, s.want(s.x));
}

bool block_read(Setup& s) {
  e::Tensor x, y;
  {
    const e::StreamScope scope(*s.first);
    x = s.upload(s.x);
  }
  const e::StreamScope scope(*s.second);
  y = s.run(s.step, x);
  x = {};
  tessera::core::trim_pool(tessera::core::device(zero()));
  s.first->synchronize();
  return !same_bits(y, s.want(s.x));
}

bool step_needs_data(Setup& s) {
  const char* text = R"(graph @g(%x: f32[256]@sim:0) -> (f32[256]@sim:1) {
    %a = tanh %x
    %b = to_device %a {device = "sim:1"}
    %y = neg %b
    return %y
  })";
  return !same_bits(s.run(compile(sim(), text), s.upload(s.x)), s.want(s.x));
}

bool step_reuses_bytes(Setup& s) {
  const std::string text = R"(graph @g(%x: f32[256]@sim:0) -> (f32[256]@sim:1, f32[256]@sim:0) {
    %a = tanh %x
    %b = to_device %a {device = "sim:1"}
    %y = neg %b
    %c = exp %x
    %d = neg %c
    %e = exp %d
    %f = neg %e
    return %y, %f
  })";
  const auto out = compile(sim(), text).run(std::vector<e::Tensor>{s.upload(s.x)});
  e::synchronize(zero());  // the first device hurries
  return !same_bits(out[0], s.want(s.x));
}

bool run_ends(Setup& s) {
  const e::Executable p = compile(sim(), R"(graph @g(%x: f32[256]@sim:0) -> (f32[256]@sim:1) {
    %b = to_device %x {device = "sim:1"}
    %a = tanh %b
    %y = neg %a
    return %y
  })");
  e::Tensor x = s.upload(s.x);
  const e::Tensor y = s.run(p, x);
  x = {};
  const e::Tensor other = numbers(kSizes, s.seed + 1000).copy_to(zero());  // on the stream that freed it
  e::synchronize(zero());
  return !same_bits(y, s.want(s.x));
}

bool constant_placed(Setup& s) {
  const std::string text =
      "graph @g(%x: f32[256]@sim:0) -> (f32[256]@sim:0) {\n  %c = constant {value = dense<f32[256]: splat " +
      std::to_string(s.seed) + ".25>}\n  %y = add %x, %c\n  return %y\n}";
  const e::Tensor x = s.upload(s.x);
  const e::Executable p = compile(sim(), text), reference = compile(host(), on_host(text));
  const e::StreamScope scope(*s.first);
  return !same_bits(s.run(p, x), s.run(reference, s.x));
}

bool plan_destroyed(Setup& s) {
  const e::Tensor x = s.upload(s.x);
  auto p = std::make_unique<e::Executable>(compile(sim(), kStep));
  const e::StreamScope scope(*s.first);
  const e::Tensor y = s.run(*p, x);
  p.reset();
  return !same_bits(y, s.want(s.x));
}

bool stream_destroyed(Setup& s) {
  const e::Tensor x = s.upload(s.x);
  e::Tensor y;
  {
    const e::StreamScope scope(*s.first);
    y = s.run(s.step, x);
  }
  s.first.reset();
  return !same_bits(y, s.want(s.x));
}

bool borrowed_returned(Setup& s) {
  tsr_allocator allocator{};
  allocator.struct_size = sizeof allocator;
  allocator.alloc = [](void*, tsr_device d, size_t bytes, tsr_stream_handle* stream, void** out) -> tsr_error* {
    *out = tessera::core::device(d).allocate(bytes, tessera::core::Stream::from(stream)->raw());
    return nullptr;
  };
  allocator.free = [](void*, tsr_device d, void* p, size_t bytes, tsr_stream_handle* stream) {
    tessera::core::device(d).free(p, bytes, tessera::core::Stream::from(stream)->raw());
  };
  tsr_stream_handle* const streams[] = {s.first->handle()};
  tsr_run_options options{};
  options.struct_size = sizeof options;
  options.streams = streams;
  options.num_streams = 1;
  options.allocator = &allocator;
  const e::Tensor x = s.upload(s.x);
  e::Tensor y = s.step.run(std::vector<e::Tensor>{x}, &options)[0];
  const e::StreamScope scope(*s.second);
  const e::Tensor z = s.run(s.step, y);
  y = {};
  s.first->synchronize();
  return !same_bits(z, s.want(s.want(s.x)));
}

bool user(Setup& s) {
  const e::Tensor x = s.upload(s.x);
  e::Tensor y;
  {
    const e::StreamScope scope(*s.first);
    y = s.run(s.brief, x);
  }
  // The same memory as the library knows nothing of it.
  tsr_tensor_handle* h = nullptr;
  e::check(e::api().tensor_wrap(&y.desc(), nullptr, nullptr, &h));
  const e::Tensor unknown = e::Tensor::adopt(h);
  e::check(e::api().stream_wait(s.second->handle(), s.first->handle()));
  const e::StreamScope scope(*s.second);
  return !same_bits(s.run(s.brief, unknown), s.x);
}

bool state_kept(Setup& s) {
  const e::Executable p =
      compile(sim(), R"(graph @g(%s: f32[256]@sim:0 state "s" -> 0, %i: i64[256]@sim:0) -> (f32[256]@sim:0) {
    %y = gather %s, %i {axis = 0}
    %z = neg %y
    return %z
  })");
  const e::Tensor state = s.upload(s.x), index = e::Tensor::create(TSR_I64, kSizes);
  for (int i = 0; i < 256; ++i) static_cast<int64_t*>(index.data())[i] = i == 100 ? 256 : i;
  const e::Tensor i = s.upload(index);
  const std::string code = code_of([&] {
    (void)p.run(std::vector<e::Tensor>{state, i});
    e::synchronize(zero());
  });
  return code != "TSR-R011" || !same_bits(state, s.x);
}

bool faults_synced(Setup& s) {
  static const e::Context c = make_context("\"sim\", \"reference\"", "[runtime]\nsync_faults = true\n");
  const e::Executable p = compile(c, R"(graph @g(%x: f32[256]@sim:0, %i: i64[1]@sim:0) -> (f32[1]@sim:0) {
    %y = gather %x, %i {axis = 0}
    return %y
  })");
  const e::Tensor x = s.upload(s.x), index = e::Tensor::create(TSR_I64, std::vector<int64_t>{1});
  *static_cast<int64_t*>(index.data()) = 256;
  const e::Tensor i = s.upload(index);
  const std::string code = code_of([&] { (void)p.run(std::vector<e::Tensor>{x, i}); });
  (void)code_of([] { e::synchronize(zero()); });
  return code != "TSR-R011";
}

// Breaking a rule of the device counts as a wrong result.
bool is_wrong(const Scenario& scenario, uint64_t seed, Wait removed) {
  bool wrong = false;
  {
    Setup s(seed);
    for (const char* d : {"sim:0", "sim:1"}) tessera::core::trim_pool(tessera::core::device(e::device(d)));
    e::synchronize(zero());
    e::synchronize(e::device("sim:1"));
    tessera::core::removed_wait = removed;
    try {
      wrong = scenario(s);
    } catch (const e::Error& error) {
      if (error.code() != "TSR-B038") throw;
      wrong = true;
    }
    tessera::core::removed_wait = Wait::kNone;
  }
  for (const char* d : {"sim:0", "sim:1"}) try {
      e::synchronize(e::device(d));
    } catch (const e::Error& error) {
      if (error.code() != "TSR-B038") throw;
      wrong = true;
    }
  return wrong;
}

}  // namespace

TEST_CASE("a wait that is missing is found") {
  struct Row {
    Wait wait;
    const char* meaning;
    Scenario scenario;
  };
  const Row all[] = {
      {Wait::kInputWritten, "input read behind its writer", input_written},
      {Wait::kStateRead, "state written behind its readers", state_read},
      {Wait::kCopyWritten, "copy reads behind the writer", copy_written},
      {Wait::kBlockReused, "block reused behind its users", block_reused},
      {Wait::kBlockRead, "block given back behind its readers", block_read},
      {Wait::kStepNeedsData, "step behind the step that it reads", step_needs_data},
      {Wait::kStepReusesBytes, "step behind the readers of its bytes", step_reuses_bytes},
      {Wait::kRunEnds, "run ends behind copies of others", run_ends},
      {Wait::kStateKept, "state written back when nothing failed", state_kept},
      {Wait::kFaultsSynced, "sync_faults: step done before the next", faults_synced},
      {Wait::kConstantPlaced, "constant has arrived", constant_placed},
      {Wait::kPlanDestroyed, "plan outlives its work", plan_destroyed},
      {Wait::kStreamDestroyed, "stream outlives its work", stream_destroyed},
      {Wait::kBorrowedReturned, "caller's memory given back behind its users", borrowed_returned},
      {Wait::kUser, "stream_wait and synchronize", user},
  };
  CHECK(std::size(all) == static_cast<size_t>(Wait::kCount) - 1);
  std::printf("%-45s%s\n", "removed wait", "wrong with seed");
  for (const auto& [wait, meaning, scenario] : all) {
    INFO(meaning);
    for (uint64_t seed = 0; seed < 20; ++seed) CHECK_FALSE(is_wrong(scenario, seed, Wait::kNone));
    uint64_t seed = 0;
    bool found = false;
    for (; seed < 200 && !(found = is_wrong(scenario, seed, wait)); ++seed) {}
    CHECK(found);
    std::printf("%-45s%s\n", meaning, found ? std::to_string(seed).c_str() : "none");
  }
}

}  // namespace waits_test
