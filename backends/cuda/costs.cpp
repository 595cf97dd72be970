// SPDX-License-Identifier: Apache-2.0
#include "costs.hpp"

#include <algorithm>

#include "tessera/dtypes.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

constexpr double kLaunch = 4e-6;
// Of what the units could do at their highest clock, in large problems: 668 to 788 of 1,070 TFLOP/s on an H100 (docs/cuda.md).
constexpr double kReached = 0.68;

// Multiplications and additions of one multiprocessor in one clock, in 16 bits with sums in f32 (CUDA C++ programming guide,
// and the architectures' white papers).
double per_clock(int major, int minor) {
  if (major < 7) return 0;
  if (major == 7) return 1024;
  if (major == 8) return minor == 0 ? 2048 : 1024;
  return major == 9 ? 4096 : major == 10 ? 8192 : 1024;
}

double bytes(const t::Value& v) { return static_cast<double>(storage_bytes(v.type().dtype(), v.type().elements())); }

double product_flops(t::Node n) {
  const t::Type a = n.operand(0).type();
  double contracted = 1;
  for (const int64_t axis : n.attr("lhs_contract").as_ints()) contracted *= static_cast<double>(a.size(axis));
  return 2 * contracted * static_cast<double>(n.result().type().elements());
}

// `products`: of which each multiplies all scores.
double attention_flops(t::Node n, uint32_t queries, double products) {
  const t::Type q = n.operand(queries).type(), k = n.operand(queries + 1).type();
  const double scores = static_cast<double>(q.elements() / std::max<int64_t>(1, q.size(-1))) * static_cast<double>(k.size(-2));
  return products * 2 * scores * static_cast<double>(q.size(-1)) * (n.attr("causal").as_bool() ? 0.5 : 1);
}

}  // namespace

double matrix_seconds(const Gpu& gpu, t::Node n) {
  const bool product = n.is("dot_general"), forward = n.is("attention") || n.is("attention_lse"),
             backward = n.is("attention_y_backward") || n.is("attention_backward");
  if (!product && !forward && !backward) return -1;
  double moved = 0;
  for (uint32_t i = 0; i < n.num_operands(); ++i) {
    if (!n.has_operand(i)) continue;
    if (!n.operand(i).type().is_static()) return -1;
    moved += bytes(n.operand(i));
  }
  for (uint32_t i = 0; i < n.num_results(); ++i) moved += n.result(i).type().is_static() ? bytes(n.result(i)) : 0;
  const uint32_t dtype = n.operand(backward ? 1 : 0).type().dtype();
  if (dtype != TSR_BF16 && dtype != TSR_F16) return -1;
  const double units = per_clock(gpu.attribute(kMajor), gpu.attribute(kMinor)) * gpu.attribute(kMultiprocessors);
  if (units <= 0) return -1;
  // Attention's products wait for its exponentials: half as fast as the others (docs/cuda.md).
  const double flops = product ? product_flops(n) : 2 * attention_flops(n, forward ? 0 : 1, forward ? 2 : 5);
  return kLaunch + std::max(flops / (kReached * units * gpu.attribute(kClockRate) * 1e3), moved / gpu.bytes_per_second());
}

}  // namespace tessera::cuda
