// SPDX-License-Identifier: Apache-2.0
#include "dnn.hpp"

#include <dlfcn.h>

#include <algorithm>

#include "libraries.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr const char* kDnnSonames[] = {"libcudnn.so.9"};
constexpr const char* kDnnPackages[] = {"cudnn"};
constexpr size_t kKeptConvPlans = 4096;
constexpr size_t kMostConvWorkspace = size_t{256} << 20;
constexpr int64_t kRanked = 16;         // configurations that the heuristic is asked for
constexpr size_t kMeasuredConfigs = 6;  // those that are timed, where measuring is asked for
constexpr int kConvRuns = 10;           // of each

const char* dnn_type_name(int type) {
  switch (type) {
    case kDnnF16: return "f16";
    case kDnnBf16: return "bf16";
    case kDnnF64: return "f64";
    default: return "f32";
  }
}
int64_t item_bytes(int type) { return type == kDnnF64 ? 8 : type == kDnnF32 ? 4 : 2; }

// Ids of a problem's tensors.
constexpr int64_t kIdX = 1, kIdW = 2, kIdY = 3, kIdBias = 4, kIdResidual = 5, kIdVirtual = 10;

struct Sizes {
  int64_t x[4], w[4], y[4];
  explicit Sizes(const ConvProblem& p)
      : x{p.images, p.channels, p.height, p.width},
        w{p.features, p.channels / p.groups, p.taps[0], p.taps[1]},
        y{p.images, p.features, p.out(0), p.out(1)} {}
  static size_t bytes(const int64_t* s, int type) { return static_cast<size_t>(s[0] * s[1] * s[2] * s[3] * item_bytes(type)); }
};

}  // namespace

std::string to_text(const ConvProblem& p) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  std::string out = number(p.images) + " x " + number(p.channels) + " x " + number(p.height) + " x " + number(p.width) +
                    " by " + number(p.features) + " of " + number(p.taps[0]) + " x " + number(p.taps[1]);
  if (p.stride[0] != 1 || p.stride[1] != 1) out += ", stride " + number(p.stride[0]);
  if (p.groups != 1) out += ", " + number(p.groups) + " groups";
  out += std::string(", ") + dnn_type_name(p.type) + (p.channels_last ? ", channels last" : "");
  return out + (p.bias ? ", bias" : "") + (p.residual ? ", residual" : "") + (p.relu ? ", relu" : "");
}

// ------------------------------------------------------------------------------------------------------------ library

