// SPDX-License-Identifier: Apache-2.0
// The plugin: devices cuda:0, cuda:1, .. and the backend that runs the kit's kernels on them.
#include "compiler.hpp"
#include "device.hpp"
#include "target.hpp"
#include "tessera/kit/gpu/simt_backend.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

// Devices, modules and the opened libraries are the process's: the options of the first instance that gets them hold.
struct Shared {
  std::shared_ptr<Compiler> compiler;
  std::shared_ptr<CudaDevice> device;
  std::shared_ptr<kit::SimtTarget> target;

  explicit Shared(const t::Options& options) {
    const Driver& driver = Driver::open(std::string(options.get_string("driver", "")));
    compiler = std::make_shared<Compiler>(std::string(options.get_string("nvrtc", "")));
    GpuOptions gpu;
    gpu.sync = options.get_bool("sync", false);
    device = std::make_shared<CudaDevice>(driver, gpu, compiler);
    target = make_target(device, compiler);
  }
};

// What no kernel of the kit computes is decomposed, or runs on the next backend of the config.
class CudaBackend final : public kit::SimtBackend {
 public:
  using SimtBackend::SimtBackend;

  t::Claim claim(t::Graph g, t::Node n) override {
    const t::Claim c = SimtBackend::claim(g, n);
    if (c.claim != TSR_CLAIM_YES && t::log_enabled("perf_hints"))
      t::log("perf_hints", "cuda has no kernel for '" + std::string(n.op()) + "': " + why_not(g, n));
    return c;
  }
};

}  // namespace

}  // namespace tessera::cuda

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  namespace cuda = tessera::cuda;
  static const cuda::Shared shared(plugin.options);  // where it throws, the next instance tries again
  plugin.add_device("cuda", shared.device->count(), shared.device);
  plugin.add_backend("cuda", std::make_unique<cuda::CudaBackend>(shared.target));
}
