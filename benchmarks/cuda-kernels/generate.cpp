// SPDX-License-Identifier: Apache-2.0
// Writes what launch.cpp runs: CUDA text of kernels of the SIMT family, a manifest of how each is launched, and data with the
// results that the family's judge computes for small shapes. Needs no device.
//
//   generate FOLDER [--arch sm_90a] [--schedules N] [--only NAME]
//
// --schedules: how many of each class, the model's choice first and then its neighbours; --only: timed kernels whose name
// begins so, without the checks, for looking around one class: generate out --only softmax --schedules 40
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "simt_support.hpp"
#include "tessera/kit/gpu/emit.hpp"
#include "tessera/plugin.hpp"

namespace {

using namespace tessera;
using namespace tessera::test;

std::vector<std::pair<std::string, kit::SimtOrder>> orders() {
  // The family's own first; others for comparison: runs of neighbouring rows, a running value for each of 8 elements in longer
  // chunks, 8 chunks by turns.
  kit::SimtOrder own, neighbours, running, turns;
  neighbours.interleaved_runs = false;
  running.by_halves = false;
  running.steps = 8;
  running.run = 32;
  running.interleaved_runs = false;
  turns.interleaved = true;
  return {{"own", own}, {"neighbours", neighbours}, {"running", running}, {"turns", turns}};
}

std::string shape(int64_t rows, int64_t columns) { return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]"; }

// The kernels that are timed; `bytes` is what they must move.
struct Timed {
  SimtCase c;
  int64_t bytes;
  bool ordered;  // reduces
};
std::vector<Timed> timed(int64_t rows, int64_t n, const std::string& t) {
  const std::string x = t + shape(rows, n), flipped = t + shape(n, rows), tag = "_" + t + "_" + std::to_string(rows);
  const int64_t e = t == "f32" ? 4 : 2, all = rows * n * e;
  const std::string wide = " %f = cast %x {dtype = f32}\n";
  const std::string back = "graph @g(%x: " + x + ", %dy: " + x + ", %w: f32[" + std::to_string(n) + "], %rstd: f32" +
                           shape(rows, 1) +
                           ") {\n %xf = cast %x {dtype = f32}\n %gf = cast %dy {dtype = f32}\n %h = mul %xf, %rstd\n";
  return {
      {{"gelu" + tag,
        "graph @g(%x: " + x + ", %b: " + t + "[" + std::to_string(n) + "]) {\n %a = add %x, %b\n %c = gelu %a\n return %c\n}\n",
        "",
        {}},
       2 * all,
       false},
      {{"add" + tag, "graph @g(%x: " + x + ", %y: " + x + ") {\n %c = add %x, %y\n return %c\n}\n", "", {}}, 3 * all, false},
      {{"transpose" + tag,
        "graph @g(%x: " + flipped + ", %y: " + x + ") {\n %a = transpose %x {perm = [1, 0]}\n %c = add %a, %y\n return %c\n}\n",
        "",
        {}},
       3 * all,
       false},
      {{"row_sum" + tag, "graph @g(%x: " + x + ") {\n" + wide + " %a = reduce_sum %f {axes = [1]}\n return %a\n}\n", "", {}},
       all + rows * 4,
       true},
      {{"column_sum" + tag, "graph @g(%x: " + x + ") {\n" + wide + " %a = reduce_sum %f {axes = [0]}\n return %a\n}\n", "", {}},
       all + n * 4,
       true},
      {{"whole_sum" + tag,
        "graph @g(%x: " + x + ") {\n" + wide + " %a = reduce_sum %f {axes = [0, 1]}\n return %a\n}\n",
        "",
        {}},
       all + 4,
       false},
      // `bytes` of a product are its floating-point operations, so that GB/s are GFLOP/s.
      {{"product" + tag,
        "graph @g(%x: " + t + shape(rows / 8, n) + ", %w: " + t + shape(n, n) + ") {\n %a = linear %x, %w, _\n return %a\n}\n",
        "",
        {}},
       2 * (rows / 8) * n * n,
       false},
      {{"softmax" + tag, "graph @g(%x: " + x + ") {\n %a = softmax %x\n return %a\n}\n", "", {}}, 2 * all, true},
      {{"rms_backward" + tag,
        back +
            " %gw = mul %gf, %w\n %p = mul %gw, %h\n %m = mean %p {axes = [1], keepdims = true}\n %hm = mul %h, %m\n"
            " %d = sub %gw, %hm\n %dx = mul %d, %rstd\n %out = cast %dx {dtype = " +
            t + "}\n return %out\n}\n",
        back + " %p = mul %gf, %h\n %dw = reduce_sum %p {axes = [0]}\n return %dw\n}\n",
        {}},
       3 * all + rows * 4 + n * 8,
       true},
  };
}

class Writer {
 public:
  Writer(std::filesystem::path folder, const kit::GpuDescription& d)
      : folder_(std::move(folder)), d_(d), manifest_(folder_ / "manifest.txt") {}

