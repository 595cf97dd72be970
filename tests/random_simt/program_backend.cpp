// SPDX-License-Identifier: Apache-2.0
// Backends that run every kernel as a program of the SIMT family, by the interpreter of programs: whole graphs test lowering,
// schedules and programs together, without a compiler. "programs32" and "programs64" are devices with waves of 32 and 64 lanes.
//
// PROGRAMS_VARY=SEED      kernels have a schedule that a search reaches in some random steps, instead of the model's
// PROGRAMS_TEXT=FOLDER    the text for CUDA of every kernel is written to FOLDER/ARCHITECTURE/, once for each structure, as
//                         programs for described devices; nothing runs such a text here
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tessera/kit/gpu/emit.hpp"
#include "tessera/kit/gpu/simt_programs.hpp"
#include "tessera/kit/program/interpret.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/plugin.hpp"

namespace t = tessera::sdk;
namespace kit = tessera::kit;

namespace {

uint64_t hash_of(std::string_view text) {  // FNV-1a, 64 bits
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

// Up to six steps to neighbours, which the kernel's text and the seed choose.
kit::SimtSchedule varied(kit::Kernel& k, const kit::SimtSchedule& s, const kit::GpuDescription& d) {
  const char* seed = std::getenv("PROGRAMS_VARY");
  if (!seed) return s;
  uint64_t h = hash_of(kit::print(k) + seed);
  const auto next = [&] { return h = h * 6364136223846793005u + 1442695040888963407u, h >> 33; };
  kit::SimtSchedule at = s;
  for (uint64_t steps = next() % 7; steps > 0; --steps) {
    const std::vector<kit::SimtSchedule> near = kit::simt_neighbours(k, at, d);
    if (near.empty()) break;
    at = near[next() % near.size()];
  }
  return at;
}

// The statements of a program say where they come from; texts of one structure are equal without that.
kit::Program anonymous(kit::Program p) {
  p.origins.clear();
  for (kit::Statement& s : p.statements) s.inst.origin = kit::kNone;
  return p;
}

void write_text(const t::Compile& c, const kit::SimtOptions& options) {
  const char* folder = std::getenv("PROGRAMS_TEXT");
  if (!folder) return;
  for (const char* architecture : {"sm_80", "sm_89", "sm_90a", "sm_120"}) {
    kit::GpuModuleText text(kit::cuda_dialect());
    kit::SimtPrograms made =
        kit::simt_programs(c.graph(), c.node(), "k_this_kernel", kit::gpu_description(architecture), options);
    for (kit::Program& p : made.programs) {
      kit::Program bare = anonymous(p);
      text.add(bare);
    }
    // Comments after the text do not count: they name the first node of this structure.
    const std::string body = text.text();
    char name[32];
    std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash_of(body)));
    const std::filesystem::path to = std::filesystem::path(folder) / architecture / (std::string(name) + ".cu");
    if (std::filesystem::exists(to)) continue;
    std::string ops(c.node().op());
    if (c.node().regions().size() == 1)
      for (const t::Node& n : c.graph().nodes(c.node().regions()[0])) ops += " " + std::string(n.op());
    std::filesystem::create_directories(to.parent_path());
    std::ofstream(to) << body << "// " << ops << "\n// " << made.schedule << "\n";
  }
}

class InterpretedProgram final : public t::Kernel {
 public:
  InterpretedProgram(const t::Compile& c, const kit::GpuDescription& device) {
    kit::SimtOptions options;
    options.vary = varied;
    try {
      made_ = kit::simt_programs(c.graph(), c.node(), "k", device, options);
      for (const tsr_dim d : made_.symbol_dims) dims_.push_back(t::launch_dim(c, d));
      write_text(c, {});
    } catch (const t::Error& e) {
      // What was claimed must be compiled: another backend would hide that it was not.
      failed_ = e;
    }
  }
  std::string name() const override { return "programs.interpreted"; }
  void launch(const tsr_launch& l) override {
    if (failed_) throw *failed_;
    std::vector<void*> buffers;
    size_t inputs = 0, outputs = 0;
    for (const kit::ProgramBuffer& b : made_.programs[0].buffers)
      if (b.memory == kit::Memory::Global)
        buffers.push_back(b.access == kit::Access::In ? l.inputs[made_.operand_of[inputs++]].data
                                                      : l.outputs[made_.result_of[outputs++]].data);
    std::vector<int64_t> symbols;
    for (const t::LaunchDim& d : dims_) symbols.push_back(d.get(l.dims));
    const bool vectors = add_strides(l, symbols);
    const uint32_t faults = made_.strides.empty() ? run(buffers, symbols) : run_one(vectors ? 0 : 1, buffers, symbols);
    if (faults & kit::kFaultDivision) throw t::Error(TSR_USER, "TSR-R010", "integer division by zero");
    if (faults & kit::kFaultIndex) throw t::Error(TSR_USER, "TSR-R011", "index out of range");
  }

 private:
  // The strides of operands that a program reads where they lie. Returns whether the first program, of vectors, is right.
  bool add_strides(const tsr_launch& l, std::vector<int64_t>& symbols) const {
    bool vectors = true;
    for (const kit::OperandStride& o : made_.strides) {
      const tsr_tensor& x = l.inputs[o.operand];
      const int64_t stride = x.strides[o.dimension];
      const bool last = o.dimension + 1 == x.rank;
      vectors = vectors && (last ? stride == 1 : stride % kit::kStrideMultiple == 0 || x.sizes[o.dimension] == 1);
      symbols.push_back(stride);
    }
    return vectors;
  }
  uint32_t run_one(size_t program, const std::vector<void*>& buffers, const std::vector<int64_t>& symbols) {
    kit::Program p = made_.programs[program];  // evaluating sizes adds to its pool
    return kit::interpret(p, buffers, symbols, 1);
  }
  uint32_t run(const std::vector<void*>& buffers, const std::vector<int64_t>& symbols) {
    for (size_t i = 0; i < made_.programs.size(); ++i) {
      try {
        return run_one(i, buffers, symbols);
      } catch (const t::Error& e) {
        if (e.code != "TSR-K032" || i + 1 == made_.programs.size()) throw;
      }
    }
    return 0;
  }
  kit::SimtPrograms made_;
  std::vector<t::LaunchDim> dims_;
  std::optional<t::Error> failed_;
};

class Programs final : public t::Backend {
 public:
  explicit Programs(const kit::GpuDescription& device) : device_(device) {}
  const char* device() const override { return "cpu"; }
  uint64_t capabilities() const override { return TSR_CAP_FUSION | TSR_CAP_DETERMINISTIC | TSR_CAP_UNALIGNED; }
  t::Claim claim(t::Graph g, t::Node n) override {
    const std::string why = kit::why_no_simt_programs(g, n, device_, {});
    if (why.empty()) return t::yes();
    return n.is("fused") ? t::no(g.scratch_string(why)) : t::decompose(g.scratch_string(why));
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override { return std::make_unique<InterpretedProgram>(c, device_); }

 private:
  const kit::GpuDescription& device_;
};

}  // namespace

TESSERA_PLUGIN("acme.backend.programs", "0.1.0", "Acme") {
  plugin.add_backend("programs32", std::make_unique<Programs>(kit::gpu_description("sim32")));
  plugin.add_backend("programs64", std::make_unique<Programs>(kit::gpu_description("sim64")));
}
