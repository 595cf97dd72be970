// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>
#include <cmath>

#include "session.hpp"

namespace tessera::command {
namespace {

constexpr double kLeastDifference = 0.01;
constexpr int kResamples = 2000;
constexpr int64_t kAhead = 32;  // calls that may be queued on a device: more would measure what its queue holds

double median(std::vector<double> v) { return quantile(std::move(v), 0.5); }

}  // namespace

Caller::Caller(const embed::Executable& executable, std::vector<embed::Tensor> inputs)
    : executable_(executable), inputs_(std::move(inputs)) {
  for (const embed::Tensor& t : inputs_) in_.push_back(t.handle());
  const tsr_tables& t = executable_.tables();
  out_.resize(TSR_AT(tsr_region, t.regions, t.region_stride, 0)->num_outputs);
  for (const tsr_device d : devices_of(executable_))
    if (d != 0) devices_.push_back(d);
}

void Caller::wait() const {
  for (const tsr_device d : devices_) embed::synchronize(d);
}

double Caller::calls(int64_t n) {
  const tsr_api& api = embed::api();
  const double start = now_ms();
  for (int64_t i = 0; i < n; ++i) {
    embed::check(api.run(executable_.handle(), in_.data(), in_.size(), out_.data(), out_.size()));
    for (tsr_tensor_handle* h : out_) api.tensor_release(h);
    if ((i + 1) % kAhead == 0) wait();
  }
  wait();
  return (now_ms() - start) / static_cast<double>(n);
}

double Caller::call() { return calls(1); }
std::vector<embed::Tensor> Caller::run() const { return executable_.run(inputs_); }

DispatchedCaller::DispatchedCaller(const embed::Model& model, std::vector<embed::Tensor> inputs, size_t outputs,
                                   const std::vector<tsr_device>& devices)
    : model_(model), inputs_(std::move(inputs)), args_(inputs_.size()), out_(outputs) {
  for (size_t i = 0; i < args_.size(); ++i) {
    args_[i].tensor = inputs_[i].handle();
    args_[i].kind = TSR_ARG_TENSOR;
  }
  for (const tsr_device d : devices)
    if (d != 0) devices_.push_back(d);
}

double DispatchedCaller::calls(int64_t n) {
  const tsr_api& api = embed::api();
  const double start = now_ms();
  for (int64_t i = 0; i < n; ++i) {
    size_t count = 0;
    embed::check(api.call(model_.handle(), args_.data(), args_.size(), out_.data(), out_.size(), &count, nullptr));
    for (size_t k = 0; k < count; ++k) api.tensor_release(out_[k]);
    if ((i + 1) % kAhead == 0)
      for (const tsr_device d : devices_) embed::synchronize(d);
  }
  for (const tsr_device d : devices_) embed::synchronize(d);
  return (now_ms() - start) / static_cast<double>(n);
}

double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  const double at = q * static_cast<double>(v.size() - 1);
  const auto low = static_cast<size_t>(at);
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(low), v.end());
  const double a = v[low];
  if (low + 1 >= v.size()) return a;
  const double b = *std::min_element(v.begin() + static_cast<std::ptrdiff_t>(low) + 1, v.end());
  return a + (b - a) * (at - static_cast<double>(low));
}

const char* to_string(const Verdict& v) {
  return v.word == Verdict::kFaster ? "faster" : v.word == Verdict::kSlower ? "slower" : "inconclusive";
}

Verdict judge(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios, same;
  for (size_t i = 0; i + 1 < std::min(a.size(), b.size()); i += 2) {
    ratios.push_back(std::log((a[i] + a[i + 1]) / (b[i] + b[i + 1])));
    same.push_back(std::log(a[i + 1] / a[i]));
    same.push_back(std::log(b[i + 1] / b[i]));
  }
  // log(a2 / a1) has twice the variance of a block's ratio, which averages two calls on either side.
  for (double& s : same) s /= std::sqrt(2.0);
  uint64_t state = 1;
  std::vector<double> magnitudes, signed_values(same.size() / 2);
  for (int r = 0; r < kResamples; ++r) {
    for (double& v : signed_values) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;  // Knuth's MMIX generator
      const uint64_t bits = state >> 32;
      const double s = same[bits / 2 % same.size()];
      v = bits & 1 ? s : -s;
    }
    magnitudes.push_back(std::abs(median(signed_values)));
  }
  Verdict out{};
  const double log_ratio = median(ratios);
  out.speedup = std::exp(log_ratio);
  std::vector<double> medians, drawn(ratios.size());
  for (int r = 0; r < kResamples; ++r) {
    for (double& v : drawn) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      v = ratios[(state >> 33) % ratios.size()];
    }
    medians.push_back(median(drawn));
  }
  out.low = std::exp(quantile(medians, 0.025));
  out.high = std::exp(quantile(medians, 0.975));
  out.noise = std::max(kLeastDifference, std::expm1(quantile(magnitudes, 0.99)));
  out.word = std::abs(log_ratio) <= std::log1p(out.noise) ? Verdict::kInconclusive
             : log_ratio > 0                              ? Verdict::kFaster
                                                          : Verdict::kSlower;
  return out;
}

}  // namespace tessera::command
