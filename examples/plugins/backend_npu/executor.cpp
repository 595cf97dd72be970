// SPDX-License-Identifier: Apache-2.0
#include "executor.hpp"

#include <string>
#include <utility>
#include <vector>

#include "device.hpp"

namespace acme_npu {

namespace {

// One layout of one plan. The rows of the table come in an order that satisfies their waits, and the commands of one submission
// run in order, so the waits are kept. A device that runs commands side by side looks at tsr_step.waits.
class CommandList final : public t::PreparedPlan {
 public:
  CommandList(std::shared_ptr<NpuDevice> device, const tsr_step_table& table) : device_(std::move(device)), name_(table.name) {
    for (size_t i = 0; i < table.count; ++i) kernels_.push_back(t::row_of(table, i).kernel);
  }

  bool run(const tsr_executor_call& call) override {
    std::vector<Command> commands;
    tsr_stream collecting;
    collecting.list = &commands;
    for (size_t i = 0; i < kernels_.size(); ++i) {
      tsr_launch l = t::launch_of(call, i);
      l.stream = &collecting;
      t::check(kernels_[i]->launch(kernels_[i]->self, &l));
    }
    if (t::log_enabled("perf_hints"))
      t::log("perf_hints", "npu: graph '" + name_ + "': one submission of " + std::to_string(commands.size()) + " commands");
    device_->submit(call.streams[0], std::move(commands));
    return true;
  }

 private:
  std::shared_ptr<NpuDevice> device_;
  std::string name_;
  std::vector<const tsr_kernel*> kernels_;  // by row
};

class Executor final : public t::Executor {
 public:
  explicit Executor(std::shared_ptr<NpuDevice> device) : device_(std::move(device)) {}
  const char* device() const override { return "npu"; }
  uint64_t capabilities() const override { return TSR_CAP_DETERMINISTIC; }
  std::unique_ptr<t::PreparedPlan> prepare(const tsr_step_table& table, const char** why) override {
    for (size_t i = 0; i < table.count; ++i)
      if (!t::row_of(table, i).kernel) {
        *why = "it copies within the device, which is no command of the npu";
        return nullptr;
      }
    return std::make_unique<CommandList>(device_, table);
  }

 private:
  std::shared_ptr<NpuDevice> device_;
};

}  // namespace

std::shared_ptr<t::Executor> make_executor(std::shared_ptr<NpuDevice> device) {
  return std::make_shared<Executor>(std::move(device));
}

}  // namespace acme_npu
