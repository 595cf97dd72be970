// SPDX-License-Identifier: Apache-2.0
// Generated code between the first product of attention and its softmax: it modifies, or makes the mask of, the scores of some
// queries and keys, in the layout in which the attention kernel has them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/form.hpp"
#include "generated.hpp"
#include "strided.hpp"
#include "tessera/kit/emit.hpp"

namespace cpu {

// The code of a form on its way. The form has nodes. Throws tessera::kit::Unfit.
struct WrittenScoreMod {
  tessera::kit::LoweredWindow lowered;
  std::string name;  // "attention_div_tanh_mul"
  Source source;
};
WrittenScoreMod write_score_mod(const AttentionForm& form, const tessera::kit::Device& device, bool relaxed, bool log);
// Whether there is such code. Throws tessera::kit::Unfit; writes no text.
void check_score_mod(const AttentionForm& form);

class ScoreMod {
 public:
  static constexpr size_t kMostBuffers = 64, kMostSymbols = 64;

  ScoreMod(const tessera::sdk::Compile& c, const AttentionForm& form, WrittenScoreMod written, ModulePtr module);

  const std::string& name() const { return name_; }
  // Of copies of operands that are not dense.
  int64_t workspace_of(const int64_t* dims, uint64_t strided) const;

  // What all windows of a launch have in common.
  struct Launch {
    void* buffers[kMostBuffers];
    int64_t symbols[kMostSymbols];
    int64_t batch[32];  // sizes of the dimensions before queries and keys
    uint32_t faults = 0;
  };
  void begin(const tsr_launch& l, char* space, Launch* out) const;
  // Heads with the same number have the same windows, but for what becomes of scores.
  int64_t place(const Launch& l, int64_t head) const;
  struct Window {
    int64_t head;  // number of the place in the dimensions before queries and keys
    int64_t query, queries, key, keys;
    int64_t step;  // elements between keys; those of a key's queries lie side by side
  };
  // Of all scores in the window, in place; or to `to`, where nothing is read from there. From any thread.
  void apply(Launch& l, const Window& w, void* to) const;
  // Throws what the code has found: an index out of range, a division by zero.
  void end(const Launch& l) const;

 private:
  ModulePtr module_;
  std::string name_;
  bool has_scores_;
  uint32_t rank_;
  std::vector<uint32_t> operand_of_;
  std::vector<LaunchSizes> sizes_;
  std::vector<uint8_t> strided_;
  std::vector<tessera::sdk::LaunchDim> symbols_, batch_;
  std::vector<uint8_t> matters_;  // of the dimensions before queries and keys: whether the code looks at the place in it
  tessera::kit::KernelRange body_ = nullptr;
  tessera::kit::KernelPlanFn plan_ = nullptr;
};

}  // namespace cpu
