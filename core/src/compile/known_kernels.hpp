// SPDX-License-Identifier: Apache-2.0
// What only compiled kernels tell of the memory that they take, for estimates of other plans of the same program.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace tessera::core {

class Graph;
class Plan;

class KnownKernels {
 public:
  // Of a finished plan that has its kernels; plans nested in it are left out. True: something new is known.
  bool learn(const Graph& graph, const Plan& plan);
  // Puts into the steps of a plan without kernels what is known of them.
  void tell(const Graph& graph, Plan& plan) const;

 private:
  struct Known {
    int64_t workspace = 0;
    int32_t in_place = -1;
    bool operator==(const Known&) const = default;
  };
  std::unordered_map<std::string, Known> known_;  // by kernel_key()
};

}  // namespace tessera::core
