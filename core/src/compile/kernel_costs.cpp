// SPDX-License-Identifier: Apache-2.0
#include "compile/kernel_costs.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "cache/cache.hpp"
#include "compile/driver.hpp"
#include "compile/kernel_key.hpp"
#include "ir/graph.hpp"
#include "ir/graph_part.hpp"
#include "ir/records.hpp"
#include "log/log.hpp"
#include "memory/copy.hpp"
#include "memory/device.hpp"
#include "memory/parallel.hpp"
#include "memory/stream.hpp"
#include "plan/layout.hpp"
#include "plugin/manifest.hpp"
#include "plugin/plugin_host.hpp"
#include "plugin/sha256.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"
#include "support/processor.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

// Runs of each kernel behind the first, which loads code and touches memory for the first time. The fastest counts: whatever
// else the machine does only ever adds to a time, and on a shared one it often does so for most of them.
constexpr int kRuns = 11;
// Operands and results of the kernels that are measured in one go.
constexpr int64_t kMostBytes = int64_t{256} << 20;

// Times by key, as this process knows them.
struct Known {
  std::mutex mutex;
  std::unordered_map<std::string, KernelCost> costs;
  std::unordered_set<std::string> measured;  // by this process; of the rest another one kept what it found
  static Known& get() {
    static Known known;
    return known;
  }
};

// Values that no op of a float takes a slow way for; integers that are in range wherever one is an index.
void fill(const tsr_tensor& t, int64_t bytes, int integer) {
  constexpr uint32_t kF32[] = {0x3f000000, 0xbe800000, 0x3e000000, 0xbf400000};
  constexpr uint16_t kBf16[] = {0x3f00, 0xbe80, 0x3e00, 0xbf40}, kF16[] = {0x3800, 0xb400, 0x3000, 0xba00};
  constexpr double kF64[] = {0.5, -0.25, 0.125, -0.75};
  const void* pattern = nullptr;
  size_t length = 0;
  switch (t.dtype) {
    case TSR_F32:
    case TSR_C64: pattern = kF32, length = sizeof kF32; break;
    case TSR_BF16: pattern = kBf16, length = sizeof kBf16; break;
    case TSR_F16: pattern = kF16, length = sizeof kF16; break;
    case TSR_F64:
    case TSR_C128: pattern = kF64, length = sizeof kF64; break;
    default: break;
  }
  auto* data = static_cast<char*>(t.data);
  if (!pattern) {
    std::memset(data, 0, static_cast<size_t>(bytes));
    const int bits = dtype_bits(t.dtype);
    if (integer != 0 && bits >= 8)
      for (int64_t at = 0; at < bytes; at += bits / 8) data[at] = static_cast<char>(integer);
    return;
  }
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(length))
    std::memcpy(data + at, pattern, std::min(length, static_cast<size_t>(bytes - at)));
}

// Memory of a device with the values of fill(). Only the beginning is written by the host and copied; what is there is then
// doubled by the device: some operands have half a gigabyte.
TensorRef filled_on(tsr_device where, uint32_t dtype, const std::vector<int64_t>& sizes, int64_t bytes, int integer) {
  constexpr int64_t kChunk = int64_t{1} << 20;  // a multiple of every pattern
  Device& d = device(where);
  if (bytes <= kChunk || !d.has_streams()) {
    TensorRef host(tensor_create(dtype, sizes, kCpu));
    fill(host->desc, bytes, integer);
    return where == kCpu ? std::move(host) : TensorRef(tensor_copy(*host, where));
  }
  TensorRef begin(tensor_create(dtype, std::vector<int64_t>{kChunk * 8 / dtype_bits(dtype)}, kCpu));
  fill(begin->desc, kChunk, integer);
  Stream& stream = current_stream(d);
  TensorRef out(tensor_create(dtype, sizes, where, &stream));
  auto* const data = static_cast<char*>(out->desc.data);
  d.copy(data, begin->desc.data, kChunk, TSR_COPY_TO_DEVICE, stream.raw());
  for (int64_t have = kChunk; have < bytes; have *= 2)
    d.copy(data + have, data, static_cast<size_t>(std::min(have, bytes - have)), TSR_COPY_WITHIN, stream.raw());
  note_write(*out->buffer, stream.point());
  return out;
}

class Measurement {
 public:
  Measurement(Graph& g, const Plan& plan, const CompileOptions& options)
      : g_(g), plan_(plan), options_(options), hints_(hint_values(g)), is_view_(g.num_nodes(), 0) {
    for (const auto& s : plan.steps)
      if (s->kind == TSR_STEP_VIEW) is_view_[s->node] = 1;
  }

