// SPDX-License-Identifier: Apache-2.0
// The recorder: a graph under construction while a client runs the user's function.
#pragma once

#include <cstdint>
#include <map>
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
  // Who goes on after a graph break: runs what has been recorded and restarts the recorder with the values that are still
  // needed.
  class BreakHandler {
   public:
    virtual ~BreakHandler() = default;
    virtual void graph_break(Recorder& recorder, tsr_break& request) = 0;  // throws; then the recorder is as it was
  };

  // Who knows which nodes can be compiled.
  class NodeCheck {
   public:
    virtual ~NodeCheck() = default;
    virtual bool taken(Graph& graph, tsr_id node) = 0;
  };

  Recorder(const OpRegistry& ops, std::string name);
  ~Recorder();
  static Recorder& from(tsr_recorder* r) { return *reinterpret_cast<Recorder*>(r); }
  tsr_recorder* handle() { return reinterpret_cast<tsr_recorder*>(this); }

  Graph& graph() { return *graph_; }
  // Inputs are declared before the function runs.
  tsr_id add_input(const std::string& name, const tsr_type& type, tsr_input_kind kind);
  const std::vector<tsr_id>& inputs() const { return inputs_; }
  bool has_outputs() const { return has_outputs_; }

  // Numbers among the arguments, by the number of their leaf. Those that are symbols are graph inputs too, behind those of
  // tensors: a float as f64[], an integer n as an u8[n] whose elements nobody reads, because what is symbolic in a graph is its
  // sizes.
  struct Scalar {
    tsr_scalar_kind kind = TSR_SCALAR_NUMBER;
    tsr_id input = TSR_NONE;
    tsr_dim dim = 0;
    bool used = false, read = false;  // read: as a number, by host code
    std::string where;                // of the first use that makes it a guard
  };
  // Goes on in a graph that has its inputs already: a copy of one that another capture began with.
  Recorder(std::unique_ptr<Graph> begun, std::map<uint32_t, Scalar> scalars);
  void add_number(uint32_t arg) { scalars_.emplace(arg, Scalar()); }
  void add_float(uint32_t arg, const std::string& name);
  void add_symbol(uint32_t arg, const std::string& name, tsr_dim symbol);
  const std::map<uint32_t, Scalar>& scalars() const { return scalars_; }

  // Whether the function can have seen input `i`: the graph uses it, or its type was looked at, or the client does not say
  // what it looks at (see tsr_capture_api.observe).
  bool used(uint32_t i) const;
  bool client_observes() const { return client_observes_; }
  std::unique_ptr<Graph> take();

  void set_break_handler(BreakHandler* h) { break_handler_ = h; }
  void set_node_check(NodeCheck* c) { node_check_ = c; }  // null: every node is taken
  // An empty graph in place of the one so far, at the same address; see Graph::restart. Numbers keep their kinds and symbols;
  // those that are inputs are to be added again, behind the inputs of tensors.
  void restart(const std::string& name);
  void add_scalar(uint32_t arg, const std::string& name, const Scalar& like);

 private:
  friend struct CaptureFunctions;
  std::unique_ptr<Graph> graph_;
  std::vector<tsr_id> inputs_;
  std::vector<uint8_t> observed_;
  std::map<uint32_t, Scalar> scalars_;
  BreakHandler* break_handler_ = nullptr;
  NodeCheck* node_check_ = nullptr;
  bool client_observes_ = false, has_outputs_ = false;
};

}  // namespace tessera::core
