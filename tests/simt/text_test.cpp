// SPDX-License-Identifier: Apache-2.0
// Text of programs, compiled for the host and run by fibers at both sizes of a wave, against the judge bit for bit.
#include <catch2/catch.hpp>

#include <cstdio>
#include <map>
#include <regex>

#include "simt_support.hpp"
#include "tessera/kit/gpu/emit.hpp"
#include "tessera/kit/gpu/text_runner.hpp"
#include "tessera/plugin.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

struct Written {
  size_t number;  // of the case
  kit::SimtSchedule schedule;
  kit::Program program;
  std::vector<kit::GpuLaunch> launches;
};

// Returns the faults that were raised, as the judge does. Kernels that check take the record and the site as last arguments:
// without them the call would read two addresses behind its arguments.
uint32_t run(const Compiled& module, Written& w, Data& data, const std::vector<int64_t>& symbols, int wave, uint64_t seed) {
  uint32_t faults = 0;
  kit::IndexEnv env;
  env.symbols = symbols;
  std::vector<void*> pointers = data.pointers();
  std::vector<std::vector<char>> workspaces;
  for (const kit::ProgramBuffer& b : w.program.buffers)
    if (b.memory == kit::Memory::Workspace) {
      workspaces.emplace_back(
          static_cast<size_t>(w.program.pool.evaluate(b.extent, env)) * static_cast<size_t>(kit::type_bytes(b.type)) + 16,
          static_cast<char>(0xa5));
      pointers.push_back(workspaces.back().data());
    }
  for (const kit::GpuLaunch& l : w.launches) {
    std::vector<int64_t> sizes;
    std::vector<void*> arguments;
    for (const uint32_t s : l.symbols) sizes.push_back(symbols[s]);
    for (const uint32_t b : l.buffers) arguments.push_back(&pointers[b]);
    for (int64_t& s : sizes) arguments.push_back(&s);
    tsr_fault record{};
    tsr_fault* at = &record;
    uint64_t site = 11;
    if (l.faults) arguments.insert(arguments.end(), {&at, &site});
    kit::TextLaunch launch;
    launch.bind = reinterpret_cast<void (*)(const kit::TextRunnerApi*)>(module.symbol("text_runner_bind"));
    launch.entry = reinterpret_cast<void (*)(void* const*)>(module.symbol(l.entry + "_thunk"));
    launch.blocks = w.program.pool.evaluate(l.shape.blocks, env);
    launch.threads = l.shape.threads;
    launch.shared_bytes = l.shape.shared_bytes;
    launch.wave = wave;
    launch.seed = seed;
    std::vector<int64_t> bytes;
    for (const uint32_t b : l.buffers)
      bytes.push_back(w.program.pool.evaluate(w.program.buffers[b].extent, env) * kit::type_bytes(w.program.buffers[b].type));
    launch.bytes = bytes;
    kit::run_text(launch, arguments.data());
    if (record.code != 0) {
      CHECK(record.site == site);
      faults |= record.code == TSR_FAULT_DIVISION ? kit::kFaultDivision : kit::kFaultIndex;
    }
  }
  return faults;
}

kit::Program broken(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return kit::parse_program(text.replace(at, from.size(), to));
}

// Compiles and runs one program over `data`; the message of what the runner throws.
std::string run_alone(kit::Program p, Data data, int wave) {
  kit::GpuModuleText text(kit::sim_dialect());
  Written w{0, {}, std::move(p), {}};
  w.launches = text.add(w.program);
  const Compiled module(text.text(), "-O0");
  try {
    run(module, w, data, {}, wave, 1);
  } catch (const sdk::Error& e) {
    return e.code + " " + e.what();
  }
  return "";
}

const char* const kMeet = R"(program @meet(%x: in f32[64], %y: out f32[64]) wave 32 {
  launch {
    shared %s: f32[64]
    warp w < 2 {
      lane l < 32 {
        %0 = load %x[32 * w + l] : f32
        store %s[32 * w + l], %0
        barrier block
        %1 = load %s[63 - 32 * w - l] : f32
        %2 = shuffle xor 1 %1 : f32
        store %y[32 * w + l], %2
      }
    }
  }
}
)";

Data meet_data() {
  Data d;
  d.bytes.assign(2, std::vector<char>(64 * sizeof(float), 0));
  return d;
}

Data one_buffer() {
  Data d;
  d.bytes.assign(1, std::vector<char>(32 * sizeof(float), 0));
  return d;
}

}  // namespace

