// SPDX-License-Identifier: Apache-2.0
// One node, launched on data that was made up for it, to see how long its kernels take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/kit/measuring.hpp"
#include "tessera/kit/trial_request.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

using Budget = tessera::kit::MeasuringBudget;
using tessera::kit::Unmeasurable;

class Trial {
 public:
  // Operands of the sizes that hints give: the constants themselves, floats between -1 and 1, integers of 1. Throws
  // Unmeasurable (sizes that are not known or without elements, more than two gigabytes).
  explicit Trial(const tessera::sdk::Compile& c);
  Trial(const Trial&) = delete;

  // For kernels that are only to be measured: they make packed forms of their own, which go with them.
  const tessera::sdk::Compile& compile() const { return request_.compile(); }

  // Seconds of one launch; its constants are far away before it, as in a model that is larger than the caches, the rest of its
  // operands is near.
  double seconds(tessera::sdk::Kernel& kernel);
  // What the last launch wrote.
  std::string outputs() const;
  // Whether these are outputs() within rounding: elements of f32 differ by no more than a thousandth of the largest. Other
  // dtypes are not compared.
  bool like_outputs(const std::string& other) const;

 private:
  struct Free {
    void operator()(char* p) const;
  };
  struct Tensor {
    tsr_tensor t{};
    std::vector<int64_t> sizes, strides;
    std::unique_ptr<char, Free> own;
    int64_t bytes = 0;
    bool constant = false;
  };
  Tensor make(const tessera::sdk::Value& v) const;
  void cool();

  tessera::kit::TrialRequest request_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<tsr_tensor> in_, out_;
  std::unique_ptr<char, Free> workspace_;
  int64_t workspace_bytes_ = 0;
};

// The least time of several launches of each kernel, in turns, until each that is not far behind has had it twice, or many
// times passed. Nothing: neither came in time, since the machine does something else.
std::optional<std::vector<double>> measure(Trial& trial, const std::vector<std::unique_ptr<tessera::sdk::Kernel>>& kernels,
                                           const Budget& budget);

}  // namespace cpu
