// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's part of the fake: column-major products in loops, queued like a kernel.
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "blas.hpp"
#include "fake_numbers.hpp"
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
  uint32_t epilogue = kBlasNoEpilogue;
  const char* bias = nullptr;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
};

fake::Kind kind_of(int type) {
  return type == kRealF64    ? fake::Kind::F64
         : type == kRealF32  ? fake::Kind::F32
         : type == kRealBf16 ? fake::Kind::BF16
                             : fake::Kind::F16;
}
size_t bytes_of(int type) { return fake::bytes_of(kind_of(type)); }

double read(const char* p, int type) { return fake::read(p, kind_of(type)); }
void write(char* p, int type, double v) { fake::write(p, kind_of(type), v); }

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
  auto& op = *static_cast<Operation*>(d);
  if ((attribute == kBlasTransA || attribute == kBlasTransB) && bytes == 4)
    std::memcpy(&op.transposed[attribute - kBlasTransA], value, 4);
  else if (attribute == kBlasEpilogue && bytes == 4)
    std::memcpy(&op.epilogue, value, 4);
  else if (attribute == kBlasBias && bytes == sizeof op.bias)
    std::memcpy(&op.bias, value, sizeof op.bias);
  else
    return 7;
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
                                          BlasDescriptor result, BlasDescriptor preference, int wanted, BlasChoice* choices,
                                          int* found) {
  const auto& p = *static_cast<Preference*>(preference);
  if (p.reductions != kBlasReduceInComputeType || wanted < 1) return 7;
  const uint64_t columns = static_cast<Layout*>(result)->columns;
  *found = std::min(wanted, 2);
  for (int i = 0; i < *found; ++i) {
    BlasChoice& c = choices[i] = {};
    c.workspace_bytes = i == 0 ? std::min<uint64_t>(p.workspace, 4096) : 0;
    c.algorithm[0] = 7;
    c.algorithm[1] = columns / 24;  // blocks in other clusters for other sizes
    c.algorithm[2] = columns < 4;   // of few columns, and of more
  }
  return 0;
}
EXPORT int cublasLtMatmul(BlasHandle, BlasDescriptor operation, const void* alpha, const void* a, BlasDescriptor a_layout,
                          const void* b, BlasDescriptor b_layout, const void* beta, const void* c, BlasDescriptor, void* d,
                          BlasDescriptor d_layout, const BlasChoice* algorithm, void* workspace, size_t workspace_bytes,
                          CUstream stream) {
  const Operation op = *static_cast<Operation*>(operation);
  const Layout la = *static_cast<Layout*>(a_layout), lb = *static_cast<Layout*>(b_layout), ld = *static_cast<Layout*>(d_layout);
  const double scale[] = {read(static_cast<const char*>(alpha), op.scale), read(static_cast<const char*>(beta), op.scale)};
  const uint64_t m = op.transposed[0] ? la.columns : la.rows, k = op.transposed[0] ? la.rows : la.columns;
  const uint64_t n = op.transposed[1] ? lb.rows : lb.columns, k2 = op.transposed[1] ? lb.columns : lb.rows;
  if (k != k2 || m != ld.rows || n != ld.columns || la.batch != ld.batch || lb.batch != ld.batch ||
      algorithm->algorithm[0] != 7 || scale[0] != 1 || (scale[1] != 0 && scale[1] != 1) ||
      workspace_bytes < algorithm->workspace_bytes || (workspace_bytes > 0 && !workspace) ||
      reinterpret_cast<uintptr_t>(workspace) % kBlasWorkspaceAlignment != 0)
    return 7;
  if (algorithm->algorithm[2] != (ld.columns < 4)) return 15;  // CUBLAS_STATUS_NOT_SUPPORTED
  return fake::queue(
      stream,
      [=](auto&& real) {
        const auto place = [&](const void* p, const Layout& l) {
          const size_t elements = static_cast<size_t>(l.stride) * static_cast<size_t>(l.batch - 1) +
                                  static_cast<size_t>(l.leading) * (l.columns - 1) + l.rows;
          return real(p, elements * bytes_of(l.type));
        };
        const char *pa = place(a, la), *pb = place(b, lb);
        char* pd = place(d, ld);
        const char* const pc = place(c, ld);
        const bool biased = op.epilogue != kBlasNoEpilogue && (op.epilogue & kBlasAddBias) != 0;
        const char* const bias = biased ? real(op.bias, m * bytes_of(ld.type)) : nullptr;
        if (!pa || !pb || !pd || !pc || (biased && !bias) || (workspace_bytes > 0 && !real(workspace, workspace_bytes)))
          return false;
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
              if (scale[1] != 0) sum += at(pc, ld, i, row, column);
              if (biased) sum += read(bias + row * bytes_of(ld.type), ld.type);
              if (op.epilogue & kBlasRelu) sum = sum > 0 ? sum : 0;
              if (op.epilogue & kBlasGelu)
                sum = 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
              write(pd + (i * ld.stride + static_cast<int64_t>(column) * ld.leading + static_cast<int64_t>(row)) *
                             static_cast<int64_t>(bytes_of(ld.type)),
                    ld.type, sum);
            }
        return true;
      },
      static_cast<unsigned>(algorithm->algorithm[1]));
}
