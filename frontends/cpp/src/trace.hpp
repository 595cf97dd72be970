// SPDX-License-Identifier: Apache-2.0
// Tracing: operations on tensors are appended to the recorder's graph while a Trace is current on the thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime.hpp"
#include "tessera/ops.hpp"
#include "tessera/tensor.hpp"

namespace tessera::detail {

struct Traced;
class Callable;

struct Trace {
  const Callable* callable = nullptr;  // whose function is traced
  tsr_recorder* recorder = nullptr;
  tsr_graph* graph = nullptr;
  tsr_id region = 0;                               // where nodes go: the body, or a region of cond / while_loop / scan
  bool gradients = false;                          // were on when the trace began: where they are off, results are constants
  bool broken = false;                             // the graph is not the first one of the trace
  bool asks_cotangents = false;                    // the program is in two halves
  bool alive = true;                               // cleared when the trace ends; tensors of it are then refused
  std::unordered_map<const void*, tsr_id> lifted;  // concrete tensors that became constants, by handle, per region
  std::vector<Tensor> kept;                        // keeps their handles from being reused while the map refers to them
  tsr_loc loc{};                                   // of the compiled function
  Traced* live = nullptr;                          // every traced tensor that host code can still reach
  void end();                                      // the tensors of the trace are refused from now on
};

struct Traced {
  std::atomic<int64_t> refs{1};
  std::shared_ptr<Trace> trace;
  tsr_id value;   // another one after each graph break
  tsr_id region;  // TSR_NONE: of a region that is gone
  // In the trace's list of live tensors, while the trace lives.
  Traced *previous = nullptr, *next = nullptr;
  // What host code has read of it already; values do not change.
  Tensor concrete;
  uint32_t read_kind = TSR_READ_NONE;
  int64_t i = 0;
  double f = 0;
  ~Traced();
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

// Exceptions of host code that the host calls: kept for the caller of the compiled function, who gets them as they were thrown.
tsr_error* hold_exception(const char* what);  // inside a catch block
void check_held(tsr_error* e);                // as check(), or throws what was held

Tensor make_traced(const std::shared_ptr<Trace>& trace, tsr_id value);
tsr_id value_of(Trace& trace, const Tensor& t);  // lifts a concrete tensor to a constant; TSR_NONE for an undefined one
const tsr_type& type_of(const Traced& t);

// ---- graph breaks (breaks.cpp). Each ends the segment: see tsr_capture_api.graph_break.
tsr_loc to_loc(const std::source_location& where);
tsr_loc loc_of(const Traced& t);  // of the operation that makes it, else of the compiled function
// The value of a tensor of one element.
bool read_bool(Traced& t, const tsr_loc& loc, const std::string& detail);
int64_t read_int(Traced& t, const tsr_loc& loc, const std::string& detail);
double read_float(Traced& t, const tsr_loc& loc, const std::string& detail);
// Sizes that depend on data are known afterwards. False: nothing of this graph is being traced here.
bool break_for_size(tsr_graph* graph, const std::source_location& where);
// All elements; `memory`: host code may write them. Valid as long as `t`.
const Tensor& read_tensor(Traced& t, const tsr_loc& loc, const std::string& detail, bool memory);

// Breaks the graph and runs the op at once, now and at every later call that comes here: no backend of the function takes it.
void run_between(const char* op, std::span<const Tensor> operands, std::span<const tsr_attr> attrs,
                 std::vector<Tensor>& results, const tsr_loc& where);

// While one lives, operations are recorded as being of this place.
class AtPlace {
 public:
  explicit AtPlace(const std::source_location& where);
  ~AtPlace();
  AtPlace(const AtPlace&) = delete;

 private:
  std::source_location previous_;
};

// Traces `f` into a new region whose inputs have these types.
tsr_id trace_region(RegionCallback f, const std::vector<tsr_type>& types);

// Records the op, or runs it when nothing is being traced. An undefined operand is an omitted one.
void run_op(const char* op, std::span<const Tensor> operands, std::span<const tsr_attr> attrs, std::vector<Tensor>& results,
            std::span<const tsr_id> regions = {});
Tensor run_op1(const char* op, std::initializer_list<Tensor> operands, std::initializer_list<tsr_attr> attrs = {});

}  // namespace tessera::detail
