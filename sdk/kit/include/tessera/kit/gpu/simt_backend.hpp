// SPDX-License-Identifier: Apache-2.0
// A backend for devices of the SIMT family: claims what lowers to a kernel, makes kernels programs and programs text, compiles
// several at once, and launches. A device's own part is a SimtTarget. A backend that has kernels of its own as well (a library
// of products) derives from this class, claims and compiles those first, and leaves the rest to it.
//
//   plugin.add_backend("cuda", std::make_unique<kit::SimtBackend>(target));
//
// Kernels of one structure are compiled once, whatever nodes they come from; sizes that are symbols reach the device by value.
// Thread-safe: graphs may compile at once. Modules are loaded when a kernel is compiled or restored.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/kit/gpu/simt_programs.hpp"
#include "tessera/kit/gpu/simt_target.hpp"
#include "tessera/kit/prepared_kernels.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

// What was built of one unit, and the modules that were loaded from it, by device index.
class SimtCode;
class SimtKernel;
class Choices;
class MeasuringBudget;

class SimtBackend : public sdk::Backend {
 public:
  // `cache_directory`: where decisions on schedules are kept for later processes; empty: nowhere.
  explicit SimtBackend(std::shared_ptr<SimtTarget> target, SimtOptions options = {}, std::string cache_directory = {});
  ~SimtBackend() override;

  const char* device() const override { return target_->device(); }
  uint64_t capabilities() const override { return TSR_CAP_FUSION | TSR_CAP_DETERMINISTIC; }
  // Yes: one kernel computes it. Else a wish for its decomposition, with the reason.
  sdk::Claim claim(sdk::Graph g, sdk::Node n) override;
  void prepare(std::span<const sdk::Compile> requests) override;
  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c) override;
  bool can_deserialize() const override { return true; }
  std::unique_ptr<sdk::Kernel> deserialize(std::string_view bytes) override;

  SimtTarget& target() { return *target_; }
  // Why no kernel computes the node; empty: one does.
  std::string why_not(sdk::Graph g, sdk::Node n);

 protected:
  // Whether this class compiles the node, of those that the backend claimed; false where a deriving class has a kernel of its
  // own.
  virtual bool generates(sdk::Graph, sdk::Node) { return true; }
  // Measures, as long as the budget lasts, what the requests ask for (Compile::tune) of nodes that this class does not compile.
  // One plan at a time.
  virtual void measure(std::span<const sdk::Compile>, const MeasuringBudget&) {}

 private:
  struct WrittenKernel;
  using Search = std::function<SimtSchedule(const ScheduleSpace&)>;  // see SimtOptions
  static uint32_t index_of(tsr_device d);
  // The kernel's programs and their text, which is compiled by build(). Without a search the model chooses.
  WrittenKernel write(const sdk::Compile& c, const Search& search = {}, bool log = true);
  std::unique_ptr<SimtKernel> made(const sdk::Compile& c, WrittenKernel d);
  // The one that prepare() made of this request, or a new one.
  WrittenKernel written(const sdk::Compile& c);
  std::vector<std::shared_ptr<SimtCode>> build(const std::vector<WrittenKernel*>& kernels, const GpuDescription& device);

  // Schedules that are measured (simt_tuning.cpp). By what was decided; by the model where nothing was, or nobody asks.
  WrittenKernel write_tuned(const sdk::Compile& c);
  // Decides for those of the requests that ask and of which nothing is known, as long as the budget lasts.
  void tune(std::span<const sdk::Compile> requests, const MeasuringBudget& budget);
  struct Tuning;
  void improve(std::vector<Tuning>& open, uint32_t index, const MeasuringBudget& budget);
  bool measured(Tuning& t, std::vector<WrittenKernel> candidates, uint32_t index);
  std::string problem_of(const sdk::Compile& c, const WrittenKernel& d);

  std::shared_ptr<SimtTarget> target_;
  SimtOptions options_;
  std::unique_ptr<Choices> choices_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<SimtCode>> code_;  // by key of a kernel's text
  // What why_not() has said, by structure_key(): layers repeat, and a search for plans lowers them over and over.
  std::unordered_map<std::string, std::string> answers_;
  PreparedKernels<WrittenKernel> prepared_;
};

}  // namespace tessera::kit
