// SPDX-License-Identifier: Apache-2.0
// Tracing: operations on tensors are appended to the recorder's graph while a Trace is current on the thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime.hpp"
#include "tessera/ops.hpp"
#include "tessera/tensor.hpp"

namespace tessera::detail {

struct Trace {
  tsr_recorder* recorder = nullptr;
  tsr_graph* graph = nullptr;
  tsr_id region = 0;                               // where nodes go: the body, or a region of cond / while_loop / scan
  bool alive = true;                               // cleared when the trace ends; tensors of it are then refused
  std::unordered_map<const void*, tsr_id> lifted;  // concrete tensors that became constants, by handle, per region
  std::vector<Tensor> kept;                        // keeps their handles from being reused while the map refers to them
};

struct Traced {
  std::atomic<int64_t> refs{1};
  std::shared_ptr<Trace> trace;
  tsr_id value;
  tsr_id region;
};

Trace* current_trace();  // null: operations run at once
const std::shared_ptr<Trace>& current_trace_shared();
class TraceScope {  // makes a trace current
 public:
  explicit TraceScope(std::shared_ptr<Trace> t);
  ~TraceScope();

 private:
  std::shared_ptr<Trace> previous_;
};

Tensor make_traced(const std::shared_ptr<Trace>& trace, tsr_id value);
tsr_id value_of(Trace& trace, const Tensor& t);  // lifts a concrete tensor to a constant; TSR_NONE for an undefined one
const tsr_type& type_of(const Traced& t);

// Records the op, or runs it when nothing is being traced. An undefined operand is an omitted one.
void run_op(const char* op, std::span<const Tensor> operands, std::span<const tsr_attr> attrs, std::vector<Tensor>& results,
            std::span<const tsr_id> regions = {});
Tensor run_op1(const char* op, std::initializer_list<Tensor> operands, std::initializer_list<tsr_attr> attrs = {});

}  // namespace tessera::detail
