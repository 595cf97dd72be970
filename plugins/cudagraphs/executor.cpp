// SPDX-License-Identifier: Apache-2.0
// Runs the steps of a plan as graphs of the device, which are launched as a whole: nodes are made from described launches, and
// set anew where a tensor has moved or a size has changed. For any device that builds graphs and reserves addresses.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph.hpp"

namespace tessera::cudagraphs {

namespace {

namespace t = tessera::sdk;

// A layout of a plan.
class LayoutPlan final : public t::PreparedPlan {
 public:
  LayoutPlan(SharedArena& arena, std::shared_ptr<PlanGraph> graph, std::vector<Row> rows, const tsr_step_table& table)
      : arena_(arena),
        graph_(std::move(graph)),
        rows_(std::move(rows)),
        roots_(table.num_roots, nullptr),
        changed_(rows_.size()) {
    for (uint32_t i = 0; i < table.num_roots; ++i) {
      const tsr_root& root = t::root_of(table, i);
      if (root.kind != TSR_ROOT_ARENA || root.device != table.queues[0] || root.bytes <= 0) continue;
      arena_root_ = i;
      arena_bytes_ = static_cast<size_t>(root.bytes);
    }
  }

  bool run(const tsr_executor_call& call) override {
    tsr_stream* const stream = call.streams[0];
    std::lock_guard lock(arena_.mutex);
    if (capturing(stream)) return decline("somebody captures its stream");
    if (arena_bytes_ > 0 && !call.roots[arena_root_]) call.place(call.ctx, arena_root_, arena_.memory(arena_bytes_, stream));
    const bool all = !graph_->built() || graph_->layout != this || fault_ != call.faults[0];
    for (size_t i = 0; i < rows_.size(); ++i)
      changed_[i] = all || std::any_of(rows_[i].roots.begin(), rows_[i].roots.end(),
                                       [&](uint32_t r) { return call.roots[r] != roots_[r]; });
    graph_->layout = nullptr;  // until all nodes are set
    graph_->run(rows_, call, changed_, stream);
    graph_->layout = this;
    roots_.assign(call.roots, call.roots + roots_.size());
    fault_ = call.faults[0];
    return true;
  }

 private:
  bool capturing(tsr_stream* stream) const {
    const tsr_device_table& d = arena_.device.table();
    int yes = 0;
    if (d.stream_capturing) t::check(d.stream_capturing(arena_.device.self(), arena_.device.index(), stream, &yes));
    return yes != 0;
  }
  bool decline(const char* why) const {
    if (t::log_enabled("cudagraphs")) t::log("cudagraphs", "graph '" + graph_->name() + "' runs step by step: " + why);
    return false;
  }

  SharedArena& arena_;
  std::shared_ptr<PlanGraph> graph_;
  std::vector<Row> rows_;
  uint32_t arena_root_ = 0;
  size_t arena_bytes_ = 0;
  // Of this layout's last run, while graph_->layout says that nobody else's came after it.
  std::vector<void*> roots_;
  const tsr_fault* fault_ = nullptr;
  std::vector<char> changed_;
};

class CudaGraphs final : public t::Executor {
 public:
  explicit CudaGraphs(const t::Options& options)
      : device_(options.get_string("device", "cuda")),
        limit_(options.get_int("max_mb", 1024) << 20),
        min_steps_(static_cast<size_t>(options.get_int("min_steps", 2))) {}

  const char* device() const override { return device_.c_str(); }
  uint64_t capabilities() const override { return TSR_CAP_DETERMINISTIC | TSR_EXECUTOR_OWNS_MEMORY; }

  std::unique_ptr<t::PreparedPlan> prepare(const tsr_step_table& table, const char** why) override {
    const auto declined = [&](const char* reason) -> std::unique_ptr<t::PreparedPlan> {
      *why = reason;
      if (t::log_enabled("cudagraphs"))
        t::log("cudagraphs", "graph '" + std::string(table.name) + "' runs step by step: " + reason);
      return nullptr;
    };
    if (table.num_queues != 1) return declined("its steps are queued on no device");
    if (table.count < min_steps_) return declined("it has fewer steps than [cudagraphs] min_steps");
    SharedArena& arena = SharedArena::of(table.queues[0]);
    if (!arena.device.builds_graphs() || !arena.device.reserves()) return declined("its device builds no graphs");
    std::vector<Row> rows;
    std::vector<const void*> key;
    std::vector<char> directs;
    for (size_t i = 0; i < table.count; ++i) {
      rows.push_back(row_of(table, t::row_of(table, i)));
      const tsr_kernel* const kernel = rows.back().kernel;
      key.push_back(kernel);
      const bool direct = kernel && (kernel->flags & TSR_KERNEL_NO_CAPTURE) != 0;
      if (direct && t::log_enabled("cudagraphs"))
        t::log("cudagraphs", "graph '" + std::string(table.name) + "': step '" + t::row_of(table, i).op + "' (" + kernel->name +
                                 ") cannot be a node, and is launched between two graphs");
      directs.push_back(direct);
    }
    if (std::all_of(directs.begin(), directs.end(), [](char direct) { return direct != 0; }))
      return declined("none of its steps can be a node");
    return std::make_unique<LayoutPlan>(arena, graph_of(arena, table, key, std::move(directs)), std::move(rows), table);
  }

 private:
  static Row row_of(const tsr_step_table& table, const tsr_step& s) {
    Row r;
    r.kernel = s.kernel;
    r.waits.assign(s.waits, s.waits + s.num_waits);
    const auto touch = [&](const uint32_t* slots, uint32_t n) {
      for (uint32_t k = 0; k < n; ++k)
        if (slots[k] != TSR_NONE && t::slot_of(table, slots[k]).root != TSR_NONE)
          r.roots.push_back(t::slot_of(table, slots[k]).root);
    };
    touch(s.inputs, s.num_inputs);
    touch(s.outputs, s.num_outputs);
    if (s.workspace_root != TSR_NONE) r.roots.push_back(s.workspace_root);
    std::sort(r.roots.begin(), r.roots.end());
    r.roots.erase(std::unique(r.roots.begin(), r.roots.end()), r.roots.end());
    return r;
  }

  // Layouts of one plan have the same kernels, and share its graphs.
  std::shared_ptr<PlanGraph> graph_of(SharedArena& arena, const tsr_step_table& table, const std::vector<const void*>& key,
                                      std::vector<char> direct) {
    std::lock_guard lock(mutex_);
    std::erase_if(graphs_, [](const auto& g) { return g.second.expired(); });
    std::weak_ptr<PlanGraph>& kept = graphs_[key];
    std::shared_ptr<PlanGraph> graph = kept.lock();
    if (!graph) {
      graph = std::make_shared<PlanGraph>(arena, table.name, std::move(direct), table.num_dims > 0, limit_);
      kept = graph;
    }
    return graph;
  }

  std::string device_;
  int64_t limit_;
  size_t min_steps_;
  std::mutex mutex_;
  std::map<std::vector<const void*>, std::weak_ptr<PlanGraph>> graphs_;  // by the kernels of the rows
};

}  // namespace

}  // namespace tessera::cudagraphs

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  tessera::sdk::add_executor(plugin, "cudagraphs", std::make_shared<tessera::cudagraphs::CudaGraphs>(plugin.options));
}
