// SPDX-License-Identifier: Apache-2.0
#include "ranges.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "libraries.hpp"

namespace tessera::cuda {

namespace {

namespace t = tessera::sdk;

// Of CUDA 12 and of CUDA 13. Their functions do nothing where no profiler listens.
constexpr const char* kSonames[] = {"libnvToolsExt.so.1", "libnvtx3interop.so.1"};
constexpr const char* kPackages[] = {"nvtx", "cu13"};

class MarkedKernel final : public t::Kernel {
 public:
  MarkedKernel(std::unique_ptr<t::Kernel> kernel, const std::string& node, Ranges::Push push, Ranges::Pop pop)
      : kernel_(std::move(kernel)), label_(kernel_->name() + node), push_(push), pop_(pop) {}

  void launch(const tsr_launch& l) override {
    push_(label_.c_str());
    struct End {
      Ranges::Pop pop;
      ~End() { pop(); }
    } const end{pop_};
    kernel_->launch(l);
  }

  std::string name() const override { return kernel_->name(); }
  int64_t workspace(const int64_t* dims) override { return kernel_->workspace(dims); }
  bool has_workspace() const override { return kernel_->has_workspace(); }
  bool has_sizes() const override { return kernel_->has_sizes(); }
  void sizes(const tsr_launch& l, std::span<int64_t> symbols) override { kernel_->sizes(l, symbols); }
  int in_place() const override { return kernel_->in_place(); }
  double pack_seconds() const override { return kernel_->pack_seconds(); }
  int64_t held_bytes() const override { return kernel_->held_bytes(); }
  uint64_t unread() const override { return kernel_->unread(); }
  uint64_t strided_inputs() const override { return kernel_->strided_inputs(); }
  uint64_t unaligned_inputs() const override { return kernel_->unaligned_inputs(); }
  uint32_t kernel_flags() const override { return kernel_->kernel_flags(); }
  bool can_describe_calls() const override { return kernel_->can_describe_calls(); }
  void describe_calls(const tsr_launch& l, const t::EachCall& each) override { kernel_->describe_calls(l, each); }
  bool can_serialize() const override { return kernel_->can_serialize(); }
  std::string serialize() const override { return kernel_->serialize(); }

 private:
  const std::unique_ptr<t::Kernel> kernel_;
  const std::string label_;
  const Ranges::Push push_;
  const Ranges::Pop pop_;
};

// ": softmax %y at model.tsr:2"
std::string text_of(const t::Node& n) {
  std::string out = ": " + std::string(n.op());
  if (n.num_results() > 0) out += " %" + std::string(n.result(0).name());
  const tsr_loc& at = n.raw().loc;
  if (at.file && *at.file) out += " at " + std::string(at.file) + ":" + std::to_string(at.line);
  return out;
}

}  // namespace

std::unique_ptr<Ranges> Ranges::open(const std::string& wanted) {
  // A profiler that listens names its library to the process that it starts.
  if (wanted == "off" || (wanted.empty() && !std::getenv("NVTX_INJECTION64_PATH"))) return nullptr;
  const Library library = open_library({kSonames, kPackages}, wanted == "on" ? "" : wanted);
  auto ranges = std::make_unique<Ranges>();
  if (library.handle) {
    ranges->push_ = reinterpret_cast<Push>(dlsym(library.handle, "nvtxRangePushA"));
    ranges->pop_ = reinterpret_cast<Pop>(dlsym(library.handle, "nvtxRangePop"));
  }
  if (ranges->push_ && ranges->pop_) return ranges;
  std::string tried;
  for (const std::string& path : library.tried) tried += (tried.empty() ? "" : ", ") + path;
  t::log("perf_hints", "cuda: profilers see no names of kernels: NVTX was not found (tried " + tried + ")");
  return nullptr;
}

std::unique_ptr<t::Kernel> Ranges::around(std::unique_ptr<t::Kernel> kernel, t::Node node) const {
  return std::make_unique<MarkedKernel>(std::move(kernel), text_of(node), push_, pop_);
}

std::unique_ptr<t::Kernel> Ranges::around(std::unique_ptr<t::Kernel> kernel) const {
  return std::make_unique<MarkedKernel>(std::move(kernel), "", push_, pop_);
}

}  // namespace tessera::cuda
