// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver's API that this backend calls, declared here so that building it needs no CUDA header. The
// library is opened at run time. tests/cuda/declarations.cpp compares every line with cuda.h on a machine that has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUcontextObject*;
using CUstream = struct CUstreamObject*;
using CUevent = struct CUeventObject*;
using CUmodule = struct CUmoduleObject*;
using CUfunction = struct CUfunctionObject*;
using CUmemoryPool = struct CUmemoryPoolObject*;
using CUmemoryHandle = unsigned long long;
using CUgraph = struct CUgraphObject*;
using CUgraphNode = struct CUgraphNodeObject*;
using CUgraphExec = struct CUgraphExecObject*;

struct MemoryLocation {  // CUmemLocation
  int type;
  int id;
};
struct MemoryPoolProperties {  // CUmemPoolProps
  int allocation_type;
  int handle_types;
  MemoryLocation location;
  void* security_attributes;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
struct MemoryAccess {  // CUmemAccessDesc
  MemoryLocation location;
  int flags;
};
struct MemoryProperties {  // CUmemAllocationProp
  int type;
  int handle_types;
  MemoryLocation location;
  void* handle_meta_data;
  unsigned char compression;
  unsigned char direct_rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
struct KernelNode {  // CUDA_KERNEL_NODE_PARAMS_v2
  CUfunction function;
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void** parameters;
  void** extra;
  void* kernel;
  CUcontext context;
};
struct CopyNode {  // CUDA_MEMCPY3D_v2
  size_t source_x, source_y, source_z, source_lod;
  int source_type;
  const void* source_host;
  CUdeviceptr source_device;
  void* source_array;
  void* reserved0;
  size_t source_pitch, source_height;
  size_t target_x, target_y, target_z, target_lod;
  int target_type;
  void* target_host;
  CUdeviceptr target_device;
  void* target_array;
  void* reserved1;
  size_t target_pitch, target_height;
  size_t width, height, depth;
};
struct FillNode {  // CUDA_MEMSET_NODE_PARAMS_v1
  CUdeviceptr target;
  size_t pitch;
  unsigned value;
  unsigned element_bytes;
  size_t width, height;
};

// Every function: its exported name and its parameters. All return CUresult.
#define TESSERA_CUDA_FUNCTIONS(F)                                                                                           \
  F(cuInit, (unsigned flags))                                                                                               \
  F(cuDriverGetVersion, (int* version))                                                                                     \
  F(cuGetErrorName, (CUresult error, const char** text))                                                                    \
  F(cuGetErrorString, (CUresult error, const char** text))                                                                  \
  F(cuDeviceGetCount, (int* count))                                                                                         \
  F(cuDeviceGet, (CUdevice * device, int ordinal))                                                                          \
  F(cuDeviceGetName, (char* name, int length, CUdevice device))                                                             \
  F(cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))                                                     \
  F(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                                                 \
  F(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                       \
  F(cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                                                      \
  F(cuCtxGetCurrent, (CUcontext * context))                                                                                 \
  F(cuCtxSetCurrent, (CUcontext context))                                                                                   \
  F(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))                                                                \
  F(cuMemGetInfo_v2, (size_t * free, size_t * total))                                                                       \
  F(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes))                                                                       \
  F(cuMemFree_v2, (CUdeviceptr p))                                                                                          \
  F(cuMemPoolCreate, (CUmemoryPool * pool, const MemoryPoolProperties* properties))                                         \
  F(cuMemPoolSetAttribute, (CUmemoryPool pool, int attribute, void* value))                                                 \
  F(cuMemPoolGetAttribute, (CUmemoryPool pool, int attribute, void* value))                                                 \
  F(cuMemPoolSetAccess, (CUmemoryPool pool, const MemoryAccess* access, size_t count))                                      \
  F(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep))                                                                      \
  F(cuMemAllocFromPoolAsync, (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream))                         \
  F(cuMemFreeAsync, (CUdeviceptr p, CUstream stream))                                                                       \
  F(cuMemGetAllocationGranularity, (size_t * bytes, const MemoryProperties* properties, int option))                        \
  F(cuMemAddressReserve, (CUdeviceptr * out, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags)) \
  F(cuMemAddressFree, (CUdeviceptr p, size_t bytes))                                                                        \
  F(cuMemCreate, (CUmemoryHandle * out, size_t bytes, const MemoryProperties* properties, unsigned long long flags))        \
  F(cuMemRelease, (CUmemoryHandle handle))                                                                                  \
  F(cuMemMap, (CUdeviceptr p, size_t bytes, size_t offset, CUmemoryHandle handle, unsigned long long flags))                \
  F(cuMemUnmap, (CUdeviceptr p, size_t bytes))                                                                              \
  F(cuMemSetAccess, (CUdeviceptr p, size_t bytes, const MemoryAccess* access, size_t count))                                \
  F(cuMemHostAlloc, (void** out, size_t bytes, unsigned flags))                                                             \
  F(cuMemFreeHost, (void* p))                                                                                               \
  F(cuPointerGetAttributes, (unsigned count, int* attributes, void** values, CUdeviceptr p))                                \
  F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                                \
  F(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                                      \
  F(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                                \
  F(cuMemcpyPeerAsync,                                                                                                      \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream))        \
  F(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))                                  \
  F(cuStreamCreate, (CUstream * stream, unsigned flags))                                                                    \
  F(cuStreamDestroy_v2, (CUstream stream))                                                                                  \
  F(cuStreamSynchronize, (CUstream stream))                                                                                 \
  F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                                    \
  F(cuStreamIsCapturing, (CUstream stream, int* status))                                                                    \
  F(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                                   \
  F(cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                                 \
  F(cuEventCreate, (CUevent * event, unsigned flags))                                                                       \
  F(cuEventDestroy_v2, (CUevent event))                                                                                     \
  F(cuEventRecord, (CUevent event, CUstream stream))                                                                        \
  F(cuEventQuery, (CUevent event))                                                                                          \
  F(cuEventSynchronize, (CUevent event))                                                                                    \
  F(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to))                                                    \
  F(cuModuleLoadData, (CUmodule * module, const void* image))                                                               \
  F(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))                                        \
  F(cuModuleUnload, (CUmodule module))                                                                                      \
  F(cuFuncGetAttribute, (int* value, int attribute, CUfunction function))                                                   \
  F(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                                                    \
  F(cuLaunchKernel,                                                                                                         \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,            \
     unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra))                            \
  F(cuGraphCreate, (CUgraph * graph, unsigned flags))                                                                       \
  F(cuGraphDestroy, (CUgraph graph))                                                                                        \
  F(cuGraphAddKernelNode_v2,                                                                                                \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count, const KernelNode* parameters))              \
  F(cuGraphAddMemcpyNode,                                                                                                   \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count, const CopyNode* copy, CUcontext context))   \
  F(cuGraphAddMemsetNode,                                                                                                   \
    (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count, const FillNode* fill, CUcontext context))   \
  F(cuGraphAddEmptyNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count))                       \
  F(cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, size_t * count))                                                  \
  F(cuGraphAddChildGraphNode, (CUgraphNode * node, CUgraph graph, const CUgraphNode* after, size_t count, CUgraph child))   \
  F(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                             \
  F(cuGraphExecDestroy, (CUgraphExec exec))                                                                                 \
  F(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                                     \
  F(cuGraphExecKernelNodeSetParams_v2, (CUgraphExec exec, CUgraphNode node, const KernelNode* parameters))                  \
  F(cuGraphExecMemcpyNodeSetParams, (CUgraphExec exec, CUgraphNode node, const CopyNode* copy, CUcontext context))          \
  F(cuGraphExecMemsetNodeSetParams, (CUgraphExec exec, CUgraphNode node, const FillNode* fill, CUcontext context))          \
  F(cuGraphExecChildGraphNodeSetParams, (CUgraphExec exec, CUgraphNode node, CUgraph child))

// Values of enumerations, as cuda.h has them.
inline constexpr CUresult kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600, kPeerAlreadyEnabled = 704;
enum Attribute : int {
  kMaxThreadsPerBlock = 1,
  kWarpSize = 10,
  kClockRate = 13,  // kHz
  kMultiprocessors = 16,
  kMemoryClockRate = 36,  // kHz
  kMemoryBusWidth = 37,   // bits
  kL2CacheSize = 38,
  kMaxThreadsPerMultiprocessor = 39,
  kMajor = 75,
  kMinor = 76,
  kSharedPerMultiprocessor = 81,
  kRegistersPerMultiprocessor = 82,
  kSharedPerBlockOptin = 97,
  kMaxBlocksPerMultiprocessor = 106,
  kVirtualMemory = 102,  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  kMemoryPoolsSupported = 115,
  kMostAttribute = kMemoryPoolsSupported,
};
inline constexpr int kFuncStaticShared = 1, kFuncMaxDynamicShared = 8;
inline constexpr int kPoolReleaseThreshold = 4, kPoolReserved = 5, kPoolUsed = 7;
inline constexpr int kPointerMemoryType = 2, kMemoryHost = 1, kMemoryDevice = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kHostPortable = 1, kHostDeviceMap = 2;
inline constexpr int kCaptureRelaxed = 2, kCaptureNone = 0;

// The opened driver. Functions are those of the library, by their exported names.
struct Driver {
#define TESSERA_CUDA_MEMBER(name, parameters) CUresult(*name) parameters = nullptr;
  TESSERA_CUDA_FUNCTIONS(TESSERA_CUDA_MEMBER)
#undef TESSERA_CUDA_MEMBER
  std::string path;  // of the library
  int version = 0;   // 13000: CUDA 13.0

  // Opens the driver (`wanted`: its path, or "" for the system's) and initialises it; once in a process, later calls return the
  // same. Throws sdk::Error TSR-H001 (no driver), TSR-H002 (no device that may be used), TSR-H003 (too old).
  static const Driver& open(const std::string& wanted);
  static const Driver& get();  // after open()
};

// Throws what a call reported, by family: out of memory (TSR-R001), a stream under capture (TSR-H008), an error that ends the
// device for this process (TSR-H007), anything else (TSR-H006). `what`: "cuMemcpyHtoDAsync on cuda:0".
void check(CUresult result, std::string_view what);
// "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"
std::string error_text(CUresult result);
// The context cannot be used any more after such an error.
bool is_sticky(CUresult result);

// A child process cannot use CUDA when its parent had initialised it: true in such a child.
bool forked();

}  // namespace tessera::cuda
