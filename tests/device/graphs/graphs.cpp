// SPDX-License-Identifier: Apache-2.0
// An executor for tests: the rows of a layout as one graph of the device, in memory of its own, whose nodes are set anew where
// a tensor has moved. `fail_after` in its options makes runs fail half-way. Each call leaves a line in the perf_hints log.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

#include "tessera/executor.hpp"

namespace {

namespace t = tessera::sdk;

struct Row {
  const tsr_kernel* kernel;  // null: a copy
  std::vector<uint32_t> roots;
  std::vector<uint32_t> waits;
  std::vector<uint32_t> nodes;  // in the graph
  bool captured = false;
};

class GraphPlan final : public t::PreparedPlan {
 public:
  GraphPlan(const tsr_step_table& table, int64_t fail_after)
      : device_(table.queues[0]), name_(table.name), fail_after_(fail_after), dims_(table.dims, table.dims + table.num_dims) {
    for (size_t i = 0; i < table.count; ++i) {
      const tsr_step& s = t::row_of(table, i);
      Row r{s.kernel, {}, {s.waits, s.waits + s.num_waits}, {}};
      const auto touch = [&](const uint32_t* slots, uint32_t n) {
        for (uint32_t k = 0; k < n; ++k)
          if (slots[k] != TSR_NONE && t::slot_of(table, slots[k]).root != TSR_NONE)
            r.roots.push_back(t::slot_of(table, slots[k]).root);
      };
      touch(s.inputs, s.num_inputs);
      touch(s.outputs, s.num_outputs);
      if (s.workspace_root != TSR_NONE) r.roots.push_back(s.workspace_root);
      rows_.push_back(std::move(r));
    }
    num_roots_ = table.num_roots;
    for (uint32_t i = 0; i < table.num_roots; ++i) {
      const tsr_root& root = t::root_of(table, i);
      if (root.kind == TSR_ROOT_ARENA && root.device == table.queues[0] && root.bytes > 0) {
        arena_root_ = i;
        arena_bytes_ = static_cast<size_t>(root.bytes);
      }
    }
  }

  ~GraphPlan() override {
    try {
      drop_graph();
    } catch (const t::Error&) {}  // the device has failed, and says so to others
    if (event_) table().event_destroy(self(), index(), event_);
    if (arena_) table().unreserve(self(), index(), arena_);
  }

  bool run(const tsr_executor_call& call) override {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return note("busy"), false;
    if (fail_after_ >= 0 && fail_after_-- == 0) {
      // Some work is queued by then.
      const tsr_launch& l = t::launch_of(call, 0);
      if (rows_[0].kernel && (!arena_bytes_ || call.roots[arena_root_]))
        t::check(rows_[0].kernel->launch(rows_[0].kernel->self, &l));
      throw t::Error(TSR_ENVIRONMENT, "TSR-X007", "the executor was told to fail");
    }
    if (arena_bytes_ > 0 && !call.roots[arena_root_]) {
      if (!arena_) {
        t::check(table().reserve(self(), index(), arena_bytes_, &arena_));
        t::check(table().commit(self(), index(), arena_, arena_bytes_, call.streams[0]));
      }
      call.place(call.ctx, arena_root_, arena_);
    }
    std::vector<void*> roots(call.roots, call.roots + num_roots_);
    const bool same_dims = std::equal(dims_.begin(), dims_.end(), call.dims);
    const bool same = call.faults[0] == fault_ && same_dims;
    size_t changed = 0;
    if (graph_) {
      try {
        for (size_t i = 0; i < rows_.size(); ++i)
          if (!same ||
              std::any_of(rows_[i].roots.begin(), rows_[i].roots.end(), [&](uint32_t r) { return roots[r] != roots_[r]; }))
            changed += set(rows_[i], t::launch_of(call, i));
      } catch (const t::Error& e) {
        if (e.code != "TSR-R044") throw;
        drop_graph();
      }
    }
    if (!graph_) {
      build(call);
      note("built");
    } else {
      note((std::to_string(changed) + " nodes set").c_str());
    }
    roots_ = std::move(roots);
    fault_ = call.faults[0];
    dims_.assign(call.dims, call.dims + dims_.size());
    t::check(table().graph_launch(self(), index(), graph_, call.streams[0]));
    if (!event_) t::check(table().event_create(self(), index(), &event_));
    t::check(table().event_record(self(), index(), event_, call.streams[0]));
    return true;
  }

 private:
  const tsr_device_table& table() const { return device_.table(); }
  void* self() const { return device_.self(); }
  uint32_t index() const { return device_.index(); }
  void note(const char* what) const {
    if (t::log_enabled("perf_hints")) t::log("perf_hints", "graphs: @" + name_ + ": " + what);
  }