TEST_CASE("text on the host gives the family's bits") {
  const kit::SimtOrder order;
  const std::vector<SimtCase> cases = simt_cases();
  std::map<kit::SimtForm, size_t> ran;
  for (const char* device : {"sim32", "sim64"}) {
    const kit::GpuDescription& d = kit::gpu_description(device);
    kit::GpuModuleText text(kit::sim_dialect());
    std::vector<Written> all;
    std::vector<SimtKernel> kernels;
    for (size_t i = 0; i < cases.size(); ++i) {
      kernels.push_back(lower_case(cases[i]));
      for (const kit::SimtSchedule& s : reachable(kernels[i], cases[i], d, order, 5)) {
        Written w{i, s, make(kernels[i], cases[i], s, d, order), {}};
        w.program.name = cases[i].name + "_" + std::to_string(all.size());
        w.launches = text.add(w.program);
        all.push_back(std::move(w));
      }
    }
    const Compiled module(text.text(), "-O0");
    for (size_t i = 0; i < cases.size(); ++i) {
      const Data input = case_data(kernels[i], cases[i], 23, true);
      Data want = input;
      const uint32_t faults = judge(kernels[i], cases[i], order, want);
      for (Written& w : all) {
        if (w.number != i) continue;
        ++ran[w.schedule.form];
        INFO(cases[i].name << ", " << device << ": " << kit::to_text(w.schedule));
        Data got = input;
        try {
          CHECK(run(module, w, got, cases[i].symbols, d.wave, i) == faults);
        } catch (const sdk::Error& e) {
          FAIL(e.what() << "\n" << kit::print(w.program));
        }
        const std::string difference = case_difference(kernels[i], want, got);
        if (!difference.empty()) FAIL(difference << "\n" << kit::print(w.program));
      }
    }
  }
  std::printf("schedules as text:");
  for (const auto& [form, count] : ran) std::printf(" %s %zu", kit::form_name(form), count);
  std::printf("\n");
  for (const auto& [form, count] : ran) {
    INFO(kit::form_name(form));
    CHECK(count >= 5);
  }
}

TEST_CASE("the runner says which line breaks a rule") {
  CHECK(run_alone(kit::parse_program(kMeet), meet_data(), 32) == "");
  const std::string race = run_alone(broken(kMeet, "        barrier block\n", ""), meet_data(), 32);
  CHECK(race.starts_with("TSR-K033 text of a program, line "));
  CHECK((race.find("and no barrier stands between") != race.npos || race.find("is read before it is written") != race.npos));
  const std::string unwritten = run_alone(broken(kMeet, "        store %s[32 * w + l], %0\n", ""), meet_data(), 32);
  CHECK(unwritten.find("of shared memory is read before it is written") != unwritten.npos);
  const std::string outside = run_alone(broken(kMeet, "63 - 32 * w - l", "64 - 32 * w - l"), meet_data(), 32);
  CHECK(outside.find("an access outside of its array in shared memory") != outside.npos);
  const std::string lonely =
      run_alone(broken(kMeet, "        barrier block\n",
                       "        %8 = index w : i64\n        %9 = const 0 : i64\n        %10 = eq %8, %9 : bool\n"
                       "        if %10 {\n          barrier block\n        }\n"),
                meet_data(), 32);
  CHECK((lonely.find("waits at a barrier that thread") != lonely.npos || lonely.find("before it is written") != lonely.npos ||
         lonely.find("no barrier stands between") != lonely.npos));
}

TEST_CASE("the runner watches global memory") {
  const auto said = [](const char* from, const char* to) {
    std::string text = run_alone(broken(kMeet, from, to), meet_data(), 32);
    // Lines count the prelude, which may grow.
    return std::regex_replace(text, std::regex("line [0-9]+"), "line N");
  };
  CHECK(said("store %y[32 * w + l]", "store %y[32 * w + l + 1]") ==
        "TSR-K033 text of a program, line N, block 0, thread 63: an access outside of argument 1: bytes 256 to 260 of 256");
  CHECK(said("load %x[32 * w + l]", "load %x[2 * w + 2 * l + 1]").find("an access outside of argument 0: bytes ") !=
        std::string::npos);
  const std::string race = said("store %y[32 * w + l]", "store %y[l]");
  CHECK(std::regex_match(race, std::regex("TSR-K033 text of a program, line N, block 0, thread [0-9]+: element [0-9]+ of "
                                          "argument 1 was written by thread [0-9]+ of block 0 in line N, and no barrier stands "
                                          "between")));
  // Two blocks that write the same element.
  const std::string blocks = std::regex_replace(run_alone(kit::parse_program(R"(program @both(%y: out f32[32]) wave 32 {
  launch {
    grid b < 2 {
      block t < 32 {
        %0 = const 1.0 : f32
        store %y[t], %0
      }
    }
  }
}
)"),
                                                          one_buffer(), 32),
                                                std::regex("line [0-9]+"), "line N");
  CHECK(std::regex_match(blocks, std::regex("TSR-K033 text of a program, line N, block [01], thread ([0-9]+): element \\1 of "
                                            "argument 0 was written by thread \\1 of block [01] in line N, and nothing orders "
                                            "blocks")));
}

