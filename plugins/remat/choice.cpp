// SPDX-License-Identifier: Apache-2.0
#include "choice.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "closure.hpp"
#include "fill.hpp"
#include "neighbours.hpp"

namespace tessera::remat {

namespace {

constexpr size_t kMostPlans = 64, kKinds = 12, kJoints = 8;
constexpr size_t kApart = 2;     // how far apart plans that are joined are, among those that are fastest for their peak
constexpr double kWorth = 1e-3;  // of a step or a peak: what a plan must gain to be looked for
constexpr size_t kStride = 9;
constexpr size_t kSmall = 1000;   // nodes: all plans are lowered, in a second or a few
constexpr size_t kMedium = 3000;  // every third is looked at until one fits
constexpr double kFar = 1.3;      // times a budget; simulated peaks, which guess what is fused, are within a quarter

size_t at_once(const tsr_partition& p) {
  const bool known = p.struct_size >= offsetof(tsr_partition, at_once) + sizeof p.at_once && p.evaluate_all;
  return known ? std::max<size_t>(1, p.at_once) : 1;
}

}  // namespace

Choice::Choice(sdk::Graph g, const sdk::Options& options, tsr_partition& p, Measure measure)
    : p_(p),
      at_once_(at_once(p)),
      stride_(p.num_nodes <= kSmall    ? 1
              : p.num_nodes <= kMedium ? 3
                                       : kStride),
      joint_(make_joint(g, p, options)),
      separators_(find_separators(joint_.schedule, joint_.problem.nodes.size())) {
  const size_t most = measure == Measure::kPeak ? kMostPlans : SIZE_MAX;
  for (Candidate& c : candidates(joint_.problem, joint_.schedule, measure, most, &hull_)) plans_.push_back({std::move(c), {}});
  usual_ = minimum_closure(joint_.problem, price_of_a_byte(p));
  complete(joint_.problem, all_);
  if (measure == Measure::kPeak && is_small()) {
    add(usual_);
    for (const Plan& plan : plans_of_kinds(joint_.problem, kKinds)) add(plan);
  }
  where_halves_meet_ = lower_bound(joint_.problem, joint_.schedule, false);
  at_products_ = lower_bound(joint_.problem, joint_.schedule, true);
}

size_t Choice::index_of(const Plan& plan) const {
  const auto same = [&](const Known& k) { return k.candidate.plan.recompute == plan.recompute; };
  return static_cast<size_t>(std::find_if(plans_.begin(), plans_.end(), same) - plans_.begin());
}

void Choice::add(const Plan& plan) {
  if (index_of(plan) < size()) return;
  const auto dearer = [&](const Known& k) { return k.candidate.plan.cost > plan.cost; };
  const auto at = std::find_if(plans_.begin(), plans_.end(), dearer);
  plans_.insert(at, Known{{plan, peak_bytes(joint_.schedule, plan)}, {}});
}

std::vector<size_t> Choice::between(size_t fast, size_t slow) {
  const double least = lower(fast).seconds, most = lower(slow).seconds;
  if (most - least < kWorth * least) return {};
  std::vector<Plan> plans = joined(joint_.problem, separators_, plan(fast), plan(slow), kJoints);
  const auto try_too = [&](std::vector<Plan> more) { std::move(more.begin(), more.end(), std::back_inserter(plans)); };
  try_too(joined(joint_.problem, separators_, plan(slow), plan(fast), kJoints));
  try_too(one_more(joint_.problem, plan(fast), static_cast<int64_t>(kWorth * static_cast<double>(peak(fast)))));
  try_too(one_less(joint_.problem, plan(slow)));
  std::vector<size_t> tried, out;
  for (const Plan& p : plans) {
    // One that is known already may be outside of what another pair was joined for, and within this.
    tried.push_back(index_of(p));
    if (tried.back() == size()) plans_.push_back(Known{{p, peak_bytes(joint_.schedule, p)}, {}});
  }
  lower_all(tried);
  for (const size_t i : tried) {
    const Lowered& found = lower(i);
    if (found.seconds > least && found.seconds < most && found.peak >= peak(slow)) out.push_back(i);
  }
  return out;
}

Plan Choice::fill_up(const Plan& plan, int64_t kept) const { return fill(joint_.problem, plan, kept); }

std::vector<Choice::Lowered> Choice::lower(std::span<const Plan* const> plans) {
  std::vector<std::vector<uint8_t>> in_backward(plans.size(), {p_.in_backward, p_.in_backward + p_.num_nodes});
  std::vector<const uint8_t*> asked;
  for (size_t i = 0; i < plans.size(); ++i) {
    tsr_partition trial = p_;
    trial.in_backward = in_backward[i].data();
    put(joint_, *plans[i], trial);
    asked.push_back(in_backward[i].data());
  }
  std::vector<int64_t> peaks(plans.size());
  std::vector<double> seconds(plans.size());
  if (at_once_ > 1)
    sdk::check(p_.evaluate_all(p_.host, asked.size(), asked.data(), peaks.data(), seconds.data()));
  else
    for (size_t i = 0; i < plans.size(); ++i) sdk::check(p_.evaluate(p_.host, asked[i], &peaks[i], &seconds[i]));
  std::vector<Lowered> out;
  for (size_t i = 0; i < plans.size(); ++i) out.push_back({peaks[i], seconds[i]});
  return out;
}

Choice::Lowered Choice::lower(const Plan& plan) {
  const Plan* const one = &plan;
  return lower({&one, 1})[0];
}

std::pair<int64_t, int64_t> Choice::peaks(const Plan& a, const Plan& b) {
  const Plan* const both[] = {&a, &b};
  const std::vector<Lowered> found = lower(both);
  return {found[0].peak, found[1].peak};
}

void Choice::lower_all(std::span<const size_t> of) {
  std::vector<size_t> missing;
  std::vector<const Plan*> plans;
  for (const size_t i : of)
    if (!plans_[i].lowered && std::find(missing.begin(), missing.end(), i) == missing.end()) {
      missing.push_back(i);
      plans.push_back(&plan(i));
    }
  const std::vector<Lowered> found = lower(plans);
  for (size_t k = 0; k < missing.size(); ++k) plans_[missing[k]].lowered = found[k];
}

const Choice::Lowered& Choice::lower(size_t i) {
  Known& k = plans_[i];
  if (!k.lowered) k.lowered = lower(k.candidate.plan);
  return *k.lowered;
}

int64_t Choice::need(const Plan& plan, int64_t peak) const {
  return besides_ < 0 ? peak : std::max(peak, plan.saved_bytes + besides_);
}

void Choice::count_kept(int64_t besides) { besides_ = std::max<int64_t>(0, besides); }

bool Choice::is_far(int64_t simulated, int64_t bytes) const {
  return static_cast<double>(simulated + joint_.output_bytes) > kFar * static_cast<double>(bytes);
}

bool Choice::is_far(size_t from, size_t to, int64_t bytes) const {
  return std::all_of(plans_.begin() + static_cast<ptrdiff_t>(from), plans_.begin() + static_cast<ptrdiff_t>(to),
                     [&](const Known& k) { return is_far(k.candidate.bytes, bytes); });
}

bool Choice::is_far(const Plan& plan, int64_t bytes) const { return is_far(peak_bytes(joint_.schedule, plan), bytes); }

size_t Choice::first_dearer_than(int64_t cost) const {
  size_t i = 0;
  while (i + 1 < size() && plan(i).cost < cost) ++i;
  return i;
}

size_t Choice::first_within(int64_t bytes, size_t from) {
  const auto needed = [&](size_t i) { return need(plan(i), peak(i)); };
  size_t to = size();
  while (from + kStride < to && is_far(from, from + kStride, bytes)) from += kStride;
  for (size_t stride = stride_; stride > 0; stride /= 3) {
    size_t at = std::min(from + stride, to) - 1;
    for (look_ahead(at, stride, to); needed(at) > bytes; look_ahead(at, stride, to)) {
      if (at + 1 == size()) return size();
      from = at + 1;
      at = std::min(from + stride, to) - 1;
    }
    to = at + 1;
  }
  return to - 1;
}

void Choice::look_ahead(size_t at, size_t stride, size_t to) {
  if (plans_[at].lowered) return;
  std::vector<size_t> next;
  for (; next.size() < at_once_ && at < to; at += stride) next.push_back(at);
  lower_all(next);
}

bool Choice::is_small() const { return p_.num_nodes <= kSmall; }

size_t Choice::fastest_within(int64_t bytes) {
  std::vector<size_t> near;
  for (size_t i = 0; i < size(); ++i)
    if (!is_far(plans_[i].candidate.bytes, bytes)) near.push_back(i);
  const std::vector<size_t> fastest = fastest_of_each_peak(std::move(near));
  const auto at = std::find_if(fastest.begin(), fastest.end(), [&](size_t i) { return peak(i) <= bytes; });
  if (at == fastest.end()) return size();
  size_t best = *at;
  const auto slow = static_cast<size_t>(at - fastest.begin());
  for (size_t i = slow - std::min(slow, kApart); i < slow; ++i)
    for (size_t k = slow; k < fastest.size() && k <= i + kApart; ++k)
      for (const size_t found : between(fastest[i], fastest[k]))
        if (peak(found) <= bytes && lower(found).seconds < lower(best).seconds) best = found;
  return best;
}

std::vector<size_t> Choice::fastest_of_each_peak() {
  std::vector<size_t> all(size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<size_t> fastest = fastest_of_each_peak(all);
  for (size_t k = 1; k < fastest.size(); ++k)
    for (size_t i = k - std::min(k, kApart); i < k; ++i)
      for (const size_t found : between(fastest[i], fastest[k])) all.push_back(found);
  return fastest_of_each_peak(std::move(all));
}

std::vector<size_t> Choice::fastest_of_each_peak(std::vector<size_t> of) {
  lower_all(of);
  std::stable_sort(of.begin(), of.end(), [&](size_t a, size_t b) { return lower(a).seconds < lower(b).seconds; });
  std::vector<size_t> out;
  for (const size_t i : of)
    if (out.empty() || peak(i) < peak(out.back())) out.push_back(i);
  return out;
}

size_t Choice::smallest() {
  std::vector<size_t> by_bytes(size());
  std::iota(by_bytes.begin(), by_bytes.end(), 0);
  std::stable_sort(by_bytes.begin(), by_bytes.end(),
                   [&](size_t a, size_t b) { return plans_[a].candidate.bytes < plans_[b].candidate.bytes; });
  lower_all(std::span(by_bytes).first(std::min(size(), kStride)));
  const auto peak_of = [&](size_t i) { return plans_[i].lowered ? plans_[i].lowered->peak : INT64_MAX; };
  std::iota(by_bytes.begin(), by_bytes.end(), 0);
  return *std::min_element(by_bytes.begin(), by_bytes.end(), [&](size_t a, size_t b) { return peak_of(a) < peak_of(b); });
}

void Choice::give(const Plan& plan, int64_t peak) {
  put(joint_, plan, p_);
  p_.peak_bytes = peak;
  put_gap(plan, peak);
}

void Choice::give_as_lowered(size_t i) {
  const Plan& plan = this->plan(i);
  put(joint_, plan, p_);
  p_.peak_bytes = peak(i);
  p_.recompute_seconds = std::max(0.0, lower(i).seconds - lower(all_).seconds);
  put_gap(plan, p_.peak_bytes);
}

// Both sides are costs before fusion: no bound is known for what fusion leaves of them.
void Choice::put_gap(const Plan& plan, int64_t peak) {
  const double above = static_cast<double>(plan.cost) - bound(plan, peak);
  if (p_.step_seconds > 0) p_.bound_gap = std::max(0.0, above) / kPicoseconds / p_.step_seconds;
}

// No plan of this peak computes less again: what is kept is in memory at once when the backward half begins, beside the
// results, and at its products beside what those read.
double Choice::bound(const Plan& plan, int64_t peak) const {
  if (peak < 0) return hull_.bound(plan.saved_bytes);
  const int64_t bytes = std::max<int64_t>(0, peak - joint_.output_bytes);
  return std::max(
      {hull_.bound(bytes), static_cast<double>(where_halves_meet_.at(bytes)), static_cast<double>(at_products_.at(bytes))});
}

}  // namespace tessera::remat
