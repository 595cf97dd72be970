// SPDX-License-Identifier: Apache-2.0
// What a run shows: a line of progress, and the loss by steps as a drawing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace train_gpt {

// A bar on a terminal, a line every so often elsewhere; to stderr.
class Progress {
 public:
  Progress(int64_t first, int64_t total, int64_t tokens_per_step);
  void step(int64_t done, double loss, double lr);
  void end();

 private:
  const int64_t first_, total_, tokens_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point shown_;
};

// The losses of steps 0, 1, ... as SVG: each step, and their running mean.
std::string loss_curve(const std::vector<float>& losses);

}  // namespace train_gpt
