// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace tessera::core {

class Cache;
class ConstantForms;
class DebugFolder;
class KnownKernels;
struct Factory;
struct LatePasses;
struct PartitionOptions;
struct SavedKernels;

struct CompileOptions {
  std::vector<const Factory*> backends;  // in order of preference; the last is the fallback
  const Factory* executor = nullptr;     // runs static plans another way; null: step by step
  bool relaxed = false;                  // numerics = "relaxed"
  bool deterministic = false;            // only what promises the same bits on every run and thread count
  bool fallback_random = false;          // what draws random numbers goes to the fallback
  bool strict_backends = false;          // what a backend fails to compile ends the compile; no other is asked
  uint32_t device = 0;                   // of graphs that name none; the host: their backends' devices, node by node
  bool sync_faults = false;              // a run waits for each of its steps
  bool check_nan = false;                // a run ends at the first step that makes a NaN
  // Callers put an output that is written back in the place of its donated state: the output lies in the state's memory where
  // nobody else holds that, and a state that somebody holds keeps its value.
  bool replaces_states = false;
  bool unfrozen = false;                              // freezing = false: kernels keep no form of constants of their own
  uint32_t tune = 0;                                  // TSR_TUNE_*
  double tune_seconds = 0;                            // that measuring may take for one plan
  int threads = 0;                                    // of parallel loops during a run; 0: the process's default
  int64_t arena_max_bytes = 0;                        // a larger arena is refused; 0: no limit
  bool measure = false;                               // time every step of every run (describe shows the means)
  std::shared_ptr<const LatePasses> late_passes;      // TSR_STAGE_ASSIGNED; null: none
  std::shared_ptr<const PartitionOptions> partition;  // of graphs with a backward half; null: every activation is kept
  bool measure_costs = false;           // partitioners choose by times of kernels that were measured, not by predicted ones
  bool remeasure_costs = false;         // what the cache knows of them is measured once more by this process
  const KnownKernels* known = nullptr;  // for estimates of plans without kernels; null: nothing is known
  Cache* cost_cache = nullptr;          // where these are kept for other processes; null: nowhere
  std::shared_ptr<const void> keep;     // what owns the backends and the cache
  // What backends have failed to compile in this compile, by node; TSR_NONE: anything. Others are asked for it.
  std::set<std::pair<const Factory*, uint32_t>> failed;
  // Set for one compile only: kernels to take instead of compiling them, and where to put those that can be kept.
  const SavedKernels* restore = nullptr;
  SavedKernels* save = nullptr;
  DebugFolder* debug = nullptr;    // trace.enabled: where this compile leaves what people look at
  ConstantForms* forms = nullptr;  // a cache's, for this compile; null: kernels' forms of constants are made
};

}  // namespace tessera::core
