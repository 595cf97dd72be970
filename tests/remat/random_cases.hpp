// SPDX-License-Identifier: Apache-2.0
// Random problems with their schedules, small enough that all plans can be looked at.
#pragma once

#include <algorithm>
#include <random>

#include "schedule.hpp"

namespace tessera::remat {

struct Case {
  Problem problem;
  Schedule schedule;
};

// A forward half of `nodes` nodes, of which each reads earlier ones, and a backward half that reads it from its end.
inline Case random_case(std::mt19937& random, int nodes) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Case c;
  for (int n = 0; n < nodes; ++n) {
    Node node;
    node.cost = draw(1, 1000);
    node.must_save = draw(0, 9) == 0;
    if (n > 0) node.inputs.push_back(static_cast<uint32_t>(n - 1));
    if (n > 1 && draw(0, 1)) node.inputs.push_back(static_cast<uint32_t>(draw(0, n - 2)));
    c.problem.values.push_back({static_cast<uint32_t>(n), 64 * draw(1, 20), draw(0, 2) != 0});
    c.schedule.item_of.push_back(static_cast<uint32_t>(n));
    c.schedule.items.push_back({false, static_cast<uint32_t>(n), node.inputs, {static_cast<uint32_t>(n)}});
    c.problem.nodes.push_back(std::move(node));
  }
  for (const Value& v : c.problem.values) c.schedule.bytes.push_back(v.bytes);
  auto gradient = kNoItem;
  for (int n = nodes; n-- > 0;) {
    Item item{true, 0, {}, {static_cast<uint32_t>(c.schedule.bytes.size())}};
    if (c.problem.values[static_cast<size_t>(n)].read) item.reads.push_back(static_cast<uint32_t>(n));
    if (gradient != kNoItem) item.reads.push_back(gradient);
    gradient = item.writes[0];
    c.schedule.bytes.push_back(64 * draw(1, 20));
    c.schedule.items.push_back(std::move(item));
  }
  c.schedule.outputs.assign(c.schedule.bytes.size(), 0);
  c.schedule.outputs[static_cast<size_t>(nodes) - 1] = 1;
  return c;
}

// Segments of up to three nodes, which read nodes of their own segment and the end of the one before. Gradients are as large as
// all that the forward half can hold beside what is kept, so that a peak is one of the backward half.
inline Case random_chain(std::mt19937& random, int segments) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Case c;
  uint32_t before = kNoItem;
  for (int s = 0; s < segments; ++s) {
    const auto first = static_cast<uint32_t>(c.problem.nodes.size());
    const int length = draw(1, 3);
    for (int k = 0; k < length; ++k) {
      const auto n = static_cast<uint32_t>(c.problem.nodes.size());
      Node node;
      node.cost = draw(1, 1000);
      node.must_save = draw(0, 14) == 0;
      if (n > first) node.inputs.push_back(n - 1);
      if (before != kNoItem && (n == first || draw(0, 1))) node.inputs.push_back(before);
      c.problem.values.push_back({n, 64 * draw(1, 20), draw(0, 3) != 0});
      c.schedule.item_of.push_back(n);
      c.schedule.items.push_back({false, n, node.inputs, {n}});
      c.problem.nodes.push_back(std::move(node));
    }
    before = static_cast<uint32_t>(c.problem.nodes.size() - 1);
  }
  for (const Value& v : c.problem.values) c.schedule.bytes.push_back(v.bytes);
  auto gradient = kNoItem;
  for (size_t n = c.problem.nodes.size(); n-- > 0;) {
    Item item{true, 0, {}, {static_cast<uint32_t>(c.schedule.bytes.size())}};
    if (c.problem.values[n].read) item.reads.push_back(static_cast<uint32_t>(n));
    if (gradient != kNoItem) item.reads.push_back(gradient);
    gradient = item.writes[0];
    c.schedule.bytes.push_back(64 * draw(80, 100));
    c.schedule.items.push_back(std::move(item));
  }
  c.schedule.outputs.assign(c.schedule.bytes.size(), 0);
  return c;
}

// The plan that computes again the nodes of a set of bits.
inline Plan plan_of(const Problem& problem, uint32_t bits) {
  Plan plan;
  for (size_t n = 0; n < problem.nodes.size(); ++n) plan.recompute.push_back(bits >> n & 1);
  complete(problem, plan);
  return plan;
}

}  // namespace tessera::remat
