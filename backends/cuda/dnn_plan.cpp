// SPDX-License-Identifier: Apache-2.0
#include "dnn_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "timing.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr int64_t kRanked = 16;         // configurations that the heuristic is asked for
constexpr size_t kMeasuredConfigs = 6;  // those that are timed, where measuring is asked for

}  // namespace

const char* dnn_type_name(int type) {
  switch (type) {
    case kDnnF16: return "f16";
    case kDnnBf16: return "bf16";
    case kDnnF64: return "f64";
    default: return "f32";
  }
}
int64_t dnn_item_bytes(int type) { return type == kDnnF64 ? 8 : type == kDnnF32 ? 4 : 2; }
int dnn_type_of(uint32_t dtype) {
  switch (dtype) {
    case TSR_F32: return kDnnF32;
    case TSR_F64: return kDnnF64;
    case TSR_F16: return kDnnF16;
    case TSR_BF16: return kDnnBf16;
    default: return -1;
  }
}

DnnObject::DnnObject(const Dnn& library, int kind) : dnn(&library) {
  dnn->check(dnn->cudnnBackendCreateDescriptor(kind, &d), "cudnnBackendCreateDescriptor", "a descriptor");
}
DnnObject::~DnnObject() {
  if (d) dnn->cudnnBackendDestroyDescriptor(d);
}

// -------------------------------------------------------------------------------------------------------------- graph

DnnGraph::Node DnnGraph::make(int kind) {
  kept_.emplace_back(dnn_, kind);
  return kept_.back().d;
}
void DnnGraph::set(Node n, int name, int type, int64_t count, const void* values) const {
  dnn_.check(dnn_.cudnnBackendSetAttribute(n, name, type, count, values), "cudnnBackendSetAttribute", what_);
}
void DnnGraph::finish(Node n) const { dnn_.check(dnn_.cudnnBackendFinalize(n), "cudnnBackendFinalize", what_); }

DnnGraph::Node DnnGraph::tensor(int64_t id, int type, const Shape& shape, bool inside, bool by_value) {
  const Node out = make(kDnnTensor);
  const int64_t alignment = by_value ? 4 : 16;  // the host gives 64
  set(out, kDnnTensorType, kDnnIsType, 1, &type);
  set(out, kDnnTensorSizes, kDnnIsInt64, 4, shape.sizes);
  set(out, kDnnTensorStrides, kDnnIsInt64, 4, shape.strides);
  set(out, kDnnTensorId, kDnnIsInt64, 1, &id);
  set(out, kDnnTensorAlignment, kDnnIsInt64, 1, &alignment);
  set(out, kDnnTensorVirtual, kDnnIsBool, 1, &inside);
  if (by_value) set(out, kDnnTensorByValue, kDnnIsBool, 1, &by_value);
  finish(out);
  return out;
}
DnnGraph::Node DnnGraph::tensor(int64_t id, int type, const Shape& shape) { return tensor(id, type, shape, false, false); }
DnnGraph::Node DnnGraph::inside(int type, const Shape& shape) { return tensor(next_++, type, shape, true, false); }
DnnGraph::Node DnnGraph::scalar(int64_t id) { return tensor(id, kDnnF32, dense(1, 1, 1, 1), false, true); }

DnnGraph::Node DnnGraph::operation(int kind, std::initializer_list<std::pair<int, Node>> fields, Node y) {
  const Node op = make(kind);
  for (const auto& [name, value] : fields)
    if (value) set(op, name, value);
  finish(op);
  add(op);
  return y;
}
DnnGraph::Node DnnGraph::pointwise(int mode, int precision, Node x, Node b, Node t, Node y, int64_t axis) {
  const Node how = make(kDnnPointwise);
  set(how, kDnnPointwiseMode, kDnnIsPointwiseMode, 1, &mode);
  set(how, kDnnPointwisePrecision, kDnnIsType, 1, &precision);
  if (axis >= 0) set(how, kDnnPointwiseAxis, kDnnIsInt64, 1, &axis);
  finish(how);
  return operation(kDnnOpPointwise,
                   {{kDnnOpPointwiseDescriptor, how},
                    {kDnnOpPointwiseX, x},
                    {kDnnOpPointwiseB, b},
                    {kDnnOpPointwiseT, t},
                    {kDnnOpPointwiseY, y}},
                   y);
}
DnnGraph::Node DnnGraph::matmul(Node a, Node b, Node y) {
  const int sums = kDnnF32;
  const Node how = make(kDnnMatmul);
  set(how, kDnnMatmulType, kDnnIsType, 1, &sums);
  finish(how);
  return operation(kDnnOpMatmul, {{kDnnOpMatmulDescriptor, how}, {kDnnOpMatmulA, a}, {kDnnOpMatmulB, b}, {kDnnOpMatmulC, y}},
                   y);
}
DnnGraph::Node DnnGraph::reduce(int mode, Node x, Node y) {
  const int sums = kDnnF32;
  const Node how = make(kDnnReduction);
  set(how, kDnnReductionType, kDnnIsType, 1, &sums);
  set(how, kDnnReductionOperator, kDnnIsReduction, 1, &mode);
  finish(how);
  return operation(kDnnOpReduction, {{kDnnOpReductionDescriptor, how}, {kDnnOpReductionX, x}, {kDnnOpReductionY, y}}, y);
}
DnnGraph::Node DnnGraph::reshape(Node x, Node y) {
  return operation(kDnnOpReshape, {{kDnnOpReshapeX, x}, {kDnnOpReshapeY, y}}, y);
}
DnnGraph::Node DnnGraph::whole(Gpu& gpu) {
  const Node graph = make(kDnnGraph);
  set(graph, kDnnGraphOps, kDnnIsDescriptor, static_cast<int64_t>(ops_.size()), ops_.data());
  set(graph, kDnnGraphHandle, kDnnIsHandle, 1, &dnn_.handle(gpu).handle);
  finish(graph);
  return graph;
}

