// SPDX-License-Identifier: Apache-2.0
// The plugin: devices cuda:0, cuda:1, .. and the backend that runs the kit's kernels on them.
#include "compiler.hpp"
#include "device.hpp"
#include "product.hpp"
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
    const std::string wanted(options.get_string("cublaslt", ""));
    const std::string blas = wanted == "off" ? std::string() : Blas::locate(wanted);
    device = std::make_shared<CudaDevice>(driver, gpu, compiler, blas.empty() ? "" : "cuBLASLt " + blas);
    target = make_target(device, compiler);
  }
};

// Products go to cuBLASLt, everything else to the kit's kernels. What neither computes is decomposed, or runs on the next
// backend of the config.
class CudaBackend final : public kit::SimtBackend {
 public:
  CudaBackend(std::shared_ptr<kit::SimtTarget> target, std::unique_ptr<Products> products)
      : SimtBackend(std::move(target)), products_(std::move(products)) {}

  t::Claim claim(t::Graph g, t::Node n) override {
    if (is_product(n))
      return n.is("dot_general") ? t::yes() : t::decompose("products are dot_general's, which cuBLASLt computes");
    if (n.is("fused"))
      for (const t::Node& x : g.nodes(n.regions()[0]))
        if (is_product(x)) return t::no("cuBLASLt computes products by themselves");
    const t::Claim c = SimtBackend::claim(g, n);
    if (c.claim != TSR_CLAIM_YES && t::log_enabled("perf_hints"))
      t::log("perf_hints", "cuda has no kernel for '" + std::string(n.op()) + "': " + SimtBackend::why_not(g, n) +
                               (n.is("dot_general") ? "; " + products_->why_not(n) : ""));
    return c;
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override {
    return generates(c.graph(), c.node()) ? SimtBackend::compile(c) : products_->compile(c);
  }
  std::unique_ptr<t::Kernel> deserialize(std::string_view bytes) override {
    std::unique_ptr<t::Kernel> product = products_->restore(bytes);
    return product ? std::move(product) : SimtBackend::deserialize(bytes);
  }

 protected:
  bool generates(t::Graph, t::Node n) override { return !n.is("dot_general") || !products_->why_not(n).empty(); }

 private:
  // Of those that cuBLASLt computes, possibly as a part of what the node decomposes into.
  bool is_product(const t::Node& n) const {
    if (n.is("dot_general")) return products_->why_not(n).empty();
    return (n.is("matmul") || n.is("linear")) && products_->available();
  }

  std::unique_ptr<Products> products_;
};

}  // namespace

}  // namespace tessera::cuda

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  namespace cuda = tessera::cuda;
  static const cuda::Shared shared(plugin.options);  // where it throws, the next instance tries again
  plugin.add_device("cuda", shared.device->count(), shared.device);
  auto products = std::make_unique<cuda::Products>(shared.device, std::string(plugin.options.get_string("cublaslt", "")),
                                                   plugin.options.get_bool("tf32", false));
  plugin.add_backend("cuda", std::make_unique<cuda::CudaBackend>(shared.target, std::move(products)));
}
