// SPDX-License-Identifier: Apache-2.0
// Which operations of a capture the function's backends take. Internal to dispatch/.
#pragma once

#include <map>
#include <string>

#include "capture/recorder.hpp"
#include "plan/compile_options.hpp"

namespace tessera::core {

class Context;

// For one capture. Nothing is asked where the function's backends include the config's fallback: what that one does not take,
// running the operation by itself would not get done either.
class BackendCheck final : public Recorder::NodeCheck {
 public:
  BackendCheck(const Context& context, const CompileOptions& options);
  bool needed() const { return needed_; }
  bool taken(Graph& graph, tsr_id node) override;

 private:
  const CompileOptions& options_;
  bool needed_;
  std::map<std::string, bool> known_;  // by op and types
};

}  // namespace tessera::core
