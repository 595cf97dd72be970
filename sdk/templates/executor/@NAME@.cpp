// The executor @NAME@: runs the step table of a compiled plan. This one launches the rows in their order, as the host would;
// replace run() by what your device does better, such as one launch of a graph (tsr_kernel.describe, tsr_device_table.graph_*).
#include <tessera/executor.hpp>

namespace {

namespace t = tessera::sdk;

class Plan final : public t::PreparedPlan {
 public:
  explicit Plan(const tsr_step_table& table) {
    for (size_t i = 0; i < table.count; ++i) kernels_.push_back(t::row_of(table, i).kernel);
  }
  // Several threads may be here at once. False: this call runs step by step.
  bool run(const tsr_executor_call& call) override {
    for (size_t i = 0; i < kernels_.size(); ++i) t::check(kernels_[i]->launch(kernels_[i]->self, &t::launch_of(call, i)));
    return true;
  }

 private:
  std::vector<const tsr_kernel*> kernels_;
};

class Executor final : public t::Executor {
 public:
  const char* device() const override { return "sim"; }  // yours
  uint64_t capabilities() const override {
    return TSR_CAP_DETERMINISTIC;
  }  // memory stays the host's; see TSR_EXECUTOR_OWNS_MEMORY
  std::unique_ptr<t::PreparedPlan> prepare(const tsr_step_table& table, const char** why) override {
    // A plan that is declined runs step by step, and the log says why.
    if (table.num_queues != 1) return *why = "@NAME@ runs plans on one stream", nullptr;
    for (size_t i = 0; i < table.count; ++i)
      if (t::row_of(table, i).kind != TSR_STEP_KERNEL) return *why = "@NAME@ runs kernels only", nullptr;
    return std::make_unique<Plan>(table);
  }
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  t::add_executor(plugin, "@NAME@", std::make_shared<Executor>());
}
