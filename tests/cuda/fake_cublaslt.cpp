// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's part of the fake: column-major products in loops, queued like a kernel.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "blas.hpp"
#include "fake_queue.hpp"

namespace {

using namespace tessera::cuda;

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading, stride = 0;
  int32_t batch = 1;
};
struct Operation {
  int compute, scale;
  int32_t transposed[2] = {kBlasOpN, kBlasOpN};
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
};

size_t bytes_of(int type) { return type == kRealF64 ? 8 : type == kRealF32 ? 4 : 2; }

double read(const char* p, int type) {
  if (type == kRealF64) return *reinterpret_cast<const double*>(p);
  if (type == kRealF32) return *reinterpret_cast<const float*>(p);
  uint16_t h;
  std::memcpy(&h, p, 2);
  if (type == kRealBf16) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
  }
  _Float16 x;
  std::memcpy(&x, &h, 2);
  return static_cast<double>(x);
}
void write(char* p, int type, double v) {
  if (type == kRealF64) {
    *reinterpret_cast<double*>(p) = v;
  } else if (type == kRealF32) {
    *reinterpret_cast<float*>(p) = static_cast<float>(v);
  } else if (type == kRealBf16) {
    const auto x = static_cast<float>(v);
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const auto h = static_cast<uint16_t>(x != x ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    std::memcpy(p, &h, 2);
  } else {
    const auto x = static_cast<_Float16>(v);
    std::memcpy(p, &x, 2);
  }
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cublasLtCreate(BlasHandle* handle) {
  *handle = new int(0);
  return 0;
}
EXPORT size_t cublasLtGetVersion() { return 130100; }
EXPORT const char* cublasLtGetStatusString(int) { return "CUBLAS_STATUS_FAKE"; }
EXPORT int cublasLtMatmulDescCreate(BlasDescriptor* out, int compute, int scale) {
  *out = new Operation{compute, scale};
  return 0;
}
EXPORT int cublasLtMatmulDescDestroy(BlasDescriptor d) {
  delete static_cast<Operation*>(d);
  return 0;
}
EXPORT int cublasLtMatmulDescSetAttribute(BlasDescriptor d, int attribute, const void* value, size_t bytes) {
  if ((attribute != kBlasTransA && attribute != kBlasTransB) || bytes != 4) return 7;
  std::memcpy(&static_cast<Operation*>(d)->transposed[attribute - kBlasTransA], value, 4);
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(BlasDescriptor* out, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  if (rows == 0 || columns == 0 || leading < static_cast<int64_t>(rows)) return 7;
  *out = new Layout{type, rows, columns, leading};
  return 0;
}
EXPORT int cublasLtMatrixLayoutDestroy(BlasDescriptor d) {
  delete static_cast<Layout*>(d);
  return 0;
}
EXPORT int cublasLtMatrixLayoutSetAttribute(BlasDescriptor d, int attribute, const void* value, size_t bytes) {
  auto& l = *static_cast<Layout*>(d);
  if (attribute == kBlasBatchCount && bytes == 4)
    std::memcpy(&l.batch, value, 4);
  else if (attribute == kBlasBatchStride && bytes == 8)
    std::memcpy(&l.stride, value, 8);
  else
    return 7;
  return 0;
}
EXPORT int cublasLtMatmulPreferenceCreate(BlasDescriptor* out) {
  *out = new Preference;
  return 0;
}
EXPORT int cublasLtMatmulPreferenceDestroy(BlasDescriptor d) {
  delete static_cast<Preference*>(d);
  return 0;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(BlasDescriptor d, int attribute, const void* value, size_t bytes) {
  auto& p = *static_cast<Preference*>(d);
  if (attribute == kBlasMaxWorkspace && bytes == 8)
    std::memcpy(&p.workspace, value, 8);
  else if (attribute == kBlasReductions && bytes == 4)
    std::memcpy(&p.reductions, value, 4);
  else if (attribute < kBlasAlignA || attribute > kBlasAlignA + 3 || bytes != 4)
    return 7;
  return 0;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(BlasHandle, BlasDescriptor, BlasDescriptor, BlasDescriptor, BlasDescriptor,
                                          BlasDescriptor, BlasDescriptor preference, int wanted, BlasChoice* choices,
                                          int* found) {
  const auto& p = *static_cast<Preference*>(preference);
  if (p.reductions != kBlasReduceInComputeType || wanted < 1) return 7;
  *choices = {};
  choices->workspace_bytes = std::min<uint64_t>(p.workspace, 4096);
  choices->algorithm[0] = 7;
  *found = 1;
  return 0;
}
EXPORT int cublasLtMatmul(BlasHandle, BlasDescriptor operation, const void* alpha, const void* a, BlasDescriptor a_layout,
                          const void* b, BlasDescriptor b_layout, const void* beta, const void*, BlasDescriptor, void* d,
                          BlasDescriptor d_layout, const BlasChoice* algorithm, void* workspace, size_t workspace_bytes,
                          CUstream stream) {
  const Operation op = *static_cast<Operation*>(operation);
  const Layout la = *static_cast<Layout*>(a_layout), lb = *static_cast<Layout*>(b_layout), ld = *static_cast<Layout*>(d_layout);
  const double scale[] = {read(static_cast<const char*>(alpha), op.scale), read(static_cast<const char*>(beta), op.scale)};
  const uint64_t m = op.transposed[0] ? la.columns : la.rows, k = op.transposed[0] ? la.rows : la.columns;
  const uint64_t n = op.transposed[1] ? lb.rows : lb.columns, k2 = op.transposed[1] ? lb.columns : lb.rows;
  if (k != k2 || m != ld.rows || n != ld.columns || la.batch != ld.batch || lb.batch != ld.batch ||
      algorithm->algorithm[0] != 7 || scale[0] != 1 || scale[1] != 0 || workspace_bytes < algorithm->workspace_bytes ||
      (workspace_bytes > 0 && !workspace))
    return 7;
  return fake::queue(stream, [=](auto&& real) {
    const auto place = [&](const void* p, const Layout& l) {
      const size_t elements = static_cast<size_t>(l.stride) * static_cast<size_t>(l.batch - 1) +
                              static_cast<size_t>(l.leading) * (l.columns - 1) + l.rows;
      return real(p, elements * bytes_of(l.type));
    };
    const char *pa = place(a, la), *pb = place(b, lb);
    char* pd = place(d, ld);
    if (!pa || !pb || !pd || (workspace_bytes > 0 && !real(workspace, workspace_bytes))) return false;
    if (workspace_bytes > 0) std::memset(real(workspace, workspace_bytes), 0xfd, workspace_bytes);
    const auto at = [](const char* p, const Layout& l, int32_t batch, uint64_t row, uint64_t column) {
      return read(p + (batch * l.stride + static_cast<int64_t>(column) * l.leading + static_cast<int64_t>(row)) *
                          static_cast<int64_t>(bytes_of(l.type)),
                  l.type);
    };
    for (int32_t i = 0; i < ld.batch; ++i)
      for (uint64_t column = 0; column < n; ++column)
        for (uint64_t row = 0; row < m; ++row) {
          double sum = 0;
          for (uint64_t x = 0; x < k; ++x)
            sum += (op.transposed[0] ? at(pa, la, i, x, row) : at(pa, la, i, row, x)) *
                   (op.transposed[1] ? at(pb, lb, i, column, x) : at(pb, lb, i, x, column));
          write(pd + (i * ld.stride + static_cast<int64_t>(column) * ld.leading + static_cast<int64_t>(row)) *
                         static_cast<int64_t>(bytes_of(ld.type)),
                ld.type, sum);
        }
    return true;
  });
}