// --------------------------------------------------------------------------------------------------------------- plan

std::vector<DnnObject> DnnPlan::ranked(DnnDescriptor graph) const {
  const DnnObject heuristic(dnn_, kDnnHeuristic);
  check(dnn_.cudnnBackendSetAttribute(heuristic.d, kDnnHeuristicGraph, kDnnIsDescriptor, 1, &graph),
        "cudnnBackendSetAttribute");
  check(dnn_.cudnnBackendSetAttribute(heuristic.d, kDnnHeuristicMode, kDnnIsHeuristicMode, 1, &kDnnHeuristicA),
        "cudnnBackendSetAttribute");
  check(dnn_.cudnnBackendFinalize(heuristic.d), "cudnnBackendFinalize");
  std::vector<DnnObject> out;
  std::vector<DnnDescriptor> raw;
  for (int64_t i = 0; i < kRanked; ++i) {
    out.emplace_back(dnn_, kDnnEngineConfig);
    raw.push_back(out.back().d);
  }
  int64_t found = 0;
  check(dnn_.cudnnBackendGetAttribute(heuristic.d, kDnnHeuristicResults, kDnnIsDescriptor, kRanked, &found, raw.data()),
        "cudnnBackendGetAttribute");
  out.resize(static_cast<size_t>(std::clamp<int64_t>(found, 0, kRanked)));
  return out;
}

bool DnnPlan::allowed(const DnnObject& config, const Wanted& wanted, int64_t* number) const {
  DnnObject engine(dnn_, kDnnEngine);
  int64_t count = 0;
  if (dnn_.cudnnBackendGetAttribute(config.d, kDnnConfigEngine, kDnnIsDescriptor, 1, &count, &engine.d) != 0) return false;
  if (dnn_.cudnnBackendGetAttribute(engine.d, kDnnEngineIndex, kDnnIsInt64, 1, &count, number) != 0) *number = -1;
  int notes[16] = {};
  if (dnn_.cudnnBackendGetAttribute(engine.d, kDnnEngineNotes, kDnnIsNote, 16, &count, notes) != 0) return false;
  for (int64_t i = 0; i < std::min<int64_t>(count, 16); ++i) {
    const int note = notes[i];
    if (note == kDnnNarrowSums || note == kDnnNarrowsInputs || (note == kDnnAnyOrder && !wanted.any_order)) return false;
    if (note == kDnnMatrixUnits && wanted.exact_f32) return false;
  }
  return true;
}

void DnnPlan::begin_plan() {
  plan_ = DnnObject(dnn_, kDnnPlan);
  check(dnn_.cudnnBackendSetAttribute(plan_.d, kDnnPlanHandle, kDnnIsHandle, 1, &dnn_.handle(gpu_).handle),
        "cudnnBackendSetAttribute");
}
bool DnnPlan::finish_plan(const Wanted& wanted) {
  if (dnn_.cudnnBackendFinalize(plan_.d) != 0) return false;
  int64_t count = 0, bytes = 0;
  if (dnn_.cudnnBackendGetAttribute(plan_.d, kDnnPlanWorkspace, kDnnIsInt64, 1, &count, &bytes) != 0) return false;
  workspace_ = static_cast<size_t>(bytes);
  return workspace_ <= wanted.workspace;
}
bool DnnPlan::take(const DnnObject& config, const Wanted& wanted) {
  begin_plan();
  check(dnn_.cudnnBackendSetAttribute(plan_.d, kDnnPlanConfig, kDnnIsDescriptor, 1, &config.d), "cudnnBackendSetAttribute");
  return finish_plan(wanted);
}
bool DnnPlan::restore(const std::string& choice, const Wanted& wanted) {
  begin_plan();
  const auto length = static_cast<int64_t>(choice.size());
  if (dnn_.cudnnBackendSetAttribute(plan_.d, kDnnPlanText, kDnnIsText, length, choice.data()) != 0) return false;
  return finish_plan(wanted);
}

