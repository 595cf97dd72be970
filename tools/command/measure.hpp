// SPDX-License-Identifier: Apache-2.0
// Repeated calls and what their times say.
#pragma once

#include <cstdint>
#include <vector>

#include "command.hpp"

namespace tessera::command {

// One model with its inputs. A call is timed with the release of its outputs, which a user's loop does too. States are passed
// again as they are after the call before: their sizes are what matters here. Work on devices is part of the call that queued
// it: the clock stops when they are done.
class Caller {
 public:
  Caller(const embed::Executable& executable, std::vector<embed::Tensor> inputs);
  double call();                                         // one call; milliseconds
  double calls(int64_t n);                               // n calls; milliseconds per call
  [[nodiscard]] std::vector<embed::Tensor> run() const;  // one call, outputs kept

 private:
  void wait() const;  // for the devices
  const embed::Executable& executable_;
  std::vector<tsr_device> devices_;  // but the host
  std::vector<embed::Tensor> inputs_;
  std::vector<tsr_tensor_handle*> in_, out_;
};

// The same model as a callable: a call of it checks what its compiled code was guarded by, and then runs that.
class DispatchedCaller {
 public:
  DispatchedCaller(const embed::Model& model, std::vector<embed::Tensor> inputs, size_t outputs,
                   const std::vector<tsr_device>& devices);
  double calls(int64_t n);  // n calls; milliseconds per call

 private:
  const embed::Model& model_;
  std::vector<tsr_device> devices_;
  std::vector<embed::Tensor> inputs_;
  std::vector<tsr_arg> args_;
  std::vector<tsr_tensor_handle*> out_;
};

// The value below which a fraction q of the samples lies, by linear interpolation between the two nearest (type 7 of Hyndman
// and Fan, 1996; what numpy.percentile computes).
double quantile(std::vector<double> samples, double q);

struct Budget {
  double seconds = 2;
  int64_t iterations = 0;  // 0: as many as fit into `seconds`
  int64_t warmup = -1;     // -1: 3 calls or a tenth of `seconds`, whichever ends first
};

// ---- A against B

struct Verdict {
  double speedup;    // time of A / time of B: above 1, B is faster
  double low, high;  // its 95 % interval, by bootstrap over blocks (percentile method; Efron, 1979)
  double noise;      // relative difference below which the two are not told apart
  enum { kFaster, kSlower, kInconclusive } word;  // of B against A
};
const char* to_string(const Verdict&);

// Times in blocks A B B A, so that a drift of the machine falls on both alike. a and b hold two samples per block, in order.
// The ratio is the median over blocks of (a1 + a2) / (b1 + b2). The noise floor comes from A against A and B against B in the
// same blocks: the medians of log(a2 / a1) and log(b2 / b1) under random signs (their order within a block means nothing),
// whose 99th percentile of magnitude, 1 % at least, must be exceeded before a difference is called one.
Verdict judge(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tessera::command
