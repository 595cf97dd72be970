// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened at run time, and matrix products through it. Declared here so that building needs no header of NVIDIA's;
// tests/cuda/declarations.cpp compares every line with cublasLt.h on a machine that has it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu.hpp"

namespace tessera::cuda {

// cublasLtMatmulHeuristicResult_t
struct BlasChoice {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
// Each descriptor is an opaque pointer, and each result a cublasStatus_t.
using BlasHandle = void*;
using BlasDescriptor = void*;

#define TESSERA_BLAS_FUNCTIONS(F)                                                                                           \
  F(cublasLtCreate, int, (BlasHandle * handle))                                                                             \
  F(cublasLtGetVersion, size_t, ())                                                                                         \
  F(cublasLtGetStatusString, const char*, (int status))                                                                     \
  F(cublasLtMatmulDescCreate, int, (BlasDescriptor * operation, int compute_type, int scale_type))                          \
  F(cublasLtMatmulDescDestroy, int, (BlasDescriptor operation))                                                             \
  F(cublasLtMatmulDescSetAttribute, int, (BlasDescriptor operation, int attribute, const void* value, size_t bytes))        \
  F(cublasLtMatrixLayoutCreate, int,                                                                                        \
    (BlasDescriptor * layout, int type, uint64_t rows, uint64_t columns, int64_t leading_dimension))                        \
  F(cublasLtMatrixLayoutDestroy, int, (BlasDescriptor layout))                                                              \
  F(cublasLtMatrixLayoutSetAttribute, int, (BlasDescriptor layout, int attribute, const void* value, size_t bytes))         \
  F(cublasLtMatmulPreferenceCreate, int, (BlasDescriptor * preference))                                                     \
  F(cublasLtMatmulPreferenceDestroy, int, (BlasDescriptor preference))                                                      \
  F(cublasLtMatmulPreferenceSetAttribute, int, (BlasDescriptor preference, int attribute, const void* value, size_t bytes)) \
  F(cublasLtMatmulAlgoGetHeuristic, int,                                                                                    \
    (BlasHandle handle, BlasDescriptor operation, BlasDescriptor a, BlasDescriptor b, BlasDescriptor c, BlasDescriptor d,   \
     BlasDescriptor preference, int wanted, BlasChoice* choices, int* found))                                               \
  F(cublasLtMatmul, int,                                                                                                    \
    (BlasHandle handle, BlasDescriptor operation, const void* alpha, const void* a, BlasDescriptor a_layout, const void* b, \
     BlasDescriptor b_layout, const void* beta, const void* c, BlasDescriptor c_layout, void* d, BlasDescriptor d_layout,   \
     const BlasChoice* algorithm, void* workspace, size_t workspace_bytes, CUstream stream))

// Values of enumerations, as the headers have them.
enum BlasType : int { kRealF32 = 0, kRealF64 = 1, kRealF16 = 2, kRealBf16 = 14 };
enum BlasCompute : int { kComputeF32 = 68, kComputeF64 = 70, kComputeTf32 = 77 };
inline constexpr int kBlasTransA = 3, kBlasTransB = 4, kBlasEpilogue = 7, kBlasBias = 8;  // cublasLtMatmulDescAttributes_t
inline constexpr int kBlasBatchCount = 5, kBlasBatchStride = 6;                           // cublasLtMatrixLayoutAttribute_t
inline constexpr int kBlasMaxWorkspace = 1, kBlasReductions = 3, kBlasAlignA = 5;  // cublasLtMatmulPreferenceAttributes_t
inline constexpr uint32_t kBlasReduceInComputeType = 2;                            // cublasLtReductionScheme_t
inline constexpr size_t kBlasWorkspaceAlignment = 256;                             // of the address that a launch gives it
inline constexpr int kBlasOpN = 0, kBlasOpT = 1;                                   // cublasOperation_t
// cublasLtEpilogue_t; its gelu is the approximation by tanh.
inline constexpr uint32_t kBlasNoEpilogue = 1, kBlasRelu = 2, kBlasAddBias = 4, kBlasGelu = 32;

enum Activation : int { kNoActivation = 0, kReluProduct, kGeluTanhProduct };

// A product of row-major matrices: d[i] = op(a[i]) op(b[i]) for i below `batch`, and what follows it in the accumulator's type:
// activation(d + residual + bias), each of these three or not. Two with equal fields get the same algorithm.
struct ProductShape {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  bool a_transposed = false;  // a is stored [k, m]
  bool b_transposed = false;  // b is stored [n, k]
  int type = kRealF32, result_type = kRealF32, compute = kComputeF32;
  bool bias = false, residual = false;  // a number for each column; a matrix like d
  int activation = kNoActivation;
  auto operator<=>(const ProductShape&) const = default;
  bool has_epilogue() const { return bias || residual || activation != kNoActivation; }
};
std::string to_text(const ProductShape& s);  // "32 x 64 x 128, batch 4, bf16, bias, gelu"

struct ProductOperands {  // null: the shape has none
  const void *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  void* d = nullptr;
};

struct Algorithms;
class Blas;

// How a product of one shape is computed on one device. Immutable, but for what the library keeps of a bias in a descriptor.
class ProductPlan {
 public:
  // `choice`: the algorithm, as choice() gave it to somebody; null: the one that the library's heuristic ranks first or, with
  // `measure`, the fastest of those that it ranks highest.
  ProductPlan(Blas& blas, Gpu& gpu, const ProductShape& shape, size_t max_workspace, const BlasChoice* choice, bool measure);
  ~ProductPlan();
  ProductPlan(const ProductPlan&) = delete;
  // What launch() is given: with room to begin where the library wants it to.
  size_t workspace_bytes() const { return choice_.workspace_bytes > 0 ? choice_.workspace_bytes + kWorkspaceRoom : 0; }
  const BlasChoice& choice() const { return choice_; }
  bool measured() const { return measured_; }  // several algorithms were, and choice() is the fastest
  void launch(const ProductOperands& o, void* workspace, CUstream stream) const;

