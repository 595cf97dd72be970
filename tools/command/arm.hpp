// SPDX-License-Identifier: Apache-2.0
// One side of a comparison in a process of its own: what one does to caches, pools and threads of a process is nothing to the
// other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "inputs.hpp"
#include "json.hpp"
#include "session.hpp"

namespace tessera::command {

struct ArmPlan {
  std::string name;  // "A", for messages
  ContextArguments context;
  std::string model;
  InputArguments inputs;
  int64_t warmup = 2;
};

// Before the process has threads: the constructor forks. Functions throw what went wrong in the other process, as the error
// that it was there, or TSR-E018 where that process is gone.
class Arm {
 public:
  explicit Arm(ArmPlan plan);
  ~Arm();  // ends the process
  Arm(const Arm&) = delete;
  Arm& operator=(const Arm&) = delete;

  // Compiles twice, without caches and with them, warms up, and says what that took: {"cold_compile_ms", "compile_ms",
  // "first_call_ms", "predicted_bytes", "calls", "threads", "kernels"}. `calls` is how many make one sample.
  Json open();
  double calls(int64_t n);  // milliseconds per call
  Json guards();            // milliseconds that a call spends on guards; null: cannot be told
  Json steps();             // a description of the executable whose steps have times

 private:
  Json ask(const Json& what);

  std::string name_;
  pid_t pid_ = -1;
  int socket_ = -1;
};

// How many kernels run on which backend: {"cpu": 3, "reference": 1}. `description` is that of an executable.
Json kernels_by_backend(const Json& description);

// The kernels that a backend earlier in the order refused, [{"backend": "eager", "refusals": "cpu: ..", "ops": {"gelu": 2}}],
// most kernels first. `description` as above.
Json left_to_others(const Json& description);

}  // namespace tessera::command
