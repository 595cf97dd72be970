// SPDX-License-Identifier: Apache-2.0
// The plans of one graph that a budget chooses from, and what the host finds when it lowers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/plugin.hpp>

#include "bound.hpp"
#include "candidates.hpp"
#include "joint.hpp"

namespace tessera::remat {

// Picoseconds that keeping a byte takes: it is written in the forward half and read in the backward half.
inline double price_of_a_byte(const tsr_partition& p) { return 2 * p.seconds_per_byte * kPicoseconds; }

// Plans have numbers, by ascending cost before fusion; those of between() come last. `bytes` are those at the peak. `partition`
// must outlive the choice.
class Choice {
 public:
  Choice(sdk::Graph graph, const sdk::Options& options, tsr_partition& partition, Measure measure);

  size_t size() const { return plans_.size(); }
  const Plan& plan(size_t i) const { return plans_[i].candidate.plan; }
  const Plan& usual() const { return usual_; }  // what min_cut chooses
  const Plan& all() const { return all_; }      // keeps everything that may be kept
  // A plan that keeps `kept` bytes at most, where single nodes more suffice for that.
  Plan fill_up(const Plan& plan, int64_t kept) const;

  // Lowers a plan, those with a number once.
  int64_t peak(const Plan& plan) { return lower(plan).peak; }
  int64_t peak(size_t i) { return lower(i).peak; }
  // Of both; where the host lowers several plans at once, the second costs next to nothing.
  std::pair<int64_t, int64_t> peaks(const Plan& a, const Plan& b);
  bool is_side_by_side() const { return at_once_ > 1; }

  // Bytes of which a plan takes no more than a budget has: its peak, or what it keeps and what count_kept() was given.
  int64_t need(const Plan& plan, int64_t peak) const;
  void count_kept(int64_t besides);
  // Too far above a budget for it to be worth lowering the plan.
  bool is_far(const Plan& plan, int64_t bytes) const;

  size_t first_dearer_than(int64_t cost) const;
  // The first plan that fits, or size(): none does. Costs rise along the row, and exact peaks fall on the whole, but not from
  // each plan to the next. Lowering a plan takes as long as compiling it: of a large graph every ninth is looked at, but for
  // those whose simulated peak is far above; before the first of them that fits every third, and then each. A larger budget
  // never finds a plan of a higher cost: it begins where the smaller one begins, or before, and stops where that one stops, or
  // before.
  size_t first_within(int64_t bytes, size_t from = 0);

  // Whether all plans can be lowered in seconds, so that they are compared by what they take then: fusion makes some
  // nodes free, and keeping what they give slower than computing it again.
  bool is_small() const;
  // Of the plans that fit, the one of which a step takes the least time as it is lowered; size(): none fits. A larger budget
  // never finds a slower one.
  size_t fastest_within(int64_t bytes);
  // Plans by rising time of a step as it is lowered and falling peak: all that fastest_within() can find.
  std::vector<size_t> fastest_of_each_peak();

  // For a budget that nothing fits: of the plans with the smallest simulated peaks.
  size_t smallest();

  // Writes a plan into the host's table. `peak`: -1 if the plan was not lowered.
  void give(const Plan& plan, int64_t peak);
  // The same, where what computing again takes is what it adds to a step as it is lowered; 0 where the step is faster for it.
  // The gap to the bound stays one of costs before fusion.
  void give_as_lowered(size_t i);

 private:
  struct Lowered {
    int64_t peak = 0;
    double seconds = 0;  // of a step
  };
  struct Known {
    Candidate candidate;
    std::optional<Lowered> lowered;
  };
  size_t index_of(const Plan& plan) const;  // size(): it is not known
  void add(const Plan& plan);
  // Lowers what two plans near each other among the fastest of each peak give when they are joined, and what is one node from
  // them: `fast` with one more that runs again, `slow` with one less. Only as plans are lowered is it known who these are, and
  // for a budget between their peaks there may be nothing else. Gives those that such a budget alone finds: not faster than
  // `fast`, which a larger one finds, and with no lower a peak than `slow`, which a smaller one finds.
  std::vector<size_t> between(size_t fast, size_t slow);
  std::vector<size_t> fastest_of_each_peak(std::vector<size_t> of);
  std::vector<Lowered> lower(std::span<const Plan* const> plans);
  Lowered lower(const Plan& plan);
  const Lowered& lower(size_t i);
  void lower_all(std::span<const size_t> plans);  // those that are not known, side by side
  // What first_within() asks about next, as it goes on while no plan fits: as many as the host lowers at once.
  void look_ahead(size_t at, size_t stride, size_t to);
  double bound(const Plan& plan, int64_t peak) const;
  void put_gap(const Plan& plan, int64_t peak);
  bool is_far(int64_t simulated, int64_t bytes) const;
  bool is_far(size_t from, size_t to, int64_t bytes) const;

  tsr_partition& p_;
  const size_t at_once_;
  const size_t stride_;  // 9, 3 or 1
  const Joint joint_;
  Hull hull_;
  Bound where_halves_meet_, at_products_;
  const Separators separators_;
  std::vector<Known> plans_;
  Plan usual_, all_;
  int64_t besides_ = -1;
};

}  // namespace tessera::remat
