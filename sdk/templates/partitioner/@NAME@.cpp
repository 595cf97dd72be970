// The partitioner @NAME@: which activations of a training step are kept for its backward half, and which are computed again
// there.
#include <tessera/plugin.hpp>

namespace {

namespace t = tessera::sdk;

class Partitioner final : public t::Partitioner {
 public:
  explicit Partitioner(double price) : price_(price) {}
  const char* summary() const override {
    return "Computes again what takes less time than writing its results and reading them back.";
  }

  // `plan` comes filled in for keeping everything. A node of rule MAY is ours to decide; the others are decided.
  void partition(t::Graph joint, const t::Options&, tsr_partition& plan) override {
    double recomputed = 0;
    for (const t::Node n : joint.nodes()) {
      if (plan.rules[n.id] == TSR_PARTITION_RECOMPUTE) plan.in_backward[n.id] = 1;
      if (plan.rules[n.id] != TSR_PARTITION_MAY) continue;
      double bytes = 0;
      for (uint32_t i = 0; i < n.num_results(); ++i) bytes += static_cast<double>(plan.bytes[n.result(i).id]);
      const bool again = plan.seconds[n.id] < price_ * 2 * bytes * plan.seconds_per_byte;
      plan.in_backward[n.id] = again ? 1 : 0;
      if (again) recomputed += plan.seconds[n.id];
    }
    plan.recompute_seconds = recomputed;
    plan.feasible = 1;     // whatever the budget: plan.evaluate() tells the peak of a plan, and which budgets it meets
    plan.bound_gap = -1;   // how far from the best plan this one is: not known
    plan.peak_bytes = -1;  // not asked
  }

 private:
  double price_;
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_partitioner("@NAME@", std::make_unique<Partitioner>(plugin.options.get_float("price", 1)));
}
