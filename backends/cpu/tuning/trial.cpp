// SPDX-License-Identifier: Apache-2.0
#include "tuning/trial.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "strided.hpp"
#include "tessera/caches.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

constexpr int64_t kMostBytes = int64_t{2} << 30;
constexpr int kLeastRounds = 5;
constexpr double kSteady = 1.03;         // two times so close are what a kernel takes
constexpr double kFarBehind = 1.3;       // no chance, after kLeastRounds rounds
constexpr double kSecondsOfProblem = 2;  // that rounds may go on for
constexpr int kManyRounds = 25;          // the least of so many tells, steady or not

[[noreturn]] void cannot(const char* why) { throw Unmeasurable{why}; }

char* allocate(int64_t bytes) {
  void* p = std::aligned_alloc(64, static_cast<size_t>((std::max<int64_t>(bytes, 1) + 127) / 64 * 64));
  if (!p) throw std::bad_alloc();
  return static_cast<char*>(p);
}

}  // namespace

void Trial::Free::operator()(char* p) const { std::free(p); }

Trial::Trial(const sdk::Compile& c) : request_(c) {
  const sdk::Node n = c.node();
  int64_t bytes = 0;
  for (uint32_t i = 0; i < n.num_operands(); ++i) {
    if (n.has_operand(i)) {
      inputs_.push_back(make(n.operand(i)));
    } else {
      inputs_.emplace_back();
      inputs_.back().t.flags = TSR_TENSOR_ABSENT;
    }
    bytes += inputs_.back().bytes;
  }
  for (uint32_t i = 0; i < n.num_results(); ++i) {
    outputs_.push_back(make(n.result(i)));
    bytes += outputs_.back().bytes;
  }
  if (bytes > kMostBytes) cannot("its tensors are too large");
  for (auto* tensors : {&inputs_, &outputs_})
    for (Tensor& t : *tensors) {
      t.t.sizes = t.sizes.data(), t.t.strides = t.strides.data();
      (tensors == &inputs_ ? in_ : out_).push_back(t.t);
    }
}

Trial::Tensor Trial::make(const sdk::Value& v) const {
  Tensor out;
  if (v.def() && v.def().is("constant") && v.def().attr("value").p->kind == TSR_ATTR_TENSOR) {
    out.t = v.def().attr("value").as_tensor();
    out.sizes.assign(out.t.sizes, out.t.sizes + out.t.rank);
    out.constant = true;
  } else {
    const sdk::Type type = v.type();
    out.t.dtype = type.dtype(), out.t.rank = type.rank();
    for (const tsr_dim d : type.sizes()) {
      out.sizes.push_back(request_.real().hint(d));
      if (out.sizes.back() < 0) cannot("a size is not known");
    }
  }
  int64_t elements = 1;
  out.strides.resize(out.sizes.size());
  for (size_t d = out.sizes.size(); d-- > 0;) {
    out.strides[d] = elements;
    if (__builtin_mul_overflow(elements, std::max<int64_t>(out.sizes[d], 1), &elements) || elements > kMostBytes)
      cannot("its tensors are too large");
  }
  for (const int64_t s : out.sizes)
    if (s == 0) cannot("a tensor has no elements");
  if (tessera::dtype_bits(out.t.dtype) % 8 != 0) cannot("a dtype is packed");
  out.bytes = tessera::storage_bytes(out.t.dtype, elements);
  out.t.flags = TSR_TENSOR_CONTIGUOUS;
  if (out.constant) return out;
  out.own.reset(allocate(out.bytes));
  out.t.data = out.own.get();
  tessera::kit::fill_for_measuring(out.t.dtype, out.own.get(), elements);
  return out;
}

// Takes the caches for something else, then brings back what a predecessor would have left there.
void Trial::cool() {
  static const int64_t room = tessera::cache_bytes(3, 16 << 20);
  thread_local std::vector<char> other;
  other.resize(static_cast<size_t>(room));
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < other.size(); i += kLine) ++other[i];
  volatile char seen = 0;
  for (const Tensor& t : inputs_)
    if (!t.constant && t.bytes <= room)
      for (int64_t i = 0; i < t.bytes; i += kLine) seen = static_cast<const char*>(t.t.data)[i];
  static_cast<void>(seen);
}

double Trial::seconds(sdk::Kernel& kernel) {
  const int64_t bytes = kernel.has_workspace() ? kernel.workspace(request_.dims()) : 0;
  if (bytes > workspace_bytes_) {
    workspace_.reset();
    workspace_.reset(allocate(bytes));
    std::memset(workspace_.get(), 0, static_cast<size_t>(bytes));
    workspace_bytes_ = bytes;
  }
  tsr_launch l{};
  l.struct_size = sizeof l;
  l.inputs = in_.data(), l.num_inputs = static_cast<uint32_t>(in_.size());
  l.outputs = out_.data(), l.num_outputs = static_cast<uint32_t>(out_.size());
  l.workspace = workspace_.get();
  l.dims = request_.dims();
  cool();
  const auto start = Budget::Clock::now();
  kernel.launch(l);
  return std::chrono::duration<double>(Budget::Clock::now() - start).count();
}

std::string Trial::outputs() const {
  std::string out;
  for (const Tensor& t : outputs_) out.append(t.own.get(), static_cast<size_t>(t.bytes));
  return out;
}

bool Trial::like_outputs(const std::string& other) const {
  size_t at = 0;
  for (const Tensor& t : outputs_) {
    if (t.t.dtype == TSR_F32) {
      double largest = 0, apart = 0;
      for (int64_t i = 0; i < t.bytes / 4; ++i) {
        float x, y;
        std::memcpy(&x, t.own.get() + 4 * i, 4);
        std::memcpy(&y, other.data() + at + static_cast<size_t>(4 * i), 4);
        largest = std::max(largest, std::abs(static_cast<double>(y)));
        const double d = std::abs(static_cast<double>(x) - static_cast<double>(y));
        if (!(x == y) && !(std::isnan(x) && std::isnan(y)))
          apart = std::isnan(d) ? std::numeric_limits<double>::infinity() : std::max(apart, d);
      }
      if (apart > 1e-3 * largest) return false;
    }
    at += static_cast<size_t>(t.bytes);
  }
  return true;
}

std::optional<std::vector<double>> measure(Trial& trial, const std::vector<std::unique_ptr<sdk::Kernel>>& kernels,
                                           const Budget& budget) {
  struct Times {
    double least = std::numeric_limits<double>::infinity(), second = least;
    void add(double s) {
      second = std::min(second, std::max(least, s));
      least = std::min(least, s);
    }
    bool steady() const { return second <= kSteady * least; }
  };
  std::vector<Times> times(kernels.size());
  const Budget problem(std::min(kSecondsOfProblem, std::max(0.0, budget.left())));
  for (int round = -1;; ++round) {  // the first is not counted: pages and code are touched for the first time
    double ahead = std::numeric_limits<double>::infinity();
    for (const Times& t : times) ahead = std::min(ahead, t.least);
    const auto out = [&](const Times& t) { return round >= kLeastRounds && t.least > kFarBehind * ahead; };
    if (round >= kLeastRounds && std::all_of(times.begin(), times.end(), [&](const Times& t) { return out(t) || t.steady(); }))
      break;
    if (round > kLeastRounds && problem.spent()) {
      if (round >= kManyRounds) break;
      return std::nullopt;
    }
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (out(times[i])) continue;
      const double s = trial.seconds(*kernels[i]);
      if (round >= 0) times[i].add(s);
    }
  }
  std::vector<double> least;
  for (const Times& t : times) least.push_back(t.least);
  return least;
}

}  // namespace cpu