void DnnPlan::choose(const std::string& choice, const std::function<void(DnnGraph&)>& describe, const Wanted& wanted,
                     const std::function<double()>& measure) {
  const Gpu::Scope scope(gpu_);
  dnn_.handle(gpu_);
  if (!choice.empty() && restore(choice, wanted)) {
    choice_ = choice;
    return;
  }
  DnnGraph graph(dnn_, what_);  // the plan does not need it
  describe(graph);
  const std::vector<DnnObject> configs = ranked(graph.whole(gpu_));
  std::string offered;
  size_t tried = 0, best = configs.size(), workspace = 0;
  double least = 0;
  DnnObject fastest;
  for (size_t i = 0; i < configs.size() && tried < kMeasuredConfigs; ++i) {
    int64_t engine = -1;
    bool fits = allowed(configs[i], wanted, &engine) && take(configs[i], wanted);
    double s = 0;
    if (fits && measure) {
      try {
        s = measure();
      } catch (const t::Error& e) {  // the library offers, and plans, what it does not run
        if (e.code == "TSR-R001")
          s = std::numeric_limits<double>::infinity();  // no memory to measure in: the last choice
        else if (e.code == "TSR-R031")
          fits = false;
        else
          throw;
      }
    }
    offered += (offered.empty() ? "" : ", ") + std::to_string(engine) + (fits ? "" : " (not taken)");
    if (!fits) continue;
    if (measure) {
      char text[32];
      std::snprintf(text, sizeof text, " %.1f us", s * 1e6);
      offered += text;
    }
    ++tried;
    if (best == configs.size() || s < 0.98 * least) {
      best = i, least = s;
      fastest = std::move(plan_);
      workspace = workspace_;
    }
    if (!measure) break;
  }
  plan_ = std::move(fastest), workspace_ = workspace;
  measured_ = measure && tried > 1 && std::isfinite(least);
  if (t::log_enabled("autotuning") && !configs.empty())
    t::log("autotuning", "cuda: " + what_ + ": engines as cuDNN ranks them: " + offered +
                             (best < configs.size() ? "; taken: number " + std::to_string(best + 1) : "; none taken"));
  if (best == configs.size()) throw t::Error(TSR_ENVIRONMENT, "TSR-R031", "cuDNN has no algorithm for " + what_);
  int64_t length = 0;
  if (dnn_.cudnnBackendGetAttribute(plan_.d, kDnnPlanText, kDnnIsText, 0, &length, nullptr) != 0 || length <= 0) return;
  choice_.resize(static_cast<size_t>(length));
  if (dnn_.cudnnBackendGetAttribute(plan_.d, kDnnPlanText, kDnnIsText, length, &length, choice_.data()) != 0) choice_.clear();
}

double DnnPlan::seconds(std::span<const size_t> bytes, const std::function<void(void* const*, CUstream)>& run) const {
  Timing timing(gpu_, bytes);
  return timing.seconds([&](int, CUstream stream) { run(timing.memory(), stream); });
}

void DnnPlan::execute(std::span<const int64_t> ids, std::span<const void* const> pointers, void* workspace,
                      CUstream stream) const {
  const DnnObject pack(dnn_, kDnnVariantPack);
  const auto set = [&](int name, int type, int64_t count, const void* values) {
    check(dnn_.cudnnBackendSetAttribute(pack.d, name, type, count, values), "cudnnBackendSetAttribute");
  };
  const auto count = static_cast<int64_t>(ids.size());
  set(kDnnPackIds, kDnnIsInt64, count, ids.data());
  set(kDnnPackPointers, kDnnIsPointer, count, pointers.data());
  set(kDnnPackWorkspace, kDnnIsPointer, 1, &workspace);
  check(dnn_.cudnnBackendFinalize(pack.d), "cudnnBackendFinalize");
  Dnn::Handle& h = dnn_.handle(gpu_);
  std::lock_guard lock(h.mutex);
  check(dnn_.cudnnSetStream(h.handle, stream), "cudnnSetStream");
  check(dnn_.cudnnBackendExecute(h.handle, plan_.d, pack.d), "cudnnBackendExecute");
}

}  // namespace tessera::cuda
