// SPDX-License-Identifier: Apache-2.0
// A model file in the place of a client's function: what a capture would record is what its import gives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/import_model.hpp"
#include "tessera/embed.h"

namespace tessera::core {

class Plan;

class ModelSource {
 public:
  // Imports the model as far as the file alone lets it. Throws what the frontend reports.
  ModelSource(std::shared_ptr<const Context> context, std::string path);
  ~ModelSource();

  // For Callable: valid while this lives.
  tsr_callable_desc description() const;
  // The inputs that the file declares, and maybe more: input i takes argument i.
  const Graph& inputs() const { return *declared_; }
  const std::vector<std::string>& names() const { return names_; }
  std::vector<ModelArgument> arguments(const tsr_arg* args) const;  // of a call: one tensor per input
  bool has_one_graph_for(const tsr_arg* args) const;  // what the file alone says is the model for such a call, too
  // The model for a call with these arguments, one per input.
  ImportedModel import_for(const tsr_arg* args) const;

 private:
  std::shared_ptr<const Context> context_;
  std::string path_, name_;
  std::unique_ptr<Graph> declared_;
  bool complete_ = false;  // `declared_` is the whole model, and no call has to say more
  std::vector<std::string> names_;
};

// Throws TSR-T021 to TSR-T027 for arguments that the model does not take: `inputs` are those of the plan's inputs.
void check_model_call(const Plan& plan, const tsr_arg* args, const std::vector<uint32_t>& inputs);

}  // namespace tessera::core
