// SPDX-License-Identifier: Apache-2.0
#include "dispatch/node_check.hpp"

#include <algorithm>

#include "compile/assign.hpp"
#include "context/context.hpp"
#include "ir/graph.hpp"

namespace tessera::core {

BackendCheck::BackendCheck(const Context& context, const CompileOptions& options)
    : options_(options),
      needed_(std::find(options.backends.begin(), options.backends.end(), &context.fallback_backend()) ==
              options.backends.end()) {
  // What breaks the graph runs on the fallback: where that does not keep what the options promise, an error is better.
  if (options.deterministic)
    needed_ = needed_ && (context.fallback_backend().as<tsr_backend>().capabilities & TSR_CAP_DETERMINISTIC) != 0;
}

bool BackendCheck::taken(Graph& g, tsr_id node) {
  // One answer per op, dtypes and ranks: what backends decide by, almost always. A wrong "yes" is the compiler's error later, a
  // wrong "no" a break too many.
  const tsr_node& n = g.node(node);
  std::string key = n.op;
  const auto append = [&](tsr_id v) {
    const tsr_type* t = v == TSR_NONE ? nullptr : g.value(v).type;
    key += t ? " " + std::to_string(t->dtype) + "/" + std::to_string(t->rank) : " -";
  };
  for (uint32_t i = 0; i < n.num_operands; ++i) append(n.operands[i]);
  for (uint32_t i = 0; i < n.num_results; ++i) append(n.results[i]);
  const auto [at, fresh] = known_.try_emplace(std::move(key), true);
  if (fresh) at->second = assignable(g, node, options_);
  return at->second;
}

}  // namespace tessera::core
