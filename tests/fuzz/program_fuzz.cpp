// SPDX-License-Identifier: Apache-2.0
// Hostile text of kernels and of programs of the SIMT family: what is read prints and reads back as it was; what the verifier
// takes can be priced and written for every dialect. Anything else is an error with the code of its stage, never a crash.
#include <cstdlib>
#include <string>
#include <string_view>

#include "tessera/kit/gpu/emit.hpp"
#include "tessera/kit/program/program.hpp"
#include "tessera/kit/program/verify.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/kit/verify.hpp"
#include "tessera/plugin.hpp"

namespace kit = tessera::kit;

namespace {

void need(bool holds) {
  if (!holds) std::abort();
}

void program(std::string_view text) {
  kit::Program p = kit::parse_program(text);
  const std::string printed = kit::print(p);
  need(kit::print(kit::parse_program(printed)) == printed);
  kit::verify(p, kit::gpu_description("sim32"));
  for (size_t l = 0; l < p.launches.size(); ++l) need(kit::launch_shape(p, l).threads > 0);
  for (const kit::GpuDialect* d : {&kit::cuda_dialect(), &kit::hip_dialect(), &kit::sim_dialect()}) {
    kit::GpuModuleText module(*d);
    need(module.add(p).size() == p.launches.size());
  }
}

void kernel(std::string_view text) {
  kit::Kernel k = kit::parse(text);
  const std::string printed = kit::print(k);
  need(kit::print(kit::parse(printed)) == printed);
  kit::verify(k);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    text.starts_with("kernel") ? kernel(text) : program(text);
  } catch (const tessera::sdk::Error& e) {
    // Overflow of an index, an unknown function, a rule of the verifiers, text that is none, what no dialect says.
    static constexpr std::string_view codes = "TSR-K020 TSR-K021 TSR-K022 TSR-K024 TSR-K025 TSR-K026 TSR-K042";
    need(codes.find(e.code) != codes.npos);
  }
  return 0;
}
