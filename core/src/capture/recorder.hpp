// SPDX-License-Identifier: Apache-2.0
// The recorder: a graph under construction while a client runs the user's function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;
class OpRegistry;

const tsr_capture_api& capture_api();

// Used by one thread, for one capture.
class Recorder {
 public:
  Recorder(const OpRegistry& ops, std::string name);
  ~Recorder();
  static Recorder& from(tsr_recorder* r) { return *reinterpret_cast<Recorder*>(r); }
  tsr_recorder* handle() { return reinterpret_cast<tsr_recorder*>(this); }

  Graph& graph() { return *graph_; }
  // Inputs are declared before the function runs.
  tsr_id add_input(const std::string& name, const tsr_type& type, tsr_input_kind kind);
  const std::vector<tsr_id>& inputs() const { return inputs_; }
  bool has_outputs() const { return has_outputs_; }

  // Whether the function can have seen input `i`: the graph uses it, or its type was looked at, or the client does not say
  // what it looks at (see tsr_capture_api.observe).
  bool used(uint32_t i) const;
  std::unique_ptr<Graph> take();

 private:
  friend struct CaptureFunctions;
  std::unique_ptr<Graph> graph_;
  std::vector<tsr_id> inputs_;
  std::vector<uint8_t> observed_;
  bool client_observes_ = false, has_outputs_ = false;
};

}  // namespace tessera::core
