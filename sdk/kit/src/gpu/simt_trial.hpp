// SPDX-License-Identifier: Apache-2.0
// One node, launched on a device on data that was made up for it, to see how long its kernels take there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simt_kernel.hpp"
#include "tessera/kit/measuring.hpp"
#include "tessera/kit/trial_request.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

class SimtTrial {
 public:
  // Operands of the sizes that hints give, in memory of the device at `index`. Throws Unmeasurable: sizes that are not known or
  // without elements, tensors that are too large together.
  SimtTrial(const sdk::Compile& c, sdk::Device& device, uint32_t index);
  ~SimtTrial();
  SimtTrial(const SimtTrial&) = delete;

  const sdk::Compile& compile() const { return request_.compile(); }  // for kernels that are only to be measured

  // A kernel that has run once. Where the device builds graphs, its launches are timed as nodes of one, one behind the other:
  // what a launch costs the host is then no part of the time.
  class Timed {
   public:
    Timed(SimtTrial& trial, std::unique_ptr<SimtKernel> kernel);
    ~Timed();
    Timed(const Timed&) = delete;
    double seconds();  // of one launch

   private:
    static tsr_error* add(void* self, const tsr_device_call* call);
    void launch();
    SimtTrial& trial_;
    std::unique_ptr<SimtKernel> kernel_;
    int launches_ = 1;
    tsr_device_graph* graph_ = nullptr;
    std::vector<uint32_t> last_;  // node of the graph
  };

  // What the last launch wrote, as far as that is little enough to be fetched.
  std::string outputs();

 private:
  struct Tensor {
    tsr_tensor t{};
    std::vector<int64_t> sizes, strides;
    int64_t bytes = 0;
  };
  void make(const sdk::Value& v, std::vector<Tensor>& to);
  void fill(const tsr_tensor& t, int64_t elements, int64_t bytes);
  void* allocate(int64_t bytes);
  tsr_launch launch_of(SimtKernel& kernel);
  double elapsed(const std::function<void()>& work);  // seconds on the device
  void release() noexcept;

  TrialRequest request_;
  sdk::Device& device_;
  uint32_t index_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<tsr_tensor> in_, out_;
  std::vector<void*> memory_;
  void* workspace_ = nullptr;
  int64_t workspace_bytes_ = 0;
  tsr_stream* stream_ = nullptr;
  tsr_event *begin_ = nullptr, *end_ = nullptr;
};

}  // namespace tessera::kit
