// SPDX-License-Identifier: Apache-2.0
// Operands that a kernel wants dense, and which may come with any strides.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plugin.hpp"

namespace cpu {

// Dense bytes of `t` at `to`, on the host's threads. Not for packed dtypes.
void copy_dense(const tsr_tensor& t, void* to);
int64_t dense_bytes(uint32_t dtype, int64_t elements);  // rounded up to 64

// Whether a launch may find other strides than row-major here: results of kernels are dense, views and inputs need not be.
bool may_be_strided(const tessera::sdk::Graph& g, const tessera::sdk::Value& v);

// A kernel that takes every operand in any strides. The backend promises that of none: what only reads dense memory gets a copy
// from the host where a tensor is not dense.
class StridedKernel : public tessera::sdk::Kernel {
 public:
  uint64_t strided_inputs() const override { return ~uint64_t{0}; }
};

inline bool is_strided(uint64_t strided, uint32_t operand) { return operand >= 64 || (strided >> operand & 1) != 0; }

// One that has a copy in its workspace of some of those that are not dense.
class CopyingKernel : public StridedKernel {
 public:
  bool has_workspace() const final { return true; }
  int64_t workspace(const int64_t* dims) final { return workspace_of(dims, ~uint64_t{0}); }
  int64_t workspace_of(const int64_t* dims, uint64_t strided) override = 0;
};

// Sizes of one operand as a launch knows them.
struct LaunchSizes {
  std::vector<tessera::sdk::LaunchDim> dims;
  uint32_t dtype = 0;
  LaunchSizes() = default;
  LaunchSizes(const tessera::sdk::Compile& c, const tessera::sdk::Type& t) : dtype(t.dtype()) {
    for (const tsr_dim d : t.sizes()) dims.push_back(tessera::sdk::launch_dim(c, d));
  }
  int64_t at(int axis, const int64_t* d) const { return axis < 0 ? 1 : dims[static_cast<size_t>(axis)].get(d); }
  int64_t bytes(const int64_t* d) const {
    int64_t n = 1;
    for (const auto& x : dims) n *= x.get(d);
    return dense_bytes(dtype, n);
  }
};

}  // namespace cpu
