// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph API, opened at run time. Declared here so that building needs no header of NVIDIA's;
// tests/cuda/declarations_dnn.cpp compares every line with cudnn_graph.h on a machine that has it.
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
enum DnnType : int { kDnnF32 = 0, kDnnF64 = 1, kDnnF16 = 2, kDnnI32 = 4, kDnnBf16 = 9, kDnnBool = 11 };  // cudnnDataType_t
enum DnnKind : int {  // cudnnBackendDescriptorType_t
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
  kDnnTensor = 17,
  kDnnMatmul = 18,
  kDnnOpMatmul = 19,
  kDnnReduction = 21,
  kDnnOpReduction = 22,
  kDnnOpReshape = 31
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
  kDnnIsReduction = 18,
  kDnnIsText = 24
};
enum DnnAttribute : int {  // cudnnBackendAttributeName_t
  kDnnPointwiseMode = 0,
  kDnnPointwisePrecision = 1,
  kDnnPointwiseAxis = 9,
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
  kDnnOpPointwiseT = 758,
  kDnnGraphHandle = 800,
  kDnnGraphOps = 801,
  kDnnTensorAlignment = 900,
  kDnnTensorType = 901,
  kDnnTensorSizes = 902,
  kDnnTensorStrides = 903,
  kDnnTensorId = 906,
  kDnnTensorVirtual = 907,
  kDnnTensorByValue = 908,
  kDnnPackIds = 1000,
  kDnnPackPointers = 1001,
  kDnnPackWorkspace = 1003,
  kDnnEngineIndex = 1301,
  kDnnEngineNotes = 1303,
  kDnnMatmulType = 1500,
  kDnnOpMatmulA = 1520,
  kDnnOpMatmulB = 1521,
  kDnnOpMatmulC = 1522,
  kDnnOpMatmulDescriptor = 1523,
  kDnnReductionOperator = 1600,
  kDnnReductionType = 1601,
  kDnnOpReductionX = 1610,
  kDnnOpReductionY = 1611,
  kDnnOpReductionDescriptor = 1612,
  kDnnOpReshapeX = 2200,
  kDnnOpReshapeY = 2201
};
enum DnnPointwiseMode : int {  // cudnnPointwiseMode_t
  kDnnAdd = 0,
  kDnnMul = 1,
  kDnnDiv = 6,
  kDnnSub = 9,
  kDnnExp = 13,
  kDnnLog = 15,
  kDnnIdentity = 21,
  kDnnRelu = 100,
  kDnnGreaterOrEqual = 303,
  kDnnPosition = 501,  // along an axis
  kDnnSelect = 601     // x where t, else b
};
inline constexpr int kDnnSum = 0, kDnnMaximum = 3;  // cudnnReduceTensorOp_t
inline constexpr int kDnnCrossCorrelation = 1;      // cudnnConvolutionMode_t
inline constexpr int kDnnHeuristicA = 3;            // cudnnBackendHeurMode_t
// cudnnBackendNumericalNote_t, of an engine: it uses matrix units, narrows its operands, adds in a narrower type, adds in any
// order.
inline constexpr int kDnnMatrixUnits = 0, kDnnNarrowsInputs = 1, kDnnNarrowSums = 2, kDnnAnyOrder = 4;

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
  // Throws TSR-R031. `what`: what was to be computed, "a convolution 8 x ..".
  void check(int status, const char* call, const std::string& what) const;

 private:
  std::string path_;
  std::mutex mutex_;
  std::map<Gpu*, Handle> handles_;
};

// The library as the options say, opened when somebody first asks for it. Thread-safe.
class LazyDnn {
 public:
  // `wanted`: see open_library; "off": none.
  explicit LazyDnn(std::string wanted) : wanted_(std::move(wanted)) {}
  const std::shared_ptr<Dnn>& get();  // null: why() says so
  const std::string& why() const { return why_; }

 private:
  std::string wanted_, why_;
  std::once_flag opened_;
  std::shared_ptr<Dnn> dnn_;
};

}  // namespace tessera::cuda
