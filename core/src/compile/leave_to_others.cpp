// SPDX-License-Identifier: Apache-2.0
#include "compile/leave_to_others.hpp"

#include <algorithm>

#include "ir/graph.hpp"
#include "log/log.hpp"
#include "plan/compile_options.hpp"
#include "plan/plan_kernels.hpp"

namespace tessera::core {

bool leave_to_others(Graph& graph, std::vector<Assignment>& assignment, CompileOptions& options, const KernelError& e) {
  constexpr ptrdiff_t kMostNodes = 8;
  auto& failed = options.failed;
  if (options.strict_backends || options.restore || e.backend == options.backends.back()) return false;
  const bool again =
      std::count_if(failed.begin(), failed.end(), [&](const auto& f) { return f.first == e.backend; }) >= kMostNodes;
  const bool all = e.node == TSR_NONE || e.family() == TSR_ENVIRONMENT || again;
  failed.insert({e.backend, all ? TSR_NONE : e.node});
  try {
    assignment = assign_again(graph, options);
  } catch (const Error& nobody) {
    if (!is_unassignable(nobody)) throw;
    return false;
  }
  log_warning("[" + e.code() + "] " + e.message() + "; " +
              (all ? "graph '" + std::string(graph.tables().name) + "' runs" : std::string("it runs")) + " on other backends" +
              (e.hint().empty() ? "" : " (" + e.hint() + ")"));
  return true;
}

}  // namespace tessera::core
