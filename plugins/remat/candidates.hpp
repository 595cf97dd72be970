// SPDX-License-Identifier: Apache-2.0
// The plans that a budget chooses from.
#pragma once

#include <cstdint>
#include <vector>

#include "closure.hpp"
#include "schedule.hpp"

namespace tessera::remat {

enum class Measure { kPeak, kKept };

struct Candidate {
  Plan plan;
  int64_t bytes = 0;  // peak_bytes(), or what the plan keeps
};

// Plans of which none is worse than another in both cost and bytes, at most `most`; and, where bytes are a simulated peak,
// minimum cuts of one price per byte, and two of them joined, that keep less than each of these that costs no more, with a peak
// not far above, and a few plans that compute again all that costs little. By ascending cost. They do not depend on a budget:
// the first of them that fits one is also there for every larger budget, which keeps cost a falling function of it.
//
// One price per byte finds what is best to keep, but not how much memory computing again holds: the cheapest plan that keeps
// little computes the whole forward half again at once. So for every k the search keeps each k-th separator too, which bounds
// what is computed at once by k segments (Chen et al. 2016, arXiv:1604.06174), and joins two neighbours at a separator: the
// earlier layers, whose backward comes last, by the plan that keeps less.
std::vector<Candidate> candidates(const Problem& problem, const Schedule& schedule, Measure measure, size_t most, Hull* hull);

// The earlier layers, up to a separator, by `early`, the later ones by `late`: one plan for each separator, or for `most` to
// 2 * `most` of them where there are more.
std::vector<Plan> joined(const Problem& problem, const Separators& separators, const Plan& late, const Plan& early,
                         size_t most);

// Plans that compute one kind of node again and nothing else, ones that compute everything again that costs little but for one
// kind, and ones that compute everything again that costs no more than one kind. Nodes of a kind cost the same and give as many
// bytes, as the activations of equal layers; of the kinds, the `most` with the most bytes. Which of several cheap kinds is best
// kept is decided by what fusion makes of them, of which a problem knows nothing: for those who can try.
std::vector<Plan> plans_of_kinds(const Problem& problem, size_t most);

}  // namespace tessera::remat
