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

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/kit/gpu/simt_programs.hpp"
#include "tessera/kit/gpu/simt_target.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

// What was built of one unit, and the modules that were loaded from it, by device index.
class SimtCode;

class SimtBackend : public sdk::Backend {
 public:
  explicit SimtBackend(std::shared_ptr<SimtTarget> target, SimtOptions options = {});
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

 private:
  struct WrittenKernel;
  using Request = std::tuple<const void*, tsr_id, const void*>;  // graph, node and context: what prepare and compile agree on
  static Request request_of(const sdk::Compile& c);
  // The kernel's programs and their text, which is compiled by build().
  WrittenKernel write(const sdk::Compile& c);
  // The one that prepare() made of this request, or a new one.
  WrittenKernel written(const sdk::Compile& c);
  std::vector<std::shared_ptr<SimtCode>> build(const std::vector<WrittenKernel*>& kernels, const GpuDescription& device);

  std::shared_ptr<SimtTarget> target_;
  SimtOptions options_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<SimtCode>> code_;  // by key of a kernel's text
  std::map<Request, std::unique_ptr<WrittenKernel>> prepared_;  // until compile() takes them
};

}  // namespace tessera::kit
