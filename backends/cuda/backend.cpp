// SPDX-License-Identifier: Apache-2.0
// The plugin: devices cuda:0, cuda:1, .. and the backend that runs the kit's kernels on them.
#include "attention.hpp"
#include "compiler.hpp"
#include "conv.hpp"
#include "costs.hpp"
#include "device.hpp"
#include "libraries.hpp"
#include "product.hpp"
#include "ranges.hpp"
#include "target.hpp"
#include "tessera/kit/gpu/simt_backend.hpp"
#include "tessera/kit/object_cache.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

// Devices, modules and the opened libraries are the process's: the options of the first instance that gets them hold.
struct Shared {
  BackgroundWork opening;
  std::shared_ptr<Compiler> compiler;
  std::shared_ptr<CudaDevice> device;
  std::shared_ptr<kit::SimtTarget> target;

  explicit Shared(const t::Options& options) {
    const Driver& driver = Driver::open(std::string(options.get_string("driver", "")));
    compiler = std::make_shared<Compiler>(std::string(options.get_string("nvrtc", "")));
    GpuOptions gpu;
    gpu.sync = options.get_bool("sync", false);
    const std::string wanted(options.get_string("cublaslt", ""));
    const std::string wanted_dnn(options.get_string("cudnn", ""));
    const std::string blas = wanted == "off" ? std::string() : Blas::locate(wanted);
    const std::string dnn = wanted_dnn == "off" ? std::string() : Dnn::locate(wanted_dnn);
    std::string libraries = blas.empty() ? "" : "cuBLASLt " + blas;
    if (!dnn.empty()) libraries += (libraries.empty() ? "cuDNN " : ", cuDNN ") + dnn;
    // Opening it takes as long as making a context: it begins with the first, beside what leads to the first product.
    if (!blas.empty()) gpu.when_used = [this, wanted] { opening.start(Blas::open_ahead, wanted); };
    device = std::make_shared<CudaDevice>(driver, gpu, compiler, libraries);
    target = make_target(device, compiler);
  }
};

// Products go to cuBLASLt, convolutions and attention to cuDNN, with what they take of what follows; everything else, and what
// a library refuses, goes to the kit's kernels. What none of them computes is decomposed, or runs on the next backend of the
// config.
class CudaBackend final : public kit::SimtBackend {
 public:
  // `ranges`: null: launches are not marked.
  CudaBackend(std::shared_ptr<CudaDevice> device, std::shared_ptr<kit::SimtTarget> target, std::unique_ptr<Products> products,
              std::unique_ptr<Convolutions> convolutions, std::unique_ptr<Attention> attention, bool any_order,
              std::unique_ptr<Ranges> ranges, std::string cache_directory)
      : SimtBackend(std::move(target), {}, cache_directory),
        device_(std::move(device)),
        products_(std::move(products)),
        convolutions_(std::move(convolutions)),
        attention_(std::move(attention)),
        any_order_(any_order),
        ranges_(std::move(ranges)),
        records_(std::move(cache_directory), "cuda") {}

  uint64_t capabilities() const override {
    return any_order_ ? SimtBackend::capabilities() & ~uint64_t{TSR_CAP_DETERMINISTIC} : SimtBackend::capabilities();
  }
  t::Claim claim(t::Graph g, t::Node n) override {
    if (is_product(n))
      return n.is("dot_general") ? t::yes() : t::decompose("products are dot_general's, which cuBLASLt computes");
    if (Attention::is_one(g, n) && attention_->why_not(g, n).empty()) return t::yes();
    if (n.is("fused")) {
      for (const t::Node& x : g.nodes(n.regions()[0])) {
        if (x.is("conv")) return claim_convolution(g, n);
        if (is_product(x)) {
          const std::string why = products_->why_not(g, n);
          return why.empty() ? t::yes() : t::no(g.scratch_string(why));
        }
      }
    }
    const t::Claim c = SimtBackend::claim(g, n);
    if (c.claim != TSR_CLAIM_YES && t::log_enabled("perf_hints"))
      t::log("perf_hints", "cuda has no kernel for '" + std::string(n.op()) + "': " + SimtBackend::why_not(g, n) +
                               (n.is("dot_general") ? "; " + products_->why_not(g, n) : "") +
                               (Attention::is_one(g, n) ? "; " + attention_->why_not(g, n) : ""));
    return c;
  }
  double cost(t::Graph, t::Node n) override {
    if (n.num_results() == 0) return -1;
    return matrix_seconds(device_->gpu(CudaDevice::index_of(n.result().type().p->device)), n);
  }
  std::unique_ptr<t::Kernel> compile(const t::Compile& c) override {
    std::unique_ptr<t::Kernel> kernel = compile_one(c, nullptr);
    return ranges_ ? ranges_->around(std::move(kernel), c.node()) : std::move(kernel);
  }
  std::unique_ptr<t::Kernel> deserialize(std::string_view bytes) override {
    std::unique_ptr<t::Kernel> kernel = restore_one(bytes);
    return ranges_ && kernel ? ranges_->around(std::move(kernel)) : std::move(kernel);
  }

