// SPDX-License-Identifier: Apache-2.0
#include "ir/host_functions.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

struct Registry {
  std::mutex mutex;
  int64_t next = 1;
  std::map<int64_t, std::weak_ptr<HostFunction>> functions;
};
Registry& registry() {
  static auto* r = new Registry;  // graphs with static storage may go after any destructor here
  return *r;
}

}  // namespace

int64_t add_host_function(Graph& graph, const HostFunction& function) {
  Registry& r = registry();
  int64_t number = 0;
  {
    const std::lock_guard lock(r.mutex);
    number = r.next++;
  }
  std::shared_ptr<HostFunction> kept(new HostFunction(function), [number](HostFunction* f) {
    Registry& all = registry();
    {
      const std::lock_guard lock(all.mutex);
      all.functions.erase(number);
    }
    if (f->destroy) f->destroy(f->self);
    delete f;
  });
  {
    const std::lock_guard lock(r.mutex);
    r.functions.emplace(number, kept);
  }
  graph.keep(std::move(kept));
  return number;
}

bool has_host_functions(const Graph& graph) {
  for (tsr_id n = 0; n < graph.num_nodes(); ++n) {
    const tsr_node& node = graph.node(n);
    if (!node.alive || graph.record_of(n).has(kPure)) continue;
    for (uint32_t i = 0; i < node.num_attrs; ++i)
      if (std::string_view(node.attrs[i].name) == "callback") return true;
  }
  return false;
}

tsr_error* call_host_function(int64_t function, const tsr_tensor* inputs, uint32_t num_inputs, const tsr_tensor* outputs,
                              uint32_t num_outputs) noexcept {
  try {
    std::shared_ptr<HostFunction> f;
    Registry& r = registry();
    {
      const std::lock_guard lock(r.mutex);
      if (const auto at = r.functions.find(function); at != r.functions.end()) f = at->second.lock();
    }
    if (!f)
      throw user_error("TSR-R032", "host function " + std::to_string(function) + " is not of this process",
                       "a graph with host functions only runs in the process that has captured it");
    return f->call(f->self, inputs, num_inputs, outputs, num_outputs);
  } catch (...) {
    return current_exception_to_c();
  }
}

}  // namespace tessera::core
