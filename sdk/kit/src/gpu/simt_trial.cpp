// SPDX-License-Identifier: Apache-2.0
#include "simt_trial.hpp"

#include <algorithm>
#include <utility>

namespace tessera::kit {
namespace {

constexpr int64_t kMostBytes = int64_t{4} << 30;      // of all tensors
constexpr int64_t kMostCompared = int64_t{32} << 20;  // of one output
constexpr int64_t kBlock = 1 << 20;                   // bytes that are made up; the rest of a tensor repeats them
constexpr double kBatch = 300e-6;                     // seconds that launches of one measurement take together
constexpr int kMostLaunches = 64;

}  // namespace

SimtTrial::SimtTrial(const sdk::Compile& c, sdk::Device& device, uint32_t index)
    : request_(c), device_(device), index_(index) {
  try {
    stream_ = device_.stream_create(index_);
    begin_ = device_.event_create(index_);
    end_ = device_.event_create(index_);
    const sdk::Node n = c.node();
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      if (n.has_operand(i)) {
        make(n.operand(i), inputs_);
      } else {
        inputs_.emplace_back();
        inputs_.back().t.flags = TSR_TENSOR_ABSENT;
      }
    }
    for (uint32_t i = 0; i < n.num_results(); ++i) make(n.result(i), outputs_);
    int64_t bytes = 0;
    for (const auto* tensors : {&inputs_, &outputs_})
      for (const Tensor& t : *tensors) bytes += t.bytes;
    if (bytes > kMostBytes) throw Unmeasurable{"its tensors are too large"};
    for (auto* tensors : {&inputs_, &outputs_})
      for (Tensor& t : *tensors) {
        t.t.sizes = t.sizes.data(), t.t.strides = t.strides.data();
        if (!(t.t.flags & TSR_TENSOR_ABSENT)) {
          t.t.data = allocate(t.bytes);
          if (tensors == &inputs_) fill(t.t, t.bytes * 8 / dtype_bits(t.t.dtype), t.bytes);
        }
        (tensors == &inputs_ ? in_ : out_).push_back(t.t);
      }
  } catch (...) {
    release();
    throw;
  }
}

SimtTrial::~SimtTrial() { release(); }

void SimtTrial::release() noexcept {
  for (void* p : memory_) device_.free(index_, p, stream_);
  if (workspace_) device_.free(index_, workspace_, stream_);
  for (tsr_event* e : {begin_, end_})
    if (e) device_.event_destroy(index_, e);
  if (stream_) device_.stream_destroy(index_, stream_);
}

void* SimtTrial::allocate(int64_t bytes) {
  memory_.reserve(memory_.size() + 1);
  void* p = device_.alloc(index_, static_cast<size_t>(std::max<int64_t>(bytes, 1)), 256, stream_);
  memory_.push_back(p);
  return p;
}

void SimtTrial::make(const sdk::Value& v, std::vector<Tensor>& to) {
  Tensor out;
  const sdk::Type type = v.type();
  out.t.dtype = type.dtype(), out.t.rank = type.rank();
  out.t.device = request_.real().p->device;
  out.t.flags = TSR_TENSOR_CONTIGUOUS;
  for (const tsr_dim d : type.sizes()) {
    out.sizes.push_back(request_.real().hint(d));
    if (out.sizes.back() < 0) throw Unmeasurable{"a size is not known"};
    if (out.sizes.back() == 0) throw Unmeasurable{"a tensor has no elements"};
  }
  int64_t elements = 1;
  out.strides.resize(out.sizes.size());
  for (size_t d = out.sizes.size(); d-- > 0;) {
    out.strides[d] = elements;
    if (__builtin_mul_overflow(elements, out.sizes[d], &elements) || elements > kMostBytes)
      throw Unmeasurable{"its tensors are too large"};
  }
  if (dtype_bits(out.t.dtype) % 8 != 0) throw Unmeasurable{"a dtype is packed"};
  out.bytes = storage_bytes(out.t.dtype, elements);
  to.push_back(std::move(out));
}