std::shared_ptr<Dnn> Dnn::open(const std::string& wanted, std::string* why) {
  const Library library = open_library({kDnnSonames, kDnnPackages}, wanted);
  if (!library.handle) {
    std::string tried;
    for (const std::string& path : library.tried) tried += (tried.empty() ? "" : ", ") + path;
    *why = "cuDNN was not found (tried " + tried + ")";
    return nullptr;
  }
  auto dnn = std::make_shared<Dnn>();
  dnn->path_ = library.path;
  std::string missing;
#define TESSERA_DNN_LOAD(name, result, parameters)                                 \
  dnn->name = reinterpret_cast<decltype(dnn->name)>(dlsym(library.handle, #name)); \
  if (!dnn->name) missing += (missing.empty() ? "" : ", ") + std::string(#name);
  TESSERA_DNN_FUNCTIONS(TESSERA_DNN_LOAD)
#undef TESSERA_DNN_LOAD
  if (!missing.empty()) {
    *why = "cuDNN of " + library.path + " lacks " + missing;
    return nullptr;
  }
  return dnn;
}

std::string Dnn::locate(const std::string& wanted) { return locate_library({kDnnSonames, kDnnPackages}, wanted); }

std::string Dnn::version_text() const {
  const size_t v = cudnnGetVersion();  // 91400: 9.14.0
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

void Dnn::check(int status, const char* call, const ConvProblem& problem) const {
  if (status == 0) return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  const char* text = cudnnGetErrorString(status);
  throw t::Error(TSR_ENVIRONMENT, "TSR-R031",
                 std::string("cuDNN: ") + call + ": " + (text ? text : "error") + " (" + std::to_string(status) + ")" +
                     (*detail ? std::string(", ") + detail : "") + ", for a convolution " + to_text(problem),
                 "[cuda] cudnn = \"off\" computes convolutions without it");
}

Dnn::Handle& Dnn::handle(Gpu& gpu) {
  const Gpu::Scope scope(gpu);
  std::lock_guard lock(mutex_);
  Handle& h = handles_[&gpu];
  if (!h.handle) check(cudnnCreate(&h.handle), "cudnnCreate", {});
  return h;
}

std::shared_ptr<const ConvPlan> Dnn::plan(Gpu& gpu, const ConvProblem& problem, std::string* why, const std::string& choice,
                                          bool measure) {
  const Key key{&gpu, problem, measure || !choice.empty()};
  {
    std::lock_guard lock(mutex_);
    const auto it = plans_.find(key);
    if (it != plans_.end()) {
      *why = it->second.why;
      return it->second.plan;
    }
  }
  Made made;
  try {
    made.plan = std::make_shared<const ConvPlan>(*this, gpu, problem, choice, measure);
  } catch (const t::Error& e) {
    if (e.code != "TSR-R031") throw;
    made.why = e.what();
  }
  std::lock_guard lock(mutex_);
  if (plans_.size() >= kKeptConvPlans) plans_.clear();  // kernels that use one hold it
  const Made& kept = plans_.emplace(key, std::move(made)).first->second;
  *why = kept.why;
  return kept.plan;
}

// --------------------------------------------------------------------------------------------------------------- plan

ConvPlan::Descriptor::Descriptor(const Dnn& library, int kind) : dnn(&library) {
  dnn->check(dnn->cudnnBackendCreateDescriptor(kind, &d), "cudnnBackendCreateDescriptor", {});
}
ConvPlan::Descriptor::~Descriptor() {
  if (d) dnn->cudnnBackendDestroyDescriptor(d);
}

void ConvPlan::set(const Descriptor& d, int name, int type, int64_t count, const void* values) const {
  dnn_.check(dnn_.cudnnBackendSetAttribute(d.d, name, type, count, values), "cudnnBackendSetAttribute", p_);
}
void ConvPlan::set(const Descriptor& d, int name, const Descriptor& value) const {
  set(d, name, kDnnIsDescriptor, 1, &value.d);
}
void ConvPlan::finish(const Descriptor& d) const { dnn_.check(dnn_.cudnnBackendFinalize(d.d), "cudnnBackendFinalize", p_); }

// `sizes`: images or features, channels, height, width, wherever the channels lie.
ConvPlan::Descriptor ConvPlan::tensor(int64_t id, const int64_t* sizes, bool virtual_one, int type) const {
  Descriptor out(dnn_, kDnnTensor);
  const int64_t strides[2][4] = {{sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1},
                                 {sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]}};
  const int64_t alignment = 16;  // the host gives 64
  set(out, kDnnTensorType, kDnnIsType, 1, &type);
  set(out, kDnnTensorSizes, kDnnIsInt64, 4, sizes);
  set(out, kDnnTensorStrides, kDnnIsInt64, 4, strides[p_.channels_last]);
  set(out, kDnnTensorId, kDnnIsInt64, 1, &id);
  set(out, kDnnTensorAlignment, kDnnIsInt64, 1, &alignment);
  set(out, kDnnTensorVirtual, kDnnIsBool, 1, &virtual_one);
  finish(out);
  return out;
}

ConvPlan::Descriptor ConvPlan::pointwise(int mode, const Descriptor& x, const Descriptor* b, const Descriptor& y) const {
  Descriptor what(dnn_, kDnnPointwise);
  const int precision = p_.type == kDnnF64 ? kDnnF64 : kDnnF32;
  set(what, kDnnPointwiseMode, kDnnIsPointwiseMode, 1, &mode);
  set(what, kDnnPointwisePrecision, kDnnIsType, 1, &precision);
  finish(what);
  Descriptor op(dnn_, kDnnOpPointwise);
  set(op, kDnnOpPointwiseDescriptor, what);
  set(op, kDnnOpPointwiseX, x);
  if (b) set(op, kDnnOpPointwiseB, *b);
  set(op, kDnnOpPointwiseY, y);
  finish(op);
  return op;
}

// Between its operations values stay in the accumulator's type.
void ConvPlan::describe() {
  const Sizes s(p_);
  const int sum = p_.type == kDnnF64 ? kDnnF64 : kDnnF32;
  const int64_t dims = 2;
  Descriptor convolution(dnn_, kDnnConvolution);
  set(convolution, kDnnConvolutionType, kDnnIsType, 1, &sum);
  set(convolution, kDnnConvolutionMode, kDnnIsConvolutionMode, 1, &kDnnCrossCorrelation);
  set(convolution, kDnnConvolutionDims, kDnnIsInt64, 1, &dims);
  set(convolution, kDnnConvolutionDilations, kDnnIsInt64, dims, p_.dilation);
  set(convolution, kDnnConvolutionStrides, kDnnIsInt64, dims, p_.stride);
  set(convolution, kDnnConvolutionPadLow, kDnnIsInt64, dims, p_.pad_low);
  set(convolution, kDnnConvolutionPadHigh, kDnnIsInt64, dims, p_.pad_high);
  finish(convolution);

  std::vector<DnnDescriptor> ops;
  const auto keep = [&](Descriptor d) {
    kept_.push_back(std::move(d));
    return kept_.size() - 1;
  };
  int steps = int{p_.bias} + int{p_.residual} + int{p_.relu};
  int64_t next = kIdVirtual;
  const auto result = [&] {  // of the next operation
    const bool last = steps-- == 0;
    return keep(last ? tensor(kIdY, s.y, false, p_.type) : tensor(next++, s.y, true, sum));
  };
  kept_.reserve(24);  // references into it stay
  const size_t x = keep(tensor(kIdX, s.x, false, p_.type)), w = keep(tensor(kIdW, s.w, false, p_.type));
  size_t at = result();
  Descriptor op(dnn_, kDnnOpConvolution);
  if (sum == kDnnF64) {
    const double one = 1, zero = 0;
    set(op, kDnnOpConvolutionAlpha, kDnnIsDouble, 1, &one);
    set(op, kDnnOpConvolutionBeta, kDnnIsDouble, 1, &zero);
  } else {
    const float one = 1, zero = 0;
    set(op, kDnnOpConvolutionAlpha, kDnnIsFloat, 1, &one);
    set(op, kDnnOpConvolutionBeta, kDnnIsFloat, 1, &zero);
  }
  set(op, kDnnOpConvolutionDescriptor, convolution);
  set(op, kDnnOpConvolutionX, kept_[x]);
  set(op, kDnnOpConvolutionW, kept_[w]);
  set(op, kDnnOpConvolutionY, kept_[at]);
  finish(op);
  keep(std::move(convolution));
  ops.push_back(kept_[keep(std::move(op))].d);
  const auto then = [&](int mode, const Descriptor* b) {
    const size_t from = std::exchange(at, result());
    ops.push_back(kept_[keep(pointwise(mode, kept_[from], b, kept_[at]))].d);
  };
  if (p_.bias) {
    const int64_t sizes[] = {1, p_.features, 1, 1};
    then(kDnnAdd, &kept_[keep(tensor(kIdBias, sizes, false, p_.type))]);
  }
  if (p_.residual) then(kDnnAdd, &kept_[keep(tensor(kIdResidual, s.y, false, p_.type))]);
  if (p_.relu) then(kDnnRelu, nullptr);

  Descriptor graph(dnn_, kDnnGraph);
  set(graph, kDnnGraphOps, kDnnIsDescriptor, static_cast<int64_t>(ops.size()), ops.data());
  set(graph, kDnnGraphHandle, kDnnIsHandle, 1, &dnn_.handle(gpu_).handle);
  finish(graph);
  keep(std::move(graph));
}

std::vector<ConvPlan::Descriptor> ConvPlan::ranked() const {
  Descriptor heuristic(dnn_, kDnnHeuristic);
  set(heuristic, kDnnHeuristicGraph, kept_.back());
  set(heuristic, kDnnHeuristicMode, kDnnIsHeuristicMode, 1, &kDnnHeuristicA);
  finish(heuristic);
  std::vector<Descriptor> out;
  std::vector<DnnDescriptor> raw;
  for (int64_t i = 0; i < kRanked; ++i) {
    out.emplace_back(dnn_, kDnnEngineConfig);
    raw.push_back(out.back().d);
  }
  int64_t found = 0;
  dnn_.check(dnn_.cudnnBackendGetAttribute(heuristic.d, kDnnHeuristicResults, kDnnIsDescriptor, kRanked, &found, raw.data()),
             "cudnnBackendGetAttribute", p_);
  out.resize(static_cast<size_t>(std::clamp<int64_t>(found, 0, kRanked)));
  return out;
}

bool ConvPlan::allowed(const Descriptor& config, int64_t* number) const {
  Descriptor engine(dnn_, kDnnEngine);
  int64_t count = 0;
  if (dnn_.cudnnBackendGetAttribute(config.d, kDnnConfigEngine, kDnnIsDescriptor, 1, &count, &engine.d) != 0) return false;
  if (dnn_.cudnnBackendGetAttribute(engine.d, kDnnEngineIndex, kDnnIsInt64, 1, &count, number) != 0) *number = -1;
  int notes[16] = {};
  if (dnn_.cudnnBackendGetAttribute(engine.d, kDnnEngineNotes, kDnnIsNote, 16, &count, notes) != 0) return false;
  for (int64_t i = 0; i < std::min<int64_t>(count, 16); ++i) {
    const int note = notes[i];
    if (note == kDnnAnyOrder || note == kDnnNarrowSums || note == kDnnNarrowsInputs) return false;
    if (note == kDnnMatrixUnits && p_.type == kDnnF32 && !p_.tf32) return false;
  }
  return true;
}

bool ConvPlan::finish_plan() {
  if (dnn_.cudnnBackendFinalize(plan_.d) != 0) return false;
  int64_t count = 0, bytes = 0;
  if (dnn_.cudnnBackendGetAttribute(plan_.d, kDnnPlanWorkspace, kDnnIsInt64, 1, &count, &bytes) != 0) return false;
  workspace_ = static_cast<size_t>(bytes);
  return workspace_ <= kMostConvWorkspace;
}

bool ConvPlan::take(const Descriptor& config) {
  plan_ = Descriptor(dnn_, kDnnPlan);
  set(plan_, kDnnPlanHandle, kDnnIsHandle, 1, &dnn_.handle(gpu_).handle);
  set(plan_, kDnnPlanConfig, config);
  return finish_plan();
}

bool ConvPlan::restore(const std::string& choice) {
  plan_ = Descriptor(dnn_, kDnnPlan);
  set(plan_, kDnnPlanHandle, kDnnIsHandle, 1, &dnn_.handle(gpu_).handle);
  if (dnn_.cudnnBackendSetAttribute(plan_.d, kDnnPlanText, kDnnIsText, static_cast<int64_t>(choice.size()), choice.data()) != 0)
    return false;
  return finish_plan();
}

ConvPlan::ConvPlan(Dnn& dnn, Gpu& gpu, const ConvProblem& problem, const std::string& choice, bool measure)
    : dnn_(dnn), gpu_(gpu), p_(problem) {
  const Gpu::Scope scope(gpu);
  dnn_.handle(gpu);
  if (!choice.empty() && restore(choice)) {
    choice_ = choice;
    return;
  }
  describe();
  std::vector<Descriptor> configs = ranked();
  std::string offered;
  size_t tried = 0, best = configs.size();
  double least = 0;
  for (size_t i = 0; i < configs.size(); ++i) {
    int64_t engine = -1;
    const bool fits = allowed(configs[i], &engine) && take(configs[i]);
    offered += (offered.empty() ? "" : ", ") + std::to_string(engine) + (fits ? "" : " (not taken)");
    if (!fits) continue;
    if (!measure) {
      best = i;
      break;
    }
    const double s = seconds();
    char text[32];
    std::snprintf(text, sizeof text, " %.1f us", s * 1e6);
    offered += text;
    if (best == configs.size() || s < 0.98 * least) best = i, least = s;
    if (++tried == kMeasuredConfigs) break;
  }
  if (t::log_enabled("autotuning") && !configs.empty())
    t::log("autotuning", "cuda: convolution " + to_text(p_) + ": engines as cuDNN ranks them: " + offered +
                             (best < configs.size() ? "; taken: number " + std::to_string(best + 1) : "; none taken"));
  if (best == configs.size())
    throw t::Error(TSR_ENVIRONMENT, "TSR-R031", "cuDNN has no algorithm for a convolution " + to_text(p_));
  if (measure && !take(configs[best])) dnn_.check(1, "cudnnBackendFinalize", p_);
  kept_.clear();  // the plan needs them no more
  int64_t length = 0;
  if (dnn_.cudnnBackendGetAttribute(plan_.d, kDnnPlanText, kDnnIsText, 0, &length, nullptr) != 0 || length <= 0) return;
  choice_.resize(static_cast<size_t>(length));
  if (dnn_.cudnnBackendGetAttribute(plan_.d, kDnnPlanText, kDnnIsText, length, &length, choice_.data()) != 0) choice_.clear();
}

double ConvPlan::seconds() const {
  const Driver& d = gpu_.driver();
  const Sizes s(p_);
  struct Scratch {
    Gpu& gpu;
    tsr_stream stream;
    CUevent begin = nullptr, end = nullptr;
    void* memory[6] = {};
    ~Scratch() {
      for (void* p : memory) gpu.free(p, &stream);
      for (const CUevent e : {begin, end})
        if (e) gpu.driver().cuEventDestroy_v2(e);
      if (stream.native) gpu.driver().cuStreamDestroy_v2(stream.native);
    }
  } scratch{gpu_, {}};
  scratch.stream.gpu = &gpu_;
  gpu_.check(d.cuStreamCreate(&scratch.stream.native, kStreamNonBlocking), "cuStreamCreate");
  gpu_.check(d.cuEventCreate(&scratch.begin, 0), "cuEventCreate");
  gpu_.check(d.cuEventCreate(&scratch.end, 0), "cuEventCreate");
  const size_t bytes[] = {
      Sizes::bytes(s.x, p_.type), Sizes::bytes(s.w, p_.type), static_cast<size_t>(p_.features * item_bytes(p_.type)),
      Sizes::bytes(s.y, p_.type), Sizes::bytes(s.y, p_.type), workspace_};
  for (size_t i = 0; i < 6; ++i) {
    const size_t n = std::max<size_t>(bytes[i], 16);
    scratch.memory[i] = gpu_.allocate(n, 64, &scratch.stream);
    // Numbers that are neither 0 nor large in any type.
    gpu_.check(d.cuMemsetD8Async(address_of(scratch.memory[i]), 0x3c, n, scratch.stream.native), "cuMemsetD8Async");
  }
  for (int run = 0; run < 2 * kConvRuns; ++run) {  // the first half warms up
    if (run == kConvRuns) gpu_.check(d.cuEventRecord(scratch.begin, scratch.stream.native), "cuEventRecord");
    launch(scratch.memory[0], scratch.memory[1], scratch.memory[2], scratch.memory[3], scratch.memory[4], scratch.memory[5],
           scratch.stream.native);
  }
  float ms = 0;
  gpu_.check(d.cuEventRecord(scratch.end, scratch.stream.native), "cuEventRecord");
  gpu_.check(d.cuEventSynchronize(scratch.end), "cuEventSynchronize");
  gpu_.check(d.cuEventElapsedTime(&ms, scratch.begin, scratch.end), "cuEventElapsedTime");
  return static_cast<double>(ms) * 1e-3 / kConvRuns;
}

void ConvPlan::launch(const void* x, const void* w, const void* bias, const void* residual, void* y, void* workspace,
                      CUstream stream) const {
  int64_t ids[5] = {kIdX, kIdW, kIdY};
  const void* pointers[5] = {x, w, y};
  int64_t count = 3;
  if (p_.bias) ids[count] = kIdBias, pointers[count++] = bias;
  if (p_.residual) ids[count] = kIdResidual, pointers[count++] = residual;
  const Descriptor pack(dnn_, kDnnVariantPack);
  set(pack, kDnnPackIds, kDnnIsInt64, count, ids);
  set(pack, kDnnPackPointers, kDnnIsPointer, count, pointers);
  set(pack, kDnnPackWorkspace, kDnnIsPointer, 1, &workspace);
  finish(pack);
  Dnn::Handle& h = dnn_.handle(gpu_);
  std::lock_guard lock(h.mutex);
  dnn_.check(dnn_.cudnnSetStream(h.handle, stream), "cudnnSetStream", p_);
  dnn_.check(dnn_.cudnnBackendExecute(h.handle, plan_.d, pack.d), "cudnnBackendExecute", p_);
}

}  // namespace tessera::cuda
