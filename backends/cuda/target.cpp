// SPDX-License-Identifier: Apache-2.0
#include "target.hpp"

#include <algorithm>

#include "compiler.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

class CudaModule final : public kit::SimtModule {
 public:
  CudaModule(Gpu& gpu, const std::string& cubin, std::span<const std::string> entries) {
    const auto shared = std::make_shared<const std::string>(cubin);
    for (const std::string& entry : entries) functions_.push_back(load_function(gpu, shared, entry).handle);
  }
  void* function(size_t entry) const override { return functions_[entry]; }

 private:
  std::vector<CUfunction> functions_;
};

class CudaTarget final : public kit::SimtTarget {
 public:
  CudaTarget(std::shared_ptr<CudaDevice> device, std::shared_ptr<Compiler> compiler)
      : device_(std::move(device)), compiler_(std::move(compiler)) {
    for (uint32_t i = 0; i < device_->count(); ++i) descriptions_.push_back(describe(device_->gpu(i)));
  }

  const char* device() const override { return "cuda"; }
  const kit::GpuDescription& description(uint32_t index) override {
    device_->gpu(index);  // throws where there is no such device
    return descriptions_[index];
  }
  const kit::GpuDialect& dialect() const override { return kit::cuda_dialect(); }
  std::string compiler() override { return "NVRTC " + compiler_->version_text() + " 1"; }

  std::string build(const kit::SimtUnit& unit, const kit::GpuDescription& device) override {
    return compiler_->compile(unit.text, device.architecture);
  }
  std::shared_ptr<const kit::SimtModule> load(const std::string& built, std::span<const std::string> entries,
                                              uint32_t index) override {
    return std::make_shared<CudaModule>(device_->gpu(index), built, entries);
  }

  void launch(const kit::SimtCall& c) override {
    Gpu& gpu = device_->gpu(c.index);
    if (c.blocks > kMaxBlocks) [[unlikely]]
      throw t::Error(TSR_ENVIRONMENT, "TSR-H010",
                     "kernel '" + std::string(c.entry) + "' on '" + gpu.name() + "' would run " + std::to_string(c.blocks) +
                         " blocks: expected at most " + std::to_string(kMaxBlocks),
                     "use smaller sizes");
    cuda::launch(gpu, static_cast<CUfunction>(c.function), c.entry, static_cast<unsigned>(c.blocks),
                 static_cast<unsigned>(c.threads), static_cast<unsigned>(c.dynamic_shared), c.stream, c.arguments);
  }
  t::Device* timed_device() override { return device_.get(); }

 private:
  static constexpr int64_t kMaxBlocks = INT32_MAX;  // of a grid's first dimension

  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<Compiler> compiler_;
  std::vector<kit::GpuDescription> descriptions_;
};

}  // namespace

kit::GpuDescription describe(const Gpu& gpu) {
  kit::GpuDescription d;
  d.architecture = gpu.architecture();
  d.wave = gpu.attribute(kWarpSize);
  d.units = gpu.attribute(kMultiprocessors);
  d.max_threads = gpu.attribute(kMaxThreadsPerBlock);
  d.max_waves = gpu.attribute(kMaxThreadsPerMultiprocessor) / std::max(1, d.wave);
  d.max_blocks = gpu.attribute(kMaxBlocksPerMultiprocessor);
  d.registers = gpu.attribute(kRegistersPerMultiprocessor);
  d.shared_bytes = gpu.attribute(kSharedPerBlockOptin);
  d.shared_bytes_unit = gpu.attribute(kSharedPerMultiprocessor);
  d.l2_bytes = gpu.attribute(kL2CacheSize);
  // A large copy reaches some 0.86 of what the memory's clock and width say (3.35 and 2.86 TB/s on an H100).
  d.bandwidth = 0.86 * gpu.bytes_per_second();
  d.mma = gpu.attribute(kMajor) >= 8;
  d.mma_group = gpu.attribute(kMajor) == 9;
  d.copies = gpu.attribute(kMajor) >= 8;
  if (const std::string why = kit::why_absurd(d); !why.empty())
    throw t::Error(TSR_ENVIRONMENT, "TSR-H006",
                   "the driver describes '" + gpu.name() + "' (" + gpu.model() + ") in numbers that cannot be: " + why,
                   "see that the driver fits the device (nvidia-smi)");
  return d;
}

std::shared_ptr<kit::SimtTarget> make_target(std::shared_ptr<CudaDevice> device, std::shared_ptr<Compiler> compiler) {
  return std::make_shared<CudaTarget>(std::move(device), std::move(compiler));
}

}  // namespace tessera::cuda
