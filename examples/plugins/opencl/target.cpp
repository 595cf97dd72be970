// SPDX-License-Identifier: Apache-2.0
// How the kit's kernels are compiled, loaded and launched, and the plugin's factories. What is computed, how it is spread over
// the device and its text are the kit's: claims, fusion, saved kernels and symbolic sizes come with its SimtBackend.
#include <algorithm>

#include <tessera/kit/gpu/simt_backend.hpp>

#include "device.hpp"

namespace acme_opencl {

namespace {

namespace kit = tessera::kit;

constexpr const char* kOptions = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

class Module final : public kit::SimtModule {
 public:
  ~Module() override {
    for (const cl_kernel k : kernels) clReleaseKernel(k);
    clReleaseProgram(program);
  }
  void* function(size_t entry) const override { return kernels[entry]; }

  cl_program program = nullptr;
  std::vector<cl_kernel> kernels;
};

class Target final : public kit::SimtTarget {
 public:
  explicit Target(std::shared_ptr<OpenClDevice> device) : device_(std::move(device)) {}
  const char* device() const override { return "opencl"; }
  const kit::GpuDescription& description(uint32_t index) override { return device_->card(index).description; }
  const kit::GpuDialect& dialect() const override { return kit::opencl_dialect(); }
  std::string compiler() override { return std::string("OpenCL C 1 ") + kOptions; }  // the description names the driver

  std::string build(const kit::SimtUnit& unit, const kit::GpuDescription& description) override {
    const Card& card = *std::find_if(device_->cards().begin(), device_->cards().end(),
                                     [&](const Card& c) { return c.description.architecture == description.architecture; });
    const char* text = unit.text.c_str();
    cl_int status = CL_SUCCESS;
    Module m;
    m.program = clCreateProgramWithSource(card.context, 1, &text, nullptr, &status);
    check(status, "clCreateProgramWithSource");
    compile(m.program, card);
    size_t bytes = 0;
    check(clGetProgramInfo(m.program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr), "clGetProgramInfo");
    std::string binary(bytes, '\0');
    auto* at = reinterpret_cast<unsigned char*>(binary.data());
    check(clGetProgramInfo(m.program, CL_PROGRAM_BINARIES, sizeof at, &at, nullptr), "clGetProgramInfo");
    return binary;
  }

  std::shared_ptr<const kit::SimtModule> load(const std::string& built, std::span<const std::string> entries,
                                              uint32_t index) override {
    const Card& card = device_->card(index);
    const auto* at = reinterpret_cast<const unsigned char*>(built.data());
    const size_t bytes = built.size();
    cl_int state = CL_SUCCESS, status = CL_SUCCESS;
    auto m = std::make_shared<Module>();
    m->program = clCreateProgramWithBinary(card.context, 1, &card.id, &bytes, &at, &state, &status);
    check(status, "clCreateProgramWithBinary");
    compile(m->program, card);
    for (const std::string& entry : entries) {
      m->kernels.push_back(clCreateKernel(m->program, entry.c_str(), &status));
      check(status, "clCreateKernel");
    }
    return m;
  }

  void launch(const kit::SimtCall& c) override {
    const auto kernel = static_cast<cl_kernel>(c.function);
    const size_t threads = static_cast<size_t>(c.threads), all = static_cast<size_t>(c.blocks) * threads;
    const std::lock_guard lock(mutex_);  // arguments are a state of the kernel
    cl_uint n = 0;
    const auto pointer = [&](void* p) {
      check(p ? clSetKernelArgSVMPointer(kernel, n++, p) : clSetKernelArg(kernel, n++, sizeof(cl_mem), nullptr), c.entry);
    };
    const auto value = [&](const void* x) { check(clSetKernelArg(kernel, n++, 8, x), c.entry); };
    for (void* p : c.pointers) pointer(p);
    for (const int64_t& x : c.sizes) value(&x);
    if (c.checks) {
      pointer(c.fault);
      value(&c.site);
    }
    check(clEnqueueNDRangeKernel(c.stream->queue, kernel, 1, nullptr, &all, &threads, 0, nullptr, nullptr), c.entry);
  }

 private:
  static void compile(cl_program program, const Card& card) {
    if (clBuildProgram(program, 1, &card.id, kOptions, nullptr, nullptr) == CL_SUCCESS) return;
    char log[4096] = "";
    clGetProgramBuildInfo(program, card.id, CL_PROGRAM_BUILD_LOG, sizeof log, log, nullptr);
    throw t::Error(TSR_BUG, "TSR-B005", std::string("OpenCL did not compile the kit's text: ") + log);
  }

  std::shared_ptr<OpenClDevice> device_;
  std::mutex mutex_;
};

}  // namespace

std::shared_ptr<kit::SimtTarget> make_target(std::shared_ptr<OpenClDevice> device) {
  return std::make_shared<Target>(std::move(device));
}

}  // namespace acme_opencl

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  // Devices belong to the process: tensors outlive the context that made them. Where this throws, the next one tries again.
  static const auto device = std::make_shared<acme_opencl::OpenClDevice>();
  static const auto target = acme_opencl::make_target(device);
  plugin.add_device("opencl", static_cast<uint32_t>(device->cards().size()), device);
  plugin.add_backend("opencl", std::make_unique<tessera::kit::SimtBackend>(target));
}