 private:
  static constexpr size_t kWorkspaceRoom = kBlasWorkspaceAlignment - 64;  // the host gives addresses aligned to 64 bytes
  std::vector<BlasChoice> ranked(size_t max_workspace, int wanted);
  BlasChoice fastest(const std::vector<BlasChoice>& ranked);

  Blas& blas_;
  Gpu& gpu_;
  ProductShape shape_;
  BlasHandle handle_;
  BlasDescriptor operation_ = nullptr, left_ = nullptr, right_ = nullptr, result_ = nullptr;
  mutable std::mutex bias_mutex_;  // the operation's descriptor holds where the bias lies
  BlasChoice choice_{};
  bool measured_ = false;
};

// The library. Thread-safe.
class Blas {
 public:
  // Null, and *why says so, where the library is not found. `wanted`: see open_library. Opening takes some 0.5 s where the file
  // is not in the system's cache.
  static std::shared_ptr<Blas> open(const std::string& wanted, std::string* why);
  static std::string locate(const std::string& wanted);        // the file that open() would open first
  static void open_ahead(const std::string& wanted) noexcept;  // so that a later open() is quick

#define TESSERA_BLAS_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  TESSERA_BLAS_FUNCTIONS(TESSERA_BLAS_MEMBER)
#undef TESSERA_BLAS_MEMBER

  const std::string& path() const { return path_; }
  std::string version_text() const;  // "13.1.0"
  BlasHandle handle(Gpu& gpu);       // made at the first use
  // The plan for a shape, made at the first use and kept. Its algorithm is the one that is given, else the one that the library
  // ranks first.
  std::shared_ptr<const ProductPlan> plan(Gpu& gpu, const ProductShape& shape, size_t max_workspace,
                                          const BlasChoice* choice = nullptr);
  // With the algorithm that was measured, if `algorithms` asks for that and knows it or may find out.
  std::shared_ptr<const ProductPlan> plan(Gpu& gpu, const ProductShape& shape, size_t max_workspace,
                                          const Algorithms& algorithms);
  void check(int status, const char* call, const ProductShape& shape) const;  // throws TSR-R031

 private:
  std::string path_;
  std::mutex mutex_;
  std::map<Gpu*, BlasHandle> handles_;
  struct Key {
    Gpu* gpu;
    ProductShape shape;
    size_t max_workspace;
    bool decided;
    auto operator<=>(const Key&) const = default;
  };
  template <class Make>
  std::shared_ptr<const ProductPlan> kept(const Key& key, Make&& make);  // or made now
  std::map<Key, std::shared_ptr<const ProductPlan>> plans_;
};

}  // namespace tessera::cuda
