// SPDX-License-Identifier: Apache-2.0
// Kernels that the kernel kit lowers to text: fused regions, and single ops that the kit knows. Text of one structure is
// compiled once, whatever nodes it came from; all kernels of a plan are compiled together.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jit/compiler.hpp"
#include "tessera/kit/emit.hpp"
#include "tessera/kit/lower.hpp"
#include "tessera/kit/search.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Of this machine, for schedules.
tessera::kit::Device describe_device(const Isa& isa);

// A kernel on its way: lowered and written, not yet compiled.
struct WrittenKernel {
  tessera::kit::Lowered lowered;  // empty where WrittenStructures had the kernel
  tessera::kit::Schedule schedule;
  std::vector<uint32_t> operand_of;  // of each input buffer
  std::string name;                  // "k_fused_add_gelu"
  Source source;                     // symbols: the body, the plan, and the second phase where there is one
  int in_place = -1;                 // kit::in_place_input
  bool pointwise = false;            // kit::reads_before_writing
};
// Whether the node can be a kernel here. Throws tessera::kit::Unfit; writes no text.
void check_node(const tessera::sdk::Graph& g, const tessera::sdk::Node& n);
// Throws tessera::kit::Unfit. By the model's schedule, or by `choice` where there is one.
WrittenKernel write_kernel(const tessera::sdk::Graph& g, const tessera::sdk::Node& n, const tessera::kit::Device& device,
                           bool relaxed, bool log, const tessera::kit::Choice* choice = nullptr);

// Kernels by structure: models repeat their layers, and a training step under a budget of memory is lowered several times.
// Thread-safe.
class WrittenStructures {
 public:
  // As write_kernel() by the model's schedule, which is asked for each structure once.
  WrittenKernel write(const tessera::sdk::Graph& g, const tessera::sdk::Node& n, const tessera::kit::Device& device,
                      bool relaxed, bool log);

 private:
  static constexpr size_t kMost = 512;
  std::mutex mutex_;
  std::unordered_map<std::string, WrittenKernel> kernels_;  // by key and name, without what lower() gave
};

// The text of a kernel that was lowered under the name kPlaceholderName. Its final name is `name` and a hash of the text, since
// kernels of several structures may be linked together. Renames buffers and symbols.
inline constexpr const char* kPlaceholderName = "k_this_kernel";
Source write_source(tessera::kit::Kernel& kernel, const tessera::kit::Schedule& schedule, const std::string& name, bool log);
// Throws the run-time error of what a kernel has found.
[[noreturn]] void throw_faults(uint32_t faults, const std::string& name);
// Text without comments, which say where a kernel came from: texts of one structure are equal.
std::string without_comments(const std::string& text);
// An identifier from the ops of a node: "fused_add_gelu", "layer_norm".
std::string kernel_name(const tessera::sdk::Graph& g, const tessera::sdk::Node& n);

std::unique_ptr<tessera::sdk::Kernel> make_generated(const tessera::sdk::Compile& c, WrittenKernel written, ModulePtr module,
                                                     const tessera::kit::Device& device);
// Of what Kernel::serialize wrote. Throws TSR-J004.
std::unique_ptr<tessera::sdk::Kernel> restore_generated(std::string_view bytes, Compiler& compiler,
                                                        const tessera::kit::Device& device);

}  // namespace cpu