  std::vector<std::optional<KernelCost>> run() {
    find_keys();
    std::vector<const std::string*> missing;
    for (auto& [key, found] : distinct_)
      if (!known(key, found)) missing.push_back(&key);
    std::sort(missing.begin(), missing.end(),
              [&](const std::string* a, const std::string* b) { return distinct_[*a].step < distinct_[*b].step; });
    for (size_t from = 0, to = 0; from < missing.size(); from = to) {
      int64_t bytes = 0;
      while (to < missing.size() && (to == from || bytes + bytes_of(distinct_[*missing[to]].node) <= kMostBytes))
        bytes += bytes_of(distinct_[*missing[to++]].node);
      measure({missing.data() + from, to - from});
    }
    std::vector<std::optional<KernelCost>> out(plan_.steps.size());
    for (size_t i = 0; i < out.size(); ++i)
      if (keys_[i]) out[i] = distinct_[*keys_[i]].cost;
    return out;
  }

 private:
  struct Distinct {
    size_t step = 0;  // the first one's
    tsr_id node = TSR_NONE;
    const Factory* backend = nullptr;
    KernelCost cost;
  };

  void find_keys() {
    keys_.assign(plan_.steps.size(), nullptr);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const Step& s = *plan_.steps[i];
      if (s.kind != TSR_STEP_KERNEL || g_.node(s.node).num_results == 0) continue;
      if (s.backend && (s.backend->as<tsr_backend>().capabilities & TSR_CAP_NO_COMPUTE)) continue;
      const auto [at, fresh] = distinct_.try_emplace(kernel_key(g_, s.node, is_view_, hints_) + where(s));
      if (fresh) {
        at->second.step = i;
        at->second.node = s.node;
        at->second.backend = s.backend;
      }
      keys_[i] = &at->first;
    }
  }

  // What a time depends on besides the kernel.
  const std::string& where(const Step& s) {
    std::string& out = where_[{s.backend, s.device}];
    if (!out.empty()) return out;
    const Device& d = device(s.device);
    out = "on " + d.name() + "\n";
    if (s.backend) out += s.backend->name + " " + s.backend->plugin->hash + "\n";
    tsr_device_info info{};
    info.struct_size = sizeof info;
    void* self = nullptr;
    if (const tsr_device_table* table = d.table(&self)) {
      throw_if(table->info(self, d.index(), &info));
      for (const char* text : {info.description, info.architecture, info.driver_version})
        out += std::string(text ? text : "") + "\n";
    } else {
      out += processor_text() + "threads " + std::to_string(num_threads()) + "\n";
    }
    out += "threads " + std::to_string(options_.threads) + " relaxed " + std::to_string(options_.relaxed) + " deterministic " +
           std::to_string(options_.deterministic) + " unfrozen " + std::to_string(options_.unfrozen) + " tune " +
           std::to_string(options_.tune) + "\n";
    return out;
  }

  bool known(const std::string& key, Distinct& d) const {
    Known& table = Known::get();
    {
      const std::lock_guard lock(table.mutex);
      if (const auto at = table.costs.find(key); at != table.costs.end()) {
        d.cost = at->second;
        return enough(table, key);
      }
    }
    if (!options_.cost_cache) return false;
    const std::optional<std::string> text = options_.cost_cache->get(CacheKind::kCost, cache_key(key));
    KernelCost cost;
    long long workspace = 0;
    unsigned long long strided = 0, unaligned = 0;
    if (!text || std::sscanf(text->c_str(), "%lf %lld %d %llx %llx", &cost.seconds, &workspace, &cost.in_place, &strided,
                             &unaligned) != 5)
      return false;
    cost.workspace_bytes = workspace;
    cost.strided = strided;
    cost.unaligned = unaligned;
    d.cost = cost;
    const std::lock_guard lock(table.mutex);
    table.costs[key] = d.cost;
    return enough(table, key);
  }
  bool enough(const Known& table, const std::string& key) const {
    return !options_.remeasure_costs || table.measured.contains(key);
  }

  static std::string cache_key(const std::string& key) { return sha256_hex("cost of a kernel\n" + key); }

  int64_t value_bytes(tsr_id v) const {
    const tsr_type& t = *g_.value(v).type;
    int64_t n = 1;
    for (uint32_t k = 0; k < t.rank; ++k) n *= std::max<int64_t>(0, hint_size(g_, t.sizes[k], hints_));
    return storage_bytes(t.dtype, n);
  }
  int64_t bytes_of(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < x.num_operands; ++i)
      if (x.operands[i] != TSR_NONE) bytes += value_bytes(x.operands[i]);
    for (uint32_t i = 0; i < x.num_results; ++i) bytes += value_bytes(x.results[i]);
    return bytes;
  }

  // One that cannot run ends the run of all, so that they are tried by halves then. An integer of 1 is no index of a dimension
  // of 1, and one of 0 no divisor.
  void measure(std::span<const std::string* const> keys) {
    std::string why;
    for (const int integer : {0, 1}) {
      try {
        return time(keys, integer);
      } catch (const Error& e) {
        why = e.message();
      }
    }
    if (keys.size() > 1) {
      measure(keys.first(keys.size() / 2));
      measure(keys.subspan(keys.size() / 2));
      return;
    }
    const Distinct& d = distinct_[*keys[0]];
    log_write(Artifact::kPartition,
              "@" + std::string(g_.tables().name) + "  " + g_.describe(d.node) + " cannot be measured alone: " + why);
    Known& table = Known::get();
    const std::lock_guard lock(table.mutex);
    table.costs[*keys[0]] = d.cost;
    table.measured.insert(*keys[0]);
  }

  void time(std::span<const std::string* const> keys, int integer) {
    std::vector<tsr_id> nodes;
    for (const std::string* k : keys) nodes.push_back(distinct_[*k].node);
    std::unique_ptr<Graph> graph = graph_of_nodes(g_, "costs", nodes, is_view_);
    const std::vector<tsr_id> copies = kernels_of(*graph);
    const std::vector<TensorRef> inputs = arguments(*graph, keys, integer);

    CompileOptions options = options_;
    options.partition = nullptr;
    options.late_passes = nullptr;
    options.executor = nullptr;
    options.arena_max_bytes = 0;
    options.measure = true;
    options.check_nan = false;
    options.strict_backends = true;
    options.failed.clear();
    options.restore = nullptr;
    options.save = nullptr;
    options.debug = nullptr;
    options.forms = nullptr;
    std::unique_ptr<Executable> e;
    {
      const LogCapture quiet;
      e = compile_graph(std::move(graph), options);
    }
    std::unordered_map<tsr_id, const Step*> step_of;
    for (const auto& s : e->plan().steps)
      if (s->kind == TSR_STEP_KERNEL) step_of[s->node] = s.get();
    for (const tsr_id n : copies)
      if (!step_of.contains(n)) throw user_error("TSR-R022", "alone it is taken apart");
    std::vector<std::vector<double>> seconds(copies.size());
    std::vector<tsr_tensor_handle*> given;
    for (const TensorRef& t : inputs) given.push_back(t.get());
    for (int run = 0; run <= kRuns; ++run) {
      std::vector<int64_t> before;
      for (const tsr_id n : copies) before.push_back(step_of.at(n)->measured_ns.load(std::memory_order_relaxed));
      std::vector<tsr_tensor_handle*> made(e->num_outputs(), nullptr);
      e->run(given, made);
      for (tsr_tensor_handle* t : made) tensor_release(t);
      if (run > 0)
        for (size_t k = 0; k < copies.size(); ++k)
          seconds[k].push_back(
              static_cast<double>(step_of.at(copies[k])->measured_ns.load(std::memory_order_relaxed) - before[k]) * 1e-9);
    }
    const auto layouts = layouts_at_hints(e->plan(), hint_values(e->graph()));
    std::unordered_map<tsr_id, int64_t> workspaces;
    for (const auto& layout : layouts)
      for (const Instruction& i : layout->program)
        if (const Step& s = *e->plan().steps[i.step]; s.kind == TSR_STEP_KERNEL) workspaces[s.node] = i.workspace_bytes;
    for (size_t k = 0; k < copies.size(); ++k) {
      const double fastest = *std::min_element(seconds[k].begin(), seconds[k].end());
      const tsr_kernel& kernel = step_of.at(copies[k])->kernel;
      keep(*keys[k], {fastest, workspaces[copies[k]], kernel.in_place, kernel.strided, kernel.unaligned});
    }
  }

  // The nodes that are measured, among the constants and views that came along.
  std::vector<tsr_id> kernels_of(const Graph& graph) const {
    std::vector<tsr_id> out;
    const tsr_region& body = graph.region(0);
    for (uint32_t i = 0; i < body.num_outputs; ++i) {
      const tsr_id def = graph.value(body.outputs[i]).def_node;
      if (out.empty() || out.back() != def) out.push_back(def);
    }
    return out;
  }

  // In a program what the step before has just written or read is still in a cache. Kernels that read such values share them,
  // so that they are in a cache here as well: the first of a type is the same tensor for all of them, and so is the second.
  // Others have tensors of their own.
  std::vector<TensorRef> arguments(const Graph& graph, std::span<const std::string* const> keys, int integer) const {
    using Like = std::tuple<tsr_device, uint32_t, std::vector<int64_t>>;
    std::map<Like, std::vector<TensorRef>> shared;
    std::vector<TensorRef> out;
    const tsr_region& body = graph.region(0);
    for (const std::string* key : keys) {
      const size_t step = distinct_.at(*key).step;
      const std::vector<tsr_id> recent = touched_before(step);
      std::map<Like, size_t> used;
      for (const tsr_id v : read_by(plan_.steps[step]->node)) {
        const tsr_type& t = *graph.value(body.inputs[out.size()]).type;
        std::vector<int64_t> sizes;
        for (uint32_t k = 0; k < t.rank; ++k) sizes.push_back(hint_size(graph, t.sizes[k], hints_));
        const auto fresh = [&] { return filled_on(t.device, t.dtype, sizes, checked_bytes(t.dtype, sizes, "cpu"), integer); };
        if (std::find(recent.begin(), recent.end(), v) == recent.end()) {
          out.push_back(fresh());
          continue;
        }
        const Like like{t.device, t.dtype, sizes};
        const size_t k = used[like]++;
        std::vector<TensorRef>& alike = shared[like];
        if (k == alike.size()) alike.push_back(fresh());
        out.push_back(TensorRef::share(alike[k].get()));
      }
    }
    return out;
  }

  // What the kernel in front of a step reads and writes.
  std::vector<tsr_id> touched_before(size_t step) const {
    while (step-- > 0) {
      if (plan_.steps[step]->kind != TSR_STEP_KERNEL) continue;
      const tsr_id n = plan_.steps[step]->node;
      std::vector<tsr_id> out = read_by(n);
      out.insert(out.end(), g_.node(n).results, g_.node(n).results + g_.node(n).num_results);
      return out;
    }
    return {};
  }
  // What a node reads that is neither a constant nor a view of another value, each once: the inputs that graph_of_nodes gives
  // it, in that order.
  std::vector<tsr_id> read_by(tsr_id n) const {
    std::vector<tsr_id> out;
    const auto bring = [&](const auto& self, tsr_id v) -> void {
      if (v == TSR_NONE || std::find(out.begin(), out.end(), v) != out.end()) return;
      const tsr_id def = g_.value(v).def_node;
      if (def == TSR_NONE || !(is_view_[def] || g_.record_of(def).has(kConstant))) return out.push_back(v);
      for (uint32_t i = 0; i < g_.node(def).num_operands; ++i) self(self, g_.node(def).operands[i]);
    };
    for (uint32_t i = 0; i < g_.node(n).num_operands; ++i) bring(bring, g_.node(n).operands[i]);
    return out;
  }

  // What this time's runs had to share the machine with is not the kernel's: of two times the shorter one stays.
  void keep(const std::string& key, KernelCost cost) {
    if (const double before = distinct_[key].cost.seconds; before >= 0) cost.seconds = std::min(cost.seconds, before);
    distinct_[key].cost = cost;
    {
      Known& table = Known::get();
      const std::lock_guard lock(table.mutex);
      table.costs[key] = cost;
      table.measured.insert(key);
    }
    if (!options_.cost_cache) return;
    char text[128];  // the time to the bit: plans must not depend on which process measured it
    std::snprintf(text, sizeof text, "%.17g %lld %d %llx %llx", cost.seconds, static_cast<long long>(cost.workspace_bytes),
                  cost.in_place, static_cast<unsigned long long>(cost.strided),
                  static_cast<unsigned long long>(cost.unaligned));
    options_.cost_cache->put(CacheKind::kCost, cache_key(key), text);
  }

  Graph& g_;
  const Plan& plan_;
  const CompileOptions& options_;
  const std::vector<int64_t> hints_;
  std::vector<uint8_t> is_view_;
  std::map<std::string, Distinct> distinct_;
  std::map<std::pair<const Factory*, tsr_device>, std::string> where_;
  std::vector<const std::string*> keys_;  // by step
};

}  // namespace

std::vector<std::optional<KernelCost>> kernel_costs(Graph& graph, const Plan& plan, const CompileOptions& options) {
  return Measurement(graph, plan, options).run();
}

}  // namespace tessera::core
