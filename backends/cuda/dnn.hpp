// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph API, opened at run time, and convolutions through it. Declared here so that building needs no header of
// NVIDIA's; tests/cuda/declarations_dnn.cpp compares every line with cudnn_graph.h on a machine that has it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu.hpp"

namespace tessera::cuda {

// Each descriptor is an opaque pointer, and each result a cudnnStatus_t.
using DnnHandle = void*;
using DnnDescriptor = void*;

#define TESSERA_DNN_FUNCTIONS(F)                                                                                               \
  F(cudnnCreate, int, (DnnHandle * handle))                                                                                    \
  F(cudnnSetStream, int, (DnnHandle handle, CUstream stream))                                                                  \
  F(cudnnGetVersion, size_t, ())                                                                                               \
  F(cudnnGetErrorString, const char*, (int status))                                                                            \
  F(cudnnGetLastErrorString, void, (char* text, size_t bytes))                                                                 \
  F(cudnnBackendCreateDescriptor, int, (int type, DnnDescriptor* descriptor))                                                  \
  F(cudnnBackendDestroyDescriptor, int, (DnnDescriptor descriptor))                                                            \
  F(cudnnBackendFinalize, int, (DnnDescriptor descriptor))                                                                     \
  F(cudnnBackendSetAttribute, int, (DnnDescriptor descriptor, int name, int type, int64_t count, const void* values))          \
  F(cudnnBackendGetAttribute, int, (DnnDescriptor descriptor, int name, int type, int64_t most, int64_t* count, void* values)) \
  F(cudnnBackendExecute, int, (DnnHandle handle, DnnDescriptor plan, DnnDescriptor variant_pack))

// Values of enumerations, as the headers have them.
enum DnnType : int { kDnnF32 = 0, kDnnF64 = 1, kDnnF16 = 2, kDnnBf16 = 9 };  // cudnnDataType_t
enum DnnKind : int {                                                         // cudnnBackendDescriptorType_t
  kDnnPointwise = 0,
  kDnnConvolution = 1,
  kDnnEngine = 2,
  kDnnEngineConfig = 3,
  kDnnHeuristic = 4,
  kDnnPlan = 5,
  kDnnOpConvolution = 10,
  kDnnOpPointwise = 13,
  kDnnGraph = 15,
  kDnnVariantPack = 16,
  kDnnTensor = 17
};
enum DnnValue : int {  // cudnnBackendAttributeType_t
  kDnnIsHandle = 0,
  kDnnIsType = 1,
  kDnnIsBool = 2,
  kDnnIsInt64 = 3,
  kDnnIsFloat = 4,
  kDnnIsDouble = 5,
  kDnnIsPointer = 6,
  kDnnIsConvolutionMode = 7,
  kDnnIsHeuristicMode = 8,
  kDnnIsNote = 11,
  kDnnIsPointwiseMode = 14,
  kDnnIsDescriptor = 15,
  kDnnIsText = 24
};
enum DnnAttribute : int {  // cudnnBackendAttributeName_t
  kDnnPointwiseMode = 0,
  kDnnPointwisePrecision = 1,
  kDnnConvolutionType = 100,
  kDnnConvolutionMode = 101,
  kDnnConvolutionDilations = 102,
  kDnnConvolutionStrides = 103,
  kDnnConvolutionPadHigh = 104,
  kDnnConvolutionPadLow = 105,
  kDnnConvolutionDims = 106,
  kDnnHeuristicMode = 200,
  kDnnHeuristicGraph = 201,
  kDnnHeuristicResults = 202,
  kDnnConfigEngine = 300,
  kDnnPlanHandle = 400,
  kDnnPlanConfig = 401,
  kDnnPlanWorkspace = 402,
  kDnnPlanText = 405,
  kDnnOpConvolutionAlpha = 700,
  kDnnOpConvolutionBeta = 701,
  kDnnOpConvolutionDescriptor = 702,
  kDnnOpConvolutionW = 703,
  kDnnOpConvolutionX = 704,
  kDnnOpConvolutionY = 705,
  kDnnOpPointwiseDescriptor = 750,
  kDnnOpPointwiseX = 751,
  kDnnOpPointwiseB = 752,
  kDnnOpPointwiseY = 753,
  kDnnGraphHandle = 800,
  kDnnGraphOps = 801,
  kDnnTensorAlignment = 900,
  kDnnTensorType = 901,
  kDnnTensorSizes = 902,
  kDnnTensorStrides = 903,
  kDnnTensorId = 906,
  kDnnTensorVirtual = 907,
  kDnnPackIds = 1000,
  kDnnPackPointers = 1001,
  kDnnPackWorkspace = 1003,
  kDnnEngineIndex = 1301,
  kDnnEngineNotes = 1303
};
inline constexpr int kDnnAdd = 0, kDnnRelu = 100;  // cudnnPointwiseMode_t
inline constexpr int kDnnCrossCorrelation = 1;     // cudnnConvolutionMode_t
inline constexpr int kDnnHeuristicA = 3;           // cudnnBackendHeurMode_t
// cudnnBackendNumericalNote_t, of an engine: it uses matrix units, narrows its operands, adds in a narrower type, adds in any
// order.
inline constexpr int kDnnMatrixUnits = 0, kDnnNarrowsInputs = 1, kDnnNarrowSums = 2, kDnnAnyOrder = 4;

// A convolution of two spatial dimensions with what follows it: relu(conv(x, w) + bias + residual), each of these three or not.
// Two with equal fields get the same algorithm.
struct ConvProblem {
  int64_t images = 1, channels = 1, height = 1, width = 1, features = 1, taps[2] = {1, 1};
  int64_t stride[2] = {1, 1}, pad_low[2] = {0, 0}, pad_high[2] = {0, 0}, dilation[2] = {1, 1}, groups = 1;
  int type = kDnnF32;
  bool channels_last = false;  // x, y and the residual: [N, H, W, C]; w: [O, H, W, C]. Else [N, C, H, W] and [O, C, H, W]
  bool bias = false, residual = false, relu = false;
  bool tf32 = false;  // f32 on the matrix units
  auto operator<=>(const ConvProblem&) const = default;
  int64_t out(int dim) const {
    const int64_t in = dim == 0 ? height : width;
    return (in + pad_low[dim] + pad_high[dim] - dilation[dim] * (taps[dim] - 1) - 1) / stride[dim] + 1;
  }
};
std::string to_text(const ConvProblem& p);  // "8 x 64 x 56 x 56 by 64 of 3 x 3, bf16, bias, relu"

class Dnn;

// How one problem is computed on one device. Immutable.
class ConvPlan {
 public:
  // `choice`: as choice() gave it to somebody; empty: the first that the library's heuristic offers and that runs or, with
  // `measure`, the fastest of those that it ranks highest. Throws TSR-R031 where the library has no algorithm.
  ConvPlan(Dnn& dnn, Gpu& gpu, const ConvProblem& problem, const std::string& choice, bool measure);
  ConvPlan(const ConvPlan&) = delete;
  size_t workspace_bytes() const { return workspace_; }
  const std::string& choice() const { return choice_; }
  // `bias`, `residual`: null where the problem has none.
  void launch(const void* x, const void* w, const void* bias, const void* residual, void* y, void* workspace,
              CUstream stream) const;