void SimtTrial::fill(const tsr_tensor& t, int64_t elements, int64_t bytes) {
  const int64_t element = bytes / elements, first = std::min(elements, kBlock / element);
  std::string block(static_cast<size_t>(first * element), '\0');
  fill_for_measuring(t.dtype, block.data(), first);
  char* to = static_cast<char*>(t.data);
  device_.copy(index_, to, block.data(), block.size(), TSR_COPY_TO_DEVICE, stream_);
  for (int64_t done = first * element; done < bytes;) {
    const int64_t n = std::min(done, bytes - done);
    device_.copy(index_, to + done, to, static_cast<size_t>(n), TSR_COPY_WITHIN, stream_);
    done += n;
  }
}

tsr_launch SimtTrial::launch_of(SimtKernel& kernel) {
  const int64_t bytes = kernel.has_workspace() ? kernel.workspace(request_.dims()) : 0;
  if (bytes > workspace_bytes_) {
    if (void* old = std::exchange(workspace_, nullptr)) memory_.push_back(old);  // graphs of other kernels name it
    workspace_ = device_.alloc(index_, static_cast<size_t>(bytes), 256, stream_);
    workspace_bytes_ = bytes;
  }
  tsr_launch l{};
  l.struct_size = sizeof l;
  l.inputs = in_.data(), l.num_inputs = static_cast<uint32_t>(in_.size());
  l.outputs = out_.data(), l.num_outputs = static_cast<uint32_t>(out_.size());
  l.workspace = workspace_;
  l.dims = request_.dims();
  l.stream = stream_;
  return l;
}

double SimtTrial::elapsed(const std::function<void()>& work) {
  device_.event_record(index_, begin_, stream_);
  work();
  device_.event_record(index_, end_, stream_);
  device_.event_synchronize(index_, end_);
  return device_.event_elapsed(index_, begin_, end_);
}

std::string SimtTrial::outputs() {
  std::string out;
  for (const Tensor& t : outputs_) {
    const auto bytes = static_cast<size_t>(std::min(t.bytes, kMostCompared));
    const size_t at = out.size();
    out.resize(at + bytes);
    device_.copy(index_, out.data() + at, out_[static_cast<size_t>(&t - outputs_.data())].data, bytes, TSR_COPY_TO_HOST,
                 stream_);
  }
  device_.stream_synchronize(index_, stream_);
  return out;
}

// ---------------------------------------------------------------------------------------------------------------- timed

SimtTrial::Timed::Timed(SimtTrial& trial, std::unique_ptr<SimtKernel> kernel) : trial_(trial), kernel_(std::move(kernel)) {
  if (kernel_->checks_data()) throw Unmeasurable{"it looks for faults in its data"};
  launch();  // loads what is loaded at a first launch
  const double one = trial_.elapsed([&] { launch(); });
  launches_ = static_cast<int>(std::clamp(kBatch / std::max(one, 1e-7), 2.0, static_cast<double>(kMostLaunches)));
  if (!trial_.device_.builds_graphs()) return;
  graph_ = trial_.device_.graph_create(trial_.index_);
  try {
    const tsr_launch l = trial_.launch_of(*kernel_);
    for (int i = 0; i < launches_; ++i) kernel_->describe_calls(l, {add, this});
    trial_.device_.graph_instantiate(trial_.index_, graph_);
  } catch (...) {
    trial_.device_.graph_destroy(trial_.index_, graph_);
    throw;
  }
}

SimtTrial::Timed::~Timed() {
  if (graph_) trial_.device_.graph_destroy(trial_.index_, graph_);
}

// Behind all that the graph has already.
tsr_error* SimtTrial::Timed::add(void* self, const tsr_device_call* call) {
  return sdk::guarded([&] {
    auto& timed = *static_cast<Timed*>(self);
    const uint32_t node = timed.trial_.device_.graph_add(timed.trial_.index_, timed.graph_, *call, timed.last_);
    timed.last_.assign(1, node);
  });
}

void SimtTrial::Timed::launch() { kernel_->launch(trial_.launch_of(*kernel_)); }

double SimtTrial::Timed::seconds() {
  const double all = trial_.elapsed([&] {
    if (graph_) {
      trial_.device_.graph_launch(trial_.index_, graph_, trial_.stream_);
    } else {
      for (int i = 0; i < launches_; ++i) launch();
    }
  });
  return all / launches_;
}

}  // namespace tessera::kit