TEST_CASE("shared memory beyond what kernels declare is the launch's") {
  const kit::Program large = broken(kMeet, "shared %s: f32[64]", "shared %s: f32[16384]");
  CHECK(run_alone(large, meet_data(), 32) == "");
  kit::Program p = large;
  kit::GpuModuleText text(kit::cuda_dialect());
  const std::vector<kit::GpuLaunch> l = text.add(p);
  CHECK(l[0].dynamic_shared == 65536);
  CHECK(text.text().find("  DYNAMIC_SHARED;\n  SHARED_AT(float, s, 16384, 0);\n") != std::string::npos);
  // A schedule of a product that needs it.
  const SimtCase c{"large", "graph @g(%x: f32[256, 300], %y: f32[300, 256]) {\n %a = matmul %x, %y\n return %a\n}\n", "", {}};
  SimtKernel k = lower_case(c);
  const kit::GpuDescription& d = kit::gpu_description("sm_90a");
  kit::Program product = kit::make_program(k.rows.kernel, {kit::SimtForm::Product, 256, 8, 8, 64, 128, false}, d);
  CHECK(text.add(product)[0].dynamic_shared == 2 * 64 * 132 * 4);
}

TEST_CASE("text refuses clusters of blocks") {
  kit::Program p = kit::parse_program(R"(program @together(%y: out f32[256]) wave 32 {
  launch {
    grid b < 4 {
      cluster c < 2 {
        block t < 32 {
          %0 = const 1.0 : f32
          store %y[64 * b + 32 * c + t], %0
        }
      }
    }
  }
}
)");
  for (const kit::GpuDialect* dialect : {&kit::cuda_dialect(), &kit::hip_dialect(), &kit::sim_dialect()}) {
    kit::GpuModuleText text(*dialect);
    std::string said;
    try {
      text.add(p);
    } catch (const sdk::Error& e) {
      said = e.code + " " + e.what();
    }
    CHECK(said == "TSR-K042 program @together cannot be written for a device: a cluster of blocks, loop c");
  }
}

TEST_CASE("text names what it computes") {
  kit::Program p = kit::parse_program(kMeet);
  kit::GpuModuleText text(kit::cuda_dialect());
  const std::vector<kit::GpuLaunch> l = text.add(p);
  REQUIRE(l.size() == 1);
  CHECK(l[0].entry == "meet");
  CHECK(l[0].buffers == std::vector<uint32_t>{0, 1});
  CHECK(l[0].shape.threads == 64);
  CHECK(l[0].shape.shared_bytes == 256);
  const std::string kernel = text.text().substr(text.text().find("\nKERNEL(") + 1);
  CHECK(kernel == R"(KERNEL(64) void meet(GLOBAL const float* RESTRICT x, GLOBAL float* RESTRICT y) {
  SHARED(float, s, 64, 0);
  const u32 thread = thread_number();
  const i32 l = thread % (u32)(32);
  const i32 w = thread / (u32)(32);
  const float v2 = x[32 * w + l];
  s[32 * w + l] = v2;
  barrier_block();
  const float v5 = s[63 - 32 * w - l];
  const float v6 = shuffle_xor(v5, 1);
  y[32 * w + l] = v6;
}
)");
}

TEST_CASE("numbers of steps that sizes decide are computed once, before they are used") {
  const kit::SimtOrder order;
  const kit::GpuDescription& d = kit::gpu_description("sm_90a");
  size_t named = 0;
  for (const SimtCase& c : simt_cases()) {
    SimtKernel k = lower_case(c);
    kit::Program p = make(k, c, choose(k, c, d, order), d, order);
    kit::GpuModuleText module(kit::cuda_dialect());
    module.add(p);
    const std::string text = module.text();
    INFO(c.name);
    const std::regex name("size[0-9]+");
    for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i) {
      const size_t declared = text.find("const i64 " + i->str() + " = ");
      REQUIRE(declared != std::string::npos);
      CHECK(declared < static_cast<size_t>(i->position()));
      CHECK(text.find("const i64 " + i->str() + " = ", declared + 1) >= text.find("KERNEL(", declared));  // once in a kernel
      ++named;
    }
    // A quotient of a quotient has a name.
    CHECK_FALSE(std::regex_search(text, std::regex("quotient_of\\((?:[^,()]|\\([^()]*\\))*quotient_of\\(n[0-9]")));
  }
  CHECK(named > 20);
}