 protected:
  bool generates(t::Graph g, t::Node n) override {
    if (Attention::is_one(g, n)) return !attention_->why_not(g, n).empty();
    if (Convolutions::is_one(g, n)) return !convolutions_->why_not(g, n).empty();
    return !Products::is_one(g, n) || !products_->why_not(g, n).empty();
  }
  // The libraries' algorithms. Their plans are kept, so that compile() finds them.
  void measure(std::span<const t::Compile> requests, const kit::MeasuringBudget& budget) override {
    std::vector<const t::Compile*> asking;
    for (const t::Compile& c : requests)
      if (asks(c) && !generates(c.graph(), c.node())) asking.push_back(&c);
    for (size_t i = 0; i < asking.size() && !budget.spent(); ++i) {
      t::progress("measuring algorithms", i, asking.size());
      try {
        (void)compile_one(*asking[i], &budget);
      } catch (const t::Error& e) {  // compile() says it where it matters
        t::log("autotuning", "cuda: '" + std::string(asking[i]->node().op()) + "' is predicted: " + e.what());
      }
    }
    if (!asking.empty()) t::progress("measuring algorithms", asking.size(), asking.size());
  }

 private:
  static bool asks(const t::Compile& c) { return (c.tune() & TSR_TUNE_ALGORITHMS) != 0; }
  // `budget`: of what may be measured for it; null: nothing.
  std::unique_ptr<t::Kernel> compile_one(const t::Compile& c, const kit::MeasuringBudget* budget) {
    const bool attention = Attention::is_one(c.graph(), c.node());
    if (generates(c.graph(), c.node())) {
      if (attention && t::log_enabled("perf_hints"))
        t::log("perf_hints", "cuda computes '" + std::string(c.node().op()) +
                                 "' with a kernel of its own: " + attention_->why_not(c.graph(), c.node()));
      return SimtBackend::compile(c);
    }
    const Algorithms algorithms = asks(c) ? Algorithms{&records_, budget} : Algorithms();
    if (attention) return attention_->compile(c, algorithms);
    return Convolutions::is_one(c.graph(), c.node()) ? convolutions_->compile(c, algorithms)
                                                     : products_->compile(c, algorithms);
  }
  std::unique_ptr<t::Kernel> restore_one(std::string_view bytes) {
    if (std::unique_ptr<t::Kernel> product = products_->restore(bytes)) return product;
    if (std::unique_ptr<t::Kernel> convolution = convolutions_->restore(bytes)) return convolution;
    if (std::unique_ptr<t::Kernel> attention = attention_->restore(bytes)) return attention;
    return SimtBackend::deserialize(bytes);
  }

  // A group around a convolution whose channels lie last is for the library; the kit's kernels gain nothing from that order.
  t::Claim claim_convolution(t::Graph g, t::Node n) {
    const std::string why = convolutions_->why_not(g, n);
    if (why.empty()) return t::yes();
    for (const t::Node& x : g.nodes(n.regions()[0]))
      if (x.is("transpose")) return t::no(g.scratch_string(why));
    return SimtBackend::claim(g, n);
  }

  // Of those that cuBLASLt computes, possibly as a part of what the node decomposes into.
  bool is_product(const t::Node& n) const {
    if (n.is("dot_general")) return products_->takes(n);
    return (n.is("matmul") || n.is("linear")) && products_->available();
  }

  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<Products> products_;
  std::unique_ptr<Convolutions> convolutions_;
  std::unique_ptr<Attention> attention_;
  bool any_order_;
  std::unique_ptr<Ranges> ranges_;
  kit::Choices records_;
};

}  // namespace

}  // namespace tessera::cuda

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  namespace cuda = tessera::cuda;
  static cuda::Shared shared(plugin.options);  // where it throws, the next instance tries again
  plugin.add_device("cuda", shared.device->count(), shared.device);
  const bool tf32 = plugin.options.get_bool("tf32", false);
  auto products = std::make_unique<cuda::Products>(shared.device, std::string(plugin.options.get_string("cublaslt", "")), tf32);
  const auto dnn = std::make_shared<cuda::LazyDnn>(std::string(plugin.options.get_string("cudnn", "")));
  auto convolutions = std::make_unique<cuda::Convolutions>(shared.device, dnn, tf32, *products);
  const bool any_order = plugin.options.get_bool("any_order", false);
  std::string records;
  if (!plugin.options.get_bool("force_disable_caches", false)) {
    records = plugin.options.get_string("cache_directory", "");
    if (records.empty()) records = tessera::kit::default_cache_directory("cuda");
  }
  auto attention = std::make_unique<cuda::Attention>(shared.device, dnn, any_order);
  plugin.add_backend(
      "cuda", std::make_unique<cuda::CudaBackend>(
                  shared.device, shared.target, std::move(products), std::move(convolutions), std::move(attention), any_order,
                  cuda::Ranges::open(std::string(plugin.options.get_string("nvtx", ""))), std::move(records)));
}