 private:
  // Owns a descriptor of the library.
  struct Descriptor {
    const Dnn* dnn = nullptr;
    DnnDescriptor d = nullptr;
    Descriptor() = default;
    Descriptor(const Dnn& library, int kind);
    ~Descriptor();
    Descriptor(Descriptor&& o) noexcept : dnn(o.dnn), d(std::exchange(o.d, nullptr)) {}
    Descriptor& operator=(Descriptor&& o) noexcept {
      std::swap(dnn, o.dnn), std::swap(d, o.d);
      return *this;
    }
  };
  void set(const Descriptor& d, int name, int type, int64_t count, const void* values) const;
  void set(const Descriptor& d, int name, const Descriptor& value) const;
  void finish(const Descriptor& d) const;
  Descriptor tensor(int64_t id, const int64_t* sizes, bool virtual_one, int type) const;
  Descriptor pointwise(int mode, const Descriptor& x, const Descriptor* b, const Descriptor& y) const;
  void describe();                                                // fills kept_; the last one is the graph
  std::vector<Descriptor> ranked() const;                         // configurations, best first
  bool allowed(const Descriptor& config, int64_t* engine) const;  // its bits are what the problem asks for
  bool take(const Descriptor& config);                            // false: the library makes no plan of it
  bool restore(const std::string& choice);
  bool finish_plan();
  double seconds() const;  // of one run, on memory of its own

  Dnn& dnn_;
  Gpu& gpu_;
  ConvProblem p_;
  std::vector<Descriptor> kept_;
  Descriptor plan_;
  std::string choice_;
  size_t workspace_ = 0;
};

// The library. Thread-safe.
class Dnn {
 public:
  // Null, and *why says so, where the library is not found. `wanted`: see open_library.
  static std::shared_ptr<Dnn> open(const std::string& wanted, std::string* why);
  static std::string locate(const std::string& wanted);  // the file that open() would open first

#define TESSERA_DNN_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  TESSERA_DNN_FUNCTIONS(TESSERA_DNN_MEMBER)
#undef TESSERA_DNN_MEMBER

  const std::string& path() const { return path_; }
  std::string version_text() const;  // "9.14.0"
  // The library's handle for a device, made at the first use. A handle has one stream: whoever sets it holds the mutex until
  // the work is queued.
  struct Handle {
    std::mutex mutex;
    DnnHandle handle = nullptr;
  };
  Handle& handle(Gpu& gpu);
  // The plan for a problem, made at the first use and kept. Null, and *why says so: the library has no algorithm for it.
  std::shared_ptr<const ConvPlan> plan(Gpu& gpu, const ConvProblem& problem, std::string* why, const std::string& choice = {},
                                       bool measure = false);
  void check(int status, const char* call, const ConvProblem& problem) const;  // throws TSR-R031

 private:
  std::string path_;
  std::mutex mutex_;
  std::map<Gpu*, Handle> handles_;
  struct Key {
    Gpu* gpu;
    ConvProblem problem;
    bool measured;
    auto operator<=>(const Key&) const = default;
  };
  struct Made {
    std::shared_ptr<const ConvPlan> plan;
    std::string why;
  };
  std::map<Key, Made> plans_;
};

}  // namespace tessera::cuda
