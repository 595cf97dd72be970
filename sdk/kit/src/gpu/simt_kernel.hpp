// SPDX-License-Identifier: Apache-2.0
// A kernel of a SIMT backend: what its launches are, as data that can be saved, and the module that they run.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "node_program.hpp"
#include "tessera/kit/gpu/simt_backend.hpp"

namespace tessera::kit {

// What a target made of one unit, and the modules that were loaded from it.
struct SimtBuilt {
  std::string bytes;
  std::vector<std::string> entries;
  std::shared_ptr<const SimtModule> module(SimtTarget& target, uint32_t index) {
    std::lock_guard lock(mutex);
    std::shared_ptr<const SimtModule>& m = modules[index];
    if (!m) m = target.load(bytes, entries, index);
    return m;
  }
  std::mutex mutex;
  std::map<uint32_t, std::shared_ptr<const SimtModule>> modules;
};
class SimtCode {
 public:
  std::shared_ptr<SimtBuilt> built;
  size_t first = 0;  // entry of the kernel in it
};

class SimtKernel final : public sdk::Kernel {
 public:
  static constexpr size_t kMaxPointers = 256, kMaxSizes = 64;

  struct Size {  // a number, or an expression of a variant's pool
    int64_t number = 0;
    Expr e = kNone;
  };
  struct Pointer {
    enum Kind : uint8_t { Input, Output, Workspace } kind = Input;
    uint32_t number = 0;   // operand or result of the node; of a workspace nothing
    uint32_t element = 1;  // bytes
    Size elements;         // of an operand with strides: 0 where they are a launch's
  };
  struct Launch {
    uint64_t entry = 0;
    std::vector<uint32_t> pointers, symbols;
    bool checks = false;
    Size blocks;
    int64_t threads = 1, shared_bytes = 0, dynamic_shared = 0;
  };
  struct Variant {  // one program
    IndexPool pool;
    std::vector<Pointer> pointers;
    std::vector<Launch> launches;
    std::vector<std::pair<Size, int64_t>> require;  // right where each is at most the number
  };
  struct Plan {
    std::string name;
    std::vector<uint32_t> operands;       // of each input buffer
    std::vector<sdk::LaunchDim> symbols;  // of the kernel
    std::vector<OperandStride> strides;   // symbols behind them
    int32_t in_place = -1;                // see SimtPrograms
    // The first that is right for the sizes of a launch runs; with strides the first where those let it read vectors.
    std::vector<Variant> variants;
  };
  // `results`: of each output buffer.
  static Variant variant(Program p, const std::vector<GpuLaunch>& launches, size_t first_entry,
                         const std::vector<uint32_t>& results);

  SimtKernel(std::shared_ptr<SimtTarget> target, std::shared_ptr<SimtBuilt> built, uint32_t index, Plan plan);
  static std::unique_ptr<SimtKernel> restore(std::shared_ptr<SimtTarget> target, std::string_view bytes);

  std::string name() const override { return plan_.name; }
  bool has_workspace() const override;
  int64_t workspace(const int64_t* dims) override;
  void launch(const tsr_launch& l) override;
  bool can_describe_calls() const override { return true; }
  void describe_calls(const tsr_launch& l, const sdk::EachCall& each) override;
  uint64_t strided_inputs() const override;
  int in_place() const override { return plan_.in_place; }
  bool can_serialize() const override { return true; }
  std::string serialize() const override;

  bool checks_data() const;  // a launch may write a fault
  // Calls f for each call of the device that a launch makes, in order, with what it was made of.
  using EachLaunch = std::function<void(const SimtCall&, const Variant&, const Launch&)>;
  void each_call(const tsr_launch& l, const EachLaunch& f) const;

 private:
  struct Sizes {  // of one launch
    int64_t symbols[kMaxSizes];
    size_t count = 0;
  };
  Sizes sizes_of(const int64_t* dims) const;
  // Adds the strides of a launch to its sizes. False: they do not let vectors be read.
  bool add_strides(const tsr_launch& l, Sizes& sizes) const;
  bool strided(const Pointer& p) const;  // its strides are a launch's
  static int64_t value(const Variant& v, const Size& s, const Sizes& sizes);
  const Variant& variant_for(const Sizes& sizes) const;

  std::shared_ptr<SimtTarget> target_;
  std::shared_ptr<SimtBuilt> built_;
  uint32_t index_;
  std::shared_ptr<const SimtModule> module_;
  Plan plan_;
};

}  // namespace tessera::kit
