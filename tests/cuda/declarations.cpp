// SPDX-License-Identifier: Apache-2.0
// Compares the backend's own declarations of the driver with those of cuda.h: each function's parameters one by one, each
// structure's size and members, each number. Compiled where a toolkit is installed; there is nothing to run.
#include <cublasLt.h>
#include <cuda.h>

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "blas.hpp"
#include "driver.hpp"

namespace {

namespace ours = tessera::cuda;

// Handles and enumerations have other types in both headers; what a call passes is the same where these agree.
template <class A, class B>
constexpr bool same_parameter =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_floating_point_v<A> ==
                                  std::is_floating_point_v<B>;
template <class... A, class... B>
constexpr bool same_function(ours::CUresult (*)(A...), CUresult (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return (same_parameter<A, B> && ...);
}

#define CHECK_FUNCTION(name, parameters)                                                                                    \
  static_assert(same_function(static_cast<decltype(ours::Driver::name)>(nullptr), static_cast<decltype(&::name)>(nullptr)), \
                #name);
TESSERA_CUDA_FUNCTIONS(CHECK_FUNCTION)

template <class R, class... A, class S, class... B>
constexpr bool same_call(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return same_parameter<R, S> && (same_parameter<A, B> && ...);
}
#define CHECK_CALL(name, result, parameters) \
  static_assert(same_call(static_cast<decltype(ours::Blas::name)>(nullptr), static_cast<decltype(&::name)>(nullptr)), #name);
TESSERA_BLAS_FUNCTIONS(CHECK_CALL)

#define CHECK_MEMBER(mine, member, theirs, other) \
  static_assert(offsetof(ours::mine, member) == offsetof(theirs, other) && sizeof(ours::mine::member) == sizeof(theirs::other))

static_assert(sizeof(ours::MemoryPoolProperties) == sizeof(CUmemPoolProps));
CHECK_MEMBER(MemoryPoolProperties, allocation_type, CUmemPoolProps, allocType);
CHECK_MEMBER(MemoryPoolProperties, location, CUmemPoolProps, location);
CHECK_MEMBER(MemoryPoolProperties, max_size, CUmemPoolProps, maxSize);
static_assert(sizeof(ours::MemoryProperties) == sizeof(CUmemAllocationProp));
CHECK_MEMBER(MemoryProperties, type, CUmemAllocationProp, type);
CHECK_MEMBER(MemoryProperties, location, CUmemAllocationProp, location);
CHECK_MEMBER(MemoryProperties, handle_meta_data, CUmemAllocationProp, win32HandleMetaData);
static_assert(sizeof(ours::MemoryAccess) == sizeof(CUmemAccessDesc));
static_assert(sizeof(ours::KernelNode) == sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
CHECK_MEMBER(KernelNode, grid_x, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
CHECK_MEMBER(KernelNode, block_x, CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
CHECK_MEMBER(KernelNode, shared_bytes, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
CHECK_MEMBER(KernelNode, parameters, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
CHECK_MEMBER(KernelNode, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);
static_assert(sizeof(ours::CopyNode) == sizeof(CUDA_MEMCPY3D));
CHECK_MEMBER(CopyNode, source_type, CUDA_MEMCPY3D, srcMemoryType);
CHECK_MEMBER(CopyNode, source_device, CUDA_MEMCPY3D, srcDevice);
CHECK_MEMBER(CopyNode, target_type, CUDA_MEMCPY3D, dstMemoryType);
CHECK_MEMBER(CopyNode, target_device, CUDA_MEMCPY3D, dstDevice);
CHECK_MEMBER(CopyNode, width, CUDA_MEMCPY3D, WidthInBytes);
CHECK_MEMBER(CopyNode, depth, CUDA_MEMCPY3D, Depth);
static_assert(sizeof(ours::FillNode) == sizeof(CUDA_MEMSET_NODE_PARAMS));
CHECK_MEMBER(FillNode, target, CUDA_MEMSET_NODE_PARAMS, dst);
CHECK_MEMBER(FillNode, value, CUDA_MEMSET_NODE_PARAMS, value);
CHECK_MEMBER(FillNode, element_bytes, CUDA_MEMSET_NODE_PARAMS, elementSize);
CHECK_MEMBER(FillNode, width, CUDA_MEMSET_NODE_PARAMS, width);

static_assert(sizeof(ours::BlasChoice) == sizeof(cublasLtMatmulHeuristicResult_t));
CHECK_MEMBER(BlasChoice, algorithm, cublasLtMatmulHeuristicResult_t, algo);
CHECK_MEMBER(BlasChoice, workspace_bytes, cublasLtMatmulHeuristicResult_t, workspaceSize);
CHECK_MEMBER(BlasChoice, state, cublasLtMatmulHeuristicResult_t, state);

#define CHECK_VALUE(mine, theirs) static_assert(static_cast<int>(ours::mine) == static_cast<int>(theirs))
CHECK_VALUE(kSuccess, CUDA_SUCCESS);
CHECK_VALUE(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
CHECK_VALUE(kNoDevice, CUDA_ERROR_NO_DEVICE);
CHECK_VALUE(kNotReady, CUDA_ERROR_NOT_READY);
CHECK_VALUE(kPeerAlreadyEnabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
CHECK_VALUE(kMaxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
CHECK_VALUE(kWarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
CHECK_VALUE(kClockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
CHECK_VALUE(kMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
CHECK_VALUE(kMemoryClockRate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
CHECK_VALUE(kMemoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
CHECK_VALUE(kL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
CHECK_VALUE(kMaxThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
CHECK_VALUE(kMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
CHECK_VALUE(kMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
CHECK_VALUE(kSharedPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
CHECK_VALUE(kRegistersPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
CHECK_VALUE(kSharedPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
CHECK_VALUE(kMaxBlocksPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
CHECK_VALUE(kMemoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
CHECK_VALUE(kFuncStaticShared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
CHECK_VALUE(kFuncMaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
CHECK_VALUE(kPoolReleaseThreshold, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
CHECK_VALUE(kPoolReserved, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
CHECK_VALUE(kPoolUsed, CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
CHECK_VALUE(kPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
CHECK_VALUE(kMemoryHost, CU_MEMORYTYPE_HOST);
CHECK_VALUE(kMemoryDevice, CU_MEMORYTYPE_DEVICE);
CHECK_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
CHECK_VALUE(kHostPortable, CU_MEMHOSTALLOC_PORTABLE);
CHECK_VALUE(kHostDeviceMap, CU_MEMHOSTALLOC_DEVICEMAP);
CHECK_VALUE(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
CHECK_VALUE(kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
CHECK_VALUE(kVirtualMemory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
CHECK_VALUE(kRealF32, CUDA_R_32F);
CHECK_VALUE(kRealF64, CUDA_R_64F);
CHECK_VALUE(kRealF16, CUDA_R_16F);
CHECK_VALUE(kRealBf16, CUDA_R_16BF);
CHECK_VALUE(kComputeF32, CUBLAS_COMPUTE_32F);
CHECK_VALUE(kComputeF64, CUBLAS_COMPUTE_64F);
CHECK_VALUE(kComputeTf32, CUBLAS_COMPUTE_32F_FAST_TF32);
CHECK_VALUE(kBlasTransA, CUBLASLT_MATMUL_DESC_TRANSA);
CHECK_VALUE(kBlasTransB, CUBLASLT_MATMUL_DESC_TRANSB);
CHECK_VALUE(kBlasBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
CHECK_VALUE(kBlasBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
CHECK_VALUE(kBlasMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
CHECK_VALUE(kBlasReductions, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
CHECK_VALUE(kBlasAlignA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
CHECK_VALUE(kBlasReduceInComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
CHECK_VALUE(kBlasOpN, CUBLAS_OP_N);
CHECK_VALUE(kBlasOpT, CUBLAS_OP_T);
static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 && CU_MEM_LOCATION_TYPE_DEVICE == 1 &&
              CU_MEM_ACCESS_FLAGS_PROT_READWRITE == 3);

}  // namespace