  // What a row queues: its kernel, or its copy.
  struct Queued {
    const GraphPlan& plan;
    const Row& row;
    const tsr_launch& launch;
    static tsr_error* queue(void* ctx, tsr_stream* recording) {
      const auto& q = *static_cast<const Queued*>(ctx);
      if (!q.row.kernel) {
        const tsr_device_table& d = q.plan.table();
        return d.copy_strided(q.plan.self(), q.plan.index(), &q.launch.outputs[0], &q.launch.inputs[0], recording);
      }
      tsr_launch l = q.launch;
      l.stream = recording;
      return q.row.kernel->launch(q.row.kernel->self, &l);
    }
  };

  void build(const tsr_executor_call& call) {
    t::check(table().graph_create(self(), index(), &graph_));
    for (size_t i = 0; i < rows_.size(); ++i) {
      Row& r = rows_[i];
      r.nodes.clear();
      std::vector<uint32_t> after;
      for (const uint32_t w : r.waits)
        if (!rows_[w].nodes.empty()) after.push_back(rows_[w].nodes.back());
      const tsr_launch& l = t::launch_of(call, i);
      r.captured = !r.kernel || !r.kernel->describe;
      if (r.captured) {
        Queued q{*this, r, l};
        uint32_t node = 0;
        t::check(table().graph_add_captured(self(), index(), graph_, Queued::queue, &q, after.data(),
                                            static_cast<uint32_t>(after.size()), &node));
        r.nodes.push_back(node);
        continue;
      }
      each_call(r, l, [&](const tsr_device_call& c) {
        uint32_t node = 0;
        t::check(table().graph_add(self(), index(), graph_, &c, after.data(), static_cast<uint32_t>(after.size()), &node));
        r.nodes.push_back(node);
        after.assign(1, node);
      });
      if (r.nodes.empty()) {  // nothing to compute: whoever waits for it waits for what it would have waited for
        tsr_device_call none{};
        none.struct_size = sizeof none;
        none.kind = TSR_CALL_EMPTY;
        uint32_t node = 0;
        t::check(table().graph_add(self(), index(), graph_, &none, after.data(), static_cast<uint32_t>(after.size()), &node));
        r.nodes.push_back(node);
      }
    }
    t::check(table().graph_instantiate(self(), index(), graph_));
  }

  size_t set(Row& r, const tsr_launch& l) {
    if (r.captured) {
      Queued q{*this, r, l};
      t::check(table().graph_set_captured(self(), index(), graph_, r.nodes[0], Queued::queue, &q));
      return 1;
    }
    size_t n = 0;
    each_call(r, l, [&](const tsr_device_call& c) {
      if (n == r.nodes.size()) throw t::Error(TSR_BUG, "TSR-R044", "a row has more calls than before");
      t::check(table().graph_set(self(), index(), graph_, r.nodes[n++], &c));
    });
    return n;
  }

  template <class F>
  static void each_call(const Row& r, const tsr_launch& l, F f) {
    t::check(r.kernel->describe(
        r.kernel->self, &l,
        [](void* ctx, const tsr_device_call* c) noexcept { return t::guarded([&] { (*static_cast<F*>(ctx))(*c); }); }, &f));
  }

  // Its last launch may still be queued.
  void drop_graph() {
    if (!graph_) return;
    tsr_device_graph* const g = std::exchange(graph_, nullptr);
    tsr_error* const error = event_ ? table().event_synchronize(self(), index(), event_) : nullptr;
    table().graph_destroy(self(), index(), g);
    t::check(error);
  }

  const t::DeviceTable device_;
  const std::string name_;
  std::mutex mutex_;  // of what follows
  int64_t fail_after_;
  std::vector<int64_t> dims_;
  std::vector<Row> rows_;
  size_t num_roots_ = 0;
  uint32_t arena_root_ = 0;
  size_t arena_bytes_ = 0;
  void* arena_ = nullptr;
  std::vector<void*> roots_;  // where they were in the last call
  tsr_fault* fault_ = nullptr;
  tsr_device_graph* graph_ = nullptr;
  tsr_event* event_ = nullptr;
};

class GraphExecutor final : public t::Executor {
 public:
  explicit GraphExecutor(int64_t fail_after) : fail_after_(fail_after) {}
  const char* device() const override { return "sim"; }
  uint64_t capabilities() const override { return TSR_CAP_DETERMINISTIC | TSR_EXECUTOR_OWNS_MEMORY | TSR_EXECUTOR_BOUNDS; }
  std::unique_ptr<t::PreparedPlan> prepare(const tsr_step_table& table, const char** why) override {
    if (table.count < 2) {
      *why = "one step is no gain";
      return nullptr;
    }
    return std::make_unique<GraphPlan>(table, fail_after_);
  }

 private:
  int64_t fail_after_;
};

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  t::add_executor(plugin, "graphs", std::make_shared<GraphExecutor>(plugin.options.get_int("fail_after", -1)));
}