  void module(const std::string& name, const kit::GpuModuleText& text) {
    std::ofstream(folder_ / (name + ".cu")) << text.text();
  }
  void add(kit::GpuModuleText& text, const std::string& module, SimtKernel& k, const SimtCase& c, const std::string& order_name,
           const kit::SimtOrder& order, const kit::SimtSchedule& s, int64_t bytes, const std::string& data) {
    kit::Program p = make(k, c, s, d_, order);
    p.name += "_" + std::to_string(number_++);
    kit::IndexEnv env;
    env.symbols = c.symbols;
    manifest_ << "kernel " << c.name << " module " << module << " order " << order_name << " bytes " << bytes << " data "
              << data << " schedule " << kit::to_text(s) << "\n";
    for (const kit::ProgramBuffer& b : p.buffers) {
      if (b.memory > kit::Memory::Workspace) continue;
      manifest_ << "buffer " << b.name << " "
                << (b.memory == kit::Memory::Workspace ? "work"
                    : b.access == kit::Access::In      ? "in"
                                                       : "out")
                << " " << kit::type_name(b.type) << " " << p.pool.evaluate(b.extent, env) << "\n";
    }
    for (const kit::GpuLaunch& l : text.add(p)) {
      manifest_ << "launch " << l.entry << " " << p.pool.evaluate(l.shape.blocks, env) << " " << l.shape.threads << " "
                << l.dynamic_shared;
      for (const uint32_t b : l.buffers) manifest_ << " b" << b;
      for (const uint32_t v : l.symbols) manifest_ << " s" << c.symbols[v];
      if (l.faults) manifest_ << " f s0";  // the record, and a site
      manifest_ << "\n";
    }
  }
  std::filesystem::path folder_;

 private:
  const kit::GpuDescription& d_;
  std::ofstream manifest_;
  int number_ = 0;
};

void write(const std::filesystem::path& at, const std::vector<std::vector<char>>& parts, const std::vector<size_t>& sizes) {
  std::ofstream out(at, std::ios::binary);
  for (size_t i = 0; i < parts.size(); ++i) out.write(parts[i].data(), static_cast<std::streamsize>(sizes[i]));
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder, arch = "sm_90a", only;
  size_t most = 4;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--arch" && i + 1 < argc)
      arch = argv[++i];
    else if (a == "--schedules" && i + 1 < argc)
      most = static_cast<size_t>(std::atoi(argv[++i]));
    else if (a == "--only" && i + 1 < argc)
      only = argv[++i];
    else
      folder = a;
  }
  if (folder.empty()) {
    std::fprintf(stderr, "usage: generate FOLDER [--arch sm_90a] [--schedules N] [--only NAME]\n");
    return 2;
  }
  try {
    const kit::GpuDescription& d = kit::gpu_description(arch);
    std::filesystem::create_directories(folder);
    Writer w(folder, d);
    // Small shapes, judged bit by bit.
    kit::GpuModuleText checks(kit::cuda_dialect());
    for (const SimtCase& c : only.empty() ? simt_cases() : std::vector<SimtCase>{}) {
      SimtKernel k = lower_case(c);
      const Data input = case_data(k, c, 17, true);
      std::vector<size_t> sizes;
      for (const auto& b : input.bytes) sizes.push_back(b.size() - 1);  // one byte behind each
      write(w.folder_ / (c.name + ".in"), input.bytes, sizes);
      for (const auto& [name, order] : orders()) {
        if (order.interleaved && c.name.ends_with("unknown")) continue;
        Data want = input;
        judge(k, c, order, want);
        write(w.folder_ / (c.name + "." + name + ".out"), want.bytes, sizes);
        for (const kit::SimtSchedule& s : reachable(k, c, d, order, name == "own" ? 6 : 2))
          w.add(checks, "checks", k, c, name, order, s, 0, c.name);
      }
    }
    if (only.empty()) w.module("checks", checks);
    for (const int64_t rows : {int64_t{16384}, int64_t{65536}})
      for (const char* t : {"bf16", "f32"}) {
        const std::string module = std::string("timed_") + t + "_" + std::to_string(rows);
        kit::GpuModuleText text(kit::cuda_dialect());
        for (const Timed& x : timed(rows, 4096, t)) {
          if (!x.c.name.starts_with(only)) continue;
          SimtKernel k = lower_case(x.c);
          for (const auto& [name, order] : orders()) {
            if ((!x.ordered || !only.empty()) && name != "own") continue;
            try {
              for (const kit::SimtSchedule& s : reachable(k, x.c, d, order, name == "own" ? most : 1))
                w.add(text, module, k, x.c, name, order, s, x.bytes, "-");
            } catch (const sdk::Error& e) {
              if (e.code != "TSR-K041") throw;
              std::printf("%s, order %s: left out, %s\n", x.c.name.c_str(), name.c_str(), e.what());
            }
          }
        }
        w.module(module, text);
      }
  } catch (const sdk::Error& e) {
    std::fprintf(stderr, "generate: %s: %s\n", e.code.c_str(), e.what());
    return 1;
  }
  return 0;
}
